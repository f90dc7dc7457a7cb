//! What the measurements of the VM lab say: tables, charts, headlines, findings.

use fathom_bench::Cell;
use fathom_bench::parts::{
    axis, chart, estimate, headline, number, op_of, percentiles, point, series, table, text,
};
use fathom_bench::results::{Evidence, Shown};
use fathom_stats::Estimate;
use fathom_stats::compare::Verdict;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, Finding, Headline, Mark, Point, Section,
};

use super::{Fleet, LARGE, Load, Tried, VmOptions, VmResult, counted};

/// More machines no longer help where they bring less than this share of the most.
const SATURATED: f64 = 0.95;

/// A load on both sides, with its jobs gathered.
struct Pair {
    load: Load,
    pe: Cell,
    ve: Cell,
}

/// Everything that was measured, with its jobs gathered.
struct Measured<'a> {
    pairs: Vec<Pair>,
    curve: Vec<Pair>,
    floor: Vec<(Load, Cell)>,
    fleets: &'a [Fleet],
    tried: &'a [Tried],
}

impl<'a> Measured<'a> {
    fn of(m: &'a super::Measured, evidence: &Evidence<'_>) -> Self {
        let pairs = |all: &[super::Pair]| {
            let pair = |p: &super::Pair| Pair {
                load: p.load,
                pe: evidence.cell(&p.pe),
                ve: evidence.cell(&p.ve),
            };
            all.iter().map(pair).collect()
        };
        let floor = m.floor.iter();
        Self {
            pairs: pairs(&m.pairs),
            curve: pairs(&m.curve),
            floor: floor.map(|(l, p)| (*l, evidence.cell(p))).collect(),
            fleets: &m.fleets,
            tried: &m.tried,
        }
    }
}

impl Pair {
    /// What the pair is compared by: latency at depth 1, bandwidth of large blocks, IOPS of small ones.
    fn unit(&self) -> &'static str {
        match self.load {
            l if l.depth == 1 => "ns",
            l if l.block == LARGE => "bytes/s",
            _ => "IOPS",
        }
    }

    fn values(&self) -> [Option<Estimate>; 2] {
        [&self.pe, &self.ve].map(|c| match self.unit() {
            "ns" => c.mean_latency(),
            "bytes/s" => c.bandwidth(),
            _ => c.iops(),
        })
    }

    /// VE over PE.
    fn ratio(&self) -> Option<f64> {
        let [p, v] = self.values();
        Some(v?.value / p?.value)
    }

    /// Share of the VE's latency that virtualization adds, percent.
    fn added(&self) -> Option<f64> {
        let (p, v) = (self.pe.mean_latency()?, self.ve.mean_latency()?);
        Some((1.0 - p.value / v.value) * 100.0)
    }
}

impl Fleet {
    /// IOPS of all machines together.
    fn together(&self) -> Option<Estimate> {
        let sums: Vec<f64> = self.iops.iter().map(|r| r.iter().sum()).collect();
        Estimate::mean_of(&sums)
    }

    fn each(&self) -> Option<Estimate> {
        Some(self.together()?.scale(1.0 / f64::from(self.machines)))
    }

    fn latency(&self) -> Option<Estimate> {
        let means: Vec<f64> = self
            .latency
            .iter()
            .map(|r| r.iter().sum::<f64>() / r.len().max(1) as f64)
            .collect();
        Estimate::mean_of(&means)
    }

    fn skew(&self) -> Option<Nanos> {
        self.skew.iter().copied().max()
    }
}

/// Sections, headlines and findings.
pub(super) fn present(result: &VmResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    let (m, options) = (&Measured::of(&result.measured, evidence), &result.options);
    shown.sections.push(both(&result.about, m, options));
    shown.sections.extend(curve(m));
    shown.sections.extend(fleets(m));
    shown.sections.extend(tried(m, options));
    shown.headlines.extend(headlines(m));
    shown.findings.extend(findings(
        m,
        &result.knobs,
        (options, &evidence.run().target.name),
    ));
}

/// A row of the table of both sides.
struct Row {
    load: String,
    unit: &'static str,
    /// PE and VE.
    values: [Option<Estimate>; 2],
    ratio: Option<f64>,
    added: Option<f64>,
    p99: [Option<f64>; 2],
}

fn p99(c: &Cell) -> Option<f64> {
    percentiles(c, op_of(c)).get("p99").copied()
}

impl Row {
    fn of_pair(p: &Pair) -> Self {
        Self {
            load: p.load.title(),
            unit: p.unit(),
            values: p.values(),
            ratio: p.ratio(),
            added: p.added(),
            p99: [p99(&p.pe), p99(&p.ve)],
        }
    }

