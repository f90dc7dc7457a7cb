//! Zhang et al. 2018: one device in a physical (PE) and a virtualized (VE) environment.

use fathom_io::job::Rw;
use fathom_sim::Device;
use fathom_telemetry::Op;

use super::{Load, ReproduceError, Role, Row};

/// Scalar points that the model must meet within 5 %.
#[cfg(test)]
pub(super) const SCALARS: &[&str] = &[
    "Z001", "Z003", "D001", "D002", "Z009", "Z013", "Z007", "Z008", "Z016", "Z004", "Z005", "Z006",
    "Z052", "Z053", "Z066", "Z070", "Z078", "Z086", "Z087", "Z088", "Z089", "D011", "D012", "D013",
    "D014", "Z045", "Z055",
];
/// Latency at 95 % of the highest rate.
#[cfg(test)]
pub(super) const LOAD_CURVE: &[&str] = &["Z072", "Z073", "Z074", "Z075", "Z076", "Z077"];

const SWAP: &str = "II-B of the paper exchanges 67.3 and 124.5 us: the corrected pair agrees with all its percentages";

pub(super) fn rows() -> Result<Vec<Row>, ReproduceError> {
    use Role::{Fit, Prediction};
    let qd1 = |name: &str| Ok::<_, ReproduceError>(Load::on(name)?.time(1000).run()?.mean_us);
    let (o_pe, o_ve) = (qd1("sim:optane-900p")?, qd1("sim:vm:optane-900p")?);
    let (n_pe, n_ve) = (qd1("sim:intel-s3510")?, qd1("sim:vm:intel-s3510")?);
    let (r_pe, r_ve) = (qd1("sim:ramdisk")?, qd1("sim:vm:ramdisk")?);
    let (o_hw, n_hw) = (hardware("sim:optane-900p")?, hardware("sim:intel-s3510")?);
    let software = |hw: f64, total: f64| (1.0 - hw / total) * 100.0;
    let place = "II-B, Fig. 3";
    let mut rows = vec![
        Row::new(
            "Z013",
            place,
            "Optane PE: latency of a 4 KiB random read",
            13.5,
            o_pe,
            "us",
            Fit,
        ),
        Row::new(
            "Z001",
            "Abstract",
            "the same, 'about'",
            14.0,
            o_pe,
            "us",
            Fit,
        ),
        Row::new(
            "Z003",
            place,
            "Optane: hardware part of it",
            7.9,
            o_hw,
            "us",
            Fit,
        ),
        Row::new("D002", place, "Optane VE: latency", 67.3, o_ve, "us", Fit).note(SWAP),
        Row::new("D001", place, "NAND PE: latency", 124.5, n_pe, "us", Fit).note(SWAP),
        Row::new("Z009", place, "NAND VE: latency", 203.7, n_ve, "us", Fit),
        Row::new(
            "Z004",
            place,
            "NAND minus Optane, hardware",
            103.8,
            n_hw - o_hw,
            "us",
            Fit,
        ),
        Row::new(
            "Z016",
            place,
            "Optane PE: share of software",
            41.6,
            software(o_hw, o_pe),
            "%",
            Fit,
        ),
        Row::new(
            "Z008",
            place,
            "Optane VE: share of software",
            88.3,
            software(o_hw, o_ve),
            "%",
            Fit,
        ),
        Row::new(
            "Z015",
            place,
            "NAND PE: share of software",
            10.3,
            software(n_hw, n_pe),
            "%",
            Fit,
        )
        .note("known miss: the kernel's table gives 10 us for leaving C1E, 9.3 would fit"),
        Row::new(
            "Z007",
            place,
            "NAND VE: share of software",
            45.1,
            software(n_hw, n_ve),
            "%",
            Fit,
        ),
        Row::new(
            "Z005",
            place,
            "VE: decrease of latency, NAND to Optane",
            67.0,
            (1.0 - o_ve / n_ve) * 100.0,
            "%",
            Fit,
        )
        .note("printed for PE; it belongs to VE once the swapped pair is corrected"),
        Row::new(
            "Z006",
            place,
            "PE: decrease of latency, NAND to Optane",
            89.1,
            (1.0 - o_pe / n_pe) * 100.0,
            "%",
            Fit,
        )
        .note("printed for VE; see Z005"),
        Row::new(
            "Z048",
            "III-B a, Fig. 5a",
            "Optane: VE over PE",
            5.0,
            o_ve / o_pe,
            "x",
            Fit,
        )
        .note("II-B says 10 times, an artefact of the swapped pair"),
        Row::new(
            "Z049",
            "III-B a, Fig. 5a",
            "NAND: VE over PE",
            2.0,
            n_ve / n_pe,
            "x",
            Fit,
        )
        .note("stated as a round 2; 203.7 / 124.5 is 1.64"),
        Row::new(
            "Z052",
            "III-B a",
            "RAM disk PE: latency",
            3.0,
            r_pe,
            "us",
            Fit,
        ),
        Row::new(
            "Z053",
            "III-B a",
            "RAM disk VE: latency",
            5.0,
            r_ve,
            "us",
            Fit,
        ),
    ];
    rows.extend(four_patterns()?);
    rows.extend(bandwidth()?);
    rows.extend(load_curves()?);
    rows.extend([
        Row::needs(
            "Z090-Z095",
            "Table III",
            "compression throughput",
            "compression",
        ),
        Row::needs(
            "Z102-Z113",
            "Table IV",
            "best page size of MySQL",
            "database",
        ),
        Row::needs(
            "Z114-Z120",
            "V, Fig. 10-13",
            "transactions of MySQL",
            "database",
        ),
    ]);
    Ok(rows)
}

