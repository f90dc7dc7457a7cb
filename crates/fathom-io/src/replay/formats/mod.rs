//! The formats, one file each: a [`Source`] that yields one I/O after another and says where it broke.

mod alibaba;
mod blktrace;
mod fathom;
mod fio;
mod lines;
mod merged;
mod msr;
mod spc;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use merged::{Merged, Part, is_blktrace};

pub use fathom::file as trace_file;

use super::{TraceError, TraceIo};

/// A trace while it is read.
pub trait Source: Send {
    /// The next I/O in the order of the file.
    ///
    /// # Errors
    /// A record that is not what its format says, with its place; nothing may be read after it.
    fn next(&mut self) -> Result<Option<TraceIo>, TraceError>;
    /// Name of a device that an I/O has named.
    fn device(&self, index: u32) -> String;
}

/// A format that fathom reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Binary files of blktrace, one per processor.
    Blktrace,
    /// fio's I/O log, version 2 (waits) or 3 (timestamps).
    Fio,
    /// MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, 100 ns.
    Msr,
    /// SPC and UMass: `ASU,LBA,Size,Opcode,Timestamp`, blocks of 512 bytes, seconds.
    Spc,
    /// Alibaba 2020: `device_id,opcode,offset,length,timestamp`, bytes, µs.
    Alibaba,
    /// fathom's own `io.parquet`, or a run directory that holds one.
    Fathom,
}

/// Name and what it looks like.
pub const FORMATS: [(Format, &str, &str); 6] = [
    (Format::Blktrace, "blktrace", "blktrace's binary files"),
    (Format::Fio, "fio", "fio's iolog version 2 or 3"),
    (Format::Msr, "msr", "MSR Cambridge CSV"),
    (Format::Spc, "spc", "SPC/UMass ASCII"),
    (Format::Alibaba, "alibaba", "Alibaba 2020 CSV"),
    (Format::Fathom, "fathom", "fathom's io.parquet"),
];

impl Format {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|f| f.0 == self).map_or("", |f| f.1)
    }
}

impl std::str::FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        FORMATS
            .iter()
            .find(|f| f.1 == text)
            .map(|f| f.0)
            .ok_or_else(|| {
                let names: Vec<&str> = FORMATS.iter().map(|f| f.1).collect();
                format!(
                    "'{text}' is not a trace format: expected {}",
                    names.join(", ")
                )
            })
    }
}

/// Which events of a blktrace count as the start of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Events {
    /// Handed to the device; queued where the trace has no such events.
    Auto,
    /// Handed to the device (D).
    Issue,
    /// Queued by the application's side (Q), before merging and scheduling.
    Queue,
}

/// Opens a trace; its format is found by looking at it where `format` is `None`.
///
/// # Errors
/// A file that is not there, or that no format fits.
pub fn open(
    path: &Path,
    format: Option<Format>,
    events: Events,
) -> Result<(Format, Box<dyn Source>), TraceError> {
    let format = match format {
        Some(f) => f,
        None => detect(path)?,
    };
    Ok((
        format,
        match format {
            Format::Blktrace => {
                Box::new(blktrace::Blktrace::open(path, events)?) as Box<dyn Source>
            }
            Format::Fio => Box::new(fio::Fio::open(path)?),
            Format::Msr => Box::new(msr::Msr::open(path)?),
            Format::Spc => Box::new(spc::Spc::open(path)?),
            Format::Alibaba => Box::new(alibaba::Alibaba::open(path)?),
            Format::Fathom => Box::new(fathom::Fathom::open(path)?),
        },
    ))
}

fn detect(path: &Path) -> Result<Format, TraceError> {
    if path.is_dir() || path.extension().is_some_and(|e| e == "parquet") {
        return Ok(Format::Fathom);
    }
    if !path.exists() && !blktrace::files(path).is_empty() {
        return Ok(Format::Blktrace);
    }
    let mut head = [0u8; 4096];
    let n = read_head(path, &mut head)?;
    let head = &head[..n];
    let unknown = || TraceError::Unknown {
        path: path.to_owned(),
        expected: FORMATS.map(|f| f.2).join(", "),
    };
    if head.starts_with(b"PAR1") {
        return Ok(Format::Fathom);
    }
    if blktrace::is_magic(head) {
        return Ok(Format::Blktrace);
    }
    if head.starts_with(b"fio version ") {
        return Ok(Format::Fio);
    }
    let line = head
        .split(|b| *b == b'\n')
        .find(|l| !l.trim_ascii().is_empty());
    let line = std::str::from_utf8(line.ok_or_else(unknown)?).map_err(|_| unknown())?;
    let fields: Vec<&str> = line.trim().split(',').map(str::trim).collect();
    let letter = |i: usize| {
        fields
            .get(i)
            .is_some_and(|f| matches!(*f, "R" | "r" | "W" | "w"))
    };
    let word = |i: usize| {
        fields
            .get(i)
            .is_some_and(|f| matches!(*f, "Read" | "Write"))
    };
    match fields.len() {
        7 if word(3) => Ok(Format::Msr),
        5 if letter(1) => Ok(Format::Alibaba),
        5.. if letter(3) => Ok(Format::Spc),
        _ => Err(unknown()),
    }
}

fn read_head(path: &Path, head: &mut [u8]) -> Result<usize, TraceError> {
    let failed = |source| TraceError::Io {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(failed)?;
    let mut n = 0;
    while n < head.len() {
        match file.read(&mut head[n..]).map_err(failed)? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}

/// Names of devices in the order in which they appear.
#[derive(Debug, Default)]
struct Devices {
    names: Vec<Vec<u8>>,
    index: std::collections::BTreeMap<Vec<u8>, u32>,
    last: u32,
}

impl Devices {
    /// The number of a name.
    fn number(&mut self, name: &[u8]) -> u32 {
        // Neighbouring records are mostly of one device.
        if self
            .names
            .get(self.last as usize)
            .is_some_and(|n| n == name)
        {
            return self.last;
        }
        self.last = match self.index.get(name) {
            Some(i) => *i,
            None => {
                let i = self.names.len() as u32;
                self.names.push(name.to_owned());
                self.index.insert(name.to_owned(), i);
                i
            }
        };
        self.last
    }

    fn name(&self, index: u32) -> String {
        self.names
            .get(index as usize)
            .map_or_else(String::new, |n| {
                String::from_utf8_lossy(n)
                    .chars()
                    .map(|c| if c.is_control() { '\u{fffd}' } else { c })
                    .collect()
            })
    }
}

fn read_error(path: &Path, source: std::io::Error) -> TraceError {
    TraceError::Io {
        path: PathBuf::from(path),
        source,
    }
}
