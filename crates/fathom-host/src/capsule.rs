//! The environment capsule: everything about the machine that changes what a benchmark
//! measures, so that two runs can be compared and a stranger can judge a number.
//!
//! What cannot be read is `null` or absent, never a guess.

mod cpu;
mod kernel;
mod storage;

use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

pub use cpu::{Cpu, Idle, IdleState, Memory, NumaNode};
pub use kernel::{Kernel, Virtualization};
pub use storage::{DeviceFacts, Storage, Temperature};

use crate::control_group::{ControlGroups, Limit};
use crate::mark::utc;
use crate::root::HostRoot;

/// The machine at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Environment {
    /// When this was read, RFC 3339 UTC.
    pub collected: String,
    /// fathom's version.
    pub tool_version: String,
    /// What fathom was built for: `x86_64-unknown-linux-gnu`.
    pub build_target: String,
    /// `release` or `debug`; numbers of a debug build say little.
    pub build_profile: String,
    /// Processors.
    pub cpu: Cpu,
    /// Memory.
    pub memory: Memory,
    /// Memory nodes.
    pub numa: Vec<NumaNode>,
    /// Kernel and its settings.
    pub kernel: Kernel,
    /// Virtual machine and container.
    pub virtualization: Virtualization,
    /// Limits of the control groups that this process is in: processors, I/O, memory.
    pub control_group_limits: Vec<Limit>,
    /// What is behind the target, where one was named.
    pub storage: Option<Storage>,
    /// Sensors that can be read.
    pub temperatures: Vec<Temperature>,
}

impl Environment {
    /// Reads it all; takes a few milliseconds and needs no privilege.
    pub fn collect(target: Option<&Path>) -> Self {
        Self::collect_in(&HostRoot::real(), target)
    }

