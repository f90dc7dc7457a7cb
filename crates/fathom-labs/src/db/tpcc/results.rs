//! What the measurements say: tpmC, latency by transaction, consistency.

use fathom_bench::parts::{
    axis, chart, column, estimate, headline_of, line_chart, number, point, series, table, text,
};
use fathom_bench::results::{Evidence, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell, Chart, ChartKind, Finding, Headline, Section, Table};
use fathom_telemetry::{Flag, FlagCode, Histogram, Nanos};

use super::super::bound::{self, Seen};
use super::super::budget::more_cache;
use super::super::settings;
use super::super::settings_seen::beside;
use super::super::tried::{self, Pair, Tried};
use super::check::CONDITIONS;
use super::rules::{self, Told};
use super::transactions::Kind;
use super::{Line, Repeat, TpccOptions, TpccResult};
use crate::conclude::{self, Choice, Told as Says};
use crate::loads::quantile;

/// A database, or one with what is tried on it, with what it rests on.
struct Shows<'a> {
    name: String,
    line: &'a Line,
    evidence: &'a Evidence<'a>,
}

impl<'a> Shows<'a> {
    /// With what was seen of the server.
    fn seen(&self) -> Seen<'a> {
        Seen::of(self.name().to_owned(), self.line, self.evidence, |c| {
            &c.seen
        })
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Nothing is tried on it.
    fn is_plain(&self) -> bool {
        self.line.setting.tried.is_empty()
    }

    /// New orders per minute.
    fn tpmc(&self) -> Option<Estimate> {
        let new_orders = |r: &Repeat| {
            r.job(self.evidence)?;
            let job = self.evidence.job(r.beside.kinds[0]?)?;
            Some(job.write.as_ref()?.iops * 60.0)
        };
        self.line.mean(new_orders)
    }

    /// Transactions per second, those that were rolled back included.
    fn rate(&self) -> Option<Estimate> {
        self.line.mean(|r| {
            let seconds = r.job(self.evidence)?.wall_ns as f64 / 1e9;
            Some(r.rate(self.evidence)? + r.beside.rolled_back as f64 / seconds)
        })
    }

    /// Share of new orders, percent.
    fn rolled_back(&self) -> Option<Estimate> {
        self.line.mean(|r| {
            let job = self.evidence.job(r.beside.kinds[0]?)?;
            let done = job.write.as_ref()?.ios + r.beside.rolled_back;
            (done > 0).then(|| r.beside.rolled_back as f64 / done as f64 * 100.0)
        })
    }

    fn latency(&self, kind: usize) -> Histogram {
        self.line
            .latency_of(self.evidence, |r| r.beside.kinds[kind])
    }

    /// By kind: its latency, and its share of all in percent.
    fn kinds(&self) -> Vec<(Kind, Histogram, f64)> {
        let each: Vec<Histogram> = (0..Kind::ALL.len()).map(|k| self.latency(k)).collect();
        let total: u64 = each.iter().map(Histogram::count).sum();
        Kind::ALL
            .into_iter()
            .zip(each)
            .map(|(kind, latency)| {
                let share = latency.count() as f64 / total.max(1) as f64 * 100.0;
                (kind, latency, share)
            })
            .collect()
    }

    /// What keeps its rate from being tpmC.
    fn broken(&self, o: &TpccOptions) -> Vec<String> {
        let kinds: Vec<_> = self
            .kinds()
            .iter()
            .map(|(kind, latency, share)| {
                let mean = latency.moments().mean().unwrap_or(0.0);
                (*kind, *share, mean, quantile(latency, 0.9))
            })
            .collect();
        let walls = self.line.repeats.iter().filter_map(|r| {
            let job = r.job(self.evidence)?;
            Some(Nanos(job.wall_ns))
        });
        let told = Told {
            pace: o.pace,
            warehouses: o.warehouses,
            terminals: o.terminals,
            time: walls.min().unwrap_or(Nanos::ZERO),
            open: o.rate.is_some(),
            inline: o.inline_deliveries,
            consistent: self.line.setting.after.is_some() && self.contradiction().is_none(),
            rate: self.tpmc().map_or(0.0, |e| e.value),
            kinds: &kinds,
        };
        told.broken()
    }

