//! Suspects of a target on this machine: the reversible settings of its disks, of the page cache, and of file systems that
//! are fathom's own.

use std::path::{Path, PathBuf};

use fathom_stack::{Devices, Disk, settings};
use fathom_telemetry::Bytes;

use super::load::{LoadId, WRITE_BACK_BYTES as WRITE_BACK_PASS};
use super::suspect::{Change, Suspect, Value};

/// Read-ahead worth trying, KiB: the kernel's default, and what striped and remote storage wants.
const READ_AHEAD_KIB: [u64; 2] = [128, 1024];
/// Requests of a queue worth trying.
const REQUESTS: [u64; 2] = [128, 1024];
/// How much the kernel lets lie before it writes, and the values worth trying beside its defaults: shares of memory in
/// percent, and bytes where somebody set them so. (How long it lets it lie, `dirty_expire_centisecs` and
/// `dirty_writeback_centisecs`, shows in seconds: a pass is over by then.)
const WRITE_BACK: [(&str, &str, &[u64]); 2] = [
    ("dirty_background_ratio", "dirty_background_bytes", &[10, 5]),
    ("dirty_ratio", "dirty_bytes", &[20, 40]),
];
/// Their counterparts in bytes, in the same order.
const WRITE_BACK_BYTES: [u64; 2] = [256 << 20, 1 << 30];
/// What a remount leaves out, each for itself.
const COSTLY_OPTIONS: [&str; 2] = ["sync", "dirsync"];

/// A target's surroundings.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Its disks.
    pub devices: Devices,
    /// Where the file system is mounted that it lies on, if that is fathom's own.
    pub mount: Option<PathBuf>,
    /// Whether jobs may write.
    pub modifies: bool,
}

impl Surroundings {
    /// Of a path.
    pub fn of(path: &Path, modifies: bool) -> Self {
        let existing = path.ancestors().find(|p| p.exists()).unwrap_or(path);
        let existing = if existing.as_os_str().is_empty() {
            Path::new(".")
        } else {
            existing
        };
        Self {
            devices: Devices::below(existing),
            mount: settings::mount::point_of(existing).filter(|at| settings::mount::is_fathoms(at)),
            modifies,
        }
    }

    /// Every setting that is tried here, or that trying disturbs, as it is now.
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for disk in &self.devices.top {
            let queue = Path::new("/sys/block").join(&disk.name).join("queue");
            for name in [
                "scheduler",
                "nr_requests",
                "read_ahead_kb",
                "io_poll",
                "io_poll_delay",
                "wbt_lat_usec",
            ] {
                files.push(queue.join(name));
            }
            files.extend(settings::scheduler_parameters(&queue));
        }
        files.extend(WRITE_BACK.iter().flat_map(|w| [vm(w.0), vm(w.1)]));
        let mut all: Vec<(String, String)> = files
            .iter()
            .filter_map(|p| Some((p.display().to_string(), settings::value(p)?)))
            .collect();
        if let Some(at) = &self.mount
            && let Ok(options) = settings::mount::options(at)
        {
            all.push((format!("mount {}", at.display()), options));
        }
        all
    }
}

fn vm(name: &str) -> PathBuf {
    Path::new("/proc/sys/vm").join(name)
}

/// A suspect that is one file of the kernel's; `None` where it is missing or nothing else is worth trying.
fn file(
    id: &'static str,
    cause: String,
    path: PathBuf,
    tried: &[String],
    loads: &[LoadId],
    refuted_by: &str,
) -> Option<Suspect> {
    let now = settings::value(&path)?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    let values: Vec<Value> = tried
        .iter()
        .filter(|v| **v != now)
        .map(|v| Value {
            label: format!("{name} {v}"),
            command: format!("echo {v} > {}", path.display()),
            change: Change::File {
                path: path.clone(),
                value: v.clone(),
            },
        })
        .collect();
    (!values.is_empty()).then(|| Suspect {
        id,
        cause,
        now: format!("{name} {now}"),
        values,
        under: Vec::new(),
        loads: loads.to_vec(),
        is_setting: true,
        refuted_by: refuted_by.into(),
    })
}

fn texts(numbers: &[u64]) -> Vec<String> {
    numbers.iter().map(u64::to_string).collect()
}

/// What may limit a target here and can be changed for a moment.
pub fn suspects(around: &Surroundings) -> Vec<Suspect> {
    let mut all = Vec::new();
    for disk in around.devices.top.iter().filter(|d| d.has_requests) {
        all.extend(of_disk(disk, around.modifies));
    }
    if around.devices.top.iter().any(|d| d.polls) {
        all.push(Suspect {
            id: "completion",
            cause: "the way in which completions arrive".into(),
            now: "interrupts".into(),
            values: vec![Value {
                label: "polled completions".into(),
                command: "--iopoll, or RWF_HIPRI in the application".into(),
                change: Change::Polled,
            }],
            under: vec![Change::Awake],
            loads: vec![LoadId::One],
            is_setting: true,
            refuted_by:
                "fathom stack, where the time between the device and the application is short."
                    .into(),
        });
    }
    all.push(Suspect {
        id: "idle-states",
        cause: "the idle states of the processors".into(),
        now: "idle states as they are".into(),
        values: vec![Value {
            label: "no idle states (wake-up latency 0 µs)".into(),
            command: "hold /dev/cpu_dma_latency at 0, or tuned-adm profile latency-performance"
                .into(),
            change: Change::Awake,
        }],
        under: Vec::new(),
        loads: vec![LoadId::One],
        is_setting: true,
        refuted_by: "The same latency where other work keeps the cores awake anyway.".into(),
    });
    if around.modifies {
        all.extend(write_back().into_iter().filter_map(Result::ok));
        all.extend(around.mount.as_deref().and_then(mount_options));
    }
    all
}

