//! Engines without reads and writes of a file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::common::{both, both_in, document, fathom, fio, names, number, scratch, skip, totals};

#[test]
fn names_are_made_looked_up_and_removed() {
    for engine in [
        "filecreate",
        "filestat",
        "filedelete",
        "dircreate",
        "dirstat",
        "dirdelete",
    ] {
        let word = format!("--ioengine={engine}");
        let mut args = vec![
            "--name=a",
            &word,
            "--rw=write",
            "--directory=d",
            "--nrfiles=20",
            "--filesize=4k",
            "--bs=4k",
            "--openfiles=1",
            "--fallocate=none",
        ];
        if engine.ends_with("stat") {
            args.push("--stat_type=lstat");
        }
        let make = |dir: &Path| std::fs::create_dir(dir.join("d")).unwrap();
        let seen = if engine.starts_with("file") {
            both_in("names_are_made_looked_up_and_removed", &args, make)
        } else {
            // fio 3.33 knows no directories.
            let dir = scratch();
            make(dir.path());
            args.push("--output-format=json");
            let jobs = document(&fathom(dir.path(), &args))["jobs"].clone();
            vec![(dir, jobs)]
        };
        let print = |(dir, jobs): &(tempfile::TempDir, serde_json::Value)| {
            let write = &jobs[0]["write"];
            let counted = ["slat_ns", "clat_ns", "lat_ns"].map(|l| number(&write[l]["N"]));
            assert_eq!(
                counted,
                [0.0, 20.0, 0.0],
                "{engine}: only calls have latencies"
            );
            (totals(&jobs[0]), names(&dir.path().join("d")))
        };
        let left = if engine.ends_with("delete") { 0 } else { 20 };
        assert_eq!(print(&seen[0]).1.len(), left, "{engine}");
        assert_eq!(print(&seen[0]), print(seen.last().unwrap()), "{engine}");
    }
}

#[test]
fn what_others_made_is_not_removed_and_what_fathom_made_is() {
    let dir = scratch();
    std::fs::write(dir.path().join("theirs"), "kept").unwrap();
    let args = [
        "--name=a",
        "--ioengine=filedelete",
        "--filename=theirs",
        "--filesize=4k",
    ];
    let out = fathom(dir.path(), &args);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert_eq!(std::fs::read(dir.path().join("theirs")).unwrap(), b"kept");
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let args = ["--name=a", "--ioengine=dirdelete", "--filename=empty"];
    assert_eq!(fathom(dir.path(), &args).status.code(), Some(2));
    assert!(dir.path().join("empty").is_dir());
    // One run makes them, another removes them.
    for (kind, left) in [
        ("filecreate", 4),
        ("filedelete", 2),
        ("dircreate", 4),
        ("dirdelete", 2),
    ] {
        let engine = format!("--ioengine={kind}");
        let args = ["--name=a", &engine, "--nrfiles=2", "--filesize=4k"];
        let out = fathom(dir.path(), &args);
        assert!(out.status.success(), "{kind}: {out:?}");
        assert_eq!(names(dir.path()).len(), left, "{kind}");
    }
}

