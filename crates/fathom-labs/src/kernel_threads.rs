//! CPU time of the kernel's own threads, by name or by what they do.

use std::collections::BTreeMap;
use std::fs;

use fathom_telemetry::Nanos;

/// Time of kernel threads whose names begin with one of `prefixes`, threads of one name together.
pub(crate) fn by_name(prefixes: &[&str]) -> Vec<(String, Nanos)> {
    let tick = rustix::param::clock_ticks_per_second().max(1);
    let mut all: Vec<(String, Nanos)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((name, ticks)) = of_kernel(&stat) else {
            continue;
        };
        if !prefixes.iter().any(|p| name.starts_with(p)) {
            continue;
        }
        let time = Nanos(ticks * (1_000_000_000 / tick));
        match all.iter_mut().find(|t| t.0 == name) {
            Some(t) => t.1 += time,
            None => all.push((name.to_owned(), time)),
        }
    }
    all.sort();
    all
}

/// What a kernel thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
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
    pub(crate) const ALL: [Self; 5] = [
        Self::Kworker,
        Self::Kswapd,
        Self::Softirq,
        Self::FileSystem,
        Self::Other,
    ];

    /// For people.
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) struct Snapshot(BTreeMap<u32, (Family, u64)>);

impl Snapshot {
    /// Empty where /proc does not say.
    pub(crate) fn take() -> Self {
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let mut all = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
                continue;
            };
            let Some((name, ticks)) = of_kernel(&stat) else {
                continue;
            };
            // Ticks are 10 ms; the scheduler counts ns.
            let exact = fs::read_to_string(entry.path().join("schedstat")).ok();
            let exact = exact.and_then(|t| t.split_whitespace().next()?.parse().ok());
            let ns: u64 = exact.filter(|n| *n > 0).unwrap_or(ticks * tick);
            all.insert(pid, (Family::of(name), ns));
        }
        Self(all)
    }

    /// Time of a family since `earlier`. Threads that ended meanwhile are not seen.
    pub(crate) fn since(&self, earlier: &Self, family: Family) -> Nanos {
        let more = |(pid, (f, ns)): (&u32, &(Family, u64))| {
            let before = earlier.0.get(pid).map_or(0, |b| b.1);
            (*f == family).then(|| ns.saturating_sub(before))
        };
        Nanos(self.0.iter().filter_map(more).sum())
    }
}

/// Name and ticks of a kernel thread's `stat`; `None` for others.
fn of_kernel(stat: &str) -> Option<(&str, u64)> {
    const KTHREADD: u64 = 2;
    let (_, rest) = stat.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // After the name: state, parent, …; user and system time are the 12th and 13th.
    if fields.get(1)?.parse::<u64>().ok()? != KTHREADD {
        return None;
    }
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some((name, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_of_the_kernel_count_whatever_their_names() {
        let of =
            |parent: u32| format!("12 (md0_raid5 (x)) S {parent} 0 0 0 -1 2 0 0 0 0 7 35 0 0 20");
        assert_eq!(of_kernel(&of(2)), Some(("md0_raid5 (x)", 42)));
        assert_eq!(of_kernel(&of(1)), None);
        assert_eq!(of_kernel("nonsense"), None);
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
