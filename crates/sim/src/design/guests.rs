//! What a design says of its virtual machines taken together, and what must hold of them.

use super::error::suggestion;
use super::rules::{Fault, memory, placement, policy_parameters, rule, usable_name};
use super::schema::Design;
use super::virtualization::{GuestTierParameters, HostParameters, VmParameters};
use super::{OsParameters, PolicyParameters, schemes};
use crate::translate::cannot_go_with;
use std::collections::HashSet;
use terrace_model::Bytes;

/// Name of the guest's only tier.
pub(super) const RAM: &str = "ram";

impl Design {
    /// The operating system that programs run on: in a virtual machine it keeps nothing for itself.
    pub fn os_of_programs(&self) -> OsParameters {
        let reserved = if self.vm.is_some() { Bytes(0) } else { self.os.reserved };
        OsParameters { reserved, ..self.os.clone() }
    }

    /// What the guest sees of memory; none without a virtual machine.
    pub fn guest_tiers(&self) -> Option<Vec<GuestTierParameters>> {
        let vm = self.vm.as_ref()?;
        if !vm.tiers.is_empty() {
            return Some(vm.tiers.clone());
        }
        let capacity = vm.memory.unwrap_or_else(|| {
            let free = self.free_of_host() / self.vm_count() as u64;
            let most = free - free / 16;
            Bytes(if most >= 1 << 30 { most >> 30 << 30 } else { most >> 21 << 21 })
        });
        Some(vec![GuestTierParameters { name: RAM.to_owned(), capacity, host_tier: None }])
    }

    /// Virtual machines; 1 where there is none.
    pub fn vm_count(&self) -> usize {
        self.vm.as_ref().and_then(|vm| vm.count).map_or(1, |count| count.max(1) as usize)
    }

    /// How far the guest-physical addresses of virtual machines lie apart, as a power of two: at least what an entry of the
    /// fourth level of a page table covers, so that no two of them share a table below the root. 63 for one.
    pub(crate) fn guest_shift(&self) -> u32 {
        if self.vm_count() == 1 {
            return 63;
        }
        let tiers = self.guest_tiers().unwrap_or_default();
        let end: u64 = tiers.iter().map(|tier| tier.capacity.0.next_multiple_of(1 << 30)).sum();
        end.next_power_of_two().ilog2().max(39)
    }

    /// The hypervisor; none without a virtual machine.
    pub fn hypervisor(&self) -> Option<HostParameters> {
        self.vm.as_ref().map(|_| self.host.clone().unwrap_or_default())
    }

    /// Whether translation reads no page table and takes no time, so that a hypervisor's table adds nothing.
    pub fn translates_for_free(&self) -> bool {
        schemes::find(&self.translation.scheme.kind)
            .is_some_and(|scheme| !scheme.walks && !scheme.virtual_caches)
    }

    /// Names of the tiers that programs' pages lie in, as their operating system knows them.
    pub(crate) fn tier_names_of_programs(&self) -> Vec<String> {
        match self.guest_tiers() {
            Some(tiers) => tiers.into_iter().map(|tier| tier.name).collect(),
            None => self.tiers.iter().map(|tier| tier.name.clone()).collect(),
        }
    }

    /// Bytes of the machine that the hypervisor does not keep for itself.
    fn free_of_host(&self) -> u64 {
        let all: u64 = self.tiers.iter().map(|tier| tier.capacity.0).sum();
        all.saturating_sub(self.os.reserved.0)
    }
}

