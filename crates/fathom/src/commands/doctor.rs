//! `fathom doctor`: what works on this machine, what is missing, and the one command that brings it.

use std::fmt::Write as _;

use fathom_labs::LabError;
use fathom_labs::parts::parts;
use fathom_stack::TraceError;
use fathom_stack::tracefs::TraceFs;
use fathom_system::guest::{self, Kernel};
use fathom_system::{packages, programs};
use fathom_telemetry::say;
use serde::Serialize;

use super::pictures;
use crate::cli::DoctorArgs;
use crate::exit::{DONE, Outcome, refused};
use crate::screen;

/// Something that commands need.
#[derive(Serialize)]
struct Check {
    /// The commands that need it.
    commands: &'static str,
    name: String,
    /// Its version or place; empty where there is nothing to say but that it is there.
    found: Option<String>,
    /// Why it is not there.
    missing: Option<String>,
    /// What to do.
    remedy: Option<String>,
    /// Debian's packages that bring it.
    packages: Vec<&'static str>,
}

impl Check {
    /// `result` is its version, or what is missing and what to do.
    fn new(
        commands: &'static str,
        name: impl Into<String>,
        packages: &'static str,
        result: Result<String, (String, String)>,
    ) -> Self {
        let (found, missing) = match result {
            Ok(version) => (Some(version), None),
            Err(why) => (None, Some(why)),
        };
        let (missing, remedy) = missing.unzip();
        Self {
            commands,
            name: name.into(),
            found,
            missing,
            remedy,
            packages: packages.split_whitespace().collect(),
        }
    }
}

pub(crate) fn doctor(args: &DoctorArgs) -> Outcome {
    if args.fetch {
        return fetch();
    }
    let checks = checks();
    if args.json {
        screen::json(&checks)?;
    } else {
        screen::print(&said(&checks));
    }
    Ok(DONE)
}

/// Brings a kernel for guests where none is here.
fn fetch() -> Outcome {
    if let Ok(kernel) = Kernel::find(None) {
        screen::print(&format!("kernel: {} is here\n", kernel.image.display()));
    } else {
        say!("fathom: fetching a kernel (about 30 MB)");
        let dir = guest::fetch::kernel().map_err(refused)?;
        screen::print(&format!("kernel: {}\n", dir.display()));
    }
    Ok(DONE)
}

fn checks() -> Vec<Check> {
    let ring = match fathom_io::port::uring::unavailable() {
        None => Ok(String::new()),
        Some(why) => Err((
            format!("this process may not use io_uring ({why}); jobs use preadv instead"),
            "sysctl kernel.io_uring_disabled=0, or a container profile that allows it".into(),
        )),
    };
    let root = match (programs::is_root(), programs::may_administer()) {
        (true, true) => Ok(String::new()),
        (true, false) => Err((
            "root without CAP_SYS_ADMIN, as in most containers: no tracing, settings, mounts".into(),
            "podman or docker run --privileged -v /sys:/sys, or securityContext: {privileged: true} of a pod".into(),
        )),
        (false, _) => Err((
            "tracing, settings, mounts and drives' health need it".into(),
            "sudo fathom COMMAND".into(),
        )),
    };
    let mut all = vec![
        Check::new("every command", "io_uring", "", ring),
        Check::new("stack, tune, raid, paths, app swap", "root", "", root),
        Check::new("stack, watch", "kernel events", "", events()),
    ];
    all.extend(parts().into_iter().map(|p| {
        let found = p.found.map_err(|e| match e {
            LabError::Missing { what, remedy } => (what, remedy),
            other => (other.to_string(), "see the message".into()),
        });
        Check::new(p.commands, p.name, p.packages, found)
    }));
    let browser = pictures::browser().map(|path| path.display().to_string());
    let browser = browser.map_err(|why| (why, packages::install(pictures::PACKAGE)));
    all.push(Check::new(
        "report --png",
        "Chromium",
        pictures::PACKAGE,
        browser,
    ));
    all
}

/// Whether `stack` sees every layer.
fn events() -> Result<String, (String, String)> {
    let why = |e: TraceError| {
        (
            "the layers of an I/O cannot be told apart".into(),
            e.to_string(),
        )
    };
    TraceFs::find().map(|_| String::new()).map_err(why)
}

fn said(checks: &[Check]) -> String {
    let width = checks
        .iter()
        .map(|c| c.name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::from("Here\n");
    for c in checks {
        if let Some(found) = &c.found {
            let line = format!("  {:<width$}  {found}", c.name);
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let missing: Vec<&Check> = checks.iter().filter(|c| c.found.is_none()).collect();
    if missing.is_empty() {
        return text + "\nNothing is missing: every command works here.\n";
    }
    text.push_str("\nMissing\n");
    for c in &missing {
        let _ = writeln!(
            text,
            "  {:<width$}  {} (fathom {})",
            c.name,
            c.missing.as_deref().unwrap_or_default(),
            c.commands
        );
        if c.packages.is_empty() {
            let _ = writeln!(
                text,
                "  {:<width$}  → {}",
                "",
                c.remedy.as_deref().unwrap_or_default()
            );
        }
    }
    let mut names: Vec<&str> = missing
        .iter()
        .flat_map(|c| c.packages.iter().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        let _ = writeln!(
            text,
            "\nWhat packages bring\n  {}",
            packages::install(&names.join(" "))
        );
    }
    text.push_str("\nWhat is missing is needed by the commands beside it alone; fathom survey needs none of it.\n");
    text
}
