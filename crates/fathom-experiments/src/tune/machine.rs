//! Suspects of a target on this machine: the reversible settings of its disks, of the page cache, and of file systems that
//! are fathom's own.

use std::path::{Path, PathBuf};

use fathom_stack::{Devices, settings};

use super::load::LoadId;
use super::suspect::{Change, Suspect, Value};

/// Read-ahead worth trying, KiB: the kernel's default, and what striped and remote storage wants.
const READ_AHEAD_KIB: [u64; 2] = [128, 1024];
/// Requests of a queue worth trying.
const REQUESTS: [u64; 2] = [128, 1024];
/// The kernel's write-back settings and the values worth trying beside its defaults.
const WRITE_BACK: [(&str, &[&str]); 4] = [
    ("dirty_background_ratio", &["10", "5"]),
    ("dirty_ratio", &["20", "40"]),
    ("dirty_expire_centisecs", &["3000"]),
    ("dirty_writeback_centisecs", &["500"]),
];
/// The same as bytes, where somebody set them so: most systems take shares.
const WRITE_BACK_BYTES: [(&str, u64); 2] = [
    ("dirty_background_bytes", 256 << 20),
    ("dirty_bytes", 1 << 30),
];
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
            let own = std::fs::read_dir(queue.join("iosched"));
            let mut own: Vec<PathBuf> = own
                .into_iter()
                .flatten()
                .flatten()
                .map(|e| e.path())
                .collect();
            own.sort();
            files.extend(own);
        }
        let names = WRITE_BACK.iter().map(|w| w.0);
        let names = names.chain(WRITE_BACK_BYTES.iter().map(|w| w.0));
        files.extend(names.map(vm));
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

/// What may limit a target here and can be changed for a moment.
pub fn suspects(around: &Surroundings) -> Vec<Suspect> {
    let mut all = Vec::new();
    let texts = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>();
    for disk in around.devices.top.iter().filter(|d| d.has_requests) {
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
            all.extend(file(
                "poll-delay",
                format!("how {} is polled", disk.name),
                queue.join("io_poll_delay"),
                &["-1".to_owned(), "0".to_owned()],
                &[LoadId::One],
                "The same latency with the other delay.",
            ));
        }
        if around.modifies {
            all.extend(file(
                "write-throttle",
                format!("the write-back throttling of {}", disk.name),
                queue.join("wbt_lat_usec"),
                &["0".to_owned()],
                &[LoadId::WriteBack],
                "Reads beside the writes that become slower than the writes gain.",
            ));
        }
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
        for (name, tried) in WRITE_BACK {
            // 0: the limit is set in bytes instead.
            if settings::value(&vm(name)).as_deref() == Some("0") && name.ends_with("ratio") {
                continue;
            }
            let tried: Vec<String> = tried.iter().map(|t| (*t).to_owned()).collect();
            all.extend(write_back(name, &tried));
        }
        for (name, bytes) in WRITE_BACK_BYTES {
            if settings::value(&vm(name)).is_some_and(|v| v != "0") {
                all.extend(write_back(name, &texts(&[bytes])));
            }
        }
        all.extend(around.mount.as_deref().and_then(mount_options));
    }
    all
}

fn write_back(name: &str, tried: &[String]) -> Option<Suspect> {
    file(
        "write-back",
        format!("the kernel's {name}"),
        vm(name),
        tried,
        &[LoadId::WriteBack],
        "A longer load, whose writes reach the device either way.",
    )
}

/// Options that make each write wait are left out one by one; access times are not written.
fn mount_options(at: &Path) -> Option<Suspect> {
    let now = settings::mount::options(at).ok()?;
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
            command: format!("mount -o remount,{options} {}", at.display()),
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
