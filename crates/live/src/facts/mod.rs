//! What this machine and its kernel offer, found out without changing anything.
//!
//! [`Facts::discover`] never fails: what cannot be found out is a [`Fact`] with the reason in words. Everything is read
//! through [`Kernel`], so that a folder of text can stand for any machine.

mod capabilities;
pub mod fact;
pub mod nodes;
pub mod paging;
pub mod swap;
pub mod system;
pub mod text;
pub mod tiers;
pub mod tracking;

pub use capabilities::{AS_ROOT, Missing, ZRAM_SWAP};
pub use fact::Fact;
pub use nodes::{Node, Speed};
pub use paging::{HugePages, Placement, Pool, TransparentHugePages};
pub use swap::{Swap, SwapArea};
pub use system::{ControlGroups, Options, Privilege, Privileges, Release};
pub use tiers::{TierMap, ToldBy};
pub use tracking::{Damon, Sampler, Tracking};

use crate::kernel::Kernel;
use crate::measure::{self, Measured};
use std::collections::BTreeMap;

/// Everything that Terrace wants to know about a machine before it runs a policy there.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The kernel's release.
    pub release: Fact<Release>,
    /// The options it was built with.
    pub options: Options,
    /// What Terrace may do.
    pub privileges: Privileges,
    /// The NUMA nodes.
    pub nodes: Vec<Node>,
    /// The kernel's own memory tiers by number, lower being faster.
    pub kernel_tiers: BTreeMap<u32, Vec<u32>>,
    /// The tiers as policies see them.
    pub tiers: TierMap,
    /// Swap.
    pub swap: Swap,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// By what accesses can be seen.
    pub tracking: Tracking,
    /// What the kernel does about placement.
    pub placement: Placement,
    /// Control groups.
    pub control_groups: Fact<ControlGroups>,
}

impl Facts {
    /// Finds out what there is to know.
    pub fn discover(kernel: &dyn Kernel) -> Facts {
        let release = fact::file_as(kernel, "/proc/sys/kernel/osrelease", Release::parse);
        let options = Options::discover(kernel, release.known());
        let (nodes, kernel_tiers) = (nodes::discover(kernel), tiers::kernel_tiers(kernel));
        let swap = Swap::discover(kernel);
        Facts {
            privileges: Privileges::discover(kernel),
            tiers: TierMap::of(&nodes, &kernel_tiers, &swap),
            huge_pages: HugePages::discover(kernel),
            tracking: Tracking::discover(kernel, &options, release.known()),
            placement: Placement::discover(kernel),
            control_groups: ControlGroups::discover(kernel),
            release,
            options,
            nodes,
            kernel_tiers,
            swap,
        }
    }

    /// Measures the bandwidth of each node's memory and takes it for the tiers' bandwidth of reads and writes. What the
    /// nodes are distinguished by stays. Returns a line for each node: what was found, or why nothing could be.
    pub fn measure(&mut self, kernel: &dyn Kernel) -> Vec<String> {
        let measured = |node: &Node| (node.id, measure::measure(kernel, &self.nodes, node.id));
        let found: Vec<_> = self.nodes.iter().filter(|node| node.has_memory()).map(measured).collect();
        self.take(&found)
    }

    fn take(&mut self, found: &[(u32, Result<Measured, String>)]) -> Vec<String> {
        let mut lines = Vec::new();
        for (id, measured) in found {
            let Some(node) = self.nodes.iter_mut().find(|node| node.id == *id) else { continue };
            lines.push(match measured {
                Ok(Measured { bandwidth, threads, .. }) => {
                    (node.speed.read_bandwidth, node.speed.write_bandwidth) =
                        (Some(*bandwidth), Some(*bandwidth));
                    format!("node {id} was measured to read {bandwidth} with {threads} threads")
                }
                Err(reason) => format!("node {id} keeps the bandwidth that was told or assumed: {reason}"),
            });
        }
        self.tiers = TierMap::of(&self.nodes, &self.kernel_tiers, &self.swap);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Linux;
    use terrace_model::{BytesPerSec, Time};

    #[test]
    fn what_was_measured_takes_the_place_of_what_was_told() {
        let mut facts = Facts::discover(&Linux);
        let with_memory: Vec<u32> =
            facts.nodes.iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
        let Some((first, others)) = with_memory.split_first() else { return };
        let bandwidth = BytesPerSec(12e9);
        let measured = Measured { latency: Time::from_nanos(90), bandwidth, threads: 2 };
        let mut found: Vec<_> = with_memory.iter().map(|node| (*node, Ok(measured))).collect();
        let lines = facts.take(&found);
        assert_eq!(lines.len(), 1 + others.len());
        assert!(lines[0].starts_with(&format!("node {first} was measured to read")), "{lines:?}");
        for (tier, nodes) in facts.tiers.topology.tiers.iter().zip(&facts.tiers.nodes) {
            let expected = 12e9 * nodes.len() as f64;
            assert!(nodes.is_empty() || tier.read_bandwidth == BytesPerSec(expected), "{tier:?}");
        }
        found[0].1 = Err("it is full".to_owned());
        assert!(facts.take(&found)[0].contains("keeps the bandwidth that was told or assumed: it is full"));
    }
}
