//! Arguments that make a fleet of the target: other hosts, and what reaches them.

use clap::Args;
use fathom_labs::fleet::{Fleet, Layout};
use fathom_system::fleet::{Fathom, Host, Via, launcher};

use crate::exit::{Failure, refused};

/// Where jobs run, where not here.
#[derive(Args, Clone, Default)]
pub(crate) struct HostsArgs {
    /// Run every job on these hosts at once: h1,h2[=TARGET],… a file with a host per line (NAME [TARGET] [destroy=SERIAL]), slurm (this
    /// allocation's nodes) or pods:SELECTOR; of a sim: target also their number
    #[arg(long, value_name = "HOSTS|FILE", help_heading = "Many hosts")]
    hosts: Option<String>,
    /// What starts a process on a host: ssh, srun, kubectl, mpirun or 'PROGRAM … {host} …' [default: srun of slurm, kubectl of
    /// pods, else ssh]
    #[arg(
        long,
        value_name = "LAUNCHER",
        requires = "hosts",
        help_heading = "Many hosts"
    )]
    via: Option<String>,
    /// fathom as it is on the hosts [default: this one is carried there]
    #[arg(
        long,
        value_name = "PATH",
        requires = "hosts",
        help_heading = "Many hosts"
    )]
    hosts_fathom: Option<String>,
    /// own: a file for each host; parts, shared, neighbour: one file, a part for each, all over it, or the part of the
    /// host after it
    #[arg(
        long,
        default_value = "own",
        requires = "hosts",
        hide_possible_values = true,
        value_parser = clap::builder::PossibleValuesParser::new(Layout::WORDS),
        help_heading = "Many hosts"
    )]
    layout: String,
    /// Whether they work on files of a directory.
    #[arg(skip)]
    files: bool,
}

impl HostsArgs {
    /// Whether hosts were named.
    pub(crate) fn any(&self) -> bool {
        self.hosts.is_some()
    }

    /// The same for what works on files of a directory: where no host was named, this one's agent does it.
    pub(crate) fn on_files(&self) -> Result<Self, Failure> {
        if self.layout.parse() != Ok(Layout::Own) {
            return Err(refused(anyhow::anyhow!(
                "--layout: there are many files here, not one that hosts could share: leave it out"
            )));
        }
        let mut all = Self {
            files: true,
            ..self.clone()
        };
        if !self.any() {
            all.hosts = Some("localhost".into());
            all.via = Some("env FATHOM_HOST={host}".into());
            all.hosts_fathom = Some(format!("/proc/{}/exe", std::process::id()));
        }
        Ok(all)
    }

    /// How many were named; 1 where none were.
    pub(crate) fn count(&self) -> Result<u32, Failure> {
        Ok(match (&self.hosts, self.simulated()) {
            (None, _) => 1,
            (Some(_), Some(n)) => n,
            (Some(hosts), None) => Host::parse(hosts)
                .map_err(fathom_labs::LabError::from)?
                .len() as u32,
        })
    }

    /// So many simulated ones: a number instead of names.
    pub(crate) fn simulated(&self) -> Option<u32> {
        self.hosts.as_ref()?.parse().ok()
    }

    /// How simulated hosts share their model: nothing reaches them.
    pub(crate) fn layout_alone(&self) -> Result<Layout, Failure> {
        let idle = [("--via", &self.via), ("--hosts-fathom", &self.hosts_fathom)];
        if let Some((option, _)) = idle.iter().find(|(_, given)| given.is_some()) {
            return Err(refused(anyhow::anyhow!(
                "{option}: a number of simulated hosts is not reached by anything: leave it out, or name the hosts"
            )));
        }
        Ok(self.layout.parse().unwrap_or_default())
    }

    /// How many ranges are each written by one host only, for what must write every byte once.
    pub(crate) fn ranges(&self) -> Result<u32, Failure> {
        if self.simulated().is_some() {
            return Err(refused(anyhow::anyhow!(
                "--hosts: simulated hosts share one model: leave it out, or name the hosts, each of which has a model of its own"
            )));
        }
        match self.layout.parse().unwrap_or_default() {
            Layout::Own => self.count(),
            Layout::Parts => Ok(1),
            Layout::Shared | Layout::Neighbour => Err(refused(anyhow::anyhow!(
                "--layout {}: bytes would be written by several hosts, or by none: expected own or parts",
                self.layout
            ))),
        }
    }

    /// The fleet that was named; nothing is reached yet.
    pub(crate) fn fleet(&self) -> Result<Option<Fleet>, Failure> {
        let Some(hosts) = &self.hosts else {
            return Ok(None);
        };
        let refuse = fathom_labs::LabError::from;
        Ok(Some(Fleet {
            hosts: Host::parse(hosts).map_err(refuse)?,
            via: Via::parse(self.via.as_deref().unwrap_or(launcher(hosts))).map_err(refuse)?,
            fathom: Fathom::find(self.hosts_fathom.as_deref()).map_err(refuse)?,
            layout: self.layout.parse().unwrap_or_default(),
            files: self.files,
        }))
    }
}
