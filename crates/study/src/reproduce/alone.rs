//! Programs of mixes that also run alone, where a claim asks how long they take.

use super::Results;
use super::recorded::{input_of, workload_of};
use crate::Error;
use crate::mix::note_slowdowns;
use std::collections::{BTreeMap, BTreeSet};
use terrace_sim::design::claims::{Claim, RunKey};

/// The metric that asks for them.
const ALONE_TIME: &str = ".alone_time";

/// Mixes with the names of their programs and the runs of these alone.
pub(super) struct Alone {
    mixes: BTreeMap<RunKey, Vec<(String, RunKey)>>,
}

impl Alone {
    /// What the claims ask for. A mix that lacks a recording needs none, as it does not run.
    ///
    /// # Errors
    /// A program that no claim can name by itself.
    pub fn of(claims: &[Claim]) -> Result<Alone, Error> {
        let mut mixes = BTreeMap::new();
        // Several claims ask about the same mixes.
        let asked = claims.iter().flat_map(|claim| claim.runs_with(|metric| metric.ends_with(ALONE_TIME)));
        for mix in asked.collect::<BTreeSet<_>>() {
            let Ok(input) = input_of(&mix.workload) else { continue };
            let alone = |program: &crate::Input| {
                let key = RunKey { workload: workload_of(program)?, train: String::new(), ..mix.clone() };
                Ok((program.name.clone(), key))
            };
            let programs = input.programs().iter().map(alone).collect::<Result<Vec<_>, Error>>()?;
            mixes.insert(mix, programs);
        }
        Ok(Alone { mixes })
    }

    /// The runs.
    pub fn keys(&self) -> impl Iterator<Item = RunKey> {
        self.mixes.values().flatten().map(|(_, key)| key.clone())
    }

    /// Tells the results of mixes how long their programs take alone.
    pub fn settle(&self, results: &mut Results) {
        for (mix, programs) in &self.mixes {
            let seconds = |(name, key): &(String, RunKey)| Some((name.clone(), results.get(key)?.seconds));
            let Some(alone) = programs.iter().map(seconds).collect::<Option<Vec<_>>>() else { continue };
            if let Some(numbers) = results.get_mut(mix) {
                note_slowdowns(&mut numbers.stats, &alone);
            }
        }
    }
}
