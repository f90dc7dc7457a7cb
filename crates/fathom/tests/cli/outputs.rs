//! What fathom writes beside measuring: outputs, logs, texts, states, reports, models. None of them ever reaches a
//! device, follows a link, waits for a pipe, or replaces a file that is somebody's. Bytes are compared.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::machine::{Disk, Loop, Mounted, mkfs_ext4, possible, run, turn};
use crate::common::{Place, Said, beside_others, names, skip};

pub(crate) const USERS: &[u8] = b"the only copy of three years of measurements\n";

/// Files that a fio job leaves beside its output, each with the options that ask for it.
const SIDES: [(&str, &[&str]); 11] = [
    ("out", &["--output=out"]),
    ("out", &["--output=out", "--output-format=json"]),
    ("ios", &["--write_iolog=ios"]),
    ("x_bw.1.log", &["--write_bw_log=x"]),
    ("x_iops.1.log", &["--write_iops_log=x", "--log_avg_msec=50"]),
    ("x_clat.1.log", &["--write_lat_log=x", "--log_avg_msec=50"]),
    ("x_slat.log", &["--write_lat_log=x", "--per_job_logs=0"]),
    (
        "x_clat_hist.1.log",
        &["--write_hist_log=x", "--log_hist_msec=50"],
    ),
    ("agg-read_bw.log", &["--bandwidth-log"]),
    ("a.prerun.txt", &["--exec_prerun=echo before"]),
    ("a.postrun.txt", &["--exec_postrun=echo after"]),
];

/// A job that does no I/O to anything, with further options.
fn fio(place: &Place, more: &[&str]) -> Said {
    let mut args = vec![
        "fio",
        "--name=a",
        "--ioengine=null",
        "--size=64k",
        "--rw=read",
    ];
    args.extend(more);
    place.fathom(&args)
}

/// What lies in the way of an output.
pub(crate) struct Trap {
    /// As a refusal names it.
    pub(crate) what: &'static str,
    /// A link to this, or a node with its numbers.
    to: PathBuf,
}

impl Trap {
    pub(crate) fn set(&self, at: &Path) {
        match self.what {
            "link" => symlink(&self.to, at).unwrap(),
            "pipe" => drop(run("mkfifo", &[text(at)])),
            "directory" => fs::create_dir(at).unwrap(),
            _ => {
                let number = fs::metadata(&self.to).unwrap().rdev();
                let numbers = [libc::major(number), libc::minor(number)].map(|n| n.to_string());
                run("mknod", &[text(at), "b", &numbers[0], &numbers[1]]);
            }
        }
    }
}

