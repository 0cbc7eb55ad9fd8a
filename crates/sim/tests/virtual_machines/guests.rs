//! Virtual machines with a hypervisor: walks in two dimensions by its table, faults on either side, and what a change of its
//! table costs.

use crate::support::probe::{on_host, order, outcomes, shared};
use crate::support::*;
use terrace_model::{Bytes, Cycles, Frequency, PageSize, TierId};
use terrace_policy::{
    Clear, MemorySystem, Moment, Move, MoveOptions, NextTick, PageId, ScanHand, Scope, Signal, SignalSet,
    Step,
};
use terrace_sim::design::{
    Design, GuestTierParameters, HostParameters, Library, NestedParameters, VmParameters,
    WalkCacheDimensions, WalkCacheTags,
};
use terrace_sim::{Fidelity, Options};
use terrace_trace::{Event, MarkKind};

/// A machine of 8 GiB whose programs run in a virtual machine of 5 GiB, pages of one size on each side, and neither nested
/// TLB nor page-walk cache.
fn virtual_machine(guest: PageSize, host: PageSize) -> Design {
    let mut design = with_pages(small(), only(guest));
    design.os.reserved = Bytes(0);
    design.tiers[0].capacity = Bytes::gib(8);
    let mut tlb = design.translation.page_walk_cache.clone();
    tlb.entries = 0;
    design.translation.nested = Some(NestedParameters { tlb, ..NestedParameters::default() });
    design.vm = Some(VmParameters { memory: Some(Bytes::gib(5)), ..VmParameters::default() });
    design.host = Some(HostParameters { pages: only(host), ..HostParameters::default() });
    design
}

#[test]
fn all_nine_pairs_of_page_sizes_take_as_many_references_as_the_formula_says() {
    for levels in [4, 5] {
        for guest in PageSize::ALL {
            for host in PageSize::ALL {
                for fidelity in [Fidelity::Translation, Fidelity::Full] {
                    // Zeroing pages of 1 GiB in full takes seconds and shows nothing more.
                    if guest.max(host) == PageSize::Giant && fidelity == Fidelity::Full {
                        continue;
                    }
                    let mut design = virtual_machine(guest, host);
                    design.translation.levels = levels;
                    let pages = if guest == PageSize::Giant { 3 } else { 5 };
                    let outcome = sweep(guest, pages).run(&design, fidelity);
                    let [g, h] = [guest, host].map(|size| u64::from(levels) - size.index() as u64);
                    let all = (g + 1) * (h + 1) - 1;
                    let what = format!("{guest} on {host}, {levels} levels, {fidelity:?}");
                    assert_eq!(walk_references(&outcome), [pages, pages * all, pages * (all - g)], "{what}");
                    let host_pages = |size: PageSize| count(&outcome, &format!("host.faults_by_size.{size}"));
                    assert_eq!(host_pages(host), count(&outcome, "host.ept_violations"), "{what}");
                    assert!(host_pages(host) > 0, "{what}");
                }
            }
        }
    }
    // The pairs that publications state: equal sizes, and 1 GiB in a guest whose host has 2 MiB (Trident, section 6).
    let (base, huge, giant) = (PageSize::Base, PageSize::Huge, PageSize::Giant);
    for (guest, host, all) in [(base, base, 24), (huge, huge, 15), (giant, giant, 8), (giant, huge, 11)] {
        let outcome = sweep(guest, 1).run(&virtual_machine(guest, host), Fidelity::Translation);
        assert_eq!(count(&outcome, "walk.memory_refs"), all, "{guest} on {host}");
    }
}

#[test]
fn memory_of_the_host_is_found_when_it_is_touched() {
    // Three pages of 4 KiB, and the four tables that lead there: seven frames of the guest, all in one tier, so that pages
    // of 2 MiB and more are one.
    for (host, pages) in [(PageSize::Base, 7), (PageSize::Huge, 1), (PageSize::Giant, 1)] {
        let outcome = sweep(PageSize::Base, 3).run(&virtual_machine(PageSize::Base, host), Fidelity::Full);
        assert_eq!(count(&outcome, &format!("host.faults_by_size.{host}")), pages, "{host}");
        assert_eq!(count(&outcome, "os.faults_by_size.4k"), 3, "the guest's own faults");
        assert_eq!(count(&outcome, &format!("host.resident_bytes.{host}")), pages * host.bytes());
        // The machine's tier holds the host's pages and its page tables, and nothing else.
        let tables = count(&outcome, "host.page_table_pages");
        assert_eq!(count(&outcome, "tier.dram.pages"), pages * host.base_pages() + tables, "{host}");
    }
}

