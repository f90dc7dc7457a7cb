//! Files, logs and the terms of the output of a section.

use std::path::{Path, PathBuf};

use fathom_io::job::Advice;
use fathom_telemetry::{Nanos, Op};

use super::{Logs, Place, Terms, Unified};
use crate::FioError;
use crate::options::EngineFate;
use crate::options::value;
use crate::section::{Section, files_below, names};

pub(super) fn logs(s: &Section) -> Logs {
    let prefix = |name: &str| {
        s.get(name).map(|v| {
            if v.is_empty() {
                s.name.clone()
            } else {
                v.to_owned()
            }
        })
    };
    Logs {
        bandwidth: prefix("write_bw_log"),
        latency: prefix("write_lat_log"),
        iops: prefix("write_iops_log"),
        histogram: prefix("write_hist_log"),
        histogram_ms: s.number("log_hist_msec").unwrap_or(0),
        coarseness: s.number("log_hist_coarseness").unwrap_or(0).min(6) as u32,
        packed: s.flag("log_store_compressed", false),
        epoch: s.flag("log_alternate_epoch", false),
        average_ms: s.number("log_avg_msec").unwrap_or(0),
        per_job: s.flag("per_job_logs", true),
        offset: s.flag("log_offset", false),
        priority: s.flag("log_prio", false),
        issue_time: s.flag("log_issue_time", false),
        both: s.get("log_window_value").is_some_and(|v| v == "both"),
        largest: s
            .get("log_window_value")
            .is_some_and(|v| matches!(v, "max" | "1")),
    }
}

/// What the kernel is told of the accesses to come (`fadvise_hint`).
pub(super) fn advice(s: &Section, random: bool) -> Option<Advice> {
    match s.get("fadvise_hint").unwrap_or("1") {
        "0" => None,
        "random" => Some(Advice::Random),
        "sequential" => Some(Advice::Sequential),
        "noreuse" => Some(Advice::NoReuse),
        _ if random => Some(Advice::Random),
        _ => Some(Advice::Sequential),
    }
}

/// Where a regular file ends to which is appended (`file_append`); `others` are its files beside the first.
pub(super) fn end_of_file(
    s: &Section,
    first: &Place,
    others: usize,
) -> Result<Option<u64>, FioError> {
    let Place::Path(path) = first else {
        return Ok(None);
    };
    if !s.flag("file_append", false) {
        return Ok(None);
    }
    if others > 0 {
        let why = "it works with one file: leave out nrfiles";
        return Err(FioError::unsupported(&s.name, "file_append", why));
    }
    let known = std::fs::metadata(path).ok().filter(|m| m.is_file());
    Ok(known.map(|m| m.len()))
}

/// What of a log is not replayed (`replay_skip`).
pub(super) fn left_out(s: &Section) -> Result<Vec<Op>, FioError> {
    let words = s.get("replay_skip").unwrap_or("").split(',');
    words
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .map(|word| match word {
            "read" => Ok(Op::Read),
            "write" => Ok(Op::Write),
            "trim" => Ok(Op::Trim),
            "sync" => Ok(Op::Sync),
            _ => Err(s.invalid(
                "replay_skip",
                format!("'{word}' is not possible: expected read, write, trim, sync"),
            )),
        })
        .collect()
}

/// The directory in which a job makes files of its own names.
pub(super) fn base(s: &Section, clone: u32) -> Option<PathBuf> {
    let directories = s.get("directory").map(names).unwrap_or_default();
    s.file_names().is_empty().then(|| match &directories[..] {
        [] => PathBuf::from("."),
        all => PathBuf::from(&all[clone as usize % all.len()]),
    })
}

/// The files of a job, at least one.
pub(super) fn places(
    s: &Section,
    clone: u32,
    fate: EngineFate,
    files: u64,
) -> Result<Vec<Place>, FioError> {
    if matches!(fate, EngineFate::Null | EngineFate::Apart) {
        let all = if s.engine() == "http" {
            paths(s, clone, files)?.len()
        } else {
            1
        };
        return Ok(vec![Place::Null; all]);
    }
    let job = &s.name;
    if files > 1024 {
        return Err(FioError::value(
            job,
            "nrfiles",
            format!("{files} files are not possible: expected at most 1024"),
        ));
    }
    if let Some(model) = s.get("filename").filter(|f| f.starts_with("sim:")) {
        return Ok(vec![Place::Sim(model.to_owned())]);
    }
    let all = paths(s, clone, files)?;
    Ok(all.into_iter().map(Place::Path).collect())
}

