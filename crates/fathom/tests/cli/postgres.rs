//! TPC-C on a private PostgreSQL: its server has an account of its own, processes of its own, and a piece of shared
//! memory that no directory holds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::common::{Place, beside_others, codes, end, send, skip, until};
use crate::contract::promised;
use crate::db::{beside, conditions_hold, found, ids, no_room, table, tpcc};
use crate::db_failures::{lab, process, reached};

/// Whether there is a server to be made.
pub(crate) fn installed() -> bool {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let there = debian
        .flatten()
        .any(|v| v.path().join("bin/initdb").exists())
        || crate::common::machine::find("initdb").is_some();
    if !there {
        skip("no PostgreSQL: apt-get install postgresql");
    }
    there
}

/// A place that the server's account may enter, where there is a server and such a place.
pub(crate) fn open_place() -> Option<Place> {
    if !installed() {
        return None;
    }
    let place = Place::new();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.dir.parent().unwrap(), open).unwrap();
    let closed = place.dir.ancestors().find(|a| {
        let mode = fs::metadata(a).unwrap().permissions().mode();
        rustix::process::geteuid().is_root() && mode & 0o001 == 0
    });
    if let Some(closed) = closed {
        skip(&format!(
            "a server's account may not enter {}: chmod o+x",
            closed.display()
        ));
        return None;
    }
    Some(place)
}

#[test]
fn tpcc_holds_its_consistency_conditions_on_postgresql() {
    let _turn = beside_others();
    let Some(place) = open_place() else { return };
    conditions_hold(&place, "postgresql", Some("commit_delay=10"));
}

#[test]
fn sysbenchs_load_runs_on_a_private_postgresql_and_what_is_tried_is_a_setting_of_it() {
    let _turn = beside_others();
    let Some(place) = open_place() else { return };
    let mut line: Vec<&str> =
        "db mysql . --database postgresql --rows 4000 --pool 48m --threads 4 --workload read --repeats 2 --time 300ms --no-embedded --json"
            .split(' ')
            .collect();
    line.extend(["--try", "commit_delay=10"]);
    let Some(json) = found(place.fathom(&line)) else {
        return;
    };
    promised(&json);
    let engines: Vec<_> = json["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|j| j["engine"].as_str().unwrap())
        .collect();
    assert!(
        engines.len() == 4 && engines.iter().all(|e| e.contains("(PostgreSQL) ")),
        "{engines:?}"
    );
    let rows = table(&json, "oltp-try-table")["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    let said = beside(&json, "oltp-beside");
    assert!(
        said.contains("block_size=8192") && said.contains("full_page_writes=on"),
        "{said}"
    );
    let of_server = ids(&json, "sections");
    assert!(of_server.contains(&"oltp-try"), "{of_server:?}");
    assert!(place.names().is_empty(), "{:?}", place.names());
    let refused = "db mysql . --database postgresql --experiment page-size";
    let said = place
        .fathom(&refused.split(' ').collect::<Vec<_>>())
        .expect(2);
    assert!(
        said.stderr
            .contains("it can show threads, one, objective and try"),
        "{}",
        said.stderr
    );
}

#[test]
fn a_directory_that_the_servers_account_may_not_enter_is_named_with_what_to_do() {
    let _turn = beside_others();
    if !installed() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&place.dir, closed).unwrap();
    let Some(json) = found(place.fathom(&tpcc("postgresql", "200ms"))) else {
        return;
    };
    promised(&json);
    assert_eq!(ids(&json, "sections"), ["tpcc-skipped"]);
    let row = &table(&json, "tpcc-skipped-table")["rows"][0];
    assert_eq!(row[0], "postgresql");
    assert!(row[1].as_str().unwrap().contains("may not enter"), "{row}");
    assert!(row[2].as_str().unwrap().starts_with("chmod o+x /"), "{row}");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

/// A load that has come half way.
struct Loading {
    fathom: Child,
    lab: PathBuf,
    /// The first process of the server.
    server: u32,
    /// Key and number of its shared memory.
    segment: String,
}

impl Loading {
    /// `None`, and said, where the disk is too full or the machine too busy.
    fn begin(place: &Place) -> Option<Self> {
        /// What an empty cluster does not have, and half a warehouse has.
        const HALF: u64 = 50 << 20;
        let mut fathom = place.start(&tpcc("postgresql", "60s"));
        let data = || Some(lab(&place.dir)?.join("postgresql/data"));
        let begun = reached(&mut fathom, || {
            data().is_some_and(|d| bytes(&d.join("base")) > HALF)
        });
        if !begun {
            send(fathom.id(), libc::SIGINT);
            if !no_room(&end(fathom)) {
                skip("no server was loading in time: this machine is too busy");
            }
            return None;
        }
        let pid = fs::read_to_string(data()?.join("postmaster.pid")).unwrap();
        let lines: Vec<&str> = pid.lines().collect();
        Some(Self {
            fathom,
            lab: lab(&place.dir)?,
            server: lines[0].trim().parse().unwrap(),
            segment: lines[6].split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    /// Whether its shared memory is there.
    fn shares(segment: &str) -> bool {
        let all = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let rows = all.lines().map(|l| l.split_whitespace().take(2));
        rows.map(|r| r.collect::<Vec<_>>().join(" "))
            .any(|r| r == segment)
    }
}

fn bytes(dir: &Path) -> u64 {
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    all.filter_map(|e| Some((e.path(), e.metadata().ok()?)))
        .map(|(path, m)| if m.is_dir() { bytes(&path) } else { m.len() })
        .sum()
}

#[test]
fn a_postgresql_that_dies_in_the_middle_ends_the_run_with_its_words_and_leaves_nothing() {
    let _turn = beside_others();
    let Some(place) = open_place() else { return };
    let Some(run) = Loading::begin(&place) else {
        return;
    };
    assert!(Loading::shares(&run.segment), "{}", run.segment);
    send(run.server, libc::SIGKILL);
    let said = end(run.fathom).expect(1);
    assert!(said.stderr.contains("postgresql: "), "{}", said.stderr);
    assert!(said.stderr.contains("SIGKILL"), "{}", said.stderr);
    let kept = place.the_run();
    promised(&kept);
    assert!(codes(&kept["flags"]).contains(&"io-errors".to_owned()));
    assert!(place.names().is_empty(), "{:?}", place.names());
    // Its data is named as seen from its own directory: it is known by its number.
    let server = PathBuf::from(format!("/proc/{}", run.server));
    assert!(!server.exists(), "no server is left");
    assert!(!Loading::shares(&run.segment), "{}", run.segment);
}

#[test]
fn a_killed_lab_leaves_no_postgresql_and_clean_takes_its_memory_too() {
    let _turn = beside_others();
    let Some(place) = open_place() else { return };
    let Some(run) = Loading::begin(&place) else {
        return;
    };
    send(run.fathom.id(), libc::SIGKILL);
    end(run.fathom);
    let name = run.lab.file_name().unwrap().to_str().unwrap().to_owned();
    until("the server is gone", || process(&[&name]).is_none());
    let said = place.fathom(&["clean", "."]).expect(0);
    assert!(said.stdout.contains(&name), "{}", said.stdout);
    assert!(place.names().is_empty(), "{:?}", place.names());
    assert!(!Loading::shares(&run.segment), "{}", run.segment);
}
