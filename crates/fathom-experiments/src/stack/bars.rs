//! The stacked bars: one chart for each depth, because latencies of several outstanding I/Os would press the
//! others flat, and bars named by what tells the cases apart.

use fathom_bench::parts::axis;
use fathom_io::job::Rw;
use fathom_telemetry::schema::{Chart, ChartKind, ChartSeries, Point};

use super::StackCase;

/// The first chart's name.
const LAYERS: &str = "stack-layers";

/// The chart in which a case stands.
pub(super) fn place(cases: &[StackCase], case: &StackCase) -> String {
    let (first, own) = (
        cases.first().and_then(|c| depth(&c.name)),
        depth(&case.name),
    );
    match own.filter(|_| own != first) {
        Some(d) => format!("{LAYERS}-{d}"),
        None => LAYERS.into(),
    }
}

/// The charts, in the order of the cases.
pub(super) fn of(cases: &[StackCase]) -> Vec<Chart> {
    let mut depths: Vec<Option<&str>> = Vec::new();
    for case in cases {
        let depth = depth(&case.name);
        if !depths.contains(&depth) {
            depths.push(depth);
        }
    }
    let several = depths.len() > 1;
    depths
        .into_iter()
        .enumerate()
        .map(|(i, of)| {
            let cases: Vec<&StackCase> = cases.iter().filter(|c| depth(&c.name) == of).collect();
            chart(i, of.filter(|_| several), &cases)
        })
        .collect()
}

/// `qd32` of a case's name.
fn depth(name: &str) -> Option<&str> {
    name.split('-').find(|w| w.starts_with("qd"))
}

fn chart(i: usize, depth: Option<&str>, cases: &[&StackCase]) -> Chart {
    let ways = cases
        .iter()
        .map(|c| c.layers.iter().map(|l| l.name.as_str()));
    let layers = in_order(ways);
    let title = "Mean latency by layer";
    Chart {
        id: match depth.filter(|_| i > 0) {
            Some(d) => format!("{LAYERS}-{d}"),
            None => LAYERS.into(),
        },
        title: match depth.map(|d| &d[2..]) {
            None => title.into(),
            Some("1") => format!("{title}, one outstanding"),
            Some(n) => format!("{title}, {n} outstanding"),
        },
        kind: ChartKind::StackedBar,
        x: axis("case", "", false),
        y: axis("latency", "ns", false),
        z: None,
        categories: labels(&cases.iter().map(|c| c.name.as_str()).collect::<Vec<_>>()),
        series: layers
            .iter()
            .map(|name| ChartSeries {
                name: (*name).to_owned(),
                points: cases
                    .iter()
                    .enumerate()
                    .filter_map(|(x, c)| {
                        let layer = c.layers.iter().find(|l| l.name == *name)?;
                        Some(Point {
                            x: x as f64,
                            y: Some(layer.mean_ns.max(0.0)),
                            ..Point::default()
                        })
                    })
                    .collect(),
            })
            .collect(),
        marks: Vec::new(),
    }
}

/// Every layer once, in the order of an I/O's way: one that other cases lack stands after its neighbour.
fn in_order<'a>(ways: impl Iterator<Item = impl Iterator<Item = &'a str>>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for way in ways {
        let mut at = 0;
        for name in way {
            match all.iter().position(|n| *n == name) {
                Some(i) => at = i + 1,
                None => {
                    all.insert(at, name);
                    at += 1;
                }
            }
        }
    }
    all
}

/// Names without the words that all of them have; one alone keeps its own.
fn labels(names: &[&str]) -> Vec<String> {
    let words: Vec<Vec<&str>> = names.iter().map(|n| n.split('-').collect()).collect();
    let common = |w: &str| names.len() > 1 && words.iter().all(|all| all.contains(&w));
    words
        .iter()
        .map(|all| {
            let own: Vec<&str> = all.iter().copied().filter(|w| !common(w)).collect();
            own.join(" ")
        })
        .collect()
}

/// A case's name in words: `random reads, 1 outstanding (direct, uring)`.
pub(super) fn in_words(name: &str) -> String {
    let parts = || {
        let (rw, rest) = name.split_once("-qd")?;
        let (depth, how) = rest.split_once('-')?;
        Some((rw.parse::<Rw>().ok()?, depth, how))
    };
    parts().map_or_else(
        || name.to_owned(),
        |(rw, depth, how)| {
            let how = how.replace('-', ", ");
            format!("{}, {depth} outstanding ({how})", rw.loads())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_named_by_what_tells_them_apart() {
        assert_eq!(
            labels(&["randread-qd1-direct-uring", "randread-qd1-direct-preadv"]),
            ["uring", "preadv"]
        );
        assert_eq!(
            labels(&["randread-qd1-direct-uring"]),
            ["randread qd1 direct uring"]
        );
        assert_eq!(
            labels(&["randread-qd1-direct-uring", "randwrite-qd1-buffered-uring"]),
            ["randread direct", "randwrite buffered"]
        );
        let ways = [
            vec!["ring", "queue", "device"],
            vec!["call", "queue", "irq", "device", "back"],
        ];
        let all = in_order(ways.iter().map(|w| w.iter().copied()));
        assert_eq!(all, ["call", "ring", "queue", "irq", "device", "back"]);
        assert_eq!(depth("randread-qd32-direct-uring"), Some("qd32"));
        assert_eq!(depth("host-pid-7"), None);
        assert_eq!(
            in_words("randread-qd32-direct-uring-polled"),
            "random reads, 32 outstanding (direct, uring, polled)"
        );
        assert_eq!(in_words("host-pid-7"), "host-pid-7");
    }
}
