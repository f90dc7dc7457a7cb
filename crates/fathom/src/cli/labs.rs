//! Arguments of `raid` and `vm`.

use std::path::PathBuf;

use clap::Args;
use fathom_telemetry::{Bytes, Nanos};

use super::{MeasureArgs, OutArgs};

/// Whole numbers: `1,2,4` or `2..8` (both ends belong to it).
pub(crate) fn numbers(text: &str) -> Result<Numbers, String> {
    let one = |t: &str| match t.trim().parse::<u32>() {
        Ok(n) if (1..=64).contains(&n) => Ok(n),
        _ => Err(format!(
            "'{t}' is not possible: expected a number from 1 to 64"
        )),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            Some((low, high)) => {
                let (low, high) = (one(low)?, one(high.trim_start_matches('='))?);
                if low > high {
                    return Err(format!(
                        "'{part}' runs backwards: expected a range such as 2..8"
                    ));
                }
                all.extend(low..=high);
            }
            None => all.push(one(part)?),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(Numbers(all))
}

/// See [`numbers`].
#[derive(Debug, Clone)]
pub(crate) struct Numbers(pub(crate) Vec<u32>);

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
    /// Settings that every array gets: name=value, such as stripe_cache_size=8192
    #[arg(long, value_delimiter = ',', value_name = "SETTING,…")]
    pub(crate) set: Vec<String>,
    /// Settings to prove against those that it has, in runs that take turns: name=value
    #[arg(long = "try", value_name = "SETTING")]
    pub(crate) tries: Vec<String>,
    /// Give RAID 5 and 6 of md and the device mapper a journal: a further file, or this device
    #[arg(long, value_name = "DEVICE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) write_journal: Option<String>,
    /// Blocks of A B B A or B A A B for each setting that is tried
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
    pub(crate) blocks: u32,
    /// 0, 1, 5, 6, 10
    #[arg(long, value_delimiter = ',', value_name = "LEVEL,…", default_values_t = [0u32, 1, 5, 6, 10])]
    pub(crate) levels: Vec<u32>,
    /// Numbers of members: 2,4,8 or 2..8; those that a level cannot have are left out
    #[arg(long, value_name = "N,…", default_value = "2,3,4,6,8", value_parser = numbers)]
    pub(crate) members: Numbers,
    /// Bytes of a chunk, several with commas
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SIZE,…",
        default_value = "512k"
    )]
    pub(crate) chunk: Vec<Bytes>,
    /// Large blocks
    #[arg(long, default_value = "512k")]
    pub(crate) bs: Bytes,
    /// Small blocks, written at random; 0 leaves them out
    #[arg(long, default_value = "4k")]
    pub(crate) small: Bytes,
    /// Threads, each with one I/O outstanding
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Only direct, or only buffered I/O [default: both]
    #[arg(long, value_name = "WAY", value_parser = ["direct", "buffered"])]
    pub(crate) only: Option<String>,
    /// Patterns: read, randread, write, randwrite
    #[arg(long, value_delimiter = ',', value_name = "RW,…", value_parser = ["read", "randread", "write", "randwrite"], default_values_t = ["read", "randread", "write", "randwrite"].map(str::to_owned))]
    pub(crate) rw: Vec<String>,
    /// Leave out arrays that lack a member
    #[arg(long)]
    pub(crate) no_degraded: bool,
    /// Leave out arrays that fill a new member
    #[arg(long)]
    pub(crate) no_rebuild: bool,
    /// Instead of raw loads, another lab in the file system of each array (btrfs): db mysql, db tpcc, db rocksdb, kv, app
    /// copy or app swap with their options, without a target; kv also on devices (md, dm, lvm, guest)
    #[arg(long, value_name = "COMMAND")]
    pub(crate) lab: Option<String>,
}

