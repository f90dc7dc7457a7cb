//! The screen as text: what stands on it, and that nothing leaves its edges.

use fathom_io::driver::live::{Judged, LiveWindow};
use fathom_telemetry::schema::Headline;
use fathom_telemetry::{FlagCode, Histogram, Nanos};

use super::super::model::{DiskNow, Model, Target, disk_counters, disks_between};
use super::*;

/// An empty window of the first group's first job.
fn window(thread: u32, number: u64) -> LiveWindow {
    LiveWindow {
        group: 0,
        index: 0,
        job: "randread".to_owned(),
        thread,
        threads: 4,
        host: None,
        open_loop: false,
        start: Nanos(number * 100_000_000),
        width: Nanos(100_000_000),
        ios: 0,
        reads: 0,
        bytes: 0,
        errors: 0,
        latency: SparseHistogram::default(),
    }
}

/// 4 threads, of which the last is slow, for `n` windows of 100 ms; in the 20th nothing completes.
fn model(n: u64) -> Model {
    let mut m = Model {
        name: "3/20 randread-4k".to_owned(),
        position: (3, 20),
        ..Model::default()
    };
    for i in 0..n {
        for thread in 0..4u32 {
            let mut h = Histogram::new();
            let ios = if i / 2 == 10 {
                0
            } else {
                2000 - 400 * u64::from(thread)
            };
            for k in 0..ios {
                h.record(80_000 + 100 * k + if k % 500 == 499 { 3_000_000 } else { 0 });
            }
            m.take(LiveWindow {
                ios,
                reads: ios,
                bytes: ios * 4096,
                latency: h.to_sparse(),
                ..window(thread, i)
            });
        }
    }
    m
}

fn text(lines: &[Line]) -> String {
    lines
        .iter()
        .map(|l| l.iter().map(|(_, t)| t.as_str()).collect::<String>() + "\n")
        .collect()
}

#[test]
fn the_screen_shows_rates_percentiles_threads_and_the_map() {
    let mut m = model(60);
    m.disks = vec![DiskNow {
        name: "nvme0n1".to_owned(),
        reads_per_second: 56_000.0,
        in_flight: 32,
        busy: 0.97,
        ..DiskNow::default()
    }];
    let lines = screen(&m, 100, 32);
    let shown = text(&lines);
    assert_eq!(lines.len(), 32);
    for part in [
        "3/20 randread-4k",
        "6.0 s",
        "━━━─",
        "56.0 k IOPS",
        "229 MB/s",
        "p99.9 ",
        "max ",
        "thread",
        "20.0 k",
        "nvme0n1  56,000 reads/s",
        "97 % busy",
        "q end early and keep the results",
    ] {
        assert!(shown.contains(part), "{part} not in\n{shown}");
    }
    let heat = lines
        .iter()
        .flatten()
        .filter(|(s, _)| matches!(s, Style::Heat(_)))
        .map(|(_, t)| t.chars().count());
    assert!(heat.sum::<usize>() > 100, "{shown}");
    m.paused = true;
    assert!(text(&screen(&m, 100, 32)).contains("PAUSED"));
}

#[test]
fn a_stall_is_a_gap_in_curve_and_map() {
    let m = model(40);
    let shown = text(&screen(&m, 100, 32));
    let curve = shown
        .lines()
        .find(|l| l.contains(" IOPS ") && l.contains('█'))
        .unwrap();
    let bars: Vec<char> = curve.chars().skip(AXIS).collect();
    assert_eq!(bars.len(), 20);
    assert_eq!((bars[9], bars[10], bars[11]), ('█', '▁', '█'), "{shown}");
}

#[test]
fn every_size_of_screen_is_filled_and_not_exceeded() {
    for m in [Model::default(), model(1), model(300)] {
        for (width, height) in [(1, 1), (50, 12), (80, 24), (80, 13), (200, 60), (49, 90)] {
            let lines = screen(&m, width, height);
            assert!(lines.len() <= height, "{width}×{height}");
            for line in &lines {
                let letters: usize = line.iter().map(|(_, t)| t.chars().count()).sum();
                assert!(letters <= width, "{width}×{height}: {line:?}");
            }
        }
    }
}

