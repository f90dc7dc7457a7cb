//! The command line: parses, shows progress, maps results to exit codes. It issues no I/O itself.

mod cli;
mod commands;
mod exit;
mod job_args;
mod progress;
mod screen;
mod signals;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // The earlier the clock's first reading, the better its rate is known later.
    fathom_io::clock::prepare();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
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
            eprintln!("fathom: {:#}", e.error);
            ExitCode::from(e.code)
        }
    }
}
