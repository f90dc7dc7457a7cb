//! pgbench's script language (PostgreSQL 15, manual page of pgbench): SQL statements with `:variables`, and commands after a
//! backslash. Pure: what a script does on a database is [`super::scripted`]'s.

pub(crate) mod eval;
mod expr;
mod random;
mod scan;
pub(crate) mod value;

pub(crate) use expr::Expr;

/// What is wrong with a script, and where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub(crate) struct ScriptError {
    /// From 1.
    pub(crate) line: usize,
    /// Characters, from 1.
    pub(crate) column: usize,
    /// One sentence.
    pub(crate) message: String,
}

/// Names of variables, each at its place: all scripts of a client have the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// The place of a name.
    pub(crate) fn slot(&mut self, name: &str) -> usize {
        let there = self.0.iter().position(|n| n == name);
        there.unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[String] {
        &self.0
    }

    /// Whether a variable may have it.
    pub(crate) fn allows(name: &str) -> bool {
        name_length(name) == name.len() && !name.is_empty()
    }
}

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()
}

/// Length of the name of a variable that a text begins with; 0 where it begins with none.
fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c| !in_name(c)).unwrap_or(text.len())
}

/// A part of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    /// By its place among all variables.
    Variable(usize),
}

/// Where the columns of an answer go: `\gset` wants one row of the last statement, `\aset` takes what is there of all.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Store {
    pub(crate) all: bool,
    /// Begins the names of the variables.
    pub(crate) prefix: String,
}

/// Statements that are sent together: one, but for `\;`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sql {
    pub(crate) parts: Vec<Vec<Piece>>,
    pub(crate) store: Option<Store>,
}

/// How long to sleep.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Pause {
    Fixed(i64),
    Variable(usize),
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Do {
    Sql(Sql),
    Set(usize, Expr),
    /// For so many times so many ns.
    Sleep(Pause, i64),
    /// Goes on elsewhere where the condition does not hold.
    Unless(Expr, usize),
    /// Goes on elsewhere.
    Jump(usize),
}

/// One step of a script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// Where it begins, from 1.
    pub(crate) line: usize,
    pub(crate) does: Do,
}

/// A script.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Script(pub(crate) Vec<Step>);

impl Script {
    /// Reads a script; its variables get their places.
    ///
    /// # Errors
    /// The first thing that pgbench would not understand, or that is not done here.
    pub(crate) fn parse(text: &str, names: &mut Names) -> Result<Self, ScriptError> {
        let mut reader = Reader {
            cursor: Cursor { text, at: 0 },
            names,
            steps: Vec::new(),
            open: Vec::new(),
        };
        reader.all()?;
        Ok(Self(reader.steps))
    }

    /// Whether it changes nothing, as far as its statements' first words say.
    pub(crate) fn only_reads(&self) -> bool {
        const READS: [&str; 12] = [
            "select", "with", "values", "table", "show", "explain", "begin", "start", "commit",
            "end", "rollback", "set",
        ];
        let parts = self.0.iter().filter_map(|s| match &s.does {
            Do::Sql(sql) => Some(&sql.parts),
            _ => None,
        });
        parts.flatten().all(|pieces| match pieces.first() {
            Some(Piece::Text(t)) => {
                let text = t.trim_start().to_ascii_lowercase();
                let word: String = text
                    .chars()
                    .take_while(|c| c.is_ascii_alphabetic())
                    .collect();
                READS.contains(&word.as_str()) && !text.contains("for update")
            }
            _ => false,
        })
    }
}

/// A place in a text.
pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// To the end of the line.
    fn line(&self) -> &'t str {
        let rest = self.rest();
        let end = rest.find('\n').unwrap_or(rest.len());
        rest[..end].trim_end_matches('\r')
    }

    /// Passes over blanks within a command, which goes on in the next line after a backslash.
    fn blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.trim_start_matches([' ', '\t', '\r', '\u{b}', '\u{c}']);
            self.at += rest.len() - blank.len();
            let continued = blank
                .strip_prefix("\\\n")
                .or_else(|| blank.strip_prefix("\\\r\n"));
            match continued {
                Some(next) => self.at = self.text.len() - next.len(),
                None => return,
            }
        }
    }

    /// The next word of a command.
    fn word(&mut self) -> Option<&'t str> {
        self.blanks();
        let rest = self.line();
        let end = rest
            .find([' ', '\t', '\r', '\u{b}', '\u{c}'])
            .unwrap_or(rest.len());
        let mut word = &rest[..end];
        if end == rest.len() && self.at + end < self.text.len() {
            // The command goes on in the next line.
            word = word.strip_suffix('\\').unwrap_or(word);
        }
        self.at += word.len();
        (!word.is_empty()).then_some(word)
    }

    fn line_number(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    fn error(&self, at: usize, message: String) -> ScriptError {
        let begin = self.text[..at].rfind('\n').map_or(0, |i| i + 1);
        ScriptError {
            line: self.line_number(at),
            column: self.text[begin..at].chars().count() + 1,
            message,
        }
    }
}

