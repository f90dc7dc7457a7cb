//! What is said while a load runs, on described series: "steady" as `condition --until-steady` says it, and caches.
//!
//! The quick part of `bench/truth`, which prints the tables of docs/steady-state.md with the same series.

#[path = "truth/courses.rs"]
mod courses;
#[path = "truth/falls.rs"]
mod falls;

use courses::{MOVING, STEADY};
use falls::{FALLS, Fall};

/// A twentieth of the courses and what 60 of them scatter by: two standard errors.
const WRONG_MAX: u32 = 6;

#[test]
fn hardly_a_course_that_still_moves_is_called_steady_at_any_of_all_looks() {
    for (i, kind) in MOVING.iter().enumerate() {
        if kind.name.contains("no byte floor") {
            continue;
        }
        let c = courses::count(i, kind, 25.0, None, 0..60);
        assert!(c.wrong <= WRONG_MAX, "{}: {c:?}", kind.name);
    }
}

#[test]
fn steady_courses_are_called_steady_and_not_late() {
    // Mean rounds of a look after every round that stopped at its first "steady", as condition once did, on the same courses:
    // see docs/steady-state.md. A quiet course waits until it was watched for as long as the planned test lasts.
    let before = [17.8, 17.5, 51.3, 34.6, 17.1, 10.8];
    for ((i, kind), before) in STEADY.iter().enumerate().zip(before) {
        let c = courses::count(MOVING.len() + i, kind, 25.0, None, 0..30);
        let mean = f64::from(c.rounds) / f64::from(c.courses);
        assert!(
            mean <= (1.75_f64 * before).max(36.0),
            "{}: {c:?}",
            kind.name
        );
        assert!(c.wrong == 0, "{}: {c:?}", kind.name);
    }
}

#[test]
fn smooth_falls_are_no_caches_and_caches_are_found_to_one_percent() {
    for (i, (name, fall)) in FALLS.iter().enumerate() {
        let c = falls::count(i, *fall, 40, (0.01, 0.05), 0..60);
        match fall {
            Fall::Cliff => assert!(c.found >= 58 && c.sized >= 56, "{name}: {c:?}"),
            Fall::CliffThenDecay => assert!(c.found >= 54, "{name}: {c:?}"),
            _ => assert!(c.found <= 1, "{name}: {c:?}"),
        }
    }
}
