//! Values that databases give: page sizes and caches of InnoDB (Zhang et al., V), RocksDB and TPC-C on arrays (Han et
//! al., 4.2).

use fathom_telemetry::schema::{Cell, Section, Table};

use super::labs::{Found, Lab, Terms};

/// Best page size: transactions, and its value for each of the two devices outside of machines.
const BEST: [(&str, [&str; 2]); 3] = [
    ("read", ["Z102", "Z108"]),
    ("mixed", ["Z103", "Z109"]),
    ("write", ["Z104", "Z110"]),
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
fn common(terms: &Terms) -> Vec<String> {
    let time = format!("{}ns", terms.time.0);
    let repeats = terms.repeats.to_string();
    words(&["--no-embedded", "--time", &time, "--repeats", &repeats])
}

/// V-A: 20 GB of data, a pool of 32 MB, 16 threads; V-C: a Gaussian distribution, mixed transactions.
pub(super) fn mysql(wanted: &dyn Fn(&[String]) -> bool, terms: &Terms) -> Vec<Lab> {
    let rows = terms.size.map_or(20_000 << 20, |s| s.0) / ROW;
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
        arguments.extend(common(terms));
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
pub(super) fn on_arrays(wanted: &dyn Fn(&[String]) -> bool, terms: &Terms) -> Vec<Lab> {
    // The data set lies on all members; a mirror of four holds two.
    let member = terms.size.map_or(256_000_000_000, |s| s.0) / 8;
    let common = common(terms).join(" ");
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

fn table<'a>(results: &'a [Section], id: &str) -> Option<&'a Table> {
    results.iter().flat_map(|s| &s.tables).find(|t| t.id == id)
}

fn text(row: &[Cell], i: usize) -> &str {
    match row.get(i) {
        Some(Cell::Text(t)) => t,
        _ => "",
    }
}

fn value(row: &[Cell], i: usize) -> Option<f64> {
    match row.get(i)? {
        Cell::Number(n) => Some(*n),
        Cell::Estimate(e) => Some(e.value),
        _ => None,
    }
}

/// What a run of fathom db mysql says.
pub(super) fn innodb(results: &[Section]) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for row in table(results, "oltp-page-size-best").map_or(&[][..], |t| &t.rows) {
        let best = text(row, 1).strip_suffix(" KiB");
        let Some(kib) = best.and_then(|t| t.parse::<f64>().ok()) else {
            continue;
        };
        let ids = BEST.iter().filter(|b| b.0 == text(row, 0));
        for id in ids.flat_map(|b| b.1) {
            let note = format!("InnoDB of MariaDB; {}", text(row, 3));
            all.push((id.to_owned(), kib * 1024.0, note));
        }
    }
    if let Some(times) = table(results, "oltp-cache-table").and_then(cached) {
        let gaussian = results
            .iter()
            .any(|s| s.id == "oltp-cache" && s.text.contains("gaussian"));
        if gaussian {
            let note = "InnoDB of MariaDB; 50 % cached over the smallest pool of the run";
            all.extend(CACHED.map(|id| (id.to_owned(), times, note.to_owned())));
        }
    }
    all
}

/// Of the mixed transactions: the rate with the pool nearest to half of the table over that with the smallest.
fn cached(t: &Table) -> Option<f64> {
    // Transactions, page, compression, pool, threads, bytes of the table, rate.
    let points: Vec<(f64, f64)> = t
        .rows
        .iter()
        .filter(|r| text(r, 0) == "mixed")
        .filter_map(|r| Some((value(r, 3)? / value(r, 5)?, value(r, 6)?)))
        .collect();
    let smallest = points.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let half = points
        .iter()
        .min_by(|a, b| (a.0 - 0.5).abs().total_cmp(&(b.0 - 0.5).abs()))?;
    // A table so small that the least pool holds a good part of it shows nothing of the kind.
    (smallest.0 < 0.1 && half.0 > 0.3).then(|| half.1 / smallest.1)
}

