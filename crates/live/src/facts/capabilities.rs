//! What policies may ask of this machine, derived from the facts.

use super::system::other_base_page;
use super::tracking::MINOR_FAULTS;
use super::{Fact, Facts, Privilege};
use crate::kernel::USER_MODE_ONLY;
use std::collections::BTreeMap;
use terrace_model::{KERNEL_OF_BASE_PAGES, PageSize};
use terrace_policy::{Capabilities, Capability, CapabilitySet};

/// Why a capability is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What stands in the way.
    pub reason: String,
    /// A command or a kernel option that would help; none where nothing would.
    pub remedy: Option<String>,
}

/// What would make a second tier of an ordinary machine. For display; Terrace never runs it.
pub const ZRAM_SWAP: &str = "modprobe zram; d=$(zramctl -fs 4G) && mkswap $d && swapon -p 100 $d";
/// For what only root may do.
pub const AS_ROOT: &str = "run it as root";

fn because(reason: impl Into<String>) -> Result<(), Missing> {
    Err(Missing { reason: reason.into(), remedy: None })
}

fn unless(remedy: impl Into<String>, reason: impl Into<String>) -> Result<(), Missing> {
    Err(Missing { reason: reason.into(), remedy: Some(remedy.into()) })
}

impl Facts {
    /// What is offered here to policies, with the reason for everything that is not.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities_with(CapabilitySet::NONE)
    }

    /// The capabilities where a program helps: its stores are known.
    pub fn capabilities_with_help(&self) -> Capabilities {
        self.capabilities_with(CapabilitySet::of(&[Capability::DirtyBits, Capability::Traffic]))
    }

    /// The capabilities where a program also takes out entries of its shared memory: only accesses to that memory are known,
    /// and only that memory is managed.
    pub fn capabilities_with_entry_dropping(&self) -> Capabilities {
        self.capabilities_with(CapabilitySet::of(&[
            Capability::DirtyBits,
            Capability::Traffic,
            Capability::AccessedBits,
            Capability::HintFaults,
            Capability::CountedFaults,
        ]))
    }

    /// Whether the kernel's base pages are those that Terrace knows.
    ///
    /// # Errors
    /// The size that they have, and what would help.
    pub fn knows_base_page(&self) -> Result<(), Missing> {
        match other_base_page(&self.base_page) {
            Some(reason) => unless(KERNEL_OF_BASE_PAGES, reason),
            None => Ok(()),
        }
    }

    /// Whether the pages of processes can be found, without which nothing is managed.
    ///
    /// # Errors
    /// The reason, and what would help.
    pub fn finds_pages(&self) -> Result<(), Missing> {
        self.knows_base_page()?;
        match &self.tracking.pagemap_scan {
            Fact::Absent(reason) => {
                unless("a kernel from 6.7 on", format!("the pages of a process cannot be found: {reason}"))
            }
            // What is not known is tried.
            Fact::Known(()) | Fact::Unknown(_) => Ok(()),
        }
    }

    /// Whether accesses to shared memory can be found with the help of the program.
    ///
    /// # Errors
    /// The reason, and what would help.
    pub fn drops_entries(&self) -> Result<(), Missing> {
        if self.tiers.compressed().is_some() {
            return because(
                "entry dropping is for memory on nodes, and compressed swap is a tier here: the page-out probe serves",
            );
        }
        match &self.release {
            Fact::Known(release) if release.version < (6, 11) => unless(
                "a kernel from 6.11 on",
                format!(
                    "entry dropping asks what is mapped by PROCMAP_QUERY, which Linux {release} does not have"
                ),
            ),
            _ if !self.tracking.can_be_helped() => unless(
                "a kernel from 6.11 on with CONFIG_USERFAULTFD=y",
                "entry dropping takes PAGEMAP_SCAN and a userfaultfd with asynchronous write protection",
            ),
            _ => Ok(()),
        }
    }

    /// The capabilities where faults of a program's shared memory are sampled instead: hints and counts, and nothing else,
    /// of that memory.
    pub fn capabilities_with_sampled_faults(&self) -> Capabilities {
        const UNKNOWN: [Capability; 4] =
            [Capability::AccessedBits, Capability::DirtyBits, Capability::Traffic, Capability::AccessSamples];
        let reported = CapabilitySet::of(&[Capability::HintFaults, Capability::CountedFaults]);
        UNKNOWN.iter().fold(self.capabilities_with(reported), |capabilities, one| {
            capabilities.without(
                *one,
                "with --sample-faults only accesses to the pages that a policy watches are known. What helps: \
                 --track-accesses instead",
            )
        })
    }

    /// Whether faults of shared memory can be sampled with the help of the program.
    ///
    /// # Errors
    /// The reason, and what would help.
    pub fn sampled_faults(&self) -> Result<(), Missing> {
        self.drops_entries()?;
        match self.tracking.userfaultfd.known() {
            Some(features) if features & USER_MODE_ONLY != 0 => unless(
                "run it as root, or: sysctl vm.unprivileged_userfaultfd=1",
                "system calls that are given the address of a sampled page would fail, for this user's userfaultfd \
                 takes faults of user code only",
            ),
            Some(features) if features >> MINOR_FAULTS & 1 == 1 => Ok(()),
            _ => unless(
                "a kernel from 6.11 on with CONFIG_HAVE_ARCH_USERFAULTFD_MINOR=y",
                "this kernel's userfaultfd reports no minor faults of shared memory",
            ),
        }
    }

    fn capabilities_with(&self, more: CapabilitySet) -> Capabilities {
        let is_offered = |one: &&Capability| more.contains(**one) || self.offers(**one).is_ok();
        let offered = Capability::ALL.iter().filter(is_offered).fold(CapabilitySet::NONE, add);
        let largest = if self.huge_pages.transparent.is_known() { PageSize::Huge } else { PageSize::Base };
        let mut capabilities = self
            .missing()
            .into_iter()
            .filter(|(capability, _)| !more.contains(*capability))
            .fold(Capabilities::new(offered, largest), |capabilities, (capability, missing)| {
                capabilities.without(capability, missing.to_string())
            });
        let processors: usize = self.nodes.iter().map(|node| node.cpus.len()).sum();
        capabilities.copy_threads = processors.clamp(1, usize::from(u16::MAX)) as u16;
        capabilities
    }

    /// Everything that is not offered, with the reason.
    pub fn missing(&self) -> BTreeMap<Capability, Missing> {
        let missing = |one: &Capability| Some((*one, self.offers(*one).err()?));
        Capability::ALL.iter().filter_map(missing).collect()
    }

    /// Whether this is offered here, and if not, why.
    ///
    /// # Errors
    /// The reason, and what would help.
    pub fn offers(&self, capability: Capability) -> Result<(), Missing> {
        match capability {
            Capability::AccessedBits => self.accessed_bits(),
            Capability::DirtyBits => self.dirty_bits(),
            Capability::FlushOnClear => because(
                "no kernel interface that clears accessed bits drops translations on x86, so a page whose \
                 translation stays in a TLB looks idle",
            ),
            // Where accessed bits are sampled, a page's first access shows, and how often samples find one gives a rate.
            Capability::HintFaults | Capability::CountedFaults => {
                self.accessed_bits().or_else(|_| self.page_out_probe())
            }
            // Advice for one base page of a huge page splits it.
            Capability::Split => self.advise_others(),
            Capability::AccessSamples => match &self.tracking.sampler {
                Fact::Known(_) => Ok(()),
                Fact::Absent(reason) => because(reason),
                Fact::Unknown(reason) => unless(AS_ROOT, reason),
            },
            Capability::Migration | Capability::ParallelCopy => self.second_tier(),
            Capability::WholeHugePages => self.whole_huge_pages(),
            Capability::Exchange => self.several_nodes(),
            Capability::Collapse => match &self.huge_pages.collapse {
                Fact::Known(()) => Ok(()),
                other => unless("a kernel from 6.1 on with CONFIG_TRANSPARENT_HUGEPAGE=y", other.reason()),
            },
            Capability::WriteFaults => {
                because("one process cannot make another's page fault at its next store without its help")
            }
            Capability::ExactAccesses => because("only a simulator sees every access: terrace sim"),
            Capability::BlockCounts => {
                because("no memory controller that Linux runs on counts by data structure")
            }
            Capability::TlbMisses => because("processors count TLB misses, but do not tell of which page"),
            // What is written is estimated by the pages that were.
            Capability::Traffic => self.dirty_bits(),
            Capability::LoadedLatency => because("Terrace does not read the memory controllers' counters"),
            Capability::Frames => because("Linux lets no process choose frames"),
            Capability::FaultSizes => because(
                "which size a new page has is up to Linux and the program: \
                 /sys/kernel/mm/transparent_hugepage/enabled, MADV_HUGEPAGE, MAP_HUGETLB",
            ),
            Capability::StalledFaults => because(
                "what a fault does for want of a huge page is up to Linux: \
                 /sys/kernel/mm/transparent_hugepage/defrag",
            ),
            Capability::ZeroPages => {
                because("Linux gives back zeros of huge pages by itself, and not by the page")
            }
            Capability::CopylessExchange => because("it takes a hypervisor that offers it"),
            Capability::Objects => unless(
                "terrace run --track-structures, or --hints FILE of `terrace profile`",
                "a program's allocations are known only for a command that Terrace starts",
            ),
            Capability::HardwareCache => because("the firmware decides it, and Linux does not tell"),
        }
    }

    /// Where nodes are distinguished, so that pages can move as they are.
    fn several_nodes(&self) -> Result<(), Missing> {
        match self.tiers.nodes.iter().filter(|nodes| !nodes.is_empty()).count() {
            0 | 1 => because("all nodes with memory are one tier"),
            _ => Ok(()),
        }
    }

    fn second_tier(&self) -> Result<(), Missing> {
        match self.tiers.topology.tiers.len() {
            0 | 1 => unless(
                ZRAM_SWAP,
                "this machine has one memory tier and no compressed swap that could serve as a second",
            ),
            _ if self.tiers.compressed().is_some() => self.advise_others(),
            _ => Ok(()),
        }
    }

    fn whole_huge_pages(&self) -> Result<(), Missing> {
        if !self.huge_pages.transparent.is_known() {
            return unless("a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y", "this kernel has no huge pages");
        }
        if self.tiers.compressed().is_some() {
            // There 2 MiB of address space count as one page, whatever the kernel makes of it.
            return self.advise_others();
        }
        self.several_nodes()?;
        match &self.release {
            Fact::Known(release) if release.version < (4, 14) => {
                unless("a kernel from 4.14 on", format!("Linux {release} splits huge pages that move"))
            }
            _ => Ok(()),
        }
    }

    fn accessed_bits(&self) -> Result<(), Missing> {
        let damon = &self.tracking.damon;
        match (&damon.threads, &damon.virtual_addresses) {
            (Fact::Absent(reason), _) => unless(
                format!(
                    "a kernel with CONFIG_DAMON_VADDR=y and CONFIG_DAMON_SYSFS=y{}",
                    self.or_by_entry_dropping()
                ),
                reason,
            ),
            (_, Fact::Absent(reason)) => {
                unless(format!("a kernel with CONFIG_DAMON_VADDR=y{}", self.or_by_entry_dropping()), reason)
            }
            _ if !self.privileges.root => unless(AS_ROOT, "only root may use DAMON"),
            (Fact::Known(0), Fact::Known(())) => Ok(()),
            (Fact::Known(0), Fact::Unknown(reason)) => unless(
                "make the kernel's options readable: /proc/config.gz or /boot/config-$(uname -r)",
                format!("whether DAMON can watch a process is unknown: {reason}"),
            ),
            (Fact::Known(threads), _) => unless(
                format!(
                    "end the other user of DAMON, such as damo or another Terrace; one program has it at a time, \
                     and Terrace leaves it alone{}",
                    self.or_by_entry_dropping()
                ),
                format!("DAMON is in use: nr_kdamonds is {threads}"),
            ),
            (Fact::Unknown(reason), _) => unless(AS_ROOT, reason),
        }
    }

    /// What serves where DAMON does not.
    fn or_by_entry_dropping(&self) -> &'static str {
        if self.drops_entries().is_ok() { "; or for shared memory: terrace run --track-accesses" } else { "" }
    }

    fn dirty_bits(&self) -> Result<(), Missing> {
        let remedy = "a kernel with CONFIG_MEM_SOFT_DIRTY=y";
        match (&self.tracking.soft_dirty, self.tracking.pagemap_scan.is_known()) {
            (Fact::Known(()), _) => Ok(()),
            (other, false) => unless(remedy, other.reason()),
            (other, true) => unless(
                remedy,
                format!(
                    "{}; PAGEMAP_SCAN reports the writes only of a program that helps: terrace run --track-stores",
                    other.reason()
                ),
            ),
        }
    }

    /// A page that is paged out faults at its next access. That is quick enough where swap is memory.
    fn page_out_probe(&self) -> Result<(), Missing> {
        if self.swap.compressed().next().is_none() {
            return unless(
                ZRAM_SWAP,
                "pages are made to fault by paging them out, and there is no compressed swap",
            );
        }
        self.advise_others()
    }

    fn advise_others(&self) -> Result<(), Missing> {
        match &self.placement.process_madvise {
            Fact::Known(()) if self.privileges.has(Privilege::Nice) => Ok(()),
            // The call was tried on terrace itself, which takes no privilege.
            Fact::Known(()) => unless(AS_ROOT, "advice about other processes takes CAP_SYS_NICE"),
            Fact::Absent(reason) => unless("a kernel from 5.10 on", reason),
            Fact::Unknown(reason) => unless(AS_ROOT, reason),
        }
    }
}

fn add(set: CapabilitySet, one: &Capability) -> CapabilitySet {
    set.with(*one)
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.remedy {
            Some(remedy) => write!(f, "{}. What helps: {remedy}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}
