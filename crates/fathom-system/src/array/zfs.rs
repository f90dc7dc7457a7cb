//! Arrays of ZFS, made by zpool and mounted in a directory of their own, where this machine has ZFS: as a module of the
//! kernel, or as the daemon of zfs-fuse.
//!
//! RAID 5 and 6 are raidz and raidz2, RAID 10 is a stripe of mirrors. Only metadata are kept in ZFS' own cache, so that
//! reads come from the members; nothing is compressed. Properties that a version does not know are left out, and said. A
//! cleanup destroys the pool where fathom is killed.

use std::path::Path;

use fathom_io::Target;
use fathom_sim::raid::Level;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::labels::{PREFIX, TAG};
use super::members::{self, Members, Part};
use super::{Array, ArrayMaker, Shape};
use crate::SystemError;
use crate::cleanup::Undo;
use crate::erase;
use crate::filesystem::Mount;
use crate::kernel_threads;
use crate::packages;
use crate::programs::{self, command, output};

/// zpool refuses smaller devices (SPA_MINDEVSIZE), and leaves little of those that are not much larger.
const MEMBER_MIN: Bytes = Bytes::mib(128);
/// Of what the pool could hold, so much is used: it needs room to write elsewhere.
const USED: f64 = 0.5;
/// What its blocks may be (recordsize), and what the largest are that every version has.
const RECORD: std::ops::RangeInclusive<u64> = 512..=1 << 20;
const RECORD_EVERYWHERE: u64 = 128 << 10;
/// A property that the file system of every pool has, so that another run knows whose it was.
const MARK: &str = "fathom:made";

pub(crate) struct ZfsArrays {
    members: Members,
}

/// Whether ZFS answers here: its module, which is asked for, or a daemon.
///
/// # Errors
/// What is missing, and what to do.
pub(crate) fn available() -> Result<(), SystemError> {
    if programs::find("zpool").is_none() || programs::find("zfs").is_none() {
        return Err(SystemError::Missing {
            what: "ZFS' tools are not installed".into(),
            remedy: packages::install("zfs-fuse")
                + " (a daemon), or zfsutils-linux zfs-dkms (a kernel module; Debian: from contrib)",
        });
    }
    if names().is_err() {
        programs::load_module("zfs");
    }
    names().map(|_| ()).map_err(|said| SystemError::Missing {
        what: format!("ZFS does not answer zpool list ({said})"),
        remedy: "load its module (modprobe zfs), or start its daemon (zfs-fuse)".into(),
    })
}

/// Names of all pools. A daemon that hangs keeps nobody waiting for longer than this.
fn names() -> Result<String, String> {
    const ANSWER: Nanos = Nanos::from_secs(10);
    programs::output_within(command("zpool").args(["list", "-H", "-o", "name"]), ANSWER)
}

/// Pools that there are and that fathom made, by its property; none where ZFS does not answer.
pub(crate) fn pools() -> Vec<String> {
    if programs::find("zpool").is_none() {
        return Vec::new();
    }
    let names = names().unwrap_or_default();
    let of_fathom = |n: &&str| n.starts_with(PREFIX) && property(n, MARK).is_ok_and(|v| v == TAG);
    names.lines().filter(of_fathom).map(str::to_owned).collect()
}

fn property(name: &str, property: &str) -> Result<String, String> {
    let said = output(command("zfs").args(["get", "-H", "-o", "value", property, name]))?;
    Ok(said.trim().to_owned())
}

/// Destroys a pool; one that there is not is destroyed already.
///
/// # Errors
/// What zpool said.
pub(crate) fn destroy(name: &str) -> Result<(), String> {
    match programs::run(command("zpool").args(["destroy", "-f", name])) {
        Err(e) if !e.contains("no such pool") => Err(e),
        _ => Ok(()),
    }
}

/// Which ZFS it is: the kernel's, or a daemon's, which says the version of its pools only.
fn version() -> String {
    let first = |of: &[&str]| {
        let said = output(command("zpool").args(of)).ok()?;
        let line = said.lines().map(str::trim).find(|l| !l.is_empty())?;
        Some(
            line.trim_start_matches("This system is currently running ")
                .trim_end_matches('.')
                .to_owned(),
        )
    };
    let version = first(&["version"]).or_else(|| first(&["upgrade", "-v"]));
    let version = version.unwrap_or_else(|| "of a version that it does not say".into());
    if Path::new("/sys/module/zfs").exists() {
        version
    } else {
        format!("zfs-fuse, {version}")
    }
}

impl ZfsArrays {
    /// Over members that the safety rules allow.
    ///
    /// # Errors
    /// Where the members are too small for it.
    pub(crate) fn new(members: Members) -> Result<Self, SystemError> {
        members.at_least(MEMBER_MIN, "ZFS")?;
        Ok(Self { members })
    }
}

impl ArrayMaker for ZfsArrays {
    fn shared_disk(&self) -> Option<&str> {
        self.members.shared()
    }

