//! The parameters of the model of arrays against the points that they were fitted to.

use fathom_sim::raid::ArrayHost;

use super::load::{Load, Loads};
use super::*;

/// Write rate of a member below md, GB/s (fit).
const MEMBER_WRITE_GB_PER_S: f64 = 2.4;

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
    let lines = table::lines("han2021", On::Models);
    let mut errors = Vec::new();
    for point in points() {
        let line = lines.iter().find(|l| l.id == point.id).unwrap();
        let is_parity = matches!(point.level, 5 | 6) && !point.read;
        if line.role != "fit" || is_parity != parity {
            continue;
        }
        let mut load = Load::all(&line.load).unwrap().remove(0);
        let target = load.target.as_mut().unwrap();
        target.array = host;
        target.model.write.gb_per_s = p[12];
        let time = &mut load.groups[0][0].time;
        *time = time.map(|t| Nanos(t.0 / 2));
        let seen = Models::unkept().run(&load).unwrap().remove(0);
        let ours = seen.measured.bytes_per_second / 1e9;
        let row = line.row(ours, false).unwrap();
        errors.push(ours / row.published.unwrap() - 1.0);
    }
    let squares: f64 = errors.iter().map(|e| e * e).sum();
    (squares / errors.len() as f64).sqrt()
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
