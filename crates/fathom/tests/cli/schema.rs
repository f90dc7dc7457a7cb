//! Enough of JSON Schema (draft 2020-12) to hold `run.json` to `docs/run.schema.json`.

use serde_json::Value;

/// Every place where `value` breaks the schema of the repository.
pub(crate) fn violations(value: &Value) -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/run.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut found = Vec::new();
    check(&schema, &schema, value, "run", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let Some(rules) = schema.as_object() else {
        if *schema == Value::Bool(false) {
            found.push(format!("{at}: nothing may stand here"));
        }
        return;
    };
    for (rule, want) in rules {
        match rule.as_str() {
            "$ref" => {
                let pointer = want.as_str().unwrap().trim_start_matches('#');
                check(root, root.pointer(pointer).unwrap(), value, at, found);
            }
            "type" => {
                let named: Vec<&Value> = match want {
                    Value::Array(list) => list.iter().collect(),
                    one => vec![one],
                };
                if !named.iter().any(|t| is(value, t.as_str().unwrap())) {
                    found.push(format!("{at}: {value} is not of type {want}"));
                }
            }
            "const" if value != want => found.push(format!("{at}: {value} is not {want}")),
            "enum" if !want.as_array().unwrap().contains(value) => {
                found.push(format!("{at}: {value} is none of {want}"));
            }
            "minimum" if value.as_f64().is_some_and(|v| v < want.as_f64().unwrap()) => {
                found.push(format!("{at}: {value} is below {want}"));
            }
            "anyOf" | "oneOf" => {
                let fits = |s: &&Value| {
                    let mut inner = Vec::new();
                    check(root, s, value, at, &mut inner);
                    inner.is_empty()
                };
                if !want.as_array().unwrap().iter().any(|s| fits(&s)) {
                    found.push(format!("{at}: {value} fits no alternative"));
                }
            }
            "required" => {
                for name in want.as_array().unwrap() {
                    let name = name.as_str().unwrap();
                    if value.is_object() && value.get(name).is_none() {
                        found.push(format!("{at}: {name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, schema) in want.as_object().unwrap() {
                    if let Some(v) = value.get(name) {
                        check(root, schema, v, &format!("{at}.{name}"), found);
                    }
                }
            }
            "additionalProperties" => {
                let known = rules.get("properties");
                for (name, v) in value.as_object().into_iter().flatten() {
                    if known.is_none_or(|k| k.get(name).is_none()) {
                        check(root, want, v, &format!("{at}.{name}"), found);
                    }
                }
            }
            "items" => {
                let skip = rules
                    .get("prefixItems")
                    .map_or(0, |p| p.as_array().unwrap().len());
                for (i, v) in value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .enumerate()
                    .skip(skip)
                {
                    check(root, want, v, &format!("{at}[{i}]"), found);
                }
            }
            "prefixItems" => {
                let items = value.as_array().into_iter().flatten();
                for (i, (v, s)) in items.zip(want.as_array().unwrap()).enumerate() {
                    check(root, s, v, &format!("{at}[{i}]"), found);
                }
            }
            "minItems" | "maxItems" => {
                let n = value.as_array().map_or(0, Vec::len) as u64;
                let limit = want.as_u64().unwrap();
                if value.is_array()
                    && (if rule == "minItems" {
                        n < limit
                    } else {
                        n > limit
                    })
                {
                    found.push(format!("{at}: {n} items break {rule} {limit}"));
                }
            }
            "const" | "enum" | "minimum" | "$defs" | "$schema" | "title" | "description"
            | "format" | "default" => {}
            other => panic!("the schema uses {other}, which this test does not know"),
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_i64().is_some() || value.as_u64().is_some(),
        other => panic!("the schema names the type {other}, which this test does not know"),
    }
}

#[test]
fn a_broken_run_would_be_noticed() {
    let good = serde_json::json!({"schema_version": 1});
    let missing = violations(&good);
    assert!(
        missing.iter().any(|v| v.contains("jobs is missing")),
        "{missing:?}"
    );
    let bad = serde_json::json!({"schema_version": "one", "jobs": [{"read": 3}]});
    let found = violations(&bad).join("\n");
    for part in [
        "run.schema_version",
        "run.jobs[0].read",
        "run.jobs[0]: wall_ns",
    ] {
        assert!(found.contains(part), "{part} in {found}");
    }
}
