//! The table of options in `docs/fio.md` is the program's own. `FATHOM_UPDATE_DOCS=1` rewrites it.

use fathom_fio::options::{self, Fate};

const BEGIN: &str = "<!-- options -->\n";
const END: &str = "<!-- end of options -->\n";

fn table() -> String {
    let mut out = String::from("| option | fate | how |\n| --- | --- | --- |\n");
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
        let fate = match o.fate {
            Fate::Mapped => "maps",
            Fate::Harmless => "accepted",
            Fate::Refused => "refused",
        };
        out += &format!("| `{}`{alias}{engines} | {fate} | {} |\n", o.name, o.note);
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
