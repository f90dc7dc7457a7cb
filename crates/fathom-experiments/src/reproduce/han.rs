//! Han et al. 2021: arrays of up to eight Optane devices, 512 KiB blocks and chunks, 64 threads, 4 GB for each.

use fathom_io::job::Rw;
use fathom_sim::analytic::{Expectation, raid_factors};
use fathom_sim::raid::Level;

use super::{Curve, Load, Models, ReproduceError, Reproduction, Role, Row};

const BLOCK: u64 = 512 << 10;
/// Files of 4 GB for each of 64 threads.
const DATA_SET: u64 = 256_000_000_000;
/// Single-device write rate of the paper's own Table 1, GB/s: its host gets 12 % more than Zhang et al.'s.
const WRITE_GB_PER_S: f64 = 2.445;
/// The same of a member below md (fit).
const MEMBER_WRITE_GB_PER_S: f64 = 2.4;

/// A point of Fig. 1-5: number, level, members, whether a read, whether direct, GB/s.
pub type Point = (u32, u32, u32, bool, bool, f64);

/// All of them.
pub const POINTS: &[Point] = &[
    (50, 0, 2, true, false, 4.8),
    (51, 0, 4, true, false, 7.2),
    (52, 0, 6, true, false, 8.1),
    (53, 0, 8, true, false, 9.0),
    (55, 0, 2, true, true, 5.1),
    (56, 0, 4, true, true, 9.9),
    (57, 0, 6, true, true, 12.4),
    (58, 0, 8, true, true, 16.5),
    (59, 0, 2, false, true, 4.5),
    (60, 0, 8, false, true, 16.9),
    (61, 0, 8, false, false, 4.4),
    (62, 1, 2, true, false, 4.0),
    (63, 1, 4, true, false, 6.8),
    (64, 1, 6, true, false, 7.1),
    (65, 1, 8, true, false, 7.7),
    (66, 1, 2, false, false, 1.7),
    (67, 1, 8, false, false, 1.5),
    (68, 1, 2, true, true, 5.1),
    (69, 1, 4, true, true, 9.8),
    (70, 1, 6, true, true, 13.3),
    (71, 1, 8, true, true, 15.2),
    (72, 1, 2, false, true, 2.3),
    (73, 1, 8, false, true, 1.9),
    (74, 10, 4, true, false, 7.0),
    (75, 10, 6, true, false, 8.3),
    (76, 10, 8, true, false, 8.3),
    (78, 10, 4, true, true, 9.0),
    (79, 10, 6, true, true, 10.9),
    (80, 10, 8, true, true, 13.9),
    (81, 10, 4, false, true, 4.4),
    (82, 10, 6, false, true, 6.4),
    (83, 10, 8, false, true, 7.9),
    (84, 5, 3, true, false, 6.1),
    (85, 5, 4, true, false, 7.0),
    (86, 5, 6, true, false, 8.0),
    (87, 5, 8, true, false, 8.7),
    (89, 5, 3, false, false, 0.499),
    (90, 5, 4, false, false, 0.611),
    (91, 5, 6, false, false, 0.750),
    (92, 5, 8, false, false, 0.672),
    (94, 5, 3, false, true, 0.329),
    (95, 5, 4, false, true, 0.321),
    (96, 5, 6, false, true, 0.342),
    (97, 5, 8, false, true, 0.384),
    (98, 6, 4, true, false, 7.1),
    (99, 6, 6, true, false, 7.8),
    (100, 6, 8, true, false, 8.5),
    (101, 6, 4, false, false, 0.493),
    (102, 6, 6, false, false, 0.646),
    (103, 6, 8, false, false, 0.570),
    (104, 6, 4, true, true, 8.4),
    (105, 6, 6, true, true, 12.8),
    (106, 6, 8, true, true, 14.7),
    (107, 6, 4, false, true, 0.267),
    (108, 6, 6, false, true, 0.213),
    (109, 6, 8, false, true, 0.274),
];

