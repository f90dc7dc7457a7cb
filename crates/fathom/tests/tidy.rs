//! Style that a machine can check: rules of the repository that neither rustfmt nor clippy knows.

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms, lowest first: a crate may only depend on crates before it.
const ROOMS: [&str; 15] = [
    "fathom-files",
    "fathom-stats",
    "fathom-telemetry",
    "fathom-host",
    "fathom-io",
    "fathom-kv",
    "fathom-stack",
    "fathom-sim",
    "fathom-system",
    "fathom-bench",
    "fathom-experiments",
    "fathom-labs",
    "fathom-fio",
    "fathom-report",
    "fathom",
];

/// Further arrows that no room may have: who must never know whom.
const STRANGERS: [(&str, &[&str]); 8] = [
    (
        "fathom-report",
        &[
            "fathom-host",
            "fathom-io",
            "fathom-stack",
            "fathom-sim",
            "fathom-bench",
            "fathom-experiments",
        ],
    ),
    ("fathom-stack", &["fathom-io"]),
    ("fathom-sim", &["fathom-host"]),
    ("fathom-experiments", &["fathom-report", "fathom-kv"]),
    ("fathom-bench", &["fathom-kv", "fathom-system"]),
    ("fathom-kv", &["fathom-host"]),
    ("fathom-system", &["fathom-kv"]),
    ("fathom-labs", &["fathom-report"]),
];

/// A file is read in one sitting.
const LINES_MAX: usize = 700;

/// A function is understood at one look.
const FUNCTION_LINES_MAX: usize = 80;

/// Who may look at the time: the clock, the display, and the run's own duration.
const TIMEKEEPERS: [&str; 3] = [
    "fathom-io/src/clock.rs",
    "fathom/src/progress.rs",
    "fathom-bench/src/notebook.rs",
];

/// Ways to make a file or a directory, and to open something for writing.
const MAKERS: [&str; 21] = [
    "File::create",
    "File::options",
    "OpenOptions",
    "fs::write(",
    "fs::copy(",
    "fs::rename(",
    "fs::hard_link(",
    "symlink(",
    "create_dir",
    "DirBuilder",
    "fs::open(",
    "fs::openat(",
    "fs::mkdirat(",
    "OFlags::CREATE",
    "OFlags::WRONLY",
    "OFlags::RDWR",
    "OFlags::TMPFILE",
    "O_CREAT",
    "O_TRUNC",
    "libc::open",
    "libc::mkdir",
];

/// Who may use them beside `fathom-files`, which of them, and why.
const MAKERS_ELSEWHERE: [(&str, &[&str]); 6] = [
    // A child after fork must not allocate, and undoes what its list says: known nodes, opened O_EXCL and O_NOFOLLOW.
    ("fathom-system/src/cleanup.rs", &["libc::open"]),
    ("fathom-system/src/mapper.rs", &["libc::open"]),
    // A rename is what is measured, inside a directory that the lab made.
    ("fathom-labs/src/app/copy.rs", &["fs::rename("]),
    ("fathom-labs/src/files/phase.rs", &["fs::rename("]),
    ("fathom-labs/src/files/steps.rs", &["fs::rename("]),
    // The room itself.
    ("fathom-files/", &MAKERS),
];

struct Source {
    /// Below `crates/`.
    name: String,
    text: String,
}

