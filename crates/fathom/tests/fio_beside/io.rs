//! What reaches the device: passes, hand-overs, sizes.

use std::process::Command;

use serde_json::Value;

use super::common::{Loop, alike, both, document, fathom, number, scratch};

#[test]
fn buffered_passes_begin_cold() {
    const TEST: &str = "buffered_passes_begin_cold";
    let dir = scratch();
    let Some(device) = Loop::new(TEST, dir.path(), 4) else {
        return;
    };
    for (args, reads) in [
        (&["--rw=randread", "--loops=3"][..], 3 * 1024),
        (&["--rw=randread", "--io_size=12m"], 3 * 1024),
        (
            &["--rw=read", "--loops=2", "--fadvise_hint=random"],
            2 * 1024,
        ),
        // What is mapped stays in the cache.
        (&["--rw=randread", "--ioengine=mmap", "--loops=2"], 1024),
    ] {
        for counts in device.reached(TEST, &[args, &["--bs=4k", "--size=4m"]].concat()) {
            assert!(alike(counts[0], reads), "{args:?}: {counts:?}");
        }
    }
    // A job for a time begins cold whenever it begins again.
    let args = [
        "--rw=randread",
        "--bs=4k",
        "--size=128k",
        "--time_based",
        "--runtime=300ms",
    ];
    let before = device.count()[0];
    let file = format!("--filename={}", device.path);
    let out = fathom(
        dir.path(),
        &[&args[..], &["--name=a", &file, "--output-format=json"]].concat(),
    );
    let ios = document(&out)["jobs"][0]["read"]["total_ios"]
        .as_u64()
        .unwrap();
    let reads = device.count()[0] - before;
    assert!(ios > 64 && alike(reads, ios), "{reads} of {ios}");
}

#[test]
fn asynchronous_engines_hand_over_as_fio_does() {
    const TEST: &str = "asynchronous_engines_hand_over_as_fio_does";
    let dir = scratch();
    let Some(device) = Loop::new(TEST, dir.path(), 8) else {
        return;
    };
    let base = ["--bs=4k", "--iodepth=32", "--direct=1", "--size=8m"];
    for (args, requests) in [
        (&["--rw=read", "--ioengine=libaio"][..], 2048),
        (&["--rw=write", "--ioengine=io_uring"], 2048),
        (
            // Eight completions are waited for, and as many neighbours merged.
            &[
                "--rw=read",
                "--ioengine=libaio",
                "--iodepth_batch=16",
                "--iodepth_batch_complete_min=8",
            ],
            256,
        ),
        (
            &[
                "--rw=write",
                "--ioengine=libaio",
                "--iodepth_batch=8",
                "--iodepth_low=8",
            ],
            256,
        ),
    ] {
        for counts in device.reached(TEST, &[&base[..], args].concat()) {
            let n = counts[0].max(counts[1]);
            assert!(alike(n, requests), "{args:?}: {counts:?}");
        }
    }
}

#[test]
fn a_job_whose_neighbours_were_merged_says_so() {
    const TEST: &str = "a_job_whose_neighbours_were_merged_says_so";
    let dir = scratch();
    let Some(device) = Loop::new(TEST, dir.path(), 8) else {
        return;
    };
    for (extra, flagged) in [
        (&[][..], true),
        (&["--submit-batch=1", "--complete-max=1"], false),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_fathom"))
            .args([
                "run",
                &device.path,
                "--rw=read",
                "--bs=4k",
                "--qd=32",
                "--json",
            ])
            .args(["--bytes=8m", "--out"])
            .arg(dir.path().join("runs"))
            .args(extra)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert_eq!(
            text.contains("requests-merged"),
            flagged,
            "{extra:?}: {out:?}"
        );
    }
}

#[test]
fn groups_add_up_their_extremes() {
    let args = [
        "--name=a",
        "--numjobs=2",
        "--rw=randread",
        "--bs=4k",
        "--size=1m",
        "--rate_iops=1000",
        "--runtime=1",
        "--time_based",
        "--group_reporting",
        "--iopsavgtime=200",
        "--bwavgtime=200",
    ];
    let strange = |jobs: &[Value]| {
        let expected = [
            ("iops_min", 2000.0),
            ("iops_max", 2000.0),
            ("bw_max", 8000.0),
        ];
        let each = jobs.iter().flat_map(|job| expected.map(|e| (job, e)));
        each.filter(|(job, (key, whole))| {
            let v = number(&job[0]["read"][key]);
            !(whole * 0.75..whole * 1.4).contains(&v)
        })
        .map(|(job, (key, _))| format!("{key}: {}", job[0]["read"]))
        .next()
    };
    // Another's load makes a rate fall for a while, with either tool.
    let run = || strange(&both("groups_add_up_their_extremes", &args));
    let tries: Vec<_> = (0..3).map_while(|_| run()).collect();
    assert!(tries.len() < 3, "{tries:?}");
}

#[test]
fn sizes_are_shared_and_names_of_files_add_up() {
    const TEST: &str = "sizes_are_shared_and_names_of_files_add_up";
    let dir = scratch();
    let script = dir.path().join("job.fio");
    std::fs::write(
        &script,
        "[global]\nfilename=ga\nsize=96k\nname=everywhere\n[one]\nrw=read\n[two]\nfilename=gb\nfilename=gc\nrw=write\n\
         [three]\nname=own\nfilename=ga\nrw=read\n[four]\nfilesize=32k\nsize=48k\nfilename=gd:ge\nrw=read\n\
         [five]\nfilesize=64k\nsize=1m\nfilename=gf\nrw=read\n",
    )
    .unwrap();
    let seen = |jobs: &Value| -> Vec<(String, u64)> {
        jobs.as_array()
            .unwrap()
            .iter()
            .map(|j| {
                let ios = |d: &str| j[d]["total_ios"].as_u64().unwrap();
                (
                    j["jobname"].as_str().unwrap().to_owned(),
                    ios("read") + ios("write"),
                )
            })
            .collect()
    };
    let all = both(TEST, &[script.to_str().unwrap()]);
    assert_eq!(
        seen(&all[0])[..3],
        [("one".into(), 24), ("two".into(), 24), ("own".into(), 24)]
    );
    for theirs in &all[1..] {
        assert_eq!(seen(&all[0]), seen(theirs));
    }
    // Files that are there already share it, too.
    for jobs in both(
        TEST,
        &[
            "--name=a",
            "--filename=x:y",
            "--size=64k",
            "--loops=2",
            "--rw=read",
        ],
    ) {
        assert_eq!(jobs[0]["read"]["total_ios"], 32);
    }
}
