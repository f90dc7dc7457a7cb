//! What is checked, and the steps of each host in a round of it.

use fathom_io::files::{Access, BLOCK, LockKind, Look, RECORD, Step, Steps};
use fathom_telemetry::Nanos;
use serde::{Deserialize, Serialize};

/// From the common start to what is to be seen: all look by then.
const LOOKING: Nanos = Nanos::from_millis(20);
/// How long a host waits for what was there before, at most.
const OLD_LIMIT: Nanos = Nanos::from_secs(10);
/// How long a lock is held while another host asks for it.
const HELD: Nanos = Nanos::from_millis(150);
/// Records that each host appends in a round.
pub(super) const RECORDS: u64 = 100;
/// Seconds since 1970 of the first round's time of modification.
const EPOCH: u64 = 1_000_000_000;

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Check {
    OpenBuffered,
    OpenDirect,
    OpenMapped,
    Reopened,
    OpenSize,
    Size,
    Modified,
    Created,
    Listed,
    Removed,
    Renamed,
    Appended,
    Flock,
    FlockKilled,
    Posix,
    PosixKilled,
    Ofd,
    OfdKilled,
}

/// What findings speak of together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data of a file.
    Data,
    /// Size and times.
    Attributes,
    /// Names in a directory.
    Names,
    /// Appending.
    Appends,
    /// Locks.
    Locks,
}

impl Check {
    pub(super) const ALL: [Self; 18] = [
        Self::OpenBuffered,
        Self::OpenDirect,
        Self::OpenMapped,
        Self::Reopened,
        Self::OpenSize,
        Self::Size,
        Self::Modified,
        Self::Created,
        Self::Listed,
        Self::Removed,
        Self::Renamed,
        Self::Appended,
        Self::Flock,
        Self::FlockKilled,
        Self::Posix,
        Self::PosixKilled,
        Self::Ofd,
        Self::OfdKilled,
    ];

    /// Of its jobs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OpenBuffered => "open-buffered",
            Self::OpenDirect => "open-direct",
            Self::OpenMapped => "open-mapped",
            Self::Reopened => "reopened",
            Self::OpenSize => "open-size",
            Self::Size => "size",
            Self::Modified => "modified",
            Self::Created => "created",
            Self::Listed => "listed",
            Self::Removed => "removed",
            Self::Renamed => "renamed",
            Self::Appended => "appended",
            Self::Flock => "flock",
            Self::FlockKilled => "flock-killed",
            Self::Posix => "posix",
            Self::PosixKilled => "posix-killed",
            Self::Ofd => "ofd",
            Self::OfdKilled => "ofd-killed",
        }
    }

    /// For people.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::OpenBuffered => "data: file kept open, buffered reads",
            Self::OpenDirect => "data: file kept open, direct reads",
            Self::OpenMapped => "data: file kept open and mapped",
            Self::Reopened => "data: file opened anew",
            Self::OpenSize => "size: file kept open, fstat",
            Self::Size => "size: by name, stat",
            Self::Modified => "time of modification: by name, stat",
            Self::Created => "a new name: looked up, absent before",
            Self::Listed => "a new name: listed",
            Self::Removed => "a removed name",
            Self::Renamed => "a renamed file: both names",
            Self::Appended => "records appended by all hosts at once",
            Self::Flock => "flock: given after close",
            Self::FlockKilled => "flock: given after the holder was killed",
            Self::Posix => "fcntl, of a process: given after close",
            Self::PosixKilled => "fcntl, of a process: given after the holder was killed",
            Self::Ofd => "fcntl, of an open file: given after close",
            Self::OfdKilled => "fcntl, of an open file: given after the holder was killed",
        }
    }

    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::OpenBuffered | Self::OpenDirect | Self::OpenMapped | Self::Reopened => Kind::Data,
            Self::OpenSize | Self::Size | Self::Modified => Kind::Attributes,
            Self::Created | Self::Listed | Self::Removed | Self::Renamed => Kind::Names,
            Self::Appended => Kind::Appends,
            _ => Kind::Locks,
        }
    }

    /// The lock, and whether its holder is killed.
    pub(super) const fn lock(self) -> Option<(LockKind, bool)> {
        Some(match self {
            Self::Flock => (LockKind::Flock, false),
            Self::FlockKilled => (LockKind::Flock, true),
            Self::Posix => (LockKind::Posix, false),
            Self::PosixKilled => (LockKind::Posix, true),
            Self::Ofd => (LockKind::Ofd, false),
            Self::OfdKilled => (LockKind::Ofd, true),
            _ => return None,
        })
    }

    /// Whether each round has a file of its own.
    const fn is_of_names(self) -> bool {
        matches!(
            self,
            Self::Created | Self::Listed | Self::Removed | Self::Renamed | Self::Appended
        )
    }

    /// Hosts that look at the same time, at most: a lock is given to one.
    pub(super) const fn readers_max(self) -> usize {
        match self.kind() {
            Kind::Locks => 1,
            _ => 8,
        }
    }
}

