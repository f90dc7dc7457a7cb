//! A memory control group of fathom's own: so much memory, and so much page cache, and no more.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use fathom_files::{create, kernel};
use fathom_telemetry::say;

use crate::LabError;
use crate::keeper::{Keeper, Undo};
use crate::outside;

/// A memory control group of the lab's own.
pub(crate) struct Group {
    dir: PathBuf,
    limit: &'static str,
    mount: PathBuf,
    /// Beside the group, so that it can remove it where this process is killed.
    keeper: Option<Keeper>,
}

impl Group {
    /// `name` tells what it is for.
    pub(crate) fn create(name: &str) -> Result<Self, LabError> {
        let missing = |what: String| LabError::Missing {
            what,
            remedy: "run as root on the machine itself, with the memory controller on".into(),
        };
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let mount = |kind: &str, option: &str| {
            mounts.lines().find_map(|l| {
                let f: Vec<&str> = l.split(' ').collect();
                let fits = f.len() > 3
                    && f[2] == kind
                    && (option.is_empty() || f[3].split(',').any(|o| o == option));
                fits.then(|| PathBuf::from(f[1]))
            })
        };
        let has_memory = |m: &PathBuf| {
            fs::read_to_string(m.join("cgroup.subtree_control"))
                .is_ok_and(|c| c.split_whitespace().any(|w| w == "memory"))
        };
        let (base, limit) = if let Some(m) = mount("cgroup2", "").filter(has_memory) {
            (m, "memory.max")
        } else if let Some(m) = mount("cgroup", "memory") {
            (m, "memory.limit_in_bytes")
        } else {
            return Err(missing("there is no memory controller".into()));
        };
        let dir = base.join(format!("fathom-{name}-{}", std::process::id()));
        let failed = |e: io::Error| missing(format!("{}: cannot be made: {e}", dir.display()));
        let keeper = Keeper::watch(&[Undo::group(&dir)]).map_err(failed)?;
        create::dir_for(&dir, 0o755).map_err(failed)?;
        Ok(Self {
            limit,
            mount: base,
            keeper: Some(keeper),
            dir,
        })
    }

    /// Its processes, and the page cache that they fill, get so much.
    pub(crate) fn limit(&self, bytes: u64) -> io::Result<()> {
        kernel::write(&self.dir.join(self.limit), &bytes.to_string())
    }

    /// Where a process is written that shall belong to it.
    pub(crate) fn members(&self) -> io::Result<File> {
        kernel::open(&self.dir.join("cgroup.procs"))
    }

    /// Moves this process into the group until what is returned is dropped. Memory that it has keeps its place: what is
    /// new, and what it reads into the page cache, belongs to the group.
    ///
    /// # Errors
    /// Where the process may not be moved; it stays where it was then.
    pub(crate) fn enter(&self) -> io::Result<Inside> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let controller = if self.limit == "memory.max" {
            ""
        } else {
            "memory"
        };
        let path = own
            .lines()
            .filter_map(|l| {
                let mut fields = l.splitn(3, ':').skip(1);
                Some((fields.next()?, fields.next()?))
            })
            .find(|(c, _)| c.split(',').any(|c| c == controller))
            .map(|(_, path)| path.trim_start_matches('/').to_owned())
            .ok_or_else(|| io::Error::other("/proc/self/cgroup does not say where it is"))?;
        let home = self.mount.join(path).join("cgroup.procs");
        let home = kernel::open(&home)?;
        self.members()?
            .write_all(std::process::id().to_string().as_bytes())?;
        Ok(Inside { home })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may be on its way out.
        if outside::patiently(1, |_| true, || fs::remove_dir(&self.dir)).is_err() {
            Keeper::try_again(self.keeper.take());
        }
    }
}

/// This process is in a [`Group`].
pub(crate) struct Inside {
    home: File,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Err(e) = self
            .home
            .write_all(std::process::id().to_string().as_bytes())
        {
            say!("fathom: this process keeps its memory limit: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_comes_back_to_where_it_was() {
        let before = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = match Group::create("test") {
            Ok(g) => g,
            Err(e) => {
                println!("SKIP this_process_comes_back: {e}");
                return;
            }
        };
        let dir = group.dir.clone();
        // Nothing in the test needs a gigabyte.
        group.limit(1 << 30).unwrap();
        match group.enter() {
            Ok(inside) => {
                let within = fs::read_to_string("/proc/self/cgroup").unwrap();
                assert!(within.contains("fathom-test-"), "{within}");
                drop(inside);
            }
            Err(e) => println!("SKIP this_process_comes_back: it cannot be moved: {e}"),
        }
        assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), before);
        drop(group);
        assert!(!dir.exists());
    }
}
