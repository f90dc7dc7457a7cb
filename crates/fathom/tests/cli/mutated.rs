//! Files with changes that nobody meant: every command that reads one ends with 0, 1 or 2, after seconds, and says nothing
//! that a terminal obeys. (Readers alone are tried much more often, in the tests `any_*` of their crates.)

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{Place, beside_others, send};
use crate::hostile::harmless;

#[path = "../../../fathom-host/tests/common/fuzz.rs"]
mod fuzz;

use fuzz::{cases, changed, changes, fuzz};

/// Tries of each test: each is a process.
const FEW: u64 = 24;

/// A changed file may ask for hours: it is interrupted after so long.
const ENOUGH: Duration = Duration::from_secs(2);
/// An interrupted command that goes on for so long hangs.
const HANGS: Duration = Duration::from_secs(50);

/// Runs a command, interrupts it after a while, and holds how it ended.
fn tried(place: &Place, args: &[&str]) -> i32 {
    let mut command: Command = place.command(args);
    let mut child = command.spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn std::io::Read| {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    };
    let (output, interrupted) = std::thread::scope(|scope| {
        let out = scope.spawn(move || read(&mut out));
        let err = scope.spawn(move || read(&mut err));
        let began = Instant::now();
        let mut interrupted = false;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if !interrupted && began.elapsed() > ENOUGH {
                send(child.id(), libc::SIGINT);
                interrupted = true;
            }
            if began.elapsed() > HANGS {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{args:?} hangs, interrupted or not");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let output = Output {
            status,
            stdout: out.join().unwrap(),
            stderr: err.join().unwrap(),
        };
        (output, interrupted)
    });
    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let what = format!("{args:?}");
    harmless(&what, &stderr);
    if !args.contains(&"csv") {
        harmless(&what, &stdout);
    }
    assert!(!stderr.contains("panicked"), "{what}: {stderr}");
    match output.status.code() {
        Some(code @ 0..=2) => code,
        // fio has a code of its own for that.
        Some(code @ 128) if interrupted && args[0] == "fio" => code,
        _ => panic!("{what}: {:?} {stderr}", output.status),
    }
}

#[test]
fn no_mutated_run_breaks_who_reads_it() {
    let _turn = beside_others();
    let place = Place::new();
    place
        .fathom(&[
            "run", "null:", "--rw", "randrw", "--ios", "2000", "--record",
        ])
        .expect(0);
    let dir = place.the_run_dir();
    let run = dir.to_str().unwrap();
    let read: [&[&str]; 8] = [
        &["report", run, "--out", "page"],
        &["report", run, "--format", "terminal"],
        &["compare", run, run],
        &[
            "query",
            run,
            "SELECT sum(ios), count(service_histogram) FROM series",
        ],
        &["query", run, "SELECT sum(completed_ns), count(*) FROM io"],
        &["replay", run, "null:"],
        &["sim", "fit", run],
        &["report", run, "--format", "csv", "--out", "tables"],
    ];
    let files = ["run.json", "series.parquet", "io.parquet"].map(|name| dir.join(name));
    let whole = files.each_ref().map(|f| fs::read(f).unwrap());
    let inputs = (0..files.len(), 0..read.len(), changes());
    fuzz(cases(FEW), &inputs, |(file, command, changes)| {
        fs::write(&files[*file], changed(&whole[*file], changes)).unwrap();
        tried(&place, read[*command]);
        fs::write(&files[*file], &whole[*file]).unwrap();
    });
}

const JOBS: &str = "[global]\nsize = \"8m\"\nios = 500\n\n[[job]]\nname = \"reader\"\ngroup = \"together\"\nrw = \"read\"\nbs = \"128k\"\nqd = 16\n\n[[job]]\nname = \"other\"\ngroup = \"together\"\nrw = \"randread\"\nrate = 50000\nthreads = 2\ndist = \"zipf:1.2\"\n";
const FIO: &str = "[global]\nioengine=null\nsize=1m\nrw=randread\nbs=4k\niodepth=4\n\n[one]\nnumjobs=2\nrandom_distribution=zipf:1.2\n\n[two]\nstonewall\nrate_iops=20000\nthinktime=10us\nloops=2\n";
const TRACE: &str = "fio version 3 iolog\n0 f add\n130 f open\n141 f read 61440 4096\n1000 f read 937984 4096\n1200 f read 8192 65536\n1500 f close\n";

#[test]
fn no_mutated_job_model_or_trace_breaks_what_runs_it() {
    let _turn = beside_others();
    let place = Place::new();
    let model = place.fathom(&["sim", "show", "optane-900p"]).expect(0);
    let write = |name: &str, bytes: &[u8]| fs::write(place.dir.join(name), bytes).unwrap();
    let kinds: [(&str, &str, &[&str]); 5] = [
        ("jobs.toml", JOBS, &["run", "null:", "--jobs", "jobs.toml"]),
        ("job.fio", FIO, &["fio", "job.fio"]),
        (
            "model.toml",
            &model.stdout,
            &["run", "sim:model.toml", "--rw", "randrw", "--ios", "300"],
        ),
        ("model.toml", &model.stdout, &["sim", "check", "model.toml"]),
        ("trace.log", TRACE, &["replay", "trace.log", "null:"]),
    ];
    for (name, whole, command) in kinds {
        write(name, whole.as_bytes());
        let code = tried(&place, command);
        assert!(code < 2, "{command:?}: it runs without changes: {code}");
    }
    fuzz(
        cases(FEW),
        &(0..kinds.len(), changes()),
        |(kind, changes)| {
            let (name, whole, command) = kinds[*kind];
            write(name, &changed(whole.as_bytes(), changes));
            tried(&place, command);
        },
    );
}
