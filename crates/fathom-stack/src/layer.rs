//! Boundaries on the way of an I/O, and the layers between them.
//!
//! Layers are differences of neighbouring boundaries, so their means add up to the application's
//! mean. A boundary that this kernel or device never shows joins two layers into one, which then
//! carries both names; nothing is guessed.

use fathom_telemetry::{Histogram, summary::SAMPLES_BEYOND};
use serde::{Deserialize, Serialize};

use crate::boundary::{BOUNDARIES, Boundary};
use crate::join::{Answer, Joined};

/// Who spends the time of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The application and its library.
    Application,
    /// The kernel.
    Kernel,
    /// The device and everything below that this system cannot see.
    Device,
}

/// From the driver's start to the last thing that is known to have been done for the device.
const DRIVER: &str = "driver and doorbell";
/// The device works, and the thread that asked it gives up its processor.
const ASLEEP: &str = "going to sleep while the device works";

/// The layer that ends at each boundary: name, owner.
const ENDS: [(&str, Owner); BOUNDARIES] = [
    ("", Owner::Application),
    ("application to system call", Owner::Application),
    ("io_uring submission", Owner::Kernel),
    ("file system", Owner::Kernel),
    ("map blocks, build bio", Owner::Kernel),
    ("device-mapper or RAID maps it", Owner::Kernel),
    ("get request", Owner::Kernel),
    ("start accounting", Owner::Kernel),
    ("scheduler insert", Owner::Kernel),
    ("scheduler dispatch", Owner::Kernel),
    (ISSUE, Owner::Kernel),
    (DRIVER, Owner::Kernel),
    // The device is already at work: what the processor does meanwhile delays nothing.
    (ASLEEP, Owner::Device),
    ("device", Owner::Device),
    ("interrupt to driver", Owner::Kernel),
    (COMPLETION, Owner::Kernel),
    ("device-mapper or RAID completes it", Owner::Kernel),
    ("wake-up call", Owner::Kernel),
    (READY, Owner::Kernel),
    ("io_uring completion", Owner::Kernel),
    ("return from system call", Owner::Kernel),
    ("back in the application", Owner::Application),
];

/// To the request's issue: from the scheduler, or, where the driver tells of its command, from that.
const ISSUE: &str = "scheduler dispatch";
/// To the request's completion: from the interrupt, or, where the driver tells of its command's end, from that.
const COMPLETION: &str = "interrupt and completion";

/// The I/O is complete and its thread could run, but has no processor: another thread has it, or it leaves its
/// idle state.
const READY: &str = "waiting for a processor";

/// A layer's time over all I/Os.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// What happens in it.
    pub name: String,
    /// Mean over all joined I/Os, ns; these add up.
    pub mean_ns: f64,
    /// Median over I/Os that pass it, ns; medians do not add up.
    pub p50_ns: Option<u64>,
    /// 99th percentile, ns; nor do these.
    pub p99_ns: Option<u64>,
    /// Part of the application's mean.
    pub share: f64,
    /// Who spends it.
    pub owner: Owner,
    /// I/Os that pass it.
    pub ios: u64,
    /// Share of those I/Os (0 to 1) that took at most so many ns, for the distribution's curve; ends where
    /// too few samples stand behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<(u64, f64)>,
}

impl Layer {
    /// From the times of the I/Os that pass it: their sum, of `n` I/Os that take `total` together, ns.
    pub fn of(
        name: String,
        owner: Owner,
        (sum, times): (f64, &Histogram),
        n: f64,
        total: f64,
    ) -> Self {
        let supported = |q| times.quantile_supported(q, SAMPLES_BEYOND);
        Self {
            name,
            mean_ns: sum / n,
            p50_ns: supported(0.5),
            p99_ns: supported(0.99),
            share: if total > 0.0 { sum / total } else { 0.0 },
            owner,
            ios: times.count(),
            distribution: SHARES
                .iter()
                .filter_map(|q| Some((supported(*q)?, *q)))
                .collect(),
        }
    }
}

/// Shares at which the distribution is told.
const SHARES: [f64; 21] = [
    0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99,
    0.995, 0.999, 0.9995, 0.9999,
];

