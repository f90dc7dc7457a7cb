//! What stands inside the axes of a picture, by kind of chart. A hole is a gap, never 0.

use std::fmt::Write as _;

use fathom_telemetry::schema::ChartKind;

use super::scale::Scale;
use super::{HEAT, LEFT, LETTER, ON, Picture, RIGHT, SOFT, WIDTH, guides, mix, number, xs};
use crate::format::{self, HOLE};
use crate::html::spec::{Columns, Spec};

/// Points of a line that are drawn one by one, with their intervals.
const FEW: usize = 40;

/// What the axes must show.
pub(super) struct Layout {
    /// Every x and y that can be drawn.
    pub(super) xs: Vec<f64>,
    pub(super) ys: Vec<f64>,
    pub(super) x_log: bool,
    pub(super) y_log: bool,
    /// Names of categories, in place of numbers.
    pub(super) x_bands: Option<Vec<String>>,
    pub(super) y_bands: Option<Vec<String>>,
    x_domain: (f64, f64),
    y_domain: (f64, f64),
    /// Values that are bands without being named: their numbers, in order.
    x_values: Option<Vec<f64>>,
    y_values: Option<Vec<f64>>,
    /// Half a cell of a heat map, on the axis (its logarithm, where that is what is even).
    half: (f64, f64),
    /// Least and largest colour value.
    pub(super) z: Option<(f64, f64)>,
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|v| v.is_finite())
        .fold(None, |e: Option<(f64, f64)>, v| {
            Some(e.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
        })
}

