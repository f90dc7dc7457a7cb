//! One file per command.

mod burst;
mod clean;
mod curve;
mod devices;
mod finish;
mod measure;
mod mix;
mod open;
mod report;
mod reproduce;
mod run;
mod sim;
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
        Command::Devices(args) => devices::devices(&args),
        Command::Report(args) => report::report(&args),
        Command::Reproduce(args) => reproduce::reproduce(&args),
        Command::Sim(command) => sim::sim(&command),
        Command::Clean(args) => clean::clean(&args),
    }
}
