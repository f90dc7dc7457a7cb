//! Runs the lines of the table: each load once, whoever needs it, and each value beside the published one.

use std::collections::BTreeMap;

use fathom_sim::{Device, SimTarget};
use fathom_telemetry::Op;

use super::expression::{self, Values};
use super::load::{Load, Loads, Seen};
use super::table::Line;
use super::{ReproduceError, Row};

/// The lines of a paper, and what is known of them.
pub(super) struct Engine<'a> {
    pub(super) lines: &'a [Line],
    loads: &'a mut dyn Loads,
    seen: Vec<(Load, Vec<Seen>)>,
    values: BTreeMap<String, Values>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(lines: &'a [Line], loads: &'a mut dyn Loads) -> Self {
        Self {
            lines,
            loads,
            seen: Vec::new(),
            values: BTreeMap::new(),
        }
    }

    /// Adds the rows of the lines that are wanted.
    pub(super) fn rows(
        &mut self,
        wanted: impl Fn(&Line) -> bool,
        rows: &mut Vec<Row>,
    ) -> Result<(), ReproduceError> {
        let shown = |l: &&Line| !l.place.is_empty() && wanted(l);
        for line in self.lines.iter().filter(shown) {
            rows.push(self.row(line)?);
        }
        Ok(())
    }

    fn row(&mut self, line: &'a Line) -> Result<Row, ReproduceError> {
        let ours = self.value(line)?.first().copied().unwrap_or(f64::NAN);
        let holds = match line.holds.is_empty() {
            true => false,
            false => self.evaluate(line, &line.holds)? == [1.0],
        };
        let mut row = line.row(ours, holds)?;
        let seen = self.seen(line)?;
        let mut note = match seen.as_slice() {
            [one] => one.note.as_str(),
            _ => "",
        };
        if !ours.is_finite() {
            (row.ours, row.error_percent) = (None, None);
            if note.is_empty() {
                note = "a load that it comes from has no result: see its flags";
            }
        }
        let notes = [row.note.as_str(), note]
            .into_iter()
            .filter(|n| !n.is_empty());
        row.note = notes.collect::<Vec<_>>().join("; ");
        Ok(row)
    }

    fn value(&mut self, line: &'a Line) -> Result<Values, ReproduceError> {
        if let Some(known) = self.values.get(&line.id) {
            return Ok(known.clone());
        }
        let value = self.evaluate(line, &line.ours)?;
        self.values.insert(line.id.clone(), value.clone());
        Ok(value)
    }

    fn evaluate(&mut self, line: &'a Line, text: &str) -> Result<Values, ReproduceError> {
        expression::evaluate(text, &mut |name| {
            let (id, metric) = name.split_once('.').unwrap_or((name, ""));
            match (id, metric) {
                ("iops" | "us" | "mb" | "bytes" | "lowest", "") => self.metric(line, id),
                ("ours", "") => self.value(line),
                (id, "") => self.value(self.line(id)?),
                (id, metric) => self.metric(self.line(id)?, metric),
            }
        })
    }

    /// A line by its identifier.
    pub(super) fn line(&self, id: &str) -> Result<&'a Line, ReproduceError> {
        let found = self.lines.iter().find(|l| l.id == id);
        found.ok_or_else(|| ReproduceError::Table(format!("no line {id}")))
    }

    fn seen(&mut self, line: &Line) -> Result<Vec<Seen>, ReproduceError> {
        let mut all = Vec::new();
        for load in Load::all(&line.load)? {
            let known = match self.seen.iter().position(|k| k.0 == load) {
                Some(known) => known,
                None => {
                    let seen = self.loads.run(&load)?;
                    self.seen.push((load, seen));
                    self.seen.len() - 1
                }
            };
            all.extend(self.seen[known].1.iter().cloned());
        }
        Ok(all)
    }

    /// A number of what a line's load gave, one for each of its variants.
    pub(super) fn metric(&mut self, line: &Line, name: &str) -> Result<Values, ReproduceError> {
        if name == "hw" {
            let of = |load: &Load| load.target.as_ref().map_or(f64::NAN, hardware_us);
            return Ok(Load::all(&line.load)?.iter().map(of).collect());
        }
        let of = |seen: &Seen| seen.measured.get(name);
        let all: Option<Values> = self.seen(line)?.iter().map(of).collect();
        all.ok_or_else(|| ReproduceError::Table(format!("{}.{name}", line.id)))
    }
}

/// Mean latency of the hardware alone, µs: of random reads of 4 KiB from an idle device, without a host and so without a job.
fn hardware_us(target: &SimTarget) -> f64 {
    let mut device = Device::new(&target.model, 1, 0);
    let n = 200_000u64;
    let total: u64 = (0..n)
        .map(|i| {
            let at = (i * 7919 % 5_000_000) * 4096;
            device.serve(i * 1_000_000, Op::Read, at, 4096) - i * 1_000_000
        })
        .sum();
    total as f64 / n as f64 / 1e3
}
