//! Devices that fail, hang or go away: what was measured until then is kept, the byte and the kernel's words are named, and
//! nothing waits for ever.

use crate::rig::{Rig, hold, until};

const MACHINE: &str = "\
 -device nvme,id=hot,serial=NV-HOT -drive file={dir}/a,if=none,id=a,format=raw -device nvme-ns,bus=hot,drive=a,nsid=1 \
 -blockdev driver=file,node-name=f2,filename={dir}/e -blockdev driver=blkdebug,node-name=b2,image=f2,inject-error.0.event=none,inject-error.0.iotype=read,inject-error.0.sector=20480,inject-error.0.errno=5 -device nvme,serial=NV-BAD,drive=b2 \
 -drive file={dir}/v,if=none,id=v,format=raw -device virtio-blk-pci,drive=v,serial=VB-V";

#[test]
fn a_device_that_fails_is_named_and_what_was_measured_is_kept() {
    let images = ["a", "e", "v"].map(|n| (n, 32));
    let modules = ["nvme", "virtio_scsi", "sd_mod", "scsi_debug", "dm_mod"];
    let Some(mut rig) = Rig::boot(&images, MACHINE, &modules) else {
        return;
    };
    if !rig.bring("dmsetup") {
        return;
    }
    rig.scenario(
        "bad sectors: map, NVMe, SCSI; io_uring, libaio, preadv, NVMe commands",
        "exit 1, the first byte, the kernel's words",
        bad_sectors,
    );
    rig.scenario(
        "suspended map: Ctrl-C; 11 s, then resumed",
        "ends in seconds with what was measured; `stalled`",
        a_map_that_is_suspended,
    );
    rig.scenario(
        "NVMe drive removed while read; SCSI disk deleted",
        "exit 1, void, what was measured is kept",
        removed,
    );
    rig.sh("echo 1 > /sys/bus/pci/rescan; sleep 2").done();
    rig.scenario(
        "controller reset while it is read",
        "the run goes on, nothing fails",
        controller_reset,
    );
    rig.off();
}

fn bad_sectors(rig: &mut Rig) {
    rig.sh("dmsetup --noudevsync create er --table '0 40000 linear /dev/vda 0\n40000 8 error\n40008 20000 linear /dev/vda 40008'").done();
    for engine in ["uring", "libaio", "preadv"] {
        let said = rig.fathom(&format!("run /dev/mapper/er --rw read --bs 4k --offset 20471808 --bytes 64k --engine {engine} --on-error continue"));
        said.failed(&["first at byte 20480000", "(os error 5)"]);
    }
    rig.sh("dmsetup --noudevsync remove er").done();
    // The emulated drive reports a media error; the kernel says which sector.
    let bad = rig.namespace("NV-BAD", 1);
    let said = rig.fathom(&format!(
        "run {bad} --rw read --bs 4k --offset 10m --bytes 64k --on-error continue"
    ));
    said.failed(&["first at byte 10485760", "the kernel says", "sector 20480"]);
    // The same past the block layer, where the kernel says nothing.
    let said = rig.fathom(&format!(
        "run {bad} --rw read --bs 4k --offset 10m --bytes 64k --on-error continue --engine uring-cmd"
    ));
    said.failed(&["first at byte 10485760", "bad sector"]);
    // A disk whose medium cannot be read in one place.
    rig.sh("rmmod scsi_debug; insmod /modules/*-scsi_debug.ko dev_size_mb=64 delay=0 medium_error_start=40000 medium_error_count=8 opts=2; sleep 1").done();
    let disk = rig.line("ls /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block");
    let said = rig.fathom(&format!(
        "run /dev/{disk} --rw read --bs 4k --offset 20000k --bytes 1m --on-error continue"
    ));
    said.failed(&[
        "first at byte 20480000",
        "No data available",
        "bad sector",
        "the kernel says",
        "medium error",
    ]);
}

