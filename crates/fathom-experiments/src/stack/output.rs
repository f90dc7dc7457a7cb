//! A stack's result as sections of the run, and as JSON for scripts.

use fathom_bench::parts::{axis, column, number};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stack::Owner;
use fathom_stack::analysis::SlowIo;
use fathom_telemetry::schema::{
    Cell, Chart, ChartKind, ChartSeries, Finding, Point, Section, Table,
};
use serde_json::{Map, Value, json};

use super::{StackCase, StackReport, WhatIf, bars};

impl ExperimentResult for StackReport {
    const EXPERIMENT: &'static str = "stack";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        if self.cases.is_empty() && !self.skipped.is_empty() {
            shown.sections.push(Section {
                id: "stack".into(),
                title: "Where the microseconds go".into(),
                text: format!(
                    "Skipped: {}. `fathom stack` shows what can be said without tracing.",
                    self.skipped.join("; ")
                ),
                ..Section::default()
            });
            return;
        }
        layers(self, &evidence.run().target.name, shown);
        if !self.what_if.is_empty() {
            what_if(&self.what_if, shown);
        }
    }
}

fn layers(report: &StackReport, run_target: &str, run: &mut Shown) {
    let mut section = Section {
        id: "stack".into(),
        title: "Where the microseconds go".into(),
        text: format!(
            "Each I/O is split {}. Means of the layers add up to the application's mean; medians and other percentiles do not.",
            if report.is_simulated() {
                "at the stages of the model: it is simulated"
            } else {
                "at the points where the kernel tells of it"
            }
        ),
        ..Section::default()
    };
    if let Some((rung, why)) = report
        .cases
        .iter()
        .find_map(|c| Some((&c.rung, c.why.as_ref().filter(|_| c.rung != "full")?)))
    {
        section.text.push_str(&format!(" Rung: {rung} ({why})."));
    }
    section.charts.extend(bars::of(&report.cases));
    section
        .charts
        .extend(report.cases.iter().filter_map(distribution));
    section.tables.push(overview(report));
    section.tables.push(places(report));
    section.tables.push(apart(report));
    section.tables.extend(remarks(report));
    for case in &report.cases {
        section.tables.push(layer_table(case));
        section.charts.extend(slow_chart(case));
        section.tables.extend(slow_table(case));
    }
    run.sections.push(section);
    for case in &report.cases {
        let chart = bars::place(&report.cases, case);
        let mut found = dominating(case, chart);
        // Once is enough.
        if let (Some(first), true) = (&mut found, std::ptr::eq(case, &report.cases[0]))
            && !report.is_simulated()
        {
            first.advice = format!(
                "fathom stack {} --what-if tests placement, scheduler, engine, polling and idle states on this machine.",
                run_target
            );
        }
        run.findings.extend(found);
    }
}

/// Layers in one chart: more cannot be told apart by colour.
const CURVES: usize = 8;
/// Shorter times are left out of a distribution's logarithmic axis.
const NS_MIN: u64 = 10;
/// Layers of a slow I/O below this share of it are put together.
const SMALL: f64 = 0.01;

/// How each layer's time is spread over the I/Os: the largest layers, in the order of the way.
fn distribution(case: &StackCase) -> Option<Chart> {
    let mut largest: Vec<usize> = (0..case.layers.len())
        .filter(|i| case.layers[*i].distribution.len() > 1)
        .collect();
    largest.sort_by(|a, b| {
        let mean = |i: usize| case.layers[i].mean_ns;
        mean(*b).total_cmp(&mean(*a))
    });
    largest.truncate(CURVES);
    largest.sort_unstable();
    (!largest.is_empty()).then(|| Chart {
        id: format!("stack-distribution-{}", case.name),
        title: format!(
            "{}: share of I/Os whose layer took at most so long",
            case.name
        ),
        kind: ChartKind::Line,
        x: axis("time in the layer", "ns", true),
        y: axis("I/Os", "%", false),
        z: None,
        categories: Vec::new(),
        series: largest
            .into_iter()
            .map(|i| ChartSeries {
                name: case.layers[i].name.clone(),
                points: case.layers[i]
                    .distribution
                    .iter()
                    // A layer that some I/Os skip would draw the axis down to nothing.
                    .filter(|(ns, _)| *ns >= NS_MIN)
                    .map(|(ns, share)| Point {
                        x: *ns as f64,
                        y: Some(share * 100.0),
                        ..Point::default()
                    })
                    .collect(),
            })
            .collect(),
        marks: Vec::new(),
    })
}

