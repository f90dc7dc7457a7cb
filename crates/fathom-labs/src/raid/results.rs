//! What the measurements of the RAID lab say: tables, charts, headlines, findings.

use fathom_bench::parts::{axis, chart, column, estimate, headline, number, point, series, text};
use fathom_bench::results::{Evidence, Shown};
use fathom_sim::raid::Level;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, ChartSeries, Finding, Headline, Section, Table,
};
use fathom_telemetry::{Flag, FlagCode};

use super::expect::{self, Expected, fit, loss};
use super::states::{self, Measured, Measurement};
use super::{Load, RaidOptions, RaidResult, State};
use fathom_system::array::Shape;

/// One cell of an array beside one member under the same load.
struct Line<'a> {
    shape: Shape,
    measured: &'a Measured,
    /// Bytes per second.
    rate: Option<Estimate>,
    /// In multiples of one member.
    multiple: Option<f64>,
    expected: Expected,
    /// One member under the same load, bytes per second.
    member: Option<f64>,
}

impl<'a> Line<'a> {
    fn of(m: &'a Measurement, measured: &'a Measured, member: &Measurement) -> Option<Self> {
        let shape = m.shape?;
        let load = measured.load;
        let alone = member
            .loads
            .iter()
            .find(|l| l.load == load)
            .and_then(|l| l.cell.bandwidth())
            .map(|e| e.value);
        let rate = measured.cell.bandwidth();
        Some(Self {
            shape,
            measured,
            rate,
            multiple: rate.zip(alone).map(|(r, a)| r.value / a),
            expected: Expected::of(shape.level, shape.members, load.rw.modifies()),
            member: alone,
        })
    }

    fn load(&self) -> Load {
        self.measured.load
    }

    /// What software takes of the paper's expectation, percent.
    fn loss_to_paper(&self) -> Option<f64> {
        Some(loss(self.multiple?, self.expected.paper))
    }

    /// The same of what the members would allow.
    fn loss_to_best(&self) -> Option<f64> {
        Some(loss(self.multiple?, self.expected.best()))
    }

    fn fits(&self) -> Option<String> {
        Some(fit(self.multiple?, &self.expected)?.words())
    }
}

/// Members that share a disk: what the array lacks is the disk's, and says nothing of software.
fn on_one_disk(disk: &str) -> Flag {
    Flag::new(
        FlagCode::NotChecked,
        format!(
            "members lie on one disk ({disk}), which they share: an array over them cannot be faster than it, and what it lacks of the arithmetic is no loss to software"
        ),
        "name devices that are disks of their own; the relations between levels of one array width still hold",
    )
}

/// Sections, headlines and findings.
pub(super) fn present(result: &RaidResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    let options = &result.options;
    let all: Vec<Measurement> = result
        .all
        .iter()
        .map(|m| Measurement::of(m, evidence))
        .collect();
    let all = &all[..];
    let shared = result.shared_disk.as_deref().map(on_one_disk);
    let Some(member) = all.iter().find(|m| m.state == State::Member) else {
        return;
    };
    let whole: Vec<Line<'_>> = all
        .iter()
        .filter(|m| m.state == State::Whole)
        .flat_map(|m| m.loads.iter().filter_map(move |l| Line::of(m, l, member)))
        .collect();
    let mut sections = vec![overview(&result.about, member, &whole, options)];
    for level in &options.levels {
        let lines: Vec<&Line<'_>> = whole.iter().filter(|l| l.shape.level == *level).collect();
        if !lines.is_empty() {
            sections.push(of_level(*level, &lines, options));
        }
    }
    sections
        .iter_mut()
        .for_each(|s| s.flags.extend(shared.clone()));
    sections.extend(states::section(all));
    sections.extend(states::costs(all));
    shown.sections.extend(sections);
    let headlines = headlines(&whole, options).into_iter();
    shown.headlines.extend(headlines.map(|mut h| {
        h.flags.extend(shared.clone());
        h
    }));
    if shared.is_none() {
        shown.findings.extend(findings(&whole, options));
    }
    shown.findings.extend(states::findings(all));
}