/// What a run of fathom raid with another lab in the arrays says.
pub(super) fn arrays(results: &[Section]) -> Vec<Found> {
    let mut all = Vec::new();
    let by_level = |headline: &str| -> Vec<(u32, f64, String)> {
        let rows = table(results, &format!("raid-lab-{headline}")).map_or(&[][..], |t| &t.rows);
        rows.iter()
            .filter_map(|r| {
                let note = format!("{} of btrfs; {}", text(r, 0), text(r, 4));
                Some((value(r, 1)? as u32, value(r, 3)?, note))
            })
            .collect()
    };
    for (level, ours, note) in by_level("tpcc-mariadb") {
        let id = TPCC.iter().find(|t| t.1 == level);
        all.extend(id.map(|t| (t.0.to_owned(), ours, note)));
    }
    for (w, name) in WORKLOADS.iter().enumerate() {
        for (i, suffix) in ["", "-mean"].iter().enumerate() {
            for (level, ours, note) in by_level(&format!("rocksdb-{name}{suffix}")) {
                if let Some(l) = LEVELS.iter().position(|x| *x == level) {
                    let n = ROCKSDB as usize + l * 8 + w * 2 + i;
                    all.push((format!("H{n:03}"), ours, note));
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(id: &str, text: &str, rows: Vec<Vec<Cell>>) -> Vec<Section> {
        let table = Table {
            id: id.into(),
            title: String::new(),
            columns: Vec::new(),
            rows,
        };
        vec![Section {
            id: "oltp-cache".into(),
            text: text.into(),
            tables: vec![table],
            ..Section::default()
        }]
    }

    fn t(text: &str) -> Cell {
        Cell::Text(text.into())
    }

    #[test]
    fn the_best_page_stands_beside_both_devices_with_its_verdict() {
        let row = vec![
            t("mixed"),
            t("8 KiB"),
            Cell::Number(1.0),
            t("no difference"),
        ];
        let found = innodb(&with("oltp-page-size-best", "", vec![row]));
        let ids: Vec<&str> = found.iter().map(|f| f.0.as_str()).collect();
        assert_eq!(ids, ["Z103", "Z109"]);
        assert!(
            found
                .iter()
                .all(|f| f.1 == 8192.0 && f.2.contains("no difference"))
        );
    }

    #[test]
    fn what_a_cache_brings_is_said_where_its_range_was_measured() {
        let row = |pool: f64, rate: f64| {
            let mut row = vec![t("mixed"), Cell::Number(16384.0), t("none")];
            row.extend([pool, 16.0, 1e9, rate].map(Cell::Number));
            row
        };
        let rows = vec![row(3e7, 100.0), row(5e8, 150.0), row(1.1e9, 400.0)];
        let run = with("oltp-cache-table", "(gaussian keys)", rows.clone());
        let found = innodb(&run);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|f| f.1 == 1.5));
        assert!(innodb(&with("oltp-cache-table", "(uniform keys)", rows)).is_empty());
        let small = with("oltp-cache-table", "(gaussian keys)", vec![row(2e8, 1.0)]);
        assert!(innodb(&small).is_empty());
    }

    #[test]
    fn databases_on_arrays_find_the_papers_values_by_level() {
        let row = |level: f64, value: f64| {
            let number = Cell::Number;
            vec![
                t("RAID"),
                number(level),
                number(4.0),
                number(value),
                t("run"),
            ]
        };
        let of = |id: &str, level| {
            let found = arrays(&with(&format!("raid-lab-{id}"), "", vec![row(level, 2.0)]));
            found[0].0.clone()
        };
        assert_eq!(of("tpcc-mariadb", 5.0), "H175");
        assert_eq!(of("rocksdb-fillrandom", 0.0), "H127");
        assert_eq!(of("rocksdb-readseq-mean", 0.0), "H134");
        assert_eq!(of("rocksdb-readseq-mean", 6.0), "H166");
        assert_eq!(of("rocksdb-fillseq", 10.0), "H145");
        assert_eq!(of_arrays().len(), 45);
    }
}
