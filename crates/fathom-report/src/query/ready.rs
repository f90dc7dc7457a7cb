//! Ready-made queries, for `fathom query` and for DuckDB, and what makes DuckDB see the same tables.

use std::fmt::Write as _;

use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::table::Table;

/// A query with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// The query.
    pub sql: &'static str,
    /// The same in DuckDB's words, where they differ.
    pub duckdb: Option<&'static str>,
}

/// Every ready-made query, in the order of the documentation.
pub const READY: &[Ready] = &[
    Ready {
        name: "percentiles",
        about: "Latency percentiles of each job, from the histograms of all its windows, merged",
        sql: "SELECT name, p.* FROM (
  SELECT job, op, sum(ios) AS ios,
         quantile(service_histogram, 0.5) AS p50_ns, quantile(service_histogram, 0.99) AS p99_ns,
         quantile(service_histogram, 0.999) AS p99_9_ns, max(service_max_ns) AS max_ns,
         quantile(response_histogram, 0.99) AS response_p99_ns
  FROM series GROUP BY job, op) AS p
JOIN jobs USING (job) ORDER BY job, op",
        duckdb: Some(
            "SELECT name, job, op, ios, p50_ns, p99_ns, p99_9_ns, max_ns, response_p99_ns
FROM (SELECT job, op, sum(ios) AS ios, max(service_max_ns) AS max_ns FROM series GROUP BY job, op)
JOIN (SELECT job, op, p50_ns, p99_ns, p99_9_ns FROM quantiles(NULL) WHERE latency = 'service') USING (job, op)
JOIN (SELECT job, op, p99_ns AS response_p99_ns FROM quantiles(NULL) WHERE latency = 'response') USING (job, op)
JOIN jobs USING (job) ORDER BY job, op",
        ),
    },
    Ready {
        name: "over-time",
        about: "I/Os and latency percentiles of each second",
        sql: "SELECT job, op, (start_ns - start_ns % 1000000000) / 1e9 AS second, sum(ios) AS ios, sum(errors) AS errors,
       quantile(service_histogram, 0.5) AS p50_ns, quantile(service_histogram, 0.99) AS p99_ns,
       max(service_max_ns) AS max_ns
FROM series GROUP BY job, op, second ORDER BY job, op, second",
        duckdb: Some(
            "SELECT job, op, start_ns / 1e9 AS second, ios, errors, p50_ns, p99_ns, max_ns
FROM (SELECT job, op, start_ns // 1000000000 * 1000000000 AS start_ns, sum(ios) AS ios, sum(errors) AS errors,
             max(service_max_ns) AS max_ns
      FROM series GROUP BY ALL)
LEFT JOIN (SELECT * FROM quantiles(1000000000) WHERE latency = 'service') USING (job, op, start_ns)
ORDER BY job, op, second",
        ),
    },
    Ready {
        name: "hosts",
        about: "I/Os and latency percentiles of each host",
        sql: "SELECT job, job_name, host, op, sum(ios) AS ios, sum(bytes) AS bytes, sum(errors) AS errors,
       quantile(service_histogram, 0.5) AS p50_ns, quantile(service_histogram, 0.99) AS p99_ns,
       max(service_max_ns) AS max_ns
FROM series GROUP BY job, job_name, host_index, host, op ORDER BY job, host_index, op",
        duckdb: Some(
            "SELECT job, job_name, host, op, ios, bytes, errors, p50_ns, p99_ns, max_ns
FROM (SELECT job, job_name, host_index, host, op, sum(ios) AS ios, sum(bytes) AS bytes, sum(errors) AS errors,
             max(service_max_ns) AS max_ns FROM series GROUP BY ALL)
JOIN (SELECT job, op, host_index, p50_ns, p99_ns FROM quantiles_by_host() WHERE latency = 'service')
     USING (job, op, host_index) ORDER BY job, host_index, op",
        ),
    },
    Ready {
        name: "fairness",
        about: "How evenly hosts share each job: Jain's index (1 is even), and what the slowest does of the fastest",
        sql: "SELECT job, job_name, count(*) AS hosts, sum(x) * sum(x) / (count(*) * sum(x * x)) AS jain, min(x) / max(x) AS slowest_to_fastest
FROM (SELECT job, job_name, host_index, sum(ios) * 1.0 AS x FROM series GROUP BY job, job_name, host_index) AS h
GROUP BY job, job_name ORDER BY job",
        duckdb: None,
    },
    Ready {
        name: "stragglers",
        about: "Windows in which each host did less than every other, and their share of the job",
        sql: "SELECT job, name, host, slowest_windows, slowest_windows * 1.0 / sum(slowest_windows) OVER (PARTITION BY job) AS share, h.p99_ns
FROM hosts AS h JOIN jobs USING (job) ORDER BY job, slowest_windows DESC, host",
        duckdb: None,
    },
    Ready {
        name: "starts",
        about: "How far apart hosts began, and how well their clocks are known",
        sql: "SELECT job, name, count(*) AS hosts, max(late_ns) - min(late_ns) AS apart_ns, max(clock_bound_ns) AS known_to_ns,
       max(abs(clock_moved_ns)) AS moved_ns, sum(tail_ios) AS tail_ios
FROM hosts JOIN jobs USING (job) GROUP BY job, name ORDER BY job",
        duckdb: None,
    },
    Ready {
        name: "worst-windows",
        about: "The windows with the slowest I/Os",
        sql: "SELECT job, op, start_ns / 1e9 AS second, ios, service_p50_ns, service_max_ns
FROM series ORDER BY service_max_ns DESC, job, op, start_ns LIMIT 20",
        duckdb: None,
    },
    Ready {
        name: "totals",
        about: "I/Os, bytes and errors of each job; they equal run.json",
        sql: "SELECT job, op, sum(ios) AS ios, sum(bytes) AS bytes, sum(errors) AS errors, sum(short) AS short,
       sum(service_mean_ns * ios) / sum(ios) AS service_mean_ns
FROM series GROUP BY job, op ORDER BY job, op",
        duckdb: None,
    },
    Ready {
        name: "jobs",
        about: "What was run, with what stands against it",
        sql: "SELECT job, name, experiment, engine, qd_requested, qd_achieved, wall_ns / 1e9 AS seconds, cpu_ns / 1e9 AS cpu_seconds, void, flags
FROM jobs ORDER BY job",
        duckdb: None,
    },
    Ready {
        name: "findings",
        about: "What the run found, best gain first",
        sql: "SELECT rank, confidence, gain, gain_low, gain_high, text, advice FROM findings ORDER BY rank",
        duckdb: None,
    },
    Ready {
        name: "io-percentiles",
        about: "Latency percentiles of each job from its single I/Os",
        sql: "SELECT name, p.* FROM (
  SELECT job, op, count(*) AS ios, avg(service_ns) AS mean_ns,
         quantile(service_ns, 0.5) AS p50_ns, quantile(service_ns, 0.99) AS p99_ns,
         quantile(service_ns, 0.9999) AS p99_99_ns, max(service_ns) AS max_ns,
         quantile(response_ns, 0.99) AS response_p99_ns
  FROM io WHERE error = 0 GROUP BY job, op) AS p