    fn about(&self) -> String {
        format!(
            "ZFS ({}) over {}; RAID 5 and 6 are raidz and raidz2; only metadata are cached, nothing is compressed",
            version(),
            self.members.about()
        )
    }
    fn cannot(&self, shape: &Shape) -> Option<String> {
        self.members.lack(shape)
    }
    /// A pool on one member: the same code, without an array.
    fn member(&mut self) -> Result<Box<dyn Array>, SystemError> {
        let shape = Shape {
            level: Level::Raid0,
            members: 1,
            chunk: Bytes::kib(512),
        };
        Ok(Box::new(Pool::make(self, &shape)?))
    }
    fn make(&mut self, shape: &Shape) -> Result<Box<dyn Array>, SystemError> {
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
    members: Vec<Part>,
    layout: Vec<String>,
    /// Properties of its file system that were set, with their values, and those that this version does not know.
    set: Vec<(String, String)>,
    unknown: Vec<String>,
    mount: Mount,
    /// Whether there may be a pool, and labels of it on members.
    made: bool,
    /// Bytes of the scratch file that jobs run on.
    size: u64,
}

impl Pool {
    fn make(backend: &ZfsArrays, shape: &Shape) -> Result<Self, SystemError> {
        let failed = |what: &str, why: String| {
            SystemError::Failed(format!("ZFS did not {what} for {}: {why}", shape.title()))
        };
        let members = backend.members.given(shape.members)?;
        let nodes: Vec<&str> = members.iter().filter_map(|p| p.path.to_str()).collect();
        let name = format!("{PREFIX}{}", std::process::id());
        if programs::run(command("zpool").args(["list", &name])).is_ok() {
            return Err(SystemError::Refused(format!(
                "a pool called {name} is there already, which fathom did not make: zpool export {name}, or run again"
            )));
        }
        // It does not claim them itself everywhere: nobody else may have one.
        for part in &members {
            let claimed = erase::claim(&part.path);
            claimed.map_err(|e| failed(&format!("get {}", part.path.display()), e.to_string()))?;
        }
        let program = programs::find("zpool").unwrap_or_default();
        let destroy = [&program.display().to_string(), "destroy", "-f", &name];
        let stay = members.iter().filter(|p| p.stays);
        let stay: Vec<&Path> = stay.map(|p| p.path.as_path()).collect();
        let mount = Mount::prepare_after(&[Undo::run(&destroy)], &stay)
            .map_err(|e| failed("get a directory", e.to_string()))?;
        // From here on dropping it takes apart what there is.
        let mut pool = Self {
            layout: layout(shape.level, &nodes),
            name,
            set: Vec::new(),
            unknown: Vec::new(),
            mount,
            made: true,
            size: 0,
            members,
        };
        let mut create = command("zpool");
        create.args(["create", "-f", "-o", "cachefile=none"]);
        create.args(["-O", &format!("{MARK}={TAG}"), "-m"]);
        create.arg(pool.mount.dir()).arg(&pool.name);
        programs::run(create.args(&pool.layout)).map_err(|e| failed("make a pool", e))?;
        let record = shape.chunk.0.clamp(*RECORD.start(), *RECORD.end());
        pool.set("compression", &["off"]);
        pool.set("atime", &["off"]);
        pool.set("primarycache", &["metadata"]);
        let records = [record, record.min(RECORD_EVERYWHERE)].map(|r| r.to_string());
        pool.set("recordsize", &records.each_ref().map(String::as_str));
        let data = f64::from(shape.level.data_members(shape.members));
        let size = (backend.members.size() as f64 * data * USED) as u64 >> 20 << 20;
        pool.size = size;
        Ok(pool)
    }

    /// Sets the first of these values that this version takes.
    fn set(&mut self, property: &str, values: &[&str]) {
        let taken = values.iter().find(|value| {
            let word = format!("{property}={value}");
            programs::run(command("zfs").args(["set", &word, &self.name])).is_ok()
        });
        match taken {
            Some(value) => self.set.push((property.to_owned(), (*value).to_owned())),
            None => self.unknown.push(property.to_owned()),
        }
    }
}

impl Array for Pool {
    fn open(&self) -> Result<Target, SystemError> {
        members::open(self.mount.dir(), None, Some(Bytes(self.size)))
    }
    fn directory(&self) -> Option<&Path> {
        Some(self.mount.dir())
    }
    fn settings(&self) -> Vec<(String, String)> {
        let mut all = vec![("layout".to_owned(), self.layout.join(" "))];
        all.extend(self.set.iter().cloned());
        if !self.unknown.is_empty() {
            all.push(("not known to this ZFS".into(), self.unknown.join(", ")));
        }
        all
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        let mut all = kernel_threads::by_name(&["z_", "txg_", "dp_", "loop"]);
        all.extend(kernel_threads::of_program("zfs-fuse"));
        all
    }
    fn close(mut self: Box<Self>) -> Result<(), SystemError> {
        self.leave()
    }
}

impl Pool {
    /// Takes it apart; doing it twice does nothing.
    fn leave(&mut self) -> Result<(), SystemError> {
        if self.made {
            crate::retry::patiently(2, |_| true, || destroy(&self.name)).map_err(|e| {
                SystemError::Failed(format!(
                    "the pool {0} could not be destroyed ({e}): zpool destroy {0}",
                    self.name
                ))
            })?;
            // A destroyed pool's labels stay: members are told that they belong to nothing any more.
            members::erase_all(&self.members)?;
            self.made = false;
        }
        // Only now: until then somebody watched over it.
        self.mount.leave()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(e) = self.leave() {
            say!("fathom: {e}");
            self.mount.give_up();
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
                    said.contains("apt-get install zfs-fuse") || said.contains("modprobe zfs"),
                    "{said}"
                );
            }
        }
    }
}
