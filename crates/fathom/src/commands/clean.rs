//! `fathom clean`: scratch files, directories of labs, arrays, mounts and settings that killed runs left behind.

use std::fmt::Display;

use fathom_telemetry::Bytes;

use crate::cli::CleanArgs;
use crate::exit::{DONE, Outcome, refused};
use crate::screen;

/// See the module. What stays is said at the end: it keeps nothing else from being cleaned.
pub(crate) fn clean(args: &CleanArgs) -> Outcome {
    let mut cleaning = Cleaning {
        dry: args.dry_run,
        found: false,
        stays: Vec::new(),
    };
    cleaning.settings();
    // Before files: loop devices of arrays and mounts hold them in use.
    for remain in fathom_labs::remains::find() {
        cleaning.remove(&remain, || remain.remove());
    }
    match fathom_host::leftovers(&args.dir) {
        Ok(all) => {
            for leftover in all {
                let what = format!(
                    "{} ({})",
                    leftover.path.display(),
                    Bytes(leftover.size_bytes)
                );
                cleaning.remove(&what, || fathom_host::remove_leftover(&leftover));
            }
        }
        Err(e) => cleaning.stays.push(format!(
            "{}: cannot be searched: {e}; name a directory",
            args.dir.display()
        )),
    }
    for place in fathom_labs::place::abandoned(&args.dir).unwrap_or_default() {
        cleaning.remove(&place.display(), || {
            fathom_labs::place::remove_abandoned(&place)
        });
    }
    if !cleaning.stays.is_empty() {
        return Err(refused(anyhow::anyhow!(cleaning.stays.join("; "))));
    }
    if !cleaning.found {
        screen::print(&format!("nothing left behind in {}\n", args.dir.display()));
    }
    Ok(DONE)
}

struct Cleaning {
    /// Nothing is removed, only said.
    dry: bool,
    found: bool,
    /// What could not be removed, each with what to do.
    stays: Vec<String>,
}

impl Cleaning {
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
}
