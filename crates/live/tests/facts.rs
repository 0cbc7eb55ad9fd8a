//! What machines that are not here offer, from what their `/proc` and `/sys` say.

mod common;
use common::Machine;
use std::path::Path;
use terrace_live::facts::{Fact, Facts, Privilege};
use terrace_live::kernel::{Linux, Rooted};
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
    for never in [Capability::ExactAccesses, Capability::Traffic, Capability::FlushOnClear] {
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
    ] {
        assert!(offered.has(capability), "{capability}");
    }
    assert_eq!((offered.largest_page, offered.copy_threads), (PageSize::Huge, 2));
    assert!(reason(&facts, Capability::HintFaults).contains("no compressed swap"));
    assert_eq!(facts.placement.weights.known().unwrap().len(), 2);
    assert_eq!(facts.placement.numa_balancing, Fact::Known(0));
}

#[test]
fn an_old_kernel_lacks_in_words() {
    let facts = facts("two-nodes-6.1");
    assert!(reason(&facts, Capability::AccessedBits).contains("no DAMON"));
    assert!(facts.tracking.pagemap_scan.reason().contains("6.7"));
    assert!(matches!(facts.placement.weights, Fact::Absent(_)));
    assert_eq!(facts.kernel_tiers.len(), 1);
    assert!(facts.capabilities().has(Capability::Migration));
}

#[test]
fn a_user_is_told_what_root_could() {
    let facts = facts("zram-user");
    assert!(!facts.privileges.root);
    assert!(reason(&facts, Capability::AccessedBits).contains("as root"));
    assert!(reason(&facts, Capability::AccessSamples).contains("PEBS"), "the processor has it");
    let offered = facts.capabilities();
    assert!(offered.has(Capability::Migration) && offered.has(Capability::CountedFaults));
    assert!(!offered.has(Capability::Exchange) && !offered.has(Capability::WholeHugePages));
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

/// Finding out must leave everything as it was: no file of the kernel's switches changes.
#[test]
fn this_machine_is_the_same_afterwards() {
    let switches = [
        "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/proc/sys/kernel/numa_balancing",
        "/proc/sys/vm/nr_hugepages",
        "/proc/swaps",
    ];
    let state = || switches.map(|path| std::fs::read(Path::new(path)).ok());
    let devices = || std::fs::read_dir("/sys/block").map(Iterator::count).ok();
    let before = (state(), devices());
    let facts = Facts::discover(&Linux);
    assert!(facts.release.is_known() && !facts.tiers.topology.tiers.is_empty());
    assert_eq!((state(), devices()), before);
}
