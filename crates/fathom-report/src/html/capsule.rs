//! The environment capsule: nested JSON of any shape as readable pairs.
//!
//! Knows only the habit that a key ends with its unit (`_bytes`, `_ns`); everything else is shown
//! as it is.

use std::fmt::Write as _;

use fathom_telemetry::schema::Run;
use serde_json::{Map, Value};

use super::Page;
use super::escape::Esc;
use crate::format::{self, HOLE};
use crate::text::capital;

/// Objects inside objects beyond this depth are shown as JSON text.
const DEPTH_MAX: usize = 6;

/// The section.
pub(super) fn environment(page: &mut Page, run: &Run) {
    let Value::Object(parts) = &run.environment else {
        return;
    };
    if parts.is_empty() {
        return;
    }
    page.open_fold(
        "environment",
        "Environment",
        "machine, kernel, device, settings",
    );
    let mut html = String::from("<div class=\"capsule\">\n");
    let (plain, nested): (Vec<_>, Vec<_>) = parts.iter().partition(|(_, v)| is_plain(v));
    if !plain.is_empty() {
        let plain: Map<String, Value> = plain
            .into_iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let _ = writeln!(html, "<div><h3>General</h3>{}</div>", pairs(&plain, 0));
    }
    for (key, value) in nested {
        let _ = writeln!(
            html,
            "<div><h3>{}</h3>{}</div>",
            Esc(&label(key)),
            nested_html(value, 0)
        );
    }
    html.push_str("</div>\n");
    page.push(&html);
    page.close_fold();
}

/// Any JSON as HTML.
pub(super) fn value_html(value: &Value) -> String {
    nested_html(value, 0)
}

/// Fits on one line: a scalar, or a list of scalars.
fn is_plain(v: &Value) -> bool {
    match v {
        Value::Object(o) => o.is_empty(),
        Value::Array(a) => a.iter().all(|v| !v.is_object() && !v.is_array()),
        _ => true,
    }
}

fn nested_html(value: &Value, depth: usize) -> String {
    match value {
        Value::Object(o) if depth < DEPTH_MAX => pairs(o, depth),
        Value::Array(items) if depth < DEPTH_MAX && !is_plain(value) => {
            if let Some(html) = table(items) {
                return html;
            }
            let mut html = String::new();
            for (i, item) in items.iter().enumerate() {
                let _ = write!(
                    html,
                    "<h4>{}</h4>{}",
                    Esc(&item_name(item).unwrap_or_else(|| (i + 1).to_string())),
                    nested_html(item, depth + 1)
                );
            }
            html
        }
        v if is_plain(v) => format!("<p>{}</p>", Esc(&plain("", v))),
        v => format!("<pre>{}</pre>", Esc(&v.to_string())),
    }
}

/// A list of small, flat objects as a table.
fn table(items: &[Value]) -> Option<String> {
    const COLUMNS_MAX: usize = 5;
    let mut keys: Vec<&String> = Vec::new();
    for item in items {
        for (key, value) in item.as_object()? {
            if !is_plain(value) {
                return None;
            }
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    if keys.len() > COLUMNS_MAX || keys.is_empty() {
        return None;
    }
    // What names the row comes first.
    keys.sort_by_key(|k| *k != "name");
    let mut html = String::from("<table><thead><tr>");
    for key in &keys {
        let _ = write!(html, "<th scope=\"col\">{}</th>", Esc(&label(key)));
    }
    html.push_str("</tr></thead><tbody>");
    for item in items {
        html.push_str("<tr>");
        for key in &keys {
            let value = item.get(key.as_str()).unwrap_or(&Value::Null);
            let _ = write!(html, "<td>{}</td>", Esc(&plain(key, value)));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>");
    Some(html)
}

/// What a list's item calls itself.
fn item_name(item: &Value) -> Option<String> {
    ["name", "device", "path", "id"]
        .iter()
        .find_map(|k| item.get(k)?.as_str())
        .map(str::to_owned)
}

fn pairs(o: &Map<String, Value>, depth: usize) -> String {
    let mut html = String::new();
    for (key, value) in o.iter().filter(|(_, v)| is_plain(v)) {
        let _ = write!(
            html,
            "<dt>{}</dt><dd>{}</dd>",
            Esc(&label(key)),
            Esc(&plain(key, value))
        );
    }
    if !html.is_empty() {
        html = format!("<dl class=\"pairs\">{html}</dl>");
    }
    for (key, value) in o.iter().filter(|(_, v)| !is_plain(v)) {
        let _ = write!(
            html,
            "<div class=\"nested\"><h4>{}</h4>{}</div>",
            Esc(&label(key)),
            nested_html(value, depth + 1)
        );
    }
    html
}

const UNIT_SUFFIXES: [(&str, &str); 5] = [
    ("_bytes_per_second", "bytes/s"),
    ("_bytes", "bytes"),
    ("_ns", "ns"),
    ("_percent", "%"),
    ("_celsius", "°C"),
];

/// A key for people: `block_size_bytes` becomes `Block size`.
fn label(key: &str) -> String {
    let stem = UNIT_SUFFIXES
        .iter()
        .find_map(|(suffix, _)| key.strip_suffix(suffix))
        .filter(|s| !s.is_empty())
        .unwrap_or(key);
    let text = stem.replace(['_', '-'], " ");
    // Acronyms that people write in capitals.
    let words: Vec<String> =
        text.split(' ')
            .map(|w| match w {
                "cpu" | "numa" | "io" | "pci" | "smt" | "tsc" | "id" | "os" | "nvme" | "ram"
                | "qd" => w.to_uppercase(),
                w => w.to_owned(),
            })
            .collect();
    capital(&words.join(" "))
}

fn plain(key: &str, v: &Value) -> String {
    let unit = UNIT_SUFFIXES
        .iter()
        .find(|(suffix, _)| key.ends_with(suffix))
        .map(|(_, unit)| *unit);
    match v {
        Value::Null => HOLE.to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(n) => match (unit, n.as_f64()) {
            (Some(unit), Some(v)) => format::value(v, unit),
            _ => n.to_string(),
        },
        Value::String(s) if s.is_empty() => HOLE.to_owned(),
        Value::String(s) => s.clone(),
        Value::Array(a) if a.is_empty() => HOLE.to_owned(),
        Value::Array(a) => a
            .iter()
            .map(|v| plain(key, v))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Object(_) => HOLE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn units_of_keys_are_used_and_everything_is_escaped() {
        let html = value_html(&json!({
            "mem_bytes": 17_179_869_184u64, "smt": true, "cpu": {"<b>": "<i>&"},
            "devices": [{"name": "nvme0n1", "queue": {"depth": 1023}}], "none": null
        }));
        assert!(html.contains("<dt>Mem</dt><dd>16 GiB</dd>"), "{html}");
        assert!(html.contains("<dt>SMT</dt><dd>yes</dd>"));
        assert!(html.contains("<dt>&lt;b&gt;</dt><dd>&lt;i&gt;&amp;</dd>"));
        assert!(html.contains("<h4>nvme0n1</h4>") && html.contains("<dd>1023</dd>"));
        assert!(!html.contains("<i>"));
    }

    #[test]
    fn deep_nesting_ends_in_text() {
        let mut v = json!(1);
        for _ in 0..60 {
            v = json!({ "a": v });
        }
        assert!(value_html(&v).len() < 2_000);
    }
}
