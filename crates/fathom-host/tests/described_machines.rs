//! Machines that are only described: trees that look like /sys, /proc and /dev. They show
//! what this kernel may not have: device-mapper, RAID, NVMe, multipath.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use fathom_host::devices::block_devices_in;
use fathom_host::refusal::Refusal;
use fathom_host::{Access, HostRoot, Use};

#[path = "common/described.rs"]
mod described;

use described::Machine;

#[test]
fn an_nvme_disk_tells_its_model_serial_firmware_and_queue() {
    let m = Machine::new();
    let dir = m.disk(
        "pci0000:00/0000:00:1d.0/nvme/nvme0/nvme0n1",
        "nvme0n1",
        "259:0",
    );
    m.put(
        &format!("{dir}/device/model"),
        "Fast SSD 9000                  ",
    );
    m.put(&format!("{dir}/device/serial"), "  S64DNX0R  \n");
    m.put(&format!("{dir}/device/firmware_rev"), "5B2QGXA7");
    m.put(&format!("{dir}/device/transport"), "pcie");
    m.put(
        &format!("{dir}/queue/scheduler"),
        "[none] mq-deadline kyber",
    );
    m.put(&format!("{dir}/queue/rotational"), "0");
    m.put(&format!("{dir}/queue/nr_requests"), "1023");
    m.put(&format!("{dir}/queue/io_poll"), "1");
    m.put(&format!("{dir}/queue/write_cache"), "write back");
    m.put(&format!("{dir}/queue/logical_block_size"), "4096");
    m.put(&format!("{dir}/queue/wbt_lat_usec"), "-1");
    m.put("sys/module/nvme/parameters/poll_queues", "4");
    fs::create_dir_all(m.at(&format!("{dir}/mq/0"))).unwrap();
    fs::create_dir_all(m.at(&format!("{dir}/mq/1"))).unwrap();
    let part = m.partition(&dir, "nvme0n1p1", "259:1");
    assert!(!part.is_empty());

    let d = m.device("nvme0n1");
    assert_eq!(d.model.as_deref(), Some("Fast SSD 9000"));
    assert_eq!(d.serial.as_deref(), Some("S64DNX0R"));
    assert_eq!(d.firmware.as_deref(), Some("5B2QGXA7"));
    assert_eq!(d.transport.as_deref(), Some("nvme (pcie)"));
    assert_eq!(
        (d.rotational, d.logical_block_bytes),
        (Some(false), Some(4096))
    );
    let q = d.queue.clone().unwrap();
    assert_eq!(
        (q.scheduler.as_deref(), q.nr_requests, q.io_poll),
        (Some("none"), Some(1023), Some(true))
    );
    assert_eq!(
        (q.poll_queues, q.hardware_queues, q.wbt_lat_usec),
        (Some(4), Some(2), Some(-1))
    );
    assert_eq!(q.max_sectors_kb, None, "what is not told is not invented");
    assert_eq!(
        d.verdict.write,
        Access::Confirm {
            destroy: "S64DNX0R".into()
        }
    );
    assert_eq!(d.partitions, ["nvme0n1p1"]);
    // A partition answers to the serial number of its disk.
    let p = m.device("nvme0n1p1");
    assert_eq!(
        p.verdict.write,
        Access::Confirm {
            destroy: "S64DNX0R".into()
        }
    );
    assert!(p.uses.contains(&Use::PartitionOf {
        disk: "nvme0n1".into()
    }));
}

