//! `raid` and `vm` on models: the same experiments as on real parts, in virtual time.

use serde_json::Value;

use crate::common::{Place, beside_others};
use crate::contract::promised;

fn ids<'a>(json: &'a Value, key: &str) -> Vec<&'a str> {
    json[key]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x["id"].as_str().unwrap())
        .collect()
}

#[test]
fn raid_on_a_model_says_which_expectation_fits_and_what_software_takes() {
    let _turn = beside_others();
    let place = Place::new();
    let args = [
        "raid",
        "sim:optane-900p",
        "--levels",
        "0,5",
        "--members",
        "4,8",
        "--only",
        "direct",
    ];
    let json = place
        .fathom(&[&args[..], &["--json"]].concat())
        .expect(0)
        .json();
    promised(&json);
    assert_eq!(
        ids(&json, "sections"),
        ["raid", "raid0", "raid5", "raid-states", "raid-costs"]
    );
    assert!(
        ids(&json, "findings").contains(&"raid5-loss"),
        "{:?}",
        ids(&json, "findings")
    );
    // What it prints needs one array only.
    let short = [
        &args[..2],
        &["--levels", "0", "--members", "4", "--only", "direct"],
    ]
    .concat();
    let said = place.fathom(&short).expect(0).stdout;
    assert!(
        said.contains("SIMULATED") && said.contains("Largest loss by level"),
        "{said}"
    );
    assert!(place.names().is_empty(), "a model leaves no file");
}

#[test]
fn vm_on_a_model_stands_beside_its_host_and_says_how_many_fill_the_device() {
    let _turn = beside_others();
    let place = Place::new();
    let args = [
        "vm",
        "sim:optane-900p",
        "--vms",
        "1,4,6",
        "--no-curve",
        "--try",
        "idle=busy",
    ];
    let json = place
        .fathom(&[&args[..], &["--json"]].concat())
        .expect(0)
        .json();
    promised(&json);
    assert_eq!(ids(&json, "sections"), ["vm", "vm-machines", "vm-settings"]);
    for id in ["vm-latency", "vm-saturation", "vm-set-idle=busy-qd1"] {
        assert!(
            ids(&json, "findings").contains(&id),
            "{id}: {:?}",
            ids(&json, "findings")
        );
    }
}

#[test]
fn labs_refuse_what_cannot_be_with_what_was_expected() {
    let _turn = beside_others();
    let place = Place::new();
    for (args, said) in [
        (
            &["raid", "sim:optane-900p", "--levels", "7"][..],
            "expected 0, 1, 5, 6 or 10",
        ),
        (
            &["raid", "sim:optane-900p", "--levels", "6", "--members", "2"],
            "6 and 10 need 4",
        ),
        (&["raid", "sim:raid5:4xoptane-900p"], "expected one device"),
        (
            &["raid", "sim:optane-900p", "--chunk", "100k"],
            "powers of two",
        ),
        (&["vm", "sim:vm2:optane-900p"], "expected one device"),
        (
            &["vm", "sim:optane-900p", "--set", "colour=red"],
            "expected idle, poll",
        ),
        (&["vm", "sim:optane-900p", "--vms", "0"], "1 to 64"),
    ] {
        let refused = place.fathom(args).expect(2);
        assert!(
            refused.stderr.contains(said),
            "{args:?}: {}",
            refused.stderr
        );
    }
    assert!(!place.runs().exists(), "nothing was begun");
}
