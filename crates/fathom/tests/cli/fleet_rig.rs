//! Hosts on one machine: with a network, a clock and an sshd of their own where privileges allow (`bench/hosts`), else
//! processes behind a stand-in for ssh.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Place, end, names, skip, until};

/// Names of all.
pub(crate) const HOSTS: &str = "h1,h2,h3,h4";

/// Seconds that each host's clock is ahead of the one before it.
pub(crate) const AHEAD: i64 = 1000;

/// A place to measure in, and hosts that all see it.
pub(crate) struct Rig {
    /// Ends before the place is removed.
    hosts: Option<SshHosts>,
    pub(crate) place: Place,
    /// What `--via` is given; `None` leaves it out: ssh.
    pub(crate) via: Option<String>,
}

impl Rig {
    /// Behind a stand-in for ssh: everything runs on this host.
    pub(crate) fn new() -> Self {
        let place = Place::new();
        let base = place.base().display().to_string();
        let script = format!("{base}/rig");
        // What it is given runs as it stands; a host may have a directory of its own.
        program(
            Path::new(&script),
            &format!(
                "host=$1; shift\ncd {base}/work || exit 1\n[ ! -d {base}/$host ] || cd {base}/$host\necho $$ > {base}/pid.$host\nexec \"$@\""
            ),
        );
        Self {
            hosts: None,
            via: Some(format!("{script} {{host}}")),
            place,
        }
    }

    /// Reached by ssh as fathom calls it; `None`, with the reason said, where this machine does not allow it.
    pub(crate) fn ssh() -> Option<Self> {
        let place = Place::new();
        let hosts = SshHosts::new(&place.base().join("hosts"))?;
        Some(Self {
            hosts: Some(hosts),
            via: None,
            place,
        })
    }

    /// The best that this machine allows.
    pub(crate) fn best() -> Self {
        Self::ssh().unwrap_or_else(Self::new)
    }

    /// The hosts behind their sshd.
    pub(crate) fn hosts(&self) -> Option<&SshHosts> {
        self.hosts.as_ref()
    }

    /// fathom as started where the hosts are reached.
    pub(crate) fn fathom(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        if let Some(hosts) = &self.hosts {
            hosts.enter(&mut command);
        }
        command
    }

    /// A line on `hosts`. An ssh session begins at home: `.` is the place there, too.
    pub(crate) fn command(&self, line: &str, hosts: &str) -> Command {
        let dir = self.place.dir.display().to_string();
        let word = |w| match w {
            "." if self.hosts.is_some() => dir.as_str(),
            other => other,
        };
        let mut args: Vec<&str> = line.split(' ').map(word).collect();
        args.extend(["--hosts", hosts]);
        args.extend(["--hosts-fathom", env!("CARGO_BIN_EXE_fathom")]);
        if let Some(via) = &self.via {
            args.extend(["--via", via]);
        }
        self.fathom(&args)
    }

    pub(crate) fn run(&self, line: &str, hosts: &str) -> Value {
        let said = end(self.command(line, hosts).spawn().unwrap()).expect(0);
        said.json()
    }

