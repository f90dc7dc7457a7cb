//! `fathom.toml`: defaults of options, and presets of one's own.
//!
//! What it says is put into the command line before that is parsed, as if it had been typed there: one parser, the same errors, and
//! run.json holds all of it. What is typed wins, then the file of the directory, then the user's.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Command;
use fathom_experiments::slo::{PRESETS, Preset};
use fathom_io::job::OPTIONS;
use fathom_telemetry::say;
use toml::{Table, Value};

use crate::known;

/// Name in the directory, and below `fathom/` in the user's configuration directory.
const FILE: &str = "fathom.toml";
/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 20;
/// What has to be typed each time: it allows writes.
const TYPED_ONLY: [&str; 2] = ["destroy", "create"];
/// Parts of a preset that are no options of a job.
const OBJECTIVE: [&str; 3] = ["percentile", "latency", "source"];

/// The command line as it is in effect.
static LINE: OnceLock<Vec<OsString>> = OnceLock::new();

/// The command line as typed, with what presets and [`FILE`] added.
pub(crate) fn line() -> Vec<OsString> {
    LINE.get()
        .cloned()
        .unwrap_or_else(|| std::env::args_os().collect())
}

/// Adds what the files and presets say to what was typed; what was added, for errors.
///
/// # Errors
/// A sentence where a file or a preset is wrong.
pub(crate) fn apply(root: &Command, typed: Vec<OsString>) -> Result<Vec<String>, String> {
    let files = files()?;
    if !files.is_empty() {
        let whole = known::command_line().unwrap_or_default();
        files.iter().try_for_each(|f| check(&whole, f))?;
    }
    let (line, added) = expand(root, typed, &files)?;
    let _ = LINE.set(line);
    Ok(added)
}

/// A file that was read.
struct File {
    path: PathBuf,
    table: Table,
}

/// Those that are there, the first wins.
fn files() -> Result<Vec<File>, String> {
    let home = || std::env::var_os("HOME").map(|h| Path::new(&h).join(".config"));
    let user = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let user = user.filter(|p| p.is_absolute()).or_else(home);
    let places = [
        Some(PathBuf::from(FILE)),
        user.map(|u| u.join("fathom").join(FILE)),
    ];
    places
        .into_iter()
        .flatten()
        .filter_map(|p| read(&p).transpose())
        .collect()
}

fn read(path: &Path) -> Result<Option<File>, String> {
    let Ok(about) = std::fs::metadata(path) else {
        return Ok(None);
    };
    // Options name programs that are started: a stranger's file says nothing here.
    let me = rustix::process::geteuid().as_raw();
    let whose = about.uid();
    if ![me, 0].contains(&whose) || about.mode() & 0o022 != 0 {
        say!(
            "fathom: {} is left out: others may write it; expected a file that only you or root can change",
            path.display()
        );
        return Ok(None);
    }
    let wrong = |e: String| format!("{}: {e}", path.display());
    if !about.is_file() || about.len() > BYTES_MAX {
        return Err(wrong("expected a file of TOML of at most 1 MiB".into()));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let table: Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e
            .span()
            .map_or(1, |s| text[..s.start].lines().count().max(1));
        wrong(format!("line {line}: {}", e.message().replace('\n', " ")))
    })?;
    if let Some(key) = table
        .keys()
        .find(|k| !["defaults", "preset"].contains(&k.as_str()))
    {
        return Err(wrong(format!(
            "'{key}' is not known; expected [defaults], [defaults.COMMAND] or [preset.NAME]"
        )));
    }
    Ok(Some(File {
        path: path.to_owned(),
        table,
    }))
}

