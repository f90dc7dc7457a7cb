//! Checksums of verified blocks, as fio computes them.

use fathom_io::clock::monotonic;
use fathom_telemetry::Nanos;
use sha2::Digest;

use fathom_io::load::rng::Rng;

/// What stands in a block, and how it is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    Md5,
    Crc64,
    Crc32,
    Crc32c,
    Crc16,
    Crc7,
    Sha1,
    Sha256,
    Sha512,
    Sha3(u16),
    XxHash,
    /// The header alone.
    Meta,
    /// A pattern over the whole block.
    Pattern,
    /// Header and pattern.
    PatternHeader,
    /// Nothing is written or checked.
    Null,
}

impl Sum {
    /// By fio's name; `None` for none.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "md5" => Self::Md5,
            "crc64" => Self::Crc64,
            "crc32" => Self::Crc32,
            "crc32c" | "crc32c-intel" => Self::Crc32c,
            "crc16" => Self::Crc16,
            "crc7" => Self::Crc7,
            "sha1" => Self::Sha1,
            "sha256" => Self::Sha256,
            "sha512" => Self::Sha512,
            "sha3-224" => Self::Sha3(224),
            "sha3-256" => Self::Sha3(256),
            "sha3-384" => Self::Sha3(384),
            "sha3-512" => Self::Sha3(512),
            "xxhash" => Self::XxHash,
            "meta" => Self::Meta,
            "pattern" => Self::Pattern,
            "pattern_hdr" => Self::PatternHeader,
            "null" => Self::Null,
            _ => return None,
        })
    }

    /// fio's number of it, in the header.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Meta => 1,
            Self::Md5 => 2,
            Self::Crc64 => 3,
            Self::Crc32 => 4,
            Self::Crc32c => 5,
            Self::Crc16 => 7,
            Self::Crc7 => 8,
            Self::Sha256 => 9,
            Self::Sha512 => 10,
            Self::Sha3(224) => 11,
            Self::Sha3(256) => 12,
            Self::Sha3(384) => 13,
            Self::Sha3(_) => 14,
            Self::XxHash => 15,
            Self::Sha1 => 16,
            Self::PatternHeader => 17,
            Self::Pattern => 18,
            Self::Null => 19,
        }
    }

    /// Bytes behind the header that the checksum has for itself, as in fio.
    pub(crate) fn room(self) -> usize {
        self.len()
    }

    /// Bytes of the checksum behind the header.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Crc64 => 8,
            Self::Crc32 | Self::Crc32c | Self::XxHash => 4,
            Self::Crc16 => 2,
            Self::Crc7 => 1,
            Self::Sha1 => 20,
            Self::Sha256 => 64,
            Self::Sha512 => 128,
            Self::Sha3(bits) => usize::from(bits) / 8,
            Self::Meta | Self::Pattern | Self::PatternHeader | Self::Null => 0,
        }
    }

    /// The checksum of `data`, at most 128 bytes.
    pub(crate) fn of(self, data: &[u8], out: &mut [u8; 128]) -> usize {
        let n = self.len();
        match self {
            Self::Md5 => out[..n].copy_from_slice(&md5::Md5::digest(data)),
            Self::Sha1 => {
                // fio stores the words as the processor has them.
                for (to, word) in out.chunks_mut(4).zip(sha1::Sha1::digest(data).chunks(4)) {
                    to.copy_from_slice(word);
                    to.reverse();
                }
            }
            Self::Sha256 => out[..n].copy_from_slice(&sha256(data)),
            Self::Sha512 => {
                // What was hashed last stands behind the digest: fio works in the same buffer.
                out[..n].copy_from_slice(&last_block::<128>(
                    data,
                    (data.len() as u128 * 8).to_be_bytes(),
                ));
                out[..64].copy_from_slice(&sha2::Sha512::digest(data));
            }
            Self::Sha3(224) => out[..n].copy_from_slice(&sha3::Sha3_224::digest(data)),
            Self::Sha3(256) => out[..n].copy_from_slice(&sha3::Sha3_256::digest(data)),
            Self::Sha3(384) => out[..n].copy_from_slice(&sha3::Sha3_384::digest(data)),
            Self::Sha3(_) => out[..n].copy_from_slice(&sha3::Sha3_512::digest(data)),
            Self::Crc64 => out[..n].copy_from_slice(&crc64(data).to_le_bytes()),
            Self::Crc32 => out[..n].copy_from_slice(&crc32(data).to_le_bytes()),
            Self::Crc32c => out[..n].copy_from_slice(&crc32c(data).to_le_bytes()),
            Self::Crc16 => out[..n].copy_from_slice(&crc16(data).to_le_bytes()),
            Self::Crc7 => out[0] = crc7(data),
            Self::XxHash => out[..n].copy_from_slice(&xxh32(data, 1).to_le_bytes()),
            Self::Meta | Self::Pattern | Self::PatternHeader | Self::Null => {}
        }
        n
    }
}

