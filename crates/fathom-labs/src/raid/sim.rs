//! Simulated arrays: `sim:MODEL` as one member, `sim:raidL:NxMODEL` as the array.

use fathom_bench::bench::simulated_flag;
use fathom_bench::{Bench, BenchError, SimBench};
use fathom_io::Control;
use fathom_sim::{Shape as SimShape, SimTarget};
use fathom_telemetry::{Bytes, Flag, Nanos};

use fathom_system::SystemError;
use fathom_system::array::{Array, Shape, Traffic};

use super::State;
use super::backend::{ArrayBench, Backend};
use crate::LabError;

/// Arrays of one model as members.
pub struct SimArrays {
    /// After `sim:`, with its options.
    model: String,
    control: Control,
}

impl SimArrays {
    /// From a target such as `sim:optane-900p,idle=busy`.
    ///
    /// # Errors
    /// Unknown models, and targets that are arrays or machines already.
    pub fn new(target: &str, control: Control) -> Result<Self, LabError> {
        let parsed = SimTarget::parse(target).map_err(BenchError::from)?;
        if parsed.shape != SimShape::Device {
            return Err(LabError::Refused(format!(
                "{target}: expected one device, whose arrays this lab makes itself, such as sim:optane-900p"
            )));
        }
        Ok(Self {
            model: target.trim_start_matches("sim:").to_owned(),
            control,
        })
    }
}

impl Backend for SimArrays {
    fn about(&self) -> String {
        format!("md over models of {}", self.model)
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        SimTarget::parse(&name(&self.model, shape, State::Whole))
            .err()
            .map(|e| e.to_string())
    }
    fn member(&mut self) -> Result<Box<dyn Bench>, LabError> {
        let name = format!("sim:{}", self.model);
        let bench = SimBench::open(&name, self.control.clone()).map_err(BenchError::from)?;
        Ok(Box::new(bench))
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn ArrayBench>, LabError> {
        Ok(Box::new(SimArray::open(self, *shape, State::Whole)?))
    }
    fn stamps(&self) -> Vec<Flag> {
        vec![simulated_flag(&format!("sim:{}", self.model))]
    }
}

/// `sim:raid5:8xMODEL,chunk=…,STATE` of `sim:MODEL`.
pub(super) fn name(model: &str, shape: &Shape, state: State) -> String {
    let state = match state {
        State::Member | State::Whole => "",
        State::Degraded => ",degraded",
        State::Rebuilding => ",rebuild",
    };
    format!(
        "sim:raid{}:{}x{},chunk={}{state}",
        shape.level.number(),
        shape.members,
        model.trim_start_matches("sim:"),
        shape.chunk.0
    )
}

struct SimArray {
    model: String,
    control: Control,
    shape: Shape,
    state: State,
    bench: SimBench,
}

impl SimArray {
    fn open(backend: &SimArrays, shape: Shape, state: State) -> Result<Self, LabError> {
        let name = name(&backend.model, &shape, state);
        let bench = SimBench::open(&name, backend.control.clone()).map_err(BenchError::from)?;
        Ok(Self {
            model: backend.model.clone(),
            control: backend.control.clone(),
            shape,
            state,
            bench,
        })
    }

    fn become_(&mut self, state: State) -> Result<(), SystemError> {
        let backend = SimArrays {
            model: self.model.clone(),
            control: self.control.clone(),
        };
        *self = Self::open(&backend, self.shape, state)
            .map_err(|e| SystemError::Failed(e.to_string()))?;
        Ok(())
    }
}

impl Array for SimArray {
    fn traffic(&self) -> Option<Traffic> {
        let (asked, members) = self.bench.array()?.traffic();
        Some(Traffic { asked, members })
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        Vec::new()
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![("chunk".into(), Bytes(self.shape.chunk.0).to_string())]
    }
    fn states(&self) -> bool {
        true
    }
    fn lose(&mut self, _member: u32) -> Result<(), SystemError> {
        self.become_(State::Degraded)
    }
    fn rebuild(&mut self) -> Result<(), SystemError> {
        if self.state != State::Degraded {
            return Err(SystemError::Failed(
                "nothing was lost that could be rebuilt".into(),
            ));
        }
        self.become_(State::Rebuilding)
    }
    fn rebuilt(&mut self) -> Option<f64> {
        self.bench.array()?.rebuilt()
    }
    fn close(self: Box<Self>) -> Result<(), SystemError> {
        Ok(())
    }
}

impl ArrayBench for SimArray {
    fn bench(&mut self) -> &mut dyn Bench {
        &mut self.bench
    }
    fn itself(&mut self) -> &mut dyn Array {
        self
    }
    fn hand_over(&mut self) -> Result<&mut dyn Array, LabError> {
        Ok(self)
    }
    fn close(self: Box<Self>) -> Result<(), LabError> {
        Ok(())
    }
}
