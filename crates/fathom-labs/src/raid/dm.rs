//! Arrays of the kernel's device mapper, the parts that LVM makes its volumes of: `striped`, and md's levels behind
//! `dm-raid`. Made by its own calls: no LVM tools, no metadata, nothing on the members but data.
//!
//! Without metadata the kernel fills RAID 6 itself before it is whole (drivers/md/dm-raid.c: it refuses `nosync`); that is
//! waited for. RAID 10 is refused without metadata. Such an array is measured whole: without metadata the kernel does not fill a member again. A keeper removes it where fathom is
//! killed.

use std::path::{Path, PathBuf};

use fathom_experiments::{Bench, RealBench};
use fathom_io::Control;
use fathom_sim::raid::Level;
use fathom_telemetry::{Bytes, Flag, Nanos};

use super::backend::{Array, Backend, Shape, Traffic};
use super::md;
use super::members::{Member, Members, moved};
use crate::LabError;
use crate::keeper::{Keeper, Undo};
use crate::{kernel_threads, mapper, outside, remains};

/// Kernel threads that serve such arrays; md calls those of an array that it does not show so.
pub(super) const THREADS: &[&str] = &["mdX_", "kdmflush", "loop", "raid5wq"];
/// RAID 6 or 10 that takes longer until it is whole is not waited for.
const SYNC_LIMIT: Nanos = Nanos::from_secs(1800);

/// See the module.
pub struct DmArrays {
    members: Members,
    control: Control,
}

/// Whether this kernel has a device mapper; asks for its module where it may. `instead` is the backend that has it in
/// guests.
///
/// # Errors
/// What is missing, and what to do.
pub fn available(instead: &str) -> Result<(), LabError> {
    let there = || {
        mapper::CONTROL
            .to_str()
            .is_ok_and(|c| Path::new(c).exists())
    };
    if !there() {
        outside::load_module("dm-mod");
    }
    if there() {
        return Ok(());
    }
    Err(LabError::Missing {
        what: "this kernel has no device mapper".into(),
        remedy: format!(
            "load it (modprobe dm-mod dm-raid), or let guests have it: --backend {instead}"
        ),
    })
}

impl DmArrays {
    /// Over members that the safety rules allow.
    ///
    /// # Errors
    /// Where this kernel has no device mapper.
    pub fn new(members: Members, control: Control) -> Result<Self, LabError> {
        available("guest-dm")?;
        remains::clear();
        Ok(Self { members, control })
    }
}

impl Backend for DmArrays {
    fn name(&self) -> &'static str {
        "dm"
    }
    fn about(&self) -> String {
        format!(
            "Linux device mapper (striped, dm-raid) over {}",
            self.members.about()
        )
    }
    fn members(&self) -> u32 {
        self.members.all().len() as u32
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        let there = self.members();
        if shape.level == Level::Raid10 {
            // Linux 6.1 refuses it (EINVAL) with `sync` and without.
            return Some("the device mapper makes it with LVM's metadata only: use md".into());
        }
        (shape.members > there)
            .then(|| format!("it needs {} members, {there} are there", shape.members))
    }
    fn member(&mut self) -> Result<Box<dyn Bench>, LabError> {
        let Some(first) = self.members.all().first() else {
            return Err(LabError::Refused("no member was named".into()));
        };
        let bench = md::open(first.path(), first.destroy(), &self.control)?;
        Ok(Box::new(bench))
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, LabError> {
        let used = &self.members.all()[..shape.members as usize];
        for m in used {
            self.members.check(m)?;
        }
        let array = DmArray::make(shape, used, &self.members, &self.control)?;
        Ok(Box::new(array))
    }
    fn stamps(&self) -> Vec<Flag> {
        Vec::new()
    }
}

