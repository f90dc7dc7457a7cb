//! How long a drive lasts: what it says of its wear before and after a run, the write amplification in between, and the
//! years that are left at the observed or a stated rate of writes.

use clap::Args;
use fathom_bench::parts::{column, number};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_host::Health;
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{Cell, Finding, Run, Section, Table};
use serde::{Deserialize, Serialize};

/// What the user knows better than the drive.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Stated {
    /// Rated endurance of the drive in bytes (such as 300t), for the years that are left
    #[arg(long = "rated-tbw", value_name = "BYTES", help_heading = "Endurance")]
    pub rated: Option<Bytes>,
    /// Bytes that your application writes a day (such as 500g) [default: what the drive counted so far]
    #[arg(
        long = "daily-writes",
        value_name = "BYTES",
        help_heading = "Endurance"
    )]
    pub daily: Option<Bytes>,
}

/// Days of a year.
const YEAR: f64 = 365.25;
/// Years of the usual warranty, over which drive writes per day are rated.
const WARRANTY: f64 = 5.0;
/// Below so many years a drive's end is worth a sentence.
const SOON: f64 = 3.0;
/// Drives count their life in whole percent: below this share the rated endurance cannot be told from it.
const PERCENT_MIN: f64 = 5.0;
/// Below so many hours, what was written a day says nothing.
const HOURS_MIN: u64 = 24 * 7;

/// What follows from what is known; each part is `None` where something is missing for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Endurance {
    /// Bytes written by hosts in the drive's life.
    pub host: Option<f64>,
    /// Bytes written to the media.
    pub media: Option<f64>,
    /// Media over host bytes in the drive's life, and during the run.
    pub ratio: [Option<f64>; 2],
    /// Rated endurance, bytes.
    pub rated: Option<f64>,
    /// Share of it that is used.
    pub used: Option<f64>,
    /// Bytes a day, and whether the user stated them.
    pub daily: Option<(f64, bool)>,
    /// Drive writes a day at that rate, and as rated over five years.
    pub drive_writes: [Option<f64>; 2],
    /// Until the rated endurance is used up.
    pub years: Option<f64>,
}

/// From two readings of a drive of `capacity` bytes.
pub fn endurance(
    before: Option<&Health>,
    after: &Health,
    capacity: u64,
    stated: Stated,
) -> Endurance {
    let float = |v: u64| v as f64;
    let host = after.host_written_bytes.map(float);
    let media = after.media_written_bytes.map(float);
    let life = media
        .zip(host)
        .filter(|(_, h)| *h > 0.0)
        .map(|(m, h)| m / h);
    let told = after.used_percent.map(|p| p / 100.0);
    // Models count exactly; drives in whole percent.
    let exact = after.sources.contains(&"model");
    let fine = told.filter(|u| *u > 0.0 && (exact || 100.0 * u >= PERCENT_MIN));
    let rated = stated
        .rated
        .map(|r| float(r.0))
        .or_else(|| Some(host? / fine?));
    let observed = after
        .power_on_hours
        .filter(|h| *h >= HOURS_MIN)
        .and_then(|hours| Some(host? / float(hours) * 24.0));
    let daily = match stated.daily {
        Some(d) => Some((float(d.0), true)),
        None => observed.map(|d| (d, false)),
    };
    let used = match (stated.rated, host) {
        (Some(r), Some(h)) if r.0 > 0 => Some(h / float(r.0)),
        _ => told,
    };
    let years = rated
        .zip(used)
        .zip(daily)
        .filter(|(_, (d, _))| *d > 0.0)
        .map(|((r, u), (d, _))| r * (1.0 - u).max(0.0) / d / YEAR);
    let size = (capacity > 0).then_some(float(capacity));
    Endurance {
        host,
        media,
        ratio: [
            life.or(after.write_ratio),
            before.and_then(|b| after.write_ratio_since(b)),
        ],
        rated,
        used,
        daily,
        drive_writes: [
            daily.zip(size).map(|((d, _), s)| d / s),
            rated.zip(size).map(|(r, s)| r / s / (WARRANTY * YEAR)),
        ],
        years,
    }
}

/// What a drive reported of its wear, and what follows from it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnduranceResult {
    disk: String,
    /// What was read.
    sources: Vec<String>,
    missing: Vec<String>,
    warnings: Vec<String>,
    spare_percent: Option<f64>,
    celsius: Option<f64>,
    endurance: Endurance,
}

impl EnduranceResult {
    /// From the readings before and after a run; `None` where there is nothing to ask.
    pub fn of(
        run: &Run,
        before: Option<&Health>,
        after: Option<&Health>,
        stated: Stated,
    ) -> Option<Self> {
        let after = after?;
        let texts = |t: &[&str]| t.iter().map(|t| (*t).to_owned()).collect();
        Some(Self {
            disk: after.disk.clone(),
            sources: texts(&after.sources),
            missing: after.missing.clone(),
            warnings: texts(&after.warnings),
            spare_percent: after.spare_percent,
            celsius: after.celsius,
            endurance: endurance(before, after, capacity(run, &after.disk), stated),
        })
    }
}

impl ExperimentResult for EnduranceResult {
    const EXPERIMENT: &'static str = "endurance";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        shown.sections.push(section(self));
        shown.findings.extend(finding(&self.endurance, &self.disk));
    }
}

