//! What labs need of a machine, part by part: whether it is there, and which packages bring it.

use fathom_system::array::Local;
use fathom_system::filesystem::FILE_SYSTEMS;
use fathom_system::guest::{Accelerator, Kernel, qemu};
use fathom_system::{SystemError, programs};

use crate::LabError;
use crate::db;
use crate::kv::ENGINES;

/// Something that a lab needs.
pub struct Part {
    /// The commands that need it: `fathom raid`.
    pub commands: &'static str,
    /// Its name.
    pub name: String,
    /// Debian's packages that bring it; empty where none does.
    pub packages: &'static str,
    /// Its version or place.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub found: Result<String, LabError>,
}

/// All of them, looked for now.
pub fn parts() -> Vec<Part> {
    let mut all = Vec::new();
    let mut part = |commands, name: &str, packages, found: Result<String, LabError>| {
        all.push(Part {
            commands,
            name: name.to_owned(),
            packages,
            found,
        });
    };
    let here = |found: Result<(), SystemError>| Ok(found.map(|()| String::new())?);
    // A package brings a program, not what the kernel lacks.
    let brings = |package, program: &str| match programs::find(program) {
        Some(_) => "",
        None => package,
    };
    for fs in &FILE_SYSTEMS {
        let package = brings(fs.package, &format!("mkfs.{}", fs.name));
        part("paths, tune, vm", fs.name, package, here(fs.available()));
    }
    for (backend, package, program) in [
        ("md", "", ""),
        ("dm", "", ""),
        ("lvm", "lvm2", "lvm"),
        ("btrfs", "btrfs-progs", "mkfs.btrfs"),
        ("zfs", "zfs-fuse", "zpool"),
    ] {
        if let Some(local) = Local::named(backend) {
            let name = format!("{backend} arrays");
            part(
                "raid",
                &name,
                brings(package, program),
                here(local.available()),
            );
        }
    }
    for (commands, name, packages, found) in db::programs() {
        part(commands, name, packages, found);
    }
    for engine in ENGINES {
        part(
            "kv --beside",
            engine.name,
            engine.packages,
            (engine.probe)(),
        );
    }
    part(
        "vm, raid",
        "QEMU",
        qemu::PACKAGE,
        qemu::version().map_err(LabError::from),
    );
    let kernel = Kernel::find(None).map(|k| k.version);
    part(
        "vm, raid",
        "a guest's kernel",
        "",
        kernel.map_err(LabError::from),
    );
    part(
        "vm",
        "KVM",
        "",
        match Accelerator::probe() {
            Accelerator::Kvm => Ok(String::new()),
            Accelerator::Tcg(why) => Err(LabError::Missing {
                what: format!(
                    "guests are translated, so their numbers are no performance figures: {why}"
                ),
                remedy: "a machine whose processors guests may use (/dev/kvm)".into(),
            }),
        },
    );
    all
}