/// What names depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Naming {
    /// This system is a guest.
    pub guest: bool,
    /// The device has no requests.
    pub bio_based: bool,
    /// A file lies below (loop).
    pub loop_file: bool,
    /// No page cache is involved.
    pub direct: bool,
    /// Nothing but memory is below.
    pub in_memory: bool,
    /// Several outstanding I/Os per thread.
    pub deep: bool,
    /// The thread asks the device for completions: no interrupt, no wake-up.
    pub polled: bool,
    /// A block device, without a file system.
    pub raw: bool,
    /// NVMe commands, past the block layer.
    pub commands: bool,
    /// Seen from outside the process (a VMM), from its submission to the kernel's answer.
    pub host: bool,
}

/// Boundaries that at least 1 % of the I/Os answered by a device show.
fn seen(ios: &[Joined]) -> [bool; BOUNDARIES] {
    let mut counts = [0u64; BOUNDARIES];
    let mut total = 0;
    for io in ios.iter().filter(|io| io.answer == Answer::Device) {
        total += 1;
        for (n, t) in counts.iter_mut().zip(&io.at) {
            *n += u64::from(*t > 0);
        }
    }
    counts.map(|n| n > 0 && n * 100 >= total)
}

/// What an I/O shows of the seen boundaries: one that was not followed below a device without requests has
/// nothing between its queueing and its end.
fn shown(io: &Joined, seen: &[bool; BOUNDARIES], naming: Naming) -> [bool; BOUNDARIES] {
    let mut shown = *seen;
    if naming.bio_based && io.at[Boundary::Issued as usize] == 0 {
        for (i, s) in shown.iter_mut().enumerate() {
            *s &= i <= Boundary::Queued as usize || i >= Boundary::Complete as usize;
        }
        shown[Boundary::UpperComplete as usize] = false;
    }
    shown
}

/// Times of one I/O with what it does not show filled in, so that neighbours always differ by ≥ 0
/// (apart from the ends, which come from another clock). A missing interrupt belongs to the device,
/// everything else missing takes no time.
fn filled(io: &Joined, seen: &[bool; BOUNDARIES]) -> [u64; BOUNDARIES] {
    let mut t = io.at;
    for (x, s) in t.iter_mut().zip(seen) {
        if !*s {
            *x = 0;
        }
    }
    // Out of order, such as a thread that goes to sleep after the interrupt came: not on this I/O's path.
    let complete = t[Boundary::Complete as usize];
    for b in [Boundary::SwitchedOut as usize, Boundary::Interrupt as usize] {
        if complete > 0 && t[b] > complete {
            t[b] = 0;
        }
    }
    let irq = t[Boundary::Interrupt as usize];
    if irq > 0 && t[Boundary::SwitchedOut as usize] > irq {
        t[Boundary::SwitchedOut as usize] = 0;
    }
    if irq == 0 {
        t[Boundary::Interrupt as usize] = complete;
    }
    let end = t[BOUNDARIES - 1];
    let mut last = t[0];
    for x in &mut t[1..BOUNDARIES - 1] {
        if *x < last || *x > end {
            *x = if *x > end { end.max(last) } else { last };
        }
        last = *x;
    }
    t
}

/// Mean time between issue and interrupt (completion, where none was seen) over the I/Os that a device
/// answered, ns: the device as its driver sees it, doorbell included. `None` without requests.
pub fn device_span(ios: &[Joined], seen: &[bool; BOUNDARIES]) -> Option<f64> {
    let (mut n, mut sum) = (0u64, 0u64);
    for io in ios.iter().filter(|io| io.answer == Answer::Device) {
        let t = filled(io, seen);
        if io.at[Boundary::Issued as usize] > 0 {
            n += 1;
            sum += t[Boundary::Interrupt as usize].max(t[Boundary::Issued as usize])
                - t[Boundary::Issued as usize];
        }
    }
    (n > 0).then(|| sum as f64 / n as f64)
}

/// The layers of one I/O, in order: name and ns.
pub fn of_one(io: &Joined, seen: &[bool; BOUNDARIES], naming: Naming) -> Vec<(String, i64)> {
    if io.answer == Answer::Memory {
        return memory(io, naming)
            .into_iter()
            .map(|(n, _, ns)| (n, ns))
            .collect();
    }
    let shown = shown(io, seen, naming);
    let t = filled(io, &shown);
    cuts(&shown, naming)
        .iter()
        .map(|c| (c.name.clone(), t[c.to] as i64 - t[c.from] as i64))
        .collect()
}

struct Cut {
    name: String,
    owner: Owner,
    from: usize,
    to: usize,
}