JOIN jobs USING (job) ORDER BY job, op",
        duckdb: None,
    },
    Ready {
        name: "slowest",
        about: "The slowest I/Os, and where they were",
        sql: "SELECT job, thread, op, submitted_ns / 1e9 AS second, \"offset\", len, service_ns, response_ns
FROM io WHERE error = 0 ORDER BY service_ns DESC, submitted_ns LIMIT 20",
        duckdb: None,
    },
    Ready {
        name: "threads",
        about: "What each thread got: fairness",
        sql: "SELECT job, host, thread, count(*) AS ios, sum(done) AS bytes, avg(service_ns) AS mean_ns,
       quantile(service_ns, 0.99) AS p99_ns
FROM io WHERE error = 0 GROUP BY job, host, thread ORDER BY job, host, thread",
        duckdb: None,
    },
    Ready {
        name: "places",
        about: "Latency by place in the target, in GiB",
        sql: "SELECT job, op, \"offset\" >> 30 AS gib, count(*) AS ios, avg(service_ns) AS mean_ns,
       quantile(service_ns, 0.99) AS p99_ns
FROM io WHERE error = 0 GROUP BY job, op, gib ORDER BY job, op, gib",
        duckdb: None,
    },
    Ready {
        name: "sizes",
        about: "Latency by size of the I/O",
        sql: "SELECT job, op, len, count(*) AS ios, avg(service_ns) AS mean_ns, quantile(service_ns, 0.99) AS p99_ns
FROM io WHERE error = 0 GROUP BY job, op, len ORDER BY job, op, len",
        duckdb: None,
    },
    Ready {
        name: "depth",
        about: "Mean number of I/Os outstanding at the device, by Little's law",
        sql: "SELECT job, count(*) AS ios, sum(service_ns) * 1.0 / (max(completed_ns) - min(submitted_ns)) AS outstanding
FROM io GROUP BY job ORDER BY job",
        duckdb: None,
    },
    Ready {
        name: "arrivals",
        about: "Gaps between the arrivals of a thread: what the schedule asked for",
        sql: "SELECT job, count(gap_ns) AS gaps, avg(gap_ns) AS mean_ns, quantile(gap_ns, 0.5) AS p50_ns,
       quantile(gap_ns, 0.99) AS p99_ns, max(gap_ns) AS max_ns
FROM (SELECT job, intended_ns - lag(intended_ns) OVER (PARTITION BY job, host, thread ORDER BY intended_ns) AS gap_ns
      FROM io) AS gaps
GROUP BY job ORDER BY job",
        duckdb: None,
    },
    Ready {
        name: "errors",
        about: "I/Os that failed or transferred less than asked for",
        sql: "SELECT job, op, error, count(*) AS n, min(\"offset\") AS first_offset
FROM io WHERE error <> 0 OR done < len GROUP BY job, op, error ORDER BY n DESC, job, op, error",
        duckdb: None,
    },
];

