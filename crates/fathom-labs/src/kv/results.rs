//! What the measurements of the key-value lab say: tables, charts, headlines, a finding.

use fathom_bench::parts::{
    axis, chart, estimate, headline_of, line_chart, number, point, series, table, text,
};
use fathom_bench::results::{Evidence, Shown};
use fathom_kv::Stats;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Axis, Chart, ChartKind, Finding, Headline, Section, Table};
use fathom_telemetry::{Bytes, Flag, FlagCode};

use super::{Cell, KvOptions, KvResult, Line, Repeat, Sweep};
use crate::conclude::{self, Choice, Told};
use crate::confounders;

/// Half of the interval of a share of the ceiling that says something, of the share.
const KNOWN: f64 = 1.0 / 3.0;
/// Share of the ceiling from which the device is the limit, percent.
const NEAR: f64 = 85.0;
/// Of headlines.
const GROUP: &str = "Key-value";

/// Misses per operation.
fn misses(r: &Repeat) -> Option<f64> {
    r.per(r.beside.stats.misses as f64)
}

/// Mixed IOPS of the raw device at the depth that the tree reached: the mean of what was measured around it.
fn raw(r: &Repeat, evidence: &Evidence<'_>) -> Option<f64> {
    let rate = |j: &usize| {
        let job = evidence.job(*j).filter(|j| !j.is_void())?;
        let both = [&job.read, &job.write].into_iter().flatten();
        Some(both.map(|d| d.iops).sum())
    };
    let rates: Vec<f64> = r.beside.raw.iter().map(rate).collect::<Option<_>>()?;
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
}

impl KvResult {
    /// Operations per second of fathom's own tree under a workload, in the first setting of a sweep.
    pub(crate) fn rate(
        &self,
        evidence: &Evidence<'_>,
        workload: &str,
    ) -> Option<(f64, Vec<usize>)> {
        let own = |l: &&Line| l.setting.engine.is_none() && l.setting.workload == workload;
        let line = self.lines.iter().find(own)?;
        Some((line.rate(evidence)?.value, line.jobs()))
    }
}

/// A line with what it rests on.
struct Shows<'a> {
    line: &'a Line,
    evidence: &'a Evidence<'a>,
    result: &'a KvResult,
}

impl Shows<'_> {
    fn name(&self) -> String {
        self.line.setting.label()
    }

    fn rate(&self) -> Option<Estimate> {
        self.line.rate(self.evidence)
    }

    /// A model has none that the tree could use up.
    fn has_processors(&self) -> bool {
        self.result.options.model.is_none()
    }

    fn updates(&self) -> bool {
        self.line.setting.workload().mix.update == 100
    }

    /// What the raw device allows: every miss costs a read and, where leaves change, a write. A miss that the page cache
    /// answers costs the device nothing: its IOPS are no limit then.
    fn ceiling(&self, r: &Repeat) -> Option<f64> {
        let misses = misses(r).filter(|m| *m > 0.01)?;
        let limited = self.updates() && !self.result.options.buffered;
        limited.then_some(raw(r, self.evidence)? / 2.0 / misses)
    }

    /// Leaves moved between pool and device, each way counted, of the raw device's IOPS, percent. `None` where it says nothing: it is not
    /// known to a third of itself, or there is more than all, because the device was another one when it was measured raw.
    fn of_ceiling(&self) -> Option<Estimate> {
        let of = self
            .line
            .mean(|r| Some(r.rate(self.evidence)? / self.ceiling(r)? * 100.0))?;
        let known = of.relative_half_width().is_some_and(|w| w < KNOWN);
        (known && of.low.is_some_and(|low| low <= 100.0)).then_some(of)
    }

    fn headlines(&self) -> Vec<Headline> {
        let jobs = self.line.jobs();
        let name = self.name();
        let mut all = vec![Headline {
            flags: self.page_cache().into_iter().collect(),
            ..headline_of(
                GROUP,
                &format!("{name}: operations"),
                &format!("kv-{name}-ops"),
                "1/s",
                self.rate(),
                jobs.clone(),
            )
        }];
        if let Some(of) = self.of_ceiling() {
            let raw = self.line.repeats.iter().flat_map(|r| &r.beside.raw);
            all.push(headline_of(
                GROUP,
                &format!("{name}: of what the raw device allows"),
                &format!("kv-{name}-of-ceiling"),
                "%",
                Some(of),
                jobs.iter().chain(raw).copied().collect(),
            ));
        }
        all
    }

    /// Not all reads of leaves reach the device, because one of them may bring a neighbour that is asked for later.
    fn page_cache(&self) -> Option<Flag> {
        let repeats = &self.line.repeats;
        let asked: u64 = repeats.iter().map(|r| r.beside.stats.misses).sum();
        let read = |r: &Repeat| Some(r.job(self.evidence)?.device.as_ref()?.read_ios);
        let read: u64 = repeats.iter().map(read).sum::<Option<u64>>()?;
        let answered = self.result.options.buffered && asked > 1000 && read * 2 < asked;
        answered.then(|| {
            Flag::new(
                FlagCode::PageCacheAnswered,
                format!("{asked} leaves were read, of which the device saw {read}"),
                "leave out --buffered, or use a --size that is much larger than the memory",
            )
        })
    }
}

