//! The part of the MySQL protocol that a load driver needs: prepared statements with binary rows, over a unix socket or
//! TCP with TLS, after whatever of the usual proofs of a password the server asks for. Packets:
//! <https://mariadb.com/kb/en/clientserver-protocol/>.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use super::socket::{Socket, message};
use super::{ANSWER, Answer, Result, Session, SqlError, Value, auth};
use crate::db::server::{Protocol, Server, Tls};

/// LONG_PASSWORD, LONG_FLAG, LOCAL_FILES, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, MULTI_STATEMENTS, MULTI_RESULTS,
/// PLUGIN_AUTH. (Nothing here opens a file that a server asks for: of rows, it gets those that wait for it.)
const CAPABILITIES: u32 =
    0x1 | 0x4 | 0x80 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x8_0000;
/// The server asks for the lines of a LOAD DATA LOCAL.
const LOCAL_INFILE: u8 = 0xfb;
const CONNECT_WITH_DB: u32 = 8;
const SSL: u32 = 0x800;
const MORE_RESULTS: u16 = 8;
const UTF8MB4: u8 = 45;
/// As the server has it (`MAX_FIELDS`).
const COLUMNS_MAX: u64 = 4096;

/// A connection.
pub(crate) struct Mysql {
    stream: BufReader<Socket>,
    packet: Vec<u8>,
    out: Vec<u8>,
    sequence: u8,
    /// Ids of statements and how many values each takes.
    statements: Vec<(u32, usize)>,
    types: Vec<(u8, bool)>,
    /// The server takes no LOAD DATA LOCAL.
    refuses_local: bool,
}

impl Mysql {
    /// Connects as `user` without a password; an empty `database` is none.
    pub(crate) fn connect(socket: &Path, user: &str, database: &str) -> Result<Self> {
        let mut server = Server::of_socket(socket);
        (server.protocol, server.user) = (Protocol::Mysql, user.to_owned());
        Self::to(&server, database)
    }

