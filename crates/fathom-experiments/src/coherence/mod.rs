//! Whether a host sees what another host did: data, attributes, names, appended records and locks of a directory that
//! hosts share, and after what time.
//!
//! In each round one host changes something, all others look again and again. What a look shows is old for certain only
//! where it began after the change was synced, by clocks whose error is known: that, and nothing else, is called old.

mod checks;
mod present;

use clap::Args;
use fathom_bench::bench::{Bench, BenchError, FilesOfHosts};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::Measurement;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::schedule;
use fathom_io::files::{BLOCK, RECORD, SeenBy};
use fathom_io::{Control, JobError};
use fathom_telemetry::schema::{HostShare, Job};
use fathom_telemetry::{Bytes, DirectionWindow, Flag, Histogram, Nanos, Op, Window};
use serde::{Deserialize, Serialize};
use serde_json::json;

use checks::{Check, RECORDS, Round};

/// Rounds in which nothing was seen until the end of the waiting time, after which a check ends: each takes that time.
const NEVER_MAX: usize = 3;
/// What a round takes beside looking: clocks, files, the common start.
const ROUND: Nanos = Nanos::from_millis(250);

/// What is checked.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom coherence /mnt/shared --hosts n1,n2          data, attributes, names and locks, each way\n  fathom coherence /mnt/shared --hosts nodes.txt --rounds 100 --wait 90s"
)]
pub struct CoherenceOptions {
    /// Rounds of each check; hosts take turns
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// How long a host looks for a change at most
    #[arg(long, default_value = "5s", value_name = "TIME")]
    pub wait: Nanos,
}

/// A look of one host at what another one did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Observation {
    round: u32,
    /// Places of the hosts.
    writer: usize,
    reader: usize,
    /// The last look that showed the old state began so long after the change, ns; 0 where none began after it.
    old_ns: u64,
    /// The change was seen so long after it, at the latest, ns; `None` where it was not seen.
    seen_ns: Option<u64>,
    /// It was seen, but no clock tells how long after the change: of records, whose look begins when all hosts have told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    seen: bool,
    /// Both are known to this, ns.
    bound_ns: u64,
    /// Looks.
    looks: u64,
    /// A lock was given while another host held it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    given_twice: bool,
    /// Appended records that no host saw in this round.
    #[serde(default, skip_serializing_if = "is_zero")]
    lost: u64,
    /// Why it could not be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A check, and all that was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Checked {
    check: Check,
    /// Its job in the run; none where it could not be looked at.
    job: Option<usize>,
    observations: Vec<Observation>,
}

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CoherenceResult {
    options: CoherenceOptions,
    hosts: Vec<String>,
    checks: Vec<Checked>,
}

impl Measurement for CoherenceOptions {
    const NAME: &'static str = "coherence";
    const ON_HOSTS: bool = true;
    const FILES_OF_HOSTS: Option<u32> = Some(2);

    fn check(&self) -> Result<(), String> {
        match self.wait {
            t if t >= Nanos::from_millis(100) && t <= Nanos::from_secs(3600) => Ok(()),
            t => Err(format!("--wait: {t} is not possible: expected 100ms to 1h")),
        }
    }

    fn modifies(&self) -> bool {
        true
    }

    fn run_cost(&self, _plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        // Of each host.
        let rounds = u64::from(self.rounds);
        let mut cost = RunCost::filling(fills);
        let each = Nanos(ROUND.0 * rounds);
        for check in Check::ALL {
            let bytes = match check {
                Check::Appended => (BLOCK as u64 + RECORDS * RECORD as u64) * rounds,
                _ => BLOCK as u64 * (1 + 2 * rounds),
            };
            cost.phase(check.words()).work(1, each, Bytes(bytes));
        }
        cost.files = Check::ALL.len() as u64 + 5 * rounds;
        Ok(cost)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        _plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let mut result = CoherenceResult {
            options: self.clone(),
            hosts: bench.files().map_or_else(Vec::new, |f| f.names().to_vec()),
            checks: Vec::new(),
        };
        let control = bench.control();
        let all = Check::ALL.len() as u32;
        for (k, check) in (0..).zip(Check::ALL) {
            if bench.interrupted() {
                break;
            }
            sink.job(k, all, check.words());
            let began = fathom_io::clock::monotonic();
            let (observations, lost) = match bench.files() {
                Some(files) => self.rounds_of(check, files, &control),
                None => {
                    let what = "coherence works on files of hosts: name a directory and --hosts";
                    return Err(BenchError::Outside(what.into()).into());
                }
            };
            let mut flags = bench.files().map_or_else(Vec::new, |f| f.flags().to_vec());
            flags.extend(lost.clone());
            let wall = fathom_io::clock::monotonic().since(began);
            let cut = bench.interrupted();
            let mut checked = Checked {
                check,
                job: None,
                observations,
            };
            let errors = checked.observations.iter().filter(|o| o.error.is_some());
            if !checked.observations.is_empty() && errors.count() < checked.observations.len() {
                checked.job = Some(keep(&checked, &result.hosts, wall, flags, book));
            }
            result.checks.push(checked);
            if let Some(flag) = lost {
                book.run_mut().flags.push(flag);
                break;
            }
            if cut {
                break;
            }
        }
        if bench.interrupted() {
            let flag = schedule::cut_short(result.checks.len() as u32, all);
            book.run_mut().flags.push(flag);
        }
        book.found(&result)
    }
}

