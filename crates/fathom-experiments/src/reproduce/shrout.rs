//! Shrout 2017: what low-latency storage asks of a test.

use fathom_sim::SimTarget;

use super::{Load, ReproduceError, Role, Row};

pub(super) fn rows() -> Result<Vec<Row>, ReproduceError> {
    let mean = |name: &str| Ok::<_, ReproduceError>(Load::on(name)?.run()?.mean_us);
    let usual = mean("sim:optane-900p")?;
    let polled = mean("sim:optane-900p,poll")?;
    let _ = SimTarget::parse("sim:samsung-960pro")?;
    let place = "Low latency storage";
    Ok(vec![
        Row::new("S003", place, "Optane: latency possible at depth 1", 10.0, polled, "us", Role::Prediction)
            .note("with polling; the host's costs are those of Zhang et al.'s slower processor"),
        Row::new("S002", place, "cost of a completion interrupt and its wake-up", 4.0, usual - polled, "us", Role::Prediction)
            .note("published as 2 to 6 us, varying by system; the middle is compared"),
        Row::new("S004", place, "share of 6 us of interrupt in 10 us", 60.0, 6.0 / 10.0 * 100.0, "%", Role::Prediction)
            .note("arithmetic of the text ('over 50 %')"),
        Row {
            note: "not modelled: reads and background writes of NAND share only the pipeline here, which gives no such drop".into(),
            ..Row::needs("S018-S020", "Mixed throughput", "sequential read bursts beside 20 MB/s of writes", "application")
        },
        Row::needs("S009", "Real-world", "Photo Mechanic ingest", "application"),
        Row::needs("S012", "Real-world", "Houdini swap", "application"),
        Row::needs("S014", "S-PASS", "mixed random at fill levels", "mixed-load"),
    ])
}
