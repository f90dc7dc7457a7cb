//! What the measurements say: transactions and latency by database and by script, what is carried, and what limits it.

use fathom_bench::parts::{
    axis, chart, estimate, headline_of, line_chart, number, point, series, table, text,
};
use fathom_bench::results::{Evidence, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::Histogram;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Headline, Section, Table};

use super::super::bound;
use super::super::budget::more_cache;
use super::super::objective::{Steps, steps_table};
use super::super::settings;
use super::super::settings_seen::{DatabaseSeen, beside};
use super::super::tried::{self, Pair, Tried};
use super::driver::Tries;
use super::workload::Mode;
use super::{Counted, Line, Point, Repeat, SqlResult};
use crate::loads::quantile;

/// A database with what it rests on.
struct Shows<'a> {
    seen: &'a DatabaseSeen,
    /// The database, with what is tried on it.
    name: String,
    /// Without steps.
    line: &'a Line,
    steps: Steps<'a, Point, Counted>,
    kinds: &'a [String],
    evidence: &'a Evidence<'a>,
}

/// Transactions of a database, or a kind of them, that were done, and what became of those that it undid.
struct Undone<'a> {
    database: &'a str,
    kind: &'a str,
    tries: Tries,
    done: u64,
}

/// A kind of transactions on a database.
struct Kind<'a> {
    database: &'a str,
    name: &'a str,
    latency: Histogram,
    /// Of all kinds: transactions, and ns in them.
    all: (u64, f64),
}

impl Kind<'_> {
    fn spent(&self) -> f64 {
        self.latency.moments().mean().unwrap_or(0.0) * self.latency.count() as f64
    }

    /// Share of the clients' time, percent.
    fn time_share(&self) -> Option<f64> {
        (self.all.1 > 0.0).then(|| self.spent() / self.all.1 * 100.0)
    }
}

impl<'a> Shows<'a> {
    fn name(&self) -> &str {
        &self.name
    }

    /// With what was asked for, and nothing that is tried.
    fn is_plain(&self) -> bool {
        self.line.setting.tried.is_empty()
    }

    /// What became of transactions that the database undid, with those that were done.
    fn tries(&self) -> (Tries, u64) {
        let repeats = self.line.repeats.iter();
        let none = Tries {
            retried: Some(0),
            ..Tries::default()
        };
        repeats.fold((none, 0), |(tries, done), r| {
            (tries.with(r.beside.tries.all), done + r.operations)
        })
    }

