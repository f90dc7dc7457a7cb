//! Sections into tasks: clones, groups, and who waits for whom.

use crate::jobfile::Script;
use crate::section::Section;
use crate::{FioError, Shape};

pub use crate::translate::Terms;

/// Tasks in one script, at most.
const TASKS_MAX: usize = 4096;

/// One job of one thread, as fio counts them.
#[derive(Debug, Clone)]
pub struct Task {
    /// Name in the output.
    pub name: String,
    /// Which clone (0-based), in names of files and in offsets.
    pub clone: u32,
    /// Which of its section's tasks (0-based).
    pub turn: u32,
    /// Number in the script, from 1.
    pub number: u32,
    /// Group in the output.
    pub group: u32,
    /// Tasks of one wave start together, the next wave when they have ended.
    pub wave: u32,
    /// Job that must have ended first.
    pub wait_for: Option<String>,
    /// What to do and what to say of it.
    pub shape: Shape,
    /// `job options` of the output.
    pub options: Vec<(String, String)>,
}

/// Makes the tasks of a script.
pub fn plan(script: &Script) -> Result<Vec<Task>, FioError> {
    let mut tasks: Vec<Task> = Vec::new();
    let (mut wave, mut group, mut in_group) = (0, 0, false);
    for section in &script.sections {
        let wall = section.wall || section.flag("stonewall", false);
        if wall && !tasks.is_empty() {
            wave += 1;
        }
        if (wall || section.flag("new_group", false)) && in_group {
            group += 1;
        }
        in_group = true;
        let name = section.own_name().to_owned();
        let wait_for = section.get("wait_for").map(str::to_owned);
        if let Some(w) = &wait_for
            && !tasks.iter().any(|t| t.name == *w)
        {
            return Err(FioError::value(
                &name,
                "wait_for",
                format!("there is no job '{w}' before this one"),
            ));
        }
        let count = clones(section)?;
        for turn in 0..count {
            // fio numbers the clones of a job from the last to the second.
            let clone = if turn == 0 { 0 } else { count - turn };
            tasks.push(Task {
                name: name.clone(),
                clone,
                turn,
                number: tasks.len() as u32 + 1,
                group,
                wave,
                wait_for: wait_for.clone(),
                shape: Shape::of(section, clone)?,
                options: section.echo(false),
            });
            if tasks.len() > TASKS_MAX {
                return Err(FioError::value(
                    &name,
                    "numjobs",
                    format!("more than {TASKS_MAX} jobs are not possible: use fewer"),
                ));
            }
        }
    }
    Ok(tasks)
}

fn clones(section: &Section) -> Result<u32, FioError> {
    let n = section.number("numjobs").unwrap_or(1).max(1);
    u32::try_from(n)
        .ok()
        .filter(|n| *n as usize <= TASKS_MAX)
        .ok_or_else(|| {
            section.invalid(
                "numjobs",
                format!("{n} is not possible: expected at most {TASKS_MAX}"),
            )
        })
}

impl Script {
    /// The options of `[global]` in the words of fio's `global options`; `None` where there are none.
    pub fn global_options(&self) -> Option<Vec<(String, String)>> {
        if !self.has_global {
            return None;
        }
        let mut section = self.job("global");
        for s in &mut section.settings {
            s.global = true;
        }
        Some(section.echo(true))
    }

    /// The script as a command line of fio's.
    pub fn command_line(&self) -> String {
        let mut out = String::from("fio");
        let mut add = |name: &str, value: &str| {
            out.push_str(" --");
            out.push_str(name);
            if !value.is_empty() {
                out.push('=');
                out.push_str(value);
            }
        };
        for (n, v) in self.global_options().unwrap_or_default() {
            add(&n, &v);
        }
        for s in &self.sections {
            add("name", &s.name);
            for (n, v) in s.echo(false) {
                if n != "name" {
                    add(&n, &v);
                }
            }
        }
        out
    }

    /// fio's own checks between options; what they find makes fio reject the script.
    pub fn cross_check(&self, read_only: bool) -> Result<(), FioError> {
        for s in &self.sections {
            let engine = s.engine();
            if crate::options::engine(engine).is_none() && !s.foreign_engine() {
                return Err(s.invalid(
                    "ioengine",
                    format!(
                        "'{engine}' is not an engine that fio has: fathom fio --enghelp lists them"
                    ),
                ));
            }
            let rw = s.get("rw").unwrap_or("read");
            if read_only && !matches!(rw.split(':').next(), Some("read" | "randread")) {
                return Err(s.invalid("rw", "writes and trims are not allowed with --readonly"));
            }
            let some = |n: &str| s.per_direction(n).is_some_and(|v| v.iter().any(|x| *x > 0));
            if some("rate") && some("rate_iops") {
                return Err(s.invalid("rate", "it excludes rate_iops: choose one"));
            }
            for (rate, least) in [("rate", "rate_min"), ("rate_iops", "rate_iops_min")] {
                if let (Some(a), Some(b)) = (s.per_direction(rate), s.per_direction(least))
                    && a.iter().zip(&b).any(|(x, y)| *x > 0 && x < y)
                {
                    return Err(s.invalid(least, format!("it exceeds {rate}")));
                }
            }
            let logged = s.flag("log_offset", false) && s.get("write_lat_log").is_some();
            if s.flag("log_issue_time", false) && !logged {
                return Err(s.invalid("log_issue_time", "it needs write_lat_log and log_offset"));
            }
            let (lasts, each) = ("steadystate_duration", "steadystate_check_interval");
            if let (Some(all), Some(step)) = (s.nanos(lasts), s.nanos(each))
                && step > 0
                && all % step > 0
            {
                return Err(s.invalid(lasts, format!("it must be a multiple of {each}")));
            }
            match s.get("zonemode") {
                Some("none") if s.number("zonesize").unwrap_or(0) > 0 => {
                    return Err(s.invalid("zonesize", "it needs zonemode=strided or zbd"));
                }
                Some("strided") if s.number("zonesize").unwrap_or(0) == 0 => {
                    return Err(s.invalid("zonemode", "strided needs a zonesize"));
                }
                _ => {}
            }
        }
        for (i, s) in self.sections.iter().enumerate() {
            if let Some(w) = s.get("wait_for")
                && !self.sections[..i].iter().any(|o| o.name == w)
            {
                return Err(s.invalid("wait_for", format!("there is no job '{w}' before this one")));
            }
        }
        Ok(())
    }
}
