//! Experiments: plan jobs, then turn their measures into tables, charts and findings.
//!
//! An experiment stands on the spine ([`fathom_bench`]): jobs go through a bench, what was found into results. It knows
//! neither rings nor HTML.

pub mod ab;
pub mod applications;
pub mod burst;
pub mod compare;
pub mod compression;
pub mod condition;
pub mod cpu;
pub mod curve;
pub mod endurance;
pub mod knee;
pub mod mix;
pub mod pages;
pub mod pts;
pub mod replay;
pub mod reproduce;
pub mod sim_fit;
pub mod stack;
pub mod survey;
pub mod tune;
pub mod workload;

use fathom_bench::results::Presenter;

/// Every kind of result of this room; a new one is a line here.
pub const PRESENTERS: &[Presenter] = &[
    Presenter::of::<ab::AbResult>(),
    Presenter::of::<applications::ApplicationsResult>(),
    Presenter::of::<burst::BurstResult>(),
    Presenter::of::<compression::CompressionResult>(),
    Presenter::of::<condition::ConditionPlan>(),
    Presenter::of::<condition::ConditionResult>(),
    Presenter::of::<fathom_bench::steadiness::RegimesResult>(),
    Presenter::of::<cpu::CpuResult>(),
    Presenter::of::<curve::CurveResult>(),
    Presenter::of::<endurance::EnduranceResult>(),
    Presenter::of::<mix::MixResult>(),
    Presenter::of::<pages::PagesResult>(),
    Presenter::of::<pts::PtsResult>(),
    Presenter::of::<replay::ReplayResult>(),
    Presenter::of::<reproduce::Reproduction>(),
    Presenter::of::<stack::StackReport>(),
    Presenter::of::<survey::SurveyResult>(),
    Presenter::of::<tune::TuneResult>(),
    Presenter::of::<workload::Profile>(),
    Presenter::of::<workload::WorkloadResult>(),
];
