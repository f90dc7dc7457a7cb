//! Pictures of every kind of chart: well-formed, no hole drawn as 0, no text that is markup.

use super::*;
use crate::html::spec::{Variant, axis, own};

fn columns(name: &str, points: &[(f64, Option<f64>)]) -> Columns {
    Columns {
        name: name.to_owned(),
        x: points.iter().map(|p| p.0).collect(),
        y: points.iter().map(|p| p.1.map(Num)).collect(),
        z: points.iter().map(|p| p.1.map(Num)).collect(),
        ..Columns::default()
    }
}

fn chart(kind: ChartKind, log: bool) -> Spec {
    let x = axis("queue depth", "", true);
    let mut spec = own(
        "A <b>title</b> & more".to_owned(),
        kind,
        x,
        axis("latency", "ns", log),
    );
    spec.series = vec![
        columns(
            "read",
            &[(1.0, Some(10_000.0)), (2.0, None), (4.0, Some(40_000.0))],
        ),
        columns(
            "write",
            &[(1.0, Some(20_000.0)), (2.0, Some(1.0)), (4.0, Some(9e6))],
        ),
    ];
    spec.anchor = "a".to_owned();
    spec
}

/// Every element that is opened is closed, in order.
fn well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '/', '\n']).find(|n| !n.is_empty()).unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{svg}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn every_kind_of_chart_is_a_picture() {
    use ChartKind::{Bar, Heatmap, Line, Scatter, StackedBar};
    for kind in [Line, Scatter, Bar, StackedBar, Heatmap] {
        for log in [false, true] {
            for categories in [false, true] {
                let mut spec = chart(kind, log);
                if categories {
                    spec.x = axis("case", "", false);
                    spec.categories = (0..5).map(|i| format!("a long name of case {i}")).collect();
                }
                let text = picture(&spec, "simulated", "fathom survey: /srv/data");
                well_formed(&text);
                assert!(
                    !text.contains("NaN") && !text.contains("inf"),
                    "{kind:?} {text}"
                );
                assert!(
                    text.contains("A &lt;b&gt;title&lt;/b&gt; &amp; more"),
                    "{text}"
                );
                assert!(text.contains(">SIMULATED<"), "{text}");
            }
        }
    }
}

#[test]
fn a_picture_without_its_page_says_which_run_and_job_it_is_of() {
    let mut spec = chart(ChartKind::Line, false);
    spec.variants = ["first", "second"]
        .map(|job| Variant {
            job: job.to_owned(),
            series: vec![columns("read", &[(0.0, Some(1.0)), (1.0, Some(2.0))])],
            stamp: (job == "second").then_some("not steady"),
            span: Num(1.0),
        })
        .into();
    spec.initial = 1;
    let text = picture(&spec, "", "fathom run: /srv/<data>");
    well_formed(&text);
    assert!(text.contains("more: second (not steady)</text>"), "{text}");
    assert!(text.contains(">fathom run: /srv/&lt;data&gt;<"), "{text}");
}

#[test]
fn a_hole_is_a_gap_in_the_line_and_a_dash_among_bars() {
    let line = picture(&chart(ChartKind::Line, true), "", "");
    // Two lines of three points, one broken by its hole: one path with two steps, none with one.
    let paths = line.matches("fill=\"none\" stroke=\"#0072b2\"").count();
    assert_eq!(paths, 0, "{line}");
    assert_eq!(
        line.matches("fill=\"none\" stroke=\"#d55e00\"").count(),
        1,
        "{line}"
    );
    assert!(picture(&chart(ChartKind::Bar, false), "", "").contains(">—<"));
}

#[test]
fn a_chart_without_values_says_so() {
    let mut spec = chart(ChartKind::Line, false);
    spec.series = vec![columns("read", &[(1.0, None)])];
    let text = picture(&spec, "", "");
    well_formed(&text);
    assert!(text.contains("nothing could be measured here"), "{text}");
    spec.series.clear();
    well_formed(&picture(&spec, "", ""));
}

/// Values of the page's variables in one theme: the block that begins with `selector`.
fn theme(selector: &str) -> std::collections::BTreeMap<String, String> {
    let css = include_str!("../../assets/report.css");
    let (_, block) = css.split_once(selector).expect("the theme is there");
    let (block, _) = block.split_once('}').unwrap();
    block
        .split(';')
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .filter(|(name, _)| name.starts_with("--"))
        .collect()
}

#[test]
fn pictures_have_the_pages_colours_and_the_dark_theme_is_the_same_twice() {
    let light = theme("\n:root {");
    for (i, colour) in PALETTE.iter().enumerate() {
        assert_eq!(light[&format!("--s{}", i + 1)], *colour);
        assert_eq!(light[&format!("--on-{}", i + 1)], ON[i]);
    }
    let hex = |c: &[f64; 3]| format!("#{:02x}{:02x}{:02x}", c[0] as u8, c[1] as u8, c[2] as u8);
    for i in 0..3 {
        assert_eq!(light[&format!("--ramp-{}", i + 1)], hex(&RAMP[i]));
        assert_eq!(light[&format!("--heat-{i}")], hex(&HEAT[i]));
    }
    assert_eq!(
        [INK, SOFT, RULE, RULE_STRONG],
        ["--ink", "--soft", "--rule", "--rule-strong"].map(|n| light[n].as_str())
    );
    let dark = theme(":root:not([data-theme=\"light\"]) {");
    assert_eq!(dark, theme(":root[data-theme=\"dark\"] {"));
    assert_eq!(
        dark.keys().collect::<Vec<_>>(),
        light.keys().collect::<Vec<_>>()
    );
}