    /// Connects; an empty `database` is none.
    pub(crate) fn to(server: &Server, database: &str) -> Result<Self> {
        // Who listens there need not be a server: a greeting comes at once, or never.
        let stream = Socket::connect(&server.place, Duration::from_secs(10))?;
        let mut me = Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            packet: Vec::new(),
            out: Vec::new(),
            sequence: 0,
            statements: Vec::new(),
            types: Vec::new(),
            refuses_local: false,
        };
        me.receive()?;
        me.refuse()?;
        if me.packet.first() != Some(&10) {
            return Err(SqlError::protocol("an unknown greeting"));
        }
        let greeting = Greeting::read(&me.packet[1..])?;
        let tls = server.tls != Tls::Off;
        let mut wants = CAPABILITIES;
        if !database.is_empty() {
            wants |= CONNECT_WITH_DB;
        }
        if tls {
            if greeting.capabilities & SSL == 0 {
                return Err(SqlError::here(format!(
                    "{server}: the server offers no TLS: set it up there, or say sslmode=disable in the address, where everybody in between may read along"
                )));
            }
            wants |= SSL;
        }
        me.out.clear();
        me.out.extend_from_slice(&wants.to_le_bytes());
        me.out.extend_from_slice(&(16u32 << 20).to_le_bytes());
        me.out.push(UTF8MB4);
        me.out.extend_from_slice(&[0; 23]);
        if tls {
            let same = me.out.clone();
            me.send()?;
            // What was sent before TLS was agreed on may be anybody's.
            if !me.stream.buffer().is_empty() {
                return Err(SqlError::protocol("words before TLS was agreed on"));
            }
            me.stream.get_mut().secure(server)?;
            me.out = same;
        }
        let first = me.proof(&greeting.plugin, &greeting.seed, server);
        // A way that is not known: the server asks for another one, or refuses.
        let (plugin, proof) = match first {
            Ok(proof) => (greeting.plugin.as_str(), proof),
            Err(_) => {
                let native = auth::native(server.password(), &greeting.seed);
                (NATIVE, native)
            }
        };
        me.out.extend_from_slice(server.user.as_bytes());
        me.out.push(0);
        // Of all that is said first, none is longer than a hash.
        me.out.push(proof.len() as u8);
        me.out.extend_from_slice(&proof);
        if !database.is_empty() {
            me.out.extend_from_slice(database.as_bytes());
            me.out.push(0);
        }
        me.out.extend_from_slice(plugin.as_bytes());
        me.out.push(0);
        me.send()?;
        me.let_in(server)?;
        me.patience(ANSWER);
        Ok(me)
    }

    /// What shows a server in one of its ways that the password is known.
    fn proof(&self, plugin: &str, seed: &[u8], server: &Server) -> Result<Vec<u8>> {
        let password = server.password();
        match plugin {
            NATIVE => Ok(auth::native(password, seed)),
            SHA2 => Ok(auth::caching_sha2(password, seed)),
            // Without a password all of them begin with nothing.
            _ if password.is_empty() => Ok(Vec::new()),
            "mysql_clear_password" => self.in_clear(server),
            other => Err(SqlError::here(format!(
                "{server}: {} has to show its password by {other}, which fathom does not speak: make an account with {SHA2} (MySQL) or {NATIVE} (MariaDB)",
                server.user
            ))),
        }
    }

    /// The password as it is, where nobody can read along.
    fn in_clear(&self, server: &Server) -> Result<Vec<u8>> {
        match self.stream.get_ref().is_private() {
            true => Ok([server.password().as_bytes(), b"\0"].concat()),
            false => Err(SqlError::here(format!(
                "{server}: the server wants the password itself, and the connection is not private: add ?ssl-mode=required or verify-full to the address"
            ))),
        }
    }

    /// Answers until the server lets one in, or does not.
    fn let_in(&mut self, server: &Server) -> Result<()> {
        /// Of MySQL's: the hash is known there; it is not, and the password itself is wanted.
        const KNOWN: [u8; 2] = [1, 3];
        const WANTED: [u8; 2] = [1, 4];
        for _ in 0..4 {
            self.receive()?;
            self.refuse()?;
            let said = match self.packet.first() {
                Some(0) => return Ok(()),
                Some(0xfe) => {
                    let words = self.packet[1..].to_owned();
                    let mut words = words.splitn(2, |b| *b == 0);
                    let plugin = words.next().unwrap_or_default();
                    let plugin = String::from_utf8_lossy(plugin).into_owned();
                    let seed = words.next().unwrap_or_default();
                    // It ends with a zero.
                    self.proof(&plugin, seed.strip_suffix(&[0]).unwrap_or(seed), server)?
                }
                Some(1) if self.packet == KNOWN => continue,
                Some(1) if self.packet == WANTED => self.in_clear(server)?,
                _ => return Err(SqlError::protocol("another way to ask for a password")),
            };
            self.out.clear();
            self.out.extend_from_slice(&said);
            self.send()?;
        }
        Err(SqlError::protocol(
            "it asks for the password again and again",
        ))
    }

    fn send(&mut self) -> Result<()> {
        let len = self.out.len() as u32;
        let mut head = len.to_le_bytes();
        head[3] = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        self.out.splice(0..0, head);
        let stream = self.stream.get_mut();
        stream.write_all(&self.out).map_err(|e| SqlError::lost(&e))
    }

    fn receive(&mut self) -> Result<()> {
        let mut head = [0; 4];
        let lost = |e: std::io::Error| SqlError::lost(&e);
        self.stream.read_exact(&mut head).map_err(lost)?;
        self.sequence = head[3].wrapping_add(1);
        let len = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        message(&mut self.stream, len, &mut self.packet).map_err(lost)
    }

    /// An error packet becomes an error.
    fn refuse(&self) -> Result<()> {
        if self.packet.first() != Some(&0xff) || self.packet.len() < 3 {
            return Ok(());
        }
        let code = u16::from_le_bytes([self.packet[1], self.packet[2]]);
        let text = &self.packet[3..];
        let text = if text.first() == Some(&b'#') {
            text.get(6..).unwrap_or_default()
        } else {
            text
        };
        Err(SqlError {
            code: code.to_string(),
            message: String::from_utf8_lossy(text).into_owned(),
            // Lock wait timeout, deadlock, changed since last read.
            again: matches!(code, 1205 | 1213 | 1020),
        })
    }

    fn command(&mut self, command: u8, body: &[u8]) -> Result<()> {
        self.out.clear();
        self.out.push(command);
        self.out.extend_from_slice(body);
        self.sequence = 0;
        self.send()
    }

    fn ended(&self) -> bool {
        self.packet.first() == Some(&0xfe) && self.packet.len() < 9
    }

    fn skip_definitions(&mut self, n: u16) -> Result<()> {
        for _ in 0..n {
            self.receive()?;
        }
        if n > 0 {
            self.receive()?;
        }
        Ok(())
    }

    /// Reads one result; says whether another follows.
    fn result(&mut self, binary: bool, answer: &mut Answer) -> Result<bool> {
        self.receive()?;
        self.refuse()?;
        if self.packet.first() == Some(&LOCAL_INFILE) {
            // A user's statement: it gets an empty file.
            self.out.clear();
            self.send()?;
            self.receive()?;
            self.refuse()?;
            return Err(SqlError::here(
                "LOAD DATA LOCAL: a load sends no files; use LOAD DATA on the server, or INSERT"
                    .into(),
            ));
        }
        let mut at = Reader(&self.packet);
        let first = at.length()?;
        if self.packet[0] == 0 {
            // OK: after the header come changed rows, the last id and the status.
            answer.affected = at.length()?;
            at.length()?;
            return Ok(at.u16()? & MORE_RESULTS != 0);
        }
        if first > COLUMNS_MAX {
            return Err(SqlError::protocol("more columns than a table may have"));
        }
        self.types.clear();
        for _ in 0..first {
            self.receive()?;
            self.refuse()?;
            let mut at = Reader(&self.packet);
            let mut name = &[][..];
            for i in 0..6 {
                let text = at.string()?;
                // Catalogue, schema, table, its own name, the column's name, its own.
                if i == 4 {
                    name = text;
                }
            }
            answer.name(name);
            at.bytes(1 + 2 + 4)?;
            let kind = at.u8()?;
            self.types.push((kind, at.u16()? & 0x20 != 0));
        }
        self.receive()?;
        answer.columns = first as usize;
        loop {
            self.receive()?;
            self.refuse()?;
            if self.ended() {
                let mut at = Reader(&self.packet);
                at.bytes(3)?;
                return Ok(at.u16()? & MORE_RESULTS != 0);
            }
            if binary {
                binary_row(&self.packet, &self.types, answer)?;
            } else {
                let mut at = Reader(&self.packet);
                for _ in 0..first {
                    if at.0.first() == Some(&0xfb) {
                        at.bytes(1)?;
                        answer.null();
                    } else {
                        answer.push(at.string()?);
                    }
                }
            }
        }
    }
}

