//! What applications do: copying many files, and swapping.

pub mod copy;
pub mod swap;
