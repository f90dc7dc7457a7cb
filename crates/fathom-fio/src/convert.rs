//! fio's jobs as fathom's TOML.

use std::fmt::Write;

use serde_json::Value;

use crate::plan::Task;
use crate::translate::{Place, ThreadTerms};
use crate::{Extent, FioError};

/// Prints the tasks as a job file for `fathom run --jobs`. Clones become one job each; what the
/// form cannot hold stands in comments.
pub fn to_toml(tasks: &[Task]) -> Result<String, FioError> {
    let mut out = String::new();
    let first = tasks.first().map(|t| t.shape.place.clone());
    let shared = tasks.iter().all(|t| Some(&t.shape.place) == first.as_ref());
    match (&first, shared) {
        (Some(place), true) => {
            let _ = writeln!(out, "target = {}", quoted(&target(place)));
        }
        _ => {
            out.push_str("# The jobs have targets of their own (see each): run them one by one.\n")
        }
    }
    let mut used: Vec<String> = Vec::new();
    for t in tasks {
        let s = &t.shape;
        let size = t.wanted_size(&s.place, None);
        let mut spec = match size {
            Some(n) => s.settle(t.clone, n, None, None)?,
            None => s.spec.clone(),
        };
        spec.name =
            if used.contains(&t.name) || tasks.iter().filter(|o| o.name == t.name).count() > 1 {
                format!("{}.{}", t.name, t.number)
            } else {
                t.name.clone()
            };
        used.push(spec.name.clone());
        spec.group = Some(format!("wave{}", t.wave + 1));
        out.push_str("\n[[job]]\n");
        if !shared {
            let _ = writeln!(out, "# target: {}", target(&s.place));
        }
        if size.is_none() && s.size != Extent::Whole {
            let _ = writeln!(out, "# size: {:?} of the target", s.size);
        }
        if s.start_delay.0 > 0 {
            let _ = writeln!(out, "# startdelay: {} after the others", s.start_delay);
        }
        if let Some(w) = &t.wait_for {
            let _ = writeln!(out, "# wait_for: {w}");
        }
        for e in &s.ignored {
            let _ = writeln!(out, "# {e}");
        }
        let around = [
            (s.own.is_some(), s.terms.engine.as_str()),
            (s.ramp_size > 0, "ramp_size"),
            (s.group.is_some(), "cgroup"),
            (s.scheduler.is_some(), "ioscheduler"),
            (
                s.thread != ThreadTerms::default(),
                "priorities, niceness, memory nodes and rights of a thread",
            ),
        ];
        let around = around.iter().filter(|w| w.0).map(|w| w.1);
        for what in s.recipe.beyond().into_iter().chain(around) {
            let _ = writeln!(out, "# left out, only fathom fio does it: {what}");
        }
        let json = serde_json::to_value(&spec).unwrap_or_default();
        for (key, value) in json.as_object().into_iter().flatten() {
            let text = match value {
                Value::String(v) => quoted(v),
                other => other.to_string(),
            };
            let _ = writeln!(out, "{key} = {text}");
        }
    }
    Ok(out)
}

fn target(place: &Place) -> String {
    match place {
        Place::Null => "null:".to_owned(),
        Place::Path(p) => p.display().to_string(),
        Place::Sim(name) => name.clone(),
    }
}

/// A TOML string; JSON's escapes are TOML's.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
