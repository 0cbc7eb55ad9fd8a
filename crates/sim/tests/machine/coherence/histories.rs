//! Whatever changes a page table, and in whatever order, nobody goes on with what was.
//!
//! Entries change by the program (`mmap` over what is mapped, `munmap`, `mremap`, `mprotect`, `madvise`, `fork`,
//! `execve`, its end), by its faults (a page comes in, a shared page is copied), by walkers and scans (accessed and
//! dirty bits, traps), and by the orders of a policy: pages move between tiers, change places, move within a tier, are
//! split and joined, and give back their zeros. What else a policy can order (zeroed and isolated blocks, pages of
//! files that nobody maps) changes none.

use super::*;
use terrace_model::Frame;
use terrace_policy::{PhysicalMemory, Relocate};
use terrace_trace::MapKind;

/// All schemes of translation coherence.
pub(super) const COHERENCE_SCHEMES: [&str; 5] = ["software", "software-virtual", "ideal", "hatric", "unitd"];

/// Threads and processes that map, touch, protect, move, unmap and fork. What changed is touched by all threads next.
fn churn(seed: u64) -> Program {
    let mut random = Random(seed);
    let mut program = Program::new();
    let base = |area: u64| DATA + area * 8 * MIB;
    program.map(base(0), 6 * MIB).map(base(1), 6 * MIB);
    let shared = [MapKind::Anonymous, MapKind::SharedAnonymous, MapKind::PrivateFile];
    program.map_kind(base(2), 6 * MIB, shared[random.below(3) as usize]);
    for thread in 1..3 {
        program.on(thread).spawn(0, thread, None);
    }
    let mut processes = 1;
    for _ in 0..40 {
        let area = base(random.below(3));
        let (start, pages) = (area + random.below(1400) * PAGE, 1 + random.below(100));
        let touch = |program: &mut Program, random: &mut Random| {
            for thread in 0..3 {
                program.on(thread);
                for _ in 0..60 {
                    let addr = start + random.below(pages) * PAGE + random.below(64) * 64;
                    let kind = if random.below(3) == 0 { AccessKind::Write } else { AccessKind::Read };
                    program.access(addr, 8, kind, 0, 100 + random.below(2000));
                }
                program.mark(MarkKind::Barrier);
            }
        };
        touch(&mut program, &mut random);
        program.on(random.below(3) as u32);
        let (bytes, range) = (pages * PAGE, AddressRange::new(start, pages * PAGE));
        match random.below(10) {
            0 => _ = program.unmap(start, bytes).map(start, bytes),
            1 => _ = program.map(start, bytes),
            2 => {
                // A place where huge pages do not fit, too.
                let to = area + 4 * MIB - random.below(2) * random.below(200) * PAGE;
                program.remap((area, 2 * MIB), (to, 2 * MIB)).map(area, 2 * MIB);
            }
            3 => _ = program.remap((start, bytes), (start, PAGE)).map(start, bytes),
            4 => {
                let hints = [Advice::Free, Advice::HugePage, Advice::NoHugePage, Advice::PageOut];
                let advice = hints.get(random.below(8) as usize).copied().unwrap_or(Advice::DontNeed);
                program.event(Event::Advise { range, advice });
            }
            5 => {
                let protection = Protection::from_bits([1, 3, 0][random.below(3) as usize]);
                program.event(Event::Protect { range, protection });
                if !protection.read {
                    let protection = Protection::READ_WRITE;
                    program.event(Event::Protect { range, protection });
                }
            }
            6 => _ = program.kernel(start, bytes, KernelAccess::Write),
            _ if processes < 4 => {
                let child = 2 + processes;
                program.on(child).spawn(processes, 0, Some(0));
                (0..pages.min(40)).for_each(|page| _ = program.write(start + page * PAGE));
                match random.below(3) {
                    0 => _ = program.exit(true),
                    1 => {
                        program.event(Event::Exec { name: String::new() }).map(base(0), 8 * MIB);
                        (0..1000).for_each(|_| {
                            let kind =
                                if random.below(3) == 0 { AccessKind::Write } else { AccessKind::Read };
                            let addr = base(0) + random.below(300) * PAGE;
                            program.access(addr, 8, kind, 0, 100 + random.below(2000));
                        });
                    }
                    _ => {}
                }
                processes += 1;
            }
            _ => {}
        }
        program.mark(MarkKind::Barrier);
        touch(&mut program, &mut random);
    }
    program
}

