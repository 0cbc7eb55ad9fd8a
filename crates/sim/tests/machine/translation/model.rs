//! TLBs and walks against a naive model of them, on hardware and programs drawn at random.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Lists of keys, most recent first.
#[derive(Default)]
struct Lists {
    sets: Vec<Vec<(u64, u64)>>,
    ways: usize,
}

impl Lists {
    fn new(entries: u32, ways: u32) -> Lists {
        let sets = if entries == 0 { 0 } else { entries / ways };
        Lists { sets: vec![Vec::new(); sets as usize], ways: ways as usize }
    }

    fn touch(&mut self, page: u64, tag: u64) -> bool {
        if self.sets.is_empty() {
            return false;
        }
        let set = (page % self.sets.len() as u64) as usize;
        let set = &mut self.sets[set];
        let Some(at) = set.iter().position(|entry| *entry == (page, tag)) else { return false };
        let entry = set.remove(at);
        set.insert(0, entry);
        true
    }

    fn insert(&mut self, page: u64, tag: u64) {
        if self.sets.is_empty() {
            return;
        }
        let set = (page % self.sets.len() as u64) as usize;
        let set = &mut self.sets[set];
        set.retain(|entry| *entry != (page, tag));
        set.insert(0, (page, tag));
        set.truncate(self.ways);
    }
}

/// What the machine should count, the slow way.
struct Naive {
    l1: [Lists; 3],
    l2: Vec<Lists>,
    l2_of_size: [Option<usize>; 3],
    walk_cache: Lists,
    levels: u64,
    counts: BTreeMap<String, u64>,
    present: BTreeSet<(u64, usize)>,
    dirty: BTreeSet<(u64, usize)>,
}

impl Naive {
    fn new(design: &Design) -> Naive {
        let translation = &design.translation;
        let lists = |entries: u32, ways: Associativity| match ways {
            Associativity::Ways(ways) => Lists::new(entries, ways),
            Associativity::Full(_) => Lists::new(entries, entries.max(1)),
        };
        let mut l2_of_size = [None; 3];
        for (at, array) in translation.l2.array.iter().enumerate() {
            for size in &array.sizes {
                l2_of_size[size.index()] = Some(at);
            }
        }
        let walk_cache = &translation.page_walk_cache;
        Naive {
            l1: PageSize::ALL.map(|size| match translation.l1d.get(&size) {
                Some(tlb) => lists(tlb.entries, tlb.ways),
                None => Lists::default(),
            }),
            l2: translation.l2.array.iter().map(|array| lists(array.entries, array.ways)).collect(),
            l2_of_size,
            walk_cache: lists(walk_cache.entries, walk_cache.ways),
            levels: u64::from(translation.levels),
            counts: BTreeMap::new(),
            present: BTreeSet::new(),
            dirty: BTreeSet::new(),
        }
    }

    fn count(&mut self, name: impl Into<String>, by: u64) {
        *self.counts.entry(name.into()).or_default() += by;
    }

    fn access(&mut self, addr: u64, size: PageSize, write: bool) {
        let page = (addr >> size.shift(), size.index());
        let tag = page.1 as u64;
        let mut walked = false;
        if self.l1[page.1].touch(page.0, tag) {
            self.count(format!("tlb.l1d.{size}.hit"), 1);
        } else {
            self.count(format!("tlb.l1d.{size}.miss"), 1);
            let l2 = self.l2_of_size[page.1];
            if l2.is_some_and(|array| self.l2[array].touch(page.0, tag)) {
                self.count("tlb.l2.hit", 1);
            } else {
                self.count("tlb.l2.miss", 1);
                if self.present.insert(page) {
                    self.count("os.faults", 1);
                    self.count(format!("os.faults_by_size.{size}"), 1);
                }
                self.walk(addr, page.1 as u64 + 1);
                walked = true;
                if let Some(array) = l2 {
                    self.l2[array].insert(page.0, tag);
                }
            }
            self.l1[page.1].insert(page.0, tag);
        }
        if write && self.dirty.insert(page) && !walked {
            self.count("walk.dirty_updates", 1);
        }
    }

    fn walk(&mut self, addr: u64, leaf: u64) {
        self.count("walk.count", 1);
        let prefix = |level: u64| addr >> (12 + 9 * (level - 1));
        let found = (leaf + 1..=self.levels).find(|&level| self.walk_cache.touch(prefix(level), level));
        if !self.walk_cache.sets.is_empty() {
            let name = if found.is_some() { "hit" } else { "miss" };
            self.count(format!("walk.page_walk_cache.{name}"), 1);
        }
        let start = found.map_or(self.levels, |level| level - 1);
        self.count("walk.memory_refs", start - leaf + 1);
        for level in (leaf + 1..=start).rev() {
            self.walk_cache.insert(prefix(level), level);
        }
    }
}

const COMPARED: [&str; 16] = [
    "tlb.l1d.4k.hit",
    "tlb.l1d.4k.miss",
    "tlb.l1d.2m.hit",
    "tlb.l1d.2m.miss",
    "tlb.l1d.1g.hit",
    "tlb.l1d.1g.miss",
    "tlb.l2.hit",
    "tlb.l2.miss",
    "walk.count",
    "walk.memory_refs",
    "walk.dirty_updates",
    "walk.page_walk_cache.hit",
    "walk.page_walk_cache.miss",
    "os.faults",
    "os.faults_by_size.4k",
    "os.faults_by_size.2m",
];