#[test]
fn serial_numbers_are_found_where_each_driver_hides_them() {
    let m = Machine::new();
    let sata = m.disk("pci0/ata1/host0/target0:0:0/0:0:0:0", "sda", "8:0");
    m.put(&format!("{sata}/device/vendor"), "ATA     ");
    m.put(&format!("{sata}/device/model"), "Disk 4TB");
    m.put(
        &format!("{sata}/device/vpd_pg80"),
        "\0\u{0}\0\u{8}WD-12345garbage",
    );
    let usb = m.disk("pci0/usb1/1-1/host1/target1:0:0/1:0:0:0", "sdb", "8:16");
    m.put(&format!("{usb}/device/vendor"), "SanDisk ");
    m.put(&format!("{usb}/device/model"), "Ultra");
    m.put(
        "run/udev/data/b8:16",
        "S:disk/by-id/x\nE:ID_SERIAL=SanDisk_Ultra_77\nE:ID_SERIAL_SHORT=77\n",
    );
    let virtio = m.disk("pci0/virtio3", "vda", "254:0");
    m.put(&format!("{virtio}/serial"), "vol-0abc");
    let plain = m.disk("virtual", "loop0", "7:0");
    m.put(&format!("{plain}/loop/backing_file"), "/tmp/x.img");

    let of = |name: &str| {
        let d = m.device(name);
        (d.serial.clone(), d.model.clone(), d.transport.clone())
    };
    let some = |s: &str| Some(s.to_string());
    assert_eq!(
        of("sda"),
        (some("WD-12345"), some("Disk 4TB"), some("sata"))
    );
    assert_eq!(of("sdb"), (some("77"), some("SanDisk Ultra"), some("usb")));
    assert_eq!(of("vda"), (some("vol-0abc"), None, some("virtio")));
    assert_eq!(of("loop0"), (None, None, some("loop")));
    let path = m.at("dev/loop0").display().to_string();
    assert_eq!(
        m.device("loop0").verdict.write,
        Access::Confirm { destroy: path }
    );
}

#[test]
fn a_physical_volume_is_held_by_its_logical_volume_and_so_is_its_disk() {
    let m = Machine::new();
    let sda = m.disk("pci0/ata1", "sda", "8:0");
    let sda1 = m.partition(&sda, "sda1", "8:1");
    m.partition(&sda, "sda2", "8:2");
    let dm = m.disk("virtual", "dm-0", "253:0");
    m.put(&format!("{dm}/dm/name"), "vg-root");
    m.put(&format!("{dm}/dm/uuid"), "LVM-abcdef");
    m.hold(&sda1, "sda1", &dm, "dm-0");

    match m.refusal("sda1") {
        Refusal::Held {
            holder,
            kind,
            remedy,
            ..
        } => {
            assert_eq!(
                (holder.as_str(), kind.as_str()),
                ("dm-0", "LVM volume vg-root")
            );
            assert_eq!(remedy, "vgchange -an vg");
        }
        other => panic!("{other:?}"),
    }
    match m.refusal("sda") {
        Refusal::Held { place, .. } => assert!(place.relative.unwrap().contains("its partition")),
        other => panic!("{other:?}"),
    }
    assert!(m.is_free("sda2"), "a free partition beside it");
    assert!(m.is_free("dm-0"), "the volume itself, as nobody uses it");
    m.mounts("30 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n");
    assert!(matches!(m.refusal("dm-0"), Refusal::Mounted { .. }));
    assert!(matches!(m.refusal("sda1"), Refusal::Held { .. }));
}

