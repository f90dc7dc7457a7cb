//! The measures of all hosts become one: counts and histograms of the windows in which all of them measured, added up.
//! What came after the first host's end is shown apart, and counted nowhere.

use std::collections::BTreeMap;
use std::ops::Range;

use fathom_bench::parts::listed;
use fathom_io::Observer;
use fathom_io::driver::{ClosedWindow, OfHost, PlannedJob};
use fathom_io::replay::Fidelity;
use fathom_telemetry::schema::{HostShare, IoError, Job, OpenLoop};
use fathom_telemetry::{DirectionTotal, Flag, FlagCode, Nanos, Op, Window};

use super::split::places;
use crate::LabError;

/// I/Os and bytes.
type Counted = (u64, u64);

/// A host's window, and when the job's measured part began there.
type OwnWindow = (usize, Nanos, Window);

/// One job of a group, on its hosts.
struct Merging {
    /// Their places in the fleet.
    places: Range<usize>,
    width: Nanos,
    /// Windows that the job lasts by its time; `None` where something else ends it.
    lasts: Option<i64>,
    /// Windows that some host may not have closed yet.
    pending: BTreeMap<i64, Vec<OwnWindow>>,
    /// When the measured part began where it began first.
    origin: Nanos,
    /// When each host's measured part began.
    origins: Vec<Option<Nanos>>,
    /// The last window that each host closed.
    closed: Vec<i64>,
    hosts: Vec<Counted>,
    /// Windows in which each did less than every other.
    slowest: Vec<u64>,
    totals: [Option<Box<DirectionTotal>>; 4],
}

/// All jobs of a group.
pub(super) struct Merger {
    jobs: Vec<Merging>,
}

impl Merger {
    /// Of a group on a fleet of so many hosts.
    pub(super) fn new(jobs: &[PlannedJob], hosts: usize) -> Self {
        let jobs = jobs.iter().map(|p| {
            let spec = &p.job.spec;
            let places = places(p, hosts);
            let hosts = places.len();
            Merging {
                places,
                width: spec.window,
                lasts: spec.time.map(|t| (t.0 / spec.window.0.max(1)) as i64),
                pending: BTreeMap::new(),
                origin: Nanos(u64::MAX),
                origins: vec![None; hosts],
                closed: vec![i64::MIN; hosts],
                hosts: vec![(0, 0); hosts],
                slowest: vec![0; hosts],
                totals: [None, None, None, None],
            }
        });
        Self {
            jobs: jobs.collect(),
        }
    }

    /// The group's job that is a host's own one of this number.
    pub(super) fn job_of(&self, host: usize, own: usize) -> Option<usize> {
        let all = self.jobs.iter().enumerate();
        let mut there = all.filter(|(_, m)| m.places.contains(&host));
        Some(there.nth(own)?.0)
    }

    /// Takes a host's window of its own job `w.job`.
    pub(super) fn take(&mut self, host: usize, w: &ClosedWindow<'_>, observer: &mut dyn Observer) {
        let Some(job) = self.job_of(host, w.job) else {
            return;
        };
        let m = &mut self.jobs[job];
        let host = host - m.places.start;
        let number = w.start_ns.div_euclid(m.width.0.max(1) as i64);
        m.origin = m.origin.min(w.origin);
        m.origins[host].get_or_insert(w.origin);
        let own = (host, w.origin, w.window.clone());
        m.pending.entry(number).or_default().push(own);
        m.closed[host] = m.closed[host].max(number);
        let complete = m.closed.iter().copied().min().unwrap_or(i64::MIN);
        m.add_until(job, complete.min(m.lasts.unwrap_or(i64::MAX)), observer);
    }

    /// One job per planned one. `parts` are each host's measures of its jobs, `None` of a lost host.
    pub(super) fn finish(
        self,
        jobs: &[PlannedJob],
        parts: &[Option<Vec<Job>>],
        names: &[String],
        observer: &mut dyn Observer,
    ) -> Vec<Job> {
        let mut parts: Vec<Option<std::slice::Iter<'_, Job>>> =
            parts.iter().map(|p| p.as_ref().map(|p| p.iter())).collect();
        let all = self.jobs.into_iter().zip(jobs).enumerate();
        all.map(|(j, (mut m, planned))| {
            let own: Vec<Option<&Job>> = parts[m.places.clone()]
                .iter_mut()
                .map(|p| p.as_mut().and_then(Iterator::next))
                .collect();
            let common = m.common(&own);
            m.add_until(j, common, observer);
            for (host, job) in m.places.clone().zip(&own) {
                if let Some(job) = job {
                    observer.of_host(host, &OfHost::Job(j, job));
                }
            }
            let names = &names[m.places.clone()];
            m.job(planned, &own, common, names)
        })
        .collect()
    }
}

