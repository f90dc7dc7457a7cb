//! Real loop devices for tests: attached to sparse files, detached on drop.
#![allow(dead_code, unreachable_pub)] // every test program uses another part of this

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Loop devices are scarce, so tests that need them take turns.
pub fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether a test can run; says visibly why not.
pub fn possible(programs: &[&str]) -> bool {
    let mut why = Vec::new();
    if !rustix::process::geteuid().is_root() {
        why.push("needs root".to_string());
    }
    if !Path::new("/dev/loop-control").exists() {
        why.push("needs loop devices (/dev/loop-control)".to_string());
    }
    for program in programs.iter().chain(&["losetup"]) {
        if find(program).is_none() {
            why.push(format!("needs the program {program}"));
        }
    }
    if !why.is_empty() {
        skip(&why.join(", "));
    }
    why.is_empty()
}

/// Says on the terminal, past the test harness's capture, that something was not tested.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("?").to_string();
    let line = format!("SKIP {test}: {why}\n");
    // `eprintln!` would be swallowed for a test that passes; this is not.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A program in the usual places; /usr/sbin is not in everybody's PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"])
        .map(|d| Path::new(d).join(program))
        .find(|p| p.is_file())
}

/// Runs a program; its words where it fails.
pub fn try_run(program: &str, args: &[&str]) -> Result<String, String> {
    let path = find(program).ok_or_else(|| format!("no {program}"))?;
    let out = Command::new(path)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_string())
    } else {
        Err(String::from_utf8_lossy(&out.stderr).trim().to_string())
    }
}

/// Runs a program that must succeed.
pub fn run(program: &str, args: &[&str]) -> String {
    try_run(program, args).unwrap_or_else(|e| panic!("{program} {args:?}: {e}"))
}

/// A disk made of a sparse file.
pub struct Disk {
    dir: tempfile::TempDir,
    pub image: PathBuf,
}

impl Disk {
    pub fn new(mib: u64) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("fathom-test-")
            .tempdir()
            .unwrap();
        let image = dir.path().join("disk.img");
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        Self { dir, image }
    }

    /// A path beside the image, for mount points and links.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn image_str(&self) -> &str {
        self.image.to_str().unwrap()
    }

    pub fn write_at(&self, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(&self.image).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    /// Cuts or stretches the image.
    pub fn resize(&self, mib: u64) {
        let file = File::options().write(true).open(&self.image).unwrap();
        file.set_len(mib << 20).unwrap();
    }

    /// A digest of every byte of the disk.
    pub fn checksum(&self) -> u64 {
        // Everything that the kernel still holds back must be in the file.
        rustix::fs::sync();
        let mut file = File::open(&self.image).unwrap();
        let mut hasher = DefaultHasher::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let n = file.read(&mut buffer).unwrap();
            if n == 0 {
                return hasher.finish();
            }
            hasher.write(&buffer[..n]);
        }
    }
}

/// A loop device, detached on drop.
pub struct Loop {
    pub path: PathBuf,
    partitions: u32,
}

impl Loop {
    pub fn of(file: &Path) -> Self {
        Self::with(file, &[])
    }

    pub fn with(file: &Path, options: &[&str]) -> Self {
        let mut args = vec!["--find", "--show"];
        args.extend(options);
        args.push(file.to_str().unwrap());
        // Another program may snatch the free device between finding and taking it.
        let path = (0..20)
            .find_map(|_| {
                try_run("losetup", &args).ok().or_else(|| {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    None
                })
            })
            .expect("no free loop device");
        Self {
            path: path.into(),
            partitions: 0,
        }
    }

    pub fn str(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }

    /// Adds a partition through the kernel (addpart), which works without a partition table
    /// and on kernels that read none. `None` with a visible skip where that fails.
    pub fn add_partition(&mut self, start_mib: u64, mib: u64) -> Option<PathBuf> {
        let number = self.partitions + 1;
        let (n, start, len) = (
            number.to_string(),
            (start_mib * 2048).to_string(),
            (mib * 2048).to_string(),
        );
        if let Err(e) = try_run("addpart", &[self.str(), &n, &start, &len]) {
            skip(&format!("the kernel adds no partition: {e}"));
            return None;
        }
        self.partitions = number;
        let node = PathBuf::from(format!("{}p{number}", self.str()));
        for _ in 0..50 {
            if node.exists() {
                return Some(node);
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        skip("the partition got no node under /dev");
        None
    }
}

impl Drop for Loop {
    /// A ring that has ended gives its file back a moment later: until then a partition is busy, and would be there for who
    /// gets the device next.
    fn drop(&mut self) {
        for n in 1..=self.partitions {
            for _ in 0..100 {
                if try_run("delpart", &[self.str(), &n.to_string()]).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        let _ = try_run("losetup", &["--detach", self.str()]);
    }
}

/// A mount, undone on drop.
pub struct Mounted {
    pub at: PathBuf,
}

impl Mounted {
    pub fn new(device: &str, at: PathBuf, options: &[&str]) -> Result<Self, String> {
        fs::create_dir_all(&at).unwrap();
        let mut args = options.to_vec();
        args.extend([device, at.to_str().unwrap()]);
        try_run("mount", &args)?;
        Ok(Self { at })
    }
}

impl Drop for Mounted {
    /// A ring that has ended gives its file back a moment later: until then the mount is busy.
    fn drop(&mut self) {
        let mut left = Ok(String::new());
        for _ in 0..100 {
            left = try_run("umount", &[self.at.to_str().unwrap()]);
            if left.is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        eprintln!("{} is left mounted: {left:?}", self.at.display());
    }
}

/// A btrfs over two devices that keeps two copies of its metadata; the kernel is told of both.
pub fn mkfs_btrfs(data: &str, devices: [&Loop; 2]) {
    let [one, two] = devices.map(Loop::str);
    run(
        "mkfs.btrfs",
        &["-q", "-f", "-d", data, "-m", "raid1", one, two],
    );
    let _ = try_run("btrfs", &["device", "scan", one, two]);
}

/// Makes an ext4 that does nothing behind the test's back.
pub fn mkfs_ext4(device: &str) {
    run(
        "mkfs.ext4",
        &[
            "-q",
            "-F",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
            device,
        ],
    );
}
