//! What a job's thread asks of the kernel for itself: priority, niceness, memory nodes.

use std::path::PathBuf;

use fathom_io::load::Enter;
use fathom_io::thread_terms::{self, MemoryPolicy};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_uid};

use crate::FioError;
use crate::section::Section;

/// Priority, niceness and memory nodes of one job's threads; all at its default asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadTerms {
    /// I/O priority in the kernel's form.
    pub priority: u16,
    /// Added to the niceness.
    pub nice: i32,
    /// Where memory comes from.
    pub memory: Option<(MemoryPolicy, Vec<u32>)>,
    /// Whose rights its I/O has: user and group.
    pub owner: (Option<u32>, Option<u32>),
}

impl ThreadTerms {
    pub(super) fn of(s: &Section) -> Result<Self, FioError> {
        Ok(Self {
            priority: super::priority::of_thread(s),
            nice: s
                .get("nice")
                .and_then(crate::options::value::strtoll)
                .map_or(0, |v| v.0.clamp(-20, 19) as i32),
            memory: memory(s)?,
            owner: (number(s, "uid"), number(s, "gid")),
        })
    }

    /// Takes the rights of `uid` and `gid`, when all that its thread needs is open; `None` where nobody is named. As in
    /// fio its files must be open to them.
    pub(crate) fn take_rights(&self, files: Vec<PathBuf>, writes: bool) -> Option<Enter> {
        let (user, group) = self.owner;
        if (user, group) == (None, None) {
            return None;
        }
        Some(std::sync::Arc::new(move |_| {
            if let Some(group) = group {
                set_thread_gid(Gid::from_raw(group))
                    .map_err(|e| format!("gid={group} could not be taken: {e}"))?;
            }
            if let Some(user) = user {
                set_thread_uid(Uid::from_raw(user))
                    .map_err(|e| format!("uid={user} could not be taken: {e}"))?;
            }
            let access = if writes {
                Access::READ_OK | Access::WRITE_OK
            } else {
                Access::READ_OK
            };
            for file in &files {
                accessat(CWD, file, access, AtFlags::EACCESS).map_err(|e| {
                    format!("{} is not open to its uid and gid: {e}", file.display())
                })?;
            }
            Ok(())
        }))
    }

    /// For the driver; `None` where nothing is asked for.
    pub(crate) fn enter(&self) -> Option<Enter> {
        if (self.priority, self.nice, &self.memory) == (0, 0, &None) {
            return None;
        }
        let me = self.clone();
        Some(std::sync::Arc::new(move |_| {
            if me.priority > 0 {
                thread_terms::set_io_priority(me.priority)
                    .map_err(|e| format!("prio and prioclass could not be set: {e}"))?;
            }
            if me.nice != 0 {
                thread_terms::set_nice(me.nice)
                    .map_err(|e| format!("nice={} could not be set: {e}", me.nice))?;
            }
            if let Some((policy, nodes)) = &me.memory {
                thread_terms::set_memory_policy(*policy, nodes)
                    .map_err(|e| format!("numa_mem_policy could not be set: {e}"))?;
            }
            Ok(())
        }))
    }
}

fn number(s: &Section, name: &str) -> Option<u32> {
    s.number(name).and_then(|n| u32::try_from(n).ok())
}

fn memory(s: &Section) -> Result<Option<(MemoryPolicy, Vec<u32>)>, FioError> {
    let Some(text) = s.text("numa_mem_policy") else {
        return Ok(None);
    };
    let (word, nodes) = text.split_once(':').unwrap_or((text, ""));
    let policy = match word {
        "default" => return Ok(None),
        "prefer" => MemoryPolicy::Prefer,
        "bind" => MemoryPolicy::Bind,
        "interleave" => MemoryPolicy::Interleave,
        "local" => MemoryPolicy::Local,
        _ => {
            return Err(s.invalid(
                "numa_mem_policy",
                format!("'{word}' is not one of default, prefer, bind, interleave, local"),
            ));
        }
    };
    Ok(Some((policy, list(nodes))))
}

/// `0,2-3`.
fn list(text: &str) -> Vec<u32> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(a), Ok(b)) = (a.trim().parse::<u32>(), b.trim().parse::<u32>()) {
            out.extend(a..=b.min(65_535));
        }
    }
    out
}

/// Processors of the nodes that `numa_cpu_nodes` names; empty for all.
pub(super) fn node_processors(s: &Section) -> Result<Vec<u32>, FioError> {
    let text = s.get("numa_cpu_nodes").unwrap_or("");
    if text.is_empty() || text == "all" {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for node in list(text) {
        let path = format!("/sys/devices/system/node/node{node}/cpulist");
        match std::fs::read_to_string(path) {
            Ok(cpus) => out.extend(list(cpus.trim())),
            // A kernel without NUMA has one node that it does not show.
            Err(_) if node == 0 => {}
            Err(e) => {
                return Err(s.invalid(
                    "numa_cpu_nodes",
                    format!("node {node} is not there ({e}): see numactl --hardware"),
                ));
            }
        }
    }
    Ok(out)
}
