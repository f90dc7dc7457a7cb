//! `--idle-prof`: how idle the processors were. fio burns what is idle in threads of lowest priority and counts their
//! work; the kernel's own account (/proc/stat) says the same and disturbs nothing.

/// Ticks of one processor: idle ones, and all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

/// The account at one moment: the whole system, then processor by processor.
#[derive(Debug, Clone, Default)]
pub(super) struct Account(Vec<Ticks>);

impl Account {
    /// Reads it; empty where the kernel does not tell.
    pub(super) fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let line = |l: &str| {
            let mut words = l.split_whitespace();
            words.next().filter(|w| w.starts_with("cpu"))?;
            // user nice system idle iowait irq softirq steal; guests are part of user.
            let n: Vec<u64> = words.take(8).filter_map(|w| w.parse().ok()).collect();
            Some(Ticks {
                idle: n.get(3)? + n.get(4).copied().unwrap_or(0),
                all: n.iter().sum(),
            })
        };
        Self(text.lines().map_while(line).collect())
    }

    /// Idle share since `earlier`, percent: the system's, then each processor's.
    pub(super) fn since(&self, earlier: &Self) -> Vec<f64> {
        self.0
            .iter()
            .zip(&earlier.0)
            .map(|(b, a)| {
                let all = b.all.saturating_sub(a.all);
                match all {
                    0 => 0.0,
                    n => 100.0 * b.idle.saturating_sub(a.idle) as f64 / n as f64,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_shares_are_those_of_the_kernel() {
        let a =
            Account::parse("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0 0 0\nintr 5\n");
        let b = Account::parse(
            "cpu  20 0 20 150 10 0 0 0 0 0\ncpu0 20 0 20 150 10 0 0 0 0 0\nintr 9\n",
        );
        assert_eq!(b.since(&a), [80.0, 80.0]);
        assert!(Account::now().0.len() >= 2);
    }
}
