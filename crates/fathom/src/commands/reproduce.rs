//! `fathom reproduce PAPER`: published figures beside the models'.

use fathom_experiments::reproduce::{self, PAPERS, ReproduceError, Role, Row};

use crate::cli::ReproduceArgs;
use crate::exit::{DONE, Outcome, failed, refused};
use crate::screen;

/// See the module.
pub(crate) fn reproduce(args: &ReproduceArgs) -> Outcome {
    let mut rows = reproduce::reproduce(&args.paper).map_err(|e| match e {
        ReproduceError::Job(_) => failed(e),
        _ => refused(e),
    })?;
    if let Some(figure) = &args.figure {
        let wanted = figure.to_lowercase();
        rows.retain(|r| r.id.to_lowercase() == wanted || r.place.to_lowercase().contains(&wanted));
        if rows.is_empty() {
            return Err(refused(anyhow::anyhow!(
                "--figure {figure}: no row of {} has this identifier or place; leave it out to see them all",
                args.paper
            )));
        }
    }
    if args.json {
        let json = serde_json::json!({
            "paper": args.paper,
            "simulated": true,
            "rows": rows,
        });
        let text = serde_json::to_string_pretty(&json).map_err(failed)?;
        screen::print(&(text + "\n"));
        return Ok(DONE);
    }
    let title = PAPERS
        .iter()
        .find(|p| p.0 == args.paper)
        .map_or("", |p| p.1);
    screen::print(
        &(format!("{title}\nSimulated: the models of fathom beside the published values.\n\n")
            + &table(&rows)),
    );
    Ok(DONE)
}

fn number(x: Option<f64>) -> String {
    match x {
        None => "-".into(),
        Some(x) if x.abs() >= 1000.0 => format!("{x:.0}"),
        Some(x) if x.abs() >= 100.0 => format!("{x:.1}"),
        Some(x) if x.abs() >= 1.0 => format!("{x:.2}"),
        Some(x) => format!("{x:.3}"),
    }
}

fn table(rows: &[Row]) -> String {
    let wide = |f: &dyn Fn(&Row) -> usize| rows.iter().map(f).max().unwrap_or(0);
    let (id, what) = (wide(&|r| r.id.len()), wide(&|r| r.what.chars().count()));
    let mut text = format!(
        "{:id$}  {:what$}  {:>10} {:>10} {:9} {:>7}  role\n",
        "id", "what", "published", "ours", "unit", "error"
    );
    for r in rows {
        let error = r
            .error_percent
            .map_or_else(String::new, |e| format!("{e:+.1}%"));
        let role = match r.role {
            _ if r.ours.is_none() => "",
            Role::Fit => "fit",
            Role::Prediction => "prediction",
            Role::Measured => "measured",
        };
        text += format!(
            "{:id$}  {:what$}  {:>10} {:>10} {:9} {error:>7}  {role}",
            r.id,
            r.what,
            number(r.published),
            number(r.ours),
            r.unit
        )
        .trim_end();
        text.push('\n');
        if !r.note.is_empty() {
            text += &format!("{:id$}    {}\n", "", r.note);
        }
    }
    let errors = |role| {
        let all: Vec<f64> = rows
            .iter()
            .filter(|r| r.role == role)
            .filter_map(|r| r.error_percent.map(f64::abs))
            .collect();
        let mean = all.iter().sum::<f64>() / (all.len() as f64).max(1.0);
        let max = all.iter().copied().fold(0.0, f64::max);
        (all.len(), mean, max)
    };
    text.push('\n');
    for (name, role) in [("fitted", Role::Fit), ("predicted", Role::Prediction)] {
        let (n, mean, max) = errors(role);
        text += &format!("{n} {name} values: mean error {mean:.1} %, largest {max:.1} %\n");
    }
    text
}
