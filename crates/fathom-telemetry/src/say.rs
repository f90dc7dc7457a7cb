//! Text for people at a terminal, whoever wrote it.
//!
//! Names come from runs of others, models, job files, options, devices and programs. Nothing of them may
//! command a terminal or make a line read as something else, so everything that is shown passes
//! [`harmless`]. This is the only place that writes to standard error: where nobody listens there, a run
//! goes on (`eprintln!` would panic).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;

/// Whether a character could command a terminal (C0, DEL, C1), turn the direction of a line, or break it
/// unseen.
fn commands(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with its control characters and direction marks as visible escapes such as `\u001b`, which JSON
/// and TOML read back as what they were. Line breaks and tabs stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let bad = |c: char| commands(c) && c != '\n' && c != '\t';
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if bad(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The same in one line: line breaks and tabs become spaces.
pub fn one_line(text: &str) -> String {
    harmless(text).replace(['\n', '\t'], " ")
}

/// Writes a text to standard error as it stands, made harmless.
pub fn text(text: &str) {
    let mut to = std::io::stderr().lock();
    // Where nobody listens, the run goes on.
    let _ = to.write_all(harmless(text).as_bytes());
    let _ = to.flush();
}

/// Says one thing on standard error, formatted like `println!` does.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::text(&(format!($($words)*) + "\n"))
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_commands_a_terminal_becomes_visible() {
        for (foreign, shown) in [
            ("\x1b]0;owned\x07", "\\u001b]0;owned\\u0007"),
            ("a\x1b[2Jb\r\u{202e}c", "a\\u001b[2Jb\\u000d\\u202ec"),
            ("\u{9b}31m\x7f", "\\u009b31m\\u007f"),
            ("µs ± 1\tand\nmore", "µs ± 1\tand\nmore"),
        ] {
            assert_eq!(harmless(foreign), shown);
        }
        assert_eq!(one_line("a\nb\x1b"), "a b\\u001b");
    }

    proptest! {
        #[test]
        fn nothing_of_any_text_commands_and_json_reads_it_back(words in any::<String>()) {
            let shown = harmless(&words);
            prop_assert!(!shown.contains(|c: char| commands(c) && c != '\n' && c != '\t'));
            let json = serde_json::to_string(&words).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&harmless(&json)).unwrap(), words);
        }
    }
}
