//! No model file and no name of a simulated target makes the readers panic.

use fathom_sim::{CATALOG, Model, SimTarget};
use proptest::prelude::*;

#[path = "../../fathom-host/tests/common/fuzz.rs"]
mod fuzz;

use fuzz::{cases, changed, changes, fuzz};

/// Tries of each test.
const FEW: u64 = 300;

#[test]
fn no_model_file_makes_the_reader_panic() {
    let inputs = (0..CATALOG.len(), changes());
    fuzz(cases(FEW), &inputs, |(n, changes)| {
        let bytes = changed(CATALOG[*n].1.as_bytes(), changes);
        let _ = Model::parse("any.toml", &String::from_utf8_lossy(&bytes));
    });
    fuzz(cases(FEW) / 10, &any::<String>(), |text| {
        let _ = Model::parse("any.toml", text);
    });
}

#[test]
fn no_name_of_a_target_makes_the_reader_panic() {
    let names = prop_oneof![
        any::<String>(),
        "(sim:)?(nvme|ssd|hdd|ebs|raid|vm|optane|host)?[-:/,+@=a-z0-9.€]{0,24}",
        (0..CATALOG.len(), "[:/,+@?][-:,=a-z0-9.€]{0,16}")
            .prop_map(|(n, tail)| format!("sim:{}{tail}", CATALOG[n].0)),
    ];
    fuzz(cases(FEW), &names, |name| {
        let _ = SimTarget::parse(name);
    });
}
