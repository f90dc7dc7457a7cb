//! Walks the whole tree and holds its parts against each other.

use std::collections::BTreeSet;

use crate::core::Core;
use crate::error::{KvError, Result};
use crate::leaf::{Leaf, NO_PAGE, Value};
use crate::sync::lock;
use crate::table::NOWHERE;

/// What a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Keys.
    pub keys: u64,
    /// Bytes of values.
    pub value_bytes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Overflow pages.
    pub overflow_pages: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Levels, the leaves included.
    pub levels: u32,
}

fn wrong<T>(what: String) -> Result<T> {
    Err(KvError::Inconsistent(what))
}

impl Core {
    pub(crate) fn check(&self) -> Result<Census> {
        let (inner, levels) = self.index.size()?;
        let mut census = Census {
            keys: 0,
            value_bytes: 0,
            leaves: 0,
            overflow_pages: 0,
            inner_nodes: u64::from(inner),
            levels: levels + 1,
        };
        let mut used = BTreeSet::new();
        let mut page = self.index.leaf(0)?;
        let mut low = 0;
        loop {
            let content = self.read_page(page)?;
            let leaf = Leaf(&content.buf);
            let entry = self.table.get(page)?;
            if leaf.low() != low || entry.low != low {
                return wrong(format!(
                    "leaf {page} begins at {}, expected {low}",
                    leaf.low()
                ));
            }
            if self.index.leaf(low)? != page {
                return wrong(format!(
                    "the inner nodes do not lead key {low} to leaf {page}"
                ));
            }
            let place = lock(&entry.at).place;
            if place != NOWHERE && !used.insert(place) {
                return wrong(format!("place {place} of leaf {page} is used twice"));
            }
            census.leaves += 1;
            census.keys += leaf.count() as u64;
            self.check_values(&leaf, (page, low), &mut census, &mut used)?;
            match (leaf.high(), leaf.right()) {
                (None, NO_PAGE) => break,
                (Some(high), right) if right != NO_PAGE && high > low => {
                    (low, page) = (high, right)
                }
                _ => {
                    return wrong(format!(
                        "leaf {page} does not say where its right neighbour is"
                    ));
                }
            }
            if census.leaves > u64::from(self.table.len()) {
                return wrong("the leaves form a circle".into());
            }
        }
        if census.leaves != u64::from(self.table.len()) {
            return wrong(format!(
                "{} of {} leaves can be reached",
                census.leaves,
                self.table.len()
            ));
        }
        Ok(census)
    }

    /// Order of a leaf's keys, and the pages of its long values.
    fn check_values(
        &self,
        leaf: &Leaf<'_>,
        (page, low): (u32, u64),
        census: &mut Census,
        used: &mut BTreeSet<u64>,
    ) -> Result<()> {
        for i in 0..leaf.count() {
            let key = leaf.key(i);
            let ordered = i == 0 || leaf.key(i - 1) < key;
            if key < low || leaf.is_left_of(key) || !ordered {
                return wrong(format!("key {key} is at the wrong place in leaf {page}"));
            }
            match leaf.value(i) {
                Value::Here(v) => census.value_bytes += v.len() as u64,
                Value::Elsewhere { len, place } => {
                    census.value_bytes += len;
                    let mut twice = None;
                    self.chain(len, place, |p, _| {
                        census.overflow_pages += 1;
                        if !used.insert(p) {
                            twice = Some(p);
                        }
                    })?;
                    if let Some(p) = twice {
                        return wrong(format!("place {p} of key {key} is used twice"));
                    }
                }
            }
        }
        Ok(())
    }
}