/// The layers that the seen boundaries make.
fn cuts(seen: &[bool; BOUNDARIES], naming: Naming) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut from = 0;
    let mut names: Vec<&str> = Vec::new();
    let mut owner = Owner::Application;
    for to in 1..BOUNDARIES {
        let (name, who) = ENDS[to];
        // What a pass cannot show at all (the ring's, the scheduler's) is no lost boundary; with
        // several outstanding, system calls and wake-ups are not an I/O's own.
        use Boundary as B;
        let only_single = [
            B::SysEnter,
            B::RingWait,
            B::SwitchedOut,
            B::Woken,
            B::SysExit,
        ];
        // Nor are those between two devices of a stack where there is one device.
        let own_way = [
            B::RingSubmit,
            B::RingComplete,
            B::Inserted,
            B::CommandMade,
            B::CommandDone,
            B::Running,
            B::LowerQueued,
            B::UpperComplete,
        ];
        let asleep = [B::RingWait, B::SwitchedOut, B::Interrupt, B::Woken];
        // A thread that does not sleep does not fall asleep.
        let awake = to == B::SwitchedOut as usize && !seen[to];
        let is = |list: &[B]| list.iter().any(|b| *b as usize == to);
        let optional = awake
            || is(&own_way)
            || (naming.deep && is(&only_single))
            || (naming.polled && is(&asleep));
        let last = to == BOUNDARIES - 1;
        if seen[to] || last || !optional {
            names.push(name);
            // Beside the driver's work falling asleep is the smaller part: the row is the kernel's.
            if name == "device" || names.len() == 1 {
                owner = who;
            }
        }
        if seen[to] || last {
            cuts.push(Cut {
                name: rename(&names, from, to, naming),
                owner: if names.contains(&"device")
                    || (from <= Boundary::Issued as usize && is_end(to))
                {
                    Owner::Device
                } else {
                    owner
                },
                from,
                to,
            });
            names.clear();
            from = to;
        }
    }
    cuts
}

/// Whether the device has done its part there: the first that the driver or the block layer tell of it.
fn is_end(to: usize) -> bool {
    to == Boundary::CommandDone as usize || to == Boundary::Complete as usize
}

/// Joined names, in the words that fit.
fn rename(names: &[&str], from: usize, to: usize, naming: Naming) -> String {
    let device = if naming.loop_file {
        "loop driver, file and disk below"
    } else if naming.guest {
        "device + VMM + host"
    } else {
        "device"
    };
    if from == Boundary::Queued as usize && to == Boundary::Complete as usize && naming.bio_based {
        return "driver and device (bio-based: cannot be split)".into();
    }
    if naming.polled && from == Boundary::Issued as usize && is_end(to) {
        return format!("driver, {device}, polled completion");
    }
    // Its requests end in a thread: there is no interrupt that could have been seen.
    if naming.loop_file && names == ["device", "interrupt and completion"] {
        return device.into();
    }
    // Past the block layer there is nothing between the ring and the driver.
    if naming.commands && to == Boundary::Issued as usize {
        return "NVMe command built".into();
    }
    if from == Boundary::CommandMade as usize && names == [ISSUE] {
        return "driver maps the data".into();
    }
    if from == Boundary::CommandDone as usize && names == [COMPLETION] {
        return "request completion".into();
    }
    if naming.host && from == 0 {
        return "submission and file system of the host".into();
    }
    if naming.host && to == BOUNDARIES - 1 {
        return "completion on the host".into();
    }
    if naming.raw && names == ["file system", "map blocks, build bio"] {
        return "block device, build bio".into();
    }
    let mut out: Vec<String> = names
        .iter()
        .map(|n| {
            if *n == "device" {
                device.to_owned()
            } else {
                (*n).to_owned()
            }
        })
        .collect();
    // Long joined names keep their ends.
    if out.len() > 3 {
        out = vec![out[0].clone(), "…".into(), out[out.len() - 1].clone()];
    }
    out.join(" + ")
}

/// The layers of an I/O that memory answered.
fn memory(io: &Joined, naming: Naming) -> Vec<(String, Owner, i64)> {
    let at = |b: Boundary| io.at[b as usize];
    let last =
        |list: &[Boundary], or: u64| list.iter().map(|b| at(*b)).find(|t| *t > 0).unwrap_or(or);
    let begin = last(
        &[Boundary::SysEnter, Boundary::RingSubmit],
        at(Boundary::Submitted),
    );
    let end = last(
        &[Boundary::SysExit, Boundary::RingComplete],
        at(Boundary::Completed),
    );
    let name = if naming.in_memory {
        "file system in memory"
    } else {
        "page cache"
    };
    vec![
        (
            ENDS[1].0.to_owned(),
            Owner::Application,
            begin as i64 - at(Boundary::Submitted) as i64,
        ),
        (name.to_owned(), Owner::Kernel, end as i64 - begin as i64),
        (
            ENDS[BOUNDARIES - 1].0.to_owned(),
            Owner::Application,
            at(Boundary::Completed) as i64 - end as i64,
        ),
    ]
}

