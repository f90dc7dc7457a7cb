//! The random numbers that fio draws, so that the same job does the same I/O: generators, seeds, and what each is for.
//!
//! Combined Tausworthe generators after P. L'Ecuyer, "Maximally Equidistributed Combined Tausworthe Generators",
//! Mathematics of Computation 65 (1996), and "Tables of Maximally Equidistributed Combined LFSR Generators", 68 (1999);
//! taus88 by default, taus258 with `random_generator=tausworthe64`.

/// What fio draws numbers for, by their place in its list of seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    ReadSize = 0,
    WriteSize = 1,
    TrimSize = 2,
    Mix = 4,
    File = 5,
    Block = 6,
    FileSize = 7,
    Trim = 8,
    Content = 9,
    Motion = 10,
    Zone = 16,
    Priority = 19,
    Spread = 22,
}

/// Seeds of a job: `randseed`, and the number of its thread, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seeds {
    pub(crate) seed: u64,
    pub(crate) thread: u64,
    /// Offsets have a seed of their own, whatever `randseed` says: fio up to 3.34, with `randrepeat`.
    pub(crate) fixed: bool,
}

/// What fio up to 3.34 seeds offsets with, times the thread's number.
const FIXED: u64 = 0xb189_9bed;

impl Seeds {
    pub(crate) fn of(self, purpose: Purpose) -> u64 {
        if self.fixed && purpose == Purpose::Block {
            return FIXED.wrapping_mul(self.thread);
        }
        let place = purpose as u32;
        let own = 0x9e37_0001_u64.wrapping_pow(4 + place);
        let seed = self.seed.wrapping_mul(own);
        seed.wrapping_mul(self.thread)
            .wrapping_add(u64::from(place))
    }
    fn stream(self, purpose: Purpose) -> Stream {
        Stream::new(self.of(purpose))
    }
    /// Of `random_generator`; where it is the wide one, numbers of 64 bits.
    fn stream_of(self, purpose: Purpose, wide: bool) -> Stream {
        if wide {
            Stream::wide(self.of(purpose))
        } else {
            self.stream(purpose)
        }
    }
}

/// One sequence of numbers.
#[derive(Debug, Clone)]
pub(crate) enum Stream {
    Narrow([u32; 3]),
    Wide([u64; 5]),
}

/// Numbers that are drawn and forgotten after seeding.
const DISCARDED: u32 = 6;

impl Stream {
    /// taus88: numbers of 32 bits.
    pub(crate) fn new(seed: u64) -> Self {
        let seed = seed as u32;
        let mut last = 53;
        let state = [1, 7, 15].map(|least| {
            last = 69_069_u32.wrapping_mul(last) ^ seed;
            last = if last < least { last + least } else { last };
            last
        });
        Self::Narrow(state).begun()
    }
    /// taus258: numbers of 64 bits.
    fn wide(seed: u64) -> Self {
        let mut last = 53;
        let state = [1, 7, 15, 33, 49].map(|least| {
            last = 6_906_969_069_u64.wrapping_mul(last) ^ seed;
            last = if last < least { last + least } else { last };
            last
        });
        Self::Wide(state).begun()
    }
    fn begun(mut self) -> Self {
        for _ in 0..DISCARDED {
            self.next();
        }
        self
    }
    /// The next number, up to [`Stream::max`].
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        match self {
            Self::Narrow([a, b, c]) => {
                *a = ((*a & !1) << 12) ^ (((*a << 13) ^ *a) >> 19);
                *b = ((*b & !7) << 4) ^ (((*b << 2) ^ *b) >> 25);
                *c = ((*c & !15) << 17) ^ (((*c << 3) ^ *c) >> 11);
                u64::from(*a ^ *b ^ *c)
            }
            Self::Wide([a, b, c, d, e]) => {
                *a = ((*a & !1) << 10) ^ (((*a << 1) ^ *a) >> 53);
                *b = ((*b & !0x1ff) << 5) ^ (((*b << 24) ^ *b) >> 50);
                *c = ((*c & !0xfff) << 29) ^ (((*c << 3) ^ *c) >> 23);
                *d = ((*d & !0x1_ffff) << 23) ^ (((*d << 5) ^ *d) >> 24);
                *e = ((*e & !0x7f_ffff) << 8) ^ (((*e << 3) ^ *e) >> 33);
                *a ^ *b ^ *c ^ *d ^ *e
            }
        }
    }
    /// The largest number.
    pub(crate) fn max(&self) -> u64 {
        match self {
            Self::Narrow(_) => u64::from(u32::MAX),
            Self::Wide(_) => u64::MAX,
        }
    }
    /// In `0.0..1.0`.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        // As fio computes it: the greatest number of 64 bits rounds up to 1.
        self.next() as f64 / (self.max() as f64 + 1.0)
    }
    /// Below `n`.
    #[inline]
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (n as f64 * self.unit()) as u64
    }
    /// 1 to 100.
    pub(crate) fn percent(&mut self) -> u64 {
        1 + self.below(100)
    }
}

/// What a thread draws from.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    pub(crate) block: Stream,
    pub(crate) sizes: [Stream; 3],
    pub(crate) mix: Stream,
    pub(crate) file: Stream,
    pub(crate) motion: [Stream; 3],
    pub(crate) zone: Stream,
    pub(crate) trim: Stream,
    pub(crate) priority: Stream,
    pub(crate) content: Stream,
}