#[test]
fn room_is_made_and_given_back_without_data() {
    for (engine, rw, blocks, size) in [
        ("ftruncate", "write", 0, 61440),
        ("falloc", "write", 128, 65536),
        ("falloc", "read", 128, 65536),
        ("falloc", "trim", 0, 65536),
        ("splice", "write", 128, 65536),
        ("splice", "read", 128, 65536),
        ("splice", "randrw", 128, 65536),
    ] {
        let (engine, rw) = (format!("--ioengine={engine}"), format!("--rw={rw}"));
        let args = ["--name=a", &engine, &rw, "--filename=f", "--size=64k"];
        let seen = both_in("room_is_made_and_given_back_without_data", &args, |_| {});
        let print = |(dir, jobs): &(tempfile::TempDir, serde_json::Value)| {
            let meta = std::fs::metadata(dir.path().join("f")).unwrap();
            // The mark of fathom's may take a block of its own.
            let near = meta.blocks().abs_diff(blocks) <= 8;
            assert!(near, "{args:?}: {} sectors", meta.blocks());
            assert_eq!(meta.len(), size, "{args:?}");
            let sums = totals(&jobs[0]);
            if rw == "--rw=randrw" {
                // Shares are drawn, each by its own numbers.
                return vec![sums[0] + sums[2], sums[1] + sums[3]];
            }
            sums
        };
        assert_eq!(print(&seen[0]), print(seen.last().unwrap()), "{args:?}");
    }
    // A job of fathom's own form has no such engine, and says so.
    let toml = fathom(
        scratch().path(),
        &[
            "--name=a",
            "--ioengine=falloc",
            "--rw=write",
            "--size=64k",
            "--convert",
        ],
    );
    assert!(String::from_utf8_lossy(&toml.stdout).contains("only fathom fio does it: falloc"));
    // What splice writes is what verification reads.
    let dir = scratch();
    let out = fathom(
        dir.path(),
        &[
            "--name=a",
            "--ioengine=splice",
            "--rw=randwrite",
            "--bs=96k",
            "--size=3m",
            "--verify=sha1",
        ],
    );
    assert!(out.status.success(), "{out:?}");
}

/// fio sends and fathom receives, and the other way round.
#[test]
fn sockets_carry_the_same_bytes_to_fio_and_from_it() {
    let sends = |protocol: &str, host: &str, verify: &str| {
        [
            "--name=s",
            "--ioengine=net",
            "--rw=write",
            "--bs=4k",
            "--size=4m",
            protocol,
            host,
            verify,
            "--output-format=json",
        ]
        .map(str::to_owned)
    };
    // Below those that the kernel gives to whoever connects.
    let mut port = 10_000 + std::process::id() % 900 * 10;
    for (protocol, verify) in [
        ("tcp", "--verify=md5"),
        ("unix", "--verify=crc32c"),
        ("udp", "--verify=0"),
    ] {
        for (from, to) in [(false, false), (false, true), (true, false)] {
            port += 1;
            // fio 3.33 knows neither the header of newer blocks nor fathom's seeds.
            let verify = if to { "--verify=0" } else { verify };
            let dir = scratch();
            let socket = dir.path().join("socket").display().to_string();
            let words = format!("--protocol={protocol}");
            let own = match protocol {
                "unix" => format!("--hostname={socket}"),
                _ => format!("--port={port}"),
            };
            let host = match protocol {
                "unix" => own.clone(),
                _ => "--hostname=localhost".into(),
            };
            // The engine comes before its options.
            let mut sender = sends(&words, &host, verify).to_vec();
            sender.push(own.clone());
            if protocol == "udp" {
                // What a socket has no room for is lost, also at the end, where nobody knows of it.
                sender.push("--rate=8m".into());
            }
            let mut receiver = sends(&words, &own, verify).to_vec();
            receiver[0] = "--name=r".into();
            receiver[2] = "--rw=read".into();
            if protocol == "tcp" {
                receiver.push("--listen".into());
            }
            let run = |theirs: bool, args: &[String]| {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                if theirs {
                    fio(dir.path(), &args)
                } else {
                    Some(fathom(dir.path(), &args))
                }
            };
            let (sent, received) = std::thread::scope(|s| {
                let receiving = s.spawn(|| run(to, &receiver));
                until_bound(protocol, port, &socket);
                (run(from, &sender), receiving.join().unwrap())
            });
            let (Some(sent), Some(received)) = (sent, received) else {
                skip("sockets_carry_the_same_bytes_to_fio_and_from_it");
                continue;
            };
            let what = format!("{protocol}, fio sends {from}, fio receives {to}");
            for (theirs, out) in [(from, &sent), (to, &received)] {
                // Its last word through a unix socket has an address, which is an error there (EISCONN).
                let known = theirs && protocol == "unix";
                assert!(known || out.status.success(), "{what}: {out:?}");
            }
            let bytes = |out, d: &str| document(out)["jobs"][0][d]["io_bytes"].as_u64().unwrap();
            assert_eq!(bytes(&sent, "write"), 4 << 20, "{what}");
            if protocol != "udp" && !to {
                assert_eq!(bytes(&received, "read"), 4 << 20, "{what}");
            }
            if protocol == "udp" && !to {
                // What did not come is counted.
                let read = &document(&received)["jobs"][0]["read"];
                let all = number(&read["total_ios"]) + number(&read["drop_ios"]);
                assert!((1000.0..=1024.0).contains(&all), "{what}: {all} of 1024");
            }
            if from == to {
                assert!(
                    !Path::new(&socket).exists(),
                    "a socket of its own is removed"
                );
            }
        }
    }
}

