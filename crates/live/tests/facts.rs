//! What machines that are not here offer, from what their `/proc` and `/sys` say.

mod common;
use common::Machine;
use proptest::prelude::*;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use terrace_live::doctor::{PolicyFinding, Verdict, diagnose};
use terrace_live::facts::{Fact, Facts, Privilege};
use terrace_live::kernel::{
    Advice, Event, Faults, Kernel, Linux, PageRun, PageScan, Probe, Process, Rooted, Samples,
};
use terrace_model::{Bytes, PageSize};
use terrace_policy::Capability;

fn facts(name: &str) -> Facts {
    Facts::discover(&Machine::named(name).kernel())
}

fn reason(facts: &Facts, capability: Capability) -> String {
    facts.missing()[&capability].to_string()
}

#[test]
fn one_node_without_swap() {
    let facts = facts("one-node-6.18");
    assert_eq!(facts.release.known().unwrap().version, (6, 18));
    assert_eq!(facts.options.source.as_deref(), Some("/boot/config-6.18.44-cloud"));
    assert!(facts.privileges.root && facts.privileges.has(Privilege::Nice));
    assert_eq!(facts.tracking.damon.threads, Fact::Known(1));
    assert!(facts.tracking.damon.physical_addresses.is_known());
    assert!(facts.tracking.damon.migration.is_known());
    assert!(matches!(facts.tracking.damon.virtual_addresses, Fact::Absent(_)));
    assert!(facts.tracking.pagemap_scan.is_known());
    assert!(matches!(facts.tracking.soft_dirty, Fact::Absent(_)));
    assert!(matches!(facts.tracking.sampler, Fact::Absent(_)));
    let pages = facts.huge_pages.transparent.known().unwrap();
    assert_eq!((pages.mode.as_str(), pages.sizes.len()), ("madvise", 3));
    assert_eq!(pages.sizes[0], (Bytes::kib(16), "never".to_owned()));
    let groups = facts.control_groups.known().unwrap();
    assert_eq!((groups.mount.as_str(), groups.has_memory()), ("/sys/fs/cgroup/unified", false));
    assert!(facts.swap.zram && facts.swap.areas.is_empty());

    let offered = facts.capabilities();
    assert!(offered.has(Capability::Collapse) && offered.has(Capability::Split));
    assert!(reason(&facts, Capability::Migration).contains("modprobe zram"));
    assert!(reason(&facts, Capability::AccessedBits).contains("DAMON_VADDR"));
    assert!(reason(&facts, Capability::DirtyBits).contains("MEM_SOFT_DIRTY"));
    assert!(
        reason(&facts, Capability::Traffic).contains("MEM_SOFT_DIRTY"),
        "it is estimated by what is written"
    );
    for never in [Capability::ExactAccesses, Capability::LoadedLatency, Capability::FlushOnClear] {
        assert_eq!(facts.missing()[&never].remedy, None);
    }
}

#[test]
fn two_nodes_move_exchange_and_watch() {
    let facts = facts("two-nodes-6.12");
    let offered = facts.capabilities();
    for capability in [
        Capability::AccessedBits,
        Capability::DirtyBits,
        Capability::Migration,
        Capability::WholeHugePages,
        Capability::Exchange,
        Capability::ParallelCopy,
        Capability::Collapse,
        Capability::Traffic,
        // By DAMON's samples, without swap.
        Capability::HintFaults,
        Capability::CountedFaults,
    ] {
        assert!(offered.has(capability), "{capability}");
    }
    assert_eq!((offered.largest_page, offered.copy_threads), (PageSize::Huge, 2));
    assert_eq!(facts.placement.weights.known().unwrap().len(), 2);
    assert_eq!(facts.placement.numa_balancing, Fact::Known(0));
}

