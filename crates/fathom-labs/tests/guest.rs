//! Guests from outside: a kernel boots, fathom is its first process, jobs run in it, nothing is left behind.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use fathom_bench::Bench;
use fathom_io::driver::PlannedJob;
use fathom_io::{Control, JobSpec};
use fathom_labs::guest::RemoteBench;
use fathom_labs::guest::remote::Opening;
use fathom_system::SystemError;
use fathom_system::guest::{Backing, Disk, DiskModel, Guest, Kernel, Machine};
use fathom_telemetry::{Bytes, FlagCode, Nanos};

mod common;

use common::supply;

/// One guest at a time: they share two processors with everything else.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

fn null(size: Bytes) -> Disk {
    Disk::new(Backing::Null { size })
}

#[test]
fn a_guest_boots_and_runs_fathom_and_its_run_directory_comes_back() {
    let _turn = turn();
    let Some(mut supply) = supply() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, vec![7u8; 64 << 20]).unwrap();
    let disk = Disk::new(Backing::Part {
        path: file.clone(),
        offset: 0,
        size: Bytes::mib(64),
    });
    let mut guest = supply.boot(&Machine::new(vec![disk])).unwrap();
    println!("booted in {}: {:?}", guest.booted_in, guest.hello);
    let (output, runs) = guest
        .fathom(
            &[
                "run", "/dev/vda", "--rw", "randread", "--qd", "4", "--time", "300ms", "--json",
            ],
            dir.path(),
        )
        .unwrap();
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!(runs.len(), 1, "{output:?}");
    let (_, run) = fathom_telemetry::rundir::RunDir::open(&runs[0]).unwrap();
    assert!(
        run.jobs[0].read.as_ref().unwrap().ios > 10,
        "{:?}",
        run.jobs[0].read
    );
    assert!(runs[0].join("series.parquet").is_file());
    let kernel = run.environment.to_string();
    assert!(
        kernel.contains(&supply.kernel.version),
        "the capsule is the guest's: {kernel}"
    );
    let pid = guest.pid();
    guest.off();
    assert!(
        !Path::new(&format!("/proc/{pid}")).exists(),
        "QEMU has ended"
    );
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        2,
        "the disk and the run"
    );
}

fn opening() -> Opening {
    Opening {
        target: "/dev/vda".into(),
        modifies: false,
        size: None,
        destroy: None,
    }
}

fn job(name: &str) -> JobSpec {
    JobSpec {
        name: name.into(),
        qd: 2,
        time: Some(Nanos::from_millis(400)),
        ..JobSpec::default()
    }
}

#[test]
fn two_guests_begin_within_fifty_milliseconds_of_each_other() {
    let _turn = turn();
    let Some(mut supply) = supply() else {
        return;
    };
    let machine = Machine::new(vec![null(Bytes::gib(1))]);
    let guests: Vec<Guest> = (0..2).map(|_| supply.boot(&machine).unwrap()).collect();
    let stamps = supply.stamps();
    let mut bench = RemoteBench::open(guests, &opening(), Control::new(), stamps).unwrap();
    let mut skews = Vec::new();
    // A busy machine may wake one of them late: three attempts.
    for attempt in 0..3 {
        let planned: Vec<PlannedJob> = ["vm1", "vm2"]
            .iter()
            .map(|n| PlannedJob::new(job(n).validate(&bench.limits()).unwrap()))
            .collect();
        let measures = bench.run(&planned, None, &mut ()).unwrap();
        assert_eq!([&measures[0].name, &measures[1].name], ["vm1", "vm2"]);
        for m in &measures {
            assert!(m.read.as_ref().unwrap().ios > 10);
            let emulated = m.flags.iter().any(|f| f.code == FlagCode::Emulated);
            assert_eq!(emulated, supply.accelerator.is_emulated());
        }
        let skew = Nanos(measures[0].start_ns.abs_diff(measures[1].start_ns));
        println!("attempt {attempt}: two guests began {skew} apart");
        skews.push(skew);
        if skew <= Nanos::from_millis(50) {
            break;
        }
    }
    Box::new(bench).close().unwrap();
    assert!(
        skews.iter().any(|s| *s <= Nanos::from_millis(50)),
        "{skews:?}"
    );
}