#[test]
fn an_ept_violation_costs_an_exit_a_fault_and_the_zeroing() {
    let mut design = virtual_machine(PageSize::Base, PageSize::Huge);
    design.core.frequency = Frequency(1e9);
    let cycles = |design: &Design| {
        let outcome = sweep(PageSize::Base, 1).run(design, Fidelity::Translation);
        [count(&outcome, "core.cycles.os"), count(&outcome, "host.vm_exit_cycles")]
    };
    let [os, exits] = cycles(&design);
    design.host.as_mut().unwrap().vm_exit.0 += 1000.0;
    assert_eq!(cycles(&design), [os + 1000, exits + 1000], "one violation");
    let zeroing = 2e6 * 1.048_576 / design.os.huge_zero_bandwidth.0 * 1e9;
    let fault = design.os.fault_cost.as_nanos();
    assert!((exits as f64) > 1300.0 + fault + 0.9 * zeroing, "{exits}: 1300, {fault} and about {zeroing}");
}

#[test]
fn virtual_cpus_share_cores_by_time_slices() {
    // Four threads that compute for 40 ms each.
    let mut program = Program::new();
    for thread in 0..4 {
        program.on(thread);
        if thread > 0 {
            program.spawn(0, thread, None);
        }
        program.map(DATA + u64::from(thread) * GIB, PAGE).write(DATA + u64::from(thread) * GIB);
        for _ in 0..40 {
            program.event(Event::Compute { instructions: 1_000_000 });
        }
        program.write(DATA + u64::from(thread) * GIB);
    }
    let run = |cores: u32, vcpus: Option<u32>| {
        let mut design = virtual_machine(PageSize::Base, PageSize::Huge);
        design.core.count = cores;
        design.core.frequency = Frequency(1e9);
        design.os.timeslice = terrace_model::Time::from_nanos(4_000_000);
        design.vm.as_mut().unwrap().vcpus = vcpus;
        let outcome = program.run(&design, Fidelity::Translation);
        counts(&outcome, ["core.cores_used", "host.vm_exits.preemption", "host.vm_exit_cycles"])
    };
    assert_eq!(run(4, None)[..2], [4, 0], "a core for each thread");
    assert_eq!(
        run(4, Some(2))[..2],
        [2, 0],
        "two threads share a virtual CPU, which the guest does by itself"
    );
    assert_eq!(run(1, Some(1))[..2], [1, 0], "all of them");
    for cores in [1, 2] {
        let [used, preemptions, _] = run(cores, Some(4));
        assert!(used == u64::from(cores) && preemptions > 4, "{cores} cores: {preemptions}");
    }
}

#[test]
fn stores_set_dirty_bits_in_both_tables() {
    // A load, then a store to each page: the guest sets its bit, and so does the host where its page is of that size.
    let mut program = Program::new();
    program.map(DATA, 16 * PAGE);
    for page in 0..16 {
        program.read(DATA + page * PAGE).write(DATA + page * PAGE).write(DATA + page * PAGE + 64);
    }
    for host in [PageSize::Base, PageSize::Huge] {
        let outcome = program.run(&virtual_machine(PageSize::Base, host), Fidelity::Full);
        assert_eq!(count(&outcome, "walk.dirty_updates"), 16, "{host}");
        assert_eq!(count(&outcome, "walk.count"), 16, "the store goes through the entry of the load");
    }
}