fn geometry() -> impl Strategy<Value = (u32, u32)> {
    // Sets times ways; no set at all is no TLB.
    (0u32..6, prop_oneof![1u32..6, 20u32..30]).prop_map(|(sets, ways)| (sets * ways, ways))
}

#[derive(Clone, Debug)]
struct Hardware {
    l1: [(u32, u32); 3],
    l2: Vec<(Vec<PageSize>, (u32, u32))>,
    walk_cache: u32,
    levels: u32,
}

fn hardware() -> impl Strategy<Value = Hardware> {
    let l2 = prop_oneof![
        Just(vec![]),
        Just(vec![vec![PageSize::Base]]),
        Just(vec![vec![PageSize::Base, PageSize::Huge]]),
        Just(vec![vec![PageSize::Base], vec![PageSize::Huge, PageSize::Giant]]),
        Just(vec![PageSize::ALL.to_vec()]),
    ];
    let l2 = l2.prop_flat_map(|arrays| {
        arrays.into_iter().map(|sizes| (Just(sizes), geometry())).collect::<Vec<_>>()
    });
    let walk_cache = prop_oneof![Just(0u32), 1u32..12];
    ([geometry(), geometry(), geometry()], l2, walk_cache, 4u32..=5)
        .prop_map(|(l1, l2, walk_cache, levels)| Hardware { l1, l2, walk_cache, levels })
}

fn build(hardware: &Hardware, pages: PagePolicy) -> Design {
    let mut design = with_pages(small(), pages);
    let translation = &mut design.translation;
    translation.levels = hardware.levels;
    for (size, (entries, ways)) in PageSize::ALL.into_iter().zip(hardware.l1) {
        translation.l1d.insert(size, tlb(entries, ways));
    }
    translation.l2.array =
        hardware.l2.iter().map(|(sizes, (entries, ways))| array(sizes, *entries, *ways)).collect();
    translation.page_walk_cache.entries = hardware.walk_cache;
    translation.page_walk_cache.ways = Associativity::Full(FullKeyword::Full);
    design
}

fn check(design: &Design, program: &Program, naive: &Naive) -> Result<(), TestCaseError> {
    for fidelity in [Fidelity::Translation, Fidelity::Full] {
        if fidelity == Fidelity::Full && design.os.pages == PagePolicy::Giant {
            // Zeroing many of them line by line takes long and adds nothing here.
            continue;
        }
        let outcome = program.run(design, fidelity);
        for name in COMPARED {
            let expected = naive.counts.get(name).copied().unwrap_or(0);
            prop_assert_eq!(count(&outcome, name), expected, "{} at {:?}", name, fidelity);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Base pages and huge pages in one program, stores among the loads, accesses across page borders.
    #[test]
    fn agrees_with_lists_for_base_and_huge_pages(
        hardware in hardware(), seed: u64, spread in 1u64..60, accesses in 1u64..3000
    ) {
        let design = build(&hardware, PagePolicy::Thp);
        let mut program = Program::new();
        let mut naive = Naive::new(&design);
        // Two halves: areas of whole 2 MiB, and one that no aligned 2 MiB fits into.
        let (huge, base) = (DATA, DATA + 700 * GIB + PAGE);
        program.map(huge, 2 * MIB * spread).map(base, spread.min(500) * PAGE);
        let mut random = Random(seed);
        for _ in 0..accesses {
            let write = random.below(4) == 0;
            let kind = if write { AccessKind::Write } else { AccessKind::Read };
            let (start, size, bytes) = if random.below(2) == 0 {
                (huge, PageSize::Huge, 2 * MIB * spread)
            } else {
                (base, PageSize::Base, spread.min(500) * PAGE)
            };
            let addr = start + if random.below(16) == 0 {
                // Across a border of base pages, where there is one inside.
                (random.below(bytes / PAGE) * PAGE + PAGE - 4).min(bytes - 8)
            } else {
                random.below(bytes / 8) * 8
            };
            program.access(addr, 8, kind, 0, 1);
            naive.access(addr, size, write);
            if addr % 64 > 56 {
                naive.access((addr + 7) & !63, size, write);
            }
        }
        check(&design, &program, &naive)?;
    }

    /// Sparse addresses of one page size, over several tables of every level.
    #[test]
    fn agrees_with_lists_for_one_page_size(
        hardware in hardware(), seed: u64, size in 0usize..3, pages in 1u64..20, accesses in 1u64..1500
    ) {
        let size = PageSize::ALL[size];
        let design = build(&hardware, only(size));
        let mut program = Program::new();
        let mut naive = Naive::new(&design);
        let mut random = Random(seed);
        let places: Vec<u64> = (0..pages)
            .map(|_| {
                let far = [PAGE, 2 * MIB, GIB, 512 * GIB][random.below(4) as usize];
                (DATA + random.below(24) * far) & !(size.bytes() - 1)
            })
            .collect();
        for place in &places {
            program.map_kind(*place, size.bytes(), MapKind::Anonymous);
        }
        for _ in 0..accesses {
            let addr = places[random.below(pages) as usize] + random.below(size.bytes() / 8) * 8;
            let write = random.below(3) == 0;
            program.access(addr, 8, if write { AccessKind::Write } else { AccessKind::Read }, 0, 1);
            naive.access(addr, size, write);
        }
        check(&design, &program, &naive)?;
    }
}
