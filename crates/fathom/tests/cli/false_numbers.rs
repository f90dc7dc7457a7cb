//! Numbers that look right and are not: each cause made for real, through the real binary.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::machine::{Disk, Loop, Mounted, find, mkfs_ext4, possible, turn};
use crate::common::{Place, Said, alone, beside_others, codes, skip, wait};

const MIB: usize = 1 << 20;

/// The flag of a job with this code.
#[track_caller]
fn flag<'a>(job: &'a Value, code: &str) -> &'a Value {
    let flags = job["flags"].as_array().unwrap();
    let found = flags.iter().find(|f| f["code"] == code);
    found.unwrap_or_else(|| panic!("no {code} in {flags:?}"))
}

fn last_job(place: &Place) -> Value {
    place.the_run()["jobs"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone()
}

/// A thin disk: it promises 256 MiB and lies on a file system of 48.
fn on_a_thin_disk(test: impl FnOnce(&Loop)) {
    let _turns = (turn(), beside_others());
    if !possible(&["mkfs.ext4"]) {
        return;
    }
    let disk = Disk::new(48);
    let outer = Loop::of(&disk.image);
    mkfs_ext4(outer.str());
    let mounted = match Mounted::new(outer.str(), disk.beside("mnt"), &[]) {
        Ok(mounted) => mounted,
        Err(e) => return skip(&format!("ext4 cannot be mounted: {e}")),
    };
    let thin = mounted.at.join("thin.img");
    fs::File::create(&thin).unwrap().set_len(256 << 20).unwrap();
    test(&Loop::of(&thin));
}

#[test]
fn buffered_writes_that_a_full_device_loses_void_the_job() {
    on_a_thin_disk(|device| {
        let name = device.str();
        let place = Place::new();
        let args = [
            "run",
            name,
            "--destroy",
            name,
            "--rw",
            "write",
            "--bs",
            "128k",
            "--buffered",
        ];
        place.fathom(&args).expect(1);
        let job = last_job(&place);
        // Memory took all of it.
        assert_eq!(job["write"]["bytes"], 256 << 20, "{job}");
        assert_eq!(job["write"]["errors"], 0);
        let flag = flag(&job, "write-back-failed");
        assert_eq!(flag["void"], true);
        let (detail, remedy) = (
            flag["detail"].as_str().unwrap(),
            flag["remedy"].as_str().unwrap(),
        );
        assert!(
            detail.contains("ENOSPC") || detail.contains("EIO"),
            "{detail}"
        );
        assert!(!remedy.is_empty());
        let error = &job["errors"][0];
        assert_eq!(error["op"], "sync", "{error}");
        assert!(
            job["write_back"]["device_write_bytes"].as_u64().unwrap() < 60 << 20,
            "{job}"
        );
    });
}

#[test]
fn fio_jobs_on_a_full_device_end_with_one() {
    on_a_thin_disk(|device| {
        let name = device.str();
        let place = Place::new();
        let said = place.fathom(&[
            "fio",
            "--name=x",
            &format!("--filename={name}"),
            &format!("--destroy={name}"),
            "--rw=write",
            "--bs=128k",
            "--direct=0",
            "--size=128m",
            "--output-format=json",
        ]);
        assert_eq!(said.code, Some(1), "{} {}", said.stdout, said.stderr);
        assert!(said.stdout.contains("write-back-failed"), "{}", said.stdout);
    });
}

/// A file of random bytes that are on the disk and in the page cache.
fn written_file(place: &Place, mib: usize) -> PathBuf {
    let path = place.dir.join("disk.img");
    let mut x = 1u64;
    let words = std::iter::repeat_with(|| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        x.to_le_bytes()
    });
    let bytes: Vec<u8> = words.take(mib * MIB / 8).flatten().collect();
    fs::write(&path, &bytes).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    fs::read(&path).unwrap();
    path
}

/// Direct reads of a device for a while.
fn read(place: &Place, device: &str, code: i32) -> Value {
    let before = crate::common::names(&place.runs());
    let args = [
        "run", device, "--rw", "randread", "--qd", "4", "--time", "300ms", "--json",
    ];
    let said = place.fathom(&args).expect(code);
    assert!(crate::common::names(&place.runs()).len() > before.len());
    said.json()["jobs"][0].clone()
}

