//! sysbench's OLTP transactions by fathom's own driver: the same table, statements and shares.

use std::sync::atomic::{AtomicU64, Ordering};

use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Nanos, Op};
use serde::{Deserialize, Serialize};

use super::super::sql::{Answer, Result, Session, SqlError, Value};
use crate::clients::{self, Loop, Total};
use crate::loads;

/// What transactions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mix {
    /// oltp_read_only: 10 point selects and 4 ranges.
    Read,
    /// oltp_read_write: those, 2 updates, a delete and an insert; 14 reads to 4 writes, 7:2.
    Mixed,
    /// oltp_write_only: the writes alone.
    Write,
}

impl Mix {
    /// In the order of the tables of Zhang et al. 2018.
    pub const ALL: [Self; 3] = [Self::Read, Self::Mixed, Self::Write];
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Mixed => "mixed",
            Self::Write => "write",
        }
    }
    /// sysbench's script.
    pub(super) fn script(self) -> &'static str {
        match self {
            Self::Read => "oltp_read_only",
            Self::Mixed => "oltp_read_write",
            Self::Write => "oltp_write_only",
        }
    }
    fn op(self) -> Op {
        if self.writes() { Op::Write } else { Op::Read }
    }
    fn reads(self) -> bool {
        self != Self::Write
    }
    fn writes(self) -> bool {
        self != Self::Read
    }
    /// Statements of a transaction, its begin and end included.
    pub(super) fn statements(self) -> u64 {
        2 + if self.reads() { 14 } else { 0 } + if self.writes() { 4 } else { 0 }
    }
}

/// How rows are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rows {
    /// All alike.
    Uniform,
    /// sysbench's: the mean of twelve uniform numbers.
    Gaussian,
}

impl Rows {
    /// sysbench's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Gaussian => "gaussian",
        }
    }
    fn draw(self, rows: u64, random: &mut SplitMix64) -> i64 {
        let n = rows as usize;
        let at = match self {
            Self::Uniform => random.below(n),
            Self::Gaussian => {
                let sum: f64 = (0..12).map(|_| random.unit()).sum();
                ((sum / 12.0 * n as f64) as usize).min(n - 1)
            }
        };
        at as i64 + 1
    }
}

/// What one cell does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) mix: Mix,
    pub(super) rows: Rows,
    /// Rows of the table.
    pub(super) count: u64,
    pub(super) threads: u32,
    pub(super) ramp: Nanos,
    pub(super) time: Nanos,
    /// Transactions per second that come, whatever was answered.
    pub(super) rate: Option<f64>,
    pub(super) seed: u64,
}

const RANGE: i64 = 100;
/// A row that is there already, as MySQL and PostgreSQL say it.
const TWICE: [&str; 2] = ["1062", "23505"];

/// Numbers of the prepared statements.
struct Statements {
    begin: usize,
    commit: usize,
    point: usize,
    ranges: [usize; 4],
    index_update: usize,
    update: usize,
    delete: usize,
    insert: usize,
}

impl Statements {
    fn prepare(s: &mut dyn Session) -> Result<Self> {
        let range = "WHERE id BETWEEN ? AND ?";
        Ok(Self {
            begin: s.prepare("BEGIN")?,
            commit: s.prepare("COMMIT")?,
            point: s.prepare("SELECT c FROM sbtest1 WHERE id=?")?,
            ranges: [
                s.prepare(&format!("SELECT c FROM sbtest1 {range}"))?,
                s.prepare(&format!("SELECT SUM(k) FROM sbtest1 {range}"))?,
                s.prepare(&format!("SELECT c FROM sbtest1 {range} ORDER BY c"))?,
                s.prepare(&format!(
                    "SELECT DISTINCT c FROM sbtest1 {range} ORDER BY c"
                ))?,
            ],
            index_update: s.prepare("UPDATE sbtest1 SET k=k+1 WHERE id=?")?,
            update: s.prepare("UPDATE sbtest1 SET c=? WHERE id=?")?,
            delete: s.prepare("DELETE FROM sbtest1 WHERE id=?")?,
            insert: s.prepare("INSERT INTO sbtest1 (id, k, c, pad) VALUES (?, ?, ?, ?)")?,
        })
    }
}

/// Groups of eleven digits between hyphens, as sysbench fills `c` (10 groups) and `pad` (5).
pub(super) fn digits(groups: usize, random: &mut SplitMix64, out: &mut String) {
    out.clear();
    for g in 0..groups {
        if g > 0 {
            out.push('-');
        }
        let mut n = random.next_u64();
        for _ in 0..11 {
            out.push(char::from(b'0' + (n % 10) as u8));
            n /= 10;
        }
    }
}

struct Client<'a> {
    session: &'a mut dyn Session,
    statements: Statements,
    answer: Answer,
    random: SplitMix64,
    c: String,
    pad: String,
}

