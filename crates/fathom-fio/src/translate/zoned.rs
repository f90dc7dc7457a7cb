//! How zones are to be used (`zonemode=zbd`): sizes and limits of the job, and of the device where that has zones of its own.

use std::path::Path;

use fathom_host::{ZoneLimits, zones};

use crate::FioError;
use crate::feed::zones::Zoned;
use crate::section::Section;

/// The zones of the job's first file, where that is a device with zones.
pub(super) fn own(s: &Section) -> Option<ZoneLimits> {
    let names = s.file_names();
    zones::limits(Path::new(names.first()?.as_str()))
}

pub(super) fn of(s: &Section) -> Result<Option<Zoned>, FioError> {
    if s.get("zonemode") != Some("zbd") {
        return Ok(None);
    }
    let own = own(s);
    let size = zone_size(s, own.as_ref().map(|o| o.zone_bytes))?;
    let skip = s.number("zoneskip").unwrap_or(0);
    check(s, size, skip, own.is_some())?;
    let share = |name: &str, otherwise: f64| {
        let given = s.get(name).and_then(|t| t.parse::<f64>().ok());
        given.unwrap_or(otherwise)
    };
    let limit = |name: &str| s.positive(name);
    let device_limit = own.as_ref().and_then(|o| o.max_open.or(o.max_active));
    let job_open_max = limit("job_max_open_zones");
    Ok(Some(Zoned {
        size,
        capacity: limit("zonecapacity").unwrap_or(size).min(size),
        open_max: job_open_max
            .filter(|_| own.is_none())
            .or_else(|| limit("max_open_zones"))
            .or(device_limit.map(u64::from))
            .unwrap_or(0),
        job_open_max: job_open_max.unwrap_or(0),
        reset: (
            share("zone_reset_threshold", 1.0),
            share("zone_reset_frequency", 0.0),
        ),
        beyond: s.flag("read_beyond_wp", false),
        kept: s.get("verify").is_some_and(|v| v != "0" && v != "none"),
        skip: skip / size,
        own: own.is_some(),
    }))
}

/// Bytes of a zone, as the section says it, or as the device has it (`own`).
fn zone_size(s: &Section, own: Option<u64>) -> Result<u64, FioError> {
    let given = s.positive("zonesize");
    let size = match (given, own) {
        (Some(given), Some(own)) if given != own => {
            return Err(s.invalid("zonesize",
                format!(
                    "job parameter zonesize {given} does not match disk zone size {own}: leave it out"
                ),
            ));
        }
        (given, own) => given.or(own).unwrap_or(0),
    };
    if size == 0 {
        return Err(s.invalid(
            "zonemode",
            "zbd needs a zonesize where the target has no zones of its own",
        ));
    }
    Ok(size)
}

/// fio's own rules of what goes with what; `real`: the device has zones of its own.
fn check(s: &Section, size: u64, skip: u64, real: bool) -> Result<(), FioError> {
    let refused = |option: &str, why: &str| Err(s.invalid(option, why));
    let writes = s.get("rw").is_some_and(|rw| rw.contains('w'));
    if real && writes && !s.flag("direct", false) {
        return refused(
            "direct",
            "Using direct I/O is mandatory for writing to ZBD drives: set direct=1",
        );
    }
    if s.number("bs").is_some_and(|bs| bs > size) {
        return refused("bs", "buflen exceeds zone size: choose a smaller one");
    }
    if !skip.is_multiple_of(size) {
        let why = format!("zoneskip {skip} is not a multiple of the device zone size {size}");
        return refused("zoneskip", &why);
    }
    if real && s.flag("experimental_verify", false) {
        return refused(
            "experimental_verify",
            "zones do not support experimental verify: use verify alone",
        );
    }
    let trims = s.get("rw").filter(|rw| rw.contains("trim"));
    if let Some(rw) = trims.filter(|_| real) {
        if rw.contains("write") {
            return refused(
                "rw",
                "a job of zones either writes or trims: make two jobs of it",
            );
        }
        let trimmed = s.per_direction("bs").map_or(4096, |bs| bs[2]);
        if trimmed != size {
            let why = format!("trim block size {trimmed} is not the zone size {size}");
            return refused("bs", &why);
        }
    }
    if !real && s.get("zone_reset_threshold").is_some() {
        return refused(
            "zone_reset_threshold",
            "emulated zones start again when no room is left: leave it out",
        );
    }
    Ok(())
}
