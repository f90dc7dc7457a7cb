//! The bench of simulated targets: the same jobs in virtual time, every result stamped and flagged as simulated.

use fathom_io::Control;
use fathom_io::driver::{Observer, PlannedJob, run_virtual};
use fathom_io::job::Limits;
use fathom_sim::{SimError, SimTarget, Simulation};
use fathom_telemetry::schema::{self, Job};

use crate::bench::{Bench, BenchError, LogMaker, simulated_flag};

/// A simulated target and its state, which goes on from group to group.
pub struct SimBench {
    target: SimTarget,
    simulation: Option<Simulation>,
    control: Control,
}

impl SimBench {
    /// From a name that begins with `sim:`.
    ///
    /// # Errors
    /// Unknown models, bad model files, impossible compositions.
    pub fn open(name: &str, control: Control) -> Result<Self, SimError> {
        Ok(Self::new(SimTarget::parse(name)?, control))
    }

    /// On a target that is already known.
    pub fn new(target: SimTarget, control: Control) -> Self {
        Self {
            target,
            simulation: None,
            control,
        }
    }
}

impl Bench for SimBench {
    fn limits(&self) -> Limits {
        Limits {
            size: self.target.size(),
            direct_align: 512,
        }
    }
    fn describe(&self) -> schema::Target {
        schema::Target {
            name: self.target.name.clone(),
            kind: "simulated".into(),
            path: None,
            size_bytes: self.target.size(),
            device: None,
            description: self.target.description(),
        }
    }
    fn simulated(&self) -> bool {
        true
    }
    fn interrupted(&self) -> bool {
        self.control.interrupted()
    }

    /// A model needs no data to be read.
    fn prepare(&mut self, _observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        Ok(None)
    }

    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        // The first job's seed is the run's.
        let seed = jobs.first().map_or(1, |j| j.job.spec.seed);
        let target = &self.target;
        let simulation = self
            .simulation
            .get_or_insert_with(|| Simulation::new(target, seed));
        simulation.assign(jobs);
        let origin = simulation.now();
        let mut measures = run_virtual(jobs, simulation, origin, "sim", log, observer);
        for job in &mut measures {
            job.start_ns += origin.0;
            job.flags.push(simulated_flag(&self.target.name));
        }
        Ok(measures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::JobSpec;
    use fathom_telemetry::{FlagCode, Nanos};

    #[test]
    fn results_are_stamped_and_time_goes_on() {
        let mut bench = SimBench::open("sim:optane-900p", Control::new()).unwrap();
        let spec = JobSpec {
            time: Some(Nanos::from_millis(20)),
            window: Nanos::from_millis(10),
            ..JobSpec::default()
        };
        let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
        let first = bench.run(&planned, None, &mut ()).unwrap().remove(0);
        let second = bench.run(&planned, None, &mut ()).unwrap().remove(0);
        assert!(first.flags.iter().any(|f| f.code == FlagCode::Simulated));
        assert!(!first.is_void() && bench.simulated());
        assert!(second.start_ns >= first.start_ns + first.wall_ns);
        let mean = first.read.unwrap().service_ns.mean.unwrap();
        assert!((mean / 13_500.0 - 1.0).abs() < 0.02, "{mean}");
    }
}
