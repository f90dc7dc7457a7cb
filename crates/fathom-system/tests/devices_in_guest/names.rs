//! What names the bytes: `--destroy` accepts a word only where it names this device and no other.

use crate::commands::past_the_block_layer;
use crate::rig::Rig;

/// A job that writes a little.
const WRITE: &str = "--rw randwrite --bs 4k --ios 64 --time 20s";

/// Three namespaces of one drive, a drive with one namespace, units of one serial number, disks that are clones.
const MACHINE: &str = "\
 -device nvme-subsys,id=s0,nqn=three -device nvme,id=n0,serial=NV-THREE,subsys=s0 \
 -drive file={dir}/a,if=none,id=a,format=raw -device nvme-ns,bus=n0,drive=a,nsid=1 \
 -drive file={dir}/b,if=none,id=b,format=raw,discard=unmap -device nvme-ns,bus=n0,drive=b,nsid=2,logical_block_size=4096,physical_block_size=4096 \
 -drive file={dir}/z,if=none,id=z,format=raw -device nvme-ns,bus=n0,drive=z,nsid=4,zoned=on,zoned.zone_size=2M,zoned.zone_capacity=2M \
 -drive file={dir}/p,if=none,id=p,format=raw -device nvme-ns,bus=n0,drive=p,nsid=5,logical_block_size=4096,physical_block_size=4096,ms=8,pi=1 \
 -device nvme,id=n1,serial=NV-ONE -drive file={dir}/c,if=none,id=c,format=raw -device nvme-ns,bus=n1,drive=c,nsid=1 \
 -device virtio-scsi-pci,id=sc \
 -drive file={dir}/l0,if=none,id=l0,format=raw -device scsi-hd,bus=sc.0,drive=l0,scsi-id=1,lun=0,serial=SAME \
 -drive file={dir}/l1,if=none,id=l1,format=raw -device scsi-hd,bus=sc.0,drive=l1,scsi-id=1,lun=1,serial=SAME \
 -drive file={dir}/w,if=none,id=w,format=raw -device scsi-hd,bus=sc.0,drive=w,scsi-id=2,wwn=0x5000c50015ea7111,device_id=none \
 -drive file={dir}/v0,if=none,id=v0,format=raw -device virtio-blk-pci,drive=v0,serial=CLONE \
 -drive file={dir}/v1,if=none,id=v1,format=raw -device virtio-blk-pci,drive=v1,serial=CLONE \
 -drive file={dir}/v2,if=none,id=v2,format=raw -device virtio-blk-pci,drive=v2,serial=000000 \
 -drive file={dir}/v3,if=none,id=v3,format=raw -device virtio-blk-pci,drive=v3";

#[test]
fn a_word_names_one_device_and_no_other() {
    let images = [
        "a", "b", "z", "p", "c", "l0", "l1", "w", "v0", "v1", "v2", "v3",
    ]
    .map(|n| (n, 8));
    let modules = ["nvme", "virtio_scsi", "sd_mod"];
    let Some(mut rig) = Rig::boot(&images, MACHINE, &modules) else {
        return;
    };
    rig.scenario(
        "three namespaces of a drive, 512-byte and 4Kn blocks; removed and found again",
        "each is written under its own word only",
        namespaces,
    );
    rig.scenario(
        "reads, writes, deallocations as NVMe commands; 512, 4Kn and protected blocks; refusals",
        "the same bytes, guard and errors as through the block layer",
        past_the_block_layer,
    );
    rig.scenario(
        "units of one SCSI serial number, cloned disks, disks without one",
        "a word that names two disks is refused",
        units_and_clones,
    );
    rig.scenario(
        "the word that `fathom devices` shows",
        "accepted for this device and no other",
        what_is_shown_is_what_works,
    );
    rig.scenario(
        "partitions of a namespace",
        "each under its own word",
        partitions,
    );
    rig.scenario(
        "zoned namespace",
        "random writes refused, reads as of any",
        zones,
    );
    rig.scenario(
        "names below /dev without a device",
        "refused, nothing is made",
        names_without_a_device,
    );
    rig.off();
}

