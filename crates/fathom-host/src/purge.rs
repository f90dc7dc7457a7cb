//! Emptying a device: which ways it has, how far each of them reaches, and the one door to the drive's own commands.
//!
//! A command that erases reaches what no descriptor of the kernel's stands for: other namespaces of the drive. So it can be
//! sent by an [`Eraser`] only, which is made of a [`Permit`] and holds everything else that the command reaches, too.

pub mod method;
pub mod nvme;
mod reach;
pub mod state;

use std::fs::File;
use std::io;
use std::path::Path;

use fathom_files::open;

use crate::devices::graph::{Graph, Node};
use crate::devices::nvme::{self as drive, Nvme};
use crate::devices::occupancy::Occupancy;
use crate::guard::Permit;
use crate::refusal::Refusal;
use crate::root::{HostRoot, number};
use crate::sys;
pub use method::{Blocks, Method};
use nvme::{Command, Sanitize};
pub use state::{Emptying, emptying};

/// Which ways a block device has.
#[derive(Debug, Clone, Default)]
pub struct Offers {
    /// Every way: kernel names of other namespaces that it empties, too, or why it cannot be gone.
    pub ways: Vec<(Method, Result<Vec<String>, String>)>,
    /// What its drive estimates for sanitize operations.
    pub sanitize: Option<Sanitize>,
}

impl Offers {
    /// What is to be done where nobody said.
    pub fn best(&self) -> Option<Method> {
        self.possible().find(|m| m.is_chosen())
    }

    fn possible(&self) -> impl Iterator<Item = Method> {
        self.ways.iter().filter(|w| w.1.is_ok()).map(|w| w.0)
    }

    /// Kernel names of other namespaces that a way empties, too.
    ///
    /// # Errors
    /// Why it cannot be gone, in a sentence with those that can.
    pub fn reached(&self, device: &Path, method: Method) -> Result<&[String], String> {
        let way = self.ways.iter().find(|w| w.0 == method).map(|w| &w.1);
        let why = match way {
            Some(Ok(reached)) => return Ok(reached),
            Some(Err(why)) => why.as_str(),
            None => "nobody knows it",
        };
        let can: Vec<&str> = self.possible().map(Method::name).collect();
        let can = match can.is_empty() {
            true => "nothing else: --purge none goes on without".to_owned(),
            false => format!("--purge {}", can.join(", ")),
        };
        Err(format!(
            "{} cannot be purged by {method}: {why}; it offers {can}",
            device.display()
        ))
    }
}

/// Looks at what a block device offers for its whole range, or for a part of it; nothing is changed. `None` where there is
/// no such device.
pub fn offers(device: &Path, whole: bool) -> Option<Offers> {
    let root = HostRoot::real();
    let device = std::fs::canonicalize(device).ok()?;
    let graph = Graph::read(&root).ok()?;
    let node = graph.by_number(root.number_of_node(&device)?)?;
    let drive = drive::of(&root, graph.disk_of(node));
    offers_in(&root, &node.name, whole, drive)
}

/// The same for a device of a machine described by other trees, with what its drive says of itself.
pub fn offers_in(root: &HostRoot, name: &str, whole: bool, drive: Option<Nvme>) -> Option<Offers> {
    let graph = Graph::read(root).ok()?;
    let occupancy = Occupancy::gather(root, &graph).ok()?.with_openers(root);
    let node = graph.get(name)?;
    let ways = Method::ALL.map(|m| {
        let can = possible(node, drive.as_ref(), m, whole).and_then(|()| match &drive {
            Some(d) if reach::is_of_all(m, d) => {
                reach::others(root, &graph, &occupancy, node, d, m)
            }
            _ => Ok(Vec::new()),
        });
        (m, can.map(|all| all.into_iter().map(|n| n.name).collect()))
    });
    Some(Offers {
        ways: ways.into(),
        sanitize: drive.and_then(|d| d.sanitized),
    })
}

/// Whether the device can do it at all.
fn possible(node: &Node, drive: Option<&Nvme>, method: Method, whole: bool) -> Result<(), String> {
    let no = |why: &str| Err(why.to_owned());
    // A partition has its queue at its disk.
    let disk = match node.parent {
        Some(_) => node.dir.parent().unwrap_or(&node.dir),
        None => &node.dir,
    };
    let queue = |file: &str| number::<u64>(&disk.join("queue").join(file)).unwrap_or(0);
    match method {
        Method::Discard if queue("discard_max_bytes") == 0 => no("it takes no discards"),
        // The kernel does not show who can.
        Method::SecureDiscard if !node.name.starts_with("mmcblk") => {
            no("it takes no secure discards")
        }
        Method::Zeroes if queue("write_zeroes_max_bytes") == 0 => {
            no("it does not write zeroes by itself (write them with --passes)")
        }
        Method::Discard | Method::SecureDiscard | Method::Zeroes => Ok(()),
        _ => {
            let Some(drive) = drive else {
                return no("it is no NVMe namespace");
            };
            if let Some(disk) = &node.parent {
                return Err(format!("it is a part of {disk}, which it would empty"));
            }
            if !whole {
                return no("it would empty more than the range that is asked for (--size)");
            }
            match method.operation() {
                Some(way) if !drive.sanitize.contains(&way) => match drive.sanitize.as_slice() {
                    [] => no("the drive has no Sanitize (SANICAP 0)"),
                    all => Err(format!("the drive sanitizes by {} only", all.join(", "))),
                },
                Some(_) => Ok(()),
                None if !drive.can_format => no("the drive has no Format NVM"),
                None if method == Method::FormatCrypto && !drive.format_crypto => {
                    no("the drive has no cryptographic erase by Format NVM")
                }
                None => Ok(()),
            }
        }
    }
}

