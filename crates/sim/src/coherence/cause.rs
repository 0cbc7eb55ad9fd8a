//! The causes of changes of page-table entries, and what the changes came to.

use terrace_model::{Stats, Time, Unit};

/// Why entries changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A page fault brought a page in.
    Fault,
    /// A store to a page shared since a fork.
    CopyOnWrite,
    /// `munmap`, or `mmap` over what was mapped.
    Unmap,
    /// `mremap`.
    Remap,
    /// `mprotect`.
    Protect,
    /// `madvise`.
    Advise,
    /// `fork`.
    Fork,
    /// A process executed another program, or ended.
    Exit,
    /// A policy cleared bits or watches pages.
    Watch,
    /// An order of a policy moved, split or joined pages.
    Migration,
}

impl Cause {
    /// All, in the order of their numbers.
    pub const ALL: [Cause; 10] = [
        Cause::Fault,
        Cause::CopyOnWrite,
        Cause::Unmap,
        Cause::Remap,
        Cause::Protect,
        Cause::Advise,
        Cause::Fork,
        Cause::Exit,
        Cause::Watch,
        Cause::Migration,
    ];

    /// The cause's name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Fault => "fault",
            Cause::CopyOnWrite => "copy_on_write",
            Cause::Unmap => "munmap",
            Cause::Remap => "mremap",
            Cause::Protect => "mprotect",
            Cause::Advise => "madvise",
            Cause::Fork => "fork",
            Cause::Exit => "exit",
            Cause::Watch => "watch",
            Cause::Migration => "migration",
        }
    }

    /// Whether all of a process's memory changes.
    pub const fn is_whole(self) -> bool {
        matches!(self, Cause::Fork | Cause::Exit)
    }

    /// Whether the stores to the entries go through the caches. What a fault brings in was absent, so no core holds
    /// anything of it, and the cost of the fault was measured with the store. When a process ends, its tables go as a
    /// whole, and nobody waits for that.
    pub const fn stores_entries(self) -> bool {
        !matches!(self, Cause::Fault | Cause::Exit)
    }

    /// Whether the stores to the entries take time of their own. The costs of the other causes are measured with them.
    pub const fn pays_for_stores(self) -> bool {
        matches!(self, Cause::Unmap | Cause::Remap | Cause::Protect | Cause::Advise | Cause::Fork)
    }
}

/// Invalidations by their cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shootdowns {
    by_cause: [Sum; Cause::ALL.len()],
    /// Processors that were held up by an interrupt.
    pub interrupts: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    targets: u64,
    time: Time,
}

impl Shootdowns {
    /// Translations of pages were dropped.
    pub fn add(&mut self, cause: Cause, targets: u64, waits: Time) {
        let sum = &mut self.by_cause[cause as usize];
        sum.count += 1;
        sum.targets += targets;
        sum.time += waits;
    }

    /// Adds them to the statistics of a run, as those of an operating system.
    pub fn count_into(&self, system: &str, stats: &mut Stats) {
        let mut add = |name: &str, sum: &Sum| {
            let name = format!("{system}.shootdowns{name}");
            stats.count(format!("{name}.count"), sum.count, Unit::Count);
            stats.count(format!("{name}.targets"), sum.targets, Unit::Count);
            stats.count(format!("{name}.time"), sum.time.as_nanos() as u64, Unit::Nanoseconds);
        };
        let mut all = Sum::default();
        for (cause, sum) in Cause::ALL.into_iter().zip(&self.by_cause) {
            add(&format!(".{}", cause.name()), sum);
            all.count += sum.count;
            all.targets += sum.targets;
            all.time += sum.time;
        }
        add("", &all);
    }
}
