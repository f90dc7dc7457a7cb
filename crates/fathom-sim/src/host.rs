//! Host files: what the machine in front of the device costs.
//!
//! Fitted to the servers of the papers; they stand for no other machine.

use serde::Deserialize;

use crate::error::SimError;

const BUILT_IN: &[(&str, &str)] = &[
    (
        "xeon-e5-2609",
        include_str!("../models/hosts/xeon-e5-2609.toml"),
    ),
    (
        "xeon-gold-6242",
        include_str!("../models/hosts/xeon-gold-6242.toml"),
    ),
];

/// A host, checked by the test below: all are built in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) cores: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) submit_us: f64,
    pub(crate) complete_us: f64,
    pub(crate) poll_us: f64,
    pub(crate) busy_switch_us: f64,
    pub(crate) idle_states: Vec<IdleState>,
    pub(crate) page_cache: PageCache,
    pub(crate) vm: Option<Vm>,
    pub(crate) raid: Option<Md>,
}

/// A processor idle state.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdleState {
    pub(crate) name: String,
    pub(crate) exit_us: f64,
    pub(crate) target_us: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageCache {
    pub(crate) bytes: u64,
    pub(crate) cpu_us: f64,
    pub(crate) core_gb_per_s: f64,
    pub(crate) total_gb_per_s: f64,
    pub(crate) read_tokens: usize,
    pub(crate) flusher_gb_per_s: f64,
    pub(crate) dirty_share: f64,
    pub(crate) read_ahead_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vm {
    pub(crate) guest_submit_us: f64,
    pub(crate) guest_complete_us: f64,
    pub(crate) iothread_submit_us: f64,
    pub(crate) iothread_complete_us: f64,
    pub(crate) iothread_variation: f64,
    pub(crate) host_kernel_us: f64,
    pub(crate) delay_us: f64,
    pub(crate) cpu_us: f64,
}

/// Linux md on this host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Md {
    pub(crate) direct_tokens: usize,
    pub(crate) read_gb_per_s: f64,
    pub(crate) write_gb_per_s: f64,
    pub(crate) parity_direct_us: f64,
    pub(crate) parity2_direct_us: f64,
    pub(crate) parity_full_us: f64,
    pub(crate) parity_full_shared_us: f64,
    pub(crate) parity2_full_us: f64,
    pub(crate) parity2_full_shared_us: f64,
    pub(crate) mirror_writeback_gb_per_s: f64,
    pub(crate) mirror_copy_ns_per_byte: f64,
    pub(crate) striped_mirror_writeback_gb_per_s: f64,
}

impl Host {
    /// Names of the built-in hosts.
    pub(crate) fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|h| h.0).collect()
    }

    /// A built-in host.
    pub(crate) fn named(name: &str) -> Result<Self, SimError> {
        let text = BUILT_IN
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, t)| *t)
            .ok_or_else(|| SimError::File {
                path: name.to_owned(),
                message: format!("no such host: expected {}", Self::names().join(" or ")),
            })?;
        toml::from_str(text).map_err(|e| SimError::File {
            path: name.to_owned(),
            message: e.to_string(),
        })
    }

    /// The virtualization costs; those of the paper's server where the host has none of its own.
    pub(crate) fn vm_costs(&self) -> Result<Vm, SimError> {
        match &self.vm {
            Some(v) => Ok(v.clone()),
            None => Ok(Self::named("xeon-e5-2609")?.vm.unwrap_or(Vm {
                guest_submit_us: 9.0,
                guest_complete_us: 7.0,
                iothread_submit_us: 4.6,
                iothread_complete_us: 3.73,
                iothread_variation: 1.2,
                host_kernel_us: 14.7,
                delay_us: 12.4,
                cpu_us: 39.0,
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_host_is_sound() {
        for name in Host::names() {
            let h = Host::named(name).unwrap();
            assert_eq!(h.name, name);
            assert!(h.cores > 0 && h.memory_bytes > h.page_cache.bytes);
            assert!(
                h.idle_states
                    .windows(2)
                    .all(|s| s[0].exit_us < s[1].exit_us && s[0].target_us < s[1].target_us)
            );
        }
    }
}
