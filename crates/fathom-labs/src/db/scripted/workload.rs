//! Scripts on a database: variables, statements as they are asked for, and the same choices again where a transaction is tried again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Op, say};
use serde::{Deserialize, Serialize};

use super::super::script::eval::Scope;
use super::super::script::value::{Val, Var};
use super::super::script::{Do, Expr, Names, Pause, Piece, Script, Sql, Store};
use super::super::sql::{Answer, Dialect, Result, Session, SqlError, Value};
use super::super::workload::{Transactions, Workload, chosen};
use super::ScriptText;
use super::tables;

/// How statements go to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// As text, with the values of variables in it.
    Simple,
    /// Prepared once by each client, with variables as values.
    Prepared,
}

struct Named {
    name: String,
    script: Script,
    weight: u64,
}

/// Scripts by weight: one load, a kind each.
pub(super) struct Scripts {
    all: Vec<Named>,
    /// Done once, when the tables are there.
    first: Vec<Named>,
    names: Names,
    defined: Vec<(usize, String)>,
    mode: Mode,
    scale: i64,
    seed: i64,
    /// Whether pgbench's tables are wanted.
    tables: bool,
    ended: AtomicBool,
}

/// Names of the variables that are there from the start.
const AUTOMATIC: [&str; 4] = ["scale", "client_id", "random_seed", "default_seed"];

impl Scripts {
    /// Reads all of them.
    ///
    /// # Errors
    /// The first that is wrong, with its name, line and column.
    pub(super) fn new(
        all: &[&ScriptText],
        first: &[ScriptText],
        defines: &[(String, String)],
        mode: Mode,
        (scale, seed): (u32, u64),
    ) -> std::result::Result<Self, String> {
        let mut names = Names::default();
        for name in AUTOMATIC {
            names.slot(name);
        }
        let mut parse = |t: &ScriptText| {
            let script =
                Script::parse(&t.text, &mut names).map_err(|e| format!("{}: {e}", t.name))?;
            let named = Named {
                name: t.name.clone(),
                script,
                weight: t.weight.into(),
            };
            Ok(named)
        };
        let parsed = all.iter().map(|t| parse(t));
        let parsed = parsed.collect::<std::result::Result<Vec<_>, String>>()?;
        let first = first.iter().map(&mut parse);
        let first = first.collect::<std::result::Result<Vec<_>, String>>()?;
        if let Some(empty) = parsed.iter().find(|n| n.script.0.is_empty()) {
            return Err(format!(
                "{}: it has no command; a script has at least one statement",
                empty.name
            ));
        }
        for named in parsed.iter().filter(|_| mode == Mode::Prepared) {
            let together = |s: &&super::super::script::Step| matches!(&s.does, Do::Sql(sql) if sql.parts.len() > 1);
            if let Some(step) = named.script.0.iter().find(together) {
                return Err(format!(
                    "{}: line {}: what \\; joins cannot be prepared: use --mode simple",
                    named.name, step.line
                ));
            }
        }
        let defined = defines
            .iter()
            .map(|(name, value)| (names.slot(name), value.clone()));
        let defined = defined.collect();
        Ok(Self {
            tables: all.iter().any(|t| tables::named(&t.text)),
            all: parsed,
            first,
            names,
            defined,
            mode,
            scale: scale.into(),
            seed: seed as i64 & i64::MAX,
            ended: AtomicBool::new(false),
        })
    }

    fn variables(&self, client: i64) -> Vec<Option<Var>> {
        let mut all = vec![None; self.names.all().len()];
        // As AUTOMATIC has them.
        for (slot, value) in [self.scale, client, self.seed, self.seed]
            .into_iter()
            .enumerate()
        {
            all[slot] = Some(Var::Val(Val::Int(value)));
        }
        for (slot, text) in &self.defined {
            all[*slot] = Some(Var::Text(text.clone()));
        }
        all
    }

    fn runner<'a>(
        &'a self,
        scripts: &'a [Named],
        (session, dialect): (&'a mut dyn Session, Dialect),
        mode: Mode,
        (client, seed): (i64, u64),
    ) -> Runner<'a> {
        let variables = self.variables(client);
        Runner {
            of: self,
            scripts,
            session,
            dialect,
            mode,
            total: scripts.iter().map(|n| n.weight).sum(),
            saved: variables.clone(),
            variables,
            choices: SplitMix64::new(seed ^ 0xc401),
            random: SplitMix64::new(seed),
            drawn: SplitMix64::new(seed),
            again: None,
            prepared: scripts
                .iter()
                .map(|n| vec![None; n.script.0.len()])
                .collect(),
            sql: String::new(),
            answer: Answer::default(),
        }
    }
}

impl Workload for Scripts {
    fn kinds(&self) -> Vec<(String, Op)> {
        let kind = |n: &Named| {
            let op = if n.script.only_reads() {
                Op::Read
            } else {
                Op::Write
            };
            (n.name.clone(), op)
        };
        self.all.iter().map(kind).collect()
    }

    fn keeps_kind(&self) -> bool {
        true
    }

