//! QEMU machines over a file or block device: each gets a part of it as its disk.

use std::path::{Path, PathBuf};

use fathom_bench::{Bench, Notebook};
use fathom_io::Control;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use fathom_telemetry::{Bytes, Flag, FlagCode};

use super::backend::{Hypervisor, Knob, Setup};
use super::layers::{self, LayersResult};
use crate::LabError;
use crate::guest::remote::Opening;
use crate::guest::{Needs, RemoteBench};
use crate::raid::guest as in_guest;
use fathom_system::guest::{
    Accelerator, Backing, Cache, Disk, DiskModel, Guest, Machine, Supply, vhost,
};

/// What can be set, the defaults first.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "disk",
        values: &["virtio-blk", "virtio-scsi", "nvme", "vhost-user"],
        help: "how the guest sees the disk",
    },
    Knob {
        name: "cache",
        values: &["none", "writeback", "writethrough", "directsync", "unsafe"],
        help: "how the host caches it",
    },
    Knob {
        name: "aio",
        values: &["io_uring", "native", "threads"],
        help: "how QEMU does its I/O",
    },
    Knob {
        name: "iothread",
        values: &["on", "off"],
        help: "whether the disk has a thread of its own in QEMU",
    },
    Knob {
        name: "queues",
        values: &[],
        help: "queues of the disk",
    },
    Knob {
        name: "poll-ns",
        values: &[],
        help: "how long the iothread polls at most, ns; 0 never",
    },
    Knob {
        name: "vcpus",
        values: &[],
        help: "processors of a machine (1)",
    },
    Knob {
        name: "memory",
        values: &[],
        help: "memory of a machine, MiB (512)",
    },
    Knob {
        name: "scheduler",
        values: &["none", "mq-deadline"],
        help: "I/O scheduler of the guest",
    },
];

/// What a null disk pretends to hold.
const NULL_SIZE: Bytes = Bytes::gib(64);

/// Machines that are booted for each measurement, with a part of one target each.
pub struct QemuMachines {
    supply: Supply,
    path: PathBuf,
    size: u64,
    modifies: bool,
    control: Control,
    notes: Vec<Flag>,
}

impl QemuMachines {
    /// Machines over the first `size` bytes of a file or block device that is open under the safety rules;
    /// `modifies` says whether they may write.
    pub fn new(supply: Supply, path: PathBuf, size: u64, modifies: bool, control: Control) -> Self {
        Self {
            supply,
            path,
            size,
            modifies,
            control,
            notes: Vec::new(),
        }
    }

