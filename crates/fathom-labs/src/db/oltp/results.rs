//! What the measurements say: the figures and tables of Zhang et al. 2018, section V, with intervals.

use fathom_bench::parts::{axis, chart, estimate, headline_of, number, point, series, table, text};
use fathom_bench::results::{Evidence, Shown};
use fathom_stats::Estimate;
use fathom_stats::compare::{Good, Verdict, geometric_mean, paired};
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{Chart, ChartKind, Section, Table};
use serde::{Deserialize, Serialize};

use super::super::bound::{self, Seen};
use super::super::database::Database;
use super::super::mariadb::Instance;
use super::super::objective::{Steps, steps_table};
use super::super::settings_seen::DatabaseSeen;
use super::super::sql::Dialect;
use super::super::tried::{self, Pair, Tried};
use super::conclusion;
use super::{Cell, Counted, Experiment, FORMATS, Line, Mix, OltpResult, Repeat};
use crate::LabError;
use crate::confounders::SettingsSeen;
use fathom_system::lab_dir::LabDir;

/// What was seen of the servers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) version: String,
    /// Engine and server; InnoDB in MariaDB where it is not said.
    #[serde(default)]
    pub(super) engine: Option<String>,
    /// Settings of a server that the user runs.
    pub(super) yours: Option<String>,
    aio: String,
    /// Open table spaces with O_DIRECT, and all.
    direct: (usize, usize),
    bytes: Vec<TableBytes>,
    /// What the server says of durability and its files.
    #[serde(default)]
    settings: SettingsSeen,
    /// A PostgreSQL of the lab's own.
    #[serde(default)]
    postgres: Option<DatabaseSeen>,
}

/// Bytes of the tables by page size and format.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TableBytes {
    page: u64,
    format: usize,
    bytes: u64,
}

impl Facts {
    /// With nothing but the bytes of one plain table.
    #[cfg(test)]
    pub(super) fn of_table(page: u64, bytes: u64) -> Self {
        let format = 0;
        let bytes = vec![TableBytes {
            page,
            format,
            bytes,
        }];
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Looks at the one server, as it was filled.
    pub(super) fn of_one(&mut self, database: &mut Database, dir: &LabDir) -> Result<(), LabError> {
        self.version.clone_from(&database.version);
        match database.yours() {
            Some(yours) => {
                self.engine = Some(yours.about.engine.to_owned());
                self.yours = Some(yours.about.settings.clone());
            }
            None => {
                self.engine = Some("PostgreSQL".into());
                self.postgres = Some(database.seen(dir)?);
            }
        }
        Ok(())
    }

    /// Looks at a running server.
    pub(super) fn look(&mut self, instance: &Instance, cell: &Cell) {
        if self.aio.is_empty() {
            self.aio = instance.aio();
        }
        let (direct, all) = instance.direct_files();
        if all > 0 {
            self.direct = (direct, all);
        }
        if self.settings == SettingsSeen::default()
            && let Some(dir) = instance.socket_path().parent()
        {
            let asked = instance.session("");
            // A server that does not answer is somebody else's to report.
            let seen = asked.and_then(|mut s| SettingsSeen::ask(&mut s, Dialect::Mysql, dir));
            self.settings = seen.unwrap_or_default();
        }
        self.bytes
            .retain(|b| (b.page, b.format) != (cell.page, cell.format));
        self.bytes.push(TableBytes {
            page: cell.page,
            format: cell.format,
            bytes: instance.table_bytes("sbtest"),
        });
    }

    /// Bytes of a page of the lab's own PostgreSQL, as it says them.
    pub(super) fn postgres_page(&self) -> Option<u64> {
        let mut settings = self.postgres.as_ref()?.settings.settings.iter();
        settings.find(|s| s.0 == "block_size")?.1.parse().ok()
    }

    /// Bytes of the table of a page size and format.
    pub(super) fn table_bytes(&self, page: u64, format: usize) -> Option<u64> {
        let mut all = self.bytes.iter();
        all.find(|b| (b.page, b.format) == (page, format))
            .map(|b| b.bytes)
    }

    /// What may have shaped the numbers beside what was varied.
    pub(super) fn beside(&self) -> Vec<String> {
        let (direct, open) = self.direct;
        let twice = match (open, direct == open) {
            (0, _) => None,
            (_, true) => Some("no page is in the page cache, too".to_owned()),
            (_, false) => Some(format!(
                "{} of {open} open table spaces are in the page cache, too",
                open - direct
            )),
        };
        let postgres = self.postgres.as_ref();
        let asked = postgres.map_or(&self.settings, |p| &p.settings);
        twice.into_iter().chain(asked.in_words()).collect()
    }

    /// What was measured.
    pub(super) fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or("InnoDB (MariaDB)")
    }

