//! Selective caching (Agarwal, ch. 5): a data-coherence scheme in hardware. Nothing of it is a policy; its pages are
//! placed by BW-AWARE, 20 % on the CPU's side. So it asks nothing of the seam beyond placement, and this sketch is that
//! placement with the weights of the paper.

use crate::two_tiers;
use terrace_in_memory::Driver;
use terrace_model::TierId;
use terrace_policy::*;

struct Placing(u64);

impl Policy for Placing {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        self.0 += 1;
        Placement::tier(TierId(u8::from(self.0.is_multiple_of(5))))
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

#[test]
fn one_page_in_five_is_the_cpus() {
    let mut world = two_tiers(4, 4);
    world.map_anonymous(0, 0, 500);
    let mut driver = Driver::new(Box::new(Placing(0)), world);
    driver.touch_all(0, 0..500, true);
    assert_eq!(driver.world.resident(TierId(1)), 100);
}
