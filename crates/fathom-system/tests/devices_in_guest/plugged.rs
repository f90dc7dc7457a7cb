//! Disks of SATA, USB and SD: Debian's full kernel alone has their drivers, so that only `bench/devices` runs this.

use crate::common::skip;
use crate::rig::Rig;

const MACHINE: &str = "\
 -device ahci,id=h -drive file={dir}/s,if=none,id=s,format=raw -device ide-hd,bus=h.0,drive=s,serial=SATA-1,wwn=0x5000c50015ea7111,rotation_rate=7200 \
 -device qemu-xhci,id=x -drive file={dir}/u,if=none,id=u,format=raw -device usb-storage,bus=x.0,drive=u,serial=USB-1,removable=on \
 -device usb-uas,id=uas,bus=x.0 -drive file={dir}/v,if=none,id=v,format=raw -device scsi-hd,bus=uas.0,drive=v,serial=UAS-1 \
 -device sdhci-pci -drive file={dir}/c,if=none,id=c,format=raw -device sd-card,drive=c";

const WRITE: &str = "--rw randwrite --bs 4k --ios 64 --time 20s";

#[test]
fn plugged_disks_are_known_and_written_under_their_word() {
    if std::env::var_os("FATHOM_FULL_KERNEL").is_none() {
        return skip("Debian's full kernel is needed: bench/devices --only full");
    }
    let images = ["s", "u", "v", "c"].map(|n| (n, 32));
    let modules = [
        "sd_mod",
        "ahci",
        "xhci_pci",
        "usb_storage",
        "uas",
        "sdhci_pci",
        "mmc_block",
        "crc32c_generic",
    ];
    let Some(mut rig) = Rig::boot(&images, MACHINE, &modules) else {
        return;
    };
    rig.sh("for i in $(seq 300); do [ $(ls -d /sys/block/sd[abc] /sys/block/mmcblk0 2>/dev/null | wc -l) = 4 ] && break; sleep 0.1; done").done();
    rig.scenario(
        "SATA disk",
        "sata, its health; written under its word",
        |rig| {
            plugged(rig, "SATA-1", "s", &["sata", "health"]);
        },
    );
    rig.scenario(
        "USB stick",
        "usb; no serial number by SCSI: written under its full path",
        |rig| {
            plugged(rig, "name     /dev/sd", "u", &["usb"]);
        },
    );
    rig.scenario("USB disk by UAS", "usb; written under its word", |rig| {
        plugged(rig, "UAS-1", "v", &["usb"]);
    });
    rig.scenario("SD card", "mmc; written under its word", |rig| {
        let serial = rig.line("cat /sys/block/mmcblk0/device/serial");
        plugged(rig, &serial, "c", &["mmc"]);
    });
    rig.off();
}

/// The disk with this in its description has the rest there, too, and is written under the word that is shown, and no other.
fn plugged(rig: &mut Rig, own: &str, image: &str, words: &[&str]) {
    let shown = rig.fathom("devices").text;
    let all: Vec<&str> = shown.split("\n/dev/").collect();
    let block = all.iter().find(|b| b.contains(own)).copied();
    crate::rig::hold(block.is_some(), format_args!("{own}: {shown}"));
    let Some(block) = block else { return };
    let name = block.split_whitespace().next().unwrap_or_default();
    let device = format!("/dev/{}", name.trim_start_matches("/dev/"));
    for word in words {
        let known = block.to_lowercase().contains(word);
        crate::rig::hold(known, format_args!("{word}: {block}"));
    }
    let word = block.split_once("with --destroy ").map(|(_, rest)| {
        let line = rest.lines().next().unwrap_or_default();
        line.split(" (").next().unwrap_or_default().trim()
    });
    rig.refused(&format!("run {device} {WRITE}"), &["--destroy"]);
    rig.fathom(&format!("run {device} --rw randread --ios 200"))
        .done();
    rig.writes(
        &format!("run {device} {WRITE} --destroy {}", word.unwrap_or("?")),
        image,
    );
}
