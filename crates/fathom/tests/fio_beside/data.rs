//! What written data looks like.

use std::path::Path;
use std::process::Command;

use super::common::{fathom, fio, scratch, skip};

/// How much gzip shortens what a job wrote, as a share.
fn shortened(dir: &Path, file: &str) -> f64 {
    let path = dir.join(file);
    let out = Command::new("gzip").arg("-1c").arg(&path).output().unwrap();
    out.stdout.len() as f64 / std::fs::metadata(&path).unwrap().len() as f64
}

#[test]
fn written_data_compresses_as_it_was_asked_for() {
    const TEST: &str = "written_data_compresses_as_it_was_asked_for";
    for (extra, share) in [
        (&["--refill_buffers"][..], 1.0),
        // fathom's default is fresh data, too, at small blocks and deep queues.
        (&["--ioengine=libaio", "--iodepth=16", "--direct=1"], 1.0),
        (&["--buffer_compress_percentage=50"], 0.51),
        (
            &[
                "--buffer_compress_percentage=50",
                "--buffer_pattern=0xdeadbeef",
            ],
            0.53,
        ),
        (
            &[
                "--buffer_compress_percentage=50",
                "--buffer_compress_chunk=4k",
            ],
            0.51,
        ),
        (&["--zero_buffers"], 0.005),
        // Duplicates that are further apart than gzip sees: the share alone is asked for.
        (&["--dedupe_percentage=80"], 0.25),
        (&["--verify=crc32c", "--do_verify=0"], 1.0),
        (&["--scramble_buffers=0", "--refill_buffers=0"], 0.02),
    ] {
        let args = [
            &[
                "--name=a",
                "--filename=f",
                "--rw=write",
                "--bs=4k",
                "--size=2m",
                "--iodepth=1",
            ][..],
            extra,
            &["--output-format=json"],
        ]
        .concat();
        // What fio writes by default repeats itself: there fathom differs on purpose.
        let differs = extra.contains(&"--iodepth=16");
        for theirs in [false, true] {
            let dir = scratch();
            let out = match theirs {
                false => Some(fathom(dir.path(), &args)),
                true if differs => continue,
                true => fio(dir.path(), &args),
            };
            let Some(out) = out else {
                skip(TEST);
                continue;
            };
            assert!(out.status.success(), "{extra:?}: {out:?}");
            let found = shortened(dir.path(), "f");
            assert!(
                (found - share).abs() < 0.06,
                "{extra:?}: {found:.3}, fio: {theirs}"
            );
        }
    }
}

#[test]
fn a_working_set_has_so_many_blocks() {
    const TEST: &str = "a_working_set_has_so_many_blocks";
    let args = [
        "--name=a",
        "--filename=f",
        "--rw=write",
        "--bs=4k",
        "--size=4m",
        "--dedupe_percentage=90",
        "--dedupe_mode=working_set",
        "--dedupe_working_set_percentage=5",
    ];
    for theirs in [false, true] {
        let dir = scratch();
        let run = if theirs {
            fio
        } else {
            |d: &Path, a: &[&str]| Some(fathom(d, a))
        };
        let Some(out) = run(dir.path(), &args) else {
            return skip(TEST);
        };
        assert!(out.status.success(), "{out:?}");
        let data = std::fs::read(dir.path().join("f")).unwrap();
        let blocks: std::collections::HashSet<&[u8]> = data.chunks(4096).collect();
        // One in ten of 1024, those of the set among them.
        assert!((60..150).contains(&blocks.len()), "{}", blocks.len());
    }
}

#[test]
fn jobs_share_a_working_set_where_it_is_global() {
    let unique = |global: &str| -> usize {
        let dir = scratch();
        let args = [
            "--name=a",
            "--numjobs=2",
            "--rw=write",
            "--bs=4k",
            "--size=256k",
            "--dedupe_percentage=99",
            "--dedupe_mode=working_set",
            "--dedupe_working_set_percentage=10",
            global,
        ];
        assert!(fathom(dir.path(), &args).status.success());
        let data: Vec<u8> = ["a.0.0", "a.1.0"]
            .iter()
            .flat_map(|f| std::fs::read(dir.path().join(f)).unwrap())
            .collect();
        data.chunks(4096)
            .collect::<std::collections::HashSet<_>>()
            .len()
    };
    let (shared, apart) = (unique("--dedupe_global=1"), unique("--dedupe_global=0"));
    assert!(shared + 3 < apart, "{shared} {apart}");
}
