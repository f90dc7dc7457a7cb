//! From names of hosts to an open fleet: agents are started, the target is opened on each, and what they see is compared.

use std::collections::BTreeMap;

use fathom_io::{Control, Wanted};
use fathom_system::fleet::{Fathom, Host, Via};
use fathom_system::guest::Guest;
use fathom_system::guest::wire::{Answer, Ask};
use fathom_telemetry::{Bytes, Flag, FlagCode, schema};
use serde_json::{Value, json};

use super::merge::{list, on};
use super::{FleetBench, LEASE, Layout, keep};
use crate::LabError;
use crate::guest::remote::{There, opened};
use fathom_io::job::Limits;

/// How a fleet is reached, and what is tested on each host.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// What reaches a host.
    pub via: Via,
    /// They.
    pub hosts: Vec<Host>,
    /// How fathom comes to be there.
    pub fathom: Fathom,
    /// How they share what is tested.
    pub layout: Layout,
    /// Whether they work on files of a directory that they share, instead of one file each.
    pub files: bool,
}

impl Fleet {
    /// Opens `target` on every host.
    ///
    /// # Errors
    /// The first host that is not reached, or refuses, with its name; nothing is left on any.
    pub fn open(
        &self,
        target: &str,
        wanted: &Wanted,
        control: Control,
    ) -> Result<FleetBench, LabError> {
        let names: Vec<String> = self.hosts.iter().map(|h| h.name.clone()).collect();
        let commands = self.fathom.agents(&self.via, &self.hosts)?;
        let met = Guest::reach_all(&commands);
        let mut guests = Vec::new();
        let mut missing = Vec::new();
        for (guest, name) in met.into_iter().zip(&names) {
            match guest {
                Ok(g) => guests.push(g),
                Err(e) => missing.push(format!("{name}: {e}")),
            }
        }
        if let Some(first) = missing.first() {
            guests.into_iter().for_each(Guest::off);
            let more = match missing.len() {
                1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            return Err(LabError::Refused(format!(
                "--hosts: {first}{more}: every host must be reached, and have fathom {} (--hosts-fathom)",
                env!("CARGO_PKG_VERSION")
            )));
        }
        match self.open_in(&mut guests, &names, target, wanted) {
            Ok(there) => self.bench(guests, names, target, there, control),
            Err(e) => {
                guests.into_iter().for_each(Guest::off);
                Err(e)
            }
        }
    }

    fn open_in(
        &self,
        guests: &mut [Guest],
        names: &[String],
        target: &str,
        wanted: &Wanted,
    ) -> Result<Vec<There>, LabError> {
        lease(guests, names)?;
        let ask = |h: usize, target: &str, joins: Option<String>| {
            let mut wanted = wanted.clone();
            if let Some(own) = &self.hosts[h].destroy {
                wanted.destroy = Some(own.clone());
            }
            Ask::Open {
                target: target.to_owned(),
                wanted: Box::new(wanted),
                joins,
            }
        };
        let mut there = Vec::new();
        let mut rest = 0;
        let mut shared = None;
        if self.layout.is_shared() {
            // Made by one before the others open it.
            let first = self.hosts[0].target.as_deref().unwrap_or(target);
            guests[0]
                .ask(&ask(0, first, None), &[])
                .map_err(|e| on(&names[0], e))?;
            let made = opened(&mut guests[0]).map_err(|e| on(&names[0], e))?;
            shared = match (made.about.kind.as_str(), &made.mark, &made.about.path) {
                ("directory", Some(mark), Some(path)) => Some((path.clone(), mark.clone())),
                ("directory", _, _) => {
                    return Err(LabError::Refused(format!(
                        "--layout: the file system of {target} keeps no user attributes, so that no host can know another's file: make a file there with fathom run, and name it as the target for reading"
                    )));
                }
                _ => None,
            };
            there.push(made);
            rest = 1;
        }
        for h in rest..guests.len() {
            let own = self.hosts[h].target.as_deref().unwrap_or(target);
            let ask = match &shared {
                Some((path, mark)) => {
                    let name = path.rsplit('/').next().unwrap_or_default();
                    // Where it is mounted elsewhere, the file has the same name there.
                    let path = match self.hosts[h].target {
                        Some(_) => format!("{own}/{name}"),
                        None => path.clone(),
                    };
                    ask(h, &path, Some(mark.clone()))
                }
                None => ask(h, own, None),
            };
            guests[h].ask(&ask, &[]).map_err(|e| on(&names[h], e))?;
        }
        let mut failed = None;
        for h in rest..guests.len() {
            match opened(&mut guests[h]) {
                Ok(t) => there.push(t),
                Err(e) => {
                    failed.get_or_insert(on(&names[h], e));
                }
            }
        }
        failed.map_or(Ok(there), Err)
    }

    fn bench(
        &self,
        mut guests: Vec<Guest>,
        names: Vec<String>,
        target: &str,
        there: Vec<There>,
        control: Control,
    ) -> Result<FleetBench, LabError> {
        let own = |t: &There| t.about.path.clone().filter(|_| t.fills > 0);
        let mut files: Vec<Option<String>> = there.iter().map(own).collect();
        let mut made = None;
        let shared = self.beacons(&mut guests, &names, target, &there);
        let shared = shared.and_then(|groups| {
            if self.files {
                files[0] = Some(super::files::place(&mut guests, &names, target, groups)?);
                made = Some(vec![0; names.len()]);
            }
            Ok(groups)
        });
        let groups = match shared {
            Ok(groups) => groups,
            Err(e) => {
                guests.into_iter().for_each(Guest::off);
                return Err(e);
            }
        };
        let stamps = differences(&guests, &names, &there, self.layout);
        let cpus = guests.iter().map(|g| match &g.hello {
            Answer::Hello { cpus, .. } => *cpus,
            _ => 1,
        });
        let cpus = cpus.min().unwrap_or(1);
        let aligns = there.iter().map(|t| t.limits.direct_align);
        let limits = Limits {
            size: there.iter().map(|t| t.limits.size).min().unwrap_or(0),
            direct_align: aligns.max().unwrap_or(1),
            hosts: names.len() as u32,
        };
        let sharing = self.sharing(groups, names.len());
        let first = &there[0];
        let about = schema::Target {
            name: match names.len() {
                1 if self.files => target.to_owned(),
                n => format!("{target} on {n} hosts"),
            },
            kind: first.about.kind.clone(),
            path: None,
            size_bytes: limits.size,
            device: None,
            description: format!(
                "{} ({sharing}): {}",
                list(&names, &(0..names.len()).collect::<Vec<_>>()),
                first.about.description
            ),
        };
        let hosts = descriptions(&guests, &names, &there);
        let keeper = keep(guests.iter().map(Guest::asker).collect())?;
        Ok(FleetBench {
            names,
            files,
            made,
            about,
            limits,
            layout: self.layout,
            fills: there.iter().map(|t| t.fills).sum(),
            simulated: first.simulated,
            cpus,
            control,
            stamps,
            hosts: hosts.into(),
            lost: None,
            guests,
            _keeper: keeper,
        })
    }

    /// Who works on the same, in words.
    fn sharing(&self, groups: Option<usize>, hosts: usize) -> &'static str {
        match groups {
            _ if self.files && hosts > 1 => "one shared directory",
            _ if self.files => "one host",
            _ if self.layout.is_shared() => "one shared file",
            Some(1) => "one shared directory, a file each",
            Some(_) => "directories of their own",
            None => "not checked whether it is shared",
        }
    }