const BASIS: &str = "Fitted: Table 1's direct rates, and 41 points of Fig. 1-5: RAID 0, 1 and 10 (Fig. 1-3), and of the parity writes \
    (Fig. 4b, 4d, 5b, 5d) the smallest and the largest array, with RAID 6 of six written directly (H108, a fifth below both its \
    neighbours: no cost per page follows it). Thirteen parameters, least squares of the relative errors. Predictions: every read of \
    RAID 5 and 6 and the parity writes between (15 points with a number), Table 1's buffered rates, Fig. 9, Table 2.";

/// The points that the array's parameters were fitted to.
const FITTED: &[u32] = &[
    50, 51, 52, 53, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74,
    75, 76, 78, 79, 80, 81, 82, 83, 89, 92, 94, 97, 101, 103, 107, 108, 109,
];

/// Table 1: number of the direct value, model, what, MB/s direct and buffered; the buffered
/// value has the number before.
const SINGLE: &[(u32, &str, Rw, f64, f64)] = &[
    (7, "micron-mx500", Rw::Read, 211.0, 220.0),
    (9, "micron-mx500", Rw::RandRead, 207.0, 194.0),
    (11, "micron-mx500", Rw::Write, 170.0, 256.0),
    (13, "micron-mx500", Rw::RandWrite, 162.0, 194.0),
    (15, "intel-p3700", Rw::Read, 2563.0, 2485.0),
    (17, "intel-p3700", Rw::RandRead, 2585.0, 2478.0),
    (19, "intel-p3700", Rw::Write, 1925.0, 2011.0),
    (21, "intel-p3700", Rw::RandWrite, 1953.0, 1995.0),
    (23, "optane-900p", Rw::Read, 2553.0, 2558.0),
    (25, "optane-900p", Rw::RandRead, 2556.0, 2554.0),
    (27, "optane-900p", Rw::Write, 2445.0, 2499.0),
    (29, "optane-900p", Rw::RandWrite, 2445.0, 2468.0),
];

fn load(target: &str) -> Result<Load, ReproduceError> {
    let mut load = Load::on(target)?.block(BLOCK).threads(64);
    load.size = DATA_SET;
    // The slowest device needs a while for a few thousand blocks.
    load.ramp_ms = 200;
    load.time_ms = if target.contains("mx500") {
        10_000
    } else {
        500
    };
    Ok(load)
}

/// A device of the paper's Table 1.
fn single(model: &str) -> String {
    match model {
        "optane-900p" => format!("sim:{model},write={WRITE_GB_PER_S},cache=64g"),
        _ => format!("sim:{model},cache=64g"),
    }
}

fn array((_, level, members, read, direct, _): Point) -> Result<Load, ReproduceError> {
    let target = format!("sim:raid{level}:{members}xoptane-900p,write={MEMBER_WRITE_GB_PER_S}");
    let mut load = load(&target)?;
    load.rw = if read { Rw::RandRead } else { Rw::RandWrite };
    load.direct = direct;
    // Half a second scatters by 1 % from seed to seed, two by a fifth of that.
    load.time_ms = if level >= 5 && level != 10 && !read {
        4000
    } else {
        2000
    };
    Ok(load)
}

fn way(direct: bool) -> &'static str {
    if direct { "direct" } else { "buffered" }
}

pub(super) fn reproduce(models: &mut Models<'_>) -> Result<Reproduction, ReproduceError> {
    let mut rows = table_1(models)?;
    for p in POINTS {
        let (n, level, members, read, direct, published) = *p;
        let ours = array(*p)?.run(models)?.mb_per_s / 1e3;
        let what = format!(
            "RAID {level} of {members}, {} {}",
            way(direct),
            if read { "read" } else { "write" }
        );
        let role = if FITTED.contains(&n) {
            Role::Fit
        } else {
            Role::Prediction
        };
        let id = format!("H{n:03}");
        let row = Row::new(&id, figure(n), &what, published, ours, "GB/s", role);
        rows.push(row.note(match n {
            61 => "published as 4.2 to 4.6 for any number of devices: the middle is compared",
            84 | 104 | 105 => {
                "exceeds the paper's own expectation of N-1 or N-2: reads use all members"
            }
            _ => "",
        }));
    }
    rows.extend(in_words(models)?);
    let ten = array((0, 10, 8, false, false, 0.0))?.run(models)?.mb_per_s / 1e3;
    rows.extend(reductions(&rows, ten));
    rows.extend(other_tables(models)?);
    let curves = curves(&rows);
    Ok(Reproduction {
        paper: "han2021".into(),
        rows,
        curves,
        basis: BASIS.into(),
    })
}

