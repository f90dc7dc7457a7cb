//! Kills at random moments, together with whoever watches: `fathom clean` finds everything of the run, touches nothing of
//! others, and says what it did.
//!
//! `FATHOM_KILLS=200` kills so often (`bench/kills`); `FATHOM_KILLS_SEED` draws other moments.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use fathom_stack::tracefs::TraceFs;
use fathom_stats::rng::SplitMix64;

use crate::common::machine::{Disk, Loop, Mounted, find, mkfs_ext4, possible, turn};
use crate::common::{Place, alone, send};

/// Killed at the same time: two small processors keep up with that.
const TOGETHER: usize = 6;
/// In `./test`.
const KILLS: usize = 24;

/// A command that changes the system.
struct Case {
    name: &'static str,
    args: &'static str,
    /// The kill comes within so many ms.
    within: usize,
    /// Programs without which it does nothing that could be left.
    needs: &'static [&'static str],
    /// Whether it works on a file system of its own, on a loop device, whose settings it changes.
    ground: bool,
    /// What it keeps on purpose.
    keeps: &'static [&'static str],
}

const fn case(name: &'static str, args: &'static str, within: usize) -> Case {
    Case {
        name,
        args,
        within,
        needs: &[],
        ground: false,
        keeps: &[],
    }
}

const fn with(needs: &'static [&'static str], case: Case) -> Case {
    Case { needs, ..case }
}

const fn on_ground(case: Case) -> Case {
    Case {
        ground: true,
        needs: &["mkfs.ext4", "mount"],
        ..case
    }
}

const CASES: [Case; 20] = [
    case(
        "app swap",
        "app swap . --bytes 32m --share 50 --time 20s --repeats 1",
        2500,
    ),
    with(
        &["mkfs.btrfs"],
        case(
            "raid btrfs",
            "raid . --backend btrfs --levels 1 --members 2 --size 128m --rw randread --only direct --small 0 --time 60s",
            3000,
        ),
    ),
    on_ground(case(
        "tune",
        "tune mnt --only scheduler --pass 1500ms --size 16m",
        2500,
    )),
    case("stack", "stack . --size 32m --time 30s", 2000),
    with(
        &["mkfs.ext4"],
        case(
            "paths",
            "paths . --make ext4 --size 96m --time 10s --memory 50",
            3000,
        ),
    ),
    case("survey", "survey . --size 64m", 2500),
    with(
        &["mariadbd"],
        case(
            "db mysql",
            "db mysql . --time 20s --repeats 1 --rows 2000 --pool 21m --no-embedded",
            6000,
        ),
    ),
    on_ground(case(
        "stack --what-if",
        "stack mnt --what-if --size 16m --time 1s --direct --qd 1 --rw randread --engine preadv",
        6000,
    )),
    case("watch", "watch --time 60s", 1500),
    with(
        &["initdb"],
        case(
            "db tpcc postgresql",
            "db tpcc . --database postgresql --terminals 4 --time 20s --repeats 1 --no-embedded",
            6000,
        ),
    ),
    case("app copy", "app copy . --bytes 64m --repeats 3", 2500),
    case(
        "run",
        "run . --rw randrw --size 64m --time 60s --record",
        1500,
    ),
    case("kv", "kv . --size 128m --keys 20000 --time 20s", 3000),
    case("replay", "replay ../trace.spc . --size 64m", 1500),
    Case {
        keeps: &["fio.data"],
        ..case(
            "fio",
            "fio --name=k --rw=randwrite --size=32m --filename=fio.data --time_based --runtime=60 --output=../fio.out",
            1500,
        )
    },
    with(
        &["zpool", "zfs-fuse"],
        case(
            "raid zfs",
            "raid . --backend zfs --levels 1 --members 2 --size 128m --rw randread --only direct --small 0 --time 60s",
            4000,
        ),
    ),
    case("cache", "cache . --size 256m --data 16m --time 20s", 2500),
    case(
        "db tpcc sqlite",
        "db tpcc . --database sqlite --terminals 4 --time 20s --repeats 1 --no-embedded",
        3000,
    ),
    case("mix", "mix . --size 64m", 2000),
    case("burst", "burst . --size 64m", 2000),
];

/// A loop device with a file system, whose queue has other settings than the run chooses.
struct Ground {
    queue: PathBuf,
    before: String,
    // Dropped in this order.
    _mounted: Mounted,
    _device: Loop,
    _disk: Disk,
}

