//! From counters to the statistics tree.
//!
//! A region of interest counts from its begin to its end: counters are differences, while what is a state (resident
//! pages) is that of the end.

use super::Engine;
use super::mix::MixRun;
use crate::coherence::{EnergySums, translation_energy};
use crate::core::{Blame, Pipeline};
use crate::outcome::{Fidelity, Outcome};
use crate::tiering::Tiering;
use crate::translate::Nested;
use std::collections::BTreeMap;
use terrace_model::text::grouped;
use terrace_model::{PageSize, Stats, TierId, Time, Unit, Value};

/// Everything counted up to a moment.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    stats: Stats,
    blame: Blame,
    accesses: u64,
    instructions: u64,
    /// Time that each group of cores was busy, and its instructions.
    groups: Vec<(Time, u64)>,
    /// Frames of each tier that hold something times the time they did.
    usage: Vec<u128>,
    /// When each of several virtual machines ran last.
    vms_ran: Vec<Time>,
    now: Time,
    /// When what counts was over. Of a mix: when its last program had ended, and not what another had begun anew.
    over: Time,
}

impl Totals {
    /// What was counted until now.
    pub fn of(engine: &Engine) -> Totals {
        let now = engine.latest();
        let over = engine.mix.as_ref().and_then(MixRun::ended_at).unwrap_or(now).min(now);
        let until_then = |pipeline: &Pipeline| pipeline.blame.without(pipeline.now.saturating_sub(over));
        let mut blame = Blame::default();
        let mut instructions = 0;
        for core in &engine.machine.cores {
            blame.add(&until_then(&core.pipeline));
            instructions += core.pipeline.program_instructions();
        }
        let groups = engine.machine.groups.iter().map(|(_, cores, _)| {
            let pipelines = engine.machine.cores[cores.clone()].iter().map(|core| &core.pipeline);
            pipelines.fold((Time::ZERO, 0), |(busy, instructions), pipeline| {
                (busy + until_then(pipeline).total(), instructions + pipeline.program_instructions())
            })
        });
        let groups = groups.collect();
        let os = engine.machine.shared.machine_os();
        let tiers = engine.machine.shared.memory.layout().len();
        let usage = (0..tiers).map(|at| os.usage(TierId(at as u8), now)).collect();
        Totals {
            stats: stats(engine, now),
            blame,
            accesses: engine.accesses,
            instructions,
            groups,
            usage,
            vms_ran: engine.vms.ran_last(),
            now,
            over,
        }
    }

    /// What was counted since `begin`.
    fn since(&self, begin: &Totals) -> Totals {
        let mut stats = Stats::new();
        for (name, stat) in self.stats.iter() {
            match &stat.value {
                Value::Integer(end) if !stat.is_level => {
                    stats.count(name, end.saturating_sub(begin.stats.integer(name)), stat.unit);
                }
                Value::Real(end) if stat.is_level => stats.real_level(name, *end, stat.unit),
                Value::Real(end) if stat.unit == Unit::Ratio => stats.real(name, *end, stat.unit),
                Value::Real(end) => stats.real(name, end - begin.stats.number(name), stat.unit),
                Value::Integer(end) => stats.level(name, *end, stat.unit),
                Value::Histogram(end) => stats.histogram(name, end.clone(), stat.unit),
            }
        }
        let blame = Blame {
            base: self.blame.base - begin.blame.base,
            translation: self.blame.translation - begin.blame.translation,
            cache: self.blame.cache - begin.blame.cache,
            memory: self.blame.memory - begin.blame.memory,
            os: self.blame.os - begin.blame.os,
        };
        Totals {
            stats,
            blame,
            accesses: self.accesses - begin.accesses,
            instructions: self.instructions - begin.instructions,
            groups: (self.groups.iter().zip(&begin.groups))
                .map(|(end, begin)| (end.0 - begin.0, end.1 - begin.1))
                .collect(),
            usage: self.usage.iter().zip(&begin.usage).map(|(end, begin)| end - begin).collect(),
            vms_ran: self.vms_ran.iter().map(|ran| ran.saturating_sub(begin.now)).collect(),
            now: self.now - begin.now,
            over: self.over - begin.now,
        }
    }
}

