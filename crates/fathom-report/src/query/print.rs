//! Results as a table for people, as JSON and as CSV; written while they come.

use std::io::Write;

use serde_json::json;

use super::{QueryError, Rows, Value};
use crate::text::clean;

/// Rows that are seen before a table's columns get their widths; later ones may be wider.
const ROWS_MEASURED: usize = 1000;

/// Aligned columns; numbers to the right.
pub struct TableRows<W> {
    to: W,
    names: Vec<String>,
    held: Vec<Vec<(String, bool)>>,
    widths: Option<Vec<usize>>,
    rows: u64,
}

impl<W: Write> TableRows<W> {
    /// A table on `to`.
    pub fn new(to: W) -> Self {
        Self {
            to,
            names: Vec::new(),
            held: Vec::new(),
            widths: None,
            rows: 0,
        }
    }

    fn flush(&mut self) -> Result<Vec<usize>, QueryError> {
        let mut widths: Vec<usize> = self.names.iter().map(|n| n.chars().count()).collect();
        let mut numbers = vec![!self.held.is_empty(); self.names.len()];
        for row in &self.held {
            for (i, (text, number)) in row.iter().enumerate() {
                widths[i] = widths[i].max(text.chars().count());
                numbers[i] &= *number || text == "-";
            }
        }
        let head: Vec<(String, bool)> = self.names.iter().cloned().zip(numbers).collect();
        line(&mut self.to, &head, &widths)?;
        let rule: Vec<String> = widths.iter().map(|w| "─".repeat(*w)).collect();
        writeln!(self.to, "{}", rule.join("  "))?;
        for row in std::mem::take(&mut self.held) {
            line(&mut self.to, &row, &widths)?;
        }
        self.widths = Some(widths.clone());
        Ok(widths)
    }
}

impl<W: Write> Rows for TableRows<W> {
    fn begin(&mut self, names: &[String]) -> Result<(), QueryError> {
        self.names = names.iter().map(|n| clean(n)).collect();
        Ok(())
    }

