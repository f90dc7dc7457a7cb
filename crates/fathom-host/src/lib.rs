//! What is this machine, what is on its disks, may fathom write there.
//!
//! Everything is read from the kernel at the moment of asking; nothing is cached, because
//! a disk that was free a second ago may be mounted now. This room knows no jobs and issues
//! no I/O of its own beyond looking at the disk.

pub mod capsule;
pub mod cloud;
pub mod control_group;
pub mod counters;
pub mod devices;
pub mod error;
pub mod extents;
pub mod guard;
pub mod health;
mod judge;
pub mod kernel_log;
mod loops;
pub use fathom_files::mark;
mod meminfo;
pub mod mounts;
pub mod processors;
pub mod purge;
pub mod refusal;
pub mod root;
pub mod scratch;
pub mod signature;
pub mod space;
mod sys;
pub mod target;
pub mod zones;

pub use capsule::Environment;
pub use cloud::Cloud;
pub use control_group::ControlGroups;
pub use counters::{Below, CounterSource, Counters, NoCounters, disks_behind};
pub use devices::{
    Access, BlockDevice, Operations, Passthrough, Placement, Use, Verdict, block_device_of,
    block_devices, head_of, takes_commands,
};
pub use error::HostError;
pub use guard::{FilePermit, Permit, create_file, open_file_for_write, open_for_write};
pub use health::Health;
pub use loops::Loop;
pub use mark::{Provenance, is_made, may_overwrite};
pub use refusal::Refusal;
pub use root::HostRoot;
pub use scratch::{Leftover, Scratch, join as join_scratch, kept, leftovers, remove_leftover};
pub use space::{Space, space};
pub use target::{DirectIo, FileSystem, TargetKind, probe_target};
pub use zones::{Zone, ZoneAction, ZoneKind, ZoneLimits, ZoneState};
