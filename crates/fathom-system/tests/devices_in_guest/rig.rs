//! A guest with devices of QEMU's, a shell in it, and the images behind the devices.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use fathom_system::guest::{Guest, Machine};
use fathom_telemetry::Bytes;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::common::{bring, skip, supply};

/// Slower than this, and the rest would take minutes.
const TOO_BUSY_SECONDS: f64 = 20.0;

/// What a command in the guest left.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    /// Both streams.
    pub(crate) text: String,
}

thread_local! {
    /// What did not hold: the other scenarios of the guest are tried all the same.
    static PROBLEMS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A piece of a script that waits until something is so, for a minute and a half at most: what waits for what never comes
/// must not wait for ever.
pub(crate) fn until(so: &str) -> String {
    format!("for i in $(seq 900); do {so} && break; sleep 0.1; done; ")
}

/// Whether `bench/devices` runs this: it has the time.
pub(crate) fn in_bench() -> bool {
    std::env::var_os("FATHOM_DEVICES_TABLE").is_some()
}

/// A line of the table that `bench/devices` makes: it names the file.
pub(crate) fn row(what: &str, expected: &str, seen: &str) {
    println!("{what} | {expected} | {seen}");
    let Some(table) = std::env::var_os("FATHOM_DEVICES_TABLE") else {
        return;
    };
    let mut file = File::options()
        .append(true)
        .create(true)
        .open(table)
        .unwrap();
    writeln!(file, "{what} | {expected} | {seen}").unwrap();
}

/// Notes what does not hold.
#[track_caller]
pub(crate) fn hold(holds: bool, what: impl Display) {
    if !holds {
        let at = Location::caller();
        PROBLEMS.with_borrow_mut(|all| all.push(format!("{}:{}: {what}", at.file(), at.line())));
    }
}

impl Said {
    /// It was refused, with these words.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) {
        hold(
            self.code == 2,
            format_args!("exit {}: {}", self.code, self.text),
        );
        self.has(words);
    }

    /// Whether it said this, on one line or where lines are broken.
    fn says(&self, words: &str) -> bool {
        let lines: Vec<&str> = self.text.split_whitespace().collect();
        self.text.contains(words) || lines.join(" ").contains(words)
    }

    /// It said all of this.
    #[track_caller]
    pub(crate) fn has(&self, words: &[&str]) {
        for word in words {
            hold(
                self.says(word),
                format_args!("'{word}' is missing: {}", self.text),
            );
        }
    }

    /// It said none of this.
    #[track_caller]
    pub(crate) fn has_not(&self, words: &[&str]) {
        for word in words {
            hold(
                !self.says(word),
                format_args!("'{word}' is there: {}", self.text),
            );
        }
    }

    /// It failed, and said all of this.
    #[track_caller]
    pub(crate) fn failed(&self, words: &[&str]) {
        hold(
            self.code == 1,
            format_args!("exit {}: {}", self.code, self.text),
        );
        self.has(words);
    }

    #[track_caller]
    pub(crate) fn done(&self) {
        hold(
            self.code == 0,
            format_args!("exit {}: {}", self.code, self.text),
        );
    }
}

/// Bytes of an image by their offset, without the chunks that hold only zeros: images are small and mostly holes, so that
/// their bytes are compared sooner than digests of all of it are made.
type Contents = BTreeMap<u64, Vec<u8>>;

fn contents(image: &Path) -> io::Result<Contents> {
    const CHUNK: usize = 64 << 10;
    static ZEROS: [u8; CHUNK] = [0; CHUNK];
    let file = File::open(image)?;
    let end = file.metadata()?.len();
    let mut all = Contents::new();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        at = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data / CHUNK as u64 * CHUNK as u64,
            // Only a hole from here to the end.
            Err(Errno::NXIO) => return Ok(all),
            Err(e) => return Err(e.into()),
        };
        let wanted = (end - at).min(CHUNK as u64) as usize;
        file.read_exact_at(&mut buffer[..wanted], at)?;
        if buffer[..wanted] != ZEROS[..wanted] {
            all.insert(at, buffer[..wanted].to_vec());
        }
        at += CHUNK as u64;
    }
}

/// One guest at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

pub(crate) struct Rig {
    guest: Guest,
    dir: tempfile::TempDir,
    images: Vec<String>,
    /// Whether a command may have written since the guest was last told to hold nothing back.
    unsynced: bool,
    _turn: MutexGuard<'static, ()>,
}

impl Rig {
    /// Boots a guest. `{dir}` in QEMU's arguments is where the images are: name and MiB each.
    pub(crate) fn boot(images: &[(&str, u64)], arguments: &str, modules: &[&str]) -> Option<Self> {
        Self::boot_with(images, arguments, modules, "")
    }

