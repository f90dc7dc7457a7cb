//! Parts of a lab that this machine does not have: said, with what to install, and left out.

use fathom_experiments::parts::column;
use fathom_telemetry::schema::{Cell, Section, Table};

use crate::LabError;

/// Something that was left out, and how to have it.
#[derive(Debug, Clone)]
pub(crate) struct Skipped {
    /// What is missing from the results.
    pub(crate) what: String,
    /// Why.
    pub(crate) why: String,
    /// A command, or what to do.
    pub(crate) remedy: String,
}

impl Skipped {
    pub(crate) fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }
    /// Of an error of a part that others can do without.
    pub(crate) fn from_error(what: &str, error: impl Into<LabError>) -> Self {
        match error.into() {
            LabError::Missing { what: why, remedy } => Self::new(what, why, remedy),
            other => Self::new(
                what,
                other.to_string(),
                "see the message; the other results stand",
            ),
        }
    }
}

/// What was left out, as a section; none where nothing was.
pub(crate) fn skipped(id: &str, all: &[Skipped]) -> Option<Section> {
    if all.is_empty() {
        return None;
    }
    let row = |s: &Skipped| {
        [&s.what, &s.why, &s.remedy]
            .map(|t| Cell::Text(t.clone()))
            .to_vec()
    };
    Some(Section {
        id: format!("{id}-skipped"),
        title: "What was left out".into(),
        text: "Parts that this machine does not have; everything else was measured.".into(),
        tables: vec![Table {
            id: format!("{id}-skipped-table"),
            title: "Left out, and how to have it".into(),
            columns: ["part", "reason", "to have it"]
                .map(|c| column(c, ""))
                .to_vec(),
            rows: all.iter().map(row).collect(),
        }],
        ..Section::default()
    })
}
