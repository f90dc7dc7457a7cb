//! Arguments of `raid` and `vm`.

use std::path::PathBuf;

use clap::Args;
use fathom_labs::raid::RaidOptions;
use fathom_labs::vm::{Reach, VmOptions};
use fathom_system::filesystem::FileSystem;
use fathom_telemetry::{Bytes, Nanos};

use super::{MeasureArgs, OutArgs};

/// Arguments of `raid`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom raid sim:optane-900p --levels 0,1,5,6,10 --members 2..8    models\n  fathom raid /mnt/data --size 256m      files through loop devices; md of this kernel, else of a guest\n  fathom raid /mnt/data --backend guest --member-limit 20m --levels 5,6 --members 4 --try stripe_cache_size=8192\n  fathom raid /mnt/data --size 2g --members 4 --lab \"db tpcc --database mariadb --time 30s\"   what TPC-C gets from each level\n  fathom raid /mnt/data --levels 5 --write-journal --try journal_mode=write-back\n  fathom raid /dev/sdx /dev/sdy /dev/sdz --destroy SERIAL --destroy SERIAL --destroy SERIAL --levels 5\nEach cell stands beside three expectations in multiples of one member: paper (Han et al. 2021), small-write\nand full-stripe (what md does); which of them fits is said, and what software takes. Arrays have no superblock;\nmembers must be free and named by their serials, and everything on them is lost."
)]
pub(crate) struct RaidArgs {
    /// sim:MODEL, a directory for files, or block devices as members
    #[arg(default_value = ".", value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// md (this kernel), guest (md of a guest's kernel), btrfs, or auto: the first of these that there is; dm and
    /// guest-dm are the device mapper's arrays, which LVM makes its volumes of; lvm and guest-lvm are LVM's own, zfs
    /// those of ZFS
    #[arg(long, default_value = "auto", value_parser = ["auto", "md", "guest", "btrfs", "dm", "guest-dm", "lvm", "guest-lvm", "zfs"])]
    pub(crate) backend: String,
    /// Bytes of each member [default: 256m for files, whole devices]
    #[arg(long)]
    pub(crate) size: Option<Bytes>,
    /// Bytes per second that each member is held to (guests)
    #[arg(long, value_name = "BYTES")]
    pub(crate) member_limit: Option<Bytes>,
    /// quick, standard or full: length and number of repeats
    #[arg(long, default_value = "quick")]
    pub(crate) profile: String,
    /// Length of one measurement [default: the profile's]
    #[arg(long, value_name = "DURATION")]
    pub(crate) time: Option<Nanos>,
    /// Repeats of each measurement [default: the profile's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeats: Option<u32>,
    /// Say what would be done, how long it takes and how much is written, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Serial number (or path, where there is none) of a member whose data may be destroyed; once for each
    #[arg(long, value_name = "SERIAL", help_heading = "Safety")]
    pub(crate) destroy: Vec<String>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    #[command(flatten)]
    pub(crate) guest: GuestArgs,
    /// Give RAID 5 and 6 of md and the device mapper a journal: a further file, or this device
    #[arg(long, value_name = "DEVICE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) write_journal: Option<String>,
    #[command(flatten)]
    pub(crate) options: RaidOptions,
    /// Instead of raw loads, another lab on each array: db mysql, db tpcc, db sql, db rocksdb, kv, app copy or app swap with
    /// their options, without a target. It works in the array's file system (btrfs, zfs), in one that is made on its device
    /// (--mkfs), or, as kv can, on the device itself
    #[arg(long, value_name = "COMMAND")]
    pub(crate) lab: Option<String>,
    /// With --lab: make this file system on each array, between it and the lab: ext4, xfs or btrfs [default: ext4 where the
    /// lab needs one and the array has none]
    #[arg(long, value_name = "KIND", requires = "lab", value_parser = super::file_system)]
    pub(crate) mkfs: Option<&'static FileSystem>,
}

/// Arguments of `vm`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom vm /mnt/data --vms 1,2 --try aio=threads --try iothread=off\n                                    boots guests whose disks are parts of a scratch file there; which setting\n                                    recovers how much is proved in turns\n  fathom vm /dev/nvme0n1 --no-writes    reads only: needs no permission to destroy\n  fathom vm /mnt/data --size 2g --vms 1 --fs ext4,xfs,btrfs   images on file systems, beside the bare target\n  fathom vm /mnt/data --size 1g --lab \"kv --workload update,b --time 10s\"   what a tree loses in a machine\n  fathom vm sim:optane-900p --vms 1..8 --try idle=busy   the same on models\nGuests need QEMU and a kernel (--kernel); nothing else, and no network.\nSettings: disk=virtio-blk|virtio-scsi|nvme|vhost-user, cache=none|writeback|writethrough|directsync|unsafe,\naio=io_uring|native|threads, iothread=on|off, queues=N, poll-ns=N, vcpus=N, memory=MIB, scheduler=none|mq-deadline;\non models idle=on|shallow|busy, poll=on."
)]
pub(crate) struct VmArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) options: VmOptions,
    /// Instead of raw loads, another lab with its options, without a target, on the host and in a machine, in turns: kv on the
    /// machine's disk, db mysql, db tpcc, db sql, db rocksdb, app copy or app swap in a file system on it (--lab-fs)
    #[arg(long, value_name = "COMMAND")]
    pub(crate) lab: Option<String>,
    /// With --lab: the file system that is made on the machine's disk: ext4, xfs or btrfs [default: ext4 where the lab needs one]
    #[arg(long, value_name = "KIND", requires = "lab", value_parser = super::file_system)]
    pub(crate) lab_fs: Option<&'static FileSystem>,
    #[command(flatten)]
    pub(crate) guest: GuestArgs,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// What guests are made of.
#[derive(Args, Clone)]
pub(crate) struct GuestArgs {
    /// Kernel of the guests: a vmlinuz, or a directory with an unpacked package [default: this machine's newest]
    #[arg(long, value_name = "PATH", help_heading = "Guests")]
    pub(crate) kernel: Option<PathBuf>,
}