impl Mysql {
    /// Reads results that follow the first, as a procedure has them.
    fn rest(&mut self, binary: bool, mut more: bool) -> Result<()> {
        let mut answer = Answer::default();
        while more {
            more = self.result(binary, &mut answer)?;
            answer.clear();
        }
        Ok(())
    }
}

impl Session for Mysql {
    fn patience(&mut self, patience: Duration) {
        self.stream.get_mut().wait_for(patience);
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        self.command(0x03, sql.as_bytes())?;
        self.rest(false, true)
    }

    /// `false` where the server does not have it (`local_infile`), or in between somebody refuses it.
    fn copy_begin(&mut self, table: &str) -> Result<bool> {
        if self.refuses_local {
            return Ok(false);
        }
        let (name, columns) = table.split_once(' ').unwrap_or((table, ""));
        let sql = format!(
            "LOAD DATA LOCAL INFILE 'rows' INTO TABLE {name} CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '''' ESCAPED BY '' LINES TERMINATED BY '\\n' {columns}"
        );
        self.command(0x03, sql.as_bytes())?;
        self.receive()?;
        match self.refuse() {
            Err(_) => {
                self.refuses_local = true;
                Ok(false)
            }
            Ok(()) if self.packet.first() == Some(&LOCAL_INFILE) => Ok(true),
            Ok(()) => Err(SqlError::protocol("it does not ask for rows")),
        }
    }

    fn copy_data(&mut self, lines: &[u8]) -> Result<()> {
        // An empty packet is the end.
        if lines.is_empty() {
            return Ok(());
        }
        self.out.clear();
        self.out.extend_from_slice(lines);
        self.send()
    }

