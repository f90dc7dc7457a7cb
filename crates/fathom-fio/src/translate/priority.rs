//! I/O priorities: of the thread (`prio`, `prioclass`, `priohint`) and of single I/Os (`cmdprio…`).

use fathom_io::thread_terms::priority_of;

use crate::FioError;
use crate::feed::random::Stream;
use crate::options::value::{self, Quantity};
use crate::section::Section;

/// Share of I/Os of one block size that get a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    size: u64,
    percent: u64,
    priority: u16,
}

/// Which I/Os get a priority of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Priorities {
    /// Percent of reads, writes and trims.
    percent: [u64; 3],
    priority: [u16; 3],
    /// By block size, in place of the percentage.
    split: [Vec<Split>; 3],
}

impl Priorities {
    /// The priority of the next I/O; 0 for the thread's own.
    pub(crate) fn pick(&self, direction: usize, len: u64, stream: &mut Stream) -> u16 {
        let sized = self.split[direction].iter().filter(|s| s.size == len);
        let share = self.percent[direction] + sized.map(|s| s.percent).sum::<u64>();
        if share == 0 {
            return 0;
        }
        let mut dice = stream.below(100);
        for s in self.split[direction].iter().filter(|s| s.size == len) {
            if dice < s.percent {
                return s.priority;
            }
            dice -= s.percent;
        }
        if dice < self.percent[direction] {
            return self.priority[direction];
        }
        0
    }

    /// Of a section; `None` where no I/O has a priority of its own.
    pub(super) fn of(s: &Section) -> Result<Option<Self>, FioError> {
        let three = |name: &str| s.per_direction(name);
        let percent = three("cmdprio_percentage").unwrap_or([0; 3]);
        let text = s.text("cmdprio_bssplit");
        if percent == [0; 3] && text.is_none() {
            return Ok(None);
        }
        // Real time where nothing else is said, as in fio.
        let class = three("cmdprio_class").unwrap_or([1; 3]);
        let level = three("cmdprio").unwrap_or([0; 3]);
        let hint = three("cmdprio_hint").unwrap_or([0; 3]);
        let priority = [0, 1, 2]
            .map(|i: usize| priority_of(class[i].max(1) as u16, level[i] as u16, hint[i] as u16));
        let mut split: [Vec<Split>; 3] = Default::default();
        if let Some(text) = text {
            let parts: Vec<&str> = text.split(',').collect();
            for (i, list) in split.iter_mut().enumerate() {
                let part = parts.get(i).or(parts.first()).copied().unwrap_or("");
                for entry in part.split(':').filter(|e| !e.is_empty()) {
                    list.push(one(entry, priority[i], s.kb_base()).ok_or_else(|| {
                        s.invalid("cmdprio_bssplit",
                            format!("'{entry}' is not possible: expected SIZE/PERCENT or SIZE/PERCENT/CLASS/LEVEL, such as 64k/25/1/1"),
                        )
                    })?);
                }
            }
        }
        Ok(Some(Self {
            percent,
            priority,
            split,
        }))
    }
}

/// `64k/25`, or `64k/25/CLASS/LEVEL`, perhaps with `/HINT`.
fn one(text: &str, priority: u16, base: u64) -> Option<Split> {
    let words: Vec<&str> = text.split('/').collect();
    let size = match value::number(words.first()?, base)? {
        Quantity::Plain(n) => u64::try_from(n).ok()?,
        _ => return None,
    };
    let number = |i: usize| words.get(i)?.parse::<u16>().ok();
    let percent = match words.get(1) {
        None | Some(&"") => 100,
        Some(t) => t.parse::<u64>().ok().filter(|p| *p <= 100)?,
    };
    let priority = match words.len() {
        0..=2 => priority,
        4 => priority_of(number(2)?, number(3)?, 0),
        5 => priority_of(number(2)?, number(3)?, number(4)?),
        _ => return None,
    };
    Some(Split {
        size,
        percent,
        priority,
    })
}

/// The thread's own priority; 0 where none is asked for.
pub(super) fn of_thread(s: &Section) -> u16 {
    let number = |name: &str| s.number(name);
    if ["prio", "prioclass", "priohint"].iter().all(|n| !s.has(n)) {
        return 0;
    }
    // A level alone means best effort.
    let class = number("prioclass").unwrap_or(2);
    priority_of(
        class as u16,
        number("prio").unwrap_or(0) as u16,
        number("priohint").unwrap_or(0) as u16,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_size_and_by_percentage_are_kept() {
        let mut stream = Stream::new(1);
        let count = |p: &Priorities, len: u64, want: u16, stream: &mut Stream| {
            (0..20_000)
                .filter(|_| p.pick(0, len, stream) == want)
                .count()
        };
        let p = Priorities {
            percent: [20, 0, 0],
            priority: [0x2000; 3],
            split: Default::default(),
        };
        let n = count(&p, 4096, 0x2000, &mut stream);
        assert!((3800..4200).contains(&n), "{n}");
        let p = Priorities {
            percent: [0; 3],
            priority: [0x2000; 3],
            split: [
                ["64k/25/1/1", "64k/75/3/2", "1024k/0"]
                    .iter()
                    .map(|e| one(e, 0x2000, 1024).unwrap())
                    .collect(),
                Vec::new(),
                Vec::new(),
            ],
        };
        let n = count(&p, 65_536, 0x2001, &mut stream);
        assert!((4700..5300).contains(&n), "{n}");
        assert_eq!(count(&p, 1 << 20, 0, &mut stream), 20_000);
        assert!(one("64k/25/1", 0, 1024).is_none());
    }
}