/// All counters but the cycles, which are divided up at the end.
fn stats(engine: &Engine, now: Time) -> Stats {
    let mut stats = Stats::new();
    let machine = &engine.machine;
    let shared = &machine.shared;
    let fidelity = engine.options.fidelity;
    if fidelity != Fidelity::Pages {
        let tlb = machine.scheme.tlb_counters();
        let pwc_hits = machine.cores.iter().map(|core| core.page_walk_cache.hits).sum();
        let pwc_misses = machine.cores.iter().map(|core| core.page_walk_cache.misses).sum();
        for size in PageSize::ALL {
            stats.count(format!("tlb.l1d.{size}.hit"), tlb.l1_hits[size.index()], Unit::Count);
            stats.count(format!("tlb.l1d.{size}.miss"), tlb.l1_misses[size.index()], Unit::Count);
        }
        stats.count("tlb.l2.hit", tlb.l2_hits, Unit::Count);
        stats.count("tlb.l2.miss", tlb.l2_misses, Unit::Count);
        stats.count("walk.count", shared.walks.count, Unit::Count);
        stats.count("walk.memory_refs", shared.walks.memory_refs, Unit::Count);
        stats.count("walk.cycles", shared.walks.time.in_cycles(shared.timing.cycle), Unit::Cycles);
        stats.count("walk.dirty_updates", shared.walks.dirty_updates, Unit::Count);
        stats.count("walk.page_walk_cache.hit", pwc_hits, Unit::Count);
        stats.count("walk.page_walk_cache.miss", pwc_misses, Unit::Count);
        let nested: Vec<_> = machine.cores.iter().filter_map(|core| core.nested.as_deref()).collect();
        let sum = |of: fn(&Nested) -> u64| nested.iter().map(|nested| of(nested)).sum::<u64>();
        Nested::count_into(nested.iter().copied(), &mut stats);
        machine.scheme.count_into(shared.timing.cycle, &mut stats);
        if let Some(hardware) = &shared.hardware {
            hardware.count_into(shared.caches.messages_sent(), &mut stats);
        }
        if let Some(table) = &shared.energy {
            let l1: u64 = tlb.l1_hits.iter().chain(&tlb.l1_misses).sum();
            let sums = EnergySums {
                lookups: [
                    l1,
                    tlb.l2_hits + tlb.l2_misses,
                    pwc_hits + pwc_misses,
                    sum(|nested| nested.hits + nested.misses),
                ],
                cores: machine.cores.len() as u64,
                walks: shared.walks.count,
                walk_references: shared.walks.memory_refs,
                interrupts: shared.shootdowns.interrupts
                    + shared.hypervisor.as_ref().map_or(0, |hypervisor| hypervisor.exits.interrupts),
            };
            translation_energy(table, &sums, shared.hardware.as_deref(), &mut stats);
        }
    }
    if fidelity == Fidelity::Full {
        let caches = &shared.caches.counters;
        caches.count_levels_into(&mut stats);
        stats.count("cache.prefetches", caches.prefetches, Unit::Count);
        stats.count("cache.zero_fills", caches.zero_fills, Unit::Count);
        stats.count("cache.outside_fills", caches.outside_fills, Unit::Count);
        stats.count("coherence.cache_to_cache", caches.cache_to_cache, Unit::Count);
        stats.count("coherence.invalidations", caches.invalidations, Unit::Count);
        stats.count("coherence.back_invalidations", caches.back_invalidations, Unit::Count);
        for (name, traffic) in shared.memory.traffic() {
            traffic.count_into(name, &mut stats);
        }
        shared.memory.report(now, &mut stats);
    }
    for (at, (name, _, _)) in shared.memory.layout().iter().enumerate() {
        let os = shared.machine_os();
        stats.level(format!("tier.{name}.pages"), os.occupied_frames(TierId(at as u8)), Unit::Pages);
        stats.level(format!("tier.{name}.peak_pages"), os.peak().used[at], Unit::Pages);
        let unusable = os.buddy(TierId(at as u8)).fragmentation_index(PageSize::Huge.order());
        stats.real(format!("tier.{name}.free_unusable_for_2m"), unusable, Unit::Ratio);
        if fidelity == Fidelity::Pages {
            let [reads, writes] = shared.unfiltered[at];
            stats.count(format!("tier.{name}.unfiltered_reads"), reads, Unit::Count);
            stats.count(format!("tier.{name}.unfiltered_writes"), writes, Unit::Count);
        }
    }
    let os = &shared.os.counters;
    stats.count("os.faults", os.faults.iter().sum::<u64>() + os.copy_on_write_faults, Unit::Count);
    stats.count("os.fault_cycles", shared.fault_time.in_cycles(shared.timing.cycle), Unit::Cycles);
    for size in PageSize::ALL {
        stats.count(format!("os.faults_by_size.{size}"), os.faults[size.index()], Unit::Count);
        let latency = &shared.fault_latency[size.index()];
        stats.histogram(format!("os.fault_latency.{size}"), latency.clone(), Unit::Nanoseconds);
        let resident = shared.os.resident()[size.index()] * 4096;
        stats.level(format!("os.resident_bytes.{size}"), resident, Unit::Bytes);
        let peak = shared.os.peak().resident[size.index()] * 4096;
        stats.level(format!("os.peak_resident_bytes.{size}"), peak, Unit::Bytes);
    }
    stats.count("os.copy_on_write_faults", os.copy_on_write_faults, Unit::Count);
    stats.count("os.huge_fallbacks", os.huge_fallbacks, Unit::Count);
    stats.count("os.huge_occupied", os.huge_occupied, Unit::Count);
    stats.count("os.huge_unfit", os.huge_unfit, Unit::Count);
    stats.count("os.splits", os.splits, Unit::Count);
    shared.shootdowns.count_into("os", &mut stats);
    if let Some(hypervisor) = &shared.hypervisor {
        hypervisor.count_into(shared.timing.cycle, &mut stats);
    }
    shared.count_vms_into(&mut stats);
    engine.vms.count_into(&mut stats);
    let [by_threads, by_cores] = shared.table_stores;
    stats.count("os.page_table_stores", by_cores, Unit::Count);
    stats.count("os.page_table_stores_by_threads", by_threads, Unit::Count);
    stats.count("os.pages_freed", os.pages_freed, Unit::Count);
    stats.level("os.page_table_pages", shared.os.table_pages(), Unit::Pages);
    stats.count("os.unmapped_accesses", os.unmapped_accesses, Unit::Count);
    stats.count("os.kernel_lines", shared.kernel_lines, Unit::Count);
    if let Some(watch) = &engine.contiguity {
        watch.count_into(&mut stats);
    }
    count_policies(&engine.tiering, &mut stats);
    if let Some(tiering) = &engine.host_tiering {
        let mut of_host = Stats::new();
        tiering.count_into(&mut of_host);
        for (name, stat) in of_host.iter() {
            stats.insert(format!("host.{name}"), stat.clone());
        }
    }
    stats.count("input.waited_nanoseconds", engine.waited_nanos, Unit::Nanoseconds);
    stats.count("input.order_violations", engine.order_violations, Unit::Count);
    stats.count("input.accesses_left_out", engine.gaps, Unit::Count);
    stats
}

