//! ATA: SMART attributes (vendors' numbers) and the Device Statistics log (the standard's).
//!
//! ACS-4, sections 7.49 (SMART), 9.5 (Device Statistics) and SAT-4 12.2 (ATA PASS-THROUGH (16)). What an attribute counts
//! in differs from vendor to vendor: only those are turned into bytes whose unit the vendor has published.

use super::Health;

/// An ATA PASS-THROUGH (16) command that reads one sector: PIO in, length in the sector count, in blocks.
const fn read_one(extended: bool, features: u8, lba: [u8; 3], device: u8, command: u8) -> [u8; 16] {
    let protocol = 4 << 1 | extended as u8;
    [
        0x85, protocol, 0x0E, 0, features, 0, 1, 0, lba[0], 0, lba[1], 0, lba[2], device, command,
        0,
    ]
}

/// SMART READ DATA.
pub(crate) const SMART_READ_DATA: [u8; 16] = read_one(false, 0xD0, [0, 0x4F, 0xC2], 0, 0xB0);

/// Pages of the Device Statistics log that are read: general, temperature, solid state.
pub(crate) const STATISTICS: [u8; 3] = [1, 5, 7];

/// READ LOG EXT of the Device Statistics log.
pub(crate) const fn statistics_command(page: u8) -> [u8; 16] {
    read_one(true, 0, [0x04, page, 0], 0, 0x2F)
}

/// Whether the sum of all bytes is nought, as it must be.
pub fn checked(page: &[u8; 512]) -> bool {
    page.iter().fold(0u8, |s, b| s.wrapping_add(*b)) == 0
}

/// Number and raw value of each attribute.
fn attributes(page: &[u8; 512]) -> impl Iterator<Item = (u8, u64)> {
    page[2..362]
        .chunks_exact(12)
        .filter(|a| a[0] != 0)
        .map(|a| {
            let mut raw = [0u8; 8];
            raw[..6].copy_from_slice(&a[5..11]);
            (a[0], u64::from_le_bytes(raw))
        })
}

/// Takes over what the SMART attributes of this model mean.
pub fn smart(page: &[u8; 512], model: &str, health: &mut Health) {
    health.sources.push("ata-smart");
    let raw = |id: u8| attributes(page).find(|a| a.0 == id).map(|a| a.1);
    health.power_on_hours = raw(9).map(|v| v & 0xFFFF_FFFF);
    // The lowest byte; the others hold extremes.
    health.celsius = raw(194)
        .or(raw(190))
        .map(|v| f64::from(v as u8))
        .filter(|c| *c > 0.0);
    health.media_errors = raw(187).map(|v| v & 0xFFFF_FFFF);
    let model = model.to_ascii_lowercase();
    let made_by = |names: &[&str]| names.iter().any(|n| model.starts_with(n));
    if made_by(&["micron", "crucial", "ct"]) {
        // Sectors from the host; pages programmed for the host and by the disk itself.
        health.host_written_bytes = raw(246).map(|v| v.saturating_mul(512));
        if let (Some(host), Some(own)) = (raw(247), raw(248)) {
            health.write_ratio = (host > 0).then(|| host.saturating_add(own) as f64 / host as f64);
        }
        health.used_percent = raw(202).map(|v| f64::from(v as u8));
        if let (Some(bytes), Some(ratio)) = (health.host_written_bytes, health.write_ratio) {
            // Pages have no published size: their ratio times the host's bytes.
            health.media_written_bytes = Some((bytes as f64 * ratio) as u64);
        }
    } else if made_by(&["samsung"]) {
        health.host_written_bytes = raw(241).map(|v| v.saturating_mul(512));
    } else if made_by(&["intel", "solidigm"]) {
        const UNIT: u64 = 32 << 20;
        health.host_written_bytes = raw(241).map(|v| v.saturating_mul(UNIT));
        health.host_read_bytes = raw(242).map(|v| v.saturating_mul(UNIT));
        health.media_written_bytes = raw(243).map(|v| v.saturating_mul(UNIT));
    }
}