    /// The number of a host's agent.
    pub(crate) fn pid(&self, host: &str) -> u32 {
        if let Some(hosts) = &self.hosts {
            return hosts.pid(host, |line| line.ends_with(" guest-agent"));
        }
        let file = self.place.base().join(format!("pid.{host}"));
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    /// Waits until no file is left; names what is, with the marks.
    #[track_caller]
    pub(crate) fn emptied(&self, when: &str) {
        let begin = Instant::now();
        while !self.place.names().is_empty() {
            let left = self.place.names();
            let marks = Command::new("getfattr")
                .args(["-d", "-m", "-"])
                .args(&left)
                .current_dir(&self.place.dir)
                .output();
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "left {when}: {left:?}, {marks:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a long load and returns when it runs on all hosts.
    pub(crate) fn running(&self) -> Child {
        let load = "run . --rw randread --bs 4k --qd 4 --size 4m --time 40s --json";
        let child = self.command(load, HOSTS).spawn().unwrap();
        let files = || names(&self.place.dir);
        until("every host has its file", || files().len() == 4);
        // Filled, and under way: the threads of the load are there.
        let loads = |h: &str| {
            let tasks = format!("/proc/{}/task", self.pid(h));
            let read = |t: fs::DirEntry| fs::read_to_string(t.path().join("comm")).ok();
            let io = |name: String| name.starts_with("io");
            fs::read_dir(tasks).is_ok_and(|d| d.flatten().filter_map(read).any(io))
        };
        until("every host has its threads", || {
            ["h1", "h2", "h3", "h4"].iter().all(|h| loads(h))
        });
        std::thread::sleep(Duration::from_millis(1500));
        child
    }
}

/// `bench/hosts`: they end with this, and with this process.
pub(crate) struct SshHosts {
    keeper: Child,
    base: PathBuf,
}

impl SshHosts {
    fn new(base: &Path) -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/hosts");
        let mut keeper = Command::new(script)
            .arg(base)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let out = keeper.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut said).unwrap();
        if said.trim() == "ready" {
            let base = base.to_owned();
            return Some(Self { keeper, base });
        }
        let code = keeper.wait().unwrap().code();
        assert_eq!(code, Some(77), "bench/hosts: {said}");
        skip(&format!("hosts with an sshd of their own: {}", said.trim()));
        None
    }

    /// Has a command started in the network that reaches the hosts, with their ssh.
    pub(crate) fn enter(&self, command: &mut Command) {
        let network = fs::File::open(format!("/proc/{}/ns/net", self.keeper.id())).unwrap();
        let path = std::env::var("PATH").unwrap();
        command.env(
            "PATH",
            format!("{}:{path}", self.base.join("bin").display()),
        );
        let join = move || {
            // SAFETY: a system call with a descriptor that lives until it returns.
            match unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: between fork and exec one system call is made, nothing is allocated.
        unsafe { command.pre_exec(join) };
    }

    /// Runs a command in that network; returns what it said.
    #[track_caller]
    pub(crate) fn here(&self, words: &[&str]) -> String {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.enter(&mut command);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{words:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Runs a line of a shell on a host.
    #[track_caller]
    pub(crate) fn on(&self, host: &str, line: &str) -> String {
        self.here(&["ssh", host, line])
    }

    /// Files of a host's directory for temporary ones.
    pub(crate) fn temporary(&self, host: &str) -> Vec<String> {
        names(&self.base.join(format!("{host}.tmp")))
    }

    /// The configuration that its ssh reads.
    pub(crate) fn config(&self) -> String {
        self.base.join("ssh_config").display().to_string()
    }

    /// The number of the newest process of a host whose command line is so.
    #[track_caller]
    pub(crate) fn pid(&self, host: &str, is: impl Fn(&str) -> bool) -> u32 {
        let network = fs::read_to_string(self.base.join(format!("{host}.net"))).unwrap();
        let network = Path::new(network.trim());
        let found = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| {
            let own = fs::read_link(e.path().join("ns/net")).ok()?;
            let line = fs::read_to_string(e.path().join("cmdline")).ok()?;
            let line = line.trim_end_matches('\0').replace('\0', " ");
            let pid = e.file_name().to_str()?.parse::<u32>().ok()?;
            (own == network && is(&line)).then_some(pid)
        });
        let found = found.max();
        found.unwrap_or_else(|| panic!("no such process on {host}"))
    }
}

impl Drop for SshHosts {
    fn drop(&mut self) {
        // Everything of the hosts' goes with it.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Makes a program of a shell's text.
pub(crate) fn program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A flag of the first job.
pub(crate) fn flag<'a>(run: &'a Value, code: &str) -> Option<&'a Value> {
    let flags = run["jobs"][0]["flags"].as_array()?;
    flags.iter().find(|f| f["code"] == code)
}

pub(crate) fn sum(hosts: &[Value], what: &str) -> u64 {
    hosts.iter().map(|h| h[what].as_u64().unwrap()).sum()
}