fn section(after: &EnduranceResult) -> Section {
    let e = &after.endurance;
    let mut text = match &after.sources[..] {
        [] => format!("{} does not report its wear.", after.disk),
        s => format!(
            "What {} reports of its own wear ({}).",
            after.disk,
            s.join(", ")
        ),
    };
    for missing in &after.missing {
        text += &format!(" {missing}.");
    }
    if e.years.is_none() && e.host.is_some() {
        text += " Years left need the rated endurance and the writes of a day: give --rated-tbw and --daily-writes.";
    }
    for warning in &after.warnings {
        text += &format!(" The drive warns: {warning}.");
    }
    let row = |what: &str, unit: &str, v: Option<f64>| {
        vec![Cell::Text(what.into()), number(v), Cell::Text(unit.into())]
    };
    let daily = match e.daily {
        Some((_, true)) => "written a day, as stated",
        _ => "written a day so far",
    };
    let percent = |v: Option<f64>| v.map(|v| 100.0 * v);
    let tera = |v: Option<f64>| v.map(|v| v / 1e12);
    let mut rows = vec![
        row("written by hosts", "TB", tera(e.host)),
        row("written to the media", "TB", tera(e.media)),
        row("write amplification, whole life", "", e.ratio[0]),
        row("write amplification, this run", "", e.ratio[1]),
        row("rated endurance", "TB", tera(e.rated)),
        row("of it used", "%", percent(e.used)),
        row("spare blocks left", "%", after.spare_percent),
        row("temperature", "°C", after.celsius),
        row(daily, "TB", tera(e.daily.map(|d| d.0))),
        row("drive writes a day at that rate", "", e.drive_writes[0]),
        row(
            "drive writes a day, rated over five years",
            "",
            e.drive_writes[1],
        ),
        row("until the rated endurance is used up", "years", e.years),
    ];
    // A disk that reports nothing has no table of holes.
    rows.retain(|r| !matches!(r[1], Cell::Hole(())));
    let table = Table {
        id: "endurance-table".into(),
        title: "Wear and what is left".into(),
        columns: vec![column("what", ""), column("value", ""), column("unit", "")],
        rows,
    };
    let tables = if table.rows.is_empty() {
        Vec::new()
    } else {
        vec![table]
    };
    Section {
        id: "endurance".into(),
        title: "Endurance".into(),
        text,
        tables,
        ..Section::default()
    }
}

/// Bytes of the whole drive; a scratch file's size says nothing of it. 0 where it is not known.
fn capacity(run: &Run, disk: &str) -> u64 {
    if run.simulated || run.target.kind == "block-device" {
        return run.target.size_bytes;
    }
    let sectors = std::fs::read_to_string(format!("/sys/block/{disk}/size"));
    sectors
        .ok()
        .and_then(|s| s.trim().parse::<u64>().ok())
        .map_or(0, |s| s * 512)
}

fn finding(e: &Endurance, disk: &str) -> Option<Finding> {
    let years = e.years.filter(|y| *y < SOON)?;
    let (daily, stated) = e.daily?;
    let way = if stated {
        "as stated"
    } else {
        "as in its life so far"
    };
    Some(Finding {
        id: "endurance".into(),
        text: format!(
            "At {} written a day ({way}) the rated endurance of {disk} is used up in {years:.1} years; {:.0} % of it is used.",
            Bytes(daily as u64),
            100.0 * e.used?
        ),
        advice: match e.ratio[0] {
            Some(r) if r > 2.0 => format!(
                "Leave more of the drive unused or trim it: its flash writes {r:.1} times what the host does. Otherwise plan its replacement."
            ),
            _ => "Write less, spread the writes over more drives, or plan its replacement.".into(),
        },
        confidence: if stated { "moderate" } else { "strong" }.into(),
        evidence: vec!["endurance-table".into()],
        refuted_by:
            "A month's difference of the drive's own counters that is smaller (fathom devices)."
                .into(),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        Health {
            disk: "nvme0n1".into(),
            host_written_bytes: Some(40_000_000_000_000),
            media_written_bytes: Some(100_000_000_000_000),
            used_percent: Some(20.0),
            power_on_hours: Some(8_766),
            ..Health::default()
        }
    }

    #[test]
    fn years_follow_from_what_is_left_and_what_a_day_takes() {
        // 40 TB in a year are a fifth of the life: four years are left.
        let e = endurance(None, &health(), 400_000_000_000, Stated::default());
        assert!((e.years.unwrap() - 4.0).abs() < 0.01, "{e:?}");
        assert_eq!(e.rated, Some(200e12));
        assert_eq!(e.ratio[0], Some(2.5));
        assert!((e.drive_writes[0].unwrap() - 40e12 / YEAR / 400e9).abs() < 1e-3);
        // Twice as much a day halves them; what is stated comes before what was observed.
        let stated = Stated {
            rated: None,
            daily: Some(Bytes((2.0 * 40e12 / YEAR) as u64)),
        };
        let e = endurance(None, &health(), 400_000_000_000, stated);
        assert!((e.years.unwrap() - 2.0).abs() < 0.01, "{e:?}");
        assert!(finding(&e, "nvme0n1").is_some());
    }

    #[test]
    fn the_run_s_own_amplification_is_that_between_the_readings() {
        let mut after = health();
        after.host_written_bytes = Some(40_000_000_000_000 + 10);
        after.media_written_bytes = Some(100_000_000_000_000 + 15);
        let e = endurance(Some(&health()), &after, 0, Stated::default());
        assert_eq!(e.ratio[1], Some(1.5));
        assert_eq!(e.drive_writes, [None, None]);
    }

    #[test]
    fn nothing_is_made_up_where_the_drive_says_nothing() {
        let e = endurance(None, &Health::default(), 1, Stated::default());
        assert_eq!(
            (e.years, e.rated, e.used, e.daily),
            (None, None, None, None)
        );
        // A percent or two is too coarse to tell the rated endurance from.
        let young = Health {
            used_percent: Some(1.0),
            ..health()
        };
        assert_eq!(endurance(None, &young, 1, Stated::default()).rated, None);
    }
}
