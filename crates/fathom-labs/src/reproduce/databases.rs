//! Values that databases give: page sizes and caches of InnoDB (Zhang et al., V), RocksDB and TPC-C on arrays (Han et
//! al., 4.2).

use fathom_bench::results::Evidence;
use fathom_experiments::reproduce::ReproduceOptions;

use fathom_system::array::Local;

use super::{Found, Lab, words};
use crate::db::oltp::{Mix, OltpResult, Rows};
use crate::raid::WithinResult;

/// Best page size: transactions, and its value for each of the two devices, outside of machines and inside.
const BEST: [(Mix, [[&str; 2]; 2]); 3] = [
    (Mix::Read, [["Z102", "Z108"], ["Z105", "Z111"]]),
    (Mix::Mixed, [["Z103", "Z109"], ["Z106", "Z112"]]),
    (Mix::Write, [["Z104", "Z110"], ["Z107", "Z113"]]),
];
/// Transactions with half of the data cached over those with 3 %, for each of the two, outside of machines and inside.
const CACHED: [[&str; 2]; 2] = [["Z117", "Z118"], ["Z119", "Z120"]];
/// Room for the copies of a table that a lab keeps in a machine.
const COPIES: u64 = 8;
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
/// Bytes of a member, at least: a warehouse with its log has room on two of four.
const MEMBER_MIN: u64 = 640 << 20;
/// Members of an array. The paper does not say how many there were.
const MEMBERS: u64 = 4;

/// Values that fathom db mysql gives, in a machine or outside.
pub(super) fn of_mysql(inside: bool) -> Vec<String> {
    let best = BEST.iter().flat_map(|b| b.1[usize::from(inside)]);
    words(&best.chain(CACHED[usize::from(inside)]).collect::<Vec<_>>())
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

/// V-A: 20 GB of data, a pool of 32 MB, 16 threads.
fn innodb_lab(more: &[&str], options: &ReproduceOptions) -> Lab {
    let rows = data(options) / ROW;
    let rows = rows.clamp(1000, 2_000_000_000).to_string();
    let mut arguments = words(more);
    arguments.extend(words(&["--rows", &rows, "--pool", "32m"]));
    arguments.extend(words(&["--threads", "16"]));
    arguments.extend(common(options));
    Lab {
        command: "db-mysql",
        arguments,
    }
}

fn data(options: &ReproduceOptions) -> u64 {
    options.size.map_or(20_000 << 20, |s| s.0)
}

/// V-B: transactions that read, by threads.
pub(super) fn threads(options: &ReproduceOptions) -> Lab {
    innodb_lab(&["--experiment", "threads", "--workload", "read"], options)
}

/// V-A and V-C: page sizes; pools under a Gaussian distribution and mixed transactions. The same in a machine.
pub(super) fn mysql(
    wanted: &dyn Fn(&[String]) -> bool,
    options: &ReproduceOptions,
    machines: bool,
) -> Vec<Lab> {
    let cache = ["--experiment", "cache", "--distribution", "gaussian"];
    let cache = [&cache[..], &["--workload", "mixed"]].concat();
    let mut labs = Vec::new();
    for inside in [false, true].into_iter().take(1 + usize::from(machines)) {
        let side = usize::from(inside);
        let pages: Vec<String> = BEST.iter().flat_map(|b| words(&b.1[side])).collect();
        let mut put = |ids: &[String], more: &[&str]| {
            if wanted(ids) {
                let lab = innodb_lab(more, options);
                labs.push(if inside {
                    in_a_machine(&lab, options)
                } else {
                    lab
                });
            }
        };
        put(&pages, &["--experiment", "page-size"]);
        put(&words(&CACHED[side]), &cache);
    }
    labs
}

/// The lab on the host and in a machine, in turns.
fn in_a_machine(lab: &Lab, options: &ReproduceOptions) -> Lab {
    let size = (data(options) * COPIES + (1 << 30)).to_string();
    let typed = format!("db mysql {}", lab.arguments.join(" "));
    Lab {
        command: "vm",
        arguments: words(&["--size", &size, "--lab", &typed]),
    }
}

/// 4.2: db_bench by 64 threads, TPC-C with a pool of 1 GB, on every level.
pub(super) fn on_arrays(
    wanted: &dyn Fn(&[String]) -> bool,
    options: &ReproduceOptions,
) -> Vec<Lab> {
    // The data set lies on all members; a mirror of four holds two.
    let member = options.size.map_or(256_000_000_000, |s| s.0) / 8;
    let member = member.max(MEMBER_MIN);
    let common = common(options).join(" ");
    // As in the paper, where this kernel has md; an emulated guest's would be no figure.
    let md = Local::named("md").is_some_and(|md| md.available().is_ok());
    let of = |lab: String| {
        let mut arguments = words(match md {
            true => &["--backend", "md", "--mkfs", "ext4"],
            false => &["--backend", "btrfs"],
        });
        arguments.extend(words(&["--members", &MEMBERS.to_string()]));
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

/// What the result of fathom db mysql says, in a machine or outside.
pub(super) fn innodb(evidence: &Evidence<'_>, inside: bool) -> Vec<Found> {
    let Some(result) = evidence.result::<OltpResult>() else {
        return Vec::new();
    };
    let best = BEST.iter().filter_map(|(mix, ids)| {
        let (page, verdict) = result.best_page(evidence, *mix)?;
        let note = format!("InnoDB of MariaDB; {verdict}");
        Some(Found::new(&ids[usize::from(inside)], page, &note))
    });
    let cached = match result.rows() {
        Rows::Gaussian => result.half_cached(evidence, Mix::Mixed),
        _ => None,
    };
    let note = "InnoDB of MariaDB; 50 % cached over the smallest pool of the run";
    best.chain(cached.map(|times| Found::new(&CACHED[usize::from(inside)], times, note)))
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
            let note = format!("on {}; {said}", result.about());
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
