//! The kernel, its settings, and what is around it: hypervisor, container.

use serde::Serialize;

use crate::root::{HostRoot, number, text};

/// The kernel and the settings of it that change the cost of an I/O.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Kernel {
    /// The machine's name.
    pub host: Option<String>,
    /// `6.12.1-amd64`.
    pub release: Option<String>,
    /// Build: number, options such as PREEMPT_DYNAMIC, date.
    pub version: Option<String>,
    /// Command line that it was started with.
    pub command_line: Option<String>,
    /// Clock in use.
    pub clocksource: Option<String>,
    /// Clocks to choose from.
    pub clocksources_available: Vec<String>,
    /// 0 io_uring is allowed, 1 only for a group, 2 not at all; `None` before Linux 6.6.
    pub io_uring_disabled: Option<u32>,
}

impl Kernel {
    pub(super) fn read(root: &HostRoot) -> Self {
        let sysctl = root.proc.join("sys/kernel");
        let clock = root.sys.join("devices/system/clocksource/clocksource0");
        Self {
            host: text(&sysctl.join("hostname")),
            release: text(&sysctl.join("osrelease")),
            version: text(&sysctl.join("version")),
            command_line: text(&root.proc.join("cmdline")),
            clocksource: text(&clock.join("current_clocksource")),
            clocksources_available: text(&clock.join("available_clocksource"))
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_string)
                .collect(),
            io_uring_disabled: number(&sysctl.join("io_uring_disabled")),
        }
    }
}

/// What lies between this kernel and the hardware, and between fathom and this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Virtualization {
    /// Whether the processor says that a hypervisor is below; `None` where it cannot say.
    pub hypervisor_present: Option<bool>,
    /// Hypervisor, where the kernel names it.
    pub hypervisor: Option<String>,
    /// Maker of the machine.
    pub vendor: Option<String>,
    /// Model of the machine: `KVM`, `c5d.large`, `PowerEdge R640`.
    pub product: Option<String>,
    /// Maker and model of the board.
    pub board: Option<String>,
    /// Firmware of the machine: maker, version, date.
    pub firmware: Option<String>,
    /// `docker`, `podman`, `lxc`, …; `None` where no sign of a container is seen.
    pub container: Option<String>,
}

impl Virtualization {
    pub(super) fn read(root: &HostRoot) -> Self {
        let dmi = |name: &str| text(&root.sys.join("class/dmi/id").join(name));
        Self {
            hypervisor_present: hypervisor_flag(root),
            hypervisor: text(&root.sys.join("hypervisor/type")),
            vendor: dmi("sys_vendor"),
            product: dmi("product_name")
                .or_else(|| text(&root.sys.join("firmware/devicetree/base/model"))),
            board: several(["board_vendor", "board_name"].map(dmi)),
            firmware: several(["bios_vendor", "bios_version", "bios_date"].map(dmi)),
            container: container(root),
        }
    }
}

/// What is known of several words.
fn several<const N: usize>(words: [Option<String>; N]) -> Option<String> {
    let known: Vec<String> = words.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(" "))
}

/// x86 processors carry the flag; others have no line of flags that could.
fn hypervisor_flag(root: &HostRoot) -> Option<bool> {
    let info = text(&root.proc.join("cpuinfo"))?;
    let flags = info.lines().find_map(|l| {
        let (key, value) = l.split_once(':')?;
        (key.trim() == "flags").then_some(value)
    })?;
    Some(flags.split_whitespace().any(|f| f == "hypervisor"))
}

fn container(root: &HostRoot) -> Option<String> {
    if let Some(name) = text(&root.run.join("systemd/container")) {
        return Some(name);
    }
    if root.run.join(".containerenv").exists() {
        return Some("podman".to_string());
    }
    if root.run.parent()?.join(".dockerenv").exists() {
        return Some("docker".to_string());
    }
    let groups = text(&root.proc.join("self/cgroup"))?;
    ["kubepods", "docker", "containerd", "lxc"]
        .iter()
        .find(|name| groups.contains(*name))
        .map(|name| (*name).to_string())
}
