//! Watching a live system from outside: a load of known shape is recognised, and nothing is written.

use crate::common::machine::{Disk, Loop, possible, turn};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::common::{Place, alone, beside_others, end, send};

#[test]
fn what_cannot_be_watched_is_refused() {
    let _turn = beside_others();
    let place = Place::new();
    for (args, expected) in [
        (&["watch", "4194304999"][..], "does not exist"),
        (&["watch", "4194303"], "process 4194303"),
        (
            &["watch", "no-such-disk"],
            "expected a process's number or a whole disk",
        ),
        (
            &["watch", "--listen", "0.0.0.0:9464"],
            "other machines could read",
        ),
        (
            &["survey", "null:", "--workload", "nothing"],
            "made by fathom watch",
        ),
    ] {
        let said = place.fathom(args).refusal();
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    assert!(!place.runs().exists());
}

/// What a scraper gets, in the form that it asks for; the socket goes with the command, and no other file is replaced.
#[test]
fn scrapers_are_answered_until_somebody_ends_it() {
    let _turn = beside_others();
    let place = Place::new();
    let socket = place.dir.join("metrics");
    let address = socket.display().to_string();
    let running = place.start(&["watch", "--listen", &address]);
    let scrape = |request: &str| {
        let mut stream = (0..600)
            .find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(100));
                UnixStream::connect(&socket).ok()
            })
            .expect("nobody listens");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let plain = scrape("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(plain.starts_with("HTTP/1.1 200 OK"), "{plain}");
    assert!(
        plain.contains("# TYPE fathom_watch_ios_total counter"),
        "{plain}"
    );
    let open = scrape("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");
    assert!(open.contains("# TYPE fathom_watch_ios counter") && open.ends_with("# EOF\n"));
    assert!(scrape("GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(scrape("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let other = place.fathom(&["watch", "--listen", &address]).refusal();
    assert!(other.contains("has that name already"), "{other}");
    send(running.id(), libc::SIGINT);
    let said = end(running).expect(0);
    assert!(
        said.stderr.contains("curl --unix-socket"),
        "{}",
        said.stderr
    );
    assert!(!socket.exists());
    assert!(place.the_run_dir().join("profile.json").exists());
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn a_load_of_known_shape_is_recognised_on_its_device_and_by_its_process() {
        let _turns = (turn(), alone());
        if !possible(&[]) {
            return;
        }
        let disk = Disk::new(64);
        let device = Loop::of(&disk.image);
        let place = Place::new();
        let load = || {
            let out = place.runs().with_file_name("load").display().to_string();
            place.start(&[
                "run",
                device.str(),
                "--rw",
                "randread",
                "--bs",
                "16k",
                "--qd",
                "4",
                "--time",
                "3s",
                "--out",
                &out,
            ])
        };
        let before = disk.checksum();
        let running = load();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let said = place
            .fathom(&["watch", device.str(), "--time", "1s"])
            .expect(0);
        // A loop device over a hole serves at the speed of memory: void as a measurement, good enough to be watched.
        end(running).expect(1);
        if said.stderr.contains("no tracing here") {
            println!("SKIP: watching I/O by I/O needs tracefs");
            return;
        }
        assert!(
            said.stdout.contains("\nConclusion\n")
                && said.stdout.contains("Reads at random, 16 KiB each"),
            "{}",
            said.stdout
        );
        let profile = |dir: &std::path::Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(dir.join("profile.json")).unwrap()).unwrap()
        };
        let p = profile(&place.the_run_dir());
        let reads = p["ios"][0].as_u64().unwrap();
        assert!(reads > 100, "{p}");
        assert_eq!(p["ios"][1], 0);
        // Every request is of the size that was asked for.
        assert_eq!(p["sizes"]["16384"][0].as_u64().unwrap(), reads, "{p}");
        assert!(p["sequential"].as_u64().unwrap() * 20 < reads, "{p}");
        let deepest = p["depth_by_io"].as_array().unwrap().last().unwrap()[0].as_u64();
        assert_eq!(deepest, Some(4), "{p}");
        let wall = p["wall_ns"].as_u64().unwrap();
        let time: u64 = p["depth_by_time"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d[1].as_u64().unwrap())
            .sum();
        assert!(
            wall > 900_000_000 && time.abs_diff(wall) < wall / 50,
            "{time} of {wall}"
        );
        assert!(
            said.stdout.contains("share of reads     100.0 %"),
            "{}",
            said.stdout
        );
        assert_eq!(disk.checksum(), before);
        // The profile weights a curve.
        let dir = place.the_run_dir().display().to_string();
        let out = place.runs().with_file_name("curve").display().to_string();
        let run = place
            .fathom(&[
                "curve",
                "sim:optane-900p",
                "--closed-only",
                "--max-qd",
                "16",
                "--workload",
                &dir,
                "--json",
                "--out",
                &out,
            ])
            .expect(0)
            .json();
        let mine = run["headlines"]
            .as_array()
            .unwrap()
            .iter()
            .find(|h| h["id"] == "my-workload-iops")
            .unwrap_or_else(|| panic!("{}", run["headlines"]));
        assert!(
            mine["estimate"]["value"].as_f64().unwrap() > 10_000.0,
            "{mine}"
        );
    }

    #[test]
    fn a_process_among_others_is_watched_by_its_number() {
        let _turn = alone();
        let place = Place::new();
        let running = place.start(&[
            "run",
            ".",
            "--size",
            "64m",
            "--rw",
            "randrw",
            "--read-share",
            "70",
            "--bs",
            "4k:80,16k:20",
            "--burst",
            "16/20ms",
            "--qd",
            "16",
            "--time",
            "4s",
            "--name",
            "mine",
        ]);
        let other = Place::new();
        let foreign = other.start(&[
            "run", ".", "--size", "64m", "--rw", "read", "--bs", "64k", "--rate", "50", "--time",
            "4s",
        ]);
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let watching = Place::new();
        let said = watching.fathom(&["watch", &running.id().to_string(), "--time", "1500ms"]);
        end(running).expect(0);
        end(foreign).expect(0);
        if said.code == Some(2) || said.stderr.contains("no I/O was seen") {
            println!("SKIP: watching a process needs tracefs and a disk with requests");
            return;
        }
        let file = watching.the_run_dir().join("profile.json");
        let p: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let n = |v: &serde_json::Value| v.as_f64().unwrap();
        let (reads, writes) = (n(&p["ios"][0]), n(&p["ios"][1]));
        let all = reads + writes;
        assert!(all >= 160.0, "{p}");
        // The foreign reads of 64 KiB are not among them.
        let sizes = p["sizes"].as_object().unwrap();
        assert_eq!(sizes.keys().collect::<Vec<_>>(), ["16384", "4096"], "{p}");
        // Four standard deviations of a share.
        let near = |share: f64, truth: f64| {
            (share - truth).abs() < 4.0 * (truth * (1.0 - truth) / all).sqrt()
        };
        assert!(near(reads / all, 0.7), "{p}");
        let small = n(&sizes["4096"][0]) + n(&sizes["4096"][1]);
        assert!(near(small / all, 0.8), "{p}");
        assert!(n(&p["sequential"]) < 0.05 * all, "{p}");
        // Each burst is found as one, of sixteen; all but those at the ends are whole.
        let bursts: Vec<(f64, f64)> = p["bursts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| (n(&b[0]), n(&b[1])))
            .collect();
        let found: f64 = bursts.iter().map(|b| b.1).sum();
        let whole: f64 = bursts.iter().filter(|b| b.0 == 16.0).map(|b| b.1).sum();
        assert!(
            whole >= 0.9 * found && (found - all / 16.0).abs() <= 2.0 + 0.1 * found,
            "{p}"
        );
        // By I/O the depths are spread from one to sixteen; by time the disk is mostly idle, in gaps of 20 ms or more.
        let by_io = p["depth_by_io"].as_array().unwrap();
        assert_eq!(n(&by_io.last().unwrap()[0]), 16.0, "{p}");
        let mean: f64 = by_io.iter().map(|d| n(&d[0]) * n(&d[1])).sum::<f64>() / all;
        assert!((7.5..9.0).contains(&mean), "{mean}: {p}");
        let wall = n(&p["wall_ns"]);
        let idle = p["depth_by_time"].as_array().unwrap()[0].clone();
        assert!(n(&idle[0]) == 0.0 && n(&idle[1]) > 0.5 * wall, "{p}");
        let long: f64 = p["idle"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|g| n(&g[0]) >= 33_554_432.0)
            .map(|g| n(&g[1]))
            .sum();
        assert!(long >= 0.8 * found - 2.0, "{p}");
    }
}
