//! What flash costs its writer in the long run: write amplification by garbage collection, a fast
//! cache that fills, wear. State is fluid (bytes, not blocks), so that it can be carried over hours.

use crate::model::Flash;
use crate::spread::exp;

/// Share of the drive that random writes must overwrite before the first block is collected.
const FRESH: f64 = 0.02;

/// Fewer reads than this share are not retried at all.
const RETRIES_SEEN: f64 = 1e-6;

/// A drive's flash.
#[derive(Debug, Clone)]
pub struct FlashState {
    flash: Flash,
    size: f64,
    /// Physical over logical space, from the specification.
    alpha: f64,
    /// Live bytes.
    filled: f64,
    /// Random writes since the drive was fresh, bytes.
    aged: f64,
    /// Bytes in the fast cache.
    cached: f64,
    cache_at: u64,
    /// Where the last write ended: sequential writes amplify nothing.
    last_end: u64,
    /// Flash bytes per host byte of the last write.
    amplified: f64,
    host_bytes: f64,
    flash_bytes: f64,
    /// Of both, what the drive had behind it at the start: how it was written then is not known.
    earlier: f64,
    /// Reads whose 64 random bits are below this are read twice: cells wear.
    retried: u64,
}

impl FlashState {
    /// A fresh, empty drive of `size` bytes.
    pub fn new(flash: Flash, size: u64) -> Self {
        let amplification = flash.sequential_mb_per_s * 1e6 / (flash.steady_random_iops * 4096.0);
        Self {
            alpha: alpha_of(amplification),
            flash,
            size: size as f64,
            filled: 0.0,
            aged: 0.0,
            cached: 0.0,
            cache_at: 0,
            last_end: u64::MAX,
            amplified: 1.0,
            host_bytes: 0.0,
            flash_bytes: 0.0,
            earlier: 0.0,
            retried: 0,
        }
    }

    /// Sets the share of live data (0 to 1) and whether it was written at random long enough for a steady state.
    pub fn condition(&mut self, filled: f64, steady: bool) {
        self.filled = self.size * filled.clamp(0.0, 1.0);
        self.aged = if steady { self.size * 4.0 } else { 0.0 };
    }

    /// Takes a write; returns its serial time, given what it is without flash work.
    /// It stands for `times` of them.
    pub fn write(&mut self, now: u64, offset: u64, bytes: u32, serial_ns: u64, times: u64) -> u64 {
        let one = f64::from(bytes);
        let n = one * times as f64;
        let sequential = offset == self.last_end || bytes >= 1 << 20;
        self.last_end = offset + u64::from(bytes);
        let amplification = if sequential {
            1.0
        } else {
            self.amplification()
        };
        self.host_bytes += n;
        self.flash_bytes += n * amplification;
        self.age();
        if sequential {
            // A sequential pass leaves whole blocks behind.
            self.aged = (self.aged - n).max(0.0);
        } else {
            self.aged = (self.aged + n).min(self.size * 4.0);
        }
        self.filled = (self.filled + n).min(self.size);
        let mut ns = serial_ns as f64;
        if self.flash.fast_cache_gb > 0.0 {
            // The cache drains in idle time at the rate behind it.
            let idle = now.saturating_sub(self.cache_at) as f64 * times as f64;
            self.cached = (self.cached - idle * self.flash.behind_cache_gb_per_s).max(0.0) + n;
            if self.cached > self.flash.fast_cache_gb * 1e9 {
                self.cached = self.flash.fast_cache_gb * 1e9;
                ns = ns.max(one / self.flash.behind_cache_gb_per_s);
            }
        }
        if amplification > 1.0 {
            let program = one / (self.flash.sequential_mb_per_s / 1e3);
            ns = ns.max(program * amplification);
        }
        self.amplified = amplification;
        self.cache_at = now + ns as u64;
        ns as u64
    }

    /// Time for which the last write's pages keep media units from reading, ns per page.
    #[inline]
    pub fn program_ns(&self) -> u64 {
        (self.flash.program_us * 1e3 * self.amplified) as u64
    }

