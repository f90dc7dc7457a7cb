//! What TPC-C asks of its terminals and of a result (revision 5.11, clause 5): waits, shares, response times. A rate is called tpmC
//! where all of it holds, and nowhere else.

use clap::Args;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::Nanos;
use serde::{Deserialize, Serialize};

use super::transactions::Kind;

/// Terminals of a warehouse (clause 4.2.2).
pub(super) const TERMINALS: u32 = 10;
/// New orders per minute that a warehouse can give at most, with all waits (clause 4.2.1).
const MOST_OF_WAREHOUSE: f64 = 12.86;
/// Shortest measurement (clause 5.5.2.1).
const SHORTEST: Nanos = Nanos::from_secs(120 * 60);
/// Difference by which a mean may lie above the 90th percentile (clause 5.2.5.6), ns.
const EQUAL: f64 = 0.1e9;

/// What is asked of a kind (the table of clause 5.2.5.7).
pub(super) struct Rule {
    /// Of all transactions at least, percent.
    pub(super) share: f64,
    /// From the choice in the menu to its entry (clause 5.2.5.2).
    keying: Nanos,
    /// Mean time from its answer to the next choice (clause 5.2.5.4).
    thinking: Nanos,
    /// 90th percentile of its response at most, where the terminal waits for it.
    pub(super) limit: Nanos,
}

const fn rule(share: f64, keying: u64, thinking: u64, limit: u64) -> Rule {
    Rule {
        share,
        keying: Nanos::from_secs(keying),
        thinking: Nanos::from_secs(thinking),
        limit: Nanos::from_secs(limit),
    }
}

/// Deliveries in the background are to be done 80 s after they were queued, in 90 % (clause 2.7.2.2).
pub(super) const DEFERRED: Nanos = Nanos::from_secs(80);

/// By kind.
pub(super) fn of(kind: Kind) -> Rule {
    match kind {
        Kind::NewOrder => rule(0.0, 18, 12, 5),
        Kind::Payment => rule(43.0, 3, 12, 5),
        Kind::OrderStatus => rule(4.0, 2, 10, 5),
        Kind::Delivery => rule(4.0, 2, 5, 5),
        Kind::StockLevel => rule(4.0, 2, 5, 20),
    }
}

/// How terminals wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Pace {
    /// Terminals take the specification's time to key in: 18, 3, 2, 2, 2 s
    #[arg(long)]
    pub keying: bool,
    /// Terminals think between transactions: 12, 12, 10, 5, 5 s on average
    #[arg(long)]
    pub thinking: bool,
    /// Of keying and think times: 0.1 waits a tenth
    #[arg(long = "pace", value_name = "FACTOR", default_value = "1", value_parser = factor)]
    pub scale: f64,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(n) if (0.001..=100.0).contains(&n) => Ok(n),
        _ => Err("expected a factor from 0.001 to 100; 1 is the specification's".into()),
    }
}

impl Pace {
    /// Whether terminals wait at all: then few connections serve many of them.
    pub fn waits(&self) -> bool {
        self.keying || self.thinking
    }

    /// Between the answer to one transaction and the entry of the next: a negative exponential time to think, cut at ten times its mean,
    /// and the time to key in.
    pub(super) fn between(&self, last: Kind, next: Kind, random: &mut SplitMix64) -> Nanos {
        let mut seconds = 0.0;
        if self.thinking {
            // Of 1 - u, which is never 0.
            let drawn = -(1.0 - random.unit()).ln();
            seconds += of(last).thinking.as_secs_f64() * drawn.min(10.0);
        }
        if self.keying {
            seconds += of(next).keying.as_secs_f64();
        }
        Nanos((seconds * self.scale * 1e9) as u64)
    }
}

/// What a load was like, and what came of it.
pub(super) struct Told<'a> {
    pub(super) pace: Pace,
    pub(super) warehouses: u32,
    pub(super) terminals: u32,
    /// Shortest measurement.
    pub(super) time: Nanos,
    pub(super) open: bool,
    pub(super) inline: bool,
    /// Whether all consistency conditions were asked and hold.
    pub(super) consistent: bool,
    /// New orders per minute.
    pub(super) rate: f64,
    /// By kind: its share in percent, mean and 90th percentile of its response, ns.
    pub(super) kinds: &'a [(Kind, f64, f64, Option<f64>)],
}

/// 90th percentile that a kind may have.
pub(super) fn limit(kind: Kind, inline: bool) -> Nanos {
    match kind {
        Kind::Delivery if !inline => DEFERRED,
        _ => of(kind).limit,
    }
}