#[test]
fn a_tlb_entry_covers_the_smaller_page() {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB);
    for page in 0..12 {
        program.chase(DATA + page * 17 * PAGE);
    }
    let misses = |host| {
        let outcome = program.run(&virtual_machine(PageSize::Huge, host), Fidelity::Translation);
        counts(&outcome, ["tlb.l1d.4k.miss", "tlb.l1d.2m.miss", "walk.count", "os.faults_by_size.2m"])
    };
    assert_eq!(misses(PageSize::Base), [12, 0, 12, 1]);
    assert_eq!(misses(PageSize::Huge), [0, 1, 1, 1]);
    assert_eq!(misses(PageSize::Giant), [0, 1, 1, 1]);
}

#[test]
fn a_nested_tlb_answers_for_pages_it_knows() {
    let mut design = virtual_machine(PageSize::Base, PageSize::Giant);
    design.translation.nested.as_mut().unwrap().tlb.entries = 4;
    // One page of the host holds the guest's tables and data: the root's address misses, four hit; later walks only hit.
    let outcome = sweep(PageSize::Base, 1).run(&design, Fidelity::Translation);
    assert_eq!(walk_references(&outcome), [1, 4 + 2, 2]);
    assert_eq!(counts(&outcome, ["walk.nested_tlb.hit", "walk.nested_tlb.miss"]), [4, 1]);
    let outcome = sweep(PageSize::Base, 3).run(&design, Fidelity::Translation);
    assert_eq!(walk_references(&outcome), [3, 3 * 4 + 2, 2]);
}

/// Each walk asks a nested TLB that takes 10,000 cycles, so the run is as long as walks are. Waits for miss registers, which
/// loads take when their walks are done, are waits for the walks.
#[test]
fn where_walks_take_all_time_translation_is_blamed() {
    let run = |outstanding: u32| {
        let mut design = virtual_machine(PageSize::Base, PageSize::Base);
        let tlb = &mut design.translation.nested.as_mut().unwrap().tlb;
        (tlb.entries, tlb.latency) = (16, Cycles(10_000.0));
        (design.cache.l1.outstanding, design.cache.l2.outstanding) = (outstanding, outstanding);
        let outcome =
            run_with(&design, &mut workload("gups,bytes=16MiB,updates=2e3"), Options::default()).unwrap();
        assert!(count(&outcome, "walk.count") > 1000);
        let [translation, memory] = counts(&outcome, ["core.cycles.translation", "core.cycles.memory"]);
        translation as f64 / (translation + memory) as f64
    };
    for outstanding in [4, 12, 1024] {
        let share = run(outstanding);
        assert!(share > 0.9, "{outstanding} registers: {share}");
    }
}

#[test]
fn a_walk_cache_by_guest_virtual_addresses_spares_the_first_tables_translation() {
    let references_of = |tags| {
        let mut design = virtual_machine(PageSize::Base, PageSize::Base);
        design.translation.page_walk_cache.entries = 32;
        design.translation.nested.as_mut().unwrap().walk_cache = tags;
        walk_references(&sweep(PageSize::Base, 2).run(&design, Fidelity::Translation))
    };
    // First walk: 4 + 4 for the root's address, 1 + 1 each for three more entries, whose tables and data lie in the same
    // 2 MiB of the guest, and 1 for the data. Second: 1 for the leaf's address, 1 for the leaf, 1 for the data; without
    // the first where the cache says where the leaf's table lies.
    let first = [4 + 1 + 3 * (1 + 1) + 1, 4 + 3 + 1];
    assert_eq!(references_of(WalkCacheTags::GuestPhysical), [2, first[0] + 3, first[1] + 2]);
    assert_eq!(references_of(WalkCacheTags::GuestVirtual), [2, first[0] + 2, first[1] + 1]);
}

#[test]
fn a_walk_cache_of_one_dimension_spares_nothing_of_the_hosts_table() {
    let references_of = |host: Option<PageSize>, pages: u64| {
        let mut design = virtual_machine(PageSize::Base, PageSize::Base);
        design.translation.page_walk_cache.entries = 32;
        let nested = design.translation.nested.as_mut().unwrap();
        nested.walk_cache_dimensions = WalkCacheDimensions::Guest;
        nested.host = host;
        if host.is_some() {
            (design.vm, design.host) = (None, None);
        }
        walk_references(&sweep(PageSize::Base, pages).run(&design, Fidelity::Translation))
    };
    // A real table of the host's, and a constant one. First walk: four entries of the guest, for each of which and for the
    // data four of the host. Second: the cache knows where the guest's leaf lies in the guest.
    for host in [None, Some(PageSize::Base)] {
        assert_eq!(references_of(host, 1), [1, 24, 20], "{host:?}");
        assert_eq!(references_of(host, 2), [2, 24 + 9, 20 + 8], "{host:?}");
    }
}