/// Arguments of `vm`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom vm /mnt/data --vms 1,2 --try aio=threads --try iothread=off\n                                    boots guests whose disks are parts of a scratch file there; which setting\n                                    recovers how much is proved in turns\n  fathom vm /dev/nvme0n1 --no-writes    reads only: needs no permission to destroy\n  fathom vm /mnt/data --size 2g --vms 1 --fs ext4,xfs,btrfs   images on file systems, beside the bare target\n  fathom vm /mnt/data --size 1g --lab \"kv --workload update,b --time 10s\"   what a tree loses in a machine\n  fathom vm sim:optane-900p --vms 1..8 --try idle=busy   the same on models\nGuests need QEMU and a kernel (--kernel); nothing else, and no network.\nSettings: disk=virtio-blk|virtio-scsi|nvme|vhost-user, cache=none|writeback|writethrough|directsync|unsafe,\naio=io_uring|native|threads, iothread=on|off, queues=N, poll-ns=N, vcpus=N, memory=MIB, scheduler=none|mq-deadline;\non models idle=on|shallow|busy, poll=on."
)]
pub(crate) struct VmArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Numbers of machines that run together: 1,2,4 or 1..8
    #[arg(long, value_name = "N,…", default_value = "1,2,4,6,8", value_parser = numbers)]
    pub(crate) vms: Numbers,
    /// Settings of every machine: name=value, several with commas
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    pub(crate) set: String,
    /// Settings to prove against that in interleaved runs; may be given several times
    #[arg(long = "try", value_name = "SETTINGS")]
    pub(crate) tries: Vec<String>,
    /// Outstanding I/Os of the loads that want many
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) qd: u32,
    /// Threads that share them out [default: as many on models, else 4 at most]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Blocks of A B B A or B A A B for each setting that is tried
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
    pub(crate) blocks: u32,
    /// Leave out the load curves
    #[arg(long)]
    pub(crate) no_curve: bool,
    /// Leave out the machine with a disk that does nothing
    #[arg(long)]
    pub(crate) no_floor: bool,
    /// Leave out latency by layer on both sides
    #[arg(long)]
    pub(crate) no_layers: bool,
    /// Leave out writes
    #[arg(long)]
    pub(crate) no_writes: bool,
    /// File systems to lay a machine's disk on, made on the target beside a part without one; as root
    #[arg(long, value_name = "FS,…", value_delimiter = ',', value_parser = below_a_machine())]
    pub(crate) fs: Vec<String>,
    /// Instead of raw loads, the lab kv with its options, without a target, on the host and in a machine, in turns
    #[arg(long, value_name = "COMMAND")]
    pub(crate) lab: Option<String>,
    #[command(flatten)]
    pub(crate) guest: GuestArgs,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// What a machine's disk may lie on: nothing, or a file system that labs make.
fn below_a_machine() -> clap::builder::PossibleValuesParser {
    std::iter::once("raw")
        .chain(fathom_system::filesystem::file_systems())
        .into()
}

/// Machines that run already.
#[derive(Args, Clone)]
pub(crate) struct ReachArgs {
    /// Hosts, reached by ssh, whose fathom runs the jobs: machines that run already, whatever their hypervisor
    #[arg(
        long,
        value_name = "HOST,…",
        value_delimiter = ',',
        help_heading = "Machines of your own"
    )]
    pub(crate) ssh: Vec<String>,
    /// What is tested in each: a directory, a file or a device
    #[arg(
        long,
        value_name = "TARGET",
        default_value = ".",
        requires = "ssh",
        help_heading = "Machines of your own"
    )]
    pub(crate) ssh_target: String,
    /// Serial number (or path, where there is none) of the device there whose data may be destroyed
    #[arg(
        long,
        value_name = "SERIAL",
        requires = "ssh",
        help_heading = "Machines of your own"
    )]
    pub(crate) ssh_destroy: Option<String>,
    /// Their fathom
    #[arg(
        long,
        value_name = "PATH",
        default_value = "fathom",
        requires = "ssh",
        help_heading = "Machines of your own"
    )]
    pub(crate) ssh_fathom: String,
    /// What reaches a host, with its arguments
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o BatchMode=yes",
        requires = "ssh",
        help_heading = "Machines of your own"
    )]
    pub(crate) ssh_program: String,
}

/// What guests are made of.
#[derive(Args, Clone)]
pub(crate) struct GuestArgs {
    /// Kernel of the guests: a vmlinuz, or a directory with an unpacked package [default: this machine's newest]
    #[arg(long, value_name = "PATH", help_heading = "Guests")]
    pub(crate) kernel: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_of_numbers_are_understood() {
        let of = |t| numbers(t).map(|n| n.0);
        assert_eq!(of("1,2,4").unwrap(), [1, 2, 4]);
        assert_eq!(of("2..5").unwrap(), [2, 3, 4, 5]);
        assert_eq!(of("8,2..=4,4").unwrap(), [2, 3, 4, 8]);
        assert!(of("5..2").unwrap_err().contains("backwards"));
        assert!(of("0").unwrap_err().contains("1 to 64"));
        assert!(of("many").is_err());
    }
}
