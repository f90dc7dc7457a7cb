//! Every value that the papers state (`docs/published-figures.csv`), so that none is left out in silence.

use super::{Role, Row};

const CSV: &str = include_str!("../../../../docs/published-figures.csv");

/// A line of the file, quotes resolved.
pub(super) fn fields(line: &str) -> Vec<String> {
    let (mut all, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    all.push(field);
    all
}

/// A value as it was published.
pub(crate) struct Stated {
    /// The device it is of.
    pub(crate) device: String,
    /// The value.
    text: String,
    /// Its unit.
    pub(crate) unit: String,
    /// What is known about it beside.
    pub(crate) note: String,
}

impl Stated {
    /// `None` where it is no number.
    pub(crate) fn number(&self) -> Option<f64> {
        self.text.parse().ok()
    }
    /// In another unit of a rate.
    pub(super) fn number_in(&self, unit: &str) -> Option<f64> {
        match (self.unit.as_str(), unit) {
            ("MB/s", "GB/s") => Some(self.number()? / 1e3),
            _ => self.number(),
        }
    }
    /// Smallest and largest: `2 to 3`.
    pub(super) fn range(&self) -> Option<[f64; 2]> {
        let (low, high) = self.text.split_once(" to ")?;
        Some([low.parse().ok()?, high.parse().ok()?])
    }
}

/// The row of the file; `None` where there is none.
pub(crate) fn stated(id: &str) -> Option<Stated> {
    let row = CSV.lines().map(fields).find(|f| f[0] == id)?;
    Some(Stated {
        device: row.get(3)?.clone(),
        text: row.get(7)?.clone(),
        unit: row.get(8)?.clone(),
        note: row.get(9).cloned().unwrap_or_default(),
    })
}

/// Where a value is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// The models of the paper's devices.
    Models,
    /// One target that is there.
    Target,
    /// Two of them: the paper's own device first, what it is held against second.
    Two,
}

/// Metrics that labs give; whatever else stands beside them is how the paper set its own up.
const OF_LABS: [&str; 4] = [
    "relation",
    "best page size",
    "throughput",
    "time per operation",
];

/// Why a value has no counterpart.
fn why(paper: &str, place: &str, unit: &str, metric: &str) -> String {
    let result = OF_LABS.iter().any(|m| metric.starts_with(m));
    let reason = match (paper, place) {
        ("han2021", p)
            if p.starts_with("4.1 Fig") || p.starts_with("4.3 Fig") || p == "Abstract, 6" =>
        {
            "needs the RAID lab: fathom raid"
        }
        ("zhang2018", p) if result && (p.starts_with("Table IV") || p.starts_with('V')) => {
            "needs the database lab: fathom db mysql"
        }
        ("zhang2018", "Table III") => "measured by fathom compress",
        ("han2021", p) if result && (p.starts_with("4.2 Fig.6") || p == "4.2") => {
            "needs the RAID lab: fathom raid --lab \"db rocksdb\""
        }
        ("han2021", p) if p.starts_with("4.2 Fig.8") => {
            "needs the RAID lab: fathom raid --lab \"db tpcc\""
        }
        ("oneill2018", "Optane performance" | "Updates vs inserts") if unit.ends_with("/s") => {
            "needs the key-value lab: fathom kv"
        }
        ("shrout2017", "Real-world") if result => "needs the application lab: fathom app",
        ("shrout2017", "S-PASS") => "needs fathom mix on both real devices",
        _ if metric.starts_with("relation") => "a relation that the text states in passing",
        _ => "a condition of the experiment, not a result",
    };
    reason.into()
}

/// Outside of machines.
const MYSQL: &str = "fathom db mysql";

/// What two targets may show.
const RELATION: &str =
    "a relation of several devices or environments, which one target cannot show";

/// Why one target cannot show a result.
fn one_target(environment: &str, metric: &str, unit: &str) -> Option<String> {
    let reason = if environment == "VE" {
        "needs the VM lab: fathom vm"
    } else if metric.starts_with("hardware") {
        "needs latency by layer: fathom stack"
    } else if metric.starts_with("relation") {
        RELATION
    } else if ["us", "IOPS", "MB/s", "GB/s"].contains(&unit) {
        "restates another value, or belongs to another device"
    } else {
        return None;
    };
    Some(reason.into())
}

/// Values of a paper that `rows` do not hold yet.
pub(super) fn others(paper: &str, rows: &[Row], on: On) -> Vec<Row> {
    CSV.lines()
        .skip(1)
        .map(fields)
        .filter(|f| f.len() >= 9 && f[1] == paper && !rows.iter().any(|r| r.id == f[0]))
        .map(|f| {
            let what: Vec<&str> = f[3..7]
                .iter()
                .map(String::as_str)
                .filter(|s| !s.is_empty() && *s != "-")
                .collect();
            let fio = f[5].contains("fio") || f[5].contains("FIO");
            let place = if fio { "" } else { f[2].as_str() };
            let mut note = why(paper, place, &f[8], &f[6]);
            if f[4] == "VE" {
                note = note.replace(MYSQL, "fathom vm --lab \"db mysql\"");
            }
            if on != On::Models && !note.contains("needs the") {
                note = one_target(&f[4], &f[6], &f[8]).unwrap_or(note);
            }
            if on == On::Two && note == RELATION {
                note = "a relation that these two targets do not show".into();
            }
            let value: Option<f64> = f[7].parse().ok();
            if value.is_none() {
                note = format!("published as '{}'; {note}", f[7]);
            }
            if let Some(more) = f.get(9).filter(|n| !n.is_empty()) {
                note += &format!(" ({more})");
            }
            Row {
                id: f[0].clone(),
                place: f[2].clone(),
                what: what.join(", "),
                published: value,
                printed: None,
                ours: None,
                model: None,
                unit: f[8].clone(),
                error_percent: None,
                range: None,
                from: Vec::new(),
                role: Role::Prediction,
                note,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_value_has_a_row_of_its_own() {
        for (paper, n) in [
            ("zhang2018", 126),
            ("han2021", 199),
            ("oneill2018", 23),
            ("shrout2017", 26),
        ] {
            let all = others(paper, &[], On::Models);
            assert_eq!(all.len(), n, "{paper}");
            assert!(all.iter().all(|r| !r.note.is_empty()));
        }
        let note = |paper, id: &str| {
            let all = others(paper, &[], On::Models);
            all.into_iter().find(|r| r.id == id).unwrap().note
        };
        assert!(note("han2021", "H127").contains("db rocksdb"));
        assert!(note("zhang2018", "Z102").contains("db mysql"));
        // Memory of a server that another paper used.
        assert!(note("han2021", "H194").contains("condition of the experiment"));
        assert!(note("zhang2018", "Z096").contains("condition of the experiment"));
        assert_eq!(fields(r#"a,"b, c",d"#), ["a", "b, c", "d"]);
    }
}