fn overview(report: &StackReport) -> Table {
    Table {
        id: "stack-cases".into(),
        title: "Cases: what the tracing covers and costs".into(),
        columns: vec![
            column("case", ""),
            column("rung", ""),
            column("application's mean", "ns"),
            column("untraced mean", "ns"),
            column("observer cost", "ns"),
            column("coverage", "%"),
            column("residual", "ns"),
            column("lost events", ""),
        ],
        rows: report
            .cases
            .iter()
            .map(|c| {
                vec![
                    Cell::Text(c.name.clone()),
                    Cell::Text(c.rung.clone()),
                    number(c.application_mean_ns),
                    c.untraced.map_or(Cell::Hole(()), Cell::Estimate),
                    c.observer_cost.map_or(Cell::Hole(()), Cell::Estimate),
                    number(c.coverage.map(|v| v * 100.0)),
                    // Sums of thousands of times: what is left of rounding is none.
                    number(c.residual_ns.map(|v| (v * 1e3).round() / 1e3)),
                    Cell::Number(c.lost as f64),
                ]
            })
            .collect(),
    }
}

/// Software against hardware, and which processors they met on.
fn places(report: &StackReport) -> Table {
    let rows = report.cases.iter().filter_map(|c| {
        let d = c.details.as_ref()?;
        let numbers: Vec<String> = d.interrupts.iter().take(4).map(u32::to_string).collect();
        Some(vec![
            Cell::Text(c.name.clone()),
            number(d.software_share.map(|v| v * 100.0)),
            number(d.software_share.map(|v| (1.0 - v) * 100.0)),
            Cell::Text(cpus(&d.application_cpus)),
            Cell::Text(cpus(&d.interrupt_cpus)),
            Cell::Text(numbers.join(", ")),
        ])
    });
    Table {
        id: "stack-places".into(),
        title: "Software and hardware, and where they ran".into(),
        columns: vec![
            column("case", ""),
            column("software", "%"),
            column("device and below", "%"),
            column("application on CPU", ""),
            column("interrupt on CPU", ""),
            column("interrupt number", ""),
        ],
        rows: rows.collect(),
    }
}

/// What is counted apart from the plain way of an I/O.
fn apart(report: &StackReport) -> Table {
    let rows = report.cases.iter().filter_map(|c| {
        let d = c.details.as_ref()?;
        let mut row = vec![Cell::Text(c.name.clone())];
        row.extend(
            [
                d.submitted,
                d.by_device,
                d.by_memory,
                d.by_worker,
                d.merged,
                d.split,
                d.requeued,
                d.twins,
                d.flushes,
                d.unlinked + d.unmatched + d.contradicted,
            ]
            .map(|n| Cell::Number(n as f64)),
        );
        Some(row)
    });
    let labels = [
        "I/Os",
        "device",
        "memory",
        "worker",
        "merged",
        "split",
        "requeued",
        "same sector",
        "flushes",
        "not joined",
    ];
    let mut columns = vec![column("case", "")];
    columns.extend(labels.map(|l| column(l, "")));
    Table {
        id: "stack-apart".into(),
        title: "Counted apart: what answered, and what is not the plain way".into(),
        columns,
        rows: rows.collect(),
    }
}

/// What must be known to read the layers: boundaries that this kernel lacks, nested devices.
fn remarks(report: &StackReport) -> Option<Table> {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for c in &report.cases {
        for note in &c.notes {
            match rows.iter_mut().find(|r| r.0 == *note) {
                Some(r) => r.1.push(&c.name),
                None => rows.push((note.clone(), vec![&c.name])),
            }
        }
    }
    let all = report.cases.len();
    (!rows.is_empty()).then(|| Table {
        id: "stack-notes".into(),
        title: "To read with the layers".into(),
        columns: vec![column("cases", ""), column("note", "")],
        rows: rows
            .into_iter()
            .map(|(note, cases)| {
                let whose = if cases.len() == all && all > 1 {
                    "all".to_owned()
                } else {
                    cases.join(", ")
                };
                vec![Cell::Text(whose), Cell::Text(note)]
            })
            .collect(),
    })
}

