//! Jobs in TOML: `[global]` for common options, one `[[job]]` each, the same names as on the command line.

use super::{JobError, JobSpec};

/// A job file's content.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// `target` at the top of the file, where it names one.
    pub target: Option<String>,
    /// Its jobs.
    pub jobs: Vec<JobSpec>,
}

/// Reads a job file. Every value may be text, number or boolean; unknown names are refused.
pub fn jobs_from_toml(text: &str) -> Result<JobFile, JobError> {
    let mut target = None;
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| JobError::File(syntax(text, &e)))?;
    let mut base = JobSpec::default();
    for (key, value) in &table {
        match (key.as_str(), value) {
            ("job", toml::Value::Array(_)) => {}
            ("target", toml::Value::String(t)) => target = Some(t.clone()),
            ("global", toml::Value::Table(t)) => apply(&mut base, t)?,
            _ => {
                return Err(JobError::File(format!(
                    "'{key}' is not expected here: name the target, and put options under [global] or [[job]]"
                )));
            }
        }
    }
    let Some(toml::Value::Array(list)) = table.get("job") else {
        return Err(JobError::File(
            "no jobs: expected at least one [[job]]".into(),
        ));
    };
    let mut jobs: Vec<JobSpec> = Vec::with_capacity(list.len());
    for (i, item) in list.iter().enumerate() {
        let toml::Value::Table(t) = item else {
            return Err(JobError::File("expected [[job]] tables".into()));
        };
        let mut job = JobSpec {
            name: format!("job{}", i + 1),
            ..base.clone()
        };
        apply(&mut job, t)?;
        if jobs.iter().any(|j| j.name == job.name) {
            return Err(JobError::value(
                "name",
                format!("'{}' is used twice: each job needs its own", job.name),
            ));
        }
        jobs.push(job);
    }
    Ok(JobFile { target, jobs })
}

/// TOML's own message draws the line under several others; a line number fits in a sentence.
fn syntax(text: &str, e: &toml::de::Error) -> String {
    let before = e.span().and_then(|s| text.get(..s.start)).unwrap_or("");
    let line = 1 + before.matches('\n').count();
    let message = e.message().lines().collect::<Vec<_>>().join(", ");
    format!("line {line} is not TOML: {message}")
}

fn apply(job: &mut JobSpec, table: &toml::Table) -> Result<(), JobError> {
    for (name, value) in table {
        let text = match value {
            toml::Value::String(s) => s.clone(),
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
                value.to_string()
            }
            _ => {
                return Err(JobError::value(
                    name,
                    "expected text, a number or true/false",
                ));
            }
        };
        job.set(name, &text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_options_hold_for_every_job_and_may_be_overridden() {
        let jobs = jobs_from_toml(
            "[global]\nbs = \"8k\"\nqd = 4\n[[job]]\nname = \"a\"\n[[job]]\nqd = 16\nbuffered = true\n",
        )
        .unwrap()
        .jobs;
        assert_eq!(
            (jobs[0].name.as_str(), jobs[0].qd, jobs[0].direct),
            ("a", 4, true)
        );
        assert_eq!(
            (jobs[1].name.as_str(), jobs[1].qd, jobs[1].direct),
            ("job2", 16, false)
        );
        assert_eq!(jobs[1].bs.max().0, 8192);
    }

    #[test]
    fn bad_files_say_where() {
        for (text, part) in [
            ("", "no jobs"),
            ("qd = 3", "[global]"),
            ("[[job]]\nqdd = 3", "did you mean 'qd'"),
            ("[[job]]\nqd = [1]", "expected text"),
            ("[[job]\n", "job file"),
            ("[[job]]\nname='x'\n[[job]]\nname='x'", "used twice"),
        ] {
            let e = jobs_from_toml(text).unwrap_err().to_string();
            assert!(e.contains(part), "{text:?} -> {e}");
        }
    }
}
