//! SCSI log pages: what disks behind SAS, USB and other buses say of themselves.
//!
//! SPC-5, section 7.3 (temperature 0Dh, start-stop 0Eh, general statistics 19h, informational exceptions 2Fh) and SBC-4,
//! section 6.4 (error counters 02h and 03h, solid state media 11h, background scan 15h). Numbers are big endian.

use serde::Serialize;

use super::Health;

/// Pages that are read, where the disk lists them in page 0.
pub(crate) const PAGES: [u8; 8] = [0x02, 0x03, 0x0D, 0x0E, 0x11, 0x15, 0x19, 0x2F];

/// LOG SENSE of cumulative values into so many bytes.
pub(crate) const fn command(page: u8, length: u16) -> [u8; 10] {
    let [high, low] = length.to_be_bytes();
    [0x4D, 0, 1 << 6 | (page & 0x3F), 0, 0, 0, 0, high, low, 0]
}

/// What a SCSI disk counts beside [`Health`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Scsi {
    /// Errors of reads and writes that were corrected.
    pub corrected_errors: Option<u64>,
    /// Times that its motor was started.
    pub start_stops: Option<u64>,
    /// Times that its heads were loaded.
    pub head_loads: Option<u64>,
    /// Scans of its medium in the background.
    pub background_scans: Option<u64>,
    /// Defects that those found, as far as it keeps them.
    pub background_defects: Option<u64>,
    /// Temperature that it should not exceed, °C.
    pub reference_celsius: Option<f64>,
}

