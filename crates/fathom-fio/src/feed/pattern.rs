//! fio's patterns: numbers, text, files and the block's offset, one after another.

/// A pattern to fill blocks with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    bytes: Vec<u8>,
    /// Where `%o`, the offset of the block, stands.
    offsets: Vec<usize>,
    /// It begins again, with the offset there, after so many bytes; 0 for never.
    interval: u64,
}

/// A file in a pattern counts so far, as in fio.
const LONGEST: usize = 512 << 10;

impl Pattern {
    /// Reads `0xdeadbeef`, `-12`, `"text"`, `'FILE'` and `%o`, in any sequence.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut p = Self {
            bytes: Vec::new(),
            offsets: Vec::new(),
            interval: 0,
        };
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            rest = match first {
                '"' => {
                    let (inner, tail) = rest[1..].split_once('"').ok_or("a quote is not closed")?;
                    p.bytes.extend_from_slice(inner.as_bytes());
                    tail
                }
                '\'' => {
                    let (name, tail) = rest[1..].split_once('\'').ok_or("a quote is not closed")?;
                    let data = std::fs::read(name)
                        .map_err(|e| format!("the file '{name}' could not be read: {e}"))?;
                    p.bytes.extend_from_slice(&data[..data.len().min(LONGEST)]);
                    tail
                }
                '%' => {
                    let tail = rest
                        .strip_prefix("%o")
                        .ok_or("only %o, the offset, may follow a percent sign")?;
                    p.offsets.push(p.bytes.len());
                    p.bytes.extend_from_slice(&[0; 8]);
                    tail
                }
                _ => p.number(rest)?,
            };
            if p.bytes.len() > LONGEST {
                p.bytes.truncate(LONGEST);
                break;
            }
        }
        if p.bytes.is_empty() {
            return Err("it is empty".into());
        }
        p.offsets.retain(|o| o + 8 <= p.bytes.len());
        Ok(p)
    }

    /// Begins again every `interval` bytes of a block; 0 for never.
    pub(crate) fn every(self, interval: u64) -> Self {
        Self { interval, ..self }
    }

    fn number<'a>(&mut self, text: &'a str) -> Result<&'a str, String> {
        let bad = || format!("'{text}' is not a number");
        if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            let mut n = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
            // 0xff0x14: the second 0 belongs to the next number.
            if n > 1 && digits[n..].starts_with(['x', 'X']) {
                n -= 1;
            }
            if n == 0 {
                return Err(bad());
            }
            let padded = if n % 2 == 1 {
                format!("0{}", &digits[..n])
            } else {
                digits[..n].to_owned()
            };
            for pair in padded.as_bytes().chunks(2) {
                let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
                self.bytes
                    .push(u8::from_str_radix(pair, 16).map_err(|_| bad())?);
            }
            return Ok(&digits[n..]);
        }
        let sign = usize::from(text.starts_with(['-', '+']));
        let mut n = sign + text[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if n > sign + 1 && text[n..].starts_with(['x', 'X']) && text[..n].ends_with('0') {
            n -= 1;
        }
        let value: i32 = text[..n].parse().map_err(|_| bad())?;
        let bytes = value.to_le_bytes();
        let used = bytes.iter().rposition(|b| *b != 0).map_or(1, |i| i + 1);
        self.bytes.extend_from_slice(&bytes[..used]);
        Ok(&text[n..])
    }

    /// Repeats it over `data`, which begins at `offset` of the file.
    pub(crate) fn fill(&self, data: &mut [u8], offset: u64) {
        let length = match usize::try_from(self.interval) {
            Ok(n) if n > 0 => n,
            _ => data.len().max(1),
        };
        let mut at = offset;
        for part in data.chunks_mut(length) {
            self.begin(part, at);
            at += part.len() as u64;
        }
    }

    /// One beginning of the pattern.
    fn begin(&self, data: &mut [u8], offset: u64) {
        let pasted;
        let unit = if self.offsets.is_empty() {
            &self.bytes
        } else {
            let mut unit = self.bytes.clone();
            for at in &self.offsets {
                unit[*at..*at + 8].copy_from_slice(&offset.to_le_bytes());
            }
            pasted = unit;
            &pasted
        };
        for part in data.chunks_mut(unit.len()) {
            part.copy_from_slice(&unit[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_fio() {
        for (text, bytes) in [
            ("0xdeadface", &[0xde, 0xad, 0xfa, 0xce][..]),
            ("0xaaa", &[0x0a, 0xaa]),
            (
                "\"abcd\"-120xdeadface",
                &[
                    b'a', b'b', b'c', b'd', 0xf4, 0xff, 0xff, 0xff, 0xde, 0xad, 0xfa, 0xce,
                ],
            ),
            ("0xff0x14", &[0xff, 0x14]),
            ("258", &[2, 1]),
            ("0", &[0]),
        ] {
            assert_eq!(Pattern::parse(text).unwrap().bytes, bytes, "{text}");
        }
        assert!(Pattern::parse("\"open").is_err() && Pattern::parse("x").is_err());
    }

    #[test]
    fn the_offset_is_pasted_into_every_repeat() {
        let mut data = [0u8; 20];
        Pattern::parse("%o0xff").unwrap().fill(&mut data, 0x1234);
        assert_eq!(data[..9], [0x34, 0x12, 0, 0, 0, 0, 0, 0, 0xff]);
        assert_eq!(data[9..18], data[..9]);
        let mut data = [0u8; 20];
        let each = Pattern::parse("%o0xff").unwrap().every(10);
        each.fill(&mut data, 0x1234);
        assert_eq!((data[0], data[9], data[10]), (0x34, 0x34, 0x3e));
    }
}
