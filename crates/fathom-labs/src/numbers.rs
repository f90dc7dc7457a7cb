//! Whole numbers on the command line.

/// Whole numbers: `1,2,4` or `2..8` (both ends belong to it).
pub(crate) fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let one = |t: &str| match t.trim().parse::<u32>() {
        Ok(n) if (1..=64).contains(&n) => Ok(n),
        _ => Err(format!(
            "'{t}' is not possible: expected a number from 1 to 64"
        )),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            Some((low, high)) => {
                let (low, high) = (one(low)?, one(high.trim_start_matches('='))?);
                if low > high {
                    return Err(format!(
                        "'{part}' runs backwards: expected a range such as 2..8"
                    ));
                }
                all.extend(low..=high);
            }
            None => all.push(one(part)?),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_of_numbers_are_understood() {
        let of = numbers;
        assert_eq!(of("1,2,4").unwrap(), [1, 2, 4]);
        assert_eq!(of("2..5").unwrap(), [2, 3, 4, 5]);
        assert_eq!(of("8,2..=4,4").unwrap(), [2, 3, 4, 8]);
        assert!(of("5..2").unwrap_err().contains("backwards"));
        assert!(of("0").unwrap_err().contains("1 to 64"));
        assert!(of("many").is_err());
    }
}
