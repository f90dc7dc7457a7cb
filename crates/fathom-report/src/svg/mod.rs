//! Charts as pictures: one SVG file each, without a browser, for papers, wikis and slides.
//!
//! Draws the same charts as the page, always light, from the same numbers. What a page can do and a
//! picture cannot (hover, other jobs, the table) stays in `report.html`.

mod guides;
mod marks;
mod scale;

use std::fmt::Write as _;

use fathom_telemetry::schema::ChartKind;

use crate::data::ReportData;
use crate::error::ReportError;
use crate::exporter::Exporter;
use crate::format;
use crate::html::escape::Esc;
use crate::html::spec::{Abscissa, Columns, Num, Spec};
use crate::output::{Output, file_name, written};
use crate::text::{fit, fit_middle};
use scale::{Labels, Scale};

/// Size of a picture; its legend comes below.
pub(crate) const WIDTH: f64 = 860.0;
const PLOT_HEIGHT: f64 = 420.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 58.0;
/// Height of a legend's line.
const LINE: f64 = 20.0;
/// About the width of a letter at the legend's size, for placing without a font.
const LETTER: f64 = 6.7;

const INK: &str = "#1b1d21";
const SOFT: &str = "#5b6069";
const RULE: &str = "#e3e3df";
const RULE_STRONG: &str = "#c9c9c3";
/// The page's colours in light; eight that colour-blind readers tell apart.
const PALETTE: [&str; 8] = [
    "#0072b2", "#d55e00", "#00866a", "#b5548f", "#b67f00", "#3797d2", "#6b6f76", "#7a3b12",
];
/// Text on bars of these colours.
const ON: [&str; 8] = [
    "#fff", "#000", "#fff", "#fff", "#000", "#000", "#fff", "#fff",
];
/// Ends and middle of the ramp for more series, and of heat maps.
const RAMP: [[f64; 3]; 3] = [
    [18.0, 61.0, 140.0],
    [194.0, 55.0, 123.0],
    [208.0, 127.0, 16.0],
];
const HEAT: [[f64; 3]; 3] = [
    [227.0, 237.0, 247.0],
    [42.0, 122.0, 181.0],
    [8.0, 38.0, 79.0],
];

/// The exporter.
pub(crate) struct Svg;

impl Exporter for Svg {
    fn name(&self) -> &'static str {
        "svg"
    }
    fn about(&self) -> &'static str {
        "every chart as a picture (chart-ID.svg)"
    }
    fn export(&self, data: &ReportData, out: &mut dyn Output) -> Result<(), ReportError> {
        let (charts, stamp) = crate::html::charts(data)?;
        let run = &data.run;
        let started = format::moment(&run.started);
        let source = format!("fathom {}: {}, {started}", run.command, run.target.place());
        for chart in &charts {
            let name = file_name("chart-", &chart.anchor, "svg");
            let text = picture(chart, stamp, &source);
            out.file(&name, &mut |w| written(&name, w.write_all(text.as_bytes())))?;
        }
        Ok(())
    }
}

/// One chart under construction.
struct Picture<'a> {
    spec: &'a Spec,
    series: &'a [Columns],
    x: Scale,
    y: Scale,
    body: String,
    /// Where text stands inside the axes, and where points do.
    texts: Vec<guides::Area>,
    points: Vec<(f64, f64)>,
}

/// A series' x values.
fn xs(s: &Columns) -> Vec<f64> {
    match &s.x {
        Abscissa::Each(all) => all.iter().map(|n| n.0).collect(),
        Abscissa::Even { step, n } => (0..*n).map(|i| i as f64 * step.0).collect(),
    }
}

/// A value of a column; a hole where there is none.
fn number(column: &[Option<Num>], i: usize) -> Option<f64> {
    column.get(i).copied().flatten().map(|n| n.0)
}

fn mix(stops: &[[f64; 3]; 3], t: f64) -> String {
    let t = t.clamp(0.0, 1.0) * 2.0;
    let (a, b, u) = if t < 1.0 {
        (stops[0], stops[1], t)
    } else {
        (stops[1], stops[2], t - 1.0)
    };
    let part = |i: usize| (a[i] + (b[i] - a[i]) * u).round() as u8;
    format!("#{:02x}{:02x}{:02x}", part(0), part(1), part(2))
}

