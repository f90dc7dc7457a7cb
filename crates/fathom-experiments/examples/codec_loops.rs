//! fathom's rates of codecs beside a loop as lzbench has it, over the same libraries and data, in turns: one core.
//!
//! The loop knows nothing of fathom's: it calls the libraries itself, pass after pass over all chunks, and reads the
//! clock once a pass. `bench/compression` builds and runs it. Arguments: pairs, milliseconds of a loop.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fathom_experiments::compression::codecs::CODECS;
use fathom_experiments::compression::data::{CHUNK, generated};
use fathom_experiments::compression::one_core;
use fathom_stats::bootstrap::bootstrap_mean;
use fathom_telemetry::Nanos;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

/// Chunks: 8 MiB, so that a pass of the slowest codec fits a loop.
const CHUNKS: usize = 64;
/// How far fathom may be off.
const OFF_MAX: f64 = 0.10;

/// Plain bytes per second of passes over all chunks, and of the fastest pass, which is what lzbench prints.
fn passes(time: Duration, mut chunk: impl FnMut(usize)) -> (f64, f64) {
    let bytes = (CHUNKS * CHUNK) as f64;
    let begin = Instant::now();
    let (mut n, mut best, mut last) = (0.0, f64::INFINITY, Duration::ZERO);
    loop {
        (0..CHUNKS).for_each(&mut chunk);
        let now = begin.elapsed();
        n += 1.0;
        best = best.min((now - last).as_secs_f64());
        last = now;
        if now >= time {
            return (n * bytes / now.as_secs_f64(), bytes / best);
        }
    }
}

/// Encoding and decoding by the library itself: mean and best of each.
fn library(name: &str, plain: &[Vec<u8>], packed: &[Vec<u8>], time: Duration) -> [(f64, f64); 2] {
    let mut out = vec![0u8; 2 * CHUNK];
    let mut back = vec![0u8; CHUNK];
    match name.split_once('-') {
        None if name == "lz4" => [
            passes(time, |i| {
                black_box(lz4_flex::block::compress_into(&plain[i], &mut out).unwrap());
            }),
            passes(time, |i| {
                black_box(lz4_flex::block::decompress_into(&packed[i], &mut back).unwrap());
            }),
        ],
        None => {
            let (mut e, mut d) = (snap::raw::Encoder::new(), snap::raw::Decoder::new());
            [
                passes(time, |i| {
                    black_box(e.compress(&plain[i], &mut out).unwrap());
                }),
                passes(time, |i| {
                    black_box(d.decompress(&packed[i], &mut back).unwrap());
                }),
            ]
        }
        Some(("zlib", level)) => {
            let level = Compression::new(level.parse().unwrap());
            let (mut e, mut d) = (Compress::new(level, true), Decompress::new(true));
            [
                passes(time, |i| {
                    e.reset();
                    black_box(
                        e.compress(&plain[i], &mut out, FlushCompress::Finish)
                            .unwrap(),
                    );
                }),
                passes(time, |i| {
                    d.reset(true);
                    black_box(
                        d.decompress(&packed[i], &mut back, FlushDecompress::Finish)
                            .unwrap(),
                    );
                }),
            ]
        }
        Some((_, level)) => {
            let mut e = zstd::bulk::Compressor::new(level.parse().unwrap()).unwrap();
            let mut d = zstd::bulk::Decompressor::new().unwrap();
            [
                passes(time, |i| {
                    black_box(e.compress_to_buffer(&plain[i], &mut out[..]).unwrap());
                }),
                passes(time, |i| {
                    black_box(d.decompress_to_buffer(&packed[i], &mut back[..]).unwrap());
                }),
            ]
        }
    }
}

fn main() {
    let arguments: Result<Vec<u64>, _> = std::env::args().skip(1).map(|a| a.parse()).collect();
    let (pairs, time) = match arguments.as_deref() {
        Ok([]) => (10, 200),
        Ok([pairs @ (1..)]) => (*pairs, 200),
        Ok([pairs @ (1..), time @ (1..)]) => (*pairs, *time),
        _ => {
            eprintln!("usage: codec_loops [PAIRS [MILLISECONDS]], both 1 or more");
            std::process::exit(2);
        }
    };
    let time = Duration::from_millis(time);
    let sample = generated(0.3, CHUNKS, 1);
    println!(
        "{}; chunks of {} KiB, one core, {pairs} pairs of {time:?}, MB/s",
        sample.source,
        CHUNK >> 10
    );
    println!("codec      fathom    loop  best pass   fathom / loop (95 %)");
    let mut off = 0;
    for codec in CODECS {
        let mut coder = (codec.make)().expect("a codec can be made");
        let pack = |chunk: &Vec<u8>| {
            let mut packed = Vec::new();
            coder
                .encode(chunk, &mut packed)
                .expect("any chunk can be encoded");
            packed
        };
        let packed: Vec<Vec<u8>> = sample.chunks.iter().map(pack).collect();
        let mut ratios = [Vec::new(), Vec::new()];
        let mut seen = [[0.0f64; 3]; 2];
        for pair in 0..pairs {
            let ours = |encodes| {
                one_core(codec, &sample, &packed, encodes, Nanos::from(time)).expect("it runs")
            };
            let mut mine = [0.0; 2];
            // A drift of the processor favours neither: A B, B A.
            if pair % 2 == 0 {
                mine = [ours(true), ours(false)];
            }
            let theirs = library(codec.name, &sample.chunks, &packed, time);
            if pair % 2 == 1 {
                mine = [ours(true), ours(false)];
            }
            let both = mine.into_iter().zip(theirs);
            for ((ours, (loops, best)), (ratios, seen)) in
                both.zip(ratios.iter_mut().zip(&mut seen))
            {
                ratios.push(ours / loops);
                seen[0] += ours / pairs as f64;
                seen[1] += loops / pairs as f64;
                seen[2] = seen[2].max(best);
            }
        }
        for (k, what) in ["encode", "decode"].iter().enumerate() {
            let e = bootstrap_mean(&ratios[k], 1).expect("there are pairs");
            let [mine, loops, best] = seen[k].map(|v| v / 1e6);
            let far = (e.value - 1.0).abs() > OFF_MAX;
            off += u32::from(far);
            println!(
                "{:<7} {what} {mine:7.0} {loops:7.0} {best:10.0}   {:.3} ({:.3} to {:.3}){}",
                codec.name,
                e.value,
                e.low.unwrap_or(f64::NAN),
                e.high.unwrap_or(f64::NAN),
                if far { "  more than 10 % off" } else { "" }
            );
        }
    }
    println!(
        "{off} of {} more than {:.0} % off",
        2 * CODECS.len(),
        100.0 * OFF_MAX
    );
    std::process::exit(i32::from(off > 0));
}