#[test]
fn direct_reads_of_a_loop_device_that_is_not_direct_below_are_void() {
    let _turns = (turn(), beside_others());
    if !possible(&[]) {
        return;
    }
    let place = Place::new();
    let image = written_file(&place, 16);
    let cached = Loop::of(&image);
    let job = read(&place, cached.str(), 1);
    let flag = flag(&job, "page-cache-answered");
    assert_eq!(flag["void"], true);
    let words = format!("{} goes through the page cache", cached.name());
    assert!(flag["remedy"].as_str().unwrap().contains(&words), "{flag}");
    assert!(!codes(&job["flags"]).contains(&"unwritten-blocks-read".to_owned()));
    let (top, bottom) = (
        &job["device"]["read_bytes"],
        &job["device"]["below"][0]["read_bytes"],
    );
    assert!(
        bottom.as_u64().unwrap() * 2 < top.as_u64().unwrap(),
        "{job}"
    );
    drop(cached);
    let direct = Loop::with(&image, &["--direct-io=on"]);
    if fs::read_to_string(format!("/sys/block/{}/loop/dio", direct.name()))
        .unwrap()
        .trim()
        != "1"
    {
        return skip("the file system has no direct I/O for loop devices");
    }
    let job = read(&place, direct.str(), 0);
    assert!(
        !codes(&job["flags"]).contains(&"page-cache-answered".to_owned()),
        "{job}"
    );
}

#[test]
fn blocks_of_a_loop_device_that_nobody_wrote_are_void_also_in_a_partition_of_a_loop_on_a_loop() {
    let _turns = (turn(), beside_others());
    if !possible(&["addpart"]) {
        return;
    }
    let place = Place::new();
    // Written up to its middle.
    let image = written_file(&place, 8);
    fs::File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let lower = Loop::with(&image, &["--direct-io=on"]);
    let mut upper = Loop::with(&lower.path, &["--direct-io=on"]);
    let unwritten = |device: &str| {
        let job = read(&place, device, 1);
        let flag = flag(&job, "unwritten-blocks-read");
        assert_eq!(flag["void"], true);
        flag["detail"].as_str().unwrap().to_owned()
    };
    for device in [lower.str(), upper.str()] {
        let said = unwritten(device);
        assert!(said.starts_with("8 MiB of the range of 16 MiB"), "{said}");
    }
    if let Some(part) = upper.add_partition(6, 4) {
        let said = unwritten(part.to_str().unwrap());
        assert!(said.starts_with("2 MiB of the range of 4 MiB"), "{said}");
    }
}

/// A compressed device in memory, which goes when this does.
struct Zram(String);

