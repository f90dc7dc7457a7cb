//! What zones show: how many to keep open, whether to append or to write, and what resets and finishes cost.

use fathom_bench::cells::Cell;
use fathom_bench::parts::{
    axis, chart, estimate, facts, headline, number, point, series, table, text,
};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::compare::{Difference, Good, Verdict, paired};
use fathom_telemetry::schema::{Cell as TableCell, ChartKind, Finding, Section, Table};
use fathom_telemetry::{Bytes, Op};

use super::{Beyond, ZonesResult};

const GROUP: &str = "Zones";

/// How much more one point delivers than another, from the repeats that took turns.
fn gain(of: &Cell, over: &Cell) -> Option<Difference> {
    let rate = |c: &Cell, repeat: usize| {
        let job = &c.repeats.get(repeat)?.1;
        let d = job.write.as_ref().filter(|d| d.ios > 0 && !job.is_void())?;
        Some(d.bytes_per_second)
    };
    let repeats = of.repeats.len().min(over.repeats.len());
    let ratios: Vec<f64> = (0..repeats)
        .filter_map(|r| Some(rate(of, r)? / rate(over, r)?))
        .collect();
    paired(&ratios, Good::More)
}

fn best(cells: &[Cell]) -> Option<&Cell> {
    let value = |c: &&Cell| c.bandwidth().map(|b| b.value);
    let known = cells.iter().filter(|c| value(c).is_some());
    known.max_by(|a, b| value(a).unwrap_or(0.0).total_cmp(&value(b).unwrap_or(0.0)))
}

/// The fewest that deliver as much as the most: nothing that is better is shown.
fn enough(cells: &[Cell]) -> Option<&Cell> {
    let most = best(cells)?;
    cells.iter().find(|c| {
        c.stem == most.stem
            || gain(most, c).is_some_and(|d| d.verdict == Verdict::NoDifferenceShown)
    })
}

/// In percent, with its interval.
fn percent(d: &Difference) -> String {
    let p = |v: f64| format!("{:+.0} %", 100.0 * v);
    match (d.relative.low, d.relative.high) {
        (Some(low), Some(high)) => format!(
            "{} (95 % interval {} to {})",
            p(d.relative.value),
            p(low),
            p(high)
        ),
        _ => format!("{} (one repeat: no interval)", p(d.relative.value)),
    }
}

impl ExperimentResult for ZonesResult {
    const EXPERIMENT: &'static str = "zones";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        shown.sections.push(self.about());
        let writes = evidence.cells(&self.writes);
        let appends = evidence.cells(&self.appends);
        if !writes.is_empty() {
            self.writing(&writes, &appends, shown);
        }
        let managed = evidence.cells(&self.managed);
        if managed.iter().any(|c| !c.repeats.is_empty()) {
            managing(&managed, shown);
        }
        let reads = evidence.cells(&self.reads);
        if !reads.is_empty() {
            reading(&reads, shown);
        }
    }
}

impl ZonesResult {
    /// What zones there are; nothing of it was measured.
    fn about(&self) -> Section {
        let (f, l) = (&self.found, &self.found.limits);
        let limit = |n: Option<u32>| n.map_or(text("no limit"), |n| number(Some(n.into())));
        let states = f.states.iter().map(|(s, n)| format!("{n} {}", s.word()));
        let states: Vec<String> = states.collect();
        let rows = vec![
            ("model", text(l.model.clone())),
            ("zones", number(Some(f.zones as f64))),
            ("of these conventional", number(Some(f.conventional as f64))),
            ("size of a zone", text(Bytes(l.zone_bytes).to_string())),
            ("of it can be written", text(Bytes(f.capacity).to_string())),
            ("open at a time, at most", limit(l.max_open)),
            ("active at a time, at most", limit(l.max_active)),
            (
                "largest append",
                match l.append_bytes {
                    0 => text("none"),
                    n => text(Bytes(n).to_string()),
                },
            ),
            ("state when found", text(states.join(", "))),
            ("written when found", text(Bytes(f.written).to_string())),
        ];
        let mut tables = vec![facts("zones-found", "The zones", rows)];
        if !self.beyond.is_empty() {
            tables.push(beyond(&self.beyond));
        }
        let left = match (self.options.report, self.left_written) {
            (true, _) => "Nothing was written or reset.".to_owned(),
            (_, true) => format!(
                "{} zones were used; what was written last is still in them.",
                self.used
            ),
            (_, false) => format!("{} zones were used, and are empty now.", self.used),
        };
        Section {
            id: "zones".into(),
            title: "Zones".into(),
            text: left,
            tables,
            ..Section::default()
        }
    }