fn table_1(models: &mut Models<'_>) -> Result<Vec<Row>, ReproduceError> {
    let mut rows = Vec::new();
    for (n, model, rw, direct, buffered) in SINGLE {
        let mut load = load(&single(model))?.rw(*rw);
        let mut row = |n: u32, published, load: &Load, role| {
            let what = format!("{model}, {rw}, {}", way(load.direct));
            let ours = load.run(models)?.mb_per_s;
            let id = format!("H{n:03}");
            rows.push(Row::new(
                &id, "Table 1", &what, published, ours, "MB/s", role,
            ));
            Ok::<_, ReproduceError>(())
        };
        row(*n, *direct, &load, Role::Fit)?;
        load.direct = false;
        load.time_ms = load.time_ms.max(2000);
        if rw.reads() {
            // Where a ramp ends, a sequential pass begins anew, and would find its pages in memory.
            load.ramp_ms = 0;
        }
        row(n - 1, *buffered, &load, Role::Prediction)?;
    }
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(rows)
}

/// What the text of Fig. 1-5 says without a number of its own.
fn in_words(models: &mut Models<'_>) -> Result<Vec<Row>, ReproduceError> {
    let mut gb = |level, members, read, direct| {
        Ok::<_, ReproduceError>(
            array((0, level, members, read, direct, 0.0))?
                .run(models)?
                .mb_per_s
                / 1e3,
        )
    };
    let mut flat = Vec::new();
    for n in [2, 4, 6, 8] {
        flat.push(gb(0, n, false, false)?);
    }
    let most = flat.iter().copied().fold(0.0, f64::max);
    let least = flat.iter().copied().fold(f64::MAX, f64::min);
    let (mirrored, eight_mirrored) = (gb(10, 4, false, false)?, gb(10, 8, false, false)?);
    let (three, eight) = (gb(5, 3, true, true)?, gb(5, 8, true, true)?);
    let between = [gb(5, 4, true, true)?, gb(5, 6, true, true)?];
    let rises = three < between[0] && between[0] < between[1] && between[1] < eight;
    let random = gb(5, 8, true, false)?;
    let mut sequential = array((0, 5, 8, true, false, 0.0))?;
    sequential.rw = Rw::Read;
    let over = random / (sequential.run(models)?.mb_per_s / 1e3);
    Ok(vec![
        Row::relation(
            "H054",
            figure(54),
            "RAID 0 of 2 to 8, buffered write: largest over smallest",
            most / least,
            "x",
            "no significant difference",
            most / least < 1.1,
        ),
        Row::relation(
            "H077",
            figure(77),
            "RAID 10, buffered write: 8 members over 4",
            eight_mirrored / mirrored,
            "x",
            "similar to RAID 1, flat",
            (0.9..1.1).contains(&(eight_mirrored / mirrored))
                && (1.3..=1.8).contains(&eight_mirrored),
        ),
        Row::relation(
            "H088",
            figure(88),
            "RAID 5 of 8, buffered: random over sequential read",
            over,
            "x",
            "random read is faster than sequential read",
            over > 1.0,
        ),
        Row::relation(
            "H093",
            figure(93),
            "RAID 5, direct read: 8 members over 3",
            eight / three,
            "x",
            "increases with devices",
            rises,
        ),
    ])
}

