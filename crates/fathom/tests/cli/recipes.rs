//! What `packaging/` has for many hosts does what `docs/fleet.md` says of it. A real Slurm runs its batch script in
//! `bench/fleet`, Kubernetes' own schemas read its manifests in `bench/packages`.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::common::{Place, beside_others, end, machine, send, skip, wait};
use crate::fleet_rig::Rig;

const JOB: &str = include_str!("../../../../packaging/kubernetes-fleet.yaml");
const JOB_SET: &str = include_str!("../../../../packaging/kubernetes-fleet-jobset.yaml");
const CONTAINER: &str = include_str!("../../../../packaging/Containerfile");
const SURVEY: &str = include_str!("../../../../packaging/kubernetes-job.yaml");

/// The only line of a text that begins so, without what it begins with.
#[track_caller]
fn the<'a>(text: &'a str, begins: &str) -> &'a str {
    let mut found = text.lines().filter_map(|l| l.trim().strip_prefix(begins));
    let first = found
        .next()
        .unwrap_or_else(|| panic!("no '{begins}' in {text}"));
    assert_eq!(found.next(), None, "'{begins}' twice");
    first.trim()
}

#[test]
fn pods_of_the_manifests_wait_until_they_are_ended() {
    let _turn = beside_others();
    let pod = |text: &'static str| {
        let lines = text.lines().map(str::trim);
        let from = lines.skip_while(|l| *l != "labels: {app: fathom}");
        let said = from.filter(|l| !l.starts_with('#') && *l != "subdomain: fathom");
        said.collect::<Vec<_>>()
    };
    assert_eq!(pod(JOB), pod(JOB_SET), "JobSet starts the same pods");
    assert_eq!(the(JOB, "image: "), the(SURVEY, "image: "));
    let words: Vec<String> = serde_json::from_str(the(JOB, "command: ")).unwrap();
    let copied = the(CONTAINER, "COPY ");
    assert_eq!(copied.split(' ').next_back(), Some(words[0].as_str()));
    assert_eq!(the(JOB, "stdin: "), "true", "its input stays open");
    let place = Place::new();
    let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let mut waits = place.command(&arguments);
    let mut pod = waits.stdin(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(pod.try_wait().unwrap(), None, "it waits");
    send(pod.id(), libc::SIGTERM);
    let mut said = String::new();
    let ended = pod.wait().unwrap();
    pod.stdout.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((ended.code(), said.as_str()), (Some(0), ""));
}

#[test]
fn ansible_places_the_binary_that_hosts_then_run() {
    let _turn = beside_others();
    let Some(ansible) = machine::find("ansible-playbook") else {
        return skip("ansible-playbook is missing: apt-get install ansible-core");
    };
    let Some(rig) = Rig::ssh() else { return };
    let placed = rig.place.base().join("placed");
    let own = env!("CARGO_BIN_EXE_fathom");
    let play = || {
        let mut play = Command::new(&ansible);
        play.arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/ansible-fathom.yml"
        ))
        .args(["-i", "h1,", "-e", &format!("fathom={own}")])
        .args(["-e", &format!("place={}", placed.display())])
        // Nothing of it outside of this place, and no connection that outlives it.
        .env("ANSIBLE_HOME", rig.place.base().join("ansible"))
        .env("ANSIBLE_LOCAL_TEMP", rig.place.base().join("ansible"))
        .env("ANSIBLE_REMOTE_TMP", rig.place.base().join("ansible"))
        .env("ANSIBLE_SSH_ARGS", "")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
        rig.hosts().unwrap().enter(&mut play);
        wait(play).expect(0).stdout
    };
    let first = play();
    let version = format!("fathom {}", env!("CARGO_PKG_VERSION"));
    assert!(
        first.contains(&version) && first.contains("changed=1"),
        "{first}"
    );
    assert!(play().contains("changed=0"), "placed once");
    let dir = rig.place.dir.display().to_string();
    let line = ["run", &dir, "--size", "4m", "--time", "100ms", "--json"];
    let on = ["--hosts", "h1", "--hosts-fathom", placed.to_str().unwrap()];
    let run = end(rig.fathom(&[&line[..], &on[..]].concat()).spawn().unwrap());
    let run = run.expect(0).json();
    assert_eq!(run["environment"]["hosts"][0]["called"], "h1");
}
