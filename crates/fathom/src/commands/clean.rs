//! `fathom clean`: scratch files, directories of labs, arrays, mounts and settings that killed runs left behind.

use fathom_telemetry::Bytes;

use crate::cli::CleanArgs;
use crate::exit::{DONE, Outcome, refused};
use crate::screen;

/// See the module.
pub(crate) fn clean(args: &CleanArgs) -> Outcome {
    let settings = fathom_stack::settings::leftovers();
    if args.dry_run {
        for setting in &settings {
            screen::print(&format!("would put back {setting}\n"));
        }
    } else {
        for said in fathom_stack::settings::restore_leftovers() {
            screen::print(&format!("{said}\n"));
        }
        if let Some(left) = fathom_stack::settings::leftovers().first() {
            return Err(refused(anyhow::anyhow!(
                "{left}: this user may not put it back; run fathom clean as root"
            )));
        }
    }
    // Their loop devices hold files below them in use.
    let remains = fathom_labs::remains::find();
    for remain in &remains {
        if args.dry_run {
            screen::print(&format!("would remove {remain}\n"));
        } else {
            remain.remove()?;
            screen::print(&format!("removed {remain}\n"));
        }
    }
    let found = fathom_host::leftovers(&args.dir).map_err(|e| {
        refused(anyhow::anyhow!(
            "{}: cannot be searched: {e}; name a directory",
            args.dir.display()
        ))
    })?;
    let places = fathom_labs::place::abandoned(&args.dir).unwrap_or_default();
    let nothing =
        found.is_empty() && places.is_empty() && remains.is_empty() && settings.is_empty();
    if nothing {
        screen::print(&format!("nothing left behind in {}\n", args.dir.display()));
    }
    for leftover in &found {
        let what = format!(
            "{} ({})",
            leftover.path.display(),
            Bytes(leftover.size_bytes)
        );
        if args.dry_run {
            screen::print(&format!("would remove {what}\n"));
        } else {
            fathom_host::remove_leftover(leftover).map_err(refused)?;
            screen::print(&format!("removed {what}\n"));
        }
    }
    for place in &places {
        if args.dry_run {
            screen::print(&format!("would remove {}\n", place.display()));
        } else {
            fathom_labs::place::remove_abandoned(place).map_err(refused)?;
            screen::print(&format!("removed {}\n", place.display()));
        }
    }
    Ok(DONE)
}
