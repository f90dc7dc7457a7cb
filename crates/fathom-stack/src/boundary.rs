//! Boundaries on the way of an I/O.

/// Number of boundaries.
pub const BOUNDARIES: usize = 20;

/// A point that every I/O passes, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)]
pub enum Boundary {
    Submitted,
    SysEnter,
    RingSubmit,
    DirectBegin,
    Queued,
    LowerQueued,
    GotRequest,
    Started,
    Inserted,
    Issued,
    RingWait,
    SwitchedOut,
    Interrupt,
    Complete,
    UpperComplete,
    Woken,
    Running,
    RingComplete,
    SysExit,
    Completed,
}

/// Column names of the boundaries in files.
pub const BOUNDARY_NAMES: [&str; BOUNDARIES] = [
    "submitted",
    "sys_enter",
    "ring_submit",
    "direct_begin",
    "queued",
    "lower_queued",
    "got_request",
    "started",
    "inserted",
    "issued",
    "ring_wait",
    "switched_out",
    "interrupt",
    "complete",
    "upper_complete",
    "woken",
    "running",
    "ring_complete",
    "sys_exit",
    "completed",
];
