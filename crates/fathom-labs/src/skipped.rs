//! Parts of a lab that this machine does not have: said, with what to install, and left out.

use fathom_bench::Notebook;
use fathom_bench::parts::{table, text};
use fathom_telemetry::schema::Section;
use fathom_telemetry::{Flag, FlagCode};
use serde::{Deserialize, Serialize};

use crate::LabError;

/// Something that was left out, and how to have it.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// Says on the screen what was left out, as flags of the run, which voids it where that is what was asked for rather than
/// something beside it.
pub(crate) fn missing(book: &mut Notebook, skipped: &[Skipped], asked_for: bool) {
    book.run_mut().flags.extend(skipped.iter().map(|s| Flag {
        void: asked_for,
        ..Flag::new(
            FlagCode::NotChecked,
            format!("{} was left out: {}", s.what, s.why),
            s.remedy.clone(),
        )
    }));
}

/// What was left out, as a section; none where nothing was.
pub(crate) fn skipped(id: &str, all: &[Skipped]) -> Option<Section> {
    (!all.is_empty()).then(|| Section {
        id: format!("{id}-skipped"),
        title: "What was left out".into(),
        text: "Parts that this machine does not have; everything else was measured.".into(),
        tables: vec![table(
            &format!("{id}-skipped-table"),
            "Left out, and how to have it",
            all,
            &[
                ("part", "", &|s| text(&s.what)),
                ("reason", "", &|s| text(&s.why)),
                ("to have it", "", &|s| text(&s.remedy)),
            ],
        )],
        ..Section::default()
    })
}
