//! Verdicts of recorded observations, and what is said of them.

use super::*;

/// A look that began `old` after the change still said no, and one that ended `seen` after it said yes.
fn look(old: u64, seen: Option<u64>) -> Observation {
    Observation {
        old_ns: old,
        seen_ns: seen,
        bound_ns: 1000,
        looks: 3,
        ..Observation::default()
    }
}

fn checked(check: Check, observations: Vec<Observation>) -> Checked {
    Checked {
        check,
        job: Some(0),
        observations,
    }
}

fn verdict(observations: Vec<Observation>) -> Verdict {
    checked(Check::OpenBuffered, observations).verdict()
}

#[test]
fn a_look_is_old_only_where_clocks_leave_no_other_reading() {
    let at_once = vec![look(0, Some(300)), look(1000, Some(90_000))];
    assert_eq!(verdict(at_once.clone()), Verdict::AtOnce);
    let mut one_late = at_once.clone();
    one_late.push(look(1001, Some(5_000_000)));
    assert_eq!(verdict(one_late.clone()), Verdict::Within(5_000_000));
    one_late.push(look(4_000_000_000, None));
    assert_eq!(verdict(one_late.clone()), Verdict::Never(1));
    let c = checked(Check::OpenBuffered, one_late);
    assert_eq!(c.mean(), None, "who never saw it has no time");
    assert_eq!(c.longest_old(), Some(4_000_000_000.0 - 1000.0));
}

#[test]
fn the_worst_of_all_rounds_is_the_checks_verdict() {
    let twice = Observation {
        given_twice: true,
        ..look(0, Some(10))
    };
    let late = look(90_000, Some(100_000));
    assert_eq!(verdict(vec![late.clone(), twice]), Verdict::GivenTwice(1));
    let lost = Observation {
        lost: 7,
        round: 1,
        ..look(0, None)
    };
    assert_eq!(verdict(vec![lost, late.clone()]), Verdict::Lost(7));
    let refused = Observation {
        error: Some("no locks available".into()),
        ..Observation::default()
    };
    assert_eq!(
        verdict(vec![refused.clone(), late]),
        Verdict::Within(100_000)
    );
    let not_possible = Verdict::NotPossible("no locks available".into());
    assert_eq!(verdict(vec![refused]), not_possible);
    assert_eq!(verdict(Vec::new()), Verdict::Missing);
}

/// A reader's look at appended records.
fn records(round: u32, lost: u64) -> Observation {
    Observation {
        round,
        lost,
        seen: lost == 0,
        ..Observation::default()
    }
}

#[test]
fn records_are_lost_once_however_many_hosts_look() {
    let appended = |all| checked(Check::Appended, all).verdict();
    let all = vec![records(0, 3), records(0, 5), records(1, 2), records(1, 2)];
    assert_eq!(appended(all), Verdict::Lost(5));
    // One host saw them all: the other one is late.
    let late = vec![records(0, 0), records(0, 5)];
    assert_eq!(appended(late.clone()), Verdict::Never(1));
    assert_eq!(appended(vec![records(0, 0); 3]), Verdict::AtOnce);
    let said = findings(vec![checked(Check::Appended, late)], "nfs4");
    assert!(
        said[0].text.starts_with("Not all appended"),
        "{}",
        said[0].text
    );
    assert!(said[0].advice.contains("actimeo=0"), "{}", said[0].advice);
    let said = findings(vec![checked(Check::Appended, vec![records(0, 3)])], "nfs4");
    assert!(said[0].text.contains("overwrite each other"));
}

/// Findings of checks on a file system.
fn findings(checks: Vec<Checked>, file_system: &str) -> Vec<Finding> {
    let result = CoherenceResult {
        options: fathom_bench::measurement::defaults(),
        hosts: vec!["a".into(), "b".into()],
        checks,
    };
    result.findings(file_system, &[0])
}

#[test]
fn what_is_not_coherent_is_said_with_what_to_set_on_this_file_system() {
    let good = checked(Check::Reopened, vec![look(0, Some(10)); 20]);
    let old = checked(Check::OpenBuffered, vec![look(2_000_000_000, None); 20]);
    let twice = Observation {
        given_twice: true,
        ..look(0, Some(1))
    };
    let locks = checked(Check::Flock, vec![twice; 20]);
    let all = findings(vec![good.clone(), old, locks], "fuse.glusterfs");
    let ids: Vec<&str> = all.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "coherence-open-buffered",
            "coherence-flock",
            "coherence-good"
        ]
    );
    assert!(
        all[0].advice.contains("performance.open-behind off"),
        "{}",
        all[0].advice
    );
    assert!(
        all[0].text.contains("not within 5.00 s in 20 of 20"),
        "{}",
        all[0].text
    );
    assert!(all[1].text.contains("not locked across hosts in 20 of 20"));
    assert!(all[2].text.contains("reopened") && all[2].text.contains("fewer than 14 %"));
    assert!(all[2].advice.is_empty());
    let quiet = findings(vec![good], "ext4");
    assert!(quiet.iter().all(|f| f.advice.is_empty()), "{quiet:?}");
    for (kind, place, word) in [
        (Kind::Locks, "fuse.sshfs", "passes none on"),
        (Kind::Locks, "lustre", "with flock"),
        (Kind::Attributes, "nfs4", "actimeo=0"),
        (Kind::Names, "nfs", "lookupcache=none"),
        (Kind::Data, "fuse.mfs", "open files anew"),
    ] {
        assert!(advice(kind, place).contains(word), "{kind:?} {place}");
    }
}
