//! Several virtual machines: which of them a program runs in, on which virtual CPUs its threads do, and whose policy manages
//! its memory.
//!
//! Where there is one, threads are spread over its virtual CPUs by their numbers, and nothing here is used. With several, a
//! thread moves to its virtual CPU when it begins, and when its process executes a program in another virtual machine.

use super::Engine;
use crate::outcome::SimError;
use crate::tiering::Tiering;
use crate::translate::Placer;
use std::collections::HashSet;
use terrace_model::{AddressRange, CoreId, GuestPhysAddr, SpaceId, Stats, Time, Unit};

/// What the engine knows of several virtual machines.
#[derive(Debug, Default)]
pub(super) struct VirtualMachines {
    /// One entry each; none where there are not several.
    each: Vec<OfVm>,
    /// Programs that were given one.
    programs: usize,
    /// Programs of a mix that were counted: one that begins again is the same program.
    counted: HashSet<usize>,
    /// Processes that were forked and have executed no program of their own.
    forked: HashSet<u32>,
}

#[derive(Clone, Debug, Default)]
struct OfVm {
    programs: u64,
    threads: usize,
    accesses: u64,
    /// When one of its threads ran last.
    ran: Time,
}

impl VirtualMachines {
    /// So many virtual machines.
    pub fn new(count: usize) -> VirtualMachines {
        let each = if count > 1 { vec![OfVm::default(); count] } else { Vec::new() };
        VirtualMachines { each, ..VirtualMachines::default() }
    }

    /// The virtual machine of the next program.
    pub fn next(&mut self) -> usize {
        let Some(vm) = self.programs.checked_rem(self.each.len()) else { return 0 };
        self.programs += 1;
        self.each[vm].programs += 1;
        vm
    }

    /// The virtual machine of program `program` of a mix, a process of which begins.
    pub fn of_program(&mut self, program: usize) -> usize {
        let Some(vm) = program.checked_rem(self.each.len()) else { return 0 };
        self.each[vm].programs += u64::from(self.counted.insert(program));
        vm
    }

    /// A process is the copy of another.
    pub fn forked(&mut self, process: u32) {
        if !self.each.is_empty() {
            self.forked.insert(process);
        }
    }

    /// A thread of a virtual machine ran until `now`.
    #[inline]
    pub fn ran(&mut self, vm: impl FnOnce() -> usize, accesses: u64, now: Time) {
        if self.each.is_empty() {
            return;
        }
        let of_vm = &mut self.each[vm()];
        of_vm.accesses += accesses;
        of_vm.ran = of_vm.ran.max(now);
    }

    /// Adds what each has done to the statistics of a run.
    pub fn count_into(&self, stats: &mut Stats) {
        for (vm, of_vm) in self.each.iter().enumerate() {
            stats.level(format!("vm.{vm}.programs"), of_vm.programs, Unit::Count);
            stats.count(format!("vm.{vm}.accesses"), of_vm.accesses, Unit::Count);
        }
    }

    /// When a thread of each ran last.
    pub fn ran_last(&self) -> Vec<Time> {
        self.each.iter().map(|of_vm| of_vm.ran).collect()
    }
}

