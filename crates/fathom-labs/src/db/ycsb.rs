//! YCSB's core workloads (Cooper et al. 2010) on a database, as its version 0.17 does them through JDBC: one table of keys that
//! are hashed, ten fields of 100 bytes, each operation a statement that commits itself.
//!
//! Sources are `CoreWorkload.java`, `ScrambledZipfianGenerator.java`, `SkewedLatestGenerator.java` and
//! `AcknowledgedCounterGenerator.java`. One thing cannot be as there: YCSB derives the keys that are yet to come from its number
//! of operations, which a load of a given time has not; here as many are expected as there are at the start.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fathom_stats::rng::SplitMix64;
use fathom_telemetry::Op;

use super::sql::{Answer, Dialect, Result, Rows, Session, Value, text};
use super::workload::{Transactions, Workload, chosen};
use crate::kv::keys::{Drawer, THETA, Zipf};
use crate::kv::{Keys, Mix, WORKLOADS};

/// Fields of a row, and characters of a field (`fieldcount`, `fieldlength`).
const FIELDS: usize = 10;
const FIELD: usize = 100;
/// Longest scan of workload E (`maxscanlength`); lengths are uniform from 1 on.
const SCAN_MAX: usize = 100;
/// Of ScrambledZipfianGenerator (`ITEM_COUNT`): its ranks are hashed to the keys that there are.
const RANKS: u64 = 10_000_000_000;
/// Rows of a transaction that fills.
const STEP: u64 = 10_000;
/// Bytes of a row as databases store it, with its index.
pub(super) const ROW_BYTES: u64 = 1300;

