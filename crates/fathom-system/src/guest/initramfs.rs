//! An initramfs in cpio's newc format (Documentation/driver-api/early-userspace/buffer-format.rst): fathom's own
//! binary as /init, the libraries that it needs, modules, a few directories.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::modules::Module;
use super::tools::{Tool, Tools};
use crate::SystemError;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;
const CHARACTERS: u32 = 0o020_600;

/// Writes entries one after another.
struct Archive<W> {
    out: W,
    written: usize,
    inode: u32,
}

impl<W: Write> Archive<W> {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(data.len())
            .map_err(|_| io::Error::other(format!("{name} is larger than 4 GiB")))?;
        // Magic, inode, mode, uid, gid, links, mtime, size, device of the file, device that it is, name, checksum.
        let head = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{name}\0",
            self.inode,
            0,
            0,
            1,
            0,
            0,
            0,
            device.0,
            device.1,
            name.len() + 1,
            0
        );
        self.put(head.as_bytes())?;
        self.put(data)
    }

    /// Headers and data begin at multiples of four.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        // The header of 110 bytes and a name: together they are padded, so the sum counts.
        self.out.write_all(&[0; 3][..padding])?;
        self.written += bytes.len() + padding;
        Ok(())
    }
}

/// Writes the whole archive. Modules are loaded in their order: their file names are numbered.
///
/// # Errors
/// Where the output cannot be written, or a tool cannot be read.
pub fn write(
    out: impl Write,
    program: &Program,
    modules: &[Module],
    tools: &Tools,
) -> io::Result<()> {
    let mut a = Archive {
        out,
        written: 0,
        inode: 0,
    };
    let inside = |path: &Path| {
        path.display()
            .to_string()
            .trim_start_matches('/')
            .to_owned()
    };
    let dirs = [
        "dev", "proc", "sys", "run", "tmp", "modules", "mnt", "root", "etc",
    ];
    let mut dirs: BTreeSet<String> = dirs.map(str::to_owned).into();
    let own = || program.libraries.iter().map(|l| l.0.as_path());
    for path in own().chain(tools.paths()) {
        dirs.extend(path.ancestors().skip(1).map(inside));
    }
    // The root is there; in their order each directory comes after the one that it is in.
    for dir in dirs.iter().filter(|d| !d.is_empty()) {
        a.entry(dir, DIRECTORY, (0, 0), &[])?;
    }
    for (path, bytes) in &program.libraries {
        a.entry(&inside(path), PROGRAM, (0, 0), bytes)?;
    }
    for file in tools.files() {
        let (path, bytes) = file.map_err(io::Error::other)?;
        if own().all(|l| l != path) {
            a.entry(&inside(path), PROGRAM, (0, 0), &bytes)?;
        }
    }
    a.entry("dev/console", CHARACTERS, (5, 1), &[])?;
    a.entry("dev/null", CHARACTERS, (1, 3), &[])?;
    for (i, m) in modules.iter().enumerate() {
        a.entry(
            &format!("modules/{i:03}-{}.ko", m.name),
            FILE,
            (0, 0),
            &m.bytes,
        )?;
    }
    a.entry("init", PROGRAM, (0, 0), &program.binary)?;
    a.entry("TRAILER!!!", 0, (0, 0), &[])
}

/// A program as a guest gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The file, without what only debuggers read.
    pub binary: Vec<u8>,
    /// What a dynamic loader adds, the loader among it, each with its path; empty where the program is static.
    pub libraries: Vec<(PathBuf, Vec<u8>)>,
}

