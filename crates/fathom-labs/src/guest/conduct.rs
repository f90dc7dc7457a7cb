//! Conducts a group of jobs over agents: clocks are compared, all set up, all begin at one moment, and none goes on where
//! one is lost.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use fathom_io::Control;
use fathom_io::clock::monotonic;
use fathom_io::driver::Progress;
use fathom_system::guest::wire::{self, Answer, Ask};
use fathom_system::guest::{Asker, Guest};
use fathom_telemetry::{Nanos, Window};

use crate::LabError;

/// From the word to begin to the start: the word must have arrived everywhere by then.
const MARGIN: Nanos = Nanos::from_millis(100);
/// More for each agent, which may share a processor.
const MARGIN_EACH: Nanos = Nanos(200_000);
/// Setting up takes no longer, whatever buffers are asked for.
const READY_LIMIT: Nanos = Nanos::from_secs(60);

/// An agent's clock against this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClockSeen {
    /// Its offset before the group, ns.
    pub offset: i64,
    /// Half the shortest round trip, before or after, whichever is longer: no offset is further off.
    pub bound: Nanos,
    /// What it moved by until after the group, ns.
    pub moved: i64,
}

/// What an agent's part of a group came to.
#[derive(Debug)]
pub(crate) struct Ran {
    /// In its own words.
    pub there: wire::Ran,
    /// When its first I/O was due, on this machine's clock.
    pub began: Nanos,
    /// When all were to begin.
    pub due: Nanos,
    /// Its clock.
    pub clock: ClockSeen,
}

/// What agents say while a group runs.
pub(crate) enum Told {
    /// One has set its jobs up.
    Ready,
    /// A window of a job has closed.
    Window {
        /// Who says it.
        guest: usize,
        /// Which of its jobs.
        job: usize,
        /// After its measured part began, ns.
        start: i64,
        /// When that was on the agent's clock, and what that is ahead of this machine's, ns.
        origin: (Nanos, i64),
        /// Its width.
        width: Nanos,
        /// The window.
        window: Window,
    },
    /// Where one stands.
    Progress {
        /// Who says it.
        guest: usize,
        /// The rest.
        progress: Progress,
    },
    /// One has ended, or is lost.
    Ended,
}

enum Event {
    Told(Told),
    /// With the offset of its clock, ns.
    Ready(usize, i64),
    Ended(usize, bool),
}

/// Has each agent do its part ([`Ask::Run`], [`Ask::Load`], [`Ask::Steps`] or [`Ask::Prepare`]), beginning together.
/// Where one is lost, or silent for longer than `silence`, the others are ended at once; what they measured until then is
/// kept.
pub(crate) fn conduct(
    guests: &mut [Guest],
    parts: Vec<Ask>,
    control: &Control,
    silence: Option<Nanos>,
    told: &mut dyn FnMut(Told),
) -> Vec<Result<Ran, LabError>> {
    let askers: Vec<Asker> = guests.iter().map(Guest::asker).collect();
    let (tx, rx) = channel();
    let mut baton = Baton {
        asked: monotonic(),
        ready: vec![None; askers.len()],
        ended: vec![false; askers.len()],
        due: None,
        stopped: false,
        quick: parts.iter().all(is_quick),
        late: Vec::new(),
        askers,
    };
    let ran: Vec<Result<Ran, LabError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = guests
            .iter_mut()
            .zip(parts)
            .enumerate()
            .map(|(g, (guest, part))| {
                let tx = tx.clone();
                fathom_io::threads::within(scope, move || {
                    let ran = take_part(guest, g, &part, &tx);
                    // Who no longer listens has failed elsewhere.
                    let _ = tx.send(Event::Ended(g, ran.is_err()));
                    ran
                })
            })
            .collect();
        drop(tx);
        for (g, thread) in threads.iter().enumerate() {
            if thread.is_err() {
                baton.ended[g] = true;
                baton.stop();
            }
        }
        loop {
            match rx.recv_timeout(Duration::from_millis(50)) {
                Ok(event) => told(baton.hear(event)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if control.interrupted() {
                baton.stop();
            }
            baton.look(silence);
        }
        threads
            .into_iter()
            .map(|t| {
                t.map_err(|e| LabError::Failed(e.to_string()))?
                    .join()
                    .unwrap_or_else(|_| Err(LabError::Failed("a listener broke off".into())))
            })
            .collect()
    });
    let due = baton.due;
    ran.into_iter()
        .enumerate()
        .map(|(g, ran)| {
            let mut ran = ran.map_err(|e| match baton.late.iter().find(|l| l.0 == g) {
                Some((_, why)) => LabError::Failed(why.clone()),
                None => e,
            })?;
            ran.due = due.unwrap_or(ran.began);
            Ok(ran)
        })
        .collect()
}