    /// The statement is as one with IGNORE: what does not fit is changed or left out, with a warning.
    fn copy_end(&mut self) -> Result<u64> {
        self.out.clear();
        self.send()?;
        self.receive()?;
        self.refuse()?;
        let mut at = Reader(&self.packet);
        at.bytes(1)?;
        let (taken, _last) = (at.length()?, at.length()?);
        let (_status, warnings) = (at.u16()?, at.u16()?);
        Ok(taken.saturating_sub(u64::from(warnings)))
    }

    fn escapes(&self) -> bool {
        true
    }

    fn query(&mut self, sql: &str, answer: &mut Answer) -> Result<()> {
        answer.clear();
        self.command(0x03, sql.as_bytes())?;
        let more = self.result(false, answer)?;
        self.rest(false, more)
    }

    fn prepare(&mut self, sql: &str) -> Result<usize> {
        self.command(0x16, sql.as_bytes())?;
        self.receive()?;
        self.refuse()?;
        let mut at = Reader(&self.packet);
        at.bytes(1)?;
        let id = at.u32()?;
        let (columns, values) = (at.u16()?, at.u16()?);
        self.skip_definitions(values)?;
        self.skip_definitions(columns)?;
        self.statements.push((id, usize::from(values)));
        Ok(self.statements.len() - 1)
    }

    fn execute(
        &mut self,
        statement: usize,
        values: &[Value<'_>],
        answer: &mut Answer,
    ) -> Result<()> {
        answer.clear();
        let (id, wanted) = self.statements[statement];
        if wanted != values.len() {
            return Err(SqlError::protocol("another number of values"));
        }
        let out = &mut self.out;
        out.clear();
        out.push(0x17);
        out.extend_from_slice(&id.to_le_bytes());
        out.push(0);
        out.extend_from_slice(&1u32.to_le_bytes());
        if wanted > 0 {
            // No value is NULL; types are told each time.
            out.extend(std::iter::repeat_n(0, wanted.div_ceil(8)));
            out.push(1);
            for v in values {
                out.extend_from_slice(match v {
                    Value::Int(_) => &[8, 0],
                    Value::Num(_) => &[5, 0],
                    Value::Text(_) => &[253, 0],
                });
            }
            for v in values {
                match v {
                    Value::Int(i) => out.extend_from_slice(&i.to_le_bytes()),
                    Value::Num(n) => out.extend_from_slice(&n.to_le_bytes()),
                    Value::Text(t) => {
                        match t.len() {
                            n @ ..251 => out.push(n as u8),
                            n @ ..65536 => {
                                out.push(0xfc);
                                out.extend_from_slice(&(n as u16).to_le_bytes());
                            }
                            n => {
                                out.push(0xfd);
                                out.extend_from_slice(&(n as u32).to_le_bytes()[..3]);
                            }
                        }
                        out.extend_from_slice(t.as_bytes());
                    }
                }
            }
        }
        self.sequence = 0;
        self.send()?;
        let more = self.result(true, answer)?;
        self.rest(true, more)
    }
}

const NATIVE: &str = "mysql_native_password";
const SHA2: &str = "caching_sha2_password";

/// What a server says first.
struct Greeting {
    capabilities: u32,
    /// What a password is mixed with.
    seed: Vec<u8>,
    /// How passwords are shown.
    plugin: String,
}

impl Greeting {
    /// Reads it behind the version of the protocol.
    fn read(packet: &[u8]) -> Result<Self> {
        let mut words = packet.splitn(2, |b| *b == 0);
        words.next();
        let mut at = Reader(words.next().unwrap_or_default());
        at.u32()?;
        let mut seed = at.bytes(8)?.to_vec();
        at.bytes(1)?;
        let low = at.u16()?;
        at.bytes(1 + 2)?;
        let high = at.u16()?;
        let length = usize::from(at.u8()?);
        at.bytes(10)?;
        // The rest of the seed ends with a zero, and so does the name after it.
        let rest = at.bytes(length.saturating_sub(8).max(13))?;
        seed.extend_from_slice(rest.strip_suffix(&[0]).unwrap_or(rest));
        let plugin = at.0.split(|b| *b == 0).next().unwrap_or_default();
        Ok(Self {
            capabilities: u32::from(low) | u32::from(high) << 16,
            seed,
            plugin: String::from_utf8_lossy(plugin).into_owned(),
        })
    }
}

/// Reads a packet from its front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self
            .0
            .split_at_checked(n)
            .ok_or_else(|| SqlError::protocol("a packet ended early"))?;
        self.0 = rest;
        Ok(head)
    }
    fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }
    fn u16(&mut self) -> Result<u16> {
        Ok(self.number(2)? as u16)
    }
    fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }
    fn number(&mut self, n: usize) -> Result<u64> {
        let mut all = [0; 8];
        all[..n].copy_from_slice(self.bytes(n)?);
        Ok(u64::from_le_bytes(all))
    }
    /// A number of 1 to 9 bytes.
    fn length(&mut self) -> Result<u64> {
        match self.u8()? {
            0xfc => self.number(2),
            0xfd => self.number(3),
            0xfe => self.number(8),
            n => Ok(u64::from(n)),
        }
    }
    fn string(&mut self) -> Result<&'a [u8]> {
        let n = self.length()?;
        self.bytes(n as usize)
    }
}

