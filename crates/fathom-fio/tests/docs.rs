//! The table of options in `docs/fio.md` is the program's own, and says which test shows that an option works.
//! `FATHOM_UPDATE_DOCS=1` rewrites it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fathom_fio::options::{self, Fate, OptionDef};

const BEGIN: &str = "<!-- options -->\n";
const END: &str = "<!-- end of options -->\n";

/// Options that work and that no test shows by name yet. It may only get shorter.
#[rustfmt::skip]
const UNSHOWN: &[&str] = &[
];

/// The test of the script that has a job per option.
const PER_OPTION: &str = "each_option_does_what_it_does_in_fio";

fn sources() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut left = vec![
        here.join("src"),
        here.join("../fathom/tests/fio.rs"),
        here.join("../fathom/tests/fio_beside"),
    ];
    let mut out = Vec::new();
    while let Some(path) = left.pop() {
        match std::fs::read_dir(&path) {
            Ok(list) => left.extend(list.flatten().map(|e| e.path())),
            Err(_) => out.push(path),
        }
    }
    out.sort();
    out
}

/// Tests by name, with their text.
fn tests() -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|e| e == "fio") {
            out.insert(PER_OPTION.to_owned(), text);
            continue;
        }
        for part in text.split("#[test]").skip(1) {
            let Some((_, tail)) = part.split_once("fn ") else {
                continue;
            };
            let name: String = tail
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if name != PER_OPTION {
                out.insert(name, part.to_owned());
            }
        }
    }
    out
}

/// Whether a test gives the option: `--name=…`, `--name`, `name=…` or a line of a job file. A word of a sentence or a key of
/// an output is none.
fn gives(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let head = &text[..at];
        let after = text[at + name.len()..].chars().next();
        if head.ends_with("--") || head.ends_with("\\n") || head.ends_with('\n') {
            return matches!(after, Some('=' | '"' | '\n' | '\\' | ' '));
        }
        head.ends_with(['"', ' ', '{']) && after == Some('=')
    })
}

fn shown_by<'a>(o: &OptionDef, tests: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let given = |text: &str| gives(text, o.name) || (!o.alias.is_empty() && gives(text, o.alias));
    let mut found = tests.iter().filter(|t| given(t.1)).map(|t| t.0.as_str());
    let first = found.next()?;
    // What compares with fio itself says more than the rest.
    Some(if first != PER_OPTION && found.any(|t| t == PER_OPTION) {
        PER_OPTION
    } else {
        first
    })
}

fn table() -> String {
    let tests = tests();
    let mut out =
        String::from("| option | fate | how, or why not | shown by |\n| --- | --- | --- | --- |\n");
    for o in options::all() {
        let alias = if o.alias.is_empty() {
            String::new()
        } else {
            format!(", `{}`", o.alias)
        };
        let engines = if o.engines.is_empty() {
            String::new()
        } else {
            format!(" ({})", o.engines.join(", "))
        };
        let (fate, shown) = match o.fate {
            Fate::Mapped => ("works", shown_by(o, &tests)),
            Fate::Harmless => ("without effect", None),
            Fate::Refused => ("refused", None),
        };
        let shown = shown.map_or(String::new(), |t| format!("`{t}`"));
        out += &format!(
            "| `{}`{alias}{engines} | {fate} | {} | {shown} |\n",
            o.name, o.note
        );
    }
    out
}

#[test]
fn the_table_in_the_documentation_is_the_programs_own() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fio.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (written, tail) = rest.split_once(END).unwrap();
    if std::env::var_os("FATHOM_UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{BEGIN}{}{END}{tail}", table())).unwrap();
        return;
    }
    assert!(
        written == table(),
        "run FATHOM_UPDATE_DOCS=1 cargo test -p fathom-fio --test docs"
    );
}

#[test]
fn every_option_that_works_is_shown_by_a_test() {
    let tests = tests();
    let unshown: Vec<&str> = options::all()
        .filter(|o| o.fate == Fate::Mapped && shown_by(o, &tests).is_none())
        .map(|o| o.name)
        .collect();
    assert_eq!(
        unshown, UNSHOWN,
        "left: what no test gives now; the list of such options may only get shorter"
    );
}

/// Nothing is accepted without a word on why it has no effect.
#[test]
fn every_option_says_how_it_works_or_why_not() {
    for o in options::all() {
        assert!(!o.note.is_empty(), "{}", o.name);
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = options::all()
        .flat_map(|o| [o.name, o.alias])
        .filter(|n| !n.is_empty())
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(options::all().count() >= 143);
}
