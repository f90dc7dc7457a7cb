//! The middle of the page: experiments' sections, distributions, charts over time.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Cell, Chart, ChartKind, Run, Section, Table};

use super::Page;
use super::distribution::Distribution;
use super::escape::{Esc, slug};
use super::flags::flag_list;
use super::spec::Spec;
use super::time::{GROUP, JOBS_MAX, OverTime, not_steady};
use crate::format::{self, HOLE};
use crate::text::{capital, human};

/// The order in which a reader wants the sections: how the storage behaves over its load, the same at
/// single points, where the time goes, mixes, bursts and steady states, what models say, what labs found.
/// By the beginning of a section's id; one that is not here stays behind the section before it.
const READING_ORDER: [(&str, u8); 22] = [
    ("curve", 0),
    ("depth-sweep", 1),
    ("latency", 2),
    ("iops", 2),
    ("bandwidth", 2),
    ("stack", 3),
    ("mix", 4),
    ("burst", 5),
    ("condition", 5),
    ("pts-", 5),
    ("pages", 6),
    ("compression", 6),
    ("cache", 6),
    ("cpu", 7),
    ("endurance", 7),
    ("raid", 8),
    ("vm", 8),
    ("kv", 8),
    ("oltp", 8),
    ("tpcc", 8),
    ("rocksdb", 8),
    ("app-", 8),
];

/// Sections in the reader's order.
pub(super) fn in_reading_order(sections: &[Section]) -> Vec<&Section> {
    let mut place = 0;
    let mut placed: Vec<(u8, &Section)> = sections
        .iter()
        .map(|s| {
            let known = READING_ORDER.iter().find(|(id, _)| s.id.starts_with(id));
            place = known.map_or(place, |(_, place)| *place);
            (place, s)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, s)| s).collect()
}

/// Sections that stand open, and charts of each of them: a page of a few screens. The others are folded.
const OPEN: usize = 4;
const CHARTS_OPEN: usize = 2;
/// Rows of a table that stands open where a section has no curve to show.
const ROWS_OPEN: usize = 12;

/// Sections of the experiments in the reader's order: those that say most stand open, the others are given back.
pub(super) fn sections<'a>(page: &mut Page, run: &'a Run) -> Vec<&'a Section> {
    let ordered = in_reading_order(&run.sections);
    let shows = |s: &&Section| s.charts.iter().any(|c| c.kind != ChartKind::Bar);
    let curves = ordered.iter().filter(|s| shows(s)).count();
    // Where nothing is a curve, tables and bars are what was found.
    let wanted = |s: &&Section| match curves {
        0 => !(s.tables.is_empty() && s.charts.is_empty()),
        _ => shows(s),
    };
    let mut open = 0;
    let mut folded = Vec::new();
    for s in ordered {
        if open < OPEN && wanted(&s) {
            open += 1;
            section(page, s, curves > 0);
        } else {
            folded.push(s);
        }
    }
    folded
}

/// A section that stands open: its first charts, or its first table; the rest is folded in it.
fn section(page: &mut Page, s: &Section, curves: bool) {
    page.open_section(&slug(&s.id), &s.title);
    if !s.text.is_empty() {
        page.push(&format!("<p class=\"muted\">{}</p>\n", Esc(&s.text)));
    }
    flag_list(page, s.flags.iter().map(|f| (f, String::new())));
    let (first, more): (Vec<_>, Vec<_>) = if curves {
        let (curves, bars): (Vec<_>, Vec<_>) =
            s.charts.iter().partition(|c| c.kind != ChartKind::Bar);
        let (first, rest) = curves.split_at(curves.len().min(CHARTS_OPEN));
        (first.to_vec(), [rest, &bars].concat())
    } else {
        let all: Vec<_> = s.charts.iter().collect();
        let (first, rest) = all.split_at(all.len().min(1));
        (first.to_vec(), rest.to_vec())
    };
    let open_table = !curves && s.tables.first().is_some_and(|t| t.rows.len() <= ROWS_OPEN);
    let (open_tables, tables) = s.tables.split_at(usize::from(open_table));
    charts(page, &first);
    for t in open_tables {
        table(page, t);
    }
    if !more.is_empty() || !tables.is_empty() {
        page.push(&format!(
            "<details class=\"block\"><summary>{}</summary>\n",
            more_of(more.len(), tables.len())
        ));
        charts(page, &more);
        for t in tables {
            table(page, t);
        }
        page.push("</details>\n");
    }
    page.close_section();
}