impl Merging {
    /// Windows from the measured part's start in which every host measured from their beginning to their end.
    fn common(&self, own: &[Option<&Job>]) -> i64 {
        let width = self.width.0.max(1);
        let of = |(job, closed): (&Option<&Job>, &i64)| match (job, self.lasts) {
            // The last completion comes a little before the end, or after it.
            (Some(job), Some(lasts)) if job.wall_ns + width / 2 >= lasts as u64 * width => lasts,
            (Some(job), _) => (job.wall_ns / width) as i64,
            (None, _) => (*closed).max(0),
        };
        own.iter().zip(&self.closed).map(of).min().unwrap_or(0)
    }

    /// Adds up windows before `end`.
    fn add_until(&mut self, job: usize, end: i64, observer: &mut dyn Observer) {
        while let Some(entry) = self.pending.first_entry() {
            let number = *entry.key();
            if number >= end {
                return;
            }
            let of_hosts = entry.remove();
            let mut window = Window {
                index: number.max(0) as u64,
                ..Window::default()
            };
            let mut by_host = Vec::new();
            for (host, origin, mut own) in of_hosts {
                window.merge(&own);
                by_host.push((host, counted(&own)));
                if number >= 0 {
                    own.index = window.index;
                    let own = self.closed(job, number, origin, &own);
                    observer.of_host(self.places.start + host, &OfHost::Window(&own));
                }
            }
            if number >= 0 {
                if let Some(host) = slowest(&by_host, self.hosts.len()) {
                    self.slowest[host] += 1;
                }
                for (host, (ios, bytes)) in by_host {
                    let sum = &mut self.hosts[host];
                    *sum = (sum.0 + ios, sum.1 + bytes);
                }
                for (total, d) in self.totals.iter_mut().zip(&window.directions) {
                    if let Some(d) = d {
                        total.get_or_insert_default().add(d);
                    }
                }
            }
            observer.window(&self.closed(job, number, self.origin, &window));
        }
    }

    fn closed<'w>(
        &self,
        job: usize,
        number: i64,
        origin: Nanos,
        window: &'w Window,
    ) -> ClosedWindow<'w> {
        ClosedWindow {
            job,
            start_ns: number * self.width.0 as i64,
            origin,
            width: self.width,
            window,
        }
    }

    /// What each host did, in the common part and after it.
    fn shares(&self, own: &[Option<&Job>], names: &[String]) -> Vec<HostShare> {
        let mut tails = vec![(0, 0); names.len()];
        for (host, _, window) in self.pending.values().flatten() {
            let tail: &mut Counted = &mut tails[*host];
            let (ios, bytes) = counted(window);
            *tail = (tail.0 + ios, tail.1 + bytes);
        }
        let hosts = names.iter().enumerate().map(|(h, name)| HostShare {
            host: name.clone(),
            ios: self.hosts[h].0,
            bytes: self.hosts[h].1,
            tail_ios: tails[h].0,
            tail_bytes: tails[h].1,
            p99_ns: own[h].and_then(highest_p99),
            wall_ns: own[h].map_or(0, |j| j.wall_ns),
            slowest_windows: self.slowest[h],
            // Of a load that finds its own first window, this is more than its late begin.
            late_ns: self.origins[h].map_or(0, |o| o.since(self.origin).0 as i64),
            ..HostShare::default()
        });
        hosts.collect()
    }

    fn job(self, planned: &PlannedJob, own: &[Option<&Job>], common: i64, names: &[String]) -> Job {
        let wall = common.max(0) as u64 * self.width.0;
        let there = || own.iter().copied().flatten();
        let first = there().next();
        let spec = &planned.job.spec;
        let (seats, depth) = planned.seats();
        let direction = |op: Op| {
            let any = there().any(|j| j.direction(op).is_some());
            let total = self.totals[op as usize].as_deref().cloned();
            let total = total.or(any.then(DirectionTotal::default))?;
            Some(total.over(Nanos(wall)))
        };
        let [read, write, trim, sync] = Op::ALL.map(direction);
        let data = [&read, &write, &trim];
        let rate_achieved = data.into_iter().flatten().map(|d| d.iops).sum();
        // CPU time of the common part, by each host's own length.
        let cpu = |of: fn(&Job) -> u64| -> u64 {
            there()
                .map(|j| (of(j) as f64 * (wall as f64 / j.wall_ns.max(1) as f64).min(1.0)) as u64)
                .sum()
        };
        let loops = || there().filter_map(|j| j.open_loop.as_ref());
        let mut flags = flags(own, names);
        if common < 1 {
            let mut flag = Flag::new(
                FlagCode::OutOfStep,
                format!(
                    "there is no window of {} in which all hosts measured",
                    self.width
                ),
                match planned.files {
                    Some(_) => "give it more --files",
                    None => "run longer, or with a smaller --window",
                },
            );
            flag.void = true;
            flags.push(flag);
        }
        Job {
            name: spec.name.clone(),
            experiment: planned.experiment.clone(),
            repeat: planned.repeat,
            spec: serde_json::to_value(spec).unwrap_or_default(),
            engine: first.map_or_else(String::new, |j| j.engine.clone()),
            engine_notes: first.map_or_else(Vec::new, |j| j.engine_notes.clone()),
            start_ns: there().map(|j| j.start_ns).min().unwrap_or(0),
            wall_ns: wall,
            cpu_ns: cpu(|j| j.cpu_ns),
            cpu_user_ns: cpu(|j| j.cpu_user_ns),
            qd_requested: seats * depth * names.len() as u32,
            qd_achieved: there().map(|j| j.qd_achieved).sum(),
            read,
            write,
            trim,
            sync,
            open_loop: spec.rate.map(|asked| OpenLoop {
                rate_asked: asked,
                rate_achieved,
                late: loops().map(|o| o.late).sum(),
                unissued: loops().map(|o| o.unissued).sum(),
                lateness_max_ns: loops().map(|o| o.lateness_max_ns).max().unwrap_or(0),
            }),
            errors: errors(own),
            hosts: self.shares(own, names),
            flags,
            ..Job::default()
        }
    }
}

