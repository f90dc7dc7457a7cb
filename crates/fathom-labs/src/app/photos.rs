//! The files that are copied: the user's, or a set like the photos of seed 003.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fathom_stats::rng::SplitMix64;

/// Files and bytes of the set in the seed.
pub(super) const PHOTOS: (u64, u64) = (3075, 37_400_000_000);
/// A file of the set.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// All regular files below a directory, in order; links are not followed.
pub(super) fn list(dir: &Path) -> io::Result<Vec<Item>> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                found.push(Item {
                    bytes: entry.metadata()?.len(),
                    path: entry.path(),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Sizes of a generated set: around the seed's mean, a third more or less, as raw photos and their previews are.
pub(super) fn sizes(total: u64, seed: u64) -> Vec<u64> {
    let mean = PHOTOS.1 / PHOTOS.0;
    let n = (total / mean).max(8);
    let mut random = SplitMix64::new(seed);
    let weights: Vec<f64> = (0..n)
        .map(|_| (1.0 + random.normal() / 3.0).clamp(0.1, 3.0))
        .collect();
    let sum: f64 = weights.iter().sum();
    weights
        .iter()
        .map(|w| ((w / sum * total as f64) as u64).max(1))
        .collect()
}

/// Files of a tree get one name: there may be equal ones in several directories.
pub(super) fn named(dir: &Path, item: &Item) -> PathBuf {
    let flat: String = item
        .path
        .to_string_lossy()
        .chars()
        .map(|c| if c == '/' { '_' } else { c })
        .collect();
    // Names have 255 bytes at most; their end tells them apart, and a hash does where it does not.
    let tail: String = flat.chars().rev().take(40).collect();
    let hash = flat
        .bytes()
        .fold(0u64, |h, b| SplitMix64::new(h ^ u64::from(b)).next_u64());
    let tail: String = tail.chars().rev().collect();
    dir.join(format!("{hash:016x}-{tail}"))
}

pub(super) fn write_random(
    file: &mut File,
    mut bytes: u64,
    random: &mut SplitMix64,
    buffer: &mut [u8],
) -> io::Result<()> {
    while bytes > 0 {
        let n = (buffer.len() as u64).min(bytes) as usize;
        for word in buffer[..n].chunks_mut(8) {
            let r = random.next_u64().to_le_bytes();
            word.copy_from_slice(&r[..word.len()]);
        }
        file.write_all(&buffer[..n])?;
        bytes -= n as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_set_has_the_asked_bytes_and_the_seeds_mean() {
        let s = sizes(1 << 30, 1);
        let sum: u64 = s.iter().sum();
        assert!((sum as f64 / (1u64 << 30) as f64 - 1.0).abs() < 0.001);
        let mean = sum as f64 / s.len() as f64;
        assert!((11e6..14e6).contains(&mean), "{mean}");
    }

    #[test]
    fn files_of_one_name_in_two_directories_stay_two() {
        let item = |p: &str| Item {
            path: p.into(),
            bytes: 1,
        };
        let dir = Path::new("d");
        assert_ne!(
            named(dir, &item("/a/IMG_1.raw")),
            named(dir, &item("/b/IMG_1.raw"))
        );
    }
}
