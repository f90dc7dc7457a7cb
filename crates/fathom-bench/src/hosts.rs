//! What each host of a fleet did, in directories of their own below that of the run: `fleet=ID/host=NAME/run=ID/`, which
//! engines read as columns. Each holds a run like any other, so that it can be shown and asked alone.

use std::collections::{BTreeMap, BTreeSet};

use fathom_io::driver::{OfHost, PlannedJob};
use fathom_telemetry::identity::{Host, Identity};
use fathom_telemetry::iolog::{IoLogError, LogSummary, RowLog};
use fathom_telemetry::rundir::{RunDir, RunDirError};
use fathom_telemetry::schema::{Job, Run};
use fathom_telemetry::series::{JobOfSeries, SeriesError, SeriesSummary, SeriesWriter};
use fathom_telemetry::{Flag, FlagCode};
use serde_json::{Value, json};

use crate::schedule;

/// One host's.
struct HostBook {
    dir: RunDir,
    series: SeriesWriter,
    log: Option<RowLog>,
    /// Its own measures, by their places in the fleet's run.
    jobs: BTreeMap<usize, Job>,
    about: Value,
}

/// All hosts'.
pub(crate) struct HostBooks {
    all: Vec<HostBook>,
}

impl HostBooks {
    /// Makes the directories of `hosts` (as the environment of a run has them) below `dir`; none where there are none.
    pub(crate) fn create<E: From<RunDirError> + From<SeriesError> + From<IoLogError>>(
        dir: &RunDir,
        identity: &Identity,
        hosts: &Value,
        recorded: bool,
    ) -> Result<Option<Self>, E> {
        let Some(hosts) = hosts.as_array().filter(|h| !h.is_empty()) else {
            return Ok(None);
        };
        let name = |h: &Value| h["host"].as_str().unwrap_or_default().to_owned();
        let names: Vec<String> = hosts.iter().map(name).collect();
        // The same hosts are the same fleet, whichever run it is; with a letter no engine takes it for a number.
        let fleet = format!("f{:016x}", schedule::seed(0, "fleet", &names.join(","), 0));
        let mut taken = BTreeSet::new();
        let mut all = Self { all: Vec::new() };
        for (index, name) in names.iter().enumerate() {
            let mut own = dir.of_host(&fleet, name, &identity.run_id);
            if !taken.insert(own.path().to_owned()) {
                // What differs may be what no directory is called.
                own = dir.of_host(&fleet, &format!("{index}-{name}"), &identity.run_id);
                taken.insert(own.path().to_owned());
            }
            let identity = Identity {
                host: Some(Host {
                    name: name.clone(),
                    index: index as u32,
                }),
                ..identity.clone()
            };
            let made = HostBook::create(own, identity, hosts, index, recorded);
            match made {
                Ok(book) => all.all.push(book),
                Err(e) => {
                    all.remove();
                    return Err(e);
                }
            }
        }
        Ok(Some(all))
    }

    /// Keeps what a host did in a group that begins at job `first` of the run.
    pub(crate) fn take(
        &mut self,
        host: usize,
        first: usize,
        jobs: &[PlannedJob],
        what: &OfHost<'_>,
    ) {
        let Some(book) = self.all.get_mut(host) else {
            return;
        };
        let index = |job: usize| (first + job) as u16;
        let name = |job: usize| jobs[job].job.spec.name.as_str();
        match what {
            OfHost::Window(w) => {
                let of = JobOfSeries {
                    index: index(w.job),
                    name: name(w.job),
                    origin: w.origin,
                };
                // Where it has to end early, it says so in the end.
                let _ = book.series.push(&of, w.width, w.window);
            }
            OfHost::Rows { job, origin, rows } => {
                if let Some(log) = &mut book.log {
                    log.name(index(*job), name(*job));
                    rows.iter().for_each(|r| log.push(index(*job), r, *origin));
                }
            }
            OfHost::Job(job, measure) => {
                book.jobs.insert(first + job, (*measure).clone());
            }
        }
    }

    /// Ends a group: rows are in the files, and hold no memory.
    pub(crate) fn settle(&mut self) {
        let logs = self.all.iter_mut().filter_map(|h| h.log.as_mut());
        logs.for_each(RowLog::settle);
    }

    /// Closes the logs; jobs after this are not recorded.
    pub(crate) fn finish_logs(&mut self) -> Vec<Result<LogSummary, IoLogError>> {
        let logs = self.all.iter_mut().filter_map(|h| h.log.take());
        logs.map(RowLog::finish).collect()
    }

    /// Closes the series and saves each host's run, after that of the fleet; what became of the series, and what could
    /// not be saved.
    pub(crate) fn finish(
        self,
        run: &Run,
    ) -> (Vec<Result<SeriesSummary, SeriesError>>, Vec<RunDirError>) {
        let mut unsaved = Vec::new();
        let finished = self.all.into_iter().map(|book| {
            if let Err(e) = book.dir.save(&own_run(run, book.jobs, book.about)) {
                unsaved.push(e);
            }
            book.series.finish()
        });
        (finished.collect(), unsaved)
    }

    /// Removes what there is so far, of a run that was refused.
    pub(crate) fn remove(self) {
        for HostBook { dir, series, .. } in self.all {
            drop(series);
            // Up to the run's own directory; one that holds others stays, these calls fail then.
            for path in dir.path().ancestors().take(3) {
                let _ = std::fs::remove_dir(path);
            }
        }
    }
}

impl HostBook {
    fn create<E: From<RunDirError> + From<SeriesError> + From<IoLogError>>(
        dir: RunDir,
        identity: Identity,
        hosts: &[Value],
        index: usize,
        recorded: bool,
    ) -> Result<Self, E> {
        dir.make()?;
        let log = match recorded {
            true => Some(RowLog::create(&dir.io_file(), identity.clone())?),
            false => None,
        };
        Ok(Self {
            series: SeriesWriter::create(&dir.series_file(), identity, hosts.len())?,
            log,
            dir,
            jobs: BTreeMap::new(),
            about: hosts[index].clone(),
        })
    }
}

/// A host's run: the fleet's with its own measures. Jobs keep their numbers, so that those it had no part in are holes.
fn own_run(run: &Run, mut own: BTreeMap<usize, Job>, about: Value) -> Run {
    let job = |(i, of_all): (usize, &Job)| {
        // What stands against the point of all stands against this host's part of it.
        let of_point = |f: &&Flag| {
            use FlagCode::{HostLost, HostsDiffer, OutOfStep};
            [HostLost, HostsDiffer, OutOfStep].contains(&f.code)
        };
        let against = of_all.flags.iter().filter(of_point).cloned();
        let measured = own.remove(&i).map(|mut job| {
            job.flags.extend(against);
            job
        });
        measured.unwrap_or_else(|| {
            let mut flag = Flag::new(
                FlagCode::TooFewSamples,
                "this host measured nothing of its own here",
                "see the run of the fleet",
            );
            flag.void = true;
            Job {
                name: of_all.name.clone(),
                experiment: of_all.experiment.clone(),
                repeat: of_all.repeat,
                spec: of_all.spec.clone(),
                flags: vec![flag],
                ..Job::default()
            }
        })
    };
    let target = serde_json::from_value(about["target"].clone());
    Run {
        jobs: run.jobs.iter().enumerate().map(job).collect(),
        target: target.unwrap_or_else(|_| run.target.clone()),
        environment: json!({ "hosts": [about] }),
        headlines: Vec::new(),
        results: Vec::new(),
        sections: Vec::new(),
        findings: Vec::new(),
        ..run.clone()
    }
}
