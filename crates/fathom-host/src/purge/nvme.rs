//! Format NVM, Sanitize and the sanitize status log as bytes.
//!
//! NVM Express Base Specification 2.0: Format NVM (5.14, figure 189), Sanitize (5.22, figure 303), Sanitize Status
//! (5.16.1.25, figure 268), Identify Namespace FPI (NVM Command Set 1.0, figure 97). Numbers are little endian.

use serde::{Deserialize, Serialize};

use super::method::Method;

/// Log page of sanitize operations.
pub(crate) const SANITIZE_LOG: u8 = 0x81;
const FORMAT_NVM: u8 = 0x80;
const SANITIZE: u8 = 0x84;
/// A format ends with its answer: no drive may be given up by the kernel before.
const FORMAT_LIMIT_MS: u32 = 24 * 3_600_000;
/// A sanitize operation only begins with it.
const SANITIZE_LIMIT_MS: u32 = 60_000;

/// An admin command that erases and carries no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// Operation code.
    pub opcode: u8,
    /// Namespace; 0 for the whole drive.
    pub nsid: u32,
    /// Double word 10.
    pub cdw10: u32,
    /// Double word 11.
    pub cdw11: u32,
    /// How long the kernel waits for the answer, ms.
    pub timeout_ms: u32,
}

impl Command {
    /// The command of a method for a namespace whose Identify page this is: its format stays. `None` where the method is none of
    /// the drive's.
    pub fn of(method: Method, identify: &[u8; 4096], nsid: u32) -> Option<Self> {
        let sanitize = |action: u32| Self {
            opcode: SANITIZE,
            nsid: 0,
            // AUSE: a drive whose operation failed may be told to give its blocks back.
            cdw10: action | 1 << 3,
            cdw11: 0,
            timeout_ms: SANITIZE_LIMIT_MS,
        };
        let format = |erase: u32| Self {
            opcode: FORMAT_NVM,
            nsid,
            cdw10: kept_format(identify) | erase << 9,
            cdw11: 0,
            timeout_ms: FORMAT_LIMIT_MS,
        };
        Some(match method {
            Method::Format => format(1),
            Method::FormatCrypto => format(2),
            Method::SanitizeBlock => sanitize(2),
            // One pass.
            Method::SanitizeOverwrite => Self {
                cdw10: 3 | 1 << 3 | 1 << 4,
                ..sanitize(3)
            },
            Method::SanitizeCrypto => sanitize(4),
            Method::SecureDiscard | Method::Discard | Method::Zeroes => return None,
        })
    }
}

/// The bits of a format as the namespace has it: number of the format, place of metadata, protection.
fn kept_format(identify: &[u8; 4096]) -> u32 {
    let (flbas, dps) = (u32::from(identify[26]), u32::from(identify[29]));
    // FLBAS: bits 0 to 3 and 5 to 6 the number, bit 4 whether metadata follow the data. DPS: bits 0 to 2 the type of
    // protection, bit 3 its place.
    let number = flbas & 0xF | (flbas >> 5 & 3) << 12;
    number | (flbas & 0x10) | (dps & 7) << 5 | (dps >> 3 & 1) << 8
}

/// Percent of a format that are left, where the namespace says.
pub fn format_left(identify: &[u8; 4096]) -> Option<u8> {
    let fpi = identify[32];
    (fpi & 0x80 != 0).then_some((fpi & 0x7F).min(100))
}

/// How a sanitize operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There was none.
    Never,
    /// The last one is done.
    Done,
    /// It goes on.
    Running,
    /// The last one failed.
    Failed,
    /// A state that this version of the specification does not have.
    Unknown,
}

/// The sanitize status log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sanitize {
    /// How it stands.
    pub state: State,
    /// Which operation: 2 block erase, 3 overwrite, 4 crypto erase.
    pub action: u8,
    /// Part of a running operation that is done, in 65,536ths.
    pub progress: u16,
    /// Whether the operation may be left as failed, which gives the drive back with what is on it.
    pub may_exit: bool,
    /// Whether nothing was written since the last one.
    pub global_data_erased: bool,
    /// Estimated seconds of block erase, overwrite and crypto erase, where the drive says.
    pub estimates: [Option<u32>; 3],
}

impl Sanitize {
    /// Reads the page.
    pub fn of(page: &[u8; 512]) -> Self {
        let u16_at = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
        let u32_at =
            |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        let status = u16_at(2);
        let state = match status & 7 {
            0 => State::Never,
            // 4: done, and deallocated although that was not asked for.
            1 | 4 => State::Done,
            2 => State::Running,
            3 => State::Failed,
            _ => State::Unknown,
        };
        let estimate = |at| Some(u32_at(at)).filter(|s| *s != u32::MAX && *s > 0);
        let command = u32_at(4);
        Self {
            state,
            action: (command & 7) as u8,
            progress: u16_at(0),
            may_exit: command >> 3 & 1 == 1,
            global_data_erased: status >> 8 & 1 == 1,
            estimates: [estimate(12), estimate(8), estimate(16)],
        }
    }