    fn fill(
        &self,
        session: &mut dyn Session,
        dialect: Dialect,
        seed: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.ended.store(false, Ordering::Relaxed);
        if self.tables {
            tables::fill(session, dialect, self.scale, stop)?;
        }
        for i in 0..self.first.len() {
            if stop() {
                return Ok(());
            }
            let one = &self.first[i..=i];
            self.runner(one, (&mut *session, dialect), Mode::Simple, (0, seed))
                .script(0)?;
        }
        match dialect {
            Dialect::Postgres => session.batch("VACUUM ANALYZE"),
            Dialect::Sqlite => session.batch("ANALYZE"),
            Dialect::Mysql => Ok(()),
        }
    }

    fn client<'a>(
        &'a self,
        session: &'a mut dyn Session,
        dialect: Dialect,
        number: u32,
        seed: u64,
    ) -> Result<Box<dyn Transactions + 'a>> {
        self.ended.store(false, Ordering::Relaxed);
        let who = (number.into(), seed);
        Ok(Box::new(self.runner(
            &self.all,
            (session, dialect),
            self.mode,
            who,
        )))
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// A client's scripts.
struct Runner<'a> {
    of: &'a Scripts,
    scripts: &'a [Named],
    session: &'a mut dyn Session,
    dialect: Dialect,
    mode: Mode,
    /// Of all weights.
    total: u64,
    variables: Vec<Option<Var>>,
    /// As they were when the transaction began.
    saved: Vec<Option<Var>>,
    choices: SplitMix64,
    random: SplitMix64,
    /// As it was when the transaction that is tried again had ended.
    drawn: SplitMix64,
    /// The script that is tried again.
    again: Option<usize>,
    /// Numbers of prepared statements, by script and step: made when they are first needed, as pgbench does, because a script may
    /// make what the next statement names.
    prepared: Vec<Vec<Option<usize>>>,
    sql: String,
    answer: Answer,
}

impl Transactions for Runner<'_> {
    fn transaction(&mut self) -> Result<usize> {
        let chosen = self.again.take().unwrap_or_else(|| self.choose());
        self.saved.clone_from(&self.variables);
        let random = self.random.clone();
        let done = self.script(chosen);
        if let Err(e) = &done
            && e.again
        {
            match self.session.batch("ROLLBACK") {
                Err(e) if e.is_lost() => return Err(e),
                // The database has done it already.
                _ => {}
            }
            self.variables.clone_from(&self.saved);
            // Where it is given up, what was drawn for it is gone.
            self.drawn = std::mem::replace(&mut self.random, random);
            self.again = Some(chosen);
        }
        done.map(|()| chosen)
    }

    fn undone(&self) -> Option<usize> {
        self.again
    }

    fn give_up(&mut self) {
        if self.again.take().is_some() {
            self.random = self.drawn.clone();
        }
    }
}

