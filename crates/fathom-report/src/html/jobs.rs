//! Every job: a table of figures, then each with its exact specification.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Job, Run};

use super::capsule::value_html;
use super::escape::Esc;
use super::flags::{chips, flag_list};
use super::{Detail, Page};
use crate::format::{self, HOLE};
use crate::terminal::{cpu_per_io, directions, ns, seen};
use crate::text::{capital, human};

/// Jobs in the page; run.json has them all.
const JOBS_MAX: usize = 1_000;
const COLUMNS: [&str; 11] = [
    "Job",
    "Op",
    "IOPS",
    "Bandwidth",
    "Mean",
    "p50",
    "p99",
    "p99.9",
    "Max",
    "Depth",
    "CPU per I/O",
];

/// The table and the details.
pub(super) fn jobs(page: &mut Page, run: &Run, detail: Detail) {
    let most = detail.of(JOBS_MAX);
    if run.jobs.is_empty() {
        return;
    }
    page.open_fold(
        "jobs",
        "All jobs",
        &format!(
            "{} with every figure",
            format::grouped(run.jobs.len() as u64)
        ),
    );
    page.push(
        "<p class=\"muted\">Latency is service latency (submission to completion); jobs with a schedule of their own \
         (open loop) show response latency, from the intended start. A dash means too few samples.</p>\n",
    );
    if run.jobs.len() > most {
        page.push(&format!(
            "<p class=\"muted\">The first {} of {} jobs; run.json and the CSV export have them all.</p>\n",
            format::grouped(most as u64),
            format::grouped(run.jobs.len() as u64)
        ));
    }
    let html = table(run, most);
    page.push(&html);
    page.push("<details class=\"block\"><summary>Exact specification and all figures of each job</summary>\n");
    for (index, job) in run.jobs.iter().take(most).enumerate() {
        page.anchors.insert(format!("job-{index}"));
        let html = head(index, job);
        page.push(&html);
        figures(page, job);
        page.push("</details>\n");
    }
    page.push("</details>\n");
    page.close_fold();
}