/// The names of a job's files.
pub(super) fn paths(s: &Section, clone: u32, files: u64) -> Result<Vec<PathBuf>, FioError> {
    let job = &s.name;
    check_opendir(s)?;
    let names = s.file_names();
    if names.iter().any(|n| n == "-") {
        return Err(FioError::unsupported(job, "filename=-", "name a file"));
    }
    let directories = s.get("directory").map(self::names).unwrap_or_default();
    let directory = (!directories.is_empty())
        .then(|| PathBuf::from(&directories[clone as usize % directories.len()]));
    let format = s
        .text("filename_format")
        .unwrap_or("$jobname.$jobnum.$filenum");
    let named = std::path::Path::new(job);
    if names.is_empty() && files == 1 && named.exists() && !named.is_file() && !named.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let made = |i: u64| {
        format
            .replace("$jobname", job)
            .replace("$jobnum", &clone.to_string())
            .replace("$filenum", &i.to_string())
            .replace("$clientuid", "localhost")
    };
    let all: Vec<String> = if names.is_empty() {
        (0..files).map(made).collect()
    } else {
        names
    };
    Ok(all
        .into_iter()
        .map(|n| match &directory {
            Some(d) => d.join(n),
            None => PathBuf::from(n),
        })
        .collect())
}

/// A directory that was named must have files.
fn check_opendir(s: &Section) -> Result<(), FioError> {
    let Some(name) = s.text("opendir") else {
        return Ok(());
    };
    let bad = |why: String| Err(s.invalid("opendir", why));
    match files_below(Path::new(name)) {
        Ok(files) if files.is_empty() => bad(format!("'{name}' holds no files")),
        Ok(_) => Ok(()),
        Err(e) => bad(format!("'{name}' could not be read: {e}")),
    }
}

/// Files that a log names, or the one that takes their place.
pub(super) fn replayed(s: &Section, log: &crate::feed::replay::Replay) -> Vec<Place> {
    match s.text("replay_redirect") {
        Some(name) => vec![Place::Path(PathBuf::from(name)); log.files.len()],
        None => log.files.iter().cloned().map(Place::Path).collect(),
    }
}

pub(super) fn terms(
    s: &Section,
    recipe: &super::recipe::Recipe,
    synchronous: bool,
    depth: u32,
    continue_on_error: bool,
) -> Result<Terms, FioError> {
    let mut percentiles: Vec<f64> = s
        .get("percentile_list")
        .unwrap_or("1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99")
        .split(':')
        .filter_map(value::float)
        .filter(|p| *p > 0.0 && *p <= 100.0)
        .collect();
    percentiles.sort_by(f64::total_cmp);
    let reduce = s.flag("gtod_reduce", false);
    let sample = |name: &str| Nanos::from_millis(s.number(name).unwrap_or(500).max(1));
    Ok(Terms {
        percentiles,
        percentiles_of: [
            s.flag("slat_percentiles", false),
            s.flag("clat_percentiles", true),
            s.flag("lat_percentiles", false),
        ],
        disabled: [
            reduce || s.flag("disable_slat", false),
            reduce || s.flag("disable_clat", false),
            reduce || s.flag("disable_lat", false),
        ],
        no_samples: reduce || s.flag("disable_bw_measurement", false),
        group_reporting: s.flag("group_reporting", false),
        unified: match s.get("unified_rw_reporting") {
            Some("mixed" | "1") => Unified::Mixed,
            Some("both" | "2") => Unified::Both,
            _ => Unified::None,
        },
        description: s.get("description").unwrap_or("").to_owned(),
        sample: [sample("bwavgtime"), sample("iopsavgtime")],
        continue_on_error,
        engine: s.engine().to_owned(),
        synchronous,
        depth,
        latency: (
            s.nanos("latency_target").unwrap_or(0) / 1000,
            s.get("latency_percentile")
                .and_then(value::float)
                .unwrap_or(100.0),
            s.nanos("latency_window").unwrap_or(0) / 1000,
        ),
        stats: s.flag("stats", true),
        disk_util: s.flag("disk_util", true),
        rw: match s.get("rw").unwrap_or("read").split([':', ',']).next() {
            Some("readwrite") => "rw".to_owned(),
            word => word.unwrap_or("read").to_owned(),
        },
        blocks: [0, 1, 2].map(|i: usize| (recipe.sizes[i].min(), recipe.sizes[i].max())),
        digits: s.number("significant_figures").unwrap_or(4).clamp(1, 10) as usize,
        percentile_digits: s.get("percentile_list").map_or(2, |list| {
            let digits = |p: &str| p.split_once('.').map_or(0, |d| d.1.len());
            list.split(':').map(digits).max().unwrap_or(0)
        }),
        kb_base: s.kb_base(),
        unit_base: s.number("unit_base").unwrap_or(0),
    })
}
