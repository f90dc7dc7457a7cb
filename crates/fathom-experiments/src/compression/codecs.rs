//! The codecs: one entry of [`CODECS`] each. They know nothing of timing or devices.

use std::io;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// A codec with its state, so that a loop over chunks sets nothing up again. One for each thread.
pub trait Coder: Send {
    /// Appends nothing: replaces `packed` by the encoded `plain`.
    ///
    /// # Errors
    /// Where the library fails; it does not for any input.
    fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> io::Result<()>;

    /// Decodes into `plain`, whose length is that of the original.
    ///
    /// # Errors
    /// Where `packed` is not what [`Coder::encode`] made of a chunk of that length.
    fn decode(&mut self, packed: &[u8], plain: &mut [u8]) -> io::Result<()>;
}

/// A codec at one level.
pub struct Codec {
    /// Name with its level: `zstd-3`.
    pub name: &'static str,
    /// Makes its state.
    pub make: fn() -> io::Result<Box<dyn Coder>>,
}

/// From the fastest to the densest of each family.
pub const CODECS: &[Codec] = &[
    Codec {
        name: "lz4",
        make: || Ok(Box::new(Lz4)),
    },
    Codec {
        name: "snappy",
        make: || {
            Ok(Box::new(Snappy {
                encoder: snap::raw::Encoder::new(),
                decoder: snap::raw::Decoder::new(),
            }))
        },
    },
    Codec {
        name: "zlib-1",
        make: || Ok(Box::new(Zlib::new(1))),
    },
    Codec {
        name: "zlib-6",
        make: || Ok(Box::new(Zlib::new(6))),
    },
    Codec {
        name: "zstd-1",
        make: || Ok(Box::new(Zstd::new(1)?)),
    },
    Codec {
        name: "zstd-3",
        make: || Ok(Box::new(Zstd::new(3)?)),
    },
    Codec {
        name: "zstd-9",
        make: || Ok(Box::new(Zstd::new(9)?)),
    },
];

fn wrong_length(got: usize, want: usize) -> io::Error {
    io::Error::other(format!("decoded {got} bytes instead of {want}"))
}

struct Lz4;

impl Coder for Lz4 {
    fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
        packed.resize(lz4_flex::block::get_maximum_output_size(plain.len()), 0);
        let n = lz4_flex::block::compress_into(plain, packed).map_err(io::Error::other)?;
        packed.truncate(n);
        Ok(())
    }
    fn decode(&mut self, packed: &[u8], plain: &mut [u8]) -> io::Result<()> {
        let n = lz4_flex::block::decompress_into(packed, plain).map_err(io::Error::other)?;
        (n == plain.len())
            .then_some(())
            .ok_or_else(|| wrong_length(n, plain.len()))
    }
}

struct Snappy {
    encoder: snap::raw::Encoder,
    decoder: snap::raw::Decoder,
}

impl Coder for Snappy {
    fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
        packed.resize(snap::raw::max_compress_len(plain.len()), 0);
        let n = self.encoder.compress(plain, packed)?;
        packed.truncate(n);
        Ok(())
    }
    fn decode(&mut self, packed: &[u8], plain: &mut [u8]) -> io::Result<()> {
        let n = self.decoder.decompress(packed, plain)?;
        (n == plain.len())
            .then_some(())
            .ok_or_else(|| wrong_length(n, plain.len()))
    }
}

struct Zlib {
    encoder: Compress,
    decoder: Decompress,
}

impl Zlib {
    fn new(level: u32) -> Self {
        Self {
            encoder: Compress::new(Compression::new(level), true),
            decoder: Decompress::new(true),
        }
    }
}

impl Coder for Zlib {
    fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
        // Of incompressible data level 1 of zlib-rs makes 9 bits of each byte before it stores it plainly.
        packed.clear();
        packed.reserve(plain.len() + plain.len() / 8 + 64);
        self.encoder.reset();
        let status = self
            .encoder
            .compress_vec(plain, packed, FlushCompress::Finish)?;
        (status == Status::StreamEnd)
            .then_some(())
            .ok_or_else(|| io::Error::other("zlib's output outgrew its bound"))
    }
    fn decode(&mut self, packed: &[u8], plain: &mut [u8]) -> io::Result<()> {
        self.decoder.reset(true);
        self.decoder
            .decompress(packed, plain, FlushDecompress::Finish)?;
        let n = self.decoder.total_out() as usize;
        (n == plain.len())
            .then_some(())
            .ok_or_else(|| wrong_length(n, plain.len()))
    }
}

struct Zstd {
    encoder: zstd::bulk::Compressor<'static>,
    decoder: zstd::bulk::Decompressor<'static>,
}

impl Zstd {
    fn new(level: i32) -> io::Result<Self> {
        Ok(Self {
            encoder: zstd::bulk::Compressor::new(level)?,
            decoder: zstd::bulk::Decompressor::new()?,
        })
    }
}

impl Coder for Zstd {
    fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
        packed.resize(zstd::zstd_safe::compress_bound(plain.len()), 0);
        let n = self.encoder.compress_to_buffer(plain, &mut packed[..])?;
        packed.truncate(n);
        Ok(())
    }
    fn decode(&mut self, packed: &[u8], plain: &mut [u8]) -> io::Result<()> {
        let n = self.decoder.decompress_to_buffer(packed, plain)?;
        (n == plain.len())
            .then_some(())
            .ok_or_else(|| wrong_length(n, plain.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn incompressible_data_fits_every_codec_and_comes_back() {
        let mut rng = fathom_stats::rng::SplitMix64::new(21);
        let plain: Vec<u8> = (0..1 << 14)
            .flat_map(|_| rng.next_u64().to_le_bytes())
            .collect();
        for codec in CODECS {
            let mut coder = (codec.make)().unwrap();
            let (mut packed, mut back) = (Vec::new(), vec![0; plain.len()]);
            coder.encode(&plain, &mut packed).unwrap();
            coder.decode(&packed, &mut back).unwrap();
            assert!(
                back == plain && packed.len() >= plain.len(),
                "{}",
                codec.name
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_codec_gives_back_what_it_took(
            seed in proptest::collection::vec(any::<u8>(), 1..400),
            repeats in 1usize..50,
        ) {
            let plain = seed.repeat(repeats);
            for codec in CODECS {
                let mut coder = (codec.make)().unwrap();
                let mut packed = Vec::new();
                // Twice, because the state is used again.
                for _ in 0..2 {
                    coder.encode(&plain, &mut packed).unwrap();
                    let mut back = vec![0; plain.len()];
                    coder.decode(&packed, &mut back).unwrap();
                    prop_assert!(back == plain, "{}", codec.name);
                }
            }
        }

        #[test]
        fn garbage_is_an_error_and_no_panic(packed in proptest::collection::vec(any::<u8>(), 0..300)) {
            for codec in CODECS {
                let mut plain = vec![0; 4096];
                let _ = (codec.make)().unwrap().decode(&packed, &mut plain);
            }
        }
    }
}
