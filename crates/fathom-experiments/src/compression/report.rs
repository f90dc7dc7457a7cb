//! Tables, charts and findings of compression beside the device.

use fathom_bench::cells::Cell;
use fathom_bench::parts::{self, axis, point, series};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, Finding, Headline, Mark, Section, Table,
};
use fathom_telemetry::{Flag, FlagCode, Op};

use super::advice::{self, Device, Speed};
use super::data::CHUNK;
use super::{CompressionResult, Rates};

/// The device in each repeat in which all of its jobs gave a number, with the number of that repeat.
fn devices(cells: &[Cell]) -> Vec<(usize, Device)> {
    let cell = |name: &str| cells.iter().find(|c| c.stem == name);
    let rate = |name: &str, op: Op| -> Vec<Option<f64>> {
        cell(name).map_or(Vec::new(), |c| {
            c.repeats
                .iter()
                .map(|(_, j)| Some(j.direction(op)?.bytes_per_second).filter(|_| !j.is_void()))
                .collect()
        })
    };
    let mean = |name: &str| -> Vec<Option<f64>> {
        cell(name).map_or(Vec::new(), |c| {
            c.repeats
                .iter()
                .map(|(_, j)| {
                    j.direction(Op::Read)?
                        .response_ns
                        .mean
                        .filter(|_| !j.is_void())
                })
                .collect()
        })
    };
    let (reads, writes) = (rate("chunk-read", Op::Read), rate("chunk-write", Op::Write));
    let (chunk, page) = (mean("one-chunk"), mean("one-page"));
    (0..reads.len())
        .filter_map(|i| {
            let (chunk, page) = ((*chunk.get(i)?)? / 1e9, (*page.get(i)?)? / 1e9);
            let device = Device {
                read: reads[i]?,
                write: writes.get(i).copied().flatten(),
                chunk_read: chunk,
                // Where a larger read takes no longer, transfer costs nothing that could be saved.
                chunk_slope: (CHUNK as f64 - 4096.0) / (chunk - page).max(1e-9),
            };
            Some((i, device))
        })
        .collect()
}

/// Repeats of one figure for a codec beside the device.
fn each(
    rates: &Rates,
    devices: &[(usize, Device)],
    f: impl Fn(&Speed, &Device) -> Option<f64>,
) -> Vec<f64> {
    let both = devices.iter();
    both.filter_map(|(i, d)| f(&rates.speed(*i)?, d)).collect()
}

/// Their mean.
fn beside(
    rates: &Rates,
    devices: &[(usize, Device)],
    f: impl Fn(&Speed, &Device) -> Option<f64>,
) -> Option<Estimate> {
    Estimate::mean_of(&each(rates, devices, f))
}

/// The codec with the highest mean, whose interval allows for its having been chosen among all.
fn best<'a>(
    all: &'a [Rates],
    devices: &[(usize, Device)],
    f: impl Fn(&Speed, &Device) -> Option<f64>,
) -> Option<(&'a str, &'a Rates, Estimate)> {
    all.iter()
        .filter_map(|r| {
            let chosen = Estimate::mean_of_chosen(&each(r, devices, &f), all.len());
            Some((r.codec.as_str(), r, chosen?))
        })
        .max_by(|a, b| a.2.value.total_cmp(&b.2.value))
}

/// Times the device's own, as what is gained.
fn gain(times: Estimate) -> Estimate {
    Estimate {
        value: times.value - 1.0,
        low: times.low.map(|l| l - 1.0),
        high: times.high.map(|h| h - 1.0),
        ..times
    }
}

fn interval(e: Estimate) -> String {
    e.low.zip(e.high).map_or(String::new(), |(l, h)| {
        format!(
            " ({l:.2} to {h:.2}, 95 % for the best of {})",
            super::codecs::CODECS.len()
        )
    })
}

/// Strong where the whole interval is a gain.
fn confidence(times: Estimate) -> String {
    let sure = times.low.is_some_and(|l| l > 1.0);
    if sure { "strong" } else { "weak" }.into()
}

impl ExperimentResult for CompressionResult {
    const EXPERIMENT: &'static str = "compression";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        report(self, &evidence.cells(&self.points), shown);
    }
}

/// What was measured: the codecs, and the device in each repeat.
struct Beside<'a> {
    all: &'a [Rates],
    cores: u32,
    devices: Vec<(usize, Device)>,
    jobs: Vec<usize>,
}