    /// The same with further parameters of the kernel.
    pub(crate) fn boot_with(
        images: &[(&str, u64)],
        arguments: &str,
        modules: &[&str],
        parameters: &str,
    ) -> Option<Self> {
        let turn = turn();
        let mut supply = supply()?;
        let dir = tempfile::Builder::new()
            .prefix("fathom-rig-")
            .tempdir()
            .unwrap();
        for (name, mib) in images {
            File::create(dir.path().join(name))
                .unwrap()
                .set_len(mib << 20)
                .unwrap();
        }
        let mut machine = Machine::new(Vec::new());
        machine.memory = Bytes::mib(768);
        machine.modules = modules.iter().map(|m| (*m).to_owned()).collect();
        machine.parameters.push(parameters.to_owned());
        let place = dir.path().display().to_string();
        let words = arguments.split_whitespace();
        machine.devices = words.map(|w| w.replace("{dir}", &place)).collect();
        // Who asked for the table waits for it.
        let patient = in_bench();
        let mut guest = match supply.boot(&machine) {
            Ok(g) if patient || g.booted_in.as_secs_f64() < TOO_BUSY_SECONDS => g,
            Ok(g) => {
                skip(&format!(
                    "a guest needed {} to boot, this machine is too busy",
                    g.booted_in
                ));
                g.off();
                return None;
            }
            Err(e) if e.to_string().contains("did not answer within") => {
                skip(&format!("this machine is too busy: {e}"));
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        if !bring(&mut guest, "busybox") {
            return None;
        }
        let mut rig = Self {
            guest,
            dir,
            images: images.iter().map(|(name, _)| (*name).to_owned()).collect(),
            unsynced: true,
            _turn: turn,
        };
        // The links must not replace what was brought.
        rig.sh("mkdir -p /bin /m && /sbin/busybox --install -s /bin; ln -s /init /bin/fathom; mkdir -p /sys/kernel/config; mount -t configfs c /sys/kernel/config; sleep 1").done();
        Some(rig)
    }

    /// Puts a program of this machine into the guest.
    pub(crate) fn bring(&mut self, program: &str) -> bool {
        bring(&mut self.guest, program)
    }

    /// Runs a script in the guest.
    pub(crate) fn sh(&mut self, script: &str) -> Said {
        let script = format!("exec 2>&1; {script}");
        let argv = ["/sbin/busybox", "sh", "-c", &script];
        self.unsynced = true;
        let output = self.guest.exec(&argv, "/tmp/work").unwrap();
        Said {
            code: output.status.unwrap_or(-1),
            text: output.out + &output.err,
        }
    }

    /// Runs fathom in the guest.
    pub(crate) fn fathom(&mut self, arguments: &str) -> Said {
        self.sh(&format!("fathom {arguments}"))
    }

    /// Runs fathom in the guest and has everything written out that the guest held back. (One command: each takes an emulated
    /// processor a while to begin.)
    fn fathom_and_sync(&mut self, arguments: &str) -> Said {
        let said = self.sh(&format!(
            "fathom {arguments}; code=$?; sync || exit 99; exit $code"
        ));
        self.unsynced = false;
        said
    }

    /// A line of the guest's, for names and numbers.
    pub(crate) fn line(&mut self, script: &str) -> String {
        self.sh(script).text.trim().to_owned()
    }

    /// The node of an NVMe namespace: the kernel's names move.
    pub(crate) fn namespace(&mut self, serial: &str, nsid: u32) -> String {
        self.line(&format!(
            "for d in /sys/block/nvme*n*; do [ -e $d/dev ] && [ $(cat $d/nsid) = {nsid} ] && grep -q '{serial} *$' $d/device/serial && echo /dev/${{d##*/}}; done"
        ))
    }

    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What every image holds, after all that the guest held back is there.
    pub(crate) fn contents(&mut self) -> BTreeMap<String, Contents> {
        if self.unsynced {
            self.sh("sync").done();
            self.unsynced = false;
        }
        let read = |name: &String| (name.clone(), contents(&self.image(name)).unwrap());
        self.images.iter().map(read).collect()
    }

    /// fathom is refused with these words, and no byte of any image changes.
    #[track_caller]
    pub(crate) fn refused(&mut self, arguments: &str, words: &[&str]) -> String {
        let before = self.contents();
        let said = self.fathom_and_sync(arguments);
        said.refused(words);
        hold(
            before == self.contents(),
            format_args!("bytes have changed: {arguments}"),
        );
        said.text
    }

    /// fathom writes to the device behind this image and to no other.
    #[track_caller]
    pub(crate) fn writes(&mut self, arguments: &str, image: &str) {
        let before = self.contents();
        let said = self.fathom_and_sync(arguments);
        said.done();
        for (name, content) in self.contents() {
            let changed = before[&name] != content;
            let right = changed == (name == image);
            hold(right, format_args!("{name}: {arguments}: {}", said.text));
        }
    }

    /// Part of what is tried in this guest, as a line of the table.
    pub(crate) fn scenario(&mut self, what: &str, expected: &str, tried: impl FnOnce(&mut Self)) {
        let before = PROBLEMS.with_borrow(Vec::len);
        tried(self);
        let seen = PROBLEMS.with_borrow(|all| match all.get(before) {
            None => "as expected".to_owned(),
            Some(first) => first.replace('\n', " / ").chars().take(300).collect(),
        });
        row(what, expected, &seen);
    }

    pub(crate) fn off(self) {
        self.guest.off();
        let problems = PROBLEMS.take();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
