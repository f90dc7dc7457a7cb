//! What the processors did, and how long threads that were ready waited for one.
//!
//! The kernel keeps both without being asked: busy and stolen time of every processor in `/proc/stat`, the run delay of
//! every thread in its `schedstat`. They are read at the ends of a job, never on the way of an I/O.

use std::fs;
use std::path::Path;

use crate::root::{HostRoot, names, text};

/// Time since the start of the machine of the processors that this process may use, in the kernel's ticks (10 ms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// With work.
    pub busy: u64,
    /// With work, but given to other machines by the hypervisor.
    pub stolen: u64,
    /// Without work.
    pub idle: u64,
}

impl ProcessorTime {
    /// Now; `None` where `/proc/stat` cannot be read. `only`: these processors, not all that are allowed.
    pub fn read(root: &HostRoot, only: &[u32]) -> Option<Self> {
        let stat = fs::read_to_string(root.proc.join("stat")).ok()?;
        let allowed;
        let only = if only.is_empty() {
            allowed = allowed_processors(root);
            &allowed
        } else {
            only
        };
        let mut sum = Self::default();
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let Some(Ok(cpu)) = words
                .next()
                .and_then(|w| w.strip_prefix("cpu"))
                .map(str::parse::<u32>)
            else {
                continue;
            };
            if !only.is_empty() && !only.contains(&cpu) {
                continue;
            }
            // user nice system idle iowait irq softirq steal; guest time is in user time already.
            let t: Vec<u64> = words.filter_map(|w| w.parse().ok()).collect();
            let n = |i: usize| t.get(i).copied().unwrap_or(0);
            sum.busy += n(0) + n(1) + n(2) + n(5) + n(6);
            sum.stolen += n(7);
            sum.idle += n(3) + n(4);
        }
        Some(sum)
    }

    /// What passed since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            stolen: self.stolen.saturating_sub(earlier.stolen),
            idle: self.idle.saturating_sub(earlier.idle),
        }
    }

    /// Share of the time with work that the hypervisor gave away; `None` for less than three ticks of it.
    pub fn steal_share(&self) -> Option<f64> {
        let wanted = self.busy + self.stolen;
        (wanted > 0).then(|| match self.stolen {
            0..3 => 0.0,
            n => n as f64 / wanted as f64,
        })
    }

    /// Share of all the time with work; `None` for less than ten ticks.
    pub fn busy_share(&self) -> Option<f64> {
        let wanted = self.busy + self.stolen;
        let all = wanted + self.idle;
        (all >= 10).then(|| wanted as f64 / all as f64)
    }
}

/// The processors that this process may use; empty where the kernel does not say.
fn allowed_processors(root: &HostRoot) -> Vec<u32> {
    let status = fs::read_to_string(root.proc.join("self/status")).unwrap_or_default();
    let list = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap_or_default();
    let mut all = Vec::new();
    for part in list.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
            all.extend(from..=to.min(from.saturating_add(1 << 16)));
        }
    }
    all
}

/// Time that the calling thread has been ready to run and waited for a processor, ns; `None` where the kernel does not count.
pub fn own_run_delay() -> Option<u64> {
    run_delay(Path::new("/proc/thread-self/schedstat"))
}

/// The same of the kernel's threads that work for the rings of thread `owner` of this process, one by one.
pub fn ring_workers_run_delay(owner: i32) -> Vec<u64> {
    let tasks = Path::new("/proc/self/task");
    let own = [format!("iou-wrk-{owner}"), format!("iou-sqp-{owner}")];
    names(tasks)
        .iter()
        .map(|id| tasks.join(id))
        .filter(|t| text(&t.join("comm")).is_some_and(|c| own.contains(&c)))
        .filter_map(|t| run_delay(&t.join("schedstat")))
        .collect()
}

/// `schedstat`: time on a processor, time waiting for one, both ns, and how often.
fn run_delay(schedstat: &Path) -> Option<u64> {
    let text = fs::read_to_string(schedstat).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(stat: &str, allowed: &str) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        fs::write(dir.path().join("proc/stat"), stat).unwrap();
        let status = format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n");
        fs::write(dir.path().join("proc/self/status"), status).unwrap();
        let root = HostRoot::under(dir.path());
        (dir, root)
    }

    #[test]
    fn only_processors_that_this_process_may_use_are_counted() {
        let stat = "cpu 1 1 1 1 1 1 1 1 0 0\n\
                    cpu0 10 0 5 100 7 1 2 3 0 0\n\
                    cpu1 1000 0 0 0 0 0 0 0 0 0\n\
                    cpu2 20 1 0 50 0 0 0 40 0 0\nintr 5\n";
        let (_dir, root) = described(stat, "0,2-3");
        let t = ProcessorTime::read(&root, &[]).unwrap();
        assert_eq!((t.busy, t.stolen, t.idle), (39, 43, 157));
        let pinned = ProcessorTime::read(&root, &[1]).unwrap();
        assert_eq!((pinned.busy, pinned.idle), (1000, 0));
    }

    #[test]
    fn shares_are_of_the_time_with_work_and_need_enough_of_it() {
        let t = |busy, stolen, idle| ProcessorTime { busy, stolen, idle };
        assert_eq!(t(90, 10, 900).steal_share(), Some(0.1));
        assert_eq!(t(10, 2, 0).steal_share(), Some(0.0), "a tick is coarse");
        assert_eq!(t(0, 0, 100).steal_share(), None);
        assert_eq!(t(90, 0, 10).busy_share(), Some(0.9));
        assert_eq!(t(5, 0, 4).busy_share(), None);
        assert_eq!(t(9, 0, 9).since(&t(4, 0, 10)), t(5, 0, 0));
    }

    #[test]
    fn of_more_threads_than_processors_some_have_waited() {
        let Some(before) = own_run_delay() else {
            return println!(
                "SKIP of_more_threads_than_processors: the kernel counts no run delay"
            );
        };
        let burn = || {
            let before = own_run_delay().unwrap();
            let end = std::time::Instant::now() + std::time::Duration::from_millis(60);
            while std::time::Instant::now() < end {
                std::hint::spin_loop();
            }
            own_run_delay().unwrap() - before
        };
        let processors = allowed_processors(&HostRoot::real()).len();
        let threads: Vec<_> = (0..2 * processors + 1)
            .map(|_| std::thread::spawn(burn))
            .collect();
        let waited: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(
            waited > 30_000_000 * processors as u64,
            "{waited} ns of {processors} processors"
        );
        assert!(own_run_delay().unwrap() >= before);
        assert!(ring_workers_run_delay(-1).is_empty());
    }
}