/// Whether a part is ready as soon as its buffers are.
fn is_quick(part: &Ask) -> bool {
    match part {
        Ask::Run { jobs } => jobs.iter().all(|j| j.files.is_none()),
        Ask::Load { .. } | Ask::Steps { .. } => false,
        _ => true,
    }
}

/// Who is where.
struct Baton {
    askers: Vec<Asker>,
    asked: Nanos,
    /// Offsets of the clocks of those that are.
    ready: Vec<Option<i64>>,
    ended: Vec<bool>,
    due: Option<Nanos>,
    stopped: bool,
    /// Setting up is no work of its own: trees are not filled, files not made, nothing is written back.
    quick: bool,
    /// Who was cut off, and why.
    late: Vec<(usize, String)>,
}

impl Baton {
    /// Ends the load of all that still run.
    fn stop(&mut self) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        for (asker, _) in self.askers.iter().zip(&self.ended).filter(|(_, e)| !**e) {
            // One that is gone has ended its load already.
            let _ = asker.ask(&Ask::Stop, &[]);
        }
    }

    /// Takes up what a listener says, and passes it on.
    fn hear(&mut self, event: Event) -> Told {
        match event {
            Event::Told(what) => what,
            Event::Ready(g, offset) => {
                self.ready[g] = Some(offset);
                Told::Ready
            }
            Event::Ended(g, lost) => {
                self.ended[g] = true;
                if lost {
                    self.stop();
                }
                Told::Ended
            }
        }
    }

    fn look(&mut self, silence: Option<Nanos>) {
        let now = monotonic();
        let running = self.ended.iter().any(|e| !e);
        if self.due.is_none() && running && self.ready.iter().all(Option::is_some) {
            let due = now + MARGIN + Nanos(MARGIN_EACH.0 * self.askers.len() as u64);
            self.due = Some(due);
            for (asker, offset) in self.askers.iter().zip(&self.ready) {
                let at = due.0.saturating_add_signed(offset.unwrap_or_default());
                // One that is gone is missed by its listener.
                let _ = asker.ask(&Ask::Begin { at }, &[]);
            }
        }
        let Some(silence) = silence else { return };
        for g in 0..self.askers.len() {
            if self.ended[g] || self.late.iter().any(|l| l.0 == g) {
                continue;
            }
            let heard = self.askers[g].heard().max(self.asked);
            let why = if now.since(heard) > silence {
                format!(
                    "nothing was heard of it for {silence}: it stands still, or its network is cut"
                )
            } else if self.quick && self.ready[g].is_none() && now.since(self.asked) > READY_LIMIT {
                format!("it was not ready within {READY_LIMIT}")
            } else {
                continue;
            };
            self.late.push((g, why));
            self.askers[g].cut();
            self.stop();
        }
    }
}

/// An agent's part: passes on what it tells until it has ended.
fn take_part(
    guest: &mut Guest,
    number: usize,
    part: &Ask,
    to: &Sender<Event>,
) -> Result<Ran, LabError> {
    let (offset, before) = guest.clock_offset()?;
    guest.ask(part, &[])?;
    loop {
        let (answer, raw) = guest.answer()?;
        let event = match answer {
            Answer::Ready => Event::Ready(number, offset),
            Answer::Window {
                job,
                start,
                origin,
                width,
                index,
                directions,
            } => Event::Told(Told::Window {
                guest: number,
                job,
                start,
                origin: (Nanos(origin), offset),
                width: Nanos(width),
                window: wire::window(index, &directions, &raw)
                    .map_err(|e| LabError::Failed(e.to_string()))?,
            }),
            Answer::Progress {
                elapsed,
                ios,
                bytes,
            } => Event::Told(Told::Progress {
                guest: number,
                progress: Progress {
                    elapsed: Nanos(elapsed),
                    ios,
                    bytes,
                    p99: None,
                },
            }),
            Answer::Ran(there) => {
                let (now, after) = guest.clock_offset()?;
                return Ok(Ran {
                    began: Nanos(there.began.saturating_add_signed(-offset)),
                    there,
                    due: Nanos::ZERO,
                    clock: ClockSeen {
                        offset,
                        bound: before.max(after),
                        moved: now - offset,
                    },
                });
            }
            other => return Err(LabError::Failed(format!("the agent answered {other:?}"))),
        };
        // Who no longer listens has failed elsewhere.
        let _ = to.send(event);
    }
}
