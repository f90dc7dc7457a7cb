//! Arguments of the commands that read runs: `report` and `query`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

/// Longest name of a label, and its longest value, bytes.
const LABEL_MAX: (usize, usize) = (64, 400);

/// What a run's owner calls it.
#[derive(Args, Clone)]
pub(crate) struct LabelArgs {
    /// Call the run something: drive=A, baseline=main; may be given several times (see fathom runs)
    #[arg(long, value_name = "NAME=VALUE", value_parser = label, help_heading = "Results")]
    label: Vec<(String, String)>,
    /// A sentence to keep with the run: the label note
    #[arg(long, value_name = "TEXT", help_heading = "Results")]
    note: Option<String>,
}

impl LabelArgs {
    /// Name to value.
    pub(crate) fn given(&self) -> BTreeMap<String, String> {
        let note = self.note.iter().map(|n| ("note".to_owned(), n.clone()));
        self.label.iter().cloned().chain(note).collect()
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > LABEL_MAX.0 || !name.chars().all(plain) {
        return Err("expected a name of letters, digits, dots, dashes and underscores".into());
    }
    if value.len() > LABEL_MAX.1 || value.chars().any(char::is_control) {
        return Err(format!("expected a line of at most {} bytes", LABEL_MAX.1));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Arguments of `runs`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom runs                            what is in fathom-runs, the newest last\n  fathom runs --where drive=A --html     and fathom-runs/index.html: the history of every number\n  fathom runs RUN --label drive=A --note 'after the firmware update'\n                                         call a run something, afterwards; an empty value removes the label\n  fathom runs RUN --price 549            what the drive cost: $/GB, and price-performance in compare --devices\n  fathom runs RUN --label baseline=main\n  fathom compare --baseline main RUN     beside the newest run so labelled"
)]
pub(crate) struct RunsArgs {
    /// Directories of runs; with --label or --note, the runs that are called so [default: fathom-runs]
    #[arg(value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
    /// Only runs with this label; may be given several times, and all have to hold
    #[arg(long = "where", value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) only: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) labels: LabelArgs,
    /// Write DIR/index.html: the history of every number, target by target, with links to the reports
    #[arg(long)]
    pub(crate) html: bool,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,
}

/// Arguments of `report`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom report                          remake the page of the newest run in fathom-runs\n  fathom report RUN --format markdown    for issues and wikis, into the run directory\n  fathom report RUN --svg charts         every chart as a picture\n  fathom report RUN --svg charts --png   and as PNG, where a Chromium is installed\n  fathom report RUN --redact --out share a page without names, serial numbers and paths, to be shared\n  fathom report BEFORE AFTER --out both  one page with the curves of both, and their differences"
)]
pub(crate) struct ReportArgs {
    /// Run directories or their run.json; several make one page that compares them [default: the newest in fathom-runs]
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Format: html (into the run directory), terminal, json, csv, markdown, svg or openmetrics
    #[arg(long, default_value = "html")]
    pub(crate) format: String,
    /// Directory for exported files [default: the run directory; of several runs, the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write every chart as SVG into this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "format", "json"])]
    pub(crate) svg: Option<PathBuf>,
    /// With --svg: as PNG, too; needs chromium
    #[arg(long, requires = "svg")]
    pub(crate) png: bool,
    /// With several runs: compare them although this condition differs (see fathom compare)
    #[arg(long, value_name = "CONDITION")]
    pub(crate) allow: Vec<String>,
    /// Print run.json on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Without names of hosts and users, serial numbers and paths, to be shared; files need --out
    #[arg(long, conflicts_with_all = ["svg", "allow"])]
    pub(crate) redact: bool,
}

/// Arguments of `query`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom query --list                    ready-made queries\n  fathom query RUN                       the tables of a run, with their columns\n  fathom query RUN io-percentiles        a ready-made query\n  fathom query RUN \"SELECT op, count(*), quantile(service_ns, 0.999) FROM io GROUP BY op\"\n  fathom query \"SELECT name, qd_achieved FROM jobs\" --csv\n                                         of the newest run in fathom-runs\n  fathom query RUN RUN \"SELECT run, id, value FROM headlines\"\n                                         several runs at once\n  fathom query RUN over-time --duckdb | duckdb\n                                         the same, by DuckDB\n\nquantile(x, q) takes numbers, or histograms of the table series, which it merges; it is at most\n1/128 above the exact quantile. Tables are read while the query runs: a log of 100 million I/Os\nneeds no more memory than a small one. docs/query.md has all tables and queries."
)]
pub(crate) struct QueryArgs {
    /// Run directories or their run.json [default: the newest in fathom-runs], then a SELECT, the name of a ready-made query,
    /// or - for standard input [default: show the tables]
    #[arg(value_name = "RUN… QUERY")]
    pub(crate) words: Vec<String>,
    /// List the ready-made queries
    #[arg(long, conflicts_with_all = ["words", "csv", "duckdb"])]
    pub(crate) list: bool,
    /// Print an array of objects; without a query, the tables
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print comma-separated values; needs a query
    #[arg(long)]
    pub(crate) csv: bool,
    /// Print a script for DuckDB instead of running the query, which it needs
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub(crate) duckdb: bool,
}