    /// A disk that does nothing is in the machine only.
    fn of_floor((load, cell): &(Load, Cell)) -> Self {
        let (unit, value) = match load.depth {
            1 => ("ns", cell.mean_latency()),
            _ => ("IOPS", cell.iops()),
        };
        Self {
            load: format!("{}, a disk that does nothing", load.title()),
            unit,
            values: [None, value],
            ratio: None,
            added: None,
            p99: [None, p99(cell)],
        }
    }
}

fn both(about: &str, m: &Measured<'_>, options: &VmOptions) -> Section {
    let rows = m.pairs.iter().map(Row::of_pair);
    let rows = rows.chain(m.floor.iter().map(Row::of_floor));
    Section {
        id: "vm".into(),
        title: "Physical (PE) beside virtualized (VE)".into(),
        text: format!(
            "{about}. Settings: {}. The same jobs on the host and in one machine, in turns. 'Added' is the share of the machine's latency that it does not have on the host.",
            options.setup.words()
        ),
        charts: vec![
            bars(
                m,
                "vm-latency",
                "Latency, one outstanding",
                "ns",
                "mean latency",
            ),
            bars(m, "vm-bandwidth", "Bandwidth", "bytes/s", "bandwidth"),
            bars(m, "vm-iops", "IOPS", "IOPS", "IOPS"),
        ],
        tables: vec![table(
            "vm-table",
            "Both sides",
            rows,
            &[
                ("load", "", &|r| text(r.load.clone())),
                ("measure", "", &|r| {
                    text(match r.unit {
                        "ns" => "mean latency, us",
                        "bytes/s" => "bandwidth, MB/s",
                        _ => "IOPS, thousands",
                    })
                }),
                ("PE", "", &|r| scaled(r.values[0], r.unit)),
                ("VE", "", &|r| scaled(r.values[1], r.unit)),
                ("VE / PE", "", &|r| number(r.ratio)),
                ("added to latency", "%", &|r| number(r.added)),
                ("PE p99", "ns", &|r| number(r.p99[0])),
                ("VE p99", "ns", &|r| number(r.p99[1])),
            ],
        )],
        ..Section::default()
    }
}

/// Both sides of the loads that are compared by this unit.
fn bars(m: &Measured<'_>, id: &str, title: &str, unit: &str, label: &str) -> Chart {
    let of: Vec<&Pair> = m.pairs.iter().filter(|p| p.unit() == unit).collect();
    let side = |i: usize| {
        let values = of.iter().map(|p| p.values()[i]).enumerate();
        values.map(|(k, v)| point(k as f64, v)).collect()
    };
    let mut drawn = chart(
        id,
        title,
        ChartKind::Bar,
        axis("load", "", false),
        axis(label, unit, false),
        vec![series("PE", side(0)), series("VE", side(1))],
    );
    drawn.categories = of.iter().map(|p| p.load.title()).collect();
    drawn
}

/// In the unit that the table's row names.
fn scaled(e: Option<Estimate>, unit: &str) -> TableCell {
    let by = match unit {
        "ns" => 1e-3,
        "bytes/s" => 1e-6,
        _ => 1e-3,
    };
    estimate(e.map(|e| e.scale(by)))
}

/// Zhang et al. Fig. 7.
fn curve(m: &Measured<'_>) -> Option<Section> {
    if m.curve.is_empty() {
        return None;
    }
    let side = |name: &str, get: fn(&Pair) -> &Cell| {
        let of = |p| {
            let c: &Cell = get(p);
            Some(Point {
                label: Some(format!("QD {}", p.load.depth)),
                ..point(c.iops()?.value, c.mean_latency())
            })
        };
        series(name, m.curve.iter().filter_map(of).collect())
    };
    Some(Section {
        id: "vm-curve".into(),
        title: "Load curve of both sides".into(),
        text: "Random reads of 4 KiB in a closed loop of growing depth.".into(),
        charts: vec![chart(
            "vm-curve-chart",
            "Mean latency against IOPS",
            ChartKind::Line,
            axis("IOPS", "IOPS", false),
            axis("mean latency", "ns", true),
            vec![side("PE", |p| &p.pe), side("VE", |p| &p.ve)],
        )],
        tables: vec![table(
            "vm-curve-table",
            "Points of the curve",
            &m.curve,
            &[
                ("depth", "", &|p| number(Some(p.load.depth.into()))),
                ("PE IOPS", "IOPS", &|p| estimate(p.pe.iops())),
                ("PE latency", "ns", &|p| estimate(p.pe.mean_latency())),
                ("VE IOPS", "IOPS", &|p| estimate(p.ve.iops())),
                ("VE latency", "ns", &|p| estimate(p.ve.mean_latency())),
            ],
        )],
        ..Section::default()
    })
}

