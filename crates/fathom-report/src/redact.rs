//! A run for strangers: without names of hosts and users, serial numbers and paths.
//!
//! Works on the whole document, whatever wrote it: what stands under a name that is known to identify something is taken out
//! everywhere, in text of findings as in labels; then everything that looks like a path or a UUID. What is measured stays.

use std::collections::BTreeMap;

use fathom_telemetry::schema::Run;
use serde_json::Value;

use crate::error::ReportError;

/// Keys whose values identify somebody's machine, and what stands there instead.
const IDENTITIES: [(&str, &str); 15] = [
    ("host", "[host]"),
    ("called", "[host]"),
    ("instance", "[instance]"),
    ("serial", "[serial]"),
    ("serial_number", "[serial]"),
    ("wwid", "[serial]"),
    ("wwn", "[serial]"),
    ("uuid", "[serial]"),
    ("nguid", "[serial]"),
    ("eui64", "[serial]"),
    ("subsystem", "[serial]"),
    ("nqn", "[serial]"),
    ("source", "[path]"),
    ("mounted_at", "[path]"),
    ("path", "[path]"),
];
/// Keys whose values are taken out whole: they are lists of settings that may hold any of it.
const WHOLE: [&str; 1] = ["/environment/kernel/command_line"];
/// Options whose values name hosts, drives or places.
const NAMING: [&str; 6] = [
    "--destroy",
    "--hosts",
    "--hosts-fathom",
    "--out",
    "--sample",
    "--with",
];
/// Words of fathom's own in which nobody's name is looked for.
const OWN: [&str; 12] = [
    "command",
    "kind",
    "experiment",
    "id",
    "code",
    "engine",
    "unit",
    "schema_version",
    "group",
    "profile",
    "fs_type",
    "rw",
];
/// Where the kernel's own names begin, which say nothing of whose machine it is.
const KERNEL: [&str; 2] = ["/sys/", "/proc/"];
const GROUPS: &str = "/sys/fs/cgroup/";
/// Names that are everybody's.
const ANYBODY: [&str; 4] = ["root", "localhost", "/", "."];

/// The run without what identifies its owner. `names` are further words to take out, such as those of users.
///
/// # Errors
/// [`ReportError`] where the run cannot be written and read again.
pub fn redact(run: &Run, names: &[String]) -> Result<Run, ReportError> {
    let mut all = serde_json::to_value(run)?;
    let mut secrets: BTreeMap<String, &'static str> = BTreeMap::new();
    let mut add = |text: &str, instead: &'static str| {
        let text = text.trim();
        if !text.is_empty() && !ANYBODY.contains(&text) {
            secrets.entry(text.to_owned()).or_insert(instead);
        }
    };
    names.iter().for_each(|n| add(n, "[user]"));
    identities(&all, &mut add);
    if matches!(run.target.kind.as_str(), "directory" | "file") || run.target.path.is_some() {
        let own = [Some(&run.target.name), run.target.path.as_ref()];
        for text in own.into_iter().flatten().filter(|t| !is_device(t)) {
            add(text, "[path]");
            // Its directory may hold spaces, at which no path is known to end.
            let above = text.rsplit_once('/').map_or("", |(above, _)| above);
            add(above, "[path]");
            homes(text, &mut add);
        }
    }
    for (i, word) in run.command_line.iter().enumerate() {
        homes(word, &mut add);
        let value = match word.split_once('=') {
            Some((name, value)) if NAMING.contains(&name) => Some(value),
            _ if NAMING.contains(&word.as_str()) => run.command_line.get(i + 1).map(String::as_str),
            _ => None,
        };
        let parts = value.into_iter().flat_map(|v| v.split([',', '=']));
        parts.for_each(|v| add(v, "[name]"));
    }
    for path in WHOLE {
        if let Some(v) = all.pointer_mut(path).filter(|v| v.is_string()) {
            *v = "[redacted]".into();
        }
    }
    // Longer ones first: a path before the name within it.
    let mut secrets: Vec<(String, &'static str)> = secrets.into_iter().collect();
    secrets.sort_by_key(|s| std::cmp::Reverse(s.0.len()));
    clean(&mut all, "", &secrets);
    let mut run: Run = serde_json::from_value(all)?;
    run.command_line = words(&run.command_line);
    Ok(run)
}

