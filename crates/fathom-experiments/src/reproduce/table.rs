//! How the papers' values are come by: the lines of `docs/reproduced-figures.csv`, and what makes a row of one.
//!
//! A line names a value of `docs/published-figures.csv`, the load that gives it and what is made of the load's numbers. A
//! line without a place is a load that others need; `base` is what the loads below it have in common.

use super::published::{self, On, Stated};
use super::{ReproduceError, Role, Row, expression};

const CSV: &str = include_str!("../../../../docs/reproduced-figures.csv");

/// A line.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    /// Identifier of the value.
    pub(super) id: String,
    /// Section, table or figure; empty for a load that others need.
    pub(super) place: String,
    what: String,
    /// Ours, where it is not the unit as published.
    unit: String,
    /// Whether the model was fitted to it; empty on a target.
    pub(super) role: String,
    /// What it is made of, with what the loads have in common before it; empty where it rests on other lines.
    pub(super) load: String,
    /// What is made of it.
    pub(super) ours: String,
    /// Whether the relation holds that the paper says in words (the note).
    pub(super) holds: String,
    /// `share`, `none`, or `printed` and a number that is none in the list of published values.
    score: String,
    /// What ours is held against, where it is not what was published.
    value: String,
    /// Lines of which it is mere arithmetic.
    from: String,
    note: String,
}

/// Lines of a paper in their order; where there are two targets, those of one with what a second one gives in their place and
/// behind them.
pub(super) fn lines(paper: &str, on: On) -> Vec<Line> {
    match on {
        On::Models => named(paper, "models"),
        On::Target => named(paper, "target"),
        On::Two => {
            let mut all = named(paper, "target");
            for line in named(paper, "second") {
                match all.iter_mut().find(|l| l.id == line.id) {
                    Some(own) => *own = line,
                    None => all.push(line),
                }
            }
            all
        }
    }
}

/// Lines that stand under this word.
fn named(paper: &str, on: &str) -> Vec<Line> {
    let mut base = String::new();
    let mut all = Vec::new();
    for text in CSV.lines().skip(1) {
        let Ok(
            [
                of,
                here,
                id,
                place,
                what,
                unit,
                role,
                load,
                ours,
                holds,
                score,
                value,
                from,
                note,
            ],
        ) = <[String; 14]>::try_from(published::fields(text))
        else {
            continue;
        };
        if of != paper || here != on {
            continue;
        }
        if id == "base" {
            base = load;
            continue;
        }
        let load = match load.is_empty() {
            true => load,
            false => format!("{base} | {load}"),
        };
        #[rustfmt::skip]
        all.push(Line { id, place, what, unit, role, load, ours, holds, score, value, from, note });
    }
    all
}

impl Line {
    /// Beside what was published; `holds` for a relation in words.
    pub(super) fn row(&self, ours: f64, holds: bool) -> Result<Row, ReproduceError> {
        let stated = published::stated(&self.id);
        let unit = match (self.unit.as_str(), &stated) {
            ("", Some(stated)) => &stated.unit,
            (unit, _) => unit,
        };
        let number = stated.as_ref().and_then(|s| s.number_in(unit));
        let published = match self.value.is_empty() {
            true => number,
            false => expression::constant(&self.value)?,
        };
        let role = match self.role.as_str() {
            "fit" => Role::Fit,
            _ => Role::Prediction,
        };
        let published = published.unwrap_or(f64::NAN);
        let mut row = Row::new(
            &self.id,
            &self.place,
            &self.what,
            published,
            ours,
            unit,
            role,
        );
        row.from = self.from.split_whitespace().map(str::to_owned).collect();
        row.note.clone_from(&self.note);
        if !self.holds.is_empty() {
            let verdict = if holds { "holds" } else { "does not hold here" };
            row.note = format!("published as '{}': {verdict}", self.note);
            (row.published, row.error_percent) = (None, None);
            return Ok(row);
        }
        match stated.as_ref().and_then(Stated::range) {
            Some(range) if self.value.is_empty() => return Ok(row.within(range)),
            _ => {}
        }
        let apart = self
            .score
            .strip_prefix("printed ")
            .and_then(|p| p.parse().ok());
        if let Some(printed) = apart.or(number).filter(|_| !self.value.is_empty()) {
            row.printed = Some(printed);
            row.note = format!("printed as {printed}: {}", self.note);
        }
        Ok(match self.score.as_str() {
            "share" => row.share(),
            "none" => Row {
                error_percent: None,
                ..row
            },
            _ => row,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::PAPERS;
    use crate::reproduce::load::Load;

    #[test]
    fn every_line_of_the_table_is_read_and_names_a_load_that_can_run() {
        let sides = ["models", "target", "second"];
        let all: Vec<Line> = PAPERS
            .iter()
            .flat_map(|(paper, _)| sides.map(|on| named(paper, on)))
            .flatten()
            .collect();
        let text: Vec<&str> = CSV.lines().skip(1).collect();
        let bases = text.iter().filter(|l| l.contains(",base,")).count();
        assert!(bases > 0);
        assert_eq!(all.len() + bases, text.len());
        for line in &all {
            let loads = Load::all(&line.load).unwrap_or_else(|e| panic!("{}: {e}", line.id));
            assert_eq!(loads.is_empty(), line.load.is_empty(), "{}", line.id);
            assert!(
                line.place.is_empty() || !line.ours.is_empty(),
                "{}",
                line.id
            );
        }
    }
}
