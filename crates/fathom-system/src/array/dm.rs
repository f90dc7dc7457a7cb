//! Arrays of the kernel's device mapper, the parts that LVM makes its volumes of: `striped`, and md's levels behind
//! `dm-raid`. Made by its own calls, without LVM's tools or metadata.
//!
//! Without metadata the kernel fills RAID 6 itself before it is whole (drivers/md/dm-raid.c: it refuses `nosync`); that is
//! waited for. Two it makes with metadata only, so their members are divided into a piece for them and one for data, as LVM
//! does. RAID 10: without, the kernel takes the number of copies for a layout that was asked for later, and keeps the one
//! that it has from nowhere (`rs_reshape_requested`, then `rs_set_cur`: EINVAL). A journal: without, a superblock that is
//! to be written never is (`md_update_sb` of an array that is neither persistent nor its own), and writes wait for it.
//!
//! All are measured whole. The cleanup process removes what was made where fathom is killed.

use std::path::{Path, PathBuf};

use fathom_io::Control;
use fathom_sim::raid::Level;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::md;
use super::members::{self, Members, Part};
use super::{Array, ArrayMaker, Shape, Traffic};
use crate::SystemError;
use crate::cleanup::{Cleanup, Undo};
use crate::{kernel_threads, mapper, programs};

/// Beginning of every array's name; the number of the process follows.
pub(crate) const PREFIX: &str = "fathom-";
/// What follows in the names of members' pieces, and then the member's number.
pub(crate) const PIECES: [&str; 2] = ["-meta-", "-data-"];
/// Bytes of a piece for metadata: a superblock, and a bit for each region, of which the kernel makes 2^21 at most.
const METADATA: Bytes = Bytes::mib(1);
/// Kernel threads that serve such arrays; md calls those of an array that it does not show so.
pub(crate) const THREADS: &[&str] = &["mdX_", "kdmflush", "loop", "raid5wq"];
/// RAID 6 that takes longer until it is whole is not waited for.
const SYNC_LIMIT: Nanos = Nanos::from_secs(1800);

pub(crate) struct DmArrays {
    members: Members,
    control: Control,
}

/// Whether this kernel has a device mapper; asks for its module where it may. `instead` is the backend that has it in
/// guests.
///
/// # Errors
/// What is missing, and what to do.
pub(crate) fn available(instead: &str) -> Result<(), SystemError> {
    let there = || {
        mapper::CONTROL
            .to_str()
            .is_ok_and(|c| Path::new(c).exists())
    };
    if !there() {
        programs::load_module("dm-mod");
    }
    if there() {
        return Ok(());
    }
    Err(SystemError::Missing {
        what: "this kernel has no device mapper".into(),
        remedy: format!(
            "load it (modprobe dm-mod dm-raid), or let guests have it: --backend {instead}"
        ),
    })
}

impl DmArrays {
    /// Over members that the safety rules allow.
    pub(crate) fn new(members: Members, control: Control) -> Self {
        Self { members, control }
    }
}

impl ArrayMaker for DmArrays {
    fn shared_disk(&self) -> Option<&str> {
        self.members.shared()
    }

