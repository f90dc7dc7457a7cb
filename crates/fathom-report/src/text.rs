//! Plain text: aligned columns, wrapping, colour only where told.
//!
//! Text of a run is untrusted: control characters (terminal escapes among them)
//! are made visible before anything is printed, see `fathom_telemetry::say`.

use std::borrow::Cow;

use fathom_telemetry::say;

/// What the reader's screen can do; the binary decides by terminal, size and `NO_COLOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: usize,
    /// Whether to use colour and bold.
    pub colour: Colour,
}

/// Colour or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// ANSI sequences.
    Ansi,
    /// None at all.
    Plain,
}

impl Screen {
    /// Without colour, `width` columns (at least 40).
    pub fn plain(width: usize) -> Self {
        Self {
            width: width.max(40),
            colour: Colour::Plain,
        }
    }
    /// With colour, `width` columns (at least 40).
    pub fn colour(width: usize) -> Self {
        Self {
            width: width.max(40),
            colour: Colour::Ansi,
        }
    }

    /// `text` in a style.
    pub(crate) fn paint(&self, paint: Paint, text: &str) -> String {
        if self.colour == Colour::Plain || paint == Paint::None || text.is_empty() {
            return text.to_owned();
        }
        format!("{}{text}{}", paint.sequence(), Paint::None.sequence())
    }

    /// Text as it may reach this screen: of all that could command a terminal only the colours of
    /// [`Paint`] are left, and none where the screen has no colour.
    pub fn harmless<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.colour == Colour::Plain {
            return say::harmless(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\x1b') {
            out.push_str(&say::harmless(&rest[..at]));
            rest = &rest[at..];
            let ours = Paint::ALL.map(Paint::sequence);
            let ours = ours.into_iter().find(|s| rest.starts_with(s));
            let length = ours.map_or(1, str::len);
            match ours {
                Some(sequence) => out.push_str(sequence),
                None => out.push_str(&say::harmless(&rest[..length])),
            }
            rest = &rest[length..];
        }
        out.push_str(&say::harmless(rest));
        Cow::Owned(out)
    }
}

/// A style of the palette.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Paint {
    /// As it is.
    #[default]
    None,
    /// Headings and main numbers.
    Bold,
    /// Secondary text.
    Dim,
    /// Void numbers.
    Red,
    /// Flags.
    Yellow,
    /// Advice.
    Cyan,
}

impl Paint {
    const ALL: [Self; 6] = [
        Self::None,
        Self::Bold,
        Self::Dim,
        Self::Red,
        Self::Yellow,
        Self::Cyan,
    ];

    /// What switches a terminal to this style.
    const fn sequence(self) -> &'static str {
        match self {
            Self::None => "\x1b[0m",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Red => "\x1b[1;31m",
            Self::Yellow => "\x1b[33m",
            Self::Cyan => "\x1b[36m",
        }
    }
}

/// A run's text in one line, with nothing in it that commands a terminal.
pub fn clean(text: &str) -> String {
    say::one_line(text)
}

/// Columns that `text` takes (every character of our vocabulary, µ and ± among them, takes one).
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
}

/// `text` cut to `max` columns, with an ellipsis where something is missing.
pub(crate) fn fit(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(max.saturating_sub(1)).collect();
    out.truncate(out.trim_end().len());
    out.push('…');
    out
}

/// `text` cut in the middle: names of jobs differ at their ends.
pub(crate) fn fit_middle(text: &str, max: usize) -> String {
    let all = width(text);
    if all <= max {
        return text.to_owned();
    }
    let kept = max.saturating_sub(1);
    let tail = kept * 2 / 3;
    let mut out: String = text.chars().take(kept - tail).collect();
    out.push('…');
    out.extend(text.chars().skip(all - tail));
    out
}

/// A command line so that a shell reads the same words.
pub(crate) fn shell_quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let words: Vec<String> = words
        .iter()
        .map(|w| {
            if !w.is_empty() && w.chars().all(plain) {
                w.clone()
            } else {
                format!("'{}'", w.replace('\'', "'\\''"))
            }
        })
        .collect();
    words.join(" ")
}

/// Wraps at spaces into lines of `max` columns; those after the first are indented by `indent` more.
pub(crate) fn wrap(text: &str, max: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let w = width(word);
        if column > 0 && column + 1 + w > max {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += w;
    }
    out
}

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Where text that is too wide is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cut {
    /// At its end.
    #[default]
    End,
    /// In its middle.
    Middle,
}

/// Rows in aligned columns.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    align: Vec<Align>,
    /// Where a first column that is too wide loses its letters.
    pub(crate) cut: Cut,
    rows: Vec<Vec<(String, Paint)>>,
}

