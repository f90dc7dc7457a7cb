//! Values that two targets give together: ratios of what one lab finds on each.

use fathom_bench::results::Evidence;
use fathom_experiments::reproduce::{ReproduceOptions, Role, Row};
use fathom_io::job::Rw;
use fathom_sim::raid::Level;
use fathom_stats::Estimate;
use fathom_system::array::Shape;

use super::{BLOCK, Found, Lab, Value, databases, put, words};
use crate::app::copy::CopyResult;
use crate::db::oltp::{Mix, OltpResult};
use crate::raid::RaidResult;

/// Transactions that read, with so many threads: the paper's device over the other one.
const READS: [(&str, u32); 2] = [("Z114", 1), ("Z115", 64)];
/// Arrays of striped members: which is better, the other device's in reads, the paper's in writes, by how much at most, %.
const STRIPED: [(&str, Rw, bool); 2] =
    [("H178", Rw::RandRead, true), ("H179", Rw::RandWrite, false)];
/// Members of those arrays.
const MEMBERS: [u32; 4] = [2, 4, 6, 8];
/// Time saved in ingesting photos, %.
const INGEST: &str = "S009";

/// Labs that both targets run, where their values are still missing.
pub fn pairs(options: &ReproduceOptions, rows: &[Row]) -> Vec<Lab> {
    let wanted = |ids: &[&str]| {
        let mut open = rows.iter().filter(|r| r.ours.is_none());
        open.any(|r| ids.contains(&r.id.as_str()))
    };
    let mut labs = Vec::new();
    if wanted(&READS.map(|r| r.0)) {
        labs.push(databases::threads(options));
    }
    if wanted(&STRIPED.map(|s| s.0)) {
        let members = MEMBERS.map(|m| m.to_string()).join(",");
        let mut arguments = words(&["--levels", "0", "--members", &members, "--only", "direct"]);
        arguments.extend(words(&["--rw", "randread,randwrite", "--small", "0"]));
        arguments.extend(words(&["--no-degraded", "--no-rebuild"]));
        arguments.extend(super::common(options, 8));
        labs.push(Lab {
            command: "raid",
            arguments,
        });
    }
    if wanted(&[INGEST]) {
        // The photos of the paper are 37.4 GB.
        let bytes = options
            .size
            .map_or(37_400_000_000, |s| s.0 / 2)
            .max(1 << 20);
        let repeats = options.repeats().max(2).to_string();
        labs.push(Lab {
            command: "app-copy",
            arguments: words(&["--bytes", &bytes.to_string(), "--repeats", &repeats]),
        });
    }
    labs
}

/// Puts what a lab's runs on both targets say of each other beside the published values; how many it filled.
pub fn take_pair(both: [&Evidence<'_>; 2], whence: &str, rows: &mut [Row]) -> usize {
    let mut found = [reads(both), striped(both)].concat();
    found.extend(ingest(both));
    // Jobs of two runs have no list in common: what stands against them is said of each.
    let flags = both.map(|evidence| {
        let all: Vec<usize> = (0..evidence.run().jobs.len()).collect();
        super::flags(evidence, &all)
    });
    let flags: Vec<String> = flags.into_iter().filter(|f| !f.is_empty()).collect();
    put(&found, Role::Measured, &flags.join("; "), whence, rows)
}

/// What the first target changes against the second, as a share of the second's, where both have a number.
fn change(
    both: [&Evidence<'_>; 2],
    of: impl Fn(&Evidence<'_>) -> Option<Estimate>,
) -> Option<Estimate> {
    let [first, second] = both.map(of);
    Some(first?.gain_over(&second?))
}

/// Ends of an interval, where it has any, of what `of` makes of a change.
fn interval(change: &Estimate, of: impl Fn(f64) -> f64, unit: &str) -> String {
    match change.low.zip(change.high) {
        Some((a, b)) => {
            let (low, high) = (of(a).min(of(b)), of(a).max(of(b)));
            format!("; 95 % interval {low:.2} to {high:.2} {unit}")
        }
        None => "; too few repeats for an interval".into(),
    }
}

/// Without jobs of its own.
fn value(number: f64) -> Value {
    (number, Vec::new())
}

fn reads(both: [&Evidence<'_>; 2]) -> Vec<Found> {
    let of = |(id, threads): &(&str, u32)| {
        let rate = |e: &Evidence<'_>| e.result::<OltpResult>()?.by_threads(e, Mix::Read, *threads);
        let change = change(both, rate)?;
        let times = |c: f64| c + 1.0;
        let note = format!(
            "InnoDB of MariaDB; transactions of the first target over those of the second{}",
            interval(&change, times, "x")
        );
        Some(Found::new(&[id], value(times(change.value)), &note))
    };
    READS.iter().filter_map(of).collect()
}

fn striped(both: [&Evidence<'_>; 2]) -> Vec<Found> {
    let of = |(id, rw, second): &(&str, Rw, bool)| {
        let at = |members: u32| {
            let [first, second] = both.map(|e| {
                let array = |s: Shape| s.level == Level::Raid0 && s.members == members;
                e.result::<RaidResult>()?.rate(e, array, *rw, true, BLOCK)
            });
            Some(first?.0 / second?.0)
        };
        let ratios = MEMBERS.iter().filter_map(|m| at(*m));
        let better = ratios.map(|r| if *second { 1.0 / r } else { r });
        let most = better.reduce(f64::max)?;
        let note = match second {
            true => "arrays of the second target over those of the first",
            false => "arrays of the first target over those of the second",
        };
        Some(Found::new(&[id], value((most - 1.0) * 100.0), note))
    };
    STRIPED.iter().filter_map(of).collect()
}

fn ingest(both: [&Evidence<'_>; 2]) -> Option<Found> {
    let change = change(both, |e| e.result::<CopyResult>()?.copied_in(e))?;
    let saved = |c: f64| c * -100.0;
    let note = format!(
        "files copied on the first target against the second{}",
        interval(&change, saved, "%")
    );
    Some(Found::new(&[INGEST], value(saved(change.value)), &note))
}
