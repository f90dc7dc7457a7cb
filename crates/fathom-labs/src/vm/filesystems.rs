//! Machines whose disks are files on file systems: XFS, ext4 and btrfs beside the bare target, in turns.
//!
//! The target's own bytes are divided: a part without a file system, and a part for each, through loop devices. What
//! was on the target is gone then, so this comes last. Needs root; what cannot be had is named and left out.

use std::io::Write;
use std::path::{Path, PathBuf};

use fathom_bench::parts::{estimate, number, table, text};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::runner::Point;
use fathom_bench::{Bench, Cell, Notebook, NotebookError};
use fathom_files::{create, open};
use fathom_host::Loop;
use fathom_io::job::Rw;
use fathom_stats::Estimate;
use fathom_telemetry::Bytes;
use fathom_telemetry::say;
use fathom_telemetry::schema::{Finding, Section};
use serde::{Deserialize, Serialize};

use super::{Hypervisor, Lab, Load, SMALL, VmOptions, spec};
use crate::LabError;
use crate::skipped::{self, Skipped};
use fathom_system::erase;
use fathom_system::filesystem::{FILE_SYSTEMS, FileSystem, Mount};
use fathom_system::programs;

/// What an image lies on; `None` is the bare target.
type Below = Option<&'static FileSystem>;

/// What its tables and jobs are called.
fn name(below: Below) -> &'static str {
    below.map_or("raw", |fs| fs.name)
}

/// Smaller parts of the target have no room for an image.
fn least(below: Below) -> Bytes {
    below.map_or(Bytes::mib(16), |fs| fs.least)
}

/// Share of its part that an image takes: file systems need room beside it.
const IMAGE: f64 = 0.4;

/// One of them, with a machine on it.
struct Ready {
    below: Below,
    /// Closed first, then unmounted, then freed.
    bench: Option<Box<dyn Bench>>,
    mount: Option<Mount>,
    device: Option<Loop>,
    points: Vec<(Load, Point)>,
}

/// What was measured on one.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OnFiles {
    /// Name of the file system; `None` is the bare target.
    below: Option<String>,
    points: Vec<(Load, Point)>,
}

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FilesResult {
    all: Vec<OnFiles>,
    skipped: Vec<Skipped>,
}

impl ExperimentResult for FilesResult {
    const EXPERIMENT: &'static str = "vm-files";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let seen = |f: &OnFiles| Seen {
            name: f.below.clone().unwrap_or_else(|| "raw".into()),
            bare: f.below.is_none(),
            cells: f
                .points
                .iter()
                .map(|(l, p)| (*l, evidence.cell(p)))
                .collect(),
        };
        let all: Vec<Seen> = self.all.iter().map(seen).collect();
        shown.sections.extend(section(&all));
        shown.findings.extend(finding(&all));
        shown
            .sections
            .extend(skipped::skipped("vm-files", &self.skipped));
    }
}

/// What was measured on one, with its jobs gathered.
struct Seen {
    name: String,
    bare: bool,
    cells: Vec<(Load, Cell)>,
}

/// Jobs, at most.
pub(super) fn jobs(options: &VmOptions) -> u32 {
    (chosen(options).len() * loads(options).len()) as u32
}

/// The bare target, with which others are compared, where anything is asked for at all, and what is.
fn chosen(options: &VmOptions) -> Vec<Below> {
    if options.files.is_empty() {
        return Vec::new();
    }
    let asked = |f: &&FileSystem| options.files.iter().any(|a| a == f.name);
    let file_systems = FILE_SYSTEMS.iter().filter(asked).map(Some);
    std::iter::once(None).chain(file_systems).collect()
}

fn loads(options: &VmOptions) -> Vec<Load> {
    let of = |rw| {
        [1, options.depth].map(|depth| Load {
            rw,
            block: SMALL,
            depth,
        })
    };
    [Rw::RandRead, Rw::RandWrite]
        .into_iter()
        .flat_map(of)
        .collect()
}