pub(crate) fn traps(device: Option<&Loop>, victim: &Path) -> Vec<Trap> {
    let trap = |what, to: &Path| Trap {
        what,
        to: to.to_owned(),
    };
    let mut all = vec![
        trap("link", victim),
        trap("pipe", victim),
        trap("directory", victim),
    ];
    if let Some(device) = device {
        all.extend([
            trap("link", &device.path),
            trap("block device", &device.path),
        ]);
    }
    all
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn clear(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(path);
}

/// A loop device with an ext4, if this machine can.
pub(crate) fn ext4() -> Option<(Disk, Loop)> {
    if !possible(&["mkfs.ext4", "mknod"]) {
        return None;
    }
    let disk = Disk::new(8);
    let device = Loop::of(&disk.image);
    mkfs_ext4(device.str());
    Some((disk, device))
}

#[test]
fn no_output_of_fio_reaches_a_device_a_link_a_pipe_or_a_directory() {
    let _turns = (turn(), beside_others());
    let made = ext4();
    let place = Place::new();
    let victim = place.runs();
    fs::write(&victim, USERS).unwrap();
    let before = made.as_ref().map(|(disk, _)| disk.checksum());
    for trap in traps(made.as_ref().map(|m| &m.1), &victim) {
        for (name, options) in SIDES {
            let at = place.dir.join(name);
            trap.set(&at);
            for more in ["--lenient", "--overwrite-output"] {
                let said = fio(&place, &[options, &[more]].concat()).refusal();
                assert!(said.contains(name) && said.contains(trap.what), "{said}");
                assert_eq!(place.names(), [name], "{options:?}");
            }
            clear(&at);
        }
    }
    let after = made.as_ref().map(|(disk, _)| disk.checksum());
    assert_eq!(before, after, "the device has changed");
    assert_eq!(fs::read(&victim).unwrap(), USERS);
}

#[test]
fn a_device_that_is_named_as_an_output_keeps_every_byte_mounted_or_not() {
    let _turns = (turn(), beside_others());
    let Some((disk, device)) = ext4() else { return };
    let place = Place::new();
    let link = place.runs();
    symlink(&device.path, &link).unwrap();
    let mut mounted = None;
    for mount in [false, true] {
        if mount {
            match Mounted::new(device.str(), disk.beside("mnt"), &[]) {
                Ok(m) => mounted = Some(m),
                Err(e) => return skip(&format!("ext4 cannot be mounted: {e}")),
            }
        }
        let before = disk.checksum();
        for path in [device.str(), text(&link)] {
            for option in ["--output", "--write_iolog"] {
                for more in ["--lenient", "--overwrite-output"] {
                    fio(&place, &[&format!("{option}={path}"), more]).refusal();
                }
            }
            place
                .fathom(&["report", "nowhere", "--out", path])
                .expect(2);
        }
        assert_eq!(before, disk.checksum(), "mounted: {mount}");
        assert!(place.names().is_empty());
    }
    drop(mounted);
}

#[test]
fn scripts_run_twice_and_files_of_the_users_are_refused_by_name() {
    let _turn = beside_others();
    for (name, options) in SIDES {
        let place = Place::new();
        let at = place.dir.join(name);
        // Empty, as touch or mktemp leave it.
        fs::write(&at, "").unwrap();
        fio(&place, options).expect(0);
        let first = fs::metadata(&at).unwrap().ino();
        fio(&place, options).expect(0);
        if name != "x_slat.log" {
            let second = fs::metadata(&at).unwrap().ino();
            assert_ne!(first, second, "{name}: it is another file");
        }
        let names = place.names();
        assert!(names.iter().all(|n| !n.contains("partial")), "{names:?}");
        // Changed by somebody since: theirs.
        fs::write(&at, USERS).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o640)).unwrap();
        for more in [&[][..], &["--lenient"]] {
            let said = fio(&place, &[options, more].concat()).refusal();
            let named = said.contains(name) && said.contains("--overwrite-output");
            assert!(named, "{said}");
            assert_eq!(fs::read(&at).unwrap(), USERS);
        }
        fio(&place, &[options, &["--overwrite-output"]].concat()).expect(0);
        let now = fs::read(&at).unwrap();
        if name == "x_slat.log" {
            assert!(now.starts_with(USERS), "logs that jobs share are added to");
        } else {
            assert!(!now.starts_with(USERS), "{name}");
        }
        assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o640, "{name}");
    }
}

#[test]
fn outputs_of_fio_itself_are_replaced_also_where_no_mark_tells_who_made_them() {
    let _turn = beside_others();
    for (name, options, content) in [
        (
            "out",
            &["--output=out"][..],
            "{\n  \"fio version\" : \"fio-3.42\",\n",
        ),
        ("out", &["--output=out"], "3;fio-3.42;a;0;0;1024\n"),
        (
            "ios",
            &["--write_iolog=ios"],
            "fio version 3 iolog\n0 f add\n",
        ),
        ("x_bw.1.log", &["--write_bw_log=x"], "1, 2048, 0, 4096, 0\n"),
    ] {
        let place = Place::new();
        let at = place.dir.join(name);
        fs::write(&at, content).unwrap();
        fio(&place, options).expect(0);
        assert_ne!(fs::read(&at).unwrap(), content.as_bytes(), "{name}");
    }
}

#[test]
fn a_job_that_is_refused_leaves_every_output_as_it_was() {
    let _turn = beside_others();
    let place = Place::new();
    let users = place.dir.join("precious");
    fs::write(&users, [7; 65_536]).unwrap();
    let all = [
        "--output=out",
        "--write_iolog=ios",
        "--write_bw_log=x",
        "--write_lat_log=y",
        "--log_avg_msec=50",
        "--bandwidth-log",
        "--exec_prerun=echo before",
    ];
    fio(&place, &all).expect(0);
    let contents = || -> Vec<(String, Vec<u8>)> {
        let read = |n: &String| fs::read(place.dir.join(n)).unwrap();
        place.names().iter().map(|n| (n.clone(), read(n))).collect()
    };
    let before = contents();
    for wrong in [
        &["--fdp=1"][..],
        // A file of the user's as the target.
        &["--ioengine=psync", "--rw=write", "--filename=precious"],
        // One output of many.
        &[
            "--write_hist_log=h",
            "--log_hist_msec=50",
            "--aux-path=nowhere",
        ],
        &["--ioengine=psync", "--filename=sim:no-such-model"],
        // A later job of the same script.
        &["--name=b", "--filename=sim:optane-900p", "--startdelay=1"],
    ] {
        let said = fio(&place, &[&all[..], wrong].concat());
        assert_eq!(said.code, Some(2), "{wrong:?}: {}", said.stderr);
        assert_eq!(contents(), before, "{wrong:?}");
    }
}