    /// How many different directories the hosts see, by each other's scratch files; `None` where there are none to see.
    ///
    /// # Errors
    /// Where some see the files of others and some do not: a mount is missing.
    fn beacons(
        &self,
        guests: &mut [Guest],
        names: &[String],
        target: &str,
        there: &[There],
    ) -> Result<Option<usize>, LabError> {
        let own = |t: &There| {
            let path = t
                .about
                .path
                .as_ref()
                .filter(|_| t.about.kind == "directory")?;
            Some(path.rsplit('/').next()?.to_owned())
        };
        let files: Option<Vec<String>> = there.iter().map(own).collect();
        let Some(files) = files.filter(|_| !self.layout.is_shared() && there.len() > 1) else {
            return Ok(None);
        };
        for (guest, name) in guests.iter_mut().zip(names) {
            let ask = Ask::Sees {
                names: files.clone(),
            };
            guest.ask(&ask, &[]).map_err(|e| on(name, e))?;
        }
        let mut groups: BTreeMap<Vec<bool>, Vec<usize>> = BTreeMap::new();
        for (h, guest) in guests.iter_mut().enumerate() {
            match guest.answer().map_err(|e| on(&names[h], e))?.0 {
                Answer::Sees { seen } => groups.entry(seen).or_default().push(h),
                other => return Err(LabError::Failed(format!("{} answered {other:?}", names[h]))),
            }
        }
        let count = groups.len();
        let one_place = self.hosts.iter().all(|h| h.target.is_none());
        if one_place && count > 1 && count < names.len() {
            let largest = groups.values().map(Vec::len).max().unwrap_or(0);
            let apart: Vec<usize> = groups
                .values()
                .filter(|g| g.len() < largest)
                .flatten()
                .copied()
                .collect();
            let apart = match apart.is_empty() {
                true => groups.values().next().cloned().unwrap_or_default(),
                false => apart,
            };
            return Err(LabError::Refused(format!(
                "--hosts: {} do not see in {target} what the others see: mount the shared file system there, or give each host its own directory (HOST=DIR)",
                list(names, &apart)
            )));
        }
        Ok(Some(count))
    }
}