/// The parameters of a page: code and bytes of each, as far as they are whole.
fn parameters(page: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let length = match page {
        [_, _, high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    };
    let mut rest = page.get(4..).unwrap_or_default();
    rest = &rest[..length.min(rest.len())];
    std::iter::from_fn(move || {
        let [high, low, _, length, data @ ..] = rest else {
            return None;
        };
        let length = usize::from(*length);
        let value = data.get(..length)?;
        rest = &data[length..];
        Some((u16::from_be_bytes([*high, *low]), value))
    })
}

/// A number of up to eight bytes; all bits set means that it is not known.
fn value(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 8 || bytes.iter().all(|b| *b == 0xff) {
        return None;
    }
    Some(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
}

/// The pages that a disk has: what page 0 lists.
pub fn supported(page: &[u8]) -> Vec<u8> {
    let length = match page {
        [0, _, high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    };
    let list = page.get(4..).unwrap_or_default();
    list.iter().take(length).map(|p| p & 0x3F).collect()
}

/// Takes over what a page says; blocks of so many bytes.
pub fn page(number: u8, page: &[u8], block_bytes: u64, health: &mut Health) {
    // The header says which page this is.
    if page.first().is_none_or(|p| p & 0x3F != number) {
        return;
    }
    let mut scsi = health.scsi.take().unwrap_or_default();
    let celsius = |byte: Option<&u8>| byte.filter(|b| **b != 0xff).map(|b| f64::from(*b));
    for (code, data) in parameters(page) {
        let number_at = |from: usize, to: usize| data.get(from..to).and_then(value);
        match (number, code) {
            (2 | 3, 3) => add(&mut scsi.corrected_errors, value(data)),
            (2 | 3, 6) => add(&mut health.media_errors, value(data)),
            // Bytes processed; the statistics page, which comes later, counts blocks exactly.
            (2, 5) => health.host_written_bytes = value(data),
            (3, 5) => health.host_read_bytes = value(data),
            (0x0D, 0) => health.celsius = celsius(data.get(1)),
            (0x0D, 1) => scsi.reference_celsius = celsius(data.get(1)),
            (0x0E, 4) => scsi.start_stops = value(data),
            (0x0E, 6) => scsi.head_loads = value(data),
            (0x11, 1) => health.used_percent = data.get(3).map(|p| f64::from(*p)),
            (0x15, 0) => {
                health.power_on_hours = number_at(0, 4).map(|minutes| minutes / 60);
                scsi.background_scans = number_at(6, 8);
                scsi.background_defects.get_or_insert(0);
            }
            (0x15, 1..=0x800) => add(&mut scsi.background_defects, Some(1)),
            (0x19, 1) => {
                let bytes = |at: usize| {
                    let blocks = number_at(at, at + 8)?;
                    Some(blocks.saturating_mul(block_bytes))
                };
                health.host_written_bytes = bytes(16).or(health.host_written_bytes);
                health.host_read_bytes = bytes(24).or(health.host_read_bytes);
            }
            (0x2F, 0) => {
                let warning = match data.first() {
                    Some(0x5D) => Some("the disk predicts its failure"),
                    Some(0x0B) => Some("the disk warns of its temperature or a degraded state"),
                    _ => None,
                };
                health.warnings.extend(warning);
                health.celsius = health
                    .celsius
                    .or_else(|| celsius(data.get(2).filter(|c| **c > 0)));
            }
            _ => {}
        }
    }
    health.scsi = Some(scsi);
    if !health.sources.contains(&"scsi-logs") {
        health.sources.push("scsi-logs");
    }
}

fn add(to: &mut Option<u64>, more: Option<u64>) {
    if let Some(n) = more {
        *to = Some(to.unwrap_or(0).saturating_add(n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of parameters, as a disk sends it.
    fn sent(number: u8, parameters: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (code, data) in parameters {
            body.extend(code.to_be_bytes());
            body.extend([3, data.len() as u8]);
            body.extend(*data);
        }
        let mut page = vec![number, 0];
        page.extend((body.len() as u16).to_be_bytes());
        page.extend(body);
        page
    }

    fn read(pages: &[Vec<u8>]) -> Health {
        let mut h = Health::default();
        pages.iter().for_each(|p| page(p[0], p, 4096, &mut h));
        h
    }

    #[test]
    fn counters_of_reads_and_writes_add_up() {
        let h = read(&[
            sent(
                2,
                &[
                    (3, &[0, 0, 1, 0]),
                    (5, &[0, 0, 0, 1, 0, 0, 0, 0]),
                    (6, &[2]),
                ],
            ),
            sent(3, &[(3, &[7]), (6, &[0, 3])]),
        ]);
        assert_eq!(h.media_errors, Some(5));
        assert_eq!(h.host_written_bytes, Some(1 << 32));
        assert_eq!(h.scsi.unwrap().corrected_errors, Some(263));
        assert_eq!(h.sources, ["scsi-logs"]);
    }

    #[test]
    fn temperature_wear_scans_and_predictions_are_where_the_standard_has_them() {
        let scan = [0, 0, 0x0e, 0x10, 0, 1, 0, 9, 0, 0, 0, 0];
        let mut statistics = [0u8; 64];
        statistics[23] = 2;
        statistics[31] = 3;
        let h = read(&[
            sent(0x0D, &[(0, &[0, 38]), (1, &[0, 65])]),
            sent(0x0E, &[(4, &[0, 0, 0, 12]), (6, &[0xff, 0xff, 0xff, 0xff])]),
            sent(0x11, &[(1, &[0, 0, 0, 4])]),
            sent(0x15, &[(0, &scan), (1, &[0; 20]), (2, &[0; 20])]),
            sent(0x19, &[(1, &statistics)]),
            sent(0x2F, &[(0, &[0x5D, 0x10, 41])]),
        ]);
        assert_eq!((h.celsius, h.used_percent), (Some(38.0), Some(4.0)));
        assert_eq!(h.power_on_hours, Some(60));
        assert_eq!(
            (h.host_written_bytes, h.host_read_bytes),
            (Some(8192), Some(12_288))
        );
        assert_eq!(h.warnings, ["the disk predicts its failure"]);
        let s = h.scsi.unwrap();
        assert_eq!((s.start_stops, s.head_loads), (Some(12), None));
        assert_eq!(
            (s.background_scans, s.background_defects),
            (Some(9), Some(2))
        );
        assert_eq!(s.reference_celsius, Some(65.0));
    }

    #[test]
    fn commands_and_lists_of_pages() {
        assert_eq!(command(0x2F, 512), [0x4D, 0, 0x6F, 0, 0, 0, 0, 2, 0, 0]);
        assert_eq!(
            supported(&[0, 0, 0, 3, 0, 0x0D, 0x2F, 0x11]),
            [0, 0x0D, 0x2F]
        );
        // Cut short, or of another page.
        assert_eq!(supported(&[0, 0, 9]), [0u8; 0]);
        assert_eq!(supported(&[2, 0, 0, 1, 1]), [0u8; 0]);
    }
}
