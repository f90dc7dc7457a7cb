//! `--client`: the jobs on several hosts, each a process of its own, and one output of all; beside fio's server and client.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::common::{document, fathom, fio, names, number, scratch, skip};

/// What starts a process on a host here.
const VIA: &str = "--client-via=env HOST={host}";

fn own() -> String {
    format!("--client-fathom={}", env!("CARGO_BIN_EXE_fathom"))
}

#[test]
fn jobs_of_all_clients_are_shown_and_summed() {
    let dir = scratch();
    std::fs::write(
        dir.path().join("a.fio"),
        "[a]\nrw=randrw\nsize=2m\n[b]\nrw=randread\nsize=1m\n",
    )
    .unwrap();
    let place = format!("--directory={}", dir.path().display());
    let fathoms = own();
    let args = [
        "--client=h1,h2",
        VIA,
        &fathoms,
        &place,
        "a.fio",
        "--output-format=json",
    ];
    let out = fathom(dir.path(), &args);
    assert!(out.status.success(), "{out:?}");
    let ours = document(&out);
    let stats = ours["client_stats"].as_array().unwrap().clone();
    let hosts: Vec<&str> = stats
        .iter()
        .map(|j| j["hostname"].as_str().unwrap())
        .collect();
    assert_eq!(hosts, ["h1", "h1", "h2", "h2", ""]);
    let all = &stats[4];
    assert_eq!(all["jobname"], "All clients");
    for d in ["read", "write"] {
        for field in ["total_ios", "io_bytes"] {
            let sum: f64 = stats[..4].iter().map(|j| number(&j[d][field])).sum();
            assert_eq!(number(&all[d][field]), sum, "{d} {field}");
        }
        let most = stats[..4]
            .iter()
            .map(|j| number(&j[d]["clat_ns"]["max"]))
            .fold(0.0, f64::max);
        assert_eq!(number(&all[d]["clat_ns"]["max"]), most);
    }
    // Hosts that share a directory have files of their own.
    let files = names(dir.path());
    assert_eq!(
        files,
        ["a.fio", "h1.a.0.0", "h1.b.0.0", "h2.a.0.0", "h2.b.0.0"]
    );
    let shared = [
        "--client=h1",
        VIA,
        &fathoms,
        &place,
        "--name=s",
        "--size=64k",
        "--unique_filename=0",
    ];
    assert!(fathom(dir.path(), &shared).status.success());
    assert!(names(dir.path()).contains(&"s.0.0".to_owned()));
    // fio's own form.
    let port = 30_000 + std::process::id() % 2_700;
    let at = format!("127.0.0.1,{port}");
    let other = scratch();
    let Ok(mut server) = Command::new("fio")
        .arg(format!("--server={at}"))
        .current_dir(other.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
    else {
        return skip("jobs_of_all_clients_are_shown_and_summed");
    };
    std::fs::copy(dir.path().join("a.fio"), other.path().join("a.fio")).unwrap();
    let client = format!("--client={at}");
    let mut theirs = None;
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(100));
        let out = fio(
            other.path(),
            &[&client, "a.fio", &client, "a.fio", "--output-format=json"],
        )
        .unwrap();
        if String::from_utf8_lossy(&out.stdout).contains("client_stats") {
            theirs = Some(document(&out));
            break;
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    let Some(theirs) = theirs else {
        println!("SKIP jobs_of_all_clients_are_shown_and_summed: fio's server did not answer");
        return;
    };
    let keys = |v: &Value| -> Vec<String> { v.as_object().unwrap().keys().cloned().collect() };
    for key in keys(&theirs) {
        assert!(!ours[&key].is_null() || key == "global options", "{key}");
    }
    let last = |v: &Value| {
        v["client_stats"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone()
    };
    let (mine, fios) = (last(&ours), last(&theirs));
    for key in keys(&fios) {
        assert!(!mine[&key].is_null(), "{key}");
    }
    for key in keys(&fios["read"]) {
        assert!(!mine["read"][&key].is_null(), "read {key}");
    }
}

#[test]
fn each_client_has_its_own_jobs_and_people_see_whose_line_it_is() {
    let dir = scratch();
    let fathoms = own();
    let args = [
        VIA,
        &fathoms,
        "--bs=8k",
        "--client=h1",
        "--name=x",
        "--rw=read",
        "--size=1m",
        "--client=h2",
        "--name=y",
        "--rw=write",
        "--size=512k",
    ];
    let out = fathom(dir.path(), &args);
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        text.contains("<h1> x: (groupid=0") && text.contains("<h2> y: (groupid=0"),
        "{text}"
    );
    assert!(!text.contains("<h1> y"), "{text}");
    let all = text.split("All clients").nth(1).unwrap();
    assert!(
        all.contains("read: IOPS=") && all.contains("write: IOPS="),
        "{all}"
    );
}

#[test]
fn a_client_that_does_not_answer_is_named_and_nothing_is_summed() {
    let dir = scratch();
    let lost = dir.path().join("via");
    std::fs::write(&lost, "h=$1; shift; [ $h = h2 ] && exit 7; exec \"$@\"\n").unwrap();
    let via = format!("--client-via=sh {} {{host}}", lost.display());
    let fathoms = own();
    let args = [
        "--client=h1,h2",
        &via,
        &fathoms,
        "--name=a",
        "--size=64k",
        "--output-format=json",
    ];
    let out = fathom(dir.path(), &args);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        said.contains("client h2") && said.contains("no sum"),
        "{said}"
    );
    let jobs = document(&out)["client_stats"].as_array().unwrap().clone();
    assert_eq!(jobs.len(), 1, "only that of h1");
    // Errors of jobs are the run's.
    let args = [
        "--client=h1",
        VIA,
        &fathoms,
        "--name=a",
        "--size=64k",
        "--allow_file_create=0",
        "--filename=none",
    ];
    assert_ne!(fathom(dir.path(), &args).status.code(), Some(0));
    // A job that fio would not take is refused before a host is reached.
    let args = [
        "--client=h1",
        "--client-via=false {host}",
        &fathoms,
        "--name=a",
        "--rw=sideways",
    ];
    let out = fathom(dir.path(), &args);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("sideways"),
        "{out:?}"
    );
}

