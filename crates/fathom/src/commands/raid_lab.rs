//! `fathom raid --lab`: another lab in the file system of each array, or on its device.

use fathom_bench::{Notebook, RunMeta};
use fathom_io::Control;
use fathom_labs::LabError;
use fathom_labs::raid::within::WithinResult;
use fathom_labs::raid::{self, ArrayBench, Backend, RaidOptions};
use fathom_system::array::Shape;
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

    /// Whether it works on a device, too.
    pub(super) fn takes_devices(&self) -> bool {
        self.devices
    }

    /// What stands behind the target.
    pub(super) fn options(&self) -> &[String] {
        &self.rest
    }

    /// As its run calls it.
    pub(super) fn name(&self) -> String {
        self.command.join("-")
    }

    /// As it would be typed.
    pub(super) fn typed(&self) -> String {
        [&self.command[..], &self.rest].concat().join(" ")
    }

    pub(super) fn on(&self, target: &str) -> Vec<String> {
        let mut all = self.command.clone();
        all.push(target.to_owned());
        all.extend(self.rest.iter().cloned());
        all
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
    let ran = on_array(&mut *array, words).and_then(|words_on| {
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
fn on_array(array: &mut dyn ArrayBench, words: &Words) -> Result<Vec<String>, LabError> {
    let array = array.hand_over()?;
    if let Some(dir) = array.directory() {
        return Ok(words.on(&dir.display().to_string()));
    }
    let node = array.device().filter(|_| words.takes_devices());
    let node = node.ok_or_else(|| {
        LabError::Refused(
            "it has no file system: use --backend btrfs or zfs, or kv as the lab".into(),
        )
    })?;
    let node = node.display().to_string();
    let mut all = words.on(&node);
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
        for bad in ["", "survey", "db", "raid . --lab kv"] {
            assert!(Words::of(bad).is_err(), "{bad}");
        }
    }
}
