//! The values of a job's options, each with its text form.

use std::fmt;
use std::str::FromStr;

use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Declares an enum whose values are words, with its text form and the list for help.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
        impl $name {
            /// Every word, for help and errors.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            /// The word.
            pub const fn word(self) -> &'static str { match self { $(Self::$variant => $word),+ } }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text { $($word => Ok(Self::$variant),)+
                    _ => Err(format!("'{text}' is not one of {}", Self::WORDS.join(", "))) }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.word()) }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> { s.serialize_str(self.word()) }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

words! {
    /// Pattern and direction.
    Rw {
        /// Sequential reads.
        Read = "read",
        /// Sequential writes.
        Write = "write",
        /// Sequential, reads and writes mixed.
        Mixed = "rw",
        /// Random reads.
        RandRead = "randread",
        /// Random writes.
        RandWrite = "randwrite",
        /// Random, reads and writes mixed.
        RandMixed = "randrw",
        /// Sequential discards.
        Trim = "trim",
        /// Random discards.
        RandTrim = "randtrim",
    }
}

impl Rw {
    /// What it does, in words: `random reads`.
    pub const fn loads(self) -> &'static str {
        match self {
            Self::Read => "sequential reads",
            Self::Write => "sequential writes",
            Self::Mixed => "sequential reads and writes",
            Self::RandRead => "random reads",
            Self::RandWrite => "random writes",
            Self::RandMixed => "random reads and writes",
            Self::Trim => "sequential discards",
            Self::RandTrim => "random discards",
        }
    }
    /// Whether offsets are random.
    pub const fn is_random(self) -> bool {
        matches!(
            self,
            Self::RandRead | Self::RandWrite | Self::RandMixed | Self::RandTrim
        )
    }
    /// Whether the job reads.
    pub const fn reads(self) -> bool {
        matches!(
            self,
            Self::Read | Self::RandRead | Self::Mixed | Self::RandMixed
        )
    }
    /// Whether the job writes.
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::Write | Self::RandWrite | Self::Mixed | Self::RandMixed
        )
    }
    /// Whether the job discards.
    pub const fn trims(self) -> bool {
        matches!(self, Self::Trim | Self::RandTrim)
    }
    /// Whether the job changes the target.
    pub const fn modifies(self) -> bool {
        self.writes() || self.trims()
    }
}

words! {
    /// How I/O reaches the kernel.
    Engine {
        /// io_uring, one ring per thread.
        Uring = "uring",
        /// NVMe commands through io_uring, past the block layer (`/dev/ng0n1`).
        UringCmd = "uring-cmd",
        /// preadv2 and pwritev2; a depth of N means N threads with one I/O each.
        Preadv = "preadv",
        /// Linux's older asynchronous interface, io_submit: for comparison with what uses it.
        Libaio = "libaio",
        /// POSIX AIO of the C library: its threads serve each file's requests in their order.
        PosixAio = "posixaio",
        /// A mapping of the file, copied from and to; one I/O at a time, through the page cache.
        Mmap = "mmap",
        /// No I/O at all: the generator's own ceiling.
        Null = "null",
    }
}

words! {
    /// What a job does in the place of plain reads, writes or discards.
    Command {
        /// Reads, writes, discards.
        Plain = "plain",
        /// Writes: zone append (NVMe 7Dh), the drive says where it went.
        Append = "append",
        /// Writes: write zeroes (08h), no data is handed over.
        WriteZeroes = "write-zeroes",
        /// Writes: copy (19h) from another place of the same namespace.
        Copy = "copy",
        /// Reads: verify (0Ch), no data is handed over.
        Verify = "verify",
        /// Reads: compare (05h) with what is handed over.
        Compare = "compare",
        /// Discards: zones are reset.
        ZoneReset = "zone-reset",
        /// Discards: zones are finished.
        ZoneFinish = "zone-finish",
    }
}

impl Command {
    /// Whether zones are managed, not I/O done in them.
    pub const fn manages_zones(self) -> bool {
        matches!(self, Self::ZoneReset | Self::ZoneFinish)
    }
}

words! {
    /// The system call of the preadv engine.
    SyncCall {
        /// preadv2 and pwritev2, which carry flags.
        Preadv2 = "preadv2",
        /// preadv and pwritev.
        Preadv = "preadv",
        /// pread and pwrite.
        Pread = "pread",
        /// lseek, then readv or writev.
        Readv = "readv",
        /// lseek, then read or write.
        Read = "read",
    }
}

words! {
    /// What the kernel is told of the accesses to come (posix_fadvise, madvise): how far it reads ahead.
    Advice {
        /// No reading ahead.
        Random = "random",
        /// Twice as far.
        Sequential = "sequential",
        /// What is read is not wanted again.
        NoReuse = "noreuse",
    }
}

