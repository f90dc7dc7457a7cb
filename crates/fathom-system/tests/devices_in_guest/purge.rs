//! Purging: the drive's format, the kernel's discard and zeroes, and what is refused; bytes of every device compared.

use crate::rig::{Rig, hold};

/// A drive with three namespaces (plain, with protection, zoned), a virtio disk, a SCSI disk.
const MACHINE: &str = "\
 -device nvme-subsys,id=s0,nqn=purge -device nvme,id=n0,serial=NV-P,subsys=s0 \
 -drive file={dir}/a,if=none,id=a,format=raw,discard=unmap,detect-zeroes=unmap -device nvme-ns,bus=n0,drive=a,nsid=1 \
 -drive file={dir}/b,if=none,id=b,format=raw,discard=unmap,detect-zeroes=unmap -device nvme-ns,bus=n0,drive=b,nsid=2,logical_block_size=4096,physical_block_size=4096,ms=8,pi=1 \
 -drive file={dir}/c,if=none,id=c,format=raw -device nvme-ns,bus=n0,drive=c,nsid=3 \
 -drive file={dir}/v,if=none,id=v,format=raw,discard=unmap -device virtio-blk-pci,drive=v,serial=VIRT,discard=on,write-zeroes=on \
 -device virtio-scsi-pci,id=sc -drive file={dir}/s,if=none,id=s,format=raw,discard=unmap -device scsi-hd,bus=sc.0,drive=s,serial=SCSI";

/// Only the purge.
const ONLY: &str = "--passes 0 --yes --out /tmp/p";

#[test]
fn a_purge_empties_what_was_named_and_nothing_else() {
    let images = ["a", "b", "c", "v", "s"].map(|n| (n, 8));
    let modules = ["nvme", "virtio_scsi", "sd_mod"];
    let Some(mut rig) = Rig::boot(&images, MACHINE, &modules) else {
        return;
    };
    let [one, two, three] = [1, 2, 3].map(|n| rig.namespace("NV-P", n));
    let disk = rig.line("echo /dev/$(ls /sys/bus/scsi/devices/*/block)");
    let devices = [
        (one.as_str(), "NV-P-ns1", "a"),
        (&two, "NV-P-ns2", "b"),
        (&three, "NV-P-ns3", "c"),
        ("/dev/vda", "VIRT", "v"),
        (&disk, "SCSI", "s"),
    ];
    for (device, word, image) in devices {
        fill(&mut rig, device, word, image);
    }
    refusals(&mut rig, &one, &disk);
    // The drive's own command, named and chosen: one namespace of three, and its format stays.
    emptied(&mut rig, (&one, "NV-P-ns1", "a"), "format", "format");
    emptied(&mut rig, (&two, "NV-P-ns2", "b"), "auto", "format");
    rig.fathom("devices")
        .has(&["[4096+8]", "protection type 1"]);
    emptied(&mut rig, ("/dev/vda", "VIRT", "v"), "auto", "discard");
    fill(&mut rig, "/dev/vda", "VIRT", "v");
    emptied(&mut rig, ("/dev/vda", "VIRT", "v"), "zeroes", "zeroes");
    emptied(&mut rig, (&disk, "SCSI", "s"), "discard", "discard");
    fill(&mut rig, &disk, "SCSI", "s");
    emptied(&mut rig, (&disk, "SCSI", "s"), "zeroes", "zeroes");
    // What was not named holds what it held.
    let left = rig.contents()["c"].len();
    hold(left == 128, format_args!("{left} pieces of 64 KiB"));
    rig.off();
}

fn fill(rig: &mut Rig, device: &str, word: &str, image: &str) {
    rig.writes(
        &format!("run {device} --rw write --bs 128k --bytes 8m --destroy {word}"),
        image,
    );
}

/// The way empties the device; what was done is said and saved.
fn emptied(rig: &mut Rig, (device, word, image): (&str, &str, &str), asked: &str, done: &str) {
    rig.sh("rm -rf /tmp/p").done();
    rig.writes(
        &format!("condition {device} --purge {asked} {ONLY} --destroy {word} > /tmp/said 2>&1"),
        image,
    );
    let left = rig.contents()[image].len();
    hold(
        left == 0,
        format_args!("{asked}: {left} pieces of {image} are left"),
    );
    rig.sh("cat /tmp/said").has(&[
        &format!("was purged by {done}"),
        "read as zeroes",
        "that held data",
    ]);
    rig.sh("cat /tmp/p/*/run.json | tr -d ' \\n'").has(&[
        &format!("\"method\":\"{done}\""),
        "\"same\":0",
        "\"unreadable\":0",
    ]);
}

fn refusals(rig: &mut Rig, one: &str, disk: &str) {
    let mut refused = |device: &str, more: &str, words: &[&str]| {
        rig.refused(&format!("condition {device} {ONLY} {more}"), words);
    };
    refused(
        one,
        "--purge sanitize-block --destroy NV-P-ns1",
        &["no Sanitize", "it offers --purge format, discard"],
    );
    refused(
        one,
        "--purge format --size 4m --destroy NV-P-ns1",
        &["more than the range"],
    );
    refused(
        one,
        "--purge format-crypto --destroy NV-P-ns1",
        &["no cryptographic erase"],
    );
    refused(one, "--purge format", &["--destroy NV-P-ns1"]);
    refused(one, "--purge format --destroy NV-P-ns2", &["does not name"]);
    refused(
        disk,
        "--purge format --destroy SCSI",
        &["is no NVMe namespace"],
    );
    refused(
        disk,
        "--purge shred",
        &["no way to purge", "sanitize-crypto"],
    );
    refused(
        disk,
        "--purge secure-discard --destroy SCSI",
        &["takes no secure discards"],
    );
    let before = rig.contents();
    rig.fathom(&format!(
        "condition {one} {ONLY} --destroy NV-P-ns1 --dry-run"
    ))
    .has(&["after a purge by format", "purge by format"]);
    hold(before == rig.contents(), "a dry run changes nothing");
    // A partition's own words do not speak for the rest of the namespace.
    rig.sh(&format!(
        "dd if=/dev/zero of={one} bs=1M count=1 conv=notrunc 2>/dev/null; printf 'n\\np\\n1\\n\\n+2M\\nw\\n' | fdisk {one} > /dev/null; sleep 1"
    ));
    rig.refused(
        &format!("condition {one}p1 {ONLY} --purge format --destroy NV-P-ns1-part1"),
        &["it is a part of", "which it would empty"],
    );
    rig.sh(&format!(
        "dd if=/dev/zero of={one} bs=1M count=1 conv=notrunc 2>/dev/null; blockdev --rereadpt {one}; sleep 1"
    ))
    .done();
}
