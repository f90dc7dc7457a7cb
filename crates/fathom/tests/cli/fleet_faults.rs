//! What stands behind a fleet's numbers: clocks, one start, exact sums, and what becomes of a host that is lost.
//! By real ssh where this machine allows hosts of their own.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{beside_others, codes, end, names, scratch, send, skip, until};
use crate::fleet_rig::{AHEAD, HOSTS, Rig, SshHosts, flag, sum};

/// A run whose hosts began together: on a busy machine one that did not is said to be void, and is asked for again.
fn in_step(rig: &Rig, line: &str) -> Value {
    let mut job = Value::Null;
    for _ in 0..5 {
        let run = rig.run(line, HOSTS);
        let jobs = run["jobs"].as_array().unwrap();
        job = jobs
            .iter()
            .find(|j| j["name"] != "prepare")
            .unwrap()
            .clone();
        job["known"] = run["environment"]["hosts"].clone();
        if !codes(&job["flags"]).contains(&"out-of-step".to_owned()) {
            return job;
        }
    }
    panic!("never in step: {}", job["flags"]);
}

/// Ends a load whose third host is lost; returns what is said of that. The others are not waited for.
#[track_caller]
fn lost(child: Child, why: &str) -> Value {
    let began = Instant::now();
    let said = end(child).expect(1);
    let took = began.elapsed();
    println!("void after {took:?}: {why}");
    // The load would go on for longer than half a minute.
    assert!(took < Duration::from_secs(25), "{took:?}");
    let run = said.json();
    let lost = flag(&run, "host-lost").unwrap_or_else(|| panic!("{}", run["jobs"][0]["flags"]));
    assert_eq!(lost["void"], true);
    let detail = lost["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("h3: ") && detail.contains(why),
        "{detail}"
    );
    let remedy = lost["remedy"].as_str().unwrap();
    assert!(
        remedy.contains(".fathom-scratch-") && remedy.contains(" on h3"),
        "what it may have left is named: {lost}"
    );
    lost.clone()
}

/// A host that is killed, or stands still: the point is void, the host is named, the others end at once.
#[test]
fn a_lost_host_voids_the_point_and_ends_the_others() {
    let _turn = beside_others();
    let rig = Rig::best();
    for (signal, why) in [
        (libc::SIGKILL, "h3"),
        (libc::SIGSTOP, "stands still"),
        (libc::SIGTERM, "ended there"),
    ] {
        let child = rig.running();
        let agent = rig.pid("h3");
        send(agent, signal);
        let lost = lost(child, why);
        if signal == libc::SIGSTOP {
            send(agent, libc::SIGCONT);
        }
        let mut cleaned = String::new();
        if signal == libc::SIGKILL {
            // What it cannot remove any more is found.
            let file = scratch(&rig.place.dir).expect("the killed host's file");
            assert!(lost["remedy"].as_str().unwrap().contains(&file), "{lost}");
            cleaned = rig.place.fathom(&["clean"]).expect(0).stdout;
        }
        rig.emptied(&format!("after signal {signal}; clean: {cleaned}"));
    }
}

/// What carries the channel is lost: ssh here, sshd there, or the network between them. An agent that nobody reaches ends by
/// its lease, and removes its file.
#[test]
fn a_connection_that_is_lost_voids_the_point_and_leaves_nothing() {
    let _turn = beside_others();
    let Some(rig) = Rig::ssh() else { return };
    let hosts = rig.hosts().unwrap();
    let session = |line: &str| line.starts_with("sshd: root@notty");
    type Fault<'a> = &'a dyn Fn(&SshHosts, u32);
    let faults: [(&str, &str, Fault<'_>); 3] = [
        ("ssh is killed", "h3", &|_, controller| {
            send(ssh_to("h3", controller), libc::SIGKILL);
        }),
        ("sshd is paused", "stands still", &|hosts, _| {
            send(hosts.pid("h3", session), libc::SIGSTOP);
        }),
        ("the link is cut", "network is cut", &|hosts, _| {
            hosts.here(&["ip", "link", "set", "v3", "down"]);
        }),
    ];
    for (what, why, make) in faults {
        let child = rig.running();
        let agent = rig.pid("h3");
        make(hosts, child.id());
        let began = Instant::now();
        lost(child, why);
        rig.emptied(what);
        until("its agent has ended", || !lives(agent));
        println!("{what}: nothing is left after {:?}", began.elapsed());
        // What was paused or is behind a dead connection is no host for the next one.
        hosts.here(&["ip", "link", "set", "v3", "up"]);
    }
}

/// The ssh that a controller has to a host.
fn ssh_to(host: &str, controller: u32) -> u32 {
    let children = format!("/proc/{controller}/task/*/children");
    let found = std::process::Command::new("sh")
        .args(["-c", &format!("cat {children}")])
        .output()
        .unwrap();
    let children = String::from_utf8(found.stdout).unwrap();
    let is = |pid: &&str| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains(&format!("\0{host}\0"))
    };
    let mut children = children.split_whitespace();
    children.find(is).unwrap().parse().unwrap()
}