/// What a fold holds: `2 more charts and the figures`.
fn more_of(charts: usize, tables: usize) -> String {
    let charts = match charts {
        0 => None,
        1 => Some("1 more chart".to_owned()),
        n => Some(format!("{n} more charts")),
    };
    let tables = match tables {
        0 => None,
        1 => Some("the figures in a table".to_owned()),
        n => Some(format!("the figures in {n} tables")),
    };
    let all: Vec<String> = charts.into_iter().chain(tables).collect();
    capital(&all.join(" and "))
}

fn charts(page: &mut Page, all: &[&Chart]) {
    if all.is_empty() {
        return;
    }
    page.push("<div class=\"charts\">\n");
    for c in all {
        page.chart(Spec::from(*c), slug(&c.id));
    }
    page.push("</div>\n");
}

/// Sections that are folded, whole.
pub(super) fn folded(page: &mut Page, all: &[&Section]) {
    for s in all {
        page.open_fold(&slug(&s.id), &s.title, "");
        if !s.text.is_empty() {
            page.push(&format!("<p class=\"muted\">{}</p>\n", Esc(&s.text)));
        }
        flag_list(page, s.flags.iter().map(|f| (f, String::new())));
        charts(page, &s.charts.iter().collect::<Vec<_>>());
        for t in &s.tables {
            table(page, t);
        }
        page.close_fold();
    }
}