/// Section, headlines and findings of fathom's own tree.
pub(super) fn present(result: &KvResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    let own = result.lines.iter().filter(|l| l.setting.engine.is_none());
    let all: Vec<Shows<'_>> = own
        .map(|line| Shows {
            line,
            evidence,
            result,
        })
        .collect();
    let (dips, dipped) = super::dips::report(&result.lines);
    let mut section = Section {
        id: "kv".into(),
        title: "Key-value operations".into(),
        text: about(result),
        tables: vec![rates(&all), waits(&all), dips],
        charts: std::iter::once(over_time(&result.lines))
            .chain(sweeps(&result.lines, evidence))
            .collect(),
        ..Section::default()
    };
    let updates = all.iter().filter(|s| s.updates());
    match updates.filter_map(|s| Some((s, s.of_ceiling()?))).next() {
        Some((s, e)) if e.value < NEAR => {
            let on_model = !s.has_processors();
            shown.findings.push(below_ceiling(e, s.line.jobs(), on_model));
        }
        Some((_, e)) => section.text.push_str(&format!(
            " Random updates reach {:.0} % of the ceiling: the device is the limit. A larger cache helps, or more threads where the device gains from depth.",
            e.value
        )),
        None => {}
    }
    shown.sections.push(section);
    shown
        .headlines
        .extend(all.iter().flat_map(Shows::headlines));
    shown.findings.extend(dipped);
    shown.findings.extend(conclusion(&all, evidence));
    shown.findings.extend(beside(result, evidence));
}

/// What was looked at beside all of them. On a model there is nothing that could be otherwise.
fn beside(result: &KvResult, evidence: &Evidence<'_>) -> Option<Finding> {
    let o = &result.options;
    let lines = || result.lines.iter().filter(|l| !l.repeats.is_empty());
    if o.model.is_some() || lines().next().is_none() {
        return None;
    }
    let own = lines().filter(|l| l.setting.engine.is_none());
    let own: Vec<usize> = own.flat_map(Line::jobs).collect();
    let mut facts = vec![confounders::warm(confounders::CACHES, &own, evidence)];
    if lines().any(|l| l.setting.engine.is_some()) {
        facts.push(
            "what other engines keep in their caches is not known: all had the same ramp".into(),
        );
    }
    facts.push(
        match (o.commit, o.buffered) {
            (true, _) => "every commit is synced",
            (false, true) => "what was changed within the last second is lost with the machine's power, and pages are in the page cache, too",
            (false, false) => "what was changed within the last second is lost with the machine's power",
        }
        .into(),
    );
    facts.push(
        "pages are written elsewhere and never over themselves: there is no doublewrite to pay"
            .into(),
    );
    facts.extend(result.files.in_words());
    let used = confounders::processors(lines(), evidence);
    facts.extend(
        used.map(|n| {
            format!("this process, which is load and engine, took up to {n:.2} processors")
        }),
    );
    let jobs = lines().flat_map(Line::jobs).collect();
    Some(confounders::beside("kv", facts, jobs, "kv-waits"))
}

