//! The exporters. Adding one: a file with an [`Exporter`] and a line in [`EXPORTERS`].

use crate::error::ReportError;
use crate::exporter::Exporter;

/// Every exporter, in the order of help texts.
pub const EXPORTERS: &[&dyn Exporter] = &[
    &crate::html::Html,
    &crate::terminal::Terminal,
    &crate::json::Json,
    &crate::csv::Csv,
    &crate::markdown::Markdown,
    &crate::svg::Svg,
    &crate::openmetrics::OpenMetrics,
];

/// The exporter of this name.
///
/// # Errors
/// [`ReportError::UnknownFormat`], which names those that exist.
pub fn exporter(name: &str) -> Result<&'static dyn Exporter, ReportError> {
    EXPORTERS
        .iter()
        .find(|e| e.name() == name)
        .copied()
        .ok_or_else(|| ReportError::UnknownFormat {
            name: name.to_owned(),
            known: EXPORTERS
                .iter()
                .map(|e| e.name())
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exporters_are_found_by_name_and_an_unknown_one_lists_them() {
        for e in EXPORTERS {
            assert_eq!(exporter(e.name()).unwrap().name(), e.name());
        }
        let e = exporter("pdf").err().unwrap().to_string();
        assert!(e.contains("'pdf'") && e.contains("html, terminal"), "{e}");
    }
}
