//! TPC-C by the specification's rules: terminals that wait, and what a rate is called.

use crate::common::{Place, beside_others};
use crate::contract::promised;
use crate::db::{found, table, tpcc};

#[test]
fn terminals_that_wait_share_connections_and_their_rate_is_not_called_tpmc_lightly() {
    let _turn = beside_others();
    let place = Place::new();
    let mut words = tpcc("sqlite", "2s")
        .into_iter()
        .filter(|w| !["--terminals", "4"].contains(w))
        .collect::<Vec<_>>();
    words.extend([
        "--keying",
        "--thinking",
        "--pace",
        "0.01",
        "--connections",
        "3",
    ]);
    let Some(json) = found(place.fathom(&words)) else {
        return;
    };
    promised(&json);
    let section = json["sections"].as_array().unwrap();
    let section = section.iter().find(|s| s["id"] == "tpcc").unwrap();
    let said = section["text"].as_str().unwrap();
    for part in [
        "10 terminals with keying and think times of 0.01 of the specification's on 3 connections",
        "new orders per minute, and not tpmC: waits are 0.01 of those asked for; measured for",
        "more than 13 for so many warehouses",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("instead of 10 (4.2.2)"), "{said}");
    let rate = &table(&json, "tpcc-table")["rows"][0];
    assert_eq!(rate[5], "new orders per minute", "{rate}");
    // Ten terminals of 0.2 s a round: 48 transactions a second, whatever the database could do.
    let seen = rate[2]["value"].as_f64().unwrap();
    assert!((25.0..60.0).contains(&seen), "{rate}");
    // More than there are connections have to wait between transactions.
    let refused = place.fathom(&["db", "tpcc", ".", "--terminals", "5000"]);
    refused.expect(2);
}
