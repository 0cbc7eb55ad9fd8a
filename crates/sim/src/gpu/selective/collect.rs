//! Statistics of coherence between a CPU and a GPU.

use super::cpu_side::CpuSideCounters;
use super::link::LinkCounters;
use super::read_only::ReadOnlyCounters;
use super::remote_directory::DirectoryCounters;
use super::{Coherence, Uncached};
use terrace_model::{Stats, Unit};

/// All that is counted, at one moment or over a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    uncached: Uncached,
    cpu: CpuSideCounters,
    link: [LinkCounters; 2],
    directory: DirectoryCounters,
    read_only: ReadOnlyCounters,
    dropped: u64,
}

impl Counts {
    /// Every number, by its name.
    fn all(&mut self) -> [(&'static str, Unit, &mut u64); 25] {
        use Unit::{Bytes, Count};
        let Counts { uncached, cpu, link: [to_cpu, to_gpu], directory, read_only, dropped } = self;
        let [joined_in_sm, joined_at_slice] = &mut uncached.joined;
        [
            ("uncached.loads", Count, &mut uncached.loads),
            ("uncached.stores", Count, &mut uncached.stores),
            ("uncached.atomics", Count, &mut uncached.atomics),
            ("uncached.coalesced_l1", Count, joined_in_sm),
            ("uncached.coalesced_l2", Count, joined_at_slice),
            ("link.bytes_asked", Bytes, &mut uncached.asked),
            ("link.to_cpu.packets", Count, &mut to_cpu.packets),
            ("link.to_cpu.flits", Count, &mut to_cpu.flits),
            ("link.to_cpu.data_bytes", Bytes, &mut to_cpu.data),
            ("link.to_gpu.packets", Count, &mut to_gpu.packets),
            ("link.to_gpu.flits", Count, &mut to_gpu.flits),
            ("link.to_gpu.data_bytes", Bytes, &mut to_gpu.data),
            ("client_cache.hit", Count, &mut cpu.client_hits),
            ("client_cache.miss", Count, &mut cpu.client_misses),
            ("coherence.served_by_cpu", Count, &mut cpu.cpu_hits),
            ("coherence.nacks", Count, &mut cpu.nacks),
            ("coherence.taken_from_cpu", Count, &mut cpu.taken),
            ("coherence.dropped_from_gpu", Count, dropped),
            ("remote_directory.added", Count, &mut directory.added),
            ("remote_directory.known", Count, &mut directory.known),
            ("remote_directory.flushes", Count, &mut directory.flushes),
            ("read_only.faults", Count, &mut read_only.gpu_faults),
            ("read_only.cpu_faults", Count, &mut read_only.cpu_faults),
            ("read_only.blocked", Count, &mut read_only.blocked),
            ("read_only.given_up", Count, &mut read_only.given_up),
        ]
    }

    /// Adds what came between two counts.
    pub fn add_since(&mut self, before: &Counts, after: &Counts) {
        let (mut before, mut after) = (*before, *after);
        for (((_, _, sum), (_, _, before)), (_, _, after)) in
            self.all().into_iter().zip(before.all()).zip(after.all())
        {
            *sum += *after - *before;
        }
    }
}

impl Coherence {
    /// What was counted so far.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            uncached: self.uncached,
            cpu: self.cpu.counters,
            link: self.cpu.link.counters,
            directory: self.directory.counters,
            read_only: self.read_only.as_ref().map(|pages| pages.counters).unwrap_or_default(),
            dropped: self.dropped,
        }
    }

    /// Adds the statistics of kernels, or of the whole run. The directory's are always of the whole run: the CPU fills it.
    pub fn count_into(&self, whole: bool, stats: &mut Stats) {
        let all = self.counts();
        let mut shown = if whole { all } else { self.of_kernels };
        shown.directory = all.directory;
        shown.read_only.cpu_faults = all.read_only.cpu_faults;
        for (name, unit, value) in shown.all() {
            stats.count(format!("gpu.{name}"), *value, unit);
        }
        let flits: u64 = shown.link.iter().map(|direction| direction.flits).sum();
        stats.count("gpu.link.bytes", flits * self.cpu.link.flit(), Unit::Bytes);
        stats.count("gpu.remote_directory.lines", self.directory.held(), Unit::Count);
    }
}
