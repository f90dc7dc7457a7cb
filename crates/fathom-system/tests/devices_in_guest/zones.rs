//! Zones of NVMe, SCSI and null_blk, and NVMe operations as operations of jobs.

use std::process::Command;

use fathom_system::guest::qemu::PROGRAM;

use crate::common::skip;
use crate::rig::{Rig, hold, in_bench};

/// A zoned namespace of 16 zones whose capacity is less than their size, and a plain one.
const MACHINE: &str = "\
 -device nvme-subsys,id=s0,nqn=zones -device nvme,id=n0,serial=NV-ZONES,subsys=s0 \
 -drive file={dir}/z,if=none,id=z,format=raw -device nvme-ns,bus=n0,drive=z,nsid=1,zoned=on,zoned.zone_size=2M,zoned.zone_capacity=1M,zoned.max_open=3,zoned.max_active=5,logical_block_size=4096,physical_block_size=4096 \
 -drive file={dir}/p,if=none,id=p,format=raw,discard=unmap -device nvme-ns,bus=n0,drive=p,nsid=2,logical_block_size=4096,physical_block_size=4096";

/// A namespace with placement handles, where QEMU has them (8.0).
const PLACED: &str = "\
 -device nvme-subsys,id=f,nqn=fdp,fdp=on,fdp.runs=16M,fdp.nrg=1,fdp.nruh=4 -device nvme,id=cf,serial=NV-FDP,subsys=f \
 -drive file={dir}/f,if=none,id=f,format=raw -device nvme-ns,drive=f,bus=cf,nsid=1,fdp.ruhs=0;1;2;3";

const WORD: &str = "--destroy NV-ZONES-ns1";

#[test]
fn zones_are_written_at_their_pointers_and_reset_under_the_guard() {
    let images = [("z", 32), ("p", 8), ("f", 8)];
    let modules = ["nvme", "virtio_scsi", "sd_mod", "scsi_debug", "null_blk"];
    let placed = has_placement();
    let machine = match placed {
        true => format!("{MACHINE} {PLACED}"),
        false => MACHINE.to_owned(),
    };
    let Some(mut rig) = Rig::boot(&images, &machine, &modules) else {
        return;
    };
    match placed {
        true => placement(&mut rig),
        false => skip("this QEMU has no flexible data placement: 8.0 and later do"),
    }
    let zoned = rig.namespace("NV-ZONES", 1);
    let plain = rig.namespace("NV-ZONES", 2);
    guarded(&mut rig, &zoned, &plain);
    jobs(&mut rig, &zoned);
    experiment(&mut rig, &zoned);
    operations(&mut rig, &plain);
    null_block(&mut rig);
    if in_bench() {
        other_drivers(&mut rig);
    }
    through_fio(&mut rig);
    rig.off();
}

fn has_placement() -> bool {
    let help = Command::new(PROGRAM)
        .args(["-device", "nvme-subsys,help"])
        .output();
    help.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("fdp.runs"))
}

/// Writes name the handles that were asked for: blocks are used up in their reclaim units, and in no others.
fn placement(rig: &mut Rig) {
    let device = rig.namespace("NV-FDP", 1);
    let left = |rig: &mut Rig| -> Vec<u64> {
        let said = rig.sh("fathom devices --json | grep available_blocks | tr -dc '0-9\n'");
        said.text.lines().filter_map(|l| l.parse().ok()).collect()
    };
    let before = left(rig);
    hold(before.len() == 4, format_args!("{before:?}"));
    rig.writes(
        &format!("run {device} --rw randwrite --bs 4k --ios 40 --engine uring-cmd --placement 0,2 --destroy NV-FDP"),
        "f",
    );
    let after = left(rig);
    let used: Vec<u64> = before.iter().zip(&after).map(|(b, a)| b - a).collect();
    hold(
        used.len() == 4 && used[0] == used[2] && used[0] > 0 && used[1] == 0 && used[3] == 0,
        format_args!("{used:?}"),
    );
    rig.refused(
        &format!(
            "run {device} --rw write --ios 4 --engine uring-cmd --placement 4 --destroy NV-FDP"
        ),
        &["has 4 placement handles"],
    );
}

fn guarded(rig: &mut Rig, zoned: &str, plain: &str) {
    rig.refused(&format!("zones {zoned}"), &[WORD]);
    rig.refused(
        &format!("zones {zoned} --destroy NV-ZONES-ns2"),
        &["does not name"],
    );
    rig.refused(&format!("zones {plain} --report"), &["has no zones"]);
    rig.refused(
        &format!("run {zoned} --rw trim --command zone-reset --engine preadv"),
        &[WORD],
    );
    for job in [
        "--rw randwrite",
        "--rw rw",
        "--rw trim",
        "--rw write --buffered",
    ] {
        rig.refused(
            &format!("run {zoned} {job} --bs 4k --ios 16 {WORD}"),
            &["zoned device", "write pointer"],
        );
    }
    rig.fathom("devices").has(&[
        "zoned host-managed",
        "zones 16",
        "max_open_zones 3",
        "max_active_zones 5",
        "compare write-zeroes",
        "copy",
    ]);
}

