//! No text makes the readers of job options and no bytes make those of traces panic.

use fathom_io::job::JobSpec;
use fathom_io::job::options::OPTIONS;
use fathom_io::replay::{Events, Format, survey};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Tries; more with FATHOM_CASES.
fn config(times: u32) -> Config {
    let asked = std::env::var("FATHOM_CASES").ok();
    Config {
        cases: times * asked.and_then(|n| n.parse().ok()).unwrap_or(10),
        failure_persistence: None,
        ..Config::default()
    }
}

#[test]
fn no_value_of_any_option_makes_the_readers_panic() {
    let values = prop_oneof![
        any::<String>(),
        "[-+]?[0-9.]{0,22}[kmgtKMGTsu%:,/€µ]{0,4}[iB€0-9:,/%=-]{0,8}",
        "(zipf|hotspot|uniform|every|fua|on|off|[0-9]+k)[:=/]?[0-9€.,:/=-]{0,12}",
    ];
    for option in OPTIONS {
        TestRunner::new(config(3))
            .run(&values, |text| {
                let mut spec = JobSpec::default();
                if (option.set)(&mut spec, &text).is_ok() {
                    let _ = (option.get)(&spec);
                }
                Ok(())
            })
            .unwrap_or_else(|e| panic!("{}: {e}", option.name));
    }
}

#[test]
fn no_bytes_make_the_readers_of_traces_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let line = "(([0-9]{1,20}|[rwRWds€ ]|read|write|Read|Write|fio version 3 iolog|[-.0-9e]{1,8})[ ,\t]){1,7}\r?\n";
    let lines = prop::collection::vec(line, 0..8).prop_map(|l| l.concat());
    let content = prop_oneof![
        any::<Vec<u8>>(),
        lines.prop_map(String::into_bytes),
        any::<Vec<[u8; 48]>>().prop_map(|records| {
            let magic = 0x6561_7407u32.to_le_bytes();
            records
                .iter()
                .flat_map(|r| [&magic[..], &r[4..]].concat())
                .collect()
        }),
    ];
    TestRunner::new(config(20))
        .run(&content, |bytes| {
            std::fs::write(&path, bytes).unwrap();
            let formats = [
                None,
                Some(Format::Blktrace),
                Some(Format::Fio),
                Some(Format::Msr),
                Some(Format::Spc),
                Some(Format::Alibaba),
                Some(Format::Fathom),
            ];
            for format in formats {
                let _ = survey(&path, format, Events::Issue, None, false, || false);
            }
            Ok(())
        })
        .unwrap();
}
