//! What `--purge` means on a target: what it offers is asked for, and what its drive is at is waited for, before anything is
//! opened.

use std::path::Path;

use fathom_experiments::purge::Purging;
use fathom_host::{TargetKind, probe_target};
use fathom_io::Control;
use fathom_io::target::purge::{Method, Offers, Settled, offers, settle};
use fathom_sim::SimTarget;
use fathom_telemetry::{Bytes, say};

use crate::exit::{Failure, refused};

/// How a target is going to be purged.
pub(crate) struct Purge {
    /// In which way; `None` where it is left as it is.
    pub(crate) how: Option<Purging>,
    /// What its drive was found at.
    pub(crate) settled: Option<Settled>,
    offers: Option<Offers>,
    device: String,
}

impl Purge {
    /// The way in a few words, with what it empties beside the target; nothing where that is a job like others.
    pub(crate) fn words(&self) -> String {
        let Some(how) = self.how.filter(|h| !h.is_job()) else {
            return String::new();
        };
        let Some(offers) = &self.offers else {
            return String::new();
        };
        let reached = offers.reached(Path::new(&self.device), how.method);
        let also = match reached.unwrap_or_default() {
            [] => String::new(),
            all => format!(", which empties {} as well", all.join(", ")),
        };
        let seconds = offers.sanitize.and_then(|s| s.estimate(how.method));
        let time = seconds.map_or_else(String::new, |s| format!(" (the drive estimates {s} s)"));
        format!(" after a purge by {how}{time}{also}")
    }
}

/// Finds the way: `auto`, `none`, or a way's name. With `control` a drive that empties itself already is waited for.
pub(crate) fn purge(
    word: &str,
    (target, elsewhere): (&str, bool),
    size: Option<Bytes>,
    control: Option<&Control>,
) -> Result<Purge, Failure> {
    let no = |why: String| refused(anyhow::anyhow!("--purge: {why}"));
    let named = match word {
        "auto" | "none" => None,
        name => Some(name.parse::<Method>().map_err(no)?),
    };
    let mut found = Purge {
        how: (word != "none").then(Purging::default),
        settled: None,
        offers: None,
        device: target.to_owned(),
    };
    if found.how.is_none() {
        return Ok(found);
    }
    let device = match elsewhere || SimTarget::is_simulated(target) {
        true => None,
        false => match probe_target(Path::new(target)) {
            Ok(TargetKind::BlockDevice {
                path, size_bytes, ..
            }) => Some((path, size_bytes)),
            _ => None,
        },
    };
    let Some((path, bytes)) = device else {
        return match named {
            None | Some(Method::Discard) => Ok(found),
            Some(method) => Err(no(format!(
                "{target} cannot be purged by {method}: that needs a block device of this machine; use --purge discard or none"
            ))),
        };
    };
    if let Some(control) = control {
        let mut said = false;
        let mut show = |what: &str, percent: f64| {
            if !said {
                say!(
                    "fathom: {target} is {what} ({percent:.0} % done): an earlier run or somebody else has begun; waiting for its end"
                );
            }
            said = true;
        };
        found.settled = settle(&path, control, &mut show).map_err(no)?;
        if let Some(s) = &found.settled {
            say!("fathom: {target} is ready after {}", s.waited);
        }
    }
    let whole = size.is_none_or(|s| s.0 >= bytes);
    let all = offers(&path, whole).unwrap_or_default();
    let method = match named {
        None => all.best(),
        Some(method) => {
            all.reached(&path, method).map_err(no)?;
            Some(method)
        }
    };
    found.how = Some(Purging {
        method: method.unwrap_or(Method::Discard),
        named: named.is_some(),
    });
    found.offers = Some(all);
    Ok(found)
}
