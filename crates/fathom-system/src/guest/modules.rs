//! Kernel modules that a guest needs, in the order in which they must be loaded.
//!
//! An unpacked package has no modules.dep, so dependencies come from each module's own `.modinfo`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::kernel::Kernel;
use crate::SystemError;

/// What every guest needs to talk and to see virtio disks.
pub const BASE: &[&str] = &["virtio_pci", "virtio_blk", "virtio_console"];

/// A module as it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// With underscores.
    pub name: String,
    /// The ELF file, not compressed.
    pub bytes: Vec<u8>,
}

/// A kernel's modules by name.
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

impl Modules {
    /// Of a kernel; one without a directory has none.
    pub fn of(kernel: &Kernel) -> Self {
        let mut files = BTreeMap::new();
        let mut builtin = BTreeSet::new();
        if let Some(dir) = &kernel.modules {
            collect(dir, 0, &mut files);
            let list = fs::read_to_string(dir.join("modules.builtin")).unwrap_or_default();
            builtin.extend(list.lines().filter_map(|l| name_of(Path::new(l))));
        }
        Self { files, builtin }
    }

    /// Whether the kernel has it, as a module or built in.
    pub fn has(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        self.builtin.contains(&name) || self.files.contains_key(&name)
    }

    /// The modules with all that they depend on, each after what it depends on. What is built in is left out;
    /// what the kernel does not have at all is an error only where it was asked for.
    ///
    /// # Errors
    /// Names the module that is missing or cannot be read.
    pub fn closure(&self, wanted: &[&str]) -> Result<Vec<Module>, SystemError> {
        let mut done = BTreeSet::new();
        let mut ordered = Vec::new();
        for name in wanted {
            self.add(&name.replace('-', "_"), true, &mut done, &mut ordered)?;
        }
        Ok(ordered)
    }

    fn add(
        &self,
        name: &str,
        needed: bool,
        done: &mut BTreeSet<String>,
        ordered: &mut Vec<Module>,
    ) -> Result<(), SystemError> {
        if self.builtin.contains(name) || !done.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(path) = self.files.get(name) else {
            if !needed {
                return Ok(());
            }
            return Err(SystemError::Missing {
                what: format!("the guest's kernel has no module {name}"),
                remedy: "name another kernel with --kernel".into(),
            });
        };
        let bytes = read(path)?;
        let info = modinfo(&bytes).unwrap_or_default();
        let values = |key: &str| -> Vec<String> {
            info.iter()
                .filter_map(|line| line.strip_prefix(key))
                .map(str::to_owned)
                .collect()
        };
        for dependency in values("depends=").iter().flat_map(|d| d.split(',')) {
            if !dependency.is_empty() {
                self.add(&dependency.replace('-', "_"), true, done, ordered)?;
            }
        }
        // `softdep=pre: crc32c post: …`: taken where they are there.
        for soft in values("softdep=") {
            let mut before = false;
            for word in soft.split_whitespace() {
                match word {
                    "pre:" => before = true,
                    "post:" => before = false,
                    w if before => self.add(&w.replace('-', "_"), false, done, ordered)?,
                    _ => {}
                }
            }
        }
        ordered.push(Module {
            name: name.to_owned(),
            bytes,
        });
        Ok(())
    }
}

fn collect(dir: &Path, depth: u32, files: &mut BTreeMap<String, PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        // `build` and `source` are links elsewhere.
        if kind.as_ref().is_ok_and(|k| k.is_dir()) && depth < 12 {
            collect(&path, depth + 1, files);
        } else if let Some(name) = name_of(&path) {
            files.entry(name).or_insert(path);
        }
    }
}

/// `kernel/drivers/md/md-mod.ko.xz` → `md_mod`.
fn name_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let stem = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"]
        .iter()
        .find_map(|end| file.strip_suffix(end))?;
    Some(stem.replace('-', "_"))
}

/// The module, unpacked where it is compressed.
fn read(path: &Path) -> Result<Vec<u8>, SystemError> {
    let failed = |e: std::io::Error| {
        SystemError::Failed(format!("the module {} cannot be read: {e}", path.display()))
    };
    let stored = fs::read(path).map_err(failed)?;
    let mut bytes = Vec::new();
    match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => lzma_rust2::XzReader::new(&stored[..], true)
            .read_to_end(&mut bytes)
            .map_err(failed)?,
        Some("zst") => zstd::stream::read::Decoder::new(&stored[..])
            .and_then(|mut d| d.read_to_end(&mut bytes))
            .map_err(failed)?,
        Some("gz") => flate2::read::GzDecoder::new(&stored[..])
            .read_to_end(&mut bytes)
            .map_err(failed)?,
        _ => return Ok(stored),
    };
    Ok(bytes)
}