    /// How the server does its I/O, and what of it was seen.
    fn in_words(&self) -> String {
        if let Some(settings) = &self.yours {
            return format!(
                "A server that was running, with its own settings: {settings}; what it counts includes what others ask of it."
            );
        }
        if let Some(seen) = &self.postgres {
            return format!(
                "Every commit is durable, where no setting says otherwise. {}. The server is started anew for each tried setting.",
                seen.proof
            );
        }
        let (direct, open) = self.direct;
        let aio = if self.aio.is_empty() {
            "not asked"
        } else {
            &self.aio
        };
        format!(
            "Every commit is durable, where no setting says otherwise. Asynchronous I/O: {aio}; {direct} of {open} open table spaces with O_DIRECT. The server is started anew for each page, format, pool and tried setting."
        )
    }
}

/// The sweep's own axis: its name, its unit, and where a cell stands on it.
fn sweep(experiment: Experiment) -> (&'static str, &'static str, fn(&Cell) -> f64) {
    match experiment {
        Experiment::PageSize => ("page", "bytes", |c| c.page as f64),
        Experiment::Threads => ("threads", "", |c| f64::from(c.threads)),
        Experiment::Cache => ("buffer pool", "bytes", |c| c.pool as f64),
        Experiment::Compression => ("compression", "", |c| c.format as f64),
        Experiment::One => ("threads", "", |c| f64::from(c.threads)),
        Experiment::Objective => ("share of the closed loop", "%", |c| {
            f64::from(c.load.unwrap_or(0))
        }),
        Experiment::Try => ("setting", "", |_| 0.0),
    }
}

/// Section, headlines and findings of each experiment.
pub(super) fn present(result: &OltpResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    for (name, experiment) in Experiment::ALL {
        let part = Part::of(result, evidence, name, experiment);
        if !part.lines.is_empty() {
            part.present(shown);
        }
    }
    shown.findings.extend(conclusion::beside(result, evidence));
}

/// See [`OltpResult::best_page`].
pub(super) fn best_page(
    result: &OltpResult,
    evidence: &Evidence<'_>,
    mix: Mix,
) -> Option<((f64, Vec<usize>), String)> {
    let part = Part::of(result, evidence, "page-size", Experiment::PageSize);
    let best = part.best(mix)?;
    let value = (best.first.setting.page as f64, best.jobs());
    Some((value, best.verdict()))
}

/// One experiment's lines.
struct Part<'a> {
    name: &'static str,
    experiment: Experiment,
    lines: Vec<&'a Line>,
    result: &'a OltpResult,
    evidence: &'a Evidence<'a>,
}

impl<'a> Part<'a> {
    fn of(
        result: &'a OltpResult,
        evidence: &'a Evidence<'a>,
        name: &'static str,
        experiment: Experiment,
    ) -> Self {
        let mine = |l: &&Line| l.setting.experiment == experiment && !l.repeats.is_empty();
        Self {
            name,
            experiment,
            lines: result.lines.iter().filter(mine).collect(),
            result,
            evidence,
        }
    }

