//! The papers' own experiments on a target that is there: what they say of one device, measured as they measured it.

use fathom_bench::cost::RunCost;
use fathom_bench::{Bench, Notebook};
use fathom_io::{Control, JobSpec};
use fathom_stats::Estimate;
use fathom_telemetry::{Bytes, Nanos};

use super::engine::Engine;
use super::load::{Load, Loads, Measured, Models, Seen, way};
use super::options::{ReproduceOptions, method};
use super::published::{self, On};
use super::{ReproduceError, Reproduction, Role, Row, table};

/// The targets that are there: one, or a second one beside it.
struct Site<'a, 'b> {
    bench: &'a mut dyn Bench,
    second: Option<&'a mut dyn Bench>,
    models: Models<'b>,
    options: &'a ReproduceOptions,
}

/// Notes what would run.
struct Counted<'a> {
    options: &'a ReproduceOptions,
    cost: RunCost,
}

impl Loads for Counted<'_> {
    fn run(&mut self, load: &Load) -> Result<Vec<Seen>, ReproduceError> {
        let (options, cost) = (self.options, &mut self.cost);
        for jobs in &load.groups {
            let specs: Vec<JobSpec> = jobs
                .iter()
                .map(|j| options.spec(j, options.data_set()))
                .collect();
            match specs.as_slice() {
                [one] => {
                    let repeats = options.repeats().max(1);
                    // Its writes have no limit but the time; a GB per second is more than most take.
                    let written = match one.rw.modifies() {
                        true => options.time.as_secs_f64() * 1e9 * f64::from(repeats),
                        false => 0.0,
                    };
                    cost.phase(&format!("{}, {}", one.rw, way(one)))
                        .add(one, repeats);
                    cost.work(0, Nanos::ZERO, Bytes(written as u64));
                }
                [first, others @ ..] => {
                    cost.phase("reads beside writes").add(first, 1);
                    others.iter().for_each(|o| cost.add_beside(o, 1));
                }
                [] => {}
            }
        }
        Ok(vec![Seen::default(); load.groups.len()])
    }
}

/// Time and bytes of the paper's loads on a target of so many bytes; `fills` of them are filled first. Which loads they
/// are follows from the lines alone.
///
/// # Errors
/// Where the paper is not known.
pub fn run_cost(
    options: &ReproduceOptions,
    two: bool,
    fills: Bytes,
) -> Result<RunCost, ReproduceError> {
    let paper = &options.paper;
    method(paper).ok_or_else(|| ReproduceError::UnknownPaper(paper.clone()))?;
    let cost = RunCost::filling(fills);
    let mut counted = Counted { options, cost };
    let lines = table::lines(paper, on(two));
    let mut engine = Engine::new(&lines, &mut counted);
    engine.rows(|l| options.wants(&l.id, &l.place), &mut Vec::new())?;
    Ok(counted.cost)
}

/// Measures what a paper says of one device on `bench`, and where there is a `second` one what it says of another and of both;
/// jobs are kept in `book`.
///
/// # Errors
/// Where the paper is not known, a job does not fit the target, or the target fails.
pub fn measure<'a>(
    options: &'a ReproduceOptions,
    bench: &'a mut dyn Bench,
    mut second: Option<&'a mut dyn Bench>,
    book: &mut Notebook,
) -> Result<Reproduction, ReproduceError> {
    let paper = &options.paper;
    method(paper).ok_or_else(|| ReproduceError::UnknownPaper(paper.clone()))?;
    let on = on(second.is_some());
    prepared(bench, book)?;
    if let Some(second) = &mut second {
        prepared(&mut **second, book)?;
    }
    let role = match bench.simulated() {
        true => Role::Prediction,
        false => Role::Measured,
    };
    let mut site = Site {
        bench,
        second,
        models: Models::kept_in(book, paper, Control::new()),
        options,
    };
    let lines = table::lines(paper, on);
    let mut engine = Engine::new(&lines, &mut site);
    let mut rows = Vec::new();
    let done = engine.rows(|l| options.wants(&l.id, &l.place), &mut rows);
    let mut curves = Vec::new();
    match done {
        Ok(()) => {
            curves = super::curves::of(paper, &mut engine, &rows)?;
            let mut others = published::others(paper, &rows, on);
            others.retain(|r| options.wants(&r.id, &r.place));
            if matches!(on, On::Target) {
                refer(paper, &mut others);
            }
            rows.extend(others);
            if let Some(figure) = options.figure.clone().filter(|_| rows.is_empty()) {
                return Err(ReproduceError::Figure(figure));
            }
        }
        Err(ReproduceError::Interrupted) => {
            let flag = ReproduceError::interrupted();
            book.run_mut().flags.push(flag);
        }
        Err(e) => return Err(e),
    }
    rows.iter_mut().for_each(|r| r.role = role);
    Ok(Reproduction {
        paper: paper.clone(),
        rows,
        curves,
        basis: format!(
            "Measured on {}; nothing is fitted. Published values are those of the paper's own devices, on its own machine.",
            match on {
                On::Two =>
                    "the targets that were named, the first in the place of the paper's own device, the second in that of what it is held against",
                _ => "the target that was named",
            }
        ),
    })
}

