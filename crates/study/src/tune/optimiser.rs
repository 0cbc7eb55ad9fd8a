//! The search itself: one estimator per parameter, then back to the defaults where they are as good.

use super::space::Dimension;
use super::{AT_ONCE, Ground, NO_MATTER, Setting, Tuning};
use crate::Error;
use crate::bench::Trial;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use terrace_model::parameters::Kind;
use tpe::TpeOptimizer;

impl Tuning<'_> {
    /// The best setting of the budget, and how many were refused.
    pub(super) fn optimise(
        &self,
        ground: &Ground<'_>,
        defaults: &Setting,
        default: &Trial,
    ) -> Result<(Setting, Trial, u32), Error> {
        let dimensions = &self.space.dimensions;
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(self.asked.seed);
        let mut optimisers = dimensions.iter().map(optimiser).collect::<Result<Vec<_>, Error>>()?;
        let start = self.objective(default);
        tell(&mut optimisers, dimensions, defaults, start)?;
        let (mut best, mut refused) = ((defaults.clone(), default.clone()), 0);
        let mut done = 0;
        while done < self.asked.runs {
            let count = AT_ONCE.min((self.asked.runs - done) as usize);
            let mut asked: Vec<Setting> = Vec::new();
            for _ in 0..count {
                let values = optimisers.iter_mut().zip(dimensions).map(|(optimiser, dimension)| {
                    let inner =
                        optimiser.ask(&mut generator).map_err(|error| Error::failed(format!("{error:?}")))?;
                    Ok(from_optimiser(dimension, inner))
                });
                asked.push(values.collect::<Result<_, Error>>()?);
            }
            done += count as u32;
            let doing = format!("setting {done} of {}", self.asked.runs);
            let trials = self.try_all(ground, &doing, &asked)?;
            for (setting, trial) in asked.into_iter().zip(trials) {
                match trial {
                    Ok(trial) => {
                        let value = self.objective(&trial);
                        tell(&mut optimisers, dimensions, &setting, value)?;
                        tracing::info!(objective = value, sets = ?self.sets(&setting), "a setting");
                        if value < self.objective(&best.1) {
                            best = (setting, trial);
                        }
                    }
                    // Parameters that contradict each other: as bad as a run of twice the time.
                    Err(reason) => {
                        tracing::info!(reason, sets = ?self.sets(&setting), "a setting is refused");
                        refused += 1;
                        tell(&mut optimisers, dimensions, &setting, 2.0 * start)?;
                    }
                }
            }
        }
        Ok((best.0, best.1, refused))
    }

    /// Takes back what does not matter: a setting of few changes is easier to trust.
    pub(super) fn simplify(
        &self,
        ground: &Ground<'_>,
        defaults: &Setting,
        best: Setting,
        trial: Trial,
    ) -> Result<(Setting, Trial), Error> {
        let changed: Vec<usize> = (0..best.len()).filter(|&at| best[at] != defaults[at]).collect();
        let with_default = |at: &usize| {
            let mut setting = best.clone();
            setting[*at] = defaults[*at];
            setting
        };
        let alone: Vec<Setting> = changed.iter().map(with_default).collect();
        let enough = self.objective(&trial) * (1.0 + NO_MATTER);
        let trials = self.try_all(ground, "what matters", &alone)?;
        let idle = changed
            .into_iter()
            .zip(trials)
            .filter(|(_, trial)| trial.as_ref().is_ok_and(|trial| self.objective(trial) <= enough))
            .map(|(at, _)| at);
        // One after the other: of two that do the same, one has to stay.
        let (mut simple, mut simplest) = (best, trial);
        for at in idle {
            let mut setting = simple.clone();
            setting[at] = defaults[at];
            let trial = self.try_all(ground, "what matters", std::slice::from_ref(&setting))?.remove(0);
            if let Some(trial) = trial.ok().filter(|trial| self.objective(trial) <= enough) {
                (simple, simplest) = (setting, trial);
            }
        }
        Ok((simple, simplest))
    }
}

type Optimiser = TpeOptimizer;

fn optimiser(dimension: &Dimension) -> Result<Optimiser, Error> {
    let (low, high) = dimension.range();
    let range = match dimension.kind {
        Kind::Switch => tpe::categorical_range(2),
        _ => tpe::range(low, high),
    };
    let range = range.map_err(|error| Error::failed(format!("{}: {error:?}", dimension.name)))?;
    let estimator = match dimension.kind {
        Kind::Switch => tpe::histogram_estimator(),
        _ => tpe::parzen_estimator(),
    };
    Ok(TpeOptimizer::new(estimator, range))
}

fn from_optimiser(dimension: &Dimension, inner: f64) -> f64 {
    match dimension.kind {
        // Categories are 0 and 1, with anything up to the next for the same.
        Kind::Switch => inner.floor().clamp(0.0, 1.0),
        _ => dimension.value(inner),
    }
}

/// Tells each parameter's estimator the outcome; a value outside its range, such as a default, is none of its business.
fn tell(
    optimisers: &mut [Optimiser],
    dimensions: &[Dimension],
    setting: &Setting,
    value: f64,
) -> Result<(), Error> {
    for ((optimiser, dimension), parameter) in optimisers.iter_mut().zip(dimensions).zip(setting) {
        let inner = if dimension.kind == Kind::Switch { *parameter } else { dimension.inner(*parameter) };
        let (low, high) = dimension.range();
        if dimension.kind == Kind::Switch || (low..high).contains(&inner) {
            optimiser
                .tell(inner, value)
                .map_err(|error| Error::failed(format!("{}: {error:?}", dimension.name)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimiser_is_repeatable_and_finds_a_known_optimum() {
        let dimension = Dimension {
            name: "period".to_owned(),
            kind: Kind::Time,
            default: 2e9,
            low: 1e6,
            high: 1e10,
            logarithmic: true,
        };
        let find = |seed| {
            let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut optimiser = optimiser(&dimension).unwrap_or_else(|_| panic!());
            let mut best = (f64::INFINITY, 0.0);
            for _ in 0..100 {
                let value = dimension.value(optimiser.ask(&mut generator).unwrap());
                // Least at 50 ms.
                let objective = (value / 5e7).ln().abs();
                let inner = dimension.inner(value).clamp(dimension.range().0, dimension.range().1 - 1e-9);
                optimiser.tell(inner, objective).unwrap();
                best = if objective < best.0 { (objective, value) } else { best };
            }
            best.1
        };
        assert_eq!(find(1), find(1));
        assert!((2.5e7..1e8).contains(&find(1)), "{}", find(1));
    }
}