/// Adds what the policies of the programs' memory did: of several guests together, and of each.
fn count_policies(policies: &[Tiering], stats: &mut Stats) {
    if let [policy] = policies {
        return policy.count_into(stats);
    }
    let mut sums: BTreeMap<String, (u64, Unit)> = BTreeMap::new();
    for (guest, policy) in policies.iter().enumerate() {
        let mut of_guest = Stats::new();
        policy.count_into(&mut of_guest);
        for (name, stat) in of_guest.iter() {
            // What a policy counts of its own may be a level, such as a threshold, which has no sum.
            if let Value::Integer(count) = stat.value
                && !name.starts_with("policy.own.")
            {
                sums.entry(name.to_owned()).or_insert((0, stat.unit)).0 += count;
            }
            stats.insert(format!("vm.{guest}.{name}"), stat.clone());
        }
    }
    for (name, (sum, unit)) in sums {
        stats.count(name, sum, unit);
    }
}

/// The outcome of a finished run.
pub(super) fn outcome(engine: &Engine, cores_used: u64) -> Outcome {
    let whole = Totals::of(engine);
    let (now, samples) = (whole.now, whole.stats.integer("policy.samples"));
    let page_sizes = of_page_sizes(&whole.stats, engine.region.begin.is_some());
    let totals = match (&engine.region.begin, &engine.region.end) {
        (Some(begin), Some(end)) => end.since(begin),
        (Some(begin), None) => whole.since(begin),
        (None, _) => whole,
    };
    let cycle = engine.machine.shared.timing.cycle;
    let moved = |stats: &Stats| stats.integer("vmstat.pgmigrate_success");
    let moved_before = engine.region.begin.as_ref().map_or(0, |begin| moved(&begin.stats));
    let mut stats = totals.stats;
    let layout = engine.machine.shared.memory.layout();
    // Where only pages are simulated, a batch's instructions pass before its faults.
    let timed = engine.options.fidelity != Fidelity::Pages;
    for ((name, _, _), usage) in layout.iter().zip(&totals.usage).filter(|_| timed) {
        let mean = *usage as f64 / totals.now.0.max(1) as f64;
        stats.real(format!("tier.{name}.mean_pages"), mean, Unit::Pages);
    }
    for (vm, ran) in totals.vms_ran.iter().enumerate() {
        stats.count(format!("vm.{vm}.cycles"), ran.in_cycles(cycle), Unit::Cycles);
    }
    if engine.options.fidelity == Fidelity::Full {
        engine.requests.count_into(&mut stats);
    }
    let blame = &totals.blame;
    let all = totals.over.in_cycles(cycle);
    let busy = blame.total().in_cycles(cycle);
    let is_full = engine.options.fidelity == Fidelity::Full;
    // What a fidelity does not simulate has no cycles, rather than none of them.
    let parts = [
        ("translation", blame.translation, timed),
        ("cache", blame.cache, is_full),
        // Walks wait for memory, and threads for pages on the move, where accesses do not.
        ("memory", blame.memory, timed),
        ("os", blame.os, true),
    ];
    let parts = parts.into_iter().filter(|(.., is_simulated)| *is_simulated);
    let parts: Vec<_> = parts.map(|(name, time, _)| (name, time.in_cycles(cycle))).collect();
    // Rounding goes to the largest part of most runs, so that the parts add up exactly.
    let base = busy.saturating_sub(parts.iter().map(|part| part.1).sum());
    stats.count("core.cycles.base", base, Unit::Cycles);
    for (name, count) in parts {
        stats.count(format!("core.cycles.{name}"), count, Unit::Cycles);
    }
    // Cores that began late, ended early or waited for another core's event.
    stats.count("core.cycles.idle", (all * cores_used).saturating_sub(busy), Unit::Cycles);
    stats.count("core.cores_used", cores_used, Unit::Count);
    stats.count("core.instructions", totals.instructions, Unit::Count);
    for ((name, _, cycle), (busy, instructions)) in engine.machine.groups.iter().zip(&totals.groups) {
        let cycles = busy.in_cycles(*cycle);
        stats.count(format!("core.group.{name}.cycles"), cycles, Unit::Cycles);
        stats.count(format!("core.group.{name}.instructions"), *instructions, Unit::Count);
        let ipc = *instructions as f64 / cycles.max(1) as f64;
        stats.real(format!("core.group.{name}.ipc"), ipc, Unit::Ratio);
    }
    if let Some(mix) = &engine.mix {
        mix.count_into(now, cycle, &mut stats);
    }
    let mut reports = engine.tiering.iter().map(Tiering::report);
    let mut policy = reports.next().unwrap_or_default();
    for note in reports.flat_map(|report| report.notes) {
        // Several guests have the same policy, and much of what it says is the same.
        if !policy.notes.contains(&note) {
            policy.notes.push(note);
        }
    }
    // Over time, as the design asks for it or else as the policy samples it.
    let asked = engine.contiguity.as_ref().map(|watch| watch.over_time().to_vec());
    Outcome {
        accesses: totals.accesses,
        instructions: totals.instructions,
        cycles: all,
        seconds_simulated: totals.over.as_secs(),
        left_out: engine.options.fidelity.left_out().iter().map(|&s| s.to_owned()).collect(),
        notes: notes(engine, &stats, totals.accesses, moved_before, page_sizes, policy.notes),
        contiguity: asked.unwrap_or(policy.contiguity),
        pools: None,
        stats,
        samples,
        stopped: false,
        profile: None,
        parts: Vec::new(),
        memory_map: None,
        placement_map: None,
        access: None,
    }
}

