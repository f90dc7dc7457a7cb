//! Hosts behind a real sshd that cannot be used: one sentence that names the host, exit 2, and nothing left on any.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{beside_others, end, names, send, skip};
use crate::fleet_rig::{Rig, SshHosts, program};

const RUN: &str = "run . --rw randread --size 4m --time 100ms";

/// What a refused line said; nothing may be left of it.
#[track_caller]
fn refused(rig: &Rig, command: &mut Command) -> String {
    let said = end(command.spawn().unwrap()).refusal();
    assert_eq!(rig.place.names(), Vec::<String>::new(), "{said}");
    assert_eq!(names(&rig.place.runs()), Vec::<String>::new(), "{said}");
    for host in ["h1", "h2", "h3", "h4"] {
        let left = rig.hosts().unwrap().temporary(host);
        assert_eq!(left, Vec::<String>::new(), "on {host}: {said}");
    }
    println!("{said}");
    said
}

/// The host is named, and no other.
#[track_caller]
fn names_only(said: &str, host: &str, why: &str) {
    assert!(
        said.contains(&format!("{host}: ")) || said.contains(&format!("{host} ")),
        "{said}"
    );
    assert!(said.contains(why), "{why}: {said}");
    for other in ["h1", "h2", "h3", "h4"].iter().filter(|h| **h != host) {
        assert!(!said.contains(&format!("{other}: ")), "{said}");
    }
}

#[test]
fn hosts_that_ssh_does_not_reach_are_refused_by_name() {
    let _turn = beside_others();
    let Some(rig) = Rig::ssh() else { return };
    let hosts = rig.hosts().unwrap();
    let said = refused(&rig, &mut rig.command(RUN, "h1,h2,nowhere"));
    names_only(&said, "nowhere", "not resolve hostname");
    // The listener; a session would have another title.
    send(hosts.pid("h4", |l| l.contains("[listener]")), libc::SIGKILL);
    let said = refused(&rig, &mut rig.command(RUN, "h1,h2,h3,h4"));
    names_only(&said, "h4", "refused");
    hosts.here(&["ip", "link", "set", "v3", "down"]);
    let said = refused(&rig, &mut rig.command(RUN, "h1,h3"));
    names_only(&said, "h3", "ssh: connect to host");
    // A command of one's own, by which nobody is let in.
    let via = format!(
        "ssh -F {} -o PubkeyAuthentication=no -- {{host}}",
        hosts.config()
    );
    let mut line = rig.command(RUN, "h1");
    let said = refused(&rig, line.args(["--via", &via]));
    names_only(&said, "h1", "Permission denied");
}

/// Binds what a shell's text makes over a program, on one host only.
fn instead(hosts: &SshHosts, host: &str, path: &str, file: &Path) {
    hosts.on(host, &format!("mount --bind {} {path}", file.display()));
}

