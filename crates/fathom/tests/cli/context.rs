//! What a run says of where it was made: price, cloud, configuration, and what is left of it where it is shared.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;

use crate::common::{Place, beside_others, names};

/// A short job on a model; its run directory.
fn measured(place: &Place, model: &str, more: &[&str]) -> String {
    let out = place.runs().join(model);
    let target = format!("sim:{model}");
    let job = [
        "run",
        &target,
        "--qd",
        "4",
        "--time",
        "20ms",
        "--out",
        out.to_str().unwrap(),
    ];
    place.fathom(&[&job[..], more].concat()).expect(0);
    let all = names(&out);
    out.join(all.last().unwrap()).display().to_string()
}

#[test]
fn a_price_is_in_the_capsule_and_divides_what_drives_do() {
    let _turn = beside_others();
    let place = Place::new();
    let optane = measured(&place, "optane-900p", &["--price", "$549"]);
    let p3700 = measured(&place, "intel-p3700", &[]);
    let text = fs::read_to_string(format!("{optane}/run.json")).unwrap();
    let run: serde_json::Value = serde_json::from_str(&text).unwrap();
    let price = &run["environment"]["price"];
    assert_eq!(
        (price["amount"].as_f64(), price["per"].as_str()),
        (Some(549.0), Some("once"))
    );
    let per_gb = price["per_gb"].as_f64().unwrap();
    assert!((per_gb - 549.0 / 480.0).abs() < 0.01, "{price}");
    let page = fs::read_to_string(format!("{optane}/report.html")).unwrap();
    assert!(page.contains("$549, $1.14 per GB"));
    // Also afterwards.
    place.fathom(&["runs", &p3700, "--price", "$700"]).expect(0);
    let said = place
        .fathom(&["compare", "--devices", &optane, &p3700])
        .expect(0)
        .stdout;
    for part in [
        "$549, $1.14 per GB",
        "$700, $0.875 per GB",
        "for each unit of price",
    ] {
        assert!(said.contains(part), "{part} not in\n{said}");
    }
    // One is bought and one is rented: nothing follows.
    place
        .fathom(&["runs", &p3700, "--price", "0.12/h"])
        .expect(0);
    let said = place
        .fathom(&["compare", "--devices", &optane, &p3700])
        .expect(0);
    assert!(
        said.stderr.contains("cannot be held against each other"),
        "{}",
        said.stderr
    );
    assert!(
        !said.stdout.contains("for each unit of price"),
        "{}",
        said.stdout
    );
    let wrong = place
        .fathom(&["survey", "sim:hdd", "--price", "cheap"])
        .refusal();
    assert!(wrong.contains("0.12/h"), "{wrong}");
}

#[test]
fn a_cloud_is_asked_only_where_it_was_asked_for() {
    let _turn = beside_others();
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let asked = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for link in listener.incoming() {
            let mut link = link.unwrap();
            let mut head = String::new();
            let mut lines = BufReader::new(link.try_clone().unwrap());
            while lines.read_line(&mut head).unwrap_or(0) > 2 {}
            let google = head.contains("Metadata-Flavor: Google");
            let _ = write!(
                link,
                "HTTP/1.0 {}\r\n\r\n",
                if google { "200 OK" } else { "404 Not Found" }
            );
            if google {
                let _ = write!(
                    link,
                    r#"{{"machineType":"projects/1/machineTypes/n2-standard-8","disks":[{{"deviceName":"data","type":"LOCAL-SSD"}}]}}"#
                );
            }
            heads.push(head.clone());
            if google || head.contains("/end") {
                break;
            }
        }
        heads
    });
    let run = |cloud: &[&str]| {
        let job = ["run", "sim:optane-900p", "--time", "20ms"];
        let mut command: Command = place.command(&[&job[..], cloud].concat());
        command.env("FATHOM_CLOUD_METADATA", &at);
        assert!(command.output().unwrap().status.success());
    };
    run(&[]);
    run(&["--cloud"]);
    let heads = asked.join().unwrap();
    let of_cloud = names(&place.runs());
    let cloud = |i: usize| {
        let text = fs::read(place.runs().join(&of_cloud[i]).join("run.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()["environment"]["cloud"].clone()
    };
    assert!(cloud(0).is_null(), "not asked for");
    assert_eq!(cloud(1)["instance_type"], "n2-standard-8");
    assert_eq!(cloud(1)["volumes"][0]["kind"], "LOCAL-SSD");
    assert!(
        heads.iter().all(|h| h.is_empty() || h.contains("HTTP/1.0")),
        "{heads:?}"
    );
    // Nobody listens there any more: the run goes on.
    let mut command = place.command(&["run", "sim:optane-900p", "--time", "20ms", "--cloud"]);
    let said = command.env("FATHOM_CLOUD_METADATA", &at).output().unwrap();
    assert!(said.status.success());
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("no metadata service"), "{said}");
}

