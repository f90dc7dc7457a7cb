//! Files of several hosts: what they see of each other's work, and how many they make per second.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;

use crate::common::{Place, beside_others, codes, end, names, send, skip, until};

/// Hosts that are processes of this machine.
const VIA: &str = "env FATHOM_HOST={host}";

fn start(place: &Place, line: &str, hosts: &str) -> Child {
    let mut args: Vec<&str> = line.split(' ').collect();
    let fathom = env!("CARGO_BIN_EXE_fathom");
    args.extend(["--hosts", hosts, "--via", VIA, "--hosts-fathom", fathom]);
    place.command(&args).spawn().unwrap()
}

fn run(place: &Place, line: &str, hosts: &str) -> Value {
    end(start(place, line, hosts)).expect(0).json()
}

/// By check: its verdict.
fn verdicts(run: &Value) -> Vec<(String, String)> {
    let sections = run["sections"].as_array().unwrap();
    let rows = sections
        .iter()
        .flat_map(|s| s["tables"][0]["rows"].as_array().unwrap());
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    rows.map(|r| (text(&r[0]), text(&r[1]))).collect()
}

fn result<'a>(run: &'a Value, experiment: &str) -> &'a Value {
    let all = run["results"].as_array().unwrap();
    let found = all.iter().find(|r| r["experiment"] == experiment);
    &found.unwrap_or_else(|| panic!("{all:?}"))["data"]
}

/// On one machine's file system everything is seen at once, and locks hold.
#[test]
fn hosts_of_one_kernel_are_coherent() {
    let _turn = beside_others();
    let place = Place::new();
    let run = run(
        &place,
        "coherence . --rounds 3 --wait 20s --json",
        "h1,h2,h3",
    );
    for (check, verdict) in verdicts(&run) {
        // Some file systems refuse direct reads.
        let possible = verdict == "coherent at once" || verdict.starts_with("not possible");
        assert!(possible, "{check}: {verdict}");
    }
    assert_eq!(run["jobs"].as_array().unwrap().len(), 18);
    let checks = result(&run, "coherence")["checks"].as_array().unwrap();
    let of = |name: &str| {
        let found = checks.iter().find(|c| c["check"] == name).unwrap();
        found["observations"].as_array().unwrap()
    };
    // Two look at data, one asks for a lock.
    assert_eq!((of("reopened").len(), of("ofd-killed").len()), (6, 3));
    let findings = run["findings"].as_array().unwrap();
    assert!(findings.iter().all(|f| f["advice"] == ""), "{findings:?}");
    assert_eq!(place.names(), Vec::<String>::new());
}

/// A directory by two sshfs clients, each with a cache of its own, whose server is a program on this machine.
struct Clients {
    place: Place,
    mounts: [PathBuf; 2],
}

