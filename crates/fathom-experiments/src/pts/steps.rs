//! What the tests are made of: single jobs, purge and conditioning, rounds until steady, and the stamp.

use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::runner::Runner;
use fathom_io::JobSpec;
use fathom_io::job::{BlockSizes, Engine, OnError, Rw};
use fathom_stats::steady::{
    PTS_ROUNDS_MAX, PtsWindow, Question, Reason, Steadiness, Verdict, Written, pts_window,
    steadiness,
};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use super::{Jobs, PtsOptions, PtsResult, Test};
use crate::purge::{self, Ended};

/// Largest drift that fathom's verdict lets pass over the planned test, as the specification's window.
const TOLERANCE: f64 = 0.10;

/// Blocks of the sequential writes that condition, bytes.
pub(super) const CONDITIONING: u64 = 128 << 10;

/// One measured job in numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub(super) job: usize,
    pub(super) iops: f64,
    pub(super) bytes_per_second: f64,
    pub(super) mean_ns: f64,
    pub(super) max_ns: f64,
    pub(super) written: u64,
}

/// The steps of one test on a target.
pub(super) struct Steps<'a> {
    pub(super) runner: Runner<'a>,
    pub(super) test: &'static Test,
    pub(super) options: &'a PtsOptions,
    direct: bool,
    /// Written since the last purge.
    written: u64,
    notes: Vec<String>,
}

impl<'a> Steps<'a> {
    pub(super) fn begin(
        bench: &'a mut dyn Bench,
        book: &'a mut Notebook,
        sink: &'a mut dyn ProgressSink,
        test: &'static Test,
        options: &'a PtsOptions,
        direct: bool,
    ) -> Self {
        let experiment = format!("pts-{}", test.id);
        Self {
            runner: Runner::unprepared(bench, book, sink, &experiment, options.seed, 0),
            test,
            options,
            direct,
            written: 0,
            notes: Vec::new(),
        }
    }

    /// Whether something (an interruption, an error) ended the test early.
    pub(super) fn end(self) -> bool {
        if self.runner.bench.interrupted() {
            let (id, done) = (self.test.id, self.runner.done());
            self.runner.book.run_mut().flags.push(Flag::new(
                FlagCode::Interrupted,
                format!("the test {id} was interrupted after {done} jobs"),
                "run again; the specification wants a purge first",
            ));
        }
        self.runner.ended()
    }

    /// Bytes that the device can be asked for at once.
    pub(super) fn allows(&self, bs: u64) -> bool {
        bs.is_multiple_of(u64::from(self.runner.bench.limits().direct_align.max(1)))
    }

    /// Runs one job; `None` where the test has to end.
    pub(super) fn job(
        &mut self,
        name: &str,
        mut spec: JobSpec,
    ) -> Result<Option<Measured>, NotebookError> {
        spec.name = format!("{}/{name}", self.test.id);
        spec.direct = self.direct;
        let trims = spec.rw.trims();
        let stream = spec.name.clone();
        let Some(index) = self.runner.attempt(spec, &stream, 0)? else {
            return Ok(None);
        };
        let measured = numbers(index, self.runner.job(index));
        self.written += measured.written;
        match self.runner.failure(index) {
            Some(failed) if trims => {
                self.notes
                    .push(format!("purge is not possible here: {failed}"));
            }
            Some(failed) => {
                self.runner.fail(&failed);
                return Ok(None);
            }
            None => {}
        }
        Ok(Some(measured))
    }

    /// Empties everything. Where the device cannot, the report says so and the test goes on.
    pub(super) fn purge(&mut self) -> Result<(), NotebookError> {
        let (how, range) = (self.options.purging, self.options.range);
        if !how.is_job() {
            match purge::by_device(&mut self.runner, self.test.id, how, range)? {
                Ended::Done => {
                    self.written = 0;
                    return Ok(());
                }
                Ended::Interrupted => return Ok(()),
                Ended::Not(failed) => {
                    self.notes.push(failed);
                    if how.named {
                        return Ok(());
                    }
                }
            }
        }
        let samples = self.runner.samples(range);
        let bs = (64 << 20).min(self.options.range.0);
        let before = self.runner.book.run().jobs.len();
        let spec = JobSpec {
            on_error: OnError::Continue,
            // Discards of devices through io_uring need Linux 6.12.
            engine: Engine::Preadv,
            ..passing(self.options, Rw::Trim, bs, 1)
        };
        let purged = self.job("purge", spec);
        match purged {
            Err(NotebookError::Bench(BenchError::Job(e))) => {
                self.notes.push(format!("purge is not possible here: {e}"));
            }
            Ok(Some(m)) if self.runner.failure(m.job).is_none() => {
                let (id, samples) = (self.test.id, samples.as_ref());
                purge::by_job(&mut self.runner, id, range, samples, m.job)?;
            }
            other => drop(other?),
        }
        // A purge that the device refuses is no measurement that failed.
        for job in &mut self.runner.book.run_mut().jobs[before..] {
            job.flags.retain(|f| f.code == FlagCode::Simulated);
        }
        self.written = 0;
        Ok(())
    }

