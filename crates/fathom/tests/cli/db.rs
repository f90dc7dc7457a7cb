//! Database labs: what they find out, what they say of missing parts, and that nothing is left.

use serde_json::Value;

use crate::common::{Place, Said, beside_others, codes, end, names, send, skip, until};
use crate::contract::promised;
use crate::db_failures::mariadb;

pub(crate) fn ids<'a>(json: &'a Value, key: &str) -> Vec<&'a str> {
    let of = |x: &'a Value| x["id"].as_str().unwrap();
    json[key].as_array().unwrap().iter().map(of).collect()
}

/// What a finding says that was looked at beside what was varied.
pub(crate) fn beside<'a>(json: &'a Value, id: &str) -> &'a str {
    let mut all = json["findings"].as_array().unwrap().iter();
    let found = all.find(|f| f["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}"))["text"]
        .as_str()
        .unwrap()
}

pub(crate) fn table<'a>(json: &'a Value, id: &str) -> &'a Value {
    let sections = json["sections"].as_array().unwrap();
    sections
        .iter()
        .flat_map(|s| s["tables"].as_array().unwrap())
        .find(|t| t["id"] == id)
        .unwrap_or_else(|| panic!("no table {id}"))
}

/// A small disk is no failure of the lab: it says so and leaves nothing.
pub(crate) fn no_room(said: &Said) -> bool {
    let small =
        said.code == Some(2) && (said.stderr.contains("of room") || said.stderr.contains("95 %"));
    if small {
        skip("the disk is too full for this lab");
    }
    small
}

/// What a lab found; `None`, and said, where the disk is too full or the machine too busy to do anything in the time. Where
/// it was too busy for some of it, that is void and said, so is the run, and the rest of it stands.
pub(crate) fn found(said: Said) -> Option<Value> {
    if no_room(&said) {
        return None;
    }
    if said.code == Some(1) && said.stdout.starts_with('{') {
        let json = said.json();
        let headlines = json["headlines"].as_array().unwrap();
        let void = |flags: &Value| {
            let flags = flags.as_array().into_iter().flatten();
            flags
                .filter(|f| f["void"] == true)
                .find_map(|f| Some(f["detail"].as_str()?.to_owned()))
        };
        let flags = json["flags"].as_array().unwrap();
        if flags.is_empty() {
            // Why, in the words of the first job that is void.
            let jobs = json["jobs"].as_array().unwrap();
            let why = jobs.iter().find_map(|j| void(&j["flags"]));
            if headlines.iter().all(|h| h["estimate"].is_null()) {
                let why = why.unwrap_or("nothing was completed in so short a time".to_owned());
                skip(&format!("{why}: this machine is too busy"));
                return None;
            }
            // Every number that is missing says why.
            let mut holes = headlines.iter().filter(|h| h["estimate"].is_null());
            if let Some(why) = why
                && holes.all(|h| void(&h["flags"]).is_some())
            {
                skip(&format!("a part of it: {why}: this machine is too busy"));
                return Some(json);
            }
        }
        // What this machine lacks is said, and voids the run; the rest of it stands.
        if !flags.is_empty() && flags.iter().all(|f| f["code"] == "not-checked") {
            skip(flags[0]["detail"].as_str().unwrap());
            return Some(json);
        }
    }
    Some(said.expect(0).json())
}

/// A rate is a hole, or more than nothing.
pub(crate) fn is_rate(cell: &Value) -> bool {
    cell.is_null() || cell["value"].as_f64().is_some_and(|v| v > 0.0)
}

pub(crate) fn has(program: &str) -> bool {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/bin"];
    places
        .iter()
        .any(|d| std::path::Path::new(d).join(program).exists())
}