impl Streams {
    /// `verified`: what reads back draws the sizes that writes drew; `pairs`: a write has the size of its trim.
    pub(crate) fn new(seeds: Seeds, wide: bool, verified: bool, pairs: bool) -> Self {
        let read = Purpose::ReadSize;
        let write = if verified { read } else { Purpose::WriteSize };
        let trim = if pairs { write } else { Purpose::TrimSize };
        Self {
            block: seeds.stream_of(Purpose::Block, wide),
            sizes: [read, write, trim].map(|p| seeds.stream_of(p, wide)),
            mix: seeds.stream(Purpose::Mix),
            file: seeds.stream_of(Purpose::File, wide),
            motion: [(); 3].map(|()| seeds.stream(Purpose::Motion)),
            zone: seeds.stream(Purpose::Zone),
            trim: seeds.stream(Purpose::Trim),
            priority: seeds.stream(Purpose::Priority),
            content: seeds.stream_of(Purpose::Content, wide),
        }
    }
}

/// Taps of maximal shift registers of 3 bits and more (P. Alfke, Xilinx application note 052, 1996).
const TAPS: [&[u32]; 61] = [
    &[3, 2],
    &[4, 3],
    &[5, 3],
    &[6, 5],
    &[7, 6],
    &[8, 6, 5, 4],
    &[9, 5],
    &[10, 7],
    &[11, 9],
    &[12, 6, 4, 1],
    &[13, 4, 3, 1],
    &[14, 5, 3, 1],
    &[15, 14],
    &[16, 15, 13, 4],
    &[17, 14],
    &[18, 11],
    &[19, 6, 2, 1],
    &[20, 17],
    &[21, 19],
    &[22, 21],
    &[23, 18],
    &[24, 23, 22, 17],
    &[25, 22],
    &[26, 6, 2, 1],
    &[27, 5, 2, 1],
    &[28, 25],
    &[29, 27],
    &[30, 6, 4, 1],
    &[31, 28],
    &[32, 31, 29, 1],
    &[33, 20],
    &[34, 27, 2, 1],
    &[35, 33],
    &[36, 25],
    &[37, 5, 4, 3, 2, 1],
    &[38, 6, 5, 1],
    &[39, 35],
    &[40, 38, 21, 19],
    &[41, 38],
    &[42, 41, 20, 19],
    &[43, 42, 38, 37],
    &[44, 43, 18, 17],
    &[45, 44, 42, 41],
    &[46, 45, 26, 25],
    &[47, 42],
    &[48, 47, 21, 20],
    &[49, 40],
    &[50, 49, 24, 23],
    &[51, 50, 36, 35],
    &[52, 49],
    &[53, 52, 38, 37],
    &[54, 53, 18, 17],
    &[55, 31],
    &[56, 55, 35, 34],
    &[57, 50],
    &[58, 39],
    &[59, 58, 38, 37],
    &[60, 59],
    &[61, 60, 46, 45],
    &[62, 61, 6, 5],
    &[63, 62],
];

/// A shift register that gives each number below its end once (`random_generator=lfsr`).
#[derive(Debug, Clone)]
pub(crate) struct ShiftRegister {
    state: u64,
    feedback: u64,
    top: u64,
    end: u64,
    given: u64,
    seed: u64,
    /// fio's first step after seeding is a double one, and not the first after each reset.
    doubled: bool,
}

impl ShiftRegister {
    /// All numbers below `end`, in an order that `seed` shifts.
    pub(crate) fn new(end: u64, seed: u64) -> Self {
        let bits = (3..63).find(|b| 1u64 << b > end).unwrap_or(63);
        let taps = TAPS[bits as usize - 3];
        let mut new = Self {
            state: 0,
            feedback: taps.iter().fold(0, |mask, t| mask | 1 << (t - 1)),
            top: 1 << (taps[0] - 1),
            end,
            given: 0,
            seed,
            doubled: true,
        };
        new.reset();
        new
    }
    /// From the beginning.
    pub(crate) fn reset(&mut self) {
        let mask = (self.top << 1) - 1;
        self.given = 0;
        self.state = self.seed & mask;
        if self.state == mask {
            // The one state that leads nowhere: fio refuses the job, here it begins elsewhere.
            self.state = 0;
        }
    }
    fn step(&mut self) {
        let odd = self.state & 1;
        self.state = ((self.state >> 1) | self.top) ^ (odd.wrapping_sub(1) & self.feedback);
    }
    /// The next number; `None` when all were given.
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.given >= self.end {
            return None;
        }
        self.given += 1;
        loop {
            if std::mem::take(&mut self.doubled) {
                self.step();
            }
            self.step();
            if self.state < self.end {
                return Some(self.state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // The GNU Scientific Library's taus2 of seed 1 gives 2733957125 after 10,000 draws; its state after seeding
        // is the one that follows from 1 by the congruence 69069 and six discarded numbers.
        let state = [69_069_u32, 475_559_465, 2_801_775_573];
        let mut s = Stream::Narrow(state).begun();
        for _ in 0..9_999 {
            s.next();
        }
        assert_eq!(s.next(), 2_733_957_125);
    }

    #[test]
    fn a_shift_register_gives_each_number_once_whatever_its_size() {
        for end in [1, 2, 7, 8, 9, 63, 64, 100, 4096, 10_001] {
            for seed in [0, 1, 0x89, u64::MAX] {
                let mut r = ShiftRegister::new(end, seed);
                for _ in 0..2 {
                    let mut seen = vec![false; end as usize];
                    while let Some(n) = r.next() {
                        assert!(!std::mem::replace(&mut seen[n as usize], true), "{end}");
                    }
                    assert!(seen.iter().all(|s| *s), "{end} {seed}");
                    r.reset();
                }
            }
        }
    }
}
