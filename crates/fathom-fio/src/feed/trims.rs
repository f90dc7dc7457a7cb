//! Blocks that are trimmed again between verified writes (`trim_percentage`).

use std::collections::VecDeque;

use fathom_io::load::PilotIo;

use super::random::Stream;

/// What `trim_percentage` and its companions ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrimBack {
    /// Share of writes that are trimmed again, percent.
    pub(crate) percent: u64,
    /// Trims begin whenever so many writes are known.
    pub(crate) backlog: u64,
    /// So many trims follow each other then.
    pub(crate) batch: u64,
    /// What was trimmed is read back, and must be zeros.
    pub(crate) zero: bool,
}

/// Writes that wait to be trimmed, in their order.
#[derive(Debug, Default)]
pub(super) struct Trims {
    places: VecDeque<(u16, u64)>,
    /// Left of the batch under way.
    left: u64,
    /// The last I/O that was started is a trim.
    last: bool,
}

impl Trims {
    /// A write begins; it may be one of those to be trimmed.
    pub(super) fn wrote(&mut self, terms: TrimBack, io: &PilotIo, stream: &mut Stream) {
        self.last = false;
        if stream.next() <= stream.max() / 100 * terms.percent {
            self.places.push_back((io.file, io.offset));
        }
    }

    /// The place to trim now, where it is time for it and `known` has it; `logged` writes are known or under way.
    pub(super) fn next(
        &mut self,
        terms: TrimBack,
        logged: u64,
        known: impl Fn((u16, u64)) -> bool,
    ) -> Option<(u16, u64)> {
        let begins = logged > 0 && logged.is_multiple_of(terms.backlog) && !self.last;
        if self.left == 0 && !begins {
            return None;
        }
        // Those that were overwritten or read back meanwhile are not there any more; those under way come later.
        let place = loop {
            match self.places.pop_front() {
                Some(place) if known(place) => break place,
                Some(_) => {}
                None => {
                    self.left = 0;
                    return None;
                }
            }
        };
        self.left = if self.left > 0 {
            self.left
        } else {
            terms.batch
        } - 1;
        self.last = true;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use fathom_telemetry::Op;

    use super::*;

    fn write(offset: u64) -> PilotIo {
        PilotIo {
            op: Op::Write,
            offset,
            len: 4096,
            file: 0,
            priority: 0,
        }
    }

    #[test]
    fn trims_follow_in_batches_and_pass_over_what_is_gone() {
        let terms = TrimBack {
            percent: 100,
            backlog: 4,
            batch: 2,
            zero: true,
        };
        let (mut trims, mut stream) = (Trims::default(), Stream::new(1));
        for i in 0..4 {
            assert_eq!(trims.next(terms, i, |_| true), None);
            trims.wrote(terms, &write(i * 4096), &mut stream);
        }
        // The second is overwritten.
        let known = |place: (u16, u64)| place.1 != 4096;
        assert_eq!(trims.next(terms, 4, known), Some((0, 0)));
        assert_eq!(trims.next(terms, 4, known), Some((0, 8192)));
        assert_eq!(
            trims.next(terms, 4, known),
            None,
            "no batch right after one"
        );
    }
}
