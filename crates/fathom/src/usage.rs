//! Turns clap's errors, which take several lines, into one sentence that ends in where to look.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// One sentence that ends in the help of `command`; `None` for help and version, which clap prints itself.
pub(crate) fn sentence(error: &Error, command: Option<&str>) -> Option<String> {
    let see = help_of(command);
    let thing = text(error, ContextKind::InvalidArg).unwrap_or_default();
    let name = bare(&thing);
    Some(match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return None,
        // `--time -5s`: clap takes the value for an option.
        ErrorKind::UnknownArgument if name.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
            format!("'{name}…' is not possible: expected no value below 0; see '{see}'")
        }
        ErrorKind::UnknownArgument if name.starts_with('-') => {
            let hint = suggestion(error, ContextKind::SuggestedArg);
            format!("unknown option '{name}'{hint}: see '{see}'")
        }
        ErrorKind::UnknownArgument => {
            format!("'{thing}' is one argument too many: see '{see}'")
        }
        ErrorKind::InvalidSubcommand => {
            let typed = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let hint = suggestion(error, ContextKind::SuggestedSubcommand);
            format!("unknown command '{typed}'{hint}: see '{see}'")
        }
        ErrorKind::MissingRequiredArgument => {
            format!("{thing} is missing: name it, or see '{see}'")
        }
        ErrorKind::ArgumentConflict => match text(error, ContextKind::PriorArg) {
            Some(other) if bare(&other) != name => {
                format!(
                    "{name} and {} exclude each other: give one of them",
                    bare(&other)
                )
            }
            _ => format!("{name} is given twice: give it once"),
        },
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
            let expected = text(error, ContextKind::ValidValue);
            let source = std::error::Error::source(error).map(ToString::to_string);
            match (source, expected) {
                (Some(source), _) => format!("{name}: {}", with_value(&value, &source)),
                (None, Some(expected)) if value.is_empty() => {
                    format!("{name} needs a value: expected one of {expected}")
                }
                (None, Some(expected)) => {
                    format!("{name}: '{value}' is not possible: expected one of {expected}")
                }
                (None, None) if value.is_empty() => {
                    format!("{thing} needs a value: see '{see}'")
                }
                (None, None) => format!("{name}: '{value}' is not possible: see '{see}'"),
            }
        }
        // What is left cannot come from this command line; clap's own first line is a sentence.
        _ => {
            let all = error.to_string();
            let first = all.lines().next().unwrap_or_default();
            format!(
                "{}: see '{see}'",
                first.strip_prefix("error: ").unwrap_or(first)
            )
        }
    })
}

/// The command whose help explains it.
fn help_of(command: Option<&str>) -> String {
    match command {
        Some(command) => format!("fathom {command} --help"),
        None => "fathom --help".into(),
    }
}

/// `--qd` of `--qd <N>`.
fn bare(thing: &str) -> &str {
    thing.split([' ', '=']).next().unwrap_or(thing)
}

/// Sentences of our own types name the value; those of the standard library do not.
fn with_value(value: &str, source: &str) -> String {
    if source.contains(value) && !value.is_empty() {
        source.to_owned()
    } else {
        format!("'{value}' is not possible: {source}")
    }
}

fn suggestion(error: &Error, kind: ContextKind) -> String {
    // The likeliest one comes last.
    let best = match error.get(kind) {
        Some(ContextValue::Strings(s)) => s.last().cloned(),
        _ => text(error, kind),
    };
    best.map(|s| format!(" (did you mean '{s}'?)"))
        .unwrap_or_default()
}

fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(s) => Some(s.clone()),
        ContextValue::Strings(s) if !s.is_empty() => Some(s.join(", ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Cli, has};
    use clap::Parser;

    #[test]
    fn mistakes_on_the_command_line_take_one_sentence_each() {
        for (line, expected) in [
            (
                "run null: --qdd 3",
                "unknown option '--qdd' (did you mean '--qd'?): see 'fathom run --help'",
            ),
            (
                "run null: --nothing-like-it",
                "unknown option '--nothing-like-it': see 'fathom run --help'",
            ),
            (
                "surveyy",
                "unknown command 'surveyy' (did you mean 'survey'?): see 'fathom --help'",
            ),
            (
                "run",
                "<TARGET> is missing: name it, or see 'fathom run --help'",
            ),
            (
                "run null: x",
                "'x' is one argument too many: see 'fathom run --help'",
            ),
            (
                "run null: --time",
                "--time <DURATION> needs a value: see 'fathom run --help'",
            ),
            (
                "run null: --qd 1 --qd 2",
                "--qd is given twice: give it once",
            ),
            (
                "survey --seed x",
                "--seed: 'x' is not possible: invalid digit found in string",
            ),
        ] {
            let arguments: Vec<&str> = line.split(' ').collect();
            let all = std::iter::once("fathom").chain(arguments.iter().copied());
            let Err(error) = Cli::try_parse_from(all) else {
                panic!("{line} was accepted");
            };
            let said = sentence(&error, arguments.first().copied().filter(|a| has(a)));
            assert_eq!(said.as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn help_and_version_are_no_mistakes() {
        for line in ["--help", "--version", "run --help"] {
            let all = std::iter::once("fathom").chain(line.split(' '));
            let Err(error) = Cli::try_parse_from(all) else {
                panic!("{line} prints nothing");
            };
            assert_eq!(sentence(&error, None), None);
        }
    }
}