impl Told<'_> {
    /// What keeps the rate from being tpmC; nothing where all rules hold that can be seen from here.
    pub(super) fn broken(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut asked = |holds: bool, else_say: String| {
            if !holds {
                all.push(else_say);
            }
        };
        let p = &self.pace;
        asked(p.keying, "no keying times (5.2.5.2)".into());
        asked(p.thinking, "no think times (5.2.5.4)".into());
        asked(
            !p.waits() || p.scale >= 1.0,
            format!("waits are {} of those asked for", p.scale),
        );
        let terminals = self.warehouses * TERMINALS;
        asked(
            self.terminals == terminals,
            format!(
                "{} terminals instead of {terminals} (4.2.2)",
                self.terminals
            ),
        );
        asked(
            !self.open,
            "transactions came at a rate of their own".into(),
        );
        asked(!self.inline, "deliveries are not deferred (2.7.2)".into());
        asked(
            self.time >= SHORTEST,
            format!("measured for {} instead of 2 h (5.5.2.1)", self.time),
        );
        asked(self.consistent, "consistency is not shown (3.3.2)".into());
        let most = MOST_OF_WAREHOUSE * f64::from(self.warehouses);
        asked(
            self.rate <= most,
            format!("more than {most:.0} for so many warehouses (4.2.1)"),
        );
        for (kind, share, mean, p90) in self.kinds {
            let (name, rule) = (kind.name(), of(*kind));
            asked(
                *share >= rule.share,
                format!("{share:.2} % {name} instead of {} (5.2.3)", rule.share),
            );
            let limit = limit(*kind, self.inline);
            let Some(p90) = p90 else {
                asked(false, format!("too few {name} for a 90th percentile"));
                continue;
            };
            asked(
                *p90 <= limit.0 as f64,
                format!(
                    "90 % of {name} within {} instead of {limit} (5.2.5.3)",
                    Nanos(*p90 as u64)
                ),
            );
            // Not asked of what is deferred.
            asked(
                *kind == Kind::Delivery && !self.inline || *mean <= p90 + EQUAL,
                format!("{name} takes longer on average than 90 % of them (5.2.5.6)"),
            );
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_those_of_the_specification() {
        let both = Pace {
            keying: true,
            thinking: true,
            scale: 1.0,
        };
        let mut random = SplitMix64::new(1);
        for (last, next, mean, keying) in [
            (Kind::NewOrder, Kind::NewOrder, 12.0, 18.0),
            (Kind::OrderStatus, Kind::Payment, 10.0, 3.0),
            (Kind::StockLevel, Kind::Delivery, 5.0, 2.0),
        ] {
            let all: Vec<f64> = (0..50_000)
                .map(|_| both.between(last, next, &mut random).as_secs_f64())
                .collect();
            let seen = all.iter().sum::<f64>() / all.len() as f64 - keying;
            assert!((seen / mean - 1.0).abs() < 0.02, "{seen} instead of {mean}");
            let (least, most) = all
                .iter()
                .fold((f64::MAX, 0.0f64), |(a, b), t| (a.min(*t), b.max(*t)));
            assert!(least >= keying && most <= keying + 10.0 * mean + 1e-6);
        }
        let tenth = Pace {
            thinking: false,
            scale: 0.1,
            ..both
        };
        let wait = tenth.between(Kind::Payment, Kind::NewOrder, &mut random);
        assert_eq!(wait, Nanos::from_millis(1800));
        assert!(!Pace::default().waits());
    }

    #[test]
    fn a_rate_is_tpmc_only_where_every_rule_holds() {
        let second = 1e9;
        let kinds = [
            (Kind::NewOrder, 44.0, 0.1 * second, Some(0.2 * second)),
            (Kind::Payment, 43.4, 0.1 * second, Some(0.2 * second)),
            (Kind::OrderStatus, 4.2, 0.1 * second, Some(0.2 * second)),
            (Kind::Delivery, 4.2, 9.0 * second, Some(20.0 * second)),
            (Kind::StockLevel, 4.2, 6.0 * second, Some(19.0 * second)),
        ];
        let told = |kinds| Told {
            pace: Pace {
                keying: true,
                thinking: true,
                scale: 1.0,
            },
            warehouses: 10,
            terminals: 100,
            time: SHORTEST,
            open: false,
            inline: false,
            consistent: true,
            rate: 125.0,
            kinds,
        };
        assert_eq!(told(&kinds).broken(), Vec::<String>::new());
        let broken = |change: &dyn Fn(&mut Told<'_>)| {
            let mut t = told(&kinds);
            change(&mut t);
            t.broken()
        };
        let only = |found: Vec<String>, said: &str| {
            assert!(
                found.len() == 1 && found[0].contains(said),
                "{said}: {found:?}"
            );
        };
        only(broken(&|t| t.pace.keying = false), "no keying times");
        only(broken(&|t| t.pace.scale = 0.5), "0.5 of those");
        only(broken(&|t| t.terminals = 16), "16 terminals instead of 100");
        only(broken(&|t| t.open = true), "rate of their own");
        only(broken(&|t| t.time = Nanos::from_secs(60)), "instead of 2 h");
        only(broken(&|t| t.consistent = false), "consistency");
        only(broken(&|t| t.rate = 130.0), "more than 129");
        // A terminal that delivers itself waits for it.
        let inline = broken(&|t| t.inline = true);
        assert_eq!(inline.len(), 2, "{inline:?}");
        let mut slow = kinds;
        slow[0].3 = Some(6.0 * second);
        only(
            told(&slow).broken(),
            "90 % of new-order within 6.00 s instead of 5.00 s",
        );
        let mut rare = kinds;
        rare[1].1 = 42.0;
        only(told(&rare).broken(), "42.00 % payment instead of 43");
        let mut few = kinds;
        few[4].3 = None;
        only(told(&few).broken(), "too few stock-level");
        let mut tail = kinds;
        tail[2].2 = second;
        only(told(&tail).broken(), "order-status takes longer on average");
    }
}
