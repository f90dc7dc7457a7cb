//! Figures that are curves: series over several lines of the table, which no single line can say.

use fathom_sim::target::Shape;

use super::engine::Engine;
use super::load::Load;
use super::table::Line;
use super::{Curve, ReproduceError, Row, store};

/// Series of Fig. 7 by the lines whose loads are its points; the last one is a target's.
const LOAD_CURVES: [(&str, &str); 7] = [
    ("Z072", "NAND PE"),
    ("Z073", "RAM disk PE"),
    ("Z074", "Optane PE"),
    ("Z075", "NAND VE"),
    ("Z076", "Optane VE"),
    ("Z077", "RAM disk VE"),
    ("sweep", "measured"),
];

/// Those of the places that rows belong to.
pub(super) fn of(
    paper: &str,
    engine: &mut Engine<'_>,
    rows: &[Row],
) -> Result<Vec<Curve>, ReproduceError> {
    match paper {
        "zhang2018" => load_curves(engine, rows),
        "han2021" => by_members(engine.lines, rows),
        "oneill2018" if engine.line("O023").is_ok() => Ok(vec![over_hours(rows)]),
        _ => Ok(Vec::new()),
    }
}

fn axis(label: &str, unit: &str) -> (String, String) {
    (label.into(), unit.into())
}

/// Mean latency against the rate.
fn load_curves(engine: &mut Engine<'_>, rows: &[Row]) -> Result<Vec<Curve>, ReproduceError> {
    let place = "III-C, Fig. 7";
    if !rows.iter().any(|r| r.place == place) {
        return Ok(Vec::new());
    }
    let mut series = Vec::new();
    for (id, name) in LOAD_CURVES {
        let line = match engine.line(id) {
            // On a target all values come from one sweep.
            Ok(line) if !line.load.is_empty() => line,
            _ => continue,
        };
        let (rates, means) = (engine.metric(line, "iops")?, engine.metric(line, "us")?);
        let points = rates.into_iter().zip(means).filter(|p| p.0.is_finite());
        let mut points: Vec<(f64, f64)> = points.map(|p| (p.0, p.1 * 1e3)).collect();
        if !line.place.is_empty() {
            // The models' 64 threads, far beyond the knee, say only what the highest rate is.
            points.pop();
        }
        series.push((name.into(), points));
    }
    Ok(vec![Curve {
        place: place.into(),
        title: "Mean latency against load, closed loop of threads".into(),
        x: axis("load", "1/s"),
        y: axis("mean latency", "ns"),
        series,
        marks: Vec::new(),
    }])
}

/// A published point of Han et al.'s arrays (Fig. 1-5).
#[derive(Debug, Clone)]
pub struct Point {
    /// Its identifier.
    pub id: String,
    /// Level of the array.
    pub level: u32,
    /// Devices in it.
    pub members: u32,
    /// Whether it is of reads.
    pub read: bool,
    /// Whether it is direct.
    pub direct: bool,
}

impl Point {
    /// `None` for a line that is no point of an array.
    fn of(line: &Line) -> Result<Option<Self>, ReproduceError> {
        if line.load.is_empty() || !line.place.starts_with("4.1, Fig.") {
            return Ok(None);
        }
        let mut loads = Load::all(&line.load)?;
        let Some(Load {
            target: Some(target),
            mut groups,
            ..
        }) = loads.pop()
        else {
            return Ok(None);
        };
        let spec = groups.pop().and_then(|mut jobs| jobs.pop());
        Ok(match (target.shape, spec) {
            (Shape::Raid { level, members }, Some(spec)) => Some(Self {
                id: line.id.clone(),
                level: level.number(),
                members,
                read: spec.rw.reads(),
                direct: spec.direct,
            }),
            _ => None,
        })
    }

    /// All of these lines.
    pub(super) fn all(lines: &[Line]) -> Result<Vec<Self>, ReproduceError> {
        let points: Result<Vec<Option<Self>>, _> = lines.iter().map(Self::of).collect();
        Ok(points?.into_iter().flatten().collect())
    }
}

/// Throughput by number of members, a chart per figure.
fn by_members(lines: &[Line], rows: &[Row]) -> Result<Vec<Curve>, ReproduceError> {
    let mut curves: Vec<Curve> = Vec::new();
    for point in Point::all(lines)? {
        let Some(row) = rows.iter().find(|r| r.id == point.id) else {
            continue;
        };
        let at = match curves.iter().position(|c| c.place == row.place) {
            Some(i) => i,
            None => {
                curves.push(Curve {
                    place: row.place.clone(),
                    title: format!("RAID {}: throughput by number of devices", point.level),
                    x: axis("devices", ""),
                    y: axis("throughput", "bytes/s"),
                    series: Vec::new(),
                    marks: Vec::new(),
                });
                curves.len() - 1
            }
        };
        let way = if point.direct { "direct" } else { "buffered" };
        let what = if point.read { "read" } else { "write" };
        for (who, value) in [("published", row.published), ("ours", row.ours)] {
            let name = format!("{way} {what}, {who}");
            let series = &mut curves[at].series;
            let of = match series.iter().position(|s| s.0 == name) {
                Some(i) => i,
                None => {
                    series.push((name, Vec::new()));
                    series.len() - 1
                }
            };
            series[of]
                .1
                .extend(value.map(|v| (f64::from(point.members), v * 1e9)));
        }
    }
    Ok(curves)
}

/// O'Neill's rates over time.
fn over_hours(rows: &[Row]) -> Curve {
    let raw = rows
        .iter()
        .find(|r| r.id == "O015")
        .and_then(|r| r.ours)
        .unwrap_or(0.0);
    let later = store::inserts_later(raw).into_iter();
    let later = later.map(|p| (p.0 + store::UPDATE_HOURS * 3600.0, p.1));
    Curve {
        place: "Optane performance".into(),
        title: "Inserts and updates over time".into(),
        x: axis("time", "s"),
        y: axis("rate", "1/s"),
        series: vec![
            ("inserts".into(), store::inserts(raw)),
            ("updates".into(), store::updates(raw)),
            ("inserts after the updates".into(), later.collect()),
        ],
        marks: vec![
            ("ceiling".into(), 275_000.0),
            ("updates, published".into(), 258_000.0),
            ("inserts, published".into(), 180_000.0),
        ],
    }
}
