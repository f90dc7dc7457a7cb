//! Labs whose outside parts fail: servers that die, disks that fill up, sockets that are none, servers of the user's
//! own. A clear error, what was measured is kept, nothing is left, and nothing of the user's is touched.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::machine::{Disk, Loop, Mounted, mkfs_ext4, possible, turn};
use crate::common::{Place, beside_others, codes, end, names, send, skip, until, wait};
use crate::contract::promised;
use crate::db::{found, has, ids, no_room, table};

pub(crate) fn lab(dir: &Path) -> Option<PathBuf> {
    let found = names(dir)
        .into_iter()
        .find(|n| n.starts_with(".fathom-lab-"));
    found.map(|n| dir.join(n))
}

/// A process whose command line has these words in it.
pub(crate) fn process(words: &[&str]) -> Option<u32> {
    let mut all = fs::read_dir("/proc").unwrap().flatten();
    all.find_map(|p| {
        let line = fs::read(p.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let id = p.file_name().to_string_lossy().parse().ok()?;
        words.iter().all(|w| line.contains(w)).then_some(id)
    })
}

/// Waits until it is so, or the command has ended; whether it is so.
pub(crate) fn reached(child: &mut Child, mut so: impl FnMut() -> bool) -> bool {
    for _ in 0..15_000 {
        if so() {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return so();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    false
}

/// Whether there is all that a server is made with; where not, the test says what is missing.
pub(crate) fn mariadb() -> bool {
    let there = ["mariadbd", "mariadb-install-db", "my_print_defaults"]
        .iter()
        .all(|p| has(p));
    if !there {
        skip("no MariaDB: apt-get install mariadb-server-core mariadb-client-core");
    }
    there
}

#[test]
fn a_server_that_dies_while_it_is_filled_ends_the_run_with_its_words_and_keeps_the_rest() {
    let _turn = beside_others();
    if !mariadb() {
        return;
    }
    let place = Place::new();
    let mut child = place.start(&[
        "db",
        "mysql",
        ".",
        "--experiment",
        "one",
        "--rows",
        "300000",
        "--time",
        "200ms",
        "--repeats",
        "1",
    ]);
    // Servers know the lab's directory by a short name.
    let short = format!("/proc/{}/fd/", child.id());
    let mut loading = None;
    let begun = reached(&mut child, || {
        let Some(lab) = lab(&place.dir) else {
            return false;
        };
        let lab = lab.to_str().unwrap();
        // The directory of its database comes with the first table.
        let made = Path::new(lab).join("16k-none/data/sbtest").exists();
        loading = process(&["mariadbd", &short, "--skip-innodb-doublewrite"]).filter(|_| made);
        loading.is_some()
    });
    if !begun {
        send(child.id(), libc::SIGINT);
        let said = end(child);
        if !no_room(&said) {
            skip("no server was loading in time: this machine is too busy");
        }
        return;
    }
    // SAFETY: a signal to the server that the lab made for this test.
    unsafe { libc::kill(loading.unwrap() as i32, libc::SIGKILL) };
    let said = end(child).expect(1);
    assert!(said.stderr.contains("SIGKILL"), "{}", said.stderr);
    let run = place.the_run();
    promised(&run);
    assert!(codes(&run["flags"]).contains(&"io-errors".to_owned()));
    assert!(
        ids(&run, "sections").contains(&"kv"),
        "the tree was measured before"
    );
    assert!(place.names().is_empty(), "{:?}", place.names());
    assert_eq!(process(&["mariadb", &short]), None, "no server is left");
}

/// Takes all room.
fn fill(path: &Path) -> File {
    let file = File::create(path).unwrap();
    let (mut at, mut step) = (0, 256 << 20);
    while step >= 4096 {
        // SAFETY: a system call on an open file.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), at, step) } {
            0 => at += step,
            _ => step /= 2,
        }
    }
    file
}

#[test]
fn a_disk_that_fills_up_is_said_and_only_the_users_file_is_left_on_it() {
    let _turns = (turn(), beside_others());
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    // Sparse: what is promised on it is never written.
    let disk = Disk::new(1200);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    let mounted = match Mounted::new(device.str(), disk.beside("mnt"), &[]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("ext4 cannot be mounted: {e}")),
    };
    let servers = [
        ("sqlite", "tpcc.db", true),
        ("mariadb", "server.log", has("mariadbd")),
    ];
    for (database, file, _) in servers.into_iter().filter(|s| s.2) {
        let place = Place::new();
        let mut child = place.start(&[
            "db",
            "tpcc",
            mounted.at.to_str().unwrap(),
            "--database",
            database,
            "--time",
            "60s",
            "--repeats",
            "1",
            "--no-embedded",
        ]);
        let begun = reached(&mut child, || {
            lab(&mounted.at).is_some_and(|l| l.join(database).join(file).exists())
        });
        if !begun {
            send(child.id(), libc::SIGINT);
            end(child);
            skip(&format!(
                "no {database} was there in time: this machine is too busy"
            ));
            continue;
        }
        let ballast = mounted.at.join("photos");
        let kept = fill(&ballast);
        let said = end(child).expect(1);
        assert!(
            said.stderr.contains("is full"),
            "{database}: {}",
            said.stderr
        );
        promised(&place.the_run());
        assert_eq!(names(&mounted.at), ["lost+found", "photos"], "{database}");
        drop(kept);
        fs::remove_file(ballast).unwrap();
    }
}

#[test]
fn a_socket_that_is_none_is_refused_before_anything_is_measured() {
    let _turn = beside_others();
    let place = Place::new();
    let path = place.runs().with_file_name("sock");
    let socket = path.to_str().unwrap().to_owned();
    let asked = |place: &Place| {
        for lab in ["mysql", "tpcc"] {
            let args = ["db", lab, ".", "--socket", &socket];
            let said = place.fathom(&args).expect(2);
            assert!(
                said.stderr
                    .contains("expected the socket of a running MariaDB"),
                "{}",
                said.stderr
            );
            assert!(place.names().is_empty() && names(&place.runs()).is_empty());
        }
    };
    asked(&place);
    // Somebody else's: one that hangs up, one that talks of other things.
    for words in [&b""[..], b"220 mail ready\r\n"] {
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                let _ = stream.unwrap().write_all(words);
            }
        });
        asked(&place);
        served.join().unwrap();
        fs::remove_file(&path).unwrap();
    }
}

