//! Arrays of ZFS, made by zpool and mounted in a directory of their own, where this machine has ZFS.
//!
//! RAID 5 and 6 are raidz and raidz2, RAID 10 is a stripe of mirrors. Only metadata are kept in ZFS' own cache, so that
//! reads come from the members; nothing is compressed. A keeper destroys the pool where fathom is killed.

use std::path::{Path, PathBuf};

use fathom_experiments::Bench;
use fathom_io::Control;
use fathom_sim::raid::Level;
use fathom_telemetry::{Bytes, Nanos};

use super::backend::{Array, Backend, Shape};
use super::files::{Alone, FileArray, Place};
use super::members::Members;
use crate::LabError;
use crate::keeper::{Keeper, Undo};
use crate::kernel_threads;
use crate::{mounted, outside, remains};

/// zpool refuses smaller devices (SPA_MINDEVSIZE), and leaves little of those that are not much larger.
const MEMBER_MIN: Bytes = Bytes::mib(128);
/// Of what the pool could hold, so much is used: it needs room to write elsewhere.
const USED: f64 = 0.5;
/// What its blocks may be (recordsize).
const RECORD: std::ops::RangeInclusive<u64> = 512..=1 << 20;

/// See the module.
pub struct ZfsArrays {
    members: Members,
    control: Control,
}

/// Whether this machine has ZFS.
///
/// # Errors
/// What is missing, and what to do.
pub fn available() -> Result<(), LabError> {
    if outside::find("zpool").is_none() {
        return Err(LabError::Missing {
            what: "ZFS' tools are not installed".into(),
            remedy: "install them: apt-get install zfsutils-linux zfs-dkms (Debian: from contrib)"
                .into(),
        });
    }
    let there = || Path::new("/sys/module/zfs").exists();
    if !there() {
        outside::load_module("zfs");
    }
    if there() {
        return Ok(());
    }
    Err(LabError::Missing {
        what: "this kernel has no ZFS".into(),
        remedy: "load it: modprobe zfs".into(),
    })
}

impl ZfsArrays {
    /// Over members that the safety rules allow.
    ///
    /// # Errors
    /// Where ZFS is not to be had, or the members are too small for it.
    pub fn new(members: Members, control: Control) -> Result<Self, LabError> {
        available()?;
        members.at_least(MEMBER_MIN, "ZFS")?;
        remains::clear();
        Ok(Self { members, control })
    }
}

