//! The host's side of a virtual machine, and both sides together.
//!
//! Means need no common clock: what the guest's driver calls the device, minus what the VMM's requests
//! take on the host, is virtualization.

use std::path::Path;
use std::time::Duration;

use fathom_stack::host::{process_name, watch};
use fathom_stack::{
    Backend, Devices, Layer, Manner, Naming, Owner, StackAnalysis, TraceConfig, TraceError,
};
use serde::Serialize;
use serde_json::Value;

use super::{Rung, StackCase, StackReport};

/// Watches what a process does on the disks below `place`; nothing is written, nothing is started.
///
/// # Errors
/// The kernel may not be traced: there is no reduced result of a foreign process.
pub fn of_process(
    pid: u32,
    place: &Path,
    time: Duration,
    rung: Rung,
    interrupted: &dyn Fn() -> bool,
) -> Result<StackReport, TraceError> {
    let devices = Devices::below(place);
    let config = TraceConfig {
        devices: devices.clone(),
        threads: None,
        ios: 0,
        software: true,
        uring: true,
        single: true,
        backend: match rung {
            Rung::Perf => Backend::Perf,
            _ => Backend::Best,
        },
        live: true,
    };
    let seen = watch(pid, &config, time, interrupted)?;
    let (manner, naming) = reading(&devices);
    let mut analysis = StackAnalysis::new(devices, manner, naming);
    analysis.add_process(&seen.tids, &seen.trace);
    let result = analysis.result();
    let joined = result.by_device;
    let mut notes = vec![format!(
        "{joined} requests of process {pid} ({}), {} threads, from its submission to the kernel's answer",
        process_name(pid).unwrap_or_else(|| "it has ended".into()),
        seen.tids.len()
    )];
    if joined == 0 {
        notes.push(
            "none of its requests reached the disks in this time: is its image on them, and does the guest do I/O?"
                .into(),
        );
    }
    notes.extend(super::notes::gaps(seen.rung, &result));
    notes.extend(super::notes::counted([
        (
            result.unlinked,
            "requests were queued by worker threads or through libaio: only their device time is known",
        ),
        (
            result.unmatched,
            "ended after the watch, or were answered before the device was (buffered)",
        ),
        (result.merged, "were merged into another request"),
        (result.split, "were split over several bios"),
        (result.requeued, "were given back by the driver"),
    ]));
    let case = StackCase {
        name: format!("host-pid-{pid}"),
        rung: seen.rung.to_owned(),
        why: seen.why,
        layers: result.layers.clone(),
        application_mean_ns: (joined > 0).then_some(result.application_mean_ns),
        coverage: (result.submitted > 0).then_some(result.coverage),
        residual_ns: Some(result.residual_ns),
        lost: result.lost,
        notes,
        details: Some(result),
        ..StackCase::default()
    };
    Ok(StackReport {
        cases: vec![case],
        ..StackReport::default()
    })
}

/// How requests of a process are told apart, and what their layers are called.
fn reading(devices: &Devices) -> (Manner, Naming) {
    let naming = Naming {
        guest: fathom_stack::device::is_guest(),
        bio_based: devices.top.iter().any(|d| !d.has_requests),
        loop_file: devices.top.iter().any(|d| d.loop_file.is_some()),
        direct: true,
        in_memory: false,
        deep: true,
        polled: false,
        raw: false,
        commands: false,
        host: true,
    };
    let manner = Manner {
        uring: true,
        commands: false,
        single: false,
        must_reach_device: true,
        begins_at: None,
    };
    (manner, naming)
}

/// Both sides of a virtual machine, put together from two results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Combined {
    /// Guest software, virtualization, host software, device; means add up to the guest's mean.
    pub layers: Vec<Layer>,
    /// Mean that the application in the guest saw, ns.
    pub application_mean_ns: f64,
    /// What speaks against it.
    pub notes: Vec<String>,
}

/// Why two results cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum CombineError {
    /// A number is missing.
    #[error("{what} has no {key}; expected the {side} of `fathom stack` (stack.json of its run)")]
    Missing {
        /// Which file.
        what: String,
        /// Which number.
        key: &'static str,
        /// Which side it should be.
        side: &'static str,
    },
}

/// Puts a guest's result (its first case) and the host's (`--pid`) together; both as in `stack.json`.
///
/// # Errors
/// [`CombineError::Missing`], where one is not what it should be.
pub fn combine(guest: (&str, &Value), host: (&str, &Value)) -> Result<Combined, CombineError> {
    let number = |(what, v): (&str, &Value), key: &'static str, side: &'static str| {
        let case = &v["cases"][0];
        case[key]
            .as_f64()
            .or(case["details"][key].as_f64())
            .ok_or_else(|| CombineError::Missing {
                what: what.into(),
                key,
                side,
            })
    };
    let is_host = |v: &Value| {
        let name = v["cases"][0]["name"].as_str();
        name.is_some_and(|n| n.starts_with("host-pid-"))
    };
    for ((what, v), wanted, side) in [
        (guest, false, "guest's side"),
        (host, true, "host's side (--pid)"),
    ] {
        if is_host(v) != wanted {
            return Err(CombineError::Missing {
                what: what.into(),
                key: "layers of that side",
                side,
            });
        }
    }
    let total = number(guest, "application_mean_ns", "guest's side")?;
    let span = number(guest, "device_span_ns", "guest's side")?;
    let request = number(host, "application_mean_ns", "host's side")?;
    let device = number(host, "device_span_ns", "host's side")?;
    let rows = [
        ("guest software", total - span, Owner::Kernel),
        ("virtualization", span - request, Owner::Kernel),
        ("host software", request - device, Owner::Kernel),
        ("device", device, Owner::Device),
    ];
    let mut notes = Vec::new();
    if span < request {
        notes.push(
            "the host's requests took longer than the guest's driver waited: the two results are not of the same load"
                .into(),
        );
    }
    notes.push(
        "differences of means: both sides must have been measured under the same load, one request of the guest being one of the VMM"
            .into(),
    );
    Ok(Combined {
        layers: rows
            .into_iter()
            .map(|(name, mean_ns, owner)| Layer {
                name: name.into(),
                mean_ns,
                p50_ns: None,
                p99_ns: None,
                share: mean_ns / total,
                owner,
                ios: 0,
                distribution: Vec::new(),
            })
            .collect(),
        application_mean_ns: total,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn side(name: &str, total: f64, span: f64) -> Value {
        json!({"cases": [{"name": name, "application_mean_ns": total, "details": {"device_span_ns": span}}]})
    }

    #[test]
    fn four_rows_add_up_to_what_the_guest_saw() {
        let guest = side("randread-qd1-direct-uring", 100.0, 80.0);
        let host = side("host-pid-7", 30.0, 20.0);
        let c = combine(("g", &guest), ("h", &host)).unwrap();
        let means: Vec<f64> = c.layers.iter().map(|l| l.mean_ns).collect();
        assert_eq!(means, [20.0, 50.0, 10.0, 20.0]);
        assert_eq!(means.iter().sum::<f64>(), c.application_mean_ns);
        // The wrong way round, or two loads.
        assert!(combine(("h", &host), ("g", &guest)).is_err());
        let slow = side("host-pid-7", 300.0, 20.0);
        let c = combine(("g", &guest), ("h", &slow)).unwrap();
        assert!(c.notes[0].contains("same load"));
        let e = combine(("g", &json!({})), ("h", &host)).unwrap_err();
        assert!(e.to_string().contains("g has no"), "{e}");
    }
}
