//! Options of `fathom reproduce`, and how the papers measured.

use clap::Args;
use fathom_io::JobSpec;
use fathom_telemetry::{Bytes, Nanos};

use super::is_figure;

/// How a paper measured: its data set, and how often it repeated a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Bytes of the data set.
    pub data_set: Bytes,
    /// Runs whose mean is published.
    pub repeats: u32,
}

/// How a paper measured; `None` for one that is not known. Lengths of runs are 30 s where they are stated at all.
pub fn method(paper: &str) -> Option<Method> {
    let (data_set, repeats) = match paper {
        // III-A: 20 GB of data, each result a run of 30 s.
        "zhang2018" => (20_000 << 20, 1),
        // 3.3 and 4.1: 64 files of 4 GB, the mean of five runs.
        "han2021" => (256_000_000_000, 5),
        // Neither says.
        "oneill2018" | "shrout2017" => (20_000 << 20, 1),
        _ => return None,
    };
    Some(Method {
        data_set: Bytes(data_set),
        repeats,
    })
}

/// What is reproduced of a paper, and how where that is measured on a target.
#[derive(Debug, Clone, Args)]
pub struct ReproduceOptions {
    /// zhang2018, han2021, oneill2018 or shrout2017
    pub paper: String,
    /// Only values with this identifier, or of this table or figure
    #[arg(long, value_name = "ID")]
    pub figure: Option<String>,
    /// With --on: length of each experiment (30 s in the papers)
    #[arg(long, default_value = "30s", requires = "on")]
    pub time: Nanos,
    /// With --on: runs of each load [default: as in the paper, 5 for han2021, else 1]
    #[arg(long, value_name = "N", requires = "on", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: Option<u32>,
    /// With --on: size of the data set [default: as in the paper, 64 x 4 GB for han2021, else 20000 MiB]
    #[arg(long, requires = "on")]
    pub size: Option<Bytes>,
}

impl ReproduceOptions {
    /// Runs of each load on a target.
    pub fn repeats(&self) -> u32 {
        let published = || method(&self.paper).map_or(1, |m| m.repeats);
        self.repeats.unwrap_or_else(published)
    }

    /// Bytes of the data set on a target; all of a smaller one.
    pub fn data_set(&self) -> Bytes {
        let published = || method(&self.paper).map_or(Bytes(0), |m| m.data_set);
        self.size.unwrap_or_else(published)
    }

    /// Whether a value is asked for.
    pub(super) fn wants(&self, id: &str, place: &str) -> bool {
        self.figure.as_ref().is_none_or(|f| is_figure(f, id, place))
    }

    /// A job as it is to run here.
    pub(super) fn spec(&self, job: &JobSpec, size: Bytes) -> JobSpec {
        JobSpec {
            size: Some(size),
            time: Some(self.time),
            // Where a ramp ends, a sequential pass begins anew, and would find its pages in memory.
            ramp: if job.direct || job.rw.modifies() {
                Nanos::from_millis(200)
            } else {
                Nanos::ZERO
            },
            ..job.clone()
        }
    }
}
