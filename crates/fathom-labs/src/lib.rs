//! Labs: what applications get from a target. Each drives an outside part, a model of it, or the embedded
//! engine, and puts tables, charts and findings into the notebook. They know neither rings nor HTML.

pub mod app;
pub mod cache;
mod clients;
mod conclude;
mod confounders;
pub mod db;
mod error;
mod files;
pub mod fleet;
pub mod guest;
pub mod kv;
mod loads;
mod numbers;
mod page_cache;
pub mod parts;
pub mod paths;
mod played;
pub mod raid;
pub mod reproduce;
mod skipped;
pub mod vm;

pub use error::LabError;
