//! `fathom sim model`: the papers' formulas, with measured values where a run gives them.

use std::path::Path;

use fathom_sim::analytic::{
    Expectation, PageCosts, PageLoad, cached_latency, insert_ceiling, insert_rate, raid_factors,
};
use fathom_sim::raid::Level;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use fathom_telemetry::{Bytes, Nanos, Op};
use serde_json::{Value, json};

use crate::cli::FormulaCommand;
use crate::exit::{Failure, failed, refused};

/// The answer as text, or as JSON.
pub(super) fn formula(command: &FormulaCommand) -> Result<String, Failure> {
    let (value, text, as_json) = match command {
        FormulaCommand::Cache {
            hits,
            io,
            load,
            json,
        } => {
            let (value, text) = cache(*hits, *io, *load)?;
            (value, text, *json)
        }
        FormulaCommand::Page {
            run,
            seek,
            bandwidth,
            app,
            stack,
            ranges,
            range,
            json,
        } => {
            let measured = run.as_deref().map(measured).transpose()?;
            let (seek_us, gb_per_s) = device_of(*seek, *bandwidth, measured)?;
            let costs = PageCosts {
                app_us: app.0 as f64 / 1e3,
                stack_us: stack.0 as f64 / 1e3,
                seek_us,
                gb_per_s,
                stack_page: 4096.0,
            };
            let load = PageLoad {
                points: 1.0,
                ranges: *ranges,
                range_bytes: range.0 as f64,
            };
            page(&costs, &load, *json)
        }
        FormulaCommand::Raid {
            level,
            devices,
            json,
        } => raid(*level, *devices, *json)?,
        FormulaCommand::Kv {
            iops,
            ios,
            memory,
            data,
            json,
        } => {
            let (value, text) = kv(*iops, *ios, *memory, *data)?;
            (value, text, *json)
        }
    };
    if as_json {
        return Ok(serde_json::to_string_pretty(&value).map_err(failed)? + "\n");
    }
    Ok(text)
}

type Answer = (Value, String, bool);

fn cache(hits: f64, io: Nanos, load: Nanos) -> Result<(Value, String), Failure> {
    if !(0.0..=100.0).contains(&hits) {
        return Err(refused(anyhow::anyhow!(
            "--hits {hits}: expected a share from 0 to 100 percent"
        )));
    }
    let ns = cached_latency(hits / 100.0, io.0 as f64, load.0 as f64);
    let text = format!("{} on average\n", Nanos(ns.round() as u64));
    Ok((json!({ "mean_ns": ns }), text))
}

/// Microseconds of a seek and gigabytes per second: those that were given, else those that were measured.
fn device_of(
    seek: Option<Nanos>,
    bandwidth: Option<f64>,
    measured: Option<(f64, f64)>,
) -> Result<(f64, f64), Failure> {
    let missing = |what: &str| {
        refused(anyhow::anyhow!(
            "--{what}: give it, or --run with a survey that measured it"
        ))
    };
    let seek = seek.map(|s| s.0 as f64 / 1e3);
    let seek = seek.or(measured.map(|m| m.0));
    let bandwidth = bandwidth.or(measured.map(|m| m.1)).filter(|b| *b > 0.0);
    Ok((
        seek.ok_or_else(|| missing("seek"))?,
        bandwidth.ok_or_else(|| missing("bandwidth"))?,
    ))
}

fn kv(iops: f64, ios: f64, memory: Bytes, data: Option<Bytes>) -> Result<(Value, String), Failure> {
    if iops <= 0.0 || ios <= 0.0 {
        return Err(refused(anyhow::anyhow!(
            "--iops and --ios: expected numbers above 0"
        )));
    }
    let ceiling = insert_ceiling(iops, ios / 2.0, ios / 2.0);
    let mut text = format!("{ceiling:.0} inserts per second once nothing is in memory\n");
    let rate =
        data.map(|d| insert_rate(iops * 2.0 / ios, memory.0 as f64, d.0 as f64, f64::INFINITY));
    if let (Some(rate), Some(data)) = (rate, data) {
        text += &match rate.is_finite() {
            true => format!("{rate:.0} with {data} of data and {memory} of memory\n"),
            false => {
                format!("{data} of data fit into {memory} of memory: the processor is the limit\n")
            }
        };
    }
    let rate = rate.filter(|r| r.is_finite());
    Ok((json!({ "ceiling": ceiling, "rate": rate }), text))
}

