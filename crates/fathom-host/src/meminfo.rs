//! `/proc/meminfo`, and that of a NUMA node.

/// One line of `/proc/meminfo` or a node's `meminfo`, in bytes.
pub(crate) fn meminfo(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (before, rest) = line.split_once(':')?;
        // A node's lines begin with `Node 0 `.
        if before.split_whitespace().last()? != name {
            return None;
        }
        let mut words = rest.split_whitespace();
        let value: u64 = words.next()?.parse().ok()?;
        Some(match words.next() {
            Some("kB") => value.saturating_mul(1024),
            _ => value,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_lines_are_read_in_bytes_or_plain_numbers() {
        let text = "MemTotal:       12 kB\nHugePages_Total:       7\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(12 * 1024));
        assert_eq!(meminfo(text, "HugePages_Total"), Some(7));
        assert_eq!(meminfo(text, "Total"), None);
    }
}
