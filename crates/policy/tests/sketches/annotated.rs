//! Annotated and oracle placement (Agarwal, §3.3, §3.4): in two passes. Asked of the seam: the profile of a first pass
//! handed over at the start, by page and by data structure, and the data structure at the fault.

use crate::two_tiers;
use std::collections::BTreeMap;
use terrace_in_memory::Driver;
use terrace_model::TierId;
use terrace_policy::*;

/// `GetAllocation`: the structures with most accesses per byte, as long as they fit.
struct Annotated {
    fast: BTreeMap<u64, bool>,
}

impl Annotated {
    fn new(profile: &Profile, topology: &Topology) -> Annotated {
        let mut objects: Vec<_> = profile.objects.iter().collect();
        objects.sort_by(|a, b| {
            let density = |o: &ObjectProfile| o.heat.total() as f64 / o.bytes as f64;
            density(b.1).total_cmp(&density(a.1))
        });
        let mut room = topology.tier(TierId(0)).capacity.0;
        let mut fast = BTreeMap::new();
        for (site, object) in objects {
            let fits = object.bytes <= room;
            room -= if fits { object.bytes } else { 0 };
            fast.insert(*site, fits);
        }
        Annotated { fast }
    }
}

impl Policy for Annotated {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::Objects])
    }

    fn place(&mut self, fault: &Fault, _: &Topology) -> Placement {
        let site = fault.area.object.map(|object| object.site);
        let fast = site.and_then(|site| self.fast.get(&site)).copied().unwrap_or(true);
        Placement::tier(TierId(u8::from(!fast)))
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

#[test]
fn dense_structures_first() {
    let mut world = two_tiers(1, 4);
    let mut profile = Profile::default();
    for (site, vpn, reads) in [(1, 0, 10_000), (2, 200, 90_000), (3, 400, 1)] {
        let range = PageRange::new(PageId::new(0, vpn), 200);
        let object = Some(Object { site, range });
        world.map(Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object });
        let heat = Heat { reads, writes: 0 };
        profile.objects.insert(site, ObjectProfile { bytes: 200 << 12, heat, ..ObjectProfile::default() });
    }
    let policy = Annotated::new(&profile, world.tiers());
    let mut driver = Driver::new(Box::new(policy), world);
    driver.touch_all(0, 0..600, true);
    for (vpn, tier) in [(0, 1), (200, 0), (399, 0), (400, 1)] {
        assert_eq!(driver.world.locate(PageId::new(0, vpn)).unwrap().0, TierId(tier), "{vpn}");
    }
}
