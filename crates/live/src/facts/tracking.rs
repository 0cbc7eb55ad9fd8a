//! The means by which the kernel shows which pages a program uses.

use super::fact::{self, Fact};
use super::system::{Options, Release};
use super::text;
use crate::kernel::{Kernel, Probe, SamplingEvent, read_text};
use std::cell::LazyCell;

const DAMON: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const COUNTERS: &str = "/sys/bus/event_source/devices";

/// DAMON, the kernel's access monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damon {
    /// How many of its threads are set up. Unless it is 0 someone else has it, and setting up ours would end theirs.
    pub threads: Fact<u64>,
    /// Watching a process by its addresses (`vaddr`, `fvaddr`).
    pub virtual_addresses: Fact<()>,
    /// Watching all memory (`paddr`).
    pub physical_addresses: Fact<()>,
    /// Schemes that move what they find to another node (`migrate_hot`, `migrate_cold`).
    pub migration: Fact<()>,
}

impl Damon {
    /// Looks, without touching: its files say what it can do only once it is set up.
    pub fn discover(kernel: &dyn Kernel, options: &Options, release: Option<&Release>) -> Damon {
        let folder = fact::folder(kernel, DAMON);
        let absent = || "this kernel has no DAMON with its files in /sys/kernel/mm/damon".to_owned();
        if let Fact::Absent(_) = folder {
            let none = || Fact::Absent(absent());
            return Damon {
                threads: Fact::Absent(absent()),
                virtual_addresses: none(),
                physical_addresses: none(),
                migration: none(),
            };
        }
        let threads =
            folder.and_then(|_| fact::file_as(kernel, &format!("{DAMON}/nr_kdamonds"), text::number));
        // Where someone has set it up, it lists what it can watch.
        let listed = read_text(kernel, format!("{DAMON}/0/contexts/0/avail_operations")).ok();
        // A hundred thousand lines, which the kernel writes anew for each reader.
        let symbols =
            LazyCell::new(|| read_text(kernel, "/proc/kallsyms").ok().filter(|text| !text.is_empty()));
        let has_symbol = |beginning: &str| symbols.as_ref().map(|symbols| symbols.contains(beginning));
        let operation = |name: &str, option: &str, symbol: &str| {
            let listed = listed.as_ref().map(|listed| listed.split_whitespace().any(|one| one == name));
            match listed.or_else(|| options.has(option)).or_else(|| has_symbol(symbol)) {
                Some(true) => Fact::Known(()),
                Some(false) => Fact::Absent(format!("this kernel's DAMON is built without {option}")),
                None => Fact::Unknown("not tried, because trying would change the setting".to_owned()),
            }
        };
        let physical_addresses = operation("paddr", "DAMON_PADDR", " damon_pa_");
        let migration = match release {
            Some(release) if release.version < (6, 11) => {
                Fact::Absent("DAMON moves pages between nodes from kernel 6.11 on".to_owned())
            }
            Some(_) => physical_addresses.clone(),
            None => Fact::Unknown("the kernel does not say its release".to_owned()),
        };
        Damon {
            threads,
            virtual_addresses: operation("vaddr", "DAMON_VADDR", " damon_va_"),
            physical_addresses,
            migration,
        }
    }
}

/// A sampler of memory accesses in the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// `PEBS` or `IBS`.
    pub name: &'static str,
    /// What opens it: samples of loads, or of loads and stores alike.
    pub event: SamplingEvent,
    /// Samples of stores, where they take an event of their own.
    pub stores: Option<SamplingEvent>,
}

/// The means by which accesses can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// Finds pages by category and shows which were written.
    pub pagemap_scan: Fact<()>,
    /// Features of userfaultfd, as bits of `UFFD_FEATURE_…`.
    pub userfaultfd: Fact<u64>,
    /// Whether any user may have one that also takes faults of the kernel.
    pub unprivileged_userfaultfd: Fact<bool>,
    /// DAMON.
    pub damon: Damon,
    /// The bitmap of idle frames.
    pub page_idle: Fact<()>,
    /// Marks on pages that were written since the marks were cleared.
    pub soft_dirty: Fact<()>,
    /// Samples of accesses; known where the processor has them and they may be taken.
    pub sampler: Fact<Sampler>,
    /// Level from which on users without privileges may not count events.
    pub perf_event_paranoid: Fact<i64>,
}

impl Tracking {
    /// Whether stores can be tracked exactly with the help of the program.
    pub fn can_be_helped(&self) -> bool {
        let asynchronous = self.userfaultfd.known().is_some_and(|features| features >> ASYNCHRONOUS & 1 == 1);
        asynchronous && self.pagemap_scan.is_known()
    }