/// An `\if` that has no `\endif` yet.
struct Open {
    /// Where it stands in the text.
    at: usize,
    /// The step that goes elsewhere where the last condition does not hold; `None` after `\else`.
    unless: Option<usize>,
    /// The jumps to its end.
    jumps: Vec<usize>,
}

struct Reader<'n, 't> {
    cursor: Cursor<'t>,
    names: &'n mut Names,
    steps: Vec<Step>,
    open: Vec<Open>,
}

type Out<T> = Result<T, ScriptError>;

/// Commands that are known, and not done here, with the reason.
const REFUSED: [(&str, &str); 6] = [
    (
        "setrandom",
        "since PostgreSQL 9.6 it is \\set NAME random(FIRST, LAST)",
    ),
    (
        "shell",
        "a load runs no programs: do it before, or in the database",
    ),
    (
        "setshell",
        "a load runs no programs: give the value with --define",
    ),
    (
        "startpipeline",
        "each answer is waited for here, as it is without a pipeline: leave it out",
    ),
    (
        "endpipeline",
        "each answer is waited for here, as it is without a pipeline: leave it out",
    ),
    (
        "syncpipeline",
        "each answer is waited for here, as it is without a pipeline: leave it out",
    ),
];

impl Reader<'_, '_> {
    fn all(&mut self) -> Out<()> {
        loop {
            let (sql, ended) = scan::statement(&mut self.cursor)?;
            if let Some(sql) = sql {
                let parts = sql.parts.iter().map(|text| self.pieces(text)).collect();
                let line = self.cursor.line_number(sql.at);
                let does = Do::Sql(Sql { parts, store: None });
                self.steps.push(Step { line, does });
            }
            match ended {
                scan::Ended::Statement => {}
                scan::Ended::Command => self.command()?,
                scan::Ended::Text => break,
            }
        }
        match self.open.last() {
            Some(open) => Err(self
                .cursor
                .error(open.at, "\\if without matching \\endif".into())),
            None => Ok(()),
        }
    }

    fn pieces(&mut self, sql: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = sql;
        while let Some(colon) = rest.find(':') {
            text.push_str(&rest[..colon]);
            rest = &rest[colon..];
            let length = name_length(&rest[1..]);
            if length == 0 {
                // `::` is a cast.
                let after = rest.trim_start_matches(':');
                text.push_str(&rest[..rest.len() - after.len()]);
                rest = after;
                continue;
            }
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Variable(self.names.slot(&rest[1..=length])));
            rest = &rest[1 + length..];
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        pieces
    }

    /// A command whose backslash has been read.
    fn command(&mut self) -> Out<()> {
        let at = self.cursor.at - 1;
        let line = self.cursor.line_number(at);
        let name = self.cursor.word().unwrap_or_default().to_ascii_lowercase();
        if let Some((name, why)) = REFUSED.iter().find(|r| r.0 == name) {
            return Err(self
                .cursor
                .error(at, format!("\\{name} is not done here; {why}")));
        }
        match name.as_str() {
            "set" => self.set(line)?,
            "if" => {
                let unless = self.unless(line)?;
                self.open.push(Open {
                    at,
                    unless: Some(unless),
                    jumps: Vec::new(),
                });
            }
            "elif" | "else" => self.otherwise(at, line, &name)?,
            "endif" => {
                let Some(open) = self.open.pop() else {
                    return Err(self.stray(at, &name, "without matching \\if"));
                };
                for step in open.jumps.into_iter().chain(open.unless) {
                    self.lands(step);
                }
            }
            "sleep" => self.sleep(at, line)?,
            "gset" | "aset" => self.store(at, &name)?,
            _ => {
                return Err(self.cursor.error(
                    at,
                    format!("invalid command \\{name}: expected set, if, elif, else, endif, sleep, gset or aset"),
                ));
            }
        }
        let place = self.cursor.at;
        if let Some(word) = self.cursor.word() {
            return Err(self
                .cursor
                .error(place, format!("unexpected argument of \\{name}: '{word}'")));
        }
        Ok(())
    }