/// The first broken rule of the virtual machine and its hypervisor.
pub(super) fn check(design: &Design) -> Result<(), Fault> {
    let Some(vm) = &design.vm else {
        return rule(design.host.is_none(), "host", || {
            "describes the hypervisor of a virtual machine, and there is none: add a table [vm]".into()
        });
    };
    let scheme = &design.translation.scheme.kind;
    let known = schemes::find(scheme);
    rule(known.is_none_or(|scheme| scheme.runs_in_vm), "vm", || {
        let with = "the page tables of a virtual machine";
        if let Some(instead) = known.and_then(|scheme| scheme.instead_of_vm) {
            return cannot_go_with(scheme, with, instead);
        }
        let able = schemes::ALL.iter().filter(|scheme| scheme.runs_in_vm);
        let names: Vec<&str> = able.map(|scheme| scheme.name).collect();
        let why = format!(
            "its source does not say how it covers pages that two page tables map; use {}, \
             or translation.nested.host without [vm]",
            names.join(" or ")
        );
        cannot_go_with(scheme, with, &why)
    })?;
    if let Some(nested) = &design.translation.nested {
        rule(nested.host.is_none(), "translation.nested.host", || {
            "is the page size of a constant host table, and [vm] has a real one: use host.pages".into()
        })?;
    }
    tiers(design, vm)?;
    several(design)?;
    let host = design.host.clone().unwrap_or_default();
    if let Some(policy) = &host.policy {
        policy_parameters(policy, "host.policy")?;
        rule(!policy.needs_first_pass() || policy.takes_hints(), "host.policy.name", || {
            let name = &policy.name;
            format!(
                "{name} needs a first pass, which counts the pages of programs and not those of a hypervisor: \
                 give it to the guest (os.policy.name={name}), or take another (terrace policy list)"
            )
        })?;
    }
    memory(&host.memory, "host.memory")?;
    placement(&host.placement, &machine_tiers(design), &design.machine, "host.placement")?;
    if let Some(tier) = &host.page_table_tier {
        on_machine(design, tier, "host.page_table_tier")?;
    }
    Ok(())
}

fn machine_tiers(design: &Design) -> Vec<String> {
    design.tiers.iter().map(|tier| tier.name.clone()).collect()
}

fn on_machine(design: &Design, tier: &str, key: &str) -> Result<(), Fault> {
    let names = machine_tiers(design);
    rule(names.iter().any(|name| name == tier), key, || {
        format!("the machine has no tier \"{tier}\"{}; it has {}", suggestion(tier, &names), names.join(", "))
    })
}

/// What is left out where there are several virtual machines.
fn several(design: &Design) -> Result<(), Fault> {
    let count = design.vm_count();
    if count == 1 {
        return Ok(());
    }
    let policy = design.os.policy.as_ref();
    rule(!policy.is_some_and(PolicyParameters::needs_first_pass), "os.policy", || {
        "what a first pass over the input finds does not tell in which of several virtual machines a page lies: \
         take vm.count = 1"
            .into()
    })?;
    rule(!policy.is_some_and(PolicyParameters::needs_probe), "os.policy", || {
        "memories are probed on a machine without virtual machines: give the weights, or take vm.count = 1"
            .into()
    })?;
    let last = 12 + 9 * design.translation.levels;
    let needed = (count as u64).next_power_of_two().ilog2() + design.guest_shift();
    rule(needed <= last, "vm.count", || {
        format!(
            "page tables of {} levels do not reach so much guest-physical memory",
            design.translation.levels
        )
    })
}

fn tiers(design: &Design, vm: &VmParameters) -> Result<(), Fault> {
    rule(vm.memory.is_none() || vm.tiers.is_empty(), "vm.memory", || {
        "is the size of a guest with one tier, and [[vm.tier]] lists tiers with sizes of their own".into()
    })?;
    rule(vm.tiers.len() <= 255, "vm.tier", || "more than 255 tiers".into())?;
    let mut names = HashSet::new();
    for (at, tier) in vm.tiers.iter().enumerate() {
        let key = format!("vm.tier.{at}");
        rule(usable_name(&tier.name), &format!("{key}.name"), || {
            format!("\"{}\" is not a name of small letters, digits, - and _", tier.name)
        })?;
        rule(names.insert(&tier.name), &format!("{key}.name"), || {
            format!("there is another tier named \"{}\"", tier.name)
        })?;
        if let Some(host) = &tier.host_tier {
            on_machine(design, host, &format!("{key}.host_tier"))?;
        }
    }
    let guest = design.guest_tiers().unwrap_or_default();
    let each: u64 = guest.iter().map(|tier| tier.capacity.0).sum();
    let (free, count) = (design.free_of_host(), design.vm_count());
    let key = if vm.tiers.is_empty() { "vm.memory" } else { "vm.tier" };
    rule(each.saturating_mul(count as u64) <= free, key, || {
        let (what, are) = match count {
            1 => ("a virtual machine".to_owned(), "is"),
            count => (format!("{count} virtual machines"), "are"),
        };
        let (each, free) = (Bytes(each), Bytes(free));
        format!(
            "{what} of {each} {are} larger than the {free} that the host has beside its own {}",
            design.os.reserved
        )
    })?;
    rule(guest.iter().all(|tier| tier.capacity.0 >= 4096), key, || "a guest's tier has no memory".into())
}