/// A workload by its name, `ycsb-a` to `ycsb-f`, on a table of so many rows.
pub(super) fn named(name: &str, rows: u64) -> Option<Box<dyn Workload>> {
    let letter = name.strip_prefix("ycsb-")?;
    if letter.len() != 1 {
        return None;
    }
    let core = WORKLOADS.iter().find(|w| w.name == letter)?;
    Some(Box::new(Ycsb::new(core.mix, letter == "d", rows)))
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

struct Ycsb {
    /// With its share in percent; kinds are numbered in this order.
    operations: Vec<(Operation, u32)>,
    latest: bool,
    rows: u64,
    zipf: Zipf,
    /// By dialect: a lab has no two databases of one.
    inserted: [Acknowledged; 3],
}

impl Ycsb {
    fn new(mix: Mix, latest: bool, rows: u64) -> Self {
        let rows = rows.max(2);
        let rest = 100 - mix.read - mix.update - mix.insert - mix.scan;
        let all = [
            (Operation::Read, mix.read),
            (Operation::Update, mix.update),
            (Operation::Insert, mix.insert),
            (Operation::Scan, mix.scan),
            (Operation::ReadModifyWrite, rest),
        ];
        let inserts = mix.insert > 0;
        let expected = if inserts { rows } else { 0 };
        Self {
            operations: all.into_iter().filter(|o| o.1 > 0).collect(),
            latest,
            rows,
            zipf: Zipf::new(RANKS, THETA),
            inserted: std::array::from_fn(|_| Acknowledged::new(rows, expected)),
        }
    }

    /// Which kind comes next.
    fn operation(&self, random: &mut SplitMix64) -> (usize, Operation) {
        let shares = self.operations.iter().map(|o| o.1.into());
        let kind = chosen(shares, random.below(100) as u64);
        (kind, self.operations[kind].0)
    }
}

/// Numbers of rows that clients insert. The next reader sees only those below which all were acknowledged.
struct Acknowledged {
    next: AtomicU64,
    /// Rows of which each was acknowledged.
    limit: AtomicU64,
    /// A number plus one, at its place, once it was acknowledged.
    window: Vec<AtomicU64>,
    /// Rows over which keys are drawn: those at the start, and those that are expected.
    space: u64,
}

impl Acknowledged {
    const WINDOW: u64 = 1 << 16;

    fn new(rows: u64, expected: u64) -> Self {
        let window = if expected > 0 { Self::WINDOW } else { 1 };
        Self {
            next: AtomicU64::new(rows),
            limit: AtomicU64::new(rows),
            window: (0..window).map(|_| AtomicU64::new(0)).collect(),
            space: rows + expected,
        }
    }
    /// The table is made anew.
    fn reset(&self, rows: u64) {
        self.window
            .iter()
            .for_each(|w| w.store(0, Ordering::SeqCst));
        self.next.store(rows, Ordering::SeqCst);
        self.limit.store(rows, Ordering::SeqCst);
    }
    fn place(&self, number: u64) -> &AtomicU64 {
        &self.window[(number % self.window.len() as u64) as usize]
    }
    /// Number of the next row. Whoever is a window ahead of an insert that takes very long waits for it.
    fn take(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        while number >= self.rows() + self.window.len() as u64 {
            std::thread::sleep(Duration::from_millis(1));
        }
        number
    }
    fn acknowledge(&self, number: u64) {
        self.place(number).store(number + 1, Ordering::SeqCst);
        loop {
            let limit = self.limit.load(Ordering::SeqCst);
            if self.place(limit).load(Ordering::SeqCst) != limit + 1 {
                return;
            }
            // Who fails finds that somebody else went on.
            let next = limit + 1;
            let _ = self
                .limit
                .compare_exchange(limit, next, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
    fn rows(&self) -> u64 {
        self.limit.load(Ordering::SeqCst)
    }
}

/// FNV-1a of the eight bytes, as `Utils.fnvhash64` has it.
fn hash(number: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for octet in number.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(1_099_511_628_211);
    }
    (hash as i64).unsigned_abs()
}

/// The key of a row, as `buildKeyName` has it (`insertorder=hashed`, `zeropadding=1`).
fn key(number: u64, into: &mut String) {
    into.clear();
    // A string takes everything.
    let _ = write!(into, "user{}", hash(number));
}

/// Characters of a field, from space to underscore as `RandomByteIterator` has them.
fn field(random: &mut SplitMix64, into: &mut String) {
    into.clear();
    let mut bits = 0u64;
    for i in 0..FIELD {
        if i % 10 == 0 {
            bits = random.next_u64();
        }
        into.push(char::from(b' ' + (bits & 63) as u8));
        bits >>= 6;
    }
}

impl Workload for Ycsb {
    fn kinds(&self) -> Vec<(String, Op)> {
        let kind = |o: Operation| match o {
            Operation::Read => ("read", Op::Read),
            Operation::Update => ("update", Op::Write),
            Operation::Insert => ("insert", Op::Write),
            Operation::Scan => ("scan", Op::Read),
            Operation::ReadModifyWrite => ("read-modify-write", Op::Write),
        };
        let all = self.operations.iter().map(|o| kind(o.0));
        all.map(|(name, op)| (name.to_owned(), op)).collect()
    }

    fn fill(
        &self,
        session: &mut dyn Session,
        dialect: Dialect,
        seed: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.inserted[dialect as usize].reset(self.rows);
        let fields: String = (0..FIELDS).map(|f| format!(", FIELD{f} TEXT")).collect();
        session.batch(&format!(
            "CREATE TABLE usertable (YCSB_KEY VARCHAR(255) PRIMARY KEY{fields}){}",
            dialect.engine()
        ))?;
        let mut random = SplitMix64::new(seed);
        let mut value = String::new();
        // In the order of their numbers, which is none of their keys: as YCSB loads them.
        let mut number = 0;
        while number < self.rows && !stop() {
            session.batch("BEGIN")?;
            let mut rows = Rows::of(session, "usertable");
            for row in number..self.rows.min(number + STEP) {
                key(row, &mut value);
                rows.row(|s| {
                    text(&value, s);
                    for _ in 0..FIELDS {
                        field(&mut random, &mut value);
                        s.push(',');
                        text(&value, s);
                    }
                })?;
            }
            rows.flush()?;
            session.batch("COMMIT")?;
            number += STEP;
        }
        session.batch(match dialect {
            Dialect::Mysql => "ANALYZE TABLE usertable",
            _ => "ANALYZE",
        })
    }

    fn client<'a>(
        &'a self,
        session: &'a mut dyn Session,
        dialect: Dialect,
        _number: u32,
        seed: u64,
    ) -> Result<Box<dyn Transactions + 'a>> {
        let updates = (0..FIELDS)
            .map(|f| session.prepare(&format!("UPDATE usertable SET FIELD{f}=? WHERE YCSB_KEY=?")))
            .collect::<Result<_>>()?;
        let inserted = &self.inserted[dialect as usize];
        let rows = inserted.rows();
        Ok(Box::new(Client {
            read: session.prepare("SELECT * FROM usertable WHERE YCSB_KEY=?")?,
            scan: session
                .prepare("SELECT * FROM usertable WHERE YCSB_KEY>=? ORDER BY YCSB_KEY LIMIT ?")?,
            insert: session.prepare(&format!(
                "INSERT INTO usertable VALUES (?{})",
                ", ?".repeat(FIELDS)
            ))?,
            updates,
            session,
            workload: self,
            inserted,
            random: SplitMix64::new(seed),
            latest: self.latest.then(|| (Drawer::new(Keys::Latest, rows), rows)),
            inserting: None,
            key: String::new(),
            fields: vec![String::with_capacity(FIELD); FIELDS],
            answer: Answer::default(),
        }))
    }
}

/// One client.
struct Client<'a> {
    session: &'a mut dyn Session,
    workload: &'a Ycsb,
    inserted: &'a Acknowledged,
    random: SplitMix64,
    read: usize,
    scan: usize,
    insert: usize,
    updates: Vec<usize>,
    /// What draws the latest, and of how many rows.
    latest: Option<(Drawer, u64)>,
    /// A row that could not be inserted yet.
    inserting: Option<u64>,
    key: String,
    fields: Vec<String>,
    answer: Answer,
}