/// Throughput by number of members, a chart per figure.
fn curves(rows: &[Row]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (n, level, members, read, direct, published) in POINTS {
        let place = figure(*n);
        let id = format!("H{n:03}");
        let Some(ours) = rows.iter().find(|r| r.id == id).and_then(|r| r.ours) else {
            continue;
        };
        let at = match curves.iter().position(|c| c.place == place) {
            Some(i) => i,
            None => {
                curves.push(Curve {
                    place: place.into(),
                    title: format!("RAID {level}: throughput by number of devices"),
                    x: ("devices".into(), String::new()),
                    y: ("throughput".into(), "bytes/s".into()),
                    series: Vec::new(),
                    marks: Vec::new(),
                });
                curves.len() - 1
            }
        };
        let kind = format!(
            "{} {}",
            if *direct { "direct" } else { "buffered" },
            if *read { "read" } else { "write" }
        );
        for (who, value) in [("published", *published), ("ours", ours)] {
            let name = format!("{kind}, {who}");
            let point = (f64::from(*members), value * 1e9);
            let series = &mut curves[at].series;
            match series.iter_mut().find(|s| s.0 == name) {
                Some(s) => s.1.push(point),
                None => series.push((name, vec![point])),
            }
        }
    }
    curves
}

fn figure(n: u32) -> &'static str {
    match n {
        50..=61 => "4.1, Fig. 1",
        62..=73 => "4.1, Fig. 2",
        74..=83 => "4.1, Fig. 3",
        84..=97 => "4.1, Fig. 4",
        _ => "4.1, Fig. 5",
    }
}

/// Largest loss against the paper's own expectation, from the points above.
fn reductions(rows: &[Row], ten: f64) -> Vec<Row> {
    let of = |id: &str| {
        let found = rows.iter().find(|r| r.id == id).and_then(|r| r.ours);
        found.unwrap_or(0.0)
    };
    let loss = |level, gb: f64| {
        let (_, write) = raid_factors(level, 8, Expectation::Paper);
        (1.0 - gb / (write * WRITE_GB_PER_S)) * 100.0
    };
    let row = |id, what, published, ours| {
        Row::new(id, "Abstract", what, published, ours, "%", Role::Prediction).share()
    };
    vec![
        row("H001", "RAID 0 of 8: loss against expectation (buffered write)", 75.0, loss(Level::Raid0, of("H061"))).from(&["H061"]),
        row("H003", "RAID 10 of 8: loss against expectation (buffered write)", loss(Level::Raid10, 1.6), loss(Level::Raid10, ten))
            .printed(76.0, "it would be 2.35 GB/s, but the text of Fig. 3b calls these writes similar to RAID 1's, 1.5 to 1.7 GB/s: their middle is compared"),
        row("H004", "RAID 5 of 8: loss against expectation (direct write)", 91.0, loss(Level::Raid5, of("H097"))).from(&["H097"]),
        row("H005", "RAID 6 of 8: loss against expectation (direct write)", 92.0, loss(Level::Raid6, of("H109"))).from(&["H109"]),
    ]
}