/// Takes over a page of the Device Statistics log: the standard's units, so they count more than a vendor's.
pub fn statistics(number: u8, page: &[u8; 512], health: &mut Health) {
    // The header says which page this is.
    if page[2] != number {
        return;
    }
    // Bit 63: supported; bit 62: valid.
    let value = |at: usize| {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(&page[at..at + 8]);
        let v = u64::from_le_bytes(bytes);
        (v >> 62 == 0b11).then_some(v & ((1 << 48) - 1))
    };
    const SECTOR: u64 = 512;
    match number {
        1 => {
            if let Some(sectors) = value(24) {
                health.host_written_bytes = Some(sectors.saturating_mul(SECTOR));
            }
            if let Some(sectors) = value(40) {
                health.host_read_bytes = Some(sectors.saturating_mul(SECTOR));
            }
            health.power_on_hours = value(16).map(|v| v & 0xFFFF_FFFF).or(health.power_on_hours);
        }
        5 => {
            // A signed byte.
            health.celsius = value(8)
                .map(|v| f64::from(v as u8 as i8))
                .or(health.celsius);
        }
        7 => health.used_percent = value(8).map(|v| f64::from(v as u8)).or(health.used_percent),
        _ => return,
    }
    if !health.sources.contains(&"ata-statistics") {
        health.sources.push("ata-statistics");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of attributes: number and raw value each, with a right check sum.
    fn page(attributes: &[(u8, u64)]) -> [u8; 512] {
        let mut p = [0u8; 512];
        p[0] = 0x10;
        for (i, (id, raw)) in attributes.iter().enumerate() {
            let at = 2 + 12 * i;
            (p[at], p[at + 3], p[at + 4]) = (*id, 100, 100);
            p[at + 5..at + 11].copy_from_slice(&raw.to_le_bytes()[..6]);
        }
        let sum = p.iter().fold(0u8, |s, b| s.wrapping_add(*b));
        p[511] = 0u8.wrapping_sub(sum);
        p
    }

    #[test]
    fn commands_are_those_of_the_standard() {
        // As smartctl -r ioctl shows them.
        assert_eq!(
            SMART_READ_DATA,
            [
                0x85, 0x08, 0x0e, 0, 0xd0, 0, 1, 0, 0, 0, 0x4f, 0, 0xc2, 0, 0xb0, 0
            ]
        );
        assert_eq!(
            statistics_command(7),
            [0x85, 0x09, 0x0e, 0, 0, 0, 1, 0, 4, 0, 7, 0, 0, 0, 0x2f, 0]
        );
    }

    #[test]
    fn a_micron_disk_tells_its_internal_write_ratio() {
        // A Crucial MX500's table, as smartctl prints it: 33 °C (low byte), 12.3 TB written.
        let p = page(&[
            (9, 8_760),
            (187, 0),
            (194, 0x0045_0000_0021),
            (202, 4),
            (246, 24_023_437_500),
            (247, 375_366_211),
            (248, 187_683_105),
        ]);
        assert!(checked(&p));
        let mut h = Health::default();
        smart(&p, "CT250MX500SSD1", &mut h);
        assert_eq!(h.celsius, Some(33.0));
        assert_eq!(h.host_written_bytes, Some(12_300_000_000_000));
        assert!((h.write_ratio.unwrap() - 1.5).abs() < 1e-6);
        assert!((h.media_written_bytes.unwrap() as f64 / 18.45e12 - 1.0).abs() < 1e-6);
        assert_eq!((h.used_percent, h.power_on_hours), (Some(4.0), Some(8_760)));
    }

    #[test]
    fn units_follow_the_vendor_and_unknown_ones_stay_unknown() {
        let p = page(&[(241, 1_000), (243, 3_000)]);
        let read = |model: &str| {
            let mut h = Health::default();
            smart(&p, model, &mut h);
            (h.host_written_bytes, h.media_written_bytes)
        };
        assert_eq!(read("Samsung SSD 860 EVO"), (Some(512_000), None));
        assert_eq!(
            read("INTEL SSDSC2BB480G6"),
            (Some(1_000 << 25), Some(3_000 << 25))
        );
        assert_eq!(read("NONAME SSD"), (None, None));
    }

    #[test]
    fn a_wrong_sum_is_seen_and_an_empty_page_says_nothing() {
        let mut p = page(&[(194, 40)]);
        p[100] ^= 1;
        assert!(!checked(&p));
        let mut h = Health::default();
        smart(&[0; 512], "Samsung", &mut h);
        assert_eq!((h.celsius, h.power_on_hours), (None, None));
    }

    #[test]
    fn statistics_count_only_where_supported_and_valid() {
        let valid = |v: u64| (0b11 << 62 | v).to_le_bytes();
        let mut p = [0u8; 512];
        p[2] = 1;
        p[16..24].copy_from_slice(&valid(100));
        p[24..32].copy_from_slice(&valid(2_000));
        // Supported, but not valid now.
        p[40..48].copy_from_slice(&(0b10 << 62 | 7u64).to_le_bytes());
        let mut h = Health::default();
        statistics(1, &p, &mut h);
        assert_eq!(
            (h.host_written_bytes, h.host_read_bytes),
            (Some(1_024_000), None)
        );
        assert_eq!(h.power_on_hours, Some(100));
        let mut t = [0u8; 512];
        t[2] = 5;
        t[8..16].copy_from_slice(&valid(0xFB));
        statistics(5, &t, &mut h);
        assert_eq!(h.celsius, Some(-5.0), "a signed byte");
        statistics(7, &t, &mut h);
        assert_eq!(h.used_percent, None, "another page's bytes are not taken");
        assert_eq!(h.sources, ["ata-statistics"]);
    }
}