/// The largest array of a level, with its first chunk.
fn largest<'a>(lines: &'a [Line<'a>], level: Level) -> impl Iterator<Item = &'a Line<'a>> {
    let of_level = move |l: &&Line<'_>| l.shape.level == level;
    let best = lines
        .iter()
        .filter(of_level)
        .map(|l| l.shape)
        .max_by(|a, b| {
            // Of equal ones the first stays.
            a.members.cmp(&b.members).then(std::cmp::Ordering::Greater)
        });
    lines.iter().filter(move |l| Some(l.shape) == best)
}

fn headlines(whole: &[Line<'_>], options: &RaidOptions) -> Vec<Headline> {
    let mut all = Vec::new();
    for level in &options.levels {
        for l in largest(whole, *level).filter(|l| l.load().direct && l.load().rw.is_random()) {
            let cell = &l.measured.cell;
            let times = l.multiple.map_or_else(String::new, |m| {
                format!(", {m:.2} of {:.2} ×", l.expected.paper)
            });
            all.push(headline(
                cell,
                &format!(
                    "{}: direct, random; × one member of what the paper expects",
                    l.shape.title()
                ),
                &format!("{}{times}", what(l.load())),
                &cell.stem,
                "bytes/s",
                l.rate,
            ));
        }
    }
    all
}

/// `reads of 512 KiB`.
fn what(load: Load) -> String {
    let what = if load.rw.modifies() {
        "writes"
    } else {
        "reads"
    };
    format!("{what} of {}", load.block)
}

/// Every array in one table, and the largest losses.
fn overview(
    about: &str,
    member: &Measurement,
    whole: &[Line<'_>],
    options: &RaidOptions,
) -> Section {
    let mut rows = Vec::new();
    for level in &options.levels {
        for write in [false, true] {
            let worst = whole
                .iter()
                .filter(|l| l.shape.level == *level && l.load().rw.modifies() == write)
                .filter_map(|l| Some((l, l.loss_to_paper()?)))
                .max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((l, lost)) = worst else { continue };
            rows.push(vec![
                text(format!("RAID {}", level.number())),
                text(if write { "writes" } else { "reads" }),
                TableCell::Number(lost),
                text(format!("{}, {}", l.shape.title(), l.load().title())),
                estimate(l.rate),
                number(l.member.map(|m| m * l.expected.paper)),
                number(l.loss_to_best()),
            ]);
        }
    }
    let alone = member
        .loads
        .iter()
        .map(|l| {
            vec![
                text(l.load.title()),
                estimate(l.cell.bandwidth()),
                estimate(l.cell.mean_latency()),
            ]
        })
        .collect();
    Section {
        id: "raid".into(),
        title: "Arrays against what arithmetic promises".into(),
        text: format!(
            "{about}. {} threads with one I/O each. Throughput is counted in multiples of one member under the same load. Three expectations stand beside it: paper, the formulas of Han et al. 2021; small-write, what md does with writes smaller than a stripe (the cheaper of read-modify-write and reconstruct-write); full-stripe, where nothing has to be read for parity. The nearest is named where it is met within {:.0} %. What is lost against the paper's expectation, and against the best of the three, is what software takes.",
            options.threads,
            expect::FITS_WITHIN * 100.0
        ),
        tables: vec![
            Table {
                id: "raid-losses".into(),
                title: "Largest loss by level".into(),
                columns: vec![
                    column("level", ""),
                    column("direction", ""),
                    column("lost against paper", "%"),
                    column("where", ""),
                    column("measured", "bytes/s"),
                    column("paper expects", "bytes/s"),
                    column("lost against the best", "%"),
                ],
                rows,
            },
            Table {
                id: "raid-member".into(),
                title: "One member alone".into(),
                columns: vec![
                    column("load", ""),
                    column("measured", "bytes/s"),
                    column("mean latency", "ns"),
                ],
                rows: alone,
            },
        ],
        ..Section::default()
    }
}

/// Charts by number of members and the table of a level.
fn of_level(level: Level, lines: &[&Line<'_>], options: &RaidOptions) -> Section {
    let n = level.number();
    let mut charts = Vec::new();
    for chunk in &options.chunks {
        for write in [false, true] {
            let of = |l: &&&Line<'_>| {
                l.shape.chunk == *chunk
                    && l.load().rw.modifies() == write
                    && l.load().block == options.block
            };
            let lines: Vec<&Line<'_>> = lines.iter().filter(of).copied().collect();
            if !lines.is_empty() {
                charts.push(by_members(level, &lines, write, chunk.0, options));
            }
        }
    }
    let chunks = options.chunks.len() > 1;
    let rows = lines
        .iter()
        .map(|l| {
            let mut row = vec![
                TableCell::Number(f64::from(l.shape.members)),
                text(l.load().short()),
                estimate(l.rate),
                estimate(l.measured.cell.mean_latency()),
                number(l.multiple),
                TableCell::Number(l.expected.paper),
                TableCell::Number(l.expected.small_write),
                TableCell::Number(l.expected.full_stripe),
                l.fits().map_or(TableCell::Hole(()), text),
                number(l.loss_to_paper()),
                number(l.loss_to_best()),
            ];
            if chunks {
                row.insert(1, TableCell::Number(l.shape.chunk.0 as f64));
            }
            row
        })
        .collect();
    let mut columns = vec![
        column("members", ""),
        column("load", ""),
        column("measured", "bytes/s"),
        column("latency", "ns"),
        column("× one", ""),
        column("paper", ""),
        column("small-write", ""),
        column("full-stripe", ""),
        column("fits", ""),
        column("lost: paper", "%"),
        column("best", "%"),
    ];
    if chunks {
        columns.insert(1, column("chunk", "bytes"));
    }
    Section {
        id: format!("raid{n}"),
        title: format!("RAID {n}"),
        text: about(level).into(),
        charts,
        tables: vec![Table {
            id: format!("raid{n}-table"),
            title: "Measured, and expected in multiples of one member".into(),
            columns,
            rows,
        }],
        ..Section::default()
    }
}

fn about(level: Level) -> &'static str {
    match level {
        Level::Raid0 => {
            "Stripes: reads and writes of N members. All three expectations are the same."
        }
        Level::Raid1 => {
            "Mirrors: a write goes to every member, a read to one of them. A single sequential stream stays on one member; independent streams use all."
        }
        Level::Raid5 => {
            "Stripes with one parity, which rotates: reads use all N members, not N-1. A write smaller than a stripe costs min(4, N) transfers, a full stripe only its parity."
        }
        Level::Raid6 => {
            "Stripes with two parities, which rotate: reads use all N members, not N-2. A write smaller than a stripe costs min(6, N) transfers, a full stripe only its parities."
        }
        Level::Raid10 => "Stripes over pairs of mirrors: reads of N members, writes of N/2.",
    }
}

fn by_members(
    level: Level,
    lines: &[&Line<'_>],
    write: bool,
    chunk: u64,
    options: &RaidOptions,
) -> Chart {
    let direction = if write { "writes" } else { "reads" };
    let mut all: Vec<ChartSeries> = Vec::new();
    let mut put = |name: String, x: u32, y: Option<Estimate>| {
        let p = point(f64::from(x), y);
        match all.iter_mut().find(|s| s.name == name) {
            Some(s) => s.points.push(p),
            None => all.push(series(&name, vec![p])),
        }
    };
    for l in lines {
        let order = match l.load() {
            load if load.stream => "stream",
            load if load.rw.is_random() => "random",
            _ => "sequential",
        };
        let way = match l.load().direct {
            true => "direct",
            false => "buffered",
        };
        put(format!("{way} {order}"), l.shape.members, l.rate);
    }
    // Expectations count in multiples of one member under direct random I/O.
    let reference: Vec<&&Line<'_>> = lines
        .iter()
        .filter(|l| l.load().direct && l.load().rw.is_random())
        .collect();
    let reference = if reference.is_empty() {
        lines.iter().take(1).collect()
    } else {
        reference
    };
    for l in reference {
        let Some(member) = l.member else { continue };
        let e = l.expected;
        let mut expect = |name: &str, times: f64| {
            let rate = Estimate::single(member * times);
            put(name.into(), l.shape.members, Some(rate));
        };
        let same = |x: f64| (x - e.paper).abs() < 1e-9;
        expect("paper", e.paper);
        if write && !same(e.small_write) {
            expect("small-write", e.small_write);
        }
        if !same(e.full_stripe) {
            expect(
                if write { "full-stripe" } else { "all members" },
                e.full_stripe,
            );
        }
    }
    let n = level.number();
    let chunks = if options.chunks.len() > 1 {
        format!(", chunk {} KiB", chunk / 1024)
    } else {
        String::new()
    };
    chart(
        &format!("raid{n}-{direction}-{}k", chunk / 1024),
        &format!("RAID {n}: {direction} of {}{chunks}", options.block),
        ChartKind::Line,
        axis("members", "", false),
        axis("throughput", "bytes/s", false),
        all,
    )
}

fn confidence(e: Option<Estimate>) -> String {
    match e.and_then(|e| e.relative_half_width()) {
        Some(w) if w < 0.1 => "strong",
        Some(w) if w < 0.3 => "moderate",
        _ => "weak",
    }
    .into()
}

fn findings(whole: &[Line<'_>], options: &RaidOptions) -> Vec<Finding> {
    let mut found: Vec<(f64, Finding)> = Vec::new();
    for level in &options.levels {
        let n = level.number();
        let worst = whole
            .iter()
            .filter(|l| l.shape.level == *level && l.load().block == options.block)
            .filter_map(|l| Some((l, l.loss_to_paper()?)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((l, lost)) = worst.filter(|w| w.1 >= 15.0) {
            let parity = matches!(level, Level::Raid5 | Level::Raid6) && l.load().rw.modifies();
            let advice = if parity {
                "write whole stripes (a chunk times the data members, aligned), enlarge stripe_cache_size, let several threads do parity (group_thread_cnt), or take RAID 10 for writes"
            } else if l.load().direct {
                "look at the kernel threads and at the depth per member: more outstanding I/O, or fewer members"
            } else {
                "use direct I/O: the page cache is the limit, not the members"
            };
            found.push((
                lost,
                Finding {
                    id: format!("raid{n}-loss"),
                    text: format!(
                        "{}: {} reaches {:.2} times one member where the paper's arithmetic promises {:.2}: software takes {lost:.0} %",
                        l.shape.title(),
                        l.load().title(),
                        l.multiple.unwrap_or(0.0),
                        l.expected.paper
                    ),
                    advice: advice.into(),
                    confidence: confidence(l.rate),
                    jobs: l.measured.cell.indices(),
                    evidence: vec![format!("raid{n}-table"), "raid-losses".into()],
                    refuted_by: "The same members with --repeats 5 and another --seed, where the array reaches what arithmetic promises.".into(),
                    ..Finding::default()
                },
            ));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut found: Vec<Finding> = found.into_iter().map(|f| f.1).collect();
    // Parity rotates: the paper's expectation of reads is exceeded.
    let above = whole
        .iter()
        .filter(|l| {
            l.load().direct && !l.load().rw.modifies() && l.expected.paper < l.expected.best()
        })
        .filter_map(|l| Some((l, l.multiple? / l.expected.paper)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((l, times)) = above.filter(|a| a.1 > 1.05) {
        found.push(Finding {
            id: "raid-parity-reads".into(),
            text: format!(
                "{}: {} reaches {:.2} times one member, {:.0} % above N less parity: parity rotates, so reads use every member",
                l.shape.title(),
                l.load().title(),
                l.multiple.unwrap_or(0.0),
                (times - 1.0) * 100.0
            ),
            advice: "plan reads of parity arrays with all members".into(),
            confidence: confidence(l.rate),
            jobs: l.measured.cell.indices(),
            evidence: vec![format!("raid{}-table", l.shape.level.number())],
            refuted_by: "Reads of the same array in longer jobs (--time) that stay at N less parity.".into(),
            ..Finding::default()
        });
    }
    found
}
