//! The driver's clock: the TSC, calibrated against CLOCK_MONOTONIC, or CLOCK_MONOTONIC itself.
//!
//! Readings are nanoseconds on CLOCK_MONOTONIC's time line, so they can be joined
//! with kernel traces. A reading costs ~8 ns with the TSC and ~25 ns without.

use std::sync::OnceLock;

use fathom_telemetry::Nanos;

/// Fixed-point scale of ns per tick: 32 fractional bits.
const SHIFT: u32 = 32;

/// CLOCK_MONOTONIC in ns.
#[inline]
pub fn monotonic() -> Nanos {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// CPU time of the process (all threads, I/O workers included): user, system.
pub fn process_cpu() -> (Nanos, Nanos) {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it.
    let usage = unsafe {
        let mut u: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut u);
        u
    };
    let ns = |t: libc::timeval| Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000);
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

#[cfg(target_arch = "x86_64")]
mod tsc {
    /// Ticks of the time-stamp counter.
    #[inline]
    pub(super) fn ticks() -> u64 {
        // SAFETY: every x86-64 processor has RDTSC; it touches no memory.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// Whether it runs at one rate in every power state (CPUID 8000_0007h, EDX bit 8), and the kernel,
    /// which compares the processors' counters, has not rejected it.
    #[allow(unused_unsafe)]
    pub(super) fn invariant() -> bool {
        let sources = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
        if std::fs::read_to_string(sources).is_ok_and(|s| !s.split_whitespace().any(|w| w == "tsc"))
        {
            return false;
        }
        // SAFETY: CPUID exists on every x86-64 processor.
        unsafe {
            core::arch::x86_64::__cpuid(0x8000_0000).eax >= 0x8000_0007
                && core::arch::x86_64::__cpuid(0x8000_0007).edx & (1 << 8) != 0
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tsc {
    pub(super) fn ticks() -> u64 {
        0
    }
    pub(super) fn invariant() -> bool {
        false
    }
}

/// A pair of readings taken together.
#[derive(Debug, Clone, Copy)]
struct Pair {
    ticks: u64,
    ns: u64,
}

/// The tightest of several bracketed readings, so that a preemption does not spoil the pair.
fn pair() -> Pair {
    let mut best = (u64::MAX, Pair { ticks: 0, ns: 0 });
    for _ in 0..8 {
        let before = tsc::ticks();
        let ns = monotonic().0;
        let after = tsc::ticks();
        let width = after.saturating_sub(before);
        if width < best.0 {
            best = (
                width,
                Pair {
                    ticks: before + width / 2,
                    ns,
                },
            );
        }
    }
    best.1
}

/// Taken once at the start of the process: the longer ago, the better the rate.
static START: OnceLock<Option<Pair>> = OnceLock::new();

/// Takes the first calibration reading. Call it early in `main`: calibration then costs no waiting.
pub fn prepare() {
    START.get_or_init(|| tsc::invariant().then(pair));
}

/// A thread's clock.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Time-stamp counter.
    Tsc(Tsc),
    /// CLOCK_MONOTONIC by system call or vDSO.
    Monotonic,
}

/// State of a calibrated time-stamp counter.
#[derive(Debug, Clone)]
pub struct Tsc {
    base: Pair,
    /// ns per tick in 32.32 fixed point.
    scale: u64,
    /// The rate is taken since `anchor`; `next` becomes the anchor once it is old enough.
    anchor: Pair,
    next: Pair,
}

/// Baseline that calibration waits for, ns: at 5 ms a 20 ns bracket is 4 ppm.
const BASELINE_NS: u64 = 5_000_000;
/// How often a clock is held against CLOCK_MONOTONIC again, ns.
const DISCIPLINE_NS: u64 = 100_000_000;
/// The rate comes from the last two to four seconds: long enough for 0.02 ppm, short enough to follow
/// CLOCK_MONOTONIC where NTP changes its rate.
const ANCHOR_NS: u64 = 2_000_000_000;
/// A phase error is worked off over at least this time, so that a late correction cannot overshoot.
const SLEW_NS: u64 = 1_000_000_000;

fn scale(a: Pair, b: Pair) -> u64 {
    let (ns, ticks) = (b.ns.saturating_sub(a.ns), b.ticks.saturating_sub(a.ticks));
    ((u128::from(ns) << SHIFT) / u128::from(ticks.max(1))) as u64
}

impl Clock {
    /// The best clock of this machine, calibrated; waits up to 5 ms at the first call of the process.
    pub fn new() -> Self {
        prepare();
        let Some(Some(first)) = START.get().copied() else {
            return Self::Monotonic;
        };
        while monotonic().0 - first.ns < BASELINE_NS {
            std::hint::spin_loop();
        }
        let base = pair();
        Self::Tsc(Tsc {
            base,
            scale: scale(first, base),
            anchor: first,
            next: base,
        })
    }

    /// Now, on CLOCK_MONOTONIC's time line.
    #[inline]
    pub fn now(&self) -> Nanos {
        match self {
            Self::Tsc(t) => t.at(tsc::ticks()),
            Self::Monotonic => monotonic(),
        }
    }

    /// Corrects the rate and slews the phase; cheap to call once per window, acts every 100 ms.
    pub fn discipline(&mut self) {
        if let Self::Tsc(t) = self {
            t.discipline();
        }
    }

    /// Whether readings come from the TSC.
    pub fn is_tsc(&self) -> bool {
        matches!(self, Self::Tsc(_))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Tsc {
    #[inline]
    fn at(&self, ticks: u64) -> Nanos {
        // Another processor's counter may be a few ticks behind.
        let d = ticks.saturating_sub(self.base.ticks);
        Nanos(self.base.ns + ((u128::from(d) * u128::from(self.scale)) >> SHIFT) as u64)
    }

    /// Keeps readings continuous: the new base lies on the old line, and the phase error is worked
    /// off by a change of rate (at most 100 ppm, so time never runs backwards).
    fn discipline(&mut self) {
        let old = self.base;
        if self.at(tsc::ticks()).0 < old.ns + DISCIPLINE_NS {
            return;
        }
        let real = pair();
        let shown = self.at(real.ticks).0;
        let rate = scale(self.anchor, real);
        let error = real.ns as i128 - i128::from(shown);
        // The next correction may come as late as this one did.
        let over = i128::from(shown.saturating_sub(old.ns).max(SLEW_NS));
        let limit = i128::from(rate) / 10_000;
        let correction = (i128::from(rate) * error / over).clamp(-limit, limit);
        self.base = Pair {
            ticks: real.ticks,
            ns: shown,
        };
        self.scale = (i128::from(rate) + correction) as u64;
        if real.ns.saturating_sub(self.next.ns) > ANCHOR_NS {
            (self.anchor, self.next) = (self.next, real);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A discipline that comes late (windows of seconds) must not overshoot: the error stays bounded
    /// whatever the interval.
    #[test]
    fn rare_corrections_do_not_swing() {
        if !tsc::invariant() {
            println!("SKIP rare_corrections_do_not_swing: the time-stamp counter is not invariant");
            return;
        }
        let mut clock = Clock::new();
        let Clock::Tsc(t) = &mut clock else {
            unreachable!("the counter is invariant")
        };
        // As if the phase had been off by 1 ms, ten seconds ago.
        let real = pair();
        t.base = Pair {
            ticks: real.ticks - 10_000_000_000,
            ns: real.ns - ((10_000_000_000u128 * u128::from(t.scale)) >> SHIFT) as u64 - 1_000_000,
        };
        let off = |t: &Tsc| {
            let p = pair();
            p.ns as i64 - t.at(p.ticks).0 as i64
        };
        let before = off(t);
        t.discipline();
        assert!((before - off(t)).abs() < 10_000, "no step in phase");
        // Over the interval that passed before, the whole error or less is worked off.
        let rate = scale(t.anchor, pair());
        let worked_off = ((i128::from(t.scale) - i128::from(rate)) * 10_000_000_000) >> SHIFT;
        assert!(
            worked_off > 0 && worked_off <= 1_100_000,
            "{worked_off} ns of 1 ms"
        );
    }

    #[test]
    fn the_clock_follows_monotonic_time_and_never_runs_backwards() {
        let mut clock = Clock::new();
        let mut last = clock.now();
        let end = monotonic() + Nanos::from_millis(350);
        let mut worst = 0;
        while monotonic() < end {
            let before = monotonic();
            let now = clock.now();
            let after = monotonic();
            assert!(now >= last, "{last} then {now}");
            last = now;
            // Only tight brackets tell anything on a busy machine.
            if after.0 - before.0 < 1000 {
                let error = before
                    .0
                    .saturating_sub(now.0)
                    .max(now.0.saturating_sub(after.0));
                worst = worst.max(error);
            }
            clock.discipline();
        }
        assert!(worst < 20_000, "off by {worst} ns");
    }
}
