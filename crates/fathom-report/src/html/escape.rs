//! Text of a run in a page: everything is untrusted, nothing becomes markup.

use std::fmt;

use fathom_telemetry::say;

use crate::text::clean;

/// Displays text so that it stays text, in an element or in a quoted attribute.
pub(crate) struct Esc<'a>(pub(crate) &'a str);

impl fmt::Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in clean(self.0).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => fmt::Write::write_char(f, c)?,
            }
        }
        Ok(())
    }
}

/// Text as it stands in an element or in a quoted attribute of HTML or XML.
pub fn markup(text: &str) -> String {
    Esc(text).to_string()
}

/// A sentence with its command-line options as code, so that `--size` is not broken at its dashes.
pub(crate) fn with_options(text: &str) -> String {
    let mut out = String::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if !out.is_empty() {
            out.push(' ');
        }
        let (open, word) = match word.strip_prefix('(') {
            Some(word) => ("(", word),
            None => ("", word),
        };
        out.push_str(open);
        let (option, rest) = before_punctuation(word);
        if !option.starts_with("--") || option.len() == 2 {
            out.push_str(&Esc(word).to_string());
            continue;
        }
        // A number after an option is its value.
        let value =
            words.next_if(|w| rest.is_empty() && w.starts_with(|c: char| c.is_ascii_digit()));
        let (code, rest) = match value.map(before_punctuation) {
            Some((value, rest)) => (format!("{option} {value}"), rest),
            None => (option.to_owned(), rest),
        };
        out.push_str(&format!("<code>{}</code>{}", Esc(&code), Esc(rest)));
    }
    out
}

fn before_punctuation(word: &str) -> (&str, &str) {
    let end = word.trim_end_matches(['.', ',', ';', ':', ')']).len();
    word.split_at(end)
}

/// JSON that can stand in a script element and on a terminal: no `<`, no `&`, nothing that commands either.
pub(crate) fn script_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in say::harmless(json).chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            c => out.push(c),
        }
    }
    out
}

/// An identifier for anchors from any text: letters, digits and dashes.
pub(crate) fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(120) {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
    }
    out.truncate(out.trim_end_matches('-').len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_stays_text() {
        assert_eq!(
            Esc("<script>alert('x')</script> & \"y\"").to_string(),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;"
        );
    }

    #[test]
    fn options_in_advice_are_code_and_still_escaped() {
        assert_eq!(
            with_options("use --size=<4g>, --threads 4, or (--direct, best) if you can -- please"),
            "use <code>--size=&lt;4g&gt;</code>, <code>--threads 4</code>, or (<code>--direct</code>, best) if you can -- please"
        );
    }

    #[test]
    fn data_cannot_end_its_script_element_and_reads_back_the_same() {
        let value = serde_json::json!({"name": "</script><script>alert(1)</script>\u{2028}\u{9b}\u{202e}&"});
        let text = script_json(&value.to_string());
        assert!(!text.contains(['<', '\u{2028}', '\u{9b}', '\u{202e}']));
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, value);
    }

    #[test]
    fn slugs_are_safe_in_links() {
        assert_eq!(slug("Depth sweep: 4 KiB <b>"), "depth-sweep-4-kib-b");
        assert_eq!(slug("\u{1f600}"), "");
    }
}