impl Advice {
    /// The kernel's number.
    pub(crate) const fn number(self) -> libc::c_int {
        match self {
            Self::Random => libc::POSIX_FADV_RANDOM,
            Self::Sequential => libc::POSIX_FADV_SEQUENTIAL,
            Self::NoReuse => libc::POSIX_FADV_NOREUSE,
        }
    }
}

words! {
    /// What an I/O error does.
    OnError {
        /// The job ends; what was measured is kept.
        Stop = "stop",
        /// The error is counted and the job goes on.
        Continue = "continue",
    }
}

words! {
    /// The arrival process of an open loop.
    Arrival {
        /// Exponential gaps.
        Poisson = "poisson",
        /// Equal gaps.
        Constant = "constant",
    }
}

/// Block sizes with weights: `4k`, or `4k:70,64k:30`.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockSizes(pub Vec<(Bytes, f64)>);

impl BlockSizes {
    /// A single size.
    pub fn one(bytes: u64) -> Self {
        Self(vec![(Bytes(bytes), 1.0)])
    }
    /// Largest size.
    pub fn max(&self) -> Bytes {
        self.0.iter().map(|s| s.0).max().unwrap_or_default()
    }
    /// Smallest size.
    pub fn min(&self) -> Bytes {
        self.0.iter().map(|s| s.0).min().unwrap_or_default()
    }
}

impl FromStr for BlockSizes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
            let size: Bytes = size.parse().map_err(|e| format!("{e}"))?;
            let weight: f64 = weight
                .trim_end_matches('%')
                .parse()
                .map_err(|_| format!("'{weight}' is not a weight: expected a number such as 70"))?;
            if size.0 == 0 || size.0 > 1 << 30 {
                return Err(format!(
                    "a block of {size} is not possible: expected 1 byte to 1 GiB"
                ));
            }
            if !(weight > 0.0 && weight.is_finite()) {
                return Err(format!(
                    "a weight of {weight} is not possible: expected more than 0"
                ));
            }
            sizes.push((size, weight));
        }
        Ok(Self(sizes))
    }
}

/// Bytes as fio writes them where that is exact: `4k`, `1m`, `512`.
pub(crate) fn size_text(b: Bytes) -> String {
    for (shift, unit) in [(40, "t"), (30, "g"), (20, "m"), (10, "k")] {
        if b.0 > 0 && b.0.is_multiple_of(1 << shift) {
            return format!("{}{unit}", b.0 >> shift);
        }
    }
    b.0.to_string()
}

impl fmt::Display for BlockSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(size, _)] = self.0[..] {
            return f.write_str(&size_text(size));
        }
        for (i, (size, weight)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{}:{weight}", size_text(*size))?;
        }
        Ok(())
    }
}

impl BlockSizes {
    /// In a sentence: `4 KiB`, or `4k:70,64k:30`.
    pub fn words(&self) -> String {
        match self.0[..] {
            [(size, _)] => size.to_string(),
            _ => self.to_string(),
        }
    }
}

impl Serialize for BlockSizes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlockSizes {
    /// As text, or bytes of one size.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            One(u64),
            Text(String),
        }
        match Form::deserialize(from)? {
            Form::One(bytes) => Ok(Self::one(bytes)),
            Form::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

/// A duration that prints exactly (`5s`, `1500us`), for job files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextDuration(pub Nanos);

impl fmt::Display for TextDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.0;
        for (scale, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")] {
            if n.is_multiple_of(scale) {
                return write!(f, "{}{unit}", n / scale);
            }
        }
        write!(f, "{n}ns")
    }
}

/// How random offsets are distributed over the range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// All blocks alike.
    Uniform,
    /// Zipf's law with this exponent; popular blocks are scattered over the range.
    Zipf(f64),
    /// Pareto as fio's: share `h` of the blocks gets share `1 − h` of the accesses, self-similar.
    Pareto(f64),
    /// Normal around the middle, standard deviation in percent of the range.
    Gauss(f64),
    /// The first `size` percent of the range get `share` percent of the accesses.
    Hotspot {
        /// Percent of the range that is hot.
        size: f64,
        /// Percent of accesses that go there.
        share: f64,
    },
}

