//! What the tests share: both programs, their output, a device that counts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn fathom(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fathom"))
        .arg("fio")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// What fio itself says; `None` where it is not installed.
pub(crate) fn fio(dir: &Path, args: &[&str]) -> Option<Output> {
    Command::new("fio")
        .args(args)
        .current_dir(dir)
        .output()
        .ok()
}

pub(crate) fn scratch() -> tempfile::TempDir {
    // Not in memory: what direct I/O can do there differs.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn skip(test: &str) {
    println!("SKIP {test}: fio is not installed (apt-get install fio)");
}

/// The document in an output, which notes may precede and other forms follow.
pub(crate) fn document(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stdout);
    let begin = text.find('{').unwrap_or_else(|| panic!("{out:?}"));
    let mut documents = serde_json::Deserializer::from_str(&text[begin..]).into_iter();
    documents.next().unwrap().unwrap()
}

/// Jobs of the same arguments by both, each in a directory of its own: fathom's first.
pub(crate) fn both(test: &str, args: &[&str]) -> Vec<Value> {
    let seen = both_in(test, args, |_| {});
    seen.into_iter().map(|(_, jobs)| jobs).collect()
}

/// The same with what is in each directory before, and the directories as they are left.
pub(crate) fn both_in(
    test: &str,
    args: &[&str],
    prepare: impl Fn(&Path),
) -> Vec<(tempfile::TempDir, Value)> {
    let mut all = args.to_vec();
    all.push("--output-format=json");
    let mut seen = Vec::new();
    for theirs in [false, true] {
        let dir = scratch();
        prepare(dir.path());
        let out = match theirs {
            false => Some(fathom(dir.path(), &all)),
            true => fio(dir.path(), &all),
        };
        let Some(out) = out else {
            skip(test);
            continue;
        };
        assert!(out.status.success(), "{args:?}: {out:?}");
        seen.push((dir, document(&out)["jobs"].clone()));
    }
    seen
}

/// I/Os and bytes of reads, writes and trims, and syncs.
pub(crate) fn totals(job: &Value) -> Vec<u64> {
    let mut out = Vec::new();
    for d in ["read", "write", "trim"] {
        for field in ["total_ios", "io_bytes"] {
            out.push(job[d][field].as_u64().unwrap());
        }
    }
    out.push(job["sync"]["total_ios"].as_u64().unwrap());
    out
}

/// Names in a directory, in order.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let all = std::fs::read_dir(dir).unwrap();
    let mut all: Vec<String> = all
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

pub(crate) fn number(v: &Value) -> f64 {
    v.as_f64().unwrap_or_else(|| panic!("{v} is no number"))
}

/// A loop device of random data, gone with the test.
pub(crate) struct Loop {
    pub(crate) path: String,
    back: PathBuf,
}

impl Loop {
    pub(crate) fn new(test: &str, dir: &Path, mib: usize) -> Option<Self> {
        let back = dir.join("back");
        let mut seed = 7u64;
        let data: Vec<u8> = (0..mib << 17)
            .flat_map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed.to_le_bytes()
            })
            .collect();
        std::fs::write(&back, data).unwrap();
        let made = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(&back)
            .output();
        match made {
            Ok(out) if out.status.success() => {
                let path = String::from_utf8_lossy(&out.stdout).trim().to_owned();
                // Partitions of whatever had this number before.
                let _ = Command::new("partx").args(["-d", &path]).output();
                Some(Self { path, back })
            }
            _ => {
                println!("SKIP {test}: no loop device can be made here");
                None
            }
        }
    }

    /// Reads and writes that the device has done so far.
    pub(crate) fn count(&self) -> [u64; 2] {
        let name = self.path.trim_start_matches("/dev/");
        let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let field = |i: usize| text.split_whitespace().nth(i).unwrap().parse().unwrap();
        [field(0), field(4)]
    }

    /// Reads and writes that reach the device in a run of each tool: fathom's first.
    pub(crate) fn reached(&self, test: &str, args: &[&str]) -> Vec<[u64; 2]> {
        let dir = self.back.parent().unwrap();
        let file = format!("--filename={}", self.path);
        let mut all = vec!["--name=a", &file, "--output-format=json"];
        all.extend(args);
        let destroy = format!("--destroy={}", self.path);
        let mut out = Vec::new();
        for theirs in [false, true] {
            let before = self.count();
            let ended = if theirs {
                fio(dir, &all)
            } else {
                let mut mine = all.clone();
                mine.push(&destroy);
                Some(fathom(dir, &mine))
            };
            let Some(ended) = ended else {
                skip(test);
                continue;
            };
            assert!(ended.status.success(), "{args:?}: {ended:?}");
            let after = self.count();
            out.push([after[0] - before[0], after[1] - before[1]]);
        }
        out
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.path]).output();
    }
}

/// Within 2 %, or a few: fathom looks at a device before it uses it.
pub(crate) fn alike(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= 32.max(b / 50)
}