/// Lines of an ELF64 object's `.modinfo`; `None` where it has none.
fn modinfo(elf: &[u8]) -> Option<Vec<String>> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| {
        let n = u64::from_le_bytes(elf.get(at..at.checked_add(8)?)?.try_into().ok()?);
        usize::try_from(n).ok()
    };
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (table, size) = (u64_at(0x28)?, usize::from(u16_at(0x3a)?));
    let (count, names) = (usize::from(u16_at(0x3c)?), usize::from(u16_at(0x3e)?));
    let header = |i: usize| table.checked_add(i.checked_mul(size)?);
    let place = |i: usize| {
        let h = header(i)?;
        Some((u64_at(h + 0x18)?, u64_at(h + 0x20)?))
    };
    let (strings, _) = place(names)?;
    for i in 0..count {
        let name = strings.checked_add(u32_at(header(i)?)? as usize)?;
        if elf.get(name..name.checked_add(9)?)? != b".modinfo\0" {
            continue;
        }
        let (at, bytes) = place(i)?;
        let text = elf.get(at..at.checked_add(bytes)?)?;
        return Some(
            text.split(|b| *b == 0)
                .filter(|l| !l.is_empty())
                .map(|l| String::from_utf8_lossy(l).into_owned())
                .collect(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest object with a `.modinfo`.
    fn object(info: &str) -> Vec<u8> {
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut elf = vec![0u8; 0x40];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        let info_at = elf.len();
        elf.extend(info.as_bytes());
        let names_at = elf.len();
        elf.extend(names);
        let table = elf.len();
        for (name, at, size) in [
            (0u32, 0usize, 0usize),
            (1, info_at, info.len()),
            (10, names_at, names.len()),
        ] {
            let mut h = vec![0u8; 0x40];
            h[..4].copy_from_slice(&name.to_le_bytes());
            h[0x18..0x20].copy_from_slice(&(at as u64).to_le_bytes());
            h[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            elf.extend(h);
        }
        elf[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        elf[0x3a..0x3c].copy_from_slice(&0x40u16.to_le_bytes());
        elf[0x3c..0x3e].copy_from_slice(&3u16.to_le_bytes());
        elf[0x3e..0x40].copy_from_slice(&2u16.to_le_bytes());
        elf
    }

    fn kernel(dir: &Path, modules: &[(&str, &str)], builtin: &str) -> Kernel {
        for (name, info) in modules {
            let path = dir.join("kernel").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut bytes = object(info);
            if name.ends_with(".gz") {
                let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                std::io::Write::write_all(&mut z, &bytes).unwrap();
                bytes = z.finish().unwrap();
            } else if name.ends_with(".zst") {
                bytes = zstd::encode_all(&bytes[..], 1).unwrap();
            }
            fs::write(path, bytes).unwrap();
        }
        fs::write(dir.join("modules.builtin"), builtin).unwrap();
        Kernel {
            image: dir.join("vmlinuz"),
            version: "1".into(),
            modules: Some(dir.to_owned()),
        }
    }

    #[test]
    fn modules_come_after_what_they_depend_on_whatever_their_compression() {
        let dir = tempfile::tempdir().unwrap();
        let k = kernel(
            dir.path(),
            &[
                ("md/raid456.ko.zst", "depends=md-mod,async_tx,xor\0"),
                (
                    "md/md-mod.ko.gz",
                    "license=GPL\0depends=\0softdep=pre: crc32c post: raid0\0",
                ),
                ("lib/async_tx.ko", "depends=xor\0"),
                ("lib/crc32c.ko", ""),
                ("md/raid0.ko", "depends=md-mod\0"),
            ],
            "kernel/lib/xor.ko\n",
        );
        let modules = Modules::of(&k);
        let names = |wanted: &[&str]| -> Vec<String> {
            let all = modules.closure(wanted).unwrap();
            all.into_iter().map(|m| m.name).collect()
        };
        assert_eq!(
            names(&["raid456"]),
            ["crc32c", "md_mod", "async_tx", "raid456"]
        );
        assert_eq!(names(&["xor"]), Vec::<String>::new(), "built in");
        assert!(modules.has("md-mod") && modules.has("xor") && !modules.has("nvme"));
    }

    #[test]
    fn a_missing_module_is_named_and_damaged_files_do_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let k = kernel(dir.path(), &[("a.ko", "depends=b\0")], "");
        let e = Modules::of(&k).closure(&["a"]).unwrap_err().to_string();
        assert!(e.contains("no module b"), "{e}");
        let whole = object("depends=x\0");
        for cut in 0..whole.len() {
            let _ = modinfo(&whole[..cut]);
        }
    }
}
