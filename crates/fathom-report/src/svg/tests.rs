//! Pictures of every kind of chart: well-formed, no hole drawn as 0, no text that is markup.

use super::*;
use crate::html::spec::{axis, own};

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
                let text = picture(&spec, "simulated");
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
fn a_hole_is_a_gap_in_the_line_and_a_dash_among_bars() {
    let line = picture(&chart(ChartKind::Line, true), "");
    // Two lines of three points, one broken by its hole: one path with two steps, none with one.
    let paths = line.matches("fill=\"none\" stroke=\"#0072b2\"").count();
    assert_eq!(paths, 0, "{line}");
    assert_eq!(
        line.matches("fill=\"none\" stroke=\"#d55e00\"").count(),
        1,
        "{line}"
    );
    assert!(picture(&chart(ChartKind::Bar, false), "").contains(">—<"));
}

#[test]
fn a_chart_without_values_says_so() {
    let mut spec = chart(ChartKind::Line, false);
    spec.series = vec![columns("read", &[(1.0, None)])];
    let text = picture(&spec, "");
    well_formed(&text);
    assert!(text.contains("nothing could be measured here"), "{text}");
    spec.series.clear();
    well_formed(&picture(&spec, ""));
}
