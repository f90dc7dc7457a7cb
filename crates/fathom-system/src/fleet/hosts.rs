//! Which hosts, and what is tested on each: from words of the command line or from a file.

use std::fs;
use std::path::Path;

use crate::{SystemError, programs};

/// Longer lists are taken for another file.
const HOSTS_MAX: usize = 10_000;

/// A host of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// As its launcher knows it.
    pub name: String,
    /// What is tested there, where it is not what all others test.
    pub target: Option<String>,
    /// What was typed for this host as what `--destroy` takes.
    pub destroy: Option<String>,
}

impl Host {
    /// Hosts from `h1,h2=TARGET`; from a file with a host per line: name, target, and `destroy=SERIAL`; `slurm`, the nodes
    /// of this allocation; or `pods:SELECTOR`, the running pods that have these labels.
    ///
    /// # Errors
    /// Names that a launcher could take for anything else than a name; a host twice; no allocation, no such pods.
    pub fn parse(text: &str) -> Result<Vec<Self>, SystemError> {
        let file = Path::new(text);
        let hosts: Result<Vec<Self>, SystemError> = if let Some(names) = listed(text)? {
            names
                .lines()
                .map(|n| Self::new(n.trim(), None, None))
                .collect()
        } else if file.is_file() {
            let words = fs::read_to_string(file)
                .map_err(|e| refused(format!("{text} cannot be read: {e}")))?;
            let lines = words.lines().map(|l| l.split('#').next().unwrap_or(l));
            let lines = lines.filter(|l| !l.trim().is_empty());
            lines.take(HOSTS_MAX + 1).map(Self::of_line).collect()
        } else {
            let words = text.split(',').map(str::trim);
            words.take(HOSTS_MAX + 1).map(Self::of_word).collect()
        };
        let hosts = hosts?;
        if hosts.is_empty() {
            return Err(refused(format!(
                "{text} names no host: expected at least one"
            )));
        }
        if hosts.len() > HOSTS_MAX {
            return Err(refused(format!("more than {HOSTS_MAX} hosts")));
        }
        let mut names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            let name = twice[0];
            return Err(refused(format!(
                "{name} is named twice: its jobs would share its processors; ask for more depth or threads instead"
            )));
        }
        Ok(hosts)
    }

    fn of_word(word: &str) -> Result<Self, SystemError> {
        let (name, target) = match word.split_once('=') {
            Some((name, target)) => (name, Some(target)),
            None => (word, None),
        };
        Self::new(name, target, None)
    }

    fn of_line(line: &str) -> Result<Self, SystemError> {
        let (mut target, mut destroy) = (None, None);
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        for word in words {
            match word.strip_prefix("destroy=") {
                Some(serial) if destroy.is_none() => destroy = Some(serial),
                None if target.is_none() => target = Some(word),
                _ => {
                    return Err(refused(format!(
                        "'{}' is no host: expected NAME [TARGET] [destroy=SERIAL]",
                        line.trim()
                    )));
                }
            }
        }
        Self::new(name, target, destroy)
    }

    fn new(name: &str, target: Option<&str>, destroy: Option<&str>) -> Result<Self, SystemError> {
        check("host", name, "user@name, an address, a pod")?;
        if target == Some("") {
            return Err(refused(format!(
                "{name}= names no target: expected {name}=TARGET"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            target: target.map(str::to_owned),
            destroy: destroy.map(str::to_owned),
        })
    }
}

/// The launcher that reaches hosts named so, by itself.
pub fn launcher(text: &str) -> &'static str {
    match text {
        SLURM => "srun",
        pods if pods.starts_with(PODS) => "kubectl",
        _ => "ssh",
    }
}

const SLURM: &str = "slurm";
const PODS: &str = "pods:";

/// Names that an engine lists, one per line; `None` where none is named.
fn listed(text: &str) -> Result<Option<String>, SystemError> {
    let mut list = if text == SLURM {
        let nodes = std::env::var("SLURM_JOB_NODELIST").map_err(|_| {
            refused(
                "slurm: there is no allocation here (SLURM_JOB_NODELIST is not set): run it within salloc or sbatch"
                    .into(),
            )
        })?;
        let mut scontrol = programs::command("scontrol");
        scontrol.args(["show", "hostnames", &nodes]);
        scontrol
    } else if let Some(selector) = text.strip_prefix(PODS) {
        let mut kubectl = programs::command("kubectl");
        kubectl
            .args(["get", "pods", "--output=name"])
            .arg("--field-selector=status.phase=Running")
            .arg(format!("--selector={selector}"));
        kubectl
    } else {
        return Ok(None);
    };
    let program = list.get_program().to_string_lossy().into_owned();
    programs::output(&mut list)
        .map(Some)
        .map_err(|e| refused(format!("{text}: {program}: {e}")))
}

/// Whether neither a launcher nor a shell behind it can take the word for anything but itself.
pub(super) fn is_plain(word: &str) -> bool {
    const ALSO: &[u8] = b"._-:@/[]%+";
    let plain = |b: u8| b.is_ascii_alphanumeric() || ALSO.contains(&b);
    !word.is_empty() && !word.starts_with('-') && word.len() <= 1024 && word.bytes().all(plain)
}

/// Refuses a word that is not plain.
pub(super) fn check(what: &str, word: &str, expected: &str) -> Result<(), SystemError> {
    // A bracket is a pattern to a shell; an address has them around what has colons.
    let of_address = |b: u8| b.is_ascii_alphanumeric() || b":.%".contains(&b);
    let address = |w: &str| w.contains(':') && w.bytes().all(of_address);
    let bracketed = match word.split_once('[') {
        Some((_, rest)) => rest
            .split_once(']')
            .is_some_and(|(inside, rest)| address(inside) && !rest.contains(['[', ']'])),
        None => !word.contains(']'),
    };
    if is_plain(word) && bracketed {
        return Ok(());
    }
    Err(refused(format!(
        "'{word}' is no name of a {what}: expected letters, digits and ._-:@/ and no '-' in front ({expected})"
    )))
}

pub(super) fn refused(sentence: String) -> SystemError {
    SystemError::Refused(format!("--hosts: {sentence}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_from_words_and_from_files() {
        let hosts = Host::parse("h1,me@h2=/mnt/data, [fe80::1%eth0]").unwrap();
        let names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["h1", "me@h2", "[fe80::1%eth0]"]);
        assert_eq!(hosts[1].target.as_deref(), Some("/mnt/data"));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        std::fs::write(&file, "# a rack\nh1\nh2 /dev/sdb destroy=S3R1AL\n\n").unwrap();
        let hosts = Host::parse(file.to_str().unwrap()).unwrap();
        assert_eq!(hosts.len(), 2);
        assert_eq!(hosts[1].destroy.as_deref(), Some("S3R1AL"));
    }

    #[test]
    fn no_hosts_name_is_an_option_or_a_program() {
        for hostile in [
            "-oProxyCommand=touch /tmp/x",
            "--",
            "",
            "h1,,h2",
            "$(touch x)",
            "h;touch x",
            "h|x",
            "h`x`",
            "h'x",
            "h\nx",
            "h1[a*]",
            "h*",
            "h1 h2",
        ] {
            let e = Host::parse(hostile).unwrap_err();
            assert!(
                e.is_refusal() && e.to_string().contains("no name of a host"),
                "{e}"
            );
        }
        let said = Host::parse("a,b,a").unwrap_err().to_string();
        assert!(said.contains("a is named twice"), "{said}");
        assert!(
            Host::parse("a=")
                .unwrap_err()
                .to_string()
                .contains("a=TARGET")
        );
    }
}
