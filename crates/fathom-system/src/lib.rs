//! Effects on the machine and its outside parts: programs, mounts, mappings, control groups, guests, and what undoes all
//! of them even where fathom is killed. Knows no experiment.

pub mod array;
pub mod cgroup;
pub mod cleanup;
pub mod erase;
mod error;
pub mod filesystem;
pub mod fleet;
pub mod guest;
pub mod kernel_threads;
pub mod lab_dir;
pub mod leftovers;
pub mod mapper;
pub mod on_device;
pub mod orphans;
pub mod packages;
pub mod process;
pub mod programs;
pub mod retry;
pub mod shared_memory;
pub mod swap_file;

pub use error::SystemError;
