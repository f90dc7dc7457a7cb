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

/// All of them: reads first, then writes, then what only both together show.
pub const PARAMETERS: [Parameter; 13] = [
    Parameter {
        key: "units",
        least: 0.0,
        get: |m| f64::from(m.units),
        set: |m, x| m.units = x.round().clamp(1.0, 4096.0) as u32,
    },
    Parameter {
        key: "pipeline_cv",
        least: 0.05,
        get: |m| m.pipeline_cv,
        set: |m, x| m.pipeline_cv = x.min(5.0),
    },
    Parameter {
        key: "media_cv",
        least: 0.05,
        get: |m| m.media_cv,
        set: |m, x| m.media_cv = x.min(5.0),
    },
    Parameter {
        key: "read.command_ns",
        least: 50.0,
        get: |m| m.read.command_ns,
        set: |m, x| m.read.command_ns = x,
    },
    Parameter {
        key: "read.gb_per_s",
        least: 0.0,
        get: |m| m.read.gb_per_s,
        set: |m, x| m.read.gb_per_s = x.clamp(1e-4, 1e4),
    },
    Parameter {
        key: "read.media_us",
        least: 0.2,
        get: |m| m.read.media_us,
        set: |m, x| m.read.media_us = x,
    },
    Parameter {
        key: "read.fixed_us",
        least: 0.2,
        get: |m| m.read.fixed_us,
        set: |m, x| m.read.fixed_us = x,
    },
    Parameter {
        key: "write.command_ns",
        least: 50.0,
        get: |m| m.write.command_ns,
        set: |m, x| m.write.command_ns = x,
    },
    Parameter {
        key: "write.gb_per_s",
        least: 0.0,
        get: |m| m.write.gb_per_s,
        set: |m, x| m.write.gb_per_s = x.clamp(1e-4, 1e4),
    },
    Parameter {
        key: "write.media_us",
        least: 0.2,
        get: |m| m.write.media_us,
        set: |m, x| m.write.media_us = x,
    },
    Parameter {
        key: "write.fixed_us",
        least: 0.2,
        get: |m| m.write.fixed_us,
        set: |m, x| m.write.fixed_us = x,
    },
    Parameter {
        key: "flash.program_us",
        least: 3.0,
        get: |m| m.flash.map_or(0.0, |f| f.program_us),
        set: |m, x| {
            if x > 0.0 || m.flash.is_some() {
                m.flash.get_or_insert(PLAIN).program_us = x;
            }
        },
    },
    Parameter {
        key: "flash.reads_spoilt_by_write",
        least: 0.05,
        get: |m| m.flash.map_or(0.0, |f| f.reads_spoilt_by_write),
        set: |m, x| {
            if x > 0.0 || m.flash.is_some() {
                m.flash.get_or_insert(PLAIN).reads_spoilt_by_write = x.min(64.0);
            }
        },
    },
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
    /// By its key.
    pub fn named(key: &str) -> Option<&'static Self> {
        PARAMETERS.iter().find(|p| p.key == key)
    }

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
    /// A model as likely as this one by what its fit knows: `number` chooses one of many, 0 is the best.
    pub fn drawn(&self, number: u32) -> Self {
        let mut model = self.clone();
        let Some(fit) = self.fit.as_ref().filter(|_| number > 0) else {
            return model;
        };
        // In pairs that mirror each other: what they say on average is what the best says, nearly.
        let mut rng = Rng::new(u64::from(number.div_ceil(2)), 0xF17);
        let sign = if number % 2 == 1 { 1.0 } else { -1.0 };
        let random: Vec<f64> = (fit.parameters.iter())
            .map(|_| sign * normal_quantile(rng.unit().clamp(1e-12, 1.0 - 1e-12)))
            .collect();
        for (key, row) in fit.parameters.iter().zip(&fit.root) {
            if let Some(parameter) = Parameter::named(key) {
                let off: f64 = row.iter().zip(&random).map(|(a, z)| a * z).sum();
                parameter.set_scaled(&mut model, parameter.scaled(self) + off);
            }
        }
        model
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

    #[test]
    fn a_fit_may_name_every_value_and_no_other() {
        let keys: Vec<&str> = PARAMETERS.iter().map(|p| p.key).collect();
        assert_eq!(keys, crate::fitted::KEYS);
    }

    #[test]
    fn drawn_models_scatter_as_the_fit_says_and_in_pairs() {
        let mut model = Model::named("optane-900p").unwrap();
        assert_eq!(model.drawn(1), model, "nothing is known of it");
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
        assert_eq!(model.drawn(0), model);
        let least = Parameter::named("read.media_us").unwrap().least;
        let off: Vec<f64> = (1..=400)
            .map(|k| ((model.drawn(k).read.media_us + least) / (best + least)).ln())
            .collect();
        let deviation = (off.iter().map(|x| x * x).sum::<f64>() / 400.0).sqrt();
        assert!((deviation / 0.1 - 1.0).abs() < 0.1, "{deviation}");
        assert!(off.chunks(2).all(|p| (p[0] + p[1]).abs() < 1e-9));
    }

    #[test]
    fn programming_never_keeps_units_from_reading_for_good() {
        let mut model = Model::named("optane-900p").unwrap();
        let program = Parameter::named("flash.program_us").unwrap();
        program.set_scaled(&mut model, 20.0);
        assert!(model.check().is_ok() && program.value(&model) > 1.0);
    }
}
