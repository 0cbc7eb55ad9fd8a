//! Counts and order of the accesses that reach memory, by page: the first pass of policies in two passes.

use super::objects::Objects;
use std::collections::HashMap;
use std::sync::Arc;
use terrace_model::{AddressRange, SpaceId, VirtAddr};
use terrace_policy::{AccessOrder, Heat, ObjectProfile, PageId, Profile};
use terrace_trace::Event;

/// Most steps that are kept of all pages together, 32 MiB. Beyond that, steps of the order become twice as long.
const MOST_STEPS: usize = 8 << 20;

/// Accesses by base page.
#[derive(Clone, Debug)]
pub struct ProfileCounter {
    pages: HashMap<PageId, Uses>,
    accesses: u64,
    /// A step of the order has 2^`shift` accesses.
    shift: u32,
    steps: usize,
    most_steps: usize,
    /// Data structures, as the input's events have them.
    pub objects: Objects,
    /// The profile of each site, by the site's place in `objects`.
    by_site: Vec<ObjectProfile>,
    /// The structure of the last access.
    recent: Option<(SpaceId, AddressRange, u32)>,
}

#[derive(Clone, Debug, Default)]
struct Uses {
    heat: Heat,
    steps: Vec<u32>,
}

impl Default for ProfileCounter {
    fn default() -> ProfileCounter {
        ProfileCounter::with_most_steps(MOST_STEPS)
    }
}

impl ProfileCounter {
    fn with_most_steps(most_steps: usize) -> ProfileCounter {
        ProfileCounter {
            pages: HashMap::new(),
            accesses: 0,
            shift: 0,
            steps: 0,
            most_steps,
            objects: Objects::default(),
            by_site: Vec::new(),
            recent: None,
        }
    }

    /// One access reached memory.
    pub fn count(&mut self, space: SpaceId, addr: VirtAddr, write: bool) {
        let uses = self.pages.entry(PageId::new(space.0, addr.vpn())).or_default();
        uses.heat.add(write);
        let step = (self.accesses >> self.shift) as u32;
        self.accesses += 1;
        if uses.steps.last() != Some(&step) {
            uses.steps.push(step);
            self.steps += 1;
            if self.steps > self.most_steps {
                self.coarsen();
            }
        }
    }

    /// One access reached memory, and goes to the structure at its address too.
    pub fn count_with_structure(&mut self, space: SpaceId, addr: VirtAddr, write: bool) {
        if let Some(structure) = self.structure(space, addr) {
            structure.heat.add(write);
        }
        self.count(space, addr, write);
    }

    /// A load or store was issued, whether a cache serves it or not.
    pub fn issued(&mut self, space: SpaceId, addr: VirtAddr, write: bool) {
        if let Some(structure) = self.structure(space, addr) {
            structure.issued.add(write);
        }
    }

    fn structure(&mut self, space: SpaceId, addr: VirtAddr) -> Option<&mut ObjectProfile> {
        let known = self.recent.filter(|(of, range, _)| *of == space && range.contains(addr));
        let place = match known {
            Some((_, _, place)) => place,
            None => {
                let (range, place) = self.objects.find(space, addr)?;
                self.recent = Some((space, range, place));
                place
            }
        };
        let at = place as usize;
        if self.by_site.len() <= at {
            self.by_site.resize(at + 1, ObjectProfile::default());
        }
        Some(&mut self.by_site[at])
    }

    /// Takes in an event of a process.
    pub fn apply(&mut self, space: SpaceId, event: &Event) {
        self.recent = None;
        self.objects.apply(space, event);
    }

    #[cold]
    fn coarsen(&mut self) {
        while self.steps > self.most_steps / 2 && self.shift < 32 {
            self.shift += 1;
            self.steps = 0;
            for uses in self.pages.values_mut() {
                uses.steps.iter_mut().for_each(|step| *step >>= 1);
                uses.steps.dedup();
                self.steps += uses.steps.len();
            }
        }
        // As many pages as that: each has a step at least.
        self.most_steps = self.most_steps.max(2 * self.steps);
    }

    /// What was counted, in page order.
    pub fn finish(self) -> Profile {
        let none = ObjectProfile::default();
        let sites = self.objects.sites().enumerate();
        let objects = sites.map(|(at, (number, _, bytes))| {
            (number, ObjectProfile { bytes, ..*self.by_site.get(at).unwrap_or(&none) })
        });
        Profile {
            objects: objects.collect(),
            names: self.objects.names(),
            pages: self.pages.iter().map(|(page, uses)| (*page, uses.heat)).collect(),
            order: Arc::new(AccessOrder {
                shift: self.shift,
                steps: self.pages.into_iter().map(|(page, uses)| (page, uses.steps)).collect(),
            }),
            bandwidths: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_counted_apart() {
        let mut counter = ProfileCounter::default();
        for (site, start) in [(0, 0x1000), (1, 0x1800)] {
            counter.apply(SpaceId(0), &Event::Site { site, name: format!("s{site}") });
            let range = AddressRange::new(start, 0x800);
            counter.apply(SpaceId(0), &Event::Alloc { object: site.into(), site, range });
        }
        // The lower half of a page, the upper half, and where nothing is.
        for (addr, times) in [(0x1000, 3), (0x1fff, 2), (0x9000, 5)] {
            for _ in 0..times {
                counter.issued(SpaceId(0), VirtAddr(addr), false);
                counter.issued(SpaceId(0), VirtAddr(addr), true);
                counter.count_with_structure(SpaceId(0), VirtAddr(addr), false);
            }
        }
        let profile = counter.finish();
        let of = |name: &str| profile.objects[&terrace_policy::site_number(name)];
        let expected = |times| ObjectProfile {
            bytes: 0x800,
            heat: Heat { reads: times, writes: 0 },
            issued: Heat { reads: times, writes: times },
            hint: None,
        };
        assert_eq!([of("s0"), of("s1")], [expected(3), expected(2)]);
        assert_eq!(profile.pages[&PageId::new(0, 1)].reads, 5);
        assert_eq!(profile.names.values().collect::<Vec<_>>().len(), 2);
    }

    #[test]
    fn the_order_coarsens_instead_of_growing() {
        let count = |most| {
            let mut counter = ProfileCounter::with_most_steps(most);
            for at in 0..1000u64 {
                counter.count(SpaceId(0), VirtAddr((at % 10) << 12), at % 2 == 0);
            }
            counter.finish()
        };
        let (exact, coarse) = (count(1000), count(100));
        assert_eq!(exact.pages, coarse.pages);
        assert_eq!(exact.pages[&PageId::new(0, 3)], Heat { reads: 100, writes: 0 });
        let expected = AccessOrder::of((0..1000).map(|at| PageId::new(0, at % 10)));
        assert_eq!(*exact.order, expected);
        assert!(coarse.order.shift >= 4);
        assert!(coarse.order.steps.values().map(Vec::len).sum::<usize>() <= 100);
        let step = 1 << coarse.order.shift;
        for (page, at) in [(3, 0), (3, 100), (9, 300)] {
            let page = PageId::new(0, page);
            let [exact, coarse] = [&exact, &coarse].map(|profile| profile.order.next_use(page, at));
            assert!(exact.unwrap().abs_diff(coarse.unwrap()) <= step, "{exact:?} {coarse:?}");
        }
        // More pages than steps: one each.
        let mut counter = ProfileCounter::with_most_steps(8);
        (0..64).for_each(|at| counter.count(SpaceId(0), VirtAddr(at << 12), false));
        assert_eq!(counter.finish().order.steps.len(), 64);
    }
}
