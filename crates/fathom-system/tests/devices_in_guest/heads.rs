//! NVMe's native multipath: the head has no queue and counts nothing, or not its partitions; the hidden paths do.

use crate::rig::{Rig, hold, until};

/// Two controllers of one subsystem, both with the namespace.
const MACHINE: &str = "\
 -device nvme-subsys,id=s0,nqn=heads -device nvme,id=ca,serial=NV-HEAD,subsys=s0 -device nvme,id=cb,serial=NV-HEAD,subsys=s0 \
 -drive file={dir}/a,if=none,id=a,format=raw -device nvme-ns,bus=ca,drive=a,nsid=1,shared=on";

#[test]
fn a_multipath_head_and_its_partitions_are_measured_through_their_paths() {
    let Some(mut rig) = Rig::boot(&[("a", 64)], MACHINE, &["nvme", "ext4"]) else {
        return;
    };
    if !rig.bring("mkfs.ext4") {
        return;
    }
    rig.scenario(
        "NVMe multipath head of two paths: run, partitions, ext4, stack, watch, one path lost",
        "usable, counted at the paths; every I/O joined; depth 1 at one outstanding; no read fails",
        of_two_paths,
    );
    rig.off();
}

fn of_two_paths(rig: &mut Rig) {
    let head = rig.namespace("NV-HEAD", 1);
    let paths = rig.line("ls -d /sys/class/block/nvme*c*n1 | wc -l");
    hold(paths == "2", &paths);
    rig.sh("fathom devices")
        .has(&["nvme (pcie)", "hardware_queues 1"]);
    rig.fathom(&format!(
        "run {head} --rw randwrite --ios 4000 --destroy NV-HEAD"
    ))
    .done();
    usable(rig, &format!("run {head} --rw randread --ios 2000"));
    layers_and_depth(rig, &head);
    rig.sh(&format!("dd if=/dev/zero of={head} bs=1M count=1 2>/dev/null; (echo n; echo p; echo 1; echo; echo +40M; echo n; echo p; echo 2; echo; echo; echo w) | fdisk {head} > /dev/null 2>&1; sleep 1; ls {head}p2")).done();
    usable(rig, &format!("run {head}p2 --rw randread --ios 2000"));
    rig.sh(&format!(
        "mkfs.ext4 -q {head}p1 && mount -t ext4 {head}p1 /m"
    ))
    .done();
    usable(rig, "run /m --rw randread --size 8m --ios 2000");
    // One of two paths goes: reads go on through the other one.
    let lost = rig.sh(&format!("rm -f /tmp/rc; (fathom run {head} --rw randread --qd 4 --time 4s > /tmp/o 2>&1; echo $? > /tmp/rc) > /dev/null 2>&1 & sleep 2; echo 1 > /sys/class/nvme/nvme0/device/remove; for i in $(seq 200); do [ -e /tmp/rc ] && break; sleep 0.1; done; cat /tmp/rc /tmp/o"));
    lost.has_not(&["failed"]);
    rig.sh("umount /m").done();
}

/// The kernel's events of the hidden paths are those of the head.
fn layers_and_depth(rig: &mut Rig, head: &str) {
    for (engine, depth) in [("preadv", 1), ("uring", 4)] {
        let said = rig.fathom(&format!(
            "stack {head} --rw randread --direct --qd {depth} --time 300ms --engine {engine}"
        ));
        said.has(&[
            "coverage 100",
            "device + VMM + host",
            "interrupt to driver",
            "request completion",
        ]);
    }
    // Watched only once its paths have read: a slow machine takes its time to begin.
    let reading = until("[ $(reads) -gt $((before + 200)) ]");
    let watched = rig.sh(&format!("fathom run {head} --rw randread --qd 1 --time 120s > /dev/null 2>&1 & load=$!; reads() {{ cat /sys/class/block/nvme*c*n1/stat | awk '{{ n += $1 }} END {{ print n }}'; }}; before=$(reads); {reading}fathom watch {} --time 1s; kill -TERM $load; wait $load", &head[5..]));
    let depth = watched
        .text
        .lines()
        .find(|l| l.contains("depth while busy"));
    hold(
        depth.is_some_and(|l| {
            l.split_whitespace()
                .any(|w| w == "1" || w.starts_with("1.0"))
        }),
        &watched.text,
    );
}

/// Nothing is held against it that would void it.
#[track_caller]
fn usable(rig: &mut Rig, arguments: &str) {
    let said = rig.fathom(arguments);
    said.has_not(&["never reached", "not-checked", "no device counters"]);
    said.done();
}