/// Mean hardware latency of idle 4 KiB random reads, µs.
fn hardware(name: &str) -> Result<f64, ReproduceError> {
    let target = fathom_sim::SimTarget::parse(name)?;
    let mut device = Device::new(&target.model, 1, 0);
    let n = 10_000u64;
    let total: u64 = (0..n)
        .map(|i| {
            device.serve(i * 1_000_000, Op::Read, (i * 7919 % 5_000_000) * 4096, 4096)
                - i * 1_000_000
        })
        .sum();
    Ok(total as f64 / n as f64 / 1e3)
}

fn four_patterns() -> Result<Vec<Row>, ReproduceError> {
    let all = [Rw::Read, Rw::RandRead, Rw::Write, Rw::RandWrite];
    let mean = |name: &str, rw| Ok::<_, ReproduceError>(Load::on(name)?.rw(rw).run()?.mean_us);
    let mut gain = 0.0;
    for rw in all {
        gain += (1.0 - mean("sim:optane-900p", rw)? / mean("sim:intel-s3510", rw)?) * 25.0;
    }
    let sequential = mean("sim:intel-s3510", Rw::RandRead)? / mean("sim:intel-s3510", Rw::Read)?;
    let write = mean("sim:optane-900p", Rw::RandWrite)?;
    Ok(vec![
        Row::new(
            "Z045",
            "III-B a, Fig. 4a",
            "PE: mean gain of Optane over NAND, four patterns",
            67.4,
            gain,
            "%",
            Role::Fit,
        ),
        Row::new(
            "Z047",
            "III-B a, Fig. 4a",
            "NAND PE: random over sequential read",
            2.5,
            sequential,
            "x",
            Role::Prediction,
        )
        .note("published as 2 to 3"),
        Row::new(
            "H184",
            "Fig. 4a",
            "Optane PE: latency of a 4 KiB random write",
            15.7,
            write,
            "us",
            Role::Fit,
        )
        .note("not printed; Han et al. read it from the figure"),
    ])
}