    /// What bounds the rate of its closed loop, where that is shown.
    fn bound(&self) -> Option<Finding> {
        let rate = self.rate()?.value;
        let what = format!("{}, {rate:.0} transactions per second", self.name());
        let id = format!("tpcc-{}", self.name());
        self.seen().finding(&id, &what, "tpcc-server")
    }

    fn about(&self) -> String {
        let seen = &self.line.setting;
        seen.database.about(&seen.database.name)
    }

    /// Which of the specification's rules hold, in sentences.
    fn rules(&self, o: &TpccOptions) -> String {
        let name = self.name();
        let holds = self.line.setting.after.is_some() && self.contradiction().is_none();
        let conditions = match holds {
            true => format!(" {name}: consistency conditions 1 to 12 hold before and after."),
            false => String::new(),
        };
        let broken = self.broken(o);
        let rules = match broken.is_empty() {
            true => "every rule of the specification that can be seen from here holds: the rate is tpmC, not audited".to_owned(),
            false => format!("new orders per minute, and not tpmC: {}", broken.join("; ")),
        };
        format!("{conditions} {name}: {rules}.")
    }

    /// What its rate is called.
    fn called(&self, o: &TpccOptions) -> &'static str {
        match self.broken(o).is_empty() {
            true => "tpmC",
            false => "new orders per minute",
        }
    }

    /// What does not hold: a database that loses or invents something has no rate.
    fn contradiction(&self) -> Option<Flag> {
        let bad = |found: &[i64; 12]| {
            let bad = CONDITIONS.iter().zip(found).filter(|(_, n)| **n != 0);
            let bad: Vec<String> = bad.map(|((id, ..), _)| id.to_string()).collect();
            bad.join(", ")
        };
        let seen = &self.line.setting;
        let (before, after) = (bad(&seen.before), bad(seen.after.as_ref()?));
        (!before.is_empty() || !after.is_empty()).then(|| {
            Flag::new(
                FlagCode::IoErrors,
                format!(
                    "{}: consistency conditions that do not hold before: [{before}]; after: [{after}]",
                    seen.database.name
                ),
                "do not use these rates: the database lost or invented something",
            )
        })
    }

    fn headline(&self, o: &TpccOptions) -> Headline {
        Headline {
            flags: self
                .contradiction()
                .into_iter()
                .chain(more_cache(
                    self.name(),
                    self.line.setting.database.unlimited.as_deref(),
                ))
                .collect(),
            ..headline_of(
                "TPC-C-like, not audited",
                &format!("{}: {}", self.name(), self.called(o)),
                &format!("tpcc-{}", self.name()),
                "",
                self.tpmc(),
                self.line.jobs(),
            )
        }
    }
}

/// Section and headlines.
pub(super) fn present(result: &TpccResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    let all: Vec<Shows<'_>> = result
        .lines
        .iter()
        .map(|line| Shows {
            name: settings::named(&line.setting.database.name, &line.setting.tried),
            line,
            evidence,
        })
        .collect();
    if all.is_empty() {
        return;
    }
    let plain: Vec<&Shows<'_>> = all.iter().filter(|s| s.is_plain()).collect();
    let o = &result.options;
    let mut section = Section {
        id: "tpcc".into(),
        title: "TPC-C-like, not audited".into(),
        text: [vec![load(o)], plain.iter().map(|s| s.about()).collect()]
            .concat()
            .join(" "),
        charts: charts(&all),
        tables: vec![rates(&all, o), latencies(&all, o), consistency(&plain)],
        flags: plain.iter().filter_map(|s| s.contradiction()).collect(),
    };
    let pairs: Vec<_> = all.iter().filter_map(|s| pair(s, &plain)).collect();
    let postgres = plain.iter().any(|s| s.name() == "postgresql");
    let tried = Tried::all(pairs, evidence, tried::place(postgres));
    if !tried.is_empty() {
        section.tables.push(tried::table("tpcc-try", &tried));
    }
    // Of a database that loses or invents something nothing is concluded.
    if section.flags.is_empty() {
        shown.findings.extend(tried::findings("tpcc-try", &tried));
        let bounds = plain.iter().filter_map(|s| s.bound());
        shown.findings.extend(bounds.filter(|_| o.rate.is_none()));
        shown.findings.extend(conclusion(&plain));
    }
    let servers: Vec<_> = all.iter().map(Shows::seen).collect();
    section
        .tables
        .push(bound::counters("tpcc-server", &servers));
    for s in &plain {
        section.text.push_str(&s.rules(o));
    }
    shown.sections.push(section);
    shown.headlines.extend(plain.iter().map(|s| s.headline(o)));
}

