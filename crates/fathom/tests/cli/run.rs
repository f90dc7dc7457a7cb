//! `fathom run` on every kind of target and with every kind of load.

use std::fs;
use std::time::Instant;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;

use crate::common::{Place, alone, beside_others, codes, end, names, send, until};
use crate::contract::promised;

fn job<'a>(run: &'a Value, name: &str) -> &'a Value {
    run["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|j| j["name"] == name)
        .unwrap_or_else(|| panic!("no job {name} in {}", run["jobs"]))
}

fn ios(job: &Value, direction: &str) -> u64 {
    job[direction]["ios"].as_u64().unwrap_or(0)
}

#[test]
fn null_measures_the_generator_without_any_file() {
    let _turn = beside_others();
    let place = Place::new();
    let run = place
        .fathom(&[
            "run", "null:", "--rw", "randrw", "--qd", "32", "--time", "300ms", "--json",
        ])
        .expect(0)
        .json();
    promised(&run);
    assert_eq!(run["target"]["kind"], "null");
    let j = &run["jobs"][0];
    assert!(ios(j, "read") + ios(j, "write") > 10_000, "{j}");
    assert!((j["qd_achieved"].as_f64().unwrap() - 32.0).abs() < 1.0);
    assert!(place.names().is_empty());
}

#[test]
fn a_directory_gets_a_scratch_file_that_goes_away() {
    let _turn = beside_others();
    let place = Place::new();
    for rw in ["read", "randwrite", "randrw"] {
        place
            .fathom(&["run", ".", "--size", "8m", "--rw", rw, "--time", "100ms"])
            .expect(0);
        assert!(place.names().is_empty(), "{:?}", place.names());
    }
    assert_eq!(names(&place.runs()).len(), 3);
}

#[test]
fn a_new_file_is_filled_kept_and_used_again() {
    let _turn = beside_others();
    let place = Place::new();
    let first = place
        .fathom(&[
            "run", "data", "--create", "--size", "8m", "--rw", "randread", "--ios", "200", "--json",
        ])
        .expect(0)
        .json();
    assert_eq!(place.names(), ["data"]);
    let bytes = fs::read(place.dir.join("data")).unwrap();
    assert_eq!(bytes.len(), 8 << 20);
    assert!(
        bytes.chunks(4096).all(|b| b.iter().any(|x| *x != 0)),
        "every block was written"
    );
    assert!(!codes(&first["jobs"][0]["flags"]).contains(&"unwritten-blocks-read".to_owned()));
    // Known again by its mark, not by its name.
    fs::rename(place.dir.join("data"), place.dir.join("renamed")).unwrap();
    let second = place
        .fathom(&[
            "run",
            "renamed",
            "--rw",
            "randwrite",
            "--ios",
            "200",
            "--json",
        ])
        .expect(0)
        .json();
    assert_eq!(ios(&second["jobs"][0], "write"), 200);
    assert_eq!(place.names(), ["renamed"]);
}

#[test]
fn a_file_of_others_may_be_read_but_never_written() {
    let _turn = beside_others();
    let place = Place::new();
    let file = place.dir.join("theirs");
    fs::write(&file, vec![42; 1 << 20]).unwrap();
    place
        .fathom(&["run", "theirs", "--rw", "randread", "--ios", "100"])
        .expect(0);
    for rw in ["write", "randwrite", "rw", "trim"] {
        let sentence = place
            .fathom(&["run", "theirs", "--rw", rw, "--ios", "100"])
            .refusal();
        assert!(sentence.contains("not made by fathom"), "{sentence}");
    }
    assert_eq!(fs::read(&file).unwrap(), vec![42; 1 << 20]);
}

#[test]
fn reading_what_was_never_written_is_void() {
    let _turn = beside_others();
    let place = Place::new();
    fs::File::create(place.dir.join("holes"))
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    let said = place
        .fathom(&["run", "holes", "--rw", "randread", "--ios", "100", "--json"])
        .expect(1);
    let run = said.json();
    assert!(
        codes(&run["jobs"][0]["flags"]).contains(&"unwritten-blocks-read".to_owned()),
        "{}",
        run["jobs"][0]["flags"]
    );
}

