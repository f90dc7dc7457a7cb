//! Answers are read as they were made, and no answer of what may be no server panics, hangs or takes all memory.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::sync::mpsc;

use proptest::prelude::*;

use super::mysql::Mysql;
use super::postgres::Postgres;
use super::*;

#[path = "../../../../fathom-host/tests/common/fuzz.rs"]
mod fuzz;

use fuzz::{cases, changed, changes, fuzz};

#[test]
fn an_answer_gives_back_what_was_put_in() {
    let mut a = Answer {
        columns: 2,
        ..Answer::default()
    };
    a.push(b"one");
    a.print(format_args!("{}", 42));
    a.null();
    a.push(b"2.5");
    assert_eq!(a.rows(), 2);
    assert_eq!((a.text(0, 0), a.int(0, 1).unwrap()), ("one", 42));
    assert_eq!((a.num(1, 1).unwrap(), a.int(1, 1).unwrap()), (2.5, 2));
    assert_eq!(a.text(1, 0), "");
    // Nothing is no number.
    for (row, column) in [(1, 0), (0, 0), (7, 0)] {
        assert!(a.int(row, column).is_err() && a.num(row, column).is_err());
    }
    assert_eq!(quoted(r"/a'b\c d"), r"'/a''b\\c d'");
    assert_eq!(a.text(9, 9), "");
}

/// What a server says to who connects, prepares a statement of one value, runs it and then one more.
fn postgres() -> Vec<u8> {
    let message = |kind: u8, body: &[u8]| {
        let len = (body.len() as u32 + 4).to_be_bytes();
        [&[kind][..], &len, body].concat()
    };
    let row = b"\0\x02\0\0\0\x0242\xff\xff\xff\xff";
    [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0016.1\0"),
        message(b'Z', b"I"),
        message(b'1', b""),
        message(b'Z', b"I"),
        message(b'2', b""),
        message(b'D', row),
        message(b'D', row),
        message(b'C', b"SELECT 2\0"),
        message(b'Z', b"T"),
        message(b'E', b"SERROR\0C40P01\0Mdeadlock detected\0\0"),
        message(b'Z', b"I"),
    ]
    .concat()
}

/// The same of the other one.
fn mysql() -> Vec<u8> {
    let packet = |n: u8, body: &[u8]| {
        let len = (body.len() as u32).to_le_bytes();
        [&len[..3], &[n], body].concat()
    };
    let column = |kind: u8| {
        let mut c = b"\x03def\x01s\x01t\x01t\x01c\x01c\x0c\x2d\0".to_vec();
        c.extend([20, 0, 0, 0, kind, 0, 0, 0, 0, 0]);
        c
    };
    let end = [0xfe, 0, 0, 2, 0];
    let mut row = vec![0, 0b0000_1000];
    row.extend((-5i32).to_le_bytes());
    row.extend(*b"\x03abc");
    let mut greeting = vec![10];
    greeting.extend(b"10.11-MariaDB\0\x01\0\0\0abcdefgh\0");
    greeting.extend([0xff, 0xf7, 45, 2, 0, 0xff, 0x81, 21]);
    greeting.extend([0; 10]);
    greeting.extend(b"abcdefghijkl\0mysql_native_password\0");
    [
        packet(0, &greeting),
        packet(2, &[0, 0, 0, 2, 0, 0, 0]),
        packet(1, &[0, 1, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0]),
        packet(2, &column(253)),
        packet(3, &end),
        packet(4, &column(3)),
        packet(5, &column(8)),
        packet(6, &column(253)),
        packet(7, &end),
        packet(1, &[3]),
        packet(2, &column(3)),
        packet(3, &column(8)),
        packet(4, &column(253)),
        packet(5, &end),
        packet(6, &row),
        packet(7, &row),
        packet(8, &end),
        packet(1, b"\xff\xbd\x04#40001Deadlock found"),
    ]
    .concat()
}

fn asks(mut session: Box<dyn Session>) -> Result<(i64, SqlError)> {
    let mut answer = Answer::default();
    let statement = session.prepare("SELECT a, b FROM t WHERE c = ?")?;
    session.execute(statement, &[Value::Text("x")], &mut answer)?;
    for row in 0..answer.rows().min(4) {
        let _ = (answer.text(row, 2), answer.num(row, 0));
    }
    let first = answer.int(0, 0)?;
    let refused = session.batch("COMMIT").err();
    Ok((
        first,
        refused.unwrap_or_else(|| SqlError::here(String::new())),
    ))
}