impl Picture<'_> {
    fn colour(&self, index: usize) -> String {
        let n = self.series.len();
        if n <= PALETTE.len() {
            return PALETTE[index % PALETTE.len()].to_owned();
        }
        mix(&RAMP, index as f64 / (n - 1) as f64)
    }

    fn dash(&self, index: usize) -> &'static str {
        const DASHES: [&str; 4] = [
            "",
            " stroke-dasharray=\"7 4\"",
            " stroke-dasharray=\"2 3\"",
            " stroke-dasharray=\"9 3 2 3\"",
        ];
        // As in the page: over time, dashes would be lost in the noise.
        let noisy = self.spec.group.is_some() && self.series.len() <= PALETTE.len();
        DASHES[if noisy { index / 4 } else { index } % DASHES.len()]
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, style: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{}</text>",
            Esc(text)
        );
    }
}

/// A chart as an SVG document. `stamp` is the word across charts that are no measurement, `source` what a picture
/// without its page must say itself: which run it is of.
pub(crate) fn picture(spec: &Spec, stamp: &str, source: &str) -> String {
    let variant = spec.variants.get(spec.initial);
    let series: &[Columns] = variant.map_or(&spec.series, |v| &v.series);
    let layout = marks::Layout::of(spec, series);
    let (right, bottom) = (
        WIDTH - RIGHT,
        TOP + PLOT_HEIGHT - BOTTOM - layout.label_room(),
    );
    let mut p = Picture {
        spec,
        series,
        x: layout.x_scale((LEFT, right)),
        y: layout.y_scale((bottom, TOP)),
        body: String::new(),
        texts: Vec::new(),
        points: Vec::new(),
    };
    let mut title = spec.title.clone();
    if let Some(v) = variant {
        let _ = write!(title, ": {}", fit_middle(&v.job, 48));
        if let Some(against) = v.stamp {
            let _ = write!(title, " ({against})");
        }
    }
    p.text(
        14.0,
        26.0,
        "start",
        &format!("font-size=\"16\" font-weight=\"600\" fill=\"{INK}\""),
        &title,
    );
    axes(&mut p, &layout, bottom);
    if layout.empty() {
        p.text(
            (LEFT + right) / 2.0,
            (TOP + bottom) / 2.0,
            "middle",
            &format!("font-size=\"13\" fill=\"{SOFT}\""),
            "nothing could be measured here",
        );
    } else {
        p.body.push_str("<g clip-path=\"url(#inside)\">\n");
        marks::draw(&mut p, &layout, bottom);
        p.body.push_str("</g>\n");
        guides::draw(&mut p, bottom);
    }
    if !stamp.is_empty() {
        let (x, y) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        let style = format!(
            "font-size=\"44\" font-weight=\"700\" letter-spacing=\"4\" fill=\"#963c14\" fill-opacity=\"0.13\" transform=\"rotate(-14 {x:.0} {y:.0})\""
        );
        p.text(x, y, "middle", &style, &stamp.to_uppercase());
    }
    let mut height = legend(&mut p, &layout, TOP + PLOT_HEIGHT + 4.0);
    if !source.is_empty() {
        height += LINE;
        let style = format!("font-size=\"10.5\" fill=\"{SOFT}\"");
        p.text(right, height - 7.0, "end", &style, &fit(source, 120));
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         font-family=\"system-ui, 'Segoe UI', 'Noto Sans', 'Liberation Sans', Arial, sans-serif\" font-size=\"12\">\n\
         <title>{}</title>\n<clipPath id=\"inside\"><rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/></clipPath>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
        Esc(&title),
        TOP - 4.0,
        right - LEFT,
        bottom - TOP + 8.0,
        p.body
    )
}

