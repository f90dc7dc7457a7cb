//! O'Neill 2018: a key-value store on Optane, and the ceiling that its device sets.

use fathom_io::job::Rw;

use super::{Load, ReproduceError, Role, Row};

pub(super) fn rows() -> Result<Vec<Row>, ReproduceError> {
    let raw = Load::on("sim:optane-900p")?
        .rw(Rw::RandMixed)
        .threads(32)
        .run()?
        .iops;
    // An insert into a full cache reads one page and writes one back.
    let ceiling = fathom_sim::analytic::insert_ceiling(raw, 1.0, 1.0);
    Ok(vec![
        Row::new(
            "O015",
            "Optane performance",
            "raw 4 KiB reads and writes, half each",
            550_000.0,
            raw,
            "ops/s",
            Role::Prediction,
        )
        .note("mix and depth are not stated: half each, 32 threads"),
        Row::new(
            "O016",
            "Optane performance",
            "best sustained inserts, two I/Os each",
            275_000.0,
            ceiling,
            "inserts/s",
            Role::Prediction,
        ),
        Row::new(
            "O020",
            "Updates vs inserts",
            "updates: 5.4e9 records in 5.8 h",
            258_000.0,
            5.4e9 / (5.8 * 3600.0),
            "updates/s",
            Role::Prediction,
        )
        .note("arithmetic of the text only; the rate itself needs the key-value lab"),
        Row::needs(
            "O017",
            "Optane performance",
            "observed inserts (180,000/s)",
            "key-value",
        ),
        Row::needs(
            "O021",
            "Updates vs inserts",
            "inserts after updates (174,000/s)",
            "key-value",
        ),
        Row::needs(
            "O023",
            "Throttling",
            "inserts without airflow fall to 0",
            "key-value",
        ),
    ])
}
