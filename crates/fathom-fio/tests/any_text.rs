//! No text makes fio's readers panic: every option with any value, on the command line and in a job file.

use std::path::Path;

use fathom_fio::{Invocation, options, plan, to_toml};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Tries; more with FATHOM_CASES.
fn config() -> Config {
    let asked = std::env::var("FATHOM_CASES").ok();
    Config {
        cases: asked.and_then(|n| n.parse().ok()).unwrap_or(8),
        failure_persistence: None,
        ..Config::default()
    }
}

/// Anything at all, and what looks like a value until a character of several bytes comes.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[-+]?[0-9]{0,20}[kmgtKMGTsuz%:,/.€µ\u{301}]{0,4}[ib€B0-9:,/%]{0,6}",
        "(zipf|pareto|zoned|normal|random|verify|time|all|none|0x|\"|')[:=]?[0-9€.,:/-]{0,12}",
    ]
}

fn read(args: &[String]) {
    let Ok(it) = Invocation::parse(args) else {
        return;
    };
    let _ = it.script.command_line();
    let _ = it.script.cross_check(false);
    if let Ok(tasks) = plan(&it.script) {
        let _ = to_toml(&tasks);
    }
}

#[test]
fn no_value_of_any_option_makes_the_readers_panic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.fio");
    let mut broken = Vec::new();
    for option in options::all().filter(|o| o.name != "include") {
        let mut runner = TestRunner::new(config());
        let tried = runner.run(&value(), |value| {
            let one_line = value.replace('\n', " ");
            read(&["--name=x".to_owned(), format!("--{}={value}", option.name)]);
            std::fs::write(&file, format!("[x]\n{}={one_line}\n", option.name)).unwrap();
            read(&[file.display().to_string()]);
            Ok(())
        });
        if let Err(e) = tried {
            broken.push(format!("{}: {e}", option.name));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_job_file_and_no_arguments_make_the_readers_panic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.fio");
    let mut config = config();
    config.cases *= 20;
    let strategy = (
        any::<Vec<u8>>(),
        prop::collection::vec(any::<String>(), 0..4),
    );
    TestRunner::new(config)
        .run(&strategy, |(bytes, args)| {
            std::fs::write(&file, bytes).unwrap();
            read(&[file.display().to_string()]);
            // A file of this name would be another test.
            if !args.iter().any(|a| Path::new(a).exists()) {
                read(&args);
            }
            Ok(())
        })
        .unwrap();
}
