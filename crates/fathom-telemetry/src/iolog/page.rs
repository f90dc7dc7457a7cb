//! Rows to encoded columns: pages, and the row group that they gather in.
//!
//! Own encoding: the `parquet` crate's column writers take several times as long
//! (`examples/iolog_cost.rs` measures both), and the log must cost less than 8 % of
//! an I/O that takes a microsecond. Rows are taken in blocks of 128, which stay in
//! the first-level cache while every column takes its field.

use super::delta::{BLOCK, DeltaPage};
use super::dictionary::Dictionary;
use super::row::Row;
use super::thrift::Thrift;
use crate::record::Op;

/// Rows per page at most.
pub(super) const PAGE_ROWS: usize = 8192;

/// Parquet's numbers of encodings.
pub(super) const PLAIN: i32 = 0;
pub(super) const RLE: i32 = 3;
pub(super) const DELTA_BINARY_PACKED: i32 = 5;
pub(super) const RLE_DICTIONARY: i32 = 8;

/// How a column is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Signed 64 bits, differences.
    Delta,
    /// 32 bits, dictionary.
    Small,
    /// 32 bits, dictionary; read as unsigned.
    SmallUnsigned,
    /// Dictionary of operation names.
    Op,
    /// Words that are the same for all rows of a page.
    Text,
    /// Signed 64 bits that are the same for all rows of a page.
    Constant,
}

/// The columns in the order of the file.
pub(super) const COLUMNS: [(&str, Kind); 15] = [
    ("job", Kind::Small),
    ("thread", Kind::Small),
    ("op", Kind::Op),
    ("intended_ns", Kind::Delta),
    ("submitted_ns", Kind::Delta),
    ("completed_ns", Kind::Delta),
    ("offset", Kind::Delta),
    ("len", Kind::SmallUnsigned),
    ("done", Kind::SmallUnsigned),
    ("error", Kind::Small),
    ("job_name", Kind::Text),
    ("origin_epoch_ns", Kind::Constant),
    ("run_id", Kind::Text),
    ("host", Kind::Text),
    ("host_index", Kind::Small),
];
/// Columns that every log has had; older ones lack those behind them.
pub(super) const FIRST_COLUMNS: usize = 10;
const DELTAS: usize = 4;
const SMALLS: usize = COLUMNS.len() - DELTAS;

/// Encoded pages of one column of the row group.
#[derive(Debug, Default)]
struct ColumnData {
    /// Pages with their headers.
    bytes: Vec<u8>,
    has_plain_pages: bool,
}

/// What the footer says about one column of a finished row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnEntry {
    /// Bytes of the dictionary page with its header; 0 where there is none.
    pub(super) dictionary_bytes: u64,
    /// Bytes of all pages with their headers, dictionary included.
    pub(super) bytes: u64,
    pub(super) has_plain_pages: bool,
    /// Smallest and largest value, where cheap to know.
    pub(super) range: Option<(u32, u32)>,
}

/// What all rows of a page have in common, as their columns have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common<'a> {
    pub(super) job_name: &'a str,
    /// UTC at time 0 of the job, ns since 1970.
    pub(super) origin_epoch_ns: i64,
    pub(super) run_id: &'a str,
    pub(super) host: &'a str,
    pub(super) host_index: u32,
}

/// A row group in the making.
#[derive(Debug, Default)]
pub(super) struct RowGroup {
    rows: u64,
    /// Words and 64-bit numbers, which dictionaries hold by their places here.
    texts: Vec<String>,
    longs: Vec<i64>,
    deltas: [ColumnData; DELTAS],
    smalls: [ColumnData; SMALLS],
    dictionaries: [Dictionary; SMALLS],
    page: [Vec<u8>; DELTAS],
    scratch: Vec<u8>,
}