#[test]
fn an_old_kernel_lacks_in_words() {
    let facts = facts("two-nodes-6.1");
    assert!(reason(&facts, Capability::AccessedBits).contains("no DAMON"));
    assert!(facts.finds_pages().unwrap_err().to_string().contains("6.7"));
    let policies = diagnose(&facts, &[]).policies;
    let refused = |policy: &PolicyFinding| policy.refusal.as_ref().unwrap().contains("PAGEMAP_SCAN");
    assert!(policies.iter().all(|policy| policy.verdict == Verdict::DoesNotRun && refused(policy)));
    assert!(matches!(facts.placement.weights, Fact::Absent(_)));
    assert_eq!(facts.kernel_tiers.len(), 1);
    assert!(facts.capabilities().has(Capability::Migration));
}

#[test]
fn a_kernel_with_other_base_pages_runs_no_policy() {
    let machine = Machine::named("two-nodes-6.12");
    let set = |page: u64| {
        let vector = [3, 64, 6, page, 0, 0].map(u64::to_ne_bytes).concat();
        machine.set("/proc/self/auxv", str::from_utf8(&vector).unwrap());
    };
    set(4096);
    let facts = Facts::discover(&machine.kernel());
    assert_eq!(facts.base_page, Fact::Known(Bytes::kib(4)));
    assert!(facts.finds_pages().is_ok());
    set(65_536);
    let facts = Facts::discover(&machine.kernel());
    let refusal = facts.finds_pages().unwrap_err().to_string();
    assert!(refusal.contains("this kernel's have 64 KiB") && refusal.contains("CONFIG_ARM64_4K_PAGES"));
    let diagnosis = diagnose(&facts, &[]);
    assert!(diagnosis.policies.iter().all(|policy| policy.verdict == Verdict::DoesNotRun));
    assert!(diagnosis.findings.iter().any(|finding| finding.item == "base pages"));
}

#[test]
fn a_user_is_shown_what_root_could() {
    let facts = facts("zram-user");
    assert!(!facts.privileges.root);
    assert!(reason(&facts, Capability::AccessedBits).contains("as root"));
    assert!(reason(&facts, Capability::AccessSamples).contains("PEBS"), "the processor has it");
    assert!(reason(&facts, Capability::Migration).contains("CAP_SYS_NICE"));
}

#[test]
fn compressed_swap_makes_pages_fault_and_move() {
    let machine = Machine::named("zram-user");
    machine.set("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001fffeffffff\n");
    let offered = Facts::discover(&machine.kernel()).capabilities();
    for capability in [Capability::Migration, Capability::CountedFaults, Capability::Split] {
        assert!(offered.has(capability), "{capability}");
    }
    assert!(!offered.has(Capability::Exchange), "a page cannot take the place of one that is compressed");
    assert!(offered.has(Capability::WholeHugePages), "2 MiB count as one page");
}

