//! Runs with different seeds have no stream in common: `--seed 2` repeats nothing of `--seed 1`.

use std::collections::BTreeSet;

use crate::common::{Place, beside_others};

/// Commands that take a seed, on models, each as small as it can be.
const COMMANDS: [&str; 12] = [
    "survey sim:optane-900p --size 64m",
    "curve sim:intel-s3510 --size 64m --max-qd 4",
    "mix sim:optane-900p --size 64m",
    "burst sim:optane-900p --size 64m --burst 4m",
    "pages sim:optane-900p --size 64m",
    "ab sim:optane-900p --a qd=1 --b qd=8 --rw randread --time 20ms --blocks 5 --threshold 999%",
    "condition sim:samsung-960pro --size 64m --round 100ms --test 500ms --until-steady rw=randwrite",
    "pts sim:intel-s3510 --size 64m --unit 2ms --tests tp",
    "tune sim:samsung-960pro --only idle-states,scheduler",
    "run sim:optane-900p --rw randread --time 50ms",
    "raid sim:optane-900p --levels 0,1 --members 2 --time 20ms --repeats 2",
    "vm sim:optane-900p --size 64m --time 20ms --repeats 2",
];

#[test]
fn runs_with_different_seeds_share_no_stream() {
    let _turn = beside_others();
    for command in COMMANDS {
        let seeds = ["1", "2"].map(|seed| {
            let place = Place::new();
            let words: Vec<&str> = command.split(' ').chain(["--seed", seed]).collect();
            place.fathom(&words).expect(0);
            let run = place.the_run();
            let jobs = run["jobs"].as_array().unwrap().iter();
            // The job's default is 1 and left out.
            jobs.map(|j| j["spec"]["seed"].as_u64().unwrap_or(1))
                .collect::<BTreeSet<u64>>()
        });
        assert!(!seeds[0].is_empty(), "{command}");
        let shared: Vec<&u64> = seeds[0].intersection(&seeds[1]).collect();
        assert!(shared.is_empty(), "{command}: {shared:?}");
    }
}