impl RowGroup {
    /// Rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Encoded bytes so far.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.deltas.iter().chain(&self.smalls);
        columns.map(|c| c.bytes.len()).sum()
    }

    /// Encodes one page of every column, of rows of one job.
    pub(super) fn add_page(&mut self, rows: &[Row], common: &Common<'_>) {
        let Some(first) = rows.first() else { return };
        let firsts = [
            first.intended,
            first.submitted,
            first.completed,
            first.offset,
        ];
        for (page, first) in self.page.iter_mut().zip(firsts) {
            page.clear();
            DeltaPage::header(page, rows.len(), first);
        }
        let [pa, pb, pc, pd] = &mut self.page;
        let [mut a, mut b, mut c, mut d] = firsts.map(DeltaPage::new);
        // Which small columns hold more than one value: bits that differ from the first row's.
        let (mut who_differs, mut size_differs) = (0, 0);
        // The first row is in the headers; blocks of the others.
        for block in rows[1..].chunks(BLOCK) {
            a.block(pa, block.iter().map(|r| r.intended));
            b.block(pb, block.iter().map(|r| r.submitted));
            c.block(pc, block.iter().map(|r| r.completed));
            d.block(pd, block.iter().map(|r| r.offset));
            for r in block {
                who_differs |= r.who() ^ first.who();
                size_differs |= r.size() ^ first.size();
            }
        }
        for (column, page) in self.deltas.iter_mut().zip(&self.page) {
            data_page(column, rows.len(), DELTA_BINARY_PACKED, page);
        }
        let differs = Row::from_bits(who_differs, size_differs);
        for (i, field) in SMALL_FIELDS.iter().enumerate() {
            self.small_page(i, rows, *field, field(&differs) != 0);
        }
        let texts = &mut self.texts;
        let mut text = |t: &str| place(texts, |known| known == t, || t.to_owned());
        let words = [common.job_name, common.run_id, common.host].map(&mut text);
        let epoch = common.origin_epoch_ns;
        let long = place(&mut self.longs, |known| *known == epoch, || epoch);
        let values = [words[0], long, words[1], words[2], common.host_index];
        for (i, value) in (SMALL_FIELDS.len()..).zip(values) {
            self.constant_page(i, value, rows.len());
        }
        self.rows += rows.len() as u64;
    }

    /// A page of so many times one value: the encoder ends row groups before a dictionary of these is full.
    fn constant_page(&mut self, i: usize, value: u32, count: usize) {
        self.scratch.clear();
        self.dictionaries[i].constant_page(&mut self.scratch, value, count);
        data_page(&mut self.smalls[i], count, RLE_DICTIONARY, &self.scratch);
    }

    fn small_page(&mut self, i: usize, rows: &[Row], field: fn(&Row) -> u32, mixed: bool) {
        let (column, dictionary, body) = (
            &mut self.smalls[i],
            &mut self.dictionaries[i],
            &mut self.scratch,
        );
        body.clear();
        let fits = if mixed {
            dictionary.page(body, rows.iter().map(field))
        } else {
            dictionary.constant_page(body, rows.first().map_or(0, field), rows.len())
        };
        if fits {
            data_page(column, rows.len(), RLE_DICTIONARY, body);
            return;
        }
        for row in rows {
            body.extend_from_slice(&field(row).to_le_bytes());
        }
        data_page(column, rows.len(), PLAIN, body);
        column.has_plain_pages = true;
    }

    /// Gives every column's pieces to `write`, in the order of the file, and begins the next row group.
    /// Returns what the footer needs.
    ///
    /// # Errors
    /// The first one of `write`; the row group is gone then, too.
    pub(super) fn finish<E>(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Vec<ColumnEntry>, E> {
        let mut entries = Vec::with_capacity(COLUMNS.len());
        let (mut deltas, mut smalls) = (
            self.deltas.iter(),
            self.smalls.iter().zip(&self.dictionaries),
        );
        let mut result = Ok(());
        for (_, kind) in COLUMNS {
            let (column, dictionary) = if kind == Kind::Delta {
                (deltas.next(), None)
            } else {
                match smalls.next() {
                    Some((c, d)) => (Some(c), Some(d)),
                    None => (None, None),
                }
            };
            let Some(column) = column else { continue };
            self.scratch.clear();
            if let Some(d) = dictionary {
                dictionary_page(&mut self.scratch, d, (kind, &self.texts, &self.longs));
            }
            result = write(&self.scratch).and_then(|()| write(&column.bytes));
            if result.is_err() {
                break;
            }
            entries.push(ColumnEntry {
                dictionary_bytes: self.scratch.len() as u64,
                bytes: (self.scratch.len() + column.bytes.len()) as u64,
                has_plain_pages: column.has_plain_pages,
                range: dictionary
                    .filter(|_| {
                        !column.has_plain_pages && matches!(kind, Kind::Small | Kind::SmallUnsigned)
                    })
                    .and_then(|d| Some((*d.values().iter().min()?, *d.values().iter().max()?))),
            });
        }
        self.rows = 0;
        for c in self.deltas.iter_mut().chain(&mut self.smalls) {
            c.bytes.clear();
            c.has_plain_pages = false;
        }
        for d in &mut self.dictionaries {
            d.clear();
        }
        self.texts.clear();
        self.longs.clear();
        result.map(|()| entries)
    }
}