fn a_map_that_is_suspended(rig: &mut Rig) {
    rig.sh("dmsetup --noudevsync create slow --table '0 60000 linear /dev/vda 0'")
        .done();
    let run = "cd /tmp; (fathom run /dev/mapper/slow --rw randread --qd 4 --window 100ms --time 60s > /tmp/o 2>&1; echo $? > /tmp/rc) > /dev/null 2>&1 & ";
    let running = until("[ $(awk '{print $1}' /sys/block/dm-0/stat) -gt 200 ]");
    // Interrupted while nothing answers: it ends within seconds, with what it has.
    let said = rig.sh(&format!("{run}{running}sleep 1; dmsetup --noudevsync suspend slow; sleep 1; kill -INT $(pidof fathom | tr ' ' '\n' | sort -n | tail -1); for i in $(seq 100); do [ -e /tmp/rc ] && break; sleep 0.1; done; cat /tmp/rc /tmp/o; dmsetup --noudevsync resume slow"));
    said.has(&["had not answered for", "interrupted"]);
    hold(said.text.starts_with('1'), &said.text);
    said.has_not(&["randread      0 IOPS"]);
    // A pause of more than ten seconds is said.
    let running = until("[ $(awk '{print $1}' /sys/block/dm-0/stat) -gt $((n + 100)) ]");
    let ended = until("[ -e /tmp/rc ]");
    let said = rig.sh(&format!("n=$(awk '{{print $1}}' /sys/block/dm-0/stat); rm -f /tmp/rc; (fathom run /dev/mapper/slow --rw randread --time 16s > /tmp/o 2>&1; echo $? > /tmp/rc) > /dev/null 2>&1 & {running}dmsetup --noudevsync suspend slow; sleep 11; dmsetup --noudevsync resume slow; {ended}cat /tmp/o"));
    said.has(&["one I/O took", "stood still"]);
    rig.sh("dmsetup --noudevsync remove slow").done();
}

fn controller_reset(rig: &mut Rig) {
    let hot = rig.namespace("NV-HOT", 1);
    let controller =
        rig.line("for c in /sys/class/nvme/nvme*; do grep -q NV-HOT $c/serial && echo $c; done");
    // After a reset QEMU now and then raises no interrupt any more: the kernel looks for each answer after its time-out. So
    // this comes last, and with a short one. (A multipath head has none: its paths have.)
    let ended = until("[ -e /tmp/rc ]");
    let said = rig.sh(&format!("for q in /sys/block/{}/queue /sys/class/block/nvme*c*n*/queue; do (echo 5000 > $q/io_timeout) 2> /dev/null; done; rm -f /tmp/rc; (fathom run {hot} --rw randread --qd 4 --time 3s > /tmp/o 2>&1; echo $? > /tmp/rc) > /dev/null 2>&1 & sleep 2; echo 1 > {controller}/reset_controller; {ended}cat /tmp/rc /tmp/o", &hot[5..]));
    // Requests are sent again after the reset: none fails.
    said.has_not(&["io-errors", "failed"]);
    hold(
        said.text.starts_with('0') || said.text.contains("never written"),
        &said.text,
    );
}

fn removed(rig: &mut Rig) {
    let hot = rig.namespace("NV-HOT", 1);
    let controller =
        rig.line("for c in /sys/class/nvme/nvme*; do grep -q NV-HOT $c/serial && echo $c; done");
    for (device, remove) in [
        (hot, format!("{controller}/device/remove")),
        (
            "/dev/sda".to_owned(),
            "/sys/block/sda/device/delete".to_owned(),
        ),
    ] {
        let name = device[5..].to_owned();
        // (A multipath head of Linux 6.1 counts nothing itself.)
        let reads = format!(
            "reads() {{ cat /sys/block/{name}/stat /sys/class/block/nvme*c*n*/stat 2> /dev/null | awk '{{ n += $1 }} END {{ print n }}'; }}; "
        );
        let running = until("[ $(reads) -gt $((n + 60)) ]");
        let said = rig.sh(&format!(
            "{reads}n=$(reads); rm -f /tmp/rc; (fathom run {device} --rw randread --qd 4 --time 30s > /tmp/o 2>&1; echo $? > /tmp/rc) > /dev/null 2>&1 & {running}echo 1 > {remove}; for i in $(seq 200); do [ -e /tmp/rc ] && break; sleep 0.1; done; cat /tmp/rc /tmp/o"
        ));
        hold(said.text.starts_with('1'), &said.text);
        hold(
            said.text.contains("gone") || said.text.contains("(os error 5)"),
            &said.text,
        );
        said.has(&["Not usable"]);
    }
}