    /// Workload-independent conditioning: sequential writes over twice the range.
    pub(super) fn condition(&mut self, bs: u64) -> Result<bool, NotebookError> {
        for (pass, spec) in conditioning(self.options, bs).into_iter().enumerate() {
            let name = format!("condition-{}-{}", short(bs), pass + 1);
            if self.job(&name, spec)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs loads one after another: what was measured until one could not be.
    pub(super) fn each(
        &mut self,
        loads: impl IntoIterator<Item = (String, JobSpec)>,
    ) -> Result<Vec<Measured>, NotebookError> {
        let mut all = Vec::new();
        for (name, spec) in loads {
            let Some(m) = self.job(&name, spec)? else {
                break;
            };
            all.push(m);
        }
        Ok(all)
    }

    /// Measures rounds until every tracked series passes the specification's rule, or 25. A round gives one value per
    /// tracked series, or `None` to end.
    pub(super) fn rounds(
        &mut self,
        tracked: &[&str],
        mut round: impl FnMut(&mut Self, usize) -> Result<Option<Vec<f64>>, NotebookError>,
    ) -> Result<Rounds, NotebookError> {
        let mut r = Rounds {
            series: tracked
                .iter()
                .map(|t| ((*t).to_owned(), Vec::new()))
                .collect(),
            windows: Vec::new(),
            own: Vec::new(),
            last: 0,
        };
        for n in 0..PTS_ROUNDS_MAX {
            let Some(values) = round(self, n)? else {
                break;
            };
            for ((_, series), v) in r.series.iter_mut().zip(values) {
                series.push(v);
            }
            r.last = n;
            r.windows = r
                .series
                .iter()
                .filter_map(|s| pts_window(&s.1, n))
                .collect();
            if r.windows.len() == r.series.len() && r.windows.iter().all(|w| w.steady) {
                break;
            }
        }
        let mut question = Question::new(TOLERANCE, 5.0);
        question.written = Some(Written {
            bytes: self.written,
            floor: 2 * self.options.range.0,
        });
        r.own = r
            .series
            .iter()
            .map(|s| steadiness(&s.1, &question))
            .collect();
        Ok(r)
    }

    /// Keeps what a test measured.
    pub(super) fn keep(
        &mut self,
        measured: Jobs,
        rounds: Option<Rounds>,
    ) -> Result<(), NotebookError> {
        let found = PtsResult {
            options: self.options.clone(),
            size: Bytes(self.runner.bench.limits().size),
            notes: std::mem::take(&mut self.notes),
            rounds,
            measured,
        };
        self.runner.book.found(&found)
    }
}

/// A load of so many of the specification's minutes.
pub(super) fn load(o: &PtsOptions, rw: Rw, bs: u64, minutes: f64) -> JobSpec {
    let time = Nanos::from_secs_f64(minutes * o.unit.as_secs_f64());
    JobSpec {
        time: Some(time),
        // Short trials still need some windows.
        window: Nanos((time.0 / 5).clamp(1_000_000, 100_000_000)),
        ..passing(o, rw, bs, 1)
    }
}

/// A minute of random I/O, so many percent of it reads.
pub(super) fn mixed(o: &PtsOptions, share: u32, bs: u64, threads: u32, qd: u32) -> JobSpec {
    JobSpec {
        read_share: f64::from(share),
        threads,
        qd,
        ..load(o, Rw::RandMixed, bs, 1.0)
    }
}

/// One pass over the range.
fn passing(o: &PtsOptions, rw: Rw, bs: u64, qd: u32) -> JobSpec {
    JobSpec {
        rw,
        bs: BlockSizes::one(bs),
        qd,
        size: Some(o.range),
        ..JobSpec::default()
    }
}

/// The passes of [`Steps::condition`].
pub(super) fn conditioning(o: &PtsOptions, bs: u64) -> Vec<JobSpec> {
    vec![passing(o, Rw::Write, bs, 32); 2]
}

/// A size as a name has it: `128KiB`.
fn short(bs: u64) -> String {
    Bytes(bs).to_string().replace(' ', "")
}

/// Each share with each size.
pub(super) fn cells<'a>(
    shares: &'a [u32],
    sizes: &'a [u64],
) -> impl Iterator<Item = (u32, u64)> + 'a {
    shares
        .iter()
        .flat_map(|share| sizes.iter().map(|bs| (*share, *bs)))
}

/// Jobs of each round by cell; a hole where the device cannot do the size.
type Grids = Vec<Vec<Option<usize>>>;