/// A server of the user's own, ended with the test.
struct Server {
    child: Child,
    dir: tempfile::TempDir,
}

impl Server {
    fn start(sql: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let of =
            |option: &str, name: &str| format!("--{option}={}", dir.path().join(name).display());
        fs::write(dir.path().join("init.sql"), sql).unwrap();
        let quiet = |program: &str| {
            let mut command = Command::new(crate::common::machine::find(program).unwrap());
            command.arg("--no-defaults").arg(of("datadir", "data"));
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            if rustix::process::geteuid().is_root() {
                command.arg("--user=root");
            }
            command
        };
        let made = quiet("mariadb-install-db")
            .args([
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ])
            .status();
        assert!(made.unwrap().success());
        let child = quiet("mariadbd")
            .args([
                of("socket", "s"),
                of("pid-file", "pid"),
                of("init-file", "init.sql"),
            ])
            .args([
                "--skip-networking",
                "--innodb-buffer-pool-size=16M",
                "--innodb-log-file-size=16M",
            ])
            .spawn()
            .unwrap();
        let server = Self { child, dir };
        // Its socket comes when the statements at its start are done.
        until("the server is there", || {
            server.dir.path().join("s").exists()
        });
        server
    }

    fn databases(&self) -> Vec<String> {
        let all = names(&self.dir.path().join("data"));
        let of = |n: &String| n.starts_with("fathom_") || n == "mine";
        all.into_iter().filter(of).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn in_a_server_of_the_users_only_fathoms_own_database_is_made_and_removed() {
    let _turn = beside_others();
    if !mariadb() {
        return;
    }
    let place = Place::new();
    // A shell that waits, so that the number of the process that fathom will be is known.
    let out = place.runs();
    let fathom = place.command(&[
        "db",
        "mysql",
        ".",
        "--out",
        out.to_str().unwrap(),
        "--socket",
    ]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "read x; exec \"$0\" \"$@\" \"$x\""]);
    shell
        .arg(fathom.get_program())
        .args(fathom.get_args())
        .env("USER", "root");
    shell
        .current_dir(&place.dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut same = shell.spawn().unwrap();
    let taken = format!("fathom_{}", same.id());
    let mut sql = format!(
        "CREATE DATABASE {taken};\nCREATE TABLE {taken}.t (a INT);\nCREATE DATABASE mine;\n"
    );
    // What a killed run left, and one in which the user has put something.
    for (name, table) in [
        ("fathom_4000000001", "sbtest1"),
        ("fathom_4000000002", "accounts"),
    ] {
        sql += &format!(
            "CREATE DATABASE {name};\nCREATE TABLE {name}.made_by_fathom (version VARCHAR(20));\nCREATE TABLE {name}.{table} (a INT);\n"
        );
    }
    let server = Server::start(&sql);
    let socket = server.dir.path().join("s").to_str().unwrap().to_owned();
    let mut kept = vec![
        "fathom_4000000002".to_owned(),
        taken.clone(),
        "mine".to_owned(),
    ];
    kept.sort();
    // The database that it would make is there already.
    writeln!(same.stdin.take().unwrap(), "{socket}").unwrap();
    let said = end(same).expect(2);
    assert!(
        said.stderr
            .contains(&format!("there is a database {taken} already")),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr
            .contains("removed the database fathom_4000000001"),
        "{}",
        said.stderr
    );
    assert_eq!(server.databases(), kept);
    let of = |lab: &str, more: &[&str]| {
        let args = [
            "db",
            lab,
            ".",
            "--socket",
            &socket,
            "--time",
            "300ms",
            "--repeats",
            "2",
            "--no-embedded",
        ];
        let mut command = place.command(&[&args[..], &["--json"], more].concat());
        command.env("USER", "root");
        found(wait(command))
    };
    let Some(json) = of(
        "mysql",
        &["--experiment", "one", "--rows", "2000", "--threads", "2"],
    ) else {
        return;
    };
    promised(&json);
    assert_eq!(ids(&json, "sections"), ["oltp-one"]);
    assert_eq!(
        table(&json, "oltp-one-table")["rows"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let text = json["sections"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("(yours)") && text.contains("innodb_flush_log_at_trx_commit=1"),
        "{text}"
    );
    assert_eq!(server.databases(), kept);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn without_any_server_the_labs_say_what_to_install_and_the_run_is_void() {
    let _turn = beside_others();
    let place = Place::new();
    for (lab, more, results) in [
        (
            "mysql",
            &["--experiment", "one", "--size", "64m"][..],
            &["kv", "oltp-skipped"][..],
        ),
        (
            "tpcc",
            &["--database", "mariadb", "--no-embedded"],
            &["tpcc-skipped"],
        ),
    ] {
        let args = [
            "db",
            lab,
            ".",
            "--time",
            "200ms",
            "--repeats",
            "1",
            "--json",
        ];
        let mut command = place.command(&[&args[..], more].concat());
        command.env("PATH", "");
        let said = wait(command);
        if no_room(&said) {
            continue;
        }
        let json = said.expect(1).json();
        assert_eq!(codes(&json["flags"]), ["not-checked"]);
        assert_eq!(ids(&json, "sections"), results);
        let id = format!("{}-table", results[results.len() - 1]);
        let row: &Value = &table(&json, &id)["rows"][0];
        assert!(
            row[2]
                .as_str()
                .unwrap()
                .starts_with("apt-get install mariadb-server-core mariadb-client-core"),
            "{row}"
        );
        assert!(place.names().is_empty(), "{:?}", place.names());
    }
}

#[test]
fn a_tree_on_a_raw_device_needs_its_name_and_other_labs_a_file_system() {
    let _turns = (turn(), beside_others());
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(128);
    let device = Loop::of(&disk.image);
    let before = disk.checksum();
    let place = Place::new();
    let how = [
        "--keys",
        "20000",
        "--time",
        "200ms",
        "--repeats",
        "1",
        "--threads",
        "4",
    ];
    let kv = ["kv", device.str(), "--workload", "update,insert,b"];
    let said = place.fathom(&[&kv[..], &how].concat()).refusal();
    assert!(
        said.contains(&format!("--destroy {}", device.str())),
        "{said}"
    );
    let db = ["db", "tpcc", device.str(), "--destroy", device.str()];
    let said = place
        .fathom(&[&db[..], &["--database", "sqlite", "--no-embedded"]].concat())
        .expect(2);
    assert!(
        said.stderr.contains("a database needs a file system"),
        "{}",
        said.stderr
    );
    assert_eq!(disk.checksum(), before, "no byte has changed");
    let destroy = ["--destroy", device.str(), "--commit", "--json"];
    let Some(json) = found(place.fathom(&[&kv[..], &how, &destroy].concat())) else {
        return;
    };
    promised(&json);
    assert_eq!(json["target"]["kind"], "block-device");
    let rows = table(&json, "kv-table")["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_ne!(disk.checksum(), before, "it was written");
}

#[test]
fn labs_run_on_arrays_of_the_other_lab() {
    let _turns = (turn(), beside_others());
    if !possible(&["mkfs.btrfs"]) {
        return;
    }
    let place = Place::new();
    let lab = "kv --size 64m --keys 20000 --time 200ms --repeats 1 --workload update --threads 4";
    let args = [
        "raid",
        ".",
        "--size",
        "256m",
        "--levels",
        "0,1",
        "--members",
        "2",
    ];
    let said = place.fathom(&[&args[..], &["--lab", lab, "--json"]].concat());
    if said.code == Some(2) {
        let missing = ["has no btrfs", "fit", "has room for", "loop"]
            .iter()
            .any(|w| said.stderr.contains(w));
        assert!(missing, "{}", said.stderr);
        return skip(said.stderr.trim());
    }
    let json = said.json();
    let section = &json["sections"][0];
    assert_eq!(section["id"], "raid-lab", "{}", said.stderr);
    let rows = table(&json, "raid-lab-kv-update-ops")["rows"]
        .as_array()
        .unwrap();
    assert_eq!(rows.len(), 2, "{}", said.stderr);
    for (row, array) in rows.iter().zip(["RAID 0 of 2", "RAID 1 of 2"]) {
        assert_eq!(row[0], array);
        // The lab keeps a run of its own.
        let dir = place.dir.join(row[4].as_str().unwrap());
        assert!(dir.join("run.json").exists(), "{row}");
    }
    assert!(place.names().is_empty(), "{:?}", place.names());
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mine = section["tables"][0]["rows"].as_array().unwrap().len();
    assert!(
        mine == 2 && !mounts.contains(place.dir.to_str().unwrap()),
        "{mounts}"
    );
    for (bad, said) in [
        (&["--lab", "survey"][..], "expected db mysql"),
        (
            &["--lab", "db tpcc", "--backend", "btrfs", "--mkfs", "xfs"],
            "a file system already",
        ),
    ] {
        let refused = place.fathom(&[&args[..], bad].concat()).refusal();
        assert!(refused.contains(said), "{refused}");
    }
}
