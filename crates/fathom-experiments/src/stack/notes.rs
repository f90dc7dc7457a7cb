//! What must be known to read a case's layers: what this kernel and these devices do not show, and what
//! was kept out of them.

use fathom_io::JobSpec;
use fathom_stack::{Devices, Naming, StackResult};
use fathom_stats::Estimate;

/// Below this share of joined I/Os the layers of perf events are said to tell of a part only.
const WHOLE: f64 = 0.99;

/// On the rung of perf events: I/Os without all of their boundaries, the likely reason, and what would help.
pub(super) fn gaps(rung: &str, r: &StackResult) -> Option<String> {
    if rung != "perf-events" || r.submitted == 0 || r.coverage >= WHOLE {
        return None;
    }
    let joined = r.by_device + r.by_memory;
    Some(format!(
        "{} of {} I/Os lack a boundary and are left out, so the layers tell of {:.1} % of them: some kernels leave out \
         perf events raised in an interrupt that meets an idle processor, so that waits are seen less often than they are; \
         a tracefs that may be written (root or CAP_DAC_OVERRIDE, outside of a read-only mount) shows every I/O",
        r.submitted.saturating_sub(joined),
        r.submitted,
        r.coverage * 100.0
    ))
}

/// Part of the untraced mean that tracing may cost before the layers are said to be stretched by it.
const DEAR: f64 = 0.10;

/// Tracing that surely costs more than a tenth: where that time is, and what would make it less.
pub(super) fn dear(share: Option<Estimate>) -> Option<String> {
    let share = share?;
    (share.low? > DEAR).then(|| {
        format!(
            "tracing costs {:.0} % of the untraced mean: the kernel's rows are too long by about as much together, \
             so read their shares with care (events cost about 0.3 µs each; with several outstanding on a busy processor they queue up)",
            share.value * 100.0
        )
    })
}

/// What must be known to read a case's layers.
pub(super) fn of_case(
    spec: &JobSpec,
    rung: &str,
    r: &StackResult,
    devices: &Devices,
    naming: Naming,
) -> Vec<String> {
    let mut notes: Vec<String> = gaps(rung, r).into_iter().collect();
    if !r.absent.is_empty() {
        notes.push(format!(
            "this kernel does not show: {}; the layers on both sides are one",
            r.absent.join(", ")
        ));
    }
    if devices.top.is_empty() {
        notes.push("no block device is below: everything happens in memory".into());
    }
    notes.extend(nested(r, devices));
    if devices.top.len() > 1 {
        let names: Vec<&str> = devices.top.iter().map(|d| d.name.as_str()).collect();
        notes.push(format!(
            "the file lies on several devices ({})",
            names.join(", ")
        ));
    }
    // Below a loop device lies a file, and zram is memory: their rows say so.
    if naming.guest && r.layers.iter().any(|l| l.name.contains("VMM")) {
        notes.push(
            "this is a guest: device, VMM and host are one row, which cannot be split from inside"
                .into(),
        );
    }
    if naming.deep {
        notes.push("several I/Os are outstanding: system calls and wake-ups belong to the ring, not to single I/Os".into());
    }
    if r.by_memory > 0 && !devices.top.is_empty() {
        notes.push(format!(
            "{} I/Os were answered by the page cache",
            r.by_memory
        ));
    }
    if !spec.direct && spec.rw.writes() && !devices.top.is_empty() {
        notes.push(
            "buffered writes return before the device is asked: its times stand apart".into(),
        );
    }
    notes.extend(left_out(r));
    if r.lost > 0 {
        notes.push(format!(
            "the kernel dropped {} events: use a shorter --time or fewer I/Os",
            r.lost
        ));
    }
    notes
}

/// I/Os that the layers lack, or tell otherwise than one by one.
fn left_out(r: &StackResult) -> impl Iterator<Item = String> {
    counted([
        (
            r.unlinked,
            "were handed to another thread by the file system and are not linked",
        ),
        (
            r.by_worker,
            "went through a worker thread of io_uring (joined by their offset)",
        ),
        (r.unmatched, "have no events and are not joined"),
        (
            r.contradicted,
            "have an offset that contradicts the kernel's and are not joined",
        ),
        (r.merged, "were merged into another request"),
        (
            r.split,
            "were split over several bios (the last completion counts)",
        ),
        (r.requeued, "were given back by the driver and issued again"),
        (
            r.twins,
            "met another of the same sector and are told apart by order",
        ),
        (r.flushes, "flushes were seen and kept out"),
    ])
}

/// What happened so often, where it did.
pub(super) fn counted<const N: usize>(
    all: [(u64, &'static str); N],
) -> impl Iterator<Item = String> {
    let happened = all.into_iter().filter(|(n, _)| *n > 0);
    happened.map(|(n, what)| format!("{n} {what}"))
}

/// What a stack of devices shows: which of them single I/Os were followed to, and which only have means.
fn nested(r: &StackResult, devices: &Devices) -> Vec<String> {
    let mut notes = Vec::new();
    let joined = |dev: &str| {
        let side = r.devices.iter().find(|s| s.name == dev);
        side.map_or(0, |s| s.joined)
    };
    let followed: u64 = devices.lower.iter().map(|d| joined(&d.name)).sum();
    for d in devices.top.iter().filter(|d| !d.has_requests) {
        let alone = joined(&d.name);
        if alone > 0 || followed == 0 {
            notes.push(format!(
                "{} works with bios alone: of {} I/Os the kernel shows where they begin and end there, nothing between",
                d.name,
                if followed == 0 { "its".to_owned() } else { alone.to_string() }
            ));
        }
    }
    for d in &devices.lower {
        match joined(&d.name) {
            0 => notes.push(format!(
                "{} lies below; its requests are queued by another thread or outside of the I/O's own time: its times are means of their own, not linked to single I/Os",
                d.name
            )),
            n => notes.push(format!(
                "{n} I/Os were followed to requests of {}, which the thread that queued the I/O queued too",
                d.name
            )),
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracing_that_surely_costs_more_than_a_tenth_is_said() {
        let of = |value: f64, low: f64| {
            Some(Estimate {
                value,
                low: Some(low),
                high: Some(2.0 * value),
                samples: 10,
            })
        };
        assert_eq!(dear(of(0.2, 0.09)), None);
        let said = dear(of(0.2, 0.11)).unwrap();
        assert!(said.contains("costs 20 %"), "{said}");
        assert_eq!(dear(Some(Estimate::single(0.5))), None);
    }

    #[test]
    fn perf_events_with_gaps_say_how_many_why_and_what_would_help() {
        let mut r = StackResult {
            submitted: 1000,
            by_device: 400,
            coverage: 0.4,
            ..StackResult::default()
        };
        let note = gaps("perf-events", &r).unwrap();
        for word in ["600 of 1000", "40.0 %", "idle processor", "tracefs"] {
            assert!(note.contains(word), "{word}: {note}");
        }
        assert_eq!(gaps("full", &r), None);
        (r.by_device, r.coverage) = (995, 0.995);
        assert_eq!(gaps("perf-events", &r), None);
    }
}