    /// Looks, and where only a trial shows it, tries on Terrace's own process.
    pub fn discover(kernel: &dyn Kernel, options: &Options, release: Option<&Release>) -> Tracking {
        let soft_dirty = fact::tried(kernel, Probe::SoftDirty, "soft-dirty bits");
        let soft_dirty = match (soft_dirty, options.has("MEM_SOFT_DIRTY")) {
            (Fact::Known(1..), _) | (_, Some(true)) => Fact::Known(()),
            (Fact::Known(0), _) | (_, Some(false)) => {
                Fact::Absent("this kernel is built without MEM_SOFT_DIRTY".to_owned())
            }
            (unknown, None) => unknown.map(|_| ()),
        };
        Tracking {
            pagemap_scan: fact::tried(kernel, Probe::PagemapScan, "PAGEMAP_SCAN (6.7 was the first)")
                .map(|_| ()),
            userfaultfd: fact::tried(kernel, Probe::Userfaultfd, "userfaultfd"),
            unprivileged_userfaultfd: fact::file_as(
                kernel,
                "/proc/sys/vm/unprivileged_userfaultfd",
                text::switch,
            ),
            damon: Damon::discover(kernel, options, release),
            page_idle: page_idle(kernel),
            soft_dirty,
            sampler: sampler(kernel),
            perf_event_paranoid: fact::file_as(kernel, "/proc/sys/kernel/perf_event_paranoid", |text| {
                text.trim().parse().ok()
            }),
        }
    }
}

fn page_idle(kernel: &dyn Kernel) -> Fact<()> {
    fact::folder(kernel, "/sys/kernel/mm/page_idle").and_then(|names| {
        match names.iter().any(|name| name == "bitmap") {
            true => Fact::Known(()),
            false => Fact::Absent("there is no /sys/kernel/mm/page_idle/bitmap".to_owned()),
        }
    })
}

/// AMD's sampler has counters of its own; Intel's are the processor's, with an event for loads.
fn sampler(kernel: &dyn Kernel) -> Fact<Sampler> {
    let counters = |folder: &str| {
        fact::file_as(kernel, &format!("{COUNTERS}/{folder}/type"), |text| text.trim().parse::<u32>().ok())
    };
    let found = if let Fact::Known(counters) = counters("ibs_op") {
        Some(("IBS", SamplingEvent { counters, config: 0, config1: 0, precise: 0 }, None))
    } else {
        // Processors with two kinds of cores have two sets of counters; the faster cores' stand for both.
        ["cpu", "cpu_core"].iter().find_map(|folder| {
            let counters = *counters(folder).known()?;
            let event = |name: &str| {
                let event = read_text(kernel, format!("{COUNTERS}/{folder}/events/{name}")).ok()?;
                let (config, config1) = event_numbers(&event);
                Some(SamplingEvent { counters, config, config1, precise: 2 })
            };
            Some(("PEBS", event("mem-loads")?, event("mem-stores")))
        })
    };
    match found {
        Some((name, event, stores)) => {
            fact::tried(kernel, Probe::AccessSampling(event), &format!("{name} sampling of accesses"))
                .map(|_| Sampler { name, event, stores })
        }
        None => Fact::Absent(
            "the processor shows no PEBS and no IBS; few virtual machines pass them on".to_owned(),
        ),
    }
}

/// `event=0xcd,umask=0x1,ldlat=3` as the two numbers that the kernel takes.
fn event_numbers(event: &str) -> (u64, u64) {
    let term = |name: &str| {
        let value = |term: &str| text::number(term.trim().strip_prefix(name)?.strip_prefix('=')?);
        event.split(',').find_map(value).unwrap_or(0)
    };
    (term("event") & 0xff | (term("umask") & 0xff) << 8, term("ldlat"))
}

/// The bit of `UFFD_FEATURE_WP_ASYNC`.
const ASYNCHRONOUS: u32 = 15;

/// The bit of `UFFD_FEATURE_MINOR_SHMEM`.
pub const MINOR_FAULTS: u32 = 10;

/// Names of userfaultfd's features that Terrace has use for, of those whose bits are set.
pub fn userfaultfd_modes(features: u64) -> Vec<&'static str> {
    const NAMED: [(u32, &str); 6] = [
        (0, "write protection"),
        (5, "shared memory"),
        (MINOR_FAULTS, "minor faults"),
        (12, "write protection of shared memory"),
        (ASYNCHRONOUS, "asynchronous write protection"),
        (16, "moving pages"),
    ];
    let named = NAMED.iter().filter(|(bit, _)| features >> bit & 1 == 1).map(|(_, name)| *name);
    std::iter::once("missing pages").chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_and_features_by_name() {
        assert_eq!(event_numbers("event=0xcd,umask=0x1,ldlat=3\n"), (0x1cd, 3));
        assert_eq!(event_numbers(""), (0, 0));
        assert_eq!(userfaultfd_modes(1), ["missing pages", "write protection"]);
        assert!(userfaultfd_modes(0x1ffff).contains(&"moving pages"));
        assert!(!userfaultfd_modes(0x1fff).contains(&"asynchronous write protection"));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            event_numbers(&String::from_utf8_lossy(&bytes));
        }
    }
}