impl Source {
    /// Lines of code with their numbers: no comments, and no tests at the bottom.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines
            .windows(2)
            .position(|w| w[0] == "#[cfg(test)]" && w[1].contains("mod ") && w[1].ends_with('{'));
        let end = tests.unwrap_or(lines.len());
        lines
            .into_iter()
            .enumerate()
            .take(end)
            .filter(|(_, l)| !l.trim_start().starts_with("//"))
            .map(|(i, l)| (i + 1, l))
    }

    fn is_product(&self) -> bool {
        self.name.contains("/src/") && !self.name.ends_with("/tests.rs")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || name == "target" || name == ".git" || name == "fathom-runs" {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let crates = root().join("crates");
    let mut paths = Vec::new();
    files(&crates, &mut paths);
    paths.retain(|p| p.extension().is_some_and(|e| e == "rs"));
    let all: Vec<Source> = paths
        .iter()
        .map(|p| Source {
            name: p.strip_prefix(&crates).unwrap().display().to_string(),
            text: fs::read_to_string(p).unwrap(),
        })
        .collect();
    assert!(all.len() > 50, "the sources were not found");
    all
}

/// Fails with every finding and what to do instead.
#[track_caller]
fn none(found: &[String], remedy: &str) {
    assert!(found.is_empty(), "{remedy}:\n  {}", found.join("\n  "));
}

/// Whether a word stands in a line, and is not the end of a longer name.
fn stands_in(line: &str, word: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !word.starts_with(name) || !line[..at].ends_with(name))
}

/// Places in product code (`also` narrows it) that hold one of the words.
fn places(words: &[&str], also: impl Fn(&Source) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for s in sources().iter().filter(|s| s.is_product() && also(s)) {
        for (n, line) in s.code() {
            for w in words.iter().filter(|w| stands_in(line, w)) {
                found.push(format!("{}:{n}: {w}", s.name));
            }
        }
    }
    found
}

#[test]
fn files_are_made_and_opened_for_writing_in_one_room() {
    let mut used = std::collections::BTreeSet::new();
    let mut found = Vec::new();
    for place in places(&MAKERS, |_| true) {
        let allowed = MAKERS_ELSEWHERE.iter().find(|(file, words)| {
            place.starts_with(file) && words.iter().any(|w| place.ends_with(&format!(": {w}")))
        });
        match allowed {
            Some((file, _)) => drop(used.insert(*file)),
            None => found.push(place),
        }
    }
    none(&found, "ask fathom_files: create, output, open or kernel");
    let superfluous: Vec<String> = MAKERS_ELSEWHERE
        .iter()
        .filter(|(file, _)| !used.contains(file))
        .map(|(file, _)| (*file).to_owned())
        .collect();
    none(&superfluous, "take it off the list of exceptions");
}

#[test]
fn time_is_read_through_the_clock() {
    let found = places(&["Instant::now", "SystemTime::now().elapsed"], |s| {
        !TIMEKEEPERS.contains(&s.name.as_str())
    });
    none(&found, "use fathom_io::clock::Clock, or a port's clock");
}

#[test]
fn one_place_writes_to_each_of_the_standard_outputs() {
    // The view draws on a terminal that it has taken over.
    let writers = [
        "fathom-telemetry/src/say.rs",
        "fathom/src/screen.rs",
        "fathom/src/view/terminal.rs",
    ];
    // What two processes of fathom's say to each other is no text.
    let protocols = [
        "fathom/src/commands/guest_agent.rs",
        "fathom-labs/src/app/swap.rs",
    ];
    let found = places(
        &["println!(", "print!(", "io::stdout()", "io::stderr()"],
        |s| !writers.contains(&s.name.as_str()) && !protocols.contains(&s.name.as_str()),
    );
    let asked = |f: &String| f.starts_with("fathom/src/progress.rs") && f.ends_with("io::stderr()");
    let found: Vec<String> = found.into_iter().filter(|f| !asked(f)).collect();
    none(
        &found,
        "say! for people on standard error, screen::print for results: both make foreign text harmless and survive a full pipe",
    );
}

#[test]
fn every_thread_is_created_with_a_check() {
    let words = ["thread::spawn(", "scope.spawn(", "s.spawn("];
    none(
        &places(&words, |_| true),
        "these panic where the system refuses a thread: use fathom_io::threads::within, or thread::Builder",
    );
}

#[test]
fn everything_random_has_a_seed() {
    let words = [
        "thread_rng",
        "rand::random",
        "rand::rng()",
        "from_entropy",
        "from_os_rng",
        "OsRng",
        "RandomState",
    ];
    none(&places(&words, |_| true), "derive it from the run's seed");
}

