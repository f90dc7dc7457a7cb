//! A bench whose jobs run elsewhere: in guests, one job of a group in each, all starting at the same moment.

use std::io::Write;
use std::sync::mpsc::{Sender, channel};

use fathom_bench::bench::LogMaker;
use fathom_bench::{Bench, BenchError};
use fathom_io::driver::{ClosedWindow, DriveError, PlannedJob, Progress};
use fathom_io::job::Limits;
use fathom_io::{Control, Observer};
use fathom_telemetry::schema::{self, Job};
use fathom_telemetry::{Bytes, Flag, Nanos, Window};

use crate::LabError;
use fathom_system::guest::Guest;
use fathom_system::guest::wire::{self, Answer, Ask, AskedJob};

/// From the decision to the common start: every guest must have set up its job until then.
const MARGIN: Nanos = Nanos::from_millis(400);
/// More for each guest that shares the processors.
const MARGIN_EACH: Nanos = Nanos::from_millis(100);

/// See the module.
pub struct RemoteBench {
    guests: Vec<Guest>,
    about: schema::Target,
    limits: Limits,
    fills: u64,
    filled: bool,
    control: Control,
    stamps: Vec<Flag>,
}

/// What a guest opens.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Its target.
    pub target: String,
    /// Whether it may be written.
    pub modifies: bool,
    /// Bytes of a scratch file.
    pub size: Option<Bytes>,
    /// What was typed after `--destroy`, there.
    pub destroy: Option<String>,
}

impl RemoteBench {
    /// Opens the same target in every guest.
    ///
    /// # Errors
    /// What a guest says against it.
    pub fn open(
        mut guests: Vec<Guest>,
        opening: &Opening,
        control: Control,
        stamps: Vec<Flag>,
    ) -> Result<Self, LabError> {
        let opened = open_in(&mut guests, opening)?;
        Ok(Self {
            guests,
            about: opened.about,
            limits: opened.limits,
            fills: opened.fills,
            filled: opened.fills == 0,
            control,
            stamps,
        })
    }

    /// Opens another target in every guest instead of the one that is open.
    ///
    /// # Errors
    /// What a guest says against it.
    pub fn open_another(&mut self, opening: &Opening) -> Result<(), LabError> {
        let opened = open_in(&mut self.guests, opening)?;
        (self.about, self.limits) = (opened.about, opened.limits);
        (self.fills, self.filled) = (opened.fills, opened.fills == 0);
        Ok(())
    }

    /// Its guests.
    pub fn guests(&mut self) -> &mut [Guest] {
        &mut self.guests
    }

    /// When all are to begin, on each one's own clock.
    fn barrier(&mut self) -> Result<Vec<(u64, i64)>, LabError> {
        let mut offsets = Vec::new();
        for guest in &mut self.guests {
            offsets.push(guest.clock_offset()?.0);
        }
        let each = Nanos(MARGIN_EACH.0 * offsets.len() as u64);
        let start = fathom_io::clock::monotonic() + MARGIN + each;
        Ok(offsets
            .into_iter()
            .map(|o| (start.0.saturating_add_signed(o), o))
            .collect())
    }

