//! `fathom guest-agent`: what labs talk to, in a guest or at the far end of ssh.

use fathom_labs::guest::agent;

use crate::cli::GuestAgentArgs;
use crate::exit::{DONE, Outcome, failed};
use crate::signals;

/// As the first process of a guest it prepares the machine, and never returns.
pub(crate) fn guest_agent(_: &GuestAgentArgs) -> Outcome {
    if std::process::id() == 1 && std::path::Path::new("/modules").is_dir() {
        agent::init();
    }
    let control = signals::control().map_err(failed)?;
    fathom_system::fleet::carry::forget();
    agent::serve(std::io::stdin(), std::io::stdout(), control).map_err(failed)?;
    Ok(DONE)
}
