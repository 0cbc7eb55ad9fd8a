//! What the simulated machine offers to policies, and what it looks like to them.

use super::guest::Guest;
use super::{LowWater, State, Tiering};
use crate::design::{Design, PolicyParameters};
use crate::host::can_have;
use crate::machine::{Shared, System};
use crate::outcome::{Fidelity, Options};
use crate::tiering::count::Counters;
use crate::tiering::processors::Processors;
use crate::translate::schemes;
use std::collections::{BTreeMap, HashSet};
use terrace_model::{Bytes, BytesPerSec, CoreId, LINE_BYTES, PageSize, TierId, Time};
use terrace_policy::{
    Agent, Capabilities, Capability, CapabilitySet, Cost, Policy, PolicyError, Setup, Tier, TierTraffic,
    Topology, find,
};

/// Most threads that share a copy, as Nimble's experiments (Yan 2019, section 3.4).
const COPY_THREADS: u16 = 16;

/// What a run at this fidelity with this scheme offers, and why not more.
pub(crate) fn capabilities(fidelity: Fidelity, scheme: Option<&schemes::Entry>) -> Capabilities {
    let everywhere = CapabilitySet::of(&[
        Capability::AccessedBits,
        Capability::DirtyBits,
        Capability::FlushOnClear,
        Capability::HintFaults,
        Capability::WriteFaults,
        Capability::Migration,
        Capability::WholeHugePages,
        Capability::Exchange,
        Capability::ParallelCopy,
        Capability::Split,
        Capability::Collapse,
        Capability::Frames,
        Capability::ZeroPages,
        Capability::FaultSizes,
        Capability::StalledFaults,
        Capability::Objects,
    ]);
    let tlbs = [Capability::CountedFaults, Capability::TlbMisses];
    let memory = [
        Capability::Traffic,
        Capability::LoadedLatency,
        Capability::AccessSamples,
        Capability::ExactAccesses,
        Capability::HardwareCache,
    ];
    let with_tlbs = fidelity != Fidelity::Pages && scheme.is_some_and(|scheme| scheme.walks);
    let mut offers = tlbs.iter().fold(everywhere, |set, one| set.with_if(with_tlbs, *one));
    offers = memory.iter().fold(offers, |set, one| set.with_if(fidelity == Fidelity::Full, *one));
    let mut capabilities = Capabilities::new(offers, PageSize::Giant)
        .without(Capability::CopylessExchange, "the simulated machine is no guest");
    let counts =
        "no memory controller counts by block here: a design with translation.scheme.kind = \"vbi\" has one";
    capabilities = capabilities.without(Capability::BlockCounts, counts);
    if !with_tlbs {
        for one in tlbs {
            let reason = if fidelity == Fidelity::Pages {
                "TLBs are not simulated at this fidelity; use --fidelity translation or full".to_owned()
            } else {
                let name = scheme.map_or("of this design", |scheme| scheme.name);
                format!("the translation scheme {name} counts no TLB misses for policies; use radix")
            };
            capabilities = capabilities.without(one, reason);
        }
    }
    if fidelity != Fidelity::Full {
        for one in memory {
            let reason = "memory is not simulated at this fidelity; use --fidelity full";
            capabilities = capabilities.without(one, reason);
        }
    }
    if let Some(offers) = scheme.and_then(|scheme| scheme.offers) {
        let missing: Vec<Capability> =
            offers_of(&capabilities).filter(|one| !offers.contains(*one)).collect();
        for one in missing {
            let reason = "caches are named by block, and the memory controller sees only what misses them";
            capabilities = capabilities.without(one, reason);
        }
        if fidelity == Fidelity::Full && offers.contains(Capability::BlockCounts) {
            capabilities = capabilities.with(Capability::BlockCounts);
        }
    }
    capabilities.copy_threads = COPY_THREADS;
    capabilities
}

/// What is offered so far.
fn offers_of(capabilities: &Capabilities) -> impl Iterator<Item = Capability> {
    Capability::ALL.iter().copied().filter(|one| capabilities.has(*one))
}

/// The tiers as policies see them, empty.
fn topology(shared: &Shared, system: System, guest: &Guest, design: &Design) -> Topology {
    let os = shared.system(system);
    // What tells the tiers of several guests apart; each knows its own by the names of the design.
    let prefix = format!("vm{}.", guest.number);
    let tiers = (0..guest.tiers()).map(|at| {
        let id = guest.in_os(TierId(at as u8));
        let memory = os.tier_memory(id);
        // The root of a virtual machine's page table is there already.
        let reserved = os.reserved_frames(id);
        let behind = shared.tier_behind(system, id);
        let (read_latency, write_latency) = shared.memory.idle_latencies(behind, design);
        let (read_bandwidth, write_bandwidth) = shared.memory.bandwidths(behind, design);
        Tier {
            name: memory.name.strip_prefix(&prefix).unwrap_or(&memory.name).to_owned(),
            capacity: Bytes((memory.frames() - reserved) << 12),
            used: Bytes(0),
            read_latency,
            write_latency,
            read_bandwidth,
            write_bandwidth,
        }
    });
    Topology { tiers: tiers.collect() }
}