impl Ground {
    fn new(at: PathBuf) -> Option<Self> {
        let disk = Disk::new(160);
        let device = Loop::of(&disk.image);
        mkfs_ext4(device.str());
        let mounted = Mounted::new(device.str(), at, &[]).ok()?;
        let queue = Path::new("/sys/block").join(device.name()).join("queue");
        let _ = fs::write(queue.join("scheduler"), "mq-deadline");
        let mut ground = Self {
            queue,
            before: String::new(),
            _mounted: mounted,
            _device: device,
            _disk: disk,
        };
        ground.before = ground.settings();
        Some(ground)
    }

    fn settings(&self) -> String {
        let names = ["scheduler", "nr_requests", "read_ahead_kb", "wbt_lat_usec"];
        let all = names.map(|n| fs::read_to_string(self.queue.join(n)).unwrap_or_default());
        all.join(" ")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::write(self.queue.join("scheduler"), "none");
    }
}

/// What others have in the same directory, under names like fathom's.
fn plant(dir: &Path) {
    let lab = dir.join(".fathom-lab-4194999-deadbeef");
    fs::create_dir(&lab).unwrap();
    fs::write(
        lab.join("made-by-fathom"),
        "fathom 0.1.0\ndirectory 1 2 3\nprocess 4194999\nboot x\nhost y\n",
    )
    .unwrap();
    fs::write(lab.join("theirs"), "kept").unwrap();
    fs::write(dir.join(".fathom-scratch-4194999-deadbeef"), "kept").unwrap();
    fs::write(dir.join(".mine.partial-4194999-0"), "kept").unwrap();
    std::os::unix::fs::symlink(&lab, dir.join(".fathom-lab-4194998-deadbeef")).unwrap();
    for name in [
        ".fathom-scratch-4194998-deadbeef",
        ".pipe.partial-4194999-0",
    ] {
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join(name), mode).unwrap();
    }
}

/// Names and bytes of everything below a directory, but not in other mounts.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        let path = entry.path();
        if kind.is_dir() && entry.file_name() != "mnt" {
            all.extend(contents(&path));
        }
        let bytes = if kind.is_file() {
            fs::read(&path).unwrap()
        } else if kind.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().into()
        } else {
            Vec::new()
        };
        all.insert(path, bytes);
    }
    all
}

/// Processes with parent and name.
fn processes() -> BTreeMap<u32, (u32, String)> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|e| {
        let pid: u32 = e.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(e.path().join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(") ")?;
        let (_, name) = head.split_once('(')?;
        let mut fields = rest.split(' ');
        let over = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        (!over).then(|| (pid, (parent, name.to_owned())))
    })
    .collect()
}

/// A process and all that come from it.
fn family(of: u32) -> Vec<(u32, String)> {
    let all = processes();
    let mut found = vec![of];
    let mut i = 0;
    while i < found.len() {
        let children = all.iter().filter(|(_, (parent, _))| *parent == found[i]);
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        found.extend(children);
        i += 1;
    }
    let named = found
        .into_iter()
        .filter_map(|pid| Some((pid, all.get(&pid)?.1.clone())));
    named.collect()
}

