//! Thrift's compact protocol, as far as Parquet's headers need it (write only).
//!
//! See thrift-compact-protocol.md in Apache Thrift's documentation.

/// Type numbers of the protocol.
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Element type of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Element {
    I32,
    Binary,
    Struct,
}

/// Writes fields of one struct after another; nested structs remember the field number outside.
#[derive(Debug, Default)]
pub(super) struct Thrift {
    pub(super) bytes: Vec<u8>,
    last_field: i16,
    outer: Vec<i16>,
}

impl Thrift {
    /// Continues in an existing buffer, which must not be inside a struct.
    pub(super) fn on(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    fn field(&mut self, id: i16, kind: u8) {
        let step = id - self.last_field;
        if (1..=15).contains(&step) {
            self.bytes.push((step as u8) << 4 | kind);
        } else {
            self.bytes.push(kind);
            self.zigzag(i64::from(id));
        }
        self.last_field = id;
    }

    fn zigzag(&mut self, v: i64) {
        put_varint(&mut self.bytes, zigzag(v));
    }

    pub(super) fn i16(&mut self, id: i16, v: i16) {
        self.field(id, I16);
        self.zigzag(i64::from(v));
    }
    pub(super) fn i32(&mut self, id: i16, v: i32) {
        self.field(id, I32);
        self.zigzag(i64::from(v));
    }
    pub(super) fn i64(&mut self, id: i16, v: i64) {
        self.field(id, I64);
        self.zigzag(v);
    }
    /// A boolean's value is in its type.
    pub(super) fn bool(&mut self, id: i16, v: bool) {
        self.field(id, if v { 1 } else { 2 });
    }
    pub(super) fn binary(&mut self, id: i16, v: &[u8]) {
        self.field(id, BINARY);
        self.element_binary(v);
    }

    /// Begins a struct in a field; end it with [`Self::end`].
    pub(super) fn begin(&mut self, id: i16) {
        self.field(id, STRUCT);
        self.element_begin();
    }
    /// Begins a struct that is an element of a list (or the outermost one).
    pub(super) fn element_begin(&mut self) {
        self.outer.push(self.last_field);
        self.last_field = 0;
    }
    pub(super) fn end(&mut self) {
        self.bytes.push(0);
        self.last_field = self.outer.pop().unwrap_or(0);
    }

    /// Begins a list; its elements follow.
    pub(super) fn list(&mut self, id: i16, element: Element, len: usize) {
        self.field(id, LIST);
        let kind = match element {
            Element::I32 => I32,
            Element::Binary => BINARY,
            Element::Struct => STRUCT,
        };
        if len < 15 {
            self.bytes.push((len as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            put_varint(&mut self.bytes, len as u64);
        }
    }
    pub(super) fn element_i32(&mut self, v: i32) {
        self.zigzag(i64::from(v));
    }
    pub(super) fn element_binary(&mut self, v: &[u8]) {
        put_varint(&mut self.bytes, v.len() as u64);
        self.bytes.extend_from_slice(v);
    }
}

/// Small magnitudes to small numbers.
pub(super) fn zigzag(v: i64) -> u64 {
    (v << 1 ^ v >> 63) as u64
}

/// Seven bits per byte, lowest first.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}
