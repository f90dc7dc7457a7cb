//! Commands on many hosts: layouts, experiments, engines' own lists of hosts, and what is refused. Clocks and faults are in
//! `fleet_faults`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::{Place, beside_others, codes, end, engines, names, skip};
use crate::fleet_rig::{Rig, program, sum};

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
        let differ = codes(&job["flags"]).contains(&"hosts-differ".to_owned());
        assert!(!differ, "{layout}: {}", job["flags"]);
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
    let base = rig.place.base();
    let bin = base.join("bin");
    fs::create_dir(&bin).unwrap();
    let program = |name: &str, text: &str| program(&bin.join(name), text);
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
    let via = rig.via.as_deref().unwrap();
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
        &["--hosts", "h1", "--via", via, "--hosts-fathom", "/bin/cat"],
    );
    assert!(said.contains("h1"), "{said}");
    // No space on one of them, and a word to destroy what is not there.
    let said = refused(
        "run . --size 900t --time 100ms",
        &["--hosts", "h1,h2", "--via", via, "--hosts-fathom", fathom],
    );
    assert!(said.contains("h1: "), "{said}");
    // What simulated hosts cannot do is not left out without a word.
    let model = "run sim:optane-900p --time 200ms --hosts 4";
    let said = refused(model, &["--via", "srun"]);
    assert!(
        said.contains("--via: a number of simulated hosts"),
        "{said}"
    );
    let said = refused("cache .", &["--hosts", "h1", "--hosts-fathom", fathom]);
    assert!(said.contains("run it on each host"), "{said}");
}

/// Each host's I/Os come here after the job, on this machine's clock, and are the ones that were counted.
#[test]
fn rows_of_hosts_are_kept_by_host_on_one_clock() {
    let _turn = beside_others();
    let rig = Rig::best();
    let load =
        "run . --rw randread --bs 4k --qd 2 --size 8m --ramp 200ms --time 600ms --record --json";
    let run = rig.run(load, "h1,h2,h3");
    let job = run["jobs"].as_array().unwrap().last().unwrap();
    let shares = job["hosts"].as_array().unwrap();
    let dir = PathBuf::from(run["run_directory"].as_str().unwrap());
    let below = |dir: &PathBuf| dir.join(names(dir).iter().find(|n| n.contains('=')).unwrap());
    let fleet = below(&dir);
    let mut starts = Vec::new();
    for (name, share) in ["h1", "h2", "h3"].iter().zip(shares) {
        let own = below(&fleet.join(format!("host={name}")));
        assert!(own.ends_with(format!("run={}", run["run_id"].as_str().unwrap())));
        let own = own.to_str().unwrap();
        let ask = |sql: &str| {
            rig.place
                .fathom(&["query", own, sql, "--json"])
                .expect(0)
                .json()
        };
        let rows = ask("SELECT count(*) AS ios, min(completed_ns) AS first, max(host) AS host, max(run_id) AS run_id,
            min(origin_epoch_ns + submitted_ns) AS start FROM io WHERE completed_ns < 600000000");
        // The ramp is not in it; what ended within the windows that all measured is.
        assert_eq!(rows[0]["ios"], share["ios"], "{share}");
        assert!(rows[0]["first"].as_i64() >= Some(0), "{rows}");
        assert_eq!(
            (&rows[0]["host"], &rows[0]["run_id"]),
            (&share["host"], &run["run_id"])
        );
        starts.push(rows[0]["start"].as_i64().unwrap());
        let series = ask(
            "SELECT sum(ios) AS ios, max(host_index) AS host, max(job_name) AS job FROM series",
        );
        assert_eq!(
            (&series[0]["ios"], &series[0]["job"]),
            (&share["ios"], &job["name"])
        );
        let run = ask("SELECT name FROM jobs WHERE void = 0");
        assert_eq!(run[0]["name"], job["name"]);
    }
    // All together they are what the fleet did: percentiles of all records are those of the merged histograms.
    let ask = |sql: &str| {
        let all = dir.to_str().unwrap();
        rig.place
            .fathom(&["query", all, sql, "--json"])
            .expect(0)
            .json()
    };
    let rows = "count(*) AS ios, quantile(service_ns, 0.5) AS p50, quantile(service_ns, 0.99) AS p99 FROM io WHERE completed_ns < 600000000";
    let windows = "sum(ios) AS ios, quantile(service_histogram, 0.5) AS p50, quantile(service_histogram, 0.99) AS p99 FROM series";
    for what in [rows, windows] {
        let said = ask(&format!("SELECT {what}"));
        let read = &job["read"];
        assert_eq!(said[0]["ios"], read["ios"], "{what}");
        assert_eq!(said[0]["p50"], read["service_ns"]["p50"], "{what}");
        assert_eq!(said[0]["p99"], read["service_ns"]["p99"], "{what}");
    }
    let hosts = ask("hosts");
    assert_eq!(hosts.as_array().unwrap().len(), 3, "{hosts}");
    let begun = ask("starts");
    assert!(
        begun[0]["apart_ns"].as_i64() >= Some(0) && begun[0]["hosts"] == 3,
        "{begun}"
    );
    // Clocks of the hosts are a quarter of an hour apart.
    let apart = starts.iter().max().unwrap() - starts.iter().min().unwrap();
    assert!(apart < 5_000_000_000, "{starts:?}");
    assert_eq!(rig.place.names(), Vec::<String>::new());
}

/// The page's SQL gives the same answers in every engine that is here.
#[test]
fn engines_answer_the_questions_about_fleets_alike() {
    let _turn = beside_others();
    let have = |name: &str| {
        let asked = engines().args(["-c", &format!("import {name}")]).output();
        asked.is_ok_and(|o| o.status.success())
    };
    let here: Vec<&str> = ["duckdb", "datafusion"]
        .into_iter()
        .filter(|e| have(e))
        .collect();
    if here.is_empty() {
        return skip("neither DuckDB's nor DataFusion's Python module is here");
    }
    let place = Place::new();
    let load = "run sim:samsung-960pro --rw randrw --bs 4k --qd 4 --time 300ms --window 50ms --hosts 3 --record --json";
    let args: Vec<&str> = load.split(' ').collect();
    let run = place.fathom(&args).expect(0).json();
    let said = engines()
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../bench/fleet-query"
        ))
        .arg(run["run_directory"].as_str().unwrap())
        .args(&here)
        .env("FATHOM", env!("CARGO_BIN_EXE_fathom"))
        .current_dir(&place.dir)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&said.stderr)
    );
    for engine in &here {
        assert!(text.contains(&format!("{engine}: 4 questions")), "{text}");
    }
    println!("{text}");
}

/// A host without the mount sees another directory than the others.
#[test]
fn a_host_whose_mount_is_missing_is_found() {
    let _turn = beside_others();
    let rig = Rig::new();
    let apart = rig.place.base().join("h3");
    fs::create_dir(&apart).unwrap();
    let line = "run . --rw randread --size 4m --time 200ms --json";
    let said = end(rig.command(line, "h1,h2,h3,h4").spawn().unwrap()).refusal();
    assert!(said.contains("h3 do not see"), "{said}");
    assert_eq!((rig.place.names(), names(&apart)), (vec![], vec![]));
}