/// Kills a run and everything of fathom's that belongs to it, those who watch first; returns who belonged to it.
fn kill(child: &mut Child) -> Vec<u32> {
    send(child.id(), libc::SIGSTOP);
    let mut all = family(child.id());
    all.sort_by_key(|(pid, name)| (*pid == child.id(), name != "fathom-cleanup"));
    for (pid, name) in &all {
        if name.starts_with("fathom") {
            // SAFETY: a signal to a process that came from a child that has not been waited for.
            unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
        }
    }
    child.wait().unwrap();
    let mut pids: Vec<u32> = all.into_iter().map(|(pid, _)| pid).collect();
    pids.push(child.id());
    // What dies with its parent takes a moment.
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end && pids.iter().any(|p| processes().contains_key(p)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    pids
}

/// What is there of a run: as `clean` has to name it, where it has to.
fn left(
    dir: &Path,
    pids: &[u32],
    planted: &BTreeMap<PathBuf, Vec<u8>>,
    keeps: &[&str],
) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !planted.contains_key(&entry.path()) && name != "mnt" && !keeps.contains(&&*name) {
            all.insert(format!("/{name}"));
        }
    }
    // Of a file system of its own, which is new.
    for entry in fs::read_dir(dir.join("mnt"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "lost+found" {
            all.insert(format!("mnt/{name}"));
        }
    }
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect()
    };
    let here = dir.canonicalize().unwrap().display().to_string();
    for line in read("/proc/swaps").lines().filter(|l| l.contains(&here)) {
        all.insert(format!("swap {}", line.split_whitespace().next().unwrap()));
    }
    for line in read("/proc/mounts").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        if matches!(fields[2], "cgroup" | "cgroup2") {
            for name in names(Path::new(fields[1])) {
                if pids
                    .iter()
                    .any(|p| name.starts_with("fathom-") && name.ends_with(&format!("-{p}")))
                {
                    all.insert(format!("control group {}/{name}", fields[1]));
                }
            }
        }
    }
    let of = |name: &str, prefix: &str| {
        let begins = |p: &u32| name.starts_with(&format!("{prefix}{p}-"));
        pids.iter().any(begins)
    };
    for name in names(&std::env::temp_dir()) {
        if of(&name, "fathom-mount-") {
            all.insert(format!("mount {}/{name}", std::env::temp_dir().display()));
        }
    }
    if let Ok(tracefs) = TraceFs::find() {
        for name in names(&tracefs.root().join("instances")) {
            if of(&name, "fathom-") {
                all.insert(format!("trace instance {name}"));
            }
        }
    }
    for name in names(Path::new("/run")) {
        if of(&name, "fathom-setting-") {
            all.insert(format!("note {name}"));
        }
    }
    for name in names(Path::new("/sys/block")) {
        let file = read(&format!("/sys/block/{name}/loop/backing_file"));
        if file.starts_with(&here) {
            all.insert(format!("loop device {name}"));
        }
        if pids.iter().any(|p| name.starts_with(&format!("md_f{p}"))) {
            all.insert(format!("array /dev/{name}"));
        }
    }
    let running = processes();
    for pid in pids.iter().filter(|p| running.contains_key(p)) {
        all.insert(format!("process {pid}"));
    }
    for (pid, (_, name)) in &running {
        let at = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        if name != "fathom" && at.to_string_lossy().starts_with(&format!("{here}/.fathom")) {
            all.insert(format!("process {pid}"));
        }
    }
    all
}

/// Whether `clean` has to say that it removed it: what goes by itself, and notes that were never followed, it need not.
fn is_to_be_said(what: &str) -> bool {
    !(what.starts_with("note ") || what.starts_with("loop ") || what.starts_with("process "))
}

/// What became of one kind of command.
#[derive(Default)]
struct Tally {
    kills: u32,
    ended: u32,
    with_leftovers: u32,
    found: u32,
    kinds: BTreeSet<String>,
}

struct Running {
    case: &'static Case,
    place: Place,
    ground: Option<Ground>,
    planted: BTreeMap<PathBuf, Vec<u8>>,
    child: Child,
    at: Instant,
    pids: Vec<u32>,
    left: BTreeSet<String>,
}

impl Running {
    fn begin(case: &'static Case, random: &mut SplitMix64) -> Option<Self> {
        let place = Place::new();
        let trace: String = (0..60_000)
            .map(|i| {
                format!(
                    "0,{},8192,{},{}.{:03}\n",
                    i * 16 % 4096,
                    ["W", "R", "R"][i % 3],
                    i / 1000,
                    i % 1000
                )
            })
            .collect();
        fs::write(place.dir.join("../trace.spc"), trace).unwrap();
        plant(&place.dir);
        let ground = if case.ground {
            Some(Ground::new(place.dir.join("mnt"))?)
        } else {
            None
        };
        let planted = contents(&place.dir);
        let args: Vec<&str> = case.args.split(' ').collect();
        let mut command = place.command(&args);
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        if case.name.starts_with("stack") {
            command.arg("--out").arg(place.runs());
        }
        Some(Self {
            case,
            ground,
            planted,
            child: command.spawn().unwrap(),
            at: Instant::now() + Duration::from_millis(random.below(case.within) as u64),
            place,
            pids: Vec::new(),
            left: BTreeSet::new(),
        })
    }

    fn left(&self) -> BTreeSet<String> {
        left(&self.place.dir, &self.pids, &self.planted, self.case.keeps)
    }