#[test]
fn the_past_goes_on_over_groups_and_old_columns_are_forgotten() {
    let mut m = model(3000);
    assert!(m.slices.len() <= 400, "{}", m.slices.len());
    assert_eq!(model(3).slices.len(), 2);
    let (before, last) = (m.slices.len(), m.slices.back().unwrap().index);
    // The same name and the same time: only the group tells it from the one before.
    m.take(LiveWindow {
        group: 1,
        ios: 500,
        ..window(0, 0)
    });
    assert!(
        before > 300 && m.slices.len() >= before,
        "{}",
        m.slices.len()
    );
    assert_eq!(
        m.slices.back().unwrap().index,
        last + 2,
        "behind an empty column"
    );
    assert_eq!((m.threads.len(), m.elapsed), (1, Nanos(100_000_000)));
    // What is shown as now is the new group's, what was done before is listed.
    assert_eq!(m.now().unwrap().ios, 500);
    assert_eq!((m.done.len(), m.done[0].name.as_str()), (1, "randread"));
    let shown = text(&screen(&m, 100, 32));
    assert!(
        shown.contains(" done randread") && shown.contains("2.50 k IOPS"),
        "{shown}"
    );
}

#[test]
fn repeats_of_a_load_are_one_line_of_what_is_done() {
    let mut m = Model::default();
    for (group, name) in [(0, "read.0"), (1, "write.0"), (2, "read.1"), (3, "last.0")] {
        for number in 0..10 {
            m.take(LiveWindow {
                group,
                job: name.into(),
                ios: 100,
                bytes: 409_600,
                ..window(0, number)
            });
        }
    }
    let names: Vec<(&str, u64)> = m.done.iter().map(|d| (d.name.as_str(), d.ios)).collect();
    assert_eq!(names, [("write", 1000), ("read", 2000)]);
    assert_eq!(m.done[1].time, Nanos::from_secs(2));
    let curve = text(&screen(&m, 100, 32));
    let bars = curve
        .lines()
        .find(|l| l.contains(" IOPS ") && l.contains('█'))
        .unwrap();
    assert_eq!(bars.matches('█').count(), 4 * 5, "all groups: {bars}");
}

#[test]
fn what_is_done_is_no_better_than_its_flags_on_a_narrow_screen_too() {
    let mut m = Model::default();
    for (group, name) in ["good.0", "busy.0", "bad.0", "now.0"].iter().enumerate() {
        m.take(LiveWindow {
            group: group as u64,
            job: (*name).into(),
            ios: 100,
            ..window(0, 0)
        });
    }
    let judged = |job: &str, flags: &[FlagCode], void| Judged {
        job: job.into(),
        flags: flags.to_vec(),
        void,
    };
    m.judge(&judged("good.0", &[], false));
    m.judge(&judged("busy.0", &[FlagCode::CpuBound], false));
    m.judge(&judged("bad.0", &[FlagCode::NotSteady], true));
    // A repeat that passed takes nothing back.
    m.judge(&judged("bad.1", &[], false));
    let narrow = text(&screen(&m, 60, 24));
    let wide = text(&screen(&m, 100, 32));
    for shown in [&narrow, &wide] {
        for part in [" done good ", " flag busy ", " void bad "] {
            assert!(shown.contains(part), "{part} not in\n{shown}");
        }
    }
    assert!(
        wide.contains("  cpu bound") && wide.contains("  not steady"),
        "{wide}"
    );
    assert!(!narrow.contains("cpu bound"), "{narrow}");
    let lines = screen(&m, 100, 32);
    let void = lines
        .iter()
        .find(|l| l.first().is_some_and(|p| p.1 == " void "));
    assert!(void.unwrap().iter().all(|p| p.0 != Style::Strong));
}