    fn writing(&self, writes: &[Cell], appends: &[Cell], shown: &mut Shown) {
        let depth = |c: &Cell| f64::from(c.spec.qd);
        if let Some(most) = best(writes) {
            let label = format!("largest write bandwidth, at {} open", most.spec.qd);
            let top = headline(
                most,
                GROUP,
                &label,
                "zones-write",
                "bytes/s",
                most.bandwidth(),
            );
            shown.headlines.push(top);
        }
        shown.findings.extend(open_zones(writes));
        // The first is the write that appends are held against.
        let (one, more) = match appends.split_first() {
            Some((one, more)) => (Some(one), more),
            None => (None, appends),
        };
        if let (Some(one), Some(most)) = (one, best(more)) {
            let label = format!(
                "largest append bandwidth in one zone, at {} under way",
                most.spec.qd
            );
            let top = headline(
                most,
                GROUP,
                &label,
                "zones-append",
                "bytes/s",
                most.bandwidth(),
            );
            shown.headlines.push(top);
            shown.findings.extend(append_or_write(one, most));
        }
        let line = |name: &str, cells: &[Cell]| {
            let points = cells.iter().map(|c| point(depth(c), c.bandwidth()));
            series(name, points.collect())
        };
        let mut lines = vec![line("writes, one in each open zone", writes)];
        if !more.is_empty() {
            lines.push(line("appends to one zone", more));
        }
        let rows = writes.iter().chain(appends);
        let why = self.no_appends.as_ref().map_or(String::new(), |why| {
            format!(" Appends were not measured: {why}.")
        });
        let checked = match more.is_empty() {
            true => "",
            false => {
                " The place that the drive returned was checked for every append: inside the zone that was asked for, and none twice."
            }
        };
        shown.sections.push(Section {
            id: "zones-writes".into(),
            title: format!("Writes of {}", Bytes(self.bs)),
            text: format!(
                "All take turns, each on zones that were just reset. A write goes to the write pointer, so that there is one under way in each open zone; appends name the zone alone, and any number is under way in it.{checked}{why}"
            ),
            charts: vec![chart(
                "zones-bandwidth",
                "Bandwidth by writes or appends under way",
                ChartKind::Line,
                axis("under way", "", true),
                axis("bandwidth", "bytes/s", false),
                lines,
            )],
            tables: vec![table("zones-writes-table", "Writes and appends", rows, &[
                ("what", "", &|c| text(what(c))),
                ("under way", "", &|c| number(Some(depth(c)))),
                ("bandwidth", "bytes/s", &|c| estimate(c.bandwidth())),
                ("mean latency", "ns", &|c| estimate(c.latency(Op::Write))),
                ("p99", "ns", &|c| number(c.percentile(Op::Write, 0.99))),
            ])],
            ..Section::default()
        });
    }
}

fn what(c: &Cell) -> &'static str {
    use fathom_io::job::{Command, Engine};
    match (c.spec.command, c.spec.engine) {
        (Command::Append, _) => "appends to one zone",
        (_, Engine::UringCmd) => "write command to one zone",
        _ => "writes, one in each open zone",
    }
}

fn beyond(all: &[Beyond]) -> Table {
    table(
        "zones-beyond",
        "Beyond the limits",
        all,
        &[
            ("of zones that are", "", &|b| {
                text(if b.active { "active" } else { "open" })
            }),
            ("limit", "", &|b| number(Some(b.limit.into()))),
            ("reached", "", &|b| number(Some(b.reached.into()))),
            ("then the device said", "", &|b| match &b.said {
                Some(said) => text(said.clone()),
                None => text("nothing: it allowed one more than its limit"),
            }),
        ],
    )
}

fn open_zones(writes: &[Cell]) -> Option<Finding> {
    let (one, most, enough) = (writes.first()?, best(writes)?, enough(writes)?);
    let gained = gain(most, one).filter(|_| most.stem != one.stem);
    let n = enough.spec.qd;
    let (said, advice, confidence) = match &gained {
        Some(d) if d.verdict == Verdict::Better && n > 1 => (
            format!(
                "{} open zones deliver {} against one; from {n} on nothing more is shown to be gained.",
                most.spec.qd,
                percent(d)
            ),
            format!("write {n} zones at the same time, each with one write under way"),
            "strong",
        ),
        Some(d) => (
            format!(
                "More open zones are not shown to deliver more than one: {} at {}.",
                percent(d),
                most.spec.qd
            ),
            String::new(),
            "weak",
        ),
        None => (
            "One open zone delivers the most: more of them are not faster.".to_owned(),
            String::new(),
            "weak",
        ),
    };
    Some(Finding {
        id: "zones-open".into(),
        text: said,
        advice,
        confidence: confidence.into(),
        jobs: writes.iter().flat_map(Cell::indices).collect(),
        evidence: vec!["zones-writes-table".into()],
        refuted_by: "A longer --time, or another --bs, whose bandwidths come in another order."
            .into(),
        ..Finding::default()
    })
}

