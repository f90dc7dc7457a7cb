//! What arithmetic promises of an array, beside what was measured: which expectation fits, and what is lost.
//!
//! The factors themselves are the simulator's (`fathom_sim::analytic`), so that `fathom sim model raid`, the
//! models and this lab say the same.

use fathom_sim::analytic::{Expectation, raid_factors};
use fathom_sim::raid::Level;

/// An expectation fits where it is met within this share.
pub const FITS_WITHIN: f64 = 0.15;

/// The three of them, in the order of tables.
pub const ALL: [Expectation; 3] = [
    Expectation::Paper,
    Expectation::SmallWrite,
    Expectation::FullStripe,
];

/// Its name in tables.
pub fn name(e: Expectation) -> &'static str {
    match e {
        Expectation::Paper => "paper",
        Expectation::SmallWrite => "small-write",
        Expectation::FullStripe => "full-stripe",
    }
}

/// Expected throughput in multiples of one member: Han et al. 2021, 4.1.
pub fn paper(level: Level, members: u32, write: bool) -> f64 {
    factor(level, members, write, Expectation::Paper)
}

/// The same where each write is smaller than a stripe, and md takes the cheaper of read-modify-write and
/// reconstruct-write.
pub fn small_write(level: Level, members: u32, write: bool) -> f64 {
    factor(level, members, write, Expectation::SmallWrite)
}

/// The same where whole stripes are written, and nothing is read for it.
pub fn full_stripe(level: Level, members: u32, write: bool) -> f64 {
    factor(level, members, write, Expectation::FullStripe)
}

fn factor(level: Level, members: u32, write: bool, by: Expectation) -> f64 {
    let (read, written) = raid_factors(level, members, by);
    if write { written } else { read }
}

/// What the three say of one cell, in multiples of one member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// See [`paper`].
    pub paper: f64,
    /// See [`small_write`].
    pub small_write: f64,
    /// See [`full_stripe`].
    pub full_stripe: f64,
}

impl Expected {
    /// Of an array's reads or writes.
    pub fn of(level: Level, members: u32, write: bool) -> Self {
        Self {
            paper: paper(level, members, write),
            small_write: small_write(level, members, write),
            full_stripe: full_stripe(level, members, write),
        }
    }

    /// By its kind.
    pub fn get(&self, e: Expectation) -> f64 {
        match e {
            Expectation::Paper => self.paper,
            Expectation::SmallWrite => self.small_write,
            Expectation::FullStripe => self.full_stripe,
        }
    }

    /// What the members would allow if software cost nothing: the best that any of the three promises.
    pub fn best(&self) -> f64 {
        self.paper.max(self.small_write).max(self.full_stripe)
    }
}

/// Which expectation a measurement meets.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The nearest, by ratio; several where they say the same.
    pub nearest: Vec<Expectation>,
    /// Measured over expected, less 1.
    pub off: f64,
}

impl Fit {
    /// Whether it is met within [`FITS_WITHIN`].
    pub fn fits(&self) -> bool {
        self.off.abs() <= FITS_WITHIN
    }

    /// In words: `paper`, `small-write, full-stripe`, `all`, `none (paper -62 %)`.
    pub fn words(&self) -> String {
        let names = if self.nearest.len() == ALL.len() {
            "all".to_owned()
        } else {
            let names: Vec<&str> = self.nearest.iter().map(|e| name(*e)).collect();
            names.join(", ")
        };
        if self.fits() {
            names
        } else {
            format!("none ({names} {:+.0} %)", self.off * 100.0)
        }
    }
}

/// Which expectation fits `multiple`, measured in multiples of one member; `None` where nothing was measured.
pub fn fit(multiple: f64, expected: &Expected) -> Option<Fit> {
    if !(multiple.is_finite() && multiple > 0.0) {
        return None;
    }
    let distance = |e: Expectation| (multiple / expected.get(e)).ln().abs();
    let best = ALL
        .into_iter()
        .min_by(|a, b| distance(*a).total_cmp(&distance(*b)))?;
    let same = |e: &Expectation| (expected.get(*e) - expected.get(best)).abs() < 1e-9;
    Some(Fit {
        nearest: ALL.into_iter().filter(same).collect(),
        off: multiple / expected.get(best) - 1.0,
    })
}

/// What software takes of an expectation, percent; below 0 where the expectation was exceeded.
pub fn loss(multiple: f64, expected: f64) -> f64 {
    (1.0 - multiple / expected) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_expects_four_or_six_transfers_for_each_parity_write() {
        assert_eq!(paper(Level::Raid5, 8, true), 7.0 / 4.0);
        assert_eq!(paper(Level::Raid6, 8, true), 1.0);
        assert_eq!(paper(Level::Raid5, 8, false), 7.0);
        assert_eq!(paper(Level::Raid6, 8, false), 6.0);
        assert_eq!(paper(Level::Raid10, 8, true), 4.0);
        assert_eq!(paper(Level::Raid1, 8, true), 1.0);
        assert_eq!(paper(Level::Raid0, 8, true), 8.0);
    }

    #[test]
    fn md_reads_from_every_member_and_writes_small_by_the_cheaper_way() {
        assert_eq!(small_write(Level::Raid5, 8, false), 8.0);
        assert_eq!(small_write(Level::Raid5, 3, true), 1.0);
        assert_eq!(small_write(Level::Raid5, 8, true), 2.0);
        assert_eq!(small_write(Level::Raid6, 4, true), 1.0);
        assert_eq!(small_write(Level::Raid6, 8, true), 8.0 / 6.0);
    }

    #[test]
    fn full_stripes_cost_only_their_parity() {
        assert_eq!(full_stripe(Level::Raid5, 8, true), 7.0);
        assert_eq!(full_stripe(Level::Raid6, 8, true), 6.0);
        assert_eq!(full_stripe(Level::Raid5, 8, false), 8.0);
    }

    #[test]
    fn the_nearest_expectation_by_ratio_fits_within_fifteen_percent() {
        let e = Expected::of(Level::Raid5, 8, true);
        let words = |x| fit(x, &e).unwrap().words();
        assert_eq!(words(1.75), "paper");
        assert_eq!(words(2.05), "small-write");
        assert_eq!(words(6.1), "full-stripe");
        assert_eq!(words(0.9), "none (paper -49 %)");
        assert_eq!(fit(f64::NAN, &e), None);
        assert_eq!(fit(0.0, &e), None);
    }

    #[test]
    fn expectations_that_say_the_same_are_named_together() {
        let reads = Expected::of(Level::Raid5, 4, false);
        assert_eq!(
            fit(3.95, &reads).unwrap().words(),
            "small-write, full-stripe"
        );
        let striped = Expected::of(Level::Raid0, 4, true);
        assert_eq!(fit(4.0, &striped).unwrap().words(), "all");
    }

    #[test]
    fn losses_are_shares_of_what_was_expected() {
        // Han et al. 2021: 384 MB/s of 1.75 x 2445 MB/s are a loss of 91 %.
        let expected = paper(Level::Raid5, 8, true);
        assert!((loss(384.0 / 2445.0, expected) - 91.0).abs() < 0.1);
        assert!(loss(4.0, 3.0) < 0.0);
    }
}