#[test]
fn a_job_file_runs_groups_together_and_the_rest_in_turn() {
    let _turn = beside_others();
    let place = Place::new();
    fs::write(
        place.dir.join("jobs.toml"),
        r#"
target = "data"
[global]
size = "8m"
time = "400ms"
[[job]]
name = "reader"
group = "mixed"
rw = "randread"
[[job]]
name = "background"
group = "mixed"
rw = "write"
bs = "64k"
rate = 200
[[job]]
name = "after"
rw = "randread"
ios = 50
time = "60s"
"#,
    )
    .unwrap();
    let run = place
        .fathom(&["run", "--jobs", "jobs.toml", "--create", "--json"])
        .expect(0)
        .json();
    promised(&run);
    let (reader, background, after) = (
        job(&run, "reader"),
        job(&run, "background"),
        job(&run, "after"),
    );
    let span = |j: &Value| {
        let start = j["start_ns"].as_u64().unwrap();
        (start, start + j["wall_ns"].as_u64().unwrap())
    };
    let (r, b, a) = (span(reader), span(background), span(after));
    assert!(r.0 < b.1 && b.0 < r.1, "at the same time: {r:?} {b:?}");
    assert!(a.0 >= r.1 && a.0 >= b.1, "afterwards: {a:?}");
    assert!(ios(reader, "read") > 0 && ios(background, "write") > 0);
    assert_eq!(ios(after, "read"), 50);
    // Options of the command line hold for all of them.
    let run = place
        .fathom(&["run", "--jobs", "jobs.toml", "--qd", "3", "--json"])
        .expect(0)
        .json();
    for j in run["jobs"].as_array().unwrap() {
        assert_eq!(j["spec"]["qd"], 3, "{j}");
    }
}

