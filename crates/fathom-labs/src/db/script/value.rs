//! pgbench's values, and the rules by which they become each other.

/// A value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
}

/// A variable: a value, or a text that becomes one where a value is wanted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Var {
    Val(Val),
    Text(String),
}

/// Significant digits of a double (C's `DBL_DIG`).
const DIGITS: usize = 15;

impl std::fmt::Display for Val {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(i) => write!(f, "{i}"),
            Self::Double(d) => double(*d, f),
        }
    }
}

/// As PostgreSQL's own `%.15g`.
fn double(d: f64, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    if !d.is_finite() {
        let sign = if d < 0.0 { "-" } else { "" };
        let name = if d.is_nan() { "NaN" } else { "Infinity" };
        return write!(f, "{sign}{name}");
    }
    let scientific = format!("{:.*e}", DIGITS - 1, d);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |t: &str| match t.contains('.') {
        true => t.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => t.to_owned(),
    };
    if (-4..DIGITS as i32).contains(&exponent) {
        let places = (DIGITS as i32 - 1 - exponent) as usize;
        return f.write_str(&short(&format!("{d:.places$}")));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(f, "{}e{sign}{:02}", short(digits), exponent.abs())
}

/// What there is, or why there is none.
pub(super) type Out<T> = Result<T, String>;

impl Val {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
        }
    }

    /// Of a condition: what is not 0 is true.
    pub(crate) fn truth(self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(b) => b,
            Self::Int(i) => i != 0,
            Self::Double(d) => d != 0.0,
        }
    }

    pub(super) fn boolean(self) -> Out<bool> {
        match self {
            Self::Bool(b) => Ok(b),
            other => Err(format!("cannot coerce {} to boolean", other.kind())),
        }
    }

    pub(super) fn int(self) -> Out<i64> {
        match self {
            Self::Int(i) => Ok(i),
            Self::Double(d) => {
                let d = d.round_ties_even();
                // 2^63 is the first that does not fit.
                if d.is_nan()
                    || !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&d)
                {
                    return Err(format!("double to int overflow for {d}"));
                }
                Ok(d as i64)
            }
            other => Err(format!("cannot coerce {} to int", other.kind())),
        }
    }

    pub(super) fn double(self) -> Out<f64> {
        match self {
            Self::Double(d) => Ok(d),
            Self::Int(i) => Ok(i as f64),
            other => Err(format!("cannot coerce {} to double", other.kind())),
        }
    }
}

impl Var {
    pub(super) fn value(&self, name: &str) -> Out<Val> {
        match self {
            Self::Val(v) => Ok(*v),
            Self::Text(t) => parsed(t).ok_or_else(|| {
                format!("variable \"{name}\" is \"{t}\", which is no number, boolean or null")
            }),
        }
    }
}

/// A text as a value, by pgbench's rules: words for booleans may be cut short.
fn parsed(text: &str) -> Option<Val> {
    let low = text.to_ascii_lowercase();
    if low.is_empty() {
        return None;
    }
    let begins = |words: [&str; 2]| words.iter().any(|w| w.starts_with(&low));
    if low == "null" {
        return Some(Val::Null);
    }
    if begins(["true", "yes"]) || low == "on" {
        return Some(Val::Bool(true));
    }
    if begins(["false", "no"]) || low == "off" || low == "of" {
        return Some(Val::Bool(false));
    }
    let number = text.trim_start();
    let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return number.parse().ok().map(Val::Int);
    }
    number.parse().ok().map(Val::Double)
}
