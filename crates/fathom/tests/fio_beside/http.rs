//! Objects of servers: fathom and fio, where it has the engine, ask a server of the test's own for the same.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use super::common::{document, number, scratch};

/// A request as the server saw it.
#[derive(Debug, Clone)]
struct Request {
    /// `PUT /path`
    line: String,
    headers: BTreeMap<String, String>,
}

#[derive(Default)]
struct Store {
    objects: BTreeMap<String, Vec<u8>>,
    requests: Vec<Request>,
    /// Answers with this instead.
    fails: Option<u16>,
}

/// A server of objects in memory, with keep-alive.
struct Server {
    host: String,
    store: Arc<Mutex<Store>>,
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let store = Arc::<Mutex<Store>>::default();
        let all = store.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), all) = (stream, all.clone()) else {
                    continue;
                };
                std::thread::spawn(move || while serve(&stream, &all).is_some() {});
            }
        });
        Self { host, store }
    }

    fn take(&self) -> Store {
        std::mem::take(&mut self.store.lock().unwrap())
    }

    /// fathom's or fio's job on it.
    fn run(&self, program: &[&str], dir: &Path, args: &[&str]) -> Output {
        let host = format!("--http_host={}", self.host);
        let permit = format!("{}/bucket/o", self.host).replace(':', "\\:");
        Command::new(program[0])
            .args(&program[1..])
            .args(["--name=a", "--ioengine=http", "--filename=/bucket/o"])
            .args(["--output-format=json", &host])
            .args(args)
            .env("FATHOM_FIO_WRITE", permit)
            .current_dir(dir)
            .output()
            .unwrap()
    }
}

/// One request of a connection; `None` at its end.
fn serve(stream: &TcpStream, all: &Mutex<Store>) -> Option<()> {
    let mut input = BufReader::new(stream);
    let mut next = || {
        let mut line = String::new();
        let n = input.read_line(&mut line).ok()?;
        (n > 0).then(|| line.trim_end().to_owned())
    };
    let line = next()?.strip_suffix(" HTTP/1.1")?.to_owned();
    let mut headers = BTreeMap::new();
    while let Some((name, value)) = next()?.split_once(": ") {
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    if headers.contains_key("expect") {
        (&*stream)
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .ok()?;
    }
    let len = headers
        .get("content-length")
        .map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; len];
    input.read_exact(&mut body).ok()?;
    let (method, path) = line.split_once(' ')?;
    let mut store = all.lock().unwrap();
    let (status, answer) = match (store.fails, method) {
        (Some(status), _) => (status, b"no".to_vec()),
        (None, "PUT") => {
            store.objects.insert(path.to_owned(), body);
            (201, Vec::new())
        }
        (None, "DELETE") => (store.objects.remove(path).map_or(404, |_| 204), Vec::new()),
        (None, _) => match store.objects.get(path) {
            None => (404, b"not there".to_vec()),
            Some(whole) => match headers.get("range").and_then(|r| r.strip_prefix("bytes=")) {
                Some(range) => {
                    let (from, to) = range.split_once('-')?;
                    let range = from.parse().ok()?..=to.parse().ok()?;
                    (206, whole.get(range)?.to_vec())
                }
                None => (200, whole.clone()),
            },
        },
    };
    store.requests.push(Request {
        line: line.clone(),
        headers,
    });
    drop(store);
    let length = match status {
        204 => String::new(),
        _ => format!("content-length: {}\r\n", answer.len()),
    };
    let mut all = format!("HTTP/1.1 {status} x\r\n{length}\r\n").into_bytes();
    all.extend(answer);
    (&*stream).write_all(&all).ok()
}

const FATHOM: &[&str] = &[env!("CARGO_BIN_EXE_fathom"), "fio"];

/// fio, where it has this engine (`FIO=PATH` names one that does).
fn fio() -> Option<String> {
    let fio = std::env::var("FIO").unwrap_or_else(|_| "fio".into());
    let out = Command::new(&fio).arg("--enghelp").output().ok()?;
    let has = String::from_utf8_lossy(&out.stdout)
        .split_whitespace()
        .any(|w| w == "http");
    has.then_some(fio)
}