/// A command line with what files and presets add, and that.
fn expand(
    root: &Command,
    mut typed: Vec<OsString>,
    files: &[File],
) -> Result<(Vec<OsString>, Vec<String>), String> {
    let Some((command, names, at)) = command(root, &typed) else {
        return Ok((typed, Vec::new()));
    };
    // What fathom calls by itself is not configured.
    if command.is_hide_set() {
        return Ok((typed, Vec::new()));
    }
    let known = |name: &str| takes(command, name) || takes(root, name);
    let mut added: Vec<(String, String)> = Vec::new();
    let (preset, without) = match takes(command, "preset") {
        true => own_preset(&typed, files, &names)?,
        false => (Vec::new(), typed),
    };
    typed = without;
    let given = |added: &[(String, String)], name: &str| {
        typed_there(&typed, name) || added.iter().any(|a| a.0 == name)
    };
    for (name, value) in preset {
        if known(&name) {
            if !given(&added, &name) {
                let word = format!("--{name}={value}");
                added.push((name, word));
            }
        } else if name != "name" && !OBJECTIVE.contains(&name.as_str()) {
            return Err(format!(
                "--preset: its load has --{name} {value}, which fathom {} does not take; fathom run does",
                names.join(" ")
            ));
        }
    }
    for file in files {
        // Of the command first, then of its group, then of all.
        for depth in (0..=names.len()).rev() {
            let Some(section) = section(&file.table, &names[..depth]) else {
                continue;
            };
            let options = section.iter().filter(|(k, v)| !v.is_table() && known(k));
            let mut words = Vec::new();
            for (name, value) in options.filter(|(k, _)| !given(&added, k)) {
                for word in
                    option(name, value).map_err(|e| format!("{}: {e}", file.path.display()))?
                {
                    words.push((name.clone(), word));
                }
            }
            added.extend(words);
        }
    }
    let words: Vec<String> = added.into_iter().map(|a| a.1).collect();
    let tail = typed.split_off(at.min(typed.len()));
    typed.extend(words.iter().map(OsString::from));
    typed.extend(tail);
    Ok((typed, words))
}

/// The section of a command in a file.
fn section<'t>(table: &'t Table, names: &[&str]) -> Option<&'t Table> {
    let all = table.get("defaults")?.as_table()?;
    names
        .iter()
        .try_fold(all, |t, name| t.get(*name)?.as_table())
}

/// The command that is typed, its names, and the place behind it.
fn command<'c>(
    root: &'c Command,
    typed: &[OsString],
) -> Option<(&'c Command, Vec<&'c str>, usize)> {
    let (mut command, mut names, mut at) = (root, Vec::new(), 1);
    for (i, word) in typed.iter().enumerate().skip(1) {
        if !command.has_subcommands() || word == "--" {
            break;
        }
        if let Some(below) = word.to_str().and_then(|w| command.find_subcommand(w)) {
            command = below;
            names.push(below.get_name());
            at = i + 1;
        }
    }
    (!names.is_empty()).then_some((command, names, at))
}

fn takes(command: &Command, name: &str) -> bool {
    command.get_arguments().any(|a| a.get_long() == Some(name))
}

/// Whether an option is among the words.
fn typed_there(typed: &[OsString], name: &str) -> bool {
    let is = |w: &OsStr| {
        let word = w.to_string_lossy();
        let rest = word.strip_prefix("--").and_then(|w| w.strip_prefix(name));
        rest.is_some_and(|r| r.is_empty() || r.starts_with('='))
    };
    typed.iter().take_while(|w| *w != "--").any(|w| is(w))
}

/// An option as it would be typed.
fn option(name: &str, value: &Value) -> Result<Vec<String>, String> {
    Ok(match value {
        Value::Boolean(true) => vec![format!("--{name}")],
        Value::Boolean(false) => Vec::new(),
        Value::Array(all) => {
            let each = all.iter().map(|v| option(name, v));
            each.collect::<Result<Vec<_>, _>>()?.concat()
        }
        one => vec![format!(
            "--{name}={}",
            scalar(one).ok_or_else(|| {
                format!("{name}: expected text, a number, true, or a list of these")
            })?
        )],
    })
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Integer(n) => Some(n.to_string()),
        Value::Float(n) => Some(n.to_string()),
        _ => None,
    }
}

