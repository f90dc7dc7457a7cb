//! Arguments of the commands that read runs: `report` and `query`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `report`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom report                          remake the page of the newest run in fathom-runs\n  fathom report RUN --format markdown    for issues and wikis, into the run directory\n  fathom report RUN --svg charts         every chart as a picture\n  fathom report RUN --svg charts --png   and as PNG, where a Chromium is installed\n  fathom report BEFORE AFTER --out both  one page with the curves of both, and their differences"
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
}

/// Arguments of `query`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom query --list                    ready-made queries\n  fathom query RUN                       the tables of a run, with their columns\n  fathom query RUN io-percentiles        a ready-made query\n  fathom query RUN \"SELECT op, count(*), quantile(service_ns, 0.999) FROM io GROUP BY op\"\n  fathom query \"SELECT name, qd_achieved FROM jobs\" --csv\n                                         of the newest run in fathom-runs\n  fathom query RUN over-time --duckdb | duckdb\n                                         the same, by DuckDB\n\nquantile(x, q) takes numbers, or histograms of the table series, which it merges; it is at most\n1/128 above the exact quantile. Tables are read while the query runs: a log of 100 million I/Os\nneeds no more memory than a small one. docs/query.md has all tables and queries."
)]
pub(crate) struct QueryArgs {
    /// Run directory or its run.json [default: the newest in fathom-runs]
    pub(crate) run: Option<String>,
    /// A SELECT, the name of a ready-made query, or - for standard input [default: show the tables]
    pub(crate) query: Option<String>,
    /// List the ready-made queries
    #[arg(long, conflicts_with_all = ["query", "csv", "duckdb"])]
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
