//! Passes that begin cold: the page cache forgets what the last one left there.

use fathom_telemetry::WindowSink;

use super::Worker;
use crate::job::ValidJob;
use crate::load::guide::Pass;
use crate::port::Port;

/// The range that the page cache forgets when a pass begins again.
pub(super) struct Cold {
    start: u64,
    len: u64,
    /// Passes that began.
    passes: u64,
}

impl Cold {
    /// Where the job asks for it. Offsets that are drawn one by one have no passes.
    pub(super) fn of(job: &ValidJob) -> Option<Self> {
        (job.spec.drop_cache && !job.spec.direct).then_some(Self {
            start: job.start,
            len: job.range(),
            passes: 0,
        })
    }

    pub(super) fn restart(&mut self) {
        self.passes = 0;
    }
}

impl<P: Port, S: WindowSink> Worker<P, S> {
    /// Lets the page cache forget the range where the pattern begins it again.
    #[inline]
    pub(super) fn cool(&mut self) {
        let Some(c) = &mut self.cold else {
            return;
        };
        let passes = self.pattern.offsets.passes();
        if passes > c.passes {
            c.passes = passes;
            self.port.drop_cache(c.start, c.len, false);
        }
    }

    /// The same where a pilot says so.
    #[cold]
    pub(super) fn begin_pass(&mut self, pass: Pass) {
        let (start, len) = self.cold.as_ref().map_or((0, 0), |c| (c.start, c.len));
        match pass {
            Pass::Again if self.cold.is_none() => {}
            Pass::Again => self.port.drop_cache(start, len, false),
            // A length of 0 is everything.
            Pass::ReadBack => self.port.drop_cache(start, len, true),
        }
    }
}