/// What to know of pages that a policy moved before the region of interest, where they are a tenth of all that it moved or
/// more: fewer do not change what the counts of the region say.
fn of_moves_before(before: u64, within: u64) -> Option<String> {
    const PART_THAT_MATTERS: u64 = 10;
    (before > 0 && before.saturating_mul(PART_THAT_MATTERS) >= before + within).then(|| {
        format!(
            "of the pages that the policy moved, {} moved before the region of interest and {} within it: the region begins with \
             memory as the former left it, and counts the latter alone; --whole counts all",
            grouped(before),
            grouped(within)
        )
    })
}

/// The pages that came smaller than the design wants, in the whole run: memory is mostly touched before a region of
/// interest begins, and the region has the pages that came then.
fn of_page_sizes(whole: &Stats, has_region: bool) -> Vec<String> {
    let occupied = "smaller pages lay in the place of the larger one already";
    let kinds = [
        (
            "os.huge_fallbacks",
            "pages came smaller than the design wants, for want of an aligned free block",
            "",
        ),
        ("os.huge_occupied", "pages came smaller than the design wants, since ", occupied),
        (
            "os.huge_unfit",
            "pages came smaller than the design wants, since ",
            "the larger one would reach beyond their mapping",
        ),
        (
            "host.huge_fallbacks",
            "pages of the host came smaller than it wants, for want of an aligned free block",
            "",
        ),
        ("host.huge_occupied", "pages of the host came smaller than it wants, since ", occupied),
    ];
    let counted = kinds.map(|(name, what, why)| (name, whole.integer(name), what, why));
    // Every program has some that do not fit; they matter once they would fill a huge page.
    let matters = |name: &str, count: u64| {
        count > 0 && (name != "os.huge_unfit" || count >= PageSize::Huge.base_pages())
    };
    let counted = counted.into_iter().filter(|(name, count, ..)| matters(name, *count));
    let of = if has_region { "; counted over the whole run" } else { "" };
    counted.map(|(_, count, what, why)| format!("{} {what}{why}{of}", grouped(count))).collect()
}

