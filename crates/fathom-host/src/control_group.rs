//! The control groups that this process is in: what they allow of processors and I/O, and how long they held it back.
//!
//! Both generations of control groups, the process' own groups and (in the second, where limits hold for all that is below)
//! their ancestors as far as they can be seen from here.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::mounts::MountTable;
use crate::root::{DeviceNumber, HostRoot, names, text};

/// A limit as it stands in a file of a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub value: String,
}

/// What a limit of I/O counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// Bytes read per second.
    ReadBytes,
    /// Bytes written per second.
    WriteBytes,
    /// Reads per second.
    ReadIos,
    /// Writes per second.
    WriteIos,
}

/// A limit of I/O on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoLimit {
    /// The file and its line.
    pub limit: Limit,
    /// Whole disk that it holds for.
    pub device: DeviceNumber,
    /// What it counts.
    pub kind: IoKind,
    /// How much of that each second.
    pub per_second: u64,
}

/// For how long groups have held their processes back, since they were made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Throttled {
    /// By the processor quota: the group's directory, its quota and ns, own group first.
    pub processors: Vec<(Limit, u64)>,
    /// By the I/O cost controller, ns, over all devices.
    pub io_cost_ns: u64,
}

/// Which file of the first generation counts what.
const THROTTLE: [(&str, IoKind); 4] = [
    ("blkio.throttle.read_bps_device", IoKind::ReadBytes),
    ("blkio.throttle.write_bps_device", IoKind::WriteBytes),
    ("blkio.throttle.read_iops_device", IoKind::ReadIos),
    ("blkio.throttle.write_iops_device", IoKind::WriteIos),
];

/// Which word of `io.max` counts what.
const IO_MAX: [(&str, IoKind); 4] = [
    ("rbps", IoKind::ReadBytes),
    ("wbps", IoKind::WriteBytes),
    ("riops", IoKind::ReadIos),
    ("wiops", IoKind::WriteIos),
];

/// The groups of this process.
#[derive(Debug, Clone, Default)]
pub struct ControlGroups {
    /// Of the second generation, own group first, then its ancestors.
    unified: Vec<PathBuf>,
    /// Of the first: the processor controller's, own group first, then its ancestors (a quota binds all below it).
    processors: Vec<PathBuf>,
    /// Of the first: the I/O controller's own group, which alone binds.
    io: Option<PathBuf>,
    /// Of the first: the memory controller's.
    memory: Vec<PathBuf>,
}