fn table(run: &Run, most: usize) -> String {
    let mut html = String::from("<div class=\"wide\"><table class=\"jobs\"><thead><tr>");
    for (i, c) in COLUMNS.iter().enumerate() {
        let class = if i < 2 { "" } else { " class=\"number\"" };
        let _ = write!(html, "<th scope=\"col\"{class}>{c}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    // Repeats are interleaved in time; here each experiment's jobs stand together.
    let mut experiments: Vec<(&str, Vec<usize>)> = Vec::new();
    for (index, job) in run.jobs.iter().take(most).enumerate() {
        match experiments.iter_mut().find(|(e, _)| *e == job.experiment) {
            Some((_, jobs)) => jobs.push(index),
            None => experiments.push((&job.experiment, vec![index])),
        }
    }
    for (experiment, jobs) in experiments {
        if !experiment.is_empty() {
            let _ = writeln!(
                html,
                "<tr class=\"group\"><th colspan=\"{}\" scope=\"rowgroup\">{}</th></tr>",
                COLUMNS.len(),
                Esc(&capital(&human(experiment)))
            );
        }
        for index in jobs {
            html.push_str(&rows(index, &run.jobs[index]));
        }
    }
    html.push_str("</tbody></table></div>\n");
    html
}

fn rows(index: usize, job: &Job) -> String {
    let class = if job.is_void() { " class=\"void\"" } else { "" };
    let name = format!(
        "<td class=\"name\"><a href=\"#job-{index}\">{}</a>{}</td>",
        Esc(&job.name),
        chips(&job.flags)
    );
    let mut html = String::new();
    let mut first = true;
    for (direction, d) in directions(job) {
        let l = seen(job, d);
        let _ = write!(html, "<tr{class}>");
        html.push_str(if first { &name } else { "<td></td>" });
        let cells = [
            format::below(d.iops, "IOPS", COLUMNS[2]),
            format::value(d.bytes_per_second, "bytes/s"),
            format::optional(l.mean, "ns"),
            ns(l.p50),
            ns(l.p99),
            ns(l.p99_9),
            ns(l.max),
            depth(job),
            format::optional(cpu_per_io(job), "ns"),
        ];
        let _ = write!(html, "<td>{direction}</td>");
        for (i, c) in cells.iter().enumerate() {
            // Depth and CPU are the job's, not the direction's: said once.
            let text = if first || i < 7 { c.as_str() } else { "" };
            let _ = write!(html, "<td class=\"number\">{text}</td>");
        }
        html.push_str("</tr>\n");
        first = false;
    }
    if first {
        let _ = write!(html, "<tr{class}>{name}<td></td>");
        for _ in 2..COLUMNS.len() {
            let _ = write!(html, "<td class=\"number hole\">{HOLE}</td>");
        }
        html.push_str("</tr>\n");
    }
    html
}

fn depth(job: &Job) -> String {
    let requested = f64::from(job.qd_requested);
    if (job.qd_achieved - requested).abs() < 0.05 {
        format::number(requested)
    } else {
        format!("{:.1} of {}", job.qd_achieved, job.qd_requested)
    }
}

fn head(index: usize, job: &Job) -> String {
    format!(
        "<details class=\"job\" id=\"job-{index}\"><summary>{}</summary>\n",
        Esc(&job.name)
    )
}

fn figures(page: &mut Page, job: &Job) {
    flag_list(page, job.flags.iter().map(|f| (f, String::new())));
    let mut html =
        String::from("<div class=\"wide\"><table><thead><tr><th scope=\"col\">latency</th>");
    for c in [
        "samples", "min", "mean", "std dev", "p50", "p90", "p99", "p99.9", "p99.99", "max",
    ] {
        let _ = write!(html, "<th class=\"number\" scope=\"col\">{c}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for (direction, d) in directions(job) {
        for (what, l) in [
            ("submission", &d.submit_ns),
            ("service", &d.service_ns),
            ("response", &d.response_ns),
        ] {
            if l.samples == 0 {
                continue;
            }
            let _ = write!(html, "<tr><td>{direction}, {what}</td>");
            for c in [
                format::grouped(l.samples),
                ns(l.min),
                format::optional(l.mean, "ns"),
                format::optional(l.stddev, "ns"),
                ns(l.p50),
                ns(l.p90),
                ns(l.p99),
                ns(l.p99_9),
                ns(l.p99_99),
                ns(l.max),
            ] {
                let _ = write!(html, "<td class=\"number\">{c}</td>");
            }
            html.push_str("</tr>\n");
        }
    }
    html.push_str("</tbody></table></div>\n<dl class=\"pairs\">");
    for (what, value) in facts(job) {
        let _ = write!(html, "<dt>{what}</dt><dd>{}</dd>", Esc(&value));
    }
    html.push_str("</dl>\n<h4>As it was run</h4>\n");
    html.push_str(&value_html(&job.spec));
    page.push(&html);
}

fn facts(job: &Job) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Engine", join(&job.engine, &job.engine_notes)),
        ("Measured for", format::wall(job.wall_ns)),
        ("Depth achieved", depth(job)),
    ];
    for (name, d) in directions(job) {
        let mut text = format!(
            "{} I/Os, {}",
            format::grouped(d.ios),
            format::value(d.bytes as f64, "bytes")
        );
        if d.errors + d.short > 0 {
            let _ = write!(text, ", {} failed, {} short", d.errors, d.short);
        }
        facts.push((
            match name {
                "read" => "Reads",
                "write" => "Writes",
                "trim" => "Trims",
                _ => "Syncs",
            },
            text,
        ));
    }
    if job.cpu_ns > 0 {
        let cores = job.cpu_ns as f64 / job.wall_ns.max(1) as f64;
        let user = job.cpu_user_ns as f64 / job.cpu_ns as f64;
        facts.push((
            "CPU",
            format!(
                "{} of one core, {} of it in user mode",
                format::share(cores),
                format::share(user)
            ),
        ));
    }
    if let Some(o) = &job.open_loop {
        facts.push((
            "Schedule",
            format!(
                "{} asked, {} achieved, {} late (at most {}), {} never started",
                format::value(o.rate_asked, "IOPS"),
                format::value(o.rate_achieved, "IOPS"),
                format::grouped(o.late),
                format::value(o.lateness_max_ns as f64, "ns"),
                format::grouped(o.unissued)
            ),
        ));
    }
    if let Some(d) = &job.device {
        facts.push((
            "The device counted",
            format!(
                "{}: {} reads ({}, {} merged), {} writes ({}, {} merged), {} flushes, busy {}",
                d.name,
                format::grouped(d.read_ios),
                format::value(d.read_bytes as f64, "bytes"),
                format::grouped(d.read_merges),
                format::grouped(d.write_ios),
                format::value(d.write_bytes as f64, "bytes"),
                format::grouped(d.write_merges),
                format::grouped(d.flush_ios),
                format::value(d.busy_ms as f64 * 1e6, "ns"),
            ),
        ));
    }
    for e in &job.errors {
        facts.push((
            "Error",
            format!("{}: {} (errno {})", e.op.name(), e.message, e.errno),
        ));
    }
    facts
}

fn join(first: &str, notes: &[String]) -> String {
    if notes.is_empty() {
        first.to_owned()
    } else {
        format!("{first}: {}", notes.join(", "))
    }
}
