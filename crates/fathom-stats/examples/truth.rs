//! Prints claim × truth × verdict for "steady" and for caches, on described series: the tables of docs/steady-state.md.
//!
//! `bench/truth` runs it; `--count N` series a line (400), `--first-seed N` others, `--only TEXT` the
//! kinds whose names begin so, `--caches` the second table alone.

#[path = "../tests/truth/courses.rs"]
mod courses;
#[path = "../tests/truth/falls.rs"]
mod falls;

use courses::{MOVING, STEADY};
use falls::FALLS;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str, usual: u64| {
        let at = args.iter().position(|a| a == name);
        at.and_then(|i| args.get(i + 1)?.parse().ok())
            .unwrap_or(usual)
    };
    let only = args
        .iter()
        .position(|a| a == "--only")
        .and_then(|i| args.get(i + 1))
        .map_or("", String::as_str);
    let (first, series) = (option("--first-seed", 0), option("--count", 400));
    let seeds = first..first + series;
    let caches_only = args.iter().any(|a| a == "--caches");
    println!("Seeds {first} to {}.\n", seeds.end - 1);
    println!(
        "| claim: \"steady\" | truth | planned test, rounds | byte floor | said | **said, and is wrong** | not said in 100 rounds, though true then | rounds, mean |"
    );
    println!("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: |");
    for (number, kind) in MOVING.iter().chain(&STEADY).enumerate() {
        let steady = number >= MOVING.len();
        if caches_only || !kind.name.starts_with(only) {
            continue;
        }
        for test in [10.0, 25.0] {
            for floor in [None, Some(70.0)] {
                if floor.is_some() && (!steady || test < 25.0) {
                    continue;
                }
                let c = courses::count(number, kind, test, floor, seeds.clone());
                let share =
                    |v: u32| format!("{:.1} %", 100.0 * f64::from(v) / f64::from(c.courses));
                let floor = match (floor, kind.name.contains("before the byte floor")) {
                    (None, false) => "none",
                    _ => "15…70 rounds",
                };
                println!(
                    "| {} | {} | {test} | {floor} | {} | **{}** | {} | {:.1} |",
                    kind.name,
                    if steady {
                        "steady"
                    } else {
                        "moves, for some time"
                    },
                    share(c.steady),
                    share(c.wrong),
                    share(c.missed),
                    f64::from(c.rounds) / f64::from(c.courses)
                );
            }
        }
    }
    println!("\n| claim: a cache or a credit | truth | noise | windows | said | size within 1 % |");
    println!("| --- | --- | --- | ---: | ---: | ---: |");
    for (number, (name, fall)) in FALLS.iter().enumerate() {
        if !name.starts_with(only) {
            continue;
        }
        for (text, noise) in [
            ("0…0.1 %", (0.0, 0.001)),
            ("1…5 %", (0.01, 0.05)),
            ("5…10 %", (0.05, 0.10)),
        ] {
            for windows in [40, 100] {
                let c = falls::count(number, *fall, windows, noise, seeds.clone());
                let share = |v: u32| format!("{:.1} %", 100.0 * f64::from(v) / f64::from(c.series));
                let cliff = name.starts_with("cliff");
                println!(
                    "| {name} | {} | {text} | {windows} | {} | {} |",
                    if cliff { "yes" } else { "no" },
                    share(c.found),
                    if cliff { share(c.sized) } else { "–".into() }
                );
            }
        }
    }
}
