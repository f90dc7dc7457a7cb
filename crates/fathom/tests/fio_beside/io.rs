//! What reaches the device: passes, hand-overs, sizes.

use std::process::Command;

use serde_json::Value;

use super::common::{Loop, alike, both, document, fathom, fio, number, scratch, skip};

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
        // Beside everything else a quarter of the reads was once found in the cache (2,299 of 3,072 came; why is not known): a pass
        // that begins warm does so three times.
        let mut seen = Vec::new();
        let cold = (0..3).any(|_| {
            let both = device.reached(TEST, &[args, &["--bs=4k", "--size=4m"]].concat());
            seen.push(both.clone());
            both.iter().all(|counts| alike(counts[0], reads))
        });
        assert!(cold, "{args:?}: {seen:?}");
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
    let args = |file: &'static str| {
        [
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
            "--output-format=json",
            file,
        ]
    };
    let of = |out: &std::process::Output, key: &str| {
        number(&document(out)["jobs"][0]["read"][key]).round() as u64
    };
    // In virtual time nothing but the job itself decides: two jobs at 1000 I/Os per second each.
    let dir = scratch();
    let modelled = fathom(dir.path(), &args("--filename=sim:ramdisk"));
    for (key, whole) in [
        ("iops_min", 2000),
        ("iops_mean", 2000),
        ("iops_max", 2000),
        ("bw_min", 8000),
        ("bw_max", 8000),
    ] {
        assert!(
            of(&modelled, key).abs_diff(whole) <= whole / 50,
            "{key}: {modelled:?}"
        );
    }
    // Whatever else the machine does: extremes of single jobs would lie below the mean of the group.
    let here = args("--filename=f");
    let theirs = fio(dir.path(), &here);
    if theirs.is_none() {
        skip("groups_add_up_their_extremes");
    }
    let ours = fathom(scratch().path(), &here);
    for out in [Some(ours), theirs].into_iter().flatten() {
        for [low, mean, high] in [
            ["iops_min", "iops_mean", "iops_max"],
            ["bw_min", "bw_mean", "bw_max"],
        ] {
            let (low, mean, high) = (of(&out, low), of(&out, mean), of(&out, high));
            assert!(low <= mean && mean <= high, "{low} {mean} {high}: {out:?}");
        }
    }
}

#[test]
fn small_blocks_fill_what_large_ones_leave() {
    // Beyond the last place where a large block fits only small ones are written, in fio and here: hundreds to
    // two thousand of them, as the last large one lies.
    let args = [
        "--name=a",
        "--rw=randwrite",
        "--bssplit=512/50:1M/50",
        "--size=16m",
        "--ioengine=null",
    ];
    let mut seen = Vec::new();
    for seed in [
        "--randseed=1",
        "--randseed=2",
        "--randseed=3",
        "--randseed=4",
    ] {
        for (i, jobs) in both(
            "small_blocks_fill_what_large_ones_leave",
            &[&args[..], &[seed]].concat(),
        )
        .iter()
        .enumerate()
        {
            let write = &jobs[0]["write"];
            assert_eq!(write["io_bytes"], 16 << 20);
            seen.resize(seen.len().max(i + 1), 0.0);
            seen[i] += number(&write["total_ios"]) / 4.0;
        }
    }
    assert!(seen.iter().all(|n| (300.0..1600.0).contains(n)), "{seen:?}");
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
