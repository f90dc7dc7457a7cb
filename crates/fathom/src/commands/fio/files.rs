//! Files and devices of a fio script: opened under the safety rules, laid out and filled before anything runs.

use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use fathom_fio::{Invocation, Place, Task};
use fathom_host::Refusal;
use fathom_io::driver::{Destination, PlannedJob, Setting, run_group};
use fathom_io::job::{BlockSizes, Engine, Rw};
use fathom_io::thread_terms;
use fathom_io::{Control, JobSpec, Share, Target, Wanted};
use fathom_telemetry::Bytes;

use super::permits::{Lent, Permits};
use crate::exit::{Failure, failed, refused};

/// An open target and how it came to be.
pub(super) struct OpenFile {
    pub(super) place: Place,
    pub(super) target: Target,
    /// Made by this run.
    pub(super) fresh: bool,
    /// Somebody else's, and on the list of what may be written.
    _lent: Option<Lent>,
}

impl OpenFile {
    /// The descriptor for direct or for buffered I/O.
    pub(super) fn descriptor(&self, want_direct: bool) -> Option<&Arc<std::fs::File>> {
        match self.target.destination() {
            Destination::File {
                buffered, direct, ..
            } => (if want_direct { direct } else { buffered }).as_ref(),
            Destination::Null => None,
        }
    }

    /// The descriptor for buffered I/O.
    pub(super) fn buffered(&self) -> Option<&Arc<std::fs::File>> {
        match self.target.destination() {
            Destination::File {
                buffered, direct, ..
            } => buffered.as_ref().or(direct.as_ref()),
            Destination::Null => None,
        }
    }

