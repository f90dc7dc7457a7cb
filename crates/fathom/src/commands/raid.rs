//! `fathom raid`: arrays against what arithmetic promises of them.

use std::path::Path;

use fathom_bench::profile::Profile;
use fathom_bench::{Notebook, NotebookError, Plan, RunMeta};
use fathom_host::{Scratch, space};
use fathom_io::job::Limits;
use fathom_io::{Control, TargetError};
use fathom_labs::LabError;
use fathom_labs::raid::guest::{self as in_guest, Part};
use fathom_labs::raid::{self, Backend, KernelArrays, RaidOptions, SimArrays};
use fathom_sim::SimTarget;
use fathom_system::array::{Local, Members, lvm, members};
use fathom_system::guest::Supply;
use fathom_system::leftovers;
use fathom_telemetry::Bytes;
use fathom_telemetry::say;
use fathom_telemetry::schema::{Cell, Run, Table};

use super::announce::Foreseen;
use super::finish::{command_line, finish, meta, present};
use super::guests::supply;
use super::measure::shortened;
use super::open::{capsule_of, profile};
use super::raid_lab;
use super::shopping::columns;
use crate::cli::RaidArgs;
use crate::exit::{Failure, Outcome, failed, refused};
use crate::progress::SurveyLine;
use crate::signals;

/// Bytes of a file that is a member, where nobody said.
const FILE: Bytes = Bytes::mib(256);

pub(crate) fn raid(args: &RaidArgs) -> Outcome {
    let options = RaidOptions {
        seed: args.seed,
        ..args.options.clone()
    };
    let profile = shortened(profile(&args.profile)?, args.time, args.repeats);
    if raid::shapes(&options).is_empty() {
        return Err(refused(anyhow::anyhow!(
            "--levels and --members: none of these levels can have so many members; RAID 5 needs 3, 6 and 10 need 4 (10 an even number)"
        )));
    }
    let what = What::of(args)?;
    let plan = plan(&what, args, profile);
    let model = match &what {
        What::Model(name) => Some(name.as_str()),
        _ => None,
    };
    let cost = raid::run_cost(&plan, &options, model);
    let lab = args.lab.as_deref().map(raid_lab::Words::of).transpose()?;
    mkfs_fits(args, &args.backend)?;
    let named = format!("{} profile", profile.name);
    let said = Foreseen::of(
        &named,
        &cost,
        args.targets.first().map_or("", String::as_str),
    );
    if args.dry_run {
        return said.dry_run(args.out.json);
    }
    let said = said.line();
    let control = signals::control().map_err(refused)?;
    let most = raid::shapes(&options)
        .iter()
        .map(|s| s.members)
        .max()
        .unwrap_or(2);
    match (made(&what, args, most, control.clone())?, &lab) {
        (Made::Here(backend), Some(words)) => {
            raid_lab::run(backend, words, args, &options, &control)
        }
        (Made::Here(backend), None) => {
            say::text(&said);
            here(backend, args, &options, &plan, cost.jobs())
        }
        (Made::Guest(supply, parts), _) => {
            say::text(&said);
            in_a_guest(*supply, &parts, args, lab.as_ref())
        }
    }
}

/// What arrays are made of.
enum What {
    Model(String),
    Files(String),
    Devices(Vec<String>),
}

impl What {
    fn of(args: &RaidArgs) -> Result<Self, Failure> {
        let [first, more @ ..] = &args.targets[..] else {
            return Err(refused(anyhow::anyhow!(
                "expected sim:MODEL, a directory or block devices"
            )));
        };
        let alone = |what: &str| {
            if more.is_empty() {
                return Ok(());
            }
            Err(refused(anyhow::anyhow!(
                "{first} is {what}: expected it alone, or block devices only"
            )))
        };
        if SimTarget::is_simulated(first) {
            alone("a model")?;
            if args.member_limit.is_some() || args.backend != "auto" || args.write_journal.is_some()
            {
                return Err(refused(anyhow::anyhow!(
                    "--backend, --member-limit and --write-journal are for real members, {first} is a model"
                )));
            }
            return Ok(Self::Model(first.clone()));
        }
        if Path::new(first).is_dir() {
            alone("a directory")?;
            return Ok(Self::Files(first.clone()));
        }
        Ok(Self::Devices(args.targets.clone()))
    }
}

