//! Who uses a device without a mount of this machine's: exports, programs, maps, other paths, other hosts.

use crate::rig::{Rig, hold};

const WRITE: &str = "--rw randwrite --bs 4k --ios 64 --time 20s";

/// A drive with two namespaces; one that two controllers share; a drive that warns; two paths to one disk; disks.
const MACHINE: &str = "\
 -device nvme-subsys,id=s0,nqn=two -device nvme,id=n0,serial=NV-TWO,subsys=s0 \
 -drive file={dir}/a,if=none,id=a,format=raw -device nvme-ns,bus=n0,drive=a,nsid=1 \
 -drive file={dir}/b,if=none,id=b,format=raw -device nvme-ns,bus=n0,drive=b,nsid=2 \
 -device nvme-subsys,id=s1,nqn=shared -device nvme,id=ca,serial=NV-SHARED,subsys=s1 -device nvme,id=cb,serial=NV-SHARED,subsys=s1 \
 -drive file={dir}/d,if=none,id=d,format=raw -device nvme-ns,bus=ca,drive=d,nsid=1,shared=on \
 -device nvme,id=n2,serial=NV-WARNS,smart_critical_warning=4 \
 -drive file={dir}/x,if=none,id=x,format=raw -device nvme-ns,bus=n2,drive=x,nsid=1 \
 -device virtio-scsi-pci,id=sc \
 -drive file={dir}/p,if=none,id=p1,format=raw,file.locking=off,cache=none -device scsi-hd,bus=sc.0,drive=p1,serial=PATHS,wwn=0x5000c50015ea71ff,share-rw=on,scsi-id=5 \
 -drive file={dir}/p,if=none,id=p2,format=raw,file.locking=off,cache=none -device scsi-hd,bus=sc.0,drive=p2,serial=PATHS,wwn=0x5000c50015ea71ff,share-rw=on,scsi-id=6 \
 -drive file={dir}/v,if=none,id=v,format=raw -device virtio-blk-pci,drive=v,serial=VB-V \
 -drive file={dir}/w,if=none,id=w,format=raw -device virtio-blk-pci,drive=w,serial=VB-W";

#[test]
fn a_device_that_others_use_is_not_written() {
    let images = ["a", "b", "d", "x", "p", "v", "w"].map(|n| (n, 32));
    let modules = [
        "nvme",
        "virtio_scsi",
        "sd_mod",
        "configfs",
        "nvmet",
        "target_core_mod",
        "target_core_iblock",
        "target_core_file",
        "dm_mod",
        "dm_crypt",
        "xts",
        "ecb",
        "dm_multipath",
        "dm_round_robin",
        "ext4",
    ];
    let Some(mut rig) = Rig::boot(&images, MACHINE, &modules) else {
        return;
    };
    if !rig.bring("dmsetup") || !rig.bring("mkfs.ext4") {
        return;
    }
    rig.scenario(
        "exported by the kernel's NVMe and SCSI targets",
        "refused with the export's name",
        exported_by_the_kernel,
    );
    rig.scenario(
        "configfs not mounted",
        "refused",
        exports_that_cannot_be_seen,
    );
    rig.scenario(
        "open for writing elsewhere",
        "refused with the process",
        open_for_writing,
    );
    rig.scenario(
        "dm-crypt above; maps by name",
        "refused below, written by its name",
        maps,
    );
    rig.scenario(
        "a namespace beside a mounted one",
        "written; the mounted one keeps its file",
        a_namespace_beside_a_mounted_one,
    );
    rig.scenario(
        "other path of a mounted disk, with an old page cache",
        "refused",
        another_path_and_an_old_cache,
    );
    rig.scenario(
        "dm-multipath",
        "written by its name or WWID only",
        a_map_of_paths,
    );
    rig.scenario(
        "namespace attached to a controller of another host",
        "refused",
        attached_to_another_machine,
    );
    rig.scenario(
        "drive with a critical warning",
        "`device-warning`",
        a_drive_that_warns,
    );
    rig.off();
}

