//! An event's `format` file: where each field lies. Offsets differ between kernels, so they are
//! always read, never assumed.

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, without the array's brackets.
    pub name: String,
    /// Offset in the event's data, bytes.
    pub offset: usize,
    /// Size, bytes.
    pub size: usize,
    /// Whether it is a signed number.
    pub signed: bool,
}

/// The layout of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// The event's name.
    pub name: String,
    /// Its number, in the first two bytes of its data.
    pub id: u16,
    /// Its fields, the common ones included.
    pub fields: Vec<Field>,
}

impl Format {
    /// Reads a `format` file; `None` where it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let line = |key: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(key))
                .map(str::trim)
        };
        Some(Self {
            name: line("name:")?.to_owned(),
            id: line("ID:")?.parse().ok()?,
            fields: text.lines().filter_map(field).collect(),
        })
    }

    /// A field by its name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// `field:unsigned int nr_sector; offset:24; size:4; signed:0;`
pub(crate) fn field(line: &str) -> Option<Field> {
    let rest = line.trim().strip_prefix("field:")?;
    let mut parts = rest.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut number =
        |key: &str| -> Option<usize> { parts.next()?.strip_prefix(key)?.trim().parse().ok() };
    let (offset, size) = (number("offset:")?, number("size:")?);
    let signed = number("signed:").unwrap_or(0) != 0;
    let declaration = declaration.split('[').next()?;
    // `__data_loc char[] cmd` has its name after the brackets.
    let name = match rest.split(';').next()?.rsplit_once(']') {
        Some((_, after)) if !after.trim().is_empty() => after.trim(),
        _ => declaration.rsplit([' ', '*']).next()?,
    };
    Some(Field {
        name: name.to_owned(),
        offset,
        size,
        signed,
    })
}

/// Reads a little-endian (native) unsigned number of 1, 2, 4 or 8 bytes; 0 where the data is too short.
#[inline]
pub fn number(data: &[u8], offset: usize, size: usize) -> u64 {
    let Some(bytes) = data.get(offset..offset + size) else {
        return 0;
    };
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: &str = "name: block_bio_queue\nID: 2097\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;\n\tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;\n\tfield:void * req;\toffset:16;\tsize:8;\tsigned:0;\n\nprint fmt: \"%d\", REC->dev\n";

    #[test]
    fn fields_are_found_by_name_whatever_their_declaration() {
        let f = Format::parse(QUEUE).unwrap();
        assert_eq!((f.name.as_str(), f.id), ("block_bio_queue", 2097));
        let at = |n: &str| f.field(n).map(|f| (f.offset, f.size));
        assert_eq!(at("sector"), Some((16, 8)));
        assert_eq!(at("rwbs"), Some((28, 10)));
        assert_eq!(at("cmd"), Some((60, 4)));
        assert_eq!(at("req"), Some((16, 8)));
        assert!(f.field("common_pid").unwrap().signed);
        assert_eq!(at("nothing"), None);
        assert!(Format::parse("print fmt").is_none());
    }

    #[test]
    fn numbers_beyond_the_data_read_as_zero() {
        assert_eq!(number(&[1, 2], 0, 4), 0);
        assert_eq!(
            number(&[0, 7, 0], 1, 2),
            u64::from(u16::from_ne_bytes([7, 0]))
        );
    }
}
