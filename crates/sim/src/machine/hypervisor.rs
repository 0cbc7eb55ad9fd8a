//! The hypervisor: a second operating system of the same kind, in one of whose address spaces a virtual machine lies.
//!
//! What the guest takes for physical memory is memory that the hypervisor maps on demand: each tier of the guest is an area
//! of the virtual machine's space, and its page table in frames of the machine is what nested walks read. Left open by
//! publications and chosen here: KVM keeps two tables for a guest's memory, that of the process and the nested one; here
//! they are one. Virtual machines side by side are alike (`vm.count`): each has a space of the hypervisor's, and their
//! guest-physical addresses lie apart by a power of two, so that an address tells its virtual machine.

use crate::coherence::Shootdowns;
use crate::design::{Design, GuestTierParameters};
use crate::os::{Leaf, MemoryOf, Os, OsError};
use crate::translate::{Placer, TlbEntry, TlbHit};
use std::sync::atomic::AtomicBool;
use terrace_model::{
    AddressRange, CoreId, Frame, GuestPhysAddr, LINE_BYTES, Line, PageSize, PhysAddr, SpaceId, Stats, TierId,
    Time, Unit,
};
use terrace_policy::Wish;
use terrace_trace::{MapKind, Protection};

/// Why cores left the guest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exits {
    /// The hypervisor's table mapped nothing there, or the page is watched.
    pub ept_violations: u64,
    /// An interrupt of the hypervisor: to drop translations.
    pub interrupts: u64,
    /// A time slice was over, and another virtual CPU's turn began.
    pub preemptions: u64,
    /// Time of all of them, what the hypervisor did included.
    pub time: Time,
}

/// Hypercalls, and what became of their pairs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hypercalls {
    pub calls: u64,
    /// Pairs that were exchanged.
    pub exchanged: u64,
    /// Pairs that were refused.
    pub refused: u64,
    /// Time of all calls, flushes included.
    pub time: Time,
}

impl Hypercalls {
    pub fn count_into(&self, stats: &mut Stats) {
        stats.count("host.vm_exits.hypercall", self.calls, Unit::Count);
        stats.count("host.hypercalls.exchanged", self.exchanged, Unit::Count);
        stats.count("host.hypercalls.refused", self.refused, Unit::Count);
        stats.count("host.hypercalls.time", self.time.as_nanos() as u64, Unit::Nanoseconds);
    }
}

/// What happened to one virtual machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfVm {
    /// The machine's share of [`Exits::ept_violations`].
    pub ept_violations: u64,
    /// The machine's share of [`Exits::interrupts`].
    pub interrupts: u64,
}

/// A hypervisor with its virtual machines.
#[derive(Debug)]
pub(crate) struct Hypervisor {
    pub os: Os,
    /// The space that holds each virtual machine's memory: addresses in it are guest-physical ones.
    spaces: Vec<SpaceId>,
    /// Guest-physical addresses of a virtual machine, as a power of two.
    shift: u32,
    /// The guests' tiers: where each ends, and the machine's tier that it is bound to.
    tiers: Vec<(GuestPhysAddr, Option<TierId>)>,
    /// Virtual CPUs of each virtual machine.
    pub vcpus: usize,
    pub of_vm: Vec<OfVm>,
    /// Time from the guest into the hypervisor and back.
    pub vm_exit: Time,
    /// A page fault of the hypervisor's, without the exit and the zeroing.
    fault: Time,
    /// Time from the guest into the hypervisor and back for a call of the guest's.
    pub hypercall: Time,
    pub exits: Exits,
    pub hypercalls: Hypercalls,
    pub shootdowns: Shootdowns,
    /// Lines of its page table that were stored to: by kernel threads, by cores.
    pub table_stores: [u64; 2],
    /// Time that the guest's kernel threads and stores to page tables spent on memory that was not backed yet, and that
    /// nobody has paid for.
    owed: Time,
}

/// First frame and number of frames of each tier of the guests', those of one guest after the other at multiples of 1 GiB.
pub(crate) fn guest_layout(design: &Design) -> Option<Vec<(String, Frame, u64)>> {
    let tiers = design.guest_tiers()?;
    let (count, shift) = (design.vm_count(), design.guest_shift());
    let mut layout = Vec::new();
    for vm in 0..count as u64 {
        let mut next = vm << shift;
        for GuestTierParameters { name, capacity, .. } in &tiers {
            let name = if vm == 0 { name.clone() } else { format!("vm{vm}.{name}") };
            layout.push((name, Frame(next >> 12), capacity.0 >> 12));
            next = (next + capacity.0).next_multiple_of(1 << 30);
        }
    }
    Some(layout)
}

