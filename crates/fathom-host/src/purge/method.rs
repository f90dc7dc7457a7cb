//! The ways to empty a device, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A way to empty a device, in the order in which they are preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// NVMe Format NVM with erasure of user data; the format stays as it is.
    Format,
    /// NVMe Format NVM with a new key.
    FormatCrypto,
    /// NVMe Sanitize: all blocks of the drive are erased.
    SanitizeBlock,
    /// NVMe Sanitize: the drive takes a new key.
    SanitizeCrypto,
    /// NVMe Sanitize: everything is overwritten once, which takes long and wears.
    SanitizeOverwrite,
    /// The kernel's secure discard: memory cards.
    SecureDiscard,
    /// The kernel's discard: TRIM, UNMAP, Deallocate.
    Discard,
    /// The kernel's write-zeroes, by the device where it can.
    Zeroes,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Format,
        Self::FormatCrypto,
        Self::SanitizeBlock,
        Self::SanitizeCrypto,
        Self::SanitizeOverwrite,
        Self::SecureDiscard,
        Self::Discard,
        Self::Zeroes,
    ];

    /// Its word on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::FormatCrypto => "format-crypto",
            Self::SanitizeBlock => "sanitize-block",
            Self::SanitizeCrypto => "sanitize-crypto",
            Self::SanitizeOverwrite => "sanitize-overwrite",
            Self::SecureDiscard => "secure-discard",
            Self::Discard => "discard",
            Self::Zeroes => "zeroes",
        }
    }

    /// Whether it is a sanitize operation, which goes on in the drive by itself.
    pub const fn is_sanitize(self) -> bool {
        matches!(
            self,
            Self::SanitizeBlock | Self::SanitizeCrypto | Self::SanitizeOverwrite
        )
    }

    /// Whether it empties the whole device at once, by a command of the drive.
    pub const fn is_of_drive(self) -> bool {
        self.is_sanitize() || matches!(self, Self::Format | Self::FormatCrypto)
    }

    /// The name of its sanitize operation in `Nvme::sanitize`.
    pub(crate) const fn operation(self) -> Option<&'static str> {
        match self {
            Self::SanitizeBlock => Some("block"),
            Self::SanitizeCrypto => Some("crypto"),
            Self::SanitizeOverwrite => Some("overwrite"),
            _ => None,
        }
    }

    /// Whether it is tried where nobody named one: not what takes hours and wears, nor what only changes a key where blocks
    /// can be erased.
    pub(crate) const fn is_chosen(self) -> bool {
        !matches!(self, Self::FormatCrypto | Self::SanitizeOverwrite)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|m| m.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is no way to purge: expected auto, none, {names}")
        })
    }
}

/// Bytes of a device that the kernel empties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// Secure discard.
    Secure,
    /// Zeroes.
    Zeroes,
}
