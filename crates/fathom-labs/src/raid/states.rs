//! Arrays with their jobs gathered; what is left of them without a member and while a new one is filled, and what they
//! cost below.

use fathom_bench::Cell;
use fathom_bench::parts::{estimate, number, op_of, percentiles, table, text};
use fathom_bench::results::Evidence;
use fathom_stats::Estimate;
use fathom_system::array::Shape;
use fathom_telemetry::schema::{Cell as TableCell, Finding, Section, Table};

use super::{Load, Rebuild, State};

/// What was measured of one load on one array, with its jobs gathered.
pub(super) struct Measured {
    pub(super) load: Load,
    pub(super) cell: Cell,
    amplification: Option<[f64; 2]>,
    threads: Vec<(String, f64)>,
}

/// What was measured of one array in one state.
pub(super) struct Measurement {
    pub(super) shape: Option<Shape>,
    pub(super) state: State,
    pub(super) loads: Vec<Measured>,
    settings: Vec<(String, String)>,
    rebuild: Option<Rebuild>,
}

impl Measurement {
    pub(super) fn of(m: &super::Measurement, evidence: &Evidence<'_>) -> Self {
        let load = |l: &super::Measured| Measured {
            load: l.load,
            cell: evidence.cell(&l.point),
            amplification: l.amplification,
            threads: l.threads.clone(),
        };
        Self {
            shape: m.shape,
            state: m.state,
            loads: m.loads.iter().map(load).collect(),
            settings: m.settings.clone(),
            rebuild: m.rebuild,
        }
    }
}

impl State {
    fn words(self) -> &'static str {
        match self {
            Self::Degraded => "one lost",
            Self::Rebuilding => "rebuilding",
            Self::Member | Self::Whole => "whole",
        }
    }
}

fn whole_cell(all: &[Measurement], shape: Shape, load: Load) -> Option<&Measured> {
    all.iter()
        .find(|m| m.state == State::Whole && m.shape == Some(shape))?
        .loads
        .iter()
        .find(|l| l.load == load)
}

/// A load on an array in a state.
struct Row<'a> {
    shape: Shape,
    state: State,
    measured: &'a Measured,
    /// The same on the whole array.
    whole: Option<&'a Measured>,
}

/// Of the arrays in some states.
fn rows(all: &[Measurement], which: impl Fn(State) -> bool) -> Vec<Row<'_>> {
    let arrays = all.iter().filter(|m| which(m.state));
    arrays
        .filter_map(|m| Some((m, m.shape?)))
        .flat_map(|(m, shape)| {
            m.loads.iter().map(move |measured| Row {
                shape,
                state: m.state,
                measured,
                whole: whole_cell(all, shape, measured.load),
            })
        })
        .collect()
}

/// Without a member, and while a new one is filled.
pub(super) fn section(all: &[Measurement]) -> Option<Section> {
    let rows = rows(all, |s| matches!(s, State::Degraded | State::Rebuilding));
    let rate = |m: Option<&Measured>| m.and_then(|m| m.cell.bandwidth());
    let share = |r: &Row<'_>| -> Option<f64> {
        let (now, then): (Estimate, Estimate) = (rate(Some(r.measured))?, rate(r.whole)?);
        Some(now.value / then.value * 100.0)
    };
    let p99 = |r: &Row<'_>, m: Option<&Measured>| {
        number(m.and_then(|m| m.cell.percentile(op_of(&r.measured.cell), 0.99)))
    };
    let beside = table(
        "raid-states-table",
        "Degraded and rebuilding beside whole",
        &rows,
        &[
            ("array", "", &|r| text(r.shape.title())),
            ("state", "", &|r| text(r.state.words())),
            ("load", "", &|r| text(r.measured.load.title())),
            ("measured", "bytes/s", &|r| estimate(rate(Some(r.measured)))),
            ("of the whole array", "%", &|r| number(share(r))),
            ("p99", "ns", &|r| p99(r, Some(r.measured))),
            ("p99 of the whole array", "ns", &|r| p99(r, r.whole)),
        ],
    );
    (!rows.is_empty()).then(|| Section {
        id: "raid-states".into(),
        title: "Without a member, and while a new one is filled".into(),
        text: "What is left of the whole array's throughput, and what its users wait for.".into(),
        tables: std::iter::once(beside).chain(rebuilds(all)).collect(),
        ..Section::default()
    })
}