impl Zram {
    fn new(bytes: &str) -> Option<Self> {
        let n = fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let zram = Self(n.trim().to_owned());
        let sized = fs::write(format!("/sys/block/zram{}/disksize", zram.0), bytes);
        sized.ok().map(|()| zram)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = fs::write(format!("/sys/block/zram{}/reset", self.0), "1");
        let _ = fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

#[test]
fn blocks_of_a_zram_device_that_nobody_wrote_are_void_until_they_are_written() {
    let _turns = (turn(), beside_others());
    if !possible(&[]) {
        return;
    }
    let Some(zram) = Zram::new("8M") else {
        return skip("no zram device can be made");
    };
    let device = format!("/dev/zram{}", zram.0);
    crate::common::until("its node is there", || Path::new(&device).exists());
    let place = Place::new();
    let job = read(&place, &device, 1);
    assert!(
        flag(&job, "unwritten-blocks-read")["detail"]
            .as_str()
            .unwrap()
            .starts_with("8 MiB")
    );
    let args = [
        "run",
        &device,
        "--destroy",
        &device,
        "--rw",
        "write",
        "--bs",
        "64k",
    ];
    place.fathom(&args).expect(0);
    let job = read(&place, &device, 0);
    assert!(
        !codes(&job["flags"]).contains(&"unwritten-blocks-read".to_owned()),
        "{job}"
    );
}

/// Processes that keep one processor busy.
struct Busy(Vec<Child>);

impl Busy {
    fn on(cpu: &str, processes: usize) -> Self {
        let one = || {
            Command::new("taskset")
                .args(["-c", cpu, "sh", "-c", "while :; do :; done"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        Self((0..processes).map(|_| one()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A control group of the first or second generation with `controller`, which goes when this does.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str) -> Option<Self> {
        let name = format!("fathom-test-{}-{controller}", std::process::id());
        let first = Path::new("/sys/fs/cgroup").join(controller);
        let second = Path::new("/sys/fs/cgroup");
        let has = fs::read_to_string(second.join("cgroup.subtree_control")).unwrap_or_default();
        let other = if controller == "blkio" {
            "io"
        } else {
            controller
        };
        let dir = if first.join("cgroup.procs").exists() {
            first.join(name)
        } else if has.split_whitespace().any(|c| c == other) {
            second.join(name)
        } else {
            return None;
        };
        fs::create_dir(&dir).ok()?;
        Some(Self(dir))
    }

    /// Sets a limit by its name of the first generation or of the second.
    fn set(&self, first: (&str, &str), second: (&str, &str)) -> Option<PathBuf> {
        let (name, value) = if self.0.join(first.0).exists() {
            first
        } else {
            second
        };
        let file = self.0.join(name);
        fs::write(&file, value).ok()?;
        Some(file)
    }

    /// Runs fathom in it; its first job.
    fn run(&self, place: &Place, args: &[&str]) -> Value {
        self.said(place, args).expect(0).json()["jobs"][0].clone()
    }

    /// Runs fathom in it.
    fn said(&self, place: &Place, args: &[&str]) -> Said {
        let fathom = place.command(args);
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.0.join("cgroup.procs"))
            .arg(fathom.get_program())
            .args(fathom.get_args())
            .current_dir(&place.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        wait(command)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_buffered_job_says_what_memory_still_held_and_how_long_the_rest_took() {
    let _turns = (turn(), beside_others());
    let place = Place::new();
    let args = [
        "run",
        "data",
        "--create",
        "--rw",
        "write",
        "--bs",
        "1m",
        "--size",
        "32m",
        "--buffered",
        "--json",
    ];
    let said = place.fathom(&args).expect(0);
    let job = &said.json()["jobs"][0];
    assert!(job["write_back"]["ns"].as_u64().unwrap() > 0, "{job}");
    if job["device"].is_null() {
        return skip("the device behind the build directory has no counters");
    }
    assert!(
        job["write_back"]["device_write_bytes"].as_u64().unwrap() >= 32 << 20,
        "{job}"
    );
    if job["device"]["write_bytes"].as_u64().unwrap() < 16 << 20 {
        let flag = flag(job, "page-cache-answered");
        assert_eq!(flag["void"], false);
        assert!(
            flag["detail"].as_str().unwrap().contains("/s with it"),
            "{flag}"
        );
    }
}

#[test]
fn a_few_reads_from_the_page_cache_are_told_too() {
    let _turns = (turn(), beside_others());
    let place = Place::new();
    written_file(&place, 1);
    let args = ["run", "disk.img", "--buffered", "--ios", "60", "--json"];
    let job = place.fathom(&args).expect(0).json()["jobs"][0].clone();
    let said = codes(&job["flags"]);
    let known = ["page-cache-answered", "not-checked"];
    assert!(said.iter().any(|c| known.contains(&c.as_str())), "{said:?}");
}

/// Run by `./test` with nothing beside.
mod alone {
    use super::*;

    #[test]
    fn a_job_whose_processor_others_use_is_flagged_and_not_void() {
        let _turn = alone();
        if find("taskset").is_none() {
            return skip("needs the program taskset");
        }
        if fs::read_to_string("/proc/thread-self/schedstat").is_err() {
            return skip("the kernel counts no run delay");
        }
        let place = Place::new();
        let _busy = Busy::on("0", 3);
        let said = place
            .fathom(&[
                "run", "data", "--create", "--size", "8m", "--cpus", "0", "--time", "500ms",
                "--json",
            ])
            .expect(0);
        let job = &said.json()["jobs"][0];
        let flag = flag(job, "cpu-contended");
        assert_eq!(flag["void"], false);
        assert!(
            job["held_up"]["waited_share"].as_f64().unwrap() > 0.05,
            "{job}"
        );
    }

    #[test]
    fn a_processor_quota_that_bound_is_named_with_its_file() {
        let _turn = alone();
        let Some(group) = Group::new("cpu") else {
            return skip("no control group for processors can be made");
        };
        // A tenth of a processor.
        let Some(file) = group.set(("cpu.cfs_quota_us", "10000"), ("cpu.max", "10000 100000"))
        else {
            return skip("no processor quota can be set");
        };
        let place = Place::new();
        let args = [
            "run", "data", "--create", "--size", "4m", "--qd", "8", "--time", "500ms", "--json",
        ];
        let job = group.run(&place, &args);
        let flag = flag(&job, "cgroup-limited");
        assert_eq!(flag["void"], false);
        let said = flag["detail"].as_str().unwrap();
        assert!(
            said.contains(file.to_str().unwrap()) && said.contains("10000"),
            "{said}"
        );
        assert!(job["held_up"]["cpu_throttled_ns"].as_u64().unwrap() > 0);
        // The capsule keeps it.
        let limits = place.the_run()["environment"]["control_group_limits"].to_string();
        assert!(limits.contains(file.to_str().unwrap()), "{limits}");
    }

    #[test]
    fn an_io_limit_that_was_reached_is_named_with_its_file() {
        let _turn = alone();
        let place = Place::new();
        let number = fs::metadata(&place.dir).unwrap().dev();
        let number = format!(
            "{}:{}",
            rustix::fs::major(number),
            rustix::fs::minor(number)
        );
        // The whole disk: limits know no partitions.
        let disk = fs::canonicalize(format!("/sys/dev/block/{number}"))
            .ok()
            .and_then(|d| {
                let whole = if d.join("partition").exists() {
                    d.parent()?.to_owned()
                } else {
                    d
                };
                fs::read_to_string(whole.join("dev")).ok()
            });
        let (Some(group), Some(disk)) = (Group::new("blkio"), disk) else {
            return skip(
                "no control group for I/O can be made, or no disk is behind the build directory",
            );
        };
        let disk = disk.trim();
        let file = group.set(
            ("blkio.throttle.read_iops_device", &format!("{disk} 100")),
            ("io.max", &format!("{disk} riops=100")),
        );
        let Some(file) = file else {
            return skip("no limit of I/O can be set");
        };
        fs::write(place.dir.join("data"), vec![7; 4 * MIB]).unwrap();
        fs::File::open(place.dir.join("data"))
            .unwrap()
            .sync_all()
            .unwrap();
        let args = [
            "run", "data", "--create", "--rw", "randread", "--qd", "4", "--time", "1s", "--json",
        ];
        // Where others keep the processors it is not the limit that limits, and that is said.
        let has = |j: &Value, code: &str| codes(&j["flags"]).iter().any(|c| c == code);
        let mut jobs = (0..4).map(|_| group.run(&place, &args));
        let Some(job) = jobs.find(|j| has(j, "cgroup-limited")) else {
            return skip("the limit was not reached in four seconds: this machine is too busy");
        };
        let flag = flag(&job, "cgroup-limited");
        let said = flag["detail"].as_str().unwrap();
        assert!(
            said.contains(file.to_str().unwrap()) && said.contains("100 IOPS"),
            "{said}"
        );
        assert!(job["read"]["iops"].as_f64().unwrap() < 200.0);
        let mut met = 0;
        // Whatever is measured, it is a finding that names the file, and is told from what devices and volumes do.
        for (i, command) in [
            "run data --rw randread --qd 4 --time 1s",
            "curve data --time 100ms --ramp 0s --repeats 1 --max-qd 4 --closed-only",
            "tune data --only scheduler --pass 100ms",
            "stack data --rw randread --direct --qd 4 --time 1s --engine uring",
        ]
        .into_iter()
        .enumerate()
        {
            let out = place.runs().join(format!("limited-{i}"));
            let mut words: Vec<&str> = command.split(' ').collect();
            words.extend(["--create", "--out", out.to_str().unwrap()]);
            let said = group.said(&place, &words);
            let kept = fs::read_dir(&out).unwrap().next().unwrap().unwrap();
            let run = fs::read(kept.path().join("run.json")).unwrap();
            let run: Value = serde_json::from_slice(&run).unwrap();
            let jobs = run["jobs"].as_array().unwrap();
            if !jobs.iter().any(|j| has(j, "cgroup-limited")) {
                continue;
            }
            met += 1;
            let findings = run["findings"].as_array().unwrap();
            let found = findings.iter().find(|f| f["id"] == "cgroup-limit");
            let text = found.unwrap_or_else(|| panic!("{command}: {findings:?}"))["text"].as_str();
            assert!(text.unwrap().contains(file.to_str().unwrap()), "{text:?}");
            assert!(
                said.stdout
                    .contains("A control group limits what was measured"),
                "{command}: {}",
                said.stdout
            );
        }
        assert!(met > 0, "no command of four reached the limit");
    }
}