    /// Part that is done, percent.
    pub fn percent(&self) -> f64 {
        match self.state {
            State::Running => f64::from(self.progress) * 100.0 / 65_536.0,
            _ => 100.0,
        }
    }

    /// Which method it was, where it is one of fathom's.
    pub fn method(&self) -> Option<Method> {
        match self.action {
            2 => Some(Method::SanitizeBlock),
            3 => Some(Method::SanitizeOverwrite),
            4 => Some(Method::SanitizeCrypto),
            _ => None,
        }
    }

    /// Estimated seconds of a method, where the drive says.
    pub fn estimate(&self, method: Method) -> Option<u32> {
        match method {
            Method::SanitizeBlock => self.estimates[0],
            Method::SanitizeOverwrite => self.estimates[1],
            Method::SanitizeCrypto => self.estimates[2],
            _ => None,
        }
    }
}

/// What to do about a drive whose sanitize operation failed.
pub fn after_failure(s: &Sanitize) -> String {
    let again = "it takes no I/O until another one succeeds (nvme sanitize /dev/nvmeN --sanact=2)";
    match s.may_exit {
        true => format!("{again}, or is given back as it is (nvme sanitize /dev/nvmeN --sanact=1)"),
        false => again.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_keeps_the_format_that_the_namespace_has() {
        let mut identify = [0u8; 4096];
        // Format 17 (upper bits apart), metadata behind the data, protection type 2 at the start of it.
        identify[26] = 0b0011_0001;
        identify[29] = 0b1010;
        let of = |m| Command::of(m, &identify, 3).unwrap();
        let kept = 1 | 1 << 12 | 1 << 4 | 2 << 5 | 1 << 8;
        assert_eq!(of(Method::Format).cdw10, kept | 1 << 9);
        assert_eq!(of(Method::FormatCrypto).cdw10, kept | 2 << 9);
        assert_eq!(
            (of(Method::Format).opcode, of(Method::Format).nsid),
            (0x80, 3)
        );
        assert_eq!(Command::of(Method::Discard, &identify, 3), None);
    }

    #[test]
    fn a_sanitize_command_is_of_the_whole_drive_and_may_be_left() {
        let of = |m| Command::of(m, &[0; 4096], 3).unwrap();
        let block = of(Method::SanitizeBlock);
        assert_eq!((block.opcode, block.nsid, block.cdw10), (0x84, 0, 0b1010));
        assert_eq!(of(Method::SanitizeCrypto).cdw10, 0b1100);
        // One pass: a count of nought would mean sixteen.
        assert_eq!(of(Method::SanitizeOverwrite).cdw10, 0b1_1011);
    }

    #[test]
    fn progress_state_and_estimates_are_where_the_specification_has_them() {
        let mut page = [0u8; 512];
        page[8..24].fill(0xff);
        page[12..16].copy_from_slice(&90u32.to_le_bytes());
        let s = Sanitize::of(&page);
        assert_eq!((s.state, s.method()), (State::Never, None));
        assert_eq!(s.estimate(Method::SanitizeBlock), Some(90));
        assert_eq!(s.estimate(Method::SanitizeCrypto), None);
        page[0..2].copy_from_slice(&0x4000u16.to_le_bytes());
        page[2..4].copy_from_slice(&0x0102u16.to_le_bytes());
        page[4] = 0b1010;
        let s = Sanitize::of(&page);
        assert_eq!((s.state, s.percent()), (State::Running, 25.0));
        assert_eq!(s.method(), Some(Method::SanitizeBlock));
        assert!(s.may_exit && s.global_data_erased);
        page[2] = 3;
        let s = Sanitize::of(&page);
        assert_eq!(s.state, State::Failed);
        assert!(after_failure(&s).contains("--sanact=1"));
        page[4] = 4;
        assert!(!after_failure(&Sanitize::of(&page)).contains("--sanact=1"));
    }

    #[test]
    fn what_is_left_of_a_format_is_said_only_where_the_namespace_can() {
        let mut identify = [0u8; 4096];
        identify[32] = 40;
        assert_eq!(format_left(&identify), None);
        identify[32] |= 0x80;
        assert_eq!(format_left(&identify), Some(40));
        identify[32] = 0xff;
        assert_eq!(format_left(&identify), Some(100));
    }
}
