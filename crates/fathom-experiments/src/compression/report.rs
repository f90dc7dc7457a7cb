//! Tables, charts and findings of compression beside the device.

use fathom_stats::Estimate;
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, Finding, Headline, Mark, Section, Table,
};
use fathom_telemetry::{Flag, FlagCode, Op};

use super::Rates;
use super::advice::{self, Device, Speed};
use super::codecs::CODECS;
use super::data::{CHUNK, Sample};
use crate::cells::Cell;
use crate::notebook::Notebook;
use crate::parts::{self, axis, column, point, series};

/// The device in each repeat in which all of its jobs gave a number.
fn devices(cells: &[Cell]) -> Vec<Device> {
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
            Some(Device {
                read: reads[i]?,
                write: writes.get(i).copied().flatten(),
                chunk_read: chunk,
                // Where a larger read takes no longer, transfer costs nothing that could be saved.
                chunk_slope: (CHUNK as f64 - 4096.0) / (chunk - page).max(1e-9),
            })
        })
        .collect()
}

/// Repeats of one figure for a codec beside the device.
fn beside(
    rates: &Rates,
    devices: &[Device],
    f: impl Fn(&Speed, &Device) -> Option<f64>,
) -> Option<Estimate> {
    let values: Vec<f64> = devices
        .iter()
        .enumerate()
        .filter_map(|(i, d)| f(&rates.speed(i)?, d))
        .collect();
    Estimate::mean_of(&values)
}

