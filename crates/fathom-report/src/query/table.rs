//! A Parquet file of a run as a virtual table of SQLite's: rows are decoded when they are asked for.
//!
//! Only the columns that a query names are decoded. `job = …` and `op = …` skip row groups, and rows
//! can be delivered ordered by job and operation, which spares SQLite sorting 100 million rows for the
//! most common GROUP BY: one pass over the file for each operation that occurs.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use fathom_telemetry::table::{Batches, Kind, Table, TableError, Value};
use rusqlite::Result;
use rusqlite::types::ValueRef;
use rusqlite::vtab::{
    Context, DistinctMode, Filters, IndexConstraintOp, IndexInfo, VTab, VTabConfig, VTabConnection,
    VTabCursor, sqlite3_vtab, sqlite3_vtab_cursor,
};

/// Operations in the order of their names.
const OPS: [&str; 4] = ["read", "sync", "trim", "write"];

/// A column that is the difference of two others, never below 0.
pub(super) struct Derived {
    /// Its name.
    pub(super) name: &'static str,
    later: usize,
    earlier: usize,
}

/// A file and what is known about it; shared by all tables and cursors on it.
pub(super) struct Source {
    table: Table,
    derived: Vec<Derived>,
    job: Option<usize>,
    op: Option<usize>,
    /// Range of job numbers by row group.
    jobs: Vec<Option<(i64, i64)>>,
    /// Which operations occur in a row group, a bit each; known after it was read once.
    ops: Mutex<Vec<Option<u8>>>,
}

impl Source {
    /// With a column `name` = `later` − `earlier` for each of `derived`.
    pub(super) fn new(table: Table, derived: &[(&'static str, &str, &str)]) -> Self {
        let derived = derived.iter().filter_map(|(name, later, earlier)| {
            Some(Derived {
                name,
                later: table.column(later)?,
                earlier: table.column(earlier)?,
            })
        });
        let derived = derived.collect();
        let job = table.column("job");
        let jobs = (0..table.groups())
            .map(|g| table.range(g, job?))
            .collect::<Vec<_>>();
        Self {
            job,
            op: table.column("op"),
            ops: Mutex::new(vec![None; table.groups()]),
            jobs,
            derived,
            table,
        }
    }

    /// Names and types of all columns, those that are derived last.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let of = |kind| match kind {
            Kind::Integer | Kind::Unsigned => "INTEGER",
            Kind::Real => "REAL",
            Kind::Text => "TEXT",
            Kind::Blob => "BLOB",
        };
        let stored = self.table.columns().iter();
        let stored = stored.map(move |c| (c.name.as_str(), of(c.kind)));
        stored.chain(self.derived.iter().map(|d| (d.name, "INTEGER")))
    }

    /// Every job number, where row groups say which they hold.
    fn job_numbers(&self) -> Option<Vec<i64>> {
        let mut all = std::collections::BTreeSet::new();
        for range in &self.jobs {
            let (low, high) = (*range)?;
            all.extend(low..=high.min(low + i64::from(u16::MAX)));
        }
        Some(all.into_iter().collect())
    }

    fn holds_job(&self, group: usize, job: i64) -> bool {
        self.jobs[group].is_none_or(|(low, high)| (low..=high).contains(&job))
    }

    fn may_hold_op(&self, group: usize, bit: u8) -> bool {
        let known = self.ops.lock().ok().and_then(|o| o[group]);
        known.is_none_or(|ops| ops & bit != 0)
    }

    fn learn_ops(&self, group: usize, ops: u8) {
        if let Ok(mut known) = self.ops.lock() {
            known[group] = Some(ops);
        }
    }
}

/// What [`VTab::best_index`] chose, as the bits of `idx_num`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Plan {
    job_given: bool,
    op_given: bool,
    by_job: bool,
    by_op: bool,
}

impl Plan {
    fn bits(self) -> c_int {
        let bit = |set, n: c_int| if set { n } else { 0 };
        bit(self.job_given, 1) | bit(self.op_given, 2) | bit(self.by_job, 4) | bit(self.by_op, 8)
    }
    fn of(bits: c_int) -> Self {
        Self {
            job_given: bits & 1 != 0,
            op_given: bits & 2 != 0,
            by_job: bits & 4 != 0,
            by_op: bits & 8 != 0,
        }
    }
}

/// The table.
#[repr(C)]
pub(super) struct RunTable {
    /// SQLite's part; must be first.
    base: sqlite3_vtab,
    source: Arc<Source>,
}