#[test]
fn a_guests_tier_lies_in_the_machines_tier_that_it_is_bound_to() {
    let tier = |name: &str, host: Option<&str>| GuestTierParameters {
        name: name.to_owned(),
        capacity: Bytes::mib(64),
        host_tier: host.map(str::to_owned),
    };
    let pages = |host: [Option<&str>; 2]| {
        let mut design = Library::embedded().design("first-touch", Some("zen4-cxl"), &[]).unwrap().design;
        design.os.reserved = Bytes(0);
        design.os.placement = terrace_sim::design::Placement::Interleave;
        design.vm = Some(VmParameters {
            tiers: vec![tier("near", host[0]), tier("far", host[1])],
            ..VmParameters::default()
        });
        let outcome = sweep(PageSize::Base, 1000).run(&design, Fidelity::Translation);
        counts(&outcome, ["tier.dram.pages", "tier.cxl.pages"])
    };
    // 1,000 pages take turns; the guest's tables lie in its first tier, the host's in the machine's first.
    let [dram, cxl] = pages([None, None]);
    assert!(dram > 1000 && cxl == 0, "{dram}, {cxl}");
    let [dram, cxl] = pages([Some("dram"), Some("cxl")]);
    assert!((500..530).contains(&dram) && cxl == 500, "{dram}, {cxl}");
    let [dram, cxl] = pages([Some("cxl"), Some("dram")]);
    assert!((500..530).contains(&dram) && (500..510).contains(&cxl), "{dram}, {cxl}");
}

/// A policy of the guest's moves pages between the tiers that it sees; what is copied are lines of the machine's tiers.
#[test]
fn what_a_guests_policy_moves_is_copied_where_it_lies() {
    let tier = |name: &str, host: &str| GuestTierParameters {
        name: name.to_owned(),
        capacity: Bytes::mib(64),
        host_tier: Some(host.to_owned()),
    };
    let moved = |host: PageSize| {
        let mut design = design("first-touch", "zen4-cxl", &[("os.reserved", "0 MiB")]);
        design.vm = Some(VmParameters {
            tiers: vec![tier("near", "dram"), tier("far", "cxl")],
            ..VmParameters::default()
        });
        design.host = Some(HostParameters { pages: only(host), ..HostParameters::default() });
        let mut program = Program::new();
        program.map(DATA, 8 * PAGE);
        (0..8).for_each(|page| _ = program.write(DATA + page * PAGE));
        program.event(Event::Compute { instructions: 400_000_000 }).read(DATA);
        let (outcome, signals) = order(&program, &design, TierId(0), 5_000_000, |memory| {
            assert_eq!(memory.topology().tiers[1].name, "far");
            let page = |at: u64| Move { page: PageId::new(0, (DATA >> 12) + at), to: TierId(1) };
            memory.migrate(&[0, 1, 2].map(page), MoveOptions::default());
        });
        assert!(outcomes(&signals).iter().all(|outcome| *outcome == terrace_policy::Outcome::Done));
        assert_eq!(count(&outcome, "vmstat.pgdemote_policy"), 3);
        (count(&outcome, "tier.cxl.bytes_by.copy"), count(&outcome, "host.ept_violations"))
    };
    for host in [PageSize::Base, PageSize::Huge] {
        let (copied, violations) = moved(host);
        assert_eq!(copied, 3 * PAGE, "{host}");
        // The far tier had no memory before: three pages of 4 KiB more, or one of 2 MiB.
        let before = if host == PageSize::Base { 4 + 8 } else { 1 };
        assert_eq!(violations, before + if host == PageSize::Base { 3 } else { 1 }, "{host}");
    }
}