    fn row(&mut self, values: &[Value<'_>]) -> Result<(), QueryError> {
        let row: Vec<(String, bool)> = values.iter().map(cell).collect();
        self.rows += 1;
        if let Some(widths) = &self.widths {
            return line(&mut self.to, &row, widths);
        }
        self.held.push(row);
        if self.held.len() >= ROWS_MEASURED {
            self.flush()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), QueryError> {
        if self.widths.is_none() {
            self.flush()?;
        }
        if self.rows == 0 {
            writeln!(self.to, "(no rows)")?;
        }
        self.to.flush()?;
        Ok(())
    }
}

fn line(to: &mut impl Write, row: &[(String, bool)], widths: &[usize]) -> Result<(), QueryError> {
    let mut text = String::new();
    for (i, (value, number)) in row.iter().enumerate() {
        let pad = " ".repeat(widths[i].saturating_sub(value.chars().count()));
        if i > 0 {
            text.push_str("  ");
        }
        if *number {
            text.push_str(&pad);
            text.push_str(value);
        } else {
            text.push_str(value);
            text.push_str(&pad);
        }
    }
    writeln!(to, "{}", text.trim_end())?;
    Ok(())
}

/// A cell's text, and whether it is a number.
fn cell(value: &Value<'_>) -> (String, bool) {
    match value {
        Value::Null => ("-".to_owned(), true),
        Value::Integer(v) => (v.to_string(), true),
        Value::Real(v) => (real(*v), true),
        Value::Text(t) => (clean(t), false),
        Value::Blob(b) => (format!("<{} bytes>", b.len()), false),
    }
}

/// Three decimals, or six digits where the number is small; JSON and CSV have it all.
fn real(v: f64) -> String {
    if v == 0.0 || v.abs() >= 1.0 {
        let text = format!("{v:.3}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return text.to_owned();
    }
    let digits = (5.0 - v.abs().log10().floor()).clamp(0.0, 300.0) as usize;
    let text = format!("{v:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// An array of objects, one row a line.
pub struct JsonRows<W> {
    to: W,
    names: Vec<String>,
    rows: u64,
}

impl<W: Write> JsonRows<W> {
    /// JSON on `to`.
    pub fn new(to: W) -> Self {
        Self {
            to,
            names: Vec::new(),
            rows: 0,
        }
    }
}

impl<W: Write> Rows for JsonRows<W> {
    fn begin(&mut self, names: &[String]) -> Result<(), QueryError> {
        self.names = names.to_vec();
        write!(self.to, "[")?;
        Ok(())
    }

    fn row(&mut self, values: &[Value<'_>]) -> Result<(), QueryError> {
        let comma = if self.rows > 0 { "," } else { "" };
        self.rows += 1;
        write!(self.to, "{comma}\n{{")?;
        // Written by hand, so that columns keep their order.
        for (i, (name, value)) in self.names.iter().zip(values).enumerate() {
            let value = match value {
                Value::Null => json!(null),
                Value::Integer(v) => json!(v),
                Value::Real(v) => json!(v),
                Value::Text(t) => json!(t),
                Value::Blob(b) => json!(hexadecimal(b)),
            };
            let comma = if i > 0 { "," } else { "" };
            write!(self.to, "{comma}{}:{value}", json!(name))?;
        }
        write!(self.to, "}}")?;
        Ok(())
    }

    fn end(&mut self) -> Result<(), QueryError> {
        writeln!(self.to, "\n]")?;
        self.to.flush()?;
        Ok(())
    }
}

/// CSV as RFC 4180 has it, with a line of names; an empty field is a hole.
pub struct CsvRows<W> {
    to: W,
}

impl<W: Write> CsvRows<W> {
    /// CSV on `to`.
    pub fn new(to: W) -> Self {
        Self { to }
    }

    fn line(&mut self, fields: impl Iterator<Item = String>) -> Result<(), QueryError> {
        for (i, field) in fields.enumerate() {
            if i > 0 {
                write!(self.to, ",")?;
            }
            if field.contains([',', '"', '\r', '\n']) {
                write!(self.to, "\"{}\"", field.replace('"', "\"\""))?;
            } else {
                write!(self.to, "{field}")?;
            }
        }
        write!(self.to, "\r\n")?;
        Ok(())
    }
}

impl<W: Write> Rows for CsvRows<W> {
    fn begin(&mut self, names: &[String]) -> Result<(), QueryError> {
        self.line(names.iter().cloned())
    }

    fn row(&mut self, values: &[Value<'_>]) -> Result<(), QueryError> {
        self.line(values.iter().map(|v| match v {
            Value::Null => String::new(),
            Value::Integer(v) => v.to_string(),
            Value::Real(v) => v.to_string(),
            Value::Text(t) => t.to_string(),
            Value::Blob(b) => hexadecimal(b),
        }))
    }

    fn end(&mut self) -> Result<(), QueryError> {
        self.to.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(rows: &mut dyn Rows) {
        rows.begin(&["name".to_owned(), "ns".to_owned()]).unwrap();
        rows.row(&[Value::Text("a,\u{1b}b".into()), Value::Integer(5)])
            .unwrap();
        rows.row(&[Value::Null, Value::Real(1234.5)]).unwrap();
        rows.end().unwrap();
    }

    #[test]
    fn a_table_is_aligned_and_free_of_control_characters() {
        let mut out = Vec::new();
        print(&mut TableRows::new(&mut out));
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "name           ns\n─────────  ──────\na,\\u001bb       5\n        -  1234.5\n"
        );
        for (v, expected) in [(0.000_123, "0.000123"), (12.345_678, "12.346"), (0.0, "0")] {
            assert_eq!(real(v), expected);
        }
    }

    #[test]
    fn json_and_csv_keep_order_and_holes() {
        let (mut json, mut csv) = (Vec::new(), Vec::new());
        print(&mut JsonRows::new(&mut json));
        print(&mut CsvRows::new(&mut csv));
        let json = String::from_utf8(json).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed[1]["ns"], 1234.5);
        assert!(parsed[1]["name"].is_null());
        assert!(json.find("name").unwrap() < json.find("ns\"").unwrap());
        let csv = String::from_utf8(csv).unwrap();
        assert_eq!(csv, "name,ns\r\n\"a,\u{1b}b\",5\r\n,1234.5\r\n");
    }
}
