//! UTC times as text, without a date library.
//!
//! Days to dates by Howard Hinnant's `civil_from_days`
//! (<https://howardhinnant.github.io/date_algorithms.html>).

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-02-28T12:34:56Z` (RFC 3339). Times before 1970 become 1970.
pub fn rfc3339(time: SystemTime) -> String {
    let (y, mo, d, h, mi, s) = fields(time);
    format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}Z")
}

/// `20260228T123456Z` (ISO 8601's basic form): sorts by time and needs no quotes in a shell.
pub fn stamp(time: SystemTime) -> String {
    let (y, mo, d, h, mi, s) = fields(time);
    format!("{y:04}{mo:02}{d:02}T{h:02}{mi:02}{s:02}Z")
}

fn fields(time: SystemTime) -> (i64, u32, u32, u64, u64, u64) {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last one.
    let shifted = days as i64 + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (
        year,
        month as u32,
        day as u32,
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_date_minus_u() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_772_281_845, "2026-02-28T12:30:45Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        let time = UNIX_EPOCH + Duration::from_secs(1_772_281_845);
        assert_eq!(stamp(time), "20260228T123045Z");
    }

    #[test]
    fn a_clock_before_1970_does_not_panic() {
        assert_eq!(
            rfc3339(UNIX_EPOCH - Duration::from_secs(5)),
            "1970-01-01T00:00:00Z"
        );
    }
}