#[test]
fn a_verify_state_and_blocks_that_do_not_hold_go_the_same_way() {
    let _turns = (turn(), beside_others());
    let place = Place::new();
    let state = "local-a-0-verify.state";
    let job = |more: &[&str]| {
        let args = [
            "fio",
            "--name=a",
            "--filename=f",
            "--size=64k",
            "--bs=4k",
            "--verify=crc32c",
        ];
        place.fathom(&[&args, more].concat())
    };
    let write = ["--rw=write"];
    job(&write).expect(0);
    job(&write).expect(0);
    let at = place.dir.join(state);
    for trap in traps(None, &place.runs()) {
        clear(&at);
        trap.set(&at);
        let said = job(&write).refusal();
        assert!(said.contains(state) && said.contains(trap.what), "{said}");
    }
    clear(&at);
    fs::write(&at, USERS).unwrap();
    assert!(job(&write).refusal().contains(state));
    assert_eq!(fs::read(&at).unwrap(), USERS);
    job(&["--rw=write", "--overwrite-output"]).expect(0);

    // A block that was flipped is kept, but not in a file of the user's.
    let (kept, victim) = (place.dir.join("f.0.received"), place.runs());
    let mut bytes = fs::read(place.dir.join("f")).unwrap();
    bytes[100] ^= 1;
    fs::write(place.dir.join("f"), bytes).unwrap();
    fs::write(&victim, USERS).unwrap();
    symlink(&victim, &kept).unwrap();
    let read = ["--rw=read", "--verify_dump=1"];
    let said = job(&read).expect(1);
    assert!(said.stderr.contains("f.0.received"), "{}", said.stderr);
    assert_eq!(fs::read(&victim).unwrap(), USERS);
    clear(&kept);
    for _ in 0..2 {
        job(&read).expect(1);
        assert_eq!(fs::metadata(&kept).unwrap().len(), 4096);
    }
}

#[test]
fn a_full_disk_and_one_that_cannot_be_written_keep_the_output_of_before() {
    let _turns = (turn(), beside_others());
    if !possible(&[]) {
        return;
    }
    let place = Place::new();
    let options = ["-t", "tmpfs", "-o", "size=256k"];
    let small = match Mounted::new("none", place.dir.join("small"), &options) {
        Ok(small) => small,
        Err(e) => return skip(&format!("no tmpfs: {e}")),
    };
    let outputs = [
        "--output=small/out",
        "--output-format=json+",
        "--write_iolog=small/ios",
        "--write_lat_log=small/x",
    ];
    fio(&place, &outputs).expect(0);
    let contents = || -> Vec<(String, Vec<u8>)> {
        let read = |n: &String| fs::read(small.at.join(n)).unwrap();
        let names = names(&small.at).into_iter().filter(|n| n != "ballast");
        names.map(|n| (n.clone(), read(&n))).collect()
    };
    let before = contents();
    assert!(before.len() >= 5);
    let ballast = small.at.join("ballast");
    let mut full = fs::File::create(&ballast).unwrap();
    while std::io::Write::write_all(&mut full, &[1; 1024]).is_ok() {}
    drop(full);
    for output in outputs {
        let said = fio(
            &place,
            &[output, "--size=16m", "--bs=512", "--output-format=json+"],
        );
        let wrote = output != "--output-format=json+";
        assert_eq!(
            said.code,
            Some(i32::from(wrote)),
            "{output}: {}",
            said.stderr
        );
        assert!(contents() == before, "{output}");
    }
    clear(&ballast);
    run("mount", &["-o", "remount,ro", text(&small.at)]);
    for output in [
        "--output=small/new",
        "--output=small/out",
        "--write_iolog=small/ios",
    ] {
        let said = fio(&place, &[output]).refusal();
        assert!(
            said.contains("small/") && said.contains("ead-only"),
            "{said}"
        );
    }
    assert!(contents() == before);
}