/// The command line: fathom by its name, words that are paths as such.
fn words(line: &[String]) -> Vec<String> {
    let shown = |(i, w): (usize, &String)| match w {
        _ if i == 0 => "fathom".to_owned(),
        w if w.starts_with("sim:") || !w.contains('/') || is_device(w) => w.clone(),
        w => match w.split_once('=').filter(|_| w.starts_with('-')) {
            Some((name, value)) if !is_device(value) => format!("{name}=[path]"),
            Some(_) => w.clone(),
            None => "[path]".to_owned(),
        },
    };
    line.iter().enumerate().map(shown).collect()
}

/// A kernel's name of a device; others below /dev may be their owner's.
fn is_device(text: &str) -> bool {
    let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric());
    text.strip_prefix("/dev/").is_some_and(plain)
}

/// Names of users in a path.
fn homes(text: &str, add: &mut impl FnMut(&str, &'static str)) {
    for home in ["/home/", "/run/media/", "/media/"] {
        for rest in text.split(home).skip(1) {
            add(rest.split('/').next().unwrap_or(""), "[user]");
        }
    }
}

fn identities(v: &Value, add: &mut impl FnMut(&str, &'static str)) {
    match v {
        Value::Array(all) => all.iter().for_each(|v| identities(v, add)),
        Value::Object(all) => {
            for (key, v) in all {
                let known = IDENTITIES.iter().find(|k| k.0 == key);
                match (known, v) {
                    (Some(_), Value::String(s)) if is_device(s) || !key_counts(key, s) => {}
                    (Some((_, instead)), Value::String(s)) => {
                        add(s, instead);
                        // People call a host by its first name; a number is no name.
                        let short = s.split('.').next().unwrap_or_default();
                        if key == "host" && short.chars().any(char::is_alphabetic) {
                            add(short, instead);
                        }
                    }
                    _ => identities(v, add),
                }
                if let Value::String(s) = v {
                    homes(s, add);
                }
            }
        }
        _ => {}
    }
}

/// `source` is also the word for where a number comes from, `path` of what the kernel calls a thing.
fn key_counts(key: &str, value: &str) -> bool {
    match key {
        "source" => value.contains([':', '/']),
        "path" => value.starts_with('/') && !KERNEL.iter().any(|k| value.starts_with(k)),
        _ => true,
    }
}

fn clean(v: &mut Value, key: &str, secrets: &[(String, &'static str)]) {
    match v {
        Value::Array(all) => all.iter_mut().for_each(|v| clean(v, key, secrets)),
        Value::Object(all) => all.iter_mut().for_each(|(k, v)| clean(v, k, secrets)),
        Value::String(s) if !OWN.contains(&key) => {
            for (secret, instead) in secrets {
                *s = without(s, secret, instead);
            }
            *s = without_paths(s);
        }
        _ => {}
    }
}

/// A text with each `secret` that stands as a word of its own replaced.
fn without(text: &str, secret: &str, instead: &str) -> String {
    if !text.contains(secret) {
        return text.to_owned();
    }
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut rest) = (String::new(), text);
    let mut before: Option<char> = None;
    while let Some(at) = rest.find(secret) {
        let (head, tail) = rest.split_at(at);
        let after = &tail[secret.len()..];
        let left = head.chars().next_back().or(before);
        let word = !(left.is_some_and(inner) && secret.starts_with(inner)
            || after.starts_with(inner) && secret.ends_with(inner));
        out += head;
        out += if word { instead } else { secret };
        before = secret.chars().next_back();
        rest = after;
    }
    out + rest
}

/// A text with each path and each UUID replaced.
fn without_paths(text: &str) -> String {
    let begins = |c: char| c.is_whitespace() || "'\"`=(:,[<>|".contains(c);
    let ends = |c: char| c.is_whitespace() || "'\"`),;:]<>|".contains(c);
    let (mut out, mut rest, mut fresh) = (String::new(), text, true);
    while let Some(c) = rest.chars().next() {
        if fresh && c == '/' {
            let length = rest.find(ends).unwrap_or(rest.len());
            let (path, after) = rest.split_at(length);
            out += &place(path);
            (rest, fresh) = (after, false);
            continue;
        }
        if fresh && let Some(after) = uuid(rest) {
            out += "[uuid]";
            (rest, fresh) = (after, false);
            continue;
        }
        out.push(c);
        fresh = begins(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// What stands for a path.
fn place(path: &str) -> String {
    if let Some(group) = path.strip_prefix(GROUPS) {
        let file = group.rsplit('/').next().unwrap_or_default();
        return format!("{GROUPS}…/{file}");
    }
    let kernels = KERNEL.iter().any(|k| path.starts_with(k));
    if kernels || is_device(path) || path == "/" {
        path.to_owned()
    } else {
        "[path]".to_owned()
    }
}

/// What follows a UUID at the beginning of a text.
fn uuid(text: &str) -> Option<&str> {
    const LENGTH: usize = 36;
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let head = text.get(..LENGTH)?;
    let fits = |(i, c): (usize, char)| match DASHES.contains(&i) {
        true => c == '-',
        false => c.is_ascii_hexdigit(),
    };
    head.char_indices().all(fits).then(|| &text[LENGTH..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{job, run_with};

    /// Everything that may identify somebody, in every place where it may stand.
    fn owned() -> Run {
        let mut run = run_with(vec![job("randread")]);
        run.findings
            .push(fathom_telemetry::schema::Finding::default());
        run.target.name = "./private data".into();
        run.target.kind = "directory".into();
        run.target.path = Some("/home/alice/private data/fathom-scratch".into());
        run.target.description = "ext4 on /home/alice/private data (S4EVNX0R)".into();
        run.command_line = [
            "/home/alice/bin/fathom",
            "survey",
            "./private data",
            "--destroy",
            "S4EVNX0R",
            "--hosts=db-7,db-8",
            "--out",
            "/srv/secret",
            "--rw=randread",
        ]
        .map(str::to_owned)
        .to_vec();
        run.labels.insert(
            "note".into(),
            "alice's disk in db-7, see /srv/secret/x".into(),
        );
        run.environment = json!({
            "kernel": {"host": "db-7.example.org", "release": "6.12", "command_line": "root=UUID=0a1b2c3d-0000-1111-2222-333344445555 ip=10.0.0.7"},
            "storage": {"path": "/home/alice/private data", "file_system": {"source": "nas7:/export/alice", "mounted_at": "/home/alice", "fs_type": "nfs",
                "super_options": ["addr=nas", "upperdir=/var/lib/docker/7f/diff"]},
                "devices": [{"name": "nvme0n1", "model": "FAST 1TB", "serial": "S4EVNX0R", "size_bytes": 5, "nvme": {"uuid": "0a1b2c3d-0000-1111-2222-333344445555"}}]},
            "control_group_limits": [{"file": "/sys/fs/cgroup/user.slice/user-1000.slice/alice.service/cpu.max", "value": "50000 100000"}],
            "hosts": [{"host": "db-8", "target": "/srv/secret"}],
        });
        run.findings[0].text =
            "db-8 is slower than the others at 5 MB/s / host on /dev/nvme0n1 (S4EVNX0R).".into();
        run.findings[0].advice = "echo none > /sys/block/nvme0n1/queue/scheduler, then fathom clean '/home/alice/private data'".into();
        run
    }

    #[test]
    fn nothing_that_identifies_the_owner_is_left() {
        let redacted = redact(&owned(), &["alice".to_owned()]).unwrap();
        let text = serde_json::to_string(&redacted).unwrap();
        for secret in [
            "alice",
            "private",
            "S4EVNX0R",
            "db-7",
            "db-8",
            "example.org",
            "nas7",
            "export",
            "secret",
            "0a1b2c3d",
            "10.0.0.7",
            "docker",
            "user-1000",
        ] {
            assert!(!text.contains(secret), "{secret} in\n{text}");
        }
        for kept in [
            "FAST 1TB",
            "nvme0n1",
            "/sys/block/nvme0n1/queue/scheduler",
            "cpu.max",
            "50000 100000",
            "5 MB/s / host on /dev/nvme0n1",
            "--rw=randread",
            "6.12",
        ] {
            assert!(text.contains(kept), "{kept} not in\n{text}");
        }
        assert_eq!(redacted.command_line[0], "fathom");
        assert_eq!(redacted.jobs.len(), owned().jobs.len());
    }

    #[test]
    fn names_are_taken_out_as_words_and_what_is_redacted_stays_as_it_is() {
        assert_eq!(
            without("vm, vmscape and vm-1 of VM", "vm", "[host]"),
            "[host], vmscape and [host]-1 of VM"
        );
        assert_eq!(
            without_paths("7 ios/s, /a/b: (/c)"),
            "7 ios/s, [path]: ([path])"
        );
        let once = redact(&owned(), &[]).unwrap();
        assert_eq!(redact(&once, &[]).unwrap(), once);
    }
}
