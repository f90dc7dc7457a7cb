//! Job options on the command line, made from the one table in `fathom_io::job::OPTIONS`.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use fathom_io::job::OPTIONS;
use fathom_io::{JobError, JobSpec};

/// Options as typed: name and text.
#[derive(Debug, Default, Clone)]
pub(crate) struct JobArgs {
    pub(crate) options: Vec<(&'static str, String)>,
}

impl JobArgs {
    /// Applies them to a job.
    pub(crate) fn apply(&self, spec: &mut JobSpec) -> Result<(), JobError> {
        self.options
            .iter()
            .try_for_each(|(name, text)| spec.set(name, text))
    }
}

/// A load by its name; replaced by what it stands for before the command line is read.
pub(crate) fn preset() -> Arg {
    Arg::new("preset")
        .long("preset")
        .value_name("PRESET")
        .help("Load by name (oltp, vm, desktop, video, ai-loading, ai-checkpoint, backup, log, or one of fathom.toml); options replace parts of it")
}

impl Args for JobArgs {
    fn augment_args(mut cmd: Command) -> Command {
        cmd = cmd.arg(preset());
        for o in OPTIONS {
            let arg = Arg::new(o.name)
                .long(o.name)
                .help(o.help)
                .help_heading(o.heading);
            cmd = cmd.arg(if o.value.is_empty() {
                arg.action(ArgAction::SetTrue)
            } else {
                arg.value_name(o.value)
                    .action(ArgAction::Set)
                    .allow_negative_numbers(true)
            });
        }
        cmd
    }
    fn augment_args_for_update(cmd: Command) -> Command {
        Self::augment_args(cmd)
    }
}

impl FromArgMatches for JobArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for o in OPTIONS {
            if o.value.is_empty() {
                if matches.get_flag(o.name) {
                    self.options.push((o.name, String::new()));
                }
            } else if let Some(text) = matches.get_one::<String>(o.name) {
                self.options.push((o.name, text.clone()));
            }
        }
        Ok(())
    }
}