/// Waits until a receiver has its socket, however busy the machine is; a minute at most, after which the sender says
/// what is missing.
fn until_bound(protocol: &str, port: u32, socket: &str) {
    let tables: &[&str] = match protocol {
        "tcp" => &["/proc/net/tcp", "/proc/net/tcp6"],
        _ => &["/proc/net/udp", "/proc/net/udp6"],
    };
    // The local address is the second word of a line, its port in hexadecimal digits at the end; 0A is LISTEN.
    let local = format!(":{port:04X}");
    let bound = || match protocol {
        "unix" => Path::new(socket).exists(),
        _ => tables.iter().any(|table| {
            let lines = std::fs::read_to_string(table).unwrap_or_default();
            lines.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.get(1).is_some_and(|w| w.ends_with(&local))
                    && (protocol == "udp" || words.get(3) == Some(&"0A"))
            })
        }),
    };
    for _ in 0..600 {
        if bound() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    // A unix socket exists before it listens.
    std::thread::sleep(std::time::Duration::from_millis(100));
}

#[test]
fn sockets_answer_and_reach_groups() {
    let port = 20_000 + std::process::id() % 10_000;
    let run = |options: &[&str], receiver: &[&str], sender: &[&str]| {
        let dir = scratch();
        let port = format!("--port={port}");
        let mut args = vec![
            "--ioengine=net",
            "--bs=1k",
            "--size=256k",
            &port,
            "--output-format=json",
        ];
        args.extend(options);
        args.extend(["--name=r", "--rw=read"]);
        args.extend(receiver);
        args.extend(["--name=s", "--rw=write", "--startdelay=1"]);
        args.extend(sender);
        let out = fathom(dir.path(), &args);
        assert!(out.status.success(), "{out:?}");
        let jobs = document(&out)["jobs"].clone();
        [
            number(&jobs[0]["read"]["total_ios"]),
            number(&jobs[1]["write"]["total_ios"]),
        ]
    };
    let host = "--hostname=localhost";
    let answered = run(
        &[
            "--protocol=tcp",
            "--pingpong",
            "--nodelay=1",
            "--window_size=65536",
        ],
        &["--listen"],
        &[host],
    );
    assert_eq!(answered, [256.0, 256.0]);
    let group = [
        "--protocol=udp",
        "--hostname=239.1.2.3",
        "--interface=127.0.0.1",
        "--ttl=1",
    ];
    let [received, sent] = run(&group, &[], &["--rate=1m"]);
    assert_eq!(sent, 256.0);
    assert!(received >= 200.0, "{received}");
}

/// What a TCP connection's own end says of its segments.
#[test]
fn segments_are_as_short_as_asked_for() {
    const TEST: &str = "segments_are_as_short_as_asked_for";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--port={}", listener.local_addr().unwrap().port());
    let mut longest = Vec::new();
    for mss in ["--mss=600", "--mss=1000"] {
        let args = [
            "--name=a",
            "--ioengine=net",
            "--rw=write",
            "--bs=4k",
            "--size=64k",
        ];
        let args = [&args[..], &["--hostname=127.0.0.1", &port, mss]].concat();
        let ends = |out: &dyn Fn(&Path, &[&str]) -> Option<std::process::Output>| {
            let accepted = std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let sent = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
                    (sent, stream)
                });
                let out = out(scratch().path(), &args).unwrap();
                assert!(out.status.success(), "{out:?}");
                other.join().unwrap()
            });
            let (sent, socket) = accepted;
            assert!(sent >= 65_536, "{sent}");
            segment(&socket)
        };
        let ours = ends(&|dir, args| Some(fathom(dir, args)));
        if fio(scratch().path(), &["--version"]).is_some() {
            assert_eq!(ours, ends(&fio), "{mss}");
        } else {
            skip(TEST);
        }
        longest.push(ours);
    }
    // Timestamps take 12 bytes of each.
    assert!(
        longest[0] <= 600 && (601..=1000).contains(&longest[1]),
        "{longest:?}"
    );
}

