//! Pages over all tiers in turn, whatever they are.
//!
//! **Idea.** New pages go to the tiers round-robin, one each. Even where tiers are equal; where they are not, the
//! slowest decides how fast a sweep over the data is.
//!
//! **Source.** Linux's MPOL_INTERLEAVE; the baseline INTERLEAVE of N. Agarwal's thesis (Michigan 2017, §3.2) and of
//! Ambix (M. Marques 2021, ch. 3).
//!
//! **Left open by the source.** *What is counted*: pages in the order of their faults, as Linux does for a process
//! policy. *A full tier*: its turn falls to the next one.
//!
//! **When to use it.** Tiers of nearly equal speed, or programs limited by bandwidth on tiers that are. Beside a much
//! slower tier, only as a baseline.

use crate::{
    Fault, MemorySystem, Moment, Needs, NextTick, Parameters, Placement, Policy, Published, Refusal, Setup,
    Signal, Topology,
};

/// None.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {}

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Interleave {
    turn: usize,
}

impl Published for Interleave {
    type Parameters = Parameters;

    fn new(_: Parameters, _: Setup<'_>) -> Result<Interleave, Refusal> {
        Ok(Interleave::default())
    }
}

impl Policy for Interleave {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn place(&mut self, _: &Fault, topology: &Topology) -> Placement {
        let count = topology.tiers.len();
        let first = self.turn % count.max(1);
        self.turn = self.turn.wrapping_add(1);
        let from_here = topology.ids().cycle().skip(first).take(count);
        from_here.fold(Placement::ANYWHERE, |wishes, tier| wishes.or(tier, None))
    }

    fn shares(&self, topology: &Topology) -> Option<Vec<f64>> {
        Some(vec![1.0; topology.tiers.len()])
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
    fn one_each_until_a_tier_is_full() {
        let tiers = [("a", Bytes::kib(16)), ("b", Bytes::kib(64)), ("c", Bytes::kib(64))];
        let mut world = InMemory::new(&tiers);
        world.map_anonymous(0, 0, 20);
        let mut driver = Driver::open("interleave", "", world).unwrap();
        let resident = |driver: &Driver| [0, 1, 2].map(|tier| driver.world.resident(TierId(tier)));
        driver.touch_all(0, 0..9, true);
        assert_eq!(resident(&driver), [3, 3, 3]);
        driver.touch_all(0, 9..18, true);
        assert_eq!(resident(&driver), [4, 8, 6], "the first tier's turns fall to the second");
    }
}
