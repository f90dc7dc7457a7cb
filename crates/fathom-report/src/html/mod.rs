//! `report.html`: one file, offline, under 6 MB, in the reader's order.
//!
//! Text is made here and readable without scripts; charts are drawn by our own small layer in
//! `assets/` from data embedded as JSON (see `docs/decisions/002-own-chart-layer.md`).

mod body;
mod capsule;
mod distribution;
pub(crate) mod escape;
mod flags;
mod index;
mod jobs;
mod results;
mod several;
pub(crate) mod spec;
mod time;
mod timeline;
mod verdict;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::beginning::BEGINNING;
use crate::data::ReportData;
use crate::error::ReportError;
use crate::exporter::Exporter;
use crate::output::{DirOutput, Output, link_base, written};
use crate::stamp::Stamp;
use distribution::{Distribution, Totals, distributions};
pub use escape::markup;
use escape::{Esc, script_json};
pub use index::index_page;
pub use several::{RUNS_MAX, compare_page};
use spec::Spec;
use time::OverTime;

const STYLE: &str = include_str!("../../assets/report.css");
/// The largest page; the promise is 6 MB.
const BYTES_MAX: usize = 5_500_000;
/// In the order in which they need each other.
const SCRIPTS: [&str; 6] = [
    include_str!("../../assets/units.js"),
    include_str!("../../assets/scale.js"),
    include_str!("../../assets/export.js"),
    include_str!("../../assets/chart.js"),
    include_str!("../../assets/marks.js"),
    include_str!("../../assets/main.js"),
];
/// The first thing that runs: errors are kept where a test (or a puzzled reader) finds them.
const GUARD: &str = "addEventListener('error',e=>{document.documentElement.dataset.error=\
                     (document.documentElement.dataset.error||'')+e.message+'; '});";

/// The HTML exporter.
pub(crate) struct Html;

impl Exporter for Html {
    fn name(&self) -> &'static str {
        "html"
    }
    fn about(&self) -> &'static str {
        "the full report as one self-contained page (report.html)"
    }
    fn export(&self, data: &ReportData, out: &mut dyn Output) -> Result<(), ReportError> {
        // Where the page has no place it is taken to lie beside the run's files.
        let links = match (out.dir(), &data.dir) {
            (Some(out), Some(dir)) => link_base(out, dir),
            _ => Some(String::new()),
        };
        let text = page(data, links.as_deref())?;
        out.file("report.html", &mut |w| {
            written("report.html", w.write_all(text.as_bytes()))
        })
    }
}

/// Makes `report.html` in a run directory (or beside its `run.json`), from what the directory holds.
/// Returns its path.
///
/// # Errors
/// Where the run cannot be read or the report not be written.
pub fn write_report(run: &Path) -> Result<PathBuf, ReportError> {
    let data = ReportData::open(run)?;
    let dir = data.dir.clone().unwrap_or_default();
    Html.export(&data, &mut DirOutput::new(&dir))?;
    Ok(dir.join("report.html"))
}

/// What the page's script reads.
#[derive(Serialize)]
struct Embedded<'a> {
    stamp: &'a str,
    charts: &'a [Spec],
}

/// The page under construction: text, and the charts that it refers to by number.
struct Page {
    body: String,
    charts: Vec<Spec>,
    contents: Vec<(String, String)>,
    anchors: std::collections::BTreeSet<String>,
    stamp: Option<Stamp>,
}

impl Page {
    fn new(stamp: Option<Stamp>) -> Self {
        Self {
            body: String::new(),
            charts: Vec::new(),
            contents: Vec::new(),
            anchors: ["fathom-data", "theme", "dark", "light", "job-select"]
                .map(str::to_owned)
                .into(),
            stamp,
        }
    }

    /// An anchor that nothing else in the page has.
    fn anchor(&mut self, wanted: String) -> String {
        let base = if wanted.is_empty() {
            "part".to_owned()
        } else {
            wanted
        };
        let mut anchor = base.clone();
        let mut n = 1;
        while !self.anchors.insert(anchor.clone()) {
            n += 1;
            anchor = format!("{base}-{n}");
        }
        anchor
    }

    /// Begins a section that the contents list.
    fn open_section(&mut self, anchor: &str, title: &str) {
        let anchor = self.anchor(anchor.to_owned());
        self.push(&format!(
            "<section id=\"{anchor}\"><h2>{}</h2>\n",
            Esc(title)
        ));
        self.contents.push((anchor, title.to_owned()));
    }

    fn close_section(&mut self) {
        self.push("</section>\n");
    }

    /// Begins what is folded until the reader wants it; the contents list it.
    fn open_fold(&mut self, anchor: &str, title: &str, note: &str) {
        let anchor = self.anchor(anchor.to_owned());
        self.push(&format!(
            "<details class=\"fold\" id=\"{anchor}\"><summary><h3>{}</h3> <span class=\"muted\">{}</span></summary>\n",
            Esc(title),
            Esc(note)
        ));
        self.contents.push((anchor, title.to_owned()));
    }

    fn close_fold(&mut self) {
        self.push("</details>\n");
    }

    fn push(&mut self, html: &str) {
        self.body.push_str(html);
    }

