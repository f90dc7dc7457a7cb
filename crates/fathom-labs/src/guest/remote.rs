//! A bench whose jobs run elsewhere: in guests, one job of a group in each, all starting at the same moment.

use fathom_bench::bench::LogMaker;
use fathom_bench::{Bench, BenchError};
use fathom_io::driver::{ClosedWindow, DriveError, PlannedJob, Progress};
use fathom_io::job::Limits;
use fathom_io::{Control, Observer, Wanted};
use fathom_telemetry::schema::{self, Job};
use fathom_telemetry::{Bytes, Flag, Nanos};

use crate::LabError;
use crate::guest::conduct::{Told, conduct};
use fathom_system::SystemError;
use fathom_system::guest::Guest;
use fathom_system::guest::wire::{Answer, Ask, AskedJob};

/// Connected guests, and how jobs are given to them.
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

    fn group(
        &mut self,
        jobs: &[PlannedJob],
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, LabError> {
        let n = self.guests.len();
        let own = |g| Ask::Run {
            jobs: jobs.iter().skip(g).step_by(n).map(asked).collect(),
        };
        let parts = (0..n).map(own).collect();
        let mut sums = vec![Progress::default(); n];
        let group = conduct(
            &mut self.guests,
            parts,
            &self.control,
            None,
            &mut |told| match told {
                Told::Window {
                    guest,
                    job,
                    start,
                    origin: (origin, ahead),
                    width,
                    window,
                } => observer.window(&ClosedWindow {
                    job: guest + job * n,
                    start_ns: start,
                    origin: Nanos(origin.0.saturating_add_signed(-ahead)),
                    width,
                    window: &window,
                }),
                Told::Progress { guest, progress } => {
                    sums[guest] = progress;
                    observer.progress(&sum(&sums, progress.elapsed));
                }
                Told::Ready | Told::Ended => {}
            },
        );
        let mut all: Vec<Option<Job>> = vec![None; jobs.len()];
        let mut begun = Vec::new();
        for (g, one) in group.into_iter().enumerate() {
            let ran = one?;
            begun.push(ran.began);
            for (k, job) in ran.there.jobs.into_iter().enumerate() {
                if let Some(place) = all.get_mut(g + k * n) {
                    *place = Some(job);
                }
            }
        }
        let first = begun.iter().copied().min().unwrap_or_default();
        let mut out = Vec::new();
        for (i, job) in all.into_iter().enumerate() {
            let mut job = job.ok_or_else(|| LabError::Failed("a guest left out a job".into()))?;
            job.start_ns += begun[i % n].since(first).0;
            job.flags.extend(self.stamps.iter().cloned());
            out.push(job);
        }
        Ok(out)
    }
}

/// Where a group stands as a whole.
pub(crate) fn sum(parts: &[Progress], elapsed: Nanos) -> Progress {
    Progress {
        elapsed,
        ios: parts.iter().map(|p| p.ios).sum(),
        bytes: parts.iter().map(|p| p.bytes).sum(),
        p99: None,
    }
}

/// What an agent said of its target.
pub(crate) struct There {
    pub(crate) about: schema::Target,
    pub(crate) limits: Limits,
    /// Bytes to fill.
    pub(crate) fills: u64,
    /// Of a file that fathom made.
    pub(crate) mark: Option<String>,
    pub(crate) simulated: bool,
    /// File system and options.
    pub(crate) place: String,
}

/// The answer to [`Ask::Open`].
pub(crate) fn opened(guest: &mut Guest) -> Result<There, SystemError> {
    match guest.answer()?.0 {
        Answer::Opened {
            size,
            align,
            about,
            fills,
            mark,
            simulated,
            place,
        } => Ok(There {
            about: *about,
            limits: Limits {
                size,
                direct_align: align,
                hosts: 1,
            },
            fills,
            mark,
            simulated,
            place,
        }),
        other => Err(SystemError::Failed(format!("it answered {other:?}"))),
    }
}

/// Opens it in every guest; they are alike, so the last one speaks for all.
fn open_in(guests: &mut [Guest], opening: &Opening) -> Result<There, LabError> {
    let mut there = None;
    for guest in guests {
        let wanted = Wanted {
            modifies: opening.modifies,
            direct: true,
            size: opening.size,
            destroy: opening.destroy.clone(),
            ..Wanted::default()
        };
        let ask = Ask::Open {
            target: opening.target.clone(),
            wanted: Box::new(wanted),
            joins: None,
        };
        guest.ask(&ask, &[])?;
        there = Some(opened(guest)?);
    }
    there.ok_or_else(|| LabError::Failed("there is no guest".into()))
}

pub(crate) fn asked(p: &PlannedJob) -> AskedJob {
    AskedJob {
        spec: serde_json::to_value(&p.job.spec).unwrap_or_default(),
        experiment: p.experiment.clone(),
        repeat: p.repeat,
        playing: None,
        files: None,
    }
}

/// As the trait wants it: the sentence is kept.
pub(crate) fn bench_error(e: impl Into<LabError>) -> BenchError {
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
        let parts = vec![Ask::Prepare; self.guests.len()];
        let mut last = None;
        for ran in conduct(&mut self.guests, parts, &self.control, None, &mut |_| {}) {
            last = ran.map_err(bench_error)?.there.jobs.into_iter().next_back();
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
