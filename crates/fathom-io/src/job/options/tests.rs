//! What is set is shown, and what cannot be is refused in words.

use super::*;

#[test]
fn a_job_reads_back_what_it_prints() {
    let mut job = JobSpec::default();
    for (name, text) in [
        ("rw", "randrw"),
        ("read-share", "70"),
        ("bs", "4k:70,64k:30"),
        ("qd", "32"),
        ("buffered", ""),
        ("sync", "fdatasync:8"),
        ("size", "1g"),
        ("dist", "zipf:1.2"),
        ("time", "1500ms"),
        ("rate", "600k"),
        ("burst", "64/10ms"),
        ("window", "1ms"),
        ("cpus", "0,2-3"),
        ("on_error", "continue"),
    ] {
        job.set(name, text).unwrap();
    }
    let json = serde_json::to_value(&job).unwrap();
    let mut back = JobSpec::default();
    for (name, value) in json.as_object().unwrap() {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        back.set(name, &text)
            .unwrap_or_else(|e| panic!("{name}={text}: {e}"));
    }
    assert_eq!(back, job);
}

#[test]
fn unknown_options_offer_the_nearest_and_bad_values_name_theirs() {
    let mut job = JobSpec::default();
    assert_eq!(
        job.set("treads", "1").unwrap_err().to_string(),
        "unknown option 'treads' (did you mean 'threads'?): see 'fathom run --help'"
    );
    assert!(
        job.set("qd", "0")
            .unwrap_err()
            .to_string()
            .starts_with("qd: '0' is not possible")
    );
    for (name, bad) in [
        ("size", "0"),
        ("rate", "-5"),
        ("rate", "nan"),
        ("time", "0"),
        ("window", "10us"),
        ("read-share", "101"),
        ("cpus", "3-1"),
    ] {
        assert!(job.set(name, bad).is_err(), "{name}={bad}");
    }
}