/// Moves between tiers and within them, exchanges, splits, joins, empties and watches pages at random, and clears
/// their bits.
fn meddler(seed: u64) -> impl FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send {
    let mut random = Random(seed);
    move |now, _, memory| {
        let mut pages = Vec::new();
        let mut hand = ScanHand { next: PageId::new(0, random.below(1 << 34)) };
        let [accessed, dirty, flush] = [2, 2, 3].map(|one_in| random.below(one_in) == 0);
        let clear = Clear { accessed, dirty, flush };
        memory.scan(Scope::All, &mut hand, clear, &mut |view| {
            pages.push(view.page);
            if random.below(2) == 0 { Step::Clear } else { Step::Keep }
        });
        if pages.is_empty() {
            return every(now, 2000);
        }
        let one = |random: &mut Random| pages[random.below(pages.len() as u64) as usize];
        // Where there is no hypervisor, or the policy is the hypervisor's own, mappings are not exchanged.
        let copy = match NonZeroU16::new(random.below(2048) as u16) {
            Some(pairs) if pairs.get() <= 512 => CopyBy::Mapping(pairs),
            _ => CopyBy::Bytes,
        };
        let how = MoveOptions {
            huge: if random.below(2) == 0 { HugePages::Whole } else { HugePages::SplitFirst },
            threads: 1,
            in_flight: NonZeroU32::new(random.below(9) as u32),
            copy,
            empties_lists: true,
        };
        let some: Vec<PageId> = (0..random.below(12)).map(|_| one(&mut random)).collect();
        match random.below(7) {
            0 => {
                let to = TierId(random.below(2) as u8);
                memory.migrate(&some.iter().map(|page| Move { page: *page, to }).collect::<Vec<_>>(), how);
            }
            1 => {
                let pair = |page: &PageId| Exchange { one: *page, other: one(&mut random) };
                memory.exchange(&some.iter().map(pair).collect::<Vec<_>>(), how);
            }
            2 => {
                let to = if random.below(2) == 0 { PageSize::Base } else { PageSize::Huge };
                let resize = |page: &PageId| Resize { page: page.aligned(to), to };
                memory.resize_by(&some.iter().map(resize).collect::<Vec<_>>(), copy);
            }
            3 | 4 => {
                let Some(physical) = memory.physical() else { panic!("frames are shown") };
                let moves = relocations(&mut random, physical, PageSize::Huge);
                physical.relocate(&moves, how);
            }
            5 => _ = memory.drop_zeros(&some[..some.len().min(3)]),
            _ => {
                let hows = [Watch::Off, Watch::Hint, Watch::HintStore, Watch::Count];
                memory.watch(&some, hows[random.below(4) as usize]);
                memory.counts(&mut |_| {});
            }
        }
        every(now, 1000 + random.below(20_000))
    }
}

/// Frames of one tier that are to move, and where: half of them are the first of blocks of a `large` page.
pub(super) fn relocations(
    random: &mut Random,
    physical: &dyn PhysicalMemory,
    large: PageSize,
) -> Vec<Relocate> {
    let (first, frames) = physical.tier_frames(TierId(random.below(2) as u8));
    let block = |random: &mut Random| {
        Frame(first.0 + random.below((frames / large.base_pages()).max(1)) * large.base_pages())
    };
    let one = |random: &mut Random| {
        let exchange = random.below(2) == 0;
        if random.below(2) == 0 {
            return Relocate { from: block(random), to: block(random), exchange };
        }
        let [from, to] = [(); 2].map(|()| Frame(first.0 + random.below(frames)));
        Relocate { from, to, exchange }
    };
    (0..random.below(24)).map(|_| one(random)).collect()
}

