//! Boundaries on the way of an I/O.

/// Number of boundaries.
pub const BOUNDARIES: usize = 22;

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
    CommandMade,
    Issued,
    RingWait,
    SwitchedOut,
    Interrupt,
    CommandDone,
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
    "command_made",
    "issued",
    "ring_wait",
    "switched_out",
    "interrupt",
    "command_done",
    "complete",
    "upper_complete",
    "woken",
    "running",
    "ring_complete",
    "sys_exit",
    "completed",
];