/// A round of a check: who writes, and what the file was before.
pub(super) struct Round {
    pub(super) check: Check,
    pub(super) number: u32,
    pub(super) hosts: usize,
    /// How long it is looked, at most.
    pub(super) limit: Nanos,
}

impl Round {
    /// The host that changes something.
    pub(super) fn writer(&self) -> usize {
        self.number as usize % self.hosts
    }

    /// Hosts that look.
    pub(super) fn readers(&self) -> Vec<usize> {
        let most = self.hosts.min(self.check.readers_max() + 1);
        // Over the rounds every host looks at what every other one does.
        let shift = self.number as usize / self.hosts;
        let nth = |k: usize| 1 + (shift + k) % (self.hosts - 1);
        let readers = (0..most - 1).map(|k| (self.writer() + nth(k)) % self.hosts);
        readers.collect()
    }

    fn name(&self) -> String {
        let of = match self.check.is_of_names() {
            true => self.number as usize,
            false => self.writer(),
        };
        format!("{}-{of}", self.check.name())
    }

    /// What this writer has written or appended before, and what it does now.
    fn turns(&self) -> (u64, u64) {
        let turn = u64::from(self.number) / self.hosts as u64;
        (turn, turn + 1)
    }

    /// What a host makes before the first of so many rounds.
    pub(super) fn set_up(&self, host: usize, rounds: u32) -> Steps {
        let before = match self.check {
            Check::Created | Check::Listed => Vec::new(),
            check if check.is_of_names() => (0..rounds)
                .map(|number| Round { number, ..*self })
                .filter(|r| r.writer() == host)
                .flat_map(|r| fresh(r.name()))
                .collect(),
            _ => fresh(format!("{}-{host}", self.check.name())),
        };
        Steps {
            before,
            then: Vec::new(),
        }
    }

    /// What each host does.
    pub(super) fn steps(&self) -> Vec<Steps> {
        let readers = self.readers();
        let of = |host: usize| match host {
            h if self.check == Check::Appended => self.append(h),
            h if h == self.writer() => self.writes(),
            h if readers.contains(&h) => self.looks(),
            _ => Steps::default(),
        };
        (0..self.hosts).map(of).collect()
    }

    fn append(&self, host: usize) -> Steps {
        Steps {
            before: vec![
                self.first(Look::There(self.name())),
                Step::Open(self.name(), Access::Append),
            ],
            then: vec![Step::Append(host as u64, RECORDS)],
        }
    }

    /// What the hosts that look see of all appended records. The writer counts as well: what one host alone does not see
    /// may be its cache.
    pub(super) fn records(&self) -> Vec<Steps> {
        let all = RECORDS * self.hosts as u64;
        let readers = self.readers();
        let look = |h: usize| match h == self.writer() || readers.contains(&h) {
            true => Steps {
                before: Vec::new(),
                then: vec![Step::Until(Look::Records(self.name(), all), self.limit)],
            },
            false => Steps::default(),
        };
        (0..self.hosts).map(look).collect()
    }

    /// The last of these steps is what is to be seen.
    fn writes(&self) -> Steps {
        let (_, now) = self.turns();
        let name = self.name();
        let open = |access| vec![Step::Open(self.name(), access)];
        if let Some((kind, killed)) = self.check.lock() {
            let (before, release) = match killed {
                true => (vec![Step::Hold(name, kind)], Step::Kill),
                false => {
                    let take = Step::Until(Look::Locked(kind), self.limit);
                    ([open(Access::Write), vec![take]].concat(), Step::Close)
                }
            };
            return Steps {
                before,
                then: vec![Step::Pause(HELD), release],
            };
        }
        let (before, change) = match self.check {
            Check::OpenSize | Check::Size => (open(Access::Append), Step::Append(0, 1)),
            Check::Modified => (Vec::new(), Step::Touch(name, EPOCH + now)),
            Check::Created | Check::Listed => (Vec::new(), Step::Create(name)),
            Check::Removed => (Vec::new(), Step::Remove(name)),
            Check::Renamed => (Vec::new(), Step::Rename(self.name(), format!("{name}.new"))),
            _ => (open(Access::Write), Step::Write(now)),
        };
        Steps {
            before,
            then: vec![Step::Pause(LOOKING), change],
        }
    }