#[test]
fn the_io_path_does_not_panic() {
    let rooms = ["load/", "port/", "driver/"].map(|r| format!("fathom-io/src/{r}"));
    let found = places(&[".unwrap()", ".expect(", "panic!("], |s| {
        rooms.iter().any(|r| s.name.starts_with(r))
    });
    none(&found, "handle it, or return an error");
}

#[test]
fn nothing_unfinished_is_left() {
    let words = ["todo!(", "unimplemented!(", "dbg!("];
    none(
        &places(&words, |_| true),
        "finish it, or say what is missing",
    );
}

#[test]
fn every_finding_says_what_would_refute_it() {
    let (mut found, mut seen) = (Vec::new(), 0);
    for s in sources().iter().filter(|s| s.is_product()) {
        let lines: Vec<(usize, &str)> = s.code().collect();
        for (i, (n, line)) in lines.iter().enumerate() {
            if !line.ends_with("Finding {")
                || ["struct", "impl", "->"].iter().any(|w| line.contains(w))
            {
                continue;
            }
            seen += 1;
            let indent = |l: &str| l.len() - l.trim_start().len();
            let body = lines[i + 1..]
                .iter()
                .map(|(_, l)| *l)
                .take_while(|l| indent(l) > indent(line) || l.is_empty());
            // Those that copy another one have its words.
            if !body
                .into_iter()
                .any(|l| l.contains("refuted_by") || l.contains(".clone()"))
            {
                found.push(format!("{}:{n}", s.name));
            }
        }
    }
    assert!(seen > 20, "findings were not found: {seen}");
    none(&found, "set refuted_by: what would show that it is wrong");
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let mut found = Vec::new();
    for s in sources() {
        let lines: Vec<&str> = s.text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            let block = code.contains("unsafe {") || code.contains("unsafe impl");
            let function = code.contains("unsafe fn") || code.contains("unsafe extern");
            if !(block || function) || code.contains('"') {
                continue;
            }
            // The reason stands above, perhaps above the rest of the statement or its attributes.
            let above = lines[i.saturating_sub(8)..i].iter();
            let said = above
                .rev()
                .any(|l| l.contains("SAFETY:") || l.contains("# Safety"));
            if !said {
                found.push(format!("{}:{}", s.name, i + 1));
            }
        }
    }
    none(&found, "write // SAFETY: and the invariant above it");
}

#[test]
fn files_are_short_enough_to_be_read() {
    let mut found = Vec::new();
    for s in sources() {
        let n = s.text.lines().count();
        if n > LINES_MAX {
            found.push(format!("{}: {n} lines", s.name));
        }
    }
    none(&found, "make two files of it");
}

/// The name of the function that begins on a line.
fn function_named(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let qualifies = |w: &str| {
        w.starts_with("pub") || ["const", "unsafe", "async", "in"].contains(&w) || w.ends_with(')')
    };
    let whole = line.ends_with(['}', ';']);
    let named = !whole && before.split_whitespace().all(qualifies);
    after.split(['(', '<']).next().filter(|_| named)
}

/// Functions with more lines than [`FUNCTION_LINES_MAX`].
fn long_functions(s: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    // Name, first line and indentation of those that have not ended yet.
    let mut open: Vec<(&str, usize, usize)> = Vec::new();
    for (n, line) in s.code() {
        let indent = line.len() - line.trim_start().len();
        if let Some(name) = function_named(line) {
            open.retain(|o| o.2 < indent);
            open.push((name, n, indent));
        } else if line.trim_start() == "}" {
            open.retain(|o| o.2 <= indent);
            let ended = open.pop_if(|o| o.2 == indent);
            found.extend(ended.map(|(name, first, _)| (name.to_owned(), n - first + 1)));
        }
    }
    found.retain(|f| f.1 > FUNCTION_LINES_MAX);
    found
}

#[test]
fn functions_are_short_enough_to_be_understood() {
    let mut found = Vec::new();
    let all = sources();
    for s in all
        .iter()
        .filter(|s| s.is_product() && !s.name.contains("tests"))
    {
        let long = long_functions(s).into_iter();
        found.extend(long.map(|(name, lines)| format!("{}: {name}, {lines} lines", s.name)));
    }
    none(&found, "say in functions of their own what its parts do");
}

