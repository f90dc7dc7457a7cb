//! The main job, whole: on a scratch file, with everything that it promises.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Place, beside_others, names, skip};
use crate::contract::promised;

#[test]
fn a_dry_run_says_time_and_bytes_and_makes_nothing() {
    let _turn = beside_others();
    let place = Place::new();
    let mut written = Vec::new();
    for profile in ["quick", "standard", "full"] {
        let said = place
            .fathom(&["survey", "--dry-run", "--profile", profile, "--size", "64m"])
            .expect(0);
        // Phases first, then the whole.
        assert!(said.stdout.starts_with("phase"), "{}", said.stdout);
        assert!(
            said.stdout
                .contains(&format!("\n{profile} profile: at most "))
                && said.stdout.contains("\nlatency by layer")
                && said.stdout.contains("scratch file of 64 MiB included")
                && said.stdout.contains(" jobs in about ")
                && said.stdout.contains("will be written"),
            "{}",
            said.stdout
        );
        assert_eq!(said.stderr, "");
        written.push(said.stdout);
    }
    assert!(written[0] != written[1] && written[1] != written[2]);
    let said = place.fathom(&["survey", "null:", "--dry-run"]).expect(0);
    assert!(said.stdout.contains("at most 0 B"), "{}", said.stdout);
    assert!(place.names().is_empty());
    assert!(!place.runs().exists());
}

/// 95 % intervals and holes: a headline has one or says why not.
fn headline(h: &Value) -> Option<(f64, f64, f64)> {
    let e = &h["estimate"];
    if e.is_null() {
        assert!(
            !h["flags"].as_array().unwrap().is_empty(),
            "a hole without a reason: {h}"
        );
        return None;
    }
    let at = |name: &str| e[name].as_f64();
    let (value, low, high) = (at("value").unwrap(), at("low"), at("high"));
    let (low, high) = (
        low.unwrap_or_else(|| panic!("no interval: {h}")),
        high.unwrap_or_else(|| panic!("no interval: {h}")),
    );
    assert!(low <= value && value <= high && value > 0.0, "{h}");
    assert!(e["samples"].as_u64().unwrap() >= 2, "{h}");
    Some((low, value, high))
}

/// What a page may not have if it is to work offline and alone.
fn self_contained(html: &str) {
    for outside in [
        "src=\"http",
        "href=\"http",
        "@import",
        "url(http",
        "fetch(",
        "src='http",
    ] {
        assert!(!html.contains(outside), "the report reaches for {outside}");
    }
    for tag in ["<link ", "<script src", "<iframe"] {
        assert!(!html.contains(tag), "the report has {tag}");
    }
}

