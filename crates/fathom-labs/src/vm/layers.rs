//! Latency by layer on both sides of a machine: the stack experiment in the guest, and on the host over its QEMU at
//! the same time.

use std::path::Path;
use std::time::Duration;

use fathom_bench::Notebook;
use fathom_bench::parts::{axis, number, table, text};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_experiments::stack::{self, Rung, host};
use fathom_telemetry::schema::{Chart, ChartKind, ChartSeries, Point, Section};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::LabError;
use fathom_system::SystemError;
use fathom_system::guest::Guest;

/// How long the guest's stack runs: start, calibration, traced and untraced passes.
const GUEST_TIME: &str = "3s";
/// When the host begins to look, and how long: the guest's load lasts longer.
const HOST_AFTER: Duration = Duration::from_millis(1500);
const HOST_TIME: Duration = Duration::from_millis(1500);

/// Runs both at the same time on `device` of the guest, whose disk lies at `place`.
///
/// # Errors
/// Where one side cannot be traced, with what it said.
pub(super) fn both(
    guest: &mut Guest,
    device: &str,
    place: &Path,
    book: &mut Notebook,
    interrupted: &dyn Fn() -> bool,
) -> Result<LayersResult, LabError> {
    let failed = |side: &str, why: String| LabError::Failed(format!("the {side}'s layers: {why}"));
    let pid = guest.pid();
    let kept = tempdir().map_err(|e| failed("guest", e.to_string()))?;
    let words = [
        "stack", device, "--rw", "randread", "--qd", "1", "--direct", "--engine", "uring",
        "--time", GUEST_TIME,
    ];
    let (of_guest, of_host) = std::thread::scope(|scope| {
        let there = fathom_io::threads::within(scope, || guest.fathom(&words, &kept.0))
            .map_err(|e| LabError::Failed(e.to_string()))?;
        std::thread::sleep(HOST_AFTER);
        let here = host::of_process(pid, place, HOST_TIME, Rung::Best, interrupted);
        let there = there
            .join()
            .unwrap_or_else(|_| Err(SystemError::Failed("its listener broke off".into())));
        Ok::<_, LabError>((there, here))
    })?;
    let (output, runs) = of_guest?;
    let report = of_host.map_err(|e| failed("host", e.to_string()))?;
    book.found(&report)
        .map_err(|e| failed("host", e.to_string()))?;
    let read = |dir: &Path| std::fs::read_to_string(dir.join("stack.json")).ok();
    let Some(text) = runs.first().and_then(|d| read(d)) else {
        let said = output.err.lines().last().unwrap_or("it left no result");
        return Err(failed(
            "guest",
            said.trim_start_matches("fathom: ").to_owned(),
        ));
    };
    let inner: Value = serde_json::from_str(&text).map_err(|e| failed("guest", e.to_string()))?;
    let outer = Value::Object(stack::document(&report));
    let sum = host::combine(("the guest", &inner), ("the host", &outer))
        .map_err(|e| failed("host", e.to_string()))?;
    let layers = sum.layers.into_iter().map(|l| Layer {
        name: l.name,
        mean_ns: l.mean_ns,
        share: l.share,
    });
    Ok(LayersResult {
        layers: layers.collect(),
        notes: sum.notes,
    })
}

/// What was found on both sides.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LayersResult {
    layers: Vec<Layer>,
    notes: Vec<String>,
}

/// A layer of the guest's latency.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Layer {
    name: String,
    mean_ns: f64,
    share: f64,
}

impl ExperimentResult for LayersResult {
    const EXPERIMENT: &'static str = "vm-layers";

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        shown.sections.push(section(self));
    }
}

fn section(both: &LayersResult) -> Section {
    let series = both
        .layers
        .iter()
        .map(|l| ChartSeries {
            name: l.name.clone(),
            points: vec![Point {
                x: 0.0,
                y: Some(l.mean_ns),
                ..Point::default()
            }],
        })
        .collect();
    let notes = both.notes.join(". ");
    Section {
        id: "vm-layers".into(),
        title: "Latency by layer, both sides".into(),
        text: format!(
            "One random read of 4 KiB outstanding. The guest's kernel events say how long its disk took, the host's how long QEMU's requests took on theirs: what lies between is virtualization. {notes}"
        ),
        charts: vec![Chart {
            id: "vm-layers-chart".into(),
            title: "Where the guest's latency goes".into(),
            kind: ChartKind::StackedBar,
            x: axis("", "", false),
            y: axis("mean latency", "ns", false),
            z: None,
            categories: vec!["random read of 4 KiB, QD 1".into()],
            series,
            marks: Vec::new(),
        }],
        tables: vec![table(
            "vm-layers-table",
            "Layers",
            &both.layers,
            &[
                ("layer", "", &|l| text(&l.name)),
                ("mean", "ns", &|l| number(Some(l.mean_ns))),
                ("share", "%", &|l| number(Some(l.share * 100.0))),
            ],
        )],
        ..Section::default()
    }
}

/// A directory that goes with its handle.
struct ChildGuard(std::path::PathBuf);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Nothing but what came from the guest is in it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tempdir() -> std::io::Result<ChildGuard> {
    fathom_files::create::temporary_dir("fathom-vm-").map(ChildGuard)
}