#[test]
fn the_kinds_of_holders_are_told_with_the_command_that_dissolves_them() {
    let m = Machine::new();
    for (i, (file, text, uuid, kind, remedy)) in [
        (
            "dm/name",
            "secret",
            "CRYPT-LUKS2-1",
            "encrypted volume secret",
            "cryptsetup close secret",
        ),
        (
            "dm/name",
            "mpatha",
            "mpath-3600",
            "multipath device mpatha",
            "multipath -f mpatha",
        ),
        (
            "dm/name",
            "odd",
            "",
            "device-mapper device odd",
            "dmsetup remove odd",
        ),
        (
            "md/level",
            "raid1",
            "",
            "software RAID raid1",
            "mdadm --stop /dev/upper3",
        ),
        ("x", "y", "", "upper device", "stop /dev/upper4"),
    ]
    .into_iter()
    .enumerate()
    {
        let lower = m.disk("pci0/ata1", &format!("sd{i}x"), &format!("8:{}", i * 16));
        let upper = m.disk("virtual", &format!("upper{i}"), &format!("250:{i}"));
        m.put(&format!("{upper}/{file}"), text);
        m.put(&format!("{upper}/dm/uuid"), uuid);
        m.hold(&lower, &format!("sd{i}x"), &upper, &format!("upper{i}"));
        match m.refusal(&format!("sd{i}x")) {
            Refusal::Held {
                kind: k, remedy: r, ..
            } => {
                assert_eq!(k, kind);
                assert!(r.contains(remedy), "{r}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_raid_is_writable_when_free_but_not_when_a_partition_of_it_is_mounted() {
    let m = Machine::new();
    let sda = m.disk("pci0/ata1", "sda", "8:0");
    let md = m.disk("virtual", "md0", "9:0");
    m.put(&format!("{md}/md/level"), "raid5");
    m.hold(&sda, "sda", &md, "md0");
    m.partition(&md, "md0p1", "259:4");
    assert!(m.is_free("md0") && m.is_free("md0p1"));
    m.mounts("30 1 259:4 / /data rw - xfs /dev/md0p1 rw\n");
    assert!(matches!(m.refusal("md0"), Refusal::Mounted { .. }));
    assert!(matches!(m.refusal("md0p1"), Refusal::Mounted { .. }));
    assert!(matches!(m.refusal("sda"), Refusal::Held { .. }));
}

#[test]
fn an_array_is_writable_whose_members_say_that_they_are_its_own_in_a_file_or_on_a_disk() {
    let m = Machine::new();
    let mut member = vec![0; 4 << 20];
    member[4096..4100].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    member[4100] = 1;
    let file = m.at("members.img");
    fs::write(&file, &member).unwrap();
    let part = m.disk("virtual", "loop0", "7:0");
    m.put(&format!("{part}/loop/backing_file"), file.to_str().unwrap());
    m.put(&format!("{part}/loop/offset"), "4096");
    let over = m.disk("virtual", "loop1", "7:1");
    m.disk("pci0/ata1", "sda", "8:0");
    m.fill("sda", &member);
    m.put(&format!("{over}/loop/backing_file"), "/dev/sda");
    m.put(&format!("{over}/loop/offset"), "1048576");
    let md = m.disk("virtual", "md0", "9:0");
    m.put(&format!("{md}/md/level"), "raid0");
    m.hold(&part, "loop0", &md, "md0");
    m.hold(&over, "loop1", &md, "md0");
    assert!(m.is_free("md0"));
    // One that belongs to nothing is not free where its file or its disk holds something.
    for (dir, name) in [(&part, "loop0"), (&over, "loop1")] {
        fs::remove_file(m.at(&format!("{dir}/holders/md0"))).unwrap();
        match m.refusal(name) {
            Refusal::Signature { place, what, .. } => {
                assert!(what.starts_with("md 1."), "{what}");
                assert!(place.relative.unwrap().contains("behind"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_second_path_to_a_mounted_disk_is_refused() {
    let m = Machine::new();
    let a = m.disk("pci0/host0/rport-0:0-1/target0:0:0/0:0:0:1", "sda", "8:0");
    let b = m.disk("pci0/host1/rport-1:0-1/target1:0:0/1:0:0:1", "sdb", "8:16");
    let c = m.disk("pci0/host1/rport-1:0-1/target1:0:0/1:0:0:2", "sdc", "8:32");
    m.put(&format!("{a}/device/wwid"), "naa.600a0b80");
    m.put(&format!("{b}/device/wwid"), "naa.600a0b80");
    m.put(&format!("{c}/device/wwid"), "naa.600a0b81");
    assert!(m.is_free("sdb"));
    m.mounts("30 1 8:0 / /data rw - ext4 /dev/sda rw\n");
    match m.refusal("sdb") {
        Refusal::Mounted { place, .. } => assert!(place.relative.unwrap().contains("same bytes")),
        other => panic!("{other:?}"),
    }
    assert!(m.is_free("sdc"));
}

#[test]
fn a_btrfs_with_an_anonymous_number_is_found_by_its_source_and_by_its_members() {
    let m = Machine::new();
    m.disk("pci0/ata1", "sda", "8:0");
    m.disk("pci0/ata2", "sdb", "8:16");
    m.mounts("30 1 0:45 /@ /home rw - btrfs /dev/sda rw,subvol=/@\n");
    m.put("sys/fs/btrfs/1234-uuid/devices/sda/x", "");
    m.put("sys/fs/btrfs/1234-uuid/devices/sdb/x", "");
    assert!(matches!(m.refusal("sda"), Refusal::Mounted { .. }));
    match m.refusal("sdb") {
        Refusal::ActiveFileSystem { id, .. } => assert_eq!(id, "1234-uuid"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn further_devices_of_a_mount_are_in_use_too() {
    let m = Machine::new();
    m.disk("pci0/ata1", "sda", "8:0");
    m.disk("pci0/ata2", "sdb", "8:16");
    m.disk("pci0/ata3", "sdc", "8:32");
    m.mounts("30 1 8:0 / /data rw - xfs /dev/sda rw,logdev=/dev/sdb,noquota\n");
    assert!(matches!(m.refusal("sdb"), Refusal::Mounted { .. }));
    assert!(m.is_free("sdc"));
}

#[test]
fn swap_is_found_by_number_and_not_by_name() {
    let m = Machine::new();
    let sda = m.disk("pci0/ata1", "sda", "8:0");
    m.partition(&sda, "sda3", "8:3");
    fs::create_dir_all(m.at("dev/disk/by-label")).unwrap();
    symlink(m.at("dev/sda3"), m.at("dev/disk/by-label/swap")).unwrap();
    m.put(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/disk/by-label/swap partition 100 0 -2\n",
    );
    assert!(matches!(m.refusal("sda3"), Refusal::Swap { .. }));
    assert!(matches!(m.refusal("sda"), Refusal::Swap { .. }));
}

#[test]
fn a_partition_without_a_node_is_still_looked_at_through_its_disk() {
    let m = Machine::new();
    let sda = m.disk("pci0/ata1", "sda", "8:0");
    m.partition(&sda, "sda1", "8:1");
    assert!(m.is_free("sda"));
    fs::remove_file(m.at("dev/sda1")).unwrap();
    let mut bytes = vec![0; 1 << 20];
    // The partition starts at sector 256; XFS begins with its name.
    bytes[256 * 512..256 * 512 + 4].copy_from_slice(b"XFSB");
    m.fill("sda", &bytes);
    match m.refusal("sda") {
        Refusal::Signature { place, what, .. } => {
            assert!(place.relative.unwrap().contains("its partition"));
            assert_eq!(what, "xfs file system");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_proved_unused_is_not_writable() {
    let m = Machine::new();
    let dir = m.disk("pci0/ata1", "sda", "8:0");
    fs::remove_file(m.at("dev/sda")).unwrap();
    assert!(matches!(m.refusal("sda"), Refusal::Unproven { .. }));
    // A disk that is shorter than it says cannot be read to its end.
    m.fill("sda", &[0; 4096]);
    assert!(matches!(m.refusal("sda"), Refusal::Unproven { .. }));
    m.fill("sda", &vec![0; 1 << 20]);
    assert!(m.is_free("sda"));
    m.put(&format!("{dir}/ro"), "1");
    assert!(matches!(m.refusal("sda"), Refusal::ReadOnly { .. }));
    m.put(&format!("{dir}/ro"), "0");
    m.put(&format!("{dir}/size"), "0");
    assert!(matches!(m.refusal("sda"), Refusal::Empty { .. }));
    // Without the tables there is no list at all.
    let root = HostRoot::under(m.dir.path());
    m.mounts("this is not a mount table\n");
    assert!(block_devices_in(&root).is_err());
    fs::remove_file(m.at("proc/self/mountinfo")).unwrap();
    assert!(block_devices_in(&root).is_err());
    assert!(block_devices_in(&HostRoot::under(Path::new("/nonexistent"))).is_err());
}

#[test]
fn a_device_is_described_in_json_for_scripts() {
    let m = Machine::new();
    m.disk("pci0/ata1", "sda", "8:0");
    m.mounts("30 1 8:0 / /data rw - ext4 /dev/sda rw\n");
    let json = serde_json::to_value(m.device("sda")).unwrap();
    assert_eq!(json["number"], "8:0");
    assert_eq!(json["uses"][0]["use"], "mounted");
    assert_eq!(json["verdict"]["read"]["access"], "allowed");
    assert_eq!(json["verdict"]["write"]["access"], "refused");
    assert_eq!(json["verdict"]["write"]["refusal"]["reason"], "mounted");
    assert!(
        json["verdict"]["write"]["message"]
            .as_str()
            .unwrap()
            .contains("umount /data")
    );
    assert!(json["model"].is_null());
}

/// What `fathom devices` would show to type.
fn word(m: &Machine, name: &str) -> String {
    match m.device(name).verdict.write {
        Access::Confirm { destroy } => destroy,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn equal_serial_numbers_of_cheap_drives_name_none_of_them() {
    let m = Machine::new();
    for (name, number, port) in [("sdb", "8:16", "1-1"), ("sdc", "8:32", "1-2")] {
        let dir = m.disk(
            &format!("pci0/usb1/{port}/host1/target1:0:0/1:0:0:0"),
            name,
            number,
        );
        m.put(&format!("{dir}/device/model"), "Mass  Storage Device");
        // The bridge copies the serial number, and a world-wide name with it.
        m.put(&format!("{dir}/device/serial"), "0123456789ABCDEF");
        m.put(&format!("{dir}/device/wwid"), "naa.5000000000000001");
    }
    for name in ["sdb", "sdc"] {
        assert_eq!(
            word(&m, name),
            m.at(&format!("dev/{name}")).display().to_string()
        );
        assert!(!m.device(name).is_named_by("0123456789ABCDEF"));
        assert!(!m.device(name).is_named_by("naa.5000000000000001"));
    }
    // Neither do noughts, where only one drive has them.
    let dir = m.disk("pci0/ata3", "sdd", "8:48");
    m.put(&format!("{dir}/device/serial"), "00000000");
    assert_eq!(word(&m, "sdd"), m.at("dev/sdd").display().to_string());
}

#[test]
fn namespaces_answer_to_their_own_names_and_not_to_that_of_their_drive() {
    let m = Machine::new();
    for (name, number, nsid) in [("nvme0n1", "259:1", "3"), ("nvme0n2", "259:2", "2")] {
        let dir = m.disk("pci0/nvme/nvme0", name, number);
        m.put(&format!("{dir}/device/serial"), "NV-1");
        m.put(&format!("{dir}/nsid"), nsid);
        m.put(
            &format!("{dir}/wwid"),
            &format!("eui.0025385b71b0000{nsid}"),
        );
        m.put(
            &format!("{dir}/eui"),
            &format!("00 25 38 5b 71 b0 00 0{nsid}"),
        );
        m.put(
            &format!("{dir}/nguid"),
            "00000000-0000-0000-0000-000000000000",
        );
    }
    assert_eq!(word(&m, "nvme0n1"), "NV-1-ns3");
    let two = m.device("nvme0n2");
    let words: Vec<&str> = two.words.iter().map(|w| w.word.as_str()).collect();
    assert_eq!(words, ["NV-1-ns2", "eui.0025385b71b00002"]);
    assert!(!two.is_named_by("NV-1") && !two.is_named_by("NV-1-ns3"));
    // What the kernel makes up of vendor, model, serial number and namespace is no name of its own.
    let dir = m.disk("pci0/nvme/nvme1", "nvme1n1", "259:3");
    m.put(&format!("{dir}/device/serial"), "NV-2");
    m.put(&format!("{dir}/wwid"), "nvme.1b36-4e56-51454d55-00000001");
    let words = m.device("nvme1n1").words;
    assert_eq!((words.len(), words[0].word.as_str()), (1, "NV-2"));
}

#[test]
fn two_paths_to_one_disk_answer_to_its_serial_number() {
    let m = Machine::new();
    for (name, number, host) in [("sda", "8:0", "0"), ("sdb", "8:16", "1")] {
        let dir = m.disk(
            &format!("pci0/host{host}/rport-{host}:0-1/target/{host}:0:0:1"),
            name,
            number,
        );
        m.put(&format!("{dir}/device/wwid"), "naa.600a0b80000f0001");
        m.put(&format!("{dir}/device/serial"), "LUN 7  of array");
    }
    for name in ["sda", "sdb"] {
        assert_eq!(word(&m, name), "LUN 7  of array");
        assert!(
            m.device(name).is_named_by("LUN 7 of array"),
            "blanks are padding"
        );
    }
}

#[test]
fn areas_of_an_emmc_and_partitions_have_names_of_their_own() {
    let m = Machine::new();
    for (name, number) in [
        ("mmcblk0", "179:0"),
        ("mmcblk0boot0", "179:8"),
        ("mmcblk0boot1", "179:16"),
    ] {
        let dir = m.disk("platform/mmc_host/mmc0/mmc0:0001", name, number);
        m.put(&format!("{dir}/serial"), "0x1a2b3c4d");
    }
    assert_eq!(word(&m, "mmcblk0"), "0x1a2b3c4d-user");
    assert_eq!(word(&m, "mmcblk0boot1"), "0x1a2b3c4d-boot1");
    assert!(!m.device("mmcblk0boot0").is_named_by("0x1a2b3c4d"));
    let dir = m.disk("pci0/ata1", "sda", "8:0");
    m.put(&format!("{dir}/device/serial"), "WD-1");
    m.partition(&dir, "sda1", "8:1");
    assert_eq!(word(&m, "sda1"), "WD-1", "the only one");
    let second = m.partition(&dir, "sda2", "8:2");
    m.put(&format!("{second}/partition"), "2");
    assert_eq!(word(&m, "sda2"), "WD-1-part2");
    assert!(!m.device("sda1").is_named_by("WD-1"));
}

#[test]
fn a_map_answers_to_its_name_and_one_of_paths_to_its_world_wide_name() {
    let m = Machine::new();
    let dm = m.disk("virtual", "dm-0", "253:0");
    m.put(&format!("{dm}/dm/name"), "mpatha");
    m.put(&format!("{dm}/dm/uuid"), "mpath-3600a0b80000f0001");
    assert_eq!(word(&m, "dm-0"), "3600a0b80000f0001");
    let dm = m.disk("virtual", "dm-1", "253:1");
    m.put(&format!("{dm}/dm/name"), "vg-data");
    m.put(&format!("{dm}/dm/uuid"), "LVM-x");
    let path = m.at("dev/mapper/vg-data").display().to_string();
    assert_eq!(word(&m, "dm-1"), path);
    for word in [path.as_str(), "vg-data", m.at("dev/dm-1").to_str().unwrap()] {
        assert!(m.device("dm-1").is_named_by(word), "{word}");
    }
    assert!(!m.device("dm-1").is_named_by("mpatha"));
}

#[test]
fn a_multipath_head_shows_the_queues_of_its_paths_and_not_those_of_others() {
    let m = Machine::new();
    let head = m.disk("virtual/nvme-subsystem/nvme-subsys0", "nvme0n1", "259:1");
    m.put(&format!("{head}/queue/scheduler"), "none");
    for (controller, scheduler) in [
        ("nvme0/nvme0c0n1", "[mq-deadline] none"),
        ("nvme1/nvme1c0n1", "[bfq] none"),
    ] {
        let name = controller.split('/').nth(1).unwrap();
        let dir = format!("sys/devices/pci0/nvme/{controller}");
        m.put(&format!("{dir}/queue/scheduler"), scheduler);
        m.put(&format!("{dir}/device/transport"), "pcie");
        fs::create_dir_all(m.at(&format!("{dir}/mq/0"))).unwrap();
        symlink(m.at(&dir), m.at("sys/class/block").join(name)).unwrap();
    }
    let d = m.device("nvme0n1");
    let q = d.queue.unwrap();
    assert_eq!(q.scheduler.as_deref(), Some("mq-deadline"));
    assert_eq!(
        (q.hardware_queues, d.transport.as_deref()),
        (Some(1), Some("nvme (pcie)"))
    );
}

#[test]
fn exports_are_seen_and_where_they_cannot_be_nothing_is_writable() {
    let m = Machine::new();
    m.disk("pci0/ata1", "sda", "8:0");
    m.disk("pci0/ata2", "sdb", "8:16");
    let nvmet = "sys/kernel/config/nvmet/subsystems/tt/namespaces/3";
    m.put(&format!("{nvmet}/device_path"), "/dev/sda\n");
    m.put(&format!("{nvmet}/enable"), "0\n");
    assert!(m.is_free("sda"));
    m.put(&format!("{nvmet}/enable"), "1\n");
    match m.refusal("sda") {
        Refusal::Exported { by, remedy, .. } => {
            assert!(
                by.contains("subsystem tt, namespace 3") && remedy.contains("enable"),
                "{by} {remedy}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(m.is_free("sdb"));
    let lio = "sys/kernel/config/target/core/fileio_0/x";
    m.put(&format!("{lio}/enable"), "1");
    m.put(
        &format!("{lio}/info"),
        "Status: ACTIVATED\n TCM FILEIO ID: 0        File: /dev/sdb  Size: 1048576\n",
    );
    assert!(matches!(m.refusal("sdb"), Refusal::Exported { .. }));
    // The module is there and what it exports is not to be seen.
    fs::remove_dir_all(m.at("sys/kernel/config")).unwrap();
    m.put("sys/module/nvmet/refcnt", "1");
    let e = block_devices_in(&HostRoot::under(m.dir.path())).unwrap_err();
    assert!(e.to_string().contains("mount -t configfs"), "{e}");
}