/// What to set where something was varied: pages against one that InnoDB has, caches step by step.
fn conclusion(all: &[Shows<'_>], evidence: &Evidence<'_>) -> Vec<Finding> {
    let of = |sweep: Sweep, name: &dyn Fn(&Cell) -> String| -> Vec<Choice<'_, _, _>> {
        let lines = all.iter().map(|s| s.line);
        let mine = lines.filter(|l| l.setting.workload().sweep == sweep);
        mine.map(|line| Choice {
            name: name(&line.setting),
            line,
        })
        .collect()
    };
    fn told<'a>(id: &str, what: &'a str, advice: &'a dyn Fn(usize) -> String) -> Told<'a> {
        Told {
            id: id.into(),
            of: "random updates of the tree",
            what,
            advice,
            tables: vec!["kv-table".into()],
        }
    }
    let pages = of(Sweep::Pages, &|c| Bytes(c.page).to_string());
    let page = |i: usize| format!("--page {}", pages[i].name);
    let usual = pages.iter().position(|c| c.line.setting.page == 16 << 10);
    let caches = of(Sweep::Caches, &|c| format!("{} %", c.cache));
    let cache = |i: usize| format!("--cache {}", caches[i].line.setting.cache);
    let pages = usual.and_then(|usual| {
        let told = told("kv-pages-best", "pages of", &page);
        conclude::against(&pages, usual, &told, evidence)
    });
    let told = told("kv-caches-enough", "a cache of", &cache);
    pages
        .into_iter()
        .chain(conclude::enough(&caches, &told, evidence))
        .collect()
}

fn about(result: &KvResult) -> String {
    let o = &result.options;
    format!(
        "fathom's own B+tree, {} threads, 8-byte keys, {}, {}. The ceiling is what the raw device allows: its mixed IOPS (half reads, half writes of a page, at the depth that the tree had at the device, measured just after and, from the second repeat on, just before) / 2 / misses per operation. Misses, waits and CPU time are of the measured part only.{}{}",
        o.threads,
        if o.buffered {
            "through the page cache"
        } else {
            "past the page cache"
        },
        if o.commit {
            "every commit logged and synced"
        } else {
            "durable with checkpoints every second, nothing logged"
        },
        on_model(o),
        if result.assertions && o.model.is_none() {
            " This fathom was built with assertions: an optimised one does more."
        } else {
            ""
        }
    )
}

/// What is modelled, and what is not.
fn on_model(o: &KvOptions) -> String {
    let Some(each) = o.model else {
        return String::new();
    };
    format!(
        " On the model the tree really runs, over memory, its threads in turns in the model's time: what it reads, writes and syncs are the model's I/Os, in the engine's own sizes and batches, so that group commit, checkpoints and latches wait as long as the model does. What processors do is not modelled: an operation takes {each} beside its I/Os, waking takes none, and there is no CPU time to show."
    )
}