/// What a reader of the numbers should know.
fn notes(
    engine: &Engine,
    stats: &Stats,
    counted: u64,
    moved_before: u64,
    of_page_sizes: Vec<String>,
    of_the_policy: Vec<String>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let of_gpu = engine.streams.streams.iter().filter(|stream| stream.of_gpu);
    let of_gpu: u64 = of_gpu.map(|stream| stream.accesses).sum();
    if of_gpu > 0 {
        notes.push(format!(
            "the machine has no GPU: {} accesses of the input's kernels ran as one thread on a core; use --machine gpu-gtx480, \
             or another machine with a GPU (terrace machine list)",
            grouped(of_gpu)
        ));
    }
    if engine.region.begin.is_some() {
        notes.push(format!(
            "statistics cover the region of interest that the input marks: {} of {} accesses",
            grouped(counted),
            grouped(engine.accesses)
        ));
    }
    notes.extend(of_moves_before(moved_before, stats.integer("vmstat.pgmigrate_success")));
    if engine.options.fast_forward {
        notes.push(
            "before the region of interest only the operating system was simulated; TLBs and caches began it empty"
                .into(),
        );
    }
    let is_forwarded = engine.options.fast_forward || engine.options.fidelity == Fidelity::Pages;
    if is_forwarded && !engine.machine.scheme.has_kernel_tables() {
        notes.push(
            "where only the operating system was simulated, memory was given at first touch: what the memory controller gives \
             later, or sets aside, is part of full fidelity alone"
                .into(),
        );
    }
    notes.extend(of_page_sizes);
    let mut about = |name: &str, text: &str| {
        let count = stats.integer(name);
        if count > 0 {
            notes.push(format!("{} {text}", grouped(count)));
        }
    };
    about("os.unmapped_accesses", "accesses to addresses that no event had mapped; each mapped its page");
    about(
        "input.order_violations",
        "batches ran before an event they follow, because it is missing in the input",
    );
    about("input.accesses_left_out", "accesses were left out when the input was recorded");
    notes.extend(engine.machine.scheme.notes());
    notes.extend(of_the_policy);
    notes.extend(engine.host_tiering.iter().flat_map(|tiering| tiering.report().notes));
    let waited = stats.integer("input.waited_nanoseconds");
    if waited > 0 {
        let span =
            if waited < 1_000_000 { format!("{waited} ns") } else { format!("{:.3} s", waited as f64 / 1e9) };
        notes.push(format!("Ignored {span} of sleep in the recorded run (summed over its threads)"));
    }
    notes
}