impl Runner<'_> {
    fn choose(&mut self) -> usize {
        let at = self.choices.below(self.total as usize) as u64;
        chosen(self.scripts.iter().map(|n| n.weight), at)
    }

    /// A whole script.
    fn script(&mut self, number: usize) -> Result<()> {
        let scripts = self.scripts;
        let named = &scripts[number];
        let mut at = 0;
        while let Some(step) = named.script.0.get(at) {
            at += 1;
            let done = match &step.does {
                Do::Sql(sql) => self.send(sql, (number, at - 1)),
                Do::Set(slot, value) => self.value(value).map(|v| {
                    self.variables[*slot] = Some(Var::Val(v));
                }),
                Do::Unless(condition, to) => self.value(condition).map(|v| {
                    if !v.truth() {
                        at = *to;
                    }
                }),
                Do::Jump(to) => {
                    at = *to;
                    Ok(())
                }
                Do::Sleep(pause, each) => self.sleep(pause, *each),
            };
            done.map_err(|e| placed(e, &named.name, step.line))?;
        }
        Ok(())
    }

    fn value(&mut self, of: &Expr) -> Result<Val> {
        let mut scope = Scope {
            variables: &self.variables,
            names: self.of.names.all(),
            random: &mut self.random,
            debug: &|said| say!("debug: {said}"),
        };
        scope.value(of).map_err(SqlError::here)
    }

    fn undefined(&self, slot: usize) -> SqlError {
        SqlError::here(format!(
            "undefined variable \"{}\"",
            self.of.names.all()[slot]
        ))
    }

    fn sleep(&self, pause: &Pause, each: i64) -> Result<()> {
        let count = match pause {
            Pause::Fixed(n) => *n,
            Pause::Variable(slot) => {
                let text = match self.variables[*slot].as_ref() {
                    None => return Err(self.undefined(*slot)),
                    Some(Var::Val(v)) => v.to_string(),
                    Some(Var::Text(t)) => t.clone(),
                };
                // As C's atoi, which pgbench asks.
                let digits = text.bytes().take_while(u8::is_ascii_digit).count();
                text[..digits].parse().map_err(|_| {
                    let name = &self.of.names.all()[*slot];
                    SqlError::here(format!(
                        "\\sleep: a whole number is expected, and :{name} is '{text}'"
                    ))
                })?
            }
        };
        let until = fathom_io::clock::monotonic().0 + count.saturating_mul(each).max(0) as u64;
        loop {
            let left = until.saturating_sub(fathom_io::clock::monotonic().0);
            if left == 0 {
                return Ok(());
            }
            if self.of.ended.load(Ordering::Relaxed) {
                return Err(SqlError {
                    again: true,
                    ..SqlError::here("the load ended while it slept".into())
                });
            }
            std::thread::sleep(Duration::from_nanos(left.min(20_000_000)));
        }
    }

    fn send(&mut self, sql: &Sql, place: (usize, usize)) -> Result<()> {
        if sql.store.is_some() != self.answer.wants_names() {
            self.answer = match sql.store {
                Some(_) => Answer::with_names(),
                None => Answer::default(),
            };
        }
        match self.mode {
            Mode::Prepared => self.send_prepared(&sql.parts[0], place)?,
            Mode::Simple if self.dialect == Dialect::Postgres => {
                self.sql.clear();
                for (i, part) in sql.parts.iter().enumerate() {
                    if i > 0 {
                        self.sql.push(';');
                    }
                    self.write(part);
                }
                self.session.query(&self.sql, &mut self.answer)?;
            }
            // The others take one at a time.
            Mode::Simple => {
                for (i, part) in sql.parts.iter().enumerate() {
                    self.sql.clear();
                    self.write(part);
                    self.session.query(&self.sql, &mut self.answer)?;
                    let last = i + 1 == sql.parts.len();
                    match &sql.store {
                        Some(store) if last || store.all => self.store(store)?,
                        _ => {}
                    }
                }
                return Ok(());
            }
        }
        match &sql.store {
            Some(store) => self.store(store),
            None => Ok(()),
        }
    }

    /// A statement with the values of its variables; what is no variable's name stays.
    fn write(&mut self, pieces: &[Piece]) {
        use std::fmt::Write;
        for piece in pieces {
            let _ = match piece {
                Piece::Text(t) => self.sql.write_str(t),
                Piece::Variable(slot) => match &self.variables[*slot] {
                    None => write!(self.sql, ":{}", self.of.names.all()[*slot]),
                    Some(Var::Val(v)) => write!(self.sql, "{v}"),
                    Some(Var::Text(t)) => self.sql.write_str(t),
                },
            };
        }
    }

    fn send_prepared(&mut self, pieces: &[Piece], (script, step): (usize, usize)) -> Result<()> {
        let statement = match self.prepared[script][step] {
            Some(statement) => statement,
            None => {
                self.sql.clear();
                let mut number = 0;
                for piece in pieces {
                    match piece {
                        Piece::Text(t) => self.sql.push_str(t),
                        Piece::Variable(_) => {
                            number += 1;
                            self.sql.push_str(&self.dialect.value(number));
                        }
                    }
                }
                let made = self.session.prepare_native(&self.sql)?;
                self.prepared[script][step] = Some(made);
                made
            }
        };
        let mut values = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let Piece::Variable(slot) = piece else {
                continue;
            };
            let Some(variable) = &self.variables[*slot] else {
                return Err(self.undefined(*slot));
            };
            values.push(match variable {
                Var::Text(t) => Value::Text(t),
                Var::Val(Val::Int(i)) => Value::Int(*i),
                Var::Val(Val::Double(d)) => Value::Num(*d),
                Var::Val(Val::Bool(b)) if self.dialect != Dialect::Postgres => {
                    Value::Int((*b).into())
                }
                Var::Val(Val::Bool(true)) => Value::Text("true"),
                Var::Val(Val::Bool(false)) => Value::Text("false"),
                // As pgbench sends it.
                Var::Val(Val::Null) => Value::Text("NULL"),
            });
        }
        self.session.execute(statement, &values, &mut self.answer)
    }

    /// Columns become variables; those that no script names are nobody's.
    fn store(&mut self, store: &Store) -> Result<()> {
        let Runner {
            answer,
            variables,
            of,
            ..
        } = self;
        let names = of.names.all();
        let mut put = |from: &Answer, row: usize| {
            for (column, name) in from.names().iter().enumerate() {
                let full = names
                    .iter()
                    .position(|n| n.strip_prefix(store.prefix.as_str()) == Some(name.as_str()));
                if let Some(slot) = full {
                    variables[slot] = Some(Var::Text(from.text(row, column).to_owned()));
                }
            }
        };
        if store.all {
            for one in answer.all().filter(|a| a.rows() > 0) {
                put(one, one.rows() - 1);
            }
            return Ok(());
        }
        // Rows may have no columns.
        let rows = match answer.names().len() {
            0 => answer.affected as usize,
            _ => answer.rows(),
        };
        match rows {
            1 => put(answer, 0),
            n => return Err(SqlError::here(format!("\\gset: expected one row, got {n}"))),
        }
        Ok(())
    }
}

/// With the script's name and line, and the database's words.
fn placed(mut e: SqlError, name: &str, line: usize) -> SqlError {
    if !e.is_lost() {
        e.message = format!("{name}, line {line}: {}", e.message);
    }
    e
}