#[test]
fn damon_that_someone_else_uses_is_left_alone() {
    let machine = Machine::named("two-nodes-6.12");
    machine.set("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "2\n");
    let facts = Facts::discover(&machine.kernel());
    assert!(reason(&facts, Capability::AccessedBits).contains("in use: nr_kdamonds is 2"));
}

#[test]
fn damon_is_known_by_its_functions_where_the_options_are_not_to_be_found() {
    let machine = Machine::named("two-nodes-6.12");
    let options = "/boot/config-6.12.117+deb12-cloud-amd64";
    machine.remove(options);
    let facts = Facts::discover(&machine.kernel());
    assert!(reason(&facts, Capability::AccessedBits).contains("not tried"));
    machine.set("/proc/kallsyms", "0000000000000000 t damon_va_check_accesses\n");
    assert!(Facts::discover(&machine.kernel()).capabilities().has(Capability::AccessedBits));
    machine.set("/proc/kallsyms", "0000000000000000 t damon_pa_check_accesses\n");
    let facts = Facts::discover(&machine.kernel());
    assert!(reason(&facts, Capability::AccessedBits).contains("DAMON_VADDR"));
}

#[test]
fn a_machine_that_says_nothing_has_reasons_for_everything() {
    let empty = tempfile::tempdir().unwrap();
    let facts = Facts::discover(&Rooted::new(empty.path()));
    let missing = facts.missing();
    assert_eq!(missing.len(), Capability::ALL.len());
    assert!(missing.values().all(|missing| !missing.reason.is_empty()));
}

/// The kernel that runs here, where asking for a change is a failure.
struct Untouched;

impl Kernel for Untouched {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Reading this one creates a device.
        assert!(!path.ends_with("hot_add"), "{}", path.display());
        Linux.read(path)
    }

    fn write(&self, path: &Path, _: &str) -> io::Result<()> {
        panic!("a write to {}", path.display())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Linux.list(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        panic!("a folder is made: {}", path.display())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        panic!("a folder is removed: {}", path.display())
    }

    fn stream(&self, path: &Path) -> io::Result<File> {
        panic!("{} is opened", path.display())
    }

    fn open(&self, pid: u32) -> io::Result<Process> {
        panic!("process {pid} is looked into")
    }

    fn is_alive(&self, _: &Process) -> bool {
        false
    }

    fn has_same_memory(&self, _: &Process) -> bool {
        false
    }

    fn shares_memory(&self, _: u32, _: u32) -> bool {
        panic!("processes are compared")
    }

    fn move_pages(&self, _: &Process, _: &[u64], _: Option<&[i32]>, _: &mut [i32]) -> io::Result<()> {
        panic!("pages move")
    }

    fn advise(&self, _: &Process, _: &[(u64, u64)], _: Advice) -> io::Result<u64> {
        panic!("advice is given")
    }

    fn scan_pages(&self, _: &Process, _: &PageScan, _: &mut [PageRun]) -> io::Result<(usize, u64)> {
        panic!("pages are scanned")
    }

    fn track_writes(&self, _: &Process, _: u64, _: u64) -> io::Result<()> {
        panic!("stores are tracked")
    }

    fn faults(&self, _: u32, _: OwnedFd) -> io::Result<Box<dyn Faults>> {
        panic!("faults are answered")
    }

    fn pagemap(&self, _: &Process, _: u64, _: &mut [u64]) -> io::Result<usize> {
        panic!("pages are read")
    }

    fn touch(&self, _: &Process, _: &[u64]) -> io::Result<usize> {
        panic!("pages are touched")
    }

    fn sample(&self, _: Event, _: u32) -> io::Result<Box<dyn Samples>> {
        panic!("something is sampled")
    }

    fn probe(&self, what: Probe) -> io::Result<u64> {
        Linux.probe(what)
    }

    fn now(&self) -> Duration {
        Linux.now()
    }

    fn cpu_time(&self) -> Duration {
        Linux.cpu_time()
    }

    fn sleep(&self, span: Duration) {
        Linux.sleep(span);
    }
}

#[test]
fn this_machine_is_found_out_without_a_change() {
    let facts = Facts::discover(&Untouched);
    assert!(facts.release.is_known() && !facts.tiers.topology.tiers.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Damage in any file of any machine leaves facts and a diagnosis, whatever they say.
    #[test]
    fn no_machine_is_too_strange(
        name in prop::sample::select(vec!["one-node-6.18", "four-nodes-6.12", "two-nodes-6.1", "zram-user"]),
        damaged in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..6),
    ) {
        let machine = Machine::named(name);
        let files = machine.files();
        for (file, content) in damaged {
            std::fs::write(file.get(&files), content).unwrap();
        }
        diagnose(&Facts::discover(&machine.kernel()), &[]);
    }
}

/// Any bytes, or what looks nearly right: numbers and lists beyond all bounds.
fn damage() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![any::<u64>().prop_map(|n| n.to_string()), Just("4294967295".to_owned())];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        number.clone().prop_map(String::into_bytes),
        (number.clone(), number.clone()).prop_map(|(a, b)| format!("{a}-{b},0 {b} {a}").into_bytes()),
        number.prop_map(|n| format!("Node 0 MemTotal: {n} kB\nNode 0 MemFree: {n} kB\n").into_bytes()),
    ]
}