    /// Runs a lab in one machine, whose disk is the whole target and may be destroyed there; its run is brought into `out`.
    /// `lab` makes its command line from what stands for the target.
    ///
    /// # Errors
    /// Where the machine does not start, or what its fathom said where it made no run.
    pub fn lab(
        &mut self,
        setup: &Setup,
        needs: &Needs,
        lab: &dyn Fn(&str) -> Vec<String>,
        out: &Path,
    ) -> Result<(RunDir, Run), LabError> {
        let mut machine = machine(setup, self.part(0, self.size))?;
        needs.give(&mut machine);
        if setup.get("memory").is_none() {
            machine.memory = machine.memory.max(needs.memory());
        }
        let mut guest = self.supply.boot(&machine)?;
        schedule(&mut guest, setup)?;
        let mut words = lab(&format!("/dev/{}", device(setup)));
        words.extend(["--destroy".to_owned(), serial(setup)]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (dir, mut run) = in_guest::run(&mut guest, &words, out)?;
        let typed = run.command_line.clone();
        let name = self.path.display().to_string();
        in_guest::adopt(&mut run, &self.supply, &guest, &name, typed);
        guest.off();
        dir.save(&run)
            .map_err(|e| LabError::Failed(e.to_string()))?;
        Ok((dir, run))
    }

    /// So much of the target as a disk, in whole MiB.
    fn part(&self, offset: u64, size: u64) -> Backing {
        Backing::Part {
            path: self.path.clone(),
            offset,
            size: Bytes(size >> 20 << 20),
        }
    }

    fn start(&mut self, setup: &Setup, backings: Vec<Backing>) -> Result<Box<dyn Bench>, LabError> {
        let cpus = number(setup, "vcpus")?.unwrap_or(1) as u32;
        let together = backings.len() as u32 * cpus;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as u32;
        if together > cores && !self.notes.iter().any(|f| f.code == FlagCode::CpuBound) {
            self.notes.push(Flag::new(
                FlagCode::CpuBound,
                format!("{together} processors of machines share {cores} of the host"),
                "they wait for each other, not for the target: use fewer machines, or a larger host",
            ));
        }
        let guests = self.guests(setup, backings)?;
        let opening = Opening {
            target: format!("/dev/{}", device(setup)),
            modifies: self.modifies,
            size: None,
            destroy: self.modifies.then(|| serial(setup)),
        };
        let stamps = self.supply.stamps();
        let bench = RemoteBench::open(guests, &opening, self.control.clone(), stamps)?;
        Ok(Box::new(bench))
    }

    fn guests(&mut self, setup: &Setup, backings: Vec<Backing>) -> Result<Vec<Guest>, LabError> {
        let mut guests = Vec::new();
        for backing in backings {
            if self.control.interrupted() {
                return Err(LabError::Failed("interrupted".into()));
            }
            guests.push(self.supply.boot(&machine(setup, backing)?)?);
        }
        for guest in &mut guests {
            schedule(guest, setup)?;
        }
        Ok(guests)
    }
}

/// Sets the scheduler of a guest's disk.
fn schedule(guest: &mut Guest, setup: &Setup) -> Result<(), LabError> {
    let path = format!("/sys/block/{}/queue/scheduler", device(setup));
    let wanted = setup.get("scheduler").unwrap_or("none");
    Ok(guest.put(&path, 0o644, wanted.as_bytes())?)
}

/// The guest's name of its disk.
fn device(setup: &Setup) -> &'static str {
    match model(setup) {
        DiskModel::VirtioBlk | DiskModel::VhostUser => "vda",
        DiskModel::VirtioScsi => "sda",
        DiskModel::Nvme => "nvme0n1",
    }
}

fn model(setup: &Setup) -> DiskModel {
    match setup.get("disk") {
        Some("virtio-scsi") => DiskModel::VirtioScsi,
        Some("nvme") => DiskModel::Nvme,
        Some("vhost-user") => DiskModel::VhostUser,
        _ => DiskModel::VirtioBlk,
    }
}

fn serial(setup: &Setup) -> String {
    match model(setup) {
        DiskModel::VhostUser => vhost::SERIAL.to_owned(),
        _ => Disk::serial(0),
    }
}

fn number(setup: &Setup, name: &str) -> Result<Option<u64>, LabError> {
    let Some(text) = setup.get(name) else {
        return Ok(None);
    };
    let least = u64::from(name != "poll-ns");
    match text.parse() {
        Ok(n) if (least..=1 << 32).contains(&n) => Ok(Some(n)),
        _ => Err(LabError::Refused(format!(
            "{name}={text}: expected a number from {least} on"
        ))),
    }
}