fn layer_table(case: &StackCase) -> Table {
    Table {
        id: format!("stack-{}", case.name),
        title: format!("{}: layers", case.name),
        columns: vec![
            column("layer", ""),
            column("mean", "ns"),
            column("p50", "ns"),
            column("p99", "ns"),
            column("share", "%"),
            column("spent by", ""),
        ],
        rows: case
            .layers
            .iter()
            .map(|l| {
                vec![
                    Cell::Text(l.name.clone()),
                    Cell::Number(l.mean_ns),
                    number(l.p50_ns.map(|v| v as f64)),
                    number(l.p99_ns.map(|v| v as f64)),
                    Cell::Number(l.share * 100.0),
                    Cell::Text(owner(l.owner).into()),
                ]
            })
            .collect(),
    }
}

fn owner(o: Owner) -> &'static str {
    match o {
        Owner::Application => "application",
        Owner::Kernel => "kernel",
        Owner::Device => "device",
    }
}

/// The slowest I/Os, each with its largest layer and what else happened.
fn slow_table(case: &StackCase) -> Option<Table> {
    let slow = &case.details.as_ref()?.slowest;
    (!slow.is_empty()).then(|| Table {
        id: format!("stack-slowest-{}", case.name),
        title: format!("{}: the slowest I/Os", case.name),
        columns: vec![
            column("latency", "ns"),
            column("offset", "bytes"),
            column("largest layer", ""),
            column("it took", "ns"),
            column("its layers from 1 %, µs", ""),
            column("meanwhile", ""),
        ],
        rows: slow
            .iter()
            .map(|s| {
                let largest = s.layers.iter().max_by_key(|l| l.1);
                vec![
                    Cell::Number(s.latency_ns as f64),
                    Cell::Number(s.offset as f64),
                    Cell::Text(largest.map_or(String::new(), |l| l.0.clone())),
                    number(largest.map(|l| l.1 as f64)),
                    Cell::Text(layers_of(s)),
                    Cell::Text(s.meanwhile.join("; ")),
                ]
            })
            .collect(),
    })
}

/// Its layers in the order of the way; the small ones together.
fn layers_of(s: &SlowIo) -> String {
    let large = |ns: i64| ns as f64 >= SMALL * s.latency_ns as f64;
    let mut all: Vec<String> = s
        .layers
        .iter()
        .filter(|l| large(l.1))
        .map(|(name, ns)| format!("{name} {:.1}", *ns as f64 / 1e3))
        .collect();
    let rest: Vec<i64> = s
        .layers
        .iter()
        .map(|l| l.1)
        .filter(|ns| !large(*ns))
        .collect();
    if !rest.is_empty() {
        let sum = rest.iter().sum::<i64>() as f64;
        all.push(format!("{} others {:.1}", rest.len(), sum / 1e3));
    }
    all.join(", ")
}

