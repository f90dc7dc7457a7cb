//! The values of a model that can be fitted, and other models that are as likely by what a fit knows.
//!
//! Values are held on the scale ln(x + least): relative where they matter, absolute where they are next to nothing.

use fathom_io::load::rng::Rng;

use crate::model::{Flash, Model};
use crate::spread::{exp, ln, normal_quantile};

/// A value of a model that can be fitted.
pub struct Parameter {
    /// Its key in the file, with its unit.
    pub key: &'static str,
    /// Differences below this are next to nothing, in its unit.
    pub least: f64,
    get: fn(&Model) -> f64,
    set: fn(&mut Model, f64),
}

/// A value by its field in the model, what is next to nothing, and its range.
macro_rules! parameter {
    ($($field:ident).+, $least:literal, $range:expr) => {
        Parameter {
            key: parameter!(@key $($field).+),
            least: $least,
            get: |m| m.$($field).+,
            set: |m, x| m.$($field).+ = x.clamp($range.0, $range.1),
        }
    };
    (flash $field:ident, $least:literal, $range:expr) => {
        Parameter {
            key: concat!("flash.", stringify!($field)),
            least: $least,
            get: |m| m.flash.map_or(0.0, |f| f.$field),
            set: |m, x| {
                if x > 0.0 || m.flash.is_some() {
                    m.flash.get_or_insert(PLAIN).$field = x.clamp($range.0, $range.1);
                }
            },
        }
    };
    (@key $only:ident) => { stringify!($only) };
    (@key $part:ident.$field:ident) => { concat!(stringify!($part), ".", stringify!($field)) };
}

const CV: (f64, f64) = (0.0, 5.0);
const NS: (f64, f64) = (0.0, 1e9);
const US: (f64, f64) = (0.0, 1e7);
const GB_PER_S: (f64, f64) = (1e-4, 1e4);

/// All of them: of both directions, reads, writes, then what only both together show.
pub const PARAMETERS: [Parameter; 13] = [
    Parameter {
        key: "units",
        least: 0.0,
        get: |m| f64::from(m.units),
        set: |m, x| m.units = x.round().clamp(1.0, 4096.0) as u32,
    },
    parameter!(pipeline_cv, 0.05, CV),
    parameter!(media_cv, 0.05, CV),
    parameter!(read.command_ns, 50.0, NS),
    parameter!(read.gb_per_s, 0.0, GB_PER_S),
    parameter!(read.media_us, 0.2, US),
    parameter!(read.fixed_us, 0.2, US),
    parameter!(write.command_ns, 50.0, NS),
    parameter!(write.gb_per_s, 0.0, GB_PER_S),
    parameter!(write.media_us, 0.2, US),
    parameter!(write.fixed_us, 0.2, US),
    parameter!(flash program_us, 3.0, US),
    parameter!(flash reads_spoilt_by_write, 0.05, (0.0, 64.0)),
];

/// Flash that costs a writer nothing: no wear, no cache, no garbage.
const PLAIN: Flash = Flash {
    sequential_mb_per_s: 1e5,
    steady_random_iops: 1e5 * 1e6 / 4096.0,
    fast_cache_gb: 0.0,
    behind_cache_gb_per_s: 1e4,
    endurance_tb: 0.0,
    program_us: 0.0,
    worn_reads_retried: 0.0,
    read_only_at_life: 0.0,
    reads_spoilt_by_write: 0.0,
};

impl Parameter {
    /// Its value in a model, in its unit.
    pub fn value(&self, model: &Model) -> f64 {
        (self.get)(model)
    }

    /// The same on the scale of its uncertainty.
    pub fn scaled(&self, model: &Model) -> f64 {
        ln((self.value(model) + self.least).max(1e-12))
    }

    /// The value in its unit that lies at `scaled`.
    pub fn unscaled(&self, scaled: f64) -> f64 {
        (exp(scaled.clamp(-60.0, 60.0)) - self.least).max(0.0)
    }