/// How well hosts together kept the times of what each job played; `parts` are each host's, in the order of its jobs.
pub(super) fn played(jobs: &[PlannedJob], parts: Vec<Vec<Fidelity>>, names: &[String]) {
    let n = parts.len();
    let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
    for planned in jobs {
        let Some(feed) = &planned.job.feed else {
            continue;
        };
        let mut all: Option<Fidelity> = None;
        for host in places(planned, n) {
            let Some(mut own) = parts[host].next() else {
                continue;
            };
            own.error = own.error.map(|e| format!("{}: {e}", names[host]));
            match &mut all {
                Some(all) => all.merge(&own),
                None => all = Some(own),
            }
        }
        if let Some(all) = all {
            feed.played(all);
        }
    }
}

/// Reads, writes and trims.
fn counted(window: &Window) -> Counted {
    let data = window.directions[..3].iter().flatten();
    data.fold((0, 0), |sum, d| (sum.0 + d.ios, sum.1 + d.bytes))
}

/// The host that did less than every other in a window.
fn slowest(by_host: &[(usize, Counted)], hosts: usize) -> Option<usize> {
    // By bytes; where none moves any, by operations.
    let mut done = vec![(0, 0); hosts];
    by_host.iter().for_each(|(h, (ios, bytes))| {
        done[*h] = (done[*h].0 + bytes, done[*h].1 + ios);
    });
    let least = (0..hosts).min_by_key(|h| done[*h])?;
    let alone = done.iter().filter(|d| **d == done[least]).count() == 1;
    alone.then_some(least)
}

fn highest_p99(job: &Job) -> Option<u64> {
    let of = |op: &Op| job.direction(*op)?.response_ns.p99;
    [Op::Read, Op::Write, Op::Trim].iter().filter_map(of).max()
}

fn errors(own: &[Option<&Job>]) -> Vec<IoError> {
    let mut merged: Vec<IoError> = Vec::new();
    for e in own.iter().flatten().flat_map(|j| &j.errors) {
        match merged
            .iter_mut()
            .find(|m| (m.op, m.errno) == (e.op, e.errno))
        {
            Some(m) => m.count += e.count,
            None => merged.push(e.clone()),
        }
    }
    merged
}