#[test]
fn objects_are_put_got_and_deleted_as_by_fio() {
    let server = Server::new();
    let fio = fio();
    if fio.is_none() {
        println!(
            "SKIP objects_are_put_got_and_deleted_as_by_fio: this fio has no engine http, so only what it is known to ask for is checked"
        );
    }
    for mode in ["webdav", "s3", "swift"] {
        for (args, methods) in [
            (
                &["--rw=randwrite", "--bs=4k", "--size=64k"][..],
                &["PUT"][..],
            ),
            (
                &["--rw=write", "--bs=8k", "--size=64k", "--verify=crc32c"],
                &["PUT", "GET"],
            ),
            (
                &["--rw=randrw", "--bs=4k,16k", "--size=128k", "--io_size=64k"],
                &["PUT", "GET"],
            ),
            (&["--rw=read", "--bs=4k", "--size=32k"], &["GET"]),
            (&["--rw=trim", "--bs=4k", "--size=32k"], &["DELETE"]),
            (
                &[
                    "--rw=read",
                    "--bs=4k",
                    "--size=32k",
                    "--http_object_mode=range",
                ],
                &["GET"],
            ),
        ] {
            let mode_arg = format!("--http_mode={mode}");
            let mut args = args.to_vec();
            args.extend([mode_arg.as_str(), "--http_s3_key=k", "--http_s3_keyid=id"]);
            args.push("--http_swift_auth_token=t");
            let run = |program: &[&str]| {
                let dir = scratch();
                let _ = server.take();
                let whole = vec![5; 1 << 16];
                server
                    .store
                    .lock()
                    .unwrap()
                    .objects
                    .insert("/bucket/o".into(), whole);
                let out = server.run(program, dir.path(), &args);
                assert!(out.status.success(), "{args:?}: {out:?}");
                let left = super::common::names(dir.path());
                // What verification keeps for another run is left by fio, too.
                assert!(left.iter().all(|n| n.ends_with(".state")), "{left:?}");
                let job = document(&out)["jobs"][0].clone();
                let ios = ["read", "write", "trim"].map(|d| number(&job[d]["total_ios"]));
                (ios, server.take())
            };
            let (ios, ours) = run(FATHOM);
            let lines = |s: &Store| {
                s.requests
                    .iter()
                    .map(|r| r.line.clone())
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                lines(&ours).len() as f64,
                ios.iter().sum::<f64>(),
                "{args:?}"
            );
            for method in methods {
                assert!(
                    lines(&ours).iter().any(|l| l.starts_with(method)),
                    "{args:?}"
                );
            }
            for (name, object) in &ours.objects {
                let len = name.rsplit('_').next().unwrap();
                assert!(
                    name == "/bucket/o" || len == object.len().to_string(),
                    "{name}"
                );
            }
            // fio 3.42 asks for ranges only where a file of the object's name is here, and fails otherwise.
            if args.contains(&"--http_object_mode=range") {
                let ranges = ours
                    .requests
                    .iter()
                    .filter(|r| r.headers.contains_key("range"));
                assert_eq!(ranges.count() as f64, ios[0]);
                continue;
            }
            let Some(fio) = &fio else { continue };
            let (their_ios, theirs) = run(&[fio]);
            assert_eq!(ios, their_ios, "{args:?}");
            assert_eq!(lines(&ours), lines(&theirs), "{args:?}");
            // The same headers, but for the client's own, the time and what follows from it.
            let heads = |r: &Request| {
                let names = r.headers.keys().filter(|n| {
                    !["accept", "user-agent", "expect", "content-type"].contains(&n.as_str())
                });
                names.cloned().collect::<Vec<_>>()
            };
            for (ours, theirs) in ours.requests.iter().zip(&theirs.requests) {
                let mut known = heads(theirs);
                // fio signs nothing with "etag: (null)" of reads and leaves lengths of nothing to the client.
                known.retain(|n| n != "etag" || ours.line.starts_with("PUT"));
                assert_eq!(heads(ours), known, "{args:?}: {ours:?} {theirs:?}");
            }
        }
    }
}