#[test]
fn numbers_so_far_stand_with_what_is_against_them_and_as_many_as_fit() {
    let flag = |code, void| {
        let mut flag = fathom_telemetry::Flag::new(code, "", "");
        flag.void = void;
        flag
    };
    let mut m = model(60);
    for (i, flags) in [
        vec![],
        vec![flag(FlagCode::CpuBound, false)],
        vec![flag(FlagCode::NotSteady, true)],
    ]
    .into_iter()
    .cycle()
    .take(30)
    .enumerate()
    {
        let samples = [9_490.0, 9_500.0, 9_510.0, 9_500.0];
        m.headlines.push(Headline {
            id: String::new(),
            label: format!("number {i}"),
            group: String::new(),
            unit: "ns".into(),
            estimate: fathom_stats::Estimate::mean_of(&samples),
            extra: std::collections::BTreeMap::default(),
            jobs: vec![i],
            flags,
        });
    }
    let (narrow, wide) = (text(&screen(&m, 60, 24)), text(&screen(&m, 100, 40)));
    for shown in [&narrow, &wide] {
        for part in [
            " so far number 0 ",
            " flag   number 1 ",
            " void   number 2 ",
            " more\n",
            " 9.500 µs ± 0.013",
            "pause the view",
        ] {
            assert!(shown.contains(part), "{part} not in\n{shown}");
        }
    }
    assert!(wide.contains("cpu bound") && !narrow.contains("cpu bound"));
    let listed = |shown: &str| shown.matches("number ").count();
    assert!(listed(&narrow) >= 4 && listed(&wide) > listed(&narrow) + 8);
}

#[test]
fn models_show_no_disk_and_the_targets_disk_stands_first() {
    let mut m = model(20);
    let disk = |name: &str| DiskNow {
        name: name.into(),
        reads_per_second: 9.0,
        ..DiskNow::default()
    };
    m.disks = ["sda", "sdb", "sdc", "nvme0n1"].map(disk).into();
    m.target = Target::Disks(vec!["nvme0n1".into()]);
    let shown = text(&screen(&m, 100, 40));
    let at = |name: &str| shown.find(name);
    assert!(
        at("nvme0n1").unwrap() < at("sda").unwrap() && at("sdc").is_none(),
        "{shown}"
    );
    m.target = Target::Elsewhere;
    assert!(!text(&screen(&m, 100, 40)).contains("reads/s"));
}

#[test]
fn sixty_columns_hold_everything() {
    let mut m = model(60);
    m.name = "12/66 latency/randread-4k-qd1-of-a-long-name".into();
    m.position = (33, 66);
    m.since = Nanos::from_secs(30);
    m.disks = vec![DiskNow {
        name: "nvme0n1".into(),
        reads_per_second: 560_000.0,
        writes_per_second: 120_000.0,
        bytes_per_second: 2.2e9,
        busy: 0.97,
        ..DiskNow::default()
    }];
    let mut h = Histogram::new();
    h.record_n(80_123, 100_000);
    h.record_n(3_123_456, 1_000);
    m.take(LiveWindow {
        group: 1,
        ios: 100,
        latency: h.to_sparse(),
        ..window(0, 0)
    });
    m.position = (33, 66);
    let lines = screen(&m, 60, 24);
    let shown = text(&lines);
    for part in [
        "12/66",
        "━━━━────",
        "30 s left",
        "p99.9",
        "max",
        " done randread",
        "% busy",
        "keep the results",
        "IOPS",
    ] {
        assert!(shown.contains(part), "{part} not in\n{shown}");
    }
    assert_eq!(m.left(), Some(Nanos::from_secs(30)));
    // Before a share is done it is what was announced.
    (m.position, m.expected) = ((0, 66), Nanos::from_secs(100));
    assert_eq!(m.left(), Some(Nanos::from_secs(70)));
}