/// What all databases were asked for.
fn load(o: &TpccOptions) -> String {
    format!(
        "{} warehouses, {} terminals {}, deliveries {}, buffer pool {}{}. Databases in turns.",
        o.warehouses,
        o.terminals,
        waits(o),
        match o.inline_deliveries {
            true => "by the terminals themselves",
            false => "in the background",
        },
        o.pool,
        o.settings.in_words()
    )
}

/// A setting that was tried, with the same database without it.
fn pair<'a>(
    with: &Shows<'a>,
    plain: &[&Shows<'a>],
) -> Option<Pair<'a, super::Seen, super::Counted>> {
    let seen = &with.line.setting;
    let without = plain
        .iter()
        .find(|p| p.line.setting.database.name == seen.database.name)?;
    (!with.is_plain()).then(|| Pair {
        with: with.line,
        without: without.line,
        setting: seen.tried.join(", "),
        load: "TPC-C".into(),
        label: seen.label(),
    })
}

/// Which database does most under the same terminals, and what was looked at beside.
fn conclusion(all: &[&Shows<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    let rate = |s: &&Shows<'_>| s.tpmc().map_or(0.0, |e| e.value);
    let best = (0..all.len()).max_by(|a, b| rate(&all[*a]).total_cmp(&rate(&all[*b])));
    if let (Some(best), Some(first)) = (best, all.first()) {
        let told = Says {
            id: "tpcc-databases".into(),
            of: "TPC-C transactions",
            what: "on",
            advice: &|_| String::new(),
            tables: vec!["tpcc-table".into()],
        };
        let each: Vec<Choice<'_, _, _>> = all
            .iter()
            .map(|s| Choice {
                name: s.name().to_owned(),
                line: s.line,
            })
            .collect();
        found.extend(conclude::against(&each, best, &told, first.evidence));
        let looked: Vec<_> = all
            .iter()
            .map(|s| (&s.line.setting.database, s.line))
            .collect();
        found.push(beside(("tpcc", "tpcc-table"), &looked, first.evidence));
    }
    found
}

fn waits(o: &TpccOptions) -> String {
    let waits = match (o.pace.keying, o.pace.thinking) {
        (false, false) => return "without keying and think times".into(),
        (true, false) => "keying times",
        (false, true) => "think times",
        (true, true) => "keying and think times",
    };
    let scale = match o.pace.scale {
        1.0 => String::new(),
        s => format!(" of {s} of the specification's"),
    };
    format!("with {waits}{scale} on {} connections", o.clients())
}

fn charts(all: &[Shows<'_>]) -> Vec<Chart> {
    let bars = all.iter().enumerate();
    let bars = bars.map(|(i, s)| point(i as f64, s.tpmc())).collect();
    let over_time = |s: &Shows<'_>| {
        let points = s.line.repeats.last()?.course.points();
        // Seconds, from tenths.
        let seconds = points.chunks(10).map(|c| {
            let sum: f64 = c.iter().map(|p| p.1).sum();
            (c[0].0, sum / c.len() as f64 * 60.0)
        });
        Some((s.name().to_owned(), seconds.collect()))
    };
    vec![
        Chart {
            categories: all.iter().map(|s| s.name().to_owned()).collect(),
            ..chart(
                "tpcc-rates",
                "New orders per minute",
                ChartKind::Bar,
                axis("database", "", false),
                axis("new orders", "1/min", false),
                vec![series("new orders", bars)],
            )
        },
        line_chart(
            "tpcc-over-time",
            "New orders per minute over time, last repeat",
            axis("time", "s", false),
            axis("new orders", "1/min", false),
            all.iter().filter_map(over_time).collect(),
        ),
    ]
}

fn rates(all: &[Shows<'_>], o: &TpccOptions) -> Table {
    let device = |s: &Shows<'_>, i: usize| estimate(s.line.mean(|r| r.device(s.evidence)[i]));
    table(
        "tpcc-table",
        "Rates",
        all,
        &[
            ("database", "", &|s| text(s.name())),
            ("new orders", "1/min", &|s| estimate(s.tpmc())),
            ("transactions", "1/s", &|s| estimate(s.rate())),
            ("rolled back, as wanted", "%", &|s| {
                estimate(s.rolled_back())
            }),
            ("tried again", "%", &|s| {
                estimate(s.line.mean(|r| r.per(r.beside.again as f64 * 100.0)))
            }),
            ("called", "", &|s| text(s.called(o))),
            ("device reads per transaction", "", &|s| device(s, 0)),
            ("device writes per transaction", "", &|s| device(s, 1)),
            ("processors that fathom's driver used", "", &|s| {
                estimate(s.line.mean(|r| r.processors(s.evidence)))
            }),
        ],
    )
}

fn latencies(all: &[Shows<'_>], o: &TpccOptions) -> Table {
    struct Row<'a> {
        name: &'a str,
        kind: Kind,
        latency: Histogram,
        share: f64,
    }
    let rows: Vec<Row<'_>> = all
        .iter()
        .flat_map(|s| {
            s.kinds()
                .into_iter()
                .map(move |(kind, latency, share)| Row {
                    name: s.name(),
                    kind,
                    latency,
                    share,
                })
        })
        .collect();
    let done = |r: &Row<'_>| !r.latency.is_empty();
    let limit = |r: &Row<'_>| rules::limit(r.kind, o.inline_deliveries).0 as f64;
    table(
        "tpcc-latency",
        "Response times (deliveries from the moment they were queued)",
        &rows,
        &[
            ("database", "", &|r| text(r.name)),
            ("transaction", "", &|r| text(r.kind.name())),
            ("share", "%", &|r| number(done(r).then_some(r.share))),
            ("share asked for", "%", &|r| {
                let least = rules::of(r.kind).share;
                number((least > 0.0).then_some(least))
            }),
            ("mean", "ns", &|r| number(r.latency.moments().mean())),
            ("p50", "ns", &|r| number(quantile(&r.latency, 0.5))),
            ("p90", "ns", &|r| number(quantile(&r.latency, 0.9))),
            ("p90 at most", "ns", &|r| number(Some(limit(r)))),
            ("within it", "", &|r| {
                text(match quantile(&r.latency, 0.9) {
                    None => "too few",
                    Some(p) if p <= limit(r) => "yes",
                    Some(_) => "no",
                })
            }),
            ("p95", "ns", &|r| number(quantile(&r.latency, 0.95))),
            ("p99", "ns", &|r| number(quantile(&r.latency, 0.99))),
        ],
    )
}

fn consistency(all: &[&Shows<'_>]) -> Table {
    let word = |n: i64| match n {
        0 => "holds".to_owned(),
        -1 => "could not be asked".to_owned(),
        n => format!("{n} rows contradict it"),
    };
    let mut columns = vec![column("condition", ""), column("in words", "")];
    for m in all.iter().map(|s| &s.line.setting) {
        columns.push(column(&format!("{} before", m.database.name), ""));
        columns.push(column(&format!("{} after", m.database.name), ""));
    }
    let rows = CONDITIONS
        .iter()
        .enumerate()
        .map(|(i, (id, words, _))| {
            let mut row = vec![
                Cell::Text(format!("3.3.2.{id}")),
                Cell::Text((*words).into()),
            ];
            for m in all.iter().map(|s| &s.line.setting) {
                row.push(Cell::Text(word(m.before[i])));
                row.push(m.after.map_or(Cell::Hole(()), |a| Cell::Text(word(a[i]))));
            }
            row
        })
        .collect();
    Table {
        id: "tpcc-consistency".into(),
        title: "Consistency conditions".into(),
        columns,
        rows,
    }
}