fn report(found: &CompressionResult, cells: &[Cell], shown: &mut Shown) {
    let it = Beside {
        all: &found.codecs,
        cores: found.cores,
        devices: devices(cells),
        jobs: cells.iter().flat_map(Cell::indices).collect(),
    };
    let cores = it.cores;
    let mut section = Section {
        id: "compression".into(),
        title: "Compression".into(),
        text: format!(
            "128 KiB chunks in memory, {}; {cores} core(s). Rates are bytes of plain data. A gain is what reading or writing through the codec on all cores gives, over the device's own bandwidth: coding and transfer run at the same time, and the slower of the two decides.",
            found.sample
        ),
        tables: vec![it.codecs(), it.gains()],
        ..Section::default()
    };
    if it.devices.is_empty() {
        section.flags.push(Flag::new(
            FlagCode::TooFewSamples,
            "the device's jobs gave no complete repeat: nothing to hold the codecs against",
            "run again without interruption",
        ));
    }
    let read: Vec<f64> = it.devices.iter().map(|d| d.1.read).collect();
    let write: Vec<f64> = it.devices.iter().filter_map(|d| d.1.write).collect();
    let (read, write) = (Estimate::mean_of(&read), Estimate::mean_of(&write));
    section.charts = vec![
        it.bars("decode", "Decoding", ("reads", read), |r| {
            [&r.decode, &r.decode_all]
        }),
        it.bars("encode", "Encoding", ("writes", write), |r| {
            [&r.encode, &r.encode_all]
        }),
    ];
    let device = |id: &str, label: &str, rate| headline(id, label, rate, "bytes/s", &it.jobs);
    shown.headlines.push(device(
        "compression-device-read",
        "device, 128 KiB reads",
        read,
    ));
    if write.is_some() {
        shown.headlines.push(device(
            "compression-device-write",
            "device, 128 KiB writes",
            write,
        ));
    }
    it.direction(
        "reads",
        "compression-decode",
        &|s, d| Some(reads(s, d, cores).gain),
        &mut section,
        shown,
    );
    it.direction(
        "writes",
        "compression-encode",
        &|s, d| Some(writes(s, d, cores)?.gain),
        &mut section,
        shown,
    );
    let cache = it.cache(&mut section);
    shown.findings.extend(cache);
    shown.sections.push(section);
}

fn reads(s: &Speed, d: &Device, cores: u32) -> advice::Pipeline {
    advice::pipeline(d.read, s.ratio, s.decode_all, cores)
}

fn writes(s: &Speed, d: &Device, cores: u32) -> Option<advice::Pipeline> {
    Some(advice::pipeline(d.write?, s.ratio, s.encode_all, cores))
}