    /// Complaints about what is there after `clean`; nothing is one.
    fn check(&self, said: &str) -> String {
        let mut wrong = String::new();
        let left = self.left();
        if !left.is_empty() {
            let _ = writeln!(wrong, "not found: {left:?}");
        }
        for what in self
            .left
            .iter()
            .filter(|w| is_to_be_said(w) && !left.contains(*w))
        {
            if !said.contains(what.as_str()) {
                let _ = writeln!(wrong, "removed without a word: {what}");
            }
        }
        let now = contents(&self.place.dir);
        for (path, bytes) in &self.planted {
            if now.get(path) != Some(bytes) {
                let _ = writeln!(wrong, "touched: {}", path.display());
            }
        }
        if let Some(g) = self.ground.as_ref().filter(|g| g.settings() != g.before) {
            let _ = writeln!(wrong, "settings: {} instead of {}", g.settings(), g.before);
        }
        if !wrong.is_empty() {
            wrong = format!("{} ({}): {wrong}", self.case.name, self.child.id());
        }
        wrong
    }
}

fn number(name: &str, otherwise: usize) -> usize {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |t| t.parse().expect(name))
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn whatever_a_kill_leaves_is_found_and_nothing_else_is_touched() {
        let _turns = (alone(), turn());
        if !possible(&[]) {
            return;
        }
        let (kills, seed) = (
            number("FATHOM_KILLS", KILLS),
            number("FATHOM_KILLS_SEED", 22),
        );
        let mut random = SplitMix64::new(seed as u64);
        let has = |c: &&Case| c.needs.iter().all(|n| find(n).is_some());
        let cases: Vec<&'static Case> = CASES.iter().filter(has).collect();
        let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
        let mut wrong = String::new();
        let mut next = 0;
        while next < kills {
            let round = TOGETHER.min(kills - next);
            let chosen = (next..next + round).map(|i| cases[i % cases.len()]);
            let mut all: Vec<Running> = chosen
                .filter_map(|c| Running::begin(c, &mut random))
                .collect();
            next += round;
            all.sort_by_key(|r| r.at);
            for r in &mut all {
                std::thread::sleep(r.at.saturating_duration_since(Instant::now()));
                let tally = tallies.entry(r.case.name).or_default();
                tally.ended += u32::from(r.child.try_wait().unwrap().is_some());
                r.pids = kill(&mut r.child);
            }
            for r in &mut all {
                r.left = r.left();
            }
            // What one leaves in the kernel is found by the first that cleans.
            let mut said = String::new();
            let end = Instant::now() + Duration::from_secs(10);
            // The kernel lets go of a loop device's file a moment after its last user.
            while all.iter().any(|r| !r.left().is_empty()) && Instant::now() < end {
                for r in &all {
                    for dir in [".", "mnt"].iter().take(1 + usize::from(r.case.ground)) {
                        let clean = r.place.fathom(&["clean", dir]);
                        said += &clean.stdout;
                        said += &clean.stderr;
                    }
                }
            }
            for r in &all {
                let tally = tallies.entry(r.case.name).or_default();
                tally.kills += 1;
                tally.with_leftovers += u32::from(!r.left.is_empty());
                tally.found += (r.left.len() - r.left().intersection(&r.left).count()) as u32;
                let kind = |w: &String| {
                    let words = w.split([' ', '-']).take(2).collect::<Vec<_>>().join(" ");
                    words
                        .trim_end_matches(|c: char| c.is_ascii_digit())
                        .to_owned()
                };
                tally.kinds.extend(r.left.iter().map(kind));
                wrong += &r.check(&said);
            }
        }
        if kills > KILLS || !wrong.is_empty() {
            eprintln!(
                "seed {seed}\ncommand | kills | ended before | left something | things found | kinds"
            );
            for (name, t) in &tallies {
                let kinds = t
                    .kinds
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", ");
                eprintln!(
                    "{name} | {} | {} | {} | {} | {kinds}",
                    t.kills, t.ended, t.with_leftovers, t.found
                );
            }
        }
        assert!(wrong.is_empty(), "seed {seed}\n{wrong}");
        let found: u32 = tallies.values().map(|t| t.found).sum();
        assert!(found > 0, "no kill left anything: {}", tallies.len());
    }
}
