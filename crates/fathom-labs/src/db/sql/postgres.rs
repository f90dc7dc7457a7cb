//! The part of the PostgreSQL protocol (version 3) that a load driver needs: a unix socket without password, prepared
//! statements, values and rows as text.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use super::socket::{Socket, message};
use super::{Answer, Result, Session, SqlError, Value};

/// A connection.
pub(crate) struct Postgres {
    stream: BufReader<Socket>,
    body: Vec<u8>,
    out: Vec<u8>,
    statements: usize,
}

impl Postgres {
    /// Connects as `user`.
    pub(crate) fn connect(socket: &Path, user: &str, database: &str) -> Result<Self> {
        let stream = Socket::connect(socket, Duration::from_secs(120))?;
        let mut me = Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            body: Vec::new(),
            out: Vec::new(),
            statements: 0,
        };
        let mut start = 196_608u32.to_be_bytes().to_vec();
        for text in ["user", user, "database", database] {
            start.extend_from_slice(text.as_bytes());
            start.push(0);
        }
        start.push(0);
        let len = (start.len() as u32 + 4).to_be_bytes();
        me.out.extend_from_slice(&len);
        me.out.extend_from_slice(&start);
        me.flush()?;
        me.until_ready(&mut Answer::default())?;
        Ok(me)
    }

    fn flush(&mut self) -> Result<()> {
        let sent = self.stream.get_mut().write_all(&self.out);
        self.out.clear();
        sent.map_err(|e| SqlError::lost(&e))
    }

    /// A message whose body `fill` writes.
    fn message(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len() + 1;
        self.out.extend_from_slice(&[kind, 0, 0, 0, 0]);
        fill(&mut self.out);
        let len = ((self.out.len() - start) as u32).to_be_bytes();
        self.out[start..start + 4].copy_from_slice(&len);
    }

    fn receive(&mut self) -> Result<u8> {
        let lost = |e: std::io::Error| SqlError::lost(&e);
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).map_err(lost)?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let len = len.saturating_sub(4);
        message(&mut self.stream, len, &mut self.body).map_err(lost)?;
        Ok(head[0])
    }

    /// Reads until the server waits for the next command.
    fn until_ready(&mut self, answer: &mut Answer) -> Result<()> {
        let mut error = None;
        loop {
            match self.receive()? {
                b'Z' => return error.map_or(Ok(()), Err),
                b'E' => error = Some(failure(&self.body)),
                b'T' => {
                    answer.next();
                    columns(&self.body, answer)?;
                }
                b'D' => row(&self.body, answer)?,
                // COPY: there is nothing that could be sent.
                b'G' | b'W' => {
                    self.message(b'f', |m| {
                        m.extend_from_slice(b"no data is copied by a load\0")
                    });
                    self.flush()?;
                }
                b'C' => {
                    let tag = String::from_utf8_lossy(&self.body);
                    let n = tag.trim_end_matches('\0').rsplit(' ').next();
                    answer.affected = n.and_then(|n| n.parse().ok()).unwrap_or(0);
                }
                b'R' if self.body[..4.min(self.body.len())] != [0; 4] => {
                    return Err(SqlError {
                        code: String::new(),
                        message: "the server wants a password".into(),
                        again: false,
                    });
                }
                _ => {}
            }
        }
    }
}

fn failure(body: &[u8]) -> SqlError {
    let text = String::from_utf8_lossy(body);
    let field = |kind: char| {
        text.split('\0')
            .find_map(|f| f.strip_prefix(kind))
            .unwrap_or_default()
            .to_owned()
    };
    let code = field('C');
    SqlError {
        message: field('M'),
        // Serialization failure, deadlock.
        again: code == "40001" || code == "40P01",
        code,
    }
}

fn row(body: &[u8], answer: &mut Answer) -> Result<()> {
    let short = || SqlError::protocol("a row ended early");
    let number = |b: &[u8]| b.try_into().map(i32::from_be_bytes).map_err(|_| short());
    let n = body.get(..2).ok_or_else(short)?;
    let n = u16::from_be_bytes([n[0], n[1]]);
    answer.columns = usize::from(n);
    let mut at = 2;
    for _ in 0..n {
        let len = number(body.get(at..at + 4).ok_or_else(short)?)?;
        at += 4;
        if len < 0 {
            answer.null();
            continue;
        }
        let end = at + len as usize;
        answer.push(body.get(at..end).ok_or_else(short)?);
        at = end;
    }
    Ok(())
}

