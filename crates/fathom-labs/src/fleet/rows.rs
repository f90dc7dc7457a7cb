//! The I/Os of hosts, brought here after a group has ended: one host after the other, in pieces.

use std::io::Write;

use fathom_files::create;
use fathom_io::driver::{OfHost, PlannedJob};
use fathom_io::{Control, Observer};
use fathom_system::guest::Guest;
use fathom_system::guest::wire::{Answer, Ask};
use fathom_telemetry::{Flag, FlagCode, Nanos};

use super::FleetBench;
use super::merge::Merger;
use super::split::places;
use crate::LabError;
use crate::guest::conduct::Ran;
use crate::guest::spool::{self, Spooled};

impl FleetBench {
    /// Passes the I/Os of jobs that were recorded on to `observer`, their times on this machine's clock; what is missing, by
    /// job of the group.
    pub(super) fn rows(
        &mut self,
        jobs: &[PlannedJob],
        parts: &[Option<Ran>],
        merger: &Merger,
        observer: &mut dyn Observer,
    ) -> Vec<(usize, Flag)> {
        let mut missing = Vec::new();
        for (host, ran) in parts.iter().enumerate() {
            let here = |p: &&PlannedJob| places(p, parts.len()).contains(&host);
            let recorded = jobs.iter().filter(here).any(|p| p.job.spec.record);
            let Some(ran) = ran.as_ref().filter(|_| recorded) else {
                continue;
            };
            let ahead = match self.simulated {
                true => 0,
                false => ran.clock.offset,
            };
            let name = &self.names[host];
            let place = |own| Some((host, merger.job_of(host, own)?));
            let passed = bring(&mut self.guests[host], &self.control)
                .and_then(|s| pass_on(s, &place, ahead, &self.names, observer));
            match passed {
                Ok(flags) => missing.extend(flags),
                Err(e) => {
                    let own = jobs.iter().enumerate().filter(|(_, p)| here(p));
                    let flag =
                        |(job, _)| (job, lost(format!("the I/Os of {name} did not arrive: {e}")));
                    missing.extend(own.map(flag));
                }
            }
        }
        missing
    }
}

/// Reads the file of a host's rows into one without a name here.
fn bring(guest: &mut Guest, control: &Control) -> Result<Spooled, LabError> {
    let failed = |e: std::io::Error| {
        LabError::Failed(format!(
            "they cannot be kept in {}: {e}; choose another TMPDIR",
            spool::dir().display()
        ))
    };
    guest.ask(&Ask::Rows, &[])?;
    let mut file = create::unnamed(&spool::dir()).map_err(failed);
    loop {
        if control.interrupted() {
            return Err(LabError::Failed("interrupted".into()));
        }
        match guest.answer()? {
            // What cannot be kept is still taken: the next answer comes behind it.
            (Answer::Piece, raw) => {
                file = file.and_then(|mut f| f.write_all(&raw).map(|()| f).map_err(failed));
            }
            (Answer::Rows { lost, error }, _) => {
                if let Some(e) = error {
                    return Err(LabError::Failed(e));
                }
                let summary = fathom_telemetry::iolog::LogSummary {
                    lost_by_job: lost,
                    ..Default::default()
                };
                return Ok(Spooled {
                    file: file?,
                    summary,
                });
            }
            (other, _) => return Err(LabError::Failed(format!("it answered {other:?}"))),
        }
    }
}

/// Gives rows to `observer`, made on a clock that is `ahead` of this machine's by so many ns. `place` says of a job in the file
/// whose it is, and its number in the group. What is missing, by job of the group.
pub(super) fn pass_on(
    rows: Spooled,
    place: &dyn Fn(usize) -> Option<(usize, usize)>,
    ahead: i64,
    names: &[String],
    observer: &mut dyn Observer,
) -> Result<Vec<(usize, Flag)>, LabError> {
    spool::each(rows.file, |own, origin, rows| {
        if let Some((host, job)) = place(own) {
            let origin = Nanos(origin.0.saturating_add_signed(-ahead));
            observer.of_host(host, &OfHost::Rows { job, origin, rows });
        }
    })?;
    let missing = rows.summary.lost_by_job.into_iter().filter(|l| l.1 > 0);
    let flags = missing.filter_map(|(own, n)| {
        let (host, job) = place(usize::from(own))?;
        let name = &names[host];
        let said = format!("{n} of the I/Os of {name} are missing from its io.parquet: its writer could not keep up");
        Some((job, lost(said)))
    });
    Ok(flags.collect())
}

fn lost(detail: String) -> Flag {
    let remedy =
        "totals and series are complete; use fewer threads, or a faster disk for TMPDIR there";
    Flag::new(FlagCode::LogLostRecords, detail, remedy)
}
