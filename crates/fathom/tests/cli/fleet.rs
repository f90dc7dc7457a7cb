//! Four hosts on one machine: processes with a host name and, where privileges allow, a monotonic clock of their own,
//! whose offset is known.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Place, alone, beside_others, codes, end, names, scratch, send, skip, until};

const HOSTS: &str = "h1,h2,h3,h4";

/// Seconds that each host's clock is ahead of the one before it.
const AHEAD: i64 = 1000;

pub(crate) struct Rig {
    pub(crate) place: Place,
    via: String,
    /// Whether hosts have clocks of their own.
    clocks: bool,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        let own = |c: &mut Command| c.output().is_ok_and(|o| o.status.success());
        let clocks = own(Command::new("unshare").args([
            "--uts",
            "--time",
            "--monotonic",
            "1",
            "--fork",
            "hostname",
            "h1",
        ]));
        let script = place.dir.parent().unwrap().join("rig");
        let base = script.parent().unwrap().display().to_string();
        // Outside of a name space of its own nobody renames this machine.
        let (namespaces, name) = match clocks {
            true => (
                "unshare --uts --time --monotonic ${i}000 --boottime ${i}000 --fork",
                "hostname \"$1\"; ",
            ),
            false => ("", ""),
        };
        // What it is given runs as it stands; a host may have a directory of its own.
        let text = format!(
            "#!/bin/sh\nhost=$1; shift; i=${{host#h}}\ncd {base}/work || exit 1\n[ ! -d {base}/$host ] || cd {base}/$host\nexec {namespaces} sh -c '{name}echo $$ > {base}/pid.$1; shift; exec \"$@\"' sh \"$host\" \"$@\"\n"
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            via: format!("{} {{host}}", script.display()),
            place,
            clocks,
        }
    }

    pub(crate) fn command(&self, line: &str, hosts: &str) -> Command {
        let mut args: Vec<&str> = line.split(' ').collect();
        let fathom = env!("CARGO_BIN_EXE_fathom");
        args.extend([
            "--hosts",
            hosts,
            "--via",
            &self.via,
            "--hosts-fathom",
            fathom,
        ]);
        self.place.command(&args)
    }

    pub(crate) fn run(&self, line: &str, hosts: &str) -> Value {
        let said = end(self.command(line, hosts).spawn().unwrap()).expect(0);
        said.json()
    }

    fn pid(&self, host: &str) -> u32 {
        let file = self.place.dir.parent().unwrap().join(format!("pid.{host}"));
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    /// Waits until no file is left; names what is, with the marks.
    #[track_caller]
    fn emptied(&self, when: &str) {
        let begin = Instant::now();
        while !self.place.names().is_empty() {
            let left = self.place.names();
            let marks = Command::new("getfattr")
                .args(["-d", "-m", "-"])
                .args(&left)
                .current_dir(&self.place.dir)
                .output();
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "left {when}: {left:?}, {marks:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a long load and returns when it runs on all hosts.
    fn running(&self) -> Child {
        let load = "run . --rw randread --bs 4k --qd 4 --size 4m --time 40s --json";
        let child = self.command(load, HOSTS).spawn().unwrap();
        let files = || names(&self.place.dir);
        until("every host has its file", || files().len() == 4);
        // Filled, and under way: the threads of the load are there.
        let loads = |h: &str| {
            let tasks = format!("/proc/{}/task", self.pid(h));
            let read = |t: fs::DirEntry| fs::read_to_string(t.path().join("comm")).ok();
            let io = |name: String| name.starts_with("io");
            fs::read_dir(tasks).is_ok_and(|d| d.flatten().filter_map(read).any(io))
        };
        until("every host has its threads", || {
            ["h1", "h2", "h3", "h4"].iter().all(|h| loads(h))
        });
        std::thread::sleep(Duration::from_millis(1500));
        child
    }
}

fn flag<'a>(run: &'a Value, code: &str) -> Option<&'a Value> {
    let flags = run["jobs"][0]["flags"].as_array()?;
    flags.iter().find(|f| f["code"] == code)
}

fn sum(hosts: &[Value], what: &str) -> u64 {
    hosts.iter().map(|h| h[what].as_u64().unwrap()).sum()
}

