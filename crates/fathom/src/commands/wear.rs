//! What `condition` and `pts` share: they write much, so time, bytes and share of the rated endurance are said
//! first, and above a limit asked for.

use std::io::{BufRead, IsTerminal};

use fathom_telemetry::Bytes;
use fathom_telemetry::say;

use crate::cli::WearArgs;
use crate::exit::{Failure, refused};

/// The share of the rated endurance in words.
pub(crate) fn endurance(bytes: Bytes, args: &WearArgs) -> String {
    match args.rated_tbw {
        Some(rated) if rated.0 > 0 => format!(
            "{:.2} % of the rated endurance of {rated}",
            100.0 * bytes.0 as f64 / rated.0 as f64
        ),
        _ => "share of the rated endurance unknown: give --rated-tbw".into(),
    }
}

/// Above the limit someone has to agree: with `--yes`, or at the terminal. A model wears nothing out.
pub(crate) fn agree(bytes: Bytes, simulated: bool, args: &WearArgs) -> Result<(), Failure> {
    if simulated || args.yes || bytes.0 <= args.ask_above.0 {
        return Ok(());
    }
    if std::io::stdin().is_terminal() {
        say::text(&format!("Write about {bytes}? [y/N] "));
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
    }
    Err(refused(anyhow::anyhow!(
        "about {bytes} would be written, more than {}: add --yes to agree, or raise --ask-above",
        args.ask_above
    )))
}
