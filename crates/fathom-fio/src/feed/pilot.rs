//! What the driver asks a feed: which I/O, with what in its buffer, and what of the one that is done.

use fathom_io::load::{Next, Pass, Pilot, PilotIo};
use fathom_telemetry::{Nanos, Op, Record};
use std::sync::atomic::Ordering;

use super::verify::MISMATCH;
use super::{FioFeed, TOO_SLOW, sums};

impl Pilot for FioFeed {
    fn decides_end(&self) -> bool {
        !self.native()
    }

    fn start(&mut self, origin: Nanos) {
        self.origin = origin;
        self.phase_began = origin;
        self.last_think = origin;
        self.due = [origin; 3];
        if let Some(l) = &mut self.log {
            l.start(origin);
        }
        if let Some(e) = &mut self.each {
            e.start(origin);
        }
        if let Some(c) = &mut self.classes {
            c.start(origin);
        }
        if let Some(s) = &mut self.seeker {
            s.until = origin + s.goal.window;
        }
    }

    fn next(&mut self, now: Nanos) -> Next {
        if self.stopped {
            return Next::End;
        }
        if let Some(wait) = self.held_back(now) {
            return wait;
        }
        let next = if self.order.replay.is_some() {
            self.replay(now)
        } else if self.native() {
            self.flying += 1;
            Next::Own
        } else {
            self.custom(now)
        };
        match next {
            Next::Start(_) | Next::Own => {
                let think = self.order.recipe.think;
                if think.time > Nanos::ZERO {
                    self.think_left = self.think_left.saturating_sub(1);
                    let long =
                        think.io_time > Nanos::ZERO && now.since(self.last_think) >= think.io_time;
                    if self.think_left == 0 || long {
                        self.think_left = think.blocks;
                        self.think_due = true;
                    }
                }
            }
            Next::End => self.stopped = true,
            _ => {}
        }
        next
    }

    fn paced(&self) -> bool {
        !self.checks
    }

    fn passed(&mut self) -> Option<Pass> {
        self.passed.take()
    }

    fn begins(&mut self, io: &PilotIo) {
        if let Some(t) = &mut self.taking {
            t.begin(io.file, io.op);
        }
    }

    fn fill(&mut self, io: &PilotIo, data: &mut [u8]) -> bool {
        if let Some(c) = &self.order.recipe.check {
            let number = self.history.start(io);
            if let Some(terms) = self.order.recipe.trim_back {
                self.trims.wrote(terms, io, &mut self.streams.trim);
            }
            c.fill(io, data, number, self.order.thread);
            return c.sum != sums::Sum::Null;
        }
        let Some(p) = &self.order.recipe.pattern else {
            return false;
        };
        p.fill(data, io.offset);
        if let Some((percent, chunk)) = self.order.recipe.compress {
            // The pattern is what compresses; the rest does not.
            for part in data.chunks_mut(chunk as usize) {
                let random = part.len() * (100 - percent as usize) / 100;
                sums::noise(&mut part[..random], self.streams.content.next());
            }
        }
        true
    }

    fn done(&mut self, io: &PilotIo, record: &Record, data: &[u8]) -> i64 {
        let result = self.judged(io, record, data);
        if let Some(lines) = &mut self.lines {
            let name = self.order.names.get(usize::from(io.file));
            let name = name.map_or("".into(), |n| n.to_string_lossy());
            lines.complete(io, &name);
        }
        let errors = &self.order.errors;
        if result < 0 && errors.survives_some() && !errors.survives(io.op, -result as i32) {
            self.stopped = true;
        }
        result
    }
}

impl FioFeed {
    /// The result of an I/O, with what its data and its time say.
    fn judged(&mut self, io: &PilotIo, record: &Record, data: &[u8]) -> i64 {
        if let Some(t) = &mut self.taking {
            t.end();
        }
        self.flying = self
            .flying
            .saturating_sub(u32::from(io.op != Op::Sync || self.order.replay.is_some()));
        if self.order.recipe.serial {
            let this = |o: &PilotIo| (o.file, o.offset, o.op) == (io.file, io.offset, io.op);
            if let Some(i) = self.under_way.iter().position(this) {
                self.under_way.swap_remove(i);
            }
        }
        if let Some(s) = &mut self.seeker {
            s.take(record);
        }
        if let Some(l) = &mut self.log {
            l.io(io, record.submitted);
        }
        let own = self.priorities.remove(&(io.file, io.offset));
        let priority = own.unwrap_or(self.order.recipe.thread_priority);
        if let Some(e) = &mut self.each {
            e.record(record, priority);
        }
        if let Some(c) = &mut self.classes {
            c.record(record, priority);
        }
        let good = record.result >= i64::from(io.len);
        if let Some(place) = self.places.get_mut(usize::from(io.file)) {
            let recipe = self.order.recipe.clone();
            place.done(&recipe, io.offset, io.op, good);
        }
        let limit = self.order.recipe.max_latency.get(io.op as usize);
        if limit.is_some_and(|l| *l > Nanos::ZERO && record.service() + record.submit() > *l) {
            return TOO_SLOW;
        }
        if let Some(b) = &mut self.blocks {
            b.done(io, good);
        }
        if self.order.recipe.check.is_some() && self.order.replay.is_none() {
            match io.op {
                Op::Write => {
                    let number = self.history.landed(io);
                    if good {
                        self.since_batch += 1;
                        self.history.wrote(io, number);
                        self.order
                            .writes_done
                            .store(self.history.writes(), Ordering::Relaxed);
                    }
                }
                Op::Trim if good => {
                    let zeros = self.order.recipe.trim_back.is_some_and(|t| t.zero);
                    self.history.trimmed(io, zeros);
                }
                Op::Read if good && !self.verdict(io, data) => return MISMATCH,
                _ => {}
            }
        }
        record.result
    }
}