fn namespaces(rig: &mut Rig) {
    let [one, two, four] = [1, 2, 4].map(|n| rig.namespace("NV-THREE", n));
    // The drive's serial number names three namespaces.
    rig.refused(
        &format!("run {one} {WRITE} --destroy NV-THREE"),
        &[
            "names not only",
            &two[5..],
            &four[5..],
            "--destroy NV-THREE-ns1",
        ],
    );
    rig.refused(&format!("run {two} {WRITE}"), &["--destroy NV-THREE-ns2"]);
    rig.refused(
        &format!("run {two} {WRITE} --destroy NV-THREE-ns1"),
        &["does not name", "NV-THREE-ns2"],
    );
    rig.refused(
        &format!("survey {one} --destroy NV-THREE"),
        &["names not only"],
    );
    rig.refused(
        &format!("fio --name=x --filename={one} --rw=write --bs=4k --size=64k --destroy=NV-THREE"),
        &["names not only"],
    );
    rig.writes(&format!("run {one} {WRITE} --destroy NV-THREE-ns1"), "a");
    rig.writes(&format!("run {two} {WRITE} --destroy NV-THREE-ns2"), "b");
    // The same after the drive came back: its names may have moved, the words did not.
    rig.sh("echo 1 > /sys/class/nvme/nvme0/device/remove; echo 1 > /sys/bus/pci/rescan; sleep 2")
        .done();
    let [one, two] = [1, 2].map(|n| rig.namespace("NV-THREE", n));
    rig.writes(
        &format!("run {one} {WRITE} --seed 2 --destroy NV-THREE-ns1"),
        "a",
    );
    rig.refused(
        &format!("run {two} {WRITE} --destroy NV-THREE-ns1"),
        &["does not name"],
    );
    // A drive with one namespace, by its serial number. (Linux takes no world-wide names of QEMU's drives: described
    // machines have them.)
    let only = rig.namespace("NV-ONE", 1);
    rig.writes(&format!("run {only} {WRITE} --destroy NV-ONE"), "c");
    rig.refused(
        &format!("run {only} {WRITE} --destroy NV-THREE-ns1"),
        &["does not name"],
    );
    rig.fathom(&format!("run {two} --rw randread --bs 512 --ios 4"))
        .refused(&["4 KiB", "multiple"]);
}

fn units_and_clones(rig: &mut Rig) {
    let unit = |rig: &mut Rig, address: &str| {
        rig.line(&format!(
            "echo /dev/$(ls /sys/bus/scsi/devices/{address}/block)"
        ))
    };
    let (zero, one) = (unit(rig, "*:0:1:0"), unit(rig, "*:0:1:1"));
    rig.refused(
        &format!("run {zero} {WRITE} --destroy SAME"),
        &["names not only", &one[5..], "SAME-lun0"],
    );
    rig.writes(&format!("run {one} {WRITE} --destroy SAME-lun1"), "l1");
    let named = unit(rig, "*:0:2:0");
    rig.writes(
        &format!("run {named} {WRITE} --destroy naa.5000c50015ea7111"),
        "w",
    );
    // Two disks of the same serial number: only the place where they are plugged in tells them apart.
    rig.refused(
        &format!("run /dev/vda {WRITE} --destroy CLONE"),
        &["names not only", "vdb", "full path"],
    );
    rig.writes(&format!("run /dev/vdb {WRITE} --destroy /dev/vdb"), "v1");
    // Noughts are no serial number, and nothing is none.
    rig.refused(
        &format!("run /dev/vdc {WRITE} --destroy 000000"),
        &["full path"],
    );
    rig.refused(
        &format!("run /dev/vdd {WRITE} --destroy ''"),
        &["does not name", "full path"],
    );
    rig.refused(
        &format!("run /dev/vdd {WRITE} --destroy ' '"),
        &["does not name", "full path"],
    );
}

