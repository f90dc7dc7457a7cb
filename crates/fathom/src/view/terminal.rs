//! The terminal behind standard error and standard input: whole screen, single keys, and back.
//!
//! A few escape sequences that every terminal of the last thirty years knows, so no library is needed
//! (twenty crates for ratatui and crossterm). Signals keep working: Ctrl-C ends a run as ever, and Ctrl-Z
//! gives the terminal back to the shell until the run is in the foreground again.

use std::io::{IsTerminal, Read, Write};
use std::sync::atomic::Ordering;

use fathom_telemetry::say;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::draw::{Line, Style};
use crate::signals::Stops;
use crate::tty::{BEFORE, TAKEN, foreground, give_back};

/// Alternate screen, no cursor, no wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";

/// A terminal that is taken over until it is dropped.
pub(super) struct Terminal(Stops);

impl Terminal {
    /// Whether both ends are a terminal that can be taken over.
    pub(super) fn possible() -> bool {
        std::io::stderr().is_terminal()
            && std::io::stdin().is_terminal()
            && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
    }

    /// Takes it over; `None` where it cannot be.
    pub(super) fn enter() -> Option<Self> {
        if BEFORE.get().is_none() {
            let _ = BEFORE.set(tcgetattr(std::io::stdin()).ok()?);
        }
        let terminal = Self(Stops::ask().ok()?);
        // A run that begins in the background takes it when it comes to the foreground.
        (!foreground() || terminal.take()).then_some(terminal)
    }

    /// Whether the terminal is ours to draw on and read from now. Gives it back and stops where the process
    /// is to stop, and takes it over again when it goes on in the foreground.
    pub(super) fn ours(&self) -> bool {
        if self.0.asked() {
            give_back();
            self.0.stop();
        }
        if !foreground() {
            return false;
        }
        // While the process was stopped others may have used the terminal.
        let again = self.0.went_on();
        (TAKEN.load(Ordering::Relaxed) && !again) || self.take()
    }

    fn take(&self) -> bool {
        let Some(before) = BEFORE.get() else {
            return false;
        };
        let mut single = before.clone();
        single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // Reading waits a tenth of a second for a key: that is the beat of the view.
        single.special_codes[SpecialCodeIndex::VMIN] = 0;
        single.special_codes[SpecialCodeIndex::VTIME] = 1;
        if tcsetattr(std::io::stdin(), OptionalActions::Now, &single).is_err() {
            return false;
        }
        TAKEN.store(true, Ordering::Relaxed);
        let _ = std::io::stderr().write_all(ENTER.as_bytes());
        true
    }

    /// Columns and lines.
    pub(super) fn size() -> (usize, usize) {
        tcgetwinsize(std::io::stderr())
            .ok()
            .filter(|s| s.ws_col > 0 && s.ws_row > 0)
            .map_or((80, 24), |s| (s.ws_col.into(), s.ws_row.into()))
    }

    /// Keys that were pressed; waits a tenth of a second for one.
    pub(super) fn keys() -> Vec<u8> {
        let mut buffer = [0; 64];
        let n = std::io::stdin().lock().read(&mut buffer).unwrap_or(0);
        buffer[..n].to_vec()
    }

    /// Shows a screen, in one write, so that it does not flicker.
    pub(super) fn show(lines: &[Line], colour: bool) {
        let mut text = String::from("\x1b[H");
        for (i, line) in lines.iter().enumerate() {
            if i > 0 {
                text.push_str("\r\n");
            }
            // Cleared before it is written: at the right edge the cursor stays on the last letter, which would go.
            text.push_str("\x1b[0m\x1b[K");
            for (style, piece) in line {
                if colour {
                    text.push_str(&sequence(*style));
                }
                text.push_str(&say::one_line(piece));
            }
            text.push_str("\x1b[0m");
        }
        if lines.len() == 1 {
            text.push_str("\r\n\x1b[J");
        }
        let mut err = std::io::stderr().lock();
        let _ = err.write_all(text.as_bytes());
        let _ = err.flush();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// The escape sequence of a style. Heat is one hue of the 256 colours from dark to bright, which reads on
/// dark and light backgrounds and to colour-blind eyes; the letters carry the same by their density.
fn sequence(style: Style) -> String {
    const HEAT: [u8; 8] = [24, 25, 31, 32, 38, 74, 80, 123];
    match style {
        Style::Plain => "\x1b[0m".to_owned(),
        Style::Strong => "\x1b[0;1m".to_owned(),
        Style::Soft => "\x1b[0;2m".to_owned(),
        Style::Warning => "\x1b[0;1;33m".to_owned(),
        Style::Accent => "\x1b[0;38;5;38m".to_owned(),
        Style::Heat(h) => format!("\x1b[0;38;5;{}m", HEAT[usize::from(h.min(7))]),
    }
}