impl ControlGroups {
    /// Those of this process; none where control groups cannot be seen.
    pub fn of_this_process(root: &HostRoot) -> Self {
        let own = fs::read_to_string(root.proc.join("self/cgroup")).unwrap_or_default();
        let table = MountTable::read(root).unwrap_or_default();
        let mut all = Self::default();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let has = |c: &str| controllers.split(',').any(|x| x == c);
            let chain = |of: &dyn Fn(&crate::mounts::Mount) -> bool| {
                let mount = table.mounts.iter().find(|m| of(m));
                mount.map_or(Vec::new(), |m| chain(root, m, Path::new(path)))
            };
            let first = |c: &'static str| {
                chain(&move |m| m.fs_type == "cgroup" && m.super_options.iter().any(|o| o == c))
            };
            if controllers.is_empty() {
                all.unified = chain(&|m| m.fs_type == "cgroup2");
            }
            if has("cpu") {
                all.processors = first("cpu");
            }
            if has("blkio") {
                all.io = first("blkio").into_iter().next();
            }
            if has("memory") {
                all.memory = first("memory");
            }
        }
        all
    }

    /// How long they have held this process and its neighbours back.
    pub fn throttled(&self) -> Throttled {
        let mut out = Throttled::default();
        for dir in &self.unified {
            if let Some(quota) = set(dir.join("cpu.max"), |v| !v.starts_with("max")) {
                let ns = stat(dir, "throttled_usec")
                    .unwrap_or(0)
                    .saturating_mul(1000);
                out.processors.push((quota, ns));
            }
        }
        for dir in &self.processors {
            if let Some(quota) = set(dir.join("cpu.cfs_quota_us"), |v| !v.starts_with('-')) {
                out.processors
                    .push((quota, stat(dir, "throttled_time").unwrap_or(0)));
            }
        }
        if let Some(io) = self.unified.first().and_then(|d| text(&d.join("io.stat"))) {
            let held = |w: &str| {
                ["cost.wait=", "cost.indebt=", "cost.indelay="]
                    .iter()
                    .find_map(|p| w.strip_prefix(p)?.parse::<u64>().ok())
            };
            let us: u64 = io.split_whitespace().filter_map(held).sum();
            out.io_cost_ns = us.saturating_mul(1000);
        }
        out
    }

    /// Limits of I/O, on any device.
    pub fn io_limits(&self) -> Vec<IoLimit> {
        let mut out = Vec::new();
        let mut add = |file: &Path, line: &str, device: &str, kind, value: &str| {
            if let (Ok(device), Ok(per_second)) = (device.parse(), value.parse()) {
                out.push(IoLimit {
                    limit: Limit {
                        file: file.to_owned(),
                        value: line.to_owned(),
                    },
                    device,
                    kind,
                    per_second,
                });
            }
        };
        for file in self.unified.iter().map(|d| d.join("io.max")) {
            for line in text(&file).unwrap_or_default().lines() {
                let mut words = line.split_whitespace();
                let device = words.next().unwrap_or_default();
                for (key, value) in words.filter_map(|w| w.split_once('=')) {
                    if let Some((_, kind)) = IO_MAX.iter().find(|k| k.0 == key) {
                        add(&file, line, device, *kind, value);
                    }
                }
            }
        }
        if let Some(dir) = &self.io {
            for (name, kind) in THROTTLE {
                let file = dir.join(name);
                for line in text(&file).unwrap_or_default().lines() {
                    if let Some((device, value)) = line.split_once(' ') {
                        add(&file, line, device, kind, value.trim());
                    }
                }
            }
        }
        out
    }

    /// Every limit that is set, for the record: processors, I/O, memory (it bounds the page cache).
    pub fn limits(&self) -> Vec<Limit> {
        let bounded = |v: &str| !v.starts_with("max");
        let mut all = Vec::new();
        for dir in &self.unified {
            for name in ["cpu.max", "memory.max", "memory.high"] {
                all.extend(set(dir.join(name), bounded));
            }
            for name in ["io.max", "io.latency", "io.cost.qos", "io.cost.model"] {
                all.extend(set(dir.join(name), |_| true));
            }
        }
        for dir in &self.processors {
            all.extend(set(dir.join("cpu.cfs_quota_us"), |v| !v.starts_with('-')));
        }
        if let Some(dir) = &self.io {
            all.extend(THROTTLE.iter().filter_map(|t| set(dir.join(t.0), |_| true)));
        }
        for dir in &self.memory {
            // Unlimited is the largest number of whole pages.
            let limited = |v: &str| v.parse::<u64>().is_ok_and(|n| n < i64::MAX as u64 / 2);
            all.extend(set(dir.join("memory.limit_in_bytes"), limited));
        }
        all
    }
}

/// A file's limit, where it says something that `counts`.
fn set(file: PathBuf, counts: impl Fn(&str) -> bool) -> Option<Limit> {
    let value = text(&file).filter(|v| counts(v))?;
    Some(Limit { file, value })
}