#[test]
fn every_disk_model_can_be_written_under_the_safety_rules() {
    let _turn = turn();
    let Some(mut supply) = supply() else {
        return;
    };
    let models = [
        (DiskModel::VirtioScsi, "/dev/sda"),
        (DiskModel::Nvme, "/dev/nvme0n1"),
        (DiskModel::VirtioBlk, "/dev/vda"),
    ];
    // One guest has them all: a boot takes seconds.
    let disks = models.map(|(model, _)| Disk {
        model,
        ..null(Bytes::gib(1))
    });
    let guest = supply.boot(&Machine::new(disks.into())).unwrap();
    let opening = |i: usize| Opening {
        target: models[i].1.into(),
        modifies: true,
        size: None,
        destroy: Some(Disk::serial(i)),
    };
    let mut bench =
        RemoteBench::open(vec![guest], &opening(0), Control::new(), Vec::new()).unwrap();
    for (i, (model, device)) in models.into_iter().enumerate() {
        if i > 0 {
            bench.open_another(&opening(i)).unwrap();
        }
        let mut spec = job("write");
        spec.set("rw", "randwrite").unwrap();
        let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
        let measures = bench.run(&planned, None, &mut ()).unwrap();
        assert!(
            measures[0].write.as_ref().unwrap().ios > 10,
            "{model:?}: {:?}",
            measures[0].flags
        );
        let refused = wanted_without_serial(&mut bench, device);
        assert!(
            refused.contains("destroy") || refused.contains("serial"),
            "{refused}"
        );
    }
    Box::new(bench).close().unwrap();
}

/// What the guest says where the serial was not typed.
fn wanted_without_serial(bench: &mut RemoteBench, device: &str) -> String {
    use fathom_system::guest::wire::Ask;
    let guest = &mut bench.guests()[0];
    guest.ask(&Ask::Close, &[]).unwrap();
    guest.answer().unwrap();
    let ask = Ask::Open {
        target: device.into(),
        wanted: Box::new(fathom_io::Wanted {
            modifies: true,
            direct: true,
            ..fathom_io::Wanted::default()
        }),
        joins: None,
    };
    guest.ask(&ask, &[]).unwrap();
    match guest.answer() {
        Err(SystemError::Refused(e)) => e,
        other => panic!("{:?}", other.map(|a| a.0)),
    }
}

#[test]
fn a_guest_that_never_boots_is_given_up_with_what_it_said() {
    let _turn = turn();
    let Some(mut supply) = supply() else {
        return;
    };
    supply.boot_limit = Nanos::from_secs(2);
    // A kernel that halts at once: the header of a real one, and nothing that works behind it.
    let dir = tempfile::tempdir().unwrap();
    let mut image = std::fs::read(&supply.kernel.image).unwrap();
    image[0x4000..0x40000].fill(0xf4);
    let broken = dir.path().join("vmlinuz-broken");
    std::fs::write(&broken, image).unwrap();
    supply.kernel.image = broken;
    let began = fathom_io::clock::monotonic();
    let Err(e) = supply.boot(&Machine::new(vec![null(Bytes::gib(1))])) else {
        panic!("it booted")
    };
    let took = fathom_io::clock::monotonic().since(began);
    let e = e.to_string();
    assert!(
        e.contains("did not answer within") || e.contains("ended before it was ready"),
        "{e}"
    );
    assert!(took < Nanos::from_secs(8), "{took}");
}

#[test]
fn qemu_dies_with_the_fathom_that_was_killed() {
    let _turn = turn();
    let Some(mut supply) = supply() else {
        return;
    };
    // A process of its own boots the guest, says its number, and is killed.
    if std::env::var_os("FATHOM_TEST_BOOTS").is_some() {
        let guest = supply
            .boot(&Machine::new(vec![null(Bytes::gib(1))]))
            .unwrap();
        println!("PID {}", guest.pid());
        loop {
            std::thread::park();
        }
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "qemu_dies_with_the_fathom_that_was_killed",
            "--nocapture",
        ])
        .env("FATHOM_TEST_BOOTS", "1")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let said = lines
        .map_while(Result::ok)
        .find_map(|l| Some(l.split_once("PID ")?.1.to_owned()));
    let pid: u32 = said.expect("the guest booted").trim().parse().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
    assert!(gone, "QEMU {pid} is still there");
}

#[test]
fn missing_parts_are_named_with_how_to_get_them() {
    let nowhere = Path::new("/nowhere/vmlinuz");
    let e = Kernel::find(Some(nowhere)).unwrap_err().to_string();
    assert!(e.contains("fathom doctor --fetch"), "{e}");
}
