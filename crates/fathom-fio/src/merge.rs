//! `merge_blktrace_file`: several binary traces of blktrace become one, by time.

use std::io::{BufWriter, Write};
use std::path::Path;

use fathom_io::replay::TraceError;
use fathom_io::replay::formats::{Merged, Part, is_blktrace};

use crate::output::Outputs;
use crate::section::Section;
use crate::{FioError, Script, names};

/// One number per trace, or the same for all.
fn numbers(s: &Section, option: &str, default: u64, count: usize) -> Result<Vec<u64>, FioError> {
    let text = s.get(option).unwrap_or("");
    let given: Vec<u64> = text
        .split(':')
        .filter_map(|t| t.trim().parse::<f64>().ok())
        .map(|n| n as u64)
        .collect();
    match given.len() {
        0 => Ok(vec![default; count]),
        n if n == count => Ok(given),
        n => Err(s.invalid(
            option,
            format!("{n} numbers for {count} traces: expected one for each"),
        )),
    }
}

fn merged(s: &Section, target: &Path, outputs: &Outputs) -> Result<(), FioError> {
    let traces = names(s.get("read_iolog").unwrap_or(""));
    if traces.is_empty() {
        return Err(s.invalid(
            "merge_blktrace_file",
            "it needs the traces that are to be merged: read_iolog=FIRST:SECOND",
        ));
    }
    let scales = numbers(s, "merge_blktrace_scalars", 100, traces.len())?;
    let passes = numbers(s, "merge_blktrace_iters", 1, traces.len())?;
    let parts: Vec<Part> = traces
        .iter()
        .zip(scales.into_iter().zip(passes))
        .map(|(path, (scale, passes))| Part {
            path: path.into(),
            scale,
            passes: passes.max(1),
        })
        .collect();
    let bad = |option: &str, why: String| s.invalid(option, why);
    let unread = |e: TraceError| bad("read_iolog", e.to_string());
    let unwritten = |e: std::io::Error| bad("merge_blktrace_file", e.to_string());
    let mut all = Merged::open(&parts).map_err(unread)?;
    let out = outputs.create(target, is_blktrace).map_err(unwritten)?;
    let mut out = BufWriter::new(out);
    while let Some(record) = all.record().map_err(unread)? {
        out.write_all(&record).map_err(unwritten)?;
    }
    let out = out.into_inner().map_err(|e| unwritten(e.into_error()))?;
    out.commit().map_err(unwritten)
}

impl Script {
    /// Merges the traces of sections that ask for it, which replay the merged one from then on.
    ///
    /// # Errors
    /// A trace that cannot be read, or what stands where the merged one shall be.
    pub fn merge_traces(&mut self, outputs: &Outputs) -> Result<(), FioError> {
        for s in &mut self.sections {
            let Some(target) = s.text("merge_blktrace_file") else {
                continue;
            };
            let target = target.to_owned();
            merged(s, Path::new(&target), outputs)?;
            s.add("read_iolog", Some(target.replace(':', "\\:")), false)?;
        }
        Ok(())
    }
}