#[test]
fn what_is_shared_holds_no_name_serial_number_or_path() {
    let _turn = beside_others();
    let place = Place::new();
    let data = place.dir.join("customer-x");
    fs::create_dir(&data).unwrap();
    let job = [
        "run",
        data.to_str().unwrap(),
        "--rw",
        "randread",
        "--size",
        "4m",
        "--time",
        "50ms",
        "--buffered",
        "--note",
        "for mallory",
    ];
    place.fathom(&job).expect(0);
    let dir = place.the_run_dir();
    // As of a machine with names and a drive with a number, owned by somebody.
    let file = dir.join("run.json");
    let mut run = place.the_run();
    run["environment"]["kernel"]["host"] = "db-prod-7".into();
    run["environment"]["storage"]["devices"] = serde_json::json!([{"name": "nvme0n1", "model": "FAST 1TB", "serial": "S4EVNX0R1234", "size_bytes": 1}]);
    run["findings"] = serde_json::json!([]);
    run["labels"]["note"] = "S4EVNX0R1234 of mallory in db-prod-7".into();
    fs::write(&file, serde_json::to_vec(&run).unwrap()).unwrap();
    let before = fs::read(&file).unwrap();
    let share = place.runs().join("../share");
    let fathom = |format: &[&str]| {
        let mut command =
            place.command(&[&["report", dir.to_str().unwrap(), "--redact"], format].concat());
        let said = command.env("USER", "mallory").output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap()
    };
    let mut all = vec![
        ("--json", fathom(&["--json"])),
        ("terminal", fathom(&["--format", "terminal"])),
    ];
    let formats = [
        ("html", "report.html"),
        ("json", "run.json"),
        ("markdown", "report.md"),
        ("openmetrics", "metrics.prom"),
    ];
    for (format, name) in formats {
        fathom(&["--format", format, "--out", share.to_str().unwrap()]);
        all.push((format, fs::read_to_string(share.join(name)).unwrap()));
    }
    let base = place
        .dir
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    for (format, text) in &all {
        for secret in ["db-prod-7", "S4EVNX0R1234", "mallory", "customer-x", &base] {
            assert!(!text.contains(secret), "{secret} in {format}:\n{text}");
        }
    }
    assert!(all[2].1.contains("FAST 1TB"), "what was measured stays");
    assert_eq!(
        fs::read(&file).unwrap(),
        before,
        "the run itself stays as it is"
    );
    let said = place
        .fathom(&["report", dir.to_str().unwrap(), "--redact"])
        .refusal();
    assert!(said.contains("--out"), "{said}");
}

/// What `fathom watch --listen` serves is held to it beside that code.
#[test]
fn the_dashboard_draws_what_is_exported() {
    let _turn = beside_others();
    let place = Place::new();
    let dir = measured(&place, "optane-900p", &[]);
    let file = format!("{dir}/run.json");
    let mut run: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    run["jobs"][0]["flags"] =
        serde_json::json!([{"code": "cpu-bound", "void": false, "detail": "d", "remedy": "r"}]);
    fs::write(&file, serde_json::to_vec(&run).unwrap()).unwrap();
    place
        .fathom(&["report", &dir, "--format", "openmetrics", "--out", "."])
        .expect(0);
    let exported = fs::read_to_string(place.dir.join("metrics.prom")).unwrap();
    let dashboard = include_str!("../../../../packaging/grafana-dashboard.json");
    let drawn: Vec<&str> = dashboard
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|w| w.starts_with("fathom_") && !w.starts_with("fathom_watch_"))
        .collect();
    assert!(drawn.len() > 5, "{drawn:?}");
    for name in drawn {
        let sample = format!("\n{name}{{target=");
        assert!(exported.contains(&sample), "{name} not in\n{exported}");
    }
}

#[test]
fn a_configuration_of_the_directory_gives_defaults_and_presets() {
    let _turn = beside_others();
    let place = Place::new();
    let file = place.dir.join("fathom.toml");
    fs::write(&file, "[defaults.run]\ntime = '30ms'\nlabel = ['by=config']\n[preset.shop]\nrw = 'randrw'\nbs = '16k'\nread-share = 80\nlatency = '2ms'\n").unwrap();
    place
        .fathom(&["run", "sim:optane-900p", "--preset", "shop", "--bs", "32k"])
        .expect(0);
    let run = place.the_run();
    let spec = &run["jobs"][0]["spec"];
    assert_eq!(
        (spec["rw"].as_str(), spec["bs"].as_str()),
        (Some("randrw"), Some("32k")),
        "{spec}"
    );
    assert_eq!(run["labels"]["by"], "config");
    let line = run["command_line"].as_array().unwrap();
    assert!(line.iter().any(|w| w == "--time=30ms"), "{line:?}");
    let said = place
        .fathom(&["slo", "sim:optane-900p", "--preset", "shop", "--dry-run"])
        .expect(0);
    assert!(!said.stdout.is_empty());
    let said = place
        .fathom(&["run", "sim:optane-900p", "--preset", "shoe"])
        .refusal();
    assert!(said.contains("shop"), "{said}");
    // An error names what was not typed.
    fs::write(&file, "[defaults.run]\nqd = 'many'\n").unwrap();
    let said = place.fathom(&["run", "sim:optane-900p"]).refusal();
    assert!(said.contains("qd"), "{said}");
    fs::write(&file, "[defaults]\ndestroy = 'S1'\n").unwrap();
    let said = place.fathom(&["devices"]).refusal();
    assert!(said.contains("has to be typed"), "{said}");
    // A file that others may write is left out, and said.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let said = place.fathom(&["sim", "list"]).expect(0);
    assert!(said.stderr.contains("left out"), "{}", said.stderr);
}