/// Where a value stands among those known, behind them where it is new.
fn place<T>(known: &mut Vec<T>, same: impl FnMut(&T) -> bool, new: impl FnOnce() -> T) -> u32 {
    let at = known.iter().position(same).unwrap_or_else(|| {
        known.push(new());
        known.len() - 1
    });
    at as u32
}

/// The fields of dictionary columns that differ within a page, in their order.
const SMALL_FIELDS: [fn(&Row) -> u32; 6] = [
    |r| u32::from(r.job),
    |r| u32::from(r.thread),
    |r| u32::from(r.op),
    |r| r.len,
    |r| r.done,
    |r| u32::from(r.errno),
];

fn data_page(column: &mut ColumnData, rows: usize, encoding: i32, body: &[u8]) {
    let mut t = Thrift::on(std::mem::take(&mut column.bytes));
    t.element_begin();
    t.i32(1, 0); // DATA_PAGE
    t.i32(2, body.len() as i32);
    t.i32(3, body.len() as i32);
    t.begin(5);
    t.i32(1, rows as i32);
    t.i32(2, encoding);
    t.i32(3, RLE); // Levels: none are stored, every column is required.
    t.i32(4, RLE);
    t.end();
    t.end();
    t.bytes.extend_from_slice(body);
    column.bytes = t.bytes;
}

fn dictionary_page(
    out: &mut Vec<u8>,
    dictionary: &Dictionary,
    (kind, texts, longs): (Kind, &[String], &[i64]),
) {
    let mut body = Vec::new();
    for v in dictionary.values() {
        let at = *v as usize;
        let text = match kind {
            Kind::Op => Op::from_index(at).map_or("unknown", Op::name),
            Kind::Text => texts.get(at).map_or("", String::as_str),
            Kind::Constant => {
                let long = longs.get(at).copied().unwrap_or_default();
                body.extend_from_slice(&long.to_le_bytes());
                continue;
            }
            Kind::Delta | Kind::Small | Kind::SmallUnsigned => {
                body.extend_from_slice(&v.to_le_bytes());
                continue;
            }
        };
        body.extend_from_slice(&(text.len() as u32).to_le_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    let mut t = Thrift::on(std::mem::take(out));
    t.element_begin();
    t.i32(1, 2); // DICTIONARY_PAGE
    t.i32(2, body.len() as i32);
    t.i32(3, body.len() as i32);
    t.begin(7);
    t.i32(1, dictionary.values().len() as i32);
    t.i32(2, PLAIN);
    t.end();
    t.end();
    t.bytes.extend_from_slice(&body);
    *out = t.bytes;
}