    /// Reads it once, so that the page cache holds it.
    pub(super) fn pre_read(&self) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        let Some(f) = self.buffered() else {
            return Ok(());
        };
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            match f.read_at(&mut buffer, at)? {
                0 => return Ok(()),
                n => at += n as u64,
            }
        }
    }

    /// Says how long its data lives.
    pub(super) fn hint(&self, hint: u64) -> std::io::Result<()> {
        match self.buffered().filter(|_| hint > 0) {
            Some(f) => thread_terms::set_write_hint(f, hint),
            None => Ok(()),
        }
    }

    /// Drops it from the page cache; what cannot be dropped stays.
    pub(super) fn invalidate(&self) {
        if let Some(f) = self.buffered() {
            let _ = rustix::fs::fadvise(f.as_fd(), 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

/// Opens what the tasks need. Where one is refused, those made before it are removed again.
pub(super) fn open(
    it: &Invocation,
    tasks: &[Task],
    control: &Control,
) -> Result<Vec<OpenFile>, Failure> {
    let mut files: Vec<OpenFile> = Vec::new();
    // The word names one of the targets; of several that may be files beside a device.
    let paths = || {
        tasks.iter().flat_map(Task::places).filter_map(|p| match p {
            Place::Path(path) => Some(path.as_path()),
            Place::Null | Place::Sim(_) => None,
        })
    };
    if let (Some(_), Some(path), false) = (&it.destroy, paths().next(), paths().any(is_device)) {
        let (path, found) = (path.to_path_buf(), "no block device".to_owned());
        let none = Refusal::NothingToDestroy { path, found };
        return Err(refused(none));
    }
    for place in tasks.iter().flat_map(Task::places) {
        if files.iter().any(|f| f.place == *place) {
            continue;
        }
        let users: Vec<&Task> = tasks
            .iter()
            .filter(|t| t.places().any(|p| p == place))
            .collect();
        match open_one(it, place, &users, control) {
            Ok(f) => files.push(f),
            Err(e) => {
                close(files, &[], true);
                return Err(e);
            }
        }
    }
    Ok(files)
}

/// Closes them. Files of `unlink`, or all with `all_fresh`, are removed where this run made them.
pub(super) fn close(files: Vec<OpenFile>, unlink: &[Place], all_fresh: bool) {
    for f in files {
        let doomed = f
            .target
            .path()
            .filter(|_| f.fresh && (all_fresh || unlink.contains(&f.place)))
            .map(Path::to_path_buf);
        let _ = f.target.close();
        if let Some(path) = doomed {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_device(path: &Path) -> bool {
    fathom_host::block_device_of(path).is_some()
        || std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

fn open_one(
    it: &Invocation,
    place: &Place,
    users: &[&Task],
    control: &Control,
) -> Result<OpenFile, Failure> {
    refuse_emptied(place, users)?;
    let asked = users
        .iter()
        .filter_map(|t| t.wanted_size(place, it.size_cap));
    let asked = asked.max();
    let Place::Path(path) = place else {
        return nothing(place, asked);
    };
    let any = |is: fn(&Task) -> bool| users.iter().any(|t| is(t));
    let size = asked.or_else(|| {
        let fills = any(|t| t.shape.layout.all_room) && !path.exists();
        fills.then(|| all_room(path, it.size_cap)).flatten()
    });
    let mut wanted = wanted(it, path, users, size);
    // A colon in a relative name is no scheme.
    let name = match path.is_absolute() {
        true => path.clone(),
        false => Path::new(".").join(path),
    };
    let meta = std::fs::metadata(&name).ok();
    match &meta {
        Some(meta) if meta.is_dir() => return Err(directory(path)),
        Some(_) => {}
        None => may_be_made(it, path, &name, users, size)?,
    }
    let have = meta.as_ref().filter(|m| m.is_file()).map(|m| m.len());
    let grows = have.zip(size).filter(|(have, size)| have < size);
    let lent = permitted(&name, &mut wanted, grows.is_some());
    let mut fill_from = None;
    if let Some((have, size)) = grows {
        if it.read_only {
            return Err(read_only(path, "is smaller than the job needs"));
        }
        extend(&name, have, size)?;
        fill_from = Some(have - have % 4096);
        wanted.modifies = true;
    }
    let text = name.to_string_lossy();
    let mut target = match any(|t| t.shape.layout.sparse) {
        true => Target::open_sparse(&text, &wanted)?,
        false => Target::open(&text, &wanted)?,
    };
    let fresh = target.needs_fill();
    if fresh {
        fill_from = Some(0);
    }
    let laid_out = is_laid_out(users, meta.is_some());
    if laid_out && fill_from.is_none() && !it.read_only && has_holes(&target, &name) {
        if !wanted.modifies {
            target.close()?;
            wanted.modifies = true;
            target = Target::open(&text, &wanted)?;
        }
        fill_from = Some(0);
    }
    let file = OpenFile {
        place: place.clone(),
        target,
        fresh,
        _lent: lent,
    };
    let durable = any(|t| t.shape.layout.durable);
    if let Some(from) = fill_from.filter(|_| laid_out)
        && let Err(e) = fill(&file, from, durable, control)
    {
        close(vec![file], &[], true);
        return Err(e);
    }
    Ok(file)
}

/// A target that no byte reaches.
fn nothing(place: &Place, size: Option<u64>) -> Result<OpenFile, Failure> {
    let wanted = Wanted {
        size: size.map(Bytes),
        ..Wanted::default()
    };
    Ok(OpenFile {
        place: place.clone(),
        target: Target::open("null:", &wanted)?,
        fresh: false,
        _lent: None,
    })
}

fn directory(path: &Path) -> Failure {
    refused(anyhow!(
        "{} is a directory: name it with directory=, and the file with filename=",
        path.display()
    ))
}

/// Asks the list of what may be written for a target that is not fathom's.
fn permitted(name: &Path, wanted: &mut Wanted, grows: bool) -> Option<Lent> {
    let permits = Permits::of_environment();
    if wanted.modifies && wanted.destroy.is_none() {
        wanted.destroy = permits.device(name);
    }
    match wanted.modifies || grows {
        true => permits.file(name),
        false => None,
    }
}

/// Whether its data is written before the jobs: the first of them reads it. What is to be verified stays as it is.
fn is_laid_out(users: &[&Task], exists: bool) -> bool {
    let first_reads = users.first().is_some_and(|t| {
        let l = t.shape.layout;
        (t.shape.spec.rw.reads() || l.overwrite) && !l.bare
    });
    first_reads && !(exists && users.iter().any(|t| t.verifies()))
}

/// Whether a file that may be overwritten has blocks whose reads never reach the device: a run that only reserved space
/// leaves them.
fn has_holes(target: &Target, name: &Path) -> bool {
    let unwritten = target.unwritten(0, target.limits().size);
    unwritten.is_some_and(|n| n > 0) && fathom_host::may_overwrite(name)
}

/// What all who use a file want of it.
fn wanted(it: &Invocation, path: &Path, users: &[&Task], size: Option<u64>) -> Wanted {
    let specs = || users.iter().map(|t| &t.shape.spec);
    Wanted {
        modifies: specs().any(|s| s.rw.modifies()),
        direct: specs().any(|s| s.direct),
        buffered: specs().any(|s| !s.direct),
        polled: specs().any(|s| s.iopoll),
        size: size.map(Bytes),
        destroy: it.destroy.clone().filter(|_| is_device(path)),
        commands: Share::of(specs(), |s| s.engine == Engine::UringCmd),
        create: true,
        // Led to the write pointers.
        in_order: users.iter().all(|t| {
            let spec = &t.shape.spec;
            let whole = !spec.rw.trims() || spec.command.manages_zones();
            let writes = t.wants_zones() && spec.direct && whole;
            !spec.rw.modifies() || writes
        }),
        ..Wanted::default()
    }
}

/// Refuses a file that is not there and may not be made, and makes directories that belong to what a job makes.
fn may_be_made(
    it: &Invocation,
    path: &Path,
    name: &Path,
    users: &[&Task],
    size: Option<u64>,
) -> Result<(), Failure> {
    if users.iter().any(|t| !t.shape.may_create) {
        return Err(refused(anyhow!(
            "{} does not exist, and allow_file_create=0 forbids to make it",
            path.display()
        )));
    }
    if size.is_none() {
        return Err(refused(anyhow!(
            "{} does not exist: give size= to make it, or check the path",
            path.display()
        )));
    }
    if it.read_only {
        return Err(read_only(path, "does not exist"));
    }
    let Some(dir) = name.parent().filter(|d| !d.exists()) else {
        return Ok(());
    };
    // A job's name may have directories, which belong to what the job makes.
    let base = users.iter().find_map(|t| t.shape.base.as_ref());
    if base.is_some_and(|b| b.is_dir()) {
        fathom_files::create::dirs(dir)
            .with_context(|| format!("the directory {} could not be made", dir.display()))
            .map_err(refused)?;
    }
    match dir.exists() {
        true => Ok(()),
        false => Err(refused(anyhow!(
            "the directory {} does not exist: make it, or choose another",
            dir.display()
        ))),
    }
}

/// Refuses a file that one job empties at each pass while another uses it: in fio each goes on with a file of its own,
/// here the other's data would be gone.
fn refuse_emptied(place: &Place, users: &[&Task]) -> Result<(), Failure> {
    for one in users.iter().filter(|t| t.empties()) {
        let beside = |t: &&&Task| t.number != one.number && t.wave == one.wave;
        if let (Place::Path(path), Some(other)) = (place, users.iter().find(beside)) {
            return Err(refused(anyhow!(
                "job '{}': unlink_each_loop empties {}, which job '{}' uses at the same time: give each a file of its own, or put a stonewall between them",
                one.name,
                path.display(),
                other.name
            )));
        }
    }
    Ok(())
}

/// With `--readonly` nothing is laid out.
fn read_only(path: &Path, what: &str) -> Failure {
    failed(anyhow!(
        "{} {what}, and --readonly forbids to lay it out: leave --readonly out, or make the file first",
        path.display()
    ))
}

/// What the file system of `path` has room for, as far as a scratch file may fill it; at most `cap`.
fn all_room(path: &Path, cap: Option<u64>) -> Option<u64> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty());
    let room = fathom_host::space(dir.unwrap_or(Path::new(".")))
        .ok()?
        .fits_bytes;
    let size = cap.map_or(room, |c| c.min(room));
    Some(size - size % (1 << 20)).filter(|s| *s > 0)
}

/// Makes a file of fathom's larger.
fn extend(path: &Path, have: u64, size: u64) -> Result<(), Failure> {
    let mut permit = fathom_host::open_file_for_write(path).map_err(|e| {
        refused(anyhow!(e).context(format!(
            "{} has {} and the job needs {}",
            path.display(),
            Bytes(have),
            Bytes(size)
        )))
    })?;
    permit.sized(size);
    let grow = || -> std::io::Result<()> {
        use rustix::fs::FallocateFlags;
        match rustix::fs::fallocate(permit.file.as_fd(), FallocateFlags::empty(), 0, size) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => permit.file.set_len(size),
            Err(e) => Err(e.into()),
        }
    };
    grow()
        .with_context(|| {
            format!(
                "{} could not be made {}; choose a smaller size",
                path.display(),
                Bytes(size)
            )
        })
        .map_err(refused)
}

/// Writes incompressible data from `from` to the end, and makes it durable where that is asked for.
fn fill(file: &OpenFile, from: u64, durable: bool, control: &Control) -> Result<(), Failure> {
    let limits = file.target.limits();
    if from >= limits.size {
        return Ok(());
    }
    let align = u64::from(limits.direct_align.max(1));
    let can_direct = matches!(
        file.target.destination(),
        Destination::File {
            direct: Some(_),
            ..
        }
    );
    let spec = JobSpec {
        name: "layout".into(),
        rw: Rw::Write,
        bs: BlockSizes::one(Bytes::mib(1).0.min(limits.size - from)),
        align: Some(Bytes(align)),
        qd: 8,
        engine: Engine::Uring,
        direct: can_direct && limits.size.is_multiple_of(align) && from.is_multiple_of(align),
        offset: Bytes(from),
        ..JobSpec::default()
    };
    let planned = [PlannedJob::new(spec.validate(&limits)?)];
    let setting = Setting {
        destination: file.target.destination(),
        control,
        counters: None,
        log: None,
    };
    let jobs = run_group(&planned, &setting, &mut ()).map_err(failed)?;
    if let Some(e) = jobs.iter().flat_map(|j| &j.errors).next() {
        return Err(failed(anyhow!(
            "the file could not be laid out: {} at byte {}; choose a smaller size or another place",
            e.message,
            e.first_offset
        )));
    }
    if let Some(f) = file.buffered().filter(|_| durable) {
        f.sync_data()
            .context("the laid out file could not be made durable")
            .map_err(failed)?;
    }
    Ok(())
}

/// Paths of all of them, for their devices.
pub(super) fn paths(files: &[OpenFile]) -> Vec<PathBuf> {
    files
        .iter()
        .filter_map(|f| f.target.path().map(Path::to_path_buf))
        .collect()
}
