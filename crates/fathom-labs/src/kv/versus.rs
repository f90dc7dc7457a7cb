//! fathom's own tree beside other engines: the same keys, threads, cache and file system, in turns.

use std::collections::BTreeMap;

use fathom_experiments::Notebook;
use fathom_experiments::parts::{
    axis, chart, column, estimate, headline_of, number, point, series,
};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Cell as TableCell, Chart, ChartKind, Section, Table};
use fathom_telemetry::{Flag, FlagCode, Histogram};

use super::results::{label, mean, per_op, rate};
use super::{Cell, KvOptions, Repeat};

fn quantile(repeats: &[Repeat], q: f64) -> Option<f64> {
    let mut all = Histogram::new();
    repeats.iter().for_each(|r| all.merge(&r.outcome.latency));
    all.quantile_supported(q, 10).map(|v| v as f64)
}

/// fathom's rate over the other's, with an interval where both were measured several times.
fn times(own: &[Repeat], other: &[Repeat]) -> Option<Estimate> {
    // Repeats were made in turns: each pair saw the same device.
    let ratios: Vec<f64> = own
        .iter()
        .zip(other)
        .filter_map(|(a, b)| Some(rate(a)? / rate(b)?))
        .collect();
    Estimate::mean_of(&ratios)
}

/// Puts the comparison into the notebook.
pub(super) fn beside(
    book: &mut Notebook,
    cells: &[Cell],
    all: &[Vec<Repeat>],
    options: &KvOptions,
    versions: &BTreeMap<&'static str, String>,
) {
    let mut rows = Vec::new();
    let (mut headlines, mut charts, mut compared) = (Vec::new(), Vec::new(), String::new());
    let (mut own, mut bars): (Option<usize>, Vec<(String, Option<Estimate>)>) = (None, Vec::new());
    for (i, (cell, repeats)) in cells.iter().zip(all).enumerate() {
        if cell.engine.is_none() {
            charts.extend(finished(cells, own, &mut bars));
            own = (cell.workload.sweep == super::Sweep::None).then_some(i);
        }
        let Some(own) = own else { continue };
        let ops = mean(repeats, rate);
        let (name, version, about) = match cell.engine {
            None => (
                "fathom",
                env!("CARGO_PKG_VERSION"),
                "copy-on-write B+tree, many writers",
            ),
            Some(e) => (
                e.name,
                versions.get(e.name).map_or("", String::as_str),
                e.about,
            ),
        };
        bars.push((name.to_owned(), ops));
        let ratio = cell.engine.and_then(|_| times(&all[own], repeats));
        let device =
            |which: usize| estimate(mean(repeats, |r| per_op(r, r.outcome.device?[which])));
        rows.push(vec![
            TableCell::Text(cell.workload.name.into()),
            TableCell::Text(name.into()),
            TableCell::Text(format!("{version}; {about}")),
            number(repeats.last().map(|r| r.cached as f64)),
            estimate(ops),
            estimate(ratio),
            number(quantile(repeats, 0.5)),
            number(quantile(repeats, 0.99)),
            device(0),
            device(1),
            estimate(mean(repeats, |r| {
                per_op(r, 1).map(|x| x * r.outcome.cpu * 1e6)
            })),
        ]);
        let Some(engine) = cell.engine else { continue };
        let mut h = headline_of(
            "Key-value, other engines",
            &format!("{} on {}: operations", cell.workload.name, engine.name),
            &format!("kv-{}-ops", label(cell)),
            "1/s",
            ops,
            Vec::new(),
        );
        // Most of what is read must come from the device, or the page cache has answered.
        let reads = mean(repeats, |r| per_op(r, r.outcome.device?[0]));
        let own_reads = mean(&all[own], |r| per_op(r, r.outcome.device?[0]));
        if let (Some(theirs), Some(ours)) = (reads, own_reads)
            && engine.name != "tupl"
            && ours.value > 0.1
            && theirs.value < ours.value / 2.0
        {
            h.flags.push(Flag::new(
                FlagCode::NotChecked,
                format!("{:.2} reads of the device per operation, fathom's tree makes {:.2}: the page cache gave it more cache than it was allowed", theirs.value, ours.value),
                "use a larger --size, so that more than the memory is looked up",
            ));
        }
        headlines.push(h);
        if let Some(r) = ratio {
            compared.push_str(&told(cell, engine.name, r));
        }
    }
    charts.extend(finished(cells, own, &mut bars));
    let section = Section {
        id: "kv-engines".into(),
        title: "Other engines on the same test".into(),
        text: format!(
            "{} threads, the same keys and values, caches of the same size, files in the same file system, measured in turns. {} Engines that read through the page cache have it emptied ten times a second, so that their own cache is what counts; the reads per operation, as the device counted them, show how far that goes.{compared}",
            options.threads,
            if options.commit {
                "Every commit is synced."
            } else {
                "Changes are durable within a second."
            }
        ),
        charts,
        tables: vec![Table {
            id: "kv-engines-table".into(),
            title: "Engines".into(),
            columns: vec![
                column("workload", ""),
                column("engine", ""),
                column("about", ""),
                column("cache", "bytes"),
                column("operations", "1/s"),
                column("fathom is faster by", "x"),
                column("p50", "ns"),
                column("p99", "ns"),
                column("reads per operation", ""),
                column("writes per operation", ""),
                column("CPU per operation, microseconds", ""),
            ],
            rows,
        }],
        flags: Vec::new(),
    };
    let run = book.run_mut();
    run.sections.push(section);
    run.headlines.extend(headlines);
}

/// The bars of a workload that has been seen to its end.
fn finished(
    cells: &[Cell],
    own: Option<usize>,
    bars: &mut Vec<(String, Option<Estimate>)>,
) -> Option<Chart> {
    let bars = std::mem::take(bars);
    let workload = cells[own?].workload;
    let points = bars
        .iter()
        .enumerate()
        .map(|(i, (_, e))| point(i as f64, *e))
        .collect();
    (bars.len() > 1).then(|| Chart {
        categories: bars.into_iter().map(|(n, _)| n).collect(),
        ..chart(
            &format!("kv-engines-{}", workload.name),
            &format!("Engines: {}", workload.about),
            ChartKind::Bar,
            axis("engine", "", false),
            axis("operations", "1/s", false),
            vec![series("operations", points)],
        )
    })
}

/// How an engine compares, in words.
fn told(cell: &Cell, engine: &str, ratio: Estimate) -> String {
    let sure = ratio
        .low
        .zip(ratio.high)
        .is_some_and(|(low, high)| low > 1.0 || high < 1.0);
    let about = cell.workload.about;
    if sure {
        format!(
            " fathom's tree does {:.2} times the operations of {engine} ({about}).",
            ratio.value
        )
    } else {
        format!(" No difference is shown between fathom's tree and {engine} ({about}).")
    }
}