    /// The same of each kind of which it is known; nothing of the only one.
    fn tries_of_kinds(&self) -> Vec<Undone<'_>> {
        let kinds = self.kinds();
        let of = |(k, kind): (usize, &Kind<'_>)| {
            let of = |r: &Repeat| r.beside.tries.of_kinds.get(k).copied().flatten();
            let tries: Option<Vec<Tries>> = self.line.repeats.iter().map(of).collect();
            Some(Undone {
                database: self.name(),
                kind: self.kinds[k].as_str(),
                tries: tries?.into_iter().reduce(Tries::with)?,
                done: kind.latency.count(),
            })
        };
        let several = kinds.len() > 1;
        let all = kinds.iter().enumerate().filter(|_| several);
        all.filter_map(of).collect()
    }

    fn rate(&self) -> Option<Estimate> {
        self.line.rate(self.evidence)
    }

    /// With what was seen of the server.
    fn server(&self) -> bound::Seen<'a> {
        bound::Seen::of(self.name().to_owned(), self.line, self.evidence, |c| {
            &c.seen
        })
    }

    /// What bounds the rate of its closed loop, where that is shown.
    fn bound(&self) -> Option<Finding> {
        let what = format!(
            "{}, {:.0} transactions per second",
            self.name(),
            self.rate()?.value
        );
        let id = format!("sql-{}", self.name());
        self.server().finding(&id, &what, "sql-server")
    }

    fn kinds(&self) -> Vec<Kind<'_>> {
        let latency = |k: usize| {
            self.line
                .latency_of(self.evidence, |r| r.beside.kinds.get(k).copied().flatten())
        };
        let kind = |(k, name): (usize, &'a String)| Kind {
            database: self.name(),
            name,
            latency: latency(k),
            all: (0, 0.0),
        };
        let mut kinds: Vec<Kind<'_>> = self.kinds.iter().enumerate().map(kind).collect();
        let count = kinds.iter().map(|k| k.latency.count()).sum();
        let spent = kinds.iter().map(Kind::spent).sum();
        kinds.iter_mut().for_each(|k| k.all = (count, spent));
        kinds
    }

    fn busy(&self) -> Option<Estimate> {
        self.line.mean(|r| Some(r.beside.seen.processors? * 100.0))
    }

    /// Share of the time in which the device had work, percent.
    fn device_busy(&self) -> Option<Estimate> {
        self.line.mean(|r| {
            let job = r.job(self.evidence)?;
            let busy = job.device.as_ref()?.busy_ms as f64 * 1e6 / job.wall_ns as f64;
            Some((busy * 100.0).min(100.0))
        })
    }

    /// What it carries, and which kind takes the time.
    fn conclusion(&self) -> String {
        let Some(rate) = self.rate() else {
            return format!("{}: nothing valid was measured.", self.name());
        };
        let between = match (rate.low, rate.high) {
            (Some(low), Some(high)) => format!(" ({:.0} to {high:.0})", low.max(0.0)),
            _ => String::new(),
        };
        let mut said = format!(
            "{}: {:.0} transactions per second{between}",
            self.name(),
            rate.value
        );
        let (tries, done) = self.tries();
        if tries.failed() > 0 {
            let share = tries.failed() as f64 / (done + tries.failed()) as f64 * 100.0;
            said.push_str(&format!("; {share:.2} % failed, and are in no rate"));
        }
        let kinds = self.kinds();
        let slow = kinds.iter().filter(|_| kinds.len() > 1);
        let slow = slow.max_by(|a, b| a.spent().total_cmp(&b.spent()));
        if let Some((kind, share)) = slow.and_then(|k| Some((k, k.time_share()?))) {
            let part = kind.latency.count() as f64 / kind.all.0.max(1) as f64 * 100.0;
            said.push_str(&format!(
                "; {} is {part:.0} % of them and {share:.0} % of the clients' time",
                kind.name
            ));
        }
        said.push('.');
        said.push_str(&self.steps.sentence());
        said
    }

    fn finding(&self) -> Finding {
        let steps = self.steps.lines.iter().flat_map(|l| l.jobs());
        Finding {
            id: format!("sql-{}-carries", self.name()),
            text: self.conclusion(),
            confidence: "moderate".into(),
            jobs: self.line.jobs().into_iter().chain(steps).collect(),
            evidence: vec!["sql-table".into()],
            good_for: !self.steps.lines.is_empty(),
            refuted_by:
                "the same load for longer, with more repeats, or with another number of clients"
                    .into(),
            ..Finding::default()
        }
    }

    fn headlines(&self) -> Vec<Headline> {
        let name = self.name();
        let mut all = vec![Headline {
            flags: more_cache(name, self.seen.unlimited.as_deref())
                .into_iter()
                .collect(),
            ..headline_of(
                "Own transactions",
                &format!("{name}: transactions"),
                &format!("sql-{name}"),
                "1/s",
                self.rate(),
                self.line.jobs(),
            )
        }];
        if !self.steps.lines.is_empty() {
            let id = format!("sql-{name}-carried");
            all.push(self.steps.headline("Own transactions", &id));
        }
        all
    }
}

/// Each database, with and without what is tried on it.
fn all_of<'a>(result: &'a SqlResult, evidence: &'a Evidence<'_>) -> Vec<Shows<'a>> {
    let objective = result.options.objective.unwrap_or_default();
    let of = |(at, seen): (usize, &'a DatabaseSeen)| {
        let own = (result.lines.iter()).filter(move |l| l.setting.database == at);
        let (steps, closed): (Vec<&Line>, Vec<&Line>) =
            own.partition(|l| l.setting.share.is_some());
        closed.into_iter().map(move |line| Shows {
            seen,
            name: settings::named(&seen.name, &line.setting.tried),
            line,
            steps: Steps {
                name: &seen.name,
                lines: steps.clone(),
                objective,
                evidence,
            },
            kinds: &result.kinds,
            evidence,
        })
    };
    result.seen.iter().enumerate().flat_map(of).collect()
}