impl Beside<'_> {
    fn codecs(&self) -> Table {
        let mean = |v: &[f64]| TableCell::from(Estimate::mean_of(v));
        let (encode_all, decode_all) = (
            format!("encode, {} cores", self.cores),
            format!("decode, {} cores", self.cores),
        );
        parts::table(
            "codecs",
            "Codecs",
            self.all,
            &[
                ("codec", "", &|r| r.codec.as_str().into()),
                ("ratio", "", &|r| (r.ratio > 0.0).then_some(r.ratio).into()),
                ("encode, one core", "bytes/s", &|r| mean(&r.encode)),
                ("decode, one core", "bytes/s", &|r| mean(&r.decode)),
                (&encode_all, "bytes/s", &|r| mean(&r.encode_all)),
                (&decode_all, "bytes/s", &|r| mean(&r.decode_all)),
            ],
        )
    }

    fn gains(&self) -> Table {
        let (cores, chunk) = (self.cores, CHUNK as f64);
        let of = |r: &&Rates, f: Gain<'_>| TableCell::from(beside(r, &self.devices, f));
        parts::table(
            "compression-gains",
            "Beside the device",
            self.all,
            &[
                ("codec", "", &|r| r.codec.as_str().into()),
                ("gain of reads", "", &|r| {
                    of(r, &|s, d| Some(reads(s, d, cores).gain))
                }),
                ("cores to break even, reads", "", &|r| {
                    of(r, &|s, d| Some(reads(s, d, cores).cores_to_break_even))
                }),
                ("gain of writes", "", &|r| {
                    of(r, &|s, d| Some(writes(s, d, cores)?.gain))
                }),
                ("cores to break even, writes", "", &|r| {
                    of(r, &|s, d| Some(writes(s, d, cores)?.cores_to_break_even))
                }),
                ("one thread: ratio to break even", "", &|r| {
                    of(r, &|s, d| advice::serial_break_even(d, s.decode))
                }),
                ("one thread: packed over plain read", "", &|r| {
                    of(r, &|s, d| {
                        Some(advice::serial_time(d, s, chunk) / d.chunk_read)
                    })
                }),
                ("cached: decode over device read", "", &|r| {
                    of(r, &|s, d| Some(advice::cache_hit_over_read(d, s, chunk)))
                }),
                ("cached: waiting saved, over plain data", "", &|r| {
                    of(r, &|s, d| Some(advice::cache_saves(d, s, chunk)))
                }),
            ],
        )
    }

    /// Rates of all codecs on one core and on all, with the device's as a line across.
    fn bars(
        &self,
        way: &str,
        title: &str,
        (name, device): (&str, Option<Estimate>),
        rates: impl Fn(&Rates) -> [&Vec<f64>; 2],
    ) -> Chart {
        let bars = |name: &str, which: usize| {
            let values = self.all.iter().map(|r| Estimate::mean_of(rates(r)[which]));
            let dot = |(i, v)| point(i as f64, v);
            series(name, values.enumerate().map(dot).collect())
        };
        let mark = |d: Estimate| Mark {
            x: None,
            y: Some(d.value),
            label: format!("device {name}"),
        };
        Chart {
            categories: self.all.iter().map(|r| r.codec.clone()).collect(),
            marks: device.map(mark).into_iter().collect(),
            ..parts::chart(
                &format!("compression-{way}"),
                &format!("{title} beside the device's {name}"),
                ChartKind::Bar,
                axis("codec", "", false),
                axis("plain data", "bytes/s", true),
                vec![
                    bars("one core", 0),
                    bars(&format!("{} cores", self.cores), 1),
                ],
            )
        }
    }

    /// The best codec for reads or writes that are limited by bandwidth.
    fn direction(
        &self,
        name: &str,
        chart: &str,
        times: Gain<'_>,
        section: &mut Section,
        shown: &mut Shown,
    ) {
        let cores = self.cores;
        let Some((codec, rates, g)) = best(self.all, &self.devices, times) else {
            return;
        };
        shown.headlines.push(headline(
            &format!("compression-gain-{name}"),
            &format!("{name} through {codec}, times the device's"),
            beside(rates, &self.devices, times),
            "",
            &self.jobs,
        ));
        if g.value <= 1.0 {
            section.text.push_str(&format!(
                " No codec carries more than the device's {name} on {cores} core(s): the best, {codec}, {:.2} times{}; where bandwidth of {name} counts, store the data plain.",
                g.value,
                interval(g)
            ));
            return;
        }
        shown.findings.push(Finding {
            id: format!("compression-{name}"),
            text: format!(
                "Through {codec} (ratio {:.2} on this data) {cores} core(s) carry {:.2} times the device's bandwidth of {name}{}.",
                rates.ratio,
                g.value,
                interval(g)
            ),
            advice: format!(
                "Compress with {codec} where {name} are limited by bandwidth and these cores are free."
            ),
            confidence: confidence(g),
            jobs: self.jobs.clone(),
            evidence: vec![chart.into(), "compression-gains".into()],
            gain: Some(gain(g)),
            refuted_by: "Your own data with --sample, or cores that are not free: see the break-even ratio and cores.".into(),
            ..Finding::default()
        });
    }

    /// The best codec for a cache in memory.
    fn cache(&self, section: &mut Section) -> Option<Finding> {
        let saves: Gain<'_> = &|s, d| Some(advice::cache_saves(d, s, CHUNK as f64));
        let (codec, r, saved) = best(self.all, &self.devices, saves)?;
        let hit = beside(r, &self.devices, |s, d| {
            Some(advice::cache_hit_over_read(d, s, CHUNK as f64))
        });
        let text = format!(
            "holds {:.2} times the data and decodes a 128 KiB chunk in {:.0} % of the time that the device takes to read it: a byte of it saves {:.2} times as much waiting as one of plain data{}, where all chunks are asked for alike",
            r.ratio,
            100.0 * hit.map_or(f64::NAN, |h| h.value),
            saved.value,
            interval(saved)
        );
        if saved.value <= 1.0 {
            section.text.push_str(&format!(
                " Caches in memory gain nothing: the best, compressed with {codec}, {text}."
            ));
            return None;
        }
        Some(Finding {
            id: "compression-cache".into(),
            text: format!("A cache in memory that is compressed with {codec} {text}."),
            advice: format!("Where memory is short, compress the cache with {codec}."),
            confidence: confidence(saved),
            jobs: self.jobs.clone(),
            evidence: vec!["compression-gains".into()],
            gain: Some(gain(saved)),
            refuted_by: "Your own data with --sample; cores that have no time to decode; requests that nearly all go to what the plain cache holds already (fathom cache).".into(),
            ..Finding::default()
        })
    }
}

type Gain<'a> = &'a dyn Fn(&Speed, &Device) -> Option<f64>;

fn headline(
    id: &str,
    label: &str,
    estimate: Option<Estimate>,
    unit: &str,
    jobs: &[usize],
) -> Headline {
    let group = "Compression, 128 KiB chunks";
    parts::headline_of(group, label, id, unit, estimate, jobs.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incompressible_data_gains_nothing() {
        let d = Device {
            read: 1e9,
            write: Some(1e9),
            chunk_read: 2e-4,
            chunk_slope: 1e9,
        };
        let rates = Rates {
            codec: "lz4".into(),
            ratio: 1.0,
            encode: vec![1e9; 3],
            decode: vec![4e9; 3],
            encode_all: vec![2e9; 3],
            decode_all: vec![8e9; 3],
        };
        let gain = beside(&rates, &[0, 1, 2].map(|i| (i, d)), |s, d| {
            Some(advice::pipeline(d.read, s.ratio, s.decode_all, 2).gain)
        });
        assert_eq!(gain.unwrap().value, 1.0);
    }
}