/// That a file names commands, options and presets that there are.
fn check(root: &Command, file: &File) -> Result<(), String> {
    let wrong = |e: String| format!("{}: {e}", file.path.display());
    let table = |key: &str| match file.table.get(key) {
        None => Ok(None),
        Some(v) => v
            .as_table()
            .map(Some)
            .ok_or_else(|| wrong(format!("{key}: expected a table, [{key}]"))),
    };
    if let Some(all) = table("defaults")? {
        let mut every = BTreeSet::new();
        options_below(root, &mut every);
        let mut globals: BTreeSet<String> = BTreeSet::new();
        let global = root.get_arguments().filter(|a| a.is_global_set());
        globals.extend(global.filter_map(|a| a.get_long().map(str::to_owned)));
        check_section(root, all, "defaults", &every, &globals).map_err(wrong)?;
    }
    for (name, preset) in table("preset")?.into_iter().flatten() {
        let parts = preset
            .as_table()
            .ok_or_else(|| wrong(format!("preset.{name}: expected a table")))?;
        let known =
            |k: &String| OBJECTIVE.contains(&k.as_str()) || OPTIONS.iter().any(|o| o.name == k);
        if let Some(key) = parts.keys().find(|k| !known(k)) {
            return Err(wrong(format!(
                "preset.{name}: '{key}' is not known; expected options of fathom run, percentile, latency or source"
            )));
        }
        if let Some((key, _)) = parts.iter().find(|(_, v)| scalar(v).is_none()) {
            return Err(wrong(format!(
                "preset.{name}: {key}: expected text or a number"
            )));
        }
    }
    Ok(())
}

fn options_below(command: &Command, all: &mut BTreeSet<String>) {
    all.extend(
        command
            .get_arguments()
            .filter_map(|a| a.get_long().map(str::to_owned)),
    );
    command
        .get_subcommands()
        .for_each(|c| options_below(c, all));
}

fn check_section(
    command: &Command,
    section: &Table,
    at: &str,
    known: &BTreeSet<String>,
    globals: &BTreeSet<String>,
) -> Result<(), String> {
    for (key, value) in section {
        if let Some(below) = value.as_table() {
            let Some(command) = command.find_subcommand(key) else {
                return Err(format!("[{at}.{key}]: there is no such command"));
            };
            let mut every = globals.clone();
            options_below(command, &mut every);
            check_section(command, below, &format!("{at}.{key}"), &every, globals)?;
        } else if TYPED_ONLY.contains(&key.as_str()) {
            return Err(format!(
                "[{at}]: {key} allows writes, and has to be typed each time"
            ));
        } else if !known.contains(key) {
            return Err(format!(
                "[{at}]: there is no option --{key} here; fathom COMMAND --help has them"
            ));
        }
    }
    Ok(())
}

/// Options of a preset that was typed by name.
type Parts = Vec<(String, String)>;

/// What a preset stands for, and the words without it. Those of fathom stay of `slo`, and all of `plan`, which know them themselves.
fn own_preset(
    typed: &[OsString],
    files: &[File],
    names: &[&str],
) -> Result<(Parts, Vec<OsString>), String> {
    let nothing = || (Vec::new(), typed.to_vec());
    if names == ["plan"] {
        return Ok(nothing());
    }
    let mut without = Vec::new();
    let mut wanted = None;
    let mut words = typed.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--preset") => wanted = words.next().map(|w| w.to_string_lossy().into_owned()),
            Some(w) if w.starts_with("--preset=") => {
                wanted = Some(w["--preset=".len()..].to_owned())
            }
            _ => without.push(word.clone()),
        }
    }
    let Some(name) = wanted else {
        return Ok(nothing());
    };
    let own = files
        .iter()
        .find_map(|f| f.table.get("preset")?.get(&name)?.as_table());
    if let Some(own) = own {
        let parts = own.iter().filter(|(k, _)| *k != "source");
        let parts = parts.filter_map(|(k, v)| Some((k.clone(), scalar(v)?)));
        return Ok((parts.collect(), without));
    }
    match PRESETS.iter().find(|p| p.name == name) {
        Some(_) if names == ["slo"] => Ok(nothing()),
        Some(preset) => Ok((job_of(preset), without)),
        None => {
            let own = files
                .iter()
                .filter_map(|f| f.table.get("preset")?.as_table());
            let own = own.flat_map(|t| t.keys().map(String::as_str));
            let all: Vec<&str> = PRESETS.iter().map(|p| p.name).chain(own).collect();
            Err(format!(
                "--preset {name}: expected one of {}, or [preset.{name}] in {FILE}",
                all.join(", ")
            ))
        }
    }
}