#[test]
fn a_quick_survey_of_a_directory_ends_in_three_minutes_with_intervals_and_a_report() {
    let _turn = beside_others();
    let place = Place::new();
    let begin = Instant::now();
    let said = place
        .fathom(&["survey", ".", "--size", "256m", "--seed", "5"])
        .expect(0);
    let wall = begin.elapsed();
    assert!(wall < Duration::from_secs(180), "{wall:?}");
    assert!(place.names().is_empty(), "{:?}", place.names());
    let mut told = said.stderr.lines();
    let (first, then) = (told.next().unwrap_or_default(), told);
    assert!(first.contains("will be written"), "{}", said.stderr);
    // The longer it takes, the more lines say where it is.
    for line in then {
        let place = line.contains(" %  ") && line.contains("IOPS");
        assert!(place, "{}", said.stderr);
    }
    let lines = said.stdout.lines().count();
    assert!((10..=60).contains(&lines), "one screen: {lines} lines");

    let run = place.the_run();
    promised(&run);
    assert_eq!(run["seed"], 5);
    assert_eq!(run["profile"], "quick");
    let repeats = run["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|j| j["name"].as_str().unwrap().starts_with("randread-4k-qd1."))
        .count();
    assert!(repeats >= 3, "{repeats} repeats");
    let headlines = run["headlines"].as_array().unwrap();
    let shown = headlines.iter().filter_map(headline).count();
    assert!(shown >= 8, "{shown} of {} headlines", headlines.len());
    for (id, part) in [
        ("latency", "latency-table"),
        ("bandwidth", "bandwidth"),
        ("iops", "iops"),
        ("depth-sweep", "depth"),
        ("mix", "mix"),
    ] {
        let section = run["sections"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["id"] == id)
            .unwrap_or_else(|| panic!("no section {id}"));
        assert!(section.to_string().contains(part));
        assert!(!section["charts"].as_array().unwrap().is_empty(), "{id}");
    }
    assert_the_report(&place);
}

/// The page, remade, and the exports.
fn assert_the_report(place: &Place) {
    let dir = place.the_run_dir();
    let page = dir.join("report.html");
    let first = fs::read_to_string(&page).unwrap();
    assert!(first.len() < 6_000_000, "{} bytes", first.len());
    self_contained(&first);
    fs::remove_file(&page).unwrap();
    let said = place.fathom(&["report", dir.to_str().unwrap()]).expect(0);
    assert!(said.stdout.contains("html"), "{}", said.stdout);
    let second = fs::read_to_string(&page).unwrap();
    assert!(first == second, "the page remade differs");

    let text = place
        .fathom(&["report", dir.to_str().unwrap(), "--format", "terminal"])
        .expect(0);
    assert!(text.stdout.contains("Latency"), "{}", text.stdout);
    let json = place
        .fathom(&["report", dir.to_str().unwrap(), "--json"])
        .expect(0)
        .json();
    assert_eq!(json, place.the_run());
    for format in ["csv", "markdown"] {
        let out = place.dir.join(format);
        place
            .fathom(&[
                "report",
                dir.to_str().unwrap(),
                "--format",
                format,
                "--out",
                out.to_str().unwrap(),
            ])
            .expect(0);
        let files = names(&out);
        assert!(!files.is_empty(), "{format}");
        for file in &files {
            let content = fs::read_to_string(out.join(file)).unwrap();
            assert!(content.lines().count() > 1, "{file} is empty");
            if format == "csv" {
                square(file, &content);
            }
        }
        fs::remove_dir_all(out).unwrap();
    }
}

/// Every line of a CSV file has as many fields as its head (no field here holds a line break).
fn square(file: &str, content: &str) {
    let fields = |line: &str| {
        let mut quoted = false;
        1 + line
            .chars()
            .filter(|c| {
                quoted ^= *c == '"';
                *c == ',' && !quoted
            })
            .count()
    };
    let head = fields(content.lines().next().unwrap());
    for line in content.lines() {
        assert_eq!(fields(line), head, "{file}: {line}");
    }
}

#[test]
fn a_survey_where_direct_io_is_impossible_says_what_it_measures() {
    let _turn = beside_others();
    let place = Place::new();
    let memory = tempfile::Builder::new()
        .prefix("fathom-cli-")
        .tempdir_in("/dev/shm");
    let Ok(memory) = memory else {
        return skip("there is no /dev/shm");
    };
    let at = memory.path().to_str().unwrap().to_owned();
    let child = place.start(&["survey", &at, "--size", "16m"]);
    crate::common::until("the first job is done", || {
        let file = names(&place.runs())
            .first()
            .map(|n| place.runs().join(n).join("run.json"));
        file.and_then(|f| fs::read_to_string(f).ok())
            .is_some_and(|text| text.contains("read-4k-qd1.1"))
    });
    crate::common::send(child.id(), libc::SIGINT);
    let said = crate::common::end(child).expect(1);
    let direct = place.the_run()["jobs"][0]["spec"]["direct"] == true;
    assert!(
        direct || said.stderr.contains("no direct I/O here"),
        "{}",
        said.stderr
    );
    assert!(names(memory.path()).is_empty());
}
