//! `fathom clean`: scratch files that killed runs left behind.

use fathom_telemetry::Bytes;

use crate::cli::CleanArgs;
use crate::exit::{DONE, Outcome, refused};
use crate::screen;

/// See the module.
pub(crate) fn clean(args: &CleanArgs) -> Outcome {
    let found = fathom_host::leftovers(&args.dir).map_err(|e| {
        refused(anyhow::anyhow!(
            "{}: cannot be searched: {e}; name a directory",
            args.dir.display()
        ))
    })?;
    if found.is_empty() {
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
    Ok(DONE)
}
