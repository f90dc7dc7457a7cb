//! No bytes of a drive's pages, and no bytes where partition tables and signatures lie, make the readers panic or hang.

use fathom_host::Health;
use fathom_host::devices::nvme::{self, Nvme};
use fathom_host::health::{ata, latency, logs, nvme as log, scsi};
use fathom_host::purge::Method;
use fathom_host::purge::nvme::{self as erasing, Command, Sanitize};
use fathom_host::signature;
use proptest::prelude::*;

#[path = "common/fuzz.rs"]
mod fuzz;

use fuzz::{cases, fuzz};

/// Tries of each test.
const FEW: u64 = 100;

/// Bytes here and there: values at the edges more often than others.
fn changes(len: usize) -> impl Strategy<Value = Vec<(usize, u8)>> {
    let byte = prop_oneof![Just(0u8), Just(0xff), Just(0x80), Just(1), any::<u8>()];
    prop::collection::vec((0..len, byte), 0..64)
}

fn page<const N: usize>(changes: &[(usize, u8)], fill: u8) -> [u8; N] {
    let mut page = [fill; N];
    for (at, byte) in changes {
        page[*at % N] = *byte;
    }
    page
}

#[test]
fn no_page_of_a_drive_makes_the_readers_panic() {
    let input = (
        changes(4096),
        prop_oneof![Just(0u8), Just(0xff), any::<u8>()],
    );
    fuzz(cases(FEW), &input, |(changes, fill)| {
        let identify: [u8; 4096] = page(changes, *fill);
        let mut found = Nvme::default();
        let block = nvme::namespace(&identify, &mut found);
        nvme::controller(&identify, block, &mut found);
        let said = found.cautions();
        assert!(said.iter().all(|s| !s.is_empty()));
        let mut small: [u8; 512] = page(changes, *fill);
        let sanitized = Sanitize::of(&small);
        assert!((0.0..=100.0).contains(&sanitized.percent()));
        assert!(!erasing::after_failure(&sanitized).is_empty());
        assert!(erasing::format_left(&identify).is_none_or(|p| p <= 100));
        for method in Method::ALL {
            let command = Command::of(method, &identify, 7);
            assert_eq!(command.is_some(), method.is_of_drive());
            // Nothing but what the specification has bits for.
            assert!(command.is_none_or(|c| c.cdw10 >> 14 == 0));
        }
        let mut health = Health::default();
        log::smart(&small, &mut health);
        // Cut short anywhere, too.
        let length = usize::from(small[0]) * 2;
        for number in 0..=0x3F {
            scsi::page(number, &small, u64::MAX, &mut health);
            scsi::page(number, &small[..length], 512, &mut health);
            let mut named = small;
            named[0] = number;
            scsi::page(number, &named, 4096, &mut health);
        }
        scsi::supported(&small[..length]);
        logs::firmware(&small);
        latency::latency(&small);
        logs::endurance_group(&small);
        assert!(logs::errors(&small[..length]).len() <= 8);
        let mut first = identify;
        first[0] = 0x0D;
        for cut in [0, 511, 512, 530, 4096] {
            let events = logs::events(&first[..cut]);
            assert!(events.is_none_or(|e| e.first.len() <= 16));
        }
        log::ocp(&small, &mut health);
        for model in ["Micron_5300", "Samsung SSD 870", "INTEL SSDSC2", "other"] {
            ata::smart(&small, model, &mut health);
        }
        for number in 0..=255u8 {
            small[2] = number;
            ata::statistics(number, &small, &mut health);
        }
        ata::checked(&small);
        assert!(health.celsius.is_none_or(f64::is_finite));
        // What is made of it is shown and saved.
        let saved = serde_json::to_string(&(&found, &health)).unwrap();
        assert!(!saved.contains('\u{1b}'));
    });
}

/// A disk of 1 MiB with a protective MBR, a GPT of two partitions and a backup at its end.
fn disk() -> Vec<u8> {
    let mut d = vec![0u8; 1 << 20];
    d[446..462].copy_from_slice(&[
        0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 7, 0, 0,
    ]);
    d[510..512].copy_from_slice(&[0x55, 0xaa]);
    let last = d.len() - 512;
    for (at, other) in [(512, 2047u64), (last, 1)] {
        d[at..at + 8].copy_from_slice(b"EFI PART");
        d[at + 8..at + 16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        d[at + 32..at + 40].copy_from_slice(&other.to_le_bytes());
        d[at + 72..at + 80].copy_from_slice(&2u64.to_le_bytes());
        d[at + 80..at + 88].copy_from_slice(&[128, 0, 0, 0, 128, 0, 0, 0]);
    }
    d
}

#[test]
fn no_partition_table_and_no_signature_makes_the_scan_panic_or_hang() {
    let whole = disk();
    // Where tables and superblocks begin, and their words behind them.
    let place = prop_oneof![
        0usize..2048,
        4096usize..8192,
        65_536usize..69_632,
        (1usize << 20) - 8192..1 << 20
    ];
    let magic = prop::sample::select(vec![
        &b"EFI PART"[..],
        b"LABELONE",
        b"LVM2 001",
        b"XFSB",
        b"_BHRfS_M",
        b"\x53\xef",
        b"LUKS\xba\xbe",
        b"SWAPSPACE2",
        b"\xfc\x4e\x2b\xa9",
        b"hsqs",
        b"BD",
        b"RDSK",
        b"\x82\x82\xbe\xb1",
        b"NTFS    ",
        b"FAT32   ",
        b"ReIsEr2Fs",
        b"zfs!",
        b"\x55\xaa",
        b"CD001",
        b"BEA01",
        b"VMFS",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ]);
    let input = (
        prop::collection::vec((place.clone(), magic), 0..6),
        prop::collection::vec((place, any::<u8>()), 0..64),
        prop_oneof![4 => Just(1u64 << 20), 1 => 0u64..1 << 20, 1 => any::<u64>()],
    );
    fuzz(cases(FEW), &input, |(words, bytes, size)| {
        let mut image = whole.clone();
        for (at, word) in words {
            let end = (at + word.len()).min(image.len());
            image[*at..end].copy_from_slice(&word[..end - at]);
        }
        for (at, byte) in bytes {
            image[*at] = *byte;
        }
        image.truncate(usize::try_from(*size).unwrap_or(usize::MAX));
        // The size that is claimed may be wrong.
        for found in signature::scan(&image[..], *size).into_iter().flatten() {
            assert!(!found.to_string().is_empty());
        }
    });
}
