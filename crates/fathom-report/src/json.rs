//! `run.json` as scripts read it: the schema's own encoding, indented.

use crate::data::ReportData;
use crate::error::ReportError;
use crate::exporter::Exporter;
use crate::output::{Output, written};

/// The JSON exporter.
pub(crate) struct Json;

impl Exporter for Json {
    fn name(&self) -> &'static str {
        "json"
    }
    fn about(&self) -> &'static str {
        "the whole run as JSON (run.json)"
    }
    fn export(&self, data: &ReportData, out: &mut dyn Output) -> Result<(), ReportError> {
        out.file("run.json", &mut |w| {
            serde_json::to_writer_pretty(&mut *w, &data.run)?;
            written("run.json", w.write_all(b"\n"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::MemoryOutput;
    use crate::testing::{job, run_with};

    #[test]
    fn the_json_reads_back_as_the_same_run() {
        let data = ReportData::from_run(run_with(vec![job("a")]));
        let mut out = MemoryOutput::default();
        Json.export(&data, &mut out).unwrap();
        let back: fathom_telemetry::schema::Run =
            serde_json::from_str(&out.text("run.json")).unwrap();
        assert_eq!(back, data.run);
    }
}