/// Section and headlines.
pub(super) fn present<'a>(result: &'a SqlResult, evidence: &'a Evidence<'_>, shown: &mut Shown) {
    let o = &result.options;
    let all = all_of(result, evidence);
    let plain = || all.iter().filter(|s| s.is_plain());
    if all.is_empty() {
        return;
    }
    let about = |s: &Shows<'_>| s.seen.about(s.name());
    let loop_of = match o.rate.filter(|_| o.objective.is_none()) {
        Some(rate) => format!("{rate} transactions per second that come at random moments"),
        None => "each asks again as soon as it was answered".into(),
    };
    let mut section = Section {
        id: "sql".into(),
        title: "Own transactions".into(),
        text: format!(
            "{} by weight, {} clients, {loop_of}; scripts' statements {}, buffer pool {}{}. Databases in turns. {}",
            result.kinds.join(", "),
            o.clients,
            match o.mode {
                Mode::Simple => "as text",
                Mode::Prepared => "prepared",
            },
            o.pool,
            o.settings.in_words(),
            plain().map(about).collect::<Vec<_>>().join(" ")
        ),
        charts: charts(&all),
        tables: vec![rates(&all), by_kind(&all)],
        ..Section::default()
    };
    if o.objective.is_some() {
        let steps: Vec<&Steps<'_, Point, Counted>> = all.iter().map(|s| &s.steps).collect();
        section.tables.push(steps_table("sql-steps", &steps));
    }
    let undone = |s: &Shows<'_>| s.tries().0.again + s.tries().0.failed() > 0;
    if o.max_tries > 0 || all.iter().any(undone) {
        section.tables.push(tries(&all));
    }
    let tried = Tried::all(pairs(&all, &result.kinds), evidence, place(&all));
    if !tried.is_empty() {
        section.tables.push(tried::table("sql-try", &tried));
    }
    let checked = |s: &&Shows<'_>| s.line.repeats.iter().any(|r| r.beside.pgbench.is_some());
    let checked: Vec<&Shows<'_>> = all.iter().filter(checked).collect();
    if !checked.is_empty() {
        section.tables.push(cross_check(&checked));
    }
    let servers: Vec<_> = all.iter().map(Shows::server).collect();
    section.tables.push(bound::counters("sql-server", &servers));
    shown.findings.extend(plain().map(Shows::finding));
    shown.findings.extend(tried::findings("sql-try", &tried));
    let closed = o.rate.is_none() || o.objective.is_some();
    let bounds = plain().filter_map(Shows::bound);
    shown.findings.extend(bounds.filter(|_| closed));
    let looked: Vec<_> = all.iter().map(|s| (s.seen, s.line)).collect();
    shown
        .findings
        .push(beside(("sql", "sql-table"), &looked, evidence));
    shown.sections.push(section);
    shown.headlines.extend(plain().flat_map(Shows::headlines));
}

/// Each setting that was tried, with the same database without it.
fn pairs<'a>(all: &[Shows<'a>], kinds: &[String]) -> Vec<Pair<'a, Point, Counted>> {
    let of = |with: &Shows<'a>| {
        let same =
            |s: &&Shows<'a>| s.is_plain() && s.line.setting.database == with.line.setting.database;
        let setting = &with.line.setting.tried;
        Some(Pair {
            with: with.line,
            without: all.iter().find(same)?.line,
            setting: setting.join(", "),
            load: match kinds {
                [one] => one.clone(),
                _ => "all".into(),
            },
            label: format!("{}-{}", with.seen.name, settings::label(setting)),
        })
    };
    let tried = all.iter().filter(|s| !s.is_plain());
    tried.filter_map(of).collect()
}