impl FromStr for Distribution {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (word, arg) = text.split_once(':').unwrap_or((text, ""));
        let number = |default: f64, low: f64, high: f64| -> Result<f64, String> {
            let v = if arg.is_empty() {
                default
            } else {
                arg.parse()
                    .map_err(|_| format!("'{arg}' is not a number"))?
            };
            if v > low && v < high {
                Ok(v)
            } else {
                Err(format!(
                    "{word}:{v} is not possible: expected between {low} and {high}"
                ))
            }
        };
        match word {
            "uniform" | "random" => Ok(Self::Uniform),
            "zipf" => Ok(Self::Zipf(number(1.1, 0.0, 20.0)?)),
            "pareto" => Ok(Self::Pareto(number(0.2, 0.0, 1.0)?)),
            "gauss" | "normal" => Ok(Self::Gauss(number(10.0, 0.0, 1000.0)?)),
            "hotspot" => {
                let (size, share) = if arg.is_empty() {
                    ("20", "80")
                } else {
                    arg.split_once('/')
                        .ok_or("expected hotspot:SIZE/SHARE, such as hotspot:20/80")?
                };
                let percent = |t: &str| {
                    t.parse::<f64>().ok().filter(|v| *v > 0.0 && *v < 100.0).ok_or_else(|| {
                        format!("'{t}' is not a share: expected more than 0 and less than 100 percent")
                    })
                };
                Ok(Self::Hotspot {
                    size: percent(size)?,
                    share: percent(share)?,
                })
            }
            _ => Err(format!(
                "'{text}' is not a distribution: expected uniform, zipf:THETA, pareto:H, gauss:PERCENT or hotspot:SIZE/SHARE"
            )),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(t) => write!(f, "zipf:{t}"),
            Self::Pareto(h) => write!(f, "pareto:{h}"),
            Self::Gauss(d) => write!(f, "gauss:{d}"),
            Self::Hotspot { size, share } => write!(f, "hotspot:{size}/{share}"),
        }
    }
}

/// A burst and the idle time after it: `64/10ms` (I/Os) or `1m/100ms` (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// I/Os per burst and thread; 0 where bytes count.
    pub ios: u64,
    /// Bytes per burst and thread; 0 where I/Os count.
    pub bytes: u64,
    /// Idle time after the last completion of a burst.
    pub idle: Nanos,
}

impl FromStr for Burst {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let form = "expected IOS/IDLE or SIZE/IDLE, such as 64/10ms or 1m/100ms";
        let (amount, idle) = text.split_once('/').ok_or(form)?;
        let idle: Nanos = idle.parse().map_err(|e| format!("{e}; {form}"))?;
        let (ios, bytes) = match amount.parse::<u64>() {
            Ok(n) => (n, 0),
            Err(_) => (
                0,
                amount
                    .parse::<Bytes>()
                    .map_err(|e| format!("{e}; {form}"))?
                    .0,
            ),
        };
        if ios + bytes == 0 {
            return Err(format!("an empty burst is not possible: {form}"));
        }
        Ok(Self { ios, bytes, idle })
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = TextDuration(self.idle);
        if self.ios > 0 {
            write!(f, "{}/{idle}", self.ios)
        } else {
            write!(f, "{}/{idle}", size_text_with_unit(self.bytes))
        }
    }
}

/// A size that cannot be read as a plain number.
fn size_text_with_unit(bytes: u64) -> String {
    let text = size_text(Bytes(bytes));
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        format!("{text}b")
    } else {
        text
    }
}

/// Hosts of a fleet, in the order in which they were named: `2-4`, or `3` for the third alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSpan {
    first: u32,
    last: u32,
}

impl HostSpan {
    /// From the `first` to the `last`, counted from 1.
    pub fn new(first: u32, last: u32) -> Self {
        Self { first, last }
    }

    /// Their places in the fleet, counted from 0.
    pub fn places(self) -> std::ops::Range<usize> {
        self.first.saturating_sub(1) as usize..self.last as usize
    }
}

impl FromStr for HostSpan {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |t: &str| t.trim().parse::<u32>().ok().filter(|n| *n > 0);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!(
                "'{text}' names no hosts: expected a range such as 2-4, counted from 1"
            )),
        }
    }
}

impl fmt::Display for HostSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_reads_back_what_it_prints() {
        fn round<T: FromStr<Err = String> + fmt::Display + PartialEq + fmt::Debug>(texts: &[&str]) {
            for t in texts {
                let v: T = t.parse().unwrap_or_else(|e| panic!("{t}: {e}"));
                assert_eq!(v.to_string().parse::<T>().unwrap(), v, "{t}");
            }
        }
        round::<Rw>(Rw::WORDS);
        round::<BlockSizes>(&["4k", "4k:70,64k:30", "512", "1536"]);
        round::<Distribution>(&[
            "uniform",
            "zipf:1.2",
            "zipf",
            "pareto:0.1",
            "gauss:5",
            "hotspot:10/90",
        ]);
        round::<Burst>(&["64/10ms", "1m/100ms", "1000b/1s"]);
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        assert!("4k:0".parse::<BlockSizes>().is_err());
        assert!("0".parse::<BlockSizes>().is_err());
        assert!("hotspot:0/80".parse::<Distribution>().is_err());
        assert!("zipf:-1".parse::<Distribution>().is_err());
        assert!("0/1s".parse::<Burst>().unwrap_err().contains("64/10ms"));
        assert!("sideways".parse::<Rw>().unwrap_err().contains("randread"));
    }
}
