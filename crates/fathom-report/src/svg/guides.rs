//! Names inside the axes: of points, and of marks across the chart (the knee, a published value). What would
//! cover other text finds another place or is left out; the rules of `assets/chart.js`.

use std::fmt::Write as _;

use super::{INK, LEFT, LETTER, Picture, RIGHT, SOFT, TOP, WIDTH};

/// Left, top, right and bottom of a text.
pub(super) type Area = [f64; 4];

/// Keeps text readable on lines.
const HALO: &str = "paint-order=\"stroke\" stroke=\"#fff\" stroke-width=\"3\"";
/// Width of a letter at the size of these names.
const SMALL_LETTER: f64 = LETTER * 11.0 / 12.0;

fn overlap(a: &Area, b: &Area) -> bool {
    a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1]
}

/// A place for a text: where it begins (or ends), and what it covers.
struct Place {
    x: f64,
    y: f64,
    end: bool,
    area: Area,
}

impl Place {
    fn of(text: &str, x: f64, y: f64, end: bool) -> Self {
        let width = text.chars().count() as f64 * SMALL_LETTER;
        let left = if end { x - width } else { x };
        Self {
            x,
            y,
            end,
            area: [left, y - 10.0, left + width, y + 3.0],
        }
    }

    fn anchor(&self) -> &'static str {
        if self.end { "end" } else { "start" }
    }
}

/// Text beside a point, unless it would cover other text.
pub(super) fn point(p: &mut Picture<'_>, px: f64, py: f64, text: &str) {
    let room = text.chars().count() as f64 * SMALL_LETTER + 8.0;
    let place = if px + room > WIDTH - RIGHT {
        Place::of(text, px - 7.0, py - 3.0, true)
    } else {
        Place::of(text, px + 6.0, py - 7.0, false)
    };
    if p.texts.iter().any(|t| overlap(t, &place.area)) {
        return;
    }
    let style = format!("font-size=\"10.5\" fill=\"{SOFT}\" {HALO}");
    p.text(place.x, place.y, place.anchor(), &style, text);
    p.texts.push(place.area);
}

/// The marks, and their names where they cover neither points nor other text.
pub(super) fn draw(p: &mut Picture<'_>, bottom: f64) {
    let right = WIDTH - RIGHT;
    let style = format!("stroke=\"{INK}\" stroke-dasharray=\"4 3\" stroke-opacity=\"0.65\"");
    let marks = &p.spec.marks;
    for m in marks {
        let mut places = Vec::new();
        if let Some(px) = m.x.and_then(|v| p.x.at(v))
            && (LEFT - 1.0..=right + 1.0).contains(&px)
        {
            let _ = writeln!(p.body, "<path d=\"M{px:.1} {TOP}V{bottom:.1}\" {style}/>");
            let first = px > (LEFT + right) / 2.0;
            let rows = (0..6).map(|row| TOP + 10.0 + 13.0 * f64::from(row));
            let rows = rows.chain((0..3).map(|row| bottom - 6.0 - 13.0 * f64::from(row)));
            for y in rows {
                for end in [first, !first] {
                    let x = if end { px - 5.0 } else { px + 5.0 };
                    places.push(Place::of(&m.label, x, y, end));
                }
            }
        }
        if let Some(py) = m.y.and_then(|v| p.y.at(v))
            && (TOP - 1.0..=bottom + 1.0).contains(&py)
        {
            let _ = writeln!(p.body, "<path d=\"M{LEFT} {py:.1}H{right}\" {style}/>");
            for (x, end) in [(right - 4.0, true), (LEFT + 4.0, false)] {
                places.extend([py - 5.0, py + 13.0].map(|y| Place::of(&m.label, x, y, end)));
            }
        }
        let best = places
            .into_iter()
            .min_by_key(|place| covered(p, &place.area, bottom));
        if let Some(place) = best {
            let style = format!("font-size=\"11\" fill=\"{INK}\" {HALO}");
            p.text(place.x, place.y, place.anchor(), &style, &m.label);
            p.texts.push(place.area);
        }
    }
}

/// How bad it is to write there: leaving the chart, covering text, covering points.
fn covered(p: &Picture<'_>, area: &Area, bottom: f64) -> usize {
    let [left, top, right, low] = *area;
    let outside = left < LEFT || right > WIDTH || top < 0.0 || low > bottom;
    let texts = p.texts.iter().filter(|t| overlap(t, area)).count();
    let near = |(x, y): &&(f64, f64)| {
        (left - 4.0..right + 4.0).contains(x) && (top - 4.0..low + 4.0).contains(y)
    };
    let points = p.points.iter().filter(near).count();
    1000 * usize::from(outside) + 100 * texts + points.min(50)
}