/// The word that `fathom devices` shows for a device is accepted for it and for no other one.
fn what_is_shown_is_what_works(rig: &mut Rig) {
    let shown = rig.fathom("devices").text;
    let mut words = Vec::new();
    for block in shown.split("\n/dev/") {
        let device = block
            .split_whitespace()
            .next()
            .unwrap()
            .trim_start_matches("/dev/");
        if let Some((_, rest)) = block.split_once("with --destroy ") {
            words.push((
                device.to_owned(),
                rest.split(" (its data").next().unwrap().to_owned(),
            ));
        }
    }
    assert!(words.len() >= 10, "{shown}");
    for (device, word) in &words {
        let same = words.iter().filter(|(_, w)| w == word).count();
        assert_eq!(same, 1, "{device} {word}: {shown}");
        // Refused for its block size, after the word was looked at.
        let said = rig.fathom(&format!(
            "run /dev/{device} --rw write --bs 4k --qd 1 --ios 1 --destroy {word}"
        ));
        said.done();
    }
}

fn partitions(rig: &mut Rig) {
    let two = rig.namespace("NV-ONE", 1);
    rig.sh(&format!("(echo n; echo p; echo 1; echo; echo +3M; echo n; echo p; echo 2; echo; echo; echo w) | fdisk {two} > /dev/null 2>&1; sleep 1; ls {two}p2")).done();
    rig.refused(
        &format!("run {two}p2 {WRITE} --destroy NV-ONE"),
        &["names not only", "NV-ONE-part2"],
    );
    rig.refused(
        &format!("run {two}p2 {WRITE} --destroy NV-ONE-part1"),
        &["does not name"],
    );
    rig.refused(
        &format!("run {two} {WRITE} --destroy NV-ONE"),
        &["not blank", "partition table"],
    );
    rig.writes(&format!("run {two}p2 {WRITE} --destroy NV-ONE-part2"), "c");
}

fn zones(rig: &mut Rig) {
    let zoned = rig.namespace("NV-THREE", 4);
    for write in ["randwrite", "randrw", "trim"] {
        rig.refused(
            &format!("run {zoned} --rw {write} --bs 4k --ios 16 --destroy NV-THREE-ns4"),
            &["zoned device", "write pointer"],
        );
    }
    rig.refused(
        &format!("survey {zoned} --destroy NV-THREE-ns4"),
        &["zoned device"],
    );
    // Reads are allowed; what no zone has written is answered without the medium, and they say so.
    rig.sh(&format!(
        "fathom run {zoned} --rw randread --bs 4k --ios 16"
    ))
    .has(&["16 I/Os", "were never written"]);
}

fn names_without_a_device(rig: &mut Rig) {
    for word in ["", "--destroy NV-NINE"] {
        rig.refused(
            &format!("run /dev/nvme9n1 {WRITE} --size 8m {word}"),
            &["nvme9n1"],
        );
        rig.refused(
            &format!("run /dev/disk7 --rw randread --size 8m --ios 4 {word}"),
            &["disk7"],
        );
        rig.refused(
            &format!(
                "fio --name=x --filename=/dev/nvme9n1 --rw=write --size=8m {}",
                word.replace(' ', "=")
            ),
            &["nvme9n1"],
        );
    }
    rig.refused(&format!("run /dev {WRITE} --size 8m"), &["/dev"]);
    rig.refused(
        &format!("run /tmp/new {WRITE} --size 8m --destroy X"),
        &["block devices only"],
    );
    rig.refused(
        &format!("run /tmp {WRITE} --size 8m --destroy X"),
        &["block devices only"],
    );
    rig.refused(
        "fio --name=x --filename=/tmp/new --rw=write --size=8m --destroy=X",
        &["block devices only"],
    );
    // A file that somebody made there by a typing error is no disk either.
    rig.sh("echo x > /dev/nvme8n1").done();
    rig.refused(&format!("run /dev/nvme8n1 {WRITE}"), &["/dev only devices"]);
    rig.sh("ls /dev/nvme9n1 /dev/disk7 /tmp/new").has(&[
        "nvme9n1: No such",
        "disk7: No such",
        "new: No such",
    ]);
}
