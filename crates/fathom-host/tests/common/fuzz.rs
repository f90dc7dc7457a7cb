//! Inputs that nobody wrote: each is made from a seed and its number, and tried under a watchdog.
//!
//! `FATHOM_CASES` says how many of a kind, `FATHOM_SEED` with which seed; `FATHOM_CASE` tries one alone. What fails says all
//! three, beside the smallest input that fails in the same way. (`bench/fuzz` sets them.)
#![allow(dead_code, unreachable_pub)] // every test program uses another part of this

use std::fmt::Debug;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Whatever is tried hangs, if it takes longer: milliseconds are usual, also on a machine with other work.
const HANGS: Duration = Duration::from_secs(60);

fn asked(name: &str) -> Option<u64> {
    let said = std::env::var(name).ok()?;
    Some(
        said.parse()
            .unwrap_or_else(|_| panic!("{name}={said} is not a whole number")),
    )
}

/// How many inputs of a kind are tried: as `FATHOM_CASES` says, or so few.
pub fn cases(few: u64) -> u64 {
    asked("FATHOM_CASES").unwrap_or(few)
}

/// The seed of all inputs.
pub fn seed() -> u64 {
    asked("FATHOM_SEED").unwrap_or(1)
}

/// The numbers of the inputs to be tried.
pub fn numbers(cases: u64) -> std::ops::Range<u64> {
    match asked("FATHOM_CASE") {
        Some(one) => one..one + 1,
        None => 0..cases,
    }
}

/// What makes input number `n` again.
pub fn again(n: u64) -> String {
    format!(
        "again with FATHOM_SEED={} FATHOM_CASE={n} cargo test",
        seed()
    )
}

/// A generator for input number `n`: no input depends on those before it.
pub fn random(n: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    bytes[8..16].copy_from_slice(&n.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Ends the process, and with it the tests, when one input takes too long; nothing else ends what hangs.
pub struct Watchdog(Sender<String>);

impl Watchdog {
    pub fn new() -> Self {
        let (told, tells) = mpsc::channel::<String>();
        std::thread::spawn(move || {
            let mut what = String::new();
            loop {
                match tells.recv_timeout(HANGS) {
                    Ok(next) => what = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) if what.is_empty() => {}
                    Err(RecvTimeoutError::Timeout) => {
                        // `eprintln!` is kept back until the test ends, and it does not.
                        let said = format!("hangs for {HANGS:?}: {what}\n");
                        let _ = std::io::stderr().write_all(said.as_bytes());
                        std::process::abort();
                    }
                }
            }
        });
        Self(told)
    }

    /// From now on this is tried.
    pub fn tries(&self, what: String) {
        // It listens for as long as this lives.
        let _ = self.0.send(what);
    }
}

/// Tries so many inputs; `check` panics at what must not be.
pub fn fuzz<S>(cases: u64, inputs: &S, check: impl Fn(&S::Value))
where
    S: Strategy,
    S::Value: Debug,
{
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 500,
        ..Config::default()
    };
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let watchdog = Watchdog::new();
    for n in numbers(cases) {
        let mut runner = TestRunner::new_with_rng(config.clone(), random(n));
        let input = inputs.new_tree(&mut runner).unwrap();
        let tried = runner.run_one(input, |value| {
            watchdog.tries(format!("{test}, {}: {value:?}", again(n)));
            check(&value);
            Ok(())
        });
        if let Err(e) = tried {
            panic!("{e}\n{}", again(n));
        }
    }
}

/// A change of a file; places are shares of its length in 2^-32.
#[derive(Debug, Clone)]
pub enum Change {
    Flip(u32, u8),
    Fill(u32, u8, u8),
    Cut(u32),
    Remove(u32, u8),
    Repeat(u32, u8),
    Insert(u32, String),
    /// The digits that come next become another number.
    Number(u32, String),
    /// A line of one place once more at another.
    Line(u32, u32),
}

