//! One file per command.

mod ab;
mod app;
mod burst;
mod cache;
mod child;
mod clean;
mod compare;
mod compress;
mod condition;
mod curve;
mod db;
mod devices;
mod finish;
pub(crate) mod fio;
mod formulas;
mod guest_agent;
mod guests;
mod kv;
mod measure;
mod mix;
mod open;
mod pages;
mod paths;
mod pictures;
mod pts;
mod query;
mod raid;
mod raid_lab;
mod replay;
mod report;
mod reproduce;
mod reproduce_labs;
mod run;
mod saved;
mod sim;
mod stack;
mod stack_sides;
mod survey;
mod tune;
mod vm;
mod vm_lab;
mod watch;
mod wear;

use crate::cli::Command;
use crate::exit::Outcome;

/// Runs a command.
pub(crate) fn dispatch(command: Command) -> Outcome {
    match command {
        Command::Survey(args) => survey::survey(&args),
        Command::Curve(args) => curve::curve(&args),
        Command::Mix(args) => mix::mix(&args),
        Command::Pages(args) => pages::pages(&args),
        Command::Cache(args) => cache::cache(&args),
        Command::Paths(args) => paths::paths(&args),
        Command::Burst(args) => burst::burst(&args),
        Command::Kv(args) => kv::kv(&args),
        Command::Db(command) => db::db(&command),
        Command::App(command) => app::app(&command),
        Command::SwapLoad(args) => app::swap_load(&args),
        Command::Raid(args) => raid::raid(&args),
        Command::Vm(args) => vm::vm(&args),
        Command::Compress(args) => compress::compress(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Condition(args) => condition::condition(&args),
        Command::Pts(args) => pts::pts(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Ab(args) => ab::ab(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::KeepSettings(args) => tune::keep_settings(&args),
        Command::Fio(args) => fio::fio(&args.args),
        Command::Stack(args) => stack::stack(&args),
        Command::Devices(args) => devices::devices(&args),
        Command::Report(args) => report::report(&args),
        Command::Query(args) => query::query(&args),
        Command::Reproduce(args) => reproduce::reproduce(&args),
        Command::Sim(command) => sim::sim(&command),
        Command::Clean(args) => clean::clean(&args),
        Command::GuestAgent => guest_agent::guest_agent(),
    }
}
