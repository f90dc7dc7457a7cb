//! `fathom sim`: the device models.

use std::path::Path;

use fathom_experiments::sim_fit;
use fathom_files::{Existing, output};
use fathom_sim::target::OPTIONS;
use fathom_sim::{CATALOG, Model, SimTarget};

use fathom_telemetry::Nanos;
use fathom_telemetry::rundir::RunDir;

use crate::cli::SimCommand;
use crate::exit::{DONE, Outcome, failed, refused};
use crate::screen;

pub(crate) fn sim(command: &SimCommand) -> Outcome {
    let text = match command {
        SimCommand::List { json } => list(*json)?,
        SimCommand::Show { model, json } => show(model, *json)?,
        SimCommand::Fit { run, file, json } => fit(run, file.as_deref(), *json)?,
        SimCommand::Model(command) => super::formulas::formula(command)?,
        SimCommand::Check { target, json } => {
            let t = SimTarget::parse(&with_prefix(target)).map_err(refused)?;
            if *json {
                let said = serde_json::json!({
                    "target": t.name, "description": t.description(), "size_bytes": t.size(),
                });
                screen::json(&said)?;
                return Ok(DONE);
            }
            let size = fathom_telemetry::Bytes(t.size());
            format!("{}: {}, {size}\n", t.name, t.description())
        }
    };
    screen::print(&text);
    Ok(DONE)
}

fn list(json: bool) -> Result<String, crate::exit::Failure> {
    let mut models = Vec::new();
    for (name, _) in CATALOG {
        models.push((*name, Model::named(name).map_err(failed)?));
    }
    if json {
        let all: Vec<_> = models
            .iter()
            .map(|(n, m)| serde_json::json!({"target": format!("sim:{n}"), "description": m.description, "size_bytes": m.size()}))
            .collect();
        return Ok(serde_json::to_string_pretty(&all).map_err(failed)? + "\n");
    }
    let mut text = String::new();
    for (name, m) in &models {
        text += &format!("{:20} {}\n", format!("sim:{name}"), m.description);
    }
    text += "\nAlso sim:FILE.toml, sim:raid5:8xMODEL (0, 1, 5, 6, 10), sim:vm:MODEL, sim:vm4:MODEL; options follow after commas:\n";
    for (option, what) in OPTIONS {
        text += &format!("  ,{option:26} {what}\n");
    }
    Ok(text)
}

/// A fitted model may be replaced by a later one.
const FITTED: Existing = Existing::OfKind(|head| head.starts_with(b"# Fitted by fathom sim fit "));

/// A model of what a run measured, kept in its directory or in `file`, with its residuals.
fn fit(run: &Path, file: Option<&Path>, json: bool) -> Result<String, crate::exit::Failure> {
    let (dir, run) = RunDir::open(run).map_err(refused)?;
    let unwritten = |path: &Path, e: std::io::Error| {
        refused(anyhow::anyhow!(
            "{}: cannot be written: {e}; choose another --file",
            path.display()
        ))
    };
    // A fit takes a while.
    if let Some(path) = file {
        output::check(path, FITTED).map_err(|e| unwritten(path, e))?;
    }
    let fit = sim_fit::fit(&run).map_err(refused)?;
    let path = match file {
        Some(path) => {
            output::write(path, FITTED, fit.text.as_bytes()).map_err(|e| unwritten(path, e))?;
            path.to_owned()
        }
        None => dir
            .write("model.toml", FITTED, fit.text.as_bytes())
            .map_err(failed)?,
    };
    if json {
        let all = serde_json::json!({
            "file": path, "model": fit.text, "residuals": fit.residuals, "simulated": true,
        });
        return Ok(serde_json::to_string_pretty(&all).map_err(failed)? + "\n");
    }
    let wide = fit
        .residuals
        .iter()
        .map(|r| r.what.len())
        .max()
        .unwrap_or(0);
    let mut text = format!(
        "{:wide$}  {:>10} {:>10} {:>8}  role\n",
        "mean latency", "measured", "model", "error"
    );
    for r in &fit.residuals {
        text += &format!(
            "{:wide$}  {:>10} {:>10} {:>+7.1}%  {}\n",
            r.what,
            Nanos(r.measured_ns as u64).to_string(),
            Nanos(r.model_ns as u64).to_string(),
            r.error_percent,
            r.role
        );
    }
    text.push('\n');
    for (name, role) in [("fitted", "fit"), ("held-out", "prediction")] {
        let (n, mean, max) = fit.errors(role);
        if n > 0 {
            text += &format!("{n} {name} points: mean error {mean:.1} %, largest {max:.1} %\n");
        }
    }
    text += &format!("\nmodel {0}\nuse it as sim:{0}\n", path.display());
    Ok(text)
}

/// The file of a model, sources and all; as JSON its values.
fn show(model: &str, json: bool) -> Result<String, crate::exit::Failure> {
    let name = model.strip_prefix("sim:").unwrap_or(model);
    Model::named(name).map_err(refused)?;
    let text = CATALOG
        .iter()
        .find(|(n, _)| *n == name)
        .map_or("", |(_, text)| *text);
    if json {
        let values: toml::Value = toml::from_str(text).map_err(failed)?;
        return Ok(serde_json::to_string_pretty(&values).map_err(failed)? + "\n");
    }
    Ok(text.to_owned())
}

fn with_prefix(target: &str) -> String {
    if target.starts_with("sim:") {
        target.to_owned()
    } else {
        format!("sim:{target}")
    }
}
