//! What a target allows.

/// What the target allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in the target.
    pub size: u64,
    /// Direct I/O must be aligned to this (offset and length), bytes.
    pub direct_align: u32,
    /// Hosts that run a job; 1 where there is no fleet.
    pub hosts: u32,
}
