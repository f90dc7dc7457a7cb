//! NVMe log pages: SMART / Health Information (02h) and the Open Compute Project's extended one (C0h).
//!
//! NVM Express Base Specification 2.0, figure 207; OCP Datacenter NVMe SSD Specification 2.0, section 4.8.6. Numbers are
//! little endian, temperatures Kelvin, data units 512,000 bytes.

use serde::Serialize;

use super::Health;

/// Log page of health.
pub(crate) const SMART: u8 = 0x02;
/// Log page that disks for data centres have.
pub(crate) const OCP: u8 = 0xC0;
/// What marks the latter: other vendors use the same number for other things.
const OCP_GUID: [u8; 16] = [
    0xC5, 0xAF, 0x10, 0x28, 0xEA, 0xBF, 0xF2, 0xA4, 0x9C, 0x4F, 0x6F, 0x7C, 0xC9, 0x14, 0xD5, 0xAF,
];
/// A thousand sectors of 512 bytes.
const DATA_UNIT: u64 = 512_000;

fn u128_at(page: &[u8; 512], at: usize) -> u64 {
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&page[at..at + 16]);
    // More than 2^64 of anything was never counted.
    u64::try_from(u128::from_le_bytes(bytes)).unwrap_or(u64::MAX)
}

fn u32_at(page: &[u8; 512], at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

/// Takes over what the health log says.
pub fn smart(page: &[u8; 512], health: &mut Health) {
    health.sources.push("nvme-smart");
    let kelvin = u16::from_le_bytes([page[1], page[2]]);
    // 0 is "not reported".
    health.celsius = (kelvin > 0).then(|| f64::from(kelvin) - 273.15);
    health.spare_percent = Some(f64::from(page[3]));
    health.used_percent = Some(f64::from(page[5]));
    health.host_read_bytes = Some(u128_at(page, 32).saturating_mul(DATA_UNIT));
    health.host_written_bytes = Some(u128_at(page, 48).saturating_mul(DATA_UNIT));
    health.power_on_hours = Some(u128_at(page, 128));
    health.media_errors = Some(u128_at(page, 160));
    health.hot_minutes = Some(u64::from(u32_at(page, 192)) + u64::from(u32_at(page, 196)));
    let sensors = page[200..216].chunks_exact(2);
    let sensors = sensors.map(|b| u16::from_le_bytes([b[0], b[1]]));
    // Those that it has not are nought.
    health.sensors_celsius = sensors
        .filter(|k| *k > 0)
        .map(|k| f64::from(k) - 273.15)
        .collect();
    let both = |at| u64::from(u32_at(page, at)) + u64::from(u32_at(page, at + 4));
    (health.throttled, health.throttled_seconds) = (Some(both(216)), Some(both(224)));
    const WARNINGS: [&str; 6] = [
        "spare blocks are below their threshold",
        "the temperature is outside its limits",
        "reliability is degraded",
        "the media is read only",
        "the backup of volatile memory failed",
        "the persistent memory region is read only",
    ];
    let set = WARNINGS.iter().enumerate();
    health.warnings.extend(
        set.filter(|(bit, _)| page[0] >> bit & 1 == 1)
            .map(|(_, w)| w),
    );
}

/// Takes over what the extended log says; `false` where it is none.
pub fn ocp(page: &[u8; 512], health: &mut Health) -> bool {
    if page[496..512] != OCP_GUID {
        return false;
    }
    health.sources.push("nvme-ocp");
    health.media_written_bytes = Some(u128_at(page, 0));
    let u64_at = |at: usize| u64::from(u32_at(page, at)) | u64::from(u32_at(page, at + 4)) << 32;
    // Blocks: a number of 48 bits, and above it a share that vendors scale as they like.
    let blocks = |at| u64_at(at) & 0xFFFF_FFFF_FFFF;
    health.ocp = Some(Ocp {
        media_read_bytes: u128_at(page, 16),
        bad_user_blocks: blocks(32),
        bad_system_blocks: blocks(40),
        rebuilt_reads: u64_at(48),
        uncorrectable_reads: u64_at(56),
        soft_errors: u64_at(64),
        throttling_events: page[96],
        throttling_now: page[97],
        pcie_errors: u64_at(104),
        incomplete_shutdowns: u32_at(page, 112),
        free_blocks_percent: page[120],
        capacitor_percent: u16::from_le_bytes([page[128], page[129]]),
        unaligned_ios: u64_at(136),
    });
    true
}

/// What the extended log counts over a drive's life, beside the bytes written to its flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Ocp {
    /// Bytes read from its flash.
    pub media_read_bytes: u64,
    /// Blocks of flash for data that went bad.
    pub bad_user_blocks: u64,
    /// The same of those for its own use.
    pub bad_system_blocks: u64,
    /// Reads that were rebuilt from parity.
    pub rebuilt_reads: u64,
    /// Reads that could not be corrected.
    pub uncorrectable_reads: u64,
    /// Errors that the first stage of correction could not mend.
    pub soft_errors: u64,
    /// Times that it began to throttle; counted in a byte.
    pub throttling_events: u8,
    /// How much it throttles now: 0 not at all, 1 to 3 more and more.
    pub throttling_now: u8,
    /// Errors of its link that were corrected.
    pub pcie_errors: u64,
    /// Times that the power went before it was ready.
    pub incomplete_shutdowns: u32,
    /// Blocks of flash that are free, percent.
    pub free_blocks_percent: u8,
    /// Charge of the capacitor for power losses, percent of what is needed.
    pub capacitor_percent: u16,
    /// I/Os that did not begin at a unit of its mapping.
    pub unaligned_ios: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log of a used disk: 323 K, 3 % of its endurance used, one warning.
    fn page() -> [u8; 512] {
        let mut p = [0u8; 512];
        p[0] = 0b10;
        p[1..3].copy_from_slice(&323u16.to_le_bytes());
        (p[3], p[4], p[5]) = (100, 10, 3);
        p[32..48].copy_from_slice(&7_000u128.to_le_bytes());
        p[48..64].copy_from_slice(&2_000_000u128.to_le_bytes());
        p[128..144].copy_from_slice(&1_234u128.to_le_bytes());
        p[160..176].copy_from_slice(&2u128.to_le_bytes());
        p[200..202].copy_from_slice(&300u16.to_le_bytes());
        p[204..206].copy_from_slice(&310u16.to_le_bytes());
        (p[216], p[220], p[224], p[228]) = (2, 1, 30, 4);
        p[192..196].copy_from_slice(&5u32.to_le_bytes());
        p[196..200].copy_from_slice(&1u32.to_le_bytes());
        p
    }

    #[test]
    fn units_are_those_of_the_specification() {
        let mut h = Health::default();
        smart(&page(), &mut h);
        assert!((h.celsius.unwrap() - 49.85).abs() < 1e-9);
        assert_eq!(h.host_written_bytes, Some(1_024_000_000_000));
        assert_eq!(h.host_read_bytes, Some(3_584_000_000));
        assert_eq!((h.used_percent, h.spare_percent), (Some(3.0), Some(100.0)));
        assert_eq!((h.power_on_hours, h.media_errors), (Some(1_234), Some(2)));
        assert_eq!(h.hot_minutes, Some(6));
        assert_eq!((h.throttled, h.throttled_seconds), (Some(3), Some(34)));
        let sensors: Vec<_> = h.sensors_celsius.iter().map(|c| c.round()).collect();
        assert_eq!(sensors, [27.0, 37.0]);
        assert_eq!(h.warnings, ["the temperature is outside its limits"]);
        assert_eq!(h.media_written_bytes, None);
    }

    #[test]
    fn a_temperature_of_nought_kelvin_and_counters_beyond_64_bits_are_no_numbers_to_calculate_with()
    {
        let mut p = page();
        p[1..3].fill(0);
        p[48..64].fill(0xff);
        let mut h = Health::default();
        smart(&p, &mut h);
        assert_eq!((h.celsius, h.host_written_bytes), (None, Some(u64::MAX)));
    }

    #[test]
    fn the_extended_log_counts_only_with_its_mark() {
        let mut p = [0u8; 512];
        p[..16].copy_from_slice(&4_096_000u128.to_le_bytes());
        let mut h = Health::default();
        assert!(!ocp(&p, &mut h));
        assert_eq!(h, Health::default());
        p[496..].copy_from_slice(&OCP_GUID);
        p[16] = 5;
        // Two bad blocks, at a share of 100 percent.
        (p[32], p[38], p[96], p[97], p[120], p[128]) = (2, 100, 3, 1, 40, 99);
        assert!(ocp(&p, &mut h));
        assert_eq!(h.media_written_bytes, Some(4_096_000));
        let o = h.ocp.unwrap();
        assert_eq!((o.media_read_bytes, o.bad_user_blocks), (5, 2));
        assert_eq!((o.throttling_events, o.throttling_now), (3, 1));
        assert_eq!((o.free_blocks_percent, o.capacitor_percent), (40, 99));
    }
}
