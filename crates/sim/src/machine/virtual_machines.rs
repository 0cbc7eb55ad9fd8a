//! Several virtual machines on one machine: which cores run them, and what in the cores' caches of translations is theirs.
//!
//! A change of the hypervisor's table concerns the virtual machines whose memory it maps: the others are not interrupted
//! and lose nothing. Caches of translations tell virtual machines apart, as tagged ones do (Intel, Software Developer's
//! Manual, volume 3, chapter 30: VPIDs). A virtual CPU that does not run drops what is stale when it enters again, for
//! nothing: here it is dropped at once, since nobody could use it meanwhile.

use super::parts::{Core, Shared};
use super::system::System;
use crate::translate::HOST;
use std::collections::HashSet;
use terrace_model::{AddressRange, CoreId, SpaceId, Stats, Unit, VirtAddr};

/// What belongs to some of the virtual machines. One that has none beside it has everything.
#[derive(Debug)]
pub(super) struct OfVms {
    everything: bool,
    /// Guest-physical addresses, as the hypervisor's spaces have them.
    ranges: Vec<AddressRange>,
    /// Processes, those that are over as well.
    processes: HashSet<SpaceId>,
}

impl OfVms {
    fn has(&self, space: SpaceId, addr: VirtAddr) -> bool {
        match space {
            HOST => self.ranges.iter().any(|range| range.contains(addr)),
            process => self.processes.contains(&process),
        }
    }
}

impl Shared {
    /// What belongs to the virtual machines in these spaces of the hypervisor's.
    pub(super) fn vms_of(&self, spaces: &[SpaceId]) -> OfVms {
        let mut of_vms = OfVms { everything: true, ranges: Vec::new(), processes: HashSet::new() };
        let Some(hypervisor) = self.hypervisor.as_ref().filter(|hypervisor| hypervisor.count() > 1) else {
            return of_vms;
        };
        of_vms.everything = false;
        for vm in spaces.iter().filter_map(|space| hypervisor.vm_in(*space)) {
            of_vms.ranges.push(hypervisor.range_of(vm));
            of_vms.processes.extend(self.os.spaces_of(vm));
        }
        of_vms
    }

    /// The processes that live in them.
    pub(super) fn processes_in(&self, of_vms: &OfVms) -> Vec<SpaceId> {
        let live = self.os.live_spaces();
        live.filter(|space| of_vms.everything || of_vms.processes.contains(space)).collect()
    }

    /// Whether a core runs a process in one of these spaces; of the hypervisor's, a virtual machine in one of them: whoever
    /// runs it may hold translations by the hypervisor's table.
    pub(super) fn runs_any_of(&self, core: CoreId, system: System, spaces: &[SpaceId]) -> bool {
        let Some(process) = self.running[core.index()] else { return false };
        match (&self.hypervisor, system) {
            (Some(hypervisor), System::Hypervisor) if hypervisor.count() > 1 => {
                let vm = self.os.guest_of(process);
                spaces.iter().any(|space| hypervisor.vm_in(*space) == Some(vm))
            }
            (_, System::Hypervisor) => true,
            (_, System::Programs) => spaces.contains(&process),
        }
    }

    /// These cores leave their guests for an interrupt of the hypervisor's.
    pub(super) fn count_interrupts_of_vms(&mut self, cores: &[CoreId]) {
        for core in cores {
            if let (Some(hypervisor), Some(process)) = (&mut self.hypervisor, self.running[core.index()]) {
                hypervisor.of_vm[self.os.guest_of(process)].interrupts += 1;
            }
        }
    }

    /// Adds what each of several virtual machines has to the statistics of a run.
    pub fn count_vms_into(&self, stats: &mut Stats) {
        let Some(hypervisor) = self.hypervisor.as_ref().filter(|hypervisor| hypervisor.count() > 1) else {
            return;
        };
        for (vm, of_vm) in hypervisor.of_vm.iter().enumerate() {
            let mapped = hypervisor.os.table(hypervisor.space_in(vm)).pages_in(hypervisor.range_of(vm));
            let mapped = mapped.into_iter().map(|(_, size, _)| size.base_pages()).sum();
            stats.level(format!("vm.{vm}.guest_pages"), self.os.used_by(vm), Unit::Pages);
            stats.level(format!("vm.{vm}.host_pages"), mapped, Unit::Pages);
            stats.count(format!("vm.{vm}.ept_violations"), of_vm.ept_violations, Unit::Count);
            stats.count(format!("vm.{vm}.interrupts"), of_vm.interrupts, Unit::Count);
        }
    }
}

impl Core {
    /// Drops what the nested TLB and the page-walk cache hold of virtual machines.
    pub(super) fn flush_nested_of(&mut self, of_vms: &OfVms) {
        if of_vms.everything {
            return self.flush_nested();
        }
        if let Some(nested) = &mut self.nested {
            of_vms.ranges.iter().for_each(|range| nested.invalidate(*range));
        }
        self.flush_walk_cache_of(of_vms);
    }

    /// Drops what the page-walk cache holds of virtual machines.
    pub(super) fn flush_walk_cache_of(&mut self, of_vms: &OfVms) {
        match of_vms.everything {
            true => self.page_walk_cache.flush(),
            false => self.page_walk_cache.retain(|space, addr| !of_vms.has(space, addr)),
        }
    }
}