/// A number of a group's `cpu.stat`.
fn stat(dir: &Path, name: &str) -> Option<u64> {
    let text = text(&dir.join("cpu.stat"))?;
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

/// Directories of a group and its ancestors, as far as the mount shows them.
fn chain(root: &HostRoot, mount: &crate::mounts::Mount, group: &Path) -> Vec<PathBuf> {
    // In a container the mount may show a part of the tree, and the path may be told from that part on or from the top.
    let inside = group.strip_prefix(&mount.root).unwrap_or(group);
    let inside = inside.strip_prefix("/").unwrap_or(inside);
    // A described machine has its control groups under its own /sys.
    let at = match mount.at.strip_prefix("/sys") {
        Ok(rest) => root.sys.join(rest),
        Err(_) => mount.at.clone(),
    };
    let mut all = Vec::new();
    let mut dir = at.join(inside);
    loop {
        if !names(&dir).is_empty() {
            all.push(dir.clone());
        }
        if dir == at || !dir.pop() {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &tempfile::TempDir, path: &str, text: &str) {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const UNIFIED: &str = "sys/fs/cgroup/pods.slice/pod7";

    #[test]
    fn quotas_and_limits_of_the_second_generation_hold_from_every_ancestor() {
        let dir = tempfile::tempdir().unwrap();
        put(&dir, "proc/self/cgroup", "0::/pods.slice/pod7/app\n");
        put(
            &dir,
            "proc/self/mountinfo",
            "30 20 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
        );
        put(&dir, &format!("{UNIFIED}/app/cpu.max"), "max 100000\n");
        put(&dir, &format!("{UNIFIED}/app/io.max"), "");
        put(
            &dir,
            &format!("{UNIFIED}/app/io.stat"),
            "254:0 rbytes=1 wbytes=2 cost.usage=50 cost.wait=30 cost.indebt=0 cost.indelay=12\n",
        );
        put(&dir, &format!("{UNIFIED}/cpu.max"), "50000 100000\n");
        put(
            &dir,
            &format!("{UNIFIED}/cpu.stat"),
            "usage_usec 9\nnr_periods 8\nnr_throttled 3\nthrottled_usec 1234\n",
        );
        put(
            &dir,
            &format!("{UNIFIED}/io.max"),
            "254:0 rbps=1048576 wbps=max riops=500 wiops=max\n8:16 rbps=max wbps=7 riops=max wiops=max\n",
        );
        put(&dir, &format!("{UNIFIED}/memory.high"), "1073741824\n");
        put(
            &dir,
            "sys/fs/cgroup/io.cost.qos",
            "254:0 enable=1 ctrl=auto\n",
        );
        let groups = ControlGroups::of_this_process(&HostRoot::under(dir.path()));
        let file = |name: &str| dir.path().join(UNIFIED).join(name);
        let throttled = groups.throttled();
        assert_eq!(throttled.io_cost_ns, 42_000);
        assert_eq!(throttled.processors.len(), 1);
        let (quota, ns) = &throttled.processors[0];
        assert_eq!((quota.file.clone(), *ns), (file("cpu.max"), 1_234_000));
        assert_eq!(quota.value, "50000 100000");
        let io: Vec<_> = groups
            .io_limits()
            .into_iter()
            .map(|l| (l.device.to_string(), l.kind, l.per_second))
            .collect();
        assert_eq!(
            io,
            [
                ("254:0".into(), IoKind::ReadBytes, 1_048_576),
                ("254:0".into(), IoKind::ReadIos, 500),
                ("8:16".into(), IoKind::WriteBytes, 7)
            ]
        );
        let files: Vec<PathBuf> = groups.limits().into_iter().map(|l| l.file).collect();
        assert_eq!(
            files,
            [
                file("cpu.max"),
                file("memory.high"),
                file("io.max"),
                dir.path().join("sys/fs/cgroup/io.cost.qos")
            ]
        );
    }

    #[test]
    fn of_the_first_generation_a_quota_binds_below_and_an_io_limit_its_own_group() {
        let dir = tempfile::tempdir().unwrap();
        put(
            &dir,
            "proc/self/cgroup",
            "4:memory:/\n3:blkio:/box/in\n2:cpu,cpuacct:/docker/abc\n0::/\n",
        );
        put(
            &dir,
            "proc/self/mountinfo",
            "31 20 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             32 20 0:29 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
             33 20 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        );
        let cpu = "sys/fs/cgroup/cpu,cpuacct";
        put(&dir, &format!("{cpu}/cpu.cfs_quota_us"), "20000\n");
        put(
            &dir,
            &format!("{cpu}/cpu.stat"),
            "nr_periods 5\nnr_throttled 4\nthrottled_time 77000\n",
        );
        let blkio = "sys/fs/cgroup/blkio/box";
        put(
            &dir,
            &format!("{blkio}/blkio.throttle.read_bps_device"),
            "8:0 1\n",
        );
        put(
            &dir,
            &format!("{blkio}/in/blkio.throttle.write_iops_device"),
            "8:0 90\n8:16 91\n",
        );
        put(
            &dir,
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        let groups = ControlGroups::of_this_process(&HostRoot::under(dir.path()));
        let throttled = groups.throttled();
        assert_eq!(throttled.processors[0].1, 77_000);
        assert_eq!(throttled.processors[0].0.value, "20000");
        let io = groups.io_limits();
        assert_eq!(io.len(), 2, "not those of the group above: {io:?}");
        assert_eq!((io[1].kind, io[1].per_second), (IoKind::WriteIos, 91));
        assert_eq!(groups.limits().len(), 2, "{:?}", groups.limits());
    }

    #[test]
    fn a_machine_without_control_groups_limits_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let groups = ControlGroups::of_this_process(&HostRoot::under(dir.path()));
        assert!(groups.limits().is_empty() && groups.io_limits().is_empty());
        assert_eq!(groups.throttled(), Throttled::default());
    }
}