impl Grid {
    /// Columns with these alignments; two spaces between them.
    pub(crate) fn new(align: &[Align]) -> Self {
        Self {
            align: align.to_vec(),
            cut: Cut::End,
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = (String, Paint)>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.align.len()];
        for row in &self.rows {
            for (w, (text, _)) in widths.iter_mut().zip(row) {
                *w = (*w).max(width(text));
            }
        }
        widths
    }

    /// Columns that the widest line takes when nothing is cut.
    pub(crate) fn natural_width(&self) -> usize {
        let widths = self.widths();
        let gaps = 2 * widths.iter().skip(1).filter(|w| **w > 0).count();
        gaps + widths.iter().sum::<usize>()
    }

    /// The lines, each beginning with `indent` spaces. Where they do not fit, the first column is
    /// cut (never a number).
    pub(crate) fn lines(&self, screen: &Screen, indent: usize) -> Vec<String> {
        let mut widths = self.widths();
        let total = indent + self.natural_width();
        if total > screen.width && !widths.is_empty() {
            widths[0] = widths[0].saturating_sub(total - screen.width).max(12);
        }
        self.rows
            .iter()
            .map(|row| {
                let mut line = " ".repeat(indent);
                for (i, (w, align)) in widths.iter().zip(&self.align).enumerate() {
                    let empty = (String::new(), Paint::None);
                    let (text, paint) = row.get(i).unwrap_or(&empty);
                    if *w == 0 {
                        continue;
                    }
                    if i > 0 {
                        line.push_str("  ");
                    }
                    let text = match self.cut {
                        Cut::Middle if i == 0 => fit_middle(text, *w),
                        _ => fit(text, *w),
                    };
                    let pad = " ".repeat(w - width(&text));
                    match align {
                        Align::Left => {
                            line.push_str(&screen.paint(*paint, &text));
                            line.push_str(&pad);
                        }
                        Align::Right => {
                            line.push_str(&pad);
                            line.push_str(&screen.paint(*paint, &text));
                        }
                    }
                }
                line.truncate(line.trim_end().len());
                line
            })
            .collect()
    }
}

/// A flag's or an experiment's name for people: `io-errors` becomes `I/O errors`.
pub(crate) fn human(name: &str) -> String {
    let words: Vec<&str> = name
        .split(['-', '_'])
        .map(|w| match w {
            "io" => "I/O",
            "cpu" => "CPU",
            w => w,
        })
        .collect();
    words.join(" ")
}

/// `text` with a capital first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut c = text.chars();
    c.next()
        .map(|first| first.to_uppercase().chain(c).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_of_a_run_do_not_reach_the_terminal() {
        assert_eq!(
            clean("a\x1b[2Jb\r\u{202e}c\nd"),
            "a\\u001b[2Jb\\u000d\\u202ec d"
        );
    }

    #[test]
    fn of_all_escapes_only_our_own_colours_reach_a_screen_and_none_a_plain_one() {
        let colour = Screen::colour(80);
        let ours = colour.paint(Paint::Red, "void") + " \x1b[8mhidden\x1b]0;title\x07 \x1b";
        assert_eq!(
            colour.harmless(&ours),
            "\x1b[1;31mvoid\x1b[0m \\u001b[8mhidden\\u001b]0;title\\u0007 \\u001b"
        );
        assert!(!Screen::plain(80).harmless(&ours).contains('\x1b'));
    }

    #[test]
    fn micro_and_plus_minus_take_one_column() {
        let mut g = Grid::new(&[Align::Left, Align::Right, Align::Left]);
        let cell = |t: &str| (t.to_owned(), Paint::None);
        g.row([cell("read"), cell("84.2 µs"), cell("± 1.3")]);
        g.row([cell("write"), cell("1.02 ms"), cell("± 0.02")]);
        let lines = g.lines(&Screen::plain(80), 0);
        assert_eq!(lines, ["read   84.2 µs  ± 1.3", "write  1.02 ms  ± 0.02"]);
    }

    #[test]
    fn names_keep_their_ends() {
        assert_eq!(
            fit_middle("sweep-randread-4k-qd128-r0", 14),
            "sweep…qd128-r0"
        );
        assert_eq!(fit_middle("short", 14), "short");
    }

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let words = ["fathom", "survey", "/mnt/my disk", "it's"].map(str::to_owned);
        assert_eq!(
            shell_quoted(&words),
            "fathom survey '/mnt/my disk' 'it'\\''s'"
        );
    }

    #[test]
    fn text_wraps_between_words_with_a_hanging_indent() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
    }
}
