//! The shape of cores in a design file.

use super::ModelParameters;
use serde::{Deserialize, Serialize};
use terrace_model::parameters::Parameters;
use terrace_model::{Frequency, Time};

/// The cores of a machine: what they have in common, and the groups in which they differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct CoreParameters {
    /// How its time passes.
    #[parameter(section)]
    #[serde(default)]
    pub model: ModelParameters,
    /// Number of hardware threads that run program threads at once. Where there are groups, the sum of theirs.
    #[parameter(range = 1..=1024)]
    pub count: u32,
    /// Hardware threads of a core, which share its caches of levels 1 and 2 and their miss registers; those of one core have
    /// neighbouring numbers. What else they share in a real core (TLBs, dispatch, the reorder buffer) each has for itself.
    #[parameter(range = 1..=8)]
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threads: u32,
    /// Misses of L1 that one hardware thread may have outstanding; left out, as many as its core
    /// (`cache.l1.outstanding`).
    #[parameter(range = 1..=16384)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<u32>,
    /// Clock. What a design counts in `cycles` is in cycles of this clock, whatever the groups'.
    #[parameter(range = "1 MHz"..="1000 GHz")]
    pub frequency: Frequency,
    /// Instructions dispatched per cycle at most. It bounds `base_cpi` from below, and enters no time by itself.
    #[parameter(range = 1..=1024)]
    pub dispatch_width: u32,
    /// Instructions in flight; of the interval model.
    #[parameter(range = 1..=16384)]
    pub reorder_buffer: u32,
    /// Stores retired but not yet in the cache.
    #[parameter(range = 1..=16384)]
    pub store_buffer: u32,
    /// Cycles per instruction when nothing misses; at least `1 / dispatch_width`.
    #[parameter(range = 0.0001..=100_000.0)]
    pub base_cpi: f64,
    /// Cores that differ; none where all are equal. The cores of the first group have the lowest numbers.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<CoreGroup>,
}

/// Cores that are equal among themselves. What a group leaves out is as the machine's cores have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct CoreGroup {
    /// Name used in [statistics](statistics.md): small letters, digits, `-` and `_`.
    #[parameter(element)]
    pub name: String,
    /// Number of its cores. `core.count` is the sum of the groups then and cannot be set.
    #[parameter(range = 1..=1024)]
    pub count: u32,
    /// In place of the common key.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelParameters>,
    /// In place of the common key.
    #[parameter(range = "1 MHz"..="1000 GHz")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<Frequency>,
    /// In place of the common key.
    #[parameter(range = 1..=1024)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_width: Option<u32>,
    /// In place of the common key.
    #[parameter(range = 1..=16384)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder_buffer: Option<u32>,
    /// In place of the common key.
    #[parameter(range = 1..=16384)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_buffer: Option<u32>,
    /// In place of the common key.
    #[parameter(range = 0.0001..=100_000.0)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_cpi: Option<f64>,
}

fn one() -> u32 {
    1
}

fn is_one(threads: &u32) -> bool {
    *threads == 1
}

impl CoreParameters {
    /// The cores of a group, without groups of their own.
    pub fn of(&self, group: &CoreGroup) -> CoreParameters {
        CoreParameters {
            model: group.model.clone().unwrap_or_else(|| self.model.clone()),
            count: group.count,
            threads: self.threads,
            outstanding: self.outstanding,
            frequency: group.frequency.unwrap_or(self.frequency),
            dispatch_width: group.dispatch_width.unwrap_or(self.dispatch_width),
            reorder_buffer: group.reorder_buffer.unwrap_or(self.reorder_buffer),
            store_buffer: group.store_buffer.unwrap_or(self.store_buffer),
            base_cpi: group.base_cpi.unwrap_or(self.base_cpi),
            groups: Vec::new(),
        }
    }

    /// What each core is, in the order of their numbers.
    pub fn each(&self) -> Vec<CoreParameters> {
        let alike = |cores: CoreParameters| std::iter::repeat_n(cores.clone(), cores.count as usize);
        if self.groups.is_empty() {
            alike(self.clone()).collect()
        } else {
            self.groups.iter().flat_map(|group| alike(self.of(group))).collect()
        }
    }

    /// Mean time of an instruction when nothing misses.
    pub fn instruction_time(&self) -> Time {
        Time((self.frequency.period().0 as f64 * self.base_cpi).round() as u64)
    }

    /// A core of 1 GHz, so that a cycle is 1 ns, with one instruction per cycle and two entries in its store buffer.
    #[cfg(test)]
    pub fn simple(model: ModelParameters) -> CoreParameters {
        CoreParameters {
            model,
            count: 1,
            threads: 1,
            outstanding: None,
            frequency: Frequency(1e9),
            dispatch_width: 1,
            reorder_buffer: 64,
            store_buffer: 2,
            base_cpi: 1.0,
            groups: Vec::new(),
        }
    }
}