/// Contrast of two colours as WCAG counts it, 1 to 21.
fn contrast(a: &str, b: &str) -> f64 {
    let luminance = |colour: &str| {
        let hex = colour.trim_start_matches('#');
        let wide = hex.len() == 6;
        let part = |i: usize| {
            let text = if wide {
                &hex[2 * i..2 * i + 2]
            } else {
                &hex[i..=i]
            };
            let v =
                f64::from(u8::from_str_radix(text, 16).unwrap()) / if wide { 255.0 } else { 15.0 };
            if v <= 0.04045 {
                v / 12.92
            } else {
                ((v + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(0) + 0.7152 * part(1) + 0.0722 * part(2)
    };
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    if a > b { a / b } else { b / a }
}

#[test]
fn text_and_lines_have_the_contrast_that_wcag_aa_asks_for_in_every_theme() {
    for selector in [
        "\n:root {",
        ":root[data-theme=\"dark\"] {",
        ":root:not([data-theme=\"light\"]) {\n    --paper: #fff",
    ] {
        let t = theme(selector);
        let of = |a: &str, b: &str| contrast(&t[a], t.get(b).map_or("#fff", String::as_str));
        for ink in ["--ink", "--soft", "--faint", "--accent", "--warn", "--void"] {
            assert!(of(ink, "--paper") >= 4.5, "{ink} in {selector}");
        }
        for (ink, paper) in [
            ("--soft", "--panel"),
            ("--soft", "--warn-paper"),
            ("--warn", "--warn-paper"),
            ("--void", "--void-paper"),
            ("--heat-ink-low", "--heat-0"),
            ("--heat-ink-low", "--heat-1"),
            ("--heat-ink-high", "--heat-1"),
            ("--heat-ink-high", "--heat-2"),
        ] {
            assert!(of(ink, paper) >= 4.5, "{ink} on {paper} in {selector}");
        }
        for i in 1..=8 {
            let colour = format!("--s{i}");
            assert!(of(&colour, "--paper") >= 3.0, "{colour} in {selector}");
            assert!(
                of(&format!("--on-{i}"), &colour) >= 4.5,
                "on {colour} in {selector}"
            );
        }
        for i in 1..=3 {
            assert!(
                of(&format!("--ramp-{i}"), "--paper") >= 3.0,
                "{i} in {selector}"
            );
        }
    }
}

/// Left, top, right and bottom of every text that holds one of the words.
fn areas(svg: &str, words: &[&str]) -> Vec<guides::Area> {
    let attribute = |tag: &str, name: &str| -> f64 {
        let (_, rest) = tag.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    svg.split("<text")
        .skip(1)
        .filter_map(|text| {
            let (tag, rest) = text.split_once('>')?;
            let shown = rest.split('<').next()?;
            words.iter().find(|w| shown.contains(**w))?;
            let (x, y) = (attribute(tag, "x"), attribute(tag, "y"));
            let width = shown.chars().count() as f64 * 6.0;
            let left = if tag.contains("\"end\"") {
                x - width
            } else {
                x
            };
            Some([left, y - 9.0, left + width, y + 2.0])
        })
        .collect()
}

#[test]
fn the_knees_name_stands_clear_of_the_names_of_points() {
    // The deepest points lie above the knee, where its name would stand first.
    for last in [300_000.0, 290_000.0, 310_000.0] {
        let mut spec = chart(ChartKind::Line, true);
        spec.x = axis("IOPS", "1/s", false);
        let points = [
            (20_000.0, Some(50_000.0)),
            (150_000.0, Some(60_000.0)),
            (290_000.0, Some(200_000.0)),
            (last, Some(1_600_000.0)),
        ];
        spec.series = vec![Columns {
            label: ["QD 1", "QD 8", "QD 64", "QD 256"]
                .map(|l| Some(l.to_owned()))
                .into(),
            ..columns("mean", &points)
        }];
        let mark = |x, label: &str| fathom_telemetry::schema::Mark {
            x: Some(x),
            y: None,
            label: label.to_owned(),
        };
        spec.marks = vec![mark(290_000.0, "90 % at QD 64"), mark(last, "maximum")];
        let text = picture(&spec, "", "");
        let areas = areas(&text, &["QD", "maximum"]);
        assert!(areas.len() >= 5, "{text}");
        for (i, a) in areas.iter().enumerate() {
            for b in &areas[i + 1..] {
                let apart = a[0] >= b[2] || a[2] <= b[0] || a[1] >= b[3] || a[3] <= b[1];
                assert!(apart, "{a:?} {b:?}\n{text}");
            }
        }
    }
}
