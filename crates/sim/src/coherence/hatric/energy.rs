//! What translation and its coherence take of energy: counts times the design's table `translation.energy`.

use super::parameters::TranslationEnergy;
use super::state::Hardware;
use terrace_model::{Stats, Unit};

/// What happened, of which each takes energy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EnergySums {
    /// Lookups of level-1 TLBs, of level-2 TLBs, of page-walk caches, of nested TLBs.
    pub lookups: [u64; 4],
    /// Walks, each of which fills.
    pub walks: u64,
    /// Entries that walks fetched.
    pub walk_references: u64,
    /// Processors that were interrupted for shootdowns.
    pub interrupts: u64,
    /// Cores of the machine.
    pub cores: u64,
}

/// Adds the energy of translation to the statistics of a run, in joules.
pub(crate) fn translation_energy(
    table: &TranslationEnergy,
    sums: &EnergySums,
    hardware: Option<&Hardware>,
    stats: &mut Stats,
) {
    let work = hardware.map(|hardware| hardware.work(sums.cores)).unwrap_or_default();
    let each = |count: u64, energy: terrace_model::Energy| count as f64 * energy.0;
    let [l1, l2, walk_cache, nested] = sums.lookups;
    let lookups = each(l1, table.l1_lookup)
        + each(l2, table.l2_lookup)
        + each(walk_cache, table.walk_cache_lookup)
        + each(nested, table.nested_tlb_lookup);
    let parts = [
        ("lookups", lookups),
        ("walks", each(sums.walk_references, table.walk_reference)),
        ("fills", each(sums.walks, table.fill) + each(work.written, table.co_tag_fill_byte)),
        ("probes", each(work.compared, table.co_tag_byte)),
        ("messages", each(work.messages, table.message)),
        ("directory", each(work.directory, table.directory_byte)),
        ("interrupts", each(sums.interrupts, table.interrupt)),
    ];
    for (name, joules) in parts {
        stats.real(format!("energy.translation.{name}"), joules, Unit::Joules);
    }
    stats.real("energy.translation.total", parts.iter().map(|part| part.1).sum(), Unit::Joules);
}