    /// Sets it from that scale; where the model would be impossible it becomes the nearest that is possible.
    pub fn set_scaled(&self, model: &mut Model, scaled: f64) {
        (self.set)(model, self.unscaled(scaled));
        model.programs_in_time();
    }
}

impl Model {
    /// A model as likely as this one by what its fit knows: `number` chooses one of many, 0 is the best. Of what is drawn
    /// nothing is open any more.
    ///
    /// # Errors
    /// Where it was not fitted, or its fit names what is no value of a model.
    pub fn drawn(&self, number: u32) -> Result<Self, String> {
        let mut model = self.clone();
        let fit = model.fit.as_mut();
        let fit = fit.ok_or("this model was not fitted (fathom sim fit)")?;
        let (keys, root) = (
            std::mem::take(&mut fit.parameters),
            std::mem::take(&mut fit.root),
        );
        if number == 0 {
            return Ok(model);
        }
        // In pairs that mirror each other: what they say on average is what the best says, nearly.
        let mut rng = Rng::new(u64::from(number.div_ceil(2)), 0xF17);
        let sign = if number % 2 == 1 { 1.0 } else { -1.0 };
        let random: Vec<f64> = (keys.iter())
            .map(|_| sign * normal_quantile(rng.unit().clamp(1e-12, 1.0 - 1e-12)))
            .collect();
        for (key, row) in keys.iter().zip(&root) {
            let parameter = PARAMETERS.iter().find(|p| p.key == key);
            let parameter = parameter
                .ok_or_else(|| format!("its fit names '{key}', which is no value of a model"))?;
            let off: f64 = row.iter().zip(&random).map(|(a, z)| a * z).sum();
            parameter.set_scaled(&mut model, parameter.scaled(self) + off);
        }
        model.check()?;
        Ok(model)
    }

    /// Flash keeps up with what the pipeline takes, and programming takes no more of the units than a model may.
    fn programs_in_time(&mut self) {
        let mb_per_s = (self.write.gb_per_s * 1e3).clamp(1.0, 1e5);
        if let Some(flash) = &mut self.flash {
            flash.sequential_mb_per_s = mb_per_s;
            flash.steady_random_iops = mb_per_s * 1e6 / 4096.0;
        }
        let most = self.most_program_us();
        if let Some(flash) = &mut self.flash {
            flash.program_us = flash.program_us.min(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(key: &str) -> &'static Parameter {
        PARAMETERS.iter().find(|p| p.key == key).unwrap()
    }

    #[test]
    fn drawn_models_scatter_as_the_fit_says_and_in_pairs() {
        let mut model = Model::named("optane-900p").unwrap();
        assert!(model.drawn(1).unwrap_err().contains("not fitted"));
        let best = model.read.media_us;
        model.fit = Some(crate::fitted::Fitted {
            runs: Vec::new(),
            held_out: 0,
            mean_error_percent: 0.0,
            p99_error_percent: 0.0,
            unfit: false,
            parameters: vec!["read.media_us".into(), "units".into()],
            root: vec![vec![0.1], vec![0.0, 0.0]],
        });
        let least = named("read.media_us").least;
        let off: Vec<f64> = (1..=400)
            .map(|k| {
                let drawn = model.drawn(k).unwrap();
                assert_eq!(drawn.drawn(7).unwrap(), drawn, "nothing is open of it");
                ((drawn.read.media_us + least) / (best + least)).ln()
            })
            .collect();
        let deviation = (off.iter().map(|x| x * x).sum::<f64>() / 400.0).sqrt();
        assert!((deviation / 0.1 - 1.0).abs() < 0.1, "{deviation}");
        assert!(off.chunks(2).all(|p| (p[0] + p[1]).abs() < 1e-9));
        model.fit.as_mut().unwrap().parameters[1] = "colour".into();
        assert!(model.drawn(1).unwrap_err().contains("colour"));
    }

    #[test]
    fn programming_never_keeps_units_from_reading_for_good() {
        let mut model = Model::named("optane-900p").unwrap();
        let program = named("flash.program_us");
        program.set_scaled(&mut model, 20.0);
        assert!(model.check().is_ok() && program.value(&model) > 1.0);
    }
}
