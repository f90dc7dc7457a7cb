//! `fathom db rocksdb`: what db_bench prints, and what is said where it is missing.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::common::{Place, beside_others, codes, wait};
use crate::contract::promised;
use crate::db::{beside, ids, no_room, table};
use crate::presented::the_same_page;

#[test]
fn what_is_not_installed_is_said_and_the_embedded_tree_is_measured() {
    let _turn = beside_others();
    let place = Place::new();
    let mut command = place.command(&[
        "db",
        "rocksdb",
        ".",
        "--size",
        "64m",
        "--time",
        "200ms",
        "--repeats",
        "1",
        "--json",
    ]);
    command.env("PATH", "");
    let said = wait(command);
    if no_room(&said) {
        return;
    }
    // What was asked for is missing: nobody takes the run for whole.
    let json = said.expect(1).json();
    assert_eq!(codes(&json["flags"]), ["not-checked"]);
    assert_eq!(ids(&json, "sections"), ["kv", "rocksdb-skipped"]);
    let row = &table(&json, "rocksdb-skipped-table")["rows"][0];
    assert_eq!(row[0], "RocksDB");
    assert_eq!(row[2], "apt-get install rocksdb-tools");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

/// db_bench as it would answer: the lab reads what it prints.
const DB_BENCH: &str = r#"#!/bin/sh
for word in "$@"; do
  case $word in
    --version) echo "db_bench version 8.9.1"; exit;;
    --help) echo "waitforcompaction -- pause until compaction is done"; exit;;
    --benchmarks=*) name=${word#--benchmarks=}; all=$name; name=${name%%,*};;
    --report_file=*) report=${word#--report_file=};;
    --db=*) db=${word#--db=}; mkdir -p "$db";;
  esac
done
case $all in fill*,flush,waitforcompaction,stats|read*,stats) ;; *) echo "unknown: $all" >&2; exit 1;; esac
printf 'secs_elapsed,interval_qps
1,20000
2,30000
' > "$report"
echo "$name   :      40.0 micros/op 25000 ops/sec 2.000 seconds 50000 operations;    2.9 MB/s"
echo "Microseconds per ${name%%rand*}:"
echo "[       4,       6 ]    10000  20.000%  20.000% ####"
echo "[       6,      10 ]    40000  80.000% 100.000% ################"
echo "Percentiles: P50: 8.44 P75: 10.75 P99: 31.72 P99.9: 10310.00 P99.99: 22000.00"
echo "rocksdb.bytes.written COUNT : 1000"
echo "rocksdb.wal.bytes COUNT : 1000"
echo "rocksdb.flush.write.bytes COUNT : 900"
echo "rocksdb.compact.write.bytes COUNT : 2000"
echo "rocksdb.block.cache.hit COUNT : 4000"
echo "rocksdb.block.cache.miss COUNT : 60000"
printf '  use_direct_reads=true\n  block_size=4096\n' > "$db/OPTIONS-000007"
"#;

#[test]
fn what_db_bench_prints_becomes_jobs_and_the_page_is_made_of_them_again() {
    let _turn = beside_others();
    let place = Place::new();
    let bin = place.runs().with_file_name("bin");
    std::fs::create_dir(&bin).unwrap();
    let program = bin.join("db_bench");
    std::fs::write(&program, DB_BENCH).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let args = [
        "db",
        "rocksdb",
        ".",
        "--workload",
        "fillrandom,readrandom",
        "--keys",
        "50000",
        "--repeats",
        "2",
        "--no-embedded",
        "--json",
    ];
    let mut command = place.command(&args);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
    let said = wait(command);
    if no_room(&said) {
        return;
    }
    let json = said.expect(0).json();
    promised(&json);
    let jobs = json["jobs"].as_array().unwrap();
    let names: Vec<_> = jobs.iter().map(|j| j["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "rocksdb-fillrandom.1",
            "rocksdb-readrandom.1",
            "rocksdb-fillrandom.2",
            "rocksdb-readrandom.2"
        ]
    );
    let read = &jobs[1]["read"];
    assert_eq!(
        (&read["ios"], &read["iops"]),
        (&50_000.into(), &25_000.0.into())
    );
    assert!((7_900..8_100).contains(&read["response_ns"]["p50"].as_u64().unwrap()));
    assert_eq!(jobs[1]["write"], Value::Null);
    let row = &table(&json, "rocksdb-counters")["rows"][0];
    assert_eq!(row[6]["value"], 3.9, "the log counts: {row}");
    let said = beside(&json, "rocksdb-beside");
    let words = [
        "in all jobs",
        "compacted",
        "sync=0, use_direct_reads=true, block_size=4096 over ",
    ];
    assert!(words.iter().all(|w| said.contains(w)), "{said}");
    let headlines = json["headlines"].as_array().unwrap();
    assert!(
        headlines
            .iter()
            .all(|h| !h["jobs"].as_array().unwrap().is_empty())
    );
    the_same_page(&place, &args);
}