/// Sectors written in each zone that is not empty, by its number, as the report of the device says.
fn pointers(rig: &mut Rig, device: &str) -> String {
    rig.sh(&format!(
        "fathom zones {device} --report --json --time 50ms --repeats 1 --out /tmp/r"
    ))
    .done();
    rig.line(
        "cat /tmp/r/*/run.json | tr -d ' \\n' | grep -o '\"states\":\\[\\[.*\\]\\],\"written\":[0-9]*' | tail -1; rm -r /tmp/r",
    )
}

fn jobs(rig: &mut Rig, zoned: &str) {
    let write = format!("run {zoned} --rw write --bs 64k {WORD}");
    // Twice: the second job goes on where the first one ended.
    for _ in 0..2 {
        rig.writes(&format!("{write} --bytes 128k"), "z");
    }
    let left = pointers(rig, zoned);
    hold(left.contains("\"written\":262144"), &left);
    // Half a zone is written: what lies behind the pointer is answered without the medium.
    rig.fathom(&format!(
        "run {zoned} --rw randread --bs 4k --ios 50 --size 1m"
    ))
    .has(&["never written"]);
    rig.fathom(&format!(
        "run {zoned} --rw randread --bs 4k --ios 50 --size 256k"
    ))
    .has_not(&["never written"]);
    // As many zones as outstanding writes.
    rig.writes(&format!("{write} --qd 3 --bytes 192k"), "z");
    // More active zones than the drive allows.
    rig.fathom(&format!("{write} --qd 6 --bytes 2m"))
        .failed(&["too many zones are active"]);
    // The zone whose write failed takes others, once there is room. (From Linux 6.12 on only after it was reset.)
    let reset = format!("run {zoned} --rw trim --command zone-reset --engine preadv {WORD}");
    rig.fathom(&reset).done();
    rig.writes(&format!("{write} --bytes 8m"), "z");
    for engine in ["preadv", "uring-cmd"] {
        let reset = format!("run {zoned} --rw trim --command zone-reset --engine {engine} {WORD}");
        rig.fathom(&reset).done();
        let left = pointers(rig, zoned);
        hold(
            left.contains("[[\"empty\",16]]") && left.contains("\"written\":0"),
            &left,
        );
        rig.fathom(&reset)
            .refused(&["write pointer that could be moved"]);
        rig.fathom(&format!(
            "run {zoned} --rw write --command append --engine uring-cmd --bs 32k --qd 8 {WORD}"
        ))
        .done();
        let left = pointers(rig, zoned);
        hold(left.contains("[[\"full\",16]]"), &left);
        rig.fathom(&format!("{write} --ios 4"))
            .refused(&["has room", "zone-reset"]);
    }
    let reset = format!("run {zoned} --rw trim --command zone-reset --engine preadv {WORD}");
    rig.fathom(&reset).done();
    rig.fathom(&format!(
        "run {zoned} --rw trim --command zone-finish --engine uring-cmd --ios 2 {WORD}"
    ))
    .done();
    let left = pointers(rig, zoned);
    hold(left.contains("[\"full\",2]"), &left);
}

fn experiment(rig: &mut Rig, zoned: &str) {
    let said = rig.sh(&format!(
        "cd /tmp; fathom zones {zoned} --time 100ms --repeats 2 --most-appends 4 {WORD} --out /tmp/zones"
    ));
    said.done();
    said.has(&[
        "largest write bandwidth",
        "largest append bandwidth",
        "reset of a zone",
    ]);
    rig.sh("cd /tmp; cat /tmp/zones/*/run.json").has(&[
        "write command to one zone",
        "appends to one zone",
        "finish of a zone with one block",
        "too many zones are open",
        "too many zones are active",
        "are empty now",
    ]);
    // What is shown is made from what was saved: the same page again.
    rig.sh("cd /tmp/zones/*; cp run.json /tmp/before; fathom report . > /dev/null && cmp run.json /tmp/before")
        .done();
    let left = pointers(rig, zoned);
    hold(left.contains("[[\"empty\",16]]"), &left);
    rig.sh("rm -r /tmp/zones").done();
}

