//! Machines that the user runs already, whatever their hypervisor: their fathom is reached through ssh.

use clap::Args;
use fathom_bench::Bench;
use fathom_io::Control;
use fathom_telemetry::{Bytes, Flag, FlagCode};

use super::backend::{Hypervisor, Knob, Setup};
use super::counted;
use crate::LabError;
use crate::guest::RemoteBench;
use crate::guest::remote::Opening;
use fathom_system::guest::Guest;
use fathom_system::guest::wire::Answer;

/// Machines that run already: how they are reached, and what is tested in each.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Reach {
    /// Hosts, reached by ssh, whose fathom runs the jobs: machines that run already, whatever their hypervisor
    #[arg(id = "ssh", long, value_name = "HOST,…", value_delimiter = ',', help_heading = HEADING)]
    pub hosts: Vec<String>,
    /// What is tested in each: a directory, a file or a device
    #[arg(id = "ssh_target", long = "ssh-target", value_name = "TARGET", default_value = ".", requires = "ssh", help_heading = HEADING)]
    pub target: String,
    /// Serial number (or path, where there is none) of the device there whose data may be destroyed
    #[arg(id = "ssh_destroy", long = "ssh-destroy", value_name = "SERIAL", requires = "ssh", help_heading = HEADING)]
    pub destroy: Option<String>,
    /// Their fathom
    #[arg(id = "ssh_fathom", long = "ssh-fathom", value_name = "PATH", default_value = "fathom", requires = "ssh", help_heading = HEADING)]
    pub fathom: String,
    /// What reaches a host, with its arguments
    #[arg(id = "ssh_program", long = "ssh-program", value_name = "COMMAND", default_value = "ssh -o BatchMode=yes", requires = "ssh", help_heading = HEADING, value_parser = words)]
    pub program: std::vec::Vec<String>,
}

/// Where its options stand in the help.
const HEADING: &str = "Machines of your own";

fn words(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

impl Reach {
    /// Refuses what the program would take for an option: one of ssh's runs a command on this machine.
    ///
    /// # Errors
    /// The first such word.
    pub fn check(&self) -> Result<(), LabError> {
        let hosts = self.hosts.iter().map(|h| ("--ssh", h));
        let mut words = hosts.chain([("--ssh-fathom", &self.fathom)]);
        let option = words.find(|(_, w)| w.is_empty() || w.starts_with('-'));
        option.map_or(Ok(()), |(name, word)| {
            Err(LabError::Refused(format!(
                "{name}: '{word}' is no name: expected one that does not begin with '-'; options for ssh go into --ssh-program"
            )))
        })
    }

    fn command(&self, host: &str) -> Vec<String> {
        let mut all = self.program.clone();
        let name = all.first().and_then(|p| p.rsplit('/').next());
        // Without it ssh looks for options behind the host, too.
        if name == Some("ssh") {
            all.push("--".into());
        }
        all.extend([host, self.fathom.as_str(), "guest-agent"].map(str::to_owned));
        all
    }
}

/// Running machines, by how each is reached.
pub struct SshMachines {
    reach: Reach,
    size: u64,
    modifies: bool,
    control: Control,
    kernels: Vec<String>,
}

impl SshMachines {
    /// Of `size` bytes each scratch file's size is made, where the target is a directory.
    pub fn new(reach: Reach, size: u64, modifies: bool, control: Control) -> Self {
        Self {
            reach,
            size,
            modifies,
            control,
            kernels: Vec::new(),
        }
    }
}

impl Hypervisor for SshMachines {
    fn name(&self) -> &'static str {
        "ssh"
    }
    fn about(&self) -> String {
        let target = &self.reach.target;
        format!(
            "machines that ran already: {} ({}); in each {target} was tested",
            self.reach.hosts.join(", "),
            self.kernels.join(", ")
        )
    }
    fn knobs(&self) -> &'static [Knob] {
        &[]
    }
    fn boot(&mut self, _setup: &Setup, machines: u32) -> Result<Box<dyn Bench>, LabError> {
        self.reach.check()?;
        let there = self.reach.hosts.len();
        if machines as usize > there {
            return Err(LabError::Refused(format!(
                "--ssh names {}, {machines} are asked for: name more, or fewer with --vms",
                counted(there as u32)
            )));
        }
        let mut guests = Vec::new();
        for host in self.reach.hosts.iter().take(machines as usize) {
            let guest = Guest::reach(&self.reach.command(host))?;
            if let Answer::Hello { kernel, .. } = &guest.hello
                && !self.kernels.contains(kernel)
            {
                self.kernels.push(kernel.clone());
            }
            guests.push(guest);
        }
        let opening = Opening {
            target: self.reach.target.clone(),
            modifies: self.modifies,
            size: Some(Bytes(self.size)),
            destroy: self.reach.destroy.clone(),
        };
        let bench = RemoteBench::open(guests, &opening, self.control.clone(), Vec::new())?;
        Ok(Box::new(bench))
    }
    fn floor(&mut self, _setup: &Setup) -> Result<Option<Box<dyn Bench>>, LabError> {
        Ok(None)
    }
    fn stamps(&self) -> Vec<Flag> {
        vec![Flag::new(
            FlagCode::NotChecked,
            "machines of your own: what else they do, and whether their disks lie on the target, is not known",
            "keep them idle otherwise, and give them disks on the target that is measured beside them",
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(program: &[&str], hosts: &[&str]) -> Reach {
        Reach {
            program: program.iter().map(|p| (*p).to_owned()).collect(),
            hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
            fathom: "fathom".into(),
            target: ".".into(),
            destroy: None,
        }
    }

    fn refused(reach: Reach, machines: u32) -> String {
        let mut all = SshMachines::new(reach, 1 << 20, false, Control::new());
        match all.boot(&Setup::default(), machines) {
            Ok(_) => panic!("it was reached"),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn a_machine_is_reached_through_a_program_and_its_fathom() {
        assert_eq!(
            reach(&["ssh", "-p", "22"], &[]).command("a"),
            ["ssh", "-p", "22", "--", "a", "fathom", "guest-agent"]
        );
        assert_eq!(
            reach(&["kubectl", "exec"], &[]).command("a"),
            ["kubectl", "exec", "a", "fathom", "guest-agent"]
        );
    }

    #[test]
    fn no_hosts_name_is_an_option() {
        for host in ["-oProxyCommand=touch /tmp/x", "--", "-", ""] {
            let said = refused(reach(&["sh"], &[host]), 1);
            assert!(said.contains("does not begin with '-'"), "{said}");
        }
        let mut named = reach(&["ssh"], &["a"]);
        named.fathom = "-oProxyCommand=x".into();
        assert!(named.check().is_err());
    }

    #[test]
    fn who_cannot_be_reached_is_named_with_what_was_said() {
        let said = refused(
            reach(&["sh", "-c", "echo no route >&2; exit 255"], &["a"]),
            1,
        );
        assert!(said.contains("no route"), "{said}");
        let said = refused(reach(&["/nowhere/ssh"], &["a"]), 1);
        assert!(said.contains("not installed"), "{said}");
        let said = refused(reach(&["ssh"], &["a"]), 2);
        assert!(said.contains("2 are asked for"), "{said}");
    }
}