fn rates(all: &[Shows<'_>]) -> Table {
    let last = |s: &Shows<'_>, f: fn(&Repeat) -> u64| s.line.repeats.last().map(|r| f(r) as f64);
    let percentile = |s: &Shows<'_>, q| number(s.line.percentile(s.evidence, q));
    table(
        "kv-table",
        "Operations and their ceiling",
        all,
        &[
            ("workload", "", &|s| text(s.name())),
            ("page", "bytes", &|s| {
                number(Some(s.line.setting.page as f64))
            }),
            ("cache", "bytes", &|s| number(last(s, |r| r.beside.cached))),
            ("leaves", "bytes", &|s| {
                let leaves = last(s, |r| r.beside.leaves).filter(|n| *n > 0.0);
                number(leaves.map(|n| n * s.line.setting.page as f64))
            }),
            ("operations", "1/s", &|s| estimate(s.rate())),
            ("misses per operation", "", &|s| {
                estimate(s.line.mean(misses))
            }),
            ("raw mixed IOPS", "1/s", &|s| {
                estimate(s.line.mean(|r| raw(r, s.evidence)))
            }),
            ("ceiling", "1/s", &|s| {
                estimate(s.line.mean(|r| s.ceiling(r)))
            }),
            ("of the ceiling", "%", &|s| estimate(s.of_ceiling())),
            ("p50", "ns", &|s| percentile(s, 0.5)),
            ("p99", "ns", &|s| percentile(s, 0.99)),
            ("depth at the device", "", &|s| {
                estimate(s.line.mean(|r| r.beside.depth.map(f64::from)))
            }),
        ],
    )
}

fn waits(all: &[Shows<'_>]) -> Table {
    let micros = |s: &Shows<'_>, f: fn(&Stats) -> u64| {
        estimate(s.line.mean(|r| r.per(f(&r.beside.stats) as f64 / 1000.0)))
    };
    table(
        "kv-waits",
        "Waits and CPU time per operation, microseconds",
        all,
        &[
            ("workload", "", &|s| text(s.name())),
            ("latches", "", &|s| micros(s, |s| s.latch_wait_ns)),
            ("free frames", "", &|s| micros(s, |s| s.frame_wait_ns)),
            ("free places", "", &|s| micros(s, |s| s.space_wait_ns)),
            ("log", "", &|s| micros(s, |s| s.log_wait_ns)),
            ("stalls", "", &|s| micros(s, |s| s.stall_ns)),
            ("cut of a checkpoint", "", &|s| {
                estimate(s.line.mean(|r| {
                    let stats = &r.beside.stats;
                    let n = stats.checkpoints;
                    (n > 0).then(|| stats.cut_ns as f64 / n as f64 / 1000.0)
                }))
            }),
            ("CPU", "", &|s| {
                let here = |r: &Repeat| r.cpu(s.evidence).filter(|_| s.has_processors());
                estimate(s.line.mean(here).map(|e| e.scale(1e6)))
            }),
            ("kernel threads' CPU", "", &|s| {
                let here = |r: &Repeat| {
                    r.per(r.beside.kernel_cpu * 1e6)
                        .filter(|_| s.has_processors())
                };
                estimate(s.line.mean(here))
            }),
        ],
    )
}

/// What keeps updates from the ceiling is not the device.
fn below_ceiling(of: Estimate, jobs: Vec<usize>, on_model: bool) -> Finding {
    let more = |share: f64| 100.0 / share - 1.0;
    let gain = Estimate {
        value: more(of.value),
        low: of.high.map(more),
        high: of.low.filter(|l| *l > 0.0).map(more),
        ..of
    };
    Finding {
        id: "kv-ceiling".into(),
        text: format!(
            "Random updates reach {:.0} % of what the raw device's mixed IOPS allow at the same depth",
            of.value
        ),
        advice: if on_model {
            "look at the table of waits: latches, stalls or the time of an operation (--load) take the rest"
        } else {
            "look at the table of waits: latches, stalls or the CPU take the rest"
        }
        .into(),
        confidence: match of.relative_half_width() {
            Some(w) if w < 0.1 => "strong",
            _ => "weak",
        }
        .into(),
        jobs,
        evidence: vec!["kv-table".into(), "kv-waits".into()],
        gain: Some(gain),
        refuted_by: "More repeats that come nearer to the ceiling: --repeats 10.".into(),
        ..Finding::default()
    }
}

/// The last repeat of each line.
fn over_time(lines: &[Line]) -> Chart {
    let last = |l: &Line| Some((l.setting.label(), l.repeats.last()?.course.points()));
    line_chart(
        "kv-over-time",
        "Rate over time, last repeat",
        axis("time", "s", false),
        axis("operations", "1/s", false),
        lines.iter().filter_map(last).collect(),
    )
}

fn sweeps(lines: &[Line], evidence: &Evidence<'_>) -> Vec<Chart> {
    let one = |sweep, id, title, x: Axis, at: fn(&Cell) -> f64| {
        let points: Vec<_> = lines
            .iter()
            .filter(|l| l.setting.workload().sweep == sweep)
            .map(|l| point(at(&l.setting), l.rate(evidence)))
            .collect();
        let y = axis("operations", "1/s", false);
        (!points.is_empty()).then(|| {
            let lines = vec![series("updates", points)];
            chart(id, title, ChartKind::Line, x, y, lines)
        })
    };
    let pages = one(
        Sweep::Pages,
        "kv-pages",
        "Random updates by page size",
        axis("page", "bytes", false),
        |c| c.page as f64,
    );
    let caches = one(
        Sweep::Caches,
        "kv-caches",
        "Random updates by cached share",
        axis("cached", "%", false),
        |c| c.cache,
    );
    pages.into_iter().chain(caches).collect()
}