/// Settings of a disk's queue.
fn of_disk(disk: &Disk, modifies: bool) -> Vec<Suspect> {
    let mut all = Vec::new();
    let queue = Path::new("/sys/block").join(&disk.name).join("queue");
    let offered = settings::schedulers(&disk.name);
    let schedulers: Vec<String> = ["none", "mq-deadline"]
        .into_iter()
        .filter(|s| offered.iter().any(|o| o == s))
        .map(str::to_owned)
        .collect();
    all.extend(file(
        "scheduler",
        format!("the I/O scheduler of {}", disk.name),
        queue.join("scheduler"),
        &schedulers,
        &[LoadId::One, LoadId::Core],
        "The same rate with the other scheduler under your own load, as fathom ab measures it.",
    ));
    all.extend(file(
        "queue-depth",
        format!("the number of requests that {} may queue", disk.name),
        queue.join("nr_requests"),
        &texts(&REQUESTS),
        &[LoadId::Core],
        "fathom curve showing its knee below the number of requests.",
    ));
    all.extend(file(
        "read-ahead",
        format!("the read-ahead of {}", disk.name),
        queue.join("read_ahead_kb"),
        &texts(&READ_AHEAD_KIB),
        &[LoadId::Stream],
        "Applications that do not read in order, or read directly: they have no read-ahead.",
    ));
    // Newer kernels take neither; then it is said that they did not.
    if disk.polls {
        let tried = file(
            "poll-delay",
            format!("how {} is polled", disk.name),
            queue.join("io_poll_delay"),
            &["-1".to_owned(), "0".to_owned()],
            &[LoadId::One],
            "The same latency with the other delay.",
        );
        all.extend(tried.map(|s| Suspect {
            // Nobody waits for interrupts meanwhile.
            under: vec![Change::Polled, Change::Awake],
            ..s
        }));
    }
    if modifies {
        all.extend(file(
            "write-throttle",
            format!("the write-back throttling of {}", disk.name),
            queue.join("wbt_lat_usec"),
            &["0".to_owned()],
            &[LoadId::WriteBack],
            "Reads beside the writes that become slower than the writes gain.",
        ));
    }
    all
}

/// What is not tried here, and why.
pub fn left_out(around: &Surroundings) -> Vec<String> {
    let write_back = around.modifies.then(write_back).unwrap_or_default();
    write_back.into_iter().filter_map(Result::err).collect()
}

/// The limits of write-back, or why a limit is not tried.
fn write_back() -> Vec<Result<Suspect, String>> {
    let number = |name: &str| settings::value(&vm(name))?.parse::<u64>().ok();
    let mut all = Vec::new();
    for ((share, bytes, shares), tried_bytes) in WRITE_BACK.into_iter().zip(WRITE_BACK_BYTES) {
        // One of the two is 0: the other one holds.
        let (name, now, tried, unit) = match (number(share), number(bytes)) {
            (_, Some(now)) if now > 0 => (bytes, now, vec![tried_bytes], Some(1.0)),
            (Some(now), _) => (share, now, shares.to_vec(), dirtyable().map(|d| d / 100.0)),
            _ => continue,
        };
        let least = tried.iter().fold(now, |l, t| l.min(*t));
        let reached = unit.is_none_or(|u| least as f64 * u <= WRITE_BACK_PASS as f64);
        if !reached {
            all.push(Err(format!(
                "write-back: a pass writes at most {}, and {name} ({now}, tried would be {}) lets more lie",
                Bytes(WRITE_BACK_PASS),
                texts(&tried).join(" and ")
            )));
            continue;
        }
        let suspect = file(
            "write-back",
            format!("the kernel's {name}"),
            vm(name),
            &texts(&tried),
            &[LoadId::WriteBack],
            "A longer load, whose writes reach the device either way.",
        );
        all.extend(suspect.map(Ok));
    }
    all
}

/// What shares of memory are of, bytes: about what is free or page cache.
fn dirtyable() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0)
}

/// Options that make each write wait are left out one by one; access times are not written.
fn mount_options(at: &Path) -> Option<Suspect> {
    let now = settings::mount::options(at).ok()?;
    let source = settings::mount::node(at)?;
    let words: Vec<&str> = now.split(',').collect();
    let mut tried: Vec<(String, String)> = COSTLY_OPTIONS
        .iter()
        .filter(|o| words.contains(o))
        .map(|o| {
            let rest: Vec<&str> = words.iter().copied().filter(|w| w != o).collect();
            (format!("mounted without {o}"), rest.join(","))
        })
        .collect();
    if !words.contains(&"lazytime") {
        tried.push(("mounted with lazytime".into(), format!("{now},lazytime")));
    }
    let values: Vec<Value> = tried
        .into_iter()
        .map(|(label, options)| Value {
            label,
            // With the source named, mount(8) takes these options alone and none of fstab's.
            command: format!(
                "mount -o remount,{options} {} {}",
                source.display(),
                at.display()
            ),
            change: Change::Mount {
                at: at.to_owned(),
                options,
            },
        })
        .collect();
    (!values.is_empty()).then(|| Suspect {
        id: "mount-options",
        cause: format!("the mount options of {}", at.display()),
        now: format!("mounted with {now}"),
        values,
        under: Vec::new(),
        loads: vec![LoadId::WriteBack],
        is_setting: true,
        refuted_by: "An application that syncs each write itself: it waits either way.".into(),
    })
}
