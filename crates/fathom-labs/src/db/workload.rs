//! What clients do on a database: tables and transactions, in the words of any of them.

use fathom_telemetry::Op;

use super::sql::{Dialect, Result, Session};

/// Tables, and transactions on them.
pub(crate) trait Workload: Sync {
    /// Kinds of transactions that are recorded each for itself: a name, and whether it reads or writes.
    fn kinds(&self) -> Vec<(String, Op)>;

    /// Whether a try that follows another is of the same kind ([`Transactions::undone`]).
    fn keeps_kind(&self) -> bool {
        false
    }

    /// Makes and fills the tables; ends early where `stop` says so.
    ///
    /// # Errors
    /// What the database says.
    fn fill(
        &self,
        session: &mut dyn Session,
        dialect: Dialect,
        seed: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<()>;

    /// A client with a connection of its own and all its statements prepared. The seed is its own, too: no other client has it.
    ///
    /// # Errors
    /// What the database says.
    fn client<'a>(
        &'a self,
        session: &'a mut dyn Session,
        dialect: Dialect,
        number: u32,
        seed: u64,
    ) -> Result<Box<dyn Transactions + 'a>>;

    /// Wakes clients that wait for something else than the database: the load is over.
    fn end(&self) {}
}

/// Transactions of one client.
pub(crate) trait Transactions: Send {
    /// Does one, whole; returns the number of its kind. What the database undid (a deadlock) is rolled back here, and the error's
    /// `again` says that it may be tried again.
    ///
    /// # Errors
    /// What the database says.
    fn transaction(&mut self) -> Result<usize>;

    /// The kind of what was undone, where the next try is of the same.
    fn undone(&self) -> Option<usize> {
        None
    }

    /// What was undone is not tried again: the next one is another.
    fn give_up(&mut self) {}
}

/// Which of these `at`, drawn below the sum of their weights, falls on.
pub(super) fn chosen(weights: impl IntoIterator<Item = u64>, mut at: u64) -> usize {
    let falls = |weight| match at.checked_sub(weight) {
        Some(left) => {
            at = left;
            false
        }
        None => true,
    };
    weights.into_iter().position(falls).unwrap_or(0)
}
