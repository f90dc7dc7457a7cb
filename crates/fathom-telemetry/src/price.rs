//! What a target costs: once, or for as long as it is rented.
//!
//! Kept in the environment of a run; everything that divides by a price reads it from there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema::Run;

/// Key in [`Run::environment`].
const KEY: &str = "price";
/// Bytes of the unit that storage is sold by.
const GB: f64 = 1e9;
/// Longest name of a currency, letters.
const CURRENCY_MAX: usize = 4;

/// For what a price is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// It is bought.
    Once,
    /// Each hour.
    Hour,
    /// Each month.
    Month,
}

impl Per {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Once => "",
            Self::Hour => "/h",
            Self::Month => "/month",
        }
    }
}

/// A price as typed: `549`, `$549`, `0.12/h`, `EUR 35/month`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Amount, above 0.
    pub amount: f64,
    /// As typed before the amount; may be empty.
    #[serde(default)]
    pub currency: String,
    /// For what it is paid.
    pub per: Per,
    /// Capacity that it is paid for, bytes; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Amount for each GB of that (10^9 bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_gb: Option<f64>,
}

impl Price {
    /// That of a run, where its owner gave one.
    pub fn of(run: &Run) -> Option<Self> {
        serde_json::from_value(run.environment.get(KEY)?.clone()).ok()
    }

    /// Puts it into an environment; what it buys is not known yet.
    pub fn put(&self, environment: &mut Value) {
        if let (Some(all), Ok(price)) = (environment.as_object_mut(), serde_json::to_value(self)) {
            all.insert(KEY.into(), price);
        }
    }

    /// Puts it into a run, with what each GB of its target costs.
    pub fn put_into(mut self, run: &mut Run) {
        self.capacity_bytes = capacity(run);
        let gb = self.capacity_bytes.map(|b| b as f64 / GB);
        self.per_gb = gb.map(|gb| self.amount / gb);
        if run.environment.is_null() {
            run.environment = Value::Object(serde_json::Map::new());
        }
        self.put(&mut run.environment);
    }

    /// `$549, $1.14 per GB`.
    pub fn words(&self) -> String {
        let per_gb = self.per_gb.map(|v| Self {
            amount: v,
            ..self.clone()
        });
        match per_gb {
            Some(gb) => format!("{self}, {gb} per GB"),
            None => self.to_string(),
        }
    }

    /// Whether two can be held against each other.
    pub fn is_of_kind(&self, other: &Self) -> bool {
        (self.per, &self.currency) == (other.per, &other.currency)
    }
}

/// Of a whole device or model what it holds; of a directory the disk behind it.
fn capacity(run: &Run) -> Option<u64> {
    let device = run.environment.pointer("/storage/devices/0/size_bytes");
    let whole = matches!(run.target.kind.as_str(), "simulated" | "block-device");
    let own = whole.then_some(run.target.size_bytes);
    device.and_then(Value::as_u64).or(own).filter(|b| *b > 0)
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.currency.chars().any(char::is_alphabetic) {
            " "
        } else {
            ""
        };
        // Three significant digits without zeros at their end, cents at least, without an exponent.
        let places = (2 - self.amount.abs().log10().floor() as i32).clamp(0, 12) as usize;
        let places = if self.amount.fract() == 0.0 {
            0
        } else {
            places.max(2)
        };
        let mut amount = format!("{:.places$}", self.amount);
        while amount.ends_with('0') && amount.split_once('.').is_some_and(|(_, d)| d.len() > 2) {
            amount.pop();
        }
        write!(f, "{}{space}{amount}{}", self.currency, self.per.suffix())
    }
}

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("'{text}': expected an amount above 0, such as 549, $549, 0.12/h or 35/month")
        };
        let (amount, per) = match text.trim().split_once('/') {
            None => (text.trim(), Per::Once),
            Some((a, "h" | "hour")) => (a, Per::Hour),
            Some((a, "month" | "mo")) => (a, Per::Month),
            Some(_) => return Err(wrong()),
        };
        let digits = amount
            .find(|c: char| c.is_ascii_digit() || ".+-".contains(c))
            .ok_or_else(wrong)?;
        let (currency, amount) = amount.split_at(digits);
        let currency = currency.trim();
        let plain = |c: char| !c.is_control() && !c.is_whitespace();
        if currency.chars().count() > CURRENCY_MAX || !currency.chars().all(plain) {
            return Err(wrong());
        }
        let amount = amount.parse::<f64>().ok();
        let amount = amount.filter(|a| a.is_finite() && *a > 0.0);
        Ok(Self {
            amount: amount.ok_or_else(wrong)?,
            currency: currency.to_owned(),
            per,
            capacity_bytes: None,
            per_gb: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_as_people_write_them() {
        for (typed, shown) in [
            ("549", "549"),
            ("$549", "$549"),
            ("0.12/h", "0.12/h"),
            ("EUR 35.5/month", "EUR 35.50/month"),
            ("€0.0005/h", "€0.0005/h"),
        ] {
            assert_eq!(typed.parse::<Price>().unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "free",
            "-3",
            "0",
            "1/year",
            "inf",
            "dollars 3",
            "$",
            "1e999",
        ] {
            let said = wrong.parse::<Price>().unwrap_err();
            assert!(said.contains("expected"), "{wrong}: {said}");
        }
    }

    #[test]
    fn what_a_gigabyte_costs_follows_from_the_device_or_from_the_whole_target() {
        let price = || "$480".parse::<Price>().unwrap();
        let mut environment = serde_json::json!({});
        price().put(&mut environment);
        assert!(environment["price"]["per_gb"].is_null());
        let words = Price {
            per_gb: Some(1.0),
            ..price()
        };
        assert_eq!(words.words(), "$480, $1 per GB");
        assert!(!price().is_of_kind(&"480/h".parse().unwrap()));
    }
}
