//! No model file and no name of a simulated target makes the readers panic.

use fathom_sim::{CATALOG, Model, SimTarget};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Tries; more with FATHOM_CASES.
fn config() -> Config {
    let asked = std::env::var("FATHOM_CASES").ok();
    Config {
        cases: asked.and_then(|n| n.parse().ok()).unwrap_or(300),
        failure_persistence: None,
        ..Config::default()
    }
}

#[test]
fn no_model_file_makes_the_reader_panic() {
    let line = (
        0..CATALOG.len(),
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
    );
    let changed = (line, "[-0-9.a-z\"'\\[\\]{}=€\u{1b}]{0,12}").prop_map(|((n, at, end), text)| {
        let whole: Vec<char> = CATALOG[n].1.chars().collect();
        let at = at.index(whole.len());
        let end = whole.len().min(at + end.index(20));
        let before: String = whole[..at].iter().collect();
        before + &text + &whole[end..].iter().collect::<String>()
    });
    TestRunner::new(config())
        .run(&prop_oneof![4 => changed, 1 => any::<String>()], |text| {
            let _ = Model::parse("any.toml", &text);
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_name_of_a_target_makes_the_reader_panic() {
    let names = prop_oneof![
        any::<String>(),
        "(sim:)?(nvme|ssd|hdd|ebs|raid|vm|optane|host)?[-:/,+@=a-z0-9.€]{0,24}",
        (0..CATALOG.len(), "[:/,+@?][-:,=a-z0-9.€]{0,16}")
            .prop_map(|(n, tail)| format!("sim:{}{tail}", CATALOG[n].0)),
    ];
    TestRunner::new(config())
        .run(&names, |name| {
            let _ = SimTarget::parse(&name);
            Ok(())
        })
        .unwrap();
}
