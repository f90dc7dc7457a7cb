//! A page of `trace_pipe_raw`, taken apart (kernel: `kernel/trace/ring_buffer.c`).
//!
//! A page is a time, the number of committed bytes and events; an event is a 32-bit header (5 bits
//! type or length, 27 bits time since the one before) and its data. Input is not trusted: a page that
//! makes no sense ends early, and says so.

use super::format::{field, number};

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// The kernel's flag in `commit`: events were dropped before this page.
const MISSED: u64 = 1 << 31;

/// Layout of a page's head, from `events/header_page`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLayout {
    /// Offset of the page's time.
    pub time: usize,
    /// Offset of the committed length.
    pub commit: usize,
    /// Size of the committed length: 8, or 4 on a 32-bit kernel.
    pub commit_size: usize,
    /// Offset of the first event.
    pub data: usize,
    /// Size of the whole page: 4096 unless sub-buffers were resized.
    pub size: usize,
}

impl PageLayout {
    /// Reads `events/header_page`.
    pub fn parse(text: &str) -> Option<Self> {
        let get = |name: &str| text.lines().filter_map(field).find(|f| f.name == name);
        let (time, commit, data) = (get("timestamp")?, get("commit")?, get("data")?);
        Some(Self {
            time: time.offset,
            commit: commit.offset,
            commit_size: commit.size,
            data: data.offset,
            size: data.offset + data.size,
        })
    }
}

/// How a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEnd {
    /// Events handed over.
    pub events: u32,
    /// Whether the kernel says that it dropped events before this page.
    pub missed: bool,
    /// Whether everything committed was understood.
    pub whole: bool,
}

/// Calls `each` with the time (ns) and data of every event of a page, in order.
pub fn events(page: &[u8], layout: &PageLayout, mut each: impl FnMut(u64, &[u8])) -> PageEnd {
    let mut end = PageEnd {
        events: 0,
        missed: false,
        whole: false,
    };
    if page.len() < layout.data {
        return end;
    }
    let base = number(page, layout.time, 8);
    let commit = number(page, layout.commit, layout.commit_size);
    end.missed = commit & MISSED != 0;
    let length = (commit & 0xf_ffff) as usize;
    let Some(data) = page.get(layout.data..layout.data + length) else {
        return end;
    };
    let mut time = base;
    let mut at = 0;
    while at + 4 <= data.len() {
        let header = number(data, at, 4) as u32;
        let (kind, delta) = (header & 31, u64::from(header >> 5));
        let second = number(data, at + 4, 4);
        match kind {
            PADDING if delta == 0 => break,
            PADDING => {
                time += delta;
                at += second as usize + 4;
            }
            TIME_EXTEND => {
                time += delta | second << 27;
                at += 8;
            }
            TIME_STAMP => {
                // The upper five bits do not fit and are those of the page.
                time = (delta | second << 27) | base & 0xf8 << 56;
                at += 8;
            }
            _ => {
                let (start, len) = match kind {
                    0 => (at + 8, (second as usize).wrapping_sub(4)),
                    n => (at + 4, n as usize * 4),
                };
                time += delta;
                let Some(body) = start.checked_add(len).and_then(|e| data.get(start..e)) else {
                    return end;
                };
                each(time, body);
                end.events += 1;
                at = start + len;
            }
        }
    }
    end.whole = true;
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PageLayout = PageLayout {
        time: 0,
        commit: 8,
        commit_size: 8,
        data: 16,
        size: 4096,
    };

    fn page(words: &[u32]) -> Vec<u8> {
        let mut p = 1000u64.to_ne_bytes().to_vec();
        p.extend(((words.len() as u64 * 4) | MISSED).to_ne_bytes());
        p.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        p.resize(4096, 0);
        p
    }

    fn read(p: &[u8]) -> (Vec<(u64, usize)>, PageEnd) {
        let mut seen = Vec::new();
        let end = events(p, &LAYOUT, |t, d| seen.push((t, d.len())));
        (seen, end)
    }

    #[test]
    fn short_long_extended_and_absolute_events_are_told_apart() {
        let p = page(&[
            7 << 5 | 2,
            1,
            2, // 8 bytes, 7 ns on
            1 << 5 | TIME_EXTEND,
            1, // 2^27 + 1 ns on
            3 << 5,
            12,
            5,
            6, // length in the next word: 12 − 4 bytes
            5 << 5 | PADDING,
            8,
            0, // padding of 12 bytes, 5 ns on
            9 << 5 | TIME_STAMP,
            2, // absolute
            1 << 5 | 1,
            8,
        ]);
        let (seen, end) = read(&p);
        let absolute = (2 << 27 | 9) + 1;
        assert_eq!(
            seen,
            [(1007, 8), (1007 + (1 << 27) + 1 + 3, 8), (absolute, 4)]
        );
        assert_eq!(
            end,
            PageEnd {
                events: 3,
                missed: true,
                whole: true
            }
        );
    }

    #[test]
    fn a_broken_page_ends_early_and_never_panics() {
        assert!(!read(&[0; 7]).1.whole);
        assert!(!read(&page(&[28, 0])).1.whole);
        assert!(!read(&page(&[0, 0])).1.whole);
        let mut p = page(&[]);
        p[8..16].copy_from_slice(&0xf_ffffu64.to_ne_bytes());
        assert!(!read(&p).1.whole);
        // Any bytes at all.
        let mut x = 12345u64;
        for _ in 0..2000 {
            let words: Vec<u32> = (0..64)
                .map(|_| {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (x >> 33) as u32
                })
                .collect();
            read(&page(&words));
        }
    }

    #[test]
    fn the_layout_comes_from_the_kernels_text() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(PageLayout::parse(text), Some(LAYOUT));
    }
}
