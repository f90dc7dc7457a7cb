//! `fathom doctor` from outside: what is said to be here is, and what is missing comes with a command.

use serde_json::Value;

use crate::common::Place;

fn checks(place: &Place, path: Option<&str>) -> Vec<Value> {
    let mut command = place.command(&["doctor", "--json"]);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let out = command.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn named<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|c| c["name"] == name).unwrap()
}

#[test]
fn what_is_missing_comes_with_the_command_that_brings_it() {
    let place = Place::new();
    let all = checks(&place, None);
    for check in &all {
        // Either it is here, or why not and what to do.
        assert_ne!(
            check["found"].is_null(),
            check["missing"].is_null(),
            "{check}"
        );
        assert_eq!(
            check["missing"].is_null(),
            check["remedy"].is_null(),
            "{check}"
        );
        assert!(!check["commands"].as_str().unwrap().is_empty(), "{check}");
    }
    let is_root = rustix::process::geteuid().is_root();
    let allowed = is_root && fathom_system::programs::may_administer();
    assert_eq!(!named(&all, "root")["found"].is_null(), allowed);
    let qemu = crate::common::machine::find("qemu-system-x86_64");
    assert_eq!(!named(&all, "QEMU")["found"].is_null(), qemu.is_some());

    // Root of most containers may do little: it is not called root.
    if allowed && crate::common::machine::find("setpriv").is_some() {
        let fathom = place.command(&["doctor", "--json"]);
        let said = std::process::Command::new("setpriv")
            .args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"])
            .arg(fathom.get_program())
            .args(fathom.get_args())
            .current_dir(&place.dir)
            .output()
            .unwrap();
        let all: Vec<Value> = serde_json::from_slice(&said.stdout).unwrap();
        let why = named(&all, "root")["missing"].as_str().unwrap();
        assert!(why.contains("CAP_SYS_ADMIN"), "{why}");
    }

    // Without a PATH the programs in it are gone, and one command names all that brings them.
    let bare = checks(&place, Some("/nonexistent"));
    for (name, package) in [
        ("QEMU", "qemu-system-x86"),
        ("sysbench", "sysbench"),
        ("Chromium", "chromium"),
    ] {
        let check = named(&bare, name);
        assert!(check["found"].is_null(), "{check}");
        assert_eq!(check["packages"][0], package);
    }
    let mut command = place.command(&["doctor"]);
    let out = command.env("PATH", "/nonexistent").output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    let brings = said.split("What packages bring").nth(1).unwrap();
    for package in ["qemu-system-x86", "sysbench", "chromium"] {
        let times = brings.split_whitespace().filter(|w| *w == package).count();
        assert_eq!(times, 1, "{said}");
    }
    assert!(said.contains("fathom survey needs none of it"));
}
