//! One file per command.

mod clean;
mod devices;
mod finish;
pub(crate) mod fio;
mod report;
mod run;
mod survey;

use crate::cli::Command;
use crate::exit::Outcome;

/// Runs a command.
pub(crate) fn dispatch(command: Command) -> Outcome {
    match command {
        Command::Survey(args) => survey::survey(&args),
        Command::Run(args) => run::run(&args),
        Command::Fio(args) => fio::fio(&args.args),
        Command::Devices(args) => devices::devices(&args),
        Command::Report(args) => report::report(&args),
        Command::Clean(args) => clean::clean(&args),
    }
}