#[test]
fn a_trigger_ends_the_jobs_of_all_clients_and_runs_a_command_there_and_here() {
    let dir = scratch();
    let args = [
        "--client=h1,h2",
        VIA,
        &own(),
        "--trigger-timeout=5",
        "--trigger=echo here > here",
        "--trigger-remote=echo $HOST > at-$HOST",
        "--name=a",
        "--size=1m",
        "--time_based",
        "--runtime=60",
        "--directory=.",
        "--output-format=json",
    ];
    let began = std::time::Instant::now();
    let out = fathom(dir.path(), &args);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert!(began.elapsed() < Duration::from_secs(30));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    assert_eq!(read("here"), "here\n", "{out:?}");
    assert_eq!([read("at-h1"), read("at-h2")], ["h1\n", "h2\n"], "{out:?}");
    let jobs = document(&out)["client_stats"].as_array().unwrap().clone();
    assert!(number(&jobs[2]["read"]["total_ios"]) > 0.0);
    // Alone it has no host to run on.
    let alone = [
        "--name=a",
        "--size=4k",
        "--rw=read",
        "--trigger-remote=true",
    ];
    let out = fathom(dir.path(), &alone);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
}

#[test]
fn a_signal_ends_the_jobs_of_all_clients() {
    let dir = scratch();
    let mark = dir.path().join("mark").display().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .args([
            "fio",
            "--client=h1,h2",
            VIA,
            &own(),
            "--name=a",
            "--size=1m",
        ])
        .args(["--time_based", "--runtime=60", "--output-format=json"])
        // Hosts that share a directory have files of their own there.
        .arg("--directory=.")
        .arg(format!("--description={mark}"))
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let began = std::time::Instant::now();
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(128), "{out:?}");
    assert!(began.elapsed() < Duration::from_secs(20));
    let jobs = document(&out)["client_stats"].as_array().unwrap().clone();
    assert_eq!(jobs.len(), 3);
    assert!(number(&jobs[2]["read"]["total_ios"]) > 0.0);
}
