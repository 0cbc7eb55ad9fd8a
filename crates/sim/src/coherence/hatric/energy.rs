//! What translation and its coherence take of energy: counts times the design's table `translation.energy`.

use super::parameters::TranslationEnergy;
use super::state::Hardware;
use terrace_model::{Stats, Unit};

/// What happened, of which each takes energy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EnergySums {
    /// Lookups of level-1 TLBs, of level-2 TLBs, of page-walk caches.
    pub lookups: [u64; 3],
    /// Walks, each of which fills.
    pub walks: u64,
    /// Entries that walks fetched.
    pub walk_references: u64,
    /// Processors that were interrupted for shootdowns.
    pub interrupts: u64,
}

/// Adds the energy of translation to the statistics of a run, in joules.
pub(crate) fn translation_energy(
    table: &TranslationEnergy,
    sums: &EnergySums,
    hardware: Option<&Hardware>,
    stats: &mut Stats,
) {
    let [compared, written, messages] = hardware.map(Hardware::work).unwrap_or_default();
    let each = |count: u64, energy: terrace_model::Energy| count as f64 * energy.0;
    let [l1, l2, walk_cache] = sums.lookups;
    let parts = [
        (
            "lookups",
            each(l1, table.l1_lookup) + each(l2, table.l2_lookup) + each(walk_cache, table.walk_cache_lookup),
        ),
        ("walks", each(sums.walk_references, table.walk_reference)),
        ("fills", each(sums.walks, table.fill) + each(written, table.co_tag_fill_byte)),
        ("probes", each(compared, table.co_tag_byte)),
        ("messages", each(messages, table.message)),
        ("interrupts", each(sums.interrupts, table.interrupt)),
    ];
    for (name, joules) in parts {
        stats.real(format!("energy.translation.{name}"), joules, Unit::Joules);
    }
    stats.real("energy.translation.total", parts.iter().map(|part| part.1).sum(), Unit::Joules);
}