    fn present(&self, shown: &mut Shown) {
        let name = self.name;
        let mut section = Section {
            id: format!("oltp-{name}"),
            title: format!("{}: {name}", self.result.facts.engine()),
            text: self.about(),
            tables: vec![self.rates_table(), self.counters_table()],
            ..Section::default()
        };
        let seen: Vec<Seen<'_>> = self.lines.iter().map(|l| self.seen(l)).collect();
        let id = format!("oltp-{name}-server");
        for (mix, what, line) in self.plateaus() {
            let of = format!("oltp-{name}-{}", mix.name());
            shown
                .findings
                .extend(self.seen(line).finding(&of, &what, &id));
        }
        section.tables.push(bound::counters(&id, &seen));
        if ![Experiment::One, Experiment::Try].contains(&self.experiment) {
            section.charts.extend(self.charts());
        }
        if self.experiment == Experiment::Try {
            let place = tried::place(self.result.facts.engine() == "PostgreSQL");
            let tried = Tried::all(self.pairs(), self.evidence, place);
            section.tables.push(tried::table("oltp-try", &tried));
            shown.findings.extend(tried::findings("oltp-try", &tried));
        }
        if self.experiment == Experiment::Objective {
            self.present_objective(&mut section, shown);
        }
        if [
            Experiment::PageSize,
            Experiment::Cache,
            Experiment::Compression,
        ]
        .contains(&self.experiment)
        {
            let best: Vec<Best<'_>> = self
                .mixes()
                .into_iter()
                .filter_map(|m| self.best(m))
                .collect();
            section.tables.push(self.best_table(&best));
        }
        shown
            .findings
            .extend(self.mixes().into_iter().filter_map(|m| {
                conclusion::of_mix(self.experiment, name, &self.lines, m, self.evidence)
            }));
        let checked = |r: &Repeat| r.beside.sysbench.is_some();
        if self.lines.iter().any(|l| l.repeats.iter().any(checked)) {
            let (table, said) = self.cross_check();
            section.tables.push(table);
            section.text.push_str(&said);
        }
        shown.sections.push(section);
        shown.headlines.extend(self.lines.iter().map(|line| {
            let label = line.setting.label();
            headline_of(
                self.result.facts.engine(),
                &format!("{label}: transactions"),
                &format!("oltp-{name}-{label}"),
                "1/s",
                line.rate(self.evidence),
                line.jobs(),
            )
        }));
    }