/// Permission to erase by one command of the drive, with everything that it reaches held.
#[derive(Debug)]
pub struct Eraser {
    device: File,
    command: Command,
    nsid: u32,
    others: Vec<File>,
    /// Nodes of the other namespaces that are emptied, too.
    pub reached: Vec<String>,
    /// What the drive is.
    pub drive: Nvme,
}

impl Eraser {
    /// Makes one for the device that the permit holds.
    ///
    /// # Errors
    /// Where the drive does not offer the method, or where it reaches a namespace that is in use, not blank, or not to be
    /// seen from here.
    pub fn new(permit: &Permit, method: Method) -> Result<Self, Refusal> {
        let root = HostRoot::real();
        let device = permit.path().to_path_buf();
        let refused = |why: String| Refusal::NotPurged {
            device: device.clone(),
            method: method.name().into(),
            why,
        };
        let look = || -> Result<(Node, Nvme, Vec<Node>), Refusal> {
            let graph = Graph::read(&root).map_err(|e| refused(e.to_string()))?;
            let occupancy = Occupancy::gather(&root, &graph)
                .map_err(|e| refused(e.to_string()))?
                .with_openers(&root);
            let node = graph
                .by_number(permit.number())
                .ok_or_else(|| refused(format!("device {} is gone", permit.number())))?;
            let drive = drive::of(&root, graph.disk_of(node));
            possible(node, drive.as_ref(), method, true).map_err(refused)?;
            let drive = drive.unwrap_or_default();
            let others = match reach::is_of_all(method, &drive) {
                true => reach::others(&root, &graph, &occupancy, node, &drive, method)
                    .map_err(refused)?,
                false => Vec::new(),
            };
            Ok((node.clone(), drive, others))
        };
        let (_, drive, others) = look()?;
        let claim = |node: &Node| {
            let path = node.path(&root);
            open::for_writing(&path, libc::O_EXCL).map_err(|e| Refusal::from_io("open", &path, &e))
        };
        let held = others.iter().map(claim).collect::<Result<Vec<_>, _>>()?;
        // And once more, now that nobody can come any more.
        let (_, _, again) = look()?;
        if again
            .iter()
            .map(|n| n.number)
            .ne(others.iter().map(|n| n.number))
        {
            return Err(Refusal::Changed { device });
        }
        let handle = permit
            .file()
            .try_clone()
            .map_err(|e| Refusal::from_io("open", permit.path(), &e))?;
        let nsid = drive
            .nsid
            .ok_or_else(|| refused("its namespace has no number".into()))?;
        let mut identify = [0; 4096];
        sys::nvme_identify(&handle, drive::NAMESPACE, nsid, &mut identify)
            .map_err(|e| refused(format!("the drive does not say its format: {e}")))?;
        let command = Command::of(method, &identify, nsid)
            .ok_or_else(|| refused("it is no command of the drive".into()))?;
        Ok(Self {
            device: handle,
            command,
            nsid,
            others: held,
            reached: others.iter().map(|n| n.name.clone()).collect(),
            drive,
        })
    }

    /// Sends the command; a format ends with it, a sanitize operation begins.
    ///
    /// # Errors
    /// The drive's answer, or the kernel's.
    pub fn begin(&self) -> io::Result<()> {
        sys::nvme_erase(&self.device, &self.command)
    }

    /// How the sanitize operation stands.
    ///
    /// # Errors
    /// As [`Eraser::begin`].
    pub fn sanitized(&self) -> io::Result<Sanitize> {
        state::sanitized(&self.device)
    }

    /// Percent of a format that are left, where the drive says.
    pub fn format_left(&self) -> Option<u8> {
        let mut page = [0; 4096];
        sys::nvme_identify(&self.device, drive::NAMESPACE, self.nsid, &mut page).ok()?;
        nvme::format_left(&page)
    }

    /// Drops what the kernel remembers of the bytes that were there: the command went past it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn forget(&self) -> io::Result<()> {
        let mut all = std::iter::once(&self.device).chain(&self.others);
        all.try_for_each(sys::drop_cached)
    }
}

impl Permit {
    /// Has the kernel empty a range of the device: offset and length in bytes, multiples of its blocks.
    ///
    /// # Errors
    /// What the kernel says: `EOPNOTSUPP` where the device cannot.
    pub fn empty(&self, how: Blocks, offset: u64, length: u64) -> io::Result<()> {
        sys::empty(self.file(), how, offset, length)
    }
}
