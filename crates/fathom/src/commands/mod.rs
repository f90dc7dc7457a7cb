//! One file per command.

mod ab;
mod burst;
mod clean;
mod compare;
mod curve;
mod devices;
mod finish;
mod measure;
mod mix;
mod open;
mod report;
mod run;
mod survey;

use crate::cli::Command;
use crate::exit::Outcome;

/// Runs a command.
pub(crate) fn dispatch(command: Command) -> Outcome {
    match command {
        Command::Survey(args) => survey::survey(&args),
        Command::Curve(args) => curve::curve(&args),
        Command::Mix(args) => mix::mix(&args),
        Command::Burst(args) => burst::burst(&args),
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Ab(args) => ab::ab(&args),
        Command::Devices(args) => devices::devices(&args),
        Command::Report(args) => report::report(&args),
        Command::Clean(args) => clean::clean(&args),
    }
}
