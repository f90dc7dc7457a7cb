//! The command line: parses, shows progress, maps results to exit codes. It issues no I/O itself.

mod cli;
mod commands;
mod config;
mod exit;
mod job_args;
mod known;
mod limits;
mod progress;
mod registry;
mod screen;
mod signals;
mod tty;
mod usage;
mod view;

use std::process::ExitCode;

use clap::FromArgMatches;
use fathom_telemetry::say;

fn main() -> ExitCode {
    // The earlier the clock's first reading, the better its rate is known later.
    fathom_io::clock::prepare();
    limits::prepare();
    registry::introduce();
    if let Some(args) = fio_arguments() {
        return end(commands::fio::fio(&args));
    }
    let typed: Vec<_> = std::env::args_os().collect();
    let mut root = registry::command_line(&typed);
    let added = match config::apply(&root, typed) {
        Ok(added) => added,
        Err(sentence) => return end(Err(exit::refused(anyhow::anyhow!(sentence)))),
    };
    let matches = root.try_get_matches_from_mut(config::line());
    let read = |m| registry::Cli::from_arg_matches(&m).map_err(|e| e.format(&mut root));
    let cli = match matches.and_then(read) {
        Ok(cli) => cli,
        Err(e) => {
            let first = std::env::args_os().nth(1);
            let first = first.as_deref().and_then(|a| a.to_str());
            match usage::sentence(&e, first.filter(|a| registry::has(a))) {
                Some(sentence) if !added.is_empty() => say!(
                    "fathom: {sentence} (by presets and fathom.toml: {})",
                    added.join(" ")
                ),
                Some(sentence) => say!("fathom: {sentence}"),
                None if e.use_stderr() => say::text(&e.render().to_string()),
                None => screen::help(&e.render()),
            }
            return end(Ok(if e.use_stderr() {
                exit::REFUSED
            } else {
                exit::DONE
            }));
        }
    };
    if cli.tui {
        view::want();
    }
    if cli.create {
        commands::open::create();
    }
    commands::context::remember(commands::context::Context {
        price: cli.price,
        cloud: cli.cloud,
    });
    end(cli.command.run())
}

/// Arguments of `fathom fio …`, or of a link named `fio`: fio's own rules read them, so nothing of
/// them may be taken for an option of fathom's.
fn fio_arguments() -> Option<Vec<String>> {
    let mut args = std::env::args_os();
    let program = args.next()?;
    let rest: Vec<String> = args.map(|a| a.to_string_lossy().into_owned()).collect();
    if std::path::Path::new(&program).file_name()? == "fio" {
        return Some(rest);
    }
    match rest.split_first() {
        Some((first, rest)) if first == "fio" => Some(rest.to_vec()),
        _ => None,
    }
}

/// Says what went wrong; the exit code.
fn end(outcome: exit::Outcome) -> ExitCode {
    view::leave();
    let mut code = match outcome {
        Ok(code) => code,
        Err(e) => {
            let sentence = e.sentence();
            say!("fathom: {sentence}{}", limits::remedy(&sentence));
            e.code
        }
    };
    if let Some(e) = screen::trouble() {
        say!("fathom: standard output could not be written: {e}; what was printed is not whole");
        if code == exit::DONE {
            code = exit::FAILED;
        }
    }
    ExitCode::from(code)
}
