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
pub use tiers::{GroupedBy, TierMap};
pub use tracking::{Damon, Sampler, Tracking};

use crate::kernel::Kernel;
use std::collections::BTreeMap;
use terrace_model::Bytes;

/// Everything that Terrace wants to know about a machine before it runs a policy there.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The kernel's release.
    pub release: Fact<Release>,
    /// Bytes of a base page.
    pub base_page: Fact<Bytes>,
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
    /// The means by which accesses can be seen.
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
            base_page: system::base_page(kernel),
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
}