/// A line of a table: its target, sectors, and arguments for members, and a journal, with these numbers.
fn table(
    shape: &Shape,
    usable: u64,
    members: &[(u32, u32)],
    journal: Option<(u32, u32)>,
) -> (&'static str, u64, String) {
    let sectors = usable / 512 * u64::from(shape.level.data_members(shape.members));
    let chunk = shape.chunk.0 / 512;
    let list = |each: &dyn Fn(u32, u32) -> String| {
        let all: Vec<String> = members.iter().map(|(a, i)| each(*a, *i)).collect();
        all.join(" ")
    };
    if shape.level == Level::Raid0 {
        let devices = list(&|major, minor| format!("{major}:{minor} 0"));
        let arguments = format!("{} {chunk} {devices}", shape.members);
        return ("striped", sectors, arguments);
    }
    let chunk = chunk.to_string();
    let copies = ["raid10_copies", "2", "raid10_format", "near", "sync"];
    // Where the kernel leaves it, nothing is synchronised: fathom fills the array itself.
    let (kind, mut settings) = match shape.level {
        Level::Raid5 => ("raid5_ls", vec![chunk.as_str(), "nosync"]),
        Level::Raid6 => ("raid6_zr", vec![chunk.as_str(), "sync"]),
        Level::Raid10 => ("raid10", [&[chunk.as_str()], &copies[..]].concat()),
        Level::Raid0 | Level::Raid1 => ("raid1", vec!["0", "nosync"]),
    };
    let journal = journal.map(|(major, minor)| format!("{major}:{minor}"));
    if let Some(journal) = journal.as_deref().filter(|_| shape.level.has_parity()) {
        settings.extend(["journal_dev", journal]);
    }
    let devices = list(&|major, minor| format!("- {major}:{minor}"));
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
pub(super) fn synchronised(name: &str, control: &Control) -> Result<(), LabError> {
    let began = fathom_io::clock::monotonic();
    loop {
        let status =
            mapper::status(name).map_err(|e| LabError::Failed(format!("{name} says {e}")))?;
        match is_whole(&status) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None => return Err(LabError::Failed(format!("{name} says '{status}'"))),
        }
        if control.interrupted() {
            return Err(LabError::Failed("interrupted".into()));
        }
        if fathom_io::clock::monotonic().since(began) > SYNC_LIMIT {
            return Err(LabError::Failed(format!(
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
    name: String,
    table: String,
    shape: Shape,
    node: PathBuf,
    parts: Vec<PathBuf>,
    /// Dropped first: it holds the array open.
    bench: Option<RealBench>,
    keeper: Option<Keeper>,
}

impl DmArray {
    fn make(
        shape: &Shape,
        members: &[Member],
        all: &Members,
        control: &Control,
    ) -> Result<Self, LabError> {
        let numbers: Result<Vec<(u32, u32)>, LabError> =
            members.iter().map(Member::number).collect();
        let journal = all.journal().map(Member::number).transpose()?;
        let usable = all.size() / shape.chunk.0 * shape.chunk.0;
        let (target, sectors, arguments) = table(shape, usable, &numbers?, journal);
        let name = format!("fathom-{}", std::process::id());
        let failed = |what: &str, e: std::io::Error| {
            LabError::Failed(format!(
                "device mapper did not {what} for {}: {e}",
                shape.title()
            ))
        };
        let keeper = Keeper::watch(&[Undo::mapping(&name)]).map_err(|e| failed("get a keeper", e));
        let mut array = Self {
            table: format!("0 {sectors} {target} {arguments}"),
            shape: *shape,
            node: PathBuf::new(),
            parts: members.iter().map(|m| m.path().to_owned()).collect(),
            bench: None,
            keeper: Some(keeper?),
            name,
        };
        // From here on dropping it takes apart what there is.
        let number = mapper::create(&array.name).map_err(|e| failed("make a device", e))?;
        array.node = PathBuf::from(format!("/dev/dm-{number}"));
        mapper::load(&array.name, sectors, target, &arguments).map_err(|e| {
            let table = &array.table;
            failed(&format!("take '{table}' (it needs modprobe dm-raid)"), e)
        })?;
        if target == "raid" {
            synchronised(&array.name, control)?;
        }
        md::wait_for(&array.node).map_err(|e| failed("make a node", e))?;
        let path = array.node.display().to_string();
        array.bench = Some(md::open(&array.node, Some(&path), control)?);
        Ok(array)
    }

    /// Takes it apart; a device that is still busy is tried again for a while.
    fn remove(&mut self) -> Result<(), LabError> {
        self.bench = None;
        if self.keeper.is_none() {
            return Ok(());
        }
        let mut last = String::new();
        for _ in 0..100 {
            match mapper::remove(&self.name) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => last = e.to_string(),
                // Gone now, or never made.
                _ => {
                    self.keeper = None;
                    return Ok(());
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Err(LabError::Failed(format!(
            "{} could not be removed ({last}): dmsetup remove {}",
            self.node.display(),
            self.name
        )))
    }
}

impl Drop for DmArray {
    fn drop(&mut self) {
        if let Err(e) = self.remove() {
            eprintln!("fathom: {e}");
        }
    }
}

impl Array for DmArray {
    fn bench(&mut self) -> &mut dyn Bench {
        self.bench.as_mut().map_or_else(
            || unreachable!("the bench lives as long as the array"),
            |b| b as &mut dyn Bench,
        )
    }
    fn traffic(&self) -> Option<Traffic> {
        let members = self.parts.iter().map(|p| moved(p));
        Some(Traffic {
            asked: moved(&self.node),
            members: members.fold([0; 2], |a, m| [a[0] + m[0], a[1] + m[1]]),
        })
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(THREADS)
    }
    fn handed_over(&mut self) -> Result<Option<PathBuf>, LabError> {
        if let Some(bench) = self.bench.take() {
            Box::new(bench).close()?;
        }
        Ok(Some(self.node.clone()))
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("chunk".to_owned(), Bytes(self.shape.chunk.0).to_string()),
            ("table".to_owned(), self.table.clone()),
            (
                "status".to_owned(),
                mapper::status(&self.name).unwrap_or_default(),
            ),
        ]
    }
    fn set(&mut self, _name: &str, _value: &str) -> Result<bool, LabError> {
        Ok(false)
    }
    fn device(&self) -> Option<&Path> {
        Some(&self.node)
    }
    fn states(&self) -> bool {
        false
    }
    fn lose(&mut self, _member: u32) -> Result<(), LabError> {
        Err(LabError::Refused(
            "device-mapper arrays are measured whole only".into(),
        ))
    }
    fn rebuild(&mut self) -> Result<(), LabError> {
        Err(LabError::Refused(
            "device-mapper arrays are measured whole only".into(),
        ))
    }
    fn rebuilt(&mut self) -> Option<f64> {
        None
    }
    fn close(mut self: Box<Self>) -> Result<(), LabError> {
        self.remove()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_those_that_the_kernel_documents() {
        let of = |level: u32, members: u32, journal| {
            let shape = Shape {
                level: Level::from_number(level).unwrap(),
                members,
                chunk: Bytes::kib(64),
            };
            let numbers: Vec<(u32, u32)> = (0..members).map(|i| (7, i)).collect();
            let (kind, sectors, arguments) = table(&shape, 1 << 20, &numbers, journal);
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
            "4096 raid raid5_ls 4 128 nosync journal_dev 7:9 3 - 7:0 - 7:1 - 7:2"
        );
        assert_eq!(
            of(6, 4, None),
            "4096 raid raid6_zr 2 128 sync 4 - 7:0 - 7:1 - 7:2 - 7:3"
        );
        assert_eq!(
            of(10, 4, Some((7, 9))),
            "4096 raid raid10 6 128 raid10_copies 2 raid10_format near sync 4 - 7:0 - 7:1 - 7:2 - 7:3"
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
