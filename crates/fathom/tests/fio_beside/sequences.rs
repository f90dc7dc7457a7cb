//! Random jobs do the I/O that fio does: the same directions, offsets and sizes in the same order.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use super::common::{fio, scratch, skip};

/// Reads, writes and trims of an I/O log: file, direction, offset, length.
type Sequence = Vec<(String, String, u64, u64)>;

fn sequence(dir: &Path, job: usize) -> Sequence {
    let log = std::fs::read_to_string(dir.join(format!("log{job}"))).unwrap_or_default();
    let io = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., file, direction, offset, len] = words[..] else {
            return None;
        };
        // After which I/O fio syncs differs between its versions.
        let moved = ["read", "write", "trim"].contains(&direction);
        let (offset, len) = (offset.parse().ok()?, len.parse().ok().filter(|_| moved)?);
        Some((file.to_owned(), direction.to_owned(), offset, len))
    };
    log.lines().filter_map(io).collect()
}

/// The version of the fio that is installed: 3.33, say.
fn installed(dir: &Path) -> Option<String> {
    let said = String::from_utf8(fio(dir, &["--version"])?.stdout).unwrap();
    let number = said.trim().trim_start_matches("fio-");
    Some(number.split('-').next().unwrap_or(number).to_owned())
}

/// fathom with the seeds of this version of fio.
fn fathom_as(version: &str, dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fathom"))
        .arg("fio")
        .args(args)
        .current_dir(dir)
        .env("FATHOM_FIO_SEEDS", version)
        .output()
        .unwrap()
}

/// The jobs as a file; each writes its own log.
fn job_file(jobs: &[&str]) -> String {
    let global = "size=1m\nbs=4k\nioengine=psync\nthread\nfilename_format=$jobname.$filenum\n";
    let mut text = format!("[global]\n{global}");
    for (i, job) in jobs.iter().enumerate() {
        let options = job.replace(' ', "\n");
        let _ = write!(text, "[j{i}]\n{options}\nwrite_iolog=log{i}\n");
    }
    text
}

#[test]
fn the_same_blocks_in_the_same_order() {
    let (mine, theirs) = (scratch(), scratch());
    let Some(number) = installed(theirs.path()) else {
        return skip("the_same_blocks_in_the_same_order");
    };
    let jobs: Vec<&str> = JOBS.lines().filter(|l| !l.is_empty()).collect();
    for dir in [&mine, &theirs] {
        std::fs::write(dir.path().join("jobs.fio"), job_file(&jobs)).unwrap();
    }
    let out = fathom_as(&number, mine.path(), &["jobs.fio"]);
    assert!(out.status.success(), "{out:?}");
    let out = fio(theirs.path(), &["jobs.fio"]).unwrap();
    assert!(out.status.success(), "{out:?}");
    let mut differ = BTreeMap::new();
    for (i, job) in jobs.iter().enumerate() {
        let (a, b) = (sequence(mine.path(), i), sequence(theirs.path(), i));
        assert!(!b.is_empty(), "{job}: fio wrote no log");
        if a != b {
            let first = (0..).find(|i| a.get(*i) != b.get(*i)).unwrap_or(0);
            let from = |s: &Sequence| s.iter().skip(first).take(3).cloned().collect::<Vec<_>>();
            differ.insert(job, (a.len(), b.len(), first, from(&a), from(&b)));
        }
    }
    assert!(differ.is_empty(), "{number}: {differ:#?}");
    println!("{} jobs as fio {number} does them", jobs.len());
}