fn plan(what: &What, args: &RaidArgs, profile: Profile) -> Plan {
    let size = match (what, args.size) {
        (_, Some(size)) => size.0,
        (What::Files(_), None) => FILE.0,
        (What::Model(name), None) => SimTarget::parse(name).map_or(0, |t| t.size()),
        (What::Devices(paths), None) => {
            let of = |p: &String| match fathom_host::probe_target(Path::new(p)) {
                Ok(fathom_host::TargetKind::BlockDevice { size_bytes, .. }) => size_bytes,
                _ => 0,
            };
            paths.iter().map(of).min().unwrap_or(0)
        }
    };
    Plan {
        limits: Limits {
            size,
            direct_align: 512,
            hosts: 1,
        },
        profile,
        seed: args.seed,
        threads: 4,
        direct: true,
        wears: true,
        commands: false,
    }
}

/// Who makes arrays.
enum Made {
    Here(Box<dyn Backend>),
    Guest(Box<Supply>, GuestParts),
}

/// Disks of a guest, and what keeps them.
struct GuestParts {
    parts: Vec<Part>,
    /// Of the host; removed when this goes.
    _files: Vec<Scratch>,
}

fn made(what: &What, args: &RaidArgs, count: u32, control: Control) -> Result<Made, Failure> {
    if let What::Model(name) = what {
        if args.lab.is_some() {
            return Err(refused(anyhow::anyhow!(
                "--lab needs arrays that are there, {name} is a model: name a directory or block devices"
            )));
        }
        return Ok(Made::Here(Box::new(SimArrays::new(name, control)?)));
    }
    let backend = match args.backend.as_str() {
        "auto" if args.member_limit.is_some() => "guest",
        "auto" if args.lab.is_some() && args.mkfs.is_none() => "btrfs",
        "auto" => choose(args)?,
        named => named,
    };
    mkfs_fits(args, backend)?;
    journal_fits(what, args, backend)?;
    if backend.starts_with("guest") {
        let supply = supply(&args.guest)?;
        if backend == "guest-lvm" {
            lvm::program()?;
        }
        return Ok(Made::Guest(Box::new(supply), parts(what, args, count)?));
    }
    if args.member_limit.is_some() {
        return Err(refused(anyhow::anyhow!(
            "--member-limit: only members of guests can be held to a speed; use --backend guest"
        )));
    }
    let local = local(backend)?;
    local.available()?;
    let journal = args.write_journal.as_deref();
    let members = match what {
        What::Devices(paths) => {
            let members = Members::devices(paths, &args.destroy, args.size)?;
            match journal {
                Some(device) => members.with_journal(device, &args.destroy)?,
                None => members,
            }
        }
        What::Files(dir) => {
            let count = count + u32::from(journal.is_some());
            let files = Members::files(Path::new(dir), count, args.size.unwrap_or(FILE))?;
            match journal {
                Some(_) => files.last_as_journal(),
                None => files,
            }
        }
        What::Model(_) => return Err(refused(anyhow::anyhow!("a model has no members"))),
    };
    // Of killed runs: members may be theirs.
    leftovers::clear();
    let maker = local.over(members, control.clone())?;
    Ok(Made::Here(Box::new(KernelArrays::new(maker, control))))
}

fn local(backend: &str) -> Result<&'static Local, Failure> {
    Local::named(backend).ok_or_else(|| {
        refused(anyhow::anyhow!(
            "--backend {backend}: this machine has no arrays of that name"
        ))
    })
}

/// What is a file system already gets none.
fn mkfs_fits(args: &RaidArgs, backend: &str) -> Result<(), Failure> {
    match args.mkfs {
        Some(fs) if ["btrfs", "zfs"].contains(&backend) => Err(refused(anyhow::anyhow!(
            "--mkfs {}: an array of {backend} is a file system already: leave it out, or use --backend md or guest",
            fs.name
        ))),
        _ => Ok(()),
    }
}

/// A journal is a file beside files, a device beside devices, and nothing that every backend has.
fn journal_fits(what: &What, args: &RaidArgs, backend: &str) -> Result<(), Failure> {
    let Some(device) = args.write_journal.as_deref() else {
        return Ok(());
    };
    if !["md", "dm", "guest", "guest-dm"].contains(&backend) {
        return Err(refused(anyhow::anyhow!(
            "--write-journal: {backend} has none; expected --backend md, dm, guest or guest-dm"
        )));
    }
    match what {
        What::Devices(_) if device.is_empty() => Err(refused(anyhow::anyhow!(
            "--write-journal: expected a device besides the members, --write-journal=/dev/sdz, and its serial after --destroy"
        ))),
        What::Files(dir) if !device.is_empty() => Err(refused(anyhow::anyhow!(
            "--write-journal={device}: members are files in {dir}, and so is their journal: leave the device out"
        ))),
        _ => Ok(()),
    }
}