    /// A figure that the script fills.
    fn chart(&mut self, mut chart: Spec, wanted: String) {
        chart.anchor = self.anchor(wanted);
        let stamp = self.stamp.map_or_else(String::new, |s| {
            format!(" <span class=\"chip\">{}</span>", s.word)
        });
        let class = if chart.full_width() {
            "chart full"
        } else {
            "chart"
        };
        let html = format!(
            "<figure class=\"{class}\" id=\"{}\" data-chart=\"{}\"><figcaption><span class=\"title\">{}{stamp}</span>\
             </figcaption><div class=\"plot\"></div><details class=\"data\"><summary>Data table</summary></details></figure>\n",
            chart.anchor,
            self.charts.len(),
            Esc(&chart.title)
        );
        self.push(&html);
        self.charts.push(chart);
    }
}

/// The page as text. Where it would be too large it is made again with half the detail over time
/// and in the list of jobs: nothing is lost, run.json and series.parquet have it all.
///
/// `links` is what links to the run's files begin with; without it there are none.
///
/// # Errors
/// Where windows cannot be read.
fn page(data: &ReportData, links: Option<&str>) -> Result<String, ReportError> {
    const HALVINGS_MAX: u32 = 5;
    let mut text = String::new();
    for halvings in 0..=HALVINGS_MAX {
        text = page_with(data, links, Detail { halvings })?;
        if text.len() <= BYTES_MAX {
            break;
        }
    }
    Ok(text)
}

/// How much of a long run the page carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Detail {
    halvings: u32,
}

impl Detail {
    /// A budget, halved as often as the page was too large.
    pub(crate) fn of(self, budget: usize) -> usize {
        (budget >> self.halvings).max(1)
    }
}

/// Every chart of a run's page with its anchor, and the word across charts that are no measurement (or nothing).
///
/// # Errors
/// Where windows cannot be read.
pub(crate) fn charts(data: &ReportData) -> Result<(Vec<Spec>, &'static str), ReportError> {
    let page = content(data, None, Detail { halvings: 0 })?;
    Ok((page.charts, page.stamp.map_or("", |s| s.word)))
}

fn page_with(
    data: &ReportData,
    links: Option<&str>,
    detail: Detail,
) -> Result<String, ReportError> {
    let run = &data.run;
    let title = format!("fathom {}: {}", run.command, run.target.place());
    assemble(
        &content(data, links, detail)?,
        &title,
        &format!(
            "Made by fathom {} from run.json and series.parquet; <code>fathom report</code> remakes it.",
            Esc(&run.tool_version)
        ),
    )
}

fn content(data: &ReportData, links: Option<&str>, detail: Detail) -> Result<Page, ReportError> {
    let run = &data.run;
    let (distributions, over_time) = series_charts(data, detail)?;
    let mut page = Page::new(Stamp::of(run));
    body::masthead(&mut page, run);
    verdict::verdict(&mut page, run);
    body::headlines(&mut page, run);
    let folded = results::sections(&mut page, run);
    page.push("<section class=\"details\"><h2>Everything behind it</h2>\n");
    timeline::timeline(&mut page, run);
    body::findings(&mut page, run);
    results::folded(&mut page, &folded);
    results::distributions(&mut page, distributions);
    results::over_time(&mut page, run, over_time);
    jobs::jobs(&mut page, run, detail);
    capsule::environment(&mut page, run);
    body::all_flags(&mut page, run);
    body::command(&mut page, data, links);
    page.close_section();
    Ok(page)
}

/// Reads each job's windows once, for distributions and charts over time.
fn series_charts(
    data: &ReportData,
    detail: Detail,
) -> Result<(Vec<Distribution>, OverTime), ReportError> {
    let jobs = &data.run.jobs;
    let shown = jobs.len().min(time::JOBS_MAX);
    let mut over_time = OverTime::new(shown, detail);
    let most = time::windows_per_job(jobs, detail);
    let mut totals: Vec<[Option<Totals>; 4]> = Vec::with_capacity(jobs.len());
    for (index, job) in jobs.iter().enumerate() {
        let series = data.series.windows(index, most)?;
        let mut total: [Option<Totals>; 4] = Default::default();
        for window in &series.windows {
            for (total, d) in total.iter_mut().zip(&window.directions) {
                if let Some(d) = d {
                    let t = total.get_or_insert_default();
                    t.service.merge(&d.service);
                    t.response.merge(&d.response);
                }
            }
        }
        totals.push(total);
        over_time.add(index, job, &series);
    }
    Ok((distributions(data, &totals)?, over_time))
}

/// The whole document. `footer` is markup.
fn assemble(page: &Page, title: &str, footer: &str) -> Result<String, ReportError> {
    let embedded = serde_json::to_string(&Embedded {
        stamp: page.stamp.map_or("", |s| s.word),
        charts: &page.charts,
    })?;
    let mut contents = String::new();
    for (anchor, title) in &page.contents {
        contents.push_str(&format!(
            "<li><a href=\"#{anchor}\">{}</a></li>\n",
            Esc(title)
        ));
    }
    let scripts = SCRIPTS.join("\n");
    Ok(format!(
        "{BEGINNING}\n<title>{}</title>\n<style>\n{STYLE}</style>\n<script>{GUARD}</script>\n</head>\n<body>\n\
         <div class=\"page\">\n<nav class=\"contents\" aria-label=\"Contents\"><div class=\"brand\">fathom</div><ol>\n{contents}</ol></nav>\n\
         <main>\n{}\
         <noscript><p>Charts need JavaScript; every number of the tables is here without it.</p></noscript>\n\
         <footer>{footer}</footer>\n\
         </main>\n</div>\n\
         <script type=\"application/json\" id=\"fathom-data\">{}</script>\n\
         <script>\n(() => {{\n\"use strict\";\n{scripts}\n}})();\n</script>\n</body>\n</html>\n",
        Esc(title),
        page.body,
        script_json(&embedded),
    ))
}