impl Tiering {
    /// The design's policy on a machine on which nothing has run yet. Of several guests' policies each draws other random
    /// numbers.
    ///
    /// # Errors
    /// A policy that cannot run on it, with the reason.
    pub fn of_design(
        chosen: &PolicyParameters,
        (system, guest): (System, usize),
        design: &Design,
        shared: &mut Shared,
        options: &Options,
    ) -> Result<Tiering, String> {
        let open = |setup: Setup<'_>| find(&chosen.name)?.open(&chosen.parameters, setup);
        let seed = chosen.seed.wrapping_add(guest as u64);
        Tiering::new(open, seed, (system, guest), design, shared, options)
    }

    /// The policy that `open` opens, on a machine on which nothing has run yet; for one of several guests by its number,
    /// which is 0 elsewhere.
    ///
    /// # Errors
    /// A policy that cannot run on it, with the reason.
    pub fn new(
        open: impl FnOnce(Setup<'_>) -> Result<Box<dyn Policy>, PolicyError>,
        seed: u64,
        (system, guest): (System, usize),
        design: &Design,
        shared: &mut Shared,
        options: &Options,
    ) -> Result<Tiering, String> {
        let scheme = schemes::find(&design.translation.scheme.kind);
        let mut capabilities = capabilities(options.fidelity, scheme);
        if shared.hypervisor.is_some() && system == System::Programs {
            capabilities = capabilities.with(Capability::CopylessExchange);
        }
        if shared.hypervisor.is_some() {
            let why = "the machine runs a hypervisor, and memory mode is chosen when a machine starts";
            capabilities = capabilities.without(Capability::HardwareCache, why);
        }
        if system == System::Hypervisor {
            let why = "the hypervisor does not see what the guest's programs store";
            capabilities = capabilities.without(Capability::ZeroPages, why);
            let why = "the hypervisor does not know what the guest's programs allocate";
            capabilities = capabilities.without(Capability::Objects, why);
        }
        let host = shared.system(System::Hypervisor);
        let machine = topology(shared, System::Hypervisor, &Guest::new(0, host), design);
        let guest = Guest::new(guest, shared.system(system));
        let mut topology = topology(shared, system, &guest, design);
        let profile = options.profile.as_deref();
        let measured = profile.map_or(&[][..], |profile| &profile.bandwidths);
        for (tier, bandwidth) in topology.tiers.iter_mut().zip(measured) {
            tier.read_bandwidth = BytesPerSec(*bandwidth as f64);
        }
        let setup = Setup { topology: &topology, capabilities: &capabilities, seed, profile };
        let policy = open(setup).map_err(|problem| problem.to_string())?;
        if policy.needs().probe && measured.len() != topology.tiers.len() {
            let why = "it takes a probe of each memory, which is made of the machine's own system alone, without a hypervisor";
            return Err(format!("os.policy: {why}"));
        }
        let tiers = topology.tiers.len();
        if policy.needs().capabilities.contains(Capability::HardwareCache) {
            if tiers < 2 {
                return Err("tier: a hardware cache of a slower tier takes two tiers".to_owned());
            }
            // A tag of four bytes for each line.
            let first = &design.tiers[0];
            let key = format!("tier.{}.capacity", first.name);
            can_have(&key, "the tags of a hardware cache", first.capacity.0 / LINE_BYTES * 4)?;
            shared.memory.use_first_as_cache();
            shared.os.give_up_first_tier();
        }
        if policy.needs().capabilities.contains(Capability::ZeroPages) {
            shared.system_mut(system).watch_stores();
        }
        let all = design.core.each().len();
        let cores = match &shared.hypervisor {
            Some(hypervisor) if system == System::Programs && hypervisor.count() > 1 => {
                hypervisor.cores_of(guest.number, all)
            }
            _ => CoreId::first(all).collect(),
        };
        let knows = policy.needs().capabilities.contains(Capability::Objects);
        let state = State {
            agent: Agent::default(),
            objects: knows.then(Box::default),
            system,
            reserved: topology
                .ids()
                .map(|id| shared.system(system).reserved_frames(guest.in_os(id)))
                .collect(),
            guest,
            topology,
            machine,
            capabilities,
            costs: design.os.costs.clone(),
            cycle: shared.timing.cycle,
            line_buffers: design.thread_misses().max(1) as usize,
            wanted: policy.needs().signals,
            tick: Some(Time::ZERO),
            processors: Processors::new(design.os.kernel_threads, cores),
            busy_until: Time::ZERO,
            signals: Vec::new(),
            urgent: false,
            watched: BTreeMap::new(),
            orders: BTreeMap::new(),
            next_ticket: 0,
            held: HashSet::new(),
            released: Vec::new(),
            stalled: BTreeMap::new(),
            resumed: Vec::new(),
            notified_at: Time::ZERO,
            drained_at: Time::ZERO,
            sample_one_in: 0,
            until_sample: 0,
            low_water: vec![LowWater::default(); tiers],
            traffic: vec![TierTraffic::default(); tiers],
            spent: Cost::default(),
            counters: Counters::default(),
        };
        Ok(Tiering { policy, state })
    }
}