fn distinct(values: &[f64]) -> Vec<f64> {
    let mut all = values.to_vec();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

fn padded((low, high): (f64, f64), log: bool, share: f64, unit: &str) -> (f64, f64) {
    if unit == "quantile" {
        return (low, high * 1.3);
    }
    if log {
        let d = (high / low).log10().max(0.3) * share;
        return (low * 10f64.powf(-d), high * 10f64.powf(d));
    }
    let whole = if high > low { high - low } else { high.abs() };
    let d = if whole > 0.0 { whole } else { 1.0 } * share;
    (if low == 0.0 { 0.0 } else { low - d }, high + d)
}

/// One axis of a heat map: even cells, or bands.
enum Grid {
    Even { low: f64, high: f64, half: f64 },
    Bands(Vec<f64>),
}

fn grid(values: &[f64], log: bool, even: bool) -> Grid {
    let all = distinct(values);
    let t = |v: f64| if log { v.ln() } else { v };
    let gaps: Vec<f64> = all.windows(2).map(|w| t(w[1]) - t(w[0])).collect();
    let step = gaps.iter().copied().fold(f64::INFINITY, f64::min);
    let (Some(first), Some(last), true) = (all.first(), all.last(), step.is_finite()) else {
        return Grid::Bands(all);
    };
    // A grid with a few empty rows keeps its scale; a handful of scattered values does not.
    let cells = ((t(*last) - t(*first)) / step).round() + 1.0;
    let dense = even || all.len() > 24 || all.len() as f64 >= cells * 0.9;
    let regular = gaps
        .iter()
        .all(|g| (g / step - (g / step).round()).abs() < 0.06);
    if !(dense && regular) {
        return Grid::Bands(all);
    }
    let back = |v: f64| if log { v.exp() } else { v };
    Grid::Even {
        low: back(t(*first) - step / 2.0),
        high: back(t(*last) + step / 2.0),
        half: step / 2.0,
    }
}

impl Layout {
    /// Of a chart.
    pub(super) fn of(spec: &Spec, series: &[Columns]) -> Self {
        let stacked = spec.kind == ChartKind::StackedBar;
        let (x_log, y_log) = (spec.x.log, spec.y.log && !stacked);
        let usable = |v: f64, log: bool| v.is_finite() && (!log || v > 0.0);
        let (mut all_x, mut all_y, mut all_z) = (Vec::new(), Vec::new(), Vec::new());
        for s in series {
            for (i, x) in xs(s).into_iter().enumerate() {
                let y = number(&s.y, i).filter(|y| usable(*y, y_log));
                if y.is_some() && usable(x, x_log) {
                    all_x.push(x);
                }
                all_y.extend(y);
                for v in [number(&s.low, i), number(&s.high, i)] {
                    all_y.extend(v.filter(|v| usable(*v, y_log)));
                }
                all_z.extend(number(&s.z, i));
            }
        }
        let mut layout = Self {
            x_log,
            y_log,
            x_bands: (!spec.categories.is_empty()).then(|| spec.categories.clone()),
            y_bands: None,
            x_domain: (0.0, 1.0),
            y_domain: (0.0, 1.0),
            x_values: None,
            y_values: None,
            half: (0.0, 0.0),
            z: extent(all_z.into_iter()),
            xs: all_x,
            ys: all_y,
        };
        match spec.kind {
            ChartKind::Heatmap => layout.heat(spec),
            _ => layout.plain(spec, series, stacked),
        }
        let span = spec.variants.get(spec.initial).map(|v| v.span.0);
        if let Some(span) = span.filter(|s| *s > 0.0 && layout.x_bands.is_none()) {
            layout.x_domain = (0.0, span);
        }
        layout
    }

    fn plain(&mut self, spec: &Spec, series: &[Columns], stacked: bool) {
        let bars = matches!(spec.kind, ChartKind::Bar | ChartKind::StackedBar);
        if bars && self.x_bands.is_none() {
            let all: Vec<f64> = series.iter().flat_map(xs).collect();
            let values = distinct(&all);
            self.x_bands = Some(
                values
                    .iter()
                    .map(|v| format::value(*v, &spec.x.unit))
                    .collect(),
            );
            self.x_values = Some(values);
        }
        let mut with_marks = (self.xs.clone(), self.ys.clone());
        for m in &spec.marks {
            let fits = |v: &f64, log: bool| v.is_finite() && (!log || *v > 0.0);
            with_marks
                .0
                .extend(m.x.filter(|v| fits(v, self.x_log) && self.x_bands.is_none()));
            with_marks.1.extend(m.y.filter(|v| fits(v, self.y_log)));
        }
        let share = if spec.kind == ChartKind::Scatter {
            0.04
        } else {
            0.015
        };
        if let Some(e) = extent(with_marks.0.into_iter()) {
            self.x_domain = padded(e, self.x_log, share, &spec.x.unit);
        }
        let Some((mut low, mut high)) = extent(with_marks.1.into_iter()) else {
            return;
        };
        let least = low;
        if !self.y_log && low > 0.0 {
            low = 0.0;
        }
        if stacked {
            let bands = self.x_bands.as_ref().map_or(0, Vec::len);
            let mut sums = vec![0.0; bands];
            for s in series {
                for (i, x) in xs(s).into_iter().enumerate() {
                    if let (Some(sum), Some(y)) = (sums.get_mut(self.band_of(x)), number(&s.y, i)) {
                        *sum += y.max(0.0);
                    }
                }
            }
            high = sums.into_iter().fold(high, f64::max);
        }
        let mut domain = padded((low, high), self.y_log, 0.06, &spec.y.unit);
        if !self.y_log && least >= 0.0 {
            domain.0 = domain.0.max(0.0);
        }
        if spec.y.unit == "%" && high <= 100.0 {
            domain.1 = domain.1.min(if stacked { 103.0 } else { 100.0 });
        }
        self.y_domain = domain;
    }

    fn heat(&mut self, spec: &Spec) {
        match grid(&self.xs, self.x_log, spec.even) {
            Grid::Even { low, high, half } if self.x_bands.is_none() => {
                (self.x_domain, self.half.0) = ((low, high), half);
            }
            Grid::Bands(values) if self.x_bands.is_none() => {
                self.x_bands = Some(
                    values
                        .iter()
                        .map(|v| format::value(*v, &spec.x.unit))
                        .collect(),
                );
                self.x_values = Some(values);
            }
            _ => {}
        }
        match grid(&self.ys, self.y_log, spec.even) {
            Grid::Even { low, high, half } => (self.y_domain, self.half.1) = ((low, high), half),
            Grid::Bands(values) => {
                let name = |v: &f64| format::value(*v, &spec.y.unit);
                self.y_bands = Some(values.iter().map(name).collect());
                self.y_values = Some(values);
            }
        }
    }

    /// Number of the band of an x value; one that does not exist where it has none.
    fn band_of(&self, x: f64) -> usize {
        match &self.x_values {
            Some(values) => values.iter().position(|v| *v == x).unwrap_or(usize::MAX),
            None if x >= 0.0 => x as usize,
            None => usize::MAX,
        }
    }

    /// Whether there is nothing to draw.
    pub(super) fn empty(&self) -> bool {
        self.ys.is_empty()
    }

    /// Whether names of categories are too long to stand side by side.
    pub(super) fn slanted(&self) -> bool {
        let Some(names) = &self.x_bands else {
            return false;
        };
        let band = (WIDTH - RIGHT - LEFT) / names.len().max(1) as f64;
        names
            .iter()
            .any(|n| n.chars().count() as f64 * LETTER > band - 4.0)
    }

    /// Room that slanted names take from the chart.
    pub(super) fn label_room(&self) -> f64 {
        if !self.slanted() {
            return 0.0;
        }
        let names = self.x_bands.iter().flatten();
        let longest = names.map(|n| n.chars().count().min(24)).max().unwrap_or(0);
        (3.6 * longest as f64 - 8.0).max(0.0)
    }

    /// The horizontal axis on these pixels.
    pub(super) fn x_scale(&self, (from, to): (f64, f64)) -> Scale {
        match &self.x_bands {
            Some(names) => Scale::Bands {
                n: names.len(),
                from,
                to,
            },
            None => Scale::continuous(self.x_domain, (from, to), self.x_log),
        }
    }

    /// The vertical axis on these pixels.
    pub(super) fn y_scale(&self, (from, to): (f64, f64)) -> Scale {
        match &self.y_bands {
            Some(names) => Scale::Bands {
                n: names.len(),
                from,
                to,
            },
            None => Scale::continuous(self.y_domain, (from, to), self.y_log),
        }
    }
}

/// Draws a chart's series.
pub(super) fn draw(p: &mut Picture<'_>, layout: &Layout, bottom: f64) {
    match p.spec.kind {
        ChartKind::Line => lines(p),
        ChartKind::Scatter => points(p),
        ChartKind::Bar => bars(p, layout, bottom, false),
        ChartKind::StackedBar => bars(p, layout, bottom, true),
        ChartKind::Heatmap => cells(p, layout),
    }
}

fn whisker(p: &mut Picture<'_>, px: f64, s: &Columns, i: usize, colour: &str) {
    let (Some(low), Some(high)) = (number(&s.low, i), number(&s.high, i)) else {
        return;
    };
    let (bottom, top) = (p.y.within(low), p.y.within(high));
    let _ = writeln!(
        p.body,
        "<path d=\"M{:.1} {top:.1}h6M{px:.1} {top:.1}V{bottom:.1}M{:.1} {bottom:.1}h6\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"/>",
        px - 3.0,
        px - 3.0
    );
}

fn lines(p: &mut Picture<'_>) {
    let series = p.series;
    for (n, s) in series.iter().enumerate() {
        let (colour, dash) = (p.colour(n), p.dash(n));
        let x = xs(s);
        let few = x.len() <= FEW;
        let place = |p: &Picture<'_>, i: usize| Some((p.x.at(x[i])?, p.y.at(number(&s.y, i)?)?));
        let mut stretch: Vec<(usize, f64, f64)> = Vec::new();
        for i in 0..=x.len() {
            let here = if i < x.len() { place(p, i) } else { None };
            if let Some((px, py)) = here {
                stretch.push((i, px, py));
                continue;
            }
            unbroken(p, s, &stretch, &colour, dash, few);
            stretch.clear();
        }
    }
}

/// One stretch of a line without a gap, with its band.
fn unbroken(
    p: &mut Picture<'_>,
    s: &Columns,
    stretch: &[(usize, f64, f64)],
    colour: &str,
    dash: &str,
    few: bool,
) {
    let banded: Vec<(f64, f64, f64)> = stretch
        .iter()
        .filter_map(|(i, px, _)| {
            let (low, high) = (number(&s.low, *i)?, number(&s.high, *i)?);
            Some((*px, p.y.within(low), p.y.within(high)))
        })
        .collect();
    if banded.len() > 1 {
        let up = banded.iter().map(|b| format!("{:.1} {:.1}", b.0, b.2));
        let down = banded
            .iter()
            .rev()
            .map(|b| format!("{:.1} {:.1}", b.0, b.1));
        let d: Vec<String> = up.chain(down).collect();
        let _ = writeln!(
            p.body,
            "<path d=\"M{}Z\" fill=\"{colour}\" fill-opacity=\"0.15\"/>",
            d.join("L")
        );
    }
    if stretch.len() > 1 {
        let d: Vec<String> = stretch
            .iter()
            .map(|(_, px, py)| format!("{px:.1} {py:.1}"))
            .collect();
        let width = if few { 2.0 } else { 1.4 };
        let _ = writeln!(
            p.body,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dash}/>",
            d.join("L")
        );
    }
    for (i, px, py) in stretch {
        p.points.push((*px, *py));
        if few || stretch.len() == 1 {
            let _ = writeln!(
                p.body,
                "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"2.8\" fill=\"{colour}\"/>"
            );
            whisker(p, *px, s, *i, colour);
        }
        if few
            && p.series.len() <= 3
            && let Some(Some(label)) = s.label.get(*i)
        {
            guides::point(p, *px, *py, label);
        }
    }
}

