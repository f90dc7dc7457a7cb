//! A stack's result as text for the screen.

use std::fmt::Write as _;

use fathom_stack::StackResult;

use super::output::cpus;
use super::{StackCase, StackReport};

/// The result for the screen.
pub fn text(report: &StackReport) -> String {
    let mut out = String::new();
    for case in &report.cases {
        one(&mut out, case);
    }
    if !report.what_if.is_empty() {
        let _ = writeln!(
            out,
            "What if (gain per I/O over the base, 95 % interval, in turns, the slowest 5 % of each pass left out)"
        );
        for w in &report.what_if {
            let gain = match (w.gain_ns, &w.why) {
                (_, Some(why)) => format!("not tested: {why}"),
                (Some(g), _) => format!(
                    "{:+.2} µs ({:+.2} to {:+.2}) of {:.2}",
                    g.value / 1e3,
                    g.low.unwrap_or(f64::NAN) / 1e3,
                    g.high.unwrap_or(f64::NAN) / 1e3,
                    w.base_mean_ns.unwrap_or(f64::NAN) / 1e3
                ),
                (None, None) => "not measured".into(),
            };
            let _ = writeln!(out, "  {:<52} {gain}", w.variant);
        }
        out.push('\n');
    }
    for s in &report.skipped {
        let _ = writeln!(out, "skipped {s}");
    }
    for s in &report.restored {
        let _ = writeln!(out, "put back: {s}");
    }
    out
}

fn one(out: &mut String, case: &StackCase) {
    let us = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{:.2}", v / 1e3));
    let untraced = match case.untraced_mean_ns {
        None => String::new(),
        some => format!(", untraced {} µs", us(some)),
    };
    let _ = writeln!(
        out,
        "{}   mean {} µs{untraced}, rung {}",
        case.name,
        us(case.application_mean_ns),
        case.rung
    );
    if let Some(why) = &case.why {
        let _ = writeln!(out, "  not the highest rung: {why}");
    }
    let _ = writeln!(
        out,
        "  {:<48}{:>9}{:>9}{:>10}{:>8}",
        "layer (µs)", "mean", "p50", "p99", "share"
    );
    for l in &case.layers {
        let p = |v: Option<u64>| us(v.map(|v| v as f64));
        let bar = "█".repeat((l.share.max(0.0) * 30.0).round() as usize);
        let _ = writeln!(
            out,
            "  {:<48}{:>9}{:>9}{:>10}{:>6.1} % {bar}",
            l.name,
            us(Some(l.mean_ns)),
            p(l.p50_ns),
            p(l.p99_ns),
            l.share * 100.0
        );
    }
    if let Some(d) = &case.details {
        details(out, case, d);
    }
    if let Some(c) = case.cpu_per_io_ns {
        let _ = writeln!(out, "  processor time {:.2} µs per I/O", c / 1e3);
    }
    for n in &case.notes {
        let _ = writeln!(out, "  note: {n}");
    }
    out.push('\n');
}

/// Whence it is known, and what was seen beside.
fn details(out: &mut String, case: &StackCase, d: &StackResult) {
    if let Some(s) = d.software_share {
        let _ = writeln!(
            out,
            "  software {:.1} %, device and below {:.1} %",
            s * 100.0,
            (1.0 - s) * 100.0
        );
    }
    let cost = observer_cost(case);
    let _ = writeln!(
        out,
        "  coverage {:.3} % of {} I/Os, residual {:.3} µs, lost {}, observer {cost}",
        d.coverage * 100.0,
        d.submitted,
        d.residual_ns / 1e3,
        d.lost
    );
    if !d.application_cpus.is_empty() {
        let irq = if d.interrupt_cpus.is_empty() {
            "no interrupt seen".into()
        } else {
            format!(
                "interrupt {:?} on CPU {}",
                d.interrupts,
                cpus(&d.interrupt_cpus)
            )
        };
        let _ = writeln!(
            out,
            "  application on CPU {}; {irq}",
            cpus(&d.application_cpus)
        );
    }
    for s in &d.devices {
        let queue = s
            .queue_mean_ns
            .map_or(String::new(), |q| format!("queue {:.2} µs, ", q / 1e3));
        let _ = writeln!(
            out,
            "  {}: {} requests ({} not queued by the job's threads), {queue}device {:.2} µs",
            s.name,
            s.requests,
            s.foreign,
            s.device_mean_ns / 1e3
        );
    }
    if let Some(s) = d.slowest.first() {
        // The screen takes the first few; the report and the JSON have them all.
        const SHOWN: usize = 3;
        let mut meanwhile = s.meanwhile.iter().take(SHOWN).cloned().collect::<Vec<_>>();
        if s.meanwhile.len() > SHOWN {
            meanwhile.push(format!("and {} more", s.meanwhile.len() - SHOWN));
        }
        let largest = s.layers.iter().max_by_key(|l| l.1);
        let _ = writeln!(
            out,
            "  slowest {:.2} µs: {} {:.2} µs; {}",
            s.latency_ns as f64 / 1e3,
            largest.map_or("", |l| l.0.as_str()),
            largest.map_or(0.0, |l| l.1 as f64 / 1e3),
            meanwhile.join("; ")
        );
    }
}

/// What tracing itself cost.
fn observer_cost(case: &StackCase) -> String {
    // On a model there is none.
    match (case.observer_cost_ns, case.observer_cost_share) {
        (Some(c), Some(share)) => format!(
            "{:+.2} µs ({:+.1} % of untraced{}, {:.0} ns per event)",
            c / 1e3,
            share.value * 100.0,
            match (share.low, share.high) {
                (Some(l), Some(h)) =>
                    format!(", 95 % interval {:+.1} to {:+.1} %", l * 100.0, h * 100.0),
                _ => String::new(),
            },
            case.observer_cost_per_event_ns.unwrap_or(0.0)
        ),
        _ => "not measured".into(),
    }
}
