//! Drives of machines that are only described: how far the commands reach that erase.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use fathom_host::HostRoot;
use fathom_host::devices::nvme::Nvme;
use fathom_host::purge::{Method, offers_in};

#[path = "common/described.rs"]
mod described;

use described::Machine;

/// A drive with these namespaces, whose commands erase.
fn drive(namespaces: &[u32]) -> Nvme {
    Nvme {
        nsid: Some(1),
        namespaces: namespaces.into(),
        sanitize: vec!["crypto", "block"],
        can_format: true,
        ..Nvme::default()
    }
}

#[test]
fn a_command_that_reaches_other_namespaces_wants_each_of_them_unused_and_blank() {
    let m = Machine::new();
    // A drive as a multipath head, one as plain disks below a controller, each with two namespaces.
    let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
    let controller = "sys/devices/pci0/nvme/nvme1";
    m.put(&format!("{controller}/cntlid"), "1");
    let link = |to: &str, at: &str| {
        fs::create_dir_all(m.at(at).parent().unwrap()).unwrap();
        symlink(m.at(to), m.at(at)).unwrap();
    };
    for (name, number, nsid, device) in [
        ("nvme0n1", "259:1", 1, subsystem),
        ("nvme0n2", "259:2", 2, subsystem),
        ("nvme1n1", "259:3", 1, controller),
        ("nvme1n2", "259:4", 2, controller),
    ] {
        let dir = m.disk("virtual/nvme", name, number);
        m.put(&format!("{dir}/nsid"), &nsid.to_string());
        m.put(&format!("{dir}/queue/discard_max_bytes"), "4096");
        fs::create_dir_all(m.at(device)).unwrap();
        link(device, &format!("{dir}/device"));
    }
    link(subsystem, "sys/class/nvme-subsystem/nvme-subsys0");
    link(controller, "sys/class/nvme-subsystem/nvme-subsys1/nvme1");
    let ask = |name: &str, method, drive: &Nvme| {
        let root = HostRoot::under(m.dir.path());
        let all = offers_in(&root, name, true, Some(drive.clone())).unwrap();
        all.reached(Path::new(name), method).map(<[String]>::to_vec)
    };
    let said = |name: &str, method, drive: &Nvme| ask(name, method, drive).unwrap_err();
    let two = drive(&[1, 2]);
    assert_eq!(
        ask("nvme0n1", Method::SanitizeBlock, &two).unwrap(),
        ["nvme0n2"]
    );
    assert_eq!(
        ask("nvme1n1", Method::SanitizeBlock, &two).unwrap(),
        ["nvme1n2"]
    );
    assert_eq!(ask("nvme0n1", Method::Format, &two).unwrap(), [""; 0]);
    // The other one is mounted: refused by name, for what reaches it, and only on its drive.
    m.mounts("36 1 259:2 / /data rw - ext4 /dev/nvme0n2 rw\n");
    let why = said("nvme0n1", Method::SanitizeCrypto, &two);
    for words in ["all namespaces of the drive", "nvme0n2", "/data", "umount"] {
        assert!(why.contains(words), "{why}");
    }
    assert!(ask("nvme0n1", Method::Format, &two).is_ok());
    assert!(ask("nvme1n1", Method::SanitizeCrypto, &two).is_ok());
    let reaches = [(true, false), (false, true)].map(|(format, erase)| Nvme {
        format_reaches_drive: format,
        erase_reaches_drive: erase,
        ..two.clone()
    });
    for all in &reaches {
        let why = said("nvme0n1", Method::Format, all);
        assert!(why.contains("nvme0n2"), "{why}");
        assert_eq!(ask("nvme1n1", Method::Format, all).unwrap(), ["nvme1n2"]);
    }
    // It carries something.
    m.mounts("");
    let mut image = vec![0u8; 1 << 20];
    image[1080..1082].copy_from_slice(&[0x53, 0xef]);
    image[1024 + 24..1024 + 28].copy_from_slice(&[0; 4]);
    image[1028..1032].copy_from_slice(&1024u32.to_le_bytes());
    m.fill("nvme0n2", &image);
    let why = said("nvme0n1", Method::SanitizeBlock, &two);
    assert!(why.contains("nvme0n2 is not blank"), "{why}");
    m.fill("nvme0n2", &vec![0; 1 << 20]);
    // One that this machine does not see may hold anything; a drive that says nothing, too.
    let unseen = [
        drive(&[1, 2, 3]),
        Nvme {
            allocated: vec![1, 2, 3],
            ..two.clone()
        },
    ];
    for more in &unseen {
        let why = said("nvme0n1", Method::SanitizeBlock, more);
        assert!(why.contains("namespace 3 is not attached"), "{why}");
    }
    assert!(said("nvme0n1", Method::SanitizeBlock, &drive(&[])).contains("does not say"));
    assert!(said("nvme0n1", Method::SanitizeOverwrite, &two).contains("by crypto, block only"));
    let bare = Nvme::default();
    assert!(said("nvme0n1", Method::Format, &bare).contains("no Format NVM"));
    assert!(said("nvme0n1", Method::SanitizeBlock, &bare).contains("SANICAP 0"));
    // What is chosen where nobody said: the first that may be done.
    let best = |drive: Nvme, whole| {
        let root = HostRoot::under(m.dir.path());
        let all = offers_in(&root, "nvme0n1", whole, Some(drive)).unwrap();
        all.best().unwrap()
    };
    assert_eq!(best(two.clone(), true), Method::Format);
    assert_eq!(best(two.clone(), false), Method::Discard);
    let no_format = Nvme {
        can_format: false,
        ..two.clone()
    };
    assert_eq!(best(no_format.clone(), true), Method::SanitizeBlock);
    m.mounts("36 1 259:2 / /data rw - ext4 /dev/nvme0n2 rw\n");
    assert_eq!(best(no_format, true), Method::Discard);
}