impl CoherenceOptions {
    /// The rounds of a check until their end, or until a host was lost.
    fn rounds_of(
        &self,
        check: Check,
        files: &mut dyn FilesOfHosts,
        control: &Control,
    ) -> (Vec<Observation>, Option<Flag>) {
        let hosts = files.names().len();
        let mut seen: Vec<Observation> = Vec::new();
        let round = |number| Round {
            check,
            number,
            hosts,
            limit: self.wait,
        };
        let first = round(0);
        let set_up = (0..hosts).map(|h| first.set_up(h, self.rounds));
        match files.together(set_up.collect()) {
            Err(lost) => return (seen, Some(lost)),
            // Without its files nothing that a look shows says anything.
            Ok(made) => {
                if let Some(refused) = not_made(&made) {
                    return (vec![refused], None);
                }
            }
        }
        for number in 0..self.rounds {
            let never = seen.iter().filter(|o| !o.was_seen());
            if control.interrupted() || never.count() >= NEVER_MAX * first.readers().len() {
                break;
            }
            let round = round(number);
            let told = files.together(round.steps());
            let told = told.and_then(|all| match check {
                Check::Appended => Ok((all, files.together(round.records())?)),
                _ => Ok((Vec::new(), all)),
            });
            match told {
                Err(lost) => return (seen, Some(lost)),
                // Cut short, they saw nothing for another reason.
                Ok(_) if control.interrupted() => break,
                Ok((writers, readers)) => seen.extend(observed(&round, &writers, &readers)),
            }
        }
        (seen, None)
    }
}

/// The first file that a host could not make before the rounds.
fn not_made(made: &[SeenBy]) -> Option<Observation> {
    let failed = made.iter().enumerate();
    failed
        .filter_map(|(host, by)| Some((host, error_of(by)?)))
        .map(|(host, why)| Observation {
            writer: host,
            reader: host,
            error: Some(why),
            ..Observation::default()
        })
        .next()
}

fn error_of(by: &SeenBy) -> Option<String> {
    let all = by.before.iter().chain(&by.then);
    all.filter_map(|s| s.error.clone()).next()
}

/// What the hosts saw of a round. `writers` are those of the first part, where there were two.
fn observed(round: &Round, writers: &[SeenBy], readers: &[SeenBy]) -> Vec<Observation> {
    let writing = if writers.is_empty() { readers } else { writers };
    let writer = round.writer();
    let changed = writing[writer].then.last().map(|s| s.ended);
    let wrote = match writers {
        [] => error_of(&writing[writer]),
        all => all.iter().find_map(error_of),
    };
    let lost = lost(round, readers);
    let looked = round.readers().into_iter().map(|reader| {
        let by = &readers[reader];
        let mut seen = Observation {
            round: round.number,
            writer,
            reader,
            bound_ns: by.bound.0 + writing[writer].bound.0,
            error: wrote.clone().or_else(|| error_of(by)),
            ..Observation::default()
        };
        let (Some(look), Some(changed)) = (by.then.last(), changed) else {
            seen.error.get_or_insert_with(|| "it did not look".into());
            return seen;
        };
        seen.looks = look.looks;
        if round.check == Check::Appended {
            (seen.seen, seen.lost) = (look.so, lost);
            return seen;
        }
        seen.old_ns = look.last_no.map_or(0, |at| at.saturating_sub(changed));
        seen.seen_ns = look.so.then(|| look.ended.saturating_sub(changed));
        let old = by.before.first().is_some_and(|s| s.so);
        if matches!(round.check, Check::Removed | Check::Renamed) && !old {
            // A name that this host never saw is not gone for it because another host removed it.
            let why = || "the old state was not seen".into();
            seen.error.get_or_insert_with(why);
        }
        if round.check.lock().is_some() && seen.error.is_none() {
            match given_twice(&writing[writer], by, seen.bound_ns) {
                Ok(twice) => seen.given_twice = twice,
                Err(why) => seen.error = Some(why.into()),
            }
        }
        seen
    });
    looked.collect()
}