fn points(p: &mut Picture<'_>) {
    let series = p.series;
    for (n, s) in series.iter().enumerate() {
        let colour = p.colour(n);
        let x = xs(s);
        let labels = x.len() <= 24;
        let radius = if x.len() > 200 { 2 } else { 4 };
        for (i, x) in x.iter().enumerate() {
            let (Some(px), Some(py)) = (p.x.at(*x), number(&s.y, i).and_then(|y| p.y.at(y))) else {
                continue;
            };
            whisker(p, px, s, i, &colour);
            let _ = writeln!(
                p.body,
                "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"{radius}\" fill=\"{colour}\" fill-opacity=\"0.75\" stroke=\"#fff\" stroke-width=\"0.6\"/>"
            );
            p.points.push((px, py));
            if let (true, Some(Some(label))) = (labels, s.label.get(i)) {
                guides::point(p, px, py, label);
            }
        }
    }
}

fn bars(p: &mut Picture<'_>, layout: &Layout, bottom: f64, stacked: bool) {
    let Some(step) = p.x.band() else { return };
    let series = p.series;
    let shown = series.len().max(1) as f64;
    let inner = (step * 0.78).min(if stacked { 64.0 } else { 44.0 * shown });
    let width = if stacked { inner } else { inner / shown };
    let mut tops = vec![0.0; layout.x_bands.as_ref().map_or(0, Vec::len)];
    for (n, s) in series.iter().enumerate() {
        let colour = p.colour(n);
        for (i, x) in xs(s).into_iter().enumerate() {
            let band = layout.band_of(x);
            let (Some(middle), Some(top)) = (p.x.at(band as f64), tops.get_mut(band)) else {
                continue;
            };
            let slot = if stacked { 0.0 } else { n as f64 * width };
            let left = middle - inner / 2.0 + slot;
            let Some(y) = number(&s.y, i) else {
                if !stacked {
                    let style = format!("font-size=\"14\" font-weight=\"700\" fill=\"{SOFT}\"");
                    p.text(left + width / 2.0, bottom - 6.0, "middle", &style, HOLE);
                }
                continue;
            };
            let (from, to) = if stacked { (*top, *top + y) } else { (0.0, y) };
            *top = to;
            let (a, b) = (p.y.within(from), p.y.within(to));
            let gap = if stacked {
                0.0
            } else {
                (width * 0.12).min(2.0)
            };
            let _ = writeln!(
                p.body,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                left + gap / 2.0,
                a.min(b),
                (width - gap).max(1.0),
                (a - b).abs().max(0.5)
            );
            let value = || format::value(y, &p.spec.y.unit);
            if stacked && (a - b).abs() > 15.0 && width > 44.0 {
                let text = value();
                let ink = if series.len() <= ON.len() {
                    ON[n]
                } else {
                    "#fff"
                };
                let on = format!("font-size=\"11\" fill=\"{ink}\"");
                p.text(
                    left + width / 2.0,
                    (a + b) / 2.0 + 4.0,
                    "middle",
                    &on,
                    &text,
                );
            }
            if !stacked {
                whisker(p, left + width / 2.0, s, i, "#1b1d21");
            }
        }
    }
}

