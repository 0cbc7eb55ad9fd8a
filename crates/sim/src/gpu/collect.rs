//! Statistics of a run with a GPU. They count kernels; with the whole input asked for, the host's part too.

use super::parameters::{GPU_LINE, GpuParameters, SECTOR};
use super::state::Engine;
use crate::design::Design;
use crate::outcome::Outcome;
use terrace_model::text::grouped;
use terrace_model::{LINE_BYTES, PageSize, Stats, TierId, Time, Unit};

/// The outcome of a finished run.
pub(super) fn outcome(engine: &Engine, design: &Design, gpu: &GpuParameters) -> Outcome {
    let whole = engine.options.whole;
    let span = if whole { engine.now } else { engine.kernel_time };
    let mut stats = Stats::new();
    count_gpu(engine, gpu, &mut stats);
    count_memory(engine, span, &mut stats);
    count_os(engine, &mut stats);
    let cycle = design.core.frequency.period();
    let cycles = span.in_cycles(cycle);
    // What SMs issue is spread over all of them: the rest of the time every SM waits for memory, or has nothing to run.
    let busy = Time(engine.sms.counters.busy.0 / u64::from(gpu.sms.max(1))).min(engine.kernel_time);
    let (busy, kernels) = (busy.in_cycles(cycle), engine.kernel_time.in_cycles(cycle));
    stats.count("core.cycles.base", busy, Unit::Cycles);
    stats.count("core.cycles.memory", kernels.saturating_sub(busy), Unit::Cycles);
    stats.count("core.cycles.translation", 0, Unit::Cycles);
    stats.count("core.cycles.cache", 0, Unit::Cycles);
    stats.count("core.cycles.os", 0, Unit::Cycles);
    stats.count("core.cycles.idle", cycles.saturating_sub(kernels), Unit::Cycles);
    stats.count("core.cores_used", 1, Unit::Count);
    let instructions = engine.sms.counters.instructions + if whole { engine.host_instructions } else { 0 };
    stats.count("core.instructions", instructions, Unit::Count);
    let accesses = engine.lanes.iter().sum::<u64>() + if whole { engine.host_accesses } else { 0 };
    let samples = stats.integer("policy.samples");
    Outcome {
        accesses,
        instructions,
        cycles,
        seconds_simulated: span.as_secs(),
        left_out: Vec::new(),
        notes: notes(engine),
        contiguity: Vec::new(),
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

fn count_gpu(engine: &Engine, gpu: &GpuParameters, stats: &mut Stats) {
    let (sms, paths) = (&engine.sms.counters, &engine.paths.counters);
    for (name, value) in [
        ("kernels", engine.kernels),
        ("work_groups", sms.groups),
        ("warps", sms.warps),
        ("instructions", sms.instructions),
        ("loads", engine.lanes[0]),
        ("stores", engine.lanes[1]),
        ("transactions", paths.transactions),
        ("sectors", paths.sectors),
        ("l1.hit", paths.l1_hits),
        ("l1.miss", paths.l1_misses),
        ("l2.hit", paths.l2_hits),
        ("l2.miss", paths.l2_misses),
        ("tlb.hit", paths.tlb_hits),
        ("tlb.miss", paths.tlb_misses),
        ("faults", paths.faults),
        ("tlb.shootdowns", engine.managed.shootdowns),
        ("tlb.shootdowns_avoided", engine.managed.avoided),
        ("populated", engine.managed.populated),
        ("host_accesses", engine.host_accesses),
    ] {
        stats.count(format!("gpu.{name}"), value, Unit::Count);
    }
    if engine.overlapped.kernels > 0 {
        let overlapped = &engine.overlapped;
        stats.count("gpu.overlap.kernels", overlapped.kernels, Unit::Count);
        stats.count("gpu.overlap.accesses", overlapped.accesses, Unit::Count);
        stats.count("gpu.overlap.wait_time", overlapped.waited.as_nanos() as u64, Unit::Nanoseconds);
    }
    if let Some(coherence) = &engine.paths.coherence {
        coherence.count_into(engine.options.whole, stats);
    }
    if let Some(touches) = Some(&engine.paths.touches).filter(|touches| touches.take_time()) {
        stats.count("gpu.fault.joined", touches.counters.joined, Unit::Count);
        stats.count("gpu.fault.blocked", touches.pending.waited, Unit::Count);
        stats.count("gpu.fault.time", touches.counters.time.as_nanos() as u64, Unit::Nanoseconds);
    }
    let managed = &engine.managed;
    stats.count("gpu.tlb.shootdown_time", managed.stalled.as_nanos() as u64, Unit::Nanoseconds);
    stats.count("gpu.launch_copy.bytes", managed.copied, Unit::Bytes);
    stats.count("gpu.launch_copy.time", managed.copy_time.as_nanos() as u64, Unit::Nanoseconds);
    let cycle = gpu.frequency.period();
    stats.count("gpu.cycles", engine.kernel_time.in_cycles(cycle), Unit::Cycles);
    let used = (paths.sectors * SECTOR) as f64 / (paths.transactions * GPU_LINE).max(1) as f64;
    stats.real("gpu.line_utilization", used, Unit::Ratio);
    let host = engine.now.saturating_sub(engine.kernel_time);
    stats.count("gpu.host_time", host.as_nanos() as u64, Unit::Nanoseconds);
}

fn count_memory(engine: &Engine, span: Time, stats: &mut Stats) {
    let shared = &engine.machine.shared;
    let caches = &shared.caches.counters;
    caches.count_levels_into(stats);
    for (at, (name, all)) in shared.memory.traffic().enumerate() {
        let traffic = if engine.options.whole { all } else { &engine.kernel_traffic[at] };
        traffic.count_into(name, stats);
        let lines: u64 = traffic.reads.iter().chain(&traffic.writes).sum();
        let bandwidth = (lines * LINE_BYTES) as f64 / span.as_secs().max(1e-12);
        stats.real(format!("gpu.bandwidth.{name}"), bandwidth, Unit::BytesPerSecond);
        let id = TierId(at as u8);
        stats.level(format!("tier.{name}.pages"), shared.os.used_frames(id), Unit::Pages);
        stats.level(format!("tier.{name}.peak_pages"), shared.os.peak().used[at], Unit::Pages);
    }
    shared.memory.report(engine.now, stats);
}

fn count_os(engine: &Engine, stats: &mut Stats) {
    let shared = &engine.machine.shared;
    let os = &shared.os.counters;
    stats.count("os.faults", os.faults.iter().sum::<u64>(), Unit::Count);
    stats.count("os.fault_cycles", shared.fault_time.in_cycles(shared.timing.cycle), Unit::Cycles);
    for size in PageSize::ALL {
        stats.count(format!("os.faults_by_size.{size}"), os.faults[size.index()], Unit::Count);
        let resident = shared.os.resident()[size.index()] * 4096;
        stats.level(format!("os.resident_bytes.{size}"), resident, Unit::Bytes);
        let peak = shared.os.peak().resident[size.index()] * 4096;
        stats.level(format!("os.peak_resident_bytes.{size}"), peak, Unit::Bytes);
    }
    stats.count("os.unmapped_accesses", os.unmapped_accesses, Unit::Count);
    if let Some(tiering) = &engine.tiering {
        tiering.count_into(stats);
    }
}

fn notes(engine: &Engine) -> Vec<String> {
    let mut notes = Vec::new();
    if engine.kernels == 0 {
        notes.push(
            "the input starts no kernel on a GPU, so that only the host's part was simulated".to_owned(),
        );
    } else if !engine.options.whole {
        // How long that was differs by design, and is `gpu.host_time`.
        let kernels = match engine.kernels {
            1 => "kernel; what the host does before and after it".to_owned(),
            more => format!("{} kernels; what the host does before, between and after them", grouped(more)),
        };
        notes.push(format!("statistics cover the {kernels} is left out"));
    }
    let managed = &engine.managed;
    if managed.without_room > 0 {
        let copied = managed.copied / PageSize::Base.bytes();
        let tier = engine.machine.shared.memory.traffic().next().map_or("", |(name, _)| name);
        notes.push(format!(
            "{} of {} pages were copied before kernels: {tier} has no room for the others, which kernels read where they \
             lie; tier.{tier}.capacity sizes it",
            grouped(copied),
            grouped(copied + managed.without_room)
        ));
    }
    if engine.machine.shared.os.counters.unmapped_accesses > 0 {
        notes.push(format!(
            "{} accesses to addresses that no event had mapped; each mapped its page",
            grouped(engine.machine.shared.os.counters.unmapped_accesses)
        ));
    }
    if let Some(tiering) = &engine.tiering {
        notes.extend(tiering.report().notes);
    }
    notes
}