fn rebuilds(all: &[Measurement]) -> Option<Table> {
    let of = |m: &Measurement| Some((m.shape?, m.rebuild?));
    let rows: Vec<(Shape, Rebuild)> = all.iter().filter_map(of).collect();
    let table = table(
        "raid-rebuilds",
        "Rebuilds beside the load above",
        &rows,
        &[
            ("array", "", &|(shape, _)| text(shape.title())),
            ("watched", "s", &|(_, r)| number(Some(r.time.as_secs_f64()))),
            ("rebuilt meanwhile", "%", &|(_, r)| {
                number(Some(r.done * 100.0))
            }),
            ("whole rebuild at this pace", "s", &|(_, r)| {
                number(r.whole_seconds())
            }),
            ("ended after", "s", &|(_, r)| {
                number(r.ended.map(|t| t.as_secs_f64()))
            }),
        ],
    );
    (!rows.is_empty()).then_some(table)
}

/// Transfers of members per byte, kernel threads, settings.
pub(super) fn costs(all: &[Measurement]) -> Option<Section> {
    let rows = rows(all, |_| true);
    let threads = |r: &Row<'_>| {
        let share = |(name, share): &(String, f64)| format!("{name} {:.0} %", share * 100.0);
        let each: Vec<String> = r.measured.threads.iter().map(share).collect();
        match each.is_empty() {
            true => TableCell::Hole(()),
            false => text(each.join(", ")),
        }
    };
    let transfers = table(
        "raid-amplification",
        "Transfers and kernel threads",
        &rows,
        &[
            ("array", "", &|r| text(r.shape.title())),
            ("state", "", &|r| text(r.state.words())),
            ("load", "", &|r| text(r.measured.load.title())),
            ("read per byte", "", &|r| {
                number(r.measured.amplification.map(|a| a[0]))
            }),
            ("written per byte", "", &|r| {
                number(r.measured.amplification.map(|a| a[1]))
            }),
            ("kernel threads", "", &|r| threads(r)),
        ],
    );
    let of = |m: &'_ Measurement| Some((m.shape?, m.state, m.settings.clone()));
    let settings: Vec<(Shape, State, (String, String))> = all
        .iter()
        .filter_map(of)
        .flat_map(|(shape, state, all)| all.into_iter().map(move |s| (shape, state, s)))
        .collect();
    let settings = table(
        "raid-settings",
        "Settings",
        &settings,
        &[
            ("array", "", &|(shape, ..)| text(shape.title())),
            ("state", "", &|(_, state, _)| text(state.words())),
            ("setting", "", &|(.., s)| text(&s.0)),
            ("value", "", &|(.., s)| text(&s.1)),
        ],
    );
    (!rows.is_empty()).then(|| Section {
        id: "raid-costs".into(),
        title: "What an array costs below".into(),
        text: "Bytes that members read and write for each byte asked of the array, from the members' own counters, and the processors that kernel threads keep busy meanwhile (100 % is one of them).".into(),
        tables: vec![transfers, settings],
        ..Section::default()
    })
}

/// What a rebuild does to those who read and write meanwhile.
pub(super) fn findings(all: &[Measurement]) -> Vec<Finding> {
    let worst = all
        .iter()
        .filter(|m| m.state == State::Rebuilding)
        .flat_map(|m| m.loads.iter().map(move |l| (m, l)))
        .filter_map(|(m, l)| {
            let shape = m.shape?;
            let before = whole_cell(all, shape, l.load)?;
            let op = op_of(&l.cell);
            let now = percentiles(&l.cell, op).get("p99").copied()?;
            let then = percentiles(&before.cell, op).get("p99").copied()?;
            Some((shape, l, m.rebuild, now / then))
        })
        .max_by(|a, b| a.3.total_cmp(&b.3));
    let Some((shape, l, rebuild, times)) = worst else {
        return Vec::new();
    };
    let whole = rebuild
        .and_then(|r| r.whole_seconds())
        .map_or_else(String::new, |s| {
            format!("; at this pace the rebuild takes {s:.0} s")
        });
    vec![Finding {
        id: "raid-rebuild".into(),
        text: format!(
            "{}, rebuilding: the p99 of {} is {times:.2} times that of the whole array{whole}",
            shape.title(),
            l.load.title()
        ),
        advice:
            "sync_speed_max of the array trades the length of a rebuild for what its users wait"
                .into(),
        confidence: "moderate".into(),
        jobs: l.cell.indices(),
        evidence: vec!["raid-states-table".into(), "raid-rebuilds".into()],
        refuted_by:
            "The same load beside another rebuild (--seed) whose p99 is that of the whole array."
                .into(),
        ..Finding::default()
    }]
}