/// One whose parent stands still ends, and stays in the list.
fn lives(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}/exe"))
        .read_link()
        .is_ok()
}

#[test]
fn agents_whose_controller_is_killed_end_and_clean_up() {
    let _turn = beside_others();
    let rig = Rig::best();
    let mut child = rig.running();
    let agents: Vec<u32> = ["h1", "h2", "h3", "h4"].map(|h| rig.pid(h)).to_vec();
    let began = Instant::now();
    send(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    until("their files are gone", || rig.place.names().is_empty());
    until("they are gone", || !agents.iter().any(|a| lives(*a)));
    println!("gone after {:?}", began.elapsed());
}

/// Histograms of hosts are merged: percentiles are those of all I/Os, to the end of the bucket that holds them.
#[test]
fn percentiles_of_a_fleet_are_those_of_all_records() {
    let _turn = beside_others();
    let rig = Rig::best();
    let run = rig.run(
        "run . --rw randread --bs 4k --qd 2 --size 8m --time 1s --rate 4000 --record --json",
        HOSTS,
    );
    let job = run["jobs"].as_array().unwrap().last().unwrap();
    let below = |dir: PathBuf| {
        let names = names(&dir);
        dir.join(names.iter().find(|n| n.contains('=')).unwrap())
    };
    let fleet = below(PathBuf::from(run["run_directory"].as_str().unwrap()));
    let mut all = Vec::new();
    for host in job["hosts"].as_array().unwrap() {
        let own = below(fleet.join(format!("host={}", host["host"].as_str().unwrap())));
        let ask = format!(
            "SELECT service_ns FROM io WHERE completed_ns < {}",
            job["wall_ns"]
        );
        let rows = rig
            .place
            .fathom(&["query", own.to_str().unwrap(), &ask, "--json"]);
        let rows = rows.expect(0).json();
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len() as u64, host["ios"].as_u64().unwrap(), "{host}");
        all.extend(rows.iter().map(|r| r["service_ns"].as_u64().unwrap()));
    }
    all.sort_unstable();
    let service = &job["read"]["service_ns"];
    let most = *all.last().unwrap();
    assert_eq!(service["samples"], all.len());
    assert_eq!(
        (&service["min"], &service["max"]),
        (&all[0].into(), &most.into())
    );
    let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
    assert!((service["mean"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        let exact = all[(share * all.len() as f64).ceil() as usize - 1];
        // A doubling has 128 buckets.
        let bucket = (1u64 << exact.ilog2().saturating_sub(7)) - 1;
        assert_eq!(service[name], (exact | bucket).min(most), "{name}: {exact}");
    }
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;
    use crate::common::alone;

    #[test]
    fn four_hosts_begin_together_by_clocks_that_are_known() {
        let _turn = alone();
        let rig = Rig::best();
        let job = in_step(
            &rig,
            "run . --rw randread --bs 4k --qd 2 --size 8m --time 1s --json",
        );
        let hosts = job["hosts"].as_array().unwrap();
        assert_eq!(hosts.len(), 4);
        assert_eq!(
            sum(hosts, "ios"),
            job["read"]["ios"].as_u64().unwrap(),
            "sums are exact"
        );
        assert_eq!(sum(hosts, "bytes"), job["read"]["bytes"].as_u64().unwrap());
        assert_eq!(job["wall_ns"], 1_000_000_000u64);
        assert_eq!(job["qd_requested"], 8);
        let of = |what: &str| hosts.iter().map(|h| h[what].as_i64().unwrap()).collect();
        let late: Vec<i64> = of("late_ns");
        let bounds: Vec<i64> = of("clock_bound_ns");
        let apart = late.iter().max().unwrap() - late.iter().min().unwrap();
        println!("starts {apart} ns apart, clocks known to {bounds:?} ns");
        assert!(apart <= 10_000_000, "{late:?}");
        let known = job["known"].as_array().unwrap();
        assert_eq!(known.len(), 4);
        if rig.hosts().is_none() {
            return skip("clocks of the hosts are this one's");
        }
        for (i, host) in (1..).zip(hosts) {
            let error = host["clock_offset_ns"].as_i64().unwrap() - i * AHEAD * 1_000_000_000;
            let bound = host["clock_bound_ns"].as_i64().unwrap();
            println!(
                "{}: clock off by {error} ns, bound {bound} ns",
                host["host"]
            );
            assert!(error.abs() <= bound, "{host}");
            assert_eq!(known[i as usize - 1]["called"], host["host"]);
        }
        assert_eq!(rig.place.names(), Vec::<String>::new());
    }
}