/// Each host must have this fathom; what it holds ends with its lease.
fn lease(guests: &mut [Guest], names: &[String]) -> Result<(), LabError> {
    for (guest, name) in guests.iter_mut().zip(names) {
        if let Answer::Hello { fathom, .. } = &guest.hello
            && fathom != env!("CARGO_PKG_VERSION")
        {
            return Err(LabError::Refused(format!(
                "--hosts: {name} has fathom {fathom}, this is {}: install the same on all, or leave out --hosts-fathom",
                env!("CARGO_PKG_VERSION")
            )));
        }
        let lease = Ask::Lease { limit: LEASE.0 };
        guest.ask(&lease, &[]).map_err(|e| on(name, e))?;
        // One that is gone will say so.
        let _ = guest.asker().be_impatient();
    }
    Ok(())
}

/// Each host, for the run.
fn descriptions(guests: &[Guest], names: &[String], there: &[There]) -> Vec<Value> {
    let hosts = guests.iter().zip(names).zip(there).map(|((g, name), t)| {
        let (kernel, clock, called) = match &g.hello {
            Answer::Hello {
                kernel,
                clock,
                host,
                ..
            } => (kernel.as_str(), clock.as_str(), host.as_str()),
            _ => ("", "", ""),
        };
        json!({
            "host": name, "called": called, "kernel": kernel, "clock": clock,
            "target": t.about, "place": t.place, "align": t.limits.direct_align,
        })
    });
    hosts.collect()
}

/// What is not alike.
fn differences(guests: &[Guest], names: &[String], there: &[There], layout: Layout) -> Vec<Flag> {
    let hello = |of: fn(&str, &str, u32) -> String| -> Vec<String> {
        let said = guests.iter().map(|g| match &g.hello {
            Answer::Hello {
                kernel,
                clock,
                cpus,
                ..
            } => of(kernel, clock, *cpus),
            _ => String::new(),
        });
        said.collect()
    };
    let of = |of: fn(&There) -> String| -> Vec<String> { there.iter().map(of).collect() };
    let asked = [
        ("kernels", hello(|kernel, _, _| kernel.to_owned())),
        ("clock sources", hello(|_, clock, _| clock.to_owned())),
        ("processors", hello(|_, _, cpus| cpus.to_string())),
        ("file systems", of(|t| t.place.clone())),
        ("sizes", of(|t| Bytes(t.limits.size).to_string())),
        ("alignments", of(|t| t.limits.direct_align.to_string())),
        // Who made the file was given a directory, who joins it a file.
        match layout.is_shared() {
            true => ("kinds of target", Vec::new()),
            false => ("kinds of target", of(|t| t.about.kind.clone())),
        },
    ];
    let differ = asked.into_iter().filter_map(|(what, values)| {
        let mut by: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (h, value) in values.iter().enumerate() {
            by.entry(value).or_default().push(h);
        }
        if by.len() < 2 {
            return None;
        }
        let each = by
            .iter()
            .map(|(value, who)| format!("{value} ({})", list(names, who)));
        let each: Vec<String> = each.collect();
        Some(Flag::new(
            FlagCode::HostsDiffer,
            format!("{what} differ: {}", each.join("; ")),
            "compare hosts that are alike, or read the figures by host",
        ))
    });
    differ.collect()
}