    fn about(&self) -> String {
        format!(
            "Linux device mapper (striped, dm-raid) over {}",
            self.members.about()
        )
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        self.members.lack(shape)
    }
    fn member(&mut self) -> Result<Box<dyn Array>, SystemError> {
        self.members.first()
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, SystemError> {
        let parts = self.members.given(shape.members)?;
        let journal = self.members.given_journal(shape.level)?;
        let size = self.members.size();
        let array = DmArray::make(shape, parts, journal, size, &self.control)?;
        Ok(Box::new(array))
    }
}

/// What the kernel gets of a member: numbers of devices.
#[derive(Debug, Clone, Copy)]
struct Given {
    metadata: Option<(u32, u32)>,
    data: (u32, u32),
}

fn word((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

/// A line of a table: its target, sectors, and arguments for members, `usable` bytes of each, and a journal.
fn table(
    shape: &Shape,
    usable: u64,
    members: &[Given],
    journal: Option<(u32, u32)>,
) -> (&'static str, u64, String) {
    let sectors = usable / 512 * u64::from(shape.level.data_members(shape.members));
    let chunk = (shape.chunk.0 / 512).to_string();
    let list = |each: &dyn Fn(&Given) -> String| {
        let all: Vec<String> = members.iter().map(each).collect();
        all.join(" ")
    };
    if shape.level == Level::Raid0 {
        let devices = list(&|m| format!("{} 0", word(m.data)));
        let arguments = format!("{} {chunk} {devices}", shape.members);
        return ("striped", sectors, arguments);
    }
    // Where the kernel leaves it, nothing is synchronised: fathom fills the array itself.
    let (kind, settings) = match shape.level {
        Level::Raid5 => ("raid5_ls", &["nosync"][..]),
        Level::Raid6 => ("raid6_zr", &["sync"][..]),
        Level::Raid10 => (
            "raid10",
            &["nosync", "raid10_copies", "2", "raid10_format", "near"][..],
        ),
        // It has no chunk.
        Level::Raid0 | Level::Raid1 => ("raid1", &["nosync"][..]),
    };
    let chunk = if shape.level == Level::Raid1 {
        "0"
    } else {
        chunk.as_str()
    };
    let mut settings = [&[chunk], settings].concat();
    let journal = journal.map(word);
    if let Some(journal) = &journal {
        settings.extend(["journal_dev", journal.as_str()]);
    }
    let devices = list(&|m| {
        let metadata = m.metadata.map_or("-".to_owned(), word);
        format!("{metadata} {}", word(m.data))
    });
    let arguments = format!(
        "{kind} {} {} {} {devices}",
        settings.len(),
        settings.join(" "),
        shape.members
    );
    ("raid", sectors, arguments)
}

/// Waits until the kernel has filled an array that it makes whole itself.
///
/// # Errors
/// Where it takes too long, a member is lost meanwhile, or somebody asks to end.
pub(crate) fn synchronised(name: &str, control: &Control) -> Result<(), SystemError> {
    let began = fathom_io::clock::monotonic();
    loop {
        let status =
            mapper::status(name).map_err(|e| SystemError::Failed(format!("{name} says {e}")))?;
        match is_whole(&status) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None => return Err(SystemError::Failed(format!("{name} says '{status}'"))),
        }
        if control.interrupted() {
            return Err(SystemError::Failed("interrupted".into()));
        }
        if fathom_io::clock::monotonic().since(began) > SYNC_LIMIT {
            return Err(SystemError::Failed(format!(
                "{name} was not whole after {SYNC_LIMIT}: '{status}'; use less of each member with --size"
            )));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// `raid6_zr 4 AAAA 65536/65536 idle 0 0 -`: level, members, their health, progress, what it does. `None` where a member
/// is lost, or it says something else.
fn is_whole(status: &str) -> Option<bool> {
    let mut words = status.split_whitespace().skip(2);
    let (health, progress, action) = (words.next()?, words.next()?, words.next()?);
    let (done, all) = progress.split_once('/')?;
    if health.chars().any(|c| c == 'D') {
        return None;
    }
    Some(done == all && action == "idle")
}

struct DmArray {
    /// The array's, then those of its members' pieces, in the order in which they can be removed.
    names: Vec<String>,
    table: String,
    shape: Shape,
    node: PathBuf,
    /// Members, then the journal.
    parts: Vec<Part>,
    cleanup: Option<Cleanup>,
}

impl DmArray {
    /// `bytes` of each member are used.
    fn make(
        shape: &Shape,
        members: Vec<Part>,
        journal: Option<Part>,
        bytes: u64,
        control: &Control,
    ) -> Result<Self, SystemError> {
        let name = format!("{PREFIX}{}", std::process::id());
        let divided = shape.level == Level::Raid10 || journal.is_some();
        let mut names = vec![name.clone()];
        if divided {
            for piece in PIECES {
                names.extend((0..members.len()).map(|i| format!("{name}{piece}{i}")));
            }
        }
        mapper::free(&names)?;
        let number = journal.as_ref().map(|j| j.number);
        let mut array = Self {
            names,
            table: String::new(),
            shape: *shape,
            node: PathBuf::new(),
            parts: members.into_iter().chain(journal).collect(),
            cleanup: None,
        };
        let mut undo: Vec<Undo> = array.names.iter().map(|n| Undo::mapping(n)).collect();
        let stay = array.marked().iter().filter(|p| p.stays);
        undo.extend(stay.map(|p| Undo::blank(&p.path)));
        let cleanup =
            Cleanup::watch(&undo).map_err(|e| failed(shape, "get a cleanup process", &e))?;
        array.cleanup = Some(cleanup);
        // From here on dropping it takes apart what there is.
        array.assemble(bytes, number, control)?;
        Ok(array)
    }

    /// Whether its members are in pieces, for metadata and for data.
    fn divided(&self) -> bool {
        self.names.len() > 1
    }

    /// Parts that carry something of the array: all where members are in pieces, which they are with a journal, else none.
    fn marked(&self) -> &[Part] {
        if self.divided() { &self.parts } else { &[] }
    }

    fn assemble(
        &mut self,
        bytes: u64,
        journal: Option<(u32, u32)>,
        control: &Control,
    ) -> Result<(), SystemError> {
        let shape = self.shape;
        // What an earlier array left there the kernel would go on with.
        members::erase_all(self.marked())?;
        let divided = self.divided();
        let room = bytes - if divided { METADATA.0 } else { 0 };
        let usable = room / shape.chunk.0 * shape.chunk.0;
        if usable == 0 {
            return Err(SystemError::Refused(format!(
                "members of {} have no room for a chunk of {}: use a smaller --chunk or a larger --size",
                Bytes(bytes),
                shape.chunk
            )));
        }
        let given: Result<Vec<Given>, SystemError> = (0..shape.members as usize)
            .map(|i| {
                let member = self.parts[i].number;
                if !divided {
                    return Ok(Given {
                        metadata: None,
                        data: member,
                    });
                }
                Ok(Given {
                    metadata: Some(self.piece(PIECES[0], i, (0, METADATA.0))?),
                    data: self.piece(PIECES[1], i, (METADATA.0, usable))?,
                })
            })
            .collect();
        let (target, sectors, arguments) = table(&shape, usable, &given?, journal);
        self.table = format!("0 {sectors} {target} {arguments}");
        let (_, minor) =
            mapper::create(&self.names[0]).map_err(|e| failed(&shape, "make a device", &e))?;
        self.node = PathBuf::from(format!("/dev/dm-{minor}"));
        mapper::load(&self.names[0], sectors, target, &arguments).map_err(|e| {
            let table = &self.table;
            failed(
                &shape,
                &format!("take '{table}' (it needs modprobe dm-raid)"),
                &e,
            )
        })?;
        if target == "raid" {
            synchronised(&self.names[0], control)?;
        }
        md::wait_for(&self.node).map_err(|e| failed(&shape, "make a node", &e))?;
        Ok(())
    }

    /// A device over a part of a member, from one byte on and so long; its number.
    fn piece(
        &self,
        piece: &str,
        member: usize,
        (begin, bytes): (u64, u64),
    ) -> Result<(u32, u32), SystemError> {
        let name = format!("{}{piece}{member}", self.names[0]);
        let arguments = format!("{} {}", word(self.parts[member].number), begin / 512);
        mapper::create(&name)
            .and_then(|number| {
                mapper::load(&name, bytes / 512, "linear", &arguments).map(|()| number)
            })
            .map_err(|e| failed(&self.shape, &format!("make {name}"), &e))
    }

    /// Takes it apart; a device that is still busy is tried again for a while.
    fn remove(&mut self) -> Result<(), SystemError> {
        if self.cleanup.is_none() {
            return Ok(());
        }
        for name in &self.names {
            removed(name)?;
        }
        members::erase_all(self.marked())?;
        self.cleanup = None;
        Ok(())
    }
}

fn failed(shape: &Shape, what: &str, e: &std::io::Error) -> SystemError {
    SystemError::Failed(format!(
        "device mapper did not {what} for {}: {e}",
        shape.title()
    ))
}

/// Removes a device, for which it waits while somebody has it open.
fn removed(name: &str) -> Result<(), SystemError> {
    match crate::retry::patiently(5, crate::retry::is_busy, || mapper::remove(name)) {
        Err(e) if crate::retry::is_busy(&e) => Err(SystemError::Failed(format!(
            "{name} could not be removed ({e}): dmsetup remove {name}"
        ))),
        // Gone now, or never made.
        _ => Ok(()),
    }
}

impl Drop for DmArray {
    fn drop(&mut self) {
        if let Err(e) = self.remove() {
            say!("fathom: {e}");
            Cleanup::try_again(self.cleanup.take());
        }
    }
}

impl Array for DmArray {
    fn traffic(&self) -> Option<Traffic> {
        Some(members::traffic(&self.node, &self.parts))
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(THREADS)
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("chunk".to_owned(), Bytes(self.shape.chunk.0).to_string()),
            ("table".to_owned(), self.table.clone()),
            (
                "status".to_owned(),
                mapper::status(&self.names[0]).unwrap_or_default(),
            ),
        ]
    }
    fn device(&self) -> Option<&Path> {
        Some(&self.node)
    }
    fn close(mut self: Box<Self>) -> Result<(), SystemError> {
        self.remove()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_those_that_the_kernel_documents() {
        let of = |level: u32, members: u32, journal: Option<(u32, u32)>| {
            let shape = Shape {
                level: Level::from_number(level).unwrap(),
                members,
                chunk: Bytes::kib(64),
            };
            let given: Vec<Given> = (0..members)
                .map(|i| Given {
                    metadata: (level == 10 || journal.is_some()).then_some((253, i)),
                    data: (7, i),
                })
                .collect();
            let (kind, sectors, arguments) = table(&shape, 1 << 20, &given, journal);
            format!("{sectors} {kind} {arguments}")
        };
        assert_eq!(of(0, 2, None), "4096 striped 2 128 7:0 0 7:1 0");
        assert_eq!(of(1, 2, None), "2048 raid raid1 2 0 nosync 2 - 7:0 - 7:1");
        assert_eq!(
            of(5, 3, None),
            "4096 raid raid5_ls 2 128 nosync 3 - 7:0 - 7:1 - 7:2"
        );
        assert_eq!(
            of(5, 3, Some((7, 9))),
            "4096 raid raid5_ls 4 128 nosync journal_dev 7:9 3 253:0 7:0 253:1 7:1 253:2 7:2"
        );
        assert_eq!(
            of(6, 4, None),
            "4096 raid raid6_zr 2 128 sync 4 - 7:0 - 7:1 - 7:2 - 7:3"
        );
        assert_eq!(
            of(10, 4, None),
            "4096 raid raid10 6 128 nosync raid10_copies 2 raid10_format near 4 253:0 7:0 253:1 7:1 253:2 7:2 253:3 7:3"
        );
    }

    #[test]
    fn an_array_is_whole_when_the_kernel_has_nothing_left_to_do() {
        assert_eq!(
            is_whole("raid6_zr 4 AAAA 65536/65536 idle 0 0 -"),
            Some(true)
        );
        assert_eq!(
            is_whole("raid6_zr 4 aaaa 512/65536 resync 0 0 -"),
            Some(false)
        );
        assert_eq!(is_whole("raid6_zr 4 DAAA 512/65536 idle 0 0 -"), None);
        assert_eq!(is_whole(""), None);
    }
}
