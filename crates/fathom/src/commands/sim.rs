//! `fathom sim`: the device models.

use fathom_sim::{CATALOG, Model, SimTarget};

use crate::cli::SimCommand;
use crate::exit::{DONE, Outcome, failed, refused};
use crate::screen;

/// See the module.
pub(crate) fn sim(command: &SimCommand) -> Outcome {
    let text = match command {
        SimCommand::List { json } => list(*json)?,
        SimCommand::Show { model } => show(model)?,
        SimCommand::Check { target } => {
            let t = SimTarget::parse(&with_prefix(target)).map_err(refused)?;
            format!(
                "{}: {}, {}\n",
                t.name,
                t.description(),
                fathom_telemetry::Bytes(t.size())
            )
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
    text += "\nAlso  sim:FILE.toml, sim:raid5:8xMODEL (0, 1, 5, 6, 10), sim:vm:MODEL, sim:vm4:MODEL\n\
             with  ,poll  ,idle=menu|shallow|busy  ,scheduler=NS  ,cores=N  ,fill=PERCENT  ,state=fresh|steady\n";
    Ok(text)
}

/// The file of a model, sources and all.
fn show(model: &str) -> Result<String, crate::exit::Failure> {
    let name = model.strip_prefix("sim:").unwrap_or(model);
    Model::named(name).map_err(refused)?;
    Ok(CATALOG
        .iter()
        .find(|(n, _)| *n == name)
        .map_or_else(String::new, |(_, text)| (*text).to_owned()))
}

fn with_prefix(target: &str) -> String {
    if target.starts_with("sim:") {
        target.to_owned()
    } else {
        format!("sim:{target}")
    }
}
