//! Many rows, as a database is filled: streamed where it takes a stream, by few statements elsewhere.

use super::{Result, Session, SqlError};

/// Rows of one table on their way into it, as SQL writes values: numbers, `NULL`, texts in single quotes.
pub(crate) struct Rows<'a> {
    session: &'a mut dyn Session,
    /// May have its columns behind its name: `history (tid, bid)`.
    table: &'a str,
    text: String,
    /// Whether the database takes a stream; not known before the first row.
    streamed: Option<bool>,
    /// Rows of the statement or stream that is open.
    waiting: u64,
}

impl<'a> Rows<'a> {
    /// Rows of one statement.
    const BATCH: u64 = 250;
    /// Bytes that are sent at once.
    const CHUNK: usize = 64 << 10;

    /// Into a table, which may have its columns behind its name.
    pub(crate) fn of(session: &'a mut dyn Session, table: &'a str) -> Self {
        Self {
            session,
            table,
            text: String::new(),
            streamed: None,
            waiting: 0,
        }
    }

    /// `fill` writes the values of a row, with commas between them.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn row(&mut self, fill: impl FnOnce(&mut String)) -> Result<()> {
        if self.waiting == 0 {
            self.begin()?;
        }
        self.waiting += 1;
        if self.streamed == Some(true) {
            fill(&mut self.text);
            self.text.push('\n');
            return match self.text.len() >= Self::CHUNK {
                true => self.send(),
                false => Ok(()),
            };
        }
        self.text
            .push_str(if self.waiting == 1 { "(" } else { ",(" });
        let start = self.text.len();
        fill(&mut self.text);
        if self.session.escapes() && self.text[start..].contains('\\') {
            let escaped = self.text[start..].replace('\\', "\\\\");
            self.text.replace_range(start.., &escaped);
        }
        self.text.push(')');
        match self.waiting == Self::BATCH {
            true => self.end(),
            false => Ok(()),
        }
    }

    fn begin(&mut self) -> Result<()> {
        if self.streamed != Some(false) {
            self.streamed = Some(self.session.copy_begin(self.table)?);
        }
        if self.streamed == Some(false) {
            self.text = format!("INSERT INTO {} VALUES ", self.table);
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let sent = self.session.copy_data(self.text.as_bytes());
        self.text.clear();
        sent
    }

    /// What still waits: all rows are in the table then.
    ///
    /// # Errors
    /// What the database says, and rows that it did not take.
    pub(crate) fn flush(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.waiting);
        if rows == 0 {
            return Ok(());
        }
        if self.streamed == Some(false) {
            return self.session.batch(&std::mem::take(&mut self.text));
        }
        // The stream is ended in any case: the session has to take statements again.
        let sent = self.send();
        let taken = self.session.copy_end();
        sent?;
        match taken? {
            n if n == rows => Ok(()),
            n => Err(SqlError::here(format!(
                "{n} of {rows} rows for {} were taken as they are",
                self.table
            ))),
        }
    }
}

impl Drop for Rows<'_> {
    /// Who stops early leaves no stream open. What it says is of no interest any more.
    fn drop(&mut self) {
        if self.streamed == Some(true) && self.waiting > 0 {
            let _ = self.session.copy_end();
        }
    }
}

/// A text as [`Rows`] take it.
pub(crate) fn text(text: &str, into: &mut String) {
    into.push('\'');
    into.push_str(&text.replace('\'', "''"));
    into.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::on_databases::on_each;
    use crate::db::sql::{Answer, Dialect};

    /// What somewhere means more than itself; `None` is NULL.
    const ODD: [Option<&str>; 11] = [
        Some("it's"),
        Some("'"),
        Some("''"),
        Some("',1"),
        Some(r"back\slash\n \"),
        Some(r"\."),
        Some("NULL"),
        None,
        Some(""),
        Some("a,(b)"),
        Some("two\nlines"),
    ];

    fn put(session: &mut dyn Session, rows: u64) -> Result<()> {
        let mut all = Rows::of(session, "odd (n, t)");
        for n in 0..rows {
            all.row(|s| {
                s.push_str(&format!("{n},"));
                match ODD[n as usize % ODD.len()] {
                    Some(odd) => text(odd, s),
                    None => s.push_str("NULL"),
                }
            })?;
        }
        all.flush()
    }

    fn there(session: &mut dyn Session) -> i64 {
        let mut answer = Answer::default();
        (session.query("SELECT COUNT(*) FROM odd", &mut answer)).unwrap();
        answer.int(0, 0).unwrap()
    }

    /// Many, so that they are more than is sent at once and than is in a statement.
    fn come_as_they_are(session: &mut dyn Session) {
        const MANY: u64 = 11_000;
        session.batch("DELETE FROM odd").unwrap();
        put(session, MANY).unwrap();
        let mut answer = Answer::default();
        let sql = "SELECT n, t, CASE WHEN t IS NULL THEN 1 ELSE 0 END FROM odd ORDER BY n";
        session.query(sql, &mut answer).unwrap();
        assert_eq!(answer.rows(), MANY as usize);
        for row in 0..answer.rows() {
            let odd = ODD[row % ODD.len()];
            assert_eq!(answer.int(row, 0).unwrap(), row as i64);
            assert_eq!(answer.text(row, 1), odd.unwrap_or(""), "{row}");
            assert_eq!(answer.int(row, 2).unwrap() == 1, odd.is_none(), "{row}");
        }
        // Rows that are there are refused, whole, and statements go on.
        assert!(put(session, 3).is_err());
        assert_eq!(there(session), MANY as i64);
        // Who stops early leaves a session that takes statements.
        session.batch("DELETE FROM odd").unwrap();
        {
            let mut all = Rows::of(session, "odd (n, t)");
            (0..3).for_each(|n| all.row(|s| s.push_str(&format!("{n},''"))).unwrap());
        }
        assert_eq!(there(session), 0);
        session.batch("DELETE FROM nowhere").unwrap_err();
        let mut nowhere = Rows::of(session, "nowhere");
        let filled = nowhere.row(|s| s.push('1'));
        filled.and_then(|()| nowhere.flush()).unwrap_err();
        assert_eq!(there(session), 0);
    }

    #[test]
    fn rows_come_as_they_are() {
        on_each("rows_come_as_they_are", &|database| {
            let mut session = database.connect().unwrap();
            (session.batch("CREATE TABLE odd (n INT PRIMARY KEY, t VARCHAR(40))")).unwrap();
            let streams = session.copy_begin("odd").unwrap();
            assert_eq!(streams, database.dialect() != Dialect::Sqlite);
            if streams {
                assert_eq!(session.copy_end().unwrap(), 0);
            }
            come_as_they_are(&mut *session);
            if database.dialect() == Dialect::Mysql {
                // Of files, nothing is sent.
                let file = "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE odd";
                let said = session.batch(file).unwrap_err();
                assert!(said.message.contains("sends no files"), "{said}");
                assert_eq!(there(&mut *session), 0);
                session.batch("SET GLOBAL local_infile=0").unwrap();
                let mut other = database.connect().unwrap();
                assert!(!other.copy_begin("odd").unwrap());
                come_as_they_are(&mut *other);
            }
        });
    }
}
