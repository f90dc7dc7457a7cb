//! Where a paper's text contradicts itself: what is printed, which value is used, and why.

use fathom_telemetry::schema::{Cell, Column, Section, Table};

/// One contradiction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction {
    /// Identifiers of the values.
    pub ids: &'static str,
    /// What is printed.
    pub printed: &'static str,
    /// What is used instead.
    pub used: &'static str,
    /// Why.
    pub why: &'static str,
}

const fn c(
    ids: &'static str,
    printed: &'static str,
    used: &'static str,
    why: &'static str,
) -> Contradiction {
    Contradiction {
        ids,
        printed,
        used,
        why,
    }
}

#[rustfmt::skip]
const ZHANG: &[Contradiction] = &[
    c("Z010, Z012", "II-B: NAND in PE 67.3 us, Optane in VE 124.5 us", "NAND in PE 124.5 us (D001), Optane in VE 67.3 us (D002)",
      "exchanged: only so do the software shares (10.3, 41.6, 45.1, 88.3 %), 103.8 us between the devices' hardware, and the factors of III-B come out"),
    c("Z005, Z006", "67.0 % in PE and 89.1 % in VE", "67.0 % in VE and 89.1 % in PE", "1 - 67.3/203.7 is 67.0 %, 1 - 13.5/124.5 is 89.2 %: the order follows the exchanged pair"),
    c("Z011, Z014", "II-B: VE is 3 times PE for NAND, 10 times for Optane", "1.64 times and 5.0 times", "both follow from the exchanged pair: 203.7/124.5 and 67.3/13.5"),
    c("Z049", "III-B: VE is 2 times PE for NAND", "1.64 times", "the paper's own latencies, 203.7 and 124.5 us, give 1.64; 2 is that number without decimals"),
    c("Z058", "8 to 11 times the IOPS", "8.3 times for reads (14 times for writes)", "the paper's percentages of the bandwidth (Z059 to Z062) give 8.32 and 13.96"),
    c("Z062", "102.15 % of the bandwidth", "as printed", "more than the bandwidth; a footnote calls it an error of measurement"),
    c("Z079, Z080", "580k IOPS are 2.2 GB/s, and the bandwidth 2.5 GB/s", "2.38 GB/s and 2.56 GB/s (10^9)", "GB is GiB here: 580,000 x 4096 B = 2.21 GiB/s, 2557 MB/s = 2.5 x 1024"),
    c("Z082", "70,000 IOPS and 280 MB/s", "68,412 IOPS (D011)", "51.7 % of 542 MB/s; 70,000 is rounded"),
    c("Z084", "twice the price of NAND", "1.71 times", "Table I: 1.16 and 0.68 USD/GB"),
    c("ZC001 to ZC005", "another copy's Tables I to III", "this paper's own", "that copy's rows are damaged"),
];

#[rustfmt::skip]
const HAN: &[Contradiction] = &[
    c("H002", "RAID 1 loses up to 52 % of what is expected", "not compared", "none of the paper's values gives it: 1.5 of 2.445 GB/s is 39 %, 7.7 of 8 x 2.558 is 62 %, 15.2 of 8 x 2.556 is 26 %"),
    c("H003", "RAID 10 loses up to 76 % of what is expected", "84 %", "no value is printed for it; 76 % of 4 x 2.445 GB/s lost are 2.35 GB/s left, but the text calls RAID 10's buffered writes similar to RAID 1's 1.5 to 1.7"),
    c("H030", "Optane outperforms SATA by up to 10 times", "Table 1", "Table 1 gives 11.6 to 15.1 times"),
    c("H035", "64 physical cores", "16 cores and 32 threads for each processor", "a Xeon Gold 6242 has no more"),
    c("H048", "64 files of 4 GB on every device", "what fits", "256 GB do not fit a drive of 250 GB: the SATA baseline cannot have used it"),
    c("H084, H104, H105, H120, H123", "RAID 5 and 6 read at most N-1 and N-2 times one device", "all N members serve reads", "6.1, 8.4 and 12.8 GB/s exceed the paper's own expectation"),
    c("H128 to H166", "DBbench: ms per operation", "us per operation", "64 threads over the latency are the printed MOPS only with us, and the text says 'microseconds' too"),
    c("H159", "RAID 6, fill random: 0.9 MOPS", "0.40 MOPS", "64 threads at 159 us; 0.9 is RAID 10's value"),
    c("H179", "900P writes up to 18.4 % faster than P3700", "as printed, for arrays", "single devices differ by 27 % in Table 1"),
    c("H189 to H192", "2580 MB/s read at 9.7 us", "Table 1's rates; the latencies are not compared", "64 threads of 512 KiB at that rate wait 13.0 ms: 9.7 us belong to an unstated run at depth 1"),
];

#[rustfmt::skip]
const ONEILL: &[Contradiction] = &[
    c("O015", "550,000 operations per second", "as printed, for half reads and half writes", "mix and depth are not stated; 550,000 x 4 KiB are 2.25 GB/s, which the device reaches either way"),
];

#[rustfmt::skip]
const SHROUT: &[Contradiction] = &[
    c("S018, S019, S020", "28 % and one second of 4 GB", "25 % and 28 %", "together they imply 1.12 GB/s, half of what either device reads alone; block size and depth are not stated, so only ratios are compared"),
];

/// Those of a paper.
pub fn of(paper: &str) -> &'static [Contradiction] {
    match paper {
        "zhang2018" => ZHANG,
        "han2021" => HAN,
        "oneill2018" => ONEILL,
        "shrout2017" => SHROUT,
        _ => &[],
    }
}

/// A section of the report; `None` where there is nothing to say.
pub fn section(paper: &str) -> Option<Section> {
    let all = of(paper);
    if all.is_empty() {
        return None;
    }
    let column = |label: &str| Column {
        label: label.into(),
        unit: String::new(),
    };
    let rows = all
        .iter()
        .map(|c| {
            [c.ids, c.printed, c.used, c.why]
                .map(|t| Cell::Text(t.into()))
                .into()
        })
        .collect();
    Some(Section {
        id: "contradictions".into(),
        title: "Where the paper contradicts itself, or leaves a choice".into(),
        text: "What is printed, which value is used, and why.".into(),
        charts: Vec::new(),
        tables: vec![Table {
            id: "contradictions-rows".into(),
            title: "Values".into(),
            columns: ["values", "printed", "used", "why"].map(column).into(),
            rows,
        }],
        flags: Vec::new(),
    })
}