/// TCP_MAXSEG of a connection.
fn segment(socket: &impl std::os::fd::AsRawFd) -> i32 {
    let (mut bytes, mut len): (libc::c_int, libc::socklen_t) = (0, 4);
    // SAFETY: both live until the call returns, and the kernel writes one int.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            std::ptr::from_mut(&mut bytes).cast(),
            &mut len,
        )
    };
    assert_eq!(done, 0);
    bytes
}

#[test]
fn a_program_runs_beside_the_jobs_and_is_ended_with_them() {
    let args = [
        "--name=a",
        "--ioengine=exec",
        "--program=/bin/echo",
        "--arguments=%n for %r",
        "--runtime=1",
    ];
    for jobs in both(
        "a_program_runs_beside_the_jobs_and_is_ended_with_them",
        &args,
    ) {
        let ios = number(&jobs[0]["read"]["total_ios"]);
        assert!((8.0..=12.0).contains(&ios), "a look each 100 ms: {ios}");
        assert_eq!(jobs[0]["read"]["io_bytes"], 0);
    }
    let dir = scratch();
    assert!(fathom(dir.path(), &args).status.success());
    assert_eq!(
        std::fs::read_to_string(dir.path().join("a.stdout")).unwrap(),
        "a for 1\n"
    );
    // Without files what it says goes where errors go.
    let mut open = args.to_vec();
    open.extend(["--std_redirect=0", "--name=b"]);
    let other = scratch();
    let out = fathom(other.path(), &open[..6]);
    assert_eq!(String::from_utf8_lossy(&out.stderr), "a for 1\n");
    assert!(names(other.path()).is_empty());
    // One that does not want to end is killed after its grace.
    let stubborn = dir.path().join("stubborn");
    std::fs::write(
        &stubborn,
        "trap '' TERM\necho $$\nwhile :; do sleep 0.1; done\n",
    )
    .unwrap();
    let program = format!("--program=sh {}", stubborn.display());
    let args = [
        "--name=b",
        "--ioengine=exec",
        &program,
        "--runtime=1",
        "--grace_time=1",
    ];
    let out = fathom(dir.path(), &args);
    assert!(out.status.success(), "{out:?}");
    let pid = std::fs::read_to_string(dir.path().join("b.stdout")).unwrap();
    assert!(
        !Path::new("/proc").join(pid.trim()).exists(),
        "{pid} still runs"
    );
}

/// fio has it since 3.41: more is written than the file holds, by the spare room, and all of the file is written.
#[test]
fn a_drive_is_written_as_after_a_long_load() {
    let run = |more: &[&str]| {
        let dir = scratch();
        let mut args = vec![
            "--name=a",
            "--rw=randwrite",
            "--bs=4k",
            "--size=16m",
            "--sprandom=1",
            "--output-format=json",
        ];
        args.extend(more);
        fathom(dir.path(), &args)
    };
    for more in [
        &["--spr_op=0.25"][..],
        &["--spr_op=0.25", "--spr_num_regions=20", "--spr_cs=64k"],
    ] {
        let out = run(more);
        assert!(out.status.success(), "{out:?}");
        let ios = number(&document(&out)["jobs"][0]["write"]["total_ios"]) / 4096.0;
        assert!((1.2..=1.25).contains(&ios), "{more:?}: {ios}");
    }
    for more in [
        &["--random_generator=tausworthe"][..],
        &["--norandommap=0"],
        &["--spr_num_regions=2000", "--spr_cs=32k"],
        &["--spr_cs=16m"],
    ] {
        assert_eq!(run(more).status.code(), Some(1), "{more:?}");
    }
}
