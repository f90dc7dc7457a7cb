//! `fathom clean`: scratch files, directories of labs, arrays, mounts, swap and settings that killed runs left behind.
//!
//! What was removed is looked for again at the end: what is said is what is there.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use fathom_files::partial;
use fathom_system::lab_dir;
use fathom_system::leftovers::{self, Leftover};
use fathom_telemetry::Bytes;

use crate::cli::CleanArgs;
use crate::exit::{DONE, Outcome, refused};
use crate::screen;

/// What stays is said at the end: it keeps nothing else from being cleaned.
pub(crate) fn clean(args: &CleanArgs) -> Outcome {
    let mut cleaning = Cleaning {
        dry: args.dry_run,
        found: false,
        stays: Vec::new(),
        unseen: Vec::new(),
    };
    let search = leftovers::find();
    cleaning.unseen.extend(search.unseen);
    // Settings come after programs, which may still change them, and before loop devices and mounts, which take theirs
    // along. All of it comes before files, which it holds in use.
    let (programs, rest): (Vec<Leftover>, Vec<Leftover>) = search
        .found
        .into_iter()
        .partition(|r| matches!(r, Leftover::Process(_)));
    cleaning.remains(&programs);
    cleaning.settings();
    cleaning.remains(&rest);
    cleaning.files(&args.dir);
    // The directory of a swap file is not used by anything else.
    let beside = rest.iter().filter_map(|r| match r {
        Leftover::Swap(path) => path.parent().map(Path::to_owned),
        _ => None,
    });
    cleaning.places(&args.dir, beside.collect());
    if !cleaning.dry && cleaning.found {
        cleaning.look_again(&args.dir);
    }
    cleaning.end(&args.dir)
}

struct Cleaning {
    /// Nothing is removed, only said.
    dry: bool,
    found: bool,
    /// What could not be removed, each with what to do.
    stays: Vec<String>,
    /// What could not be looked at.
    unseen: Vec<String>,
}

impl Cleaning {
    fn remains(&mut self, all: &[Leftover]) {
        for remain in all {
            self.remove(remain, || remain.remove());
        }
    }

    fn settings(&mut self) {
        let left = fathom_stack::settings::leftovers();
        self.found |= !left.is_empty();
        if self.dry {
            for setting in &left {
                screen::print(&format!("would put back {setting}\n"));
            }
            return;
        }
        for said in fathom_stack::settings::restore_leftovers() {
            screen::print(&format!("{said}\n"));
        }
        for setting in fathom_stack::settings::leftovers() {
            self.stays.push(format!(
                "{setting}: this user may not put it back; run fathom clean as root"
            ));
        }
    }

    /// Scratch files, and outputs that were being written.
    fn files(&mut self, dir: &Path) {
        match fathom_host::leftovers(dir) {
            Ok(all) => {
                for leftover in all {
                    let what = format!(
                        "{} ({})",
                        leftover.path.display(),
                        Bytes(leftover.size_bytes)
                    );
                    self.remove(&what, || fathom_host::remove_leftover(&leftover));
                }
            }
            Err(e) => self.stays.push(format!(
                "{}: cannot be searched: {e}; name a directory",
                dir.display()
            )),
        }
        for partial in partial::abandoned(dir).unwrap_or_default() {
            self.remove(&partial.display(), || partial::remove_abandoned(&partial));
        }
    }

    fn places(&mut self, dir: &Path, beside: Vec<PathBuf>) {
        let found = lab_dir::search(dir).unwrap_or_default();
        let here: Vec<PathBuf> = found.abandoned;
        let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
        let beside = beside
            .into_iter()
            .filter(|b| !here.iter().any(|h| same(h, b)));
        let beside: Vec<PathBuf> = beside.collect();
        for path in here.iter().chain(&beside) {
            self.remove(&path.display(), || lab_dir::remove_abandoned(path));
        }
        for (path, why) in found.alike {
            screen::print(&format!(
                "left alone: {}: {why}; if it is not needed: rm -r {0}\n",
                path.display()
            ));
        }
        let unknown = found.unknown.into_iter();
        self.unseen
            .extend(unknown.map(|(path, why)| format!("{} ({why})", path.display())));
    }

    fn remove<E: Display>(&mut self, what: &impl Display, remove: impl FnOnce() -> Result<(), E>) {
        self.found = true;
        if self.dry {
            screen::print(&format!("would remove {what}\n"));
            return;
        }
        match remove() {
            Ok(()) => screen::print(&format!("removed {what}\n")),
            Err(e) => self.stays.push(e.to_string()),
        }
    }

    /// What is there although nothing was said against its removal.
    fn look_again(&mut self, dir: &Path) {
        if !self.stays.is_empty() {
            return;
        }
        let remains = leftovers::find().found.into_iter().map(|r| r.to_string());
        let files = fathom_host::leftovers(dir).unwrap_or_default();
        let files = files.into_iter().map(|l| l.path.display().to_string());
        let places = lab_dir::search(dir).unwrap_or_default().abandoned;
        let places = places.into_iter().map(|p| p.display().to_string());
        let all = remains.chain(files).chain(places);
        self.stays
            .extend(all.map(|what| format!("{what} is there still: run fathom clean again")));
    }

    fn end(self, dir: &Path) -> Outcome {
        for what in &self.unseen {
            screen::print(&format!("not looked at: {what}\n"));
        }
        if !self.stays.is_empty() {
            return Err(refused(anyhow::anyhow!(self.stays.join("; "))));
        }
        if !self.found {
            let dir = dir.display();
            screen::print(&if self.unseen.is_empty() {
                format!("nothing left behind in {dir}\n")
            } else {
                format!("nothing found in {dir} by what was looked at\n")
            });
        }
        Ok(DONE)
    }
}
