//! Arrays over members, made by this kernel's means: one file per means, behind [`ArrayMaker`] and [`Array`].
//!
//! Whoever makes one leaves nothing behind: dropping it takes it apart, and where fathom is killed the cleanup process
//! does.

use std::path::Path;

use fathom_io::Target;
use fathom_sim::raid::Level;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::SystemError;

pub(crate) mod btrfs;
mod checksum;
pub mod dm;
pub(crate) mod journal;
pub mod labels;
mod local;
pub mod lvm;
pub mod md;
pub mod members;
pub mod zfs;

pub use checksum::checksum;
pub use local::Local;
pub use members::Members;

/// An array to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// How its members make it up.
    pub level: Level,
    /// How many.
    pub members: u32,
    /// Bytes of a chunk.
    pub chunk: Bytes,
}

impl Shape {
    /// `RAID 5 of 8`.
    pub fn title(&self) -> String {
        format!("RAID {} of {}", self.level.number(), self.members)
    }

    /// Unique in a run: `raid5x8-512k`.
    pub fn slug(&self) -> String {
        format!(
            "raid{}x{}-{}k",
            self.level.number(),
            self.members,
            self.chunk.0 / 1024
        )
    }
}

/// Bytes that have moved so far, each read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Asked of the array.
    pub asked: [u64; 2],
    /// Moved by its members, over all of them.
    pub members: [u64; 2],
}

impl Traffic {
    /// What moved since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let less =
            |a: [u64; 2], b: [u64; 2]| [a[0].saturating_sub(b[0]), a[1].saturating_sub(b[1])];
        Self {
            asked: less(self.asked, earlier.asked),
            members: less(self.members, earlier.members),
        }
    }

    /// Bytes that members moved, one way, for each byte that was asked of the array; `None` where nothing was.
    pub fn per_byte_asked(&self) -> Option<[f64; 2]> {
        let asked = self.asked[0] + self.asked[1];
        (asked > 0).then(|| self.members.map(|m| m as f64 / asked as f64))
    }
}

/// Makes arrays over the same members, one after another.
pub trait ArrayMaker {
    /// In words, for the report.
    fn about(&self) -> String;
    /// Why it cannot make such an array; `None` where it can.
    fn cannot(&self, shape: &Shape) -> Option<String>;
    /// One member alone, in whose multiples arrays are counted.
    ///
    /// # Errors
    /// Where the member cannot be used.
    fn member(&mut self) -> Result<Box<dyn Array>, SystemError>;
    /// The disk that several members lie on, where they do: arrays cannot be faster than it then.
    fn shared_disk(&self) -> Option<&str> {
        None
    }
    /// Makes an array.
    ///
    /// # Errors
    /// Where it could not be made; nothing is left of it then.
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, SystemError>;
}

/// An array at work. Dropping it takes it apart. What is not said otherwise holds for one that is measured whole and has
/// no settings.
pub trait Array {
    /// Opens it for jobs: its device, or a scratch file on its file system. To be closed before the array is.
    ///
    /// # Errors
    /// Where the safety rules refuse it, or it cannot be opened.
    fn open(&self) -> Result<Target, SystemError> {
        let none = || SystemError::Refused("it has no device that jobs could run on".into());
        members::open_array(self.device().ok_or_else(none)?)
    }
    /// What its members have moved so far; `None` where nobody counts.
    fn traffic(&self) -> Option<Traffic> {
        None
    }
    /// CPU time so far of the kernel threads that serve it, by name.
    fn threads(&self) -> Vec<(String, Nanos)>;
    /// Settings that it has now, for the report.
    fn settings(&self) -> Vec<(String, String)>;
    /// Changes a setting; `false` where it has none of this name.
    ///
    /// # Errors
    /// Where the value is refused.
    fn set(&mut self, _name: &str, _value: &str) -> Result<bool, SystemError> {
        Ok(false)
    }
    /// Its device node, where it has one: then it is filled first, and its data are checked.
    fn device(&self) -> Option<&Path> {
        None
    }
    /// A directory in it, where it has a file system.
    fn directory(&self) -> Option<&Path> {
        None
    }
    /// Every block of the tested range has been written once.
    fn filled(&mut self) {}
    /// Whether members can be taken away and put back.
    fn states(&self) -> bool {
        false
    }
    /// Takes a member away.
    ///
    /// # Errors
    /// Where the level or the backend cannot lose one.
    fn lose(&mut self, _member: u32) -> Result<(), SystemError> {
        Err(whole_only())
    }
    /// Puts an empty member into the place of the lost one and begins to fill it.
    ///
    /// # Errors
    /// Where nothing was lost, or the array refuses it.
    fn rebuild(&mut self) -> Result<(), SystemError> {
        Err(whole_only())
    }
    /// Share of the rebuild that is done; `None` where there is none.
    fn rebuilt(&mut self) -> Option<f64> {
        None
    }
    /// Takes it apart.
    ///
    /// # Errors
    /// Where something that was made for it could not be removed.
    fn close(self: Box<Self>) -> Result<(), SystemError>;
}

fn whole_only() -> SystemError {
    SystemError::Refused("arrays of this backend are measured whole only".into())
}