/// Where settings of the server are written down.
fn place(all: &[Shows<'_>]) -> &'static str {
    tried::place(all.iter().any(|s| s.seen.name == "postgresql"))
}

/// Counted as pgbench does: failed and retried are shares of all that were begun, done or not.
fn tries(all: &[Shows<'_>]) -> Table {
    let of = |s| {
        let (tries, done) = Shows::tries(s);
        let whole = Undone {
            database: s.name(),
            kind: "all",
            tries,
            done,
        };
        std::iter::once(whole).chain(s.tries_of_kinds())
    };
    let rows: Vec<Undone<'_>> = all.iter().flat_map(of).collect();
    let share = |u: &Undone<'_>, of: Option<u64>| {
        let begun = (u.done + u.tries.failed()) as f64;
        number(of.filter(|_| begun > 0.0).map(|n| n as f64 / begun * 100.0))
    };
    let count = |n: Option<u64>| number(n.map(|n| n as f64));
    table(
        "sql-tries",
        "Transactions that the database undid, all repeats together",
        &rows,
        &[
            ("database", "", &|u| text(u.database)),
            ("transactions", "", &|u| text(u.kind)),
            ("processed", "", &|u| count(Some(u.done))),
            ("failed", "", &|u| count(Some(u.tries.failed()))),
            ("failed, of all", "%", &|u| share(u, Some(u.tries.failed()))),
            ("serialization failures", "", &|u| {
                count(Some(u.tries.conflicts))
            }),
            ("deadlock failures", "", &|u| count(Some(u.tries.deadlocks))),
            ("retried", "", &|u| count(u.tries.retried)),
            ("retried, of all", "%", &|u| share(u, u.tries.retried)),
            ("retries", "", &|u| count(Some(u.tries.again))),
        ],
    )
}

fn charts(all: &[Shows<'_>]) -> Vec<Chart> {
    let bars = all.iter().enumerate();
    let bars = bars.map(|(i, s)| point(i as f64, s.rate())).collect();
    let over_time = |s: &Shows<'_>| {
        let points = s.line.repeats.last()?.course.points();
        // Seconds, from tenths.
        let seconds = points.chunks(10).map(|c| {
            let sum: f64 = c.iter().map(|p| p.1).sum();
            (c[0].0, sum / c.len() as f64)
        });
        Some((s.name().to_owned(), seconds.collect()))
    };
    vec![
        Chart {
            categories: all.iter().map(|s| s.name().to_owned()).collect(),
            ..chart(
                "sql-rates",
                "Transactions",
                ChartKind::Bar,
                axis("database", "", false),
                axis("transactions", "1/s", false),
                vec![series("transactions", bars)],
            )
        },
        line_chart(
            "sql-over-time",
            "Transactions over time, last repeat",
            axis("time", "s", false),
            axis("transactions", "1/s", false),
            all.iter().filter_map(over_time).collect(),
        ),
    ]
}

fn rates(all: &[Shows<'_>]) -> Table {
    let device = |s: &Shows<'_>, i: usize| estimate(s.line.mean(|r| r.device(s.evidence)[i]));
    table(
        "sql-table",
        "Rates",
        all,
        &[
            ("database", "", &|s| text(s.name())),
            ("transactions", "1/s", &|s| estimate(s.rate())),
            ("mean", "ns", &|s| {
                estimate(s.line.mean(|r| r.latency(s.evidence)))
            }),
            ("p50", "ns", &|s| number(s.line.percentile(s.evidence, 0.5))),
            ("p99", "ns", &|s| {
                number(s.line.percentile(s.evidence, 0.99))
            }),
            ("device reads per transaction", "", &|s| device(s, 0)),
            ("device writes per transaction", "", &|s| device(s, 1)),
            ("device had work", "%", &|s| estimate(s.device_busy())),
            ("processors busy", "%", &|s| estimate(s.busy())),
            ("processors that fathom's driver used", "", &|s| {
                estimate(s.line.mean(|r| r.processors(s.evidence)))
            }),
        ],
    )
}

fn by_kind(all: &[Shows<'_>]) -> Table {
    let rows: Vec<Kind<'_>> = all.iter().flat_map(Shows::kinds).collect();
    table(
        "sql-kinds",
        "By script",
        &rows,
        &[
            ("database", "", &|r| text(r.database)),
            ("transaction", "", &|r| text(r.name)),
            ("share", "%", &|r| {
                let share = r.latency.count() as f64 / r.all.0.max(1) as f64 * 100.0;
                number((r.all.0 > 0).then_some(share))
            }),
            ("share of the clients' time", "%", &|r| {
                number(r.time_share())
            }),
            ("mean", "ns", &|r| number(r.latency.moments().mean())),
            ("p50", "ns", &|r| number(quantile(&r.latency, 0.5))),
            ("p90", "ns", &|r| number(quantile(&r.latency, 0.9))),
            ("p99", "ns", &|r| number(quantile(&r.latency, 0.99))),
        ],
    )
}

fn cross_check(all: &[&Shows<'_>]) -> Table {
    let ratio = |s: &Shows<'_>, f: fn(&Repeat, &Evidence<'_>) -> Option<f64>| {
        estimate(s.line.mean(|r| f(r, s.evidence)))
    };
    table(
        "sql-cross-check",
        "fathom's driver and pgbench on the same server, in turns",
        all,
        &[
            ("database", "", &|s| text(s.name())),
            ("fathom", "1/s", &|s| estimate(s.rate())),
            ("pgbench", "1/s", &|s| {
                ratio(s, |r, _| Some(r.beside.pgbench?.rate))
            }),
            ("fathom over pgbench", "", &|s| {
                ratio(s, |r, e| Some(r.rate(e)? / r.beside.pgbench?.rate))
            }),
            ("mean latency, fathom over pgbench", "", &|s| {
                ratio(s, |r, e| Some(r.latency(e)? / r.beside.pgbench?.latency))
            }),
        ],
    )
}