/// First address beyond all of the guests' tiers.
pub(crate) fn guest_end(design: &Design) -> u64 {
    guest_layout(design)
        .and_then(|layout| layout.last().cloned())
        .map_or(0, |(_, first, frames)| first.plus(frames).addr().0.next_multiple_of(1 << 30))
}

/// Virtual CPUs of a design: as many as cores where it does not say.
fn vcpus(design: &Design) -> usize {
    let given = design.vm.as_ref().and_then(|vm| vm.vcpus);
    given.map_or_else(|| design.core.each().len(), |vcpus| vcpus as usize).max(1)
}

/// Finds memory for all of a tier of the guest's before it starts.
fn preallocate(os: &mut Os, space: SpaceId, range: AddressRange, tier: Option<TierId>) -> Result<(), String> {
    let wish = tier.map(|tier| Wish { tier, size: None });
    let mut addr = range.start;
    while addr < range.end() {
        let fault = os.fault(space, addr, wish.as_slice());
        addr += fault.map_err(|e| format!("vm.preallocated: {e}"))?.size.bytes();
    }
    // No program has run yet that could hold translations or pay for a fault.
    os.changes = Default::default();
    os.counters = Default::default();
    Ok(())
}

impl Hypervisor {
    /// A hypervisor over the machine's tiers, and in it virtual machines that hold nothing yet.
    ///
    /// # Errors
    /// A placement that does not fit the machine, or no memory for the first page table.
    pub fn new(
        design: &Design,
        machine: &[(String, Frame, u64)],
        guest: &[(String, Frame, u64)],
        cycle: Time,
        stop: Option<&AtomicBool>,
    ) -> Result<Hypervisor, String> {
        let parameters = design.hypervisor().unwrap_or_default();
        let own = parameters.os(&design.os);
        let levels = design.translation.levels;
        let mut os = Os::of_guests(&own, levels, machine, 1, stop).map_err(|e| format!("host: {e}"))?;
        os.whose = MemoryOf::Hypervisor;
        let bound = design.guest_tiers().unwrap_or_default().into_iter().map(|tier| {
            let name = tier.host_tier?;
            machine.iter().position(|(of, _, _)| *of == name).map(|at| TierId(at as u8))
        });
        let bound: Vec<Option<TierId>> = bound.collect();
        let (mut spaces, mut tiers) = (Vec::new(), Vec::new());
        for (at, (_, first, frames)) in guest.iter().enumerate() {
            if at % bound.len() == 0 {
                spaces.push(os.new_space().map_err(|e| format!("host: {e}"))?);
            }
            let (space, tier) = (spaces[at / bound.len()], bound[at % bound.len()]);
            let range = AddressRange::new(first.addr().0, frames << 12);
            os.map(space, range, MapKind::Anonymous, Protection::READ_WRITE).map_err(|e| e.to_string())?;
            tiers.push((GuestPhysAddr::from_host_space(range.end()), tier));
            if design.vm.as_ref().is_some_and(|vm| vm.preallocated) {
                preallocate(&mut os, space, range, tier)?;
            }
        }
        Ok(Hypervisor {
            os,
            of_vm: vec![OfVm::default(); spaces.len()],
            spaces,
            shift: design.guest_shift(),
            tiers,
            vcpus: vcpus(design),
            vm_exit: parameters.vm_exit.at(cycle),
            fault: design.os.fault_cost,
            hypercall: parameters.hypercall,
            exits: Exits::default(),
            hypercalls: Hypercalls::default(),
            shootdowns: Shootdowns::default(),
            table_stores: [0; 2],
            owed: Time::ZERO,
        })
    }

    /// Virtual machines.
    pub fn count(&self) -> usize {
        self.spaces.len()
    }

    /// The virtual machine of a guest-physical address.
    #[inline]
    pub fn vm_of(&self, addr: GuestPhysAddr) -> usize {
        (addr.0 >> self.shift) as usize
    }

    /// The space that holds a guest-physical address.
    #[inline]
    pub fn space_of(&self, addr: GuestPhysAddr) -> SpaceId {
        self.spaces[self.vm_of(addr)]
    }