/// The first backend that there is; the error names what every one lacks.
fn choose(args: &RaidArgs) -> Result<&'static str, Failure> {
    let mut lacks = Vec::new();
    for backend in ["md", "guest", "btrfs"] {
        let there = if backend == "guest" {
            Supply::find(args.guest.kernel.as_deref(), None).map(|_| ())
        } else {
            local(backend)?.available()
        };
        match there {
            Ok(()) => return Ok(backend),
            Err(e) => lacks.push(format!("{backend}: {e}")),
        }
    }
    Err(refused(anyhow::anyhow!(
        "no backend can make arrays here: {}",
        lacks.join("; ")
    )))
}

fn parts(what: &What, args: &RaidArgs, count: u32) -> Result<GuestParts, Failure> {
    let size = args.size.unwrap_or(FILE);
    let limit = args.member_limit;
    let part = |path: &Path, size: Bytes| Part {
        path: path.to_owned(),
        offset: 0,
        size,
        limit,
    };
    match what {
        What::Files(dir) => {
            members::large_enough(size.0, members::MEMBER_MIN, "")?;
            // The journal is the last one.
            let count = count + u32::from(args.write_journal.is_some());
            let all = u64::from(count) * size.0;
            if space(Path::new(dir)).is_ok_and(|s| s.fits_bytes < all) {
                return Err(refused(anyhow::anyhow!(
                    "{dir}: {count} members of {size} do not fit: use a smaller --size, fewer --members or another place"
                )));
            }
            let mut files = Vec::new();
            for _ in 0..count {
                files.push(Scratch::create(Path::new(dir), size.0).map_err(TargetError::from)?);
            }
            Ok(GuestParts {
                parts: files.iter().map(|f| part(f.path(), size)).collect(),
                _files: files,
            })
        }
        What::Devices(paths) => {
            let members = Members::devices(paths, &args.destroy, args.size)?;
            let members = match &args.write_journal {
                Some(device) => members.with_journal(device, &args.destroy)?,
                None => members,
            };
            let used = Bytes(members.size());
            let journal = members.journal();
            Ok(GuestParts {
                parts: members
                    .all()
                    .iter()
                    .map(|m| part(m.path(), used))
                    .chain(journal.map(|j| part(j.path(), Bytes(j.bytes()))))
                    .collect(),
                _files: Vec::new(),
            })
        }
        What::Model(_) => Err(refused(anyhow::anyhow!("a model has no members"))),
    }
}

fn here(
    mut backend: Box<dyn Backend>,
    args: &RaidArgs,
    options: &RaidOptions,
    plan: &Plan,
    jobs: u32,
) -> Outcome {
    let member = backend.member()?;
    let mut about = member.describe();
    let simulated = member.simulated();
    member.close()?;
    about.name = args.targets.join(" ");
    let meta = RunMeta {
        profile: Some(plan.profile.name.into()),
        ..meta("raid", args.seed, &args.out, capsule_of(&about))
    };
    let mut book = Notebook::create(&args.out.out, meta, about, simulated, 0)?;
    let mut line = SurveyLine::new(jobs, Bytes(0));
    let result = raid::run(&mut *backend, plan, options, &mut book, &mut line);
    line.clear();
    drop(backend);
    finish(book, result, None, &args.out, |run, screen, places| {
        let text = fathom_report::terminal::summary(run, screen, places);
        format!("{text}\n{}", table(run))
    })
}

