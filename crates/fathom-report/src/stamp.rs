//! What every output of a run must carry where its numbers are no measurements of a device as it is.

use fathom_telemetry::FlagCode;
use fathom_telemetry::schema::Run;

/// A stamp: a word for charts and columns, a sentence for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Lower case.
    pub(crate) word: &'static str,
    pub(crate) sentence: &'static str,
}

impl Stamp {
    /// Of a run; `None` where its numbers are what was measured.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        let flags = || {
            run.flags
                .iter()
                .chain(run.jobs.iter().flat_map(|j| &j.flags))
        };
        if run.simulated {
            Some(Self {
                word: "simulated",
                sentence: "SIMULATED: these numbers come from a model, not from a device.",
            })
        } else if flags().any(|f| f.code == FlagCode::Emulated) {
            Some(Self {
                word: "emulated",
                sentence: "EMULATED CPU: not a performance figure. These numbers show relations only.",
            })
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job, run_with};
    use fathom_telemetry::Flag;

    #[test]
    fn one_emulated_job_stamps_the_whole_run() {
        let mut run = run_with(vec![job("a"), job("b")]);
        assert_eq!(Stamp::of(&run), None);
        run.jobs[1]
            .flags
            .push(Flag::new(FlagCode::Emulated, "x", "y"));
        assert_eq!(Stamp::of(&run).unwrap().word, "emulated");
        run.simulated = true;
        assert_eq!(Stamp::of(&run).unwrap().word, "simulated");
    }
}
