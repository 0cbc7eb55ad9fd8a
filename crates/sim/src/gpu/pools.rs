//! What a run's memories and link carried over the time of kernels, for reports.

use super::state::Engine;
use crate::design::Design;
use crate::memory::Way;
use terrace_model::{Pool, PoolInterval, PoolLink, PoolTraffic, Stats, TierId, Time, Unit};

/// What is known at the end of a run. Of coherent caches the link is the one between them; else the one in front of the
/// CPU's memory.
pub(super) fn of_run(engine: &mut Engine, design: &Design) -> PoolTraffic {
    let shared = &mut engine.machine.shared;
    let Some(mut watch) = shared.memory.watch.take() else { return PoolTraffic::default() };
    let [there, back] = [Way::There, Way::Back].map(|way| watch.column_of(way));
    let mut crossings = engine.paths.coherence.as_mut().map(|coherence| coherence.link_series().clone());
    if let Some(crossings) = &mut crossings {
        let width = watch.series.width().max(crossings.width());
        watch.series.widen_to(width);
        crossings.widen_to(width);
    }
    let pools = design.tiers.iter().enumerate().map(|(at, tier)| Pool {
        name: tier.name.clone(),
        bytes_per_second: shared.memory.bandwidths(TierId(at as u8), design).0.0,
    });
    let own = watch.series.intervals().map(<[u64]>::to_vec).collect::<Vec<_>>();
    let beside = |at: usize| crossings.as_ref().map(|series| series.intervals().nth(at).unwrap_or(&[0, 0]));
    let count = own.len().max(crossings.as_ref().map_or(0, |series| series.intervals().count()));
    let interval = |at: usize| {
        let of = |column: usize| own.get(at).map_or(0, |interval| interval[column]);
        let [to_cpu, to_gpu] = match beside(at) {
            Some(link) => [link[0], link[1]],
            None => [of(there), of(back)],
        };
        let tiers = 0..design.tiers.len();
        PoolInterval {
            demand: tiers.clone().map(|tier| of(2 * tier)).collect(),
            migration: tiers.map(|tier| of(2 * tier + 1)).collect(),
            to_cpu,
            to_gpu,
        }
    };
    PoolTraffic {
        pools: pools.collect(),
        link: link_of(design),
        interval_seconds: watch.series.width().as_secs(),
        intervals: (0..count).map(interval).collect(),
        structures: shared.observers.structures.take().map(|counter| counter.finish()).unwrap_or_default(),
    }
}

fn link_of(design: &Design) -> Option<PoolLink> {
    if let Some(coherence) = &design.coherence {
        let each = coherence.link.bandwidth.0;
        return Some(PoolLink { to_cpu: each, to_gpu: each });
    }
    let link = design.tiers.iter().find_map(|tier| tier.link.as_ref())?;
    // What is written goes to the CPU's memory, and what is read comes from there.
    Some(PoolLink { to_cpu: link.write_bandwidth.0, to_gpu: link.read_bandwidth.0 })
}

/// Adds how busy kernels kept the link, as statistics.
pub(super) fn count_into(pools: &PoolTraffic, kernels: Time, stats: &mut Stats) {
    let Some(link) = pools.link else { return };
    let share = |bytes: u64, bandwidth: f64| bytes as f64 / (bandwidth * kernels.as_secs()).max(1e-9);
    let sum = |of: fn(&PoolInterval) -> u64| pools.intervals.iter().map(of).sum::<u64>();
    let to_cpu = share(sum(|one| one.to_cpu), link.to_cpu);
    let to_gpu = share(sum(|one| one.to_gpu), link.to_gpu);
    stats.real("gpu.link.to_cpu.utilization", to_cpu, Unit::Ratio);
    stats.real("gpu.link.to_gpu.utilization", to_gpu, Unit::Ratio);
}