/// Flags of the same kind are one with its first sentence: each host's own numbers differ a little.
fn flags(own: &[Option<&Job>], names: &[String]) -> Vec<Flag> {
    let mut kinds: Vec<(Flag, Vec<usize>)> = Vec::new();
    for (h, job) in own.iter().enumerate() {
        for flag in job.iter().flat_map(|j| &j.flags) {
            let same = |k: &&mut (Flag, Vec<usize>)| (k.0.code, k.0.void) == (flag.code, flag.void);
            match kinds.iter_mut().find(same) {
                Some((_, who)) if who.last() == Some(&h) => {}
                Some((_, who)) => who.push(h),
                None => kinds.push((flag.clone(), vec![h])),
            }
        }
    }
    let named = |(mut flag, who): (Flag, Vec<usize>)| {
        if !flag.code.describes() {
            flag.detail = format!("{}: {}", list(names, &who), flag.detail);
        }
        flag
    };
    kinds.into_iter().map(named).collect()
}

/// What a host says against something, with its name.
pub(super) fn on(name: &str, e: impl Into<LabError>) -> LabError {
    let e = e.into();
    let sentence = format!("{name}: {e}");
    match e.is_refusal() {
        true => LabError::Refused(sentence),
        false => LabError::Failed(sentence),
    }
}