/// The slowest I/Os as bars of their layers.
fn slow_chart(case: &StackCase) -> Option<Chart> {
    let slow = &case.details.as_ref()?.slowest;
    let mut names: Vec<&str> = Vec::new();
    for (name, ns) in slow.iter().flat_map(|s| &s.layers) {
        if *ns > 0 && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    (!slow.is_empty()).then(|| Chart {
        id: format!("stack-slowest-{}", case.name),
        title: format!("{}: the slowest I/Os by layer", case.name),
        kind: ChartKind::StackedBar,
        x: axis("rank", "", false),
        y: axis("latency", "ns", false),
        z: None,
        categories: (1..=slow.len()).map(|i| i.to_string()).collect(),
        series: names
            .iter()
            .map(|name| ChartSeries {
                name: (*name).to_owned(),
                points: slow
                    .iter()
                    .enumerate()
                    .filter_map(|(x, s)| {
                        let (_, ns) = s.layers.iter().find(|l| l.0 == *name)?;
                        Some(Point {
                            x: x as f64,
                            y: Some((*ns).max(0) as f64),
                            ..Point::default()
                        })
                    })
                    .collect(),
            })
            .collect(),
        marks: Vec::new(),
    })
}

fn dominating(case: &StackCase, chart: String) -> Option<Finding> {
    if case.rung == "unprivileged" {
        return None;
    }
    let top = case
        .layers
        .iter()
        .max_by(|a, b| a.mean_ns.total_cmp(&b.mean_ns))?;
    let software = case.details.as_ref()?.software_share;
    let software = software.map_or(String::new(), |s| {
        format!("; software takes {:.0} % in all", s * 100.0)
    });
    Some(Finding {
        id: format!("stack-dominates-{}", case.name),
        text: format!(
            "'{}' takes {:.2} of {:.2} µs ({:.0} %) of {}{software}.",
            top.name,
            top.mean_ns / 1e3,
            case.application_mean_ns? / 1e3,
            top.share * 100.0,
            bars::in_words(&case.name)
        ),
        advice: String::new(),
        confidence: if case.coverage? >= 0.999 && case.lost == 0 {
            "strong"
        } else {
            "moderate"
        }
        .into(),
        jobs: case.jobs.clone(),
        evidence: vec![format!("stack-{}", case.name), chart],
        refuted_by: "The same case traced again (fathom stack), in which another layer takes most."
            .into(),
        ..Finding::default()
    })
}

fn what_if(tested: &[WhatIf], run: &mut Shown) {
    let table = Table {
        id: "stack-what-if".into(),
        title:
            "What if: gain over the base, measured in turns, the slowest 5 % of each pass left out"
                .into(),
        columns: vec![
            column("variant", ""),
            column("base mean", "ns"),
            column("gain", "ns"),
            column("how", ""),
        ],
        rows: tested
            .iter()
            .map(|w| {
                vec![
                    Cell::Text(w.variant.clone()),
                    number(w.base_mean_ns),
                    w.gain_ns.map_or(Cell::Hole(()), Cell::Estimate),
                    Cell::Text(w.why.clone().unwrap_or_else(|| w.advice.clone())),
                ]
            })
            .collect(),
    };
    if let Some(section) = run.sections.iter_mut().find(|s| s.id == "stack") {
        section.tables.push(table);
    }
    run.findings.extend(tested.iter().filter_map(proven));
    run.findings.extend(unproven(tested));
}

fn us(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

/// A variant whose interval leaves 0 out: it helps, or it would harm.
fn proven(w: &WhatIf) -> Option<Finding> {
    let (gain, base) = (w.gain_ns?, w.base_mean_ns?);
    let (low, high) = (gain.low?, gain.high?);
    let helps = low > 0.0;
    if !helps && high >= 0.0 {
        return None;
    }
    let (word, least, most) = if helps {
        ("saves", low, high)
    } else {
        ("costs", -high, -low)
    };
    Some(Finding {
        id: format!("stack-what-if-{}", slug(&w.variant)),
        text: format!(
            "{} {word} {} of {} µs per I/O (95 % interval {} to {}, {} pairs).",
            capital(&w.variant),
            us(gain.value.abs()),
            us(base),
            us(least),
            us(most),
            gain.samples
        ),
        advice: if helps {
            format!("To make it last: {}.", w.advice)
        } else {
            "Leave it as it is.".into()
        },
        confidence: "strong".into(),
        jobs: w.jobs.clone(),
        evidence: vec!["stack-what-if".into()],
        gain: helps.then(|| gain.scale(1.0 / base)),
        refuted_by:
            "The same pairs with another --seed, or under your own load, whose interval holds 0."
                .into(),
        ..Finding::default()
    })
}

/// Variants whose interval holds 0: nothing is proven, and by how much at most is said.
fn unproven(tested: &[WhatIf]) -> Option<Finding> {
    let open: Vec<(&WhatIf, f64, f64)> = tested
        .iter()
        .filter_map(|w| {
            let gain = w.gain_ns?;
            let (low, high) = (gain.low?, gain.high?);
            gain.holds_none().then_some((w, low, high))
        })
        .collect();
    let list: Vec<String> = open
        .iter()
        .map(|(w, low, high)| format!("{} ({:+.2} to {:+.2} µs)", w.variant, low / 1e3, high / 1e3))
        .collect();
    (!list.is_empty()).then(|| Finding {
        id: "stack-what-if-unproven".into(),
        text: format!(
            "No gain or loss is shown, the 95 % interval holds 0: {}.",
            list.join("; ")
        ),
        advice: "A quieter machine or a longer --time narrows the intervals.".into(),
        confidence: "moderate".into(),
        jobs: open.iter().flat_map(|o| o.0.jobs.clone()).collect(),
        evidence: vec!["stack-what-if".into()],
        refuted_by: "The same variants for longer, with an interval that leaves 0 out.".into(),
        ..Finding::default()
    })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

fn slug(text: &str) -> String {
    let words: Vec<String> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

/// What `--json` adds to `run.json`: the first case at the top, then every case.
pub fn document(report: &StackReport) -> Map<String, Value> {
    let mut out = Map::new();
    if let Some(first) = report.cases.first() {
        for (key, value) in [
            ("case", json!(first.name)),
            ("rung", json!(first.rung)),
            ("layers", json!(first.layers)),
            ("application_mean_ns", json!(first.application_mean_ns)),
            ("untraced_mean_ns", json!(first.untraced_mean_ns)),
            ("observer_cost_ns", json!(first.observer_cost_ns)),
            ("observer_cost_share", json!(first.observer_cost_share)),
            ("coverage", json!(first.coverage)),
            ("residual_ns", json!(first.residual_ns)),
            ("lost", json!(first.lost)),
        ] {
            out.insert(key.into(), value);
        }
    }
    out.insert("cases".into(), json!(report.cases));
    out.insert("skipped".into(), json!(report.skipped));
    out.insert("restored".into(), json!(report.restored));
    out.insert("what_if".into(), json!(report.what_if));
    out
}

/// Processors with their shares, the most frequent first.
pub(super) fn cpus(list: &[(u16, f64)]) -> String {
    list.iter()
        .take(4)
        .map(|(c, s)| format!("{c} ({:.0} %)", s * 100.0))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_stats::Estimate;

    fn tested(low: f64, high: f64) -> WhatIf {
        WhatIf {
            variant: "application on the interrupt's CPU 1".into(),
            advice: "taskset -c 1 PROGRAM".into(),
            base_mean_ns: Some(80_000.0),
            gain_ns: Some(Estimate {
                value: (low + high) / 2.0,
                low: Some(low),
                high: Some(high),
                samples: 10,
            }),
            why: None,
            jobs: vec![3],
        }
    }

    #[test]
    fn a_variant_is_said_to_help_or_harm_only_where_its_interval_leaves_zero_out() {
        let helps = proven(&tested(2_000.0, 4_000.0)).unwrap();
        assert_eq!(
            helps.text,
            "Application on the interrupt's CPU 1 saves 3.00 of 80.00 µs per I/O (95 % interval 2.00 to 4.00, 10 pairs)."
        );
        assert_eq!(helps.advice, "To make it last: taskset -c 1 PROGRAM.");
        let harms = proven(&tested(-4_000.0, -2_000.0)).unwrap();
        assert!(
            harms
                .text
                .contains("costs 3.00 of 80.00 µs per I/O (95 % interval 2.00 to 4.00")
        );
        let open = tested(-1_000.0, 2_000.0);
        assert_eq!(proven(&open), None);
        let said = unproven(&[open, tested(2_000.0, 4_000.0)]).unwrap();
        assert!(
            said.text.contains("CPU 1 (-1.00 to +2.00 µs)."),
            "{}",
            said.text
        );
        assert_eq!(unproven(&[tested(2_000.0, 4_000.0)]), None);
    }

    #[test]
    fn small_layers_of_a_slow_io_are_put_together() {
        let s = SlowIo {
            latency_ns: 1_000_000,
            offset: 0,
            op: fathom_telemetry::Op::Read,
            layers: vec![
                ("a".into(), 1_000),
                ("device".into(), 997_000),
                ("b".into(), 2_000),
            ],
            meanwhile: Vec::new(),
        };
        assert_eq!(layers_of(&s), "device 997.0, 2 others 3.0");
    }
}
