//! The values of a model that can be fitted, and other models that are as likely by what a fit knows.
//!
//! Values are held on the scale ln(x + least): relative where they matter, absolute where they are next to nothing.

use fathom_io::load::rng::Rng;

use crate::fitted::Fitted;
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

/// Multiples of it fill 0 to 1 evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

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
        self.scale(self.value(model))
    }

    /// Where a value in its unit lies on that scale.
    pub fn scale(&self, value: f64) -> f64 {
        ln((value + self.least).max(1e-12))
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

    /// 95 % interval by a fit on that scale, `best` being where the best model has it; `None` where it was not fitted.
    pub fn interval(&self, fit: &Fitted, best: f64) -> Option<[f64; 2]> {
        let place = fit.parameters.iter().position(|k| k == self.key)?;
        let parts: Vec<(f64, f64, f64)> = (fit.models())
            .map(|(share, other, root)| {
                let middle = other.map_or(best, |o| self.scale(o.values[place]));
                let sd = root[place].iter().map(|x| x * x).sum::<f64>().sqrt();
                (share, middle, sd.max(1e-9))
            })
            .collect();
        let ends = |z: f64| parts.iter().map(move |p| p.1 + z * p.2);
        let (low, high) = (
            ends(-9.0).fold(f64::INFINITY, f64::min),
            ends(9.0).fold(f64::NEG_INFINITY, f64::max),
        );
        Some([0.025, 0.975].map(|share| {
            let (mut low, mut high) = (low, high);
            for _ in 0..60 {
                let middle = 0.5 * (low + high);
                let below: f64 = (parts.iter())
                    .map(|(w, m, sd)| {
                        w * 0.5 * libm::erfc((m - middle) / sd * std::f64::consts::FRAC_1_SQRT_2)
                    })
                    .sum();
                match below < share {
                    true => low = middle,
                    false => high = middle,
                }
            }
            0.5 * (low + high)
        }))
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
        let known = fit.clone();
        (fit.parameters, fit.root, fit.others) = Default::default();
        if number == 0 {
            return Ok(model);
        }
        // In pairs that mirror each other: what they say on average is what the middle says, nearly. Pairs are spread over
        // the models by their shares.
        let pair = number.div_ceil(2);
        let (other, root) = known.at((f64::from(pair - 1) * GOLDEN).fract());
        model.slots = other.map_or(model.slots, |o| o.slots);
        let mut rng = Rng::new(u64::from(pair), 0xF17);
        let sign = if number % 2 == 1 { 1.0 } else { -1.0 };
        let random: Vec<f64> = (known.parameters.iter())
            .map(|_| sign * normal_quantile(rng.unit().clamp(1e-12, 1.0 - 1e-12)))
            .collect();
        for (i, key) in known.parameters.iter().enumerate() {
            let parameter = PARAMETERS.iter().find(|p| p.key == key);
            let parameter = parameter
                .ok_or_else(|| format!("its fit names '{key}', which is no value of a model"))?;
            let middle = match other {
                Some(other) => parameter.scale(other.values[i]),
                None => parameter.scaled(self),
            };
            let off: f64 = root[i].iter().zip(&random).map(|(a, z)| a * z).sum();
            parameter.set_scaled(&mut model, middle + off);
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
        model.fit = Some(Fitted {
            runs: Vec::new(),
            held_out: 0,
            mean_error_percent: 0.0,
            p99_error_percent: 0.0,
            unfit: false,
            parameters: vec!["read.media_us".into(), "units".into()],
            root: vec![vec![0.1], vec![0.0, 0.0]],
            others: Vec::new(),
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
    fn what_is_as_likely_is_drawn_as_often_and_widens_the_interval() {
        let mut model = Model::named("optane-900p").unwrap();
        let media = named("read.media_us");
        let (best, other) = (media.value(&model), 3.0 * media.value(&model));
        let mut fit = Fitted {
            runs: Vec::new(),
            held_out: 0,
            mean_error_percent: 0.0,
            p99_error_percent: 0.0,
            unfit: false,
            parameters: vec!["read.media_us".into()],
            root: vec![vec![0.01]],
            others: Vec::new(),
        };
        let alone = media.interval(&fit, media.scaled(&model)).unwrap();
        let expected = [-1.96, 1.96].map(|z| media.scaled(&model) + z * 0.01);
        assert!(
            (0..2).all(|i| (alone[i] - expected[i]).abs() < 1e-4),
            "{alone:?}"
        );
        fit.others.push(crate::fitted::Other {
            share: 0.25,
            slots: 77,
            values: vec![other],
            root: vec![vec![0.02]],
        });
        let both = media.interval(&fit, media.scaled(&model)).unwrap();
        // A tenth of the other's share lies above.
        let above = media.scale(other) + 1.2816 * 0.02;
        assert!(
            (both[1] - above).abs() < 1e-3 && both[0] < expected[0] + 0.005,
            "{both:?}"
        );
        assert!(fit.check().is_ok() && named("units").interval(&fit, 0.0).is_none());
        model.fit = Some(fit.clone());
        let of_other = (1..=400).filter(|k| {
            let drawn = model.drawn(*k).unwrap();
            let near = (media.value(&drawn) / other).ln().abs() < 0.5;
            assert_eq!(near, drawn.slots == 77, "{drawn:?} beside {best}");
            near
        });
        let count = of_other.count();
        assert!((90..=110).contains(&count), "{count}");
        // Through its file it is the same.
        let again = Model::parse("again", &model.file().unwrap()).unwrap();
        assert_eq!(again.fit, model.fit);
        fit.others[0].values.push(1.0);
        assert!(fit.check().unwrap_err().contains("others"));
    }

    #[test]
    fn programming_never_keeps_units_from_reading_for_good() {
        let mut model = Model::named("optane-900p").unwrap();
        let program = named("flash.program_us");
        program.set_scaled(&mut model, 20.0);
        assert!(model.check().is_ok() && program.value(&model) > 1.0);
    }
}