impl Program {
    /// Of a file of this machine.
    ///
    /// # Errors
    /// Where it or a library cannot be read, or it is no x86-64 program.
    pub fn read(path: &Path) -> Result<Self, SystemError> {
        let refused = |what: &str| SystemError::Missing {
            what: format!("{} {what}", path.display()),
            remedy: "guests are x86-64 machines: run fathom on one".into(),
        };
        let mut binary = fs::read(path).map_err(|e| refused(&format!("cannot be read: {e}")))?;
        let segments = segments(&binary).ok_or_else(|| refused("is no x86-64 Linux program"))?;
        let libraries = if segments.iter().any(|s| s.kind == INTERPRETER) {
            Tool::of(path)?.libraries()?
        } else {
            Vec::new()
        };
        let end = segments
            .iter()
            .filter_map(|s| s.offset.checked_add(s.size))
            .max();
        let end = end.unwrap_or(0).max(0x40).min(binary.len());
        // Section headers, symbols and debug information lie behind the last segment: nobody reads them in the guest.
        binary.truncate(end);
        binary[0x28..0x30].fill(0);
        binary[0x3c..0x40].fill(0);
        Ok(Self { binary, libraries })
    }
}

const INTERPRETER: u32 = 3;

struct Segment {
    kind: u32,
    offset: usize,
    size: usize,
}

fn segments(elf: &[u8]) -> Option<Vec<Segment>> {
    const X86_64: u16 = 62;
    let u16_at = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let usize_at = |at: usize| {
        let n = u64::from_le_bytes(elf.get(at..at.checked_add(8)?)?.try_into().ok()?);
        usize::try_from(n).ok()
    };
    if elf.get(..5)? != b"\x7fELF\x02" || u16_at(0x12)? != X86_64 {
        return None;
    }
    let (table, size, count) = (usize_at(0x20)?, u16_at(0x36)?, u16_at(0x38)?);
    (0..usize::from(count))
        .map(|i| {
            let h = table.checked_add(i * usize::from(size))?;
            Some(Segment {
                kind: u32::from_le_bytes(elf.get(h..h.checked_add(4)?)?.try_into().ok()?),
                offset: usize_at(h + 0x08)?,
                size: usize_at(h + 0x20)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpio_reads_the_archive_back() {
        let modules = [
            Module {
                name: "virtio".into(),
                bytes: vec![1; 7],
            },
            Module {
                name: "virtio_blk".into(),
                bytes: vec![2; 12],
            },
        ];
        let mut bytes = Vec::new();
        let program = Program {
            binary: b"program".to_vec(),
            libraries: vec![("/lib/here/libc.so.6".into(), vec![3; 5])],
        };
        write(&mut bytes, &program, &modules, &Tools::default()).unwrap();
        assert_eq!(bytes.len() % 4, 0);
        // Every header begins where the one before says that it ends.
        let mut at = 0;
        let mut names = Vec::new();
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701", "at {at}");
            let field = |i: usize| {
                let from = at + 6 + i * 8;
                let text = std::str::from_utf8(&bytes[from..from + 8]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (size, name) = (field(6), field(11));
            let text = &bytes[at + 110..at + 110 + name - 1];
            names.push(String::from_utf8_lossy(text).into_owned());
            at += (110 + name).next_multiple_of(4) + size.next_multiple_of(4);
        }
        assert_eq!(names.last().map(String::as_str), Some("TRAILER!!!"));
        let position = |n: &str| names.iter().position(|x| x == n).unwrap();
        assert!(position("modules/000-virtio.ko") < position("modules/001-virtio_blk.ko"));
        assert!(names.contains(&"init".to_owned()));
        assert!(position("lib") < position("lib/here"));
        assert!(position("lib/here") < position("lib/here/libc.so.6"));
    }

    #[test]
    fn a_program_comes_with_its_loader_and_libraries() {
        let shell = Program::read(Path::new("/bin/sh")).unwrap();
        assert!(segments(&shell.binary).is_some_and(|s| !s.is_empty()));
        let whole = fs::metadata("/bin/sh").unwrap().len();
        assert!(shell.binary.len() as u64 <= whole);
        let named = |part: &str| {
            let mut all = shell.libraries.iter();
            all.any(|(p, bytes)| p.to_string_lossy().contains(part) && !bytes.is_empty())
        };
        let dynamic = segments(&shell.binary).unwrap();
        let dynamic = dynamic.iter().any(|s| s.kind == INTERPRETER);
        assert_eq!(named("libc") && named("ld-"), dynamic);
        let text = Program::read(Path::new("/etc/hostname")).unwrap_err();
        let text = text.to_string();
        assert!(text.contains("is no x86-64 Linux program"), "{text}");
    }
}