/// Means and percentiles of every layer over all I/Os, in the order of the way. Application layers of
/// memory's answers count to the rows of the same name.
pub fn layers(ios: &[Joined], naming: Naming) -> (Vec<Layer>, [bool; BOUNDARIES]) {
    let seen = seen(ios);
    let mut rows: Vec<(String, Owner, i128, Histogram)> = Vec::new();
    if ios.iter().any(|io| io.answer == Answer::Device) {
        for c in cuts(&seen, naming) {
            rows.push((c.name, c.owner, 0, Histogram::new()));
        }
    }
    let mut add = |at: usize, name: &str, owner: Owner, ns: i64| {
        let i = match rows.iter().position(|r| r.0 == name) {
            Some(i) => i,
            None => {
                let at = at.min(rows.len());
                rows.insert(at, (name.to_owned(), owner, 0, Histogram::new()));
                at
            }
        };
        rows[i].2 += i128::from(ns);
        rows[i].3.record(ns.max(0) as u64);
    };
    let cut = cuts(&seen, naming);
    let mut others: Vec<([bool; BOUNDARIES], Vec<Cut>)> = Vec::new();
    for io in ios {
        match io.answer {
            Answer::Device => {
                let shown = shown(io, &seen, naming);
                let t = filled(io, &shown);
                let cut = if shown == seen {
                    &cut
                } else {
                    let at = others.iter().position(|o| o.0 == shown);
                    let at = at.unwrap_or_else(|| {
                        others.push((shown, cuts(&shown, naming)));
                        others.len() - 1
                    });
                    &others[at].1
                };
                for (i, c) in cut.iter().enumerate() {
                    add(i, &c.name, c.owner, t[c.to] as i64 - t[c.from] as i64);
                }
            }
            Answer::Memory => {
                for (i, (name, owner, ns)) in memory(io, naming).into_iter().enumerate() {
                    add(i, &name, owner, ns);
                }
            }
        }
    }
    let n = ios.len().max(1) as f64;
    let total: i128 = rows.iter().map(|r| r.2).sum();
    let layers = rows
        .into_iter()
        // Of a stack of devices that no I/O was followed through, the way below is nobody's.
        .filter(|(_, _, _, h)| h.count() > 0)
        .map(|(name, owner, sum, h)| Layer::of(name, owner, (sum as f64, &h), n, total as f64))
        .collect();
    (layers, seen)
}

#[cfg(test)]
mod tests {
    use fathom_telemetry::iolog::ThreadRecords;
    use fathom_telemetry::{Nanos, Op, Record};

    use super::*;
    use crate::chain::chains;
    use crate::device::Devices;
    use crate::event::{Event, Kind, rwbs};
    use crate::join::{Manner, join};

    /// Layers of thread 7's 4 KiB reads, given by submission, completion and sector, from its events.
    fn layers_of(uring: bool, ios: &[(u64, u64, u64)], events: &[Event]) -> Vec<(String, f64)> {
        let records = ios.iter().map(|(from, to, sector)| Record {
            intended: Nanos(*from),
            submitted: Nanos(*from),
            completed: Nanos(*to),
            offset: sector * 512,
            len: 4096,
            result: 4096,
            op: Op::Read,
        });
        let thread = ThreadRecords {
            job: 0,
            thread: 0,
            tid: Some(7),
            records: records.collect(),
            lost: 0,
        };
        let single = ios.len() == 1;
        let manner = Manner {
            uring,
            commands: false,
            single,
            must_reach_device: true,
            begins_at: None,
        };
        let chains = chains(events, &[], &[]);
        let joined = join(&[thread], events, &chains, &Devices::default(), manner);
        assert_eq!(joined.ios.len(), ios.len());
        let naming = Naming {
            deep: !single,
            ..Naming::default()
        };
        let (layers, _) = layers(&joined.ios, naming);
        layers.into_iter().map(|l| (l.name, l.mean_ns)).collect()
    }

