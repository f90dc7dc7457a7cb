//! Arrays of the kernel's device mapper, the parts that LVM makes its volumes of: `striped`, and md's levels 1 and 5
//! behind `dm-raid`. Made by its own calls: no LVM tools, no metadata, nothing on the members but data.
//!
//! Such an array is measured whole: without metadata the kernel does not fill a member again. A keeper removes it where
//! fathom is killed.

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
use crate::kernel_threads;
use crate::mapper;
use crate::outside;

/// See the module.
pub struct DmArrays {
    members: Members,
    control: Control,
}

/// Whether this kernel has a device mapper; asks for its module where it may.
///
/// # Errors
/// What is missing, and what to do.
pub fn available() -> Result<(), LabError> {
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
        remedy: "load it (modprobe dm-mod dm-raid), or let guests have it: --backend guest-dm"
            .into(),
    })
}

impl DmArrays {
    /// Over members that the safety rules allow.
    ///
    /// # Errors
    /// Where this kernel has no device mapper.
    pub fn new(members: Members, control: Control) -> Result<Self, LabError> {
        available()?;
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
        if matches!(shape.level, Level::Raid6 | Level::Raid10) {
            // dm-raid takes no RAID 6 that is not synchronised first, and no RAID 10 without metadata.
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
        let array = DmArray::make(shape, used, self.members.size(), &self.control)?;
        Ok(Box::new(array))
    }
    fn stamps(&self) -> Vec<Flag> {
        Vec::new()
    }
}

/// A line of a table: its target, sectors, and arguments for members with these numbers.
fn table(shape: &Shape, usable: u64, members: &[(u32, u32)]) -> (&'static str, u64, String) {
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
    // Nothing is synchronised: fathom fills the array itself.
    let (kind, settings) = if shape.level == Level::Raid5 {
        ("raid5_ls", format!("2 {chunk} nosync"))
    } else {
        ("raid1", "2 0 nosync".to_owned())
    };
    let devices = list(&|major, minor| format!("- {major}:{minor}"));
    let arguments = format!("{kind} {settings} {} {devices}", shape.members);
    ("raid", sectors, arguments)
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
        bytes: u64,
        control: &Control,
    ) -> Result<Self, LabError> {
        let numbers: Result<Vec<(u32, u32)>, LabError> =
            members.iter().map(Member::number).collect();
        let usable = bytes / shape.chunk.0 * shape.chunk.0;
        let (target, sectors, arguments) = table(shape, usable, &numbers?);
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
        // md calls the threads of an array that it does not show so.
        kernel_threads::by_name(&["mdX_", "kdmflush", "loop", "raid5wq"])
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("chunk".to_owned(), Bytes(self.shape.chunk.0).to_string()),
            ("table".to_owned(), self.table.clone()),
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
        let of = |level: u32, members: u32| {
            let shape = Shape {
                level: Level::from_number(level).unwrap(),
                members,
                chunk: Bytes::kib(64),
            };
            let numbers: Vec<(u32, u32)> = (0..members).map(|i| (7, i)).collect();
            let (kind, sectors, arguments) = table(&shape, 1 << 20, &numbers);
            format!("{sectors} {kind} {arguments}")
        };
        assert_eq!(of(0, 2), "4096 striped 2 128 7:0 0 7:1 0");
        assert_eq!(of(1, 2), "2048 raid raid1 2 0 nosync 2 - 7:0 - 7:1");
        assert_eq!(
            of(5, 3),
            "4096 raid raid5_ls 2 128 nosync 3 - 7:0 - 7:1 - 7:2"
        );
    }
}