fn exported_by_the_kernel(rig: &mut Rig) {
    let subsystem = "/sys/kernel/config/nvmet/subsystems/tt";
    rig.sh(&format!("mkdir {subsystem} && mkdir {subsystem}/namespaces/1 && echo -n /dev/vda > {subsystem}/namespaces/1/device_path && echo 1 > {subsystem}/namespaces/1/enable")).done();
    rig.refused(
        &format!("run /dev/vda {WRITE} --destroy VB-V"),
        &[
            "/dev/vda",
            "NVMe target (subsystem tt, namespace 1)",
            "enable",
        ],
    );
    rig.fathom("devices")
        .has(&["exported by the kernel's NVMe target"]);
    rig.sh(&format!("echo 0 > {subsystem}/namespaces/1/enable"))
        .done();
    rig.writes(&format!("run /dev/vda {WRITE} --destroy VB-V"), "v");
    // A file that fathom made, exported meanwhile.
    rig.sh("mkfs.ext4 -q /dev/vdb && mount -t ext4 /dev/vdb /m")
        .done();
    rig.fathom("run /m/made --rw write --size 2m --bs 4k --create")
        .done();
    rig.sh(&format!("mkdir {subsystem}/namespaces/2 && echo -n /m/made > {subsystem}/namespaces/2/device_path && echo 1 > {subsystem}/namespaces/2/enable")).done();
    // (A file system changes its own bytes at any time: the file is compared.)
    let before = rig.line("cksum /m/made");
    rig.fathom("run /m/made --rw write --bs 4k")
        .refused(&["exports"]);
    let after = rig.line("cksum /m/made");
    hold(before == after, format_args!("{before}, {after}"));
    rig.sh(&format!("echo 0 > {subsystem}/namespaces/2/enable; umount /m; dd if=/dev/zero of=/dev/vdb bs=1M count=32 2>/dev/null; sync")).done();
    for (kind, control) in [
        ("iblock_0", "udev_path=/dev/vdb"),
        ("fileio_1", "fd_dev_name=/dev/vdb,fd_dev_size=33554432"),
    ] {
        let core = format!("/sys/kernel/config/target/core/{kind}/disk");
        rig.sh(&format!("mkdir -p {core} && echo -n '{control}' > {core}/control && echo -n /dev/vdb > {core}/udev_path && echo 1 > {core}/enable")).done();
        rig.refused(
            &format!("run /dev/vdb {WRITE} --destroy VB-W"),
            &["SCSI target", kind],
        );
        rig.sh(&format!("rmdir {core}")).done();
    }
    rig.writes(&format!("run /dev/vdb {WRITE} --destroy VB-W"), "w");
}

fn exports_that_cannot_be_seen(rig: &mut Rig) {
    rig.sh("umount /sys/kernel/config").done();
    rig.refused(
        &format!("run /dev/vda {WRITE} --destroy VB-V"),
        &["cannot prove", "configfs"],
    );
    rig.sh("mount -t configfs c /sys/kernel/config").done();
}

fn open_for_writing(rig: &mut Rig) {
    // As an NBD server or a hypervisor has it: without a claim.
    rig.sh(
        "(exec 7<>/dev/vdb; exec sleep 1000) > /dev/null 2>&1 & echo $! > /tmp/server; sleep 0.3",
    )
    .done();
    rig.refused(
        &format!("run /dev/vdb {WRITE} --destroy VB-W"),
        &["open for writing by process", "(sleep)"],
    );
    rig.fathom("devices").has(&["open for writing by process"]);
    rig.sh("kill $(cat /tmp/server); sleep 0.2").done();
    // Who only looks does no harm.
    rig.sh(
        "(exec 7</dev/vdb; exec sleep 1000) > /dev/null 2>&1 & echo $! > /tmp/reader; sleep 0.3",
    )
    .done();
    rig.writes(
        &format!("run /dev/vdb {WRITE} --seed 3 --destroy VB-W"),
        "w",
    );
    rig.sh("kill $(cat /tmp/reader)").done();
}

fn maps(rig: &mut Rig) {
    // A plain volume has no header: only the map above tells.
    let key = "0123456789abcdef".repeat(4);
    rig.sh(&format!("dmsetup --noudevsync create hidden --table '0 65536 crypt aes-xts-plain64 {key} 0 /dev/vdb 0'")).done();
    rig.refused(
        &format!("run /dev/vdb {WRITE} --destroy VB-W"),
        &["part of dm-0", "hidden"],
    );
    // By its name, although no udev made a link.
    rig.sh("rm -f /dev/mapper/hidden").done();
    rig.refused(
        &format!("run /dev/mapper/hidden {WRITE}"),
        &["--destroy /dev/mapper/hidden"],
    );
    rig.writes(
        &format!("run /dev/mapper/hidden {WRITE} --destroy /dev/mapper/hidden"),
        "w",
    );
    rig.writes(
        &format!("run /dev/dm-0 {WRITE} --seed 4 --destroy hidden"),
        "w",
    );
    rig.refused(
        &format!("run /dev/mapper/other {WRITE} --size 1m --destroy other"),
        &["/dev/mapper/other"],
    );
    rig.sh("dmsetup --noudevsync remove hidden").done();
}