/// In builds with debug assertions every translation is compared with that of both page tables.
#[test]
fn programs_do_the_same_in_a_virtual_machine() {
    for (native, hosted) in
        [("native-4k", "virtual-4k"), ("native-2m", "virtual-2m"), ("native-thp", "virtual-thp")]
    {
        let [alone, hosted] = [native, hosted].map(|name| {
            let options = Options { whole: true, ..Options::default() };
            let mut source = workload("kv,keys=8e3,requests=2e4,threads=2");
            run_with(&design(name, "vbi-table1", &[]), &mut *source, options).unwrap()
        });
        let same = ["core.instructions", "os.faults", "os.resident_bytes.4k", "os.resident_bytes.2m"];
        assert_eq!(counts(&alone, same), counts(&hosted, same), "{native}");
        assert_eq!(alone.accesses, hosted.accesses);
        assert!(count(&hosted, "walk.memory_refs") > count(&alone, "walk.memory_refs"), "{native}");
        assert!(alone.stats.get("host.ept_violations").is_none(), "absent without a hypervisor");
    }
}

/// What is passed over leaves the host's table as walks would: a scan by the hypervisor's policy finds the same pages
/// accessed and dirty.
#[test]
fn what_is_passed_over_sets_the_bits_of_the_hosts_table() {
    const CLEARS: Moment = Moment(5_000_000);
    const LOOKS: Moment = Moment(20_000_000);
    let scan = |memory: &mut dyn MemorySystem, step: Step| {
        let (mut hand, mut pages) = (ScanHand::default(), Vec::new());
        let clear = Clear { flush: true, ..Clear::BOTH };
        memory.scan(Scope::All, &mut hand, clear, &mut |view| {
            pages.push((view.page, view.accessed, view.dirty));
            step
        });
        pages
    };
    let compute = Event::Compute { instructions: 40_000_000 };
    let mut program = Program::new();
    program.map(DATA, 16 * PAGE);
    (0..16).for_each(|page| _ = program.write(DATA + page * PAGE));
    program.event(compute.clone());
    (0..4).for_each(|page| _ = program.read(DATA + page * PAGE));
    (4..6).for_each(|page| _ = program.write(DATA + page * PAGE));
    program
        .event(compute.clone())
        .event(compute.clone())
        .mark(MarkKind::RegionBegin)
        .read(DATA)
        .mark(MarkKind::RegionEnd);
    let seen = |host: PageSize, fast_forward: bool| {
        let mut design = virtual_machine(PageSize::Base, host);
        design.core.frequency = Frequency(1e9);
        let (log, seen) = shared(Vec::new());
        let mut clears = false;
        let on = move |now: Moment, _: &[Signal], memory: &mut dyn MemorySystem| {
            if now < CLEARS {
                return NextTick::At(CLEARS);
            }
            if !std::mem::replace(&mut clears, true) {
                scan(memory, Step::Clear);
                return NextTick::At(LOOKS);
            }
            *log.lock().unwrap() = scan(memory, Step::Keep);
            NextTick::Never
        };
        let options = Options { whole: false, fast_forward, ..on_host(SignalSet::NONE, on) };
        run_with(&design, &mut program.source(), options).unwrap();
        let seen = seen.lock().unwrap();
        seen.clone()
    };
    for host in [PageSize::Base, PageSize::Huge] {
        let [walked, passed_over] = [false, true].map(|fast_forward| seen(host, fast_forward));
        assert_eq!(passed_over, walked, "{host}");
        assert!(walked.iter().any(|page| page.1), "{host}: nothing was accessed");
        let of = |flag: fn(&(PageId, bool, bool)) -> bool| walked.iter().filter(|page| flag(page)).count();
        if host == PageSize::Base {
            // Sixteen pages and four tables. Six were accessed, two of them written to; walkers set bits in tables.
            assert_eq!([walked.len(), of(|page| page.1), of(|page| page.2)], [20, 6 + 4, 2 + 4]);
        }
    }
}