#[test]
fn no_answer_of_a_server_breaks_who_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let (say, said) = mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for bytes in said {
            let (mut stream, _) = listener.accept().unwrap();
            // Who asked may be gone already.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let answers = [postgres(), mysql()];
    let ask = |which: usize, bytes: Vec<u8>| {
        say.send(bytes).unwrap();
        let session: Box<dyn Session> = match which {
            0 => Box::new(Postgres::connect(&path, "u", "d")?),
            _ => Box::new(Mysql::connect(&path, "u", "d")?),
        };
        asks(session)
    };
    for (which, first, code) in [(0, 42, "40P01"), (1, -5, "1213")] {
        let (number, refused) = ask(which, answers[which].clone()).unwrap();
        assert_eq!((number, refused.code.as_str()), (first, code));
        assert!(refused.again);
    }
    fuzz(cases(300), &(0..2usize, changes()), |(which, changes)| {
        let _ = ask(*which, changed(&answers[*which], changes));
    });
    fuzz(cases(300) / 10, &any::<Vec<u8>>(), |bytes| {
        let _ = ask(bytes.len() % 2, bytes.clone());
    });
}

/// A packet of a server's: its number and what it says.
fn packet(n: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_le_bytes();
    [&len[..3], &[n], body].concat()
}

fn heard(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    let mut body = vec![0; usize::from(head[0])];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

/// MySQL's side of caching_sha2_password: whether the proof is that of the password, from what a server keeps of it
/// (`SHA256(SHA256(p))`), which it undoes and hashes once more.
fn serves(stream: &mut (impl Read + Write), first: &str, known: bool) -> Option<bool> {
    use sha2::{Digest, Sha256};
    let seed = b"abcdefghijklmnopqrst";
    let mut greeting = [&b"\x0a8.4.0\0\x01\0\0\0"[..], &seed[..8], b"\0"].concat();
    // Without TLS: 0xf7ff.
    greeting.extend([0xff, 0xf7, 45, 2, 0, 0xff, 0x81, 21]);
    greeting.extend([0; 10]);
    greeting.extend([&seed[8..], b"\0", first.as_bytes(), b"\0"].concat());
    stream.write_all(&packet(0, &greeting)).ok()?;
    let said = heard(stream)?;
    let after = said[32..].iter().position(|b| *b == 0)? + 33;
    let mut proof = said[after + 1..][..usize::from(said[after])].to_vec();
    let mut n = 2;
    if first != "caching_sha2_password" {
        let other = [&b"\xfecaching_sha2_password\0"[..], seed, b"\0"].concat();
        stream.write_all(&packet(n, &other)).ok()?;
        proof = heard(stream)?;
        n += 2;
    }
    let kept = Sha256::digest(Sha256::digest("s3cret"));
    let mixed = Sha256::new()
        .chain_update(kept)
        .chain_update(seed)
        .finalize();
    let once: Vec<u8> = proof.iter().zip(mixed).map(|(a, b)| a ^ b).collect();
    let mut right = Sha256::digest(once) == kept;
    stream
        .write_all(&packet(n, &[1, if known { 3 } else { 4 }]))
        .ok()?;
    if !known {
        right &= heard(stream)? == b"s3cret\0";
        n += 1;
    }
    stream
        .write_all(&packet(n + 1, &[0, 0, 0, 2, 0, 0, 0]))
        .ok()?;
    Some(right)
}

#[test]
fn mysqls_own_proof_is_given_and_the_password_itself_only_where_nobody_reads_along() {
    use crate::db::server::Server;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let password = dir.path().join("password");
    std::fs::write(&password, "s3cret").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&password, private).unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let ways = [
        ("caching_sha2_password", true),
        ("caching_sha2_password", false),
        ("mysql_native_password", true),
        ("mysql_native_password", false),
    ];
    let local = std::thread::spawn(move || {
        ways.map(|(first, known)| serves(&mut unix.accept().unwrap().0, first, known))
    });
    let server = Server::of_socket(&path)
        .find_password(Some(&password))
        .unwrap();
    for way in ways {
        assert!(Mysql::to(&server, "").is_ok(), "{way:?}");
    }
    assert_eq!(local.join().unwrap(), [Some(true); 4]);
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let remote = std::thread::spawn(move || {
        [true, false].map(|known| serves(&mut tcp.accept().unwrap().0, ways[0].0, known))
    });
    let server = Server::parse(&format!("mysql://u@127.0.0.1:{port}")).unwrap();
    let server = server.find_password(Some(&password)).unwrap();
    assert!(Mysql::to(&server, "").is_ok());
    let refused = Mysql::to(&server, "").err().unwrap().to_string();
    assert!(
        refused.contains("the connection is not private"),
        "{refused}"
    );
    // It heard nothing.
    assert_eq!(remote.join().unwrap(), [Some(true), None]);
}
