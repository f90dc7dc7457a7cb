//! What reaches a host: one process of people's own launcher per host, whose standard input and output are the channel.

use super::hosts::{check, refused};
use crate::SystemError;

/// A launcher, and how a command line of it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    /// Program and arguments; `{host}` stands for the host.
    words: Vec<String>,
    /// The far side joins the words and gives them to a shell, as sshd does.
    joins: bool,
}

/// Launchers by name. ssh notices a cut network after six seconds; srun's steps share the allocation, and their output is
/// not kept back.
const KNOWN: [(&str, &str); 4] = [
    (
        "ssh",
        "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=2 -o ServerAliveCountMax=3 -- {host}",
    ),
    ("srun", "srun --overlap -N1 -n1 -u -Q -w {host}"),
    ("kubectl", "kubectl exec -i {host} --"),
    ("mpirun", "mpirun -np 1 --host {host}"),
];

impl Via {
    /// A launcher by its name, or `PROGRAM … {host} …`. Words are separated by blanks; quotes keep them together.
    ///
    /// # Errors
    /// Where no word stands for the host, or a quote does not end.
    pub fn parse(text: &str) -> Result<Self, SystemError> {
        let known = KNOWN.iter().find(|(name, _)| *name == text.trim());
        let words = split(known.map_or(text, |(_, words)| words))?;
        let Some(program) = words.first().filter(|p| !p.contains("{host}")) else {
            return Err(wrong(text, "it names no program"));
        };
        if !words.iter().any(|w| w.contains("{host}")) {
            return Err(wrong(text, "no word of it stands for the host"));
        }
        let joins = program.rsplit('/').next() == Some("ssh");
        Ok(Self { words, joins })
    }

    /// The command line that runs `command` on a host.
    ///
    /// # Errors
    /// Where the host's name could be anything else than a name.
    pub fn command(&self, host: &str, command: &[String]) -> Result<Vec<String>, SystemError> {
        check("host", host, "user@name, an address, a pod")?;
        let mut all: Vec<String> = self
            .words
            .iter()
            .map(|w| w.replace("{host}", host))
            .collect();
        if self.joins {
            all.push(
                command
                    .iter()
                    .map(|w| quoted(w))
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        } else {
            all.extend(command.iter().cloned());
        }
        Ok(all)
    }
}

/// As one word of a shell's.
fn quoted(word: &str) -> String {
    if super::hosts::is_plain(word) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Words with quotes around some.
fn split(text: &str) -> Result<Vec<String>, SystemError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(q) = quote {
        return Err(wrong(text, &format!("a {q} does not end")));
    }
    words.extend(word);
    Ok(words)
}

fn wrong(text: &str, why: &str) -> SystemError {
    let SystemError::Refused(sentence) = refused(format!(
        "'{text}': {why}: expected ssh, srun, kubectl, mpirun or 'PROGRAM … {{host}} …'"
    )) else {
        return SystemError::Refused(why.to_owned());
    };
    SystemError::Refused(sentence.replacen("--hosts", "--via", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(via: &str, host: &str, words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        Via::parse(via).unwrap().command(host, &words).unwrap()
    }

    #[test]
    fn each_launcher_gets_the_host_where_it_looks_for_it() {
        let ssh = line("ssh", "me@h1", &["/opt/fathom", "guest-agent"]);
        assert_eq!(
            ssh[ssh.len() - 3..],
            ["--", "me@h1", "/opt/fathom guest-agent"]
        );
        let ssh = line(
            "/usr/bin/ssh -p 22 -- {host}",
            "h",
            &["sh", "-c", "echo 'a b'"],
        );
        assert_eq!(ssh.last().unwrap(), r"sh '-c' 'echo '\''a b'\'''");
        let srun = line("srun", "n1", &["fathom", "guest-agent"]);
        assert_eq!(
            srun[srun.len() - 4..],
            ["-w", "n1", "fathom", "guest-agent"]
        );
        let own = line("sh -c 'exec \"$@\"' {host}", "h", &["fathom"]);
        assert_eq!(own, ["sh", "-c", "exec \"$@\"", "h", "fathom"]);
        assert_eq!(line("env HOST={host}", "h", &["f"]), ["env", "HOST=h", "f"]);
    }

    #[test]
    fn what_names_no_host_or_no_program_is_refused() {
        for (text, why) in [
            ("", "names no program"),
            ("{host}", "names no program"),
            ("rsh h1", "stands for the host"),
            ("sh -c 'x {host}", "does not end"),
        ] {
            let said = Via::parse(text).unwrap_err().to_string();
            assert!(said.starts_with("--via") && said.contains(why), "{said}");
        }
        let via = Via::parse("ssh").unwrap();
        assert!(via.command("-oProxyCommand=x", &[]).is_err());
        assert!(via.command("$(x)", &[]).is_err());
    }
}