/// The machine in a virtual machine with a tier in each of its own.
pub(super) fn in_vm(mut design: Design, host: PagePolicy) -> Design {
    let tiers = [("near", 1500 * PAGE), ("far", 40 * MIB)].into_iter().zip(&design.tiers);
    let tier =
        |((name, bytes), of): ((&str, u64), &terrace_sim::design::TierParameters)| GuestTierParameters {
            name: name.to_owned(),
            capacity: Bytes(bytes),
            host_tier: Some(of.name.clone()),
        };
    design.vm = Some(VmParameters { tiers: tiers.map(tier).collect(), ..VmParameters::default() });
    design.os.page_table_tier = None;
    design.host = Some(HostParameters { pages: host, ..HostParameters::default() });
    design
}

const SCHEMES: [&str; 10] =
    ["radix", "perfect-tlb", "vivt", "colt", "rmm", "direct-segment", "spot", "pom-tlb", "vbi", "enigma"];

#[test]
fn every_scheme_has_histories() {
    let all: Vec<&str> = terrace_sim::design::schemes::ALL.iter().map(|entry| entry.name).collect();
    let missing = all.iter().filter(|name| !SCHEMES.contains(name));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "add them to SCHEMES");
}

/// Hardware of every kind.
fn hatric() -> impl Strategy<Value = HatricParameters> {
    let choices = (
        prop_oneof![Just(1u32), Just(2), Just(3), Just(8)],
        prop_oneof![Just(Granularity::Line), Just(Granularity::EightEntries), Just(Granularity::Entry)],
        any::<[bool; 9]>(),
    );
    choices.prop_map(|(co_tag_bytes, granularity, bits)| HatricParameters {
        co_tag_bytes,
        granularity,
        local_stores: if bits[0] { LocalStores::Probe } else { LocalStores::Software },
        fill_notices: if bits[1] { FillNotices::Message } else { FillNotices::SearchAll },
        set_numbers: if bits[2] { SetNumbers::Whole } else { SetNumbers::SixBits },
        synonyms: if bits[3] { Synonyms::SearchAll } else { Synonyms::ListAll },
        walk_cache_sets: if bits[4] { WalkCacheSets::Derived } else { WalkCacheSets::SearchAll },
        guest_changes: if bits[1] ^ bits[5] { GuestChanges::Software } else { GuestChanges::Free },
        freed_tables: if bits[5] { FreedTables::Stores } else { FreedTables::Flush },
        walker_stores: if bits[6] { WalkerStores::Invalidate } else { WalkerStores::Ignore },
        directory_updates: if bits[7] { DirectoryUpdates::Lazy } else { DirectoryUpdates::Eager },
        tracking: if bits[8] { Tracking::Shared } else { Tracking::Fine },
        directory_size: if bits[0] ^ bits[8] { DirectorySize::Bounded } else { DirectorySize::Boundless },
        ..HatricParameters::default()
    })
}

