//! What the experiments of `db mysql` end with: what to set and how sure, and what was looked at beside.

use fathom_bench::results::Evidence;
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::Finding;

use super::{Cell, Experiment, FORMATS, Line, Mix, OltpResult};
use crate::conclude::{self, Choice, Told};
use crate::confounders;

/// InnoDB's page size where nobody says another, bytes.
const USUAL_PAGE: u64 = 16 << 10;

/// Where InnoDB is where nobody chose otherwise: a number among the choices.
fn usual(experiment: Experiment, lines: &[&Line]) -> Option<usize> {
    let is = |c: &Cell| match experiment {
        Experiment::PageSize => c.page == USUAL_PAGE,
        _ => c.format == 0,
    };
    lines.iter().position(|l| is(&l.setting))
}

/// Of one experiment and one kind of transactions.
pub(super) fn of_mix(
    experiment: Experiment,
    name: &str,
    lines: &[&Line],
    mix: Mix,
    evidence: &Evidence<'_>,
) -> Option<Finding> {
    let mut lines: Vec<&Line> = lines
        .iter()
        .copied()
        .filter(|l| l.setting.mix == mix)
        .collect();
    lines.sort_by_key(|l| (l.setting.threads, l.setting.pool, l.setting.page));
    let choices: Vec<Choice<'_, _, _>> = lines
        .iter()
        .map(|line| Choice {
            name: match experiment {
                Experiment::PageSize => format!("{} KiB", line.setting.page >> 10),
                Experiment::Cache => Bytes(line.setting.pool).to_string(),
                Experiment::Compression => FORMATS[line.setting.format].0.to_owned(),
                _ => line.setting.threads.to_string(),
            },
            line,
        })
        .collect();
    let of = format!("{} transactions", mix.name());
    let advice = |i: usize| {
        let c = &lines[i].setting;
        match experiment {
            Experiment::PageSize => format!("innodb_page_size={}", c.page),
            Experiment::Cache => format!("innodb_buffer_pool_size={}", c.pool),
            Experiment::Compression => FORMATS[c.format].1.to_owned(),
            _ => format!(
                "let no more than {} connections work at the same time",
                c.threads
            ),
        }
    };
    let told = Told {
        id: format!("oltp-{name}-best-{}", mix.name()),
        of: &of,
        what: match experiment {
            Experiment::PageSize => "pages of",
            Experiment::Cache => "a buffer pool of",
            Experiment::Compression => "compression",
            _ => "threads",
        },
        advice: &advice,
        tables: vec![format!("oltp-{name}-table")],
    };
    match experiment {
        Experiment::Cache | Experiment::Threads => conclude::enough(&choices, &told, evidence),
        Experiment::PageSize | Experiment::Compression => {
            conclude::against(&choices, usual(experiment, &lines)?, &told, evidence)
        }
        // These say themselves what they found; one setting is no choice.
        Experiment::Objective | Experiment::Try | Experiment::One => None,
    }
}

/// What was looked at beside all of them.
pub(super) fn beside(result: &OltpResult, evidence: &Evidence<'_>) -> Option<Finding> {
    let jobs: Vec<usize> = result.lines.iter().flat_map(Line::jobs).collect();
    let first = result.lines.iter().find(|l| !l.repeats.is_empty())?;
    let mut facts = vec![confounders::warm(confounders::SERVERS, &jobs, evidence)];
    facts.extend(result.facts.beside());
    let page = first.setting.page;
    let bytes = |format| {
        let mut pages = result.lines.iter().filter(|l| l.setting.format == format);
        let page = pages.next()?.setting.page;
        result.facts.table_bytes(page, format)
    };
    let paged = FORMATS
        .iter()
        .position(|f| f.1.starts_with("PAGE_COMPRESSED"));
    if let Some((plain, packed)) = result.facts.table_bytes(page, 0).zip(paged.and_then(bytes)) {
        let less = 100.0 - packed as f64 / plain as f64 * 100.0;
        facts.push(if less > 5.0 {
            format!("holes are punched here: page compression leaves {less:.0} % less on disk")
        } else {
            "no holes are punched here: page compression frees nothing on disk".into()
        });
    }
    Some(confounders::beside(
        "oltp",
        facts,
        jobs,
        &format!("oltp-{}-table", name_of(first)),
    ))
}

fn name_of(line: &Line) -> &'static str {
    let mut all = Experiment::ALL.into_iter();
    all.find(|e| e.1 == line.setting.experiment)
        .map_or("one", |e| e.0)
}