impl Lab<'_> {
    /// Measures; none where nothing is asked for. `place` is the target, open for writing.
    pub(super) fn files(
        &mut self,
        place: Option<PathBuf>,
        hypervisor: &mut dyn Hypervisor,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<Option<FilesResult>, NotebookError> {
        let all = chosen(self.options);
        if all.is_empty() || self.ended {
            return Ok(None);
        }
        let mut skips = Vec::new();
        let mut ready = Vec::new();
        match self.possible(place, &all) {
            Ok((place, part, image)) => {
                // All are made before the first is mounted: mkfs.btrfs takes any mounted loop device over the same file
                // for its own.
                let mut made = Vec::new();
                for (i, below) in all.iter().enumerate() {
                    let mut one = Ready::new(*below);
                    let laid = one.lay(&place, i as u64 * part, part);
                    one.keep(laid, &mut made, &mut skips)?;
                }
                for mut one in made {
                    let begun = one.begin(image, hypervisor, self);
                    one.keep(begun, &mut ready, &mut skips)?;
                }
            }
            Err(e) => skips.push(Skipped::from_error("files on file systems", e)),
        }
        let ran = self.in_turns(&mut ready, book, sink);
        let mut measured = Vec::new();
        for mut one in ready {
            measured.push(OnFiles {
                below: one.below.map(|fs| fs.name.to_owned()),
                points: std::mem::take(&mut one.points),
            });
            one.leave()?;
        }
        ran?;
        skipped::missing(book, &skips, false);
        Ok(Some(FilesResult {
            all: measured,
            skipped: skips,
        }))
    }

    /// The target, bytes of each part, bytes of each image.
    fn possible(
        &self,
        place: Option<PathBuf>,
        all: &[Below],
    ) -> Result<(PathBuf, u64, u64), LabError> {
        let Some(place) = place else {
            return Err(LabError::Refused(
                "these machines have no disks on this host's file systems; name a directory or a device of this host".into(),
            ));
        };
        if !self.options.writes {
            return Err(LabError::Refused(
                "file systems are made on the target, and nothing may be written: leave --no-writes out".into(),
            ));
        }
        if !programs::is_root() {
            return Err(LabError::Missing {
                what: "loop devices and mounts are root's".into(),
                remedy: "run it with sudo".into(),
            });
        }
        let part = (self.plan.limits.size / all.len() as u64) >> 20 << 20;
        let image = (part as f64 * IMAGE) as u64 >> 20 << 20;
        Ok((place, part, image))
    }

    /// Every load on every file system, in alternating order.
    fn in_turns(
        &mut self,
        ready: &mut [Ready],
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        for repeat in 0..self.plan.profile.repeats {
            for load in 0..loads(self.options).len() {
                let n = ready.len();
                for k in 0..n {
                    let k = if repeat % 2 == 0 { k } else { n - 1 - k };
                    let one = &mut ready[k];
                    if let (Some(bench), Some((_, point))) =
                        (one.bench.as_mut(), one.points.get_mut(load))
                    {
                        self.one(&mut **bench, point, book, sink)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Ready {
    fn new(below: Below) -> Self {
        Self {
            below,
            bench: None,
            mount: None,
            device: None,
            points: Vec::new(),
        }
    }

    /// Where a step of it succeeded, it goes on; else it is left out, with the reason, and nothing is left of it.
    fn keep(
        mut self,
        step: Result<(), LabError>,
        all: &mut Vec<Self>,
        skips: &mut Vec<Skipped>,
    ) -> Result<(), NotebookError> {
        match step {
            Ok(()) => all.push(self),
            Err(LabError::Notebook(e)) => return Err(*e),
            Err(e) => {
                let what = format!("a machine on {}", name(self.below));
                skips.push(Skipped::from_error(&what, e));
                self.leave()?;
            }
        }
        Ok(())
    }

    fn failed(&self, what: &str, e: &dyn std::fmt::Display) -> LabError {
        LabError::Failed(format!("{}: {what}: {e}", name(self.below)))
    }

    /// A loop device over a part of the target, and a file system on it.
    fn lay(&mut self, place: &Path, offset: u64, part: u64) -> Result<(), LabError> {
        let least = least(self.below);
        if part < least.0 {
            return Err(LabError::Refused(format!(
                "its part of the target is {}, {} needs {least}: use a larger --size, or fewer file systems",
                Bytes(part),
                name(self.below)
            )));
        }
        self.below.map_or(Ok(()), FileSystem::available)?;
        let target = place
            .canonicalize()
            .and_then(|place| open::for_writing(&place, 0))
            .map_err(|e| self.failed("the target", &e))?;
        let device = Loop::over_part(&target, offset, part).map_err(|e| LabError::Missing {
            what: format!("loop devices cannot be used: {e}"),
            remedy: "load them: modprobe loop".into(),
        })?;
        let device = self.device.insert(device);
        self.below.map_or(Ok(()), |fs| Ok(fs.make(device.path())?))
    }

    /// A machine whose disk is an image there, or the device itself.
    fn begin(
        &mut self,
        image: u64,
        hypervisor: &mut dyn Hypervisor,
        lab: &Lab<'_>,
    ) -> Result<(), LabError> {
        let Some(device) = &self.device else {
            return Err(LabError::Failed("it has no device".into()));
        };
        let mut disk = device.path().to_owned();
        if let Some(fs) = self.below {
            // After a kill its superblock lies in the middle of the target, where nobody takes it for one.
            let mut mount = Mount::prepare(&[]).map_err(|e| self.failed("mount", &e))?;
            mount
                .on(&disk, fs.name, "noatime")
                .map_err(|e| self.failed("mount", &e))?;
            disk = self.mount.insert(mount).dir().join("disk.img");
            fill(&disk, image).map_err(|e| self.failed("its image could not be written", &e))?;
        }
        let setup = &lab.options.setup;
        let Some(bench) = hypervisor.over(setup, &disk, Bytes(image))? else {
            return Err(LabError::Refused(
                "these machines take no file as a disk".into(),
            ));
        };
        self.bench = Some(bench);
        for load in loads(lab.options) {
            let prefix = format!("fs-{}", name(self.below));
            let spec = spec(lab.plan, lab.options, &prefix, load, image)?;
            self.points.push((load, Point::new(spec)));
        }
        Ok(())
    }

    /// Ends the machine, unmounts, and erases what says that there was a file system.
    fn leave(&mut self) -> Result<(), LabError> {
        if let Some(bench) = self.bench.take() {
            bench.close()?;
        }
        // A mount that stays, stays known: nothing is erased below it.
        if let Some(mount) = &mut self.mount {
            mount.leave()?;
        }
        self.mount = None;
        let Some(device) = self.device.take() else {
            return Ok(());
        };
        let Some(fs) = self.below else {
            return Ok(());
        };
        let erased = erase::erase(device.path());
        erased.map_err(|e| LabError::Failed(format!("{} stays on the target: {e}", fs.name)))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Err(e) = self.leave() {
            say!("fathom: {e}");
        }
    }
}

/// An image with all its blocks written, no two alike, and none in the page cache.
fn fill(path: &Path, size: u64) -> std::io::Result<()> {
    let mut file = create::file(path)?;
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let mut piece = vec![0u8; 1 << 20];
    for _ in 0..size >> 20 {
        for eight in piece.chunks_exact_mut(8) {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            eight.copy_from_slice(&word.to_le_bytes());
        }
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    // What stays in the page cache would only be read past it.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

impl Seen {
    /// Mean latency at depth 1, else IOPS.
    fn value(&self, load: Load) -> Option<Estimate> {
        let cell = &self.cells.iter().find(|c| c.0 == load)?.1;
        if load.depth == 1 {
            cell.mean_latency()
        } else {
            cell.iops()
        }
    }
}

fn section(all: &[Seen]) -> Option<Section> {
    let raw = all.first()?;
    let mut rows: Vec<(&Seen, Load)> = all
        .iter()
        .flat_map(|one| one.cells.iter().map(move |(load, _)| (one, *load)))
        .collect();
    rows.sort_by_key(|(_, load)| load.title());
    let ratio = |one: &Seen, load: Load| {
        let (v, r) = one.value(load).zip(raw.value(load)).filter(|_| raw.bare)?;
        Some(v.value / r.value)
    };
    // Nanoseconds become microseconds, and so I/Os thousands.
    let measure = |load: Load| match load.depth {
        1 => "mean latency, us",
        _ => "IOPS, thousands",
    };
    Some(Section {
        id: "vm-files".into(),
        title: "Files on file systems".into(),
        text: "A machine's disk is an image on a file system of its own, all of them parts of the target behind loop devices, measured in turns. 'raw' is such a part without a file system.".into(),
        tables: vec![table(
            "vm-files-table",
            "What the file system below a machine's disk costs",
            &rows,
            &[
                ("load", "", &|(_, load)| text(load.title())),
                ("on", "", &|(one, _)| text(&one.name)),
                ("measure", "", &|(_, load)| text(measure(*load))),
                ("in the machine", "", &|(one, load)| {
                    estimate(one.value(*load).map(|v| v.scale(1e-3)))
                }),
                ("of raw", "", &|(one, load)| number(ratio(one, *load))),
            ],
        )],
        ..Section::default()
    })
}

/// The file system that is farthest from the bare part, where the intervals say that it is.
fn finding(all: &[Seen]) -> Option<Finding> {
    let raw = all.first().filter(|r| r.bare)?;
    let mut worst: Option<(f64, String, Vec<usize>, &str)> = None;
    for one in all.iter().skip(1) {
        for (load, cell) in &one.cells {
            let Some((v, r)) = one.value(*load).zip(raw.value(*load)) else {
                continue;
            };
            let ends = |e: Estimate| e.low.zip(e.high);
            let apart = match (ends(v), ends(r)) {
                (Some(v), Some(r)) => v.0 > r.1 || v.1 < r.0,
                _ => false,
            };
            let slower = if load.depth == 1 {
                v.value / r.value
            } else {
                r.value / v.value
            };
            if apart && slower > worst.as_ref().map_or(1.0, |w| w.0) {
                worst = Some((slower, load.title(), cell.indices(), one.name.as_str()));
            }
        }
    }
    let (slower, load, jobs, name) = worst?;
    Some(Finding {
        id: format!("vm-files-{name}"),
        text: format!(
            "An image on {name} is {slower:.2} times slower than the bare part of the target, for {load}"
        ),
        advice: format!(
            "give machines with such a load a block device, or a file system that costs less than {name}"
        ),
        confidence: "moderate".into(),
        jobs,
        evidence: vec!["vm-files-table".into()],
        refuted_by:
            "The same with --repeats 5 and --fs on the same target, where the intervals overlap."
                .into(),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_target_comes_first_where_anything_is_asked_for() {
        let of = |files: &[&str]| {
            let options = VmOptions {
                files: files.iter().map(|f| (*f).to_owned()).collect(),
                ..VmOptions::default()
            };
            let names: Vec<&str> = chosen(&options).into_iter().map(name).collect();
            (names, jobs(&options))
        };
        assert_eq!(of(&[]), (vec![], 0));
        assert_eq!(of(&["xfs", "ext4"]), (vec!["raw", "ext4", "xfs"], 12));
    }

    #[test]
    fn an_image_has_no_holes_and_no_two_blocks_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        fill(&path, 2 << 20).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 2 << 20);
        let mut blocks: Vec<&[u8]> = bytes.chunks(4096).collect();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), 512);
        assert!(fill(&path, 1 << 20).is_err(), "nothing is overwritten");
    }
}
