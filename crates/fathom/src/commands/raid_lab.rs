//! `fathom raid --lab`: another lab in the file system of each array, or on its device.

use std::path::PathBuf;

use fathom_bench::{Notebook, RunMeta};
use fathom_io::Control;
use fathom_labs::LabError;
use fathom_labs::guest::Needs;
use fathom_labs::raid::within::WithinResult;
use fathom_labs::raid::{self, ArrayBench, Backend, RaidOptions};
use fathom_system::array::Shape;
use fathom_system::filesystem::FileSystem;
use fathom_system::guest::given;
use fathom_telemetry::say;
use fathom_telemetry::{Flag, FlagCode};

use super::child;
use super::finish::{meta, summarised};
use super::open::capsule_of;
use crate::cli::RaidArgs;
use crate::exit::{Failure, Outcome, refused};
use crate::known::{Nests, labs};

/// A lab's command line, cut where its target belongs.
pub(super) struct Words {
    command: Vec<String>,
    rest: Vec<String>,
    devices: bool,
}

impl Words {
    /// # Errors
    /// Where it is no lab that works in a directory.
    pub(super) fn of(text: &str) -> Result<Self, Failure> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let labs = labs();
        let lab = labs.iter().find(|(name, _)| {
            let n = name.split(' ').count();
            words.get(..n).is_some_and(|w| w.join(" ") == *name)
        });
        let Some((name, nests)) = lab else {
            let names: Vec<&str> = labs.iter().map(|l| l.0.as_str()).collect();
            return Err(refused(anyhow::anyhow!(
                "--lab \"{text}\": expected {} with its options, and no target",
                names.join(", ")
            )));
        };
        let n = name.split(' ').count();
        Ok(Self {
            command: words[..n].to_vec(),
            rest: words[n..].to_vec(),
            devices: *nests == Nests::Device,
        })
    }

    /// The same in a guest, which has files that options name elsewhere.
    pub(super) fn inside(&self) -> Self {
        Self {
            rest: self.rest.iter().map(|w| inside(w)).collect(),
            command: self.command.clone(),
            ..*self
        }
    }

    /// What it needs of a guest that it runs in.
    pub(super) fn needs(&self, mkfs: Option<&'static FileSystem>) -> Result<Needs, LabError> {
        let files: Vec<PathBuf> = self.rest.iter().filter_map(|w| Some(file(w)?.1)).collect();
        Needs::of(&self.name(), self.file_system(mkfs), &files)
    }

    /// Whether it works on so many bytes, and nobody said on how many.
    pub(super) fn is_sized(&self) -> bool {
        self.devices && !self.rest.iter().any(|w| w.starts_with("--size"))
    }

    /// As its run calls it.
    pub(super) fn name(&self) -> String {
        self.command.join("-")
    }

    /// As it would be typed.
    pub(super) fn typed(&self) -> String {
        [&self.command[..], &self.rest].concat().join(" ")
    }

    /// The file system that is made for it where there is none: the one that was asked for, and one at all where it needs one.
    pub(super) fn file_system(
        &self,
        asked: Option<&'static FileSystem>,
    ) -> Option<&'static FileSystem> {
        let usual = FileSystem::named("ext4").filter(|_| !self.devices);
        asked.or(usual)
    }

    /// On a device that is the run's own to destroy, in a file system that is made there where one is needed.
    pub(super) fn on_device(&self, node: &str, mkfs: Option<&'static FileSystem>) -> Vec<String> {
        let mut all = self.on(node);
        if let Some(fs) = self.file_system(mkfs) {
            all.extend(["--mkfs".to_owned(), fs.name.to_owned()]);
        }
        all
    }

    pub(super) fn on(&self, target: &str) -> Vec<String> {
        let mut all = self.command.clone();
        all.push(target.to_owned());
        all.extend(self.rest.iter().cloned());
        all
    }
}

