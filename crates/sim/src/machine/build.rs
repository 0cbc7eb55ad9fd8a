//! A machine made from a design.

use super::hypervisor::{Hypervisor, guest_layout};
use super::parts::{Core, Machine, Shared, WalkCounters};
use super::tiers::TieredMemory;
use super::timing::{Timing, Zeroing};
use crate::cache::{Hierarchy, MissRegisters};
use crate::coherence::{self, Hardware, Shootdowns};
use crate::core::{CoreGroup, CoreParameters, Pipeline};
use crate::design::Design;
use crate::host::{HostPrefetch, RegionCache, can_fill, can_have};
use crate::observe::Observers;
use crate::os::{MemoryOf, Os};
use crate::outcome::Options;
use crate::translate::{Nested, NestedParameters, PageWalkCache, PageWalkCacheParameters, Tlbs, schemes};
use std::ops::Range;
use terrace_model::parameters::{did_you_mean, nearest};
use terrace_model::{Histogram, Time};

impl Machine {
    /// Builds what the design describes.
    ///
    /// # Errors
    /// The first part that cannot be built, by its key.
    pub fn new(design: &Design, options: &Options) -> Result<Machine, String> {
        let each_core = design.core.each();
        if each_core.is_empty() {
            return Err("core.count: a machine needs a core".to_owned());
        }
        let cycle = design.core.frequency.period();
        for tier in &design.tiers {
            // An owner and two links for each frame.
            can_have(
                &format!("tier.{}.capacity", tier.name),
                "the table of its frames",
                tier.capacity.0 >> 12 << 4,
            )?;
        }
        let caches = Hierarchy::host_bytes(&design.cache, &design.core);
        let tlbs = Tlbs::host_bytes(&design.translation).saturating_mul(each_core.len() as u64);
        let larger = if caches > tlbs { "cache" } else { "translation" };
        can_fill(larger, "the state of the caches and TLBs of all cores", caches.saturating_add(tlbs))?;
        let memory = TieredMemory::new(design)?;
        let layout = memory.layout();
        if layout.is_empty() {
            return Err("tier: a machine needs a memory tier".to_owned());
        }
        let (guest, stop) = (guest_layout(design), options.stop.as_deref());
        let hypervisor = match &guest {
            Some(guest) => Some(Box::new(Hypervisor::new(design, &layout, guest, cycle, stop)?)),
            None => None,
        };
        let (own, levels) = (design.os_of_programs(), design.translation.levels);
        let mut os = Os::of_guests(&own, levels, guest.as_ref().unwrap_or(&layout), design.vm_count(), stop)?;
        os.whose = match &design.vm {
            None => MemoryOf::Machine,
            Some(vm) if vm.tiers.is_empty() => MemoryOf::Guest,
            Some(_) => MemoryOf::GuestOfTiers,
        };
        let translation = &design.translation;
        let entry = schemes::find(&translation.scheme.kind).ok_or_else(|| {
            format!("translation.scheme: there is no scheme \"{}\"", translation.scheme.kind)
        })?;
        // In a virtual machine, Linux's shootdowns are KVM's too.
        let is_software = translation.coherence == "software" && hypervisor.is_some();
        let coherence = if is_software { "software-virtual" } else { &translation.coherence };
        let coherence = coherence::find(coherence).ok_or_else(|| {
            let (wanted, known) = (&translation.coherence, coherence::names());
            let others = || format!("; there are {}", known.join(", "));
            let hint =
                nearest(wanted, known.iter().copied()).map_or_else(others, |one| did_you_mean(Some(one)));
            format!("translation.coherence: there is no scheme \"{wanted}\"{hint}")
        })?;
        let own_memory = entry.memory_bytes(&translation.scheme).next_multiple_of(1 << 30);
        let nested =
            translation.nested.clone().or_else(|| design.vm.as_ref().map(|_| NestedParameters::default()));
        let mut cores = Vec::new();
        for core in &each_core {
            cores.push(Core {
                pipeline: Pipeline::new(core),
                page_walk_cache: PageWalkCache::new(&design.translation.page_walk_cache)?,
                nested: match &nested {
                    Some(nested) => {
                        let (guest, begin) = (memory.end().0, memory.end() + own_memory);
                        Some(Box::new(Nested::new(nested, translation.levels, guest, begin)?))
                    }
                    None => None,
                },
                walkers: MissRegisters::new(design.translation.walkers),
                host_prefetch: HostPrefetch::new(),
                stalled_fault: None,
            });
        }
        let coherence = (coherence.new)(&design.os.costs);
        let hardware = coherence.hardware().map(|covers| {
            let round_trip = design.cache.cache_to_cache.at(cycle);
            Box::new(Hardware::new(
                &translation.hatric.clone().unwrap_or_default(),
                covers,
                round_trip,
                cycle,
            ))
        });
        let observers = Observers::new(options);
        let scheme = entry.build(translation, cores.len(), cycle, memory.end())?;
        let shared = Shared {
            caches: Hierarchy::new(&design.cache, &design.core, cycle)?,
            unfiltered: vec![[0; 2]; layout.len()],
            memory,
            os,
            hypervisor,
            regions: RegionCache::new(),
            sampling: observers.want_accesses(),
            observers,
            stopped_at: None,
            running: vec![None; cores.len()],
            coherence,
            hardware,
            energy: translation.energy.clone(),
            shootdowns: Shootdowns::default(),
            table_stores: [0; 2],
            pending: Vec::new(),
            stale_log: None,
            virtual_caches: entry.virtual_caches,
            controller_copies: entry.virtual_caches && !entry.kernel_tables,
            has_caches: false,
            walks: WalkCounters::default(),
            timing: Timing {
                cycle,
                l2_tlb: design.translation.l2.latency.at(cycle),
                page_walk_cache: latency_of(&design.translation.page_walk_cache, cycle),
                nested_tlb: nested.as_ref().map_or(Time::ZERO, |nested| latency_of(&nested.tlb, cycle)),
                l2: design.cache.l2.latency.at(cycle),
                llc: design.cache.llc.latency.at(cycle),
                fault: design.os.fault_cost,
                zeroing: Zeroing::new(design),
                context_switch: design.os.context_switch_cost,
                timeslice: design.os.timeslice,
            },
            page_changes: 0,
            kernel_lines: 0,
            fault_time: Time::ZERO,
            fault_latency: std::array::from_fn(|_| Histogram::default()),
        };
        let mut machine = Machine { cores, groups: groups(&design.core), shared, scheme };
        machine.connect_hardware();
        Ok(machine)
    }
}

/// What a look-up takes; nothing where there is no such cache.
fn latency_of(cache: &PageWalkCacheParameters, cycle: Time) -> Time {
    if cache.entries == 0 { Time::ZERO } else { cache.latency.at(cycle) }
}

/// The groups of cores, each with the numbers of its cores and their clock cycle.
fn groups(core: &CoreParameters) -> Vec<(String, Range<usize>, Time)> {
    let mut begin = 0;
    let group = |group: &CoreGroup| {
        let cores = begin..begin + group.count as usize;
        begin = cores.end;
        (group.name.clone(), cores, core.of(group).frequency.period())
    };
    core.groups.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::Library;

    #[test]
    fn caches_that_take_more_memory_than_there_is_are_refused() {
        let sets = [("core.count", "1024"), ("cache.l2.capacity", "4 GiB"), ("cache.l2.ways", "16")];
        let sets = sets.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let design = Library::embedded().design("zen4-cxl", None, &sets).unwrap().design;
        let problem = Machine::new(&design, &Options::default()).expect_err("no computer has so much");
        assert!(
            problem.starts_with("cache: the state of the caches and TLBs of all cores needs"),
            "{problem}"
        );
    }
}
