//! `fathom app`: files that are copied, and memory that is swapped.

use crate::common::{Place, beside_others, skip};
use crate::contract::promised;
use crate::db::{beside, found, ids, is_rate, table};

#[test]
fn files_are_copied_and_the_source_is_only_read() {
    let _turn = beside_others();
    let place = Place::new();
    let source = place.dir.join("card");
    std::fs::create_dir_all(source.join("more")).unwrap();
    for (name, n) in [("a.raw", 100_000), ("more/a.raw", 5), ("more/b.jpg", 0)] {
        std::fs::write(source.join(name), vec![7u8; n]).unwrap();
    }
    let target = place.dir.join("disk");
    std::fs::create_dir(&target).unwrap();
    let said = place.fathom(&[
        "app",
        "copy",
        source.to_str().unwrap(),
        target.to_str().unwrap(),
        "--repeats",
        "2",
        "--json",
    ]);
    let Some(json) = found(said) else { return };
    promised(&json);
    let rows = table(&json, "app-copy-table")["rows"].as_array().unwrap();
    let phases: Vec<&str> = rows.iter().map(|r| r[0].as_str().unwrap()).collect();
    assert_eq!(phases, ["read", "write", "copy", "metadata"]);
    let said = beside(&json, "app-copy-beside");
    assert!(
        said.contains("source: files in ") && said.contains("; target: files in "),
        "{said}"
    );
    assert_eq!(std::fs::read(source.join("a.raw")).unwrap().len(), 100_000);
    assert_eq!(
        std::fs::read_dir(&target).unwrap().count(),
        0,
        "all is gone"
    );
}

#[test]
fn swapping_is_measured_or_said_to_be_impossible() {
    let _turn = beside_others();
    let place = Place::new();
    let said = place.fathom(&[
        "app",
        "swap",
        ".",
        "--bytes",
        "32m",
        "--share",
        "50",
        "--time",
        "300ms",
        "--repeats",
        "1",
        "--threads",
        "2",
        "--json",
    ]);
    let Some(json) = found(said) else { return };
    let rows = table(&json, "app-swap-table")["rows"].as_array().unwrap();
    assert!(is_rate(&rows[0][1]), "in memory");
    if ids(&json, "sections").contains(&"app-swap-skipped") {
        skip("no control group or swap file here");
    } else {
        assert!(is_rate(&rows[1][1]));
    }
    let said = beside(&json, "app-swap-beside");
    assert!(
        said.contains("vm.swappiness=") && said.contains("other swap areas="),
        "{said}"
    );
    assert!(place.names().is_empty(), "{:?}", place.names());
    let areas = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    assert!(!areas.contains(place.dir.to_str().unwrap()), "{areas}");
}
