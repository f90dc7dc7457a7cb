//! Backends that make arrays on this machine, by the names that the command line has for them.

use fathom_io::Control;

use super::ArrayMaker;
use super::members::Members;
use super::{btrfs, dm, lvm, md, zfs};
use crate::SystemError;

/// Makes a backend over members that the safety rules allow.
type Over = fn(Members, Control) -> Result<Box<dyn ArrayMaker>, SystemError>;

/// One of them.
pub struct Local {
    /// On the command line.
    pub name: &'static str,
    available: fn() -> Result<(), SystemError>,
    over: Over,
}

const LOCAL: [Local; 5] = [
    Local {
        name: "md",
        available: md::available,
        over: |m, _| Ok(Box::new(md::MdArrays::new(m))),
    },
    Local {
        name: "dm",
        available: || dm::available("guest-dm"),
        over: |m, c| Ok(Box::new(dm::DmArrays::new(m, c))),
    },
    Local {
        name: "lvm",
        available: lvm::available,
        over: |m, c| Ok(Box::new(lvm::LvmArrays::new(m, c))),
    },
    Local {
        name: "btrfs",
        available: btrfs::available,
        over: |m, _| Ok(Box::new(btrfs::BtrfsArrays::new(m)?)),
    },
    Local {
        name: "zfs",
        available: zfs::available,
        over: |m, _| Ok(Box::new(zfs::ZfsArrays::new(m)?)),
    },
];

impl Local {
    /// By its name; `None` for what works in guests.
    pub fn named(name: &str) -> Option<&'static Self> {
        LOCAL.iter().find(|l| l.name == name)
    }

    /// Whether this machine has what it needs; asks for the kernel's modules where it may.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn available(&self) -> Result<(), SystemError> {
        (self.available)()
    }

    /// Arrays over these members.
    ///
    /// # Errors
    /// Where the members are too small for it.
    pub fn over(
        &self,
        members: Members,
        control: Control,
    ) -> Result<Box<dyn ArrayMaker>, SystemError> {
        (self.over)(members, control)
    }
}
