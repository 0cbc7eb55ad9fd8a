//! More pages than regions: the regions in use become single pages, the others stay large.

mod simulated;

use proptest::prelude::*;
use simulated::Simulated;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use terrace_live::facts::Facts;
use terrace_live::world::{self, Focus, Regions, World};
use terrace_model::PageSize;

const HUGE: u64 = 512;

/// A process with areas of base pages and of huge ones; returns its number and the first page of each.
fn process(base: u64, huge: u64) -> (World, u32, u64, u64) {
    let kernel = Simulated::new("two-nodes-6.12", &[1 << 20, 1 << 20], 0, 1);
    let (pid, small, large) = {
        let mut machine = kernel.machine();
        let pid = machine.start(1);
        let small = machine.map(pid, base);
        machine.fill(pid, small..small + base, PageSize::Base, 0);
        let large = machine.map(pid, huge * HUGE);
        machine.fill(pid, large..large + huge * HUGE, PageSize::Huge, 1);
        (pid, small, large)
    };
    let facts = Facts::discover(&kernel);
    let options = world::Options { workers: 1, ..world::Options::default() };
    let mut world =
        World::new(Arc::new(kernel.clone()), facts.tiers.clone(), facts.capabilities(), &options).unwrap();
    world.adopt(pid).unwrap();
    (world, pid, small, large)
}

/// What DAMON would see in so many samples: one page of each region at random.
fn look(regions: &Regions, samples: u64, seed: &mut u64, is_hot: impl Fn(u64) -> bool) -> Focus {
    let mut focus = Focus::default();
    for (pid, regions) in &regions.of_process {
        for region in regions {
            for _ in 0..samples {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if is_hot(region.start + (*seed >> 33) % (region.end - region.start)) {
                    focus.note(*pid, region.clone());
                    break;
                }
            }
        }
    }
    focus
}

fn pages(regions: &Regions) -> Vec<Range<u64>> {
    regions.of_process.iter().flat_map(|(_, regions)| regions.clone()).collect()
}

#[test]
fn scattered_pages_in_use_are_found_one_by_one() {
    let (mut world, _, small, _) = process(40_000, 0);
    // Every hundredth page; sixteen pages to a region at first.
    let is_hot = |vpn: u64| (vpn - small).is_multiple_of(100);
    let most = 2500;
    let first = world.regions(most, &Focus::default());
    assert_eq!((first.close, first.wide, first.count()), (16, 16, 2500));
    let (mut regions, mut seed) = (first, 1);
    for _ in 0..12 {
        let focus = look(&regions, 32, &mut seed, is_hot);
        regions = world.regions(most, &focus);
    }
    let seen = look(&regions, 32, &mut seed, is_hot);
    let accessed: Vec<Range<u64>> = pages(&regions)
        .into_iter()
        .filter(|region| seen.has(regions.of_process[0].0, region.start))
        .collect();
    let reported: u64 = accessed.iter().map(|region| region.end - region.start).sum();
    let right =
        accessed.iter().map(|region| region.clone().filter(|vpn| is_hot(*vpn)).count() as u64).sum::<u64>();
    // Evenly divided, sixteen pages would be reported for each in use.
    assert!(right >= 390 && reported <= right + right / 10, "{right} of 400 in {reported} pages");
    assert!(regions.count() <= 2 * most);
}

#[test]
fn what_is_no_longer_used_is_looked_at_from_afar() {
    let (mut world, _, small, _) = process(40_000, 0);
    let (mut regions, mut seed) = (world.regions(2500, &Focus::default()), 7);
    for phase in 0..2 {
        let hot = small + phase * 20_000..small + phase * 20_000 + 1000;
        for _ in 0..4 {
            let focus = look(&regions, 32, &mut seed, |vpn| hot.contains(&vpn));
            assert!(phase > 0 || !focus.is_empty());
            regions = world.regions(2500, &focus);
        }
        let alone: BTreeSet<u64> = pages(&regions)
            .iter()
            .filter(|region| region.end - region.start == 1)
            .map(|region| region.start)
            .collect();
        assert!(hot.clone().all(|vpn| alone.contains(&vpn)), "phase {phase}");
        assert!(alone.len() < 1040, "phase {phase}: {} single pages", alone.len());
    }
}

#[test]
fn a_huge_page_is_one_page() {
    let (mut world, pid, small, large) = process(5000, 8);
    let mut focus = Focus::default();
    focus.note(pid, large..large + HUGE);
    assert!(!focus.leaves_open(), "it cannot be looked at more closely");
    let regions = world.regions(400, &focus);
    let all = pages(&regions);
    assert!(all.contains(&(large..large + HUGE)), "alone: {all:?}");
    assert_eq!(regions.close, 1);
    focus.note(pid, small..small + 4);
    assert!(focus.leaves_open());
    // With a region for each page there is nothing to find.
    assert!(world.regions(6000, &focus).are_exact() && !regions.are_exact());
}

proptest! {
    /// Every page is in one region, whatever was accessed; regions are about as many as were asked for.
    #[test]
    fn every_page_has_its_region(
        base in 1u64..3000,
        huge in 0u64..6,
        most in 1usize..600,
        accessed in prop::collection::vec((0u64..3000, 1u64..200), 0..20),
    ) {
        let (mut world, pid, small, large) = process(base, huge);
        let mut focus = Focus::default();
        for (start, pages) in &accessed {
            focus.note(pid, small + start..small + start + pages);
        }
        let regions = world.regions(most, &focus);
        let mut expected: Vec<u64> = (small..small + base).chain(large..large + huge * HUGE).collect();
        expected.sort_unstable();
        let covered: Vec<u64> = pages(&regions).into_iter().flatten().collect();
        prop_assert_eq!(covered, expected);
        // Where close and wide parts meet, a region ends early; so it does where sizes differ.
        prop_assert!(regions.count() <= most + 2 * accessed.len() + 4, "{} of {}", regions.count(), most);
    }
}
