//! RAID levels: how many members they need, hold, and can lose.

use serde::{Deserialize, Serialize};

/// How members make up an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Stripes.
    Raid0,
    /// Mirrors.
    Raid1,
    /// Stripes with one parity.
    Raid5,
    /// Stripes with two parities.
    Raid6,
    /// Stripes over pairs of mirrors.
    Raid10,
}

impl Level {
    /// From its number.
    pub fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0 => Self::Raid0,
            1 => Self::Raid1,
            5 => Self::Raid5,
            6 => Self::Raid6,
            10 => Self::Raid10,
            _ => return None,
        })
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Self::Raid0 => 0,
            Self::Raid1 => 1,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
            Self::Raid10 => 10,
        }
    }

    /// Fewest members.
    pub fn members_min(self) -> u32 {
        match self {
            Self::Raid0 | Self::Raid1 => 2,
            Self::Raid5 => 3,
            Self::Raid6 | Self::Raid10 => 4,
        }
    }

    /// Members that it can lose (of RAID 10: one of each pair) without losing data.
    pub fn spare_members(self, n: u32) -> u32 {
        match self {
            Self::Raid0 => 0,
            Self::Raid1 => n - 1,
            Self::Raid5 => 1,
            Self::Raid6 => 2,
            Self::Raid10 => n / 2,
        }
    }

    /// Whether it keeps parity, and can have a journal.
    pub fn has_parity(self) -> bool {
        matches!(self, Self::Raid5 | Self::Raid6)
    }

    /// Members' worth of data that `n` members hold.
    pub fn data_members(self, n: u32) -> u32 {
        match self {
            Self::Raid0 => n,
            Self::Raid1 => 1,
            Self::Raid5 => n - 1,
            Self::Raid6 => n - 2,
            Self::Raid10 => n / 2,
        }
    }
}
