//! The host's side of a virtual machine: the I/Os of a process that fathom did not start (a VMM), from
//! its submission to the kernel until the kernel's answer, with the device's part inside.
//!
//! Nothing is asked of the process: its io_uring requests and its blocking calls are seen as they pass.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use fathom_telemetry::{Nanos, Op, Record};

use crate::boundary::{BOUNDARIES, Boundary};
use crate::chain::{Chain, Chains};
use crate::device::Devices;
use crate::error::TraceError;
use crate::event::{Event, Kind, rwbs};
use crate::join::{Answer, Join, Joined, io_call_numbers};
use crate::session::{Session, Trace, TraceConfig};
use crate::stacked::{Way, way};

/// How often new threads are looked for.
const LOOK: Duration = Duration::from_millis(50);
/// io_uring_enter submits requests, it is none.
const RING_ENTER: u64 = 426;

/// What a process did while it was watched.
#[derive(Debug)]
pub struct Watched {
    /// Every thread that it had.
    pub tids: Vec<u32>,
    /// Events of the time.
    pub trace: Trace,
    /// `full` or `perf-events`.
    pub rung: &'static str,
    /// Why it is not the highest rung.
    pub why: Option<String>,
}

/// The name of a process, if there is one.
pub fn process_name(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

fn threads(pid: u32) -> Vec<u32> {
    std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// Watches a process for a time, or until `enough` says so; nothing of it is changed.
///
/// # Errors
/// The kernel may not be traced.
pub fn watch(
    pid: u32,
    config: &TraceConfig,
    time: Duration,
    mut enough: impl FnMut() -> bool,
) -> Result<Watched, TraceError> {
    let mut session = Session::start(config)?;
    let (rung, why) = (session.rung(), session.why().map(str::to_owned));
    let mut tids = BTreeSet::new();
    let mut left = time;
    while !left.is_zero() && !enough() {
        tids.extend(threads(pid));
        let step = left.min(LOOK);
        std::thread::sleep(step);
        left -= step;
    }
    tids.extend(threads(pid));
    Ok(Watched {
        tids: tids.into_iter().collect(),
        trace: session.stop()?,
        rung,
        why,
    })
}

/// A request of the process: until when bios of its thread are its own, and its end.
#[derive(Debug, Clone)]
struct Request {
    submit: u64,
    until: u64,
    complete: u64,
    cpu: u16,
    bios: Vec<Chain>,
}

/// What the process has asked for, and by thread, in the order of submission.
fn requests(own: &BTreeSet<u32>, events: &[Event]) -> (Vec<Request>, HashMap<u32, Vec<usize>>) {
    let mut requests: Vec<Request> = Vec::new();
    let mut by_tid: HashMap<u32, Vec<usize>> = HashMap::new();
    // Those of the rings by the kernel's address, those of calls by thread.
    let mut open: HashMap<u64, usize> = HashMap::new();
    let mut call: HashMap<u32, usize> = HashMap::new();
    let numbers = io_call_numbers();
    for e in events.iter().filter(|e| own.contains(&e.tid)) {
        let starts = match e.kind {
            Kind::RingSubmit => true,
            Kind::SysEnter => e.a != RING_ENTER && numbers.contains(&e.a),
            _ => false,
        };
        if starts {
            let list = by_tid.entry(e.tid).or_default();
            if let Some(before) = list.last() {
                let r = &mut requests[*before];
                r.until = r.until.min(e.ts);
            }
            list.push(requests.len());
            match e.kind {
                Kind::RingSubmit => drop(open.insert(e.a, requests.len())),
                _ => drop(call.insert(e.tid, requests.len())),
            }
            requests.push(Request {
                submit: e.ts,
                until: u64::MAX,
                complete: 0,
                cpu: e.cpu,
                bios: Vec::new(),
            });
            continue;
        }
        match e.kind {
            Kind::RingComplete => {
                if let Some(i) = open.remove(&e.a) {
                    requests[i].complete = e.ts;
                    requests[i].until = requests[i].until.min(e.ts);
                }
            }
            Kind::SysExit if e.a == RING_ENTER => {
                // What the thread queues afterwards is no request's of this call.
                if let Some(i) = by_tid.get(&e.tid).and_then(|l| l.last()) {
                    requests[*i].until = requests[*i].until.min(e.ts);
                }
            }
            Kind::SysExit => {
                if let Some(i) = call.remove(&e.tid) {
                    requests[i].complete = e.ts;
                    requests[i].until = requests[i].until.min(e.ts);
                }
            }
            _ => {}
        }
    }
    (requests, by_tid)
}

/// Every request of the process that reached a device, as I/Os whose ends are the process' own.
pub(crate) fn join(tids: &[u32], events: &[Event], chains: &Chains, devices: &Devices) -> Join {
    let own: BTreeSet<u32> = tids.iter().copied().collect();
    let (mut requests, by_tid) = requests(&own, events);
    let mut out = Join::default();
    for c in chains
        .all
        .iter()
        .filter(|c| own.contains(&c.tid) && c.is_data() && c.complete > 0)
    {
        let list = by_tid.get(&c.tid).map_or(&[][..], Vec::as_slice);
        let at = list.partition_point(|i| requests[*i].submit <= c.queued);
        let owner = at.checked_sub(1).map(|i| list[i]);
        let Some(r) = owner
            .map(|i| &mut requests[i])
            .filter(|r| c.queued <= r.until)
        else {
            // A worker of the ring or a thread of the file system queued it.
            out.unlinked += 1;
            out.submitted += 1;
            continue;
        };
        r.bios.push(*c);
    }
    for r in requests.iter().filter(|r| !r.bios.is_empty()) {
        out.submitted += 1;
        // Still under way at the end, or answered before the device was (buffered writes).
        let whole = r.bios.iter().all(|c| c.complete <= r.complete);
        let Some(way) = way(&r.bios, devices, false, r.complete).filter(|_| whole) else {
            out.unmatched += 1;
            continue;
        };
        out.split += u64::from(way.split);
        out.twins += u64::from(way.last.twin);
        out.merged += u64::from(way.last.merged);
        out.requeued += u64::from(way.last.requeues > 0);
        out.ios.push(joined(r, &way));
    }
    out
}

fn joined(r: &Request, way: &Way) -> Joined {
    let chain = way.last;
    let mut at = [0; BOUNDARIES];
    for (b, t) in [
        (Boundary::Submitted, r.submit),
        (Boundary::Queued, way.first.queued),
        (
            Boundary::LowerQueued,
            if way.below { chain.queued } else { 0 },
        ),
        (Boundary::GotRequest, chain.got),
        (Boundary::Started, chain.started),
        (Boundary::Inserted, chain.inserted),
        (Boundary::CommandMade, chain.made),
        (Boundary::Issued, chain.issued),
        (Boundary::Interrupt, chain.irq),
        (Boundary::CommandDone, chain.done),
        (Boundary::Complete, chain.complete),
        (Boundary::UpperComplete, way.upper_complete),
        (Boundary::Completed, r.complete),
    ] {
        at[b as usize] = t;
    }
    let len = chain.sectors * 512;
    Joined {
        record: Record {
            intended: Nanos(r.submit),
            submitted: Nanos(r.submit),
            completed: Nanos(r.complete),
            // The offset in the guest's disk is not known here: the one on the host's.
            offset: chain.sector * 512,
            len,
            result: i64::from(len),
            op: if chain.flags & rwbs::WRITE != 0 {
                Op::Write
            } else {
                Op::Read
            },
        },
        thread: 0,
        tid: chain.tid,
        at,
        answer: Answer::Device,
        chain: Some(chain),
        cpu: r.cpu,
        bios: r.bios.len() as u16,
        off_cpu: 0,
        preempted: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::chains;

    fn event(ts: u64, tid: u32, kind: Kind, a: u64, b: u64) -> Event {
        Event {
            ts,
            a,
            b,
            c: 8,
            flags: rwbs::READ,
            tid,
            cpu: 0,
            kind,
        }
    }

    #[test]
    fn requests_of_a_ring_and_calls_that_block_are_the_process_own() {
        let block = |ts, tid, kind, sector| event(ts, tid, kind, 1, sector);
        let events = [
            // A poll of the ring's event descriptor reaches no device.
            event(1, 7, Kind::RingSubmit, 100, 0),
            event(10, 7, Kind::RingSubmit, 101, 0),
            block(12, 7, Kind::Queue, 8),
            event(13, 7, Kind::SysExit, RING_ENTER, 0),
            // Another process, and one's own without a request.
            block(14, 9, Kind::Queue, 64),
            block(15, 7, Kind::Queue, 72),
            event(16, 8, Kind::SysEnter, io_call_numbers()[5], 0),
            block(18, 8, Kind::Queue, 16),
            block(20, 8, Kind::Issue, 16),
            block(21, 7, Kind::Issue, 8),
            block(30, 0, Kind::Complete, 8),
            block(31, 0, Kind::Complete, 16),
            block(32, 0, Kind::Complete, 64),
            block(33, 0, Kind::Complete, 72),
            event(40, 7, Kind::RingComplete, 101, 0),
            event(45, 8, Kind::SysExit, io_call_numbers()[5], 0),
        ];
        let j = join(
            &[7, 8],
            &events,
            &chains(&events, &[], &[]),
            &Devices::default(),
        );
        let seen: Vec<(u64, u64)> = j
            .ios
            .iter()
            .map(|io| (io.record.submitted.0, io.record.completed.0))
            .collect();
        assert_eq!(seen, [(10, 40), (16, 45)]);
        assert_eq!((j.submitted, j.unlinked, j.unmatched), (3, 1, 0));
        assert_eq!(j.ios[0].at[Boundary::Issued as usize], 21);
    }
}
