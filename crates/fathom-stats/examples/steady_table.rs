//! Prints the table of docs/steady-state.md: both steady-state verdicts on 1,000 synthetic devices of each kind.
//!
//! `cargo run --release -p fathom-stats --example steady_table [ROUNDS…]`; with `--first-seed N` other
//! devices, with `--wrong KIND` (0…6) the parameters of each wrong verdict.

#[path = "../tests/truth/mod.rs"]
mod truth;

use truth::{KINDS, score};

fn main() {
    let mut rounds = Vec::new();
    let mut show = None;
    let mut seeds = 0..1000;
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        if a == "--wrong" {
            show = args.next().and_then(|k| k.parse::<usize>().ok());
        } else if a == "--first-seed" {
            let first = args.next().and_then(|k| k.parse().ok()).unwrap_or(0);
            seeds = first..first + 1000;
        } else if let Ok(n) = a.parse::<usize>() {
            rounds.push(n);
        }
    }
    if rounds.is_empty() {
        rounds = vec![25, 50, 100];
    }
    println!(
        "| device | rounds | truly steady | data can decide | **fathom right** | right where decidable | called steady, is not | called not steady, is | undecided | undecided though decidable | PTS rule right | PTS rule passes, is not steady |"
    );
    println!(
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    for n in rounds {
        for (i, (kind, name)) in KINDS.iter().enumerate() {
            let s = score(*kind, n, seeds.clone(), |seed, text| {
                if show == Some(i) {
                    eprintln!("seed {seed}: {text}");
                }
            });
            let p = |v: u32| format!("{:.1} %", 100.0 * f64::from(v) / f64::from(s.trials));
            println!(
                "| {name} | {n} | {} | {} | **{}** | {} | {} | {} | {} | {} | {} | {} |",
                p(s.steady),
                p(s.decidable),
                p(s.right),
                if s.decidable == 0 {
                    "–".to_owned()
                } else {
                    format!(
                        "{:.1} %",
                        100.0 * f64::from(s.decidable_right) / f64::from(s.decidable)
                    )
                },
                p(s.false_steady),
                p(s.false_alarm),
                p(s.undecided),
                p(s.undecided_wrong),
                p(s.pts_right),
                p(s.pts_false_steady)
            );
        }
    }
}
