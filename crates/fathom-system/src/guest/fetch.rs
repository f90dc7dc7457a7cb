//! A kernel for guests from the distribution's archive, unpacked into the user's cache and not installed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fathom_files::create;

use crate::{SystemError, programs};

/// Packages whose newest kernel is small and boots anywhere: Debian's, then Ubuntu's.
const KERNELS: [&str; 2] = ["linux-image-cloud-amd64", "linux-image-virtual"];
/// Made last: what lacks it was not unpacked to its end.
const COMPLETE: &str = "complete";
/// Directories of one package, those of ended downloads among them.
const TRIES: u32 = 100;

/// Directories with kernels that were fetched.
pub(super) fn kernels() -> Vec<PathBuf> {
    let all = cache().and_then(|dir| fs::read_dir(dir).ok());
    let dirs = all.into_iter().flatten().flatten().map(|e| e.path());
    dirs.filter(|d| d.join(COMPLETE).is_file()).collect()
}

/// `~/.cache/fathom/kernels`, by the XDG base directory specification.
fn cache() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).map(PathBuf::from);
    let base = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|h| h.join(".cache")));
    let base = base.filter(|b| b.is_absolute())?;
    Some(base.join("fathom/kernels"))
}

/// Fetches the distribution's newest small kernel with its modules; returns where it is unpacked.
///
/// # Errors
/// Where there is no package manager of Debian's, it knows no such kernel, or the download ends.
pub fn kernel() -> Result<PathBuf, SystemError> {
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        if programs::find(program).is_none() {
            return Err(SystemError::Missing {
                what: format!(
                    "{program} is not here: kernels are fetched by Debian's package manager only"
                ),
                remedy:
                    "install a kernel of your distribution, and name it with --kernel (docs/vm.md)"
                        .into(),
            });
        }
    }
    let image = image()?;
    let dir = fresh(&image)?;
    unpack(&image, &dir).inspect_err(|_| {
        // This process made it just now.
        let _ = fs::remove_dir_all(&dir);
    })?;
    Ok(dir)
}

/// The package that the small kernel's name stands for.
fn image() -> Result<String, SystemError> {
    let newest = |meta: &&str| {
        let said = programs::output(programs::command("apt-cache").args(["depends", meta])).ok()?;
        said.lines()
            .filter_map(|l| l.trim().strip_prefix("Depends: "))
            .find(|p| p.starts_with("linux-image-"))
            .map(str::to_owned)
    };
    KERNELS
        .iter()
        .find_map(newest)
        .ok_or_else(|| SystemError::Missing {
            what: format!(
                "the package manager knows neither of {}",
                KERNELS.join(", ")
            ),
            remedy: "apt-get update, and fathom doctor --fetch again".into(),
        })
}

/// A directory that nobody has yet.
fn fresh(image: &str) -> Result<PathBuf, SystemError> {
    let base = cache().ok_or_else(|| SystemError::Missing {
        what: "there is no place for it".into(),
        remedy: "set HOME, or XDG_CACHE_HOME".into(),
    })?;
    let failed =
        |path: &Path, e: io::Error| SystemError::Failed(format!("{}: {e}", path.display()));
    create::dirs(&base).map_err(|e| failed(&base, e))?;
    for n in 1..=TRIES {
        let dir = match n {
            1 => base.join(image),
            n => base.join(format!("{image}-{n}")),
        };
        match create::private_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(&dir, e)),
        }
    }
    Err(failed(&base, io::ErrorKind::AlreadyExists.into()))
}

fn unpack(image: &str, dir: &Path) -> Result<(), SystemError> {
    let failed = |what: &str, e: String| SystemError::Failed(format!("{what}: {e}"));
    let download = |package: &str| {
        programs::run(
            programs::command("apt-get")
                .args(["-q", "download", package])
                .current_dir(dir),
        )
    };
    download(image).map_err(|e| failed(&format!("apt-get download {image}"), e))?;
    // Ubuntu has the modules in a package of their own; Debian has none of that name.
    let _ = download(&image.replacen("linux-image-", "linux-modules-", 1));
    let entries =
        fs::read_dir(dir).map_err(|e| failed(&dir.display().to_string(), e.to_string()))?;
    let debs = entries.flatten().map(|e| e.path());
    for deb in debs.filter(|p| p.extension().is_some_and(|e| e == "deb")) {
        let name = deb.display().to_string();
        programs::run(programs::command("dpkg-deb").arg("-x").arg(&deb).arg(dir))
            .map_err(|e| failed(&format!("dpkg-deb -x {name}"), e))?;
        fs::remove_file(&deb).map_err(|e| failed(&name, e.to_string()))?;
    }
    create::file(&dir.join(COMPLETE)).map_err(|e| failed(COMPLETE, e.to_string()))?;
    Ok(())
}