#[test]
fn a_long_function_is_found_and_a_short_one_after_it_is_not() {
    let body = "        work();\n".repeat(FUNCTION_LINES_MAX - 1);
    let text = format!(
        "impl A {{\n    pub(crate) fn long<T>(a: T) {{\n{body}    }}\n\n    fn short() {{\n    }}\n}}\n"
    );
    let source = Source {
        name: "a/src/lib.rs".into(),
        text,
    };
    let long = vec![("long".to_owned(), FUNCTION_LINES_MAX + 1)];
    assert_eq!(long_functions(&source), long);
}

#[test]
fn files_begin_with_what_they_are_for() {
    let mut found = Vec::new();
    for s in sources() {
        if !s.text.starts_with("//! ") {
            found.push(s.name);
        }
    }
    none(&found, "begin it with //! and what it is for");
}

#[test]
fn arrows_between_rooms_point_down() {
    let mut found = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let dir = entry.unwrap().path();
        let Ok(manifest) = fs::read_to_string(dir.join("Cargo.toml")) else {
            continue;
        };
        let manifest: toml::Table = manifest.parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap().to_owned();
        let Some(rank) = ROOMS.iter().position(|r| *r == name) else {
            found.push(format!("{name} has no place in the list of rooms"));
            continue;
        };
        seen += 1;
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(toml::Value::Table(list)) = manifest.get(kind) else {
                continue;
            };
            for other in list.keys() {
                let up = ROOMS.iter().position(|r| r == other);
                let stranger = STRANGERS
                    .iter()
                    .any(|(who, whom)| *who == name && whom.contains(&other.as_str()));
                if up.is_some_and(|up| up >= rank) || (stranger && kind == "dependencies") {
                    found.push(format!("{name} → {other} ({kind})"));
                }
            }
        }
    }
    assert_eq!(seen, ROOMS.len(), "a room of the list is missing");
    none(&found, "turn the arrow round, or move the code");
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let roots = ["root", "work", "Users"].map(|r| format!("/{r}/"));
    let mut all = Vec::new();
    files(&root(), &mut all);
    let mut found = Vec::new();
    for path in all {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (i, line) in text.lines().enumerate() {
            for r in &roots {
                let starts = |at: usize| {
                    let before = line[..at].chars().next_back();
                    before.is_none_or(|c| !(c.is_alphanumeric() || "._-*}$~/".contains(c)))
                };
                if line.match_indices(r.as_str()).any(|(at, _)| starts(at)) {
                    found.push(format!("{}:{}: {r}", path.display(), i + 1));
                }
            }
        }
    }
    none(&found, "use a relative path or one from the environment");
}

/// `docs/safety.md` says which test holds each scenario; none may be claimed that nobody tests.
#[test]
fn every_scenario_of_the_safety_page_has_its_test() {
    let page = fs::read_to_string(root().join("docs/safety.md")).unwrap();
    let table = page.split("## What was tried").nth(1).unwrap_or_default();
    let mut found = Vec::new();
    let mut scenarios = 0;
    // The head and the line below it are no scenarios.
    for line in table.lines().filter(|l| l.starts_with("| ")).skip(2) {
        let test = line.trim_end_matches(['|', ' ']).rsplit("| ").next();
        let Some((file, name)) = test.and_then(|t| t.trim_matches('`').split_once("::")) else {
            found.push(format!("no test: {line}"));
            continue;
        };
        scenarios += 1;
        let path = root().join("crates").join(format!("{file}.rs"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let name = name.trim_start_matches("alone::");
        if !text.contains(&format!("fn {name}(")) {
            found.push(format!("{file}::{name}"));
        }
    }
    assert!(
        scenarios >= 80,
        "{scenarios} scenarios, expected 80 or more"
    );
    none(&found, "name the test that holds the scenario");
}