    /// What is old is waited for, but not until a host would be taken for one that is never ready.
    fn first(&self, look: Look) -> Step {
        Step::Until(look, self.limit.min(OLD_LIMIT))
    }

    /// The last of these steps is the look that counts; those before it bring what is old into the host's caches.
    fn looks(&self) -> Steps {
        let (old, new) = self.turns();
        let name = self.name();
        let once = |look| Step::Until(look, Nanos::ZERO);
        let open = |access| {
            vec![
                self.first(Look::Reopened(self.name(), old)),
                Step::Open(self.name(), access),
                once(Look::Word(old)),
            ]
        };
        let size = |turns: u64| BLOCK as u64 + turns * RECORD as u64;
        let there = |name: &String| Look::There(name.clone());
        let (before, look) = match self.check {
            Check::OpenBuffered => (open(Access::Buffered), Look::Word(new)),
            Check::OpenDirect => (open(Access::Direct), Look::Word(new)),
            Check::OpenMapped => (open(Access::Mapped), Look::Word(new)),
            Check::Reopened => (
                vec![self.first(Look::Reopened(self.name(), old))],
                Look::Reopened(name, new),
            ),
            Check::OpenSize => (
                vec![
                    self.first(Look::SizeOf(self.name(), size(old))),
                    Step::Open(self.name(), Access::Buffered),
                    once(Look::Size(size(old))),
                ],
                Look::Size(size(new)),
            ),
            Check::Size => (
                vec![self.first(Look::SizeOf(self.name(), size(old)))],
                Look::SizeOf(name, size(new)),
            ),
            Check::Modified => (
                vec![once(Look::Modified(self.name(), EPOCH + old))],
                Look::Modified(name, EPOCH + new),
            ),
            Check::Created => (vec![once(there(&name))], Look::There(name)),
            Check::Listed => (vec![once(Look::Listed(self.name()))], Look::Listed(name)),
            Check::Removed => (vec![self.first(there(&name))], Look::Gone(name)),
            Check::Renamed => {
                let new = format!("{name}.new");
                let seen = vec![self.first(there(&name)), once(there(&new))];
                (seen, Look::Renamed(name, new))
            }
            _ => return self.asks(),
        };
        Steps {
            before,
            then: vec![Step::Until(look, self.limit)],
        }
    }

    /// Asks for the lock once while it is held, and then until it is given.
    fn asks(&self) -> Steps {
        let kind = self.check.lock().map_or(LockKind::Flock, |l| l.0);
        Steps {
            before: vec![
                self.first(Look::There(self.name())),
                Step::Open(self.name(), Access::Write),
            ],
            then: vec![
                Step::Until(Look::Locked(kind), Nanos::ZERO),
                Step::Until(Look::Locked(kind), self.limit),
            ],
        }
    }
}

/// A file of one block of word 0.
fn fresh(name: String) -> Vec<Step> {
    vec![
        Step::Create(name.clone()),
        Step::Open(name, Access::Write),
        Step::Write(0),
        Step::Close,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_rounds_every_host_looks_at_what_every_other_one_does() {
        for check in [Check::OpenBuffered, Check::Flock] {
            for hosts in [2usize, 3, 5, 12] {
                let mut pairs = std::collections::BTreeSet::new();
                for number in 0..(hosts * hosts) as u32 {
                    let limit = Nanos::from_secs(1);
                    let round = Round {
                        check,
                        number,
                        hosts,
                        limit,
                    };
                    let writer = round.writer();
                    let readers = round.readers();
                    assert!(!readers.is_empty() && readers.len() <= check.readers_max());
                    for reader in readers {
                        assert_ne!(reader, writer);
                        pairs.insert((writer, reader));
                    }
                    assert_eq!(round.steps().len(), hosts);
                }
                assert_eq!(pairs.len(), hosts * (hosts - 1), "{check:?} {hosts}");
            }
        }
    }
}