#[test]
fn four_hosts_begin_together_by_clocks_that_are_known() {
    let _turn = alone();
    let rig = Rig::new();
    let run = rig.run(
        "run . --rw randread --bs 4k --qd 2 --size 8m --time 1s --json",
        HOSTS,
    );
    let job = &run["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|j| j["name"] != "prepare")
        .unwrap();
    let hosts = job["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 4);
    assert_eq!(
        sum(hosts, "ios"),
        job["read"]["ios"].as_u64().unwrap(),
        "sums are exact"
    );
    assert_eq!(sum(hosts, "bytes"), job["read"]["bytes"].as_u64().unwrap());
    assert_eq!(job["wall_ns"], 1_000_000_000u64);
    assert_eq!(job["qd_requested"], 8);
    let late: Vec<i64> = hosts
        .iter()
        .map(|h| h["late_ns"].as_i64().unwrap())
        .collect();
    let apart = late.iter().max().unwrap() - late.iter().min().unwrap();
    let bound = hosts
        .iter()
        .map(|h| h["clock_bound_ns"].as_i64().unwrap())
        .max()
        .unwrap();
    println!("starts {apart} ns apart, clocks known to {bound} ns");
    if !codes(&job["flags"]).contains(&"out-of-step".to_owned()) {
        assert!(apart <= 10_000_000, "{late:?}");
    }
    let known = run["environment"]["hosts"].as_array().unwrap();
    assert_eq!(known.len(), 4);
    if !rig.clocks {
        return skip("no rights for name spaces of time: clocks of the hosts are this one's");
    }
    for (i, host) in (1..).zip(hosts) {
        let error = host["clock_offset_ns"].as_i64().unwrap() - i * AHEAD * 1_000_000_000;
        let bound = host["clock_bound_ns"].as_i64().unwrap();
        println!(
            "{}: clock off by {error} ns, bound {bound} ns",
            host["host"]
        );
        assert!(error.abs() <= bound, "{host}");
        assert_eq!(known[i as usize - 1]["called"], host["host"]);
    }
    assert_eq!(rig.place.names(), Vec::<String>::new());
}

/// A host that is killed, or stands still: the point is void, the host is named, the others end at once.
#[test]
fn a_lost_host_voids_the_point_and_ends_the_others() {
    // What others' tests kill is there for `clean`, too.
    let _turn = alone();
    for (signal, why) in [
        (libc::SIGKILL, "h3"),
        (libc::SIGSTOP, "stands still"),
        (libc::SIGTERM, "ended there"),
    ] {
        let rig = Rig::new();
        let child = rig.running();
        let began = Instant::now();
        send(rig.pid("h3"), signal);
        let said = end(child).expect(1);
        assert!(
            began.elapsed() < Duration::from_secs(25),
            "{:?}",
            began.elapsed()
        );
        let run = said.json();
        let lost = flag(&run, "host-lost").unwrap_or_else(|| panic!("{}", run["jobs"][0]["flags"]));
        assert_eq!(lost["void"], true);
        let detail = lost["detail"].as_str().unwrap();
        assert!(
            detail.starts_with("h3: ") && detail.contains(why),
            "{detail}"
        );
        if signal == libc::SIGSTOP {
            send(rig.pid("h3"), libc::SIGCONT);
        }
        let mut cleaned = String::new();
        if signal == libc::SIGKILL {
            // What it cannot remove any more is named, and found.
            let file = scratch(&rig.place.dir).expect("the killed host's file");
            assert!(lost["remedy"].as_str().unwrap().contains(&file), "{lost}");
            assert!(lost["remedy"].as_str().unwrap().contains("on h3"), "{lost}");
            cleaned = rig.place.fathom(&["clean"]).expect(0).stdout;
        }
        rig.emptied(&format!("after signal {signal}; clean: {cleaned}"));
    }
}

#[test]
fn agents_whose_controller_is_killed_end_and_clean_up() {
    let _turn = beside_others();
    let rig = Rig::new();
    let mut child = rig.running();
    let agents: Vec<u32> = ["h1", "h2", "h3", "h4"].map(|h| rig.pid(h)).to_vec();
    let began = Instant::now();
    send(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    until("their files are gone", || rig.place.names().is_empty());
    let there = |pid: &u32| {
        PathBuf::from(format!("/proc/{pid}/exe"))
            .read_link()
            .is_ok()
    };
    until("they are gone", || !agents.iter().any(there));
    println!("gone after {:?}", began.elapsed());
}

#[test]
fn one_shared_file_is_made_once_and_used_by_all() {
    let _turn = beside_others();
    let rig = Rig::new();
    for (layout, rw) in [
        ("parts", "randwrite"),
        ("shared", "randread"),
        ("neighbour", "read"),
    ] {
        let line = format!(
            "run . --rw {rw} --bs 16k --size 8m --time 300ms --window 50ms --layout {layout} --json"
        );
        let run = rig.run(&line, "h1,h2,h3");
        let job = run["jobs"].as_array().unwrap().last().unwrap();
        let hosts = job["hosts"].as_array().unwrap();
        assert!(
            hosts.iter().all(|h| h["ios"].as_u64() > Some(0)),
            "{layout}: {hosts:?}"
        );
        let about = run["target"]["description"].as_str().unwrap();
        assert!(about.contains("one shared file"), "{about}");
        assert_eq!(rig.place.names(), Vec::<String>::new(), "{layout}");
        fs::remove_dir_all(rig.place.runs()).unwrap();
    }
}

#[test]
fn experiments_run_on_hosts_as_on_one() {
    let _turn = beside_others();
    let rig = Rig::new();
    // Real files: as many hosts take part as a job names.
    let line = "scale . --size 4m --time 200ms --ramp 100ms --repeats 2 --qd 2 --json";
    let run = rig.run(line, "h1,h2,h3");
    let jobs = run["jobs"].as_array().unwrap();
    let of = |name: &str| jobs.iter().find(|j| j["name"] == name).unwrap();
    for n in 1..=3 {
        let job = of(&format!("hosts-{n}.2"));
        let hosts = job["hosts"].as_array().unwrap();
        assert_eq!(hosts.len(), n, "{job}");
        assert_eq!(sum(hosts, "ios"), job["read"]["ios"].as_u64().unwrap());
    }
    let table = &run["sections"][0]["tables"][0];
    assert_eq!(table["rows"].as_array().unwrap().len(), 3, "{table}");
    fs::remove_dir_all(rig.place.runs()).unwrap();
    for line in [
        "curve sim:samsung-960pro --repeats 2 --json",
        "mix sim:samsung-960pro --repeats 2 --json",
        "survey sim:samsung-960pro --repeats 2 --json",
        "slo sim:samsung-960pro --repeats 2 --time 500ms --json",
    ] {
        let run = rig.run(line, "h1,h2");
        let jobs = run["jobs"].as_array().unwrap();
        let both = |j: &&Value| j["hosts"].as_array().is_some_and(|h| h.len() == 2);
        assert!(jobs.len() > 3 && jobs.iter().all(|j| both(&j)), "{line}");
        fs::remove_dir_all(rig.place.runs()).unwrap();
    }
}

/// Hosts that an allocation or a selector names, reached by the engine's own launcher (stand-ins for Slurm's and
/// Kubernetes' programs, which take and pass on what the real ones do).
#[test]
fn an_engine_names_its_hosts_itself() {
    let _turn = beside_others();
    let rig = Rig::new();
    let base = rig.place.dir.parent().unwrap();
    let bin = base.join("bin");
    fs::create_dir(&bin).unwrap();
    let program = |name: &str, text: &str| {
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let rig_script = base.join("rig").display().to_string();
    program(
        "scontrol",
        "[ \"$*\" = 'show hostnames h[1-2]' ] || exit 9; echo h1; echo h2",
    );
    program(
        "srun",
        &format!("while [ \"$1\" != -w ]; do shift; done; shift; exec {rig_script} \"$@\""),
    );
    program(
        "kubectl",
        &format!(
            "case \"$1 $*\" in 'get get pods'*--selector=app=fathom) echo pod/h1; echo pod/h2;; 'get '*) echo 'error: no such label' >&2; exit 1;; *) shift 2; h=${{1#pod/}}; shift 2; exec {rig_script} $h \"$@\";; esac"
        ),
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let on = |hosts: &str| {
        let fathom = env!("CARGO_BIN_EXE_fathom");
        let line = "run . --rw randread --size 4m --time 300ms --json";
        let mut args: Vec<&str> = line.split(' ').collect();
        args.extend(["--hosts", hosts, "--hosts-fathom", fathom]);
        let mut command = rig.place.command(&args);
        command.env("PATH", &path);
        command
    };
    let mut slurm = on("slurm");
    slurm.env("SLURM_JOB_NODELIST", "h[1-2]");
    for mut command in [slurm, on("pods:app=fathom")] {
        let run = end(command.spawn().unwrap()).expect(0).json();
        let hosts = run["environment"]["hosts"].as_array().unwrap();
        assert_eq!(hosts.len(), 2);
        assert!(run["target"]["name"].as_str().unwrap().contains("2 hosts"));
        fs::remove_dir_all(rig.place.runs()).unwrap();
    }
    let mut without = on("slurm");
    without.env_remove("SLURM_JOB_NODELIST");
    let said = end(without.spawn().unwrap()).refusal();
    assert!(said.contains("no allocation here"), "{said}");
    let said = end(on("pods:app=other").spawn().unwrap()).refusal();
    assert!(said.contains("no such label"), "{said}");
}

/// One sentence that names the host, exit 2, nothing left.
#[test]
fn hosts_that_cannot_be_used_are_refused_by_name() {
    let _turn = beside_others();
    let rig = Rig::new();
    let refused = |line: &str, more: &[&str]| {
        let mut args: Vec<&str> = line.split(' ').collect();
        args.extend(more);
        let said = rig.place.fathom(&args).refusal();
        assert_eq!(rig.place.names(), Vec::<String>::new(), "{said}");
        assert_eq!(names(&rig.place.runs()), Vec::<String>::new(), "{said}");
        said
    };
    let run = "run . --size 4m --time 100ms";
    let fathom = env!("CARGO_BIN_EXE_fathom");
    for hostile in [
        "-oProxyCommand=touch ran",
        "a;touch ran",
        "$(touch ran)",
        "a,,b",
        "a\nb",
    ] {
        let hosts = format!("--hosts={hostile}");
        let said = refused(run, &[&hosts, "--hosts-fathom", fathom]);
        assert!(said.contains("is no name of a host"), "{said}");
    }
    let said = refused(run, &["--hosts", "a", "--hosts-fathom", "$(touch ran)"]);
    assert!(said.contains("is no name of a fathom"), "{said}");
    let said = refused(
        run,
        &["--hosts", "h1", "--via", "rsh h1", "--hosts-fathom", fathom],
    );
    assert!(said.contains("--via"), "{said}");
    // A host that cannot be reached, beside one that can.
    let broken = "sh -c 'h=$1; shift; [ $h = h1 ] || { echo no route to $h >&2; exit 255; }; exec \"$@\"' sh {host}";
    let said = refused(
        run,
        &[
            "--hosts",
            "h1,h9",
            "--via",
            broken,
            "--hosts-fathom",
            fathom,
        ],
    );
    assert!(said.contains("h9") && said.contains("no route"), "{said}");
    let said = refused(
        run,
        &[
            "--hosts",
            "h1",
            "--via",
            &rig.via,
            "--hosts-fathom",
            "/bin/cat",
        ],
    );
    assert!(said.contains("h1"), "{said}");
    // No space on one of them, and a word to destroy what is not there.
    let said = refused(
        "run . --size 900t --time 100ms",
        &[
            "--hosts",
            "h1,h2",
            "--via",
            &rig.via,
            "--hosts-fathom",
            fathom,
        ],
    );
    assert!(said.contains("h1: "), "{said}");
    // What simulated hosts cannot do is not left out without a word.
    let model = "run sim:optane-900p --time 200ms --hosts 4";
    let said = refused(model, &["--record"]);
    assert!(said.contains("one row per I/O"), "{said}");
    let said = refused(model, &["--via", "srun"]);
    assert!(
        said.contains("--via: a number of simulated hosts"),
        "{said}"
    );
    let said = refused("kv .", &["--hosts", "h1", "--hosts-fathom", fathom]);
    assert!(said.contains("run it on each host"), "{said}");
}

/// A host without the mount sees another directory than the others.
#[test]
fn a_host_whose_mount_is_missing_is_found() {
    let _turn = beside_others();
    let rig = Rig::new();
    let apart = rig.place.dir.parent().unwrap().join("h3");
    fs::create_dir(&apart).unwrap();
    let line = "run . --rw randread --size 4m --time 200ms --json";
    let said = end(rig.command(line, "h1,h2,h3,h4").spawn().unwrap()).refusal();
    assert!(said.contains("h3 do not see"), "{said}");
    assert_eq!((rig.place.names(), names(&apart)), (vec![], vec![]));
}
