//! What the terminal can do.

use std::io::IsTerminal;

use fathom_report::Screen;

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

/// Prints text that may be cut short by a closed pipe, which is not an error.
pub(crate) fn print(text: &str) {
    use std::io::Write;
    crate::view::leave();
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
