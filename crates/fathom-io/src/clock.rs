//! The driver's clock: the processor's own counter (the TSC, or CNTVCT of aarch64), calibrated against CLOCK_MONOTONIC, or
//! CLOCK_MONOTONIC itself.
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
    cpu(libc::RUSAGE_SELF)
}

/// CPU time of programs that this process started and that have ended: user, system.
pub fn children_cpu() -> (Nanos, Nanos) {
    cpu(libc::RUSAGE_CHILDREN)
}

fn cpu(of: libc::c_int) -> (Nanos, Nanos) {
    // SAFETY: an all-zero rusage is valid, and the kernel fills it.
    let usage = unsafe {
        let mut u: libc::rusage = std::mem::zeroed();
        libc::getrusage(of, &mut u);
        u
    };
    let ns = |t: libc::timeval| Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000);
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// Whether the kernel, which compares the processors' counters, offers this one as a clock.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn kernel_offers(source: &str) -> bool {
    let sources = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    // Where sysfs is hidden nothing speaks against it.
    std::fs::read_to_string(sources).map_or(true, |s| s.split_whitespace().any(|w| w == source))
}

#[cfg(target_arch = "x86_64")]
mod counter {
    /// What it is called.
    pub(super) const NAME: &str = "time-stamp counter";

    /// Ticks of the time-stamp counter.
    #[inline]
    pub(super) fn ticks() -> u64 {
        // SAFETY: every x86-64 processor has RDTSC; it touches no memory.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// Whether it runs at one rate in every power state (CPUID 8000_0007h, EDX bit 8), and the kernel has not rejected it.
    #[allow(unused_unsafe)]
    pub(super) fn reliable() -> bool {
        // SAFETY: CPUID exists on every x86-64 processor.
        let invariant = unsafe {
            core::arch::x86_64::__cpuid(0x8000_0000).eax >= 0x8000_0007
                && core::arch::x86_64::__cpuid(0x8000_0007).edx & (1 << 8) != 0
        };
        invariant && super::kernel_offers("tsc")
    }

    /// Ticks in a second, where the processor says so and they are few enough to matter.
    pub(super) fn frequency() -> Option<u64> {
        None
    }
}

#[cfg(target_arch = "aarch64")]
mod counter {
    use core::arch::asm;

    /// What it is called.
    pub(super) const NAME: &str = "virtual counter (CNTVCT)";

    /// Ticks of the generic timer's virtual counter (CNTVCT_EL0, Arm ARM D12.1).
    #[inline]
    pub(super) fn ticks() -> u64 {
        let ticks: u64;
        // SAFETY: Linux lets programs read it, or reads it for them where it works around an erratum; no memory is touched.
        unsafe {
            asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
        }
        ticks
    }

    /// It has one rate in every power state by its definition; whether the kernel has not rejected it.
    pub(super) fn reliable() -> bool {
        super::kernel_offers("arch_sys_counter")
    }

    /// Ticks in a second (CNTFRQ_EL0), as the firmware says: 1 GHz from Armv8.6 on, 25 MHz and such before.
    pub(super) fn frequency() -> Option<u64> {
        let hertz: u64;
        // SAFETY: as above.
        unsafe {
            asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
        }
        (hertz > 0).then_some(hertz)
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod counter {
    pub(super) const NAME: &str = "counter";
    pub(super) fn ticks() -> u64 {
        0
    }
    pub(super) fn reliable() -> bool {
        false
    }
    pub(super) fn frequency() -> Option<u64> {
        None
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
        let before = counter::ticks();
        let ns = monotonic().0;
        let after = counter::ticks();
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
    START.get_or_init(|| counter::reliable().then(pair));
}

/// A thread's clock.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The processor's counter.
    Counter(Counter),
    /// CLOCK_MONOTONIC by system call or vDSO.
    Monotonic,
}

/// State of a calibrated counter.
#[derive(Debug, Clone)]
pub struct Counter {
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
        Self::Counter(Counter {
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
            Self::Counter(t) => t.at(counter::ticks()),
            Self::Monotonic => monotonic(),
        }
    }

    /// Corrects the rate and slews the phase; cheap to call once per window, acts every 100 ms.
    pub fn discipline(&mut self) {
        if let Self::Counter(t) = self {
            t.discipline();
        }
    }

    /// Whether readings come from the processor's own counter.
    pub fn is_counter(&self) -> bool {
        matches!(self, Self::Counter(_))
    }

    /// Name of the counter that this processor has, used or not.
    pub fn counter_name() -> &'static str {
        counter::NAME
    }

    /// The least difference between two readings, ns, where it is more than one: counters of aarch64 may tick at 25 MHz.
    pub fn resolution(&self) -> Option<Nanos> {
        let hertz = counter::frequency().filter(|_| self.is_counter())?;
        let ns = 1_000_000_000 / hertz;
        (ns > 1).then_some(Nanos(ns))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Counter {
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
        if self.at(counter::ticks()).0 < old.ns + DISCIPLINE_NS {
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
        if !counter::reliable() {
            println!("SKIP rare_corrections_do_not_swing: no reliable counter");
            return;
        }
        let mut clock = Clock::new();
        let Clock::Counter(t) = &mut clock else {
            unreachable!("the counter is reliable")
        };
        // As if the phase had been off by 1 ms, ten seconds ago.
        let real = pair();
        let ago = ((10_000_000_000u128 << SHIFT) / u128::from(t.scale)) as u64;
        t.base = Pair {
            ticks: real.ticks - ago,
            ns: real.ns - 10_000_000_000 - 1_000_000,
        };
        let off = |t: &Counter| {
            let p = pair();
            p.ns as i64 - t.at(p.ticks).0 as i64
        };
        let before = off(t);
        t.discipline();
        assert!((before - off(t)).abs() < 10_000, "no step in phase");
        // Over the interval that passed before, the whole error or less is worked off.
        let rate = scale(t.anchor, pair());
        let worked_off = ((i128::from(t.scale) - i128::from(rate)) * i128::from(ago)) >> SHIFT;
        assert!(
            worked_off > 0 && worked_off <= 1_100_000,
            "{worked_off} ns of 1 ms"
        );
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn the_counter_runs_at_the_rate_that_its_register_says() {
        let hertz = counter::frequency().unwrap();
        let (a, b) = (pair(), {
            std::thread::sleep(std::time::Duration::from_millis(200));
            pair()
        });
        let seen = (b.ticks - a.ticks) as f64 / ((b.ns - a.ns) as f64 / 1e9);
        assert!(
            (seen / hertz as f64 - 1.0).abs() < 1e-3,
            "{seen} of {hertz} Hz"
        );
        // (User emulation runs on a kernel that has another counter.)
        let coarse = Clock::new().resolution();
        if !counter::reliable() {
            return assert_eq!(coarse, None);
        }
        assert_eq!(
            coarse.is_some(),
            hertz < 500_000_001,
            "{hertz} Hz: {coarse:?}"
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
