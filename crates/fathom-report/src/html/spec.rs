//! Charts as the page's script reads them: columns of numbers instead of points, to stay small.

use fathom_telemetry::schema::{Axis, Chart, ChartKind, ChartSeries, Mark};
use serde::{Serialize, Serializer};

/// A chart of the page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Spec {
    /// Anchor of the figure, unique in the page.
    #[serde(skip)]
    pub(crate) anchor: String,
    pub(crate) title: String,
    pub(crate) kind: ChartKind,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) z: Option<Axis>,
    pub(crate) categories: Vec<String>,
    pub(crate) series: Vec<Columns>,
    pub(crate) marks: Vec<Mark>,
    /// Several sets of series, of which the reader picks one (see `group`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) variants: Vec<Variant>,
    /// The variant shown first.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) initial: usize,
    /// Charts of one group follow the same selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<&'static str>,
    /// A heat map whose cells are even on both axes, also where many are empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) even: bool,
    /// Height in pixels; by default it follows the width.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) height: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// One of several sets of series.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Variant {
    /// Whose series these are: the page has a menu of them, a picture says it in its title.
    #[serde(skip)]
    pub(crate) job: String,
    pub(crate) series: Vec<Columns>,
    /// What stands beside the title while this one is shown: "not steady".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stamp: Option<&'static str>,
    /// Where x ends: charts under each other show the same stretch of time.
    pub(crate) span: Num,
}

/// A series in columns of equal length; columns without a value are left out.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Columns {
    pub(crate) name: String,
    pub(crate) x: Abscissa,
    pub(crate) y: Vec<Option<Num>>,
    #[serde(skip_serializing_if = "empty")]
    pub(crate) low: Vec<Option<Num>>,
    #[serde(skip_serializing_if = "empty")]
    pub(crate) high: Vec<Option<Num>>,
    #[serde(skip_serializing_if = "empty")]
    pub(crate) z: Vec<Option<Num>>,
    #[serde(skip_serializing_if = "empty")]
    pub(crate) label: Vec<Option<String>>,
    /// Number of the colour, where runs are over each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hue: Option<usize>,
    /// Number of the run, whose pattern (dashes, shape of points, hatching) tells it apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dash: Option<usize>,
}

/// Where a series' points stand.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Abscissa {
    /// One by one.
    Each(Vec<Num>),
    /// At 0, `step`, 2 × `step`, …: a series over time, in a few bytes.
    Even {
        /// Distance.
        step: Num,
        /// How many.
        n: usize,
    },
}

impl Default for Abscissa {
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

impl FromIterator<f64> for Abscissa {
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> Self {
        Self::Each(values.into_iter().map(Num::rounded).collect())
    }
}

fn empty<T>(column: &[Option<T>]) -> bool {
    column.iter().all(Option::is_none)
}

/// A number without `.0` where it is whole; not a number becomes a hole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Num(pub(crate) f64);

impl Serialize for Num {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < 9e15 {
            s.serialize_i64(self.0 as i64)
        } else {
            s.serialize_f64(self.0)
        }
    }
}

impl Num {
    /// Six significant digits: finer than any histogram here, and short.
    pub(crate) fn rounded(v: f64) -> Self {
        if v == 0.0 || !v.is_finite() {
            return Self(v);
        }
        let scale = 10f64.powi(5 - v.abs().log10().floor() as i32);
        if !scale.is_finite() || scale == 0.0 {
            return Self(v);
        }
        // Dividing by a power of ten that is exact keeps the printed form short.
        Self(if scale >= 1.0 {
            (v * scale).round() / scale
        } else {
            let step = (1.0 / scale).round();
            (v / step).round() * step
        })
    }
}

impl From<&ChartSeries> for Columns {
    fn from(s: &ChartSeries) -> Self {
        let finite = |v: Option<f64>| v.filter(|v| v.is_finite()).map(Num);
        Self {
            name: s.name.clone(),
            x: Abscissa::Each(s.points.iter().map(|p| Num(p.x)).collect()),
            y: s.points.iter().map(|p| finite(p.y)).collect(),
            low: s.points.iter().map(|p| finite(p.low)).collect(),
            high: s.points.iter().map(|p| finite(p.high)).collect(),
            z: s.points.iter().map(|p| finite(p.z)).collect(),
            label: s.points.iter().map(|p| p.label.clone()).collect(),
            hue: None,
            dash: None,
        }
    }
}

impl From<&Chart> for Spec {
    fn from(c: &Chart) -> Self {
        Self {
            anchor: String::new(),
            title: c.title.clone(),
            kind: c.kind,
            x: c.x.clone(),
            y: c.y.clone(),
            z: c.z.clone(),
            categories: c.categories.clone(),
            series: c.series.iter().map(Columns::from).collect(),
            marks: c.marks.clone(),
            variants: Vec::new(),
            initial: 0,
            group: None,
            even: false,
            height: None,
        }
    }
}

impl Spec {
    /// Whether half a page is too narrow: for a map of many columns with their values, for many long names.
    pub(crate) fn full_width(&self) -> bool {
        const COLUMNS_MAX: usize = 8;
        const NAMES_MAX: usize = 4;
        const LETTERS_MAX: usize = 14;
        if self.categories.len() > NAMES_MAX {
            return self
                .categories
                .iter()
                .any(|c| c.chars().count() > LETTERS_MAX);
        }
        let mut columns: Vec<u64> = Vec::new();
        for s in &self.series {
            if let Abscissa::Each(all) = &s.x {
                columns.extend(all.iter().map(|x| x.0.to_bits()));
            }
        }
        columns.sort_unstable();
        columns.dedup();
        self.kind == ChartKind::Heatmap && columns.len() > COLUMNS_MAX
    }
}

/// A chart made by the report itself, without series yet.
pub(crate) fn own(title: String, kind: ChartKind, x: Axis, y: Axis) -> Spec {
    Spec {
        anchor: String::new(),
        title,
        kind,
        x,
        y,
        z: None,
        categories: Vec::new(),
        series: Vec::new(),
        marks: Vec::new(),
        variants: Vec::new(),
        initial: 0,
        group: None,
        even: false,
        height: None,
    }
}

/// An axis.
pub(crate) fn axis(label: &str, unit: &str, log: bool) -> Axis {
    Axis {
        label: label.to_owned(),
        unit: unit.to_owned(),
        log,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_holes_are_null() {
        let c = Columns {
            x: [1.0, 2.5].into_iter().collect(),
            y: vec![Some(Num::rounded(84_210.123_456)), None],
            ..Columns::default()
        };
        assert_eq!(
            serde_json::to_string(&c).unwrap(),
            r#"{"name":"","x":[1,2.5],"y":[84210.1,null]}"#
        );
        assert_eq!(Num::rounded(123_456_789.0), Num(123_457_000.0));
        assert_eq!(Num::rounded(0.0), Num(0.0));
    }
}
