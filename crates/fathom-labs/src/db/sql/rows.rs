//! Many rows by few statements, as a database is filled.

use super::{Result, Session};

/// Rows of one table on their way into it.
pub(crate) struct Rows<'a> {
    session: &'a mut dyn Session,
    table: &'static str,
    sql: String,
    waiting: u32,
}

impl<'a> Rows<'a> {
    /// Rows of one statement.
    const BATCH: u32 = 250;

    /// Into a table, which may have its columns behind its name.
    pub(crate) fn of(session: &'a mut dyn Session, table: &'static str) -> Self {
        Self {
            session,
            table,
            sql: String::new(),
            waiting: 0,
        }
    }
    /// `fill` writes the values of a row.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn row(&mut self, fill: impl FnOnce(&mut String)) -> Result<()> {
        if self.waiting == 0 {
            self.sql.clear();
            self.sql.push_str("INSERT INTO ");
            self.sql.push_str(self.table);
            self.sql.push_str(" VALUES (");
        } else {
            self.sql.push_str(",(");
        }
        fill(&mut self.sql);
        self.sql.push(')');
        self.waiting += 1;
        if self.waiting == Self::BATCH {
            self.flush()?;
        }
        Ok(())
    }
    /// What still waits.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.waiting > 0 {
            self.waiting = 0;
            self.session.batch(&self.sql)?;
        }
        Ok(())
    }
}
