//! What is compressed: chunks of the user's own files, or generated ones of stated compressibility.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use fathom_io::load::rng::Rng;

/// Bytes of a chunk (Zhang et al. 2018, Table III).
pub const CHUNK: usize = 128 << 10;
/// Chunks taken at most: 32 MiB, more than the caches of a processor.
pub const CHUNKS_MAX: usize = 256;
/// Files looked at in a directory.
const FILES_MAX: usize = 10_000;

/// Chunks and where they came from.
#[derive(Clone)]
pub struct Sample {
    /// Each [`CHUNK`] bytes long.
    pub chunks: Vec<Vec<u8>>,
    /// A line for people.
    pub source: String,
}

/// Generated data: runs of random bytes take `incompressible` (0..=1) of it, the rest is text of a
/// small vocabulary, as log files and tables are.
pub fn generated(incompressible: f64, chunks: usize, seed: u64) -> Sample {
    const RUN: usize = 256;
    let mut rng = Rng::new(seed, 0x636f_6d70);
    let words: Vec<Vec<u8>> = (0..2000)
        .map(|_| {
            let len = 2 + rng.below(9);
            (0..len).map(|_| b'a' + rng.below(26) as u8).collect()
        })
        .collect();
    let mut make = || {
        let mut chunk = Vec::with_capacity(CHUNK + RUN);
        while chunk.len() < CHUNK {
            let end = chunk.len() + RUN;
            if rng.unit() < incompressible {
                chunk.extend((0..RUN / 8).flat_map(|_| rng.bits().to_le_bytes()));
                continue;
            }
            while chunk.len() < end {
                // Squaring favours the first words, as language does.
                let u = rng.unit();
                chunk.extend(&words[(u * u * words.len() as f64) as usize]);
                chunk.push(b' ');
            }
            chunk.truncate(end);
        }
        chunk.truncate(CHUNK);
        chunk
    };
    Sample {
        chunks: (0..chunks).map(|_| make()).collect(),
        source: format!(
            "generated text with {:.0} % incompressible bytes (seed {seed})",
            100.0 * incompressible
        ),
    }
}

/// Chunks of files, spread evenly over them. Directories are walked; links are not followed.
///
/// # Errors
/// Where a file cannot be read, or all of them together do not fill one chunk: the sentence names it.
pub fn sampled(paths: &[PathBuf], chunks: usize) -> io::Result<Sample> {
    let mut files = Vec::new();
    for path in paths {
        gather(path, &mut files).map_err(|e| named(path, &e))?;
    }
    files.sort();
    let total: u64 = files.iter().map(|f| f.1 / CHUNK as u64).sum();
    if total == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the sample has no file of {} KiB or more: name larger files with --sample",
                CHUNK >> 10
            ),
        ));
    }
    let wanted = total.min(chunks as u64);
    let mut out = Vec::with_capacity(wanted as usize);
    let (mut file, mut before) = (0, 0);
    for i in 0..wanted {
        let index = (u128::from(i) * u128::from(total) / u128::from(wanted)) as u64;
        while index - before >= files[file].1 / CHUNK as u64 {
            before += files[file].1 / CHUNK as u64;
            file += 1;
        }
        let path = &files[file].0;
        let mut chunk = vec![0; CHUNK];
        let read = File::open(path).and_then(|mut f| {
            f.seek(SeekFrom::Start((index - before) * CHUNK as u64))?;
            f.read_exact(&mut chunk)
        });
        read.map_err(|e| named(path, &e))?;
        out.push(chunk);
    }
    Ok(Sample {
        source: format!(
            "{} chunks of {} file(s), {} MiB of {} MiB",
            out.len(),
            files.len(),
            (out.len() * CHUNK) >> 20,
            (total * CHUNK as u64) >> 20
        ),
        chunks: out,
    })
}

fn named(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

fn gather(path: &Path, files: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        let meta = std::fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        } else if meta.is_file() && meta.len() >= CHUNK as u64 {
            files.push((path, meta.len()));
            if files.len() >= FILES_MAX {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_data_is_as_incompressible_as_asked_and_seeded() {
        let ratio = |share: f64| {
            let sample = generated(share, 8, 1);
            let packed: usize = sample
                .chunks
                .iter()
                .map(|c| zstd::bulk::compress(c, 3).unwrap().len())
                .sum();
            assert!(sample.chunks.iter().all(|c| c.len() == CHUNK));
            packed as f64 / (8 * CHUNK) as f64
        };
        let (none, half, all) = (ratio(0.0), ratio(0.5), ratio(1.0));
        assert!(all > 0.99 && all < 1.01, "{all}");
        assert!(none < 0.5, "{none}");
        // Text has fewer like neighbours among random bytes, so it packs a little worse.
        let expected = (none + all) / 2.0;
        assert!(
            half > expected && half < expected + 0.08,
            "{half} beside {expected}"
        );
        assert!(generated(0.3, 2, 5).chunks == generated(0.3, 2, 5).chunks);
        assert!(generated(0.3, 2, 5).chunks != generated(0.3, 2, 6).chunks);
    }

    #[test]
    fn samples_spread_over_files_and_small_ones_are_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("small"), vec![1; CHUNK - 1]).unwrap();
        let e = sampled(&[dir.path().to_owned()], 4).err().unwrap();
        assert!(e.to_string().contains("--sample"), "{e}");
        for (name, byte, n) in [("a", 7u8, 3), ("b", 9, 5)] {
            std::fs::write(dir.path().join(name), vec![byte; n * CHUNK]).unwrap();
        }
        let s = sampled(&[dir.path().to_owned()], 4).unwrap();
        let firsts: Vec<u8> = s.chunks.iter().map(|c| c[0]).collect();
        assert_eq!(firsts, [7, 7, 9, 9]);
        assert_eq!(
            sampled(&[dir.path().to_owned()], 99).unwrap().chunks.len(),
            8
        );
        let missing = dir.path().join("no such");
        let e = sampled(std::slice::from_ref(&missing), 4).err().unwrap();
        assert!(e.to_string().contains("no such"), "{e}");
    }
}
