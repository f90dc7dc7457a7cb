//! CPU time of the kernel's own threads, by name.

use std::fs;

use fathom_telemetry::Nanos;

/// Time of kernel threads whose names begin with one of `prefixes`, threads of one name together.
pub(super) fn kernel_threads(prefixes: &[&str]) -> Vec<(String, Nanos)> {
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
}