fn operations(rig: &mut Rig, plain: &str) {
    let run = format!("run {plain} --engine uring-cmd --destroy NV-ZONES-ns2");
    let same = "--same-data --seed 3 --bs 16k --size 64k";
    rig.writes(&format!("{run} --rw write {same}"), "p");
    rig.fathom(&format!("{run} --rw read --command compare {same}"))
        .done();
    rig.fathom(&format!(
        "{run} --rw read --command compare {same} --offset 1m"
    ))
    .failed(&["other data"]);
    let verify = format!("{run} --rw randread --command verify --bs 16k --ios 20");
    match rig.fathom("devices").text.contains(" verify ") {
        true => rig.fathom(&verify).done(),
        // QEMU before 8.
        false => drop(rig.refused(&verify, &["offers no verify"])),
    }
    // Copied block for block, and equal.
    rig.writes(
        &format!("{run} --rw randwrite --random-map --command copy --bs 16k --qd 4 --size 64k --offset 4m --copy-from 0 --ios 4"),
        "p",
    );
    let read =
        |skip: u32| format!("dd if={plain} bs=64k count=1 skip={skip} iflag=direct 2>/dev/null");
    rig.sh(&format!(
        "{} > /tmp/a; {} > /tmp/b; cmp /tmp/a /tmp/b && tr -d '\\0' < /tmp/a | grep -q .",
        read(0),
        read(64)
    ))
    .done();
    rig.writes(
        &format!("{run} --rw write --command write-zeroes --bs 64k --size 64k --offset 4m"),
        "p",
    );
    let left = rig.line(&format!("{} | tr -d '\\0' | wc -c", read(64)));
    hold(left == "0", &left);
    for (job, words) in [
        ("--rw write --placement 0,1", "no placement handles"),
        ("--rw write --command append", "has no zones"),
        (
            "--rw write --command copy --bs 1m --size 1m",
            "one command of this drive",
        ),
    ] {
        rig.refused(&format!("{run} {job} --ios 2"), &[words]);
    }
    rig.refused(
        &format!("run {plain} --rw write --atomic --ios 2 --destroy NV-ZONES-ns2"),
        // Older kernels have none; newer ones say that this device has none.
        &["--atomic"],
    );
}

/// A zoned device of null_blk's, /dev/z.
fn null_block(rig: &mut Rig) {
    rig.sh("cd /sys/kernel/config/nullb && mkdir z && cd z && echo 64 > size && echo 1 > memory_backed && echo 1 > zoned && echo 4 > zone_size && echo 2 > zone_max_open && echo 3 > zone_max_active && echo 1 > power && sleep 1").done();
}

/// Zones of SCSI and of null_blk: no appends, the same pointers, so that `bench/devices` alone has the time for them.
fn other_drivers(rig: &mut Rig) {
    rig.sh("rmmod scsi_debug; insmod /modules/*-scsi_debug.ko dev_size_mb=64 delay=0 zbc=managed zone_size_mb=4 zone_max_open=2 zone_nr_conv=2; sleep 1").done();
    let disk = rig.line("ls /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block");
    let word = rig.line(&format!(
        "fathom devices | grep -A30 '^/dev/{disk} ' | grep -m1 -o 'with --destroy [^ ]*' | cut -d' ' -f3"
    ));
    let scsi = (format!("/dev/{disk}"), word, "14 empty");
    let null = ("/dev/z".to_owned(), "/dev/z".to_owned(), "16 empty");
    for (device, word, empty) in [scsi, null] {
        let said = rig.sh(&format!(
            "cd /tmp; fathom zones {device} --time 50ms --repeats 2 --bs 64k --destroy {word} --out /tmp/zones; echo code $?; cat /tmp/zones/*/run.json; rm -r /tmp/zones"
        ));
        said.has(&[
            "code 0",
            "Appends were not measured",
            "too many zones are open",
            "are empty now",
            empty,
        ]);
    }
}

/// fio's zones on a device that has zones: every block is read back as it was written, and full zones are reset.
fn through_fio(rig: &mut Rig) {
    let job = "fio --name=z --filename=/dev/z --zonemode=zbd --direct=1 --bs=64k --size=16m --destroy=/dev/z";
    for load in [
        "--rw=write --ioengine=psync --verify=crc32c",
        "--rw=randwrite --ioengine=libaio --iodepth=8 --max_open_zones=2 --verify=crc32c",
        "--rw=randwrite --ioengine=io_uring --iodepth=4 --max_open_zones=2 --numjobs=3",
    ] {
        let said = rig.fathom(&format!("{job} {load}"));
        said.done();
        said.has(&["zone resets"]);
    }
    rig.fathom(&format!("{job} --rw=read --ioengine=psync"))
        .done();
    rig.fathom(&format!("{job} --rw=write --zonesize=1m"))
        .failed(&["does not match disk zone size"]);
    rig.fathom("fio --name=z --filename=/dev/z --rw=randwrite --direct=1 --bs=64k --size=16m --destroy=/dev/z")
        .refused(&["zoned device"]);
}
