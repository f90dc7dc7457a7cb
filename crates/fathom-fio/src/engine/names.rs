//! `ioengine=filecreate`, `filestat`, `filedelete` and the same of directories: what names cost, without data.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fathom_files::{create, mark, open};
use fathom_io::load::{Performer, PilotIo};
use rustix::fs::{AtFlags, CWD, Mode, StatxFlags};
use rustix::io::Errno;

use super::space::whole;
use crate::section::Section;

/// What is done with each name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Create,
    Look,
    Remove,
}

/// What an engine of this room does, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    does: Does,
    directories: bool,
}

impl Kind {
    pub(super) fn named(engine: &str) -> Option<Self> {
        let (directories, word) = match engine.strip_prefix("dir") {
            Some(word) => (true, word),
            None => (false, engine.strip_prefix("file")?),
        };
        let does = match word {
            "create" => Does::Create,
            "stat" => Does::Look,
            "delete" => Does::Remove,
            _ => return None,
        };
        Some(Self { does, directories })
    }
}

/// How names are looked up (`stat_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Stat,
    Lstat,
    Statx,
}

/// The names of a job, and what is done with them.
#[derive(Debug)]
pub struct Names {
    kind: Kind,
    look: Look,
    names: Vec<PathBuf>,
    /// Bytes of one I/O, which is one name.
    block: u64,
    /// Bytes of a file that is made before it is looked up or removed.
    size: u64,
}

impl Names {
    pub(super) fn of(s: &Section, kind: Kind, names: Vec<PathBuf>) -> Self {
        let block = s.per_direction("bs").map_or(4096, |b| b[0]).max(1);
        Self {
            kind,
            look: match s.get("stat_type") {
                Some("lstat") => Look::Lstat,
                Some("statx") => Look::Statx,
                _ => Look::Stat,
            },
            names,
            block,
            size: s.number("filesize").unwrap_or(block),
        }
    }

    /// Bytes of all I/Os, which end the job.
    pub(crate) fn bytes(&self) -> u64 {
        self.names.len() as u64 * self.block
    }

    /// Makes what is to be looked up or removed, before anything is measured. What it made is returned, also with an
    /// error. `allowed` says which of somebody else's may be removed.
    pub fn lay_out(&self, allowed: impl Fn(&Path) -> bool) -> (Vec<PathBuf>, Result<(), String>) {
        let mut made = Vec::new();
        if self.kind.does == Does::Create {
            // What is new is known by what is missing now.
            let missing = self.names.iter().filter(|n| n.symlink_metadata().is_err());
            return (missing.cloned().collect(), Ok(()));
        }
        for name in &self.names {
            match name.symlink_metadata() {
                Ok(_) if self.kind.does == Does::Look => {}
                Ok(_) if is_made(name) || allowed(name) => {}
                Ok(_) => {
                    let whose = format!(
                        "{} is not fathom's to remove: choose another directory or another name",
                        name.display()
                    );
                    return (made, Err(whose));
                }
                Err(_) => {
                    if let Err(e) = self.make(name) {
                        return (
                            made,
                            Err(format!("{} could not be made: {e}", name.display())),
                        );
                    }
                    made.push(name.clone());
                }
            }
        }
        (made, Ok(()))
    }

    fn make(&self, name: &Path) -> io::Result<()> {
        if self.kind.directories {
            create::private_dir(name)?;
        } else {
            create::file(name)?.set_len(self.size)?;
        }
        keep(name)
    }

    /// Marks what the job made as fathom's.
    pub fn keep(made: &[PathBuf]) {
        for name in made {
            // What was removed again meanwhile needs no mark.
            let _ = keep(name);
        }
    }

    /// Removes what this run made.
    pub fn remove(made: &[PathBuf]) {
        for name in made {
            let _ = match name.symlink_metadata() {
                Ok(m) if m.is_dir() => std::fs::remove_dir(name),
                Ok(_) => std::fs::remove_file(name),
                Err(_) => Ok(()),
            };
        }
    }

    fn perform(&self, name: &Path) -> rustix::io::Result<()> {
        let errno = |e: io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
        match (self.kind.does, self.kind.directories) {
            (Does::Create, false) => create::or_open(name).map(drop).map_err(errno),
            (Does::Create, true) => create::private_dir(name).map_err(errno),
            (Does::Remove, false) => rustix::fs::unlink(name),
            (Does::Remove, true) => rustix::fs::rmdir(name),
            (Does::Look, _) => match self.look {
                Look::Stat => rustix::fs::stat(name).map(drop),
                Look::Lstat => rustix::fs::lstat(name).map(drop),
                Look::Statx => {
                    let whole = std::fs::canonicalize(name).map_err(errno)?;
                    rustix::fs::statx(CWD, whole, AtFlags::empty(), StatxFlags::ALL).map(drop)
                }
            },
        }
    }
}

fn is_made(name: &Path) -> bool {
    let found = open::for_reading(name, 0).and_then(|f| mark::provenance(&f));
    matches!(found, Ok(mark::Provenance::Fathom(_)))
}

fn keep(name: &Path) -> io::Result<()> {
    let meta = name.symlink_metadata()?;
    if meta.is_dir() {
        // fio's mode for directories is none at all; ours can be opened.
        let dir = open::for_reading(name, 0)?;
        rustix::fs::fchmod(&dir, Mode::RWXU)?;
        mark::set(&dir)?;
    } else {
        mark::set(&open::for_writing(name, 0)?)?;
    }
    Ok(())
}

/// One thread at them.
pub(super) struct Naming(pub(super) Arc<Names>);

impl Performer for Naming {
    fn carries_data(&self) -> bool {
        false
    }
    fn perform(&mut self, io: &PilotIo, _data: &mut [u8]) -> i64 {
        let names = &self.0;
        let at = (io.offset / names.block) as usize;
        let done = match names.names.get(at % names.names.len().max(1)) {
            Some(name) => names.perform(name),
            None => Err(Errno::NOENT),
        };
        super::result(done.map(|()| whole(io)))
    }
}
