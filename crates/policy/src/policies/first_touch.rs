//! The fastest tier with room, for good: Linux's default.
//!
//! **Idea.** A page is placed at its first touch in the fastest tier that has a free frame, and never moves. What was
//! touched first fills the fast tier, whether it stays hot or not.
//!
//! **Source.** The baseline "ADM-default" of Ambix (M. Marques, IST Lisboa 2021, §5.3): Linux 5.8 with the `node local`
//! memory policy, NUMA balancing off, no swapping. Also LOCAL in N. Agarwal's thesis (Michigan 2017, §3.2).
//!
//! **Left open by the source.** Nothing.
//!
//! **When to use it.** As the baseline of every comparison; and in earnest where what a program allocates first is what
//! it uses most, or where all of it fits.

use crate::{
    Fault, MemorySystem, Moment, Needs, NextTick, Parameters, Placement, Policy, Published, Refusal, Setup,
    Signal, Topology,
};

/// None.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {}

/// The policy.
#[derive(Clone, Debug)]
pub struct FirstTouch;

impl Published for FirstTouch {
    type Parameters = Parameters;

    fn new(_: Parameters, _: Setup<'_>) -> Result<FirstTouch, Refusal> {
        Ok(FirstTouch)
    }
}

impl Policy for FirstTouch {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn place(&mut self, _: &Fault, topology: &Topology) -> Placement {
        topology.ids().fold(Placement::ANYWHERE, |wishes, tier| wishes.or(tier, None))
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

#[cfg(test)]
mod tests {
    use crate::{Driver, InMemory, Open};
    use terrace_model::{Bytes, TierId};

    #[test]
    fn fills_the_fast_tier_and_spills() {
        let mut world = InMemory::new(&[("dram", Bytes::kib(16)), ("nvm", Bytes::kib(64))]);
        world.map_anonymous(0, 0, 16);
        let mut driver = Driver::open("first-touch", "", world).unwrap();
        driver.touch_all(0, 0..10, true);
        assert_eq!((driver.world.resident(TierId(0)), driver.world.resident(TierId(1))), (4, 6));
    }
}
