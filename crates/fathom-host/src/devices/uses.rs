//! What a block device is used for, now (mounted, swap, held) or at rest (what is on it).

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::signature::{Signature, SignatureClass};

/// One use of a block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "use", rename_all = "kebab-case")]
pub enum Use {
    /// Mounted where this process can see it.
    Mounted {
        /// Where.
        at: PathBuf,
        /// File system.
        fs_type: String,
    },
    /// Mounted in another mount namespace (a container).
    MountedElsewhere {
        /// Where, in that namespace.
        at: PathBuf,
        /// File system.
        fs_type: String,
        /// A process that lives in that namespace.
        process: u32,
    },
    /// Swap area in use.
    Swap,
    /// Another device is made of it: device-mapper, software RAID, bcache.
    Holder {
        /// Kernel name of that device.
        name: String,
        /// What it is, in words.
        kind: String,
    },
    /// Member of a file system that is in use through another device or namespace.
    ActiveFileSystem {
        /// File system.
        fs_type: String,
        /// The kernel's name for the instance: UUID or device.
        id: String,
    },
    /// The kernel gives it to other machines.
    Exported {
        /// By what.
        by: String,
        /// How to end that.
        remedy: String,
    },
    /// A program has it open for writing.
    OpenForWriting {
        /// The process.
        process: u32,
        /// Its name.
        program: String,
    },
    /// A loop device is made of it.
    LoopDevice {
        /// Kernel name of the loop device.
        name: String,
    },
    /// It is a loop device made of this file.
    LoopBacking {
        /// The file, as the kernel prints it.
        file: PathBuf,
    },
    /// It is a partition.
    PartitionOf {
        /// Kernel name of the disk.
        disk: String,
    },
    /// It carries partitions.
    PartitionTable {
        /// `GPT`, `MBR`, …
        kind: String,
    },
    /// A file system is on it.
    FileSystem {
        /// `ext4`, …
        fs_type: String,
        /// Its label.
        label: Option<String>,
    },
    /// A swap area or hibernation image is on it.
    SwapArea {
        /// Its label.
        label: Option<String>,
    },
    /// RAID metadata is on it.
    RaidMember {
        /// Which kind.
        kind: String,
    },
    /// It is an LVM physical volume.
    LvmMember,
    /// ZFS labels are on it.
    ZfsMember,
    /// It is a LUKS or BitLocker container.
    EncryptedContainer {
        /// Which kind.
        kind: String,
    },
    /// It belongs to another storage stack: bcache, DRBD, BlueStore, …
    VolumeMember {
        /// Which one.
        kind: String,
    },
}

impl Use {
    /// Whether somebody uses the device at this moment.
    pub fn is_live(&self) -> bool {
        matches!(
            self,
            Self::Mounted { .. }
                | Self::MountedElsewhere { .. }
                | Self::Swap
                | Self::Holder { .. }
                | Self::ActiveFileSystem { .. }
                | Self::LoopDevice { .. }
                | Self::Exported { .. }
                | Self::OpenForWriting { .. }
        )
    }

    /// The use that something found on the disk stands for.
    pub fn from_signature(signature: &Signature) -> Self {
        let kind = signature.name.clone();
        let label = signature.label.clone();
        match signature.class {
            SignatureClass::FileSystem => Self::FileSystem {
                fs_type: kind,
                label,
            },
            SignatureClass::Swap => Self::SwapArea { label },
            SignatureClass::Raid => Self::RaidMember { kind },
            SignatureClass::Lvm => Self::LvmMember,
            SignatureClass::Zfs => Self::ZfsMember,
            SignatureClass::Encrypted => Self::EncryptedContainer { kind },
            SignatureClass::PartitionTable => Self::PartitionTable { kind },
            SignatureClass::Volume => Self::VolumeMember { kind },
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = |label: &Option<String>| match label {
            Some(text) => format!(" \"{text}\""),
            None => String::new(),
        };
        match self {
            Self::Mounted { at, fs_type } => write!(f, "{fs_type} mounted at {}", at.display()),
            Self::MountedElsewhere {
                at,
                fs_type,
                process,
            } => write!(
                f,
                "{fs_type} mounted at {} by process {process}",
                at.display()
            ),
            Self::Swap => write!(f, "swap in use"),
            Self::Holder { name, kind } => write!(f, "part of {name} ({kind})"),
            Self::ActiveFileSystem { fs_type, .. } => write!(f, "member of a mounted {fs_type}"),
            Self::Exported { by, .. } => write!(f, "exported by {by}"),
            Self::OpenForWriting { process, program } => {
                write!(f, "open for writing by process {process} ({program})")
            }
            Self::LoopDevice { name } => write!(f, "behind {name}"),
            Self::LoopBacking { file } => write!(f, "loop of {}", file.display()),
            Self::PartitionOf { disk } => write!(f, "partition of {disk}"),
            Self::PartitionTable { kind } => write!(f, "{kind} partition table"),
            Self::FileSystem { fs_type, label: l } => write!(f, "{fs_type}{}", label(l)),
            Self::SwapArea { label: l } => write!(f, "swap area{}", label(l)),
            Self::RaidMember { kind } => write!(f, "{kind} member"),
            Self::LvmMember => write!(f, "LVM physical volume"),
            Self::ZfsMember => write!(f, "ZFS member"),
            Self::EncryptedContainer { kind } => write!(f, "{kind} container"),
            Self::VolumeMember { kind } => write!(f, "{kind} volume"),
        }
    }
}
