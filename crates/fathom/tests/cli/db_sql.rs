//! `fathom db sql`: pgbench's scripts on databases, what they are told, and that nothing is left.

use std::fs;

use serde_json::Value;

use crate::common::{Place, Said, beside_others, skip, until, wait};
use crate::contract::promised;
use crate::db::{beside, found, ids, is_rate, no_room, table};
use crate::db_failures::{mariadb, reached};
use crate::own_servers::{SECRET, postgresql, postgresql_with, quiet};
use crate::postgres::open_place;

const INIT: &str = "-- tables of one's own; not pgbench's\nCREATE TABLE stock (id int PRIMARY KEY, n int);\n\
    INSERT INTO stock VALUES (1, 10), (2, 20),\n  (3, 30); CREATE TABLE log (id int, n int);\n";
const READ: &str = "\\set id random(1, :rows)\nSELECT n FROM stock WHERE id = :id \\gset got_\n\
    \\if :got_n < 0\nSELECT no_such_column FROM stock;\n\\endif\n";
/// So seldom that its log does not matter: a database is warm then, however quick the machine.
const WRITE: &str = "\\set id permute(:client_id, :rows) + 1\nUPDATE stock SET n = n + 1 WHERE id = :id;\n\
    INSERT INTO log VALUES (:id, CASE WHEN 1 = 1 THEN 5 END);\n\\sleep 50 ms\n";

fn run(place: &Place, line: &str) -> Said {
    for (name, text) in [("init.sql", INIT), ("read.sql", READ), ("write.sql", WRITE)] {
        fs::write(place.dir.join(name), text).unwrap();
    }
    let repeats = if line.contains("--repeats") {
        ""
    } else {
        "--repeats 1 "
    };
    let all = format!("db sql . {repeats}--json {line}");
    place.fathom(&all.split(' ').collect::<Vec<_>>())
}

/// What is not the test's own.
fn left(place: &Place) -> Vec<String> {
    let mut names = place.names();
    names.retain(|n| !n.ends_with(".sql"));
    names
}

/// Rows of a table by the columns that name them.
fn kinds(json: &Value) -> Vec<(String, f64)> {
    let rows = table(json, "sql-kinds")["rows"].as_array().unwrap();
    let row = |r: &Value| {
        (
            r[1].as_str().unwrap().to_owned(),
            r[2].as_f64().unwrap_or(0.0),
        )
    };
    rows.iter().map(row).collect()
}

