//! NVMe commands past the block layer: the same bytes, the same guard, the same errors as through it.

use crate::rig::{Rig, hold, in_bench};

const WRITE: &str = "--rw randwrite --bs 4k --ios 64 --time 20s --engine uring-cmd";

/// The node for commands of a namespace.
pub(crate) fn node(block: &str) -> String {
    block.replace("/dev/nvme", "/dev/ng")
}

pub(crate) fn past_the_block_layer(rig: &mut Rig) {
    let [one, two, protected] = [1, 2, 5].map(|n| rig.namespace("NV-THREE", n));
    let ng = node(&two);
    let read = "--rw randread --bs 4k --engine uring-cmd";
    // Who names the node for commands means commands.
    rig.refused(
        &format!("run {ng} --rw randread --bs 4k --ios 4 --engine preadv"),
        &["sends no NVMe commands", "name the block device"],
    );
    rig.fathom(&format!("run {ng} --rw randread --bs 4k --ios 40"))
        .done();
    rig.refused(&format!("run {ng} {WRITE}"), &["--destroy NV-THREE-ns2"]);
    rig.refused(
        &format!("run {ng} {WRITE} --destroy NV-THREE-ns1"),
        &["does not name", "NV-THREE-ns2"],
    );
    rig.refused(
        &format!("run /dev/vda {read} --ios 4"),
        &["vda", "use --engine uring"],
    );
    rig.refused(
        &format!("run {two} {read} --ios 4 --buffered"),
        &["drop --buffered"],
    );
    rig.refused(
        &format!(
            "fio --name=x --filename={ng} --ioengine=io_uring_cmd --rw=write --bs=4k --size=64k"
        ),
        &["--destroy"],
    );
    rig.writes(
        &format!("run {ng} {WRITE} --seed 7 --destroy NV-THREE-ns2"),
        "b",
    );
    rig.writes(
        &format!("run {two} {WRITE} --seed 8 --destroy NV-THREE-ns2"),
        "b",
    );
    rig.writes(
        &format!("run {one} {WRITE} --seed 9 --qd 8 --destroy NV-THREE-ns1"),
        "a",
    );
    // The drive makes and checks the protection itself.
    rig.writes(
        &format!("run {protected} {WRITE} --destroy NV-THREE-ns5"),
        "p",
    );
    for target in [&ng, &one, &protected] {
        rig.fathom(&format!("run {target} {read} --qd 4 --ios 200"))
            .done();
    }
    // What commands wrote, the block layer reads; and the other way round.
    for (writer, reader) in [("io_uring_cmd", "io_uring"), ("io_uring", "io_uring_cmd")] {
        let fio = |engine: &str, more: &str| {
            let name = if engine == "io_uring_cmd" { &ng } else { &two };
            format!(
                "fio --name=v --filename={name} --ioengine={engine} --direct=1 --iodepth=4 --bs=8k --size=1m --verify=crc32c {more}"
            )
        };
        rig.fathom(&fio(
            writer,
            "--rw=randwrite --do_verify=0 --destroy=NV-THREE-ns2",
        ))
        .done();
        rig.fathom(&fio(reader, "--rw=randread")).done();
    }
    // Deallocated blocks of QEMU's read as nought.
    rig.fathom(&format!(
        "run {ng} --rw trim --bs 64k --bytes 1m --size 1m --engine uring-cmd --destroy NV-THREE-ns2"
    ))
    .done();
    let left = rig.line(&format!(
        "dd if={two} bs=1M count=1 iflag=direct 2>/dev/null | tr -d '\\0' | wc -c"
    ));
    hold(left == "0", &left);
    // A block that is too large for one command is said, not split.
    rig.fathom(&format!(
        "run {ng} --rw read --bs 4m --ios 2 --engine uring-cmd"
    ))
    .refused(&["one command of this drive moves at most"]);
    layers(rig, &two);
    if in_bench() {
        experiments(rig, &two);
    }
    identity(rig, &two);
}

fn layers(rig: &mut Rig, two: &str) {
    let engine = if in_bench() { "" } else { "--engine uring-cmd" };
    let said = rig.fathom(&format!(
        "stack {two} --rw randread --direct --qd 1,4 --time 300ms {engine}"
    ));
    said.has(&[
        "randread-qd1-direct-uring-cmd",
        "randread-qd4-direct-uring-cmd",
        "NVMe command built",
        "coverage 100",
    ]);
    said.has_not(&["not joined"]);
    said.done();
}

/// What experiments make of both ways in turns: they are tested on other engines, so that `bench/devices` alone tries these.
fn experiments(rig: &mut Rig, two: &str) {
    let ng = node(two);
    let said = rig.fathom(&format!(
        "ab {two} --rw randread --bs 4k --ios 50 --blocks 5 --a engine=uring --b engine=uring-cmd"
    ));
    said.has(&["uring-cmd"]);
    said.has_not(&["never reached", "void"]);
    let short = "--time 200ms --repeats 1 --out /tmp/r";
    let compared = |of: &str| {
        format!("grep -o block-layer-latency $(ls -d /tmp/r/*{of} | tail -n 1)/run.json")
    };
    let curve = format!(
        "curve {two} --closed-only --max-qd 2 {short}; {}",
        compared("curve")
    );
    rig.fathom(&curve).has(&["block-layer-latency"]);
    rig.fathom(&format!("curve {ng} --closed-only --max-qd 4 {short}"))
        .done();
    let survey = format!(
        "survey {two} --destroy NV-THREE-ns2 --size 16m {short}; {}",
        compared("survey")
    );
    rig.fathom(&survey).has(&["block-layer-latency"]);
}

/// What the drives say of themselves.
fn identity(rig: &mut Rig, two: &str) {
    rig.fathom("devices").has(&[
        "namespace 2 of 4",
        "[4096]",
        "[4096+8]",
        "protection type 1",
        "power state 0 of 1",
        "(pcie ",
        "live)",
        "its write cache is volatile and on",
    ]);
    rig.fathom("devices --json").has(&[
        "\"formats\"",
        "\"controllers\"",
        "\"cache_on\": true",
        "nvme-smart",
    ]);
    rig.sh(&format!("cd /tmp; fathom run {two} --rw randread --ios 10 --out /tmp/capsule > /dev/null; cat /tmp/capsule/*/run.json"))
        .has(&["volatile_cache", "power_states"]);
}
