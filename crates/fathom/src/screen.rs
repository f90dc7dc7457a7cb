//! Standard output: what the terminal can do, and the one place that prints to it.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use fathom_report::{Colour, Screen};
use fathom_telemetry::say;

use crate::exit::{Failure, failed};

/// The screen behind standard output.
pub(crate) fn screen() -> Screen {
    let width = width().unwrap_or(100);
    let colour = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
    if colour {
        Screen::colour(width)
    } else {
        Screen::plain(width)
    }
}

fn width() -> Option<usize> {
    if let Some(columns) = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()) {
        return Some(columns);
    }
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(stdout)
        .ok()
        .map(|s| usize::from(s.ws_col))
        .filter(|c| *c > 0)
}

/// Prints text, whoever wrote it: nothing of it but our own colours reaches a terminal as a command.
pub(crate) fn print(text: &str) {
    put(&screen().harmless(text));
}

/// Prints a line that the next one overwrites.
pub(crate) fn over(line: &str) {
    put(&(say::one_line(line) + "\r"));
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(failed)?;
    // The escapes of what is harmless are JSON's own.
    put(&say::harmless(&(text + "\n")));
    Ok(())
}

/// Prints what clap made of our own help, in its colours.
pub(crate) fn help(text: &clap::builder::StyledStr) {
    let text = match screen().colour {
        Colour::Ansi => text.ansi().to_string(),
        Colour::Plain => text.to_string(),
    };
    put(&text);
}

fn put(text: &str) {
    // What cannot be written is said at the end, see `trouble`.
    let _ = Out.write_all(text.as_bytes()).and_then(|()| Out.flush());
}

/// What standard output could not take.
static TROUBLE: OnceLock<std::io::Error> = OnceLock::new();

/// Why standard output is not whole. A reader that has seen enough and closed the pipe is no trouble.
pub(crate) fn trouble() -> Option<&'static std::io::Error> {
    TROUBLE
        .get()
        .filter(|e| e.kind() != std::io::ErrorKind::BrokenPipe)
}

/// Standard output; its first error is kept, and nothing is written after it.
struct Out;

impl Out {
    fn checked<T>(
        act: impl FnOnce(&mut std::io::StdoutLock<'_>) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        crate::view::leave();
        if let Some(e) = TROUBLE.get() {
            return Err(e.kind().into());
        }
        act(&mut std::io::stdout().lock()).map_err(|e| {
            let kind = e.kind();
            if kind != std::io::ErrorKind::Interrupted {
                let _ = TROUBLE.set(e);
            }
            kind.into()
        })
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Self::checked(|out| out.write(bytes))
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Self::checked(|out| out.flush())
    }
}

/// Whether rows are data for programs, to be left as they are where no terminal reads them.
#[cfg(feature = "query")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// CSV.
    Data,
    /// A table or JSON.
    Text,
}

/// Standard output for many rows, a line at a time.
#[cfg(feature = "query")]
pub(crate) fn rows(rows: Rows) -> impl Write {
    let raw = rows == Rows::Data && !std::io::stdout().is_terminal();
    std::io::BufWriter::with_capacity(
        1 << 16,
        Lines {
            raw,
            line: Vec::new(),
        },
    )
}

/// Makes whole lines harmless.
#[cfg(feature = "query")]
struct Lines {
    raw: bool,
    line: Vec<u8>,
}

#[cfg(feature = "query")]
impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.raw {
            Out.write_all(bytes)?;
            return Ok(bytes.len());
        }
        self.line.extend_from_slice(bytes);
        let whole = self
            .line
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |n| n + 1);
        let text = String::from_utf8_lossy(&self.line[..whole]).replace("\r\n", "\n");
        Out.write_all(say::harmless(&text).as_bytes())?;
        self.line.drain(..whole);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        let rest = std::mem::take(&mut self.line);
        Out.write_all(say::harmless(&String::from_utf8_lossy(&rest)).as_bytes())?;
        Out.flush()
    }
}
