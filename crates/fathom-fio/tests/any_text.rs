//! No text makes fio's readers panic or hang: every option with any value, on the command line and in a job file, and job
//! files with changes.

use std::path::Path;

use fathom_fio::{Invocation, options, plan, to_toml};
use proptest::prelude::*;

#[path = "../../fathom-host/tests/common/fuzz.rs"]
mod fuzz;

use fuzz::{cases, changed, changes, fuzz};

/// Anything at all, and what looks like a value until a character of several bytes comes.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[-+]?[0-9]{0,20}[kmgtKMGTsuz%:,/.€µ\u{301}]{0,4}[ib€B0-9:,/%]{0,6}",
        "(zipf|pareto|zoned|normal|random|verify|time|all|none|0x|\"|')[:=]?[0-9€.,:/-]{0,12}",
    ]
}

fn read(args: &[String]) -> bool {
    let Ok(it) = Invocation::parse(args) else {
        return false;
    };
    let _ = it.script.command_line();
    let _ = it.script.cross_check(false);
    let Ok(tasks) = plan(&it.script) else {
        return false;
    };
    let _ = to_toml(&tasks);
    true
}

#[test]
fn no_value_of_any_option_makes_the_readers_panic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.fio");
    let all: Vec<_> = options::all().filter(|o| o.name != "include").collect();
    // Of each a few, or all together as many as were asked for.
    let times = cases(8 * all.len() as u64);
    fuzz(times, &(0..all.len(), value()), |(option, value)| {
        let name = all[*option].name;
        let one_line = value.replace('\n', " ");
        read(&["--name=x".to_owned(), format!("--{name}={value}")]);
        std::fs::write(&file, format!("[x]\n{name}={one_line}\n")).unwrap();
        read(&[file.display().to_string()]);
    });
}

/// Job files that use much of the format.
const FILES: [&str; 3] = [
    "; comment\n[global]\nioengine=io_uring\ndirect=1\nsize=64m\nruntime=30s\ntime_based\nfilename=/mnt/data/file:/mnt/data/other\ngroup_reporting=1\n\n[reader]\nrw=randread\nbs=4k\niodepth=32\nnumjobs=4\nrandom_distribution=zipf:1.2\nlatency_target=10ms\nlatency_window=5s\nlatency_percentile=99.9\n\n[writer]\nstonewall\nrw=randwrite:8\nbssplit=4k/60:64k/40,128k/100\nrate_iops=1000,500\nfsync=16\nthinktime=5ms\nthinktime_blocks=4\n",
    "[global]\nioengine=libaio\nrw=randrw\nrwmixread=70\nbs=4k-64k,8k\nblocksize_range=512-4k\nbsrange=4k-16k\nverify=crc32c\nverify_pattern=0xdeadbeef\"text\"%o\ndo_verify=0\nverify_backlog=1024\n[a]\ndirectory=/tmp\nnrfiles=8\nfilesize=1m-4m\nfile_service_type=zipf:1.1\nopenfiles=4\nexitall\n[b]\nfilename_format=$jobname.$jobnum.$filenum\nstartdelay=1s\nlog_avg_msec=500\nwrite_bw_log=x\nsteadystate=iops_slope:0.3%\nss_dur=60s\n",
    "[z]\nrw=write\nzonemode=zbd\nzonesize=256m\nzoneskip=0\nmax_open_zones=8\nfilename=/dev/nvme0n1\noffset=25%\nsize=50%\nio_size=2g\nioengine=io_uring_cmd\ncmd_type=nvme\nbuffer_compress_percentage=50\ndedupe_percentage=20\nrefill_buffers\ncpus_allowed=0-3,5\ncpus_allowed_policy=split\nnuma_mem_policy=bind:0\nread_iolog=trace.log\nrandom_generator=tausworthe64\nrandrepeat=0\nnorandommap\npercentile_list=50:99:99.99\ndescription=\"words\"\n",
];

#[test]
fn no_job_file_and_no_arguments_make_the_readers_panic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.fio");
    let try_file = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        read(&[file.display().to_string()])
    };
    assert!(try_file(FILES[0].as_bytes()), "it is read without changes");
    fuzz(cases(160), &(0..FILES.len(), changes()), |(n, changes)| {
        try_file(&changed(FILES[*n].as_bytes(), changes));
    });
    let arguments = (
        any::<Vec<u8>>(),
        prop::collection::vec(any::<String>(), 0..4),
    );
    fuzz(cases(160), &arguments, |(bytes, args)| {
        try_file(bytes);
        // A file of this name would be another test.
        if !args.iter().any(|a| Path::new(a).exists()) {
            read(args);
        }
    });
}