/// The same lab in a guest, whose run becomes this one.
fn in_a_guest(
    mut supply: Supply,
    disks: &GuestParts,
    args: &RaidArgs,
    lab: Option<&raid_lab::Words>,
) -> Outcome {
    let inside = inside(args);
    let needs = lab.map(|l| l.needs(args.mkfs)).transpose()?;
    let mut guest = in_guest::boot(&mut supply, &disks.parts, inside, needs.as_ref())?;
    say!(
        "fathom: a guest with {} disks booted in {}; the lab runs in it",
        disks.parts.len(),
        guest.booted_in
    );
    let mut arguments = vec!["raid".to_owned()];
    let journal = args.write_journal.is_some();
    arguments.extend(in_guest::arguments(0..disks.parts.len(), journal));
    arguments.extend(forwarded(args, lab));
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let made_out = !args.out.out.exists();
    let ran = in_guest::runs(&mut guest, &words, &args.out.out);
    if ran.is_err() && made_out {
        // Nothing was brought back: it is empty, or not there.
        let _ = std::fs::remove_dir(&args.out.out);
    }
    let ((dir, mut run), others) = ran?;
    let name = args.targets.join(" ");
    in_guest::adopt(&mut run, &supply, &guest, &name, command_line());
    dir.save(&run).map_err(failed)?;
    for (dir, mut other) in others {
        let typed = other.command_line.clone();
        in_guest::adopt(&mut other, &supply, &guest, &name, typed);
        dir.save(&other).map_err(failed)?;
    }
    guest.off();
    present(&run, &dir, &args.out, |run, screen, places| {
        let text = fathom_report::terminal::summary(run, screen, places);
        format!("{text}\n{}", table(run))
    })
}

/// Who makes the arrays in the guest.
fn inside(args: &RaidArgs) -> &'static str {
    match args.backend.as_str() {
        "guest-dm" => "dm",
        "guest-lvm" => "lvm",
        _ => "md",
    }
}

/// What the guest's fathom is told.
fn forwarded(args: &RaidArgs, lab: Option<&raid_lab::Words>) -> Vec<String> {
    let o = &args.options;
    let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(",");
    let mut all: Vec<String> = [
        ("--backend", inside(args).to_owned()),
        (
            "--levels",
            list(&mut o.levels.iter().map(|l| l.number().to_string())),
        ),
        ("--members", list(&mut o.members.iter().map(u32::to_string))),
        (
            "--chunk",
            list(&mut o.chunks.iter().map(|c| c.0.to_string())),
        ),
        ("--bs", o.block.0.to_string()),
        ("--small", o.small.map_or(0, |s| s.0).to_string()),
        ("--threads", o.threads.to_string()),
        (
            "--rw",
            list(&mut o.patterns.iter().map(|rw| rw.word().to_owned())),
        ),
        ("--profile", args.profile.clone()),
        ("--seed", args.seed.to_string()),
        ("--blocks", o.blocks.to_string()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect();
    let mut put = |name: &str, value: Option<String>| {
        all.extend(value.into_iter().flat_map(|v| [name.to_owned(), v]));
    };
    put("--lab", lab.map(|l| l.inside().typed()));
    put("--mkfs", args.mkfs.map(|fs| fs.name.to_owned()));
    for direct in &o.direct {
        let way = if *direct { "direct" } else { "buffered" };
        put("--only", Some(way.to_owned()));
    }
    put("--time", args.time.map(|t| format!("{}ns", t.0)));
    put("--repeats", args.repeats.map(|r| r.to_string()));
    let sets = o.sets.iter().map(|s| ("--set", s));
    for (name, (setting, value)) in sets.chain(o.tries.iter().map(|t| ("--try", t))) {
        put(name, Some(format!("{setting}={value}")));
    }
    if !o.degraded {
        all.push("--no-degraded".into());
    }
    if !o.rebuild {
        all.push("--no-rebuild".into());
    }
    all
}

impl From<fathom_system::SystemError> for Failure {
    fn from(e: fathom_system::SystemError) -> Self {
        LabError::from(e).into()
    }
}

impl From<LabError> for Failure {
    fn from(e: LabError) -> Self {
        match e {
            LabError::Notebook(_) => NotebookError::from(e).into(),
            e if e.is_refusal() => refused(e),
            e => failed(e),
        }
    }
}

/// Losses by level, as the paper's abstract sums them up.
fn table(run: &Run) -> String {
    let find = |t: &&Table| t.id == "raid-losses";
    let Some(t) = run.sections.iter().flat_map(|s| &s.tables).find(find) else {
        return String::new();
    };
    let mut rows = vec![
        ["", "lost against paper", "of the best", "where"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for r in &t.rows {
        let word = |i: usize| match r.get(i) {
            Some(Cell::Text(t)) => t.clone(),
            Some(Cell::Number(n)) => format!("{n:.0} %"),
            _ => "-".into(),
        };
        rows.push(vec![
            format!("{} {}", word(0), word(1)),
            word(2),
            word(6),
            word(3),
        ]);
    }
    format!("Largest loss by level\n{}", columns(&rows))
}