#[test]
fn the_mix_has_every_change() {
    let names = [
        "os.shootdowns.copy_on_write.count",
        "os.shootdowns.munmap.count",
        "os.shootdowns.mremap.count",
        "os.shootdowns.mprotect.count",
        "os.shootdowns.madvise.count",
        "os.shootdowns.fork.count",
        "os.shootdowns.watch.count",
        "policy.relocated",
        "policy.exchanges",
        "policy.zeros_dropped",
        "vmstat.pgmigrate_success",
        "vmstat.thp_collapse_alloc",
        "vmstat.thp_split_page",
    ];
    let mut design = machine(3, "radix", "hatric");
    design.os.pages = PagePolicy::Thp;
    let mut sums = names.map(|_| 0);
    for seed in 0..8 {
        let signals = SignalSet::of(SignalKind::ALL);
        let fidelity = Fidelity::Translation;
        let outcome = probe(&churn(seed), &design, fidelity, (TierId(0), signals), meddler(seed));
        sums.iter_mut().zip(counts(&outcome, names)).for_each(|(sum, found)| *sum += found);
    }
    let missing: Vec<_> = names.into_iter().zip(sums).filter(|(_, sum)| *sum == 0).collect();
    assert!(missing.is_empty(), "{missing:?} of {sums:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// In builds with debug assertions, as these are, an access that is translated to another frame than the page table's
    /// ends the run.
    #[test]
    fn nobody_goes_on_with_what_was(
        seed: u64,
        scheme in 0..SCHEMES.len() + 3,
        coherence in 0..COHERENCE_SCHEMES.len(),
        hatric in hatric(),
        nested: bool,
        huge: bool,
        full: bool,
        virtual_machine: bool,
        host_huge: bool,
        two_vms: bool,
    ) {
        // Range TLBs more often: what hardware does to them has options of its own.
        let scheme = SCHEMES.get(scheme).copied().unwrap_or("rmm");
        let coherence = COHERENCE_SCHEMES[coherence];
        let hardware = coherence == "hatric" || coherence == "unitd";
        let (mut hatric, mut scheme) = (hatric, scheme);
        if hardware && scheme == "colt" {
            // One co-tag speaks of all pages that an entry covers.
            let HatricParameters { granularity, set_numbers, directory_updates, .. } = HatricParameters::default();
            hatric = HatricParameters { granularity, set_numbers, directory_updates, ..hatric };
        } else if hardware && scheme == "rmm" {
            let ranges = [Ranges::SearchAll, Ranges::RangeCover, Ranges::Split][seed as usize % 3];
            hatric = HatricParameters { ranges, directory_updates: DirectoryUpdates::Lazy, ..hatric };
        } else if hardware {
            scheme = "radix";
        }
        let mut design = machine(3, scheme, coherence);
        design.translation.hatric = Some(hatric);
        design.os.pages = if huge { PagePolicy::Thp } else { PagePolicy::Base };
        let virtual_caches = ["vivt", "vbi", "enigma"].contains(&scheme);
        let walks = !virtual_caches && scheme != "perfect-tlb";
        if scheme == "vbi" {
            let own = &mut design.translation.scheme.own;
            own.insert("delayed".to_owned(), nested.into());
            own.insert("reservation".to_owned(), if full { "early" } else { "none" }.into());
        }
        let in_machine = virtual_machine && ["radix", "pom-tlb"].contains(&scheme);
        if in_machine {
            design = in_vm(design, if host_huge { PagePolicy::Thp } else { PagePolicy::Base });
            if two_vms && let Some(vm) = &mut design.vm {
                vm.count = Some(2);
            }
            let cache = &mut design.translation.page_walk_cache;
            cache.entries = 16;
            let tlb = PageWalkCacheParameters { entries: 8, ..cache.clone() };
            let walk_cache = if nested { WalkCacheTags::GuestVirtual } else { WalkCacheTags::GuestPhysical };
            let walk_cache_dimensions =
                if seed % 2 == 0 { WalkCacheDimensions::Both } else { WalkCacheDimensions::Guest };
            design.translation.nested =
                Some(NestedParameters { tlb, walk_cache, walk_cache_dimensions, ..NestedParameters::default() });
        } else if nested && walks {
            let tlb = PageWalkCacheParameters { entries: 8, ..design.translation.page_walk_cache.clone() };
            design.translation.nested = Some(NestedParameters { host: Some(PageSize::Huge), tlb, ..NestedParameters::default() });
        }
        // Virtual caches translate beyond the L2, so they need it.
        let fidelity = if full || virtual_caches { Fidelity::Full } else { Fidelity::Translation };
        let program = churn(seed);
        let alone = program.run_whole(&design, fidelity);
        prop_assert!(count(&alone, "os.shootdowns.count") > 3);
        let signals = SignalSet::of(SignalKind::ALL);
        // A policy of a guest manages one virtual machine.
        let two_vms = in_machine && two_vms;
        if !two_vms {
            let managed = probe(&program, &design, fidelity, (TierId(0), signals), meddler(seed));
            prop_assert!(count(&managed, "policy.calls") > 10);
            prop_assert_eq!(managed.accesses, alone.accesses);
        }
        if in_machine {
            // Alone in the hypervisor, and on both sides at once.
            for both in [false, true].into_iter().filter(|both| !(*both && two_vms)) {
                let mut options = Options { fidelity, ..on_host(signals, meddler(seed ^ 1)) };
                if both {
                    options = in_guest(options, signals, meddler(seed));
                }
                let outcome = run_with(&design, &mut program.source(), options).unwrap();
                prop_assert!(count(&outcome, "host.policy.calls") > 10);
                prop_assert_eq!(outcome.accesses, alone.accesses);
            }
        }
    }
}