/// Names of hosts in a sentence.
pub(super) fn list(names: &[String], who: &[usize]) -> String {
    let names: Vec<&str> = who.iter().map(|h| names[*h].as_str()).collect();
    listed(&names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::JobSpec;
    use fathom_io::load::rng::Rng;
    use fathom_telemetry::schema::Direction;
    use fathom_telemetry::{DirectionWindow, Histogram, LatencySummary, SparseHistogram};

    const WINDOW: u64 = 100_000_000;

    fn planned(time: Option<Nanos>) -> PlannedJob {
        let limits = fathom_io::job::Limits {
            size: 1 << 20,
            direct_align: 1,
            hosts: 1,
        };
        let spec = JobSpec {
            time,
            ios: time.is_none().then_some(100),
            ..JobSpec::default()
        };
        PlannedJob::new(spec.validate(&limits).unwrap())
    }

    fn window(index: u64, values: &[u64]) -> Window {
        let mut h = Histogram::new();
        values.iter().for_each(|v| h.record(*v));
        let d = DirectionWindow {
            ios: values.len() as u64,
            bytes: 4096 * values.len() as u64,
            errors: 0,
            short: 0,
            submit: SparseHistogram::default(),
            service: h.to_sparse(),
            response: h.to_sparse(),
        };
        Window {
            index,
            directions: [Some(Box::new(d)), None, None, None],
        }
    }

    fn ended(wall: u64) -> Option<Vec<Job>> {
        Some(vec![Job {
            wall_ns: wall,
            read: Some(Direction::default()),
            ..Job::default()
        }])
    }

    fn names(n: usize) -> Vec<String> {
        (1..=n).map(|i| format!("h{i}")).collect()
    }

    /// Windows of all together, and the I/Os of each host's.
    struct Seen(Vec<(i64, u64)>, BTreeMap<usize, DirectionTotal>);
    impl Observer for Seen {
        fn window(&mut self, w: &ClosedWindow<'_>) {
            let ios = w.window.directions[0].as_ref().map_or(0, |d| d.ios);
            self.0.push((w.start_ns, ios));
        }
        fn of_host(&mut self, host: usize, what: &OfHost<'_>) {
            if let OfHost::Window(w) = what {
                assert_eq!(w.origin, Nanos(host as u64));
                let read = w.window.directions[0].as_ref().unwrap();
                self.1.entry(host).or_default().add(read);
            }
        }
    }

    fn take(merger: &mut Merger, host: usize, start: i64, w: &Window, to: &mut dyn Observer) {
        let w = ClosedWindow {
            job: 0,
            start_ns: start,
            origin: Nanos(host as u64),
            width: Nanos(WINDOW),
            window: w,
        };
        merger.take(host, &w, to);
    }

    #[test]
    fn percentiles_of_all_hosts_are_those_of_all_records_and_sums_are_exact() {
        for seed in 0..8 {
            let mut rng = Rng::new(seed, 0);
            let (hosts, windows) = (4, 10);
            let jobs = [planned(Some(Nanos(windows * WINDOW)))];
            let mut merger = Merger::new(&jobs, hosts);
            let (mut all, mut bytes, mut seen) =
                (Histogram::new(), 0, Seen(Vec::new(), BTreeMap::new()));
            for i in 0..windows {
                for host in 0..hosts {
                    let n = 200 + rng.below(300);
                    let values: Vec<u64> = (0..n)
                        .map(|_| 1000 + rng.below(1 << (10 + 3 * host)))
                        .collect();
                    values.iter().for_each(|v| all.record(*v));
                    bytes += 4096 * n;
                    let start = (i * WINDOW) as i64;
                    take(&mut merger, host, start, &window(i, &values), &mut seen);
                }
            }
            let parts = vec![ended(windows * WINDOW - 5); hosts];
            let job = merger
                .finish(&jobs, &parts, &names(hosts), &mut seen)
                .remove(0);
            let read = job.read.unwrap();
            assert_eq!(read.response_ns, LatencySummary::from(&all), "seed {seed}");
            assert_eq!((read.ios, read.bytes), (all.count(), bytes));
            assert_eq!(job.hosts.iter().map(|h| h.ios).sum::<u64>(), read.ios);
            assert_eq!(job.wall_ns, windows * WINDOW);
            assert_eq!(
                seen.0.iter().map(|s| s.1).sum::<u64>(),
                read.ios,
                "series and totals"
            );
            let mut merged = Histogram::new();
            let own: u64 = seen.1.values().map(|t| t.ios).sum();
            seen.1.values().for_each(|t| merged.merge(&t.response));
            assert_eq!(
                (own, LatencySummary::from(&merged)),
                (read.ios, read.response_ns)
            );
            assert!(job.flags.is_empty(), "{:?}", job.flags);
        }
    }

    #[test]
    fn what_comes_before_all_began_or_after_the_first_ended_is_not_counted() {
        let jobs = [planned(Some(Nanos(5 * WINDOW)))];
        let mut merger = Merger::new(&jobs, 2);
        let mut seen = Seen(Vec::new(), BTreeMap::new());
        for host in 0..2 {
            // Ramp-up, five windows, and what was under way at the end of the second host.
            for i in -1..5 + host as i64 {
                let w = window(i.max(0) as u64, &[1000; 10]);
                take(&mut merger, host, i * WINDOW as i64, &w, &mut seen);
            }
        }
        let parts = vec![ended(5 * WINDOW), ended(6 * WINDOW)];
        let job = merger.finish(&jobs, &parts, &names(2), &mut seen).remove(0);
        assert_eq!(job.read.unwrap().ios, 100);
        let tails: Vec<u64> = job.hosts.iter().map(|h| h.tail_ios).collect();
        assert_eq!(tails, [0, 10]);
        assert_eq!(seen.0.first(), Some(&(-(WINDOW as i64), 20)));
    }

    #[test]
    fn a_job_that_counts_ends_with_its_first_host_and_too_short_a_one_is_void() {
        let jobs = [planned(None)];
        let mut merger = Merger::new(&jobs, 2);
        for host in 0..2 {
            for i in 0..(3 + 2 * host as u64) {
                take(
                    &mut merger,
                    host,
                    (i * WINDOW) as i64,
                    &window(i, &[1; 5]),
                    &mut (),
                );
            }
        }
        let parts = vec![ended(2 * WINDOW + 7), ended(4 * WINDOW + 7)];
        let job = merger.finish(&jobs, &parts, &names(2), &mut ()).remove(0);
        assert_eq!((job.wall_ns, job.read.unwrap().ios), (2 * WINDOW, 20));
        assert_eq!(job.hosts[1].tail_ios, 15);
        let mut merger = Merger::new(&jobs, 2);
        take(&mut merger, 0, 0, &window(0, &[1; 5]), &mut ());
        let job = merger
            .finish(&jobs, &[ended(7), None], &names(2), &mut ())
            .remove(0);
        assert!(job.is_void() && job.read.unwrap().iops == 0.0);
    }

    #[test]
    fn flags_name_their_hosts() {
        let flagged = |detail: &str| {
            let mut job = ended(WINDOW).unwrap();
            job[0]
                .flags
                .push(Flag::new(FlagCode::CpuBound, detail, "less"));
            Some(job)
        };
        let jobs = [planned(Some(Nanos(WINDOW)))];
        let mut merger = Merger::new(&jobs, 3);
        for host in 0..3 {
            take(&mut merger, host, 0, &window(0, &[1]), &mut ());
        }
        let parts = vec![flagged("97 %"), ended(WINDOW), flagged("98 %")];
        let job = merger.finish(&jobs, &parts, &names(3), &mut ()).remove(0);
        let said: Vec<&str> = job.flags.iter().map(|f| f.detail.as_str()).collect();
        assert_eq!(said, ["h1, h3: 97 %"]);
    }
}