#[test]
fn requests_say_what_options_ask_for() {
    let server = Server::new();
    let heads = |program: &[&str], args: &[&str]| {
        let dir = scratch();
        let _ = server.take();
        let mut all = vec!["--rw=write", "--bs=4k", "--size=4k", "--zero_buffers"];
        all.extend(args);
        let out = server.run(program, dir.path(), &all);
        assert!(out.status.success(), "{args:?}: {out:?}");
        server.take().requests[0].headers.clone()
    };
    let basic = ["--http_user=u", "--http_pass=p"];
    assert_eq!(heads(FATHOM, &basic)["authorization"], "Basic dTpw");
    let s3 = [
        "--http_mode=s3",
        "--http_s3_key=secret",
        "--http_s3_keyid=id",
        "--http_s3_region=eu-central-1",
        "--http_s3_storage_class=STANDARD_IA",
        "--http_s3_sse_customer_key=0123456789",
        "--http_s3_sse_customer_algorithm=AES256",
        "--http_s3_security_token=token",
    ];
    let ours = heads(FATHOM, &s3);
    let (_, auth) = ours["authorization"].split_once("Credential=id/").unwrap();
    assert!(auth[8..].starts_with("/eu-central-1/s3/aws4_request,SignedHeaders=host;"));
    for (name, value) in [
        ("x-amz-storage-class", "STANDARD_IA"),
        ("x-amz-security-token", "token"),
        ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        // 32 bytes, of which the option gives ten.
        (
            "x-amz-server-side-encryption-customer-key",
            "MDEyMzQ1Njc4OQAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ),
        // sha256sum of 4 KiB of zeros
        (
            "x-amz-content-sha256",
            "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7",
        ),
    ] {
        assert_eq!(ours[name], value);
    }
    let Some(fio) = fio() else { return };
    // fio 3.33 has no security token.
    for args in [&s3[..5], &s3[..7], &s3] {
        // In the same second the same request has the same signature.
        let same = (0..5).any(|_| {
            let (ours, theirs) = (heads(FATHOM, args), heads(&[&fio], args));
            let of = |h: &BTreeMap<String, String>| {
                let mut h = h.clone();
                h.retain(|n, _| n.starts_with("x-amz") || n == "authorization");
                h
            };
            assert_eq!(of(&ours).len(), of(&theirs).len(), "{ours:?} {theirs:?}");
            let at_once = ours["x-amz-date"] == theirs["x-amz-date"];
            assert!(!at_once || of(&ours) == of(&theirs), "{ours:?} {theirs:?}");
            at_once
        });
        assert!(same, "five pairs in different seconds");
    }
}

#[test]
fn what_a_server_refuses_fails_the_job_and_is_said_once() {
    let server = Server::new();
    let dir = scratch();
    server.store.lock().unwrap().fails = Some(503);
    let args = ["--rw=write", "--bs=4k", "--size=64k"];
    let out = server.run(FATHOM, dir.path(), &args);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert_eq!(said.matches("the server answered 503").count(), 1, "{said}");
    assert_eq!(number(&document(&out)["jobs"][0]["error"]), 5.0);
}

#[test]
fn objects_that_nobody_named_are_not_written() {
    let server = Server::new();
    let dir = scratch();
    let host = format!("--http_host={}", server.host);
    let run = |rw: &str, name: &str| {
        let out = Command::new(FATHOM[0])
            .args([
                "fio",
                "--name=a",
                "--ioengine=http",
                "--size=16k",
                &host,
                rw,
                name,
            ])
            .env_remove("FATHOM_FIO_WRITE")
            .current_dir(dir.path())
            .output()
            .unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    for rw in ["--rw=write", "--rw=trim", "--rw=randrw"] {
        let (code, said) = run(rw, "--filename=/bucket/o");
        assert!(
            code == Some(2) && said.contains("FATHOM_FIO_WRITE"),
            "{rw}: {said}"
        );
    }
    assert!(server.take().requests.is_empty());
    // What is not there reads as zeros, as in fio.
    assert_eq!(run("--rw=read", "--filename=/bucket/o").0, Some(0));
    let (code, said) = run("--rw=read", "--filename=o");
    assert!(
        code == Some(1) && said.contains("begin them with /"),
        "{said}"
    );
    #[cfg(not(feature = "https"))]
    {
        let args = ["--rw=read", "--size=4k", "--https=on"];
        let out = server.run(FATHOM, dir.path(), &args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(2) && said.contains("without TLS"),
            "{said}"
        );
    }
}