    fn group(
        &mut self,
        jobs: &[PlannedJob],
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, LabError> {
        let begins = self.barrier()?;
        let n = self.guests.len();
        for (g, guest) in self.guests.iter_mut().enumerate() {
            let own: Vec<AskedJob> = jobs.iter().skip(g).step_by(n).map(asked).collect();
            let ask = Ask::Run {
                jobs: own,
                begin: Some(begins[g].0),
            };
            guest.ask(&ask, &[])?;
        }
        let mut askers = Vec::new();
        for guest in &self.guests {
            askers.push(guest.asker()?);
        }
        let (tx, rx) = channel();
        let control = self.control.clone();
        let ran: Vec<Result<(Vec<Job>, u64), LabError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .guests
                .iter_mut()
                .enumerate()
                .map(|(g, guest)| {
                    let tx = tx.clone();
                    fathom_io::threads::within(scope, move || listen(guest, g, n, &tx))
                })
                .collect();
            drop(tx);
            let mut stopped = false;
            let mut sums = vec![Progress::default(); n];
            loop {
                match rx.recv_timeout(std::time::Duration::from_millis(100)) {
                    Ok(Told::Window {
                        job,
                        start,
                        width,
                        window,
                    }) => observer.window(&ClosedWindow {
                        job,
                        start_ns: start,
                        width,
                        window: &window,
                    }),
                    Ok(Told::Progress { guest, progress }) => {
                        sums[guest] = progress;
                        observer.progress(&Progress {
                            elapsed: progress.elapsed,
                            ios: sums.iter().map(|p| p.ios).sum(),
                            bytes: sums.iter().map(|p| p.bytes).sum(),
                            p99: None,
                        });
                    }
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                }
                if control.interrupted() && !stopped {
                    stopped = true;
                    for asker in &mut askers {
                        // A guest that is gone has ended its job already.
                        let _ = stop(asker);
                    }
                }
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
        let mut all: Vec<Option<Job>> = vec![None; jobs.len()];
        let mut first = u64::MAX;
        let mut begun = Vec::new();
        for (g, one) in ran.into_iter().enumerate() {
            let (measures, began) = one?;
            // On this machine's clock.
            let began = began.saturating_add_signed(-begins[g].1);
            first = first.min(began);
            begun.push(began);
            for (k, job) in measures.into_iter().enumerate() {
                if let Some(place) = all.get_mut(g + k * n) {
                    *place = Some(job);
                }
            }
        }
        let mut out = Vec::new();
        for (i, job) in all.into_iter().enumerate() {
            let mut job = job.ok_or_else(|| LabError::Failed("a guest left out a job".into()))?;
            job.start_ns += begun[i % n] - first;
            job.flags.extend(self.stamps.iter().cloned());
            out.push(job);
        }
        Ok(out)
    }
}

/// What guests said of a target; they are alike, so the last one speaks for all.
struct Opened {
    about: schema::Target,
    limits: Limits,
    fills: u64,
}

fn open_in(guests: &mut [Guest], opening: &Opening) -> Result<Opened, LabError> {
    let mut opened = None;
    for guest in guests {
        let ask = Ask::Open {
            target: opening.target.clone(),
            modifies: opening.modifies,
            size: opening.size.map(|s| s.0),
            destroy: opening.destroy.clone(),
        };
        guest.ask(&ask, &[])?;
        opened = Some(guest.answer()?.0);
    }
    match opened {
        Some(Answer::Opened {
            size,
            align,
            about,
            fills,
        }) => Ok(Opened {
            about: *about,
            limits: Limits {
                size,
                direct_align: align,
            },
            fills,
        }),
        other => Err(LabError::Failed(format!("the guest answered {other:?}"))),
    }
}

fn asked(p: &PlannedJob) -> AskedJob {
    AskedJob {
        spec: serde_json::to_value(&p.job.spec).unwrap_or_default(),
        experiment: p.experiment.clone(),
        repeat: p.repeat,
    }
}

fn stop(asker: &mut impl Write) -> std::io::Result<()> {
    wire::send(asker, &Ask::Stop, &[])
}

/// What listeners pass on.
enum Told {
    Window {
        job: usize,
        start: i64,
        width: Nanos,
        window: Window,
    },
    Progress {
        guest: usize,
        progress: Progress,
    },
}

/// Passes on what a guest tells until its group has ended.
fn listen(
    guest: &mut Guest,
    number: usize,
    of: usize,
    to: &Sender<Told>,
) -> Result<(Vec<Job>, u64), LabError> {
    loop {
        let (answer, raw) = guest.answer()?;
        let told = match answer {
            Answer::Window {
                job,
                start,
                width,
                index,
                directions,
            } => Told::Window {
                job: number + job * of,
                start,
                width: Nanos(width),
                window: wire::window(index, &directions, &raw)
                    .map_err(|e| LabError::Failed(e.to_string()))?,
            },
            Answer::Progress {
                elapsed,
                ios,
                bytes,
            } => Told::Progress {
                guest: number,
                progress: Progress {
                    elapsed: Nanos(elapsed),
                    ios,
                    bytes,
                    p99: None,
                },
            },
            Answer::Ran { jobs, began } => return Ok((jobs, began)),
            other => return Err(LabError::Failed(format!("the guest answered {other:?}"))),
        };
        // Who no longer listens has failed elsewhere.
        let _ = to.send(told);
    }
}

/// As the trait wants it: the sentence is kept.
fn bench_error(e: impl Into<LabError>) -> BenchError {
    let e = e.into();
    match e {
        LabError::Bench(b) => b,
        other => DriveError::Start {
            job: "in a guest".into(),
            message: other.to_string(),
        }
        .into(),
    }
}

impl Bench for RemoteBench {
    fn limits(&self) -> Limits {
        self.limits
    }
    fn describe(&self) -> schema::Target {
        self.about.clone()
    }
    fn simulated(&self) -> bool {
        false
    }
    fn control(&self) -> Control {
        self.control.clone()
    }
    fn fills(&self) -> Bytes {
        Bytes(if self.filled { 0 } else { self.fills })
    }
    fn prepare(&mut self, _observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        if self.filled {
            return Ok(None);
        }
        for guest in &mut self.guests {
            guest.ask(&Ask::Prepare, &[]).map_err(bench_error)?;
        }
        let mut last = None;
        for guest in &mut self.guests {
            loop {
                if let Answer::Ran { jobs, .. } = guest.answer().map_err(bench_error)?.0 {
                    last = jobs.into_iter().next_back();
                    break;
                }
            }
        }
        self.filled = true;
        Ok(last)
    }
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        _log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        self.group(jobs, observer).map_err(bench_error)
    }
    fn close(self: Box<Self>) -> Result<(), BenchError> {
        for guest in self.guests {
            guest.off();
        }
        Ok(())
    }
}
