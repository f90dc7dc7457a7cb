//! Settings of a lab's own server: those that all of them have, and those that are tried.

use crate::LabError;

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
    if let Some((_, instead)) = OWN.iter().find(|o| o.0 == name) {
        let instead = match *instead {
            "" => "it is part of how the server is kept apart".to_owned(),
            option => format!("use {option}"),
        };
        return Err(format!("the lab sets {name} itself: {instead}"));
    }
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