impl Client<'_> {
    /// Number of a row that is there.
    fn draw(&mut self) -> u64 {
        let rows = self.inserted.rows();
        if let Some((drawer, of)) = &mut self.latest {
            if rows > *of + *of / 100 {
                (*drawer, *of) = (Drawer::new(Keys::Latest, rows), rows);
            }
            return drawer.draw(rows, &mut self.random);
        }
        loop {
            let rank = self.workload.zipf.draw(self.random.unit());
            let number = hash(rank) % self.inserted.space;
            if number < rows {
                return number;
            }
        }
    }

    fn execute(&mut self, statement: usize, values: &[Value<'_>]) -> Result<()> {
        self.session.execute(statement, values, &mut self.answer)
    }

    fn read(&mut self) -> Result<()> {
        let values = [Value::Text(&self.key)];
        self.session.execute(self.read, &values, &mut self.answer)
    }

    fn update(&mut self) -> Result<()> {
        let which = self.random.below(FIELDS);
        field(&mut self.random, &mut self.fields[0]);
        let values = [Value::Text(&self.fields[0]), Value::Text(&self.key)];
        self.session
            .execute(self.updates[which], &values, &mut self.answer)
    }

    fn insert(&mut self) -> Result<()> {
        let inserted = self.inserted;
        let number = *self.inserting.get_or_insert_with(|| inserted.take());
        key(number, &mut self.key);
        let mut values = [Value::Text(&self.key); FIELDS + 1];
        for (text, value) in self.fields.iter_mut().zip(&mut values[1..]) {
            field(&mut self.random, text);
            *value = Value::Text(text);
        }
        self.session
            .execute(self.insert, &values, &mut self.answer)?;
        self.acknowledge();
        Ok(())
    }

    fn acknowledge(&mut self) {
        if let Some(number) = self.inserting.take() {
            self.inserted.acknowledge(number);
        }
    }
}

impl Transactions for Client<'_> {
    fn transaction(&mut self) -> Result<usize> {
        let (kind, operation) = self.workload.operation(&mut self.random);
        if operation == Operation::Insert {
            self.insert()?;
            return Ok(kind);
        }
        let number = self.draw();
        key(number, &mut self.key);
        match operation {
            Operation::Read => self.read()?,
            Operation::Update => self.update()?,
            Operation::Scan => {
                let len = self.random.below(SCAN_MAX) as i64 + 1;
                let key = std::mem::take(&mut self.key);
                let done = self.execute(self.scan, &[Value::Text(&key), Value::Int(len)]);
                self.key = key;
                done?;
            }
            Operation::ReadModifyWrite | Operation::Insert => {
                self.read()?;
                self.update()?;
            }
        }
        Ok(kind)
    }
}

impl Drop for Client<'_> {
    /// What could not be inserted is not waited for: whoever asks for it finds nothing, as with YCSB.
    fn drop(&mut self) {
        self.acknowledge();
    }
}

#[cfg(test)]
mod tests {
    use super::super::on_databases::{fill, number, on_each, run};
    use super::*;
    use fathom_telemetry::Nanos;

    fn core(letter: &str, rows: u64) -> Ycsb {
        let core = WORKLOADS.iter().find(|w| w.name == letter).unwrap();
        Ycsb::new(core.mix, letter == "d", rows)
    }