/// The ready-made query of this name.
pub fn ready(name: &str) -> Option<&'static Ready> {
    READY.iter().find(|r| r.name == name)
}

/// What makes DuckDB see the tables of `fathom query`; `{dir}` is the run directory.
///
const PRELUDE: &str = include_str!("duckdb.sql");

/// The same view `buckets` from histograms as bytes, for runs of versions that had no lists: numbers in LEB128, of which the
/// fourth on are the minimum, the range, the number of buckets, and a distance and a count for each bucket
/// (docs/run-directory.md).
const BUCKETS_OF_BYTES: &str = include_str!("duckdb_bytes.sql");

/// A script for DuckDB: its views of the run in `dir`, and `query` (its name, or SQL).
pub fn duckdb(dir: &RunDir, query: &str) -> String {
    let sql = ready(query).map_or(query, |r| r.duckdb.unwrap_or(r.sql));
    let series = dir.series_files();
    let table = series.first().and_then(|f| Table::open(f).ok());
    let lists = table.is_none_or(|t| t.column("submit_max_ns").is_some());
    let below = match dir.of_hosts().is_empty() {
        true => "",
        false => "fleet=*/host=*/run=*/",
    };
    let has_io = !dir.io_files().is_empty();
    let dir = dir.path().to_string_lossy().replace('\'', "''");
    let mut text = String::new();
    for part in PRELUDE.split_inclusive(";\n") {
        // Views of files that are not there would stop the script.
        if has_io || !part.contains("VIEW io ") {
            let part = match part.contains("VIEW buckets ") && !lists {
                true => BUCKETS_OF_BYTES,
                false => part,
            };
            let part = part.replace("{below}", below);
            text.push_str(&part.replace("{dir}", &dir));
        }
    }
    let sql = sql.trim().trim_end_matches(';');
    let _ = write!(text, "\n{sql};\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_that_no_query_begins_with_and_the_page_has_each() {
        let page = include_str!("../../../../docs/query.md");
        for (i, r) in READY.iter().enumerate() {
            assert!(
                r.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
                "{}",
                r.name
            );
            assert!(READY[..i].iter().all(|o| o.name != r.name), "{}", r.name);
            for sql in [Some(r.sql), r.duckdb].into_iter().flatten() {
                assert!(page.contains(sql), "{} differs in docs/query.md", r.name);
            }
            assert!(page.contains(&format!("`{}`", r.name)), "{}", r.name);
        }
        assert!(
            page.contains(PRELUDE),
            "DuckDB's views differ in docs/query.md"
        );
    }

    #[test]
    fn a_script_for_duckdb_names_the_run_and_leaves_out_what_is_not_there() {
        let base = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&base.path().join("it's"), "run").unwrap();
        let script = duckdb(&dir, "totals");
        let quoted = dir.path().to_str().unwrap().replace('\'', "''");
        assert!(
            script.contains(&format!("'{quoted}/series.parquet'")),
            "{script}"
        );
        assert!(!script.contains("io.parquet"), "{script}");
        assert!(script.ends_with("ORDER BY job, op;\n"), "{script}");
        std::fs::write(dir.io_file(), b"PAR1").unwrap();
        assert!(duckdb(&dir, "SELECT 1").contains("/io.parquet"));
    }
}