    /// The space that holds a virtual machine's memory.
    pub fn space_in(&self, vm: usize) -> SpaceId {
        self.spaces[vm]
    }

    /// The virtual machine whose memory a space holds.
    pub fn vm_in(&self, space: SpaceId) -> Option<usize> {
        self.spaces.iter().position(|of| *of == space)
    }

    /// All guest-physical addresses of a virtual machine, as addresses in its space.
    pub fn range_of(&self, vm: usize) -> AddressRange {
        AddressRange::new((vm as u64) << self.shift, 1 << self.shift)
    }

    /// The number of a thread's virtual CPU where it is the `thread`-th of a virtual machine. Those of all virtual machines
    /// are counted through.
    pub fn vcpu(&self, vm: usize, thread: usize) -> usize {
        vm * self.vcpus + thread % self.vcpus
    }

    /// The cores, of so many, that run the virtual CPUs of a virtual machine, each once.
    pub fn cores_of(&self, vm: usize, cores: usize) -> Vec<CoreId> {
        let first = self.vcpu(vm, 0);
        let each = (first..first + self.vcpus.min(cores)).map(|vcpu| CoreId::at(vcpu % cores));
        each.collect()
    }

    /// The host maps nothing there, or its policy watches the page: a core left the guest for so long.
    pub fn note_ept_violation(&mut self, addr: GuestPhysAddr) {
        let vm = self.vm_of(addr);
        self.exits.ept_violations += 1;
        self.of_vm[vm].ept_violations += 1;
    }

    /// A core turns to another virtual CPU. Returns what that takes beside the switch of threads.
    pub fn preempt(&mut self) -> Time {
        self.exits.preemptions += 1;
        self.exits.time += self.vm_exit;
        self.vm_exit
    }

    /// What a page fault of the hypervisor's costs a guest, without zeroing.
    pub fn fault_time(&self) -> Time {
        self.vm_exit + self.fault
    }

    /// The leaf that maps a guest-physical address, if any does.
    #[inline]
    pub fn find(&self, addr: GuestPhysAddr) -> Option<Leaf> {
        self.os.table(self.space_of(addr)).find(addr.in_host_space())
    }

    /// What a TLB may hold of a guest-physical address, where it is mapped.
    pub fn translate(&self, addr: GuestPhysAddr) -> Option<TlbHit> {
        let leaf = self.find(addr)?;
        let entry = TlbEntry::new(leaf.pte.frame(), leaf.pte.is_writable_in_tlb());
        Some(TlbHit { entry, size: leaf.size })
    }

    /// Where a guest-physical address lies in the machine, if it is mapped.
    pub fn place(&self, addr: GuestPhysAddr) -> Option<PhysAddr> {
        let leaf = self.find(addr)?;
        Some(leaf.pte.frame().addr() + addr.page_offset(leaf.size))
    }

    /// Where the tier of a guest-physical address is bound to, as the wish of a fault.
    pub fn wish(&self, addr: GuestPhysAddr) -> Option<Wish> {
        let (_, tier) = self.tiers.iter().find(|(end, _)| addr < *end)?;
        tier.map(|tier| Wish { tier, size: None })
    }

    /// The machine's tier that a tier of the guest is bound to; the first where it is bound to none.
    pub fn tier_behind(&self, guest: TierId) -> TierId {
        self.tiers.get(guest.index()).and_then(|(_, tier)| *tier).unwrap_or(TierId(0))
    }

    /// A guest-physical address is used by the guest's kernel, away from any walk: memory is found for it if there is none.
    /// Returns where it lies.
    ///
    /// # Errors
    /// The host's memory is full.
    pub fn back(&mut self, addr: GuestPhysAddr) -> Result<PhysAddr, OsError> {
        if let Some(place) = self.place(addr) {
            return Ok(place);
        }
        let wishes = self.wish(addr);
        let fault = self.os.fault(self.space_of(addr), addr.in_host_space(), wishes.as_slice())?;
        self.note_ept_violation(addr);
        let span = self.fault_time();
        self.exits.time += span;
        self.owed += span;
        // The entry was absent, so that no core holds anything of it.
        self.os.changes = Default::default();
        Ok(fault.frame.addr() + addr.page_offset(fault.size))
    }