/// One job per line, of 1 MiB in blocks of 4 KiB where it says nothing else. All run at the same time, as threads of a
/// number each, which changes their seeds.
const JOBS: &str = "
rw=randread
rw=randwrite
rw=randrw
rw=randrw rwmixread=70
rw=rw rwmixread=30
rw=rw:4 rwmixread=60
rw=randrw:3 rwmixread=60 bsrange=4k-16k
rw=randread norandommap=1
rw=randread random_generator=tausworthe64
rw=randread random_generator=lfsr
rw=randwrite random_generator=lfsr size=1000k
rw=randrw random_generator=lfsr loops=2
rw=randrw random_generator=lfsr bsrange=4k-16k
rw=randread bsrange=4k-64k
rw=randread bsrange=4k-4k
rw=randrw bsrange=4k-32k,4k-64k
rw=randread bsrange=1k-10k bs_unaligned=1 size=100k
rw=randread bsrange=3k-20k size=300k
rw=randwrite bssplit=4k/50:16k/30:64k/20
rw=randread bssplit=4k/10:512/80:1k/ size=256k
rw=randread bssplit=4k/100:8k/0
rw=randrw bssplit=4k/50:8k/50,16k/100
rw=rw bssplit=4k/50:16k/
rw=read bsrange=4k-64k
rw=write bssplit=4k/60:32k/40
rw=read:8k
rw=write:-12k size=512k
rw=randread percentage_random=30
rw=randrw percentage_random=50,10
rw=randread:4
rw=randwrite:8 rw_sequencer=identical
rw=randread random_distribution=zipf:1.2
rw=randread random_distribution=zipf:0.8:0.3
rw=randrw random_distribution=pareto:0.3
rw=randread random_distribution=pareto:0.2:0.1
rw=randread random_distribution=normal
rw=randread random_distribution=normal:20
rw=randread random_distribution=normal:10:0.7
rw=randread random_distribution=zoned:60/10:30/20:10/70
rw=randread random_distribution=zoned:60/10:30/20:10/
rw=randrw random_distribution=zoned_abs:60/64k:40/512k
rw=randread blockalign=512
rw=randread blockalign=8k
rw=randread bs=8k,16k,4k
rw=randread bs=16k,4k
rw=randrw bs=4k,16k
rw=randread bs=3000 size=1000k
rw=randread bs_is_seq_rand=1 bs=4k,16k percentage_random=50
rw=randread nrfiles=4
rw=randread nrfiles=4 openfiles=2
rw=randread nrfiles=4 file_service_type=random
rw=randread nrfiles=4 file_service_type=random:3
rw=randrw nrfiles=4 file_service_type=roundrobin:5
rw=randread nrfiles=4 file_service_type=sequential
rw=randread nrfiles=4 file_service_type=zipf:1.2 number_ios=500
rw=randread nrfiles=4 file_service_type=pareto:0.3 number_ios=500
rw=randread nrfiles=4 file_service_type=normal:20 number_ios=500
rw=randread nrfiles=3 filesize=200k-500k
rw=randread nrfiles=3 filesize=300k
rw=read nrfiles=3
rw=rw nrfiles=3
rw=read loops=3 nrfiles=2
rw=randread loops=3
rw=randread loops=3 norandommap=1
rw=randread loops=3 norandommap=1 randseed=5
rw=randread loops=3 randseed=77
rw=randrw loops=2 rwmixread=80
rw=randread loops=2 number_ios=100
rw=randrw loops=2 number_ios=400 bsrange=4k-16k
rw=randread randseed=1234567
rw=randread offset=256k
rw=randread offset=100k size=777k
rw=randread number_ios=77
rw=randread io_size=3m
rw=randrw io_size=2500k
rw=randread io_size=300k
rw=randwrite size=300k io_size=130k
rw=randwrite size=130k filesize=1m
rw=randread zonemode=strided zonesize=64k zonerange=128k zoneskip=64k
rw=randread zonemode=strided zonesize=256k zonerange=128k io_size=2m
rw=read zonemode=strided zonesize=64k zoneskip=64k io_size=512k
rw=randwrite verify=crc32c
rw=randwrite verify=crc32c bsrange=4k-16k
rw=randrw verify=crc32c bssplit=4k/50:8k/
rw=randrw rwmixread=70 verify=crc32c loops=2
rw=randwrite verify=crc32c verify_backlog=16
rw=randwrite verify=crc32c norandommap=1
rw=randrw fsync=10 rwmixread=20
rw=randread ioengine=libaio iodepth=8 iodepth_batch=4
rw=randrw ioengine=libaio iodepth=8
";

#[test]
fn offsets_are_those_of_two_known_versions() {
    let first = |version: &str, args: &str| -> Vec<u64> {
        let dir = scratch();
        std::fs::write(dir.path().join("jobs.fio"), job_file(&[args])).unwrap();
        let out = fathom_as(version, dir.path(), &["jobs.fio"]);
        assert!(out.status.success(), "{out:?}");
        sequence(dir.path(), 0)
            .iter()
            .take(4)
            .map(|io| io.2)
            .collect()
    };
    // As fio 3.42 and 3.33 wrote them.
    let [new, old] = [
        [1_024_000, 905_216, 688_128, 540_672],
        [61_440, 774_144, 880_640, 491_520],
    ];
    assert_eq!(first("", "rw=randread"), new);
    assert_eq!(first("3.42", "rw=randwrite"), new);
    assert_eq!(first("3.33", "rw=randread"), old);
    let seeded = "rw=randread randseed=77";
    assert_eq!(first("3.42", seeded), [573_440, 741_376, 413_696, 217_088]);
    assert_eq!(first("3.33", seeded), old, "they did not depend on it");
    let any = "rw=randread randrepeat=0";
    assert_ne!(first("", any), first("", any));
    let dir = scratch();
    let out = fathom_as(
        "new",
        dir.path(),
        &["--name=a", "--rw=randread", "--size=4k"],
    );
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && said.contains("FATHOM_FIO_SEEDS=new"),
        "{said}"
    );
}

#[test]
fn jobs_that_share_a_log_add_to_it() {
    let dir = scratch();
    let args = "--name=j --rw=randread --size=64k --numjobs=3 --write_iolog=log0";
    for _ in 0..2 {
        let out = fathom_as("", dir.path(), &args.split(' ').collect::<Vec<_>>());
        assert!(out.status.success(), "{out:?}");
        // What an earlier run wrote is replaced.
        let mut all = sequence(dir.path(), 0);
        assert_eq!(all.len(), 48);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 48, "each block of three files");
    }
}

#[test]
fn each_io_is_said_on_request() {
    let dir = scratch();
    let args = "--name=j --ioengine=null --rw=randrw --size=64k --bs=4k --debug=io";
    let args: Vec<&str> = args.split(' ').collect();
    let lines = |out: &Output| -> Vec<String> {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let what = |l: &str| {
            Some(
                l.split_once(" complete: ")?
                    .1
                    .split_once(": ")?
                    .1
                    .to_owned(),
            )
        };
        text.lines().filter_map(what).collect()
    };
    let Some(number) = installed(dir.path()) else {
        return skip("each_io_is_said_on_request");
    };
    let theirs = fio(dir.path(), &args).unwrap();
    let mine = fathom_as(&number, dir.path(), &args);
    assert_eq!(lines(&theirs).len(), 16, "{theirs:?}");
    assert_eq!(lines(&mine), lines(&theirs));
}