#[test]
fn a_tlb_in_memory_holds_whole_translations() {
    let sets = [("vm.memory", "256 MiB"), ("host.pages", "4k")];
    let outcome = |name: &str| {
        run(
            &design(name, "vbi-table1", &sets),
            &mut *workload("gups,bytes=64 MiB,updates=1e5"),
            Fidelity::Translation,
        )
    };
    let (plain, pom) = (outcome("native-4k"), outcome("pom-tlb"));
    assert!(count(&pom, "walk.memory_refs") < count(&plain, "walk.memory_refs"));
    assert!(count(&pom, "tlb.pom.hit") > 50_000);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |name: &str, sets: &[(&str, &str)]| {
        let sets: Vec<(String, String)> =
            sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Library::embedded().design(name, Some("vbi-table1"), &sets).unwrap_err().to_string()
    };
    let mut seen = virtual_machine(PageSize::Base, PageSize::Base);
    let policy = "name = \"memory-mode\"";
    seen.host.as_mut().unwrap().policy = Some(toml::from_str(policy).unwrap());
    let said = run_with(&seen, &mut Program::new().source(), Options::default()).unwrap_err().to_string();
    assert!(
        said.contains("host.policy") && said.contains("memory mode is chosen when a machine starts"),
        "{said}"
    );
    let has = |said: String, wanted: &str| assert!(said.contains(wanted), "{said}: not \"{wanted}\"");
    seen.host.as_mut().unwrap().policy = Some(toml::from_str("name = \"annotated\"").unwrap());
    let options = Options { profile: Some(Default::default()), ..Options::default() };
    let said = run_with(&seen, &mut Program::new().source(), options).unwrap_err().to_string();
    has(said.clone(), "host.policy");
    has(said, "the hypervisor does not know what the guest's programs allocate");
    has(
        refused("virtual-4k", &[("vm.memory", "8 TiB")]),
        "vm.memory: a virtual machine of 8 TiB is larger than",
    );
    has(refused("native-4k", &[("host.pages", "2m")]), "there is none: add a table [vm]");
    has(refused("virtual-4k", &[("translation.nested.host", "2m")]), "[vm] has a real one: use host.pages");
    for scheme in ["vivt", "perfect-tlb", "colt", "rmm", "direct-segment", "spot"] {
        has(refused(scheme, &[("vm.memory", "64 MiB")]), "use radix or pom-tlb");
    }
    has(
        refused("virtual-4k", &[("host.placement", "bind"), ("host.placement.tier", "hbm")]),
        "no tier \"hbm\"",
    );
    has(refused("virtual-4k", &[("vm.vcpus", "0")]), "vm.vcpus: 0 is not between 1 and 1024");
    has(refused("virtual-4k", &[("host.policy.name", "ambx")]), "host.policy.name");
    has(
        refused("virtual-4k", &[("host.policy.name", "oracle")]),
        "oracle needs a first pass, which counts the pages of programs and not those of a hypervisor: \
         give it to the guest (os.policy.name=oracle)",
    );
    has(refused("native-4k", &[("translation.nested.walk_cache", "guest-virtual")]), "or a virtual machine");
    let mut program = Program::new();
    program.map(DATA, PAGE).read(DATA);
    for (key, design) in [
        ("vm", virtual_machine(PageSize::Base, PageSize::Base)),
        ("translation.nested", design("native-4k", "vbi-table1", &[("translation.nested.host", "4k")])),
    ] {
        let options = Options { fidelity: Fidelity::Pages, ..Options::default() };
        let said = run_with(&design, &mut program.source(), options).unwrap_err().to_string();
        assert!(said.contains(&format!("{key}: without walks")), "{said}");
    }
}

#[test]
fn a_host_without_memory_for_its_tables_says_so() {
    let mut design = virtual_machine(PageSize::Base, PageSize::Base);
    design.tiers[0].capacity = Bytes::mib(64);
    design.vm.as_mut().unwrap().memory = Some(Bytes::mib(64));
    let program = sweep(PageSize::Base, 16_380);
    let options = Options { fidelity: Fidelity::Translation, ..Options::default() };
    let said = run_with(&design, &mut program.source(), options).unwrap_err().to_string();
    assert!(said.contains("out of memory"), "{said}");
}
