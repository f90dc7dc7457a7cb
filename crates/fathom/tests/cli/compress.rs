//! `fathom compress` from outside.

use crate::common::{Place, beside_others};
use crate::contract::promised;

#[test]
fn a_sample_that_cannot_be_read_is_refused_before_anything_is_made() {
    let _turn = beside_others();
    for (sample, word) in [("nosuch", "nosuch"), ("empty", "128 KiB")] {
        let place = Place::new();
        std::fs::create_dir(place.dir.join("empty")).unwrap();
        let said = place
            .fathom(&["compress", ".", "--sample", sample])
            .expect(2);
        assert!(said.refusal().contains(word));
        assert_eq!(place.names(), ["empty"]);
    }
    let place = Place::new();
    let said = place
        .fathom(&["compress", ".", "--incompressible", "101"])
        .expect(2);
    assert!(said.refusal().contains("0 to 100"));
}

/// Run by `./test` with nothing beside: how fast codecs are is measured.
mod alone {
    use super::*;
    use crate::common::alone;

    #[test]
    fn codecs_are_held_against_the_device_and_what_follows_is_said() {
        let _turn = alone();
        let place = Place::new();
        let said = place
            .fathom(&[
                "compress",
                "sim:hdd",
                "--incompressible",
                "0",
                "--time",
                "250ms",
                "--json",
            ])
            .expect(0);
        let run = said.json();
        promised(&run);
        assert_eq!(run["simulated"], true);
        let tables = run["sections"][0]["tables"].as_array().unwrap();
        let rows = |id: &str| {
            let table = tables.iter().find(|t| t["id"] == id).unwrap();
            table["rows"].as_array().unwrap().clone()
        };
        let codecs = rows("codecs");
        assert_eq!(codecs.len(), 7);
        for row in &codecs {
            assert!(row[1].as_f64().unwrap() > 1.2, "text packs: {row}");
        }
        // A disk of 200 MB/s is slower than any of these decoders: reads gain up to the ratio.
        for (row, codec) in rows("compression-gains").iter().zip(&codecs) {
            let (gain, ratio) = (
                row[1]["value"].as_f64().unwrap(),
                codec[1].as_f64().unwrap(),
            );
            if codec[0] == "lz4" {
                assert!(gain > 1.0, "{row}");
            }
            assert!(gain < ratio * 1.001, "{row}");
        }
        let ids: Vec<_> = run["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f["id"].as_str().unwrap())
            .collect();
        assert!(ids.contains(&"compression-reads"), "{ids:?}");
    }
}