impl Clients {
    /// `None` where there are no such clients.
    fn new() -> Option<Self> {
        let server = "/usr/lib/openssh/sftp-server";
        let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !has("sshfs") || !PathBuf::from(server).exists() {
            skip("sshfs or sftp-server is not installed");
            return None;
        }
        let place = Place::new();
        let base = place.dir.parent().unwrap().to_owned();
        let script = base.join("connect");
        fs::write(&script, format!("#!/bin/sh\nexec {server}\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mounts = ["m1", "m2"].map(|m| base.join(m));
        let clients = Self { place, mounts };
        for mount in &clients.mounts {
            fs::create_dir(mount).unwrap();
            let mounted = Command::new("sshfs")
                .arg(format!("here:{}", clients.place.dir.display()))
                .arg(mount)
                // Names and attributes are kept for longer than anybody looks.
                .args([
                    "-o",
                    "dcache_timeout=60,entry_timeout=60,attr_timeout=60,negative_timeout=60",
                ])
                .arg("-o")
                .arg(format!("ssh_command={}", script.display()))
                .output()
                .unwrap();
            if !mounted.status.success() {
                let said = String::from_utf8_lossy(&mounted.stderr).into_owned();
                skip(&format!("sshfs cannot be mounted here: {}", said.trim()));
                return None;
            }
        }
        Some(clients)
    }

    fn hosts(&self) -> String {
        let [a, b] = self.mounts.each_ref().map(|m| m.display().to_string());
        format!("h1={a},h2={b}")
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for mount in &self.mounts {
            let _ = Command::new("umount").arg("-l").arg(mount).output();
        }
    }
}

/// Two clients that keep what they saw, and pass no locks on: found, said, and no failure.
#[test]
fn clients_that_keep_old_data_and_locks_to_themselves_are_found() {
    let _turn = beside_others();
    let Some(clients) = Clients::new() else {
        return;
    };
    let line = "coherence . --rounds 2 --wait 300ms --json";
    let run = run(&clients.place, line, &clients.hosts());
    let checks = result(&run, "coherence")["checks"].as_array().unwrap();
    let of = |name: &str| {
        let found = checks.iter().find(|c| c["check"] == name).unwrap();
        found["observations"].as_array().unwrap().clone()
    };
    for lock in ["flock", "posix", "ofd"] {
        let twice = |o: &Value| o["given_twice"] == true;
        assert!(of(lock).iter().all(twice), "{lock}: {:?}", of(lock));
    }
    // The first look at a new name is kept: it is not there for as long as anybody looks.
    assert!(
        of("created").iter().all(|o| o["seen_ns"].is_null()),
        "{:?}",
        of("created")
    );
    assert!(
        of("size").iter().any(|o| o["seen_ns"].is_null()),
        "{:?}",
        of("size")
    );
    let findings = run["findings"].as_array().unwrap();
    let with = |id: &str| {
        let found = findings.iter().find(|f| f["id"] == id);
        found.unwrap_or_else(|| panic!("{findings:?}")).clone()
    };
    let locks = with("coherence-flock");
    assert!(
        locks["advice"]
            .as_str()
            .unwrap()
            .contains("sshfs passes none on"),
        "{locks}"
    );
    let names = with("coherence-created");
    assert!(
        names["advice"]
            .as_str()
            .unwrap()
            .contains("entry_timeout=0"),
        "{names}"
    );
    assert_eq!(
        run["flags"].as_array().unwrap().len(),
        0,
        "{}",
        run["flags"]
    );
    assert_eq!(clients.place.names(), Vec::<String>::new());
}

#[test]
fn metadata_of_all_hosts_is_that_of_the_time_in_which_all_worked() {
    let _turn = beside_others();
    let place = Place::new();
    // As many files as the time allows, so that all are at work in all of it.
    let line = "metadata . --files 1000000 --threads 1 --time 300ms --repeats 2 --only easy --json";
    let run = run(&place, line, "h1,h2");
    let jobs = run["jobs"].as_array().unwrap();
    let of = |name: &str| jobs.iter().find(|j| j["name"] == name).unwrap();
    for name in ["easy-create.1", "easy-create.2", "easy-list.1"] {
        let job = of(name);
        let hosts = job["hosts"].as_array().unwrap();
        let direction = &job[if name.contains("list") {
            "read"
        } else {
            "write"
        }];
        let sum: u64 = hosts.iter().map(|h| h["ios"].as_u64().unwrap()).sum();
        assert_eq!(
            (hosts.len(), Some(sum)),
            (2, direction["ios"].as_u64()),
            "{job}"
        );
        assert_eq!(job["wall_ns"], 300_000_000u64, "{job}");
        assert_eq!(direction["response_ns"]["samples"].as_u64(), Some(sum));
        assert!(hosts.iter().all(|h| h["clock_bound_ns"].as_u64() > Some(0)));
        assert!(!codes(&job["flags"]).contains(&"interrupted".to_owned()));
    }
    // Each lists what the other has made.
    let made = of("easy-create.1")["spec"]["counted"].as_array().unwrap();
    let listed = of("easy-list.1")["spec"]["counted"].as_array().unwrap();
    assert_eq!((&made[0], &made[1]), (&listed[1], &listed[0]));
    let columns = run["sections"][0]["tables"][1]["rows"].as_array().unwrap();
    assert_eq!(columns.len(), 2, "a row for each host");
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn metadata_of_this_host_alone_needs_no_hosts() {
    let _turn = beside_others();
    let place = Place::new();
    let line = "metadata . --files 3000 --time 2s --repeats 1 --json";
    let args: Vec<&str> = line.split(' ').collect();
    let run = place.fathom(&args).expect(0).json();
    let jobs = run["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 11);
    for job in jobs {
        assert_eq!(job["hosts"].as_array().unwrap().len(), 1, "{job}");
        assert_eq!(job["errors"].as_array().map(Vec::len), Some(0), "{job}");
    }
    let read = jobs.iter().find(|j| j["name"] == "hard-read.1").unwrap();
    let (ios, bytes) = (&read["read"]["ios"], &read["read"]["bytes"]);
    assert_eq!(bytes.as_u64(), ios.as_u64().map(|n| n * 3901), "{read}");
    assert_eq!(place.names(), Vec::<String>::new());
}

/// Refused in a sentence, with nothing made.
#[test]
fn what_has_no_files_or_no_second_host_is_refused() {
    let _turn = beside_others();
    let place = Place::new();
    let file = place.dir.parent().unwrap().join("file");
    fs::write(&file, "x").unwrap();
    for (line, why) in [
        ("coherence . --rounds 1", "name at least 2"),
        ("coherence sim:optane-900p --hosts 3", "no file system"),
        ("metadata sim:optane-900p", "no file system"),
        ("metadata ../file", "is no directory"),
        ("metadata . --size 1g", "--size"),
        ("metadata . --bytes 1g", "--bytes"),
        ("metadata . --files 0", "0"),
        ("coherence . --wait 1ms --hosts h1,h2", "--wait"),
        ("metadata . --hosts h1,h2 --layout shared", "--layout"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let said = place.fathom(&args).expect(2);
        assert!(said.stderr.contains(why), "{line}: {}", said.stderr);
        assert_eq!(place.names(), Vec::<String>::new(), "{line}");
        assert_eq!(names(&place.runs()), Vec::<String>::new(), "{line}");
    }
    // Each with a directory of its own: nothing could be seen of another host.
    let base = place.dir.parent().unwrap();
    for dir in ["a", "b"] {
        fs::create_dir(base.join(dir)).unwrap();
    }
    let hosts = format!("h1={0}/a,h2={0}/b", base.display());
    let said = end(start(&place, "coherence .", &hosts)).refusal();
    assert!(said.contains("a directory of its own"), "{said}");
    for dir in ["a", "b"] {
        until("nothing is left", || names(&base.join(dir)).is_empty());
    }
}

/// A killed host voids the run and is named; what it made is found by `clean`.
#[test]
fn a_host_that_is_killed_voids_the_run_and_clean_finds_its_files() {
    let _turn = beside_others();
    let place = Place::new();
    let line = "metadata . --files 1000000 --time 30s --repeats 1 --json";
    let child = start(&place, line, "h1,h2");
    let lab = || {
        let found = place.names();
        found.into_iter().find(|n| n.starts_with(".fathom-lab-"))
    };
    until("files are made", || {
        let dir = lab().map(|l| place.dir.join(l).join("host-0"));
        dir.is_some_and(|d| names(&d).len() > 100)
    });
    // The first host made the directory: its process stands in the name.
    let name = lab().unwrap();
    let pid: u32 = name.split('-').nth(2).unwrap().parse().unwrap();
    send(pid, libc::SIGKILL);
    let said = end(child).expect(1);
    let run = said.json();
    let flags = run["flags"].as_array().unwrap();
    let lost = flags.iter().find(|f| f["code"] == "host-lost").unwrap();
    assert!(
        lost["detail"].as_str().unwrap().starts_with("h1: "),
        "{lost}"
    );
    assert!(lost["remedy"].as_str().unwrap().contains(&name), "{lost}");
    std::thread::sleep(Duration::from_millis(100));
    let said = place.fathom(&["clean"]).expect(0);
    assert!(said.stdout.contains(&name), "{}", said.stdout);
    until("all is gone", || place.names().is_empty());
}
