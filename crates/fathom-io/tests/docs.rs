//! docs/jobs.md lists every option of the table, with its own words.

use std::fmt::Write as _;
use std::path::Path;

use fathom_io::job::OPTIONS;

fn table() -> String {
    let mut text = String::new();
    let mut heading = "";
    for o in OPTIONS {
        if o.heading != heading {
            heading = o.heading;
            let _ = write!(
                text,
                "\n**{heading}**\n\n| option | value | meaning |\n| --- | --- | --- |\n"
            );
        }
        let value = if o.value.is_empty() {
            "(switch)"
        } else {
            o.value
        };
        let _ = writeln!(
            text,
            "| `{}` | {value} | {} |",
            o.name,
            o.help.replace('|', "\\|")
        );
    }
    text
}

/// `UPDATE_DOCS=1 cargo test -p fathom-io --test docs` writes it.
#[test]
fn the_page_lists_every_option() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/jobs.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("held to it by a test -->\n").unwrap();
    let (old, after) = rest.split_once("\n## What the words mean").unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let new = format!(
            "{before}held to it by a test -->\n{}\n## What the words mean{after}",
            table()
        );
        std::fs::write(&path, new).unwrap();
        return;
    }
    assert_eq!(
        old,
        table(),
        "run UPDATE_DOCS=1 cargo test -p fathom-io --test docs"
    );
}