/// The last block that a hash of blocks of `N` bytes takes: the rest of the data, a bit, zeros, the length.
fn last_block<const N: usize>(data: &[u8], length: impl AsRef<[u8]>) -> [u8; N] {
    let length = length.as_ref();
    let rest = &data[data.len() / N * N..];
    let mut block = [0; N];
    // Where the length has no room behind the data, the bit stands in the block before.
    if rest.len() + 1 + length.len() <= N {
        block[..rest.len()].copy_from_slice(rest);
        block[rest.len()] = 0x80;
    }
    block[N - length.len()..].copy_from_slice(length);
    block
}

/// fio's SHA-256: the length is little-endian, and of the state only the lowest byte of each word is kept, in front of
/// the last block.
fn sha256(data: &[u8]) -> [u8; 64] {
    let mut state: [u32; 8] = [
        0x6a09_e667,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    let mut take = |block: &[u8; 64]| sha2::compress256(&mut state, &[(*block).into()]);
    let (whole, rest) = data.as_chunks::<64>();
    whole.iter().for_each(&mut take);
    let length = (data.len() as u64 * 8).to_le_bytes();
    let last = last_block::<64>(data, length);
    if rest.len() + 9 > 64 {
        let mut block = [0; 64];
        block[..rest.len()].copy_from_slice(rest);
        block[rest.len()] = 0x80;
        take(&block);
    }
    take(&last);
    let mut out = last;
    for (to, word) in out.iter_mut().zip(state) {
        *to = word as u8;
    }
    out
}

/// Table of a reflected 32-bit CRC.
const fn table32(polynomial: u32) -> [u32; 256] {
    let mut t = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut k = 0;
        while k < 8 {
            c = if c & 1 == 1 {
                (c >> 1) ^ polynomial
            } else {
                c >> 1
            };
            k += 1;
        }
        t[i] = c;
        i += 1;
    }
    t
}

static CASTAGNOLI: [u32; 256] = table32(0x82F6_3B78);
/// Table of a 32-bit CRC whose highest bit comes first.
const fn table32_forward(polynomial: u32) -> [u32; 256] {
    let mut t = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = (i as u32) << 24;
        let mut k = 0;
        while k < 8 {
            c = if c >> 31 == 1 {
                (c << 1) ^ polynomial
            } else {
                c << 1
            };
            k += 1;
        }
        t[i] = c;
        i += 1;
    }
    t
}

static FORWARD: [u32; 256] = table32_forward(0x04C1_1DB7);

/// fio's CRC-32: highest bit first, from 0, not inverted (as cksum without the length).
fn crc32(data: &[u8]) -> u32 {
    data.iter().fold(0u32, |c, b| {
        FORWARD[usize::from((c >> 24) as u8 ^ b)] ^ (c << 8)
    })
}

/// fio's CRC-32C, of headers too: not inverted at the end.
pub(crate) fn crc32c(data: &[u8]) -> u32 {
    super::crc::by_instruction(!0, data).unwrap_or_else(|| crc32c_by_table(data))
}

fn crc32c_by_table(data: &[u8]) -> u32 {
    data.iter().fold(!0u32, |c, b| {
        CASTAGNOLI[usize::from(c as u8 ^ b)] ^ (c >> 8)
    })
}

fn crc64(data: &[u8]) -> u64 {
    data.iter().fold(0u64, |mut c, b| {
        c ^= u64::from(*b);
        for _ in 0..8 {
            c = if c & 1 == 1 {
                (c >> 1) ^ 0x95AC_9329_AC4B_C9B5
            } else {
                c >> 1
            };
        }
        c
    })
}

fn crc16(data: &[u8]) -> u16 {
    data.iter().fold(0u16, |mut c, b| {
        c ^= u16::from(*b);
        for _ in 0..8 {
            c = if c & 1 == 1 {
                (c >> 1) ^ 0xA001
            } else {
                c >> 1
            };
        }
        c
    })
}

fn crc7(data: &[u8]) -> u8 {
    data.iter().fold(0u8, |mut c, b| {
        for i in 0..8 {
            let bit = (b >> (7 - i) & 1) ^ (c >> 6 & 1);
            c = (c << 1) & 0x7f;
            if bit == 1 {
                c ^= 0x09;
            }
        }
        c
    })
}