/// IOPS of the host at the depth of one machine.
fn physical_iops(m: &Measured<'_>) -> Option<Estimate> {
    m.pairs
        .iter()
        .find(|p| p.unit() == "IOPS" && !p.load.rw.modifies())?
        .pe
        .iops()
}

/// Zhang et al. Fig. 6.
fn fleets(m: &Measured<'_>) -> Option<Section> {
    if m.fleets.is_empty() {
        return None;
    }
    let line = |name: &str, get: fn(&Fleet) -> Option<Estimate>| {
        let points = m.fleets.iter();
        let points = points.map(|f| point(f64::from(f.machines), get(f)));
        series(name, points.collect())
    };
    let host = physical_iops(m);
    let marks = host.map(|h| Mark {
        x: None,
        y: Some(h.value),
        label: "PE".into(),
    });
    let mut drawn = chart(
        "vm-machines-chart",
        "IOPS by number of machines",
        ChartKind::Line,
        axis("machines", "", false),
        axis("IOPS", "IOPS", false),
        vec![
            line("accumulated", Fleet::together),
            line("mean of a machine", Fleet::each),
        ],
    );
    drawn.marks.extend(marks);
    Some(Section {
        id: "vm-machines".into(),
        title: "Machines that share the target".into(),
        text: "Random reads of 4 KiB in all machines at the same time, each on its own part of the target. The skew is the time between the first and the last machine's first I/O.".into(),
        charts: vec![drawn],
        tables: vec![table(
            "vm-machines-table",
            "Accumulated and mean",
            m.fleets,
            &[
                ("machines", "", &|f| number(Some(f.machines.into()))),
                ("accumulated", "IOPS", &|f| estimate(f.together())),
                ("mean", "IOPS", &|f| estimate(f.each())),
                ("of the host", "%", &|f| {
                    let both = f.together().zip(host);
                    number(both.map(|(t, h)| t.value / h.value * 100.0))
                }),
                ("mean latency", "ns", &|f| estimate(f.latency())),
                ("start skew", "ns", &|f| number(f.skew().map(|s| s.0 as f64))),
            ],
        )],
        ..Section::default()
    })
}

fn tried(m: &Measured<'_>, options: &VmOptions) -> Option<Section> {
    if m.tried.is_empty() {
        return None;
    }
    let rows = m
        .tried
        .iter()
        .flat_map(|t| t.rows.iter().map(move |r| (t, r)));
    let change = |e: Option<f64>| number(e.map(|x| x * 100.0));
    Some(Section {
        id: "vm-settings".into(),
        title: "Settings, proved in turns".into(),
        text: format!(
            "Each setting against {}, in two machines that work in turns (A B B A or B A A B, {} blocks); the interval is of 95 %.",
            options.setup.words(),
            options.blocks
        ),
        tables: vec![table(
            "vm-settings-table",
            "Change against the base",
            rows,
            &[
                ("setting", "", &|(t, _)| text(t.setup.words())),
                ("load", "", &|(t, _)| text(t.load.title())),
                ("measure", "", &|(_, r)| text(r.label.clone())),
                ("change", "%", &|(_, r)| change(r.relative.map(|e| e.value))),
                ("from", "%", &|(_, r)| {
                    change(r.relative.and_then(|e| e.low))
                }),
                ("to", "%", &|(_, r)| change(r.relative.and_then(|e| e.high))),
                ("verdict", "", &|(_, r)| text(r.verdict.words())),
            ],
        )],
        ..Section::default()
    })
}

fn headlines(m: &Measured<'_>) -> Vec<Headline> {
    let mut all = Vec::new();
    for p in m.pairs.iter().filter(|p| p.load.rw.is_random()) {
        for (side, cell, value) in [("PE", &p.pe, p.values()[0]), ("VE", &p.ve, p.values()[1])] {
            let mut h = headline(
                cell,
                "Physical (PE) and virtualized (VE)",
                &format!("{side}  {}", p.load.title()),
                &cell.stem,
                p.unit(),
                value,
            );
            if p.unit() == "ns" {
                h.extra = percentiles(cell, op_of(cell));
            }
            all.push(h);
        }
    }
    for (load, cell) in m.floor.iter().take(1) {
        all.push(headline(
            cell,
            "Physical (PE) and virtualized (VE)",
            &format!("VE  {}, a disk that does nothing", load.title()),
            &cell.stem,
            "ns",
            cell.mean_latency(),
        ));
    }
    for f in m.fleets {
        all.push(Headline {
            id: format!("vms{}-iops", f.machines),
            label: format!("{} together", counted(f.machines)),
            group: "IOPS of machines that share the target".into(),
            unit: "IOPS".into(),
            estimate: f.together(),
            extra: std::collections::BTreeMap::new(),
            jobs: f.jobs.clone(),
            flags: Vec::new(),
        });
    }
    all
}

