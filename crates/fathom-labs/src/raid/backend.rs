//! Arrays as benches: those of this kernel ([`fathom_system::array`]), and of models ([`super::SimArrays`]).

use fathom_bench::bench::LogMaker;
use fathom_bench::{Bench, BenchError, RealBench};
use fathom_io::driver::PlannedJob;
use fathom_io::job::Limits;
use fathom_io::{Control, Observer};
use fathom_system::SystemError;
use fathom_system::array::{Array, ArrayMaker, Shape};
use fathom_telemetry::schema::{self, Job};
use fathom_telemetry::{Bytes, Flag};

use crate::LabError;

/// Makes arrays over the same members, one after another.
pub trait Backend {
    /// In words, for the report.
    fn about(&self) -> String;
    /// Why it cannot make such an array; `None` where it can.
    fn cannot(&self, shape: &Shape) -> Option<String>;
    /// The disk that several members lie on, where they do: arrays cannot be faster than it then.
    fn shared_disk(&self) -> Option<&str> {
        None
    }
    /// One member alone, in whose multiples arrays are counted.
    ///
    /// # Errors
    /// Where the member cannot be opened.
    fn member(&mut self) -> Result<Box<dyn Bench>, LabError>;
    /// Makes an array.
    ///
    /// # Errors
    /// Where it could not be made; nothing is left of it then.
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn ArrayBench>, LabError>;
    /// What stands against every number.
    fn stamps(&self) -> Vec<Flag> {
        Vec::new()
    }
}

/// An array, and the bench that runs jobs on it.
pub trait ArrayBench {
    /// Runs jobs on it.
    fn bench(&mut self) -> &mut dyn Bench;
    /// The array.
    fn itself(&mut self) -> &mut dyn Array;
    /// The array for somebody else's jobs: its bench is closed, and cannot be used any more.
    ///
    /// # Errors
    /// Where the bench could not be closed.
    fn hand_over(&mut self) -> Result<&mut dyn Array, LabError>;
    /// Takes it apart.
    ///
    /// # Errors
    /// Where something that was made for it could not be removed.
    fn close(self: Box<Self>) -> Result<(), LabError>;
}

/// Arrays of this kernel.
pub struct KernelArrays {
    maker: Box<dyn ArrayMaker>,
    control: Control,
}

impl KernelArrays {
    /// Those that `maker` makes; `control` interrupts jobs on them.
    pub fn new(maker: Box<dyn ArrayMaker>, control: Control) -> Self {
        Self { maker, control }
    }

    fn open(&self, array: Box<dyn Array>) -> Result<KernelArray, LabError> {
        let target = array.open()?;
        Ok(KernelArray {
            bench: Some(RealBench::new(target, self.control.clone())),
            array,
        })
    }
}

impl Backend for KernelArrays {
    fn about(&self) -> String {
        self.maker.about()
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        self.maker.cannot(shape)
    }
    fn shared_disk(&self) -> Option<&str> {
        self.maker.shared_disk()
    }
    fn member(&mut self) -> Result<Box<dyn Bench>, LabError> {
        let alone = self.maker.member()?;
        Ok(Box::new(self.open(alone)?))
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn ArrayBench>, LabError> {
        let array = self.maker.make(shape)?;
        Ok(Box::new(self.open(array)?))
    }
}

/// One of them, opened. Dropping it takes it apart.
struct KernelArray {
    /// Dropped first: it holds the array open.
    bench: Option<RealBench>,
    array: Box<dyn Array>,
}

impl KernelArray {
    fn opened(&self) -> &RealBench {
        match &self.bench {
            Some(b) => b,
            None => unreachable!("nobody runs jobs on what was handed over"),
        }
    }

    fn opened_mut(&mut self) -> &mut RealBench {
        match &mut self.bench {
            Some(b) => b,
            None => unreachable!("nobody runs jobs on what was handed over"),
        }
    }

    fn close_bench(&mut self) -> Result<(), BenchError> {
        self.bench.take().map_or(Ok(()), |b| Box::new(b).close())
    }
}

impl ArrayBench for KernelArray {
    fn bench(&mut self) -> &mut dyn Bench {
        self.opened_mut()
    }
    fn itself(&mut self) -> &mut dyn Array {
        &mut *self.array
    }
    fn hand_over(&mut self) -> Result<&mut dyn Array, LabError> {
        self.close_bench()?;
        Ok(&mut *self.array)
    }
    fn close(mut self: Box<Self>) -> Result<(), LabError> {
        self.close_bench()?;
        Ok(self.array.close()?)
    }
}

/// As a bench alone: one member under the same file system, or as it is.
impl Bench for KernelArray {
    fn limits(&self) -> Limits {
        self.opened().limits()
    }
    fn describe(&self) -> schema::Target {
        self.opened().describe()
    }
    fn simulated(&self) -> bool {
        false
    }
    fn control(&self) -> Control {
        self.opened().control()
    }
    fn real(&mut self) -> Option<&mut RealBench> {
        self.bench.as_mut()
    }
    fn fills(&self) -> Bytes {
        self.opened().fills()
    }
    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        self.close_bench()?;
        let outside = |e: SystemError| BenchError::Outside(e.to_string());
        self.array.close().map_err(outside)
    }
    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        self.opened_mut().prepare(observer)
    }
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        self.opened_mut().run(jobs, log, observer)
    }
}