#[test]
fn a_file_system_without_marks_keeps_what_is_the_users() {
    let _turns = (turn(), beside_others());
    if !possible(&[]) {
        return;
    }
    let place = Place::new();
    // As FAT and NFS, ramfs has no attributes of users.
    let bare = match Mounted::new("none", place.dir.join("bare"), &["-t", "ramfs"]) {
        Ok(bare) => bare,
        Err(e) => return skip(&format!("no ramfs: {e}")),
    };
    let outputs = [
        "--output=bare/out",
        "--write_iolog=bare/ios",
        "--write_bw_log=bare/x",
    ];
    for _ in 0..2 {
        fio(&place, &outputs).expect(0);
        assert_eq!(names(&bare.at), ["ios", "out", "x_bw.1.log"]);
    }
    let out = bare.at.join("out");
    let before = fs::read(&out).unwrap();
    fio(&place, &["--output=bare/out", "--fdp=1"]).expect(2);
    assert_eq!(fs::read(&out).unwrap(), before);
    fs::write(&out, USERS).unwrap();
    fio(&place, &outputs).refusal();
    assert_eq!(fs::read(&out).unwrap(), USERS);
    fio(&place, &["--output=bare/out", "--overwrite-output"]).expect(0);
    assert_eq!(names(&bare.at).len(), 3, "{:?}", names(&bare.at));
}

#[test]
fn a_job_that_is_killed_leaves_the_outputs_of_the_one_before() {
    let _turn = beside_others();
    let place = Place::new();
    let outputs = [
        "--output=out",
        "--write_iolog=ios",
        "--write_lat_log=x",
        "--bandwidth-log",
    ];
    fio(&place, &outputs).expect(0);
    let contents = || -> Vec<Vec<u8>> {
        let read = |n: &String| fs::read(place.dir.join(n)).unwrap();
        place.names().iter().map(read).collect()
    };
    let before = contents();
    let job = [
        "fio",
        "--name=a",
        "--ioengine=null",
        "--size=1m",
        "--rw=read",
        "--time_based",
        "--runtime=60s",
        "--rate_iops=20000",
        "--exec_prerun=touch started",
    ];
    let mut child = place.start(&[&job[..], &outputs].concat());
    for _ in 0..1000 {
        if place.dir.join("started").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    clear(&place.dir.join("started"));
    clear(&place.dir.join("a.prerun.txt"));
    assert!(contents() == before, "{:?}", place.names());
}

#[test]
fn streams_and_what_holds_nothing_may_be_named() {
    let _turn = beside_others();
    let place = Place::new();
    for path in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let said = fio(
            &place,
            &[&format!("--output={path}"), "--output-format=json"],
        )
        .expect(0);
        assert_eq!(said.json()["jobs"][0]["jobname"], "a", "{path}");
    }
    let said = fio(&place, &["--output=/dev/stderr", "--minimal"]).expect(0);
    assert!(said.stderr.starts_with("3;fio-") && said.stdout.is_empty());
    fio(&place, &["--output=/dev/null", "--write_iolog=/dev/null"]).expect(0);
    let full = fio(&place, &["--output=/dev/full"]).expect(1);
    assert!(full.stderr.contains("/dev/full"), "{}", full.stderr);
    let null = fs::metadata("/dev/null").unwrap();
    assert_eq!((libc::major(null.rdev()), libc::minor(null.rdev())), (1, 3));
    // Others are devices.
    for path in ["/dev/random", "/dev/kmsg", "/dev/loop-control"] {
        if Path::new(path).exists() {
            fio(&place, &[&format!("--output={path}")]).refusal();
        }
    }
    assert!(place.names().is_empty());
}

#[test]
fn intermediate_outputs_are_whole_where_a_script_looks() {
    let _turn = beside_others();
    let place = Place::new();
    let args = [
        "fio",
        "--name=a",
        "--ioengine=null",
        "--size=1m",
        "--rw=read",
        "--time_based",
        "--runtime=1s",
        "--rate_iops=1000",
        "--status-interval=200ms",
        "--minimal",
        "--output=out",
    ];
    fs::write(place.dir.join("out"), "3;fio-3.33;of before;0;0;\n").unwrap();
    let child = place.start(&args);
    let (mut seen, mut last) = (0, String::new());
    let out = place.dir.join("out");
    for _ in 0..600 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let now = fs::read_to_string(&out).unwrap();
        assert!(now.ends_with('\n'), "cut off: {now}");
        seen += usize::from(now != last);
        last = now;
        if seen > 3 {
            break;
        }
    }
    crate::common::end(child).expect(0);
    assert!(seen > 2, "it grows while the job runs: {seen}");
    let all = fs::read_to_string(&out).unwrap();
    assert!(!all.contains("of before") && all.lines().count() > 3);
}

