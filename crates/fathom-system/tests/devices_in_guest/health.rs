//! What drives say of themselves, by the kernel's own drivers: logs of NVMe, log pages of SCSI, and what a run makes of them.

use crate::rig::Rig;

const MACHINE: &str = "\
 -device nvme,id=n0,serial=NV-H -drive file={dir}/a,if=none,id=a,format=raw -device nvme-ns,bus=n0,drive=a,nsid=1 \
 -device virtio-scsi-pci,id=sc -drive file={dir}/s,if=none,id=s,format=raw -device scsi-hd,bus=sc.0,drive=s,serial=SCSI";

#[test]
fn logs_and_log_pages_of_real_drivers_are_read() {
    let images = ["a", "s"].map(|n| (n, 8));
    let modules = ["nvme", "virtio_scsi", "sd_mod", "scsi_debug"];
    let Some(mut rig) = Rig::boot(&images, MACHINE, &modules) else {
        return;
    };
    let drive = rig.namespace("NV-H", 1);
    let said = rig.fathom("devices --json");
    said.has(&[
        "\"logs\"",
        "\"firmware\"",
        "\"active\": 1",
        "\"sensors_celsius\"",
        "\"throttled\": 0",
        "\"power_state\": 0",
        "\"can_format\": true",
        // scsi_debug has pages 0Dh and 2Fh.
        "scsi-logs",
        "\"celsius\": 38",
        "\"reference_celsius\": 65",
    ]);
    rig.fathom("devices")
        .has(&["firmware slot 1 runs of 1 ", "can be formatted"]);
    // A run keeps the drive before and after it, and says what writes must be read with.
    rig.fathom(&format!(
        "run {drive} --rw randwrite --bs 4k --ios 64 --destroy NV-H --out /tmp/w"
    ))
    .has(&["volatile write cache of nvme0n1 is on"]);
    rig.sh("cat /tmp/w/*/run.json | tr -d ' \\n'").has(&[
        "\"experiment\":\"drive\"",
        "\"before\":{\"cache_on\":true",
        "\"throttled\":[0,0]",
    ]);
    rig.off();
}
