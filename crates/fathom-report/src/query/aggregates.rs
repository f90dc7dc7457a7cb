//! Aggregates that SQLite lacks: `quantile`, `median`, `stddev`, `corr`.

use std::panic::{RefUnwindSafe, UnwindSafe};

use rusqlite::Connection;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::{Value as SqlValue, ValueRef};

use super::quantile::{Quantile, Sketch};

/// Makes them known.
pub(super) fn install(db: &Connection, flags: FunctionFlags) -> rusqlite::Result<()> {
    db.create_aggregate_function("quantile", 2, flags, QuantileOf { fixed: None })?;
    db.create_aggregate_function("median", 1, flags, QuantileOf { fixed: Some(0.5) })?;
    db.create_aggregate_function("stddev", 1, flags, Spread)?;
    db.create_aggregate_function("corr", 2, flags, Together)
}

fn number(v: ValueRef<'_>) -> Option<f64> {
    match v {
        ValueRef::Real(v) => Some(v),
        ValueRef::Integer(v) => Some(v as f64),
        _ => None,
    }
}

/// `stddev(x)`: of the sample; NULL of fewer than two numbers.
struct Spread;

/// `corr(x, y)`: Pearson's coefficient of rows in which both are numbers; NULL of fewer than two, or where one is constant.
struct Together;

/// Means and central moments, updated row by row (Welford), so that large numbers of ns lose no digits.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    n: f64,
    mean: [f64; 2],
    /// Sums of squares about the means, and of products.
    squares: [f64; 2],
    product: f64,
}

impl Moments {
    fn add(&mut self, x: f64, y: f64) {
        self.n += 1.0;
        let before = [x - self.mean[0], y - self.mean[1]];
        self.mean[0] += before[0] / self.n;
        self.mean[1] += before[1] / self.n;
        let after = [x - self.mean[0], y - self.mean[1]];
        self.squares[0] += before[0] * after[0];
        self.squares[1] += before[1] * after[1];
        self.product += before[0] * after[1];
    }
}

impl Aggregate<Moments, Option<f64>> for Spread {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Moments> {
        Ok(Moments::default())
    }
    fn step(&self, ctx: &mut Context<'_>, m: &mut Moments) -> rusqlite::Result<()> {
        if let Some(x) = number(ctx.get_raw(0)) {
            m.add(x, x);
        }
        Ok(())
    }
    fn finalize(&self, _: &mut Context<'_>, m: Option<Moments>) -> rusqlite::Result<Option<f64>> {
        let m = m.filter(|m| m.n > 1.0);
        Ok(m.map(|m| (m.squares[0] / (m.n - 1.0)).sqrt()))
    }
}

impl Aggregate<Moments, Option<f64>> for Together {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Moments> {
        Ok(Moments::default())
    }
    fn step(&self, ctx: &mut Context<'_>, m: &mut Moments) -> rusqlite::Result<()> {
        if let (Some(x), Some(y)) = (number(ctx.get_raw(0)), number(ctx.get_raw(1))) {
            m.add(x, y);
        }
        Ok(())
    }
    fn finalize(&self, _: &mut Context<'_>, m: Option<Moments>) -> rusqlite::Result<Option<f64>> {
        let varies = |m: &Moments| m.n > 1.0 && m.squares.iter().all(|s| *s > 0.0);
        let m = m.filter(varies);
        Ok(m.map(|m| (m.product / (m.squares[0] * m.squares[1]).sqrt()).clamp(-1.0, 1.0)))
    }
}

/// The aggregates `quantile(value, q)` and `median(value)`.
struct QuantileOf {
    /// Where none is asked.
    fixed: Option<f64>,
}

/// One group's numbers, and which quantile is asked.
struct Asked {
    q: f64,
    sketch: Sketch,
}

impl UnwindSafe for Asked {}
impl RefUnwindSafe for Asked {}

impl Aggregate<Asked, SqlValue> for QuantileOf {
    fn init(&self, ctx: &mut Context<'_>) -> rusqlite::Result<Asked> {
        let q = match self.fixed {
            Some(q) => q,
            None => number(ctx.get_raw(1)).unwrap_or(f64::NAN),
        };
        if !(0.0..=1.0).contains(&q) {
            return Err(wrong(
                "the second argument is a share from 0 to 1, such as 0.99",
            ));
        }
        Ok(Asked {
            q,
            sketch: Sketch::default(),
        })
    }

    fn step(&self, ctx: &mut Context<'_>, asked: &mut Asked) -> rusqlite::Result<()> {
        match ctx.get_raw(0) {
            ValueRef::Null => {}
            ValueRef::Integer(v) => asked.sketch.integer(v, 1),
            ValueRef::Real(v) => asked.sketch.real(v),
            ValueRef::Blob(v) => asked
                .sketch
                .histogram(v)
                .map_err(|e| wrong(&e.to_string()))?,
            ValueRef::Text(_) => {
                return Err(wrong("the first argument is a number or a histogram"));
            }
        }
        Ok(())
    }

    fn finalize(&self, _ctx: &mut Context<'_>, asked: Option<Asked>) -> rusqlite::Result<SqlValue> {
        Ok(match asked.and_then(|a| a.sketch.quantile(a.q)) {
            Some(Quantile::Integer(v)) => SqlValue::Integer(v),
            Some(Quantile::Real(v)) => SqlValue::Real(v),
            None => SqlValue::Null,
        })
    }
}

fn wrong(what: &str) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(format!("quantile(value, q): {what}").into())
}