    /// The same for a machine described by other trees.
    pub fn collect_in(root: &HostRoot, target: Option<&Path>) -> Self {
        let env = if cfg!(target_env = "musl") {
            "musl"
        } else {
            "gnu"
        };
        Self {
            collected: utc(SystemTime::now()),
            tool_version: env!("CARGO_PKG_VERSION").to_string(),
            build_target: format!(
                "{}-unknown-{}-{env}",
                std::env::consts::ARCH,
                std::env::consts::OS
            ),
            build_profile: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            }
            .to_string(),
            cpu: Cpu::read(root),
            memory: Memory::read(root),
            numa: NumaNode::read_all(root),
            kernel: Kernel::read(root),
            virtualization: Virtualization::read(root),
            control_group_limits: ControlGroups::of_this_process(root).limits(),
            storage: target.map(|t| Storage::read(root, t)),
            temperatures: Temperature::read_all(root),
        }
    }

    /// As it stands in `run.json`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn this_machine_has_a_processor_memory_and_a_kernel() {
        let env = Environment::collect(Some(Path::new("/")));
        assert!(env.cpu.threads >= 1);
        assert!(env.memory.total_bytes.unwrap() > 16 << 20);
        assert!(env.kernel.release.is_some());
        let json = env.to_json();
        assert_eq!(json["storage"]["path"], "/");
        assert!(json["cpu"]["threads"].as_u64().unwrap() >= 1);
    }

    #[test]
    fn a_machine_of_which_nothing_can_be_read_is_described_by_nulls() {
        let empty = tempfile::tempdir().unwrap();
        let env = Environment::collect_in(&HostRoot::under(empty.path()), None);
        let json = env.to_json();
        assert!(json["cpu"]["model"].is_null());
        assert!(json["memory"]["total_bytes"].is_null());
        assert!(json["kernel"]["release"].is_null());
        assert!(json["kernel"]["io_uring_disabled"].is_null());
        assert!(json["storage"].is_null());
        assert_eq!(json["numa"].as_array().unwrap().len(), 0);
        assert_eq!(json["control_group_limits"].as_array().unwrap().len(), 0);
        assert_eq!(json["temperatures"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn a_two_socket_server_is_described_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "proc/cpuinfo",
            "processor : 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t: fpu hypervisor\nmicrocode : 0x1f\n",
        );
        for cpu in 0..8u32 {
            let base = format!("sys/devices/system/cpu/cpu{cpu}");
            put(
                &format!("{base}/topology/physical_package_id"),
                &(cpu / 4).to_string(),
            );
            put(&format!("{base}/topology/core_id"), &(cpu % 2).to_string());
            let governor = if cpu == 7 { "powersave" } else { "performance" };
            put(&format!("{base}/cpufreq/scaling_governor"), governor);
            put(&format!("{base}/cpufreq/cpuinfo_max_freq"), "3700000");
            put(&format!("{base}/cpuidle/state0/name"), "POLL");
            put(&format!("{base}/cpuidle/state0/latency"), "0");
            put(&format!("{base}/cpuidle/state0/disable"), "0");
            put(&format!("{base}/cpuidle/state1/name"), "C6");
            put(&format!("{base}/cpuidle/state1/latency"), "133");
            put(
                &format!("{base}/cpuidle/state1/disable"),
                if cpu < 2 { "1" } else { "0" },
            );
        }
        put(
            "sys/devices/system/cpu/vulnerabilities/meltdown",
            "Mitigation: PTI\n",
        );
        put("sys/devices/system/cpu/smt/active", "1");
        put("sys/devices/system/node/node1/cpulist", "4-7");
        put(
            "sys/devices/system/node/node1/meminfo",
            "Node 1 MemTotal:  1024 kB\nNode 1 MemFree: 512 kB\n",
        );
        put(
            "proc/meminfo",
            "MemTotal: 2048 kB\nHugePages_Total: 3\nHugepagesize: 2048 kB\n",
        );
        put("proc/sys/kernel/io_uring_disabled", "2\n");
        put("sys/class/hwmon/hwmon0/name", "nvme");
        put("sys/class/hwmon/hwmon0/temp1_input", "41850");
        put("sys/class/hwmon/hwmon0/temp1_label", "Composite");
        put("sys/class/dmi/id/product_name", "KVM");
        put("sys/class/dmi/id/board_name", "0X8DXD");
        put("sys/class/dmi/id/bios_vendor", "Dell Inc.\n");
        put("sys/class/dmi/id/bios_version", "2.12.2");
        put("run/.containerenv", "");

        let env = Environment::collect_in(&HostRoot::under(dir.path()), None);
        assert_eq!(env.cpu.model.as_deref(), Some("Fast CPU @ 3 GHz"));
        assert_eq!(
            (env.cpu.threads, env.cpu.cores, env.cpu.sockets),
            (8, Some(4), Some(2))
        );
        assert_eq!(env.cpu.governors, ["performance", "powersave"]);
        assert_eq!(env.cpu.max_frequency_khz, Some(3_700_000));
        assert_eq!(env.cpu.mitigations["meltdown"], "Mitigation: PTI");
        let deep = &env.cpu.idle.states[1];
        assert_eq!(
            (deep.name.as_str(), deep.exit_latency_us, deep.disabled_on),
            ("C6", Some(133), 2)
        );
        assert_eq!(env.numa[0].memory_total_bytes, Some(1 << 20));
        assert_eq!(
            (env.numa[0].id, env.numa[0].cpus.as_deref()),
            (1, Some("4-7"))
        );
        assert_eq!(env.memory.huge_pages_total, Some(3));
        assert_eq!(env.kernel.io_uring_disabled, Some(2));
        assert_eq!(env.virtualization.hypervisor_present, Some(true));
        assert_eq!(env.virtualization.product.as_deref(), Some("KVM"));
        assert_eq!(env.virtualization.board.as_deref(), Some("0X8DXD"));
        let firmware = env.virtualization.firmware.as_deref();
        assert_eq!(firmware, Some("Dell Inc. 2.12.2"));
        assert_eq!(env.virtualization.container.as_deref(), Some("podman"));
        assert_eq!(env.temperatures[0].celsius, 41.85);
        assert_eq!(env.temperatures[0].label.as_deref(), Some("Composite"));
    }
}