    #[test]
    fn keys_are_those_that_ycsb_makes() {
        // `Utils.fnvhash64` of 0, 1 and 2, with which every load of YCSB begins.
        let mut text = String::new();
        for (row, expected) in [
            (0, "user6284781860667377211"),
            (1, "user8517097267634966620"),
            (2, "user1820151046732198393"),
        ] {
            key(row, &mut text);
            assert_eq!(text, expected);
        }
        let mut keys: Vec<String> = Vec::new();
        for row in 0..1000 {
            key(row, &mut text);
            keys.push(text.clone());
        }
        // What comes later does not lie behind all that was there.
        let last = keys[900..].iter().filter(|k| **k > keys[0]).count();
        assert!((5..95).contains(&last), "{last}");
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1000);
    }

    #[test]
    fn shares_of_operations_are_those_of_the_workload_files() {
        for (letter, expected) in [
            ("a", [("read", 50.0), ("update", 50.0)]),
            ("b", [("read", 95.0), ("update", 5.0)]),
            ("c", [("read", 100.0), ("", 0.0)]),
            ("d", [("read", 95.0), ("insert", 5.0)]),
            ("e", [("scan", 95.0), ("insert", 5.0)]),
            ("f", [("read", 50.0), ("read-modify-write", 50.0)]),
        ] {
            let workload = core(letter, 1000);
            let kinds = workload.kinds();
            let mut seen = vec![0.0; kinds.len()];
            let mut random = SplitMix64::new(5);
            for _ in 0..100_000 {
                seen[workload.operation(&mut random).0] += 1e-3;
            }
            for (name, share) in expected.into_iter().filter(|e| !e.0.is_empty()) {
                let kind = kinds.iter().position(|k| k.0 == name).unwrap();
                let off: f64 = seen[kind] - share;
                assert!(off.abs() < 0.6, "{letter}: {name} {}", seen[kind]);
            }
        }
        assert!(named("ycsb-a", 10).is_some() && named("ycsb-update", 10).is_none());
        assert!(named("ycsb-g", 10).is_none() && named("a", 10).is_none());
    }

    #[test]
    fn rows_are_asked_for_as_often_as_the_definition_says() {
        let workload = core("b", 1000);
        let mut random = SplitMix64::new(3);
        let mut hits = vec![0u64; 1000];
        for _ in 0..200_000 {
            hits[(hash(workload.zipf.draw(random.unit())) % 1000) as usize] += 1;
        }
        // The most frequent of 10^10 ranks has 1/26.469 of all; so much and its share of the rest has its row.
        let first = hits[(hash(0) % 1000) as usize] as f64 / 2000.0;
        assert!((3.6..4.1).contains(&first), "{first} %");
        let second = hits[(hash(1) % 1000) as usize] as f64 / 2000.0;
        assert!((1.7..2.2).contains(&second), "{second} %");
        assert!(hits.iter().all(|n| *n > 20), "the tail reaches every row");
    }

    #[test]
    fn a_row_is_read_once_all_before_it_are_acknowledged() {
        let all = Acknowledged::new(100, 100);
        let numbers: Vec<u64> = (0..4).map(|_| all.take()).collect();
        assert_eq!(numbers, [100, 101, 102, 103]);
        for (acknowledged, rows) in [(102, 100), (101, 100), (100, 103), (103, 104)] {
            all.acknowledge(acknowledged);
            assert_eq!(all.rows(), rows);
        }
        // By many at the same time, around the window more than once.
        let all = &Acknowledged::new(0, 1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|_| all.acknowledge(all.take())));
            }
        });
        assert_eq!(all.rows(), 200_000);
        all.reset(10);
        all.acknowledge(all.take());
        assert_eq!(all.rows(), 11);
    }

    #[test]
    fn every_core_workload_runs_on_every_database() {
        on_each("every_core_workload_runs_on_every_database", &|database| {
            let rows = 1000;
            let mut there = rows as i64;
            fill(database, &core("a", rows));
            assert_eq!(number(database, "SELECT COUNT(*) FROM usertable"), there);
            let whole = "SELECT COUNT(*) FROM usertable WHERE LENGTH(FIELD0) = 100 AND LENGTH(FIELD9) = 100";
            assert_eq!(number(database, whole), there);
            for letter in ["a", "b", "c", "f", "d", "e"] {
                // Each knows what the one before inserted.
                let workload = core(letter, there as u64);
                let (kinds, _) = run(database, &workload, 4, Nanos::from_millis(300));
                let mut inserted = 0;
                for (name, load) in &kinds {
                    assert!(load.operations() > 0, "{letter}: no {name}");
                    if name == "insert" {
                        inserted = load.operations() as i64;
                    }
                }
                let before = there;
                there = number(database, "SELECT COUNT(*) FROM usertable");
                // The last ones end after the time is over.
                let more = there - before - inserted;
                assert!((0..=8).contains(&more), "{letter}: {more} of {inserted}");
                let known = &workload.inserted[database.dialect() as usize];
                assert_eq!(known.rows() as i64, there);
            }
        });
    }
}
