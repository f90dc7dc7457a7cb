//! CPU time of the kernel's own threads, by name or by what they do.

use std::collections::BTreeMap;
use std::fs;

use fathom_telemetry::Nanos;

/// Time of kernel threads whose names begin with one of `prefixes`, threads of one name together.
pub fn by_name(prefixes: &[&str]) -> Vec<(String, Nanos)> {
    times(|p| p.kernel && prefixes.iter().any(|n| p.name.starts_with(n)))
}

/// Time of programs of this name: what does a kernel's work outside of it.
pub fn of_program(name: &str) -> Vec<(String, Nanos)> {
    times(|p| !p.kernel && p.name == name)
}

fn times(wanted: impl Fn(&Process<'_>) -> bool) -> Vec<(String, Nanos)> {
    let tick = rustix::param::clock_ticks_per_second().max(1);
    let mut all: Vec<(String, Nanos)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some(process) = Process::of(&stat).filter(&wanted) else {
            continue;
        };
        let time = Nanos(process.ticks * (1_000_000_000 / tick));
        match all.iter_mut().find(|t| t.0 == process.name) {
            Some(t) => t.1 += time,
            None => all.push((process.name.to_owned(), time)),
        }
    }
    all.sort();
    all
}

/// What a kernel thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Work queues: write-back, completions of buffered I/O, loop devices.
    Kworker,
    /// Reclaims memory.
    Kswapd,
    /// Interrupts' second half.
    Softirq,
    /// A file system's own: journals, cleaners.
    FileSystem,
    /// Everything else.
    Other,
}

impl Family {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Kworker,
        Self::Kswapd,
        Self::Softirq,
        Self::FileSystem,
        Self::Other,
    ];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kworker => "kworker",
            Self::Kswapd => "kswapd",
            Self::Softirq => "ksoftirqd",
            Self::FileSystem => "jbd2, xfs, btrfs",
            Self::Other => "others",
        }
    }

    fn of(name: &str) -> Self {
        let begins = |words: &[&str]| words.iter().any(|w| name.starts_with(w));
        if begins(&["kworker"]) {
            Self::Kworker
        } else if begins(&["kswapd"]) {
            Self::Kswapd
        } else if begins(&["ksoftirqd"]) {
            Self::Softirq
        } else if begins(&["jbd2", "xfs", "btrfs"]) {
            Self::FileSystem
        } else {
            Self::Other
        }
    }
}

/// CPU time of every kernel thread so far. Threads change their names and end, so each is known by its number.
#[derive(Debug, Clone, Default)]
pub struct Snapshot(BTreeMap<u32, (Family, u64)>);

impl Snapshot {
    /// Empty where /proc does not say.
    pub fn take() -> Self {
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let mut all = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
                continue;
            };
            let Some(thread) = Process::of(&stat).filter(|p| p.kernel) else {
                continue;
            };
            // Ticks are 10 ms; the scheduler counts ns.
            let exact = fs::read_to_string(entry.path().join("schedstat")).ok();
            let exact = exact.and_then(|t| t.split_whitespace().next()?.parse().ok());
            let ns: u64 = exact.filter(|n| *n > 0).unwrap_or(thread.ticks * tick);
            all.insert(pid, (Family::of(thread.name), ns));
        }
        Self(all)
    }

    /// Time of a family since `earlier`. Threads that ended meanwhile are not seen.
    pub fn since(&self, earlier: &Self, family: Family) -> Nanos {
        let more = |(pid, (f, ns)): (&u32, &(Family, u64))| {
            let before = earlier.0.get(pid).map_or(0, |b| b.1);
            (*f == family).then(|| ns.saturating_sub(before))
        };
        Nanos(self.0.iter().filter_map(more).sum())
    }
}

/// What a process' `stat` says.
struct Process<'a> {
    name: &'a str,
    /// It is a thread of the kernel.
    kernel: bool,
    /// User and system time.
    ticks: u64,
}

impl<'a> Process<'a> {
    fn of(stat: &'a str) -> Option<Self> {
        const KTHREADD: u64 = 2;
        let (_, rest) = stat.split_once('(')?;
        let (name, rest) = rest.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // After the name: state, parent, …; user and system time are the 12th and 13th.
        let field = |i: usize| fields.get(i)?.parse::<u64>().ok();
        Some(Self {
            name,
            kernel: field(1)? == KTHREADD,
            ticks: field(11)? + field(12)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_of_the_kernel_count_whatever_their_names() {
        let of =
            |parent: u32| format!("12 (md0_raid5 (x)) S {parent} 0 0 0 -1 2 0 0 0 0 7 35 0 0 20");
        let said = |text: &str| Process::of(text).map(|p| (p.name.to_owned(), p.kernel, p.ticks));
        assert_eq!(said(&of(2)), Some(("md0_raid5 (x)".to_owned(), true, 42)));
        assert_eq!(said(&of(1)).map(|p| p.1), Some(false));
        assert_eq!(said("nonsense"), None);
    }

    #[test]
    fn time_goes_to_what_a_thread_does() {
        let at = |n: u64| {
            let all = [
                (1, (Family::Kworker, 10 * n)),
                (2, (Family::Kworker, 5)),
                (n as u32 + 2, (Family::Kswapd, 7)),
            ];
            Snapshot(all.into_iter().collect())
        };
        let (before, after) = (at(1), at(4));
        assert_eq!(after.since(&before, Family::Kworker), Nanos(30));
        assert_eq!(after.since(&before, Family::Kswapd), Nanos(7), "it is new");
        assert_eq!(after.since(&before, Family::Other), Nanos(0));
        assert_eq!(Family::of("kworker/u8:2-loop0"), Family::Kworker);
        assert_eq!(Family::of("jbd2/vda1-8"), Family::FileSystem);
        assert_eq!(Family::ALL.len(), 5);
        // Where there is /proc there are kernel threads, except in a container.
        let now = Snapshot::take();
        assert!(Family::ALL.iter().all(|f| now.since(&now, *f) == Nanos(0)));
    }
}
