//! Shrout 2017: what low-latency storage asks of a test.

use fathom_io::JobSpec;
use fathom_io::job::{BlockSizes, Rw};
use fathom_sim::SimTarget;
use fathom_telemetry::Nanos;

use super::{Load, Models, ReproduceError, Reproduction, Role, Row};

const BASIS: &str = "Fitted: the drop of the NAND drive's sequential reads beside writes (S018) chose how long programming keeps its media \
    from reading, and that a write spoils its read-ahead. Everything else is a prediction.";

const LATENCY: &str = "Low latency storage";
const MIXED: &str = "Mixed throughput";

/// Sequential reads of a model, bytes per second: alone, and beside 20 MB/s of writes.
fn bursts(models: &mut Models<'_>, name: &str) -> Result<(f64, f64), ReproduceError> {
    let mut bench = models.open(SimTarget::parse(name)?);
    let read = |beside: &str| JobSpec {
        name: format!("{}.read.128k.{beside}", name.trim_start_matches("sim:")),
        rw: Rw::Read,
        bs: BlockSizes::one(128 << 10),
        time: Some(Nanos::from_secs(2)),
        ..JobSpec::default()
    };
    let write = JobSpec {
        name: format!("{}.writes.8k.20mb-per-s", name.trim_start_matches("sim:")),
        rw: Rw::RandWrite,
        bs: BlockSizes::one(8192),
        qd: 8,
        rate: Some(20e6 / 8192.0),
        ..read("")
    };
    let mut rate = |specs: &[JobSpec]| {
        let jobs = models.group(&mut bench, specs)?;
        let read = jobs.first().and_then(|j| j.read.as_ref());
        Ok::<_, ReproduceError>(read.map_or(0.0, |d| d.bytes_per_second))
    };
    Ok((
        rate(&[read("alone")])?,
        rate(&[read("beside-writes"), write])?,
    ))
}

/// Largest lead of Optane over a full NAND drive in its steady state, over read shares and depths.
fn lead(models: &mut Models<'_>) -> Result<f64, ReproduceError> {
    let mut most = 0.0;
    for share in [0.0, 30.0, 50.0, 70.0, 90.0, 100.0] {
        for qd in [1, 4, 16, 32] {
            let mut iops = |name: &str| {
                let mut load = Load::on(name)?.rw(Rw::RandMixed).time(100);
                (load.qd, load.read_share) = (qd, share);
                Ok::<_, ReproduceError>(load.run(models)?.iops)
            };
            let ratio = iops("sim:optane-900p")? / iops("sim:samsung-960pro,fill=90,state=steady")?;
            most = f64::max(most, ratio);
        }
    }
    Ok(most)
}

#[rustfmt::skip]
pub(super) fn reproduce(models: &mut Models<'_>) -> Result<Reproduction, ReproduceError> {
    let mut one = |name: &str| Load::on(name)?.run(models);
    let usual = one("sim:optane-900p")?;
    let polled = one("sim:optane-900p,poll")?.mean_us;
    let gained = one("sim:optane-900p,idle=busy")?.iops - usual.iops;
    let nand_iops = one("sim:samsung-960pro")?.iops;
    let interrupt = usual.mean_us - polled;
    let (alone, beside) = bursts(models, "sim:samsung-960pro")?;
    let optane = bursts(models, "sim:optane-900p")?.1;
    let saved = 4e9 / beside - 4e9 / optane;
    let lead = lead(models)?;
    let row = |id, place, what, published, ours, unit| Row::new(id, place, what, published, ours, unit, Role::Prediction);
    let rows = vec![
        row("S003", LATENCY, "Optane: latency possible at depth 1", 10.0, polled, "us")
            .note("with polling; the host's costs are those of Zhang et al.'s slower processor"),
        row("S002", LATENCY, "cost of a completion interrupt and its wake-up", f64::NAN, interrupt, "us").within([2.0, 6.0])
            .note("varying by system"),
        Row::relation("S004", LATENCY, "6 us of interrupt as a share of the latency possible", 6.0 / polled * 100.0, "%", "over 50 %", 6.0 / polled > 0.5),
        Row::relation("S007", "Legacy testing", "IOPS that a busy processor adds to Optane, over all of the 960 PRO's", gained / nand_iops, "x", "more than the total of the 960 PRO", gained > nand_iops),
        Row::new("S018", MIXED, "960 PRO: drop of sequential reads beside 20 MB/s of writes, nearly", 25.0, (1.0 - beside / alone) * 100.0, "%", Role::Fit)
            .note("writes of 8 KiB at random, reads of 128 KiB, one outstanding (not stated)"),
        row("S019", MIXED, "Optane: gain over it in the same load", 28.0, (optane / beside - 1.0) * 100.0, "%"),
        row("S020", MIXED, "Optane: time saved in reading 4 GB", 1.0, saved, "s")
            .note("with 28 % it implies 1.12 GB/s, half of what either drive reads alone here; the paper states neither block size nor rates"),
        row("S014", "S-PASS", "mixed random: largest lead of Optane over a NAND drive", 6.7, lead, "x")
            .note("960 PRO, 90 % full, in its steady state; shares of reads from 0 to 100 %, depths from 1 to 32 (the paper names neither drive nor grid)"),
    ];
    Ok(Reproduction { paper: "shrout2017".into(), rows, curves: Vec::new(), basis: BASIS.into() })
}