    /// How many sequential reads go to the media because a write spoilt the read-ahead.
    #[inline]
    pub fn reads_spoilt(&self) -> f64 {
        self.flash.reads_spoilt_by_write
    }

    /// Sets the share of the rated endurance that is used, 0 to 1.
    pub fn worn(&mut self, share: f64) {
        self.host_bytes = share * self.flash.endurance_tb * 1e12;
        self.age();
        (self.flash_bytes, self.earlier) = (self.host_bytes, self.host_bytes);
    }

    /// Space that is no longer needed.
    pub fn trim(&mut self, bytes: u32, times: u64) {
        self.filled = (self.filled - f64::from(bytes) * times as f64).max(0.0);
        if self.filled == 0.0 {
            self.aged = 0.0;
        }
    }

    /// Flash bytes per host byte, of random writes now: 1 on a fresh drive, rising with what was overwritten to the
    /// steady value of its fill.
    pub fn amplification(&self) -> f64 {
        let share = (self.filled / self.size).max(0.05);
        let steady = write_amplification(self.alpha / share);
        let age = ((self.aged / self.size - FRESH) / (self.alpha - 1.0 + 0.5)).clamp(0.0, 1.0);
        1.0 + (steady - 1.0) * age
    }

    /// Keeps the chance of a second read up to date.
    fn age(&mut self) {
        if self.flash.worn_reads_retried > 0.0 {
            let life = self.life_used();
            let share = (self.flash.worn_reads_retried * life * life).min(1.0);
            // What nobody could see costs no random number either.
            let share = if share < RETRIES_SEEN { 0.0 } else { share };
            self.retried = (share * u64::MAX as f64) as u64;
        }
    }

    /// Reads whose 64 random bits are below this need a second access to the media.
    #[inline]
    pub fn retried_below(&self) -> u64 {
        self.retried
    }

    /// Whether so much was written that the drive refuses writes.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.flash.read_only_at_life > 0.0 && self.life_used() >= self.flash.read_only_at_life
    }

    /// Whether writes may come to an end.
    pub fn may_become_read_only(&self) -> bool {
        self.flash.read_only_at_life > 0.0
    }

    /// Bytes written by the host in the drive's life, and flash bytes per host byte since the simulation began.
    pub fn wear(&self) -> (f64, f64) {
        let (host, flash) = (
            self.host_bytes - self.earlier,
            self.flash_bytes - self.earlier,
        );
        (self.host_bytes, if host > 0.0 { flash / host } else { 1.0 })
    }

    /// Bytes written to the flash in the drive's life.
    pub fn media_bytes(&self) -> f64 {
        self.flash_bytes
    }

    /// Share of the rated endurance that is used, 0 to 1 and beyond.
    pub fn life_used(&self) -> f64 {
        self.host_bytes / (self.flash.endurance_tb * 1e12).max(1.0)
    }
}

/// Write amplification of uniform random writes with greedy-like collection at a spare factor `alpha` > 1 (physical
/// over logical pages): α / (α + W₀(−α·e^−α)).
pub fn write_amplification(alpha: f64) -> f64 {
    if alpha > 30.0 {
        return 1.0;
    }
    alpha / (alpha + lambert_w0(-alpha * exp(-alpha)))
}

/// The spare factor whose steady write amplification is `wanted` (1 to 50).
pub fn alpha_of(wanted: f64) -> f64 {
    let (mut low, mut high) = (1.000_1, 30.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        let end = match write_amplification(middle) > wanted {
            true => &mut low,
            false => &mut high,
        };
        // Nothing lies between them any more.
        if *end == middle {
            break;
        }
        *end = middle;
    }
    0.5 * (low + high)
}

