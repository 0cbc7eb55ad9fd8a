//! How far the number of a claim could be off: its runs once more, with constants at the ends of their spread, and with
//! another seed.

use super::recorded::input_of;
use crate::designs::{Changes, Job, Setting};
use crate::{Error, intervals};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use terrace_sim::design::Resolved;
use terrace_sim::design::claims::{MIGRATION, RunKey, Verdict};

/// How runs depart from those that a claim names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// Assumed constants are at the ends of their spread.
    AtEnds,
    /// Workload, policy and aging draw anew.
    Reseeded,
}

/// What makes the run another one.
#[derive(Clone, Debug, Default)]
pub(super) struct Departed {
    /// In place of the claim's design.
    pub design: Option<Resolved>,
    /// In place of the workload's own.
    pub seed: Option<u64>,
}

impl Departure {
    pub const ALL: [Departure; 2] = [Departure::AtEnds, Departure::Reseeded];

    /// The departed run; nothing where it would be the same.
    ///
    /// # Errors
    /// A machine whose spread is no list of ranges, a workload that does not exist.
    pub fn of(self, key: &RunKey, design: &Resolved) -> Result<Option<Departed>, Error> {
        let job = Job { word: key.design.clone(), words: Vec::new(), design: design.clone(), own: None };
        let sets =
            key.sets.iter().map(|(name, value)| Setting::of_all(name.clone(), value.clone())).collect();
        let changes = Changes { machine: Some(key.machine.clone()), sets, time_scale: 1 };
        let departed = match self {
            Departure::AtEnds => {
                Departed { design: intervals::at_ends(&job, &changes)?.map(|job| job.design), seed: None }
            }
            Departure::Reseeded => Departed {
                design: intervals::with_other_seed(&job).map(|job| job.design),
                seed: match key.workload.as_str() {
                    MIGRATION => None,
                    workload => intervals::other_seed(&input_of(workload)?).map(|(seed, _)| seed),
                },
            },
        };
        Ok((departed.design.is_some() || departed.seed.is_some()).then_some(departed))
    }
}

/// How far a claim's numbers could be off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Around {
    /// The lower end of each number of the claim, in their order.
    pub low: Vec<f64>,
    /// The upper end of each.
    pub high: Vec<f64>,
    /// The verdict is the same with constants at the ends of their spread and with another seed.
    pub is_stable: bool,
}

impl Around {
    /// The causes add up, to both sides alike; nothing where a run has no result.
    pub(super) fn of(plain: &Verdict, departed: &[Verdict]) -> Option<Around> {
        let is_whole = |other: &Verdict| {
            other.numbers.len() == plain.numbers.len()
                && other.numbers.iter().all(|number| number.is_finite())
        };
        if plain.numbers.is_empty() || !std::iter::once(plain).chain(departed).all(is_whole) {
            return None;
        }
        let off = |at: usize| -> f64 {
            departed.iter().map(|other| (other.numbers[at] - plain.numbers[at]).abs()).sum()
        };
        let ends = |sign: f64| {
            plain.numbers.iter().enumerate().map(|(at, number)| number + sign * off(at)).collect()
        };
        Some(Around {
            low: ends(-1.0),
            high: ends(1.0),
            is_stable: departed.iter().all(|other| other.holds == plain.holds),
        })
    }

    /// ` (6.2 to 7.4)` for one number; how far the numbers are off at most for several.
    pub fn in_words(&self) -> String {
        let mut text = match (&self.low[..], &self.high[..]) {
            ([low], [high]) => format!("({} to {})", significant(*low), significant(*high)),
            (low, high) => {
                let share =
                    |(low, high): (&f64, &f64)| (high - low) / (high + low).abs().max(f64::MIN_POSITIVE);
                let most = low.iter().zip(high).map(share).fold(0.0, f64::max);
                format!("(each +/- {:.1} % at most)", most * 100.0)
            }
        };
        if !self.is_stable {
            let _ = write!(text, ", and the verdict turns within that");
        }
        text
    }
}

/// Three digits that count.
fn significant(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let digits = (2 - number.abs().log10().floor() as i32).clamp(0, 12) as usize;
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(numbers: &[f64], holds: bool) -> Verdict {
        Verdict {
            id: "one".to_owned(),
            ours: String::new(),
            published: String::new(),
            holds,
            evaluated: true,
            reason: String::new(),
            rows: Vec::new(),
            numbers: numbers.to_vec(),
        }
    }

    #[test]
    fn causes_add_up_and_a_verdict_that_turns_is_noted() {
        let plain = verdict(&[1.5], true);
        let around = Around::of(&plain, &[verdict(&[1.75], true), verdict(&[1.375], true)]).unwrap();
        assert_eq!((around.low[0], around.high[0], around.is_stable), (1.125, 1.875, true));
        assert_eq!(around.in_words(), "(1.12 to 1.88)");
        let around = Around::of(&plain, &[verdict(&[1.0], false)]).unwrap();
        assert_eq!(around.in_words(), "(1.00 to 2.00), and the verdict turns within that");
    }

    #[test]
    fn of_several_numbers_the_widest_is_noted_and_a_missing_one_makes_no_interval() {
        let plain = verdict(&[10.0, 2.0], true);
        let around = Around::of(&plain, &[verdict(&[10.0, 2.5], true)]).unwrap();
        assert_eq!(around.in_words(), "(each +/- 25.0 % at most)");
        assert!(Around::of(&plain, &[verdict(&[10.0], true)]).is_none());
        assert!(Around::of(&verdict(&[], false), &[]).is_none());
    }
}
