//! The file of a fitted model.

use std::fmt::Write as _;

use fathom_sim::model::Model;
use fathom_sim::parameters::{PARAMETERS, Parameter};

/// Four digits that matter, and no more than are needed.
fn short(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return "0.0".into();
    }
    let digits = (3 - x.abs().log10().floor() as i32).clamp(0, 12) as usize;
    format!("{:.*}", digits.max(1), x)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace(['"', '\\', '\n', '\r', '\t'], "'"))
}

/// The model's file; `started` is when its first run began.
pub(super) fn file(model: &Model, started: &str) -> String {
    let Some(fit) = &model.fit else {
        return String::new();
    };
    let runs = fit.runs.iter().map(|r| quoted(r)).collect::<Vec<_>>();
    let state = match (fit.held_out, fit.unfit) {
        (0, _) => "Nothing was held out, so how well it predicts is not known.".to_owned(),
        (n, unfit) => format!(
            "{n} loads were held out: 19 in 20 means within {:.1} %, 99th percentiles within {:.1} %{}.",
            fit.mean_error_percent,
            fit.p99_error_percent,
            if unfit {
                ": UNFIT, do not rely on it"
            } else {
                ""
            }
        ),
    };
    let unseen = match fit.parameters.iter().any(|k| k.starts_with("write.")) {
        true => "",
        false => "# Nothing was measured of writes: they are taken to be as reads.\n",
    };
    let mut out = format!(
        "# Fitted by fathom sim fit to {} ({started}), all values.\n# {state}\n{unseen}\
         # The host's own costs are taken to be those of the simulator's default host.\n\
         description = {}\ncapacity_gb = {:.3}\nslots = {}\nread_ahead = {}\n",
        fit.runs.join(", ").replace(['\n', '\r'], " "),
        quoted(&model.description),
        model.capacity_gb,
        model.slots,
        model.read_ahead,
    );
    let line = |out: &mut String, p: &Parameter, key: &str| {
        let value = match key {
            "units" => model.units.to_string(),
            _ => short(p.value(model)),
        };
        let _ = writeln!(out, "{key} = {value}");
    };
    for p in PARAMETERS.iter().filter(|p| !p.key.contains('.')) {
        line(&mut out, p, p.key);
    }
    for part in ["read", "write", "flash"] {
        if part == "flash" && model.flash.is_none() {
            continue;
        }
        let _ = writeln!(out, "\n[{part}]");
        for p in &PARAMETERS {
            if let Some(key) = p.key.strip_prefix(part).and_then(|k| k.strip_prefix('.')) {
                line(&mut out, p, key);
            }
        }
        if let Some(f) = model.flash.filter(|_| part == "flash") {
            let _ = write!(
                out,
                "sequential_mb_per_s = {:?}\nsteady_random_iops = {:?}\nfast_cache_gb = {:?}\nbehind_cache_gb_per_s = {:?}\nendurance_tb = {:?}\n",
                f.sequential_mb_per_s,
                f.steady_random_iops,
                f.fast_cache_gb,
                f.behind_cache_gb_per_s,
                f.endurance_tb
            );
        }
    }
    let row = |r: &Vec<f64>| {
        r.iter()
            .map(|x| format!("{x:.5}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let rows: Vec<String> = fit
        .root
        .iter()
        .map(|r| format!("  [{}],\n", row(r)))
        .collect();
    let names: Vec<String> = fit.parameters.iter().map(|p| quoted(p)).collect();
    let _ = write!(
        out,
        "\n# How sure the fit is: a root of the covariance of ln(value + its least difference); sim:…,draw=N takes one of the\n\
         # models that are as likely.\n[fit]\nruns = [{}]\nheld_out = {}\nmean_error_percent = {:.2}\np99_error_percent = {:.2}\nunfit = {}\nparameters = [{}]\nroot = [\n{}]\n",
        runs.join(", "),
        fit.held_out,
        fit.mean_error_percent,
        fit.p99_error_percent,
        fit.unfit,
        names.join(", "),
        rows.concat()
    );
    out
}