/// Two scripts on tables of their own, in one mode: each is recorded for itself, by its weight.
fn own_scripts(place: &Place, database: &str, mode: &str) {
    let line = format!(
        "--database {database} --mode {mode} --script read.sql@3 --script write.sql --init init.sql -D rows=3 --clients 2 --time 1s"
    );
    let Some(json) = found(run(place, &line)) else {
        return;
    };
    promised(&json);
    let kinds = kinds(&json);
    assert_eq!(
        kinds.iter().map(|k| k.0.as_str()).collect::<Vec<_>>(),
        ["read.sql", "write.sql"]
    );
    if kinds.iter().map(|k| k.1).sum::<f64>() > 0.0 {
        assert!((50.0..95.0).contains(&kinds[0].1), "{kinds:?}");
        let rate = &table(&json, "sql-table")["rows"][0];
        assert!(is_rate(&rate[1]), "{rate}");
    }
    let names: Vec<&str> = json["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|j| j["name"].as_str())
        .collect();
    for kind in ["read.sql", "write.sql"] {
        let name = format!("sql-{database}-{kind}.1");
        assert!(names.contains(&name.as_str()), "{names:?}");
    }
    assert_eq!(ids(&json, "headlines"), [format!("sql-{database}")]);
    // And what bounds it, where that is shown.
    let findings = ids(&json, "findings");
    assert_eq!(findings[0], format!("sql-{database}-carries"));
    let known = [format!("sql-{database}-bound"), "sql-beside".to_owned()];
    assert!(
        findings[1..].iter().all(|f| known.iter().any(|k| k == f)),
        "{findings:?}"
    );
    // How durable it was, asked of it.
    let said = beside(&json, "sql-beside");
    assert!(
        said.contains(&format!("{database}: ")) && said.contains('='),
        "{said}"
    );
    assert!(left(place).is_empty(), "{:?}", left(place));
}

#[test]
fn own_scripts_run_on_sqlite() {
    let _turn = beside_others();
    for mode in ["simple", "prepared"] {
        own_scripts(&Place::new(), "sqlite", mode);
    }
}

#[test]
fn own_scripts_run_on_mariadb() {
    let _turn = beside_others();
    if mariadb() {
        for mode in ["simple", "prepared"] {
            own_scripts(&Place::new(), "mariadb", mode);
        }
    }
}

#[test]
fn own_scripts_run_on_postgresql() {
    let _turn = beside_others();
    let Some(place) = open_place() else { return };
    // As text they run there beside pgbench.
    own_scripts(&place, "postgresql", "prepared");
}

#[test]
fn pgbench_and_fathom_run_the_same_scripts_on_one_server() {
    let _turn = beside_others();
    let Some(place) = open_place() else { return };
    // On pgbench's own tables; several statements at once; what nobody names stays.
    let script = "\\set aid random(1, 100000 * :scale)\nSELECT 1 AS one \\; SELECT abalance, :aid AS aid FROM pgbench_accounts WHERE aid = :aid \\aset\n\
        SELECT '12:30'::time, ':nobody', :one + :aid;\n";
    fs::write(place.dir.join("p.sql"), script).unwrap();
    let said = run(
        &place,
        "--script p.sql --builtin tpcb-like --driver pgbench --clients 2 --time 2s",
    );
    if said.stderr.contains("pgbench is not installed") {
        return skip("no pgbench: apt-get install postgresql-contrib");
    }
    let Some(json) = found(said) else { return };
    promised(&json);
    let row = &table(&json, "sql-cross-check")["rows"][0];
    assert_eq!(row[0], "postgresql");
    assert!(is_rate(&row[2]), "{row}");
}

#[test]
fn a_script_that_fails_is_named_with_its_line_and_the_databases_words() {
    let _turn = beside_others();
    let place = Place::new();
    fs::write(
        place.dir.join("bad.sql"),
        "SELECT 1;\n\n  SELECT x\nFROM nowhere;\n",
    )
    .unwrap();
    fs::write(place.dir.join("zero.sql"), "\\set x 0\n\\set y 1 / :x\n").unwrap();
    for (script, words) in [
        ("bad.sql", "bad.sql, line 3: no such table: nowhere"),
        ("zero.sql", "zero.sql, line 2: division by zero"),
    ] {
        let said = run(
            &place,
            &format!("--database sqlite --script {script} --time 300ms"),
        );
        if no_room(&said) {
            return;
        }
        assert_eq!(said.code, Some(1), "{}", said.stderr);
        assert!(said.stderr.contains(words), "{}", said.stderr);
        assert!(left(&place).is_empty(), "{:?}", left(&place));
    }
}

#[test]
fn a_database_carries_what_it_answers_within_the_objective() {
    let _turn = beside_others();
    let place = Place::new();
    let Some(json) = found(run(
        &place,
        "--database sqlite --builtin select-only --p99 1h --clients 2 --time 400ms",
    )) else {
        return;
    };
    promised(&json);
    let rows = table(&json, "sql-steps")["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    assert_eq!(
        ids(&json, "headlines"),
        ["sql-sqlite", "sql-sqlite-carried"]
    );
    let said = json["findings"][0]["text"].as_str().unwrap();
    assert!(said.contains("p99 ≤ "), "{said}");
}

/// A setting is tried in two rounds: without and with it, with and without it.
fn tried(json: &Value, database: &str, setting: &str) {
    promised(json);
    let row = &table(json, "sql-try-tried")["rows"][0];
    assert_eq!((&row[0], &row[1]), (&"select-only".into(), &setting.into()));
    assert!(is_rate(&row[2]) && is_rate(&row[3]), "{row}");
    let names: Vec<&str> = json["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|j| j["name"].as_str()?.strip_prefix("sql-"))
        .collect();
    let with = format!("{database}-{}", setting.replace('=', "-"));
    let turn = |line: &str, repeat| format!("{line}-select-only.{repeat}");
    let expected = [
        turn(database, 1),
        turn(&with, 1),
        turn(&with, 2),
        turn(database, 2),
    ];
    assert_eq!(names, expected);
    let about = |f: &&str| f.starts_with("sql-try-");
    assert_eq!(ids(json, "findings").into_iter().filter(about).count(), 1);
}

#[test]
fn settings_are_tried_in_turns_on_the_labs_servers() {
    let _turn = beside_others();
    for (database, setting) in [
        ("mariadb", "innodb_flush_neighbors=0"),
        ("postgresql", "commit_delay=10"),
    ] {
        let place = match database {
            "mariadb" if mariadb() => Place::new(),
            "postgresql" => match open_place() {
                Some(place) => place,
                None => continue,
            },
            _ => continue,
        };
        let line = format!(
            "--database {database} --builtin select-only --try {setting} --clients 2 --time 300ms --repeats 2 --max-tries 3"
        );
        let Some(json) = found(run(&place, &line)) else {
            continue;
        };
        tried(&json, database, setting);
        // As pgbench counts them.
        let rows = table(&json, "sql-tries")["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        let said = run(
            &place,
            &format!("--database {database} --try no_such_setting=1 --time 300ms"),
        );
        if !no_room(&said) {
            assert_eq!(said.code, Some(2), "{}", said.stderr);
            assert!(said.stderr.contains("no_such_setting"), "{}", said.stderr);
        }
        assert!(left(&place).is_empty(), "{:?}", left(&place));
    }
}

#[test]
fn settings_are_tried_on_sessions_of_a_server_of_the_users() {
    let _turn = beside_others();
    let Some(bin) = postgresql() else { return };
    let place = Place::new();
    let server = postgresql_with(&bin, None);
    let url = server.url("postgres", "bench", "");
    let line = "db sql . --builtin select-only --clients 2 --time 300ms --repeats 2 --json --try synchronous_commit=off --server";
    let mut args: Vec<&str> = line.split(' ').collect();
    args.push(&url);
    let mut command = place.command(&args);
    command
        .env("FATHOM_DB_PASSWORD", SECRET)
        .env("HOME", place.base());
    let Some(json) = found(wait(command)) else {
        return;
    };
    tried(&json, "postgresql", "synchronous_commit=off");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let _turn = beside_others();
    let place = Place::new();
    for (name, text) in [
        ("open.sql", "\\if true\nSELECT 1;\n"),
        ("shell.sql", "SELECT 1;\n\\shell rm -rf x\n"),
        ("joined.sql", "SELECT 1 \\; SELECT 2;\n"),
        ("empty.sql", "-- nothing\n"),
    ] {
        fs::write(place.dir.join(name), text).unwrap();
    }
    for (line, words) in [
        (
            "--script open.sql",
            "open.sql: line 1, column 1: \\if without matching \\endif",
        ),
        (
            "--script shell.sql",
            "shell.sql: line 2, column 1: \\shell is not done here",
        ),
        ("--script joined.sql --mode prepared", "use --mode simple"),
        ("--script empty.sql", "it has no command"),
        ("--script nowhere.sql", "nowhere.sql: cannot be read"),
        ("--script open.sql@many", "'many' is no weight"),
        ("--builtin tpcc", "'tpcc' is none: expected tpcb-like"),
        ("--builtin select-only@0", "nothing to do"),
        ("-D 1x=2", "expected NAME=VALUE"),
        (
            "--driver pgbench --database sqlite",
            "add --database postgresql",
        ),
        ("--try commit_delay=5", "are settings of one server"),
        (
            "--database sqlite --set synchronous=1",
            "add --database mariadb",
        ),
        (
            "--database postgresql --try commit_delay=5 --rate 9",
            "leave out --rate",
        ),
        ("--database postgresql --try shared_buffers=5", "use --pool"),
        ("--database mariadb --change-server", "--try"),
        ("--postgres .", "there is no program postgres in it"),
        (
            "--database sqlite --postgres /usr/bin",
            "add --database postgresql",
        ),
        ("--rate 5 --p99 20ms", "exclude each other"),
        ("--pool 1m", "6m or more"),
    ] {
        let said = run(&place, line);
        assert_eq!(said.code, Some(2), "{line}: {}", said.stderr);
        assert!(said.stderr.contains(words), "{line}: {}", said.stderr);
    }
    assert!(left(&place).is_empty(), "{:?}", left(&place));
}

#[test]
fn tables_of_scripts_go_from_a_server_of_the_users_also_after_a_kill() {
    let _turn = beside_others();
    let Some(bin) = postgresql() else { return };
    let place = Place::new();
    let server = postgresql_with(&bin, None);
    let databases = || server.psql("SELECT datname FROM pg_database ORDER BY 1");
    let (before, url) = (databases(), server.url("postgres", "bench", ""));
    fs::write(
        place.dir.join("t.sql"),
        "CREATE TABLE mine (n int); CREATE VIEW seen AS SELECT * FROM mine;",
    )
    .unwrap();
    fs::write(
        place.dir.join("s.sql"),
        "INSERT INTO mine VALUES (:client_id);",
    )
    .unwrap();
    let script = |repeats: &str| {
        let args = [
            "db",
            "sql",
            ".",
            "--init",
            "t.sql",
            "--script",
            "s.sql",
            "--clients",
            "2",
        ];
        let more = [
            "--time",
            "200ms",
            "--json",
            "--server",
            url.as_str(),
            "--repeats",
            repeats,
        ];
        let mut command = place.command(&[&args[..], &more].concat());
        command
            .env("FATHOM_DB_PASSWORD", SECRET)
            .env("HOME", place.base());
        command
    };
    let mut child = quiet(&mut script("9")).spawn().unwrap();
    let name = format!("fathom_{}", child.id());
    let active = format!("SELECT count(*) > 2 FROM pg_stat_activity WHERE datname = '{name}'");
    assert!(
        reached(&mut child, || server.psql(&active) == "t"),
        "no script began"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = format!("SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = '{name}'");
    until("its sessions have ended", || server.psql(&gone) == "t");
    assert!(databases().contains(&name));
    let json = found(wait(script("1")));
    assert_eq!(databases(), before);
    if let Some(json) = json {
        let job = &json["jobs"][0];
        assert!(
            job["engine"].as_str().unwrap().ends_with("(yours)"),
            "{job}"
        );
    }
}
