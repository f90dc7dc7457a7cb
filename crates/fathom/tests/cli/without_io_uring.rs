//! Machines on which io_uring is disabled: fathom measures with threads and says so.

use crate::common::{Place, beside_others, codes, deny_io_uring, skip, wait};

#[test]
fn where_io_uring_is_denied_threads_measure_instead_and_the_result_says_so() {
    let _turn = beside_others();
    for depth in ["1", "32"] {
        let place = Place::new();
        let mut command = place.command(&[
            "run", ".", "--size", "8m", "--rw", "randread", "--qd", depth, "--time", "200ms",
            "--json",
        ]);
        deny_io_uring(&mut command);
        let Ok(child) = command.spawn() else {
            return skip("this kernel has no seccomp filters");
        };
        let run = crate::common::end(child).expect(0).json();
        let job = &run["jobs"][0];
        assert_eq!(job["engine"], "preadv");
        assert!(
            codes(&job["flags"]).contains(&"engine-fallback".to_owned()),
            "{}",
            job["flags"]
        );
        let remedy = job["flags"].to_string();
        assert!(remedy.contains("--engine preadv"), "{remedy}");
        assert!(job["read"]["ios"].as_u64().unwrap() > 0);
        assert_eq!(job["qd_requested"].to_string(), depth);
        assert!(place.names().is_empty());
    }
}

#[test]
fn preadv_asked_for_by_name_needs_no_io_uring_and_gets_no_flag() {
    let _turn = beside_others();
    let place = Place::new();
    let mut command = place.command(&[
        "run",
        "data",
        "--create",
        "--size",
        "8m",
        "--rw",
        "randwrite",
        "--qd",
        "4",
        "--ios",
        "400",
        "--engine",
        "preadv",
        "--json",
    ]);
    deny_io_uring(&mut command);
    let run = wait(command).expect(0).json();
    let flags = codes(&run["jobs"][0]["flags"]);
    assert!(!flags.contains(&"engine-fallback".to_owned()), "{flags:?}");
    assert_eq!(run["jobs"][0]["write"]["ios"], 400);
}