fn findings(
    m: &Measured<'_>,
    knobs: &[String],
    (options, target): (&VmOptions, &str),
) -> Vec<Finding> {
    let mut all = Vec::new();
    let strength = |e: Option<Estimate>| -> String {
        match e.and_then(|e| e.relative_half_width()) {
            Some(w) if w < 0.1 => "strong",
            Some(w) if w < 0.3 => "moderate",
            _ => "weak",
        }
        .into()
    };
    let one = |p: &&Pair| p.load.depth == 1 && p.load.rw.is_random() && !p.load.rw.modifies();
    if let Some(p) = m.pairs.iter().find(one)
        && let (Some(pe), Some(ve), Some(added)) =
            (p.pe.mean_latency(), p.ve.mean_latency(), p.added())
        && added > 0.0
    {
        all.push(Finding {
            id: "vm-latency".into(),
            text: format!(
                "A random read of 4 KiB takes {} in a machine and {} on the host: {:.1} times, {added:.0} % of it is virtualization",
                Nanos(ve.value as u64),
                Nanos(pe.value as u64),
                ve.value / pe.value
            ),
            advice: if knobs.is_empty() {
                "change one setting of that machine at a time, and compare its runs: fathom compare"
                    .into()
            } else {
                let tries: Vec<String> = knobs.iter().map(|k| format!("--try {k}")).collect();
                format!(
                    "fathom vm {target} {} proves which setting recovers how much",
                    tries.join(" ")
                )
            },
            confidence: strength(Some(ve)),
            jobs: p.ve.indices(),
            evidence: vec!["vm-table".into(), "vm-latency".into()],
            refuted_by: "The same load in a machine and on the host with another --seed, where the two are nearer to each other.".into(),
            ..Finding::default()
        });
    }
    all.extend(m.tried.iter().filter_map(|t| of_setting(t, options)));
    all.extend(saturation(m, &strength));
    all
}

fn of_setting(t: &Tried, options: &VmOptions) -> Option<Finding> {
    let row = t.rows.first()?;
    let change = row.relative?;
    let (better, worse) = (
        row.verdict == Verdict::Better,
        row.verdict == Verdict::Worse,
    );
    if !(better || worse) {
        return None;
    }
    let interval = match (change.low, change.high) {
        (Some(l), Some(h)) => format!(" (95 %: {:+.1} to {:+.1} %)", l * 100.0, h * 100.0),
        _ => String::new(),
    };
    let verb = if better { "recovers" } else { "costs" };
    Some(Finding {
        id: format!("vm-set-{}-qd{}", t.setup.words(), t.load.depth),
        text: format!(
            "{} {verb} {:.1} % of {} for {}{interval}, against {}",
            t.setup.words(),
            change.value.abs() * 100.0,
            row.label,
            t.load.title(),
            options.setup.words()
        ),
        advice: if better {
            format!("use {}", t.setup.words())
        } else {
            format!("do not use {}", t.setup.words())
        },
        confidence: "strong".into(),
        jobs: t.jobs.clone(),
        evidence: vec!["vm-settings-table".into()],
        gain: better.then_some(change),
        refuted_by: "The same setting with --try and another --seed, or with your own load, whose interval holds 0.".into(),
        ..Finding::default()
    })
}

fn saturation(m: &Measured<'_>, strength: &dyn Fn(Option<Estimate>) -> String) -> Option<Finding> {
    let all: Vec<(&Fleet, f64)> = m
        .fleets
        .iter()
        .filter_map(|f| Some((f, f.together()?.value)))
        .collect();
    if all.len() < 2 {
        return None;
    }
    let most = all.iter().map(|f| f.1).fold(0.0, f64::max);
    let (f, iops) = all.iter().find(|f| f.1 >= SATURATED * most)?;
    let host = physical_iops(m).map_or_else(String::new, |h| {
        format!(
            ", {:.0} % of what the host reaches at the depth of one machine",
            iops / h.value * 100.0
        )
    });
    let still = if f.machines == all.iter().map(|f| f.0.machines).max()? {
        "; more may give more"
    } else {
        ""
    };
    Some(Finding {
        id: "vm-saturation".into(),
        text: format!(
            "{} reach {:.0} thousand IOPS together{host}{still}",
            counted(f.machines),
            iops / 1e3
        ),
        advice: if still.is_empty() {
            format!("more than {} machines only share what there is", f.machines)
        } else {
            "raise --vms until the curve is flat".into()
        },
        confidence: strength(f.together()),
        jobs: f.jobs.clone(),
        evidence: vec!["vm-machines-table".into(), "vm-machines-chart".into()],
        refuted_by: "More machines (--vms) that reach more together, by more than the intervals."
            .into(),
        ..Finding::default()
    })
}