fn axes(p: &mut Picture<'_>, layout: &marks::Layout, bottom: f64) {
    let right = WIDTH - RIGHT;
    let spec = p.spec;
    let small = format!("fill=\"{SOFT}\"");
    let ticks = p.y.ticks(6, &spec.y.unit, &layout.ys);
    let y_labels = Labels::of(&ticks, &spec.y.unit, layout.y_log);
    for v in &ticks {
        let Some(py) = p.y.at(*v) else { continue };
        let text = match &layout.y_bands {
            Some(names) => names.get(*v as usize).cloned().unwrap_or_default(),
            None => {
                let colour = if *v == 0.0 { RULE_STRONG } else { RULE };
                let _ = writeln!(
                    p.body,
                    "<path d=\"M{LEFT} {py:.1}H{right}\" stroke=\"{colour}\"/>"
                );
                y_labels.text(*v)
            }
        };
        p.text(LEFT - 8.0, py + 4.0, "end", &small, &text);
    }
    let ticks = p.x.ticks(8, &spec.x.unit, &layout.xs);
    let x_labels = Labels::of(&ticks, &spec.x.unit, layout.x_log);
    let mut last = f64::NEG_INFINITY;
    for v in &ticks {
        let Some(px) = p.x.at(*v) else { continue };
        match &layout.x_bands {
            Some(names) => {
                let name = names.get(*v as usize).cloned().unwrap_or_default();
                if layout.slanted() {
                    // A slanted name leans to the left, where the picture ends.
                    let room = ((px + 4.0) / (LETTER * 0.85)) as usize;
                    let name = fit(&name, room.clamp(6, 24));
                    let (x, y) = (px + 4.0, bottom + 15.0);
                    let turn = format!("{small} transform=\"rotate(-32 {x:.1} {y:.1})\"");
                    p.text(x, y, "end", &turn, &name);
                } else {
                    p.text(px, bottom + 17.0, "middle", &small, &name);
                }
            }
            None => {
                let _ = writeln!(
                    p.body,
                    "<path d=\"M{px:.1} {bottom:.1}v4\" stroke=\"{RULE_STRONG}\"/>"
                );
                let text = x_labels.text(*v);
                let half = text.chars().count() as f64 * LETTER / 2.0 + 3.0;
                if px - half > last {
                    p.text(px, bottom + 18.0, "middle", &small, &text);
                    last = px + half;
                }
            }
        }
    }
    let _ = writeln!(
        p.body,
        "<path d=\"M{LEFT} {bottom:.1}H{right}\" stroke=\"{RULE_STRONG}\"/>"
    );
    let ink = format!("fill=\"{INK}\"");
    let name = axis_name(&spec.y.label, &layout.y_bands, &y_labels);
    p.text(14.0, 48.0, "start", &ink, &name);
    let name = axis_name(&spec.x.label, &layout.x_bands, &x_labels);
    p.text(right, TOP + PLOT_HEIGHT - 10.0, "end", &ink, &name);
}

/// What an axis shows, with the unit of its labels; bands have none.
fn axis_name(label: &str, bands: &Option<Vec<String>>, labels: &Labels) -> String {
    match labels.suffix.as_str() {
        "" => label.to_owned(),
        _ if bands.is_some() => label.to_owned(),
        // "k IOPS" names itself.
        s if s.ends_with(label) => s.to_owned(),
        s => format!("{label} ({s})"),
    }
}

/// Names of the series below the chart; the height of the whole picture.
fn legend(p: &mut Picture<'_>, layout: &marks::Layout, top: f64) -> f64 {
    if p.spec.kind == ChartKind::Heatmap {
        let Some((low, high)) = layout.z else {
            return top + 8.0;
        };
        let axis = p.spec.z.as_ref();
        let unit = axis.map_or("", |z| z.unit.as_str());
        for i in 0..40 {
            let colour = mix(&HEAT, f64::from(i) / 39.0);
            let _ = writeln!(
                p.body,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"4.5\" height=\"10\" fill=\"{colour}\"/>",
                300.0 + 4.0 * f64::from(i),
                top + 4.0
            );
        }
        let ink = format!("fill=\"{INK}\"");
        let label = axis.map_or("", |z| z.label.as_str());
        let value = |v| crate::format::value(v, unit);
        p.text(
            292.0,
            top + 13.0,
            "end",
            &ink,
            &format!("{label}  {}", value(low)),
        );
        p.text(468.0, top + 13.0, "start", &ink, &value(high));
        return top + 30.0;
    }
    let only_title =
        p.series.len() == 1 && (p.series[0].name.is_empty() || p.series[0].name == p.spec.title);
    if p.series.is_empty() || only_title {
        return top + 8.0;
    }
    let (mut x, mut y) = (LEFT, top + 12.0);
    let ink = format!("fill=\"{INK}\"");
    for (i, s) in p.series.iter().enumerate() {
        let name: String = s.name.chars().take(90).collect();
        let width = name.chars().count() as f64 * LETTER + 42.0;
        if x > LEFT && x + width > WIDTH - RIGHT {
            x = LEFT;
            y += LINE;
        }
        let colour = p.colour(i);
        let key = if p.spec.kind == ChartKind::Line {
            format!(
                "<path d=\"M{x:.1} {:.1}h20\" stroke=\"{colour}\" stroke-width=\"2\"{}/>",
                y - 4.0,
                p.dash(i)
            )
        } else {
            format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{colour}\"/>",
                x + 6.0,
                y - 9.0
            )
        };
        p.body.push_str(&key);
        p.text(x + 26.0, y, "start", &ink, &name);
        x += width;
    }
    y + 16.0
}

#[cfg(test)]
mod tests;