    fn set(&mut self, line: usize) -> Out<()> {
        let place = self.cursor.at;
        let variable = self.cursor.word().unwrap_or_default().to_owned();
        if !Names::allows(&variable) {
            return Err(self.cursor.error(
                place,
                format!("\\set: '{variable}' is no name of a variable: expected letters, digits and _, no digit first"),
            ));
        }
        let value = self.expression()?;
        let slot = self.names.slot(&variable);
        self.push(line, Do::Set(slot, value));
        Ok(())
    }

    /// `\elif` and `\else`.
    fn otherwise(&mut self, at: usize, line: usize, name: &str) -> Out<()> {
        let here = self.open.last().ok_or(()).map(|o| o.unless);
        let Some(unless) = here.map_err(|()| self.stray(at, name, "without matching \\if"))? else {
            return Err(self.stray(at, name, "after \\else"));
        };
        let jump = self.push(line, Do::Jump(0));
        self.lands(unless);
        let unless = match name {
            "elif" => Some(self.unless(line)?),
            _ => None,
        };
        if let Some(open) = self.open.last_mut() {
            open.unless = unless;
            open.jumps.push(jump);
        }
        Ok(())
    }

    /// `\gset` and `\aset`.
    fn store(&mut self, at: usize, name: &str) -> Out<()> {
        let prefix = self.cursor.word().unwrap_or_default().to_owned();
        if !prefix.is_empty() && !Names::allows(&prefix) {
            return Err(self.cursor.error(
                at,
                format!("\\{name}: '{prefix}' begins no name of a variable"),
            ));
        }
        let store = Some(Store {
            all: name == "aset",
            prefix,
        });
        match self.steps.last_mut().map(|s| &mut s.does) {
            Some(Do::Sql(sql)) if sql.store.is_none() => sql.store = store,
            _ => return Err(self.stray(at, name, "must follow an SQL command")),
        }
        Ok(())
    }

    fn stray(&self, at: usize, name: &str, how: &str) -> ScriptError {
        self.cursor.error(at, format!("\\{name} {how}"))
    }

    fn push(&mut self, line: usize, does: Do) -> usize {
        self.steps.push(Step { line, does });
        self.steps.len() - 1
    }

    fn expression(&mut self) -> Out<Expr> {
        expr::Parser::expression(&mut self.cursor, self.names)
    }

    fn unless(&mut self, line: usize) -> Out<usize> {
        let condition = self.expression()?;
        Ok(self.push(line, Do::Unless(condition, 0)))
    }

    /// A step that goes elsewhere goes to what comes next.
    fn lands(&mut self, step: usize) {
        let next = self.steps.len();
        if let Do::Unless(_, to) | Do::Jump(to) = &mut self.steps[step].does {
            *to = next;
        }
    }

    fn sleep(&mut self, at: usize, line: usize) -> Out<()> {
        let place = self.cursor.at;
        let text = self.cursor.word().unwrap_or_default();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let pause = match text.strip_prefix(':') {
            Some(name) if Names::allows(name) => Some(Pause::Variable(self.names.slot(name))),
            _ => text[..digits].parse().ok().map(Pause::Fixed),
        };
        let pause = pause.ok_or_else(|| {
            self.cursor.error(
                place,
                format!(
                    "\\sleep: '{text}' is no time: expected a number or :variable, then us, ms or s"
                ),
            )
        })?;
        // The unit may stand right behind a number.
        let attached = match pause {
            Pause::Fixed(_) => Some(&text[digits..]).filter(|u| !u.is_empty()),
            Pause::Variable(_) => None,
        };
        let unit = attached.or_else(|| self.cursor.word()).unwrap_or("s");
        let each = match unit.to_ascii_lowercase().as_str() {
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => {
                return Err(self.cursor.error(
                    at,
                    format!("\\sleep: '{unit}' is no unit: expected us, ms or s"),
                ));
            }
        };
        self.push(line, Do::Sleep(pause, each));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
