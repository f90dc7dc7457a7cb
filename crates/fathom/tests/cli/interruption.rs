//! Signals and closed pipes: what was measured is kept, what was made is removed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use crate::common::{Place, alone, beside_others, codes, end, names, scratch, send, skip, until};
use crate::contract::promised;

/// From the signal to the end of the process.
const PROMPT: Duration = Duration::from_secs(1);

#[test]
fn a_killed_run_is_found_by_the_next_one_and_cleaned_away_without_touching_others() {
    let _turn = beside_others();
    let place = Place::new();
    let mut child = place.start(&["run", ".", "--size", "16m", "--time", "60s"]);
    until("the job runs", || {
        names(&place.runs()).len() == 1 && scratch(&place.dir).is_some()
    });
    std::thread::sleep(Duration::from_millis(200));
    send(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    let left = scratch(&place.dir).expect("a killed run cannot clean up");
    // Somebody else's file with a name just like it, and one with the prefix only.
    let theirs = [".fathom-scratch-4242-0123abcd", ".fathom-scratch-notes"];
    for name in theirs {
        fs::write(place.dir.join(name), "precious").unwrap();
    }
    assert!(place.the_run()["finished"].is_null(), "it did not finish");
    for args in [
        &["run", ".", "--size", "1m", "--ios", "10"][..],
        &["survey", ".", "--size", "1m", "--dry-run"],
    ] {
        let said = place.fathom(args).expect(0);
        assert!(
            said.stderr.contains("1 scratch file") && said.stderr.contains("fathom clean ."),
            "{}",
            said.stderr
        );
    }
    let said = place.fathom(&["clean", ".", "--dry-run"]).expect(0);
    assert!(said.stdout.contains("would remove") && said.stdout.contains(&left));
    assert!(place.dir.join(&left).exists());
    let said = place.fathom(&["clean"]).expect(0);
    assert!(said.stdout.contains(&left), "{}", said.stdout);
    let mut expected = theirs.to_vec();
    expected.sort_unstable();
    assert_eq!(place.names(), expected);
    for name in theirs {
        assert_eq!(
            fs::read_to_string(place.dir.join(name)).unwrap(),
            "precious"
        );
    }
    let said = place.fathom(&["clean"]).expect(0);
    assert!(said.stdout.contains("nothing left behind"));
}

#[test]
fn a_kept_file_is_overwritten_again_after_a_signal_and_not_after_a_kill_or_a_copy() {
    let _turn = beside_others();
    let place = Place::new();
    let file = place.dir.join("kept");
    let load = [
        "run",
        "kept",
        "--create",
        "--size",
        "4m",
        "--rw",
        "randwrite",
    ];
    let with = |more: &[&'static str]| [&load[..], more].concat();
    place.fathom(&with(&["--ios", "10"])).expect(0);
    if !fathom_host::may_overwrite(&file) {
        return skip("needs a file system with user xattrs");
    }
    for (signal, code) in [(libc::SIGINT, Some(1)), (libc::SIGKILL, None)] {
        let runs = names(&place.runs()).len();
        let mut child = place.start(&with(&["--time", "60s"]));
        until("the job runs", || names(&place.runs()).len() > runs);
        std::thread::sleep(Duration::from_millis(300));
        send(child.id(), signal);
        assert_eq!(child.wait().unwrap().code(), code);
        assert_eq!(fathom_host::may_overwrite(&file), code.is_some());
    }
    let refused = |why: &str| {
        let before = fs::read(&file).unwrap();
        let said = place.fathom(&with(&["--ios", "10"])).refusal();
        assert!(said.contains(why) && said.contains("; "), "{said}");
        assert!(fs::read(&file).unwrap() == before, "bytes have changed");
        said
    };
    // The way on that the refusal names.
    let said = refused("did not end properly");
    let mark = said.split('\'').nth(1).unwrap();
    let attribute = fathom_host::mark::ATTRIBUTE;
    rustix::fs::setxattr(
        &file,
        attribute,
        mark.as_bytes(),
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    place.fathom(&with(&["--ios", "10"])).expect(0);
    fs::copy(std::env::current_exe().unwrap(), &file).unwrap();
    refused("when fathom left it");
}

#[test]
fn the_scratch_file_of_a_run_that_still_goes_on_is_not_a_leftover() {
    let _turn = beside_others();
    let place = Place::new();
    let child = place.start(&["run", ".", "--size", "16m", "--time", "60s"]);
    until("the scratch file is there", || {
        scratch(&place.dir).is_some()
    });
    let said = place.fathom(&["clean"]).expect(0);
    assert!(
        said.stdout.contains("nothing left behind"),
        "{}",
        said.stdout
    );
    assert!(scratch(&place.dir).is_some());
    send(child.id(), libc::SIGINT);
    end(child).expect(1);
    assert!(place.names().is_empty());
}

#[test]
fn a_reader_that_closes_the_pipe_leaves_no_scratch_file_behind() {
    let _turn = beside_others();
    let place = Place::new();
    let mut child = place.start(&["run", ".", "--size", "16m", "--time", "300ms", "--json"]);
    let mut line = String::new();
    let mut out = BufReader::with_capacity(1, child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    drop(out);
    assert_eq!(line, "{\n");
    end(child).expect(0);
    // And one whose reader has gone before the first line.
    let mut child = place.start(&["run", ".", "--size", "16m", "--time", "300ms"]);
    drop(child.stdout.take());
    drop(child.stderr.take());
    end(child).expect(0);
    assert!(place.names().is_empty(), "{:?}", place.names());
    assert_eq!(names(&place.runs()).len(), 2, "both runs were kept");
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn a_signal_ends_a_run_within_a_second_and_keeps_what_was_measured() {
        let _turn = alone();
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let place = Place::new();
            fs::write(
            place.dir.join("jobs.toml"),
            "[global]\nsize = \"16m\"\n[[job]]\nname = \"done\"\nios = 100\n[[job]]\nname = \"cut\"\ntime = \"60s\"\n[[job]]\nname = \"never\"\ntime = \"60s\"\n",
        )
        .unwrap();
            let child = place.start(&["run", ".", "--jobs", "jobs.toml", "--json"]);
            until("the second job runs", || {
                let file = names(&place.runs())
                    .first()
                    .map(|n| place.runs().join(n).join("run.json"));
                file.and_then(|f| fs::read_to_string(f).ok())
                    .is_some_and(|text| text.contains("\"done\""))
            });
            std::thread::sleep(Duration::from_millis(300));
            let asked = Instant::now();
            send(child.id(), signal);
            let said = end(child).expect(1);
            assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
            let run = said.json();
            promised(&run);
            let jobs = run["jobs"].as_array().unwrap();
            let of: Vec<&str> = jobs.iter().map(|j| j["name"].as_str().unwrap()).collect();
            assert_eq!(of, ["done", "cut"]);
            assert!(codes(&jobs[0]["flags"]).iter().all(|c| c != "interrupted"));
            assert!(codes(&jobs[1]["flags"]).contains(&"interrupted".to_owned()));
            assert!(jobs[1]["read"]["ios"].as_u64().unwrap() > 0);
            assert_eq!(codes(&run["flags"]), ["interrupted"]);
            assert!(run["finished"].is_string());
            assert!(place.the_run_dir().join("report.html").exists());
            assert_eq!(place.names(), ["jobs.toml"], "the scratch file is gone");
        }
    }

    #[test]
    fn a_signal_while_the_scratch_file_is_filled_leaves_nothing_behind() {
        let _turn = alone();
        // Large enough to be under way for a while, small enough for the disk that there is.
        let fits = fathom_host::space(&Place::new().dir).unwrap().fits_bytes;
        let mib = ((fits / 2) >> 20).min(2048);
        if mib < 512 {
            println!(
                "SKIP a_signal_while…: needs 1 GiB of room on the disk, has {} MiB",
                fits >> 20
            );
            return;
        }
        let size = format!("{mib}m");
        for args in [
            &["run", ".", "--size", &size, "--rw", "read", "--time", "60s"][..],
            &[
                "run", "new", "--create", "--size", &size, "--rw", "read", "--time", "60s",
            ],
            &["survey", ".", "--size", &size],
        ] {
            let place = Place::new();
            let mut child = place.start(args);
            until("a file is there", || {
                !place.names().is_empty() || child.try_wait().unwrap().is_some()
            });
            let asked = Instant::now();
            send(child.id(), libc::SIGINT);
            let said = end(child).expect(1);
            // The filling is made durable in between, which a slow disk takes its time for.
            assert!(asked.elapsed() < 5 * PROMPT, "{:?}", asked.elapsed());
            assert!(
                place.names().is_empty(),
                "{args:?}: {:?} {}",
                place.names(),
                said.stderr
            );
            let run = place.the_run();
            assert!(codes(&run["flags"]).contains(&"interrupted".to_owned()));
        }
    }

    #[test]
    fn a_signal_ends_a_survey_within_a_second_with_the_results_that_there_are() {
        let _turn = alone();
        let place = Place::new();
        let child = place.start(&["survey", ".", "--size", "16m"]);
        until("the first job is done", || {
            let file = names(&place.runs())
                .first()
                .map(|n| place.runs().join(n).join("run.json"));
            file.and_then(|f| fs::read_to_string(f).ok())
                .is_some_and(|text| text.contains("read-4k-qd1.1"))
        });
        let asked = Instant::now();
        send(child.id(), libc::SIGTERM);
        let said = end(child).expect(1);
        assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
        assert!(said.stdout.contains("Report"), "{}", said.stdout);
        let run = place.the_run();
        promised(&run);
        assert!(!run["jobs"].as_array().unwrap().is_empty());
        assert!(codes(&run["flags"]).contains(&"interrupted".to_owned()));
        assert!(
            !run["headlines"].as_array().unwrap().is_empty(),
            "analysed with what there is"
        );
        assert!(place.the_run_dir().join("report.html").exists());
        assert!(place.names().is_empty(), "{:?}", place.names());
    }

    /// The first signal winds the kernel's alarm clock (two minutes); here it rings at once.
    #[test]
    fn a_run_that_does_not_end_when_it_was_told_to_is_ended_by_force() {
        let _turn = alone();
        let place = Place::new();
        let child = place.start(&["run", ".", "--size", "16m", "--time", "60s"]);
        until("the scratch file is there", || !place.names().is_empty());
        let rang = Instant::now();
        send(child.id(), libc::SIGALRM);
        let said = end(child).expect(1);
        assert!(rang.elapsed() < PROMPT, "{:?}", rang.elapsed());
        assert!(said.stderr.contains("ended by force"), "{}", said.stderr);
    }

    #[test]
    fn signals_that_the_caller_ignores_or_repeats_do_no_harm() {
        let _turn = alone();
        let place = Place::new();
        let mut command = place.command(&["run", ".", "--size", "16m", "--time", "60s"]);
        // A group of its own, as a shell makes one; the whole group is signalled at once.
        command.process_group(0);
        let child = command.spawn().unwrap();
        until("the job runs", || names(&place.runs()).len() == 1);
        std::thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        // SAFETY: a system call without pointers; the group is the child's own.
        unsafe { libc::kill(-(child.id() as i32), libc::SIGINT) };
        end(child).expect(1);
        assert!(asked.elapsed() < PROMPT);
        assert!(place.names().is_empty());
    }
}