/// Names of the columns of the rows to come.
fn columns(body: &[u8], answer: &mut Answer) -> Result<()> {
    let short = || SqlError::protocol("a row's description ended early");
    let n = body.get(..2).ok_or_else(short)?;
    let n = u16::from_be_bytes([n[0], n[1]]);
    answer.columns = usize::from(n);
    let mut rest = &body[2..];
    for _ in 0..n {
        let end = rest.iter().position(|b| *b == 0).ok_or_else(short)?;
        answer.name(&rest[..end]);
        // Table, column, type, size, modifier, format.
        rest = rest.get(end + 1 + 18..).ok_or_else(short)?;
    }
    Ok(())
}

/// `?` becomes `$1`, `$2`, …
fn numbered(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 8);
    let mut n = 0;
    for c in sql.chars() {
        if c == '?' {
            n += 1;
            out.push_str(&format!("${n}"));
        } else {
            out.push(c);
        }
    }
    out
}

impl Session for Postgres {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.query(sql, &mut Answer::default())
    }

    fn query(&mut self, sql: &str, answer: &mut Answer) -> Result<()> {
        answer.clear();
        self.message(b'Q', |m| {
            m.extend_from_slice(sql.as_bytes());
            m.push(0);
        });
        self.flush()?;
        self.until_ready(answer)
    }

    fn prepare(&mut self, sql: &str) -> Result<usize> {
        self.prepare_native(&numbered(sql))
    }

    fn prepare_native(&mut self, sql: &str) -> Result<usize> {
        let name = format!("s{}", self.statements);
        self.message(b'P', |m| {
            for text in [&name, sql] {
                m.extend_from_slice(text.as_bytes());
                m.push(0);
            }
            m.extend_from_slice(&[0, 0]);
        });
        self.message(b'S', |_| ());
        self.flush()?;
        self.until_ready(&mut Answer::default())?;
        self.statements += 1;
        Ok(self.statements - 1)
    }

    fn execute(
        &mut self,
        statement: usize,
        values: &[Value<'_>],
        answer: &mut Answer,
    ) -> Result<()> {
        answer.clear();
        self.message(b'B', |m| {
            // The portal without a name, the statement, values as text.
            let _ = write!(m, "\0s{statement}\0");
            m.extend_from_slice(&[0, 0]);
            m.extend_from_slice(&(values.len() as u16).to_be_bytes());
            for v in values {
                let start = m.len();
                m.extend_from_slice(&[0; 4]);
                let _ = match v {
                    Value::Int(i) => write!(m, "{i}"),
                    Value::Num(n) => write!(m, "{n}"),
                    Value::Text(t) => m.write_all(t.as_bytes()),
                };
                let len = (m.len() - start - 4) as u32;
                m[start..start + 4].copy_from_slice(&len.to_be_bytes());
            }
            m.extend_from_slice(&[0, 0]);
        });
        if answer.wanted {
            self.message(b'D', |m| m.extend_from_slice(b"P\0"));
        }
        self.message(b'E', |m| m.extend_from_slice(&[0; 5]));
        self.message(b'S', |_| ());
        self.flush()?;
        self.until_ready(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbered_as_this_server_wants_them() {
        assert_eq!(
            numbered("a = ? AND b IN (?, ?)"),
            "a = $1 AND b IN ($2, $3)"
        );
    }

    #[test]
    fn errors_and_rows_are_understood() {
        let e = failure(b"SERROR\0C40P01\0Mdeadlock detected\0\0");
        assert_eq!((e.code.as_str(), e.again), ("40P01", true));
        assert_eq!(e.message, "deadlock detected");
        let mut a = Answer::default();
        row(b"\0\x02\0\0\0\x011\xff\xff\xff\xff", &mut a).unwrap();
        assert_eq!((a.rows(), a.int(0, 0).unwrap(), a.text(0, 1)), (1, 1, ""));
        assert!(row(b"\0\x02\0\0\0\x09", &mut a).is_err());
    }
}