fn xxh32(data: &[u8], seed: u32) -> u32 {
    const P: [u32; 5] = [
        0x9E37_79B1,
        0x85EB_CA77,
        0xC2B2_AE3D,
        0x27D4_EB2F,
        0x1656_67B1,
    ];
    let word = |b: &[u8]| b.first_chunk::<4>().map_or(0, |w| u32::from_le_bytes(*w));
    let mut rest = data;
    let mut h = if data.len() >= 16 {
        let mut v = [
            seed.wrapping_add(P[0]).wrapping_add(P[1]),
            seed.wrapping_add(P[1]),
            seed,
            seed.wrapping_sub(P[0]),
        ];
        while rest.len() >= 16 {
            for (i, lane) in v.iter_mut().enumerate() {
                *lane = lane
                    .wrapping_add(word(&rest[i * 4..]).wrapping_mul(P[1]))
                    .rotate_left(13)
                    .wrapping_mul(P[0]);
            }
            rest = &rest[16..];
        }
        v[0].rotate_left(1)
            .wrapping_add(v[1].rotate_left(7))
            .wrapping_add(v[2].rotate_left(12))
            .wrapping_add(v[3].rotate_left(18))
    } else {
        seed.wrapping_add(P[4])
    };
    h = h.wrapping_add(data.len() as u32);
    while rest.len() >= 4 {
        h = h
            .wrapping_add(word(rest).wrapping_mul(P[2]))
            .rotate_left(17)
            .wrapping_mul(P[3]);
        rest = &rest[4..];
    }
    for b in rest {
        h = h
            .wrapping_add(u32::from(*b).wrapping_mul(P[4]))
            .rotate_left(11)
            .wrapping_mul(P[0]);
    }
    h = (h ^ (h >> 15)).wrapping_mul(P[1]);
    h = (h ^ (h >> 13)).wrapping_mul(P[2]);
    h ^ (h >> 16)
}

/// Incompressible bytes.
pub(crate) fn noise(data: &mut [u8], seed: u64) {
    let mut rng = Rng::new(seed, 0x7665_7200);
    for word in data.chunks_mut(8) {
        let bits = rng.bits().to_le_bytes();
        word.copy_from_slice(&bits[..word.len()]);
    }
}

/// Bytes per second of the checksums, all or those that `which` names.
pub fn speeds(which: &str) -> Vec<(&'static str, f64)> {
    const NAMES: [&str; 16] = [
        "md5",
        "crc64",
        "crc32",
        "crc32c",
        "crc16",
        "crc7",
        "sha1",
        "sha256",
        "sha512",
        "xxhash",
        "sha3-224",
        "sha3-256",
        "sha3-384",
        "sha3-512",
        "crc32c-intel",
        "null",
    ];
    /// At a time, and for so long.
    const BLOCK: usize = 64 << 10;
    const TIME: Nanos = Nanos::from_millis(20);
    let mut data = vec![0; BLOCK];
    noise(&mut data, 1);
    let wanted = |n: &&str| *n != "null" && (which.is_empty() || which.split(',').any(|w| w == *n));
    NAMES
        .into_iter()
        .filter(wanted)
        .filter_map(|name| {
            let sum = Sum::named(name)?;
            let (begun, mut n, mut out) = (monotonic(), 0u64, [0; 128]);
            let mut time = Nanos::ZERO;
            while time < TIME {
                sum.of(std::hint::black_box(&data), &mut out);
                n += 1;
                time = monotonic().since(begun);
            }
            Some((name, n as f64 * BLOCK as f64 / time.as_secs_f64()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(sum: Sum, data: &[u8]) -> String {
        let mut out = [0; 128];
        let n = sum.of(data, &mut out);
        out[..n].iter().rev().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn checksums_have_their_published_check_values() {
        let text = b"123456789";
        // CRC-32/CKSUM is 765e7680 with its inversion; CRC-32C is e3069283 with its own.
        assert_eq!(crc32(text), 0x89a1_897f);
        assert_eq!(!crc32c(text), 0xe306_9283);
        assert_eq!(!crc32c_by_table(text), 0xe306_9283);
        assert_eq!(hex(Sum::Crc16, text), "bb3d");
        assert_eq!(hex(Sum::Crc7, text), "75");
        assert_eq!(xxh32(text, 0), 0x937b_ad67);
        assert_eq!(Sum::Sha512.len(), 128);
    }
}