#[test]
fn a_host_with_another_fathom_is_refused_by_name() {
    let _turn = beside_others();
    let Some(rig) = Rig::ssh() else { return };
    let hosts = rig.hosts().unwrap();
    let fathom = env!("CARGO_BIN_EXE_fathom");
    let copy = rig.place.base().join("fathom");
    let fake = rig.place.base().join("fake");
    fs::copy(fathom, &copy).unwrap();
    let theirs = copy.to_str().unwrap();
    let with = |theirs: &str, on: &str| {
        let mut args: Vec<String> = RUN.split(' ').map(str::to_owned).collect();
        args[1] = rig.place.dir.display().to_string();
        args.extend(["--hosts", on, "--hosts-fathom", theirs].map(str::to_owned));
        rig.fathom(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // The same, but for what it says of its version.
    let version = env!("CARGO_PKG_VERSION");
    let other = "9".repeat(version.len());
    program(
        &fake,
        &format!(
            "{fathom} \"$@\" | perl -e '$|=1; while (sysread STDIN, $b, 65536) {{ $b =~ s/\"fathom\":\"{version}\"/\"fathom\":\"{other}\"/; print $b }}'"
        ),
    );
    instead(hosts, "h2", theirs, &fake);
    let said = refused(&rig, &mut with(theirs, "h1,h2,h3"));
    names_only(&said, "h2", &format!("has fathom {other}"));
    // A binary for another processor: an ELF header and no more.
    let elf = rig.place.base().join("elf");
    let mut header = fs::read(fathom).unwrap()[..64].to_vec();
    header[18..20].copy_from_slice(&243u16.to_le_bytes());
    fs::write(&elf, header).unwrap();
    fs::set_permissions(&elf, fs::metadata(&fake).unwrap().permissions()).unwrap();
    instead(hosts, "h3", theirs, &elf);
    let said = refused(&rig, &mut with(theirs, "h1,h3"));
    names_only(&said, "h3", "Exec format error");
    // It is on no host.
    let said = refused(&rig, &mut with("/opt/no/fathom", "h1"));
    names_only(&said, "h1", "/opt/no/fathom");
}

#[test]
fn a_host_without_space_is_refused_by_name() {
    let _turn = beside_others();
    let Some(rig) = Rig::ssh() else { return };
    let hosts = rig.hosts().unwrap();
    let small = rig.place.base().join("small");
    fs::create_dir(&small).unwrap();
    let place = small.display();
    hosts.on("h2", &format!("mount -t tmpfs -o size=2m small {place}"));
    let on = format!("h1,h2={place},h3");
    let said = refused(&rig, &mut rig.command(RUN, &on));
    names_only(&said, "h2", "has room for");
    assert_eq!(hosts.on("h2", &format!("ls -A {place}")), "");
}

/// Without `--hosts-fathom` the static binary is carried there, and its file is gone as soon as it runs.
#[test]
fn the_static_binary_is_carried_to_hosts() {
    let _turn = beside_others();
    let Some(fathom) = statically_linked() else {
        return skip(
            "no static build here: cargo build -p fathom --target x86_64-unknown-linux-musl",
        );
    };
    let Some(rig) = Rig::ssh() else { return };
    let hosts = rig.hosts().unwrap();
    let dir = rig.place.dir.display().to_string();
    let carried = |on: &str| {
        let mut command = Command::new(&fathom);
        command
            .args(RUN.split(' ').map(|w| if w == "." { &dir } else { w }))
            .args(["--json", "--hosts", on, "--out"])
            .arg(rig.place.runs())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        hosts.enter(&mut command);
        command
    };
    let run = end(carried("h1,h2").spawn().unwrap()).expect(0).json();
    assert_eq!(run["jobs"][0]["hosts"].as_array().unwrap().len(), 2);
    let left = |host| (rig.place.names(), hosts.temporary(host));
    assert_eq!(
        [left("h1"), left("h2")],
        [(vec![], vec![]), (vec![], vec![])]
    );
    fs::remove_dir_all(rig.place.runs()).unwrap();
    // Where it cannot run it is not put, and where it was put it is removed.
    let uname = rig.place.base().join("uname");
    program(&uname, "echo riscv64");
    instead(hosts, "h2", "/usr/bin/uname", &uname);
    let said = refused(&rig, &mut carried("h1,h2,h3"));
    names_only(&said, "h2", "its processors are riscv64");
    hosts.on("h3", "mount -t tmpfs -o size=1m small $TMPDIR");
    let said = refused(&rig, &mut carried("h1,h3"));
    names_only(&said, "h3", "No space left");
    assert_eq!(hosts.on("h3", "ls -A $TMPDIR"), "");
}

/// The binary that `./test` or a user built without libraries.
fn statically_linked() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let kinds = ["debug", "release"].map(|kind| {
        let target = target.join("x86_64-unknown-linux-musl");
        target.join(kind).join("fathom")
    });
    kinds.into_iter().find(|f| f.is_file())
}