fn append_or_write(one: &Cell, most: &Cell) -> Option<Finding> {
    let d = gain(most, one)?;
    let advice = match d.verdict {
        Verdict::Better => format!(
            "append where several writers share a zone, {} at a time",
            most.spec.qd
        ),
        Verdict::Worse => "write at the pointer: appends cost here".into(),
        Verdict::NoDifferenceShown | Verdict::NotComparable => String::new(),
    };
    let jobs = [one, most].into_iter().flat_map(Cell::indices).collect();
    Some(Finding {
        id: "zones-append".into(),
        text: format!(
            "In one zone, {} appends under way deliver {} against one write after another, both as commands past the block layer.",
            most.spec.qd,
            percent(&d)
        ),
        confidence: if advice.is_empty() { "weak" } else { "strong" }.into(),
        advice,
        jobs,
        evidence: vec!["zones-writes-table".into()],
        refuted_by:
            "A longer --time whose interval contains no difference, or one of the other sign."
                .into(),
        ..Finding::default()
    })
}

fn managing(cells: &[Cell], shown: &mut Shown) {
    let what = |c: &Cell| match c.stem.as_str() {
        "reset-written" => "reset of a zone with data",
        "finish" => "finish of a zone with one block",
        _ => "reset of a finished zone",
    };
    let latency = |c: &Cell| c.latency(Op::Trim);
    let extreme = |c: &Cell, most: bool| -> TableCell {
        let all = c.valid().filter_map(|j| {
            let d = j.trim.as_ref()?;
            if most {
                d.service_ns.max
            } else {
                d.service_ns.min
            }
        });
        let found = if most { all.max() } else { all.min() };
        number(found.map(|v| v as f64))
    };
    if let Some(reset) = cells.first() {
        let top = headline(
            reset,
            GROUP,
            "reset of a zone with data, mean",
            "zones-reset",
            "ns",
            latency(reset),
        );
        shown.headlines.push(top);
    }
    let count = |c: &Cell| {
        c.valid()
            .filter_map(|j| j.trim.as_ref())
            .map(|d| d.ios)
            .sum::<u64>()
    };
    shown.sections.push(Section {
        id: "zones-managed".into(),
        title: "Resets and finishes".into(),
        text: "One after another, each timed as an operation, as applications issue them (ioctl)."
            .into(),
        tables: vec![table(
            "zones-managed-table",
            "Operations on zones",
            cells,
            &[
                ("what", "", &|c| text(what(c))),
                ("how many", "", &|c| number(Some(count(c) as f64))),
                ("mean", "ns", &|c| estimate(latency(c))),
                ("least", "ns", &|c| extreme(c, false)),
                ("p50", "ns", &|c| number(c.percentile(Op::Trim, 0.5))),
                ("p99", "ns", &|c| number(c.percentile(Op::Trim, 0.99))),
                ("most", "ns", &|c| extreme(c, true)),
            ],
        )],
        ..Section::default()
    });
}

fn reading(cells: &[Cell], shown: &mut Shown) {
    shown.sections.push(Section {
        id: "zones-reads".into(),
        title: "Reads of what is written".into(),
        text: "Below the write pointers, one at a time, in the longest stretch that is written without a gap: behind a pointer a device answers without its medium.".into(),
        tables: vec![table("zones-reads-table", "Reads", cells, &[
            ("order", "", &|c| text(if c.spec.rw.is_random() { "random" } else { "sequential" })),
            ("size", "bytes", &|c| number(Some(c.spec.bs.max().0 as f64))),
            ("of", "", &|c| text(c.spec.size.unwrap_or_default().to_string())),
            ("mean latency", "ns", &|c| estimate(c.latency(Op::Read))),
            ("p99", "ns", &|c| number(c.percentile(Op::Read, 0.99))),
            ("bandwidth", "bytes/s", &|c| estimate(c.bandwidth())),
        ])],
        ..Section::default()
    });
}