/// What an option says of a file of this machine, such as a script: what stands before its path, that path, whole, and its
/// weight behind it.
fn file(word: &str) -> Option<(&str, PathBuf, &str)> {
    let from = word.find('=').map_or(0, |at| at + 1);
    let name = &word[from..];
    let to = name.rfind('@').unwrap_or(name.len());
    [name.len(), to].into_iter().find_map(|to| {
        let path = std::path::absolute(&name[..to]).ok()?;
        path.is_file().then(|| (&word[..from], path, &name[to..]))
    })
}

/// A word as it holds in a guest.
fn inside(word: &str) -> String {
    match file(word) {
        None => word.to_owned(),
        Some((before, path, behind)) => format!("{before}{}{behind}", given(&path).display()),
    }
}

pub(super) fn run(
    mut backend: Box<dyn Backend>,
    words: &Words,
    args: &RaidArgs,
    options: &RaidOptions,
    control: &Control,
) -> Outcome {
    let member = backend.member()?;
    let mut about = member.describe();
    member.close()?;
    about.name = args.targets.join(" ");
    let meta = RunMeta {
        profile: Some(args.profile.clone()),
        ..meta("raid", args.seed, &args.out, capsule_of(&about))
    };
    let mut book = Notebook::create(&args.out.out, meta, about, false, 0)?;
    let mut result = WithinResult::new(&words.typed(), &backend.about());
    for shape in raid::shapes(options) {
        if control.interrupted() {
            break;
        }
        let run = one(&mut *backend, shape, words, args, control).map_err(|e| e.to_string());
        result.add(&mut book, shape, run);
    }
    if control.interrupted() {
        book.run_mut().flags.push(Flag::new(
            FlagCode::Interrupted,
            format!("{} arrays were measured", result.arrays()),
            "run it again: it begins anew",
        ));
    }
    let found = result.keep(&mut book);
    drop(backend);
    summarised(book, found, None, &args.out)
}

fn one(
    backend: &mut dyn Backend,
    shape: Shape,
    words: &Words,
    args: &RaidArgs,
    control: &Control,
) -> Result<(fathom_telemetry::schema::Run, String), LabError> {
    if let Some(why) = backend.cannot(&shape) {
        return Err(LabError::Refused(why));
    }
    let mut array = backend.make(&shape)?;
    let ran = on_array(&mut *array, words, args).and_then(|words_on| {
        say!("{}: {}", shape.title(), child::typed(&words_on));
        child::run(&words_on, &args.out.out, control)
            .map(|(run, kept)| (run, kept.path().display().to_string()))
            .map_err(LabError::Failed)
    });
    let closed = array.close();
    let ran = ran?;
    closed.map(|()| ran)
}

/// The lab's command line in the array's file system; without one, on its device, which is the run's own to destroy.
fn on_array(
    array: &mut dyn ArrayBench,
    words: &Words,
    args: &RaidArgs,
) -> Result<Vec<String>, LabError> {
    let array = array.hand_over()?;
    if let Some(dir) = array.directory() {
        return Ok(words.on(&dir.display().to_string()));
    }
    let node = array
        .device()
        .ok_or_else(|| LabError::Refused("it has neither a file system nor a device".into()))?;
    let node = node.display().to_string();
    let mut all = words.on_device(&node, args.mkfs);
    all.extend(["--destroy".to_owned(), node]);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::introduce;

    #[test]
    fn a_labs_target_stands_behind_its_command() {
        introduce();
        let words = Words::of("db tpcc --database sqlite --time 1s")
            .ok()
            .unwrap();
        assert_eq!(words.name(), "db-tpcc");
        assert_eq!(
            words.on("/mnt").join(" "),
            "db tpcc /mnt --database sqlite --time 1s"
        );
        assert_eq!(
            Words::of("kv --size 1g").ok().unwrap().on("x").join(" "),
            "kv x --size 1g"
        );
        assert_eq!(inside("--script=Cargo.toml@2"), {
            let path = std::path::absolute("Cargo.toml").unwrap();
            format!("--script=/given{}@2", path.display())
        });
        assert_eq!(inside("--time=1s"), "--time=1s");
        for bad in ["", "survey", "db", "raid . --lab kv"] {
            assert!(Words::of(bad).is_err(), "{bad}");
        }
    }
}
