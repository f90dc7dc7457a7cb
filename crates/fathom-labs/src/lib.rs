//! Labs: what applications get from a target. Each drives an outside part, a model of it, or the embedded
//! engine, and puts tables, charts and findings into the notebook. They know neither rings nor HTML.

pub mod app;
pub mod cache;
pub mod db;
mod error;
pub mod guest;
mod keeper;
mod kernel_threads;
pub mod kv;
mod mapper;
mod memory;
mod mounted;
mod outside;
pub mod paths;
pub mod place;
mod prepare;
pub mod raid;
pub mod remains;
mod survivors;
pub mod vm;

pub use error::LabError;
pub use mounted::file_systems;
pub use outside::bind;