impl Backend for ZfsArrays {
    fn about(&self) -> String {
        let version = outside::find("zpool").map(|p| outside::first_line(&p, &["version"]));
        format!(
            "ZFS ({}) over {}; RAID 5 and 6 are raidz and raidz2; only metadata are cached, nothing is compressed",
            version.unwrap_or_default(),
            self.members.about()
        )
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        self.members.lack(shape)
    }
    /// A pool on one member: the same code, without an array.
    fn member(&mut self) -> Result<Box<dyn Bench>, LabError> {
        let shape = Shape {
            level: Level::Raid0,
            members: 1,
            chunk: Bytes::kib(512),
        };
        Ok(Box::new(Alone(Pool::make(self, &shape)?)))
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, LabError> {
        Ok(Box::new(Pool::make(self, shape)?))
    }
}

/// The words of `zpool create` that say how members make up a pool.
fn layout(level: Level, members: &[&str]) -> Vec<String> {
    let kind = match level {
        Level::Raid0 => None,
        Level::Raid1 | Level::Raid10 => Some("mirror"),
        Level::Raid5 => Some("raidz"),
        Level::Raid6 => Some("raidz2"),
    };
    let each = if level == Level::Raid10 {
        2
    } else {
        members.len().max(1)
    };
    members
        .chunks(each)
        .flat_map(|group| kind.iter().chain(group))
        .map(|w| (*w).to_owned())
        .collect()
}

struct Pool {
    name: String,
    dir: PathBuf,
    layout: Vec<String>,
    record: u64,
    keeper: Option<Keeper>,
}

impl Pool {
    fn make(backend: &ZfsArrays, shape: &Shape) -> Result<FileArray<Self>, LabError> {
        let parts = backend.members.given(shape.members)?;
        let failed = |what: &str, why: String| {
            LabError::Failed(format!("ZFS did not {what} for {}: {why}", shape.title()))
        };
        let members: Vec<&str> = parts.iter().filter_map(|p| p.path.to_str()).collect();
        let name = format!("fathom_{}", std::process::id());
        let zpool = outside::find("zpool").unwrap_or_else(|| PathBuf::from("/sbin/zpool"));
        let program = zpool.display().to_string();
        if outside::run(outside::command("zpool").args(["list", &name])).is_ok() {
            return Err(LabError::Refused(format!(
                "a pool called {name} is there already, which fathom did not make: zpool export {name}, or run again"
            )));
        }
        let dir = mounted::directory().map_err(|e| failed("get a directory", e.to_string()))?;
        let undo = [
            Undo::run(&[&program, "destroy", "-f", &name]),
            Undo::mount(&dir),
        ];
        let keeper = Keeper::watch(&undo);
        let mut pool = Self {
            dir,
            layout: layout(shape.level, &members),
            record: shape.chunk.0.clamp(*RECORD.start(), *RECORD.end()),
            keeper: None,
            name,
        };
        // From here on dropping it takes apart what there is.
        pool.keeper = Some(keeper.map_err(|e| failed("get a keeper", e.to_string()))?);
        let mut command = outside::command("zpool");
        command.args(["create", "-f", "-o", "cachefile=none", "-m"]);
        command.arg(&pool.dir);
        for option in ["compression=off", "atime=off", "primarycache=metadata"] {
            command.args(["-O", option]);
        }
        command.args(["-O", &format!("recordsize={}", pool.record)]);
        outside::run(command.arg(&pool.name).args(&pool.layout))
            .map_err(|e| failed("make a pool", e))?;
        let data = f64::from(shape.level.data_members(shape.members));
        let size = (backend.members.size() as f64 * data * USED) as u64 >> 20 << 20;
        FileArray::open(pool, size, &backend.control)
    }
}

impl Place for Pool {
    fn dir(&self) -> &Path {
        &self.dir
    }
    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("layout".into(), self.layout.join(" ")),
            ("recordsize".into(), Bytes(self.record).to_string()),
        ]
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        kernel_threads::by_name(&["z_", "txg_", "dp_", "loop"])
    }
    fn leave(&mut self) -> Result<(), LabError> {
        if self.keeper.is_none() {
            // There never was a pool, or it is gone, and perhaps its directory with it.
            let _ = std::fs::remove_dir(&self.dir);
            return Ok(());
        }
        let mut last = Ok(());
        for _ in 0..20 {
            last = outside::run(outside::command("zpool").args(["destroy", "-f", &self.name]));
            match &last {
                Err(e) if !e.contains("no such pool") => {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
                _ => {
                    last = Ok(());
                    break;
                }
            }
        }
        last.map_err(|e| {
            LabError::Failed(format!(
                "the pool {} could not be destroyed ({e}): zpool destroy {}",
                self.name, self.name
            ))
        })?;
        // A destroyed pool's labels stay: members are told that they belong to nothing any more.
        for member in self.layout.iter().filter(|w| w.starts_with('/')) {
            let _ = outside::run(outside::command("zpool").args(["labelclear", "-f", member]));
        }
        self.keeper = None;
        self.leave()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(e) = self.leave() {
            eprintln!("fathom: {e}");
            Keeper::try_again(self.keeper.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_make_up_pools_as_zpool_wants_them_named() {
        let of = |level: u32, n: usize| {
            let members = ["/a", "/b", "/c", "/d"];
            layout(Level::from_number(level).unwrap(), &members[..n]).join(" ")
        };
        assert_eq!(of(0, 2), "/a /b");
        assert_eq!(of(1, 3), "mirror /a /b /c");
        assert_eq!(of(5, 3), "raidz /a /b /c");
        assert_eq!(of(6, 4), "raidz2 /a /b /c /d");
        assert_eq!(of(10, 4), "mirror /a /b mirror /c /d");
    }

    #[test]
    fn where_there_is_no_zfs_it_is_said_how_to_have_it() {
        match available() {
            Ok(()) => println!("SKIP where_there_is_no_zfs_it_is_said: this machine has it"),
            Err(e) => {
                let said = e.to_string();
                assert!(e.is_refusal(), "{said}");
                assert!(
                    said.contains("apt-get install zfsutils-linux")
                        || said.contains("modprobe zfs"),
                    "{said}"
                );
            }
        }
    }
}
