//! Settings of a lab's own server: those that all of them have, and those that are tried.

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::LabError;

/// Settings of the server that a lab measures.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct SettingArgs {
    /// A setting that all of the lab's servers have (again for more)
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',', value_parser = one, conflicts_with_all = ["server", "socket"])]
    #[serde(default)]
    pub set: Vec<String>,
    /// A setting to try, in turns with the server without it (again for more; with commas, several that belong together)
    #[arg(long = "try", value_name = "NAME=VALUE,…", value_parser = parse)]
    #[serde(default)]
    pub tries: Vec<Vec<String>>,
    /// Lets --try change settings of a whole server of yours, which all who work there have meanwhile; each is put back
    #[arg(long, requires = "tries")]
    #[serde(default)]
    pub change_server: bool,
}

impl SettingArgs {
    /// All of them, for who must know each.
    pub(super) fn all(&self) -> Vec<String> {
        let tried = self.tries.iter().flatten();
        self.set.iter().chain(tried).cloned().collect()
    }

    /// Refuses settings that no server here could have, and, by name, what they cannot be compared beside: a rate that was asked for
    /// is no measure.
    pub(super) fn possible(
        &self,
        databases: &[String],
        yours: bool,
        beside: &[(&str, bool)],
    ) -> Result<(), String> {
        if self.is_empty() {
            return Ok(());
        }
        if databases.len() != 1 || databases.iter().any(|d| d == "sqlite") {
            return Err("--set and --try are settings of one server: add --database mariadb or --database postgresql".into());
        }
        if !yours {
            self.of_own_postgres()?;
        }
        match beside.iter().find(|b| b.1 && !self.tries.is_empty()) {
            Some((name, _)) => Err(format!(
                "--try compares the rates of fathom's closed loop: leave out {name}"
            )),
            None => Ok(()),
        }
    }

    /// Refuses what a PostgreSQL of the lab's cannot have.
    fn of_own_postgres(&self) -> Result<(), String> {
        let names = self.all();
        let mut names = names.iter().filter_map(|s| Some(s.split_once('=')?.0));
        names.try_for_each(|name| decided(&OWN_POSTGRES, name))
    }

    /// None is given.
    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.tries.is_empty()
    }

    /// What all servers have, behind what else is said of them.
    pub(super) fn in_words(&self) -> String {
        match self.set.is_empty() {
            true => String::new(),
            false => format!(", with {}", self.set.join(", ")),
        }
    }

    /// Servers in turns: that without, and one with each that is tried.
    pub(super) fn turns(&self) -> impl Iterator<Item = Vec<String>> + '_ {
        std::iter::once(Vec::new()).chain(self.tries.iter().cloned())
    }
}

/// A database with what is tried on it, for readers.
pub(super) fn named(database: &str, tried: &[String]) -> String {
    let tried = tried.iter().map(String::as_str);
    let all: Vec<&str> = std::iter::once(database).chain(tried).collect();
    all.join(", ")
}

/// What is tried, in names of jobs and findings.
pub(super) fn label(tried: &[String]) -> String {
    tried.join("+").replace('=', "-")
}

/// What the lab decides itself, and by which option it is asked for.
const OWN: [(&str, &str); 10] = [
    ("innodb_page_size", "--experiment page-size"),
    ("innodb_buffer_pool_size", "--pool, or --experiment cache"),
    ("datadir", ""),
    ("socket", ""),
    ("pid_file", ""),
    ("tmpdir", ""),
    ("user", ""),
    ("port", ""),
    ("bind_address", ""),
    ("skip_networking", ""),
];

/// The same of its own PostgreSQL; one of the user's says itself that they want a restart.
const OWN_POSTGRES: [(&str, &str); 5] = [
    ("shared_buffers", "--pool"),
    ("data_directory", ""),
    ("listen_addresses", ""),
    ("unix_socket_directories", ""),
    ("dynamic_shared_memory_type", ""),
];

/// Refuses what the lab decides itself.
fn decided(own: &[(&str, &str)], name: &str) -> Result<(), String> {
    let Some((_, instead)) = own.iter().find(|o| o.0 == name) else {
        return Ok(());
    };
    let instead = match *instead {
        "" => "it is part of how the server is kept apart".to_owned(),
        option => format!("use {option}"),
    };
    Err(format!("the lab sets {name} itself: {instead}"))
}

/// Settings that belong together, as on the command line: `NAME=VALUE`, several with commas between them.
///
/// # Errors
/// In one sentence: what is no setting, what the lab decides, what would lie outside its directory.
pub fn parse(text: &str) -> Result<Vec<String>, String> {
    text.split(',').map(one).collect()
}

/// One of them.
///
/// # Errors
/// As [`parse`].
pub(super) fn one(text: &str) -> Result<String, String> {
    let expected = "expected NAME=VALUE, as in innodb_io_capacity=2000";
    let (name, value) = text
        .trim()
        .trim_start_matches("--")
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is no setting: {expected}"))?;
    let name = name.to_lowercase().replace('-', "_");
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(format!("'{name}' is no name of a setting: {expected}"));
    }
    decided(&OWN, &name)?;
    let ends = |c: char| c.is_control() || c == '/';
    if value.is_empty() || value.contains(ends) {
        return Err(format!(
            "{name}: '{value}' is no value that can be tried: expected a number or a word, and no path, which would lead out of the lab's directory"
        ));
    }
    Ok(format!("{name}={value}"))
}

/// Asks a program that prints its help, and with it refuses what it does not know, whether it takes the settings.
pub(super) fn known(mut help: std::process::Command, settings: &[String]) -> Result<(), LabError> {
    help.args(settings.iter().map(|s| format!("--{s}")));
    let said = help.output().map_err(|e| {
        LabError::Failed(format!("the server cannot be asked for its settings: {e}"))
    })?;
    if said.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    let why = text.lines().rfind(|l| l.contains("ERROR"));
    let why = why.and_then(|l| Some(l.split_once("[ERROR]")?.1.trim().to_owned()));
    Err(LabError::Refused(format!(
        "the server does not take {}: {}",
        settings.join(", "),
        why.unwrap_or_else(|| format!("it ended with {}", said.status))
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_names_with_values_and_nothing_that_the_lab_decides() {
        let read = |text: &str| parse(text).map(|s| s.join(" "));
        assert_eq!(
            read("innodb-io-capacity=2000,--innodb_flush_neighbors=0").unwrap(),
            "innodb_io_capacity=2000 innodb_flush_neighbors=0"
        );
        for (wrong, said) in [
            ("innodb_io_capacity", "expected NAME=VALUE"),
            ("=3", "no name"),
            ("a b=3", "no name"),
            ("innodb_doublewrite=", "no value"),
            ("datadir=x", "kept apart"),
            ("innodb-buffer-pool-size=1g", "--pool"),
            ("general_log_file=/tmp/x", "no path"),
            ("innodb_io_capacity=1,x", "expected NAME=VALUE"),
        ] {
            let e = read(wrong).unwrap_err();
            assert!(e.contains(said), "{wrong}: {e}");
        }
    }
}