pub(super) fn table(page: &mut Page, t: &Table) {
    let anchor = page.anchor(slug(&t.id));
    if t.rows.is_empty() {
        page.push(&format!(
            "<p class=\"muted\" id=\"{anchor}\">{}: none.</p>\n",
            Esc(&t.title)
        ));
        return;
    }
    let text_column: Vec<bool> = (0..t.columns.len())
        .map(|i| {
            t.rows
                .iter()
                .any(|r| matches!(r.get(i), Some(Cell::Text(_))))
        })
        .collect();
    let class = |i: usize| {
        if text_column[i] {
            ""
        } else {
            " class=\"number\""
        }
    };
    let mut html = format!(
        "<div class=\"wide\"><table id=\"{anchor}\"><caption>{}</caption><thead><tr>",
        Esc(&t.title)
    );
    for (i, c) in t.columns.iter().enumerate() {
        let _ = write!(html, "<th scope=\"col\"{}>{}</th>", class(i), Esc(&c.label));
    }
    html.push_str("</tr></thead><tbody>\n");
    for row in &t.rows {
        html.push_str("<tr>");
        for (i, c) in t.columns.iter().enumerate() {
            let _ = match row.get(i) {
                Some(Cell::Text(text)) => write!(html, "<td>{}</td>", Esc(text)),
                Some(Cell::Number(v)) => write!(
                    html,
                    "<td class=\"number\" title=\"{v}\">{}</td>",
                    Esc(&format::below(*v, &c.unit, &c.label))
                ),
                Some(Cell::Estimate(e)) => {
                    let (value, half) = format::estimate_parts(e, &c.unit);
                    write!(
                        html,
                        "<td class=\"number\" title=\"{}\">{} <span class=\"pm\">{half}</span></td>",
                        e.value,
                        Esc(&format::unnamed(&value, &c.unit, &c.label))
                    )
                }
                Some(Cell::Hole(())) | None => {
                    write!(
                        html,
                        "<td class=\"number hole\" title=\"not measured\">{HOLE}</td>"
                    )
                }
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    page.push(&html);
}

/// Latency distributions, experiment by experiment.
pub(super) fn distributions(page: &mut Page, all: Vec<Distribution>) {
    if all.is_empty() {
        return;
    }
    page.open_fold(
        "distributions",
        "Latency distributions",
        "every percentile, job by job",
    );
    page.push(DISTRIBUTIONS);
    let several = all.len() > 1;
    for d in all {
        if several {
            page.push(&heading(&d.experiment));
        }
        if !d.note.is_empty() {
            page.push(&format!("<p class=\"muted\">{}</p>\n", Esc(&d.note)));
        }
        page.push("<div class=\"charts\">\n");
        for c in d.charts {
            let wanted = slug(&format!("distribution {} {}", d.experiment, c.title));
            page.chart(c, wanted);
        }
        page.push("</div>\n");
    }
    page.close_fold();
}

/// How to read them.
const DISTRIBUTIONS: &str = "<p class=\"muted\">Histograms of repeats are merged, percentiles never averaged. Charts by \
     percentile have one more nine at each step along the axis; a curve ends where fewer than ten I/Os lie beyond.</p>\n";

/// Begins the section of latency distributions.
pub(super) fn open_distributions(page: &mut Page) {
    page.open_section("distributions", "Latency distributions");
    page.push(DISTRIBUTIONS);
}

/// An experiment's heading; jobs of no experiment are just jobs.
pub(super) fn heading(experiment: &str) -> String {
    let name = if experiment.is_empty() {
        "jobs".to_owned()
    } else {
        human(experiment)
    };
    format!("<h3>{}</h3>\n", Esc(&capital(&name)))
}

/// Percentiles and throughput over time, one job at a time.
pub(super) fn over_time(page: &mut Page, run: &Run, charts: OverTime) {
    let (jobs, longest) = (charts.jobs.clone(), charts.longest);
    let charts = charts.charts();
    if charts.is_empty() {
        return;
    }
    page.open_fold(
        "over-time",
        "Over time",
        "latency and throughput of each job, window by window",
    );
    page.push(
        "<p class=\"muted\">Each point is a window with a histogram of its own, so that these are real percentiles \
         of that moment. A gap means that nothing completed.</p>\n",
    );
    if run.jobs.len() > JOBS_MAX {
        page.push(&format!(
            "<p class=\"muted\">The first {} jobs are shown; series.parquet has them all.</p>\n",
            jobs.len()
        ));
    }
    picker(page, run, &jobs, longest);
    page.push("<div class=\"charts stack\">\n");
    for c in charts {
        let wanted = slug(&c.title);
        page.chart(c, wanted);
    }
    page.push("</div>\n");
    page.close_fold();
}

fn picker(page: &mut Page, run: &Run, jobs: &[usize], selected: usize) {
    let mut html = format!(
        "<div class=\"picker\"><label for=\"job-select\">Job</label><select id=\"job-select\" autocomplete=\"off\" data-variants=\"{GROUP}\">"
    );
    let mut experiment: Option<&str> = None;
    for (variant, &index) in jobs.iter().enumerate() {
        let job = &run.jobs[index];
        if experiment != Some(job.experiment.as_str()) && !job.experiment.is_empty() {
            if experiment.is_some() {
                html.push_str("</optgroup>");
            }
            let name = human(&job.experiment);
            let _ = write!(html, "<optgroup label=\"{}\">", Esc(&capital(&name)));
            experiment = Some(&job.experiment);
        }
        let void = match (job.is_void(), not_steady(job)) {
            (true, _) => " (void)",
            (false, true) => " (not steady)",
            (false, false) => "",
        };
        let chosen = if variant == selected { " selected" } else { "" };
        let _ = write!(html, "<option{chosen}>{}{void}</option>", Esc(&job.name));
    }
    if experiment.is_some() {
        html.push_str("</optgroup>");
    }
    html.push_str("</select>");
    if jobs.len() > 1 {
        html.push_str(
            "<button type=\"button\" data-step=\"-1\" data-for=\"job-select\" aria-label=\"Previous job\">←</button>\
             <button type=\"button\" data-step=\"1\" data-for=\"job-select\" aria-label=\"Next job\">→</button>",
        );
    }
    html.push_str("</div>\n");
    page.push(&html);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_come_in_the_readers_order_and_unknown_ones_stay_where_they_were() {
        let ids = [
            "note",
            "latency",
            "bandwidth",
            "own",
            "mix",
            "stack",
            "curve",
            "raid5",
        ];
        let all: Vec<Section> = ids
            .iter()
            .map(|id| Section {
                id: (*id).to_owned(),
                ..Section::default()
            })
            .collect();
        let order: Vec<&str> = in_reading_order(&all)
            .iter()
            .map(|s| s.id.as_str())
            .collect();
        assert_eq!(
            order,
            [
                "note",
                "curve",
                "latency",
                "bandwidth",
                "own",
                "stack",
                "mix",
                "raid5"
            ]
        );
    }
}
