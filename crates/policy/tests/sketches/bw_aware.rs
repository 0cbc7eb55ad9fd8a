//! BW-AWARE (Agarwal, ch. 3): placement and nothing else, a draw per new page in proportion to the tiers' bandwidths.
//! Asked of the seam: bandwidths in the topology and a seeded generator. A full pool falls back to the other.

use crate::two_tiers;
use terrace_in_memory::Driver;
use terrace_model::{BytesPerSec, TierId, Time};
use terrace_policy::*;

struct BwAware {
    random: Random,
}

impl Policy for BwAware {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn place(&mut self, _: &Fault, topology: &Topology) -> Placement {
        let shares = || topology.tiers.iter().map(|tier| tier.read_bandwidth.0 as u64);
        let mut draw = self.random.below(shares().sum());
        for (tier, share) in topology.ids().zip(shares()) {
            if draw < share {
                return Placement::tier(tier);
            }
            draw -= share;
        }
        Placement::ANYWHERE
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

#[test]
fn pages_are_spread_by_bandwidth_until_a_pool_is_full() {
    let mut world = two_tiers(16, 32);
    world.set_speed(TierId(0), Time::from_nanos(100), BytesPerSec(200e9));
    world.set_speed(TierId(1), Time::from_nanos(170), BytesPerSec(80e9));
    world.map_anonymous(0, 0, 12_000);
    let mut driver = Driver::new(Box::new(BwAware { random: Random::new(3) }), world);
    driver.touch_all(0, 0..4000, true);
    let fast = driver.world.resident(TierId(0)) as f64 / 4000.0;
    assert!((0.69..0.74).contains(&fast), "{fast} instead of 200/280 = 0.714");
    driver.touch_all(0, 4000..12_000, true);
    assert_eq!(driver.world.resident(TierId(0)), 4096, "all of the fast tier");
}
