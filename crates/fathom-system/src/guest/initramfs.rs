//! An initramfs in cpio's newc format (Documentation/driver-api/early-userspace/buffer-format.rst): fathom's own
//! binary as /init, modules, a few directories.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::modules::Module;
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
/// Where the output cannot be written.
pub fn write(out: impl Write, binary: &[u8], modules: &[Module]) -> io::Result<()> {
    let mut a = Archive {
        out,
        written: 0,
        inode: 0,
    };
    for dir in [
        "dev", "proc", "sys", "run", "tmp", "modules", "mnt", "root", "etc",
    ] {
        a.entry(dir, DIRECTORY, (0, 0), &[])?;
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
    a.entry("init", PROGRAM, (0, 0), binary)?;
    a.entry("TRAILER!!!", 0, (0, 0), &[])
}

/// A static binary, without what only debuggers read.
///
/// # Errors
/// Where it cannot be read, is no x86-64 program, or needs a dynamic loader, with how to build a static one.
pub fn static_binary(path: &Path) -> Result<Vec<u8>, SystemError> {
    let refused = |what: &str| {
        SystemError::Missing {
        what: format!("{} {what}", path.display()),
        remedy: "build the static one (fathom doctor --fetch does where its sources are, docs/building.md says how), or name it with --guest-binary".into(),
    }
    };
    let bytes = fs::read(path).map_err(|e| refused(&format!("cannot be read: {e}")))?;
    let segments = segments(&bytes).ok_or_else(|| refused("is no x86-64 Linux program"))?;
    if segments.iter().any(|s| s.kind == INTERPRETER) {
        return Err(refused("is linked dynamically: a guest has no libraries"));
    }
    let end = segments
        .iter()
        .filter_map(|s| s.offset.checked_add(s.size))
        .max();
    let end = end.unwrap_or(0).max(0x40).min(bytes.len());
    // Section headers, symbols and debug information lie behind the last segment: nobody reads them in the guest.
    let mut bytes = bytes;
    bytes.truncate(end);
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    Ok(bytes)
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
        write(&mut bytes, b"program", &modules).unwrap();
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
    }

    #[test]
    fn a_dynamic_program_is_refused_with_how_to_build_a_static_one() {
        let e = static_binary(Path::new("/bin/sh")).unwrap_err().to_string();
        assert!(
            e.contains("linked dynamically") && e.contains("fathom doctor --fetch"),
            "{e}"
        );
        let text = static_binary(Path::new("/etc/hostname"))
            .unwrap_err()
            .to_string();
        assert!(text.contains("is no x86-64 Linux program"), "{text}");
    }
}