/// How many targets there are.
fn on(two: bool) -> On {
    match two {
        true => On::Two,
        false => On::Target,
    }
}

/// Values that a lab on both targets gives (reproduce/pairs.rs of the labs).
const OF_LABS: [&str; 5] = ["Z114", "Z115", "H178", "H179", "S009"];

/// Says of values that two targets would show how.
fn refer(paper: &str, rows: &mut [Row]) {
    let two = table::lines(paper, On::Two);
    let shown = |id: &str| OF_LABS.contains(&id) || two.iter().any(|l| l.id == id);
    for row in rows.iter_mut().filter(|r| shown(&r.id)) {
        row.note = "a relation of two devices: name both, --on A --on B".into();
    }
}

/// Fills the scratch file, where there is one.
fn prepared(bench: &mut dyn Bench, book: &mut Notebook) -> Result<(), ReproduceError> {
    let filled = bench.prepare(&mut ());
    if let Some(filled) = filled.map_err(|e| ReproduceError::Bench(e.to_string()))? {
        book.keep(filled);
    }
    Ok(())
}

impl Loads for Site<'_, '_> {
    fn run(&mut self, load: &Load) -> Result<Vec<Seen>, ReproduceError> {
        let groups = load.groups.iter();
        groups.map(|jobs| self.seen(jobs, load.second)).collect()
    }
}

impl Site<'_, '_> {
    /// Runs jobs at the same time once, and one alone as often as is asked for.
    fn seen(&mut self, jobs: &[JobSpec], second: bool) -> Result<Seen, ReproduceError> {
        let (bench, prefix): (&mut dyn Bench, &str) = match &mut self.second {
            Some(other) if second => (&mut **other, "second."),
            _ => (&mut *self.bench, ""),
        };
        let size = self.options.data_set().min(Bytes(bench.limits().size));
        let mut specs: Vec<JobSpec> = jobs.iter().map(|j| self.options.spec(j, size)).collect();
        let alone = specs.len() == 1;
        let (mut runs, mut note) = (Vec::new(), String::new());
        for i in 1..=if alone {
            self.options.repeats().max(1)
        } else {
            1
        } {
            if bench.interrupted() {
                return Err(ReproduceError::Interrupted);
            }
            if let [one] = specs.as_mut_slice() {
                let (block, way) = (one.bs.max().0 >> 10, way(one));
                let depth = match one.qd {
                    1 => String::new(),
                    qd => format!("x{qd}"),
                };
                let share = match one.read_share {
                    50.0 => String::new(),
                    share => format!("-{share}"),
                };
                let (rw, threads) = (one.rw, one.threads);
                one.name = format!("{prefix}{rw}{share}.{block}k.{threads}{depth}.{way}.{i}");
                one.seed = u64::from(i);
            } else if second {
                let named = specs.iter_mut().filter(|s| !s.name.is_empty());
                named.for_each(|s| s.name = format!("{prefix}{}", s.name));
            }
            let jobs = self.models.group(bench, &specs)?;
            let Some(job) = jobs.first() else { continue };
            let m = Measured::of(job);
            if job.is_void() || m.iops == 0.0 {
                note = "void: see the flags of its jobs".into();
            } else {
                runs.push(m);
                if let Some(f) = job.flags.first().filter(|_| note.is_empty()) {
                    note.clone_from(&f.detail);
                }
            }
        }
        if let Some(said) = interval(&runs) {
            note = match note.is_empty() {
                true => said,
                false => format!("{said}; {note}"),
            };
        }
        let n = runs.len() as f64;
        let mean = |what: fn(&Measured) -> f64| runs.iter().map(what).sum::<f64>() / n;
        Ok(Seen {
            // NaN without any.
            measured: Measured {
                iops: mean(|m| m.iops),
                mean_us: mean(|m| m.mean_us),
                bytes_per_second: mean(|m| m.bytes_per_second),
                mb_per_s: mean(|m| m.mb_per_s),
                lowest: f64::NAN,
            },
            note,
        })
    }
}

/// How far the mean of several runs is known.
fn interval(runs: &[Measured]) -> Option<String> {
    if runs.len() < 2 {
        return None;
    }
    let rates: Vec<f64> = runs.iter().map(|m| m.mb_per_s).collect();
    let e = Estimate::mean_of(&rates)?;
    let (low, high) = e.low.zip(e.high)?;
    let n = runs.len();
    Some(format!(
        "mean of {n} runs, 95 % interval {low:.4} to {high:.4} MB/s"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_beside_each_other_are_announced_with_what_they_write() {
        let options = ReproduceOptions {
            paper: "shrout2017".into(),
            figure: None,
            time: Nanos::from_secs(3),
            size: Some(Bytes::mib(64)),
            repeats: Some(1),
        };
        let cost = run_cost(&options, false, Bytes(0)).unwrap();
        let names: Vec<&str> = cost.phases.iter().map(|p| p.name.as_str()).collect();
        assert!(names.contains(&"reads beside writes"), "{names:?}");
        assert_eq!(cost.jobs(), 4);
        // 20 MB/s.
        let written = cost.written_at_most().0;
        assert!((60_000_000..80_000_000).contains(&written), "{written}");
    }
}