fn page(costs: &PageCosts, load: &PageLoad, as_json: bool) -> Answer {
    let ideal = costs.ideal_bytes(load);
    let sizes = [4096.0, 8192.0, 16384.0, 32768.0, 65536.0];
    let best = sizes
        .into_iter()
        .min_by(|a, b| costs.load_us(load, *a).total_cmp(&costs.load_us(load, *b)))
        .unwrap_or(4096.0);
    let mut text = format!(
        "seek {:.2} us, bandwidth {:.3} GB/s, application {:.2} us, stack {:.2} us per 4 KiB\n",
        costs.seek_us, costs.gb_per_s, costs.app_us, costs.stack_us
    );
    text += &match ideal {
        Some(b) => format!(
            "ideal page {:.0} bytes; of 4k to 64k the best is {}\n",
            b,
            Bytes(best as u64)
        ),
        None => "no ideal page: there are only point requests or only range requests\n".into(),
    };
    let times: Vec<Value> = sizes
        .iter()
        .map(|s| json!({ "bytes": s, "us": costs.load_us(load, *s) }))
        .collect();
    let value = json!({
        "seek_us": costs.seek_us, "gb_per_s": costs.gb_per_s, "ideal_bytes": ideal, "best_bytes": best, "times": times,
    });
    (value, text, as_json)
}

fn raid(level: u32, n: u32, as_json: bool) -> Result<Answer, Failure> {
    let known = Level::from_number(level).ok_or_else(|| {
        refused(anyhow::anyhow!(
            "RAID {level} is not known: expected 0, 1, 5, 6 or 10"
        ))
    })?;
    if n < known.members_min() {
        return Err(refused(anyhow::anyhow!(
            "RAID {level} over {n} device(s) is impossible: it needs at least {}",
            known.members_min()
        )));
    }
    let mut text = String::new();
    let mut all = serde_json::Map::new();
    for (name, what, by) in [
        ("paper", "as Han et al. expect", Expectation::Paper),
        (
            "small_write",
            "md, writes below a stripe",
            Expectation::SmallWrite,
        ),
        ("full_stripe", "md, full stripes", Expectation::FullStripe),
    ] {
        let (read, write) = raid_factors(known, n, by);
        text += &format!("{what:26} read {read:.2} x, write {write:.2} x\n");
        all.insert(name.into(), json!({ "read": read, "write": write }));
    }
    Ok((all.into(), text, as_json))
}

/// Seek time in µs and bandwidth in GB/s of a survey.
fn measured(path: &Path) -> Result<(f64, f64), Failure> {
    let (_, run) = RunDir::open(path).map_err(refused)?;
    let seek = match (single(&run, "randread"), single(&run, "read")) {
        (Some(random), Some(row)) => (random - row).max(0.0) / 1e3,
        _ => {
            return Err(refused(anyhow::anyhow!(
                "{}: holds no random and sequential reads of 4 KiB at depth 1: take a run of fathom survey",
                path.display()
            )));
        }
    };
    let rate = run
        .jobs
        .iter()
        .filter(|j| !j.is_void())
        .filter_map(|j| j.direction(Op::Read).map(|d| d.bytes_per_second))
        .fold(0.0, f64::max);
    Ok((seek, rate / 1e9))
}

/// Mean latency of reads of a pattern at depth 1, over its repeats, ns.
fn single(run: &Run, rw: &str) -> Option<f64> {
    let all: Vec<f64> = run
        .jobs
        .iter()
        .filter(|j| j.qd_requested == 1 && !j.is_void())
        .filter(|j| j.spec.get("rw").and_then(Value::as_str) == Some(rw))
        .filter(|j| j.spec.get("bs").and_then(Value::as_str) == Some("4k"))
        .filter_map(|j| j.direction(Op::Read)?.service_ns.mean)
        .collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}