pub(super) fn report(
    book: &mut Notebook,
    cells: &[Cell],
    all: &[Rates],
    sample: &Sample,
    cores: u32,
) {
    let devices = devices(cells);
    let (e, n) = (parts::estimate, parts::number);
    let read = Estimate::mean_of(&devices.iter().map(|d| d.read).collect::<Vec<_>>());
    let writes: Vec<f64> = devices.iter().filter_map(|d| d.write).collect();
    let write = Estimate::mean_of(&writes);
    let jobs: Vec<usize> = cells.iter().flat_map(Cell::indices).collect();
    let mut section = Section {
        id: "compression".into(),
        title: "Compression".into(),
        text: format!(
            "128 KiB chunks in memory, {}; {cores} core(s). Rates are bytes of plain data. A gain is what reading or writing through the codec on all cores gives, over the device's own bandwidth: coding and transfer run at the same time, and the slower of the two decides.",
            sample.source
        ),
        ..Section::default()
    };
    if devices.is_empty() {
        section.flags.push(Flag::new(
            FlagCode::TooFewSamples,
            "the device's jobs gave no complete repeat: nothing to hold the codecs against",
            "run again without interruption",
        ));
    }
    let mean = |v: &[f64]| Estimate::mean_of(v);
    section.tables.push(Table {
        id: "codecs".into(),
        title: "Codecs".into(),
        columns: vec![
            column("codec", ""),
            column("ratio", ""),
            column("encode, one core", "bytes/s"),
            column("decode, one core", "bytes/s"),
            column(&format!("encode, {cores} cores"), "bytes/s"),
            column(&format!("decode, {cores} cores"), "bytes/s"),
        ],
        rows: CODECS
            .iter()
            .zip(all)
            .map(|(c, r)| {
                vec![
                    TableCell::Text(c.name.into()),
                    n((r.ratio > 0.0).then_some(r.ratio)),
                    e(mean(&r.encode)),
                    e(mean(&r.decode)),
                    e(mean(&r.encode_all)),
                    e(mean(&r.decode_all)),
                ]
            })
            .collect(),
    });
    let reads = |s: &Speed, d: &Device| advice::pipeline(d.read, s.ratio, s.decode_all, cores);
    let written =
        |s: &Speed, d: &Device| Some(advice::pipeline(d.write?, s.ratio, s.encode_all, cores));
    section.tables.push(Table {
        id: "compression-gains".into(),
        title: "Beside the device".into(),
        columns: vec![
            column("codec", ""),
            column("gain of reads", ""),
            column("cores to break even, reads", ""),
            column("gain of writes", ""),
            column("cores to break even, writes", ""),
            column("one thread: ratio to break even", ""),
            column("one thread: packed over plain read", ""),
            column("cached: decode over device read", ""),
        ],
        rows: CODECS
            .iter()
            .zip(all)
            .map(|(c, r)| {
                vec![
                    TableCell::Text(c.name.into()),
                    e(beside(r, &devices, |s, d| Some(reads(s, d).gain))),
                    e(beside(r, &devices, |s, d| {
                        Some(reads(s, d).cores_to_break_even)
                    })),
                    e(beside(r, &devices, |s, d| Some(written(s, d)?.gain))),
                    e(beside(r, &devices, |s, d| {
                        Some(written(s, d)?.cores_to_break_even)
                    })),
                    e(beside(r, &devices, |s, d| {
                        advice::serial_break_even(d, s.decode)
                    })),
                    e(beside(r, &devices, |s, d| {
                        Some(advice::serial_time(d, s, CHUNK as f64) / d.chunk_read)
                    })),
                    e(beside(r, &devices, |s, d| {
                        Some(advice::cache_hit_over_read(d, s, CHUNK as f64))
                    })),
                ]
            })
            .collect(),
    });
    for (id, title, device, what, one, many) in [
        (
            "compression-decode",
            "Decoding beside the device's reads",
            read,
            "device reads",
            all.iter().map(|r| mean(&r.decode)).collect::<Vec<_>>(),
            all.iter().map(|r| mean(&r.decode_all)).collect::<Vec<_>>(),
        ),
        (
            "compression-encode",
            "Encoding beside the device's writes",
            write,
            "device writes",
            all.iter().map(|r| mean(&r.encode)).collect(),
            all.iter().map(|r| mean(&r.encode_all)).collect(),
        ),
    ] {
        let bars = |name: &str, values: Vec<Option<Estimate>>| {
            let dot = |(i, v)| point(i as f64, v);
            series(name, values.into_iter().enumerate().map(dot).collect())
        };
        section.charts.push(Chart {
            categories: CODECS.iter().map(|c| c.name.to_owned()).collect(),
            marks: device
                .map(|d| Mark {
                    x: None,
                    y: Some(d.value),
                    label: what.into(),
                })
                .into_iter()
                .collect(),
            ..parts::chart(
                id,
                title,
                ChartKind::Bar,
                axis("codec", "", false),
                axis("plain data", "bytes/s", true),
                vec![bars("one core", one), bars(&format!("{cores} cores"), many)],
            )
        });
    }
    let mut headlines = vec![headline(
        "compression-device-read",
        "device, 128 KiB reads",
        read,
        "bytes/s",
        &jobs,
    )];
    if write.is_some() {
        headlines.push(headline(
            "compression-device-write",
            "device, 128 KiB writes",
            write,
            "bytes/s",
            &jobs,
        ));
    }
    let mut findings = Vec::new();
    let best = |gain: &dyn Fn(&Rates) -> Option<Estimate>| {
        CODECS
            .iter()
            .zip(all)
            .filter_map(|(c, r)| Some((c.name, r, gain(r)?)))
            .max_by(|a, b| a.2.value.total_cmp(&b.2.value))
    };
    type Gain<'a> = &'a dyn Fn(&Rates) -> Option<Estimate>;
    let directions: [(&str, &str, Gain<'_>); 2] = [
        ("reads", "compression-decode", &|r| {
            beside(r, &devices, |s, d| Some(reads(s, d).gain))
        }),
        ("writes", "compression-encode", &|r| {
            beside(r, &devices, |s, d| Some(written(s, d)?.gain))
        }),
    ];
    for (name, chart, gain) in directions {
        let Some((codec, rates, g)) = best(gain) else {
            continue;
        };
        headlines.push(headline(
            &format!("compression-gain-{name}"),
            &format!("{name} through {codec}, times the device's"),
            Some(g),
            "",
            &jobs,
        ));
        let clear = g.low.zip(g.high).is_some_and(|(l, h)| l > 1.0 || h < 1.0);
        let interval = g.low.zip(g.high).map_or(String::new(), |(l, h)| {
            format!(" (95 % interval {l:.2} to {h:.2})")
        });
        let (text, advice) = if g.value > 1.0 {
            (
                format!(
                    "Through {codec} (ratio {:.2} on this data) {cores} core(s) carry {:.2} times the device's bandwidth of {name}{interval}.",
                    rates.ratio, g.value
                ),
                format!(
                    "Compress with {codec} where {name} are limited by bandwidth and these cores are free."
                ),
            )
        } else {
            (
                format!(
                    "No codec keeps up with the device's {name} on {cores} core(s): the best, {codec}, carries {:.2} times its bandwidth{interval}.",
                    g.value
                ),
                format!(
                    "Where bandwidth of {name} counts, store the data plain; compress for capacity alone."
                ),
            )
        };
        findings.push(Finding {
            id: format!("compression-{name}"),
            text,
            advice,
            confidence: if clear { "strong" } else { "weak" }.into(),
            jobs: jobs.clone(),
            evidence: vec![chart.into(), "compression-gains".into()],
            gain: (g.value > 1.0).then_some(Estimate {
                value: g.value - 1.0,
                low: g.low.map(|l| l - 1.0),
                high: g.high.map(|h| h - 1.0),
                samples: g.samples,
            }),
            refuted_by: "Your own data with --sample, or cores that are not free: see the break-even ratio and cores.".into(),
        });
    }
    if let Some((codec, r, hit)) = CODECS
        .iter()
        .zip(all)
        .filter_map(|(c, r)| {
            let hit = beside(r, &devices, |s, d| {
                Some(advice::cache_hit_over_read(d, s, CHUNK as f64))
            })?;
            Some((c.name, r, hit))
        })
        // The densest whose hits are clearly faster than the device.
        .filter(|(_, r, hit)| hit.high.unwrap_or(hit.value) < 1.0 && r.ratio > 1.05)
        .max_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio))
    {
        findings.push(Finding {
            id: "compression-cache".into(),
            text: format!(
                "A cache in memory that is compressed with {codec} holds {:.2} times the data; a 128 KiB chunk is decoded in {:.0} % of the time that the device takes to read it.",
                r.ratio,
                100.0 * hit.value
            ),
            advice: format!("Where memory is short, compress the cache with {codec}."),
            confidence: "strong".into(),
            jobs: jobs.clone(),
            evidence: vec!["compression-gains".into()],
            refuted_by: "Your own data with --sample, or cores that have no time to decode.".into(),
            ..Finding::default()
        });
    }
    let run = book.run_mut();
    run.results.push(section);
    run.headlines.extend(headlines);
    run.findings.extend(findings);
}

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
            ratio: 1.0,
            encode: vec![1e9; 3],
            decode: vec![4e9; 3],
            encode_all: vec![2e9; 3],
            decode_all: vec![8e9; 3],
        };
        let gain = beside(&rates, &[d; 3], |s, d| {
            Some(advice::pipeline(d.read, s.ratio, s.decode_all, 2).gain)
        });
        assert_eq!(gain.unwrap().value, 1.0);
    }
}
