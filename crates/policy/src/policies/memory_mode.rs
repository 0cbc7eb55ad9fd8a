//! The fast tier as a hardware cache of the slow one: what the machine must be, not what software does.
//!
//! **Idea.** In memory mode the memory controller uses DRAM as a direct-mapped cache of the slow memory. Software sees
//! the slow tier's capacity only and decides nothing. So this policy places every page in the slow tier and needs a
//! machine that caches it.
//!
//! **Source.** The baseline MemM of Ambix (M. Marques, IST Lisboa 2021, §3.1, §5.3): 32 GB of DRAM in front of 256 GB of
//! DCPMM.
//!
//! **Left open by the source.** What the cache costs. Tags lie in DRAM beside the data, so that a read finds both at once
//! and a miss reads DRAM first. A line that leaves the processor's caches is written without a look at its tag while its
//! slot still holds it, as Hildebrand, Angeles, Lowe-Power and Akella measured on such a machine ("A Case Against
//! Hardware Managed DRAM Caches for NVRAM Based Systems", ISPASS 2021).
//!
//! **When to use it.** To know what the hardware gives without any software: the bound of no effort. Programs whose hot
//! lines are few or side by side do well; sweeps through more than the fast tier, and unlucky pairs of addresses, do
//! not. The fast tier's capacity is lost to the system.

use crate::{
    Capability, Fault, MemorySystem, Moment, Needs, NextTick, Parameters, Placement, Policy, Published,
    Refusal, Setup, Signal, Topology,
};
use terrace_model::TierId;

/// None.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {}

/// The policy.
#[derive(Clone, Debug)]
pub struct MemoryMode {
    cached: TierId,
}

impl Published for MemoryMode {
    type Parameters = Parameters;

    fn new(_: Parameters, setup: Setup<'_>) -> Result<MemoryMode, Refusal> {
        // A machine may show the cache as a tier, or only what is behind it.
        let cached = setup.topology.ids().next_back();
        cached
            .map(|cached| MemoryMode { cached })
            .ok_or_else(|| Refusal::Machine("it has no memory tier".to_owned()))
    }
}

impl Policy for MemoryMode {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::HardwareCache])
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        Placement::tier(self.cached)
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

#[cfg(test)]
mod tests {
    use crate::{Capability, Driver, InMemory, Open};
    use terrace_model::{Bytes, TierId};

    #[test]
    fn all_pages_lie_behind_the_cache_or_it_does_not_start() {
        let world = || {
            let mut world = InMemory::new(&[("dram", Bytes::kib(64)), ("nvm", Bytes::kib(64))]);
            world.map_anonymous(0, 0, 16);
            world
        };
        let mut driver = Driver::open("memory-mode", "", world()).unwrap();
        driver.touch_all(0, 0..10, true);
        assert_eq!((driver.world.resident(TierId(0)), driver.world.resident(TierId(1))), (0, 10));
        let mut world_behind = InMemory::new(&[("nvm", Bytes::kib(64))]);
        world_behind.map_anonymous(0, 0, 16);
        let mut driver = Driver::open("memory-mode", "", world_behind).unwrap();
        driver.touch_all(0, 0..10, true);
        assert_eq!(driver.world.resident(TierId(0)), 10);
        let error = Driver::open("memory-mode", "", world().without(Capability::HardwareCache))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("hardware-cache (One tier serves as a hardware cache of the next)"),
            "{error}"
        );
    }
}
