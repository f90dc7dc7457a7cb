//! UTC times as text.

use std::time::SystemTime;

use chrono::{DateTime, Utc};

/// `2026-02-28T12:34:56Z` (RFC 3339), in whole seconds.
pub fn rfc3339(time: SystemTime) -> String {
    text(time, "%Y-%m-%dT%H:%M:%SZ")
}

/// `20260228T123456Z` (ISO 8601's basic form): sorts by time and needs no quotes in a shell.
pub fn stamp(time: SystemTime) -> String {
    text(time, "%Y%m%dT%H%M%SZ")
}

/// Since 1970, ns; what does not fit is cut.
pub fn nanos(time: SystemTime) -> i64 {
    DateTime::<Utc>::from(time)
        .timestamp_nanos_opt()
        .unwrap_or(i64::MAX)
}

/// In a `format` of strftime.
pub fn text(time: SystemTime, format: &str) -> String {
    DateTime::<Utc>::from(time).format(format).to_string()
}

/// Seconds since 1970 of a time as [`rfc3339`] writes it; `None` where it is none.
pub fn seconds(text: &str) -> Option<i64> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    Some(time.timestamp())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

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
            "1969-12-31T23:59:55Z"
        );
    }
}