#[test]
fn a_recorded_run_has_a_row_for_every_io() {
    let _turn = beside_others();
    let place = Place::new();
    let run = place
        .fathom(&[
            "run",
            "data",
            "--create",
            "--size",
            "8m",
            "--rw",
            "randrw",
            "--bs",
            "4k:80,16k:20",
            "--qd",
            "8",
            "--threads",
            "2",
            "--ios",
            "3000",
            "--record",
            "--json",
        ])
        .expect(0)
        .json();
    let j = &run["jobs"][0];
    assert_eq!(ios(j, "read") + ios(j, "write"), 3000);
    assert!(!codes(&j["flags"]).contains(&"log-lost-records".to_owned()));
    let dir = place.the_run_dir();
    // Read with another implementation than the one that wrote it.
    let file = fs::File::open(dir.join("io.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 3000);
    let rows = reader.get_row_iter(None).unwrap().count();
    assert_eq!(rows, 3000);
    assert_eq!(
        names(&dir),
        ["io.parquet", "report.html", "run.json", "series.parquet"]
    );
}

#[test]
fn results_go_where_out_says() {
    let _turn = beside_others();
    let place = Place::new();
    place
        .fathom(&[
            "run", "null:", "--ios", "100", "--out", "deep/er", "--name", "my job",
        ])
        .expect(0);
    let runs = names(&place.dir.join("deep/er"));
    assert!(runs.len() == 1 && runs[0].ends_with("-my-job"), "{runs:?}");
}

#[test]
fn a_log_on_the_device_under_test_is_flagged() {
    let _turn = beside_others();
    let place = Place::new();
    let run = place
        .fathom(&[
            "run", ".", "--size", "4m", "--ios", "100", "--record", "--json",
        ])
        .expect(0)
        .json();
    if run["target"]["device"].is_null() {
        return crate::common::skip("the device behind this file system is not known");
    }
    assert!(codes(&run["flags"]).contains(&"log-on-tested-device".to_owned()));
}

#[test]
fn processors_that_are_kept_busy_are_said_and_compared_with_the_system_as_it_is() {
    let _turn = beside_others();
    let place = Place::new();
    let said = place.fathom(&[
        "run", "null:", "--ios", "100", "--name", "mine", "--cpu", "busy", "--json",
    ]);
    if said.stderr.contains("lowest priority is refused") {
        return crate::common::skip("SCHED_IDLE is not allowed here");
    }
    let run = said.expect(0).json();
    let jobs = run["jobs"].as_array().unwrap();
    assert_eq!(jobs[0]["name"], "mine", "what was asked for comes first");
    let busy = |j: &serde_json::Value| {
        let notes = j["engine_notes"].as_array().unwrap();
        notes
            .iter()
            .any(|n| n.as_str().unwrap().starts_with("CPU: every core"))
    };
    assert!(busy(&jobs[0]), "{}", jobs[0]);
    // Six pairs, half of them as the system is.
    assert_eq!(jobs.len(), 13);
    assert_eq!(jobs[1..].iter().filter(|j| busy(j)).count(), 6);
    let ids = |key: &str| {
        let all = run[key].as_array().unwrap().clone();
        all.iter()
            .map(|x| x["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("findings"), ["cpu-job-1"]);
    assert_eq!(ids("headlines"), ["cpu-job-1-difference"]);
    let refused = place
        .fathom(&["run", "sim:ramdisk", "--ios", "100", "--cpu", "busy"])
        .expect(2);
    assert!(
        refused.stderr.contains("no processors"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_ramp_uses_up_none_of_the_ios_that_were_asked_for() {
    let _turn = beside_others();
    let said = Place::new()
        .fathom(&["run", "null:", "--ios", "10", "--ramp", "100ms", "--json"])
        .expect(0);
    assert_eq!(said.json()["jobs"][0]["read"]["ios"], 10);
}

#[test]
fn a_job_that_ends_in_its_ramp_up_has_a_hole_and_not_a_zero() {
    let _turn = beside_others();
    let place = Place::new();
    fs::write(
        place.dir.join("jobs.toml"),
        "[global]\nsize = \"16m\"\n[[job]]\nname = \"done\"\nios = 1\n[[job]]\nname = \"cut\"\nramp = \"60s\"\ntime = \"60s\"\n",
    )
    .unwrap();
    let child = place.start(&["run", "null:", "--jobs", "jobs.toml", "--json"]);
    until("the second job runs", || {
        let file = names(&place.runs())
            .first()
            .map(|n| place.runs().join(n).join("run.json"));
        file.and_then(|f| fs::read_to_string(f).ok())
            .is_some_and(|text| text.contains("\"done\""))
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    send(child.id(), libc::SIGINT);
    let said = end(child).expect(1);
    let job = &said.json()["jobs"][1];
    let void: Vec<_> = job["flags"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f["void"] == true)
        .collect();
    assert!(!void.is_empty(), "{job}");
    assert!(
        void[0]["remedy"].as_str().unwrap().contains("ramp-up"),
        "{job}"
    );
}

#[test]
fn every_second_run_with_the_same_seed_does_the_same_io() {
    let _turn = beside_others();
    let place = Place::new();
    let offsets = || {
        let out = format!("runs-{}", names(&place.dir).len());
        place
            .fathom(&[
                "run", "null:", "--size", "1g", "--ios", "500", "--record", "--seed", "7", "--out",
                &out,
            ])
            .expect(0);
        let run = names(&place.dir.join(&out)).remove(0);
        let path = place.dir.join(out).join(run).join("io.parquet");
        let mut log = fathom_telemetry::iolog::IoLogReader::open(&path).unwrap();
        let mut offsets = Vec::new();
        loop {
            let batch = log.next_batch().unwrap();
            if batch.is_empty() {
                return offsets;
            }
            offsets.extend(batch.iter().map(|row| row.offset));
        }
    };
    let (first, second) = (offsets(), offsets());
    assert_eq!(first.len(), 500);
    assert_eq!(first, second);
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn an_open_loop_keeps_its_rate_whatever_the_target_does() {
        let _turn = alone();
        let place = Place::new();
        for arrival in ["poisson", "constant"] {
            let run = place
                .fathom(&[
                    "run",
                    "null:",
                    "--rate",
                    "20k",
                    "--arrival",
                    arrival,
                    "--qd",
                    "64",
                    "--time",
                    "1s",
                    "--json",
                ])
                .expect(0)
                .json();
            let j = &run["jobs"][0];
            let rate = j["open_loop"]["rate_achieved"].as_f64().unwrap();
            // Poisson arrivals of a second scatter by 0.7 %.
            assert!((rate - 20_000.0).abs() < 600.0, "{arrival}: {rate}");
            let r = &j["read"];
            assert!(
                r["response_ns"]["mean"].as_f64().unwrap()
                    >= r["service_ns"]["mean"].as_f64().unwrap()
            );
        }
    }

    #[test]
    fn bursts_are_followed_by_their_idle_time() {
        let _turn = alone();
        let place = Place::new();
        let run = place
            .fathom(&[
                "run", "null:", "--burst", "100/50ms", "--time", "1s", "--json",
            ])
            .expect(0)
            .json();
        let n = ios(&run["jobs"][0], "read");
        // 20 periods of 50 ms and a little; a busy machine may lose some.
        assert!((1000..=2100).contains(&n), "{n} I/Os in a second");
    }

    #[test]
    fn a_tiny_run_starts_and_ends_quickly() {
        let _turn = alone();
        let place = Place::new();
        fs::write(place.dir.join("small"), vec![1; 1 << 20]).unwrap();
        let mut walls: Vec<f64> = (0..5)
            .map(|_| {
                let begin = Instant::now();
                place
                    .fathom(&["run", "small", "--rw", "randread", "--time", "100ms"])
                    .expect(0);
                begin.elapsed().as_secs_f64() * 1e3 - 100.0
            })
            .collect();
        walls.sort_by(f64::total_cmp);
        // Shown, not asserted: a busy machine is no fault of fathom's (see bench/ for the measured figure).
        use std::io::Write;
        let _ = writeln!(
            std::io::stderr(),
            "wall time beyond the run's own: median {:.0} ms of {walls:.0?}",
            walls[2]
        );
    }
}