fn machine(setup: &Setup, backing: Backing) -> Result<Machine, LabError> {
    let cache = match setup.get("cache") {
        Some("writeback") => Cache::Writeback,
        Some("writethrough") => Cache::Writethrough,
        Some("directsync") => Cache::Directsync,
        Some("unsafe") => Cache::Unsafe,
        _ => Cache::None,
    };
    let aio = match setup.get("aio") {
        Some("native") => "native",
        Some("threads") => "threads",
        _ => "io_uring",
    };
    if aio == "native" && !matches!(cache, Cache::None | Cache::Directsync) {
        return Err(LabError::Refused(
            "aio=native needs cache=none or cache=directsync: Linux AIO is asynchronous with O_DIRECT only".into(),
        ));
    }
    let disk = Disk {
        model: model(setup),
        cache,
        aio,
        iothread: setup.get("iothread") != Some("off"),
        poll_ns: number(setup, "poll-ns")?,
        queues: number(setup, "queues")?.map(|n| n as u32),
        ..Disk::new(backing)
    };
    let mut machine = Machine::new(vec![disk]);
    machine.cpus = number(setup, "vcpus")?.unwrap_or(1) as u32;
    machine.memory = Bytes(number(setup, "memory")?.unwrap_or(512) << 20);
    Ok(machine)
}

impl Hypervisor for QemuMachines {
    fn name(&self) -> &'static str {
        "qemu"
    }
    fn about(&self) -> String {
        let by = match &self.supply.accelerator {
            Accelerator::Kvm => "KVM".to_owned(),
            Accelerator::Tcg(why) => format!("its translator, because {why}"),
        };
        format!(
            "{} with {by}; guests run Linux {} over parts of {}",
            self.supply.qemu,
            self.supply.kernel.version,
            self.path.display()
        )
    }
    fn knobs(&self) -> &'static [Knob] {
        KNOBS
    }
    fn boot(&mut self, setup: &Setup, machines: u32) -> Result<Box<dyn Bench>, LabError> {
        let size = (self.size / u64::from(machines.max(1))) >> 20 << 20;
        let parts = 0..u64::from(machines);
        let backings = parts.map(|i| self.part(i * size, size)).collect();
        self.start(setup, backings)
    }
    fn floor(&mut self, setup: &Setup) -> Result<Option<Box<dyn Bench>>, LabError> {
        let null = Backing::Null { size: NULL_SIZE };
        self.start(setup, vec![null]).map(Some)
    }
    fn over(
        &mut self,
        setup: &Setup,
        disk: &Path,
        size: Bytes,
    ) -> Result<Option<Box<dyn Bench>>, LabError> {
        let backing = Backing::Part {
            path: disk.to_owned(),
            offset: 0,
            size,
        };
        self.start(setup, vec![backing]).map(Some)
    }
    fn layers(
        &mut self,
        setup: &Setup,
        book: &mut Notebook,
    ) -> Result<Option<LayersResult>, LabError> {
        let mut guests = self.guests(setup, vec![self.part(0, self.size)])?;
        let Some(guest) = guests.first_mut() else {
            return Ok(None);
        };
        let control = self.control.clone();
        let node = format!("/dev/{}", device(setup));
        layers::both(guest, &node, &self.path, book, &|| control.interrupted()).map(Some)
    }
    fn stamps(&self) -> Vec<Flag> {
        let mut all = self.supply.stamps();
        all.extend(self.notes.iter().cloned());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str) -> Result<Machine, LabError> {
        let setup = Setup::parse(text, KNOBS)?;
        machine(&setup, Backing::Null { size: NULL_SIZE })
    }

    #[test]
    fn settings_become_a_machine() {
        let m =
            made("disk=nvme,cache=unsafe,aio=threads,iothread=off,vcpus=4,memory=1024,queues=2")
                .unwrap();
        assert_eq!((m.cpus, m.memory), (4, Bytes::gib(1)));
        let d = &m.disks[0];
        assert_eq!(
            (d.model, d.cache, d.aio),
            (DiskModel::Nvme, Cache::Unsafe, "threads")
        );
        assert_eq!((d.iothread, d.queues), (false, Some(2)));
        assert!(m.all_modules().contains(&"nvme"));
    }

    #[test]
    fn impossible_settings_are_refused() {
        let refused = |t| made(t).unwrap_err().to_string();
        assert!(refused("aio=native,cache=writeback").contains("cache=none"));
        assert!(refused("vcpus=0").contains("from 1 on"));
    }
}
