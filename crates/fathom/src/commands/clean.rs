//! `fathom clean`: scratch files, directories of labs, arrays, mounts, swap and settings that killed runs left behind.
//!
//! What was removed is looked for again at the end: what is said is what is there.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use fathom_files::partial;
use fathom_system::lab_dir;
use fathom_system::leftovers::{self, Leftover};
use fathom_telemetry::Bytes;
use serde_json::json;

use crate::cli::CleanArgs;
use crate::exit::{DONE, Outcome, refused};
use crate::screen;

/// What stays is said at the end: it keeps nothing else from being cleaned.
pub(crate) fn clean(args: &CleanArgs) -> Outcome {
    let mut cleaning = Cleaning {
        dry: args.dry_run,
        json: args.json,
        ..Cleaning::default()
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
    cleaning.kept(&args.dir, args.kept);
    if !cleaning.dry && cleaning.found {
        cleaning.look_again(&args.dir);
    }
    cleaning.end(&args.dir)
}

#[derive(Default)]
struct Cleaning {
    /// Nothing is removed, only said.
    dry: bool,
    /// What was done is said at the end, as JSON.
    json: bool,
    /// What was done, by kind.
    done: BTreeMap<&'static str, Vec<String>>,
    found: bool,
    /// What could not be removed, each with what to do.
    stays: Vec<String>,
    /// What could not be looked at.
    unseen: Vec<String>,
}

impl Cleaning {
    /// One thing that was done, or found.
    fn note(&mut self, kind: &'static str, what: String) {
        if !self.json {
            screen::print(&format!("{kind} {what}\n"));
        }
        self.done.entry(kind).or_default().push(what);
    }

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
                self.note("would put back", setting.to_string());
            }
            return;
        }
        for said in fathom_stack::settings::restore_leftovers() {
            self.note("setting:", said);
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
            self.note(
                "left alone:",
                format!("{}: {why}; if it is not needed: rm -r {0}", path.display()),
            );
        }
        let unknown = found.unknown.into_iter();
        self.unseen
            .extend(unknown.map(|(path, why)| format!("{} ({why})", path.display())));
    }

    /// Targets that stayed because `--create` made them: removed only where that is asked for.
    fn kept(&mut self, dir: &Path, remove: bool) {
        for (path, bytes) in fathom_host::kept(dir).unwrap_or_default() {
            let what = format!("{} ({})", path.display(), Bytes(bytes));
            if remove {
                self.remove(&what, || {
                    let permit = fathom_host::open_file_for_write(&path)?;
                    permit.remove().map_err(anyhow::Error::from)
                });
            } else {
                let remedy = "made with --create, remove it with --kept";
                self.note("kept", format!("{what}: {remedy}"));
            }
        }
    }

    fn remove<E: Display>(&mut self, what: &impl Display, remove: impl FnOnce() -> Result<(), E>) {
        self.found = true;
        if self.dry {
            self.note("would remove", what.to_string());
            return;
        }
        match remove() {
            Ok(()) => self.note("removed", what.to_string()),
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

    fn end(mut self, dir: &Path) -> Outcome {
        for what in std::mem::take(&mut self.unseen) {
            self.note("not looked at:", what);
        }
        if self.json {
            let done: serde_json::Map<String, serde_json::Value> = self
                .done
                .iter()
                .map(|(kind, what)| (kind.trim_end_matches(':').replace(' ', "_"), json!(what)))
                .collect();
            screen::json(&json!({ "directory": dir, "done": done, "stays": self.stays }))?;
        }
        if !self.stays.is_empty() {
            return Err(refused(anyhow::anyhow!(self.stays.join("; "))));
        }
        if !self.found && !self.json {
            let dir = dir.display();
            screen::print(&if self.done.contains_key("not looked at:") {
                format!("nothing found in {dir} by what was looked at\n")
            } else {
                format!("nothing left behind in {dir}\n")
            });
        }
        Ok(DONE)
    }
}