#[test]
fn reports_and_pictures_replace_their_own_kind_and_nothing_else() {
    let _turns = (turn(), beside_others());
    let made = ext4();
    let place = Place::new();
    place
        .fathom(&[
            "run",
            "sim:optane-900p",
            "--rw",
            "randread",
            "--ios",
            "1000",
        ])
        .expect(0);
    let run_dir = place.the_run_dir();
    let victim = place.dir.join("victim");
    fs::write(&victim, USERS).unwrap();
    let of_run = text(&run_dir).to_owned();
    let commands: [(&str, Vec<&str>); 6] = [
        ("out/report.html", vec!["report", &of_run, "--out", "out"]),
        (
            "out/report.md",
            vec!["report", &of_run, "--out", "out", "--format", "markdown"],
        ),
        (
            "out/report.txt",
            vec!["report", &of_run, "--out", "out", "--format", "terminal"],
        ),
        (
            "out/jobs.csv",
            vec!["report", &of_run, "--out", "out", "--format", "csv"],
        ),
        (
            "out/run.json",
            vec!["report", &of_run, "--out", "out", "--format", "json"],
        ),
        (
            "out/comparison.html",
            vec!["report", &of_run, &of_run, "--out", "out"],
        ),
    ];
    fs::create_dir(place.dir.join("out")).unwrap();
    let before = made.as_ref().map(|(disk, _)| disk.checksum());
    for (name, args) in commands {
        let at = place.dir.join(name);
        for trap in traps(made.as_ref().map(|m| &m.1), &victim) {
            clear(&at);
            trap.set(&at);
            let said = place.fathom(&args);
            assert_ne!(said.code, Some(0), "{name}: {}", trap.what);
            assert!(said.stderr.contains(trap.what), "{name}: {}", said.stderr);
        }
        clear(&at);
        fs::write(&at, USERS).unwrap();
        let said = place.fathom(&args);
        assert_ne!(said.code, Some(0), "{name}");
        let file = at.file_name().unwrap().to_str().unwrap();
        assert!(said.stderr.contains(file), "{}", said.stderr);
        assert_eq!(fs::read(&at).unwrap(), USERS, "{name}");
        fs::write(&at, "").unwrap();
        place.fathom(&args).expect(0);
        let first = fs::read(&at).unwrap();
        assert!(!first.is_empty());
        place.fathom(&args).expect(0);
        // Copied from another machine: without a mark, but of the kind.
        fs::remove_file(&at).unwrap();
        fs::write(&at, &first).unwrap();
        place.fathom(&args).expect(0);
    }
    assert_eq!(before, made.as_ref().map(|(disk, _)| disk.checksum()));
    assert_eq!(fs::read(&victim).unwrap(), USERS);
    let pictures = ["report", &of_run, "--svg", "charts"];
    place.fathom(&pictures).expect(0);
    place.fathom(&pictures).expect(0);
    let charts = place.dir.join("charts");
    let first = charts.join(&names(&charts)[0]);
    fs::write(&first, USERS).unwrap();
    assert_ne!(place.fathom(&pictures).code, Some(0));
    assert_eq!(fs::read(&first).unwrap(), USERS);
    // The run.json of another run is what it measured.
    let other = place.dir.join("out");
    let mut there: serde_json::Value =
        serde_json::from_slice(&fs::read(other.join("run.json")).unwrap()).unwrap();
    there["started"] = "2001-01-01T00:00:00Z".into();
    fs::write(other.join("run.json"), there.to_string()).unwrap();
    let kept = fs::read(other.join("run.json")).unwrap();
    let said = place.fathom(&["report", &of_run, "--out", "out", "--format", "json"]);
    assert!(said.refusal().contains("another run"));
    assert_eq!(fs::read(other.join("run.json")).unwrap(), kept);
}

#[test]
fn a_run_directory_is_its_owners_and_never_lies_where_something_else_does() {
    let _turns = (turn(), beside_others());
    let made = ext4();
    let place = Place::new();
    let job = ["run", "sim:optane-900p", "--rw", "randread", "--ios", "100"];
    place.fathom(&job).expect(0);
    let mode = fs::metadata(place.the_run_dir()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
    let victim = place.dir.join("victim");
    fs::write(&victim, USERS).unwrap();
    let base = place.dir.join("base");
    let before = made.as_ref().map(|(disk, _)| disk.checksum());
    for trap in traps(made.as_ref().map(|m| &m.1), &victim) {
        clear(&base);
        trap.set(&base);
        let directory = trap.what == "directory";
        for args in [&job[..], &["watch", "--time", "50ms"]] {
            let said = place.fathom(&[args, &["--out", "base"]].concat());
            assert!(directory || said.code != Some(0), "{args:?}: {}", trap.what);
        }
        let _ = fs::remove_dir_all(&base);
    }
    assert_eq!(before, made.as_ref().map(|(disk, _)| disk.checksum()));
    assert_eq!(fs::read(&victim).unwrap(), USERS);
}
