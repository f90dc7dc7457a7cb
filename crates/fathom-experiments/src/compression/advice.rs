//! What a codec does to storage: arithmetic alone, so that it can be checked by hand.

/// Speeds of a codec and the size of what it makes. Rates are plain bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Plain over packed bytes.
    pub ratio: f64,
    /// Of one core.
    pub encode: f64,
    /// Of one core.
    pub decode: f64,
    /// Of all cores together.
    pub encode_all: f64,
    /// Of all cores together.
    pub decode_all: f64,
}

/// What the device does, in stored bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Bytes per second, many outstanding.
    pub read: f64,
    /// Bytes per second, many outstanding; `None` where nothing may be written.
    pub write: Option<f64>,
    /// Time of one read of a chunk, one outstanding, s.
    pub chunk_read: f64,
    /// Bytes per second by which that time grows with its size.
    pub chunk_slope: f64,
}

/// One direction with coding and transfer at the same time (a pipeline).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pipeline {
    /// Plain bytes per second, all cores coding.
    pub rate: f64,
    /// That over the device's own.
    pub gain: f64,
    /// Cores from which compression is no loss.
    pub cores_to_break_even: f64,
    /// Cores for the whole gain, which is the ratio.
    pub cores_for_all: f64,
}

/// Coding beside a transfer of `device` bytes per second; `all` is the rate of `cores` cores.
pub fn pipeline(device: f64, ratio: f64, all: f64, cores: u32) -> Pipeline {
    let rate = (device * ratio).min(all);
    let core = all / f64::from(cores.max(1));
    Pipeline {
        rate,
        gain: rate / device,
        cores_to_break_even: device / core,
        cores_for_all: device * ratio / core,
    }
}

/// Ratio from which one thread that reads a chunk and then decodes it is no slower than one that reads it
/// plain: `1 / (1 - slope / decode)`. `None` where decoding alone takes longer than what it saves.
pub fn serial_break_even(device: &Device, decode: f64) -> Option<f64> {
    (decode > device.chunk_slope).then(|| 1.0 / (1.0 - device.chunk_slope / decode))
}

/// Time of one thread for a chunk, packed: read, then decode, s.
pub fn serial_time(device: &Device, speed: &Speed, chunk: f64) -> f64 {
    device.chunk_read - chunk * (1.0 - 1.0 / speed.ratio) / device.chunk_slope
        + chunk / speed.decode
}

/// A compressed cache in memory: time to decode a chunk from it over the time to read it from the
/// device. Below 1 it is the faster place.
pub fn cache_hit_over_read(device: &Device, speed: &Speed, chunk: f64) -> f64 {
    chunk / speed.decode / device.chunk_read
}

/// What a byte of a compressed cache saves over one of a plain cache, where all chunks are asked for alike: `ratio` times
/// the chunks, each of which saves a read less the decoding. At 1 or below a plain cache is the better one.
pub fn cache_saves(device: &Device, speed: &Speed, chunk: f64) -> f64 {
    speed.ratio * (1.0 - cache_hit_over_read(device, speed, chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device {
        read: 2e9,
        write: Some(1e9),
        chunk_read: 100e-6,
        chunk_slope: 2e9,
    };

    #[test]
    fn the_slower_of_device_and_cores_decides() {
        let p = pipeline(2e9, 2.0, 8e9, 8);
        assert_eq!((p.rate, p.gain), (4e9, 2.0));
        assert_eq!((p.cores_to_break_even, p.cores_for_all), (2.0, 4.0));
        let p = pipeline(2e9, 2.0, 1e9, 2);
        assert_eq!((p.rate, p.gain), (1e9, 0.5));
        assert_eq!(p.cores_to_break_even, 4.0);
    }

    #[test]
    fn at_the_break_even_ratio_both_ways_take_the_same_time() {
        let decode = 3e9;
        let ratio = serial_break_even(&DEVICE, decode).unwrap();
        assert!((ratio - 3.0).abs() < 1e-9, "{ratio}");
        let speed = Speed {
            ratio,
            encode: 1e9,
            decode,
            encode_all: 1e9,
            decode_all: 3e9,
        };
        let time = serial_time(&DEVICE, &speed, 131_072.0);
        assert!((time / DEVICE.chunk_read - 1.0).abs() < 1e-9, "{time}");
        assert_eq!(serial_break_even(&DEVICE, 1.9e9), None);
    }

    #[test]
    fn a_cache_hit_is_held_against_the_read_that_it_saves() {
        let speed = Speed {
            ratio: 2.0,
            encode: 1e9,
            decode: 131_072.0 / 50e-6,
            encode_all: 1e9,
            decode_all: 1e9,
        };
        assert!((cache_hit_over_read(&DEVICE, &speed, 131_072.0) - 0.5).abs() < 1e-12);
        // Twice the chunks, each for half: no gain.
        assert!((cache_saves(&DEVICE, &speed, 131_072.0) - 1.0).abs() < 1e-12);
    }
}