    fn event(ts: u64, kind: Kind, a: u64, b: u64) -> Event {
        Event {
            ts,
            a,
            b,
            c: 8,
            flags: rwbs::READ,
            tid: 7,
            cpu: 0,
            kind,
        }
    }

    fn of(layers: &[(String, f64)], name: &str) -> f64 {
        let row = layers.iter().find(|l| l.0 == name);
        row.unwrap_or_else(|| panic!("no {name} in {layers:?}")).1
    }

    /// One read: the doorbell is done by 33, the thread is off at 36, back at 70.
    fn one_read(call: u64) -> Vec<Event> {
        vec![
            event(10, Kind::SysEnter, call, 0),
            event(12, Kind::RingSubmit, 100, 0),
            event(15, Kind::Queue, 1, 8),
            event(20, Kind::Issue, 1, 8),
            event(33, Kind::RingWait, 0, 0),
            event(36, Kind::SwitchOut, 7, 0),
            event(60, Kind::Complete, 1, 8),
            event(62, Kind::Wakeup, 7, 0),
            event(70, Kind::SwitchIn, 7, 0),
            event(72, Kind::RingComplete, 100, 0),
            event(74, Kind::SysExit, call, 0),
        ]
    }

    #[test]
    fn going_to_sleep_is_no_part_of_the_doorbell() {
        let layers = layers_of(true, &[(8, 76, 8)], &one_read(426));
        assert_eq!(of(&layers, DRIVER), 13.0);
        assert_eq!(of(&layers, ASLEEP), 3.0);
        assert_eq!(of(&layers, "device + interrupt and completion"), 24.0);
        assert_eq!(of(&layers, READY), 8.0);
        assert_eq!(of(&layers, "io_uring completion"), 2.0);
        assert_eq!(layers.iter().map(|l| l.1).sum::<f64>(), 68.0);
    }

    #[test]
    fn without_a_mark_between_them_one_row_has_both_names() {
        let call = crate::join::io_call_numbers()[1];
        let mut events = one_read(call);
        events.retain(|e| {
            !matches!(
                e.kind,
                Kind::RingSubmit | Kind::RingWait | Kind::RingComplete
            )
        });
        let layers = layers_of(false, &[(8, 76, 8)], &events);
        assert_eq!(of(&layers, &format!("{DRIVER} + {ASLEEP}")), 16.0);
    }

    #[test]
    fn a_thread_that_does_not_sleep_has_no_row_for_it() {
        let mut events = one_read(426);
        events.retain(|e| !matches!(e.kind, Kind::SwitchOut | Kind::Wakeup | Kind::SwitchIn));
        let layers = layers_of(true, &[(8, 76, 8)], &events);
        assert_eq!(of(&layers, DRIVER), 13.0);
        assert_eq!(of(&layers, "device + interrupt and completion"), 27.0);
        assert!(layers.iter().all(|l| !l.0.contains(ASLEEP)), "{layers:?}");
    }

    #[test]
    fn several_outstanding_on_a_busy_processor_wait_for_it_not_for_the_ring() {
        // Both are complete while another thread has the processor from 40 to 90.
        let events = [
            event(10, Kind::RingSubmit, 101, 0),
            event(12, Kind::Queue, 1, 8),
            event(13, Kind::Issue, 1, 8),
            event(20, Kind::RingSubmit, 102, 0),
            event(22, Kind::Queue, 1, 64),
            event(23, Kind::Issue, 1, 64),
            event(40, Kind::SwitchOut, 7, 1),
            event(50, Kind::Complete, 1, 8),
            event(56, Kind::Complete, 1, 64),
            event(90, Kind::SwitchIn, 7, 9),
            event(92, Kind::RingComplete, 101, 0),
            event(94, Kind::RingComplete, 102, 0),
        ];
        let layers = layers_of(true, &[(8, 96, 8), (18, 98, 64)], &events);
        assert_eq!(of(&layers, READY), 37.0);
        assert_eq!(of(&layers, "io_uring completion"), 3.0);
        assert_eq!(of(&layers, "device + interrupt and completion"), 35.0);
        // Asleep until the second completion wakes it: the first waits for the call, not for a processor.
        let mut slept = events.to_vec();
        slept[6].b = 0;
        slept.insert(9, event(58, Kind::Wakeup, 7, 0));
        let layers = layers_of(true, &[(8, 96, 8), (18, 98, 64)], &slept);
        assert_eq!(of(&layers, "wake-up call"), 5.0);
        assert_eq!(of(&layers, READY), 32.0);
    }
}
