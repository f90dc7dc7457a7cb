//! Devices whose latency and depth are known: null_blk, dm-delay, a throttled NVMe drive. What the guest itself takes is known
//! from a completion that comes at once; fathom must add nothing to what the device takes beyond it.

use serde_json::Value;

use crate::common::skip;
use crate::rig::{Rig, hold, in_bench, row};

/// 100 I/Os per second, exactly.
const MACHINE: &str = "\
 -object throttle-group,id=tg,x-iops-total=100 -blockdev driver=null-co,node-name=n,size=268435456,read-zeroes=on \
 -blockdev driver=throttle,node-name=t,file=n,throttle-group=tg -device nvme,serial=NV-SLOW,drive=t";

/// Time is what instructions take, 1 ns each, whatever else the host does: timers fire when they are due. QEMU's own throttle is
/// on the host's time, and has a guest of its own.
const COUNTED: &str = "-icount shift=0,sleep=off";
/// A processor that halts would wait by the host's time: this one does not halt.
const CLOCKS: &str = "idle=poll";

const ENGINES: [&str; 3] = ["uring", "libaio", "preadv"];
/// Of what the device takes.
const WITHIN: f64 = 0.03;

#[test]
fn known_latencies_and_depths_are_found() {
    if !in_bench() {
        return skip("it keeps a processor busy, and tests beside it late: bench/devices runs it");
    }
    let modules = ["null_blk", "dm_mod", "dm_delay", "configfs"];
    let Some(mut rig) = Rig::boot_with(&[], COUNTED, &modules, "") else {
        return;
    };
    if !rig.bring("dmsetup") {
        return;
    }
    // A slow disk that has a queue of eight.
    for (name, ns) in [
        ("0", 0),
        ("100us", 100_000),
        ("1ms", 1_000_000),
        ("10ms", 10_000_000),
    ] {
        null_block(&mut rig, name, ns);
    }
    programmed(&mut rig);
    delayed(&mut rig);
    knee(&mut rig);
    rig.off();
    if let Some(mut rig) = Rig::boot_with(&[], MACHINE, &["nvme"], CLOCKS) {
        throttled(&mut rig);
        rig.off();
    }
}

/// The name that the kernel gave it.
fn null_block(rig: &mut Rig, name: &str, ns: u64) -> String {
    rig.line(&format!("before=$(ls /sys/block); d=/sys/kernel/config/nullb/t{name}; mkdir $d && cd $d && echo 256 > size && echo 2 > queue_mode && echo 2 > irqmode && echo {ns} > completion_nsec && echo 8 > hw_queue_depth && echo 1 > submit_queues && echo 1 > power; for b in $(ls /sys/block); do case \" $(echo $before) \" in *\" $b \"*) ;; *) ln -s $b /dev/null-{name}; echo $b ;; esac; done"))
}

/// The least, the middle and the mean latency, ns, and I/Os per second.
struct Seen {
    least: f64,
    middle: f64,
    iops: f64,
}

fn measured(rig: &mut Rig, arguments: &str) -> Seen {
    let said = rig.line(&format!("fathom {arguments} --json 2>/tmp/e || cat /tmp/e"));
    let run: Value = serde_json::from_str(&said).unwrap_or_default();
    let read = &run["jobs"][0]["read"];
    let number = |v: &Value| v.as_f64().unwrap_or_default();
    let seen = Seen {
        least: number(&read["service_ns"]["min"]),
        middle: number(&read["service_ns"]["p50"]),
        iops: number(&read["iops"]),
    };
    hold(seen.least > 0.0, format_args!("{arguments}: {said}"));
    seen
}

fn programmed(rig: &mut Rig) {
    for engine in ENGINES {
        let run = |rig: &mut Rig, name: &str| {
            measured(
                rig,
                &format!("run /dev/null-{name} --rw randread --ios 400 --engine {engine}"),
            )
        };
        let own = run(rig, "0");
        for (name, ns) in [("100us", 1e5), ("1ms", 1e6), ("10ms", 1e7)] {
            let seen = run(rig, name);
            let beyond = (seen.least - own.least) / ns - 1.0;
            hold(
                beyond.abs() < WITHIN,
                format_args!("{name}, {engine}: {beyond}"),
            );
            row(
                &format!("null_blk of {name}, {engine}, least latency"),
                &format!("{name} beyond the guest's own, within 3 %"),
                &format!(
                    "{:.1} us beyond {:.1} us: {:+.1} % (middle {:.1} us)",
                    (seen.least - own.least) / 1e3,
                    own.least / 1e3,
                    100.0 * beyond,
                    seen.middle / 1e3
                ),
            );
        }
    }
}

fn delayed(rig: &mut Rig) {
    for ms in [0, 200] {
        rig.sh(&format!(
            "dmsetup --noudevsync create late{ms} --table '0 200000 delay /dev/null-0 0 {ms}'"
        ))
        .done();
    }
    let run = |rig: &mut Rig, ms: u32, ios: u32| {
        measured(
            rig,
            &format!("run /dev/mapper/late{ms} --rw randread --qd 8 --ios {ios}"),
        )
    };
    let own = run(rig, 0, 400);
    let seen = run(rig, 200, 80);
    let beyond = (seen.least - own.least) / 2e8 - 1.0;
    row(
        "dm-delay of 200 ms, io_uring, least latency",
        "200 ms beyond the guest's own, within 3 % (it counts jiffies of 4 ms)",
        &format!(
            "{:.1} ms: {:+.1} %",
            (seen.least - own.least) / 1e6,
            100.0 * beyond
        ),
    );
    hold(beyond.abs() < WITHIN, format_args!("dm-delay: {beyond}"));
}

fn knee(rig: &mut Rig) {
    let said = rig.fathom("curve /dev/null-10ms --closed-only --max-qd 32");
    let line = said.text.lines().find(|l| l.contains("at the knee"));
    let number = |l: &str| l.split_whitespace().find_map(|w| w.parse::<f64>().ok());
    let knee = line.and_then(number).unwrap_or_default();
    hold((7.0..=10.0).contains(&knee), &said.text);
    row(
        "curve of null_blk of 10 ms with a queue of 8",
        "knee at 8",
        &format!("{knee}"),
    );
}

fn throttled(rig: &mut Rig) {
    let slow = rig.namespace("NV-SLOW", 1);
    // (With one I/O at a time the bucket fills while the guest turns round: the rate is then the guest's.)
    let seen = measured(
        rig,
        &format!("run {slow} --rw randread --qd 4 --ramp 1s --time 5s"),
    );
    row(
        "NVMe drive throttled to 100 IOPS, depth 4",
        "100 IOPS within 3 %",
        &format!("{:.2} IOPS, middle {:.2} ms", seen.iops, seen.middle / 1e6),
    );
    hold(
        (seen.iops / 100.0 - 1.0).abs() < WITHIN,
        format_args!("{} IOPS", seen.iops),
    );
}