impl Engine<'_> {
    /// All policies, the hypervisor's last.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Tiering> {
        self.tiering.iter().chain(&self.host_tiering)
    }

    /// The number of the policy that manages the memory of a process, where there is one.
    pub(super) fn guest_managed(&self, space: SpaceId) -> usize {
        if self.tiering.len() > 1 { self.machine.shared.os.guest_of(space) } else { 0 }
    }

    /// The policy that manages the memory of a process.
    pub(super) fn tiering_of(&mut self, space: SpaceId) -> Option<&mut Tiering> {
        let guest = self.guest_managed(space);
        self.tiering.get_mut(guest)
    }

    /// What a process had before its input began lies in the machine, not in the guest alone: the hypervisor maps its pages
    /// in `range`, and the tables that lead to them.
    pub(super) fn make_resident_in_host(
        &mut self,
        space: SpaceId,
        range: AddressRange,
    ) -> Result<(), SimError> {
        let shared = &mut self.machine.shared;
        let Some(hypervisor) = &mut shared.hypervisor else { return Ok(()) };
        hypervisor.os.now = shared.os.now;
        let (table, levels) = (shared.os.table(space), shared.os.levels());
        for (page, size, pte) in table.pages_in(range) {
            let Some(leaf) = table.find(page) else { continue };
            let entries =
                (size.index() as u32 + 1..=levels).map(|level| (table.entry_address(&leaf, page, level), 8));
            for (addr, bytes) in entries.chain([(pte.frame().addr(), size.bytes())]) {
                let placer = self.host_tiering.as_mut().map(|tiering| tiering as &mut dyn Placer);
                hypervisor.make_resident(GuestPhysAddr(addr.0), bytes, placer)?;
            }
        }
        Ok(())
    }

    /// The virtual CPU of a stream, where it is known.
    pub(super) fn vcpu_of(&self, stream: usize) -> Option<usize> {
        let hypervisor = self.machine.shared.hypervisor.as_ref()?;
        if hypervisor.count() > 1 {
            return self.streams.streams[stream].vcpu;
        }
        Some(hypervisor.vcpu(0, stream))
    }

    /// A stream on `core` has got its process: it goes to a virtual CPU of its virtual machine.
    pub(super) fn settle(&mut self, core: CoreId, stream: usize) {
        let Some(hypervisor) = &self.machine.shared.hypervisor else { return };
        let Some(space) = self.streams.streams[stream].space.filter(|_| hypervisor.count() > 1) else {
            return;
        };
        let vm = self.machine.shared.os.guest_of(space);
        let of_vm = &mut self.vms.each[vm];
        let vcpu = hypervisor.vcpu(vm, of_vm.threads);
        of_vm.threads += 1;
        self.streams.streams[stream].vcpu = Some(vcpu);
        let target = CoreId::at(vcpu % self.run_queues.len());
        if target == core {
            self.run_queues[core.index()].vcpu = Some(vcpu);
            return;
        }
        self.machine.shared.running[core.index()] = None;
        self.run_queues[core.index()].running = None;
        let now = self.machine.cores[core.index()].pipeline.now;
        self.put_on(target, stream, now);
    }

    /// A process on `core` executes a program. One that was forked goes to the next virtual machine with it, unless other
    /// threads of it have still to come to this point. Returns whether its space is over.
    pub(super) fn goes_to_next_vm(&mut self, stream: usize, space: SpaceId) -> Option<usize> {
        let process =
            self.streams.streams[stream].process.filter(|process| self.vms.forked.contains(process))?;
        let mut streams = self.streams.streams.iter().enumerate();
        if streams.any(|(at, other)| at != stream && !other.exited && other.space == Some(space)) {
            return None;
        }
        self.vms.forked.remove(&process);
        let vm = self.vms.next();
        (vm != self.machine.shared.os.guest_of(space)).then_some(vm)
    }

    /// The process of a stream, whose space is over, goes on in a new one.
    pub(super) fn move_to_vm(&mut self, core: CoreId, stream: usize, vm: usize) -> Result<(), SimError> {
        let space = self.machine.shared.os.new_space_in(vm)?;
        if let Some(process) = self.streams.streams[stream].process {
            self.spaces.insert(process, space);
        }
        self.streams.streams[stream].space = Some(space);
        self.settle(core, stream);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_a_mix_that_begins_again_is_one_program() {
        let mut vms = VirtualMachines::new(2);
        assert_eq!([0, 1, 2, 1, 1].map(|program| vms.of_program(program)), [0, 1, 0, 1, 1]);
        assert_eq!([0, 1].map(|vm| vms.each[vm].programs), [2, 1]);
    }
}