#[test]
fn jobs_that_run_at_the_same_time_share_the_screen_also_under_one_name() {
    let mut m = Model::default();
    for number in 0..20 {
        for (index, open_loop, ios) in [(0, false, 300), (1, true, 100)] {
            let mut h = Histogram::new();
            h.record_n(50_000, ios);
            m.take(LiveWindow {
                index,
                open_loop,
                threads: 1,
                ios,
                latency: h.to_sparse(),
                ..window(0, number)
            });
        }
    }
    assert_eq!((m.slices.len(), m.threads.len(), m.jobs.len()), (10, 2, 2));
    assert_eq!(m.slices[5].ios, 2 * 400);
    let shown = text(&screen(&m, 100, 30));
    for part in [
        "4.00 k IOPS",
        "  0.0 ",
        "  1.0 ",
        "3.00 k",
        "  latency   p50",
        "randread, randread",
    ] {
        assert!(shown.contains(part), "{part} not in\n{shown}");
    }
    // A job with wider windows than those before joins: its columns are everybody's.
    m.take(LiveWindow {
        index: 2,
        width: Nanos::from_secs(1),
        ..window(0, 10)
    });
    assert_eq!((m.slice, m.jobs.len()), (Nanos::from_secs(1), 3));
}

#[test]
fn a_threads_percentile_needs_ten_ios_beyond_it_within_two_seconds() {
    let shown = |ios: u64| {
        let mut m = Model::default();
        for number in 0..100 {
            let mut h = Histogram::new();
            h.record_n(50_000, ios);
            m.take(LiveWindow {
                threads: 1,
                ios,
                latency: h.to_sparse(),
                ..window(0, number)
            });
        }
        let text = text(&screen(&m, 100, 30));
        let line = text.lines().find(|l| l.starts_with("        0 ")).unwrap();
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // 20 windows: 20, 980 and 1000 I/Os.
    assert!(
        shown(1).concat().starts_with("0100B/s50.0µs—"),
        "{:?}",
        shown(1)
    );
    assert!(shown(49).concat().contains("50.0µs—"), "{:?}", shown(49));
    assert!(
        shown(50).concat().contains("50.0µs50.0µs"),
        "{:?}",
        shown(50)
    );
}

#[test]
fn disks_are_those_that_did_something_meanwhile() {
    let at = |reads: u64, ms: u64| {
        disk_counters(&format!(
            "   8  0 sda 100 0 800 5 0 0 0 0 0 9 9 0 0 0 0\n 259 0 nvme0n1 {reads} 0 {} 5 10 0 80 0 7 {ms} 9 0 0 0 0\n   7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nshort line\n",
            reads * 8
        ))
    };
    let disks = disks_between(&at(1000, 100), &at(3000, 600), 0.5);
    assert_eq!(disks.len(), 1);
    let d = &disks[0];
    assert_eq!(
        (d.name.as_str(), d.reads_per_second, d.in_flight, d.busy),
        ("nvme0n1", 4000.0, 7, 1.0)
    );
    assert_eq!(d.bytes_per_second, 4000.0 * 4096.0);
}

#[test]
fn hosts_are_listed_by_name_slowest_first() {
    let mut m = Model::default();
    for (thread, name, ios) in [(0, "node1", 900), (1, "node2", 300), (2, "node3", 700)] {
        let mut h = Histogram::new();
        (0..ios).for_each(|k| h.record(80_000 + 10 * k));
        m.take(LiveWindow {
            threads: 3,
            host: Some(name.to_owned()),
            ios,
            reads: ios,
            bytes: ios * 4096,
            latency: h.to_sparse(),
            ..window(thread, 0)
        });
    }
    for width in [60, 100] {
        let shown = text(&screen(&m, width, 30));
        let at = |name: &str| {
            shown
                .find(name)
                .unwrap_or_else(|| panic!("{name}: {shown}"))
        };
        assert!(
            at("node2") < at("node3") && at("node3") < at("node1"),
            "{shown}"
        );
        assert!(
            shown.contains("host") && !shown.contains("thread"),
            "{shown}"
        );
    }
    // Of many the slowest are shown.
    for thread in 3..40 {
        m.take(LiveWindow {
            threads: 40,
            host: Some(format!("quick{thread}")),
            ios: 1000,
            ..window(thread, 0)
        });
    }
    let shown = text(&screen(&m, 100, 40));
    assert!(
        shown.contains("node2") && shown.contains("more hosts, all faster"),
        "{shown}"
    );
}