/// Principal branch of Lambert's W in -1/e..0, by Halley's iteration from its series.
fn lambert_w0(x: f64) -> f64 {
    let p = (2.0 * (1.0 + std::f64::consts::E * x)).max(0.0).sqrt();
    let mut w = -1.0 + p - p * p / 3.0 + 11.0 / 72.0 * p * p * p;
    if x > -0.1 {
        w = x * (1.0 - x + 1.5 * x * x);
    }
    for _ in 0..20 {
        let e = exp(w);
        let f = w * e - x;
        let denominator = e * (w + 1.0) - (w + 2.0) * f / (2.0 * w + 2.0);
        if denominator.abs() < 1e-14 {
            break;
        }
        let next = w - f / denominator;
        if next == w {
            break;
        }
        w = next;
    }
    w
}

/// Random writes of 4 KiB in steady state, IOPS, at a sequential rate and an amplification.
pub fn steady_iops(sequential_mb_per_s: f64, amplification: f64) -> f64 {
    sequential_mb_per_s * 1e6 / 4096.0 / amplification
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_is_that_of_the_literature() {
        // Seven percent over-provisioning amplifies about seven- to eightfold, 28 % about 2.5-fold.
        assert!(
            (6.5..9.0).contains(&write_amplification(1.07)),
            "{}",
            write_amplification(1.07)
        );
        assert!(
            (2.0..2.8).contains(&write_amplification(1.28)),
            "{}",
            write_amplification(1.28)
        );
        for wanted in [1.5, 3.0, 7.1] {
            assert!((write_amplification(alpha_of(wanted)) / wanted - 1.0).abs() < 1e-6);
        }
    }

    fn drive() -> FlashState {
        let flash = crate::Model::named("intel-s3510").unwrap().flash.unwrap();
        FlashState::new(flash, 480_000_000_000)
    }

    #[test]
    fn a_drive_goes_from_fresh_to_steady_and_its_rate_meets_the_specification() {
        let mut d = drive();
        d.condition(1.0, false);
        let fresh = d.write(0, 8192, 4096, 25_660, 1);
        assert_eq!(fresh, 25_660);
        d.condition(1.0, true);
        let steady = d.write(0, 81920, 4096, 25_660, 1);
        let iops = 1e9 / steady as f64;
        assert!((iops / 15_100.0 - 1.0).abs() < 0.01, "{iops}");
    }

    #[test]
    fn trim_and_spare_space_lower_the_amplification() {
        let mut d = drive();
        d.condition(1.0, true);
        let full = d.amplification();
        d.condition(0.5, true);
        assert!(d.amplification() < full / 2.0);
    }

    #[test]
    fn reads_are_retried_with_the_square_of_the_life_used_and_writes_end_where_the_model_says() {
        let mut flash = crate::Model::named("intel-s3510").unwrap().flash.unwrap();
        (flash.worn_reads_retried, flash.read_only_at_life) = (0.2, 1.5);
        let mut d = FlashState::new(flash, 480_000_000_000);
        assert_eq!((d.retried_below(), d.is_read_only()), (0, false));
        let share = |d: &FlashState| d.retried_below() as f64 / u64::MAX as f64;
        d.worn(0.5);
        assert!((share(&d) - 0.05).abs() < 1e-9);
        d.worn(1.0);
        assert!((share(&d) - 0.2).abs() < 1e-9 && !d.is_read_only());
        // What is written goes on from there.
        let rest = (0.5 * flash.endurance_tb * 1e12 / 4096.0) as u64;
        d.write(0, 0, 4096, 10_000, rest + 1);
        assert!(d.is_read_only());
    }

    #[test]
    fn a_fast_cache_ends_in_a_cliff() {
        let mut flash = crate::Model::named("intel-s3510").unwrap().flash.unwrap();
        flash.fast_cache_gb = 1.0;
        flash.behind_cache_gb_per_s = 0.1;
        let mut d = FlashState::new(flash, 480_000_000_000);
        let mut at = 0;
        let mut times = Vec::new();
        for i in 0..2000u64 {
            let t = d.write(at, i << 20, 1 << 20, 2_000_000, 1);
            times.push(t);
            at += t;
        }
        assert_eq!(times[0], 2_000_000);
        assert_eq!(times[1999], 10_485_760);
    }
}