fn bandwidth() -> Result<Vec<Row>, ReproduceError> {
    use Role::{Fit, Prediction};
    let at = |name: &str, rw, block| Load::on(name)?.rw(rw).block(block).threads(64).run();
    let big = |name: &str, rw| Ok::<_, ReproduceError>(at(name, rw, 128 << 10)?.mb_per_s);
    let small = |name: &str, rw| Ok::<_, ReproduceError>(at(name, rw, 4096)?.iops);
    let (nr, nw) = (
        big("sim:intel-s3510", Rw::RandRead)?,
        big("sim:intel-s3510", Rw::RandWrite)?,
    );
    let (or, ow) = (
        big("sim:optane-900p", Rw::RandRead)?,
        big("sim:optane-900p", Rw::RandWrite)?,
    );
    let (nri, nwi) = (
        small("sim:intel-s3510", Rw::RandRead)?,
        small("sim:intel-s3510", Rw::RandWrite)?,
    );
    let (ori, owi) = (
        small("sim:optane-900p", Rw::RandRead)?,
        small("sim:optane-900p", Rw::RandWrite)?,
    );
    let ram = small("sim:ramdisk", Rw::RandRead)?;
    let vm1 = small("sim:vm:optane-900p", Rw::RandRead)?;
    let vm6 = Load::on("sim:vm6:optane-900p")?.threads(384).run()?.iops;
    let place = "Table III";
    let derived = "III-B c (percentage of the bandwidth)";
    Ok(vec![
        Row::new("Z086", place, "NAND read, 128 KiB", 542.0, nr, "MB/s", Fit),
        Row::new("Z087", place, "NAND write, 128 KiB", 412.0, nw, "MB/s", Fit),
        Row::new(
            "Z088",
            place,
            "Optane read, 128 KiB",
            2557.0,
            or,
            "MB/s",
            Fit,
        ),
        Row::new(
            "Z089",
            place,
            "Optane write, 128 KiB",
            2185.0,
            ow,
            "MB/s",
            Fit,
        ),
        Row::new(
            "Z055",
            "III-B b",
            "Optane over NAND, mean of read and write",
            5.0,
            (or / nr + ow / nw) / 2.0,
            "x",
            Fit,
        ),
        Row::new(
            "D011",
            derived,
            "NAND random read",
            68_412.0,
            nri,
            "IOPS",
            Fit,
        ),
        Row::new(
            "D012",
            derived,
            "NAND random write",
            39_027.0,
            nwi,
            "IOPS",
            Fit,
        ),
        Row::new(
            "D013",
            derived,
            "Optane random read",
            569_332.0,
            ori,
            "IOPS",
            Fit,
        ),
        Row::new(
            "D014",
            derived,
            "Optane random write",
            544_916.0,
            owi,
            "IOPS",
            Fit,
        ),
        Row::new(
            "Z078",
            "III-C",
            "Optane random read, bound",
            580_000.0,
            ori,
            "IOPS",
            Fit,
        ),
        Row::new(
            "Z058",
            "III-B c, Fig. 4c",
            "Optane over NAND, random read",
            8.32,
            ori / nri,
            "x",
            Prediction,
        )
        .note("printed as 8 to 11 for read and write; the paper's own percentages give 8.3 and 14"),
        Row::new(
            "Z065",
            "III-B c",
            "RAM disk over Optane, random read",
            4.0,
            ram / ori,
            "x",
            Prediction,
        )
        .note("published as 2 to 4; the read is its upper end"),
        Row::new(
            "Z066",
            "III-B c, Fig. 5c",
            "Optane, one machine",
            120_000.0,
            vm1,
            "IOPS",
            Fit,
        ),
        Row::new(
            "Z070",
            "III-B c, Fig. 6",
            "Optane, six machines",
            410_000.0,
            vm6,
            "IOPS",
            Fit,
        ),
        Row::new(
            "Z067",
            "III-B c, Fig. 5c",
            "Optane, VE over PE",
            0.2,
            vm1 / ori,
            "-",
            Fit,
        ),
    ])
}

/// Threads of the sweep: the knees lie between 8 and 24.
const THREADS: &[u32] = &[6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 24];

/// Increase of the mean latency over one thread where the rate is 95 % of its highest, %.
fn at_95(name: &str, time_ms: u64) -> Result<f64, ReproduceError> {
    let run = |n| Load::on(name)?.threads(n).time(time_ms).run();
    let (base, wanted) = (run(1)?.mean_us, run(64)?.iops * 0.95);
    let mut last = (0.0, base);
    for n in THREADS {
        let m = run(*n)?;
        if m.iops >= wanted {
            let part = (wanted - last.0) / (m.iops - last.0);
            return Ok(((last.1 + part * (m.mean_us - last.1)) / base - 1.0) * 100.0);
        }
        last = (m.iops, m.mean_us);
    }
    Ok((last.1 / base - 1.0) * 100.0)
}

fn load_curves() -> Result<Vec<Row>, ReproduceError> {
    let closed =
        "a closed loop of threads, as the paper's curves; an open loop at 95 % waits much longer";
    let miss = "known miss: no mechanism in the paper explains so large an increase for NAND in VE";
    let row = |id, what: &str, published, name: &str, ms, note: &str| {
        let role = if id == "Z075" {
            Role::Prediction
        } else {
            Role::Fit
        };
        Ok::<_, ReproduceError>(
            Row::new(
                id,
                "III-C, Fig. 7",
                &format!("{what}: latency increase at 95 % of the highest rate"),
                published,
                at_95(name, ms)?,
                "%",
                role,
            )
            .note(note),
        )
    };
    Ok(vec![
        row("Z072", "NAND PE", 80.0, "sim:intel-s3510", 1000, closed)?,
        row("Z073", "RAM disk PE", 54.0, "sim:ramdisk", 20, closed)?,
        row("Z074", "Optane PE", 25.0, "sim:optane-900p", 100, closed)?,
        row("Z075", "NAND VE", 158.0, "sim:vm:intel-s3510", 1000, miss)?,
        row("Z076", "Optane VE", 50.0, "sim:vm:optane-900p", 400, closed)?,
        row("Z077", "RAM disk VE", 35.0, "sim:vm:ramdisk", 20, closed)?,
    ])
}
