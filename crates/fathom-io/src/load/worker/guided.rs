//! Completions of a worker whose pilot looks at each of them. Apart from the worker's own way, which has no call per I/O.

use fathom_telemetry::WindowSink;

use super::Worker;
use crate::port::Port;

impl<P: Port, S: WindowSink> Worker<P, S> {
    /// [`Worker::reap`] where a pilot looks at every completion and may change its result.
    #[cold]
    pub(super) fn reap_guided(&mut self, before: u32) {
        let Some(mut seat) = self.pilot.take() else {
            return;
        };
        // The pilot looks into buffers, which belong to the port: so the port is asked first for all.
        let mut landed = std::mem::take(&mut seat.landed);
        let take = self.take;
        let (port, mut books) = self.books();
        match take {
            0 => port.reap(|slot, result| landed.push((slot, result))),
            n => port.reap_some(n, |slot, result| landed.push((slot, result))),
        }
        for (slot, result) in landed.drain(..) {
            let io = books.slots[slot as usize].request;
            let mut record = books.record(slot, result);
            let data: &[u8] = match port.buffer(slot, io.len) {
                Some(b) => b,
                None => &[],
            };
            record.result = seat.pilot.done(&io, &record, data);
            books.book(slot, &record);
            seat.until = None;
        }
        let (done, failed) = (books.done, books.failed);
        seat.landed = landed;
        self.pilot = Some(seat);
        self.settle(before, done, failed);
    }
}