impl Client<'_> {
    fn transaction(&mut self, load: &Load) -> Result<()> {
        let mut run = |statement, values: &[Value<'_>]| {
            self.session.execute(statement, values, &mut self.answer)
        };
        let s = &self.statements;
        let random = &mut self.random;
        run(s.begin, &[])?;
        if load.mix.reads() {
            for _ in 0..10 {
                run(s.point, &[Value::Int(load.rows.draw(load.count, random))])?;
            }
            for range in s.ranges {
                let from = load.rows.draw(load.count, random);
                run(range, &[Value::Int(from), Value::Int(from + RANGE - 1)])?;
            }
        }
        if load.mix.writes() {
            run(
                s.index_update,
                &[Value::Int(load.rows.draw(load.count, random))],
            )?;
            digits(10, random, &mut self.c);
            let id = load.rows.draw(load.count, random);
            run(s.update, &[Value::Text(&self.c), Value::Int(id)])?;
            let id = load.rows.draw(load.count, random);
            let k = load.rows.draw(load.count, random);
            run(s.delete, &[Value::Int(id)])?;
            digits(10, random, &mut self.c);
            digits(5, random, &mut self.pad);
            run(
                s.insert,
                &[
                    Value::Int(id),
                    Value::Int(k),
                    Value::Text(&self.c),
                    Value::Text(&self.pad),
                ],
            )?;
        }
        run(s.commit, &[])
    }
}

/// Runs the load; returns it with the number of transactions that were tried again. `cold` says what keeps the ramp from its end,
/// `begin` and `end` are called when counting begins and ends, for what others count.
///
/// # Errors
/// The first failure that is no deadlock.
pub(super) fn run(
    connect: &dyn Fn() -> Result<Box<dyn Session>>,
    load: &Load,
    (stop, cold): (&dyn Fn() -> bool, &dyn Fn() -> Option<&'static str>),
    begin: &mut dyn FnMut(Total<'_>),
    end: &mut dyn FnMut(Total<'_>),
    tick: &mut dyn FnMut(f64),
) -> Result<(loads::Load, u64)> {
    let again = AtomicU64::new(0);
    // All are connected and prepared before the clock starts.
    let mut sessions = (0..load.threads)
        .map(|_| connect())
        .collect::<Result<Vec<_>>>()?;
    let clients = sessions.iter_mut().enumerate().map(|(thread, session)| {
        let again = &again;
        let client: clients::Client<'_, SqlError> = Box::new(move |seat| {
            let seed = load.seed ^ SplitMix64::new(thread as u64 + 1).next_u64();
            let statements = Statements::prepare(&mut **session)?;
            let mut client = Client {
                session: &mut **session,
                statements,
                answer: Answer::default(),
                random: SplitMix64::new(seed),
                c: String::new(),
                pad: String::new(),
            };
            let op = load.mix.op();
            while let Some(came) = seat.next() {
                loop {
                    match client.transaction(load) {
                        Ok(()) => break seat.done(0, op, 0, came),
                        Err(e) if e.again || TWICE.contains(&e.code.as_str()) => {
                            // Two clients may put the same row back; sysbench tries again, too.
                            client.session.batch("ROLLBACK")?;
                            again.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(e) => return Err(e),
                    }
                    if !seat.going() {
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
        client
    });
    let how = Loop {
        open: load.rate.map(|rate| (rate, load.seed)),
        ramp: load.ramp,
        time: load.time,
        cold,
        ramp_max: clients::ramp_max(load.time),
        kinds: &[&[load.mix.op()]],
        stop,
    };
    let mut before = 0;
    let mut counting = |total: Total<'_>| {
        before = again.load(Ordering::Relaxed);
        begin(total);
    };
    let mut loads = clients::run(&how, clients.collect(), &mut counting, end, &|| (), tick)?;
    Ok((loads.remove(0), again.load(Ordering::Relaxed) - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_look_like_sysbenchs() {
        let (mut random, mut text) = (SplitMix64::new(1), String::new());
        digits(10, &mut random, &mut text);
        assert_eq!(text.len(), 119);
        assert_eq!(text.matches('-').count(), 9);
        digits(5, &mut random, &mut text);
        assert_eq!(text.len(), 59);
    }

    #[test]
    fn rows_are_in_the_table_and_gaussian_ones_in_its_middle() {
        let mut random = SplitMix64::new(1);
        let mut middle = 0;
        for _ in 0..10_000 {
            let u = Rows::Uniform.draw(1000, &mut random);
            let g = Rows::Gaussian.draw(1000, &mut random);
            assert!((1..=1000).contains(&u) && (1..=1000).contains(&g));
            middle += i32::from((417..=583).contains(&g));
        }
        // The mean of twelve has a standard deviation of a twelfth of the range.
        assert!((6500..7100).contains(&middle), "{middle}");
    }

    #[test]
    fn mixed_is_seven_to_two() {
        assert_eq!(Mix::Mixed.statements() - 2, 18);
        assert_eq!(Mix::Write.statements() - 2, 4);
    }
}
