//! The part of the PostgreSQL protocol (version 3) that a load driver needs: prepared statements, values and rows as text,
//! over a unix socket or TCP with TLS, after whatever proof of a password the server asks for.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use super::auth::{self, Scram};
use super::socket::{Socket, message};
use super::{ANSWER, Answer, Result, Session, SqlError, Value};
use crate::db::server::{Protocol, Server, Tls};

/// A connection.
pub(crate) struct Postgres {
    stream: BufReader<Socket>,
    body: Vec<u8>,
    out: Vec<u8>,
    statements: usize,
    /// Rows are streamed: the server may say that it waits for them.
    copying: bool,
}

impl Postgres {
    /// Connects as `user` without a password.
    pub(crate) fn connect(socket: &Path, user: &str, database: &str) -> Result<Self> {
        let mut server = Server::of_socket(socket);
        (server.protocol, server.user) = (Protocol::Postgres, user.to_owned());
        Self::to(&server, database)
    }

    /// Connects; what answers need not be a server, and is given ten seconds to let one in.
    pub(crate) fn to(server: &Server, database: &str) -> Result<Self> {
        let mut stream = Socket::connect(&server.place, Duration::from_secs(10))?;
        if server.tls != Tls::Off {
            // A request for TLS (80877103) is answered by one byte.
            let lost = |e: std::io::Error| SqlError::lost(&e);
            stream
                .write_all(&[0, 0, 0, 8, 4, 210, 22, 47])
                .map_err(lost)?;
            let mut said = [0];
            stream.read_exact(&mut said).map_err(lost)?;
            match said[0] {
                b'S' => stream.secure(server)?,
                b'N' => {
                    return Err(SqlError::here(format!(
                        "{server}: the server offers no TLS: set it up there, or say sslmode=disable in the address, where everybody in between may read along"
                    )));
                }
                _ => return Err(SqlError::protocol("what it says to a request for TLS")),
            }
        }
        let mut me = Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            body: Vec::new(),
            out: Vec::new(),
            statements: 0,
            copying: false,
        };
        let mut start = 196_608u32.to_be_bytes().to_vec();
        for text in ["user", &server.user, "database", database] {
            start.extend_from_slice(text.as_bytes());
            start.push(0);
        }
        start.push(0);
        let len = (start.len() as u32 + 4).to_be_bytes();
        me.out.extend_from_slice(&len);
        me.out.extend_from_slice(&start);
        me.flush()?;
        me.let_in(server)?;
        me.begin()?;
        me.patience(ANSWER);
        Ok(me)
    }

    /// Until the server waits for the first command. Whom it believes it may still refuse, such as one that it does not know, and
    /// says so before it closes the connection.
    fn begin(&mut self) -> Result<()> {
        loop {
            match self.receive()? {
                b'Z' => return Ok(()),
                b'E' => return Err(failure(&self.body)),
                _ => {}
            }
        }
    }

    /// A proof by one of the mechanisms that the server offers, and its first message.
    fn scram(&self, offers: &[u8]) -> Result<(Scram, Vec<u8>)> {
        const MECHANISM: &str = "SCRAM-SHA-256";
        let offered = |name: &str| offers.split(|b| *b == 0).any(|o| o == name.as_bytes());
        let plus = format!("{MECHANISM}-PLUS");
        let binding = self.stream.get_ref().binding();
        let binding = binding.filter(|_| offered(&plus));
        let name = match binding {
            Some(_) => plus.as_str(),
            None if offered(MECHANISM) => MECHANISM,
            None => return Err(SqlError::protocol("it knows no SCRAM-SHA-256")),
        };
        let begun = Scram::new(auth::nonce()?, binding);
        let first = begun.first();
        let len = (first.len() as u32).to_be_bytes();
        let said = [name.as_bytes(), b"\0", &len, first.as_bytes()].concat();
        Ok((begun, said))
    }

    /// Answers until the server lets one in, or does not.
    fn let_in(&mut self, server: &Server) -> Result<()> {
        let mut scram: Option<Scram> = None;
        let mut proven = true;
        loop {
            match self.receive()? {
                b'R' => {}
                b'E' => return Err(failure(&self.body)),
                // What a server that is newer does not know of this one.
                b'v' => continue,
                _ => return Err(SqlError::protocol("what it says to who wants in")),
            }
            let (kind, rest) = self
                .body
                .split_at_checked(4)
                .ok_or_else(|| SqlError::protocol("a message ended early"))?;
            let kind = u32::from_be_bytes([kind[0], kind[1], kind[2], kind[3]]);
            let password = server.password();
            if password.is_empty() && [3, 5, 10].contains(&kind) {
                return Err(SqlError::here(format!(
                    "{server}: the server wants the password of {}: set FATHOM_DB_PASSWORD or give --password-file FILE",
                    server.user
                )));
            }
            let answer = match kind {
                0 if proven => return Ok(()),
                3 if self.stream.get_ref().is_private() => [password.as_bytes(), b"\0"].concat(),
                3 => {
                    return Err(SqlError::here(format!(
                        "{server}: the server wants the password itself, and the connection is not private: add ?sslmode=verify-full to the address"
                    )));
                }
                5 => {
                    let said = auth::md5(&server.user, password, rest);
                    [said.as_bytes(), b"\0"].concat()
                }
                10 => {
                    let (begun, said) = self.scram(rest)?;
                    (scram, proven) = (Some(begun), false);
                    said
                }
                11 | 12 => {
                    let said = String::from_utf8_lossy(rest);
                    let Some(scram) = &mut scram else {
                        return Err(SqlError::protocol("the end of a proof that was not begun"));
                    };
                    if kind == 12 {
                        scram.proven(&said)?;
                        proven = true;
                        continue;
                    }
                    // It knows the user from before.
                    scram.second("", password, &said)?.into_bytes()
                }
                0 => {
                    return Err(SqlError::protocol(
                        "it did not show that it knows the password",
                    ));
                }
                n => {
                    return Err(SqlError::here(format!(
                        "{server}: {} has to show who it is in a way that fathom does not speak (number {n}): use scram-sha-256 in pg_hba.conf",
                        server.user
                    )));
                }
            };
            self.message(b'p', |m| m.extend_from_slice(&answer));
            self.flush()?;
        }
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
                b'G' if self.copying => {}
                // A user's COPY: there is nothing that could be sent.
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
    fn patience(&mut self, patience: Duration) {
        self.stream.get_mut().wait_for(patience);
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        self.query(sql, &mut Answer::default())
    }

    /// The statement is not waited for: where it fails the server reads over the rows, and says so at their end.
    fn copy_begin(&mut self, table: &str) -> Result<bool> {
        let sql = format!("COPY {table} FROM STDIN (FORMAT csv, QUOTE '''', NULL 'NULL')\0");
        self.message(b'Q', |m| m.extend_from_slice(sql.as_bytes()));
        self.copying = true;
        Ok(true)
    }

    fn copy_data(&mut self, lines: &[u8]) -> Result<()> {
        self.message(b'd', |m| m.extend_from_slice(lines));
        self.flush()
    }

    fn copy_end(&mut self) -> Result<u64> {
        self.message(b'c', |_| ());
        let mut answer = Answer::default();
        let ended = self.flush().and_then(|()| self.until_ready(&mut answer));
        self.copying = false;
        ended.map(|()| answer.affected)
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