fn cells(p: &mut Picture<'_>, layout: &Layout) {
    let (low, high) = layout.z.unwrap_or((0.0, 1.0));
    let log = p.spec.z.as_ref().is_some_and(|z| z.log) && low > 0.0;
    let unit = p.spec.z.as_ref().map_or("", |z| z.unit.as_str()).to_owned();
    let share = |v: f64| match (high > low, log) {
        (false, _) => 1.0,
        (true, true) => (v / low).ln() / (high / low).ln(),
        (true, false) => (v - low) / (high - low),
    };
    let span = |scale: &Scale, values: Option<&Vec<f64>>, v: f64, half: f64, log: bool| {
        if let Some(band) = scale.band() {
            let at = match values {
                Some(all) => all.iter().position(|w| *w == v)? as f64,
                None => v,
            };
            let middle = scale.at(at)?;
            return Some((middle - band / 2.0, middle + band / 2.0));
        }
        let end = |sign: f64| {
            if log {
                (v.ln() + sign * half).exp()
            } else {
                v + sign * half
            }
        };
        let (a, b) = (scale.within(end(-1.0)), scale.within(end(1.0)));
        Some((a.min(b), a.max(b)))
    };
    let series = p.series;
    for s in series {
        for (i, x) in xs(s).into_iter().enumerate() {
            let Some(y) = number(&s.y, i) else { continue };
            let across = span(
                &p.x,
                layout.x_values.as_ref(),
                x,
                layout.half.0,
                layout.x_log,
            );
            let upright = span(
                &p.y,
                layout.y_values.as_ref(),
                y,
                layout.half.1,
                layout.y_log,
            );
            let (Some((a, b)), Some((c, d))) = (across, upright) else {
                continue;
            };
            let z = number(&s.z, i);
            let colour = z.map_or("#ececea".to_owned(), |z| mix(&HEAT, share(z)));
            let gap = if b - a > 8.0 { 1.0 } else { -0.3 };
            let _ = writeln!(
                p.body,
                "<rect x=\"{a:.1}\" y=\"{c:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                (b - a - gap).max(0.6),
                (d - c - gap).max(0.6)
            );
            let text = format::optional(z, &unit);
            if b - a > text.chars().count() as f64 * LETTER + 4.0 && d - c > 14.0 {
                let ink = match z {
                    Some(z) if share(z) > 0.5 => "#fff",
                    Some(_) => "#000",
                    None => SOFT,
                };
                let style = format!("font-size=\"11\" fill=\"{ink}\"");
                p.text((a + b) / 2.0, (c + d) / 2.0 + 4.0, "middle", &style, &text);
            }
        }
    }
}
