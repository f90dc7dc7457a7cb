//! Where a statement ends: as psql reads it (`psqlscan.l` of PostgreSQL 15), and with MySQL's names in backquotes.

use super::{Cursor, ScriptError, in_name};

/// Text of statements that are sent together.
pub(super) struct Text {
    pub(super) parts: Vec<String>,
    /// Where it begins.
    pub(super) at: usize,
}

/// What ended it.
pub(super) enum Ended {
    Statement,
    /// A backslash; it has been passed.
    Command,
    Text,
}

/// The next statement, without its semicolon, and without comments from `--` to the end of a line; none where there is
/// nothing but those before the end.
pub(super) fn statement(cursor: &mut Cursor<'_>) -> Result<(Option<Text>, Ended), ScriptError> {
    let mut scan = Scan {
        parts: vec![String::new()],
        at: None,
        depth: 0,
        words: Vec::new(),
        body: 0,
    };
    let ended = scan.read(cursor)?;
    let mut parts = scan.parts;
    parts.iter_mut().for_each(|p| *p = p.trim().to_owned());
    parts.retain(|p| !p.is_empty());
    let at = scan.at.unwrap_or(cursor.at);
    let text = (!parts.is_empty()).then_some(Text { parts, at });
    Ok((text, ended))
}

struct Scan {
    parts: Vec<String>,
    /// Where the first of it stands.
    at: Option<usize>,
    /// Open brackets.
    depth: u32,
    /// The first words.
    words: Vec<String>,
    /// BEGINs of a function's body that have no END yet.
    body: u32,
}

impl Scan {
    fn take(&mut self, cursor: &mut Cursor<'_>, length: usize) {
        let text = &cursor.rest()[..length];
        if !text.trim().is_empty() {
            self.at.get_or_insert(cursor.at);
        }
        if let Some(part) = self.parts.last_mut() {
            part.push_str(text);
        }
        cursor.at += length;
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<Ended, ScriptError> {
        loop {
            let rest = cursor.rest();
            let Some(c) = rest.chars().next() else {
                return Ok(Ended::Text);
            };
            match c {
                '\\' if rest[1..].starts_with([';', ':']) => {
                    cursor.at += 1;
                    match rest[1..].starts_with(';') {
                        true => {
                            cursor.at += 1;
                            self.parts.push(String::new());
                        }
                        // No variable follows.
                        false => self.take(cursor, 1),
                    }
                }
                '\\' => {
                    cursor.at += 1;
                    return Ok(Ended::Command);
                }
                ';' if self.depth == 0 && self.body == 0 => {
                    cursor.at += 1;
                    return Ok(Ended::Statement);
                }
                '-' if rest.starts_with("--") => {
                    cursor.at += rest.find('\n').unwrap_or(rest.len());
                }
                '/' if rest.starts_with("/*") => {
                    let length = comment(rest).ok_or_else(|| open(cursor, "a comment"))?;
                    self.take(cursor, length);
                }
                '\'' | '"' | '`' => {
                    let length = quoted(rest, c, false).ok_or_else(|| open(cursor, "a quote"))?;
                    self.take(cursor, length);
                }
                '$' => {
                    let length = match dollar(rest) {
                        Some(tag) => {
                            let end = rest[tag..].find(&rest[..tag]);
                            end.ok_or_else(|| open(cursor, "a quote"))? + 2 * tag
                        }
                        None => 1,
                    };
                    self.take(cursor, length);
                }
                '(' | ')' => {
                    self.depth = match c {
                        '(' => self.depth.saturating_add(1),
                        _ => self.depth.saturating_sub(1),
                    };
                    self.take(cursor, 1);
                }
                c if in_name(c) => {
                    let more = |c: char| !(in_name(c) || c == '$');
                    let length = rest.find(more).unwrap_or(rest.len());
                    let word = rest[..length].to_ascii_lowercase();
                    let quote = rest[length..].starts_with('\'');
                    self.take(cursor, length);
                    if quote && word == "e" {
                        let rest = cursor.rest();
                        let length =
                            quoted(rest, '\'', true).ok_or_else(|| open(cursor, "a quote"))?;
                        self.take(cursor, length);
                    }
                    self.word(word);
                }
                c => self.take(cursor, c.len_utf8()),
            }
        }
    }

    /// A function's body in SQL (`CREATE FUNCTION … BEGIN ATOMIC … END`) has semicolons of its own.
    fn word(&mut self, word: String) {
        let makes = |w: &[String]| {
            let kind = match w {
                [create, or, replace, kind, ..]
                    if create == "create" && or == "or" && replace == "replace" =>
                {
                    kind
                }
                [create, kind, ..] if create == "create" => kind,
                _ => return false,
            };
            kind == "function" || kind == "procedure"
        };
        if self.depth == 0 && makes(&self.words) {
            match word.as_str() {
                "begin" => self.body += 1,
                "case" if self.body > 0 => self.body += 1,
                "end" => self.body = self.body.saturating_sub(1),
                _ => {}
            }
        }
        if self.words.len() < 4 {
            self.words.push(word);
        }
    }
}

fn open(cursor: &Cursor<'_>, what: &str) -> ScriptError {
    cursor.error(cursor.at, format!("{what} begins here and has no end"))
}

/// Length of a comment, which may have others within it.
fn comment(text: &str) -> Option<usize> {
    let mut depth = 0u32;
    let mut at = 0;
    let bytes = text.as_bytes();
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return Some(at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    None
}

/// Length of a quoted text; a quote within it stands twice, or behind a backslash where that `escapes`.
fn quoted(text: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((i, c)) = chars.next() {
        if c == '\\' && escapes {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(i + 1);
        }
    }
    None
}

/// Length of `$tag$`, where a text begins with it.
fn dollar(text: &str) -> Option<usize> {
    let name = super::name_length(&text[1..]);
    text[1 + name..].starts_with('$').then_some(name + 2)
}