/// The load of a preset as options of a job.
fn job_of(preset: &Preset) -> Parts {
    let rw = preset.rw;
    let mut parts = vec![("rw", rw.word()), ("bs", preset.bs)];
    if rw.reads() && rw.writes() {
        parts.push(("read-share", preset.reads));
    }
    if preset.sync != "none" {
        parts.push(("sync", preset.sync));
    }
    parts.push(("name", preset.name));
    parts
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::whole;

    fn file(text: &str) -> File {
        File {
            path: FILE.into(),
            table: text.parse().unwrap(),
        }
    }

    fn line(typed: &str, files: &[File]) -> Result<String, String> {
        let typed = format!("fathom {typed}");
        let words = typed.split(' ').map(OsString::from).collect();
        let whole = whole();
        files.iter().try_for_each(|f| check(&whole, f))?;
        let (line, _) = expand(&whole, words, files)?;
        let words: Vec<_> = line
            .iter()
            .skip(1)
            .map(|w| w.to_string_lossy().into_owned())
            .collect();
        Ok(words.join(" "))
    }

    #[test]
    fn what_is_typed_wins_then_the_directory_then_the_user() {
        let here = file(
            "[defaults]\nout = 'here'\n[defaults.survey]\nprofile = 'full'\n[defaults.db.mysql]\nseed = 7\n",
        );
        let home = file("[defaults]\nout = 'home'\ntui = true\nlabel = ['a=1', 'b=2']\n");
        let all = [here, home];
        assert_eq!(
            line("survey x", &all).unwrap(),
            "survey --profile=full --out=here --label=a=1 --label=b=2 --tui x"
        );
        assert_eq!(
            line("survey x --out y --profile=quick --label c=3", &all).unwrap(),
            "survey --tui x --out y --profile=quick --label c=3"
        );
        assert!(
            line("db mysql .", &all)
                .unwrap()
                .starts_with("db mysql --seed=7 --out=here")
        );
        assert_eq!(
            line("devices", &all).unwrap(),
            "devices --tui",
            "it has no --out"
        );
        assert_eq!(line("guest-agent", &all).unwrap(), "guest-agent");
        assert_eq!(line("--help", &all).unwrap(), "--help");
    }

    #[test]
    fn a_preset_is_the_load_it_stands_for_and_what_is_typed_replaces_parts() {
        let none = [];
        assert_eq!(
            line("run . --preset oltp", &none).unwrap(),
            "run --rw=randrw --bs=8k --read-share=70 --name=oltp ."
        );
        assert_eq!(
            line("run . --preset=log --bs 8k", &none).unwrap(),
            "run --rw=write --sync=fdatasync --name=log . --bs 8k"
        );
        assert_eq!(
            line("slo . --preset log", &none).unwrap(),
            "slo . --preset log"
        );
        assert_eq!(
            line("curve . --preset oltp", &none).unwrap(),
            "curve --rw=randrw --bs=8k --read-share=70 ."
        );
        let said = line("curve . --preset log", &none).unwrap_err();
        assert!(said.contains("--sync fdatasync"), "{said}");
        let own = [file(
            "[preset.shop]\nrw = 'randrw'\nbs = '16k'\nread-share = 80\npercentile = 99.9\nlatency = '2ms'\nsource = 'a trace'\n",
        )];
        assert_eq!(
            line("slo . --preset shop", &own).unwrap(),
            "slo --bs=16k --latency=2ms --percentile=99.9 --read-share=80 --rw=randrw ."
        );
        assert_eq!(
            line("run . --preset shop", &own).unwrap(),
            "run --bs=16k --read-share=80 --rw=randrw ."
        );
        let said = line("run . --preset shopp", &own).unwrap_err();
        assert!(
            said.contains("oltp, vm") && said.contains("log, shop"),
            "{said}"
        );
    }

    #[test]
    fn a_file_that_is_wrong_says_what_it_expected() {
        for (text, part) in [
            ("[defaults.surve]\nout = 'x'", "no such command"),
            ("[defaults.survey]\nqd = 3", "no option --qd"),
            ("[defaults]\nweather = 3", "no option --weather"),
            ("[defaults]\ndestroy = 'S1'", "has to be typed"),
            ("[defaults.survey]\ncreate = true", "has to be typed"),
            ("defaults = 3", "expected a table"),
            ("[preset.a]\nrww = 'read'", "'rww' is not known"),
            ("[preset.a]\nrw = ['read']", "expected text"),
        ] {
            let said = line("survey", &[file(text)]).unwrap_err();
            assert!(
                said.starts_with(FILE) && said.contains(part),
                "{text}: {said}"
            );
        }
    }
}
