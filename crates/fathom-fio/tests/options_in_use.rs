//! Options that people use: in fio's examples with a standard engine, its job-file tests, and the public suites that call
//! fio (fio-plot and bench-fio, kbench, kubestr, benchmark-wrapper, PerfKitBenchmarker, ezfio, KDiskMark, YABS), with
//! those that output and logs of such jobs are shaped with. None of them is refused.

use fathom_fio::options::{self, Fate};

#[rustfmt::skip]
const IN_USE: [&str; 161] = [
    "allow_file_create", "ba", "bs", "bsrange", "bssplit", "buffer_compress_percentage",
    "buffer_pattern", "buffered", "bwavgtime", "clat_percentiles", "cmdprio", "cmdprio_bssplit",
    "cmdprio_class", "cmdprio_percentage", "continue_on_error", "cpus_allowed",
    "cpus_allowed_policy", "create_on_open", "create_only", "create_serialize", "dedupe_global",
    "dedupe_mode", "dedupe_percentage", "dedupe_working_set_percentage", "description", "direct",
    "directory", "disable_bw_measurement", "disable_clat", "disable_lat", "disable_slat",
    "disk_util", "do_verify", "end_fsync", "error_dump", "exit_what", "exitall",
    "experimental_verify", "fadvise_hint", "fallocate", "fdatasync", "file_service_type",
    "filename", "filename_format", "filesize", "fill_device", "flow", "flow_id", "flow_sleep",
    "fsync", "group_reporting", "gtod_reduce", "ignore_error", "invalidate", "io_size",
    "io_submit_mode", "iodepth", "iodepth_batch", "iodepth_batch_complete_min", "ioengine",
    "iopsavgtime", "kb_base", "lat_percentiles", "latency_percentile", "latency_run",
    "latency_target", "latency_window", "log_alternate_epoch", "log_avg_msec",
    "log_hist_coarseness", "log_hist_msec", "log_issue_time", "log_offset", "log_prio",
    "log_window_value", "loops", "max_open_zones", "name", "new_group", "norandommap", "nrfiles",
    "numa_cpu_nodes", "numa_mem_policy", "number_ios", "numjobs", "offset", "offset_align",
    "offset_increment", "openfiles", "overwrite", "per_job_logs", "percentage_random",
    "percentile_list", "pre_read", "prio", "prioclass", "ramp_time", "random_distribution",
    "random_generator", "random_sequence_stride", "randrepeat", "rate", "rate_cycle", "rate_iops",
    "rate_min", "rate_process", "read_beyond_wp", "read_iolog", "refill_buffers",
    "replay_no_stall", "replay_redirect", "runtime", "rw", "rwmixread", "rwmixwrite",
    "serialize_overlap", "significant_figures", "size", "slat_percentiles", "softrandommap",
    "startdelay", "stats", "steadystate", "steadystate_check_interval", "steadystate_duration",
    "steadystate_ramp_time", "stonewall", "sync", "thinktime", "thinktime_blocks",
    "thinktime_iotime", "thinktime_spin", "thread", "time_based", "unified_rw_reporting",
    "unit_base", "unlink", "verify", "verify_async", "verify_async_cpus", "verify_backlog",
    "verify_backlog_batch", "verify_dump", "verify_fatal", "verify_interval", "verify_offset",
    "verify_only", "verify_pattern", "verify_state_load", "verify_state_save", "wait_for",
    "write_bw_log", "write_hist_log", "write_iolog", "write_iops_log", "write_lat_log",
    "zero_buffers", "zonemode", "zonerange", "zonesize", "zoneskip",
];

const EXAMPLES: &str = "/usr/share/doc/fio/examples";
const STANDARD: [&str; 10] = [
    "sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring", "mmap", "posixaio", "null",
];

fn served(name: &str) -> Result<(), String> {
    match options::find(name) {
        None => Err(format!("{name} is not known")),
        Some(o) if o.fate == Fate::Refused => Err(format!("{name} is refused: {}", o.note)),
        Some(_) => Ok(()),
    }
}

#[test]
fn at_least_143_options_that_are_in_use_are_served() {
    let missing: Vec<String> = IN_USE.iter().filter_map(|n| served(n).err()).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let mut names: Vec<&str> = IN_USE
        .iter()
        .filter_map(|n| options::find(n).map(|o| o.name))
        .collect();
    names.sort_unstable();
    names.dedup();
    assert!(
        names.len() >= 143,
        "{} options, each counted once",
        names.len()
    );
}

#[test]
fn every_option_of_an_example_with_a_standard_engine_is_served() {
    let Ok(list) = std::fs::read_dir(EXAMPLES) else {
        println!(
            "SKIP every_option_of_an_example_with_a_standard_engine_is_served: {EXAMPLES} is missing (apt-get install fio-examples)"
        );
        return;
    };
    let mut options = std::collections::BTreeSet::new();
    let mut files = 0;
    for path in list.flatten().map(|e| e.path()) {
        if path.extension().is_none_or(|e| e != "fio") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<(&str, &str)> = text
            .lines()
            .map(|l| l.split([';', '#']).next().unwrap_or("").trim())
            .filter(|l| !l.is_empty() && !l.starts_with('['))
            .map(|l| l.split_once('=').unwrap_or((l, "")))
            .map(|(n, v)| (n.trim(), v.trim()))
            .collect();
        if !lines
            .iter()
            .all(|(n, v)| *n != "ioengine" || STANDARD.contains(v))
        {
            continue;
        }
        files += 1;
        for (name, _) in &lines {
            served(name).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            options.insert(options::find(name).map(|o| o.name));
        }
    }
    assert!(files >= 35, "{files} examples");
    assert!(options.len() >= 80, "{} options", options.len());
}