#[test]
fn a_tree_through_the_page_cache_is_said_to_be_and_has_no_ceiling_of_the_device() {
    let _turn = beside_others();
    let place = Place::new();
    let args = [
        "kv",
        ".",
        "--buffered",
        "--size",
        "64m",
        "--keys",
        "200000",
        "--time",
        "500ms",
        "--repeats",
        "1",
        "--workload",
        "update",
        "--json",
    ];
    let said = place.fathom(&args);
    if no_room(&said) {
        return;
    }
    // Where memory answered its only number is void, and so is the run.
    let json = said.json();
    let flags = json["headlines"][0]["flags"].as_array().unwrap();
    let void = flags.iter().any(|f| f["void"] == true);
    assert_eq!(said.code, Some(i32::from(void)), "{flags:?}");
    promised(&json);
    let text = json["sections"][0]["text"].as_str().unwrap();
    assert!(text.contains("through the page cache"), "{text}");
    let row = &table(&json, "kv-table")["rows"][0];
    assert!(row[7].is_null() && row[8].is_null(), "{row}");
    let said = codes(&json["headlines"][0]["flags"]);
    let asked = row[5]["value"].as_f64().unwrap() * row[4]["value"].as_f64().unwrap();
    let disk = json["target"]["device"].as_str().unwrap_or_default();
    if asked > 10_000.0
        && std::path::Path::new("/sys/class/block")
            .join(disk)
            .join("stat")
            .exists()
    {
        assert!(said.contains(&"page-cache-answered".to_owned()), "{said:?}");
    }
    let waits = table(&json, "kv-waits");
    let columns = waits["columns"].as_array().unwrap();
    let kernel = columns
        .iter()
        .position(|c| c["label"] == "kernel threads' CPU");
    assert!(!waits["rows"][0][kernel.unwrap()].is_null());
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn other_engines_stand_beside_the_own_tree_with_the_same_cache() {
    let _turn = beside_others();
    let place = Place::new();
    let said = place.fathom(&[
        "kv",
        ".",
        "--size",
        "64m",
        "--keys",
        "10000",
        "--threads",
        "4",
        "--time",
        "300ms",
        "--repeats",
        "1",
        "--workload",
        "update,b",
        "--beside",
        "redb,sqlite,lmdb,fjall",
        "--json",
    ]);
    let Some(json) = found(said) else { return };
    promised(&json);
    let rows = table(&json, "kv-engines-table")["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10, "two workloads on five engines");
    for all in rows.chunks(5) {
        assert!(all.iter().all(|r| r[3] == all[0][3]), "one cache: {all:?}");
        assert!(all.iter().all(|r| is_rate(&r[4])));
    }
    let said = beside(&json, "kv-beside");
    let words = [
        "in all jobs",
        "other engines",
        "within the last second",
        " blocks of ",
        "processors",
    ];
    assert!(words.iter().all(|w| said.contains(w)), "{said}");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn a_lab_of_a_reproduction_takes_its_own_run_whatever_else_is_measured_meanwhile() {
    let _turn = beside_others();
    let place = Place::new();
    let kv = [
        "kv",
        ".",
        "--size",
        "64m",
        "--keys",
        "20000",
        "--time",
        "200ms",
        "--repeats",
        "1",
        "--workload",
        "insert,update",
        "--threads",
        "4",
    ];
    let said = place.fathom(&kv);
    if no_room(&said) {
        return;
    }
    // Somebody else's, newer than all that follow, with other numbers.
    let theirs = place.the_run_dir();
    let mut other: Value =
        serde_json::from_slice(&std::fs::read(theirs.join("run.json")).unwrap()).unwrap();
    for job in other["jobs"].as_array_mut().unwrap() {
        job["write"]["iops"] = serde_json::json!(7.0);
    }
    std::fs::write(theirs.join("run.json"), other.to_string()).unwrap();
    std::fs::rename(&theirs, place.runs().join("29990101T000000Z-kv")).unwrap();
    let on = [
        "reproduce",
        "oneill2018",
        "--on",
        ".",
        "--size",
        "128m",
        "--time",
        "300ms",
        "--json",
    ];
    let run = place.fathom(&on).json();
    let rows = run["rows"].as_array().unwrap();
    for id in ["O017", "O020"] {
        let row = rows.iter().find(|r| r["id"] == id).unwrap();
        let note = row["note"].as_str().unwrap();
        assert!(!note.contains("29990101"), "{note}");
        // What it has is its own; what it has not it says.
        let own = names(&place.runs()).into_iter().any(|n| note.contains(&n));
        assert!(own, "{note}");
        assert!(row["ours"].as_f64().is_none_or(|v| v > 1e-3), "{row}");
    }
    let named = run["run_directory"].as_str().unwrap();
    assert!(place.dir.join(named).join("run.json").exists(), "{named}");
}

/// A short TPC-C run on one database.
pub(crate) fn tpcc<'a>(database: &'a str, time: &'a str) -> [&'a str; 13] {
    [
        "db",
        "tpcc",
        ".",
        "--database",
        database,
        "--terminals",
        "4",
        "--time",
        time,
        "--repeats",
        "1",
        "--no-embedded",
        "--json",
    ]
}

/// Runs it, and looks at conditions 1 to 12 before and after, at its rate, and at what is left; with a setting to try, at what was
/// tried.
pub(crate) fn conditions_hold(place: &Place, database: &str, tried: Option<&str>) {
    let line = tpcc(database, "1s");
    let with = tried.map(|setting| ["--try", setting]);
    let args: Vec<&str> = line.into_iter().chain(with.into_iter().flatten()).collect();
    let Some(json) = found(place.fathom(&args)) else {
        return;
    };
    promised(&json);
    if let Some(setting) = tried {
        let row = &table(&json, "tpcc-try-tried")["rows"][0];
        assert_eq!((&row[0], &row[1]), (&"TPC-C".into(), &setting.into()));
        assert!(is_rate(&row[2]) && is_rate(&row[3]), "{row}");
        let both = &table(&json, "tpcc-table")["rows"];
        assert_eq!(
            (&both[0][0], &both[1][0]),
            (&database.into(), &format!("{database}, {setting}").into())
        );
        // What it was without it is what the database does.
        let mut headlines = ids(&json, "headlines");
        headlines.retain(|h| h.starts_with("tpcc-"));
        assert_eq!(headlines, [format!("tpcc-{database}")]);
    }
    let rows = table(&json, "tpcc-consistency")["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    for row in rows {
        assert_eq!(
            (&row[2], &row[3]),
            (&"holds".into(), &"holds".into()),
            "{row}"
        );
    }
    let rate = &table(&json, "tpcc-table")["rows"][0];
    assert!(is_rate(&rate[1]), "{rate}");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn tpcc_holds_its_consistency_conditions_on_sqlite() {
    let _turn = beside_others();
    conditions_hold(&Place::new(), "sqlite", None);
}

#[test]
fn tpcc_holds_its_consistency_conditions_on_mariadb() {
    let _turn = beside_others();
    if mariadb() {
        conditions_hold(&Place::new(), "mariadb", Some("innodb_flush_neighbors=0"));
    }
}

#[test]
fn a_killed_lab_leaves_no_server_and_clean_finds_its_directory() {
    let _turn = beside_others();
    let place = Place::new();
    let database = if has("mariadbd") && has("my_print_defaults") {
        "mariadb"
    } else {
        "sqlite"
    };
    let mut child = place.start(&[
        "db",
        "tpcc",
        ".",
        "--database",
        database,
        "--time",
        "60s",
        "--no-embedded",
    ]);
    let lab = |place: &Place| {
        let found = place.names();
        found.into_iter().find(|n| n.starts_with(".fathom-lab-"))
    };
    let serving = |place: &Place| {
        lab(place).is_some_and(|n| {
            let dir = place.dir.join(n).join(database);
            dir.join("server.log").exists() || dir.join("tpcc.db").exists()
        })
    };
    // A small busy machine may need long to make a server's first files.
    let (mut ended, mut begun) = (false, false);
    for _ in 0..1500 {
        ended = child.try_wait().unwrap().is_some();
        begun = serving(&place);
        if ended || begun {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    if ended {
        let said = end(child);
        assert!(no_room(&said), "{}", said.stderr);
        return;
    }
    if !begun {
        send(child.id(), libc::SIGINT);
        end(child);
        skip("no server was made in 150 s: this machine is too busy");
        return;
    }
    let name = lab(&place).unwrap();
    send(child.id(), libc::SIGKILL);
    end(child);
    // No process has the directory in its command line any more.
    until("the server is gone", || {
        !std::fs::read_dir("/proc").unwrap().flatten().any(|p| {
            let line = std::fs::read(p.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&name)
        })
    });
    let said = place.fathom(&["clean", "."]).expect(0);
    assert!(said.stdout.contains(&name), "{}", said.stdout);
    assert!(lab(&place).is_none());
}

#[test]
fn innodb_is_measured_on_a_server_of_its_own() {
    let _turn = beside_others();
    if !mariadb() {
        return;
    }
    let place = Place::new();
    let said = place.fathom(&[
        "db",
        "mysql",
        ".",
        "--experiment",
        "cache",
        "--rows",
        "5000",
        "--time",
        "300ms",
        "--repeats",
        "1",
        "--no-embedded",
        "--threads",
        "4",
        "--json",
    ]);
    let Some(json) = found(said) else { return };
    promised(&json);
    assert_eq!(ids(&json, "sections"), ["oltp-cache"]);
    let rows = table(&json, "oltp-cache-table")["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "one pool, three kinds of transactions");
    assert!(rows.iter().all(|r| is_rate(&r[6])));
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn servers_work_in_directories_of_any_name_and_length() {
    let _turn = beside_others();
    if !mariadb() {
        return;
    }
    let place = Place::new();
    let strange = format!("it's 50% \"of\" a b, ä=c;$x\\ {}", "long".repeat(25));
    let dir = place.dir.join(strange);
    std::fs::create_dir(&dir).unwrap();
    let mut all = vec![
        "db mysql DIR --experiment one --rows 2000 --threads 2 --workload mixed --driver sysbench",
        "db tpcc DIR --warehouses 1 --terminals 2 --database postgresql",
    ];
    if has("db_bench") {
        all.push("db rocksdb DIR --keys 2000 --workload fillrandom,readrandom");
    }
    for line in all {
        let words = format!("{line} --no-embedded --time 300ms --repeats 1 --json");
        let words: Vec<&str> = words
            .split(' ')
            .map(|w| if w == "DIR" { dir.to_str().unwrap() } else { w })
            .collect();
        let Some(json) = found(place.fathom(&words)) else {
            continue;
        };
        let headlines = json["headlines"].as_array().unwrap();
        let measured = headlines.iter().filter(|h| !h["estimate"].is_null());
        assert!(measured.count() > 0, "{line}: {headlines:?}");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "{line}");
    }
}

#[test]
fn a_server_carries_what_it_answers_within_the_objective() {
    let _turn = beside_others();
    if !mariadb() {
        return;
    }
    let place = Place::new();
    let how = "db mysql . --experiment objective --p99 1h --rows 2000 --threads 4 --workload mixed";
    let line = format!("{how} --no-embedded --time 500ms --repeats 1 --json");
    let rate = |r: &Value, column: usize| r[column]["value"].as_f64().unwrap_or(0.0);
    let steps = |json: &Value| {
        let rows = table(json, "oltp-objective-steps")["rows"].as_array();
        rows.cloned().unwrap()
    };
    // A machine that stands still for half a second answers nothing in time, and its step is void: then once more.
    let mut seen = Vec::new();
    let json = (0..3).find_map(|_| {
        let said = place.fathom(&line.split(' ').collect::<Vec<_>>());
        if said.code == Some(1) && said.stdout.starts_with('{') {
            let run = said.json();
            let mut jobs = run["jobs"].as_array().unwrap().iter();
            let is_void = |j: &Value| {
                j["flags"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|f| f["void"] == true)
            };
            assert!(jobs.any(is_void), "{}", run["headlines"]);
            seen.push("void".to_owned());
            return None;
        }
        let json = found(said)?;
        promised(&json);
        let rows = steps(&json);
        // Little is answered as it comes: not faster, though nobody waits.
        let shares: Vec<f64> = rows.iter().map(|r| rate(r, 2) / rate(r, 1)).collect();
        seen.push(format!("{shares:?}"));
        let near = shares.iter().take(3).any(|s| (0.5..1.6).contains(s));
        // 20 to 100 % of what a closed loop did.
        (near && rows.len() == 7).then_some(json)
    });
    if seen.is_empty() {
        return;
    }
    let Some(json) = json else {
        assert!(seen.iter().all(|s| s == "void"), "{seen:?}");
        return skip("a step was void in each of three runs: this machine is too busy");
    };
    let rows = steps(&json);
    let came: Vec<f64> = rows.iter().map(|r| rate(r, 1)).collect();
    assert!(came.is_sorted() && came[0] > 0.0, "{came:?}");
    let words: Vec<&str> = rows.iter().map(|r| r[5].as_str().unwrap()).collect();
    let known = ["holds", "broken", "not shown"];
    assert!(words.iter().all(|w| known.contains(w)), "{words:?}");
    let carried = &json["headlines"].as_array().unwrap()[0];
    assert_eq!(carried["id"], "oltp-objective-mixed-carried");
    let none = carried["estimate"].is_null();
    assert_eq!(none, words[0] != "holds", "{words:?}");
}

#[test]
fn database_labs_refuse_what_cannot_be() {
    let _turn = beside_others();
    let place = Place::new();
    for (args, said) in [
        (
            &["db", "mysql", ".", "--experiment", "speed"][..],
            "expected page-size",
        ),
        (&["db", "mysql", ".", "--pool", "1m"], "21m or more"),
        (
            &["db", "rocksdb", ".", "--workload", "fill"],
            "expected one of fillseq",
        ),
        (
            &["db", "mysql", ".", "--try", "innodb_io_capacity"],
            "expected NAME=VALUE",
        ),
        (
            &["db", "mysql", ".", "--set", "log_error=/etc/x"],
            "no path",
        ),
        (
            &["db", "mysql", ".", "--experiment", "try"],
            "belong together",
        ),
        (&["kv", ".", "--beside", "oracle"], "expected one of redb"),
        (&["app", "swap", ".", "--share", "1"], "expected 5 to 100"),
        (&["app", "copy", "no-such-place"], "is no directory"),
        (&["db", "tpcc", ".", "--size", "1m"], "64m or more"),
        (&["db", "tpcc", ".", "--size", "64m"], "a warehouse has"),
        (
            &["db", "mysql", ".", "--size", "64m", "--rows", "5000"],
            "exclude each other",
        ),
        (
            &[
                "db",
                "mysql",
                ".",
                "--socket",
                "s",
                "--experiment",
                "cache,compression",
            ],
            "it can show threads, one, objective and try",
        ),
        // A free name would become a file of --size that is kept.
        (&["db", "mysql", "new"], "needs a file system"),
        (&["db", "tpcc", "new"], "needs a file system"),
        (&["db", "rocksdb", "new"], "needs a file system"),
        (&["app", "swap", "new"], "is no directory"),
        (
            &["vm", ".", "--ssh=-oProxyCommand=touch ran"],
            "does not begin with '-'",
        ),
        (
            &[
                "vm",
                ".",
                "--ssh=a",
                "--ssh-fathom=-oProxyCommand=touch ran",
            ],
            "does not begin with '-'",
        ),
    ] {
        let refused = place.fathom(args).refusal();
        assert!(refused.contains(said), "{args:?}: {refused}");
    }
    assert!(place.names().is_empty() && !place.runs().exists());
}
