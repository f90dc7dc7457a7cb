//! Simulated machines: `sim:MODEL` as the physical host, `sim:vmN:MODEL` as N machines over it.

use fathom_bench::bench::simulated_flag;
use fathom_bench::{Bench, BenchError, SimBench};
use fathom_io::Control;
use fathom_sim::{Shape, SimTarget};
use fathom_telemetry::Flag;

use super::backend::{Hypervisor, Knob, Setup};
use crate::LabError;

/// What the model of a host knows (options of `sim:` targets).
const KNOBS: &[Knob] = &[
    Knob {
        name: "idle",
        values: &["on", "shallow", "busy"],
        help: "idle cores sleep deep, stay in C1, or never sleep",
    },
    Knob {
        name: "poll",
        values: &["off", "on"],
        help: "completions are polled for instead of waited for",
    },
];

/// A host and its machines, by the name of one model.
pub struct SimMachines {
    /// After `sim:`, with its options.
    model: String,
    control: Control,
}

impl SimMachines {
    /// From a target such as `sim:optane-900p`.
    ///
    /// # Errors
    /// Unknown models, and targets that are arrays or machines already.
    pub fn new(target: &str, control: Control) -> Result<Self, LabError> {
        let parsed = SimTarget::parse(target).map_err(BenchError::from)?;
        if parsed.shape != Shape::Device {
            return Err(LabError::Refused(format!(
                "{target}: expected one device, under which this lab puts machines itself, such as sim:optane-900p"
            )));
        }
        Ok(Self {
            model: target.trim_start_matches("sim:").to_owned(),
            control,
        })
    }
}

/// `sim:vmN:MODEL` of `sim:MODEL`.
pub(super) fn name(model: &str, machines: u32) -> String {
    format!("sim:vm{machines}:{}", model.trim_start_matches("sim:"))
}

impl Hypervisor for SimMachines {
    fn name(&self) -> &'static str {
        "sim"
    }
    fn about(&self) -> String {
        format!(
            "Models of machines (QEMU 2.10, virtio-blk, one iothread each, as Zhang et al. 2018) over {}",
            self.model
        )
    }
    fn knobs(&self) -> &'static [Knob] {
        KNOBS
    }
    fn boot(&mut self, setup: &Setup, machines: u32) -> Result<Box<dyn Bench>, LabError> {
        let mut name = name(&self.model, machines);
        if let Some(idle) = setup.get("idle") {
            name += &format!(",idle={idle}");
        }
        if setup.get("poll") == Some("on") {
            name += ",poll";
        }
        let bench = SimBench::open(&name, self.control.clone()).map_err(BenchError::from)?;
        Ok(Box::new(bench))
    }
    fn floor(&mut self, _setup: &Setup) -> Result<Option<Box<dyn Bench>>, LabError> {
        Ok(None)
    }
    fn stamps(&self) -> Vec<Flag> {
        vec![simulated_flag(&format!("sim:vm:{}", self.model))]
    }
}