    /// A block of the guest's memory was in use before anything ran: the host maps all of it, where `placer` says. Nobody
    /// leaves the guest for that, nothing is zeroed, and nothing is counted.
    ///
    /// # Errors
    /// The host's memory is full.
    pub fn make_resident(
        &mut self,
        mut from: GuestPhysAddr,
        bytes: u64,
        mut placer: Option<&mut dyn Placer>,
    ) -> Result<(), OsError> {
        let (before, now, end) = (self.os.counters, self.os.now, from + bytes);
        while let Some(addr) = self.unbacked(from, end) {
            let (space, at) = (self.space_of(addr), addr.in_host_space());
            match &mut placer {
                Some(placer) => {
                    let placement = placer.place(&mut self.os, space, at, true, now);
                    let page = self.os.fault(space, at, placement.wishes())?;
                    placer.placed(&self.os, space, at, &page);
                }
                None => _ = self.os.fault(space, at, self.wish(addr).as_slice())?,
            }
            from = addr;
        }
        self.os.counters = before;
        // No core made these stores, and nothing was there before.
        self.os.changes = Default::default();
        Ok(())
    }

    /// The machine's line behind a line of the guest's. Memory that cannot be found is the run's next fault.
    pub fn line(&mut self, line: Line) -> Line {
        let guest = GuestPhysAddr(line.0 * LINE_BYTES);
        self.back(guest).map_or(Line(0), PhysAddr::line)
    }

    /// What the guest's kernel owes for memory that it found unbacked.
    pub fn take_owed(&mut self) -> Time {
        std::mem::take(&mut self.owed)
    }

    /// Where the lines of a block of the guest's lie in the machine: first lines of runs of equal length, and that length as
    /// a power of two. All of it has to be backed.
    pub fn runs(&self, frame: Frame, size: PageSize) -> (Vec<Line>, u32) {
        let first = GuestPhysAddr(frame.addr().0);
        let line = |addr: GuestPhysAddr| self.place(addr).map_or(Line(0), PhysAddr::line);
        if self.find(first).is_some_and(|leaf| leaf.size >= size) {
            return (vec![line(first)], size.shift() - LINE_BYTES.ilog2());
        }
        // The smallest page of the host may be a base page.
        let runs = (0..size.base_pages()).map(|page| line(first + page * 4096)).collect();
        (runs, PageSize::Base.shift() - LINE_BYTES.ilog2())
    }

    /// The first address from `addr` on, and before `end`, that the host maps nothing to.
    pub fn unbacked(&self, mut addr: GuestPhysAddr, end: GuestPhysAddr) -> Option<GuestPhysAddr> {
        while addr < end {
            let Some(leaf) = self.find(addr) else { return Some(addr) };
            addr += leaf.size.bytes() - addr.page_offset(leaf.size);
        }
        None
    }

    /// Adds what the hypervisor did to the statistics of a run.
    pub fn count_into(&self, cycle: Time, stats: &mut Stats) {
        let counters = &self.os.counters;
        stats.count("host.ept_violations", self.exits.ept_violations, Unit::Count);
        stats.count("host.vm_exits.ept_violation", self.exits.ept_violations, Unit::Count);
        stats.count("host.vm_exits.interrupt", self.exits.interrupts, Unit::Count);
        stats.count("host.vm_exits.preemption", self.exits.preemptions, Unit::Count);
        self.hypercalls.count_into(stats);
        stats.count("host.vm_exit_cycles", self.exits.time.in_cycles(cycle), Unit::Cycles);
        for size in PageSize::ALL {
            stats.count(format!("host.faults_by_size.{size}"), counters.faults[size.index()], Unit::Count);
            let resident = self.os.resident()[size.index()] * 4096;
            stats.level(format!("host.resident_bytes.{size}"), resident, Unit::Bytes);
        }
        stats.count("host.huge_fallbacks", counters.huge_fallbacks, Unit::Count);
        stats.count("host.huge_occupied", counters.huge_occupied, Unit::Count);
        stats.count("host.splits", counters.splits, Unit::Count);
        stats.level("host.page_table_pages", self.os.table_pages(), Unit::Pages);
        let [by_threads, by_cores] = self.table_stores;
        stats.count("host.page_table_stores", by_cores, Unit::Count);
        stats.count("host.page_table_stores_by_threads", by_threads, Unit::Count);
        self.shootdowns.count_into("host", stats);
    }
}