/// Purges, conditions, and measures shares × sizes in rounds until what is tracked is steady; `None` where conditioning
/// ended early.
pub(super) fn grids(
    steps: &mut Steps<'_>,
    (shares, sizes): (&[u32], &[u64]),
    load: impl Fn(u32, u64) -> JobSpec,
    (names, tracked): (&[&str], &[(u32, u64)]),
    value: fn(&Measured) -> f64,
) -> Result<Option<(Grids, Rounds)>, NotebookError> {
    steps.purge()?;
    if !steps.condition(CONDITIONING)? {
        return Ok(None);
    }
    let mut all = Grids::new();
    let rounds = steps.rounds(names, |steps, n| {
        let mut round = Vec::new();
        let mut values = vec![0.0; tracked.len()];
        for (share, bs) in cells(shares, sizes) {
            if !steps.allows(bs) {
                round.push(None);
                continue;
            }
            let name = format!("{share}r-{}-{}", short(bs), n + 1);
            let Some(m) = steps.job(&name, load(share, bs))? else {
                return Ok(None);
            };
            round.push(Some(m.job));
            if let Some(t) = tracked.iter().position(|t| *t == (share, bs)) {
                values[t] = value(&m);
            }
        }
        all.push(round);
        Ok(Some(values))
    })?;
    Ok(Some((all, rounds)))
}

pub(super) fn numbers(index: usize, job: &Job) -> Measured {
    let (mut ios, mut iops, mut rate, mut sum, mut max) = (0u64, 0.0, 0.0, 0.0, 0.0f64);
    for d in [&job.read, &job.write].into_iter().flatten() {
        ios += d.ios;
        iops += d.iops;
        rate += d.bytes_per_second;
        sum += d.response_ns.mean.unwrap_or(0.0) * d.ios as f64;
        max = max.max(d.response_ns.max.unwrap_or(0) as f64);
    }
    Measured {
        job: index,
        iops,
        bytes_per_second: rate,
        mean_ns: sum / ios.max(1) as f64,
        max_ns: max,
        written: job.write.as_ref().map_or(0, |w| w.bytes),
    }
}

/// Rounds and what the two rules say of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rounds {
    /// Tracked series by name.
    pub(super) series: Vec<(String, Vec<f64>)>,
    /// The specification's rule on the last five rounds of each.
    pub(super) windows: Vec<PtsWindow>,
    /// fathom's verdict on each.
    own: Vec<Steadiness>,
    /// Last round (0-based).
    pub(super) last: usize,
}

impl Rounds {
    /// Whether the specification's rule was met.
    pub(super) fn met(&self) -> bool {
        self.windows.len() == self.series.len() && self.windows.iter().all(|w| w.steady)
    }

    /// Rounds that results are averaged over.
    pub(super) fn window(&self) -> std::ops::RangeInclusive<usize> {
        self.last.saturating_sub(4)..=self.last
    }

    fn doubts(&self) -> Vec<&Reason> {
        let mut all = Vec::new();
        for s in &self.own {
            match &s.verdict {
                Verdict::Steady => {}
                Verdict::NotSteady(r) | Verdict::Undecided(r) => all.extend(r),
            }
        }
        all
    }

    /// What stands against the results, and whether the charts have to say so.
    pub(super) fn flag(&self) -> Option<(Flag, bool)> {
        let moving = self
            .own
            .iter()
            .any(|s| matches!(s.verdict, Verdict::NotSteady(_)));
        let doubts: Vec<String> = self.doubts().iter().map(|r| r.sentence()).collect();
        if self.met() && doubts.is_empty() {
            return None;
        }
        let why = if !self.met() {
            format!("the PTS rule was not met in {} rounds", self.last + 1)
        } else if moving {
            format!("the PTS rule was met, but {}", doubts.join("; "))
        } else {
            format!(
                "steady by the PTS rule; fathom's verdict is undecided: {}",
                doubts.first().map_or("", String::as_str)
            )
        };
        let flag = Flag::new(
            FlagCode::NotSteady,
            why,
            "condition for longer (fathom condition --until-steady), then run again",
        );
        Some((flag, moving || !self.met()))
    }

    pub(super) fn sentence(&self) -> String {
        let rounds = self.last + 1;
        let pts = if self.met() {
            format!("PTS rule: steady at round {rounds}")
        } else {
            format!("PTS rule: not reached in {rounds} rounds")
        };
        let moving = self
            .own
            .iter()
            .any(|s| matches!(s.verdict, Verdict::NotSteady(_)));
        let open = self
            .own
            .iter()
            .any(|s| matches!(s.verdict, Verdict::Undecided(_)));
        let own = if moving {
            "not steady"
        } else if open {
            "undecided"
        } else {
            "steady"
        };
        let doubts: Vec<String> = self.doubts().iter().take(2).map(|r| r.sentence()).collect();
        if doubts.is_empty() {
            format!("{pts}; fathom's verdict: {own}.")
        } else {
            format!("{pts}; fathom's verdict: {own} ({}).", doubts.join("; "))
        }
    }
}
