//! `fathom stack --pid` and `--combine`: the host's side of a virtual machine, and both sides together.

use std::fmt::Write as _;
use std::path::Path;

use fathom_bench::{Notebook, RunMeta};
use fathom_experiments::stack::{self, StackReport, host};
use fathom_files::Existing;
use fathom_telemetry::{say, schema};
use serde_json::Value;

use super::finish::{capsule, finish_with, meta};
use crate::cli::StackArgs;
use crate::exit::{DONE, FAILED, Outcome, failed, refused};
use crate::{screen, signals};

/// Watches a VMM on this host.
pub(super) fn of_process(pid: u32, args: &StackArgs) -> Outcome {
    let control = signals::control().map_err(refused)?;
    let place = Path::new(&args.target);
    let Some(name) = fathom_stack::host::process_name(pid) else {
        return Err(refused(anyhow::anyhow!(
            "--pid {pid}: there is no such process; give the VMM's number (pidof qemu-system-x86_64)"
        )));
    };
    let disks = fathom_host::disks_behind(place);
    if disks.is_empty() {
        return Err(refused(anyhow::anyhow!(
            "{}: no block device is below; name the directory, file or device that holds the guest's disk",
            args.target
        )));
    }
    let disks = disks.join("+");
    let target = schema::Target {
        name: args.target.clone(),
        kind: "process".into(),
        path: Some(args.target.clone()),
        size_bytes: 0,
        device: Some(disks.clone()),
        description: format!(
            "process {pid} ({name}) on {disks}, watched for {}",
            args.options.time
        ),
    };
    let meta = RunMeta {
        name: "stack-host".into(),
        ..meta("stack", args.seed, &args.out, capsule(Some(place)))
    };
    let book = Notebook::create(&args.out.out, meta, target, false, 0)?;
    let interrupted = || control.interrupted();
    let time = std::time::Duration::from_nanos(args.options.time.0);
    let watched = host::of_process(pid, place, time, args.options.rung, &interrupted);
    let report = match watched {
        Ok(report) => report,
        Err(e) => {
            book.discard();
            return Err(refused(e));
        }
    };
    let seen = report.cases.iter().any(|c| c.application_mean_ns.is_some());
    end(book, args, if seen { DONE } else { FAILED }, &report)
}

/// Puts the results of two runs together.
pub(super) fn combine(guest: &Path, host: &Path, json: bool) -> Outcome {
    let read = |dir: &Path| -> anyhow::Result<(String, Value)> {
        let file = if dir.is_dir() {
            dir.join("stack.json")
        } else {
            dir.to_owned()
        };
        let name = file.display().to_string();
        let text = std::fs::read_to_string(&file).map_err(|e| {
            anyhow::anyhow!("{name}: {e}; name a run directory of fathom stack, or its stack.json")
        })?;
        let value =
            serde_json::from_str(&text).map_err(|e| anyhow::anyhow!("{name} is not JSON: {e}"))?;
        Ok((name, value))
    };
    let (g, h) = (read(guest).map_err(refused)?, read(host).map_err(refused)?);
    let both = host::combine((&g.0, &g.1), (&h.0, &h.1)).map_err(refused)?;
    // Where virtualization takes less than nothing, the two are not of the same load.
    let code = if both.layers.iter().all(|l| l.mean_ns >= 0.0) {
        DONE
    } else {
        FAILED
    };
    if json {
        screen::json(&both)?;
        return Ok(code);
    }
    let mut text = format!(
        "fathom stack · guest {} with host {}\n\n  {:<24}{:>10}{:>9}\n",
        g.0, h.0, "layer (µs)", "mean", "share"
    );
    for l in &both.layers {
        let bar = "█".repeat((l.share.max(0.0) * 30.0).round() as usize);
        let _ = writeln!(
            text,
            "  {:<24}{:>10.2}{:>7.1} % {bar}",
            l.name,
            l.mean_ns / 1e3,
            l.share * 100.0
        );
    }
    let _ = writeln!(
        text,
        "  {:<24}{:>10.2}",
        "the guest's application",
        both.application_mean_ns / 1e3
    );
    for n in &both.notes {
        let _ = writeln!(text, "  note: {n}");
    }
    screen::print(&text);
    Ok(code)
}

/// Keeps the result beside the run, and says it.
pub(super) fn end(mut book: Notebook, args: &StackArgs, code: u8, report: &StackReport) -> Outcome {
    book.found(report)?;
    let document = stack::document(report);
    let json = serde_json::to_string_pretty(&document).map_err(failed)?;
    let kept = book
        .dir()
        .write("stack.json", Existing::None, json.as_bytes());
    if let Err(e) = kept {
        say!("fathom: {e}");
    }
    finish_with(
        book,
        &args.out,
        Some(code),
        document,
        |run, screen, places| {
            let mut text = match report.is_simulated() {
                true => fathom_report::terminal::stamp(run, screen),
                false => format!(
                    "fathom stack · {} ({})\n\n",
                    run.target.name, run.target.description
                ),
            };
            text.push_str(&stack::text(report));
            text.push_str(&fathom_report::terminal::conclusion(run, screen));
            if let Some(r) = places.report {
                text.push_str(&format!("report {}\n", r.display()));
            }
            text
        },
    )
}