/// Appended records that no host saw; none where one host alone looked, whose cache may lack them.
fn lost(round: &Round, readers: &[SeenBy]) -> u64 {
    if round.check != Check::Appended {
        return 0;
    }
    let all = RECORDS * round.hosts as u64;
    let looks = readers.iter().filter_map(|by| by.then.last());
    let missing = looks
        .filter(|s| s.error.is_none())
        .map(|s| all.saturating_sub(s.counted));
    let missing: Vec<u64> = missing.collect();
    match missing.len() {
        0 | 1 => 0,
        _ => missing.into_iter().min().unwrap_or(0),
    }
}

/// Whether a lock was given while its holder had it for certain: given before the holder began to let go of it, by clocks
/// known to `bound`.
///
/// # Errors
/// Where the round does not show it.
fn given_twice(holder: &SeenBy, asker: &SeenBy, bound: u64) -> Result<bool, &'static str> {
    if !holder.before.last().is_some_and(|s| s.so) {
        return Err("its first holder was not given the lock");
    }
    let (Some(asked), Some(release)) = (asker.then.first(), holder.then.last()) else {
        return Err("the lock was not asked for");
    };
    match asked.so {
        // Refused: somebody had it.
        false => Ok(false),
        true if asked.ended.saturating_add(bound) < release.began => Ok(true),
        true => Err("the lock was asked for too late to say whether it was held still"),
    }
}

