//! What applications got from the same device, from runs of the labs: beside a survey's numbers, and their findings
//! among its own.

use std::path::Path;

use fathom_bench::parts::{column, estimate};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_telemetry::Flag;
use fathom_telemetry::schema::{Cell, Finding, Headline, Run, Section, Table, Target};
use serde::{Deserialize, Serialize};

/// Why a lab's run does not belong to a survey.
///
/// # Errors
/// A sentence, where it is of another device, or one of the two is simulated.
pub fn belongs(lab: &Run, about: &Target, simulated: bool) -> Result<(), String> {
    if lab.simulated != simulated {
        return Err(
            "one of the two is of a model: expected a run of the survey's own target".into(),
        );
    }
    if simulated && lab.target.name != about.name {
        return Err(format!(
            "it is of {}, the survey of {}: expected a run of the same model",
            lab.target.name, about.name
        ));
    }
    match (&lab.target.device, &about.device) {
        (Some(theirs), Some(ours)) if theirs != ours => Err(format!(
            "it is of {theirs}, the survey of {ours}: expected a run of the same device"
        )),
        _ => Ok(()),
    }
}

/// What runs of labs found on the same device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApplicationsResult {
    /// In the order given.
    pub labs: Vec<Application>,
}

/// What stands in the run of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Application {
    /// Its command.
    command: String,
    /// Where its run is kept.
    kept: String,
    started: String,
    flags: Vec<Flag>,
    headlines: Vec<Headline>,
    findings: Vec<Finding>,
}

impl Application {
    /// Of a run that is kept in `dir`.
    pub fn of(lab: &Run, dir: &Path) -> Self {
        Self {
            command: lab.command.clone(),
            kept: dir.display().to_string(),
            started: lab.started.clone(),
            flags: lab.flags.clone(),
            headlines: lab.headlines.clone(),
            findings: lab.findings.clone(),
        }
    }
}

impl ExperimentResult for ApplicationsResult {
    const EXPERIMENT: &'static str = "applications";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        for (i, lab) in self.labs.iter().enumerate() {
            add(lab, i + 1, shown);
        }
    }
}

/// Adds a lab's headlines, by unit, and its findings.
fn add(lab: &Application, n: usize, shown: &mut Shown) {
    let name = lab.command.replace('-', " ");
    let mut section = Section {
        id: format!("applications-{n}"),
        title: format!("What fathom {name} got"),
        text: format!("From {}, begun {}.", lab.kept, lab.started),
        flags: lab.flags.clone(),
        ..Section::default()
    };
    let mut units: Vec<&str> = lab.headlines.iter().map(|h| h.unit.as_str()).collect();
    units.sort_unstable();
    units.dedup();
    for (u, unit) in units.into_iter().enumerate() {
        let mine = lab.headlines.iter().filter(|h| h.unit == unit);
        section.tables.push(Table {
            id: format!("applications-{n}-{}", u + 1),
            title: format!("fathom {name}"),
            columns: vec![column("what", ""), column("value", unit)],
            rows: mine
                .map(|h| {
                    let label = format!("{}: {}", h.group, h.label);
                    vec![Cell::Text(label), estimate(h.estimate)]
                })
                .collect(),
        });
    }
    let evidence: Vec<String> = section.tables.iter().map(|t| t.id.clone()).collect();
    shown.findings.extend(lab.findings.iter().map(|f| Finding {
        id: format!("{}-{n}-{}", lab.command, f.id),
        text: format!("{} (fathom {name})", f.text),
        jobs: Vec::new(),
        evidence: evidence.clone(),
        ..f.clone()
    }));
    shown.sections.push(section);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_bench::parts::headline_of;

    fn run(command: &str, device: &str) -> Run {
        let run = serde_json::json!({
            "schema_version": 1, "tool_version": "0", "name": command, "command": command, "command_line": [],
            "started": "2026-01-01T00:00:00Z", "finished": null, "profile": null, "seed": 1,
            "target": {"name": ".", "kind": "directory", "path": null, "size_bytes": 1, "device": device, "description": ""},
            "simulated": false, "environment": null, "headlines": [], "results": [], "sections": [], "jobs": [], "findings": [], "flags": []
        });
        serde_json::from_value(run).unwrap()
    }

    fn headline(id: &str, unit: &str) -> Headline {
        headline_of("RocksDB", id, id, unit, None, Vec::new())
    }

    #[test]
    fn a_labs_numbers_and_findings_stand_in_the_survey_of_its_device() {
        let mut lab = run("db-rocksdb", "vda");
        lab.headlines = vec![
            headline("a", "1/s"),
            headline("b", "ns"),
            headline("c", "1/s"),
        ];
        lab.findings = vec![Finding {
            id: "best".into(),
            text: "Pages of 8 KiB".into(),
            confidence: "strong".into(),
            jobs: vec![7],
            ..Finding::default()
        }];
        let target = run("survey", "vda").target;
        assert_eq!(belongs(&lab, &target, false), Ok(()));
        let mut survey = Shown::default();
        for (i, dir) in ["runs/x", "runs/y"].iter().enumerate() {
            add(&Application::of(&lab, Path::new(dir)), i + 1, &mut survey);
        }
        let ids: Vec<&str> = survey.sections.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(ids, ["applications-1", "applications-2"]);
        let rows: Vec<usize> = survey.sections[0]
            .tables
            .iter()
            .map(|t| t.rows.len())
            .collect();
        assert_eq!(rows, [2, 1]);
        let f = &survey.findings[0];
        assert_eq!(f.id, "db-rocksdb-1-best");
        assert!(f.text.ends_with("(fathom db rocksdb)") && f.jobs.is_empty());
        assert!(f.evidence.contains(&"applications-1-1".to_owned()));
    }

    #[test]
    fn another_device_or_a_model_is_refused() {
        let lab = run("kv", "vda");
        let other = run("survey", "nvme0n1").target;
        assert!(belongs(&lab, &other, false).unwrap_err().contains("vda"));
        assert!(belongs(&lab, &lab.target, true).is_err());
        let mut model = run("cache", "");
        (model.simulated, model.target.device) = (true, None);
        model.target.name = "sim:a".into();
        let mut about = model.target.clone();
        assert_eq!(belongs(&model, &about, true), Ok(()));
        about.name = "sim:b".into();
        assert!(belongs(&model, &about, true).unwrap_err().contains("sim:a"));
    }
}
