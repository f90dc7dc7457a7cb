//! Experiments: plan jobs, then turn their measures into tables, charts and findings.
//!
//! An experiment stands on the spine ([`fathom_bench`]): jobs go through a bench, what was found into results. It knows
//! neither rings nor HTML.

pub mod ab;
pub mod applications;
pub mod block_layer;
pub mod burst;
pub mod coherence;
pub mod compare;
pub mod compression;
pub mod condition;
pub mod cpu;
pub mod curve;
pub mod drive;
pub mod endurance;
pub mod knee;
pub mod metadata;
pub mod mix;
pub mod neighbour;
pub mod pages;
pub mod plan;
pub mod pts;
pub mod purge;
pub mod replay;
pub mod reproduce;
pub mod scale;
pub mod sim_fit;
pub mod sizes;
pub mod slo;
pub mod stack;
pub mod survey;
pub mod tune;
pub mod workload;
pub mod zones;
