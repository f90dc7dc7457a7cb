//! The command line: parses, shows progress, maps results to exit codes. It issues no I/O itself.

mod cli;
mod commands;
mod exit;
mod job_args;
mod progress;
mod screen;
mod signals;
mod usage;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // The earlier the clock's first reading, the better its rate is known later.
    fathom_io::clock::prepare();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let first = std::env::args_os().nth(1);
            match usage::sentence(&e, first.as_deref().and_then(|a| a.to_str())) {
                Some(sentence) => eprintln!("fathom: {sentence}"),
                None => drop(e.print()),
            }
            return ExitCode::from(if e.use_stderr() {
                exit::REFUSED
            } else {
                exit::DONE
            });
        }
    };
    match commands::dispatch(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("fathom: {}", e.sentence());
            ExitCode::from(e.code)
        }
    }
}
