//! `fathom completions` and `fathom man`: made from the command line itself, so that they are never behind it.

use clap::Command;

use crate::cli::{CompletionsArgs, ManArgs};
use crate::exit::{DONE, Outcome, failed, refused};
use crate::known;
use crate::screen;

pub(crate) fn completions(args: &CompletionsArgs) -> Outcome {
    let mut out = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut known::command_line().unwrap_or_default(),
        "fathom",
        &mut out,
    );
    screen::print(&String::from_utf8(out).map_err(failed)?);
    Ok(DONE)
}

pub(crate) fn man(args: &ManArgs) -> Outcome {
    let mut root = known::command_line().unwrap_or_default();
    root.build();
    if args.list {
        let mut names = Vec::new();
        list(&root, &mut Vec::new(), &mut names);
        screen::print(&(names.join("\n") + "\n"));
        return Ok(DONE);
    }
    let mut command = &root;
    for word in &args.command {
        let found = command.get_subcommands().find(|c| c.get_name() == word);
        command = found.filter(|c| !c.is_hide_set()).ok_or_else(|| {
            refused(anyhow::anyhow!(
                "{}: no such command: fathom man --list names them",
                args.command.join(" ")
            ))
        })?;
    }
    let name = ["fathom"]
        .into_iter()
        .chain(args.command.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join("-");
    let page = clap_mangen::Man::new(command.clone()).title(name);
    let mut out = Vec::new();
    page.render(&mut out).map_err(failed)?;
    screen::print(&String::from_utf8(out).map_err(failed)?);
    Ok(DONE)
}

/// Commands that people use, as they are typed after `fathom man`.
fn list(command: &Command, above: &mut Vec<String>, names: &mut Vec<String>) {
    let shown = |c: &&Command| !c.is_hide_set() && c.get_name() != "help";
    for c in command.get_subcommands().filter(shown) {
        above.push(c.get_name().to_owned());
        names.push(above.join(" "));
        list(c, above, names);
        above.pop();
    }
}