/// One to five changes.
pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<u32>;
    let byte = prop_oneof![
        Just(0u8),
        Just(0xff),
        Just(0x7f),
        Just(0x80),
        Just(1),
        any::<u8>()
    ];
    let number = prop_oneof![
        prop::sample::select(vec![
            "0",
            "-1",
            "-0",
            "1e309",
            "-1e308",
            "1e-320",
            "NaN",
            "inf",
            "4294967296",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "340282366920938463463374607431768211456",
            "0x7fffffffffffffff",
            "1.",
            "00",
        ])
        .prop_map(str::to_owned),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
    ];
    let text = prop_oneof![
        "[-+0-9.eE:/,=%kmgtKMGT]{1,12}",
        "[\\[\\]{}\"'#;=\\\\\n\t ,]{1,4}",
        prop::sample::select(HOSTILE.to_vec()).prop_map(str::to_owned),
        any::<String>(),
    ];
    prop::collection::vec(
        prop_oneof![
            1 => (at(), 0u8..8).prop_map(|(a, b)| Change::Flip(a, b)),
            2 => (at(), 1u8..40, byte).prop_map(|(a, n, b)| Change::Fill(a, n, b)),
            1 => at().prop_map(Change::Cut),
            2 => (at(), 1u8..40).prop_map(|(a, n)| Change::Remove(a, n)),
            2 => (at(), 1u8..40).prop_map(|(a, n)| Change::Repeat(a, n)),
            3 => (at(), text).prop_map(|(a, t)| Change::Insert(a, t)),
            3 => (at(), number).prop_map(|(a, n)| Change::Number(a, n)),
            2 => (at(), at()).prop_map(|(a, b)| Change::Line(a, b)),
        ],
        1..6,
    )
}

/// What commands a terminal, a page, a shell or a database where nobody prevents it.
pub const HOSTILE: &[&str] = &[
    "\u{1b}]0;owned\u{7}",
    "\u{1b}[2J",
    "\u{9b}31m",
    "\u{202e}\u{2066}",
    "\r",
    "\0",
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "]]></style><svg onload=alert(1)>",
    "`|*_[a](javascript:alert(1))",
    "'; DROP TABLE jobs; --",
    "$(touch owned)",
    "../../../../etc/passwd",
    "%s%n",
    "€\u{301}",
];

/// A file with changes.
pub fn changed(whole: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for change in changes {
        let place = |share: u32| ((u64::from(share) * bytes.len() as u64) >> 32) as usize;
        let end = |at: usize, n: u8| (at + usize::from(n)).min(bytes.len());
        match change {
            Change::Flip(at, bit) => {
                let at = place(*at);
                if let Some(b) = bytes.get_mut(at) {
                    *b ^= 1 << bit;
                }
            }
            Change::Fill(at, n, byte) => {
                let range = place(*at)..end(place(*at), *n);
                bytes[range].fill(*byte);
            }
            Change::Cut(at) => bytes.truncate(place(*at)),
            Change::Remove(at, n) => drop(bytes.drain(place(*at)..end(place(*at), *n))),
            Change::Repeat(at, n) => bytes.extend_from_within(place(*at)..end(place(*at), *n)),
            Change::Insert(at, text) => {
                let at = place(*at);
                bytes.splice(at..at, text.bytes());
            }
            Change::Number(at, text) => {
                let from = place(*at);
                let digit = |b: &u8| b.is_ascii_digit();
                let Some(start) = bytes[from..].iter().position(digit).map(|i| from + i) else {
                    continue;
                };
                let digits = bytes[start..].iter().take_while(|b| digit(b)).count();
                bytes.splice(start..start + digits, text.bytes());
            }
            Change::Line(from, to) => {
                let line_of = |at: usize| {
                    let start = bytes[..at].iter().rposition(|b| *b == b'\n');
                    let end = bytes[at..].iter().position(|b| *b == b'\n');
                    start.map_or(0, |i| i + 1)..end.map_or(bytes.len(), |i| at + i + 1)
                };
                let (line, to) = (line_of(place(*from)), line_of(place(*to)).start);
                let line = bytes[line].to_vec();
                bytes.splice(to..to, line);
            }
        }
    }
    bytes
}