/// Arrays of another device (Fig. 9), and other papers' values as the paper quotes them (Table 2).
fn other_tables(models: &mut Models<'_>) -> Result<Vec<Row>, ReproduceError> {
    let mut yang = |rw| {
        let mut l = Load::on("sim:optane-900p")?.rw(rw).threads(4);
        l.qd = 32;
        l.run(models)
    };
    let (read, write) = (yang(Rw::RandRead)?, yang(Rw::RandWrite)?);
    let row = |id, what, published, ours, unit| {
        Row::new(
            id,
            "Table 2 (Yang et al.)",
            what,
            published,
            ours,
            unit,
            Role::Prediction,
        )
    };
    let mut rows = vec![
        row(
            "H185",
            "4 KiB reads, 4 threads at depth 32",
            2383.0,
            read.mb_per_s,
            "MB/s",
        ),
        row("H186", "the same, latency", 219.5, read.mean_us, "us"),
        row(
            "H187",
            "4 KiB writes, 4 threads at depth 32",
            2241.0,
            write.mb_per_s,
            "MB/s",
        ),
        row("H188", "the same, latency", 230.1, write.mean_us, "us"),
    ];
    let mut best = [f64::MIN; 2];
    for members in [2, 4, 6, 8] {
        for (i, rw) in [Rw::RandRead, Rw::RandWrite].into_iter().enumerate() {
            let mut of = |model: &str| {
                let target = format!("sim:raid0:{members}x{model}");
                Ok::<_, ReproduceError>(load(&target)?.rw(rw).run(models)?.mb_per_s)
            };
            let optane = of(&format!("optane-900p,write={MEMBER_WRITE_GB_PER_S}"))?;
            let ratio = of("intel-p3700")? / optane;
            best[i] = best[i].max(if i == 0 { ratio } else { 1.0 / ratio });
        }
    }
    let place = "4.3 Fig. 9";
    rows.push(
        Row::new(
            "H178",
            place,
            "RAID 0: reads of P3700 better than of 900P by up to",
            22.1,
            (best[0] - 1.0) * 100.0,
            "%",
            Role::Prediction,
        )
        .note("single devices differ by 1 % in Table 1; the paper names no cause of more"),
    );
    rows.push(
        Row::new(
            "H179",
            place,
            "RAID 0: writes of 900P better than of P3700 by up to",
            18.4,
            (best[1] - 1.0) * 100.0,
            "%",
            Role::Prediction,
        )
        .note("single devices differ by 27 % in Table 1, more than 'up to 18.4'"),
    );
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use fathom_sim::raid::ArrayHost;

    use super::*;

    /// Tokens (direct, buffered), platform (reading, writing), page cache, flusher, parity of direct writes (one, two), of
    /// buffered writes (one: constant and shared, two: the same), a member's writes.
    type Parameters = [f64; 13];

    fn ours() -> Parameters {
        let h = ArrayHost::default();
        let [(a, b), (c, d)] = h.parity_buffered_ns;
        let [read, write] = h.platform_gb_per_s;
        let [one, two] = h.parity_direct_ns;
        let [direct, buffered] = h.tokens.map(f64::from);
        let cache = h.page_cache_gb_per_s;
        let flusher = h.flusher_gb_per_s;
        let member = MEMBER_WRITE_GB_PER_S;
        [
            direct, buffered, read, write, cache, flusher, one, two, a, b, c, d, member,
        ]
    }

    /// One parameter up or down by a share; tokens by one.
    fn moved(p: &Parameters, i: usize, share: f64) -> Parameters {
        let mut q = *p;
        q[i] = if i < 2 {
            (p[i] + share.signum()).max(1.0)
        } else {
            p[i] * (1.0 + share)
        };
        q
    }

    /// Of one parameter up or down by a share, or of tokens by one, the points that it can move: parity writes wait for
    /// the parity thread, all others for everything else.
    fn is_about_parity(i: usize) -> bool {
        (6..12).contains(&i)
    }

    /// Root mean square of the relative errors of the fitted points, with or without parity writes.
    fn misfit(p: &Parameters, parity: bool) -> f64 {
        let host = ArrayHost {
            chunk: ArrayHost::default().chunk,
            tokens: [p[0] as u32, p[1] as u32],
            platform_gb_per_s: [p[2], p[3]],
            page_cache_gb_per_s: p[4],
            flusher_gb_per_s: p[5],
            parity_direct_ns: [p[6], p[7]],
            parity_buffered_ns: [(p[8], p[9]), (p[10], p[11])],
        };
        let is_parity = |p: &Point| matches!(p.1, 5 | 6) && !p.3;
        let points: Vec<&Point> = POINTS
            .iter()
            .filter(|p| FITTED.contains(&p.0) && is_parity(p) == parity)
            .collect();
        let mut sum = 0.0;
        for point in &points {
            let mut load = array(**point).unwrap();
            load.time_ms /= 2;
            load.target.array = host;
            load.target.model.write.gb_per_s = p[12];
            let ours = load.run(&mut Models::unkept()).unwrap().mb_per_s / 1e3;
            sum += (ours / point.5 - 1.0).powi(2);
        }
        (sum / points.len() as f64).sqrt()
    }

    #[test]
    fn the_parameters_of_an_array_are_the_least_squares_of_the_fitted_points_alone() {
        let best = [false, true].map(|parity| misfit(&ours(), parity));
        assert!(best.iter().all(|b| *b < 0.09), "{best:?}");
        for i in 0..ours().len() {
            for share in [0.05, -0.05] {
                let parity = is_about_parity(i);
                let other = misfit(&moved(&ours(), i, share), parity);
                let best = best[usize::from(parity)];
                assert!(
                    other > 0.99 * best,
                    "parameter {i} {share:+}: {other} below {best}"
                );
            }
        }
    }
}
