//! fathom's own tree under the load.

use fathom_kv::{Engine, Stats};

use super::Tree;
use crate::LabError;

impl Tree for Engine {
    fn get(&self, _: usize, key: u64, value: &mut Vec<u8>) -> Result<bool, LabError> {
        Ok(Engine::get(self, key, value)?)
    }
    fn put(&self, _: usize, key: u64, value: &[u8]) -> Result<(), LabError> {
        Engine::put(self, key, value)?;
        Ok(())
    }
    fn scan(&self, _: usize, first: u64, limit: usize) -> Result<usize, LabError> {
        Ok(Engine::scan(self, first, limit, |_, _| ())?)
    }
    fn stats(&self) -> Stats {
        Engine::stats(self)
    }
}
