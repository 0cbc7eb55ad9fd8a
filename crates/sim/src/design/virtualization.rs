//! The virtual machine that the programs run in, and its hypervisor: keys `vm` and `host`.
//!
//! With `[vm]`, keys of `os` describe the operating system of the guest. The hypervisor has one of the same kind: what
//! `[host]` leaves out is as in `os`, except for pages, placement, page allocator and policy. What a machine reserves for
//! its system (`os.reserved`) the hypervisor keeps; the guest keeps nothing.

use super::{MemoryParameters, OsParameters, PagePolicy, Placement, PolicyParameters};
use serde::{Deserialize, Serialize};
use terrace_model::parameters::Parameters;
use terrace_model::{Bytes, Cycles, PageSize, Time};

/// A virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct VmParameters {
    /// Virtual machines side by side, all alike. Programs go to them in turn: the first that the input has, and then every
    /// program that a forked process executes. Threads and forks stay in their
    /// parent's. One when absent.
    #[parameter(range = 1..=64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Guest-physical memory of each, where the guest has one tier. When absent, an equal part of all of the machine that
    /// the hypervisor does not keep for itself, less a sixteenth for its page tables.
    #[parameter(range = "4 KiB"..="8 TiB")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Virtual CPUs of each, which the guest's threads run on in turn. The hypervisor pins them to the machine's cores in
    /// turn, those of one virtual machine after those of the other; those that share a core run one time slice
    /// (`os.timeslice`) after the other. As many as there are cores when absent.
    #[parameter(range = 1..=1024)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// The hypervisor finds memory for all of the guest before it starts, with the pages of `host.pages` (QEMU:
    /// `prealloc=on`). Otherwise it does when the guest touches it.
    #[serde(default, skip_serializing_if = "is_off")]
    pub preallocated: bool,
    /// Tiers that the guest sees (virtual NUMA nodes), fastest first; one named `ram` when empty.
    #[parameter(section)]
    #[serde(default, rename = "tier", skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<GuestTierParameters>,
}

/// A tier as a guest sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct GuestTierParameters {
    /// Name used in statistics.
    #[parameter(element)]
    pub name: String,
    /// The tier's size.
    #[parameter(range = "4 KiB"..="8 TiB")]
    pub capacity: Bytes,
    /// The machine's tier that the hypervisor takes its memory from first; any by the hypervisor's placement when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_tier: Option<String>,
}

/// What is known of a hypervisor under the machine that a design stands on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct HypervisorParameters {
    /// Size of the pages by which it maps the machine's memory: `4k`, or `2m` for that and more.
    pub pages: PageSize,
}

/// The hypervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct HostParameters {
    /// Page sizes with which it maps the guest's memory.
    #[serde(default = "base")]
    pub pages: PagePolicy,
    /// Placement of the guest's memory over the machine's tiers.
    #[parameter(section)]
    #[serde(default = "first_touch")]
    pub placement: Placement,
    /// Tier of its page-table pages; the first tier when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_table_tier: Option<String>,
    /// The host's page allocator, and what the machine's memory went through before the virtual machine started.
    #[parameter(section)]
    #[serde(default)]
    pub memory: MemoryParameters,
    /// The policy that places and moves the guest's memory, if any.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyParameters>,
    /// Time from the guest into the hypervisor and back, on the core that exits.
    #[parameter(range = "0 cycles"..="1000000 cycles", source = "measured on Haswell (Yan 2019, section 2.1)")]
    #[serde(default = "vm_exit")]
    pub vm_exit: Cycles,
    /// Time from the guest into the hypervisor and back for a call of the guest's, without what the call does.
    #[parameter(range = "0 ns"..="1 s", source = "Trident (MICRO 2021), section 6")]
    #[serde(default = "hypercall")]
    pub hypercall: Time,
}

impl Default for HostParameters {
    fn default() -> HostParameters {
        HostParameters {
            pages: base(),
            placement: first_touch(),
            page_table_tier: None,
            memory: MemoryParameters::default(),
            policy: None,
            vm_exit: vm_exit(),
            hypercall: hypercall(),
        }
    }
}

fn is_off(on: &bool) -> bool {
    !on
}

fn hypercall() -> Time {
    Time::from_nanos(300)
}

fn base() -> PagePolicy {
    PagePolicy::Base
}

fn first_touch() -> Placement {
    Placement::FirstTouch
}

fn vm_exit() -> Cycles {
    Cycles(1300.0)
}

impl HostParameters {
    /// The hypervisor's operating system; what it leaves out is that of `os`.
    pub fn os(&self, os: &OsParameters) -> OsParameters {
        OsParameters {
            pages: self.pages,
            placement: self.placement.clone(),
            page_table_tier: self.page_table_tier.clone(),
            memory: self.memory.clone(),
            policy: self.policy.clone(),
            sample_contiguity: None,
            ..os.clone()
        }
    }
}