// SAFETY: the struct is repr(C) and begins with SQLite's own part, as VTab demands.
unsafe impl VTab<'_> for RunTable {
    type Aux = Arc<Source>;
    type Cursor = Cursor;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Arc<Source>>,
        _args: &[&[u8]],
    ) -> Result<(String, Self)> {
        let source = Arc::clone(aux.ok_or_else(|| error("a table without a file"))?);
        db.config(VTabConfig::Innocuous)?;
        let columns: Vec<String> = source
            .columns()
            .map(|(name, kind)| format!("\"{name}\" {kind}"))
            .collect();
        let table = Self {
            base: sqlite3_vtab::default(),
            source,
        };
        Ok((format!("CREATE TABLE x({})", columns.join(", ")), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<()> {
        let s = &self.source;
        let number = |c: Option<usize>| c.and_then(|c| c_int::try_from(c).ok());
        let (job, op) = (number(s.job), number(s.op));
        let mut plan = Plan::default();
        let mut arguments = 0;
        let mut used: [Option<usize>; 2] = [None; 2];
        for (i, c) in info.constraints().enumerate() {
            let equal = c.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            if !equal || !c.is_usable() {
                continue;
            }
            if Some(c.column()) == job {
                used[0].get_or_insert(i);
            } else if Some(c.column()) == op && info.collation(i) == Ok("BINARY") {
                used[1].get_or_insert(i);
            }
        }
        for at in used.iter().flatten() {
            arguments += 1;
            // SQLite checks the rows again: comparing is its business, here whole groups are skipped.
            info.constraint_usage(*at).set_argv_index(arguments);
        }
        (plan.job_given, plan.op_given) = (used[0].is_some(), used[1].is_some());

        let any_order = matches!(
            info.distinct(),
            DistinctMode::Grouped | DistinctMode::Distinct
        );
        let wanted: Vec<(c_int, bool)> = info
            .order_bys()
            .map(|o| (o.column(), o.is_order_by_desc()))
            .collect();
        let ascending = wanted.iter().all(|w| !w.1);
        let of = |c: Option<c_int>| c.is_some_and(|c| wanted.iter().any(|w| w.0 == c));
        let only_these = wanted.iter().all(|w| Some(w.0) == job || Some(w.0) == op);
        let job_first = wanted.first().is_some_and(|w| Some(w.0) == job) || !of(job);
        let jobs_known = !of(job) || plan.job_given || s.job_numbers().is_some();
        if !wanted.is_empty() && only_these && jobs_known && (any_order || (ascending && job_first))
        {
            plan.by_job = of(job);
            plan.by_op = of(op);
            info.set_order_by_consumed(true);
        }

        let rows = s.table.rows().max(1) as f64;
        let jobs = s.job_numbers().map_or(1, |j| j.len().max(1)) as f64;
        let mut share = 1.0;
        if plan.job_given {
            share /= jobs;
        }
        // Operations are not stored apart: those that are skipped are still read.
        info.set_estimated_cost(rows * share * 2.0);
        info.set_estimated_rows((rows * share * if plan.op_given { 0.5 } else { 1.0 }) as i64);
        info.set_idx_num(plan.bits());
        info.set_idx_str(&format!("{:x}", info.col_used()));
        Ok(())
    }

    fn open(&mut self) -> Result<Cursor> {
        Ok(Cursor {
            base: sqlite3_vtab_cursor::default(),
            source: Arc::clone(&self.source),
            wanted: Vec::new(),
            passes: Vec::new(),
            pass: 0,
            group: 0,
            rows: None,
            filled: 0,
            at: 0,
            ops_seen: 0,
            number: 0,
            done: true,
        })
    }
}

/// One way through the file.
#[derive(Debug, Clone, Copy)]
struct Pass {
    job: Option<i64>,
    op: Option<&'static str>,
}

/// A place in the table.
#[repr(C)]
pub(super) struct Cursor {
    /// SQLite's part; must be first.
    base: sqlite3_vtab_cursor,
    source: Arc<Source>,
    wanted: Vec<bool>,
    passes: Vec<Pass>,
    pass: usize,
    /// The next row group of this pass.
    group: usize,
    rows: Option<Batches>,
    filled: usize,
    at: usize,
    /// Operations in the present row group so far.
    ops_seen: u8,
    number: i64,
    done: bool,
}

impl Cursor {
    /// Goes to the next row that the pass wants, beginning with the present one.
    fn settle(&mut self) -> Result<(), TableError> {
        loop {
            let Some(pass) = self.passes.get(self.pass).copied() else {
                self.done = true;
                return Ok(());
            };
            while self.at < self.filled {
                if self.suits(pass) {
                    return Ok(());
                }
                self.at += 1;
            }
            if !self.refill(pass)? {
                self.pass += 1;
                self.group = 0;
            }
        }
    }

    fn suits(&mut self, pass: Pass) -> bool {
        let Some(rows) = &self.rows else { return false };
        let (job, op) = (self.source.job, self.source.op);
        let job_suits = match (pass.job, job) {
            (Some(wanted), Some(c)) => rows.integer(c, self.at) == wanted,
            _ => true,
        };
        let op_suits = match (pass.op, op) {
            (Some(wanted), Some(c)) => {
                let here = rows.value(c, self.at);
                self.ops_seen |= bit_of(here);
                here == Value::Text(wanted)
            }
            _ => true,
        };
        job_suits && op_suits
    }

    /// The next batch of the pass; false at its end.
    fn refill(&mut self, pass: Pass) -> Result<bool, TableError> {
        loop {
            if let Some(rows) = &mut self.rows {
                self.at = 0;
                self.filled = rows.advance()?;
                if self.filled > 0 {
                    return Ok(true);
                }
                self.rows = None;
                if pass.op.is_some() && self.source.op.is_some() {
                    self.source.learn_ops(self.group - 1, self.ops_seen);
                }
            }
            let source = Arc::clone(&self.source);
            let next = (self.group..source.table.groups()).find(|g| {
                pass.job.is_none_or(|j| source.holds_job(*g, j))
                    && pass.op.is_none_or(|op| source.may_hold_op(*g, bit(op)))
            });
            let Some(group) = next else {
                self.filled = 0;
                self.at = 0;
                return Ok(false);
            };
            self.group = group + 1;
            self.ops_seen = 0;
            self.rows = Some(source.table.read(group, &self.wanted)?);
        }
    }
}

/// The bit of an operation.
fn bit(op: &str) -> u8 {
    OPS.iter().position(|o| *o == op).map_or(0, |n| 1 << n)
}

fn bit_of(value: Value<'_>) -> u8 {
    match value {
        Value::Text(op) => bit(op),
        _ => 0,
    }
}

// SAFETY: the struct is repr(C) and begins with SQLite's own part, as VTabCursor demands.
unsafe impl VTabCursor for Cursor {
    fn filter(&mut self, idx_num: c_int, idx_str: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let plan = Plan::of(idx_num);
        let used = idx_str.and_then(|s| u64::from_str_radix(s, 16).ok());
        let used = used.unwrap_or(u64::MAX);
        let mut values = args.iter();
        let job = plan.job_given.then(|| values.next()).flatten();
        let op = plan.op_given.then(|| values.next()).flatten();
        let source = &self.source;
        // A value that no row can equal leaves no pass.
        let jobs: Vec<Option<i64>> = match (job, plan.by_job) {
            (Some(ValueRef::Integer(j)), _) => vec![Some(j)],
            (Some(ValueRef::Real(j)), _) if j.fract() == 0.0 => vec![Some(j as i64)],
            // Words may be numbers to SQLite's rules of comparison: it decides.
            (Some(ValueRef::Text(_)), _) => vec![None],
            (Some(_), _) => Vec::new(),
            (None, false) => vec![None],
            (None, true) => source
                .job_numbers()
                .map_or(vec![None], |j| j.into_iter().map(Some).collect()),
        };
        let ops: Vec<Option<&'static str>> = match (op, plan.by_op) {
            (Some(ValueRef::Text(t)), _) => OPS
                .iter()
                .filter(|o| o.as_bytes() == t)
                .map(|o| Some(*o))
                .collect(),
            (Some(_), _) => Vec::new(),
            (None, false) => vec![None],
            (None, true) => OPS.iter().map(|o| Some(*o)).collect(),
        };
        self.passes = jobs
            .iter()
            .flat_map(|job| ops.iter().map(|op| Pass { job: *job, op: *op }))
            .collect();
        let stored = source.table.columns().len();
        let is_used = |c: usize| used >> c.min(63) & 1 == 1;
        self.wanted = (0..stored).map(is_used).collect();
        for (i, d) in source.derived.iter().enumerate() {
            if is_used(stored + i) {
                self.wanted[d.later] = true;
                self.wanted[d.earlier] = true;
            }
        }
        let checked = [
            (source.job, jobs.iter().any(Option::is_some)),
            (source.op, ops.iter().any(Option::is_some)),
        ];
        for (column, needed) in checked {
            if let (Some(c), true) = (column, needed) {
                self.wanted[c] = true;
            }
        }
        (self.pass, self.group, self.filled, self.at) = (0, 0, 0, 0);
        (self.rows, self.number, self.done) = (None, 0, false);
        self.settle().map_err(error)
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        self.number += 1;
        self.settle().map_err(error)
    }

    fn eof(&self) -> bool {
        self.done
    }

    fn column(&self, ctx: &mut Context, i: c_int) -> Result<()> {
        let Some(rows) = &self.rows else {
            return ctx.set_result(&rusqlite::types::Null);
        };
        let i = usize::try_from(i).unwrap_or(usize::MAX);
        let stored = self.source.table.columns().len();
        if i < stored {
            return match rows.value(i, self.at) {
                Value::Null => ctx.set_result(&rusqlite::types::Null),
                Value::Integer(v) => ctx.set_result(&v),
                Value::Real(v) => ctx.set_result(&v),
                Value::Text(v) => ctx.set_result(&v),
                Value::Blob(v) => ctx.set_result(&v),
            };
        }
        match self.source.derived.get(i - stored) {
            Some(d) => {
                let (later, earlier) = (
                    rows.integer(d.later, self.at),
                    rows.integer(d.earlier, self.at),
                );
                ctx.set_result(&later.saturating_sub(earlier).max(0))
            }
            None => ctx.set_result(&rusqlite::types::Null),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.number)
    }
}

fn error(e: impl std::fmt::Display) -> rusqlite::Error {
    rusqlite::Error::ModuleError(e.to_string())
}
