//! Values that databases give: page sizes and caches of InnoDB (Zhang et al., V), RocksDB and TPC-C on arrays (Han et
//! al., 4.2).

use fathom_bench::results::Evidence;
use fathom_experiments::reproduce::ReproduceOptions;

use super::{Found, Lab};
use crate::db::oltp::{Mix, OltpResult, Rows};
use crate::raid::WithinResult;

/// Best page size: transactions, and its value for each of the two devices outside of machines.
const BEST: [(Mix, [&str; 2]); 3] = [
    (Mix::Read, ["Z102", "Z108"]),
    (Mix::Mixed, ["Z103", "Z109"]),
    (Mix::Write, ["Z104", "Z110"]),
];
/// Transactions with half of the data cached over those with 3 %, for each of the two.
const CACHED: [&str; 2] = ["Z117", "Z118"];
/// Levels in the order of Fig. 6 and 7, each with two values for each workload.
const LEVELS: [u32; 5] = [0, 1, 10, 5, 6];
const WORKLOADS: [&str; 4] = ["fillrandom", "fillseq", "readrandom", "readseq"];
/// Of Fig. 6 and 7.
const ROCKSDB: u32 = 127;
/// Fig. 8.
const TPCC: [(&str, u32); 5] = [
    ("H173", 0),
    ("H174", 1),
    ("H175", 5),
    ("H176", 6),
    ("H177", 10),
];
/// Bytes of a row of sysbench's table, as InnoDB stores it.
const ROW: u64 = 245;
/// Members of an array. The paper does not say how many there were.
const MEMBERS: u64 = 4;

fn words(w: &[&str]) -> Vec<String> {
    w.iter().map(|w| (*w).to_owned()).collect()
}

/// Values that fathom db mysql gives.
pub(super) fn of_mysql() -> Vec<String> {
    let best = BEST.iter().flat_map(|b| b.1);
    words(&best.chain(CACHED).collect::<Vec<_>>())
}

/// Values that databases on arrays give.
pub(super) fn of_arrays() -> Vec<String> {
    let rocksdb = ROCKSDB..ROCKSDB + (LEVELS.len() * WORKLOADS.len()) as u32 * 2;
    let mut all: Vec<String> = rocksdb.map(|n| format!("H{n:03}")).collect();
    all.extend(TPCC.iter().map(|t| t.0.to_owned()));
    all
}

/// What every database lab is told.
fn common(options: &ReproduceOptions) -> Vec<String> {
    let time = format!("{}ns", options.time.0);
    let repeats = options.repeats().to_string();
    words(&["--no-embedded", "--time", &time, "--repeats", &repeats])
}

/// V-A: 20 GB of data, a pool of 32 MB, 16 threads; V-C: a Gaussian distribution, mixed transactions.
pub(super) fn mysql(wanted: &dyn Fn(&[String]) -> bool, options: &ReproduceOptions) -> Vec<Lab> {
    let rows = options.size.map_or(20_000 << 20, |s| s.0) / ROW;
    let rows = rows.clamp(1000, 2_000_000_000).to_string();
    let of = |more: &[&str]| {
        let mut arguments = words(more);
        arguments.extend(words(&[
            "--rows",
            &rows,
            "--pool",
            "32m",
            "--threads",
            "16",
        ]));
        arguments.extend(common(options));
        Lab {
            command: "db-mysql",
            arguments,
        }
    };
    let mut labs = Vec::new();
    if wanted(&words(&BEST.map(|b| b.1[0]))) || wanted(&words(&BEST.map(|b| b.1[1]))) {
        labs.push(of(&["--experiment", "page-size"]));
    }
    if wanted(&words(&CACHED)) {
        let how = ["--distribution", "gaussian", "--workload", "mixed"];
        labs.push(of(&[&["--experiment", "cache"][..], &how].concat()));
    }
    labs
}

/// 4.2: db_bench by 64 threads, TPC-C with a pool of 1 GB, on every level.
pub(super) fn on_arrays(
    wanted: &dyn Fn(&[String]) -> bool,
    options: &ReproduceOptions,
) -> Vec<Lab> {
    // The data set lies on all members; a mirror of four holds two.
    let member = options.size.map_or(256_000_000_000, |s| s.0) / 8;
    let common = common(options).join(" ");
    let of = |lab: String| {
        let mut arguments = words(&["--backend", "btrfs", "--members", &MEMBERS.to_string()]);
        arguments.extend(words(&["--size", &member.to_string(), "--lab", &lab]));
        Lab {
            command: "raid",
            arguments,
        }
    };
    let mut labs = Vec::new();
    let (tpcc, rocksdb): (Vec<String>, Vec<String>) = of_arrays()
        .into_iter()
        .partition(|id| TPCC.iter().any(|t| t.0 == id));
    if wanted(&rocksdb) {
        // A lab makes sure of four times its data.
        let keys = (member / 4 / 416).clamp(1000, 100_000_000);
        let names = WORKLOADS.join(",");
        labs.push(of(format!(
            "db rocksdb --workload {names} --keys {keys} --threads 64 {common}"
        )));
    }
    if wanted(&tpcc) {
        let warehouses = (member / (600 << 20)).clamp(1, 1000);
        let pool = (member / 8).clamp(64 << 20, 1 << 30);
        labs.push(of(format!(
            "db tpcc --database mariadb --warehouses {warehouses} --terminals 64 --pool {pool} {common}"
        )));
    }
    labs
}

/// What the result of fathom db mysql says.
pub(super) fn innodb(evidence: &Evidence<'_>) -> Vec<Found> {
    let Some(result) = evidence.result::<OltpResult>() else {
        return Vec::new();
    };
    let best = BEST.iter().filter_map(|(mix, ids)| {
        let (page, verdict) = result.best_page(evidence, *mix)?;
        let note = format!("InnoDB of MariaDB; {verdict}");
        Some(Found::new(ids, page, &note))
    });
    let cached = match result.rows() {
        Rows::Gaussian => result.half_cached(evidence, Mix::Mixed),
        _ => None,
    };
    let note = "InnoDB of MariaDB; 50 % cached over the smallest pool of the run";
    best.chain(cached.map(|times| Found::new(&CACHED, times, note)))
        .collect()
}

/// What another lab in the arrays of fathom raid says. The jobs are in its own runs; what stands against its numbers is a
/// flag of each.
pub(super) fn arrays(evidence: &Evidence<'_>) -> Vec<Found> {
    let Some(result) = evidence.result::<WithinResult>() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    let mut put = |headline: &str, id: &dyn Fn(u32) -> Option<String>| {
        for (level, value, said) in result.by_level(headline) {
            let note = format!("on btrfs; {said}");
            let id = id(level);
            all.extend(id.map(|id| Found::new(&[&id], (value, Vec::new()), &note)));
        }
    };
    put("tpcc-mariadb", &|level| {
        let known = TPCC.iter().find(|t| t.1 == level)?;
        Some(known.0.to_owned())
    });
    for (w, name) in WORKLOADS.iter().enumerate() {
        for (i, suffix) in ["", "-mean"].iter().enumerate() {
            put(&format!("rocksdb-{name}{suffix}"), &|level| {
                let l = LEVELS.iter().position(|x| *x == level)?;
                Some(format!("H{:03}", ROCKSDB as usize + l * 8 + w * 2 + i))
            });
        }
    }
    all
}
