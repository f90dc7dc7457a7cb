//! What is around the process that measured, where it may have limited it: a container, limits of control groups.

use fathom_telemetry::schema::Run;
use serde_json::Value;

use crate::format;

/// `docker container, at most 0.5 CPUs, memory.max 1 GiB`; `None` where nothing limits. Models are not limited by the machine.
pub(crate) fn limits(run: &Run) -> Option<String> {
    let all = run.environment.get("control_group_limits")?.as_array()?;
    // A group's own come before those of the groups above it, which are wider or do not count.
    let mut shown: Vec<(String, String)> = Vec::new();
    for limit in all.iter().filter(|_| !run.simulated) {
        let (Some(file), Some(value)) = (limit["file"].as_str(), limit["value"].as_str()) else {
            continue;
        };
        let name = file.rsplit('/').next().unwrap_or(file);
        if !shown.iter().any(|s| s.0 == name) {
            shown.push((name.to_owned(), words(name, value)));
        }
    }
    let container = run.environment.pointer("/virtualization/container");
    let container = container.and_then(Value::as_str);
    let mut parts: Vec<String> = container
        .map(|c| format!("{c} container"))
        .into_iter()
        .collect();
    parts.extend(shown.iter().map(|s| s.1.clone()));
    (!shown.is_empty()).then(|| parts.join(", "))
}

fn words(name: &str, value: &str) -> String {
    let mut numbers = value.split_whitespace().map(str::parse::<f64>);
    match (name, numbers.next(), numbers.next()) {
        ("cpu.max", Some(Ok(quota)), Some(Ok(period))) if period > 0.0 => {
            format!("at most {:.2} CPUs", quota / period)
        }
        (_, Some(Ok(bytes)), None) if name.starts_with("memory") => {
            format!("{name} {}", format::value(bytes, "bytes"))
        }
        _ => format!("{name} {}", value.replace('\n', "; ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::run_with;

    #[test]
    fn the_nearest_limit_of_each_kind_is_said() {
        let mut run = run_with(Vec::new());
        assert_eq!(limits(&run), None);
        run.environment = json!({
            "virtualization": {"container": "docker"},
            "control_group_limits": [
                {"file": "/sys/fs/cgroup/a/cpu.max", "value": "50000 100000"},
                {"file": "/sys/fs/cgroup/cpu.max", "value": "400000 100000"},
                {"file": "/sys/fs/cgroup/a/memory.max", "value": "1073741824"},
                {"file": "/sys/fs/cgroup/a/io.max", "value": "8:0 rbps=1048576 wbps=max"}
            ]
        });
        assert_eq!(
            limits(&run).unwrap(),
            "docker container, at most 0.50 CPUs, memory.max 1 GiB, io.max 8:0 rbps=1048576 wbps=max"
        );
        run.simulated = true;
        assert_eq!(limits(&run), None);
    }
}