/// The check as a job: latency is how long after the change it was seen at the latest.
fn keep(
    checked: &Checked,
    hosts: &[String],
    wall: Nanos,
    flags: Vec<Flag>,
    book: &mut Notebook,
) -> usize {
    let mut delays = Histogram::new();
    let usable = || checked.observations.iter().filter(|o| o.error.is_none());
    usable()
        .filter_map(|o| o.seen_ns)
        .for_each(|t| delays.record(t));
    let seen = delays.to_sparse();
    let direction = DirectionWindow {
        ios: usable().count() as u64,
        service: seen.clone(),
        response: seen,
        ..DirectionWindow::default()
    };
    let mut total = fathom_telemetry::DirectionTotal::default();
    total.add(&direction);
    let mut window = Window::default();
    window.directions[Op::Read as usize] = Some(Box::new(direction));
    let shares = hosts.iter().enumerate().map(|(h, name)| HostShare {
        host: name.clone(),
        ios: usable().filter(|o| o.reader == h).count() as u64,
        wall_ns: wall.0,
        clock_bound_ns: usable().map(|o| o.bound_ns).max().unwrap_or(0),
        ..HostShare::default()
    });
    let job = Job {
        name: checked.check.name().into(),
        experiment: "coherence".into(),
        spec: json!({ "check": checked.check, "what": checked.check.words() }),
        engine: "files".into(),
        wall_ns: wall.0,
        qd_requested: checked.check.readers_max().min(hosts.len() - 1) as u32,
        read: Some(total.over(wall)),
        hosts: shares.collect(),
        flags,
        ..Job::default()
    };
    book.keep_load(job, (Nanos(wall.0.max(1)), &[window]), (Nanos(1), &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::files::Seen;

    fn seen(began: u64, ended: u64, so: bool, last_no: Option<u64>) -> Seen {
        Seen {
            began,
            ended,
            so,
            looks: 2,
            last_no,
            ..Seen::default()
        }
    }

    fn by(before: Vec<Seen>, then: Vec<Seen>) -> SeenBy {
        SeenBy {
            before,
            then,
            bound: Nanos(10),
        }
    }

    fn round(check: Check) -> Round {
        Round {
            check,
            number: 0,
            hosts: 2,
            limit: Nanos::from_secs(1),
        }
    }

    #[test]
    fn times_count_from_the_end_of_what_was_changed_and_synced() {
        let writer = by(
            vec![],
            vec![seen(0, 100, true, None), seen(100, 500, true, None)],
        );
        let reader = by(vec![], vec![seen(900, 1000, true, Some(800))]);
        let o = observed(&round(Check::OpenBuffered), &[], &[writer.clone(), reader]);
        assert_eq!((o.len(), o[0].writer, o[0].reader), (1, 0, 1));
        assert_eq!(
            (o[0].old_ns, o[0].seen_ns, o[0].bound_ns),
            (300, Some(500), 20)
        );
        // It looked at the old state before it was synced, and never afterwards.
        let reader = by(vec![], vec![seen(450, 460, true, Some(400))]);
        let o = observed(&round(Check::OpenBuffered), &[], &[writer.clone(), reader]);
        assert_eq!((o[0].old_ns, o[0].seen_ns), (0, Some(0)));
        let refused = Seen {
            error: Some("Invalid argument".into()),
            ..Seen::default()
        };
        let o = observed(
            &round(Check::OpenDirect),
            &[],
            &[writer, by(vec![refused], vec![])],
        );
        assert_eq!(o[0].error.as_deref(), Some("Invalid argument"));
    }

    #[test]
    fn a_lock_is_given_twice_only_where_its_holder_had_it_by_all_clocks() {
        // Held; given when asked; end of the asking; given twice, or nothing that can be said. Clocks are known to 20.
        for (held, asked, ended, twice) in [
            (true, true, 179, Some(true)),
            (true, true, 180, None),
            (true, true, 900, None),
            (false, true, 110, None),
            (true, false, 110, Some(false)),
            (true, false, 900, Some(false)),
        ] {
            let holder = by(
                vec![seen(0, 1, true, None), seen(1, 2, held, None)],
                vec![seen(100, 200, true, None), seen(200, 210, true, None)],
            );
            let asks = by(
                vec![],
                vec![seen(100, ended, asked, None), seen(950, 960, true, None)],
            );
            let o = observed(&round(Check::Flock), &[], &[holder, asks]);
            let said = o[0].error.is_none().then_some(o[0].given_twice);
            assert_eq!(said, twice, "{held} {asked} {ended}");
        }
    }

    #[test]
    fn a_name_that_was_never_seen_is_not_seen_to_go() {
        for check in [Check::Removed, Check::Renamed] {
            for so in [true, false] {
                let writer = by(vec![], vec![seen(0, 100, true, None)]);
                let reader = by(
                    vec![seen(0, 1, so, None), seen(1, 2, false, None)],
                    vec![seen(150, 160, true, None)],
                );
                let o = observed(&round(check), &[], &[writer, reader]);
                let why = (!so).then_some("the old state was not seen");
                assert_eq!(o[0].error.as_deref(), why, "{check:?}");
            }
        }
    }

    #[test]
    fn what_could_not_be_made_before_the_rounds_is_why_a_check_is_not_possible() {
        let good = by(vec![seen(0, 1, true, None)], vec![]);
        assert!(not_made(std::slice::from_ref(&good)).is_none());
        let refused = Seen {
            error: Some("No space left on device".into()),
            ..Seen::default()
        };
        let o = not_made(&[good, by(vec![refused], vec![])]).unwrap();
        assert_eq!(
            (o.writer, o.error.as_deref()),
            (1, Some("No space left on device"))
        );
    }

    #[test]
    fn records_that_no_host_sees_are_lost_and_others_are_not_seen_yet() {
        let appended = |ended| by(vec![], vec![seen(0, ended, true, None)]);
        let look = |lacks| Seen {
            counted: 2 * RECORDS - lacks,
            ..seen(200, 300, lacks == 0, Some(200))
        };
        let refused = Seen {
            error: Some("Input/output error".into()),
            ..Seen::default()
        };
        // What the writer counts; what the reader lacks; lost, and seen by the reader.
        for (writer, reader, lost, saw) in [
            (look(2), 3, 2, false),
            (look(0), 3, 0, false),
            (look(3), 0, 0, true),
            (refused, 3, 0, false),
        ] {
            let readers = [by(vec![], vec![writer]), by(vec![], vec![look(reader)])];
            let o = observed(
                &round(Check::Appended),
                &[appended(50), appended(90)],
                &readers,
            );
            assert_eq!((o[0].lost, o[0].was_seen()), (lost, saw));
            // The looks begin when the controller has heard of all: no time of the file system's.
            assert_eq!((o[0].seen_ns, o[0].old_ns), (None, 0));
        }
    }
}