fn binary_row(packet: &[u8], types: &[(u8, bool)], answer: &mut Answer) -> Result<()> {
    let mut at = Reader(packet);
    at.bytes(1)?;
    let nulls = at.bytes((types.len() + 7 + 2) / 8)?;
    for (i, (kind, unsigned)) in types.iter().enumerate() {
        let bit = i + 2;
        if nulls[bit / 8] & (1 << (bit % 8)) != 0 {
            answer.null();
            continue;
        }
        let mut int = |n: usize| -> Result<i64> {
            let raw = at.number(n)?;
            let shift = 64 - 8 * n as u32;
            Ok(if *unsigned {
                raw as i64
            } else {
                ((raw << shift) as i64) >> shift
            })
        };
        match kind {
            1 => {
                let v = int(1)?;
                answer.print(format_args!("{v}"));
            }
            2 | 13 => {
                let v = int(2)?;
                answer.print(format_args!("{v}"));
            }
            3 | 9 => {
                let v = int(4)?;
                answer.print(format_args!("{v}"));
            }
            8 => {
                let v = int(8)?;
                answer.print(format_args!("{v}"));
            }
            4 => {
                let v = f32::from_bits(at.u32()?);
                answer.print(format_args!("{v}"));
            }
            5 => {
                let v = f64::from_bits(at.number(8)?);
                answer.print(format_args!("{v}"));
            }
            7 | 10 | 12 => {
                let len = at.u8()?;
                let d = at.bytes(usize::from(len))?;
                let b = |i: usize| d.get(i).copied().unwrap_or(0);
                let year = u16::from_le_bytes([b(0), b(1)]);
                answer.print(format_args!(
                    "{year:04}-{:02}-{:02} {:02}:{:02}:{:02}",
                    b(2),
                    b(3),
                    b(4),
                    b(5),
                    b(6)
                ));
            }
            _ => answer.push(at.string()?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_kind_are_read() {
        // A whole number of -5, NULL, a text, a day.
        let mut packet = vec![0, 0b0000_1000];
        packet.extend_from_slice(&(-5i32).to_le_bytes());
        packet.extend_from_slice(&[3, b'a', b'b', b'c']);
        packet.extend_from_slice(&[4, 0xea, 0x07, 11, 22]);
        let mut a = Answer {
            columns: 4,
            ..Answer::default()
        };
        let types = [(3, false), (8, false), (253, false), (10, false)];
        binary_row(&packet, &types, &mut a).unwrap();
        assert_eq!(
            (a.int(0, 0).unwrap(), a.text(0, 1), a.text(0, 2)),
            (-5, "", "abc")
        );
        assert_eq!(a.text(0, 3), "2026-11-22 00:00:00");
        let cut = binary_row(&packet[..6], &types, &mut a);
        assert!(cut.unwrap_err().message.contains("ended early"));
    }

    #[test]
    fn lengths_have_one_to_nine_bytes() {
        let of = |b: &[u8]| Reader(b).length().unwrap();
        assert_eq!(of(&[250]), 250);
        assert_eq!(of(&[0xfc, 0, 1]), 256);
        assert_eq!(of(&[0xfd, 0, 0, 1]), 65536);
        assert_eq!(of(&[0xfe, 1, 0, 0, 0, 0, 0, 0, 0]), 1);
        assert!(Reader(&[0xfc, 0]).length().is_err());
    }
}