    /// Each setting that was tried, with the line of the same transactions without it.
    fn pairs(&self) -> Vec<Pair<'a, Cell, Counted>> {
        let of = |with: &'a Line| {
            let Cell { mix, tried, .. } = &with.setting;
            let same = |l: &&'a Line| l.setting.mix == *mix && l.setting.tried.is_empty();
            Some(Pair {
                with,
                without: self.lines.iter().copied().find(same)?,
                setting: tried.join(", "),
                load: mix.name().to_owned(),
                label: with.setting.label(),
            })
        };
        let tried = self.lines.iter().copied();
        let tried = tried.filter(|l| !l.setting.tried.is_empty());
        tried.filter_map(of).collect()
    }

    /// How all of it was measured.
    fn about(&self) -> String {
        let (o, facts) = (&self.result.options, &self.result.facts);
        format!(
            "{}{}. sysbench's OLTP transactions on one table of {} rows ({} keys) by fathom's own driver{}, measured once the buffer pool was full or did not grow any more, was missed as often as before, and the log ({}) was freed as fast as it was written. {} Repeats in turns.",
            facts.version,
            match o.settings.set.is_empty() {
                true => String::new(),
                false => format!(", all with {}", o.settings.set.join(", ")),
            },
            o.count,
            o.rows.name(),
            match &o.server {
                Some(server) => format!(" at {server}"),
                None => " over a unix socket".into(),
            },
            match o.server {
                Some(_) => "its own".into(),
                None => Bytes(super::log_bytes(o)).to_string(),
            },
            facts.in_words()
        )
    }

    /// What each kind of transactions carries within the objective.
    fn present_objective(&self, section: &mut Section, shown: &mut Shown) {
        let objective = self.result.options.objective;
        let of = |mix: Mix| {
            let open = |l: &&&Line| l.setting.load.is_some() && l.setting.mix == mix;
            Steps {
                name: mix.name(),
                lines: self.lines.iter().filter(open).copied().collect(),
                objective,
                evidence: self.evidence,
            }
        };
        let all: Vec<_> = self.mixes().into_iter().map(of).collect();
        for steps in &all {
            section.text.push_str(&steps.sentence());
            let id = format!("oltp-objective-{}-carried", steps.name);
            shown
                .headlines
                .push(steps.headline(self.result.facts.engine(), &id));
        }
        let all: Vec<_> = all.iter().collect();
        section
            .tables
            .push(steps_table("oltp-objective-steps", &all));
    }

    /// A line with what was seen of the server.
    fn seen(&self, line: &'a Line) -> Seen<'a> {
        Seen::of(line.setting.label(), line, self.evidence, |c| &c.seen)
    }

    /// Where each kind of transactions comes to its end, in words: with so many sessions that more bring nothing, where they
    /// are swept; else in the line with the highest rate. None where more sessions still bring more.
    fn plateaus(&self) -> Vec<(Mix, String, &'a Line)> {
        let of = |mix: Mix| {
            let lines: Vec<&'a Line> = (self.lines.iter().copied())
                // An open loop does what comes.
                .filter(|l| l.setting.mix == mix && l.setting.load.is_none())
                .filter(|l| l.repeats.iter().all(|r| r.beside.offered.is_none()))
                .collect();
            let rate = |l: &Line| l.rate(self.evidence).map(|e| e.value);
            if self.experiment != Experiment::Threads {
                let best = lines
                    .iter()
                    .filter_map(|l| Some((*l, rate(l)?)))
                    .max_by(|a, b| a.1.total_cmp(&b.1));
                let (line, rate) = best?;
                let what = format!(
                    "{}, {rate:.0} transactions per second",
                    line.setting.label()
                );
                return Some((mix, what, line));
            }
            // Not that more was not shown, but that no more than a tenth more is possible.
            let flat = |from: &Line, to: &Line| {
                let over = paired(&to.over(from, self.evidence), Good::More);
                over.and_then(|d| d.relative.high)
                    .is_some_and(|high| high <= 0.1)
            };
            let ends = |i: &usize| lines[i + 1..].iter().all(|l| flat(lines[*i], l));
            // One that nothing follows has no plateau.
            let at = (0..lines.len().saturating_sub(1)).find(ends)?;
            let (line, most) = (lines[at], lines.last()?.setting.threads);
            let (threads, rate) = (line.setting.threads, rate(line)?);
            let what = format!(
                "{}, {rate:.0} transactions per second with {threads} threads, and at most a tenth more with up to {most}",
                mix.name()
            );
            Some((mix, what, line))
        };
        self.mixes().into_iter().filter_map(of).collect()
    }

    fn mixes(&self) -> Vec<Mix> {
        let has = |m: &Mix| self.lines.iter().any(|l| l.setting.mix == *m);
        Mix::ALL.into_iter().filter(has).collect()
    }

    fn charts(&self) -> [Chart; 2] {
        let (label, unit, at) = sweep(self.experiment);
        let bars = self.experiment == Experiment::Compression;
        let one = |id: &str, title: String, y, value: &dyn Fn(&Line) -> Option<Estimate>| {
            let of = |mix: Mix| {
                let lines = self.lines.iter().filter(|l| l.setting.mix == mix);
                let points = lines.map(|l| point(at(&l.setting), value(l)));
                series(mix.name(), points.collect())
            };
            Chart {
                categories: match bars {
                    true => FORMATS.iter().map(|f| f.0.to_owned()).collect(),
                    false => Vec::new(),
                },
                ..chart(
                    &format!("oltp-{}-{id}", self.name),
                    &title,
                    if bars {
                        ChartKind::Bar
                    } else {
                        ChartKind::Line
                    },
                    axis(label, unit, !bars),
                    y,
                    self.mixes().into_iter().map(of).collect(),
                )
            }
        };
        [
            one(
                "rate",
                format!("Transactions by {label}"),
                axis("transactions", "1/s", false),
                &|l| l.rate(self.evidence),
            ),
            one(
                "latency",
                format!("Mean latency of a transaction by {label}"),
                axis("latency", "ns", false),
                &|l| l.mean(|r| r.latency(self.evidence)),
            ),
        ]
    }

    fn rates_table(&self) -> Table {
        let whole = |n: u64| number(Some(n as f64));
        let bytes = |c: &Cell| self.result.facts.table_bytes(c.page, c.format);
        table(
            &format!("oltp-{}-table", self.name),
            "Transactions",
            &self.lines,
            &[
                ("transactions", "", &|l| match self.experiment {
                    Experiment::Try => text(l.setting.label()),
                    _ => text(l.setting.mix.name()),
                }),
                ("page", "bytes", &|l| whole(l.setting.page)),
                ("compression", "", &|l| text(FORMATS[l.setting.format].0)),
                ("buffer pool", "bytes", &|l| whole(l.setting.pool)),
                ("threads", "", &|l| whole(l.setting.threads.into())),
                ("table", "bytes", &|l| {
                    number(bytes(&l.setting).map(|b| b as f64))
                }),
                ("rate", "1/s", &|l| estimate(l.rate(self.evidence))),
                ("statements", "1/s", &|l| {
                    let statements = l.setting.mix.statements() as f64;
                    estimate(l.rate(self.evidence).map(|e| e.scale(statements)))
                }),
                ("p50", "ns", &|l| number(l.percentile(self.evidence, 0.5))),
                ("p99", "ns", &|l| number(l.percentile(self.evidence, 0.99))),
                ("tried again", "", &|l| {
                    whole(l.repeats.iter().map(|r| r.beside.again).sum())
                }),
            ],
        )
    }

    fn counters_table(&self) -> Table {
        let per = |l: &Line, f: &dyn Fn(&Repeat) -> Option<f64>| estimate(l.mean(|r| r.per(f(r)?)));
        let over = |l: &Line, device: usize, engine: fn(&Repeat) -> Option<u64>| {
            estimate(l.mean(|r| {
                let counted = r.device(self.evidence)[device]? * r.operations as f64;
                let own = engine(r)?;
                (own > 100).then(|| counted / own as f64)
            }))
        };
        table(
            &format!("oltp-{}-counters", self.name),
            "What the engine, its process and the device counted (device over engine: 1 where they agree)",
            &self.lines,
            &[
                ("transactions", "", &|l| text(l.setting.label())),
                ("reads per transaction", "", &|l| {
                    per(l, &|r| Some(r.beside.seen.innodb?.reads as f64))
                }),
                ("writes per transaction", "", &|l| {
                    per(l, &|r| Some(r.beside.seen.innodb?.writes as f64))
                }),
                ("log syncs per transaction", "", &|l| {
                    per(l, &|r| r.beside.seen.innodb?.log_syncs.map(|n| n as f64))
                }),
                ("read by the server per transaction", "bytes", &|l| {
                    per(l, &|r| Some(r.beside.process?[0] as f64))
                }),
                ("written by the server per transaction", "bytes", &|l| {
                    per(l, &|r| Some(r.beside.process?[1] as f64))
                }),
                ("device reads over engine's", "", &|l| {
                    over(l, 0, |r| Some(r.beside.seen.innodb?.reads))
                }),
                ("device writes over engine's", "", &|l| {
                    over(l, 1, |r| Some(r.beside.seen.innodb?.writes))
                }),
            ],
        )
    }

    /// Which setting is best for some transactions; one setting is no choice.
    fn best(&self, mix: Mix) -> Option<Best<'_>> {
        let of_mix = self.lines.iter().filter(|l| l.setting.mix == mix);
        let mut ranked: Vec<(&Line, Estimate)> = of_mix
            .filter_map(|l| Some((*l, l.rate(self.evidence)?)))
            .collect();
        ranked.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
        let [(first, rate), others @ ..] = &ranked[..] else {
            return None;
        };
        (!others.is_empty()).then(|| Best {
            part: self,
            mix,
            first,
            rate: *rate,
            others: others.iter().map(|o| o.0).collect(),
        })
    }

    fn best_table(&self, best: &[Best<'_>]) -> Table {
        let (label, _, _) = sweep(self.experiment);
        table(
            &format!("oltp-{}-best", self.name),
            &format!("Best {label} by transactions"),
            best,
            &[
                ("transactions", "", &|b| text(b.mix.name())),
                ("best", "", &|b| text(self.setting(b.first))),
                ("rate", "1/s", &|b| estimate(Some(b.rate))),
                ("verdict (95 %)", "", &|b| text(b.verdict())),
            ],
        )
    }

    fn setting(&self, line: &Line) -> String {
        let c = &line.setting;
        match self.experiment {
            Experiment::PageSize => format!("{} KiB", c.page >> 10),
            Experiment::Threads | Experiment::One | Experiment::Objective => c.threads.to_string(),
            Experiment::Cache => format!("{} MiB", c.pool >> 20),
            Experiment::Compression => FORMATS[c.format].0.to_owned(),
            Experiment::Try => c.tried.join(", "),
        }
    }

    fn cross_check(&self) -> (Table, String) {
        let ratio = |l: &Line| l.mean(|r| Some(r.rate(self.evidence)? / r.beside.sysbench?));
        let ratios: Vec<f64> = self
            .lines
            .iter()
            .filter_map(|l| Some(ratio(l)?.value))
            .collect();
        let said = geometric_mean(&ratios).map_or(String::new(), |middle| {
            format!(
                " fathom's driver and sysbench differ by {:+.1} % on the same instances (geometric mean of {} settings, in turns).",
                (middle - 1.0) * 100.0,
                ratios.len()
            )
        });
        let table = table(
            &format!("oltp-{}-cross-check", self.name),
            "fathom's driver and sysbench on the same instance, in turns",
            &self.lines,
            &[
                ("transactions", "", &|l| text(l.setting.label())),
                ("fathom", "1/s", &|l| estimate(l.rate(self.evidence))),
                ("sysbench", "1/s", &|l| {
                    estimate(l.mean(|r| r.beside.sysbench))
                }),
                ("fathom over sysbench", "", &|l| estimate(ratio(l))),
            ],
        );
        (table, said)
    }
}

/// The setting that measured best for some transactions, and the others.
struct Best<'a> {
    part: &'a Part<'a>,
    mix: Mix,
    first: &'a Line,
    rate: Estimate,
    others: Vec<&'a Line>,
}

impl Best<'_> {
    /// Repeats of one round belong together.
    fn over(&self, other: &Line) -> Option<fathom_stats::compare::Difference> {
        paired(&self.first.over(other, self.part.evidence), Good::More)
    }

    fn jobs(&self) -> Vec<usize> {
        let all = self.others.iter().chain([&self.first]);
        all.flat_map(|l| l.jobs()).collect()
    }

    /// All that it was not shown to beat.
    fn like(&self) -> Vec<String> {
        let beaten = |l: &Line| self.over(l).is_some_and(|d| d.verdict == Verdict::Better);
        let like = self.others.iter().filter(|l| !beaten(l));
        like.map(|l| self.part.setting(l)).collect()
    }

    fn verdict(&self) -> String {
        let like = self.like();
        if like.is_empty() {
            "better than all others".to_owned()
        } else {
            format!("no difference shown to {}", like.join(", "))
        }
    }
}