fn a_namespace_beside_a_mounted_one(rig: &mut Rig) {
    let [one, two] = [1, 2].map(|n| rig.namespace("NV-TWO", n));
    // (Read only: one that may write changes its own bytes at any time.)
    rig.sh(&format!(
        "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 {one} && mount -t ext4 {one} /m && echo kept > /m/file && umount /m && mount -t ext4 -o ro {one} /m"
    ))
    .done();
    rig.refused(
        &format!("run {one} {WRITE} --destroy NV-TWO-ns1"),
        &["mounted at /m"],
    );
    rig.writes(&format!("run {two} {WRITE} --destroy NV-TWO-ns2"), "b");
    rig.sh("umount /m").done();
    rig.refused(
        &format!("run {one} {WRITE} --destroy NV-TWO-ns1"),
        &["not blank", "ext4"],
    );
    rig.sh(&format!("mount -t ext4 {one} /m && cat /m/file; umount /m"))
        .has(&["kept"]);
}

fn another_path_and_an_old_cache(rig: &mut Rig) {
    let paths = rig.line("for s in /sys/block/sd*; do echo /dev/${s##*/}; done");
    let [a, b] = <[&str; 2]>::try_from(paths.split_whitespace().collect::<Vec<_>>()).unwrap();
    // Somebody keeps the second path open: its pages stay as they were before the file system was made.
    rig.sh(&format!("(exec sleep 1000 < {b}) > /dev/null 2>&1 & dd if={b} of=/dev/null bs=1M 2>/dev/null; sleep 0.2")).done();
    // (Read only: one that may write changes its own bytes at any time.)
    rig.sh(&format!(
        "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 {a} && mount -t ext4 -o ro {a} /m"
    ))
    .done();
    rig.refused(
        &format!("run {b} {WRITE} --destroy PATHS"),
        &["mounted at /m", "same bytes"],
    );
    rig.sh("umount /m").done();
    rig.refused(
        &format!("run {b} {WRITE} --destroy PATHS"),
        &["not blank", "ext4"],
    );
    // (dd ends with 1 at the end of the disk.)
    let wiped = rig.sh(&format!(
        "dd if=/dev/zero of={a} bs=1M 2>/dev/null; sync; kill $(pidof sleep)"
    ));
    assert_eq!(wiped.code, 0, "{}", wiped.text);
    rig.writes(&format!("run {a} {WRITE} --destroy PATHS"), "p");
    rig.writes(
        &format!("run {b} {WRITE} --seed 2 --destroy naa.5000c50015ea71ff"),
        "p",
    );
}

fn a_map_of_paths(rig: &mut Rig) {
    let numbers = rig.line("cat /sys/block/sd*/dev");
    let [a, b] = <[&str; 2]>::try_from(numbers.split_whitespace().collect::<Vec<_>>()).unwrap();
    rig.sh(&format!(
        "dmsetup --noudevsync create mpatha --uuid mpath-35000c50015ea71ff --table '0 65536 multipath 0 0 1 1 round-robin 0 2 1 {a} 1 {b} 1'"
    )).done();
    rig.sh("rm -f /dev/mapper/mpatha").done();
    let sd = rig.line("ls /sys/block | grep -m1 sd");
    rig.refused(
        &format!("run /dev/{sd} {WRITE} --destroy PATHS"),
        &["multipath device mpatha", "/dev/mapper/mpatha"],
    );
    rig.refused(
        &format!("run /dev/mapper/mpatha {WRITE}"),
        &["world-wide name", "--destroy 35000c50015ea71ff"],
    );
    rig.writes(
        &format!("run /dev/mapper/mpatha {WRITE} --seed 5 --destroy 35000c50015ea71ff"),
        "p",
    );
    rig.writes(
        &format!("run /dev/mapper/mpatha {WRITE} --seed 6 --destroy mpatha"),
        "p",
    );
    rig.sh("dmsetup --noudevsync remove mpatha").done();
}

fn attached_to_another_machine(rig: &mut Rig) {
    let shared = rig.namespace("NV-SHARED", 1);
    rig.writes(&format!("run {shared} {WRITE} --destroy NV-SHARED"), "d");
    // One of the two controllers goes to somebody else, as to a second host.
    rig.sh("for c in /sys/class/nvme/nvme*; do grep -q NV-SHARED $c/serial && last=$c; done; p=$(readlink -f $last/device); echo ${p##*/} > $p/driver/unbind; sleep 1").done();
    let shared = rig.namespace("NV-SHARED", 1);
    rig.refused(
        &format!("run {shared} {WRITE} --seed 2 --destroy NV-SHARED"),
        &["attached to controller", "another one may use it"],
    );
}

fn a_drive_that_warns(rig: &mut Rig) {
    let warns = rig.namespace("NV-WARNS", 1);
    let said = rig.fathom(&format!("run {warns} {WRITE} --destroy NV-WARNS"));
    said.has(&["reliability is degraded"]);
    rig.fathom(&format!(
        "run {warns} --rw randread --bs 4k --ios 64 --json"
    ))
    .has(&["device-warning", "reliability is degraded"]);
}
