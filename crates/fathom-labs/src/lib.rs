//! Labs: what applications get from a target. Each drives an outside part, a model of it, or the embedded
//! engine, and puts tables, charts and findings into the notebook. They know neither rings nor HTML.

pub mod app;
pub mod cache;
mod clients;
pub mod db;
mod error;
pub mod guest;
pub mod kv;
mod loads;
pub mod paths;
mod prepare;
pub mod raid;
mod skipped;
pub mod vm;

pub use error::LabError;
use fathom_bench::results::Presenter;

/// Every kind of result of this room; a new one is a line here.
pub const PRESENTERS: &[Presenter] = &[
    Presenter::of::<app::copy::CopyResult>(),
    Presenter::of::<app::swap::SwapResult>(),
    Presenter::of::<cache::CacheResult>(),
    Presenter::of::<kv::KvResult>(),
    Presenter::of::<db::oltp::OltpResult>(),
    Presenter::of::<db::rocksdb::RocksResult>(),
    Presenter::of::<db::tpcc::TpccResult>(),
    Presenter::of::<paths::PathsResult>(),
    Presenter::of::<raid::RaidResult>(),
    Presenter::of::<raid::within::WithinResult>(),
    Presenter::of::<vm::VmResult>(),
    Presenter::of::<vm::filesystems::FilesResult>(),
    Presenter::of::<vm::layers::LayersResult>(),
    Presenter::of::<vm::within::SidesResult>(),
];
