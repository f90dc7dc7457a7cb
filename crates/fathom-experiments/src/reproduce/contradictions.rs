//! Where a paper's text contradicts itself: what is printed, which value is used, and why (`docs/contradictions.csv`).

use fathom_bench::parts;
use fathom_telemetry::schema::Section;

use super::published;

const CSV: &str = include_str!("../../../../docs/contradictions.csv");

/// Those of a paper: identifiers of the values, what is printed, what is used instead, and why.
pub fn of(paper: &str) -> Vec<[String; 4]> {
    let lines = CSV.lines().map(published::fields);
    let rows = lines.filter_map(|f| <[String; 5]>::try_from(f).ok());
    let of = rows.filter(|f| f[0] == paper);
    of.map(|[_, ids, printed, used, why]| [ids, printed, used, why])
        .collect()
}

/// A section of the report; `None` where there is nothing to say.
pub fn section(paper: &str) -> Option<Section> {
    let all = of(paper);
    if all.is_empty() {
        return None;
    }
    Some(Section {
        id: "contradictions".into(),
        title: "Where the paper contradicts itself, or leaves a choice".into(),
        text: "What is printed, which value is used, and why.".into(),
        tables: vec![parts::table(
            "contradictions-rows",
            "Values",
            &all,
            &[
                ("values", "", &|c| c[0].as_str().into()),
                ("printed", "", &|c| c[1].as_str().into()),
                ("used", "", &|c| c[2].as_str().into()),
                ("why", "", &|c| c[3].as_str().into()),
            ],
        )],
        ..Section::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::PAPERS;

    #[test]
    fn every_line_belongs_to_a_paper() {
        let read: usize = PAPERS.iter().map(|(paper, _)| of(paper).len()).sum();
        assert_eq!(read, CSV.lines().skip(1).count());
    }
}
