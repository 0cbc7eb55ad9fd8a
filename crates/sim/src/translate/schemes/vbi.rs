//! VBI: the Virtual Block Interface, caches named by block and memory managed in the memory controller.
//!
//! **What it does.** A program's data lie in virtual blocks of eight sizes, from 4 KiB to 128 TiB. An access names an entry
//! of its process's table of blocks (CVT) and an offset; the core checks the right to it there, through a small cache, and
//! caches are named by block down to the last level. Only what misses the last level needs memory. The memory translation
//! layer (MTL) in the memory controller finds it: it looks a block up in the tables of blocks (VIT, through a cache), then
//! in TLBs, then walks the block's own table, whose depth is that of the block's size. It begins when the L2 misses and is
//! waited for when the last level misses. With *delayed allocation* a region gets memory when its first dirty line leaves
//! the last level; until then reads of it are answered with zeros, without a walk and without memory. With *early
//! reservation* a free run as large as the block is set aside at its first allocation, and one TLB entry covers the block.
//!
//! **Source.** Hajinazar et al., "The Virtual Block Interface", ISCA 2020: sections 4.1 to 4.5, 5.1 to 5.3. Designs: `vbi-1`
//! has neither, `vbi-2` has delayed allocation, `vbi-full` both.
//!
//! **Left open, and chosen here.** *Which data lie in which block* of a program that knows nothing of blocks: `blocks`.
//! *When memory is given without delayed allocation*: at the first miss of the last level. *Lines of a region besides
//! the one it was given for* must read as zero: the controller writes zeros, or notes which lines are zero
//! (`notes_zeros`). *A clone* would miss lines that are dirty in the source: they are written back first, and the
//! source's later write-backs copy. *Memory that runs out at a write-back* has nobody to notify: the run ends there, and
//! `headroom` keeps memory for write-backs by refusing it to loads and stores first. *With a backing store* (`swap`)
//! contents of regions go there while little memory is free, of those that were not read from memory lately, as a clock
//! goes over them. Their memory is read for that, and nobody waits. Their lines stay in the caches under their names.
//! The next line that is read from memory or written back gives the region memory again, and a read waits for the store
//! (`swap_read`). Regions that are shared since a fork stay, and so do pages of files. Memory and the store both full
//! end the run. *A promoted block* changes for all clients that have it. *Tables of blocks in memory* lie beyond all
//! tiers; a block's own table lies where the kernel's page table for the same addresses would, 512 entries to a page,
//! and that page table is the simulator's record of what memory stands behind what: its changes cost a write by the
//! controller for each region that gets memory, and no interrupts. *Walks* go through the last level or to memory
//! (`walks_through_llc`). *Time of the controller's own programs*: `latency`, nothing by default as in the paper. *The
//! CVT cache* answers beside the L1, so a hit takes no time. *TLBs* are those of the design, one set for all cores, the
//! ones for 4 KiB pages for regions, those for 2 MiB pages for what lies in one run. *A block whose memory does not lie
//! in its run any more* switches to a table and loses its TLB entries; so does a block that moved to a larger size. The
//! controller reads the lines of the old structure and writes those of the new one that say where memory is; the access
//! that needs the block waits (`switching`). *Memory of other blocks* is taken from the block with most of it unused,
//! the farthest part first. *Virtual machines* (`vms`): a guest takes blocks of its own part of the names and asks no
//! host for memory, so that there is neither a second dimension of walks nor a hypervisor's table, and a guest is as
//! fast as a program on the host. The source keeps sharing between virtual machines for the host; no input has any.
//! *Nodes* (`nodes`; design `vbi-nodes`; section 6.2, which the paper does not evaluate): each has a controller with
//! TLBs, walker and caches of its own. Core and tier number `i` belong to node `i` modulo their number. A block is at
//! home in the node of the core that asked for it, by the highest bits of its number, and its memory lies in that
//! node's tiers while there is room. Cores of other nodes reach the controller over a link (`hop`). When another node
//! reads a block's memory more than all others (`migrate_after`), the block moves: a new block is taken there, entries
//! of all clients point to it, its dirty lines are written back, and its lines get other names. The memory of a region
//! follows when it is read next, line by line, and a block that moved is found by a table. Each is counted:
//! `vbi.node_0.translations`, `vbi.node_0.tlb_misses`, and so on. Under a policy memory lies where that says. *Files*:
//! the operating system brings a page in as after a fault. *Policies* move pages below the caches, whose names stay
//! what they are: nothing is flushed. They are asked in which tier a region's first memory shall lie, and get the
//! controller's counts of misses by block; there are no accessed bits and no traps, since hits in caches need no
//! translation. The controller copies line by line, from memory to memory; what waits for a page on the move waits
//! until it has arrived. A line that is written back meanwhile is taken to be carried over. *Passing over the start of
//! an input* gives memory at first touch.
//!
//! **Two starting states.** Delayed allocation gains where data have no memory yet, so a run that begins with empty memory
//! serves what its program wrote before from zeros, and spares the page faults that a native run pays. Both states are worth
//! a look: one core of `vbi-table1`, `gups` over 256 MiB with 300,000 updates, speed against `native-4k`.
//!
//! | start | `vivt` | `vbi-1` | `vbi-2` | `vbi-full` | `perfect-tlb` |
//! |---|---:|---:|---:|---:|---:|
//! | memory is empty (`init=none`) | 1.03 | 3.35 | 3.85 | 3.91 | 1.12 |
//! | every page was written before | 1.06 | 1.18 | 1.10 | 1.29 | 1.14 |
//!
//! In the first row three quarters of the native run are page faults. In the second nothing is left of the gain of `vbi-2`
//! over `vbi-1`.
//!
//! **Time of the controller.** The paper charges none. The second row's `vbi-full` takes 5.22 ms at a `latency` of 0 and 10
//! cycles, 5.23 at 30,
//! 5.17 at 60 and 5.35 at 120: the controller begins beside the last level, which hides some 20 cycles. We have not looked
//! into the dip.

mod gather;
mod keys;
mod layer;
mod mtl;
mod names;
mod nodes;
mod piece;
mod reserve;
mod rewrite;
mod state;
mod store;
mod swap;
mod switch;
mod wrong;

use crate::os::{Leaf, PageTable, Pte};
use crate::translate::{
    LastLevel, Request, Setup, Stop, TlbCounters, TlbEntry, TlbHit, TlbSet, Translation, Walker,
};
use keys::levels;
pub use keys::{Gather, Reservation, Switching, VbiParameters};
use mtl::{Covered, Mtl};
use reserve::Mapping;
use state::At;
pub use state::Controller;
use terrace_model::{AddressRange, Frame, LINE_BYTES, PageSize, SpaceId, Stats, Time, Unit, VirtAddr};
use terrace_policy::{Capability, CapabilitySet};
use wrong::Access;

/// Entries of a core's cache of its process's table of blocks (section 4.3).
const CVT_CACHE: usize = 64;
/// Bytes of an entry in memory: 64 bits of a name, rights and a valid bit.
const CVT_BYTES: u64 = 16;
/// Bytes of an entry of a table of blocks.
const VIT_BYTES: u64 = 32;
/// Bytes of each of the controller's three tables: of processes, of blocks, and of blocks' pieces.
const TABLE_BYTES: u64 = 64 << 20;

/// Where a block's entry lies in the table of blocks, from the first address of the controller's tables.
fn block_entry(block: u32) -> u64 {
    TABLE_BYTES + u64::from(block) * VIT_BYTES % TABLE_BYTES
}

/// Where the entry lies that says where a piece of a block is: one for each 128 KiB, from the first address of the
/// controller's tables.
fn piece_entry(block: u32, offset: u64) -> u64 {
    2 * TABLE_BYTES + (u64::from(block) << 12 | offset >> 17 & 4095) * 8 % TABLE_BYTES
}

/// The TLBs of a core: there are none.
#[derive(Debug)]
pub struct NoTlbs;

impl TlbSet for NoTlbs {
    fn update(&mut self, _table: &PageTable, _request: &Request, _leaf: &Leaf, _pte: Pte, _hit: TlbHit) {}
    fn invalidate(&mut self, _space: SpaceId, _range: AddressRange) {}
    fn flush_space(&mut self, _space: SpaceId) {}
    fn counters(&self) -> TlbCounters {
        TlbCounters::default()
    }
}

/// What a core has: its cache of the table of blocks, direct-mapped by index.
#[derive(Debug)]
pub struct Vbi {
    cvt: [u64; CVT_CACHE],
    /// The instruction whose access comes next, where it is known.
    instruction: Option<u64>,
    hits: u64,
    misses: u64,
    tlbs: NoTlbs,
}

impl Vbi {
    /// An access that the program should not have made, for which the core raises an exception. It is noted, and the run
    /// goes on.
    #[cold]
    fn wrong(&mut self, kernel: &mut Controller, request: &Request) {
        let Request { space, addr, write, .. } = *request;
        let access = Access { space, addr, write, instruction: self.instruction };
        if std::mem::take(&mut kernel.in_new_stray) {
            return kernel.wrongs.is_unmapped(&access);
        }
        kernel.wrongs.has_no_right(&access);
    }

    /// The entry of a process's table comes from memory, through the data caches.
    #[inline(never)]
    fn fetch_entry<W: Walker>(&mut self, kernel: &mut Controller, walker: &mut W, now: Time) -> Time {
        let at = kernel.at;
        self.misses += 1;
        self.cvt[at.entry as usize % CVT_CACHE] = at.entry;
        // 4096 entries for each process, as far as the region goes.
        let place = (at.entry >> 32) << 12 | at.entry & 4095;
        let addr = kernel.memory + place * CVT_BYTES % TABLE_BYTES;
        let done = walker.fetch::<Vbi>(kernel, addr, false, now);
        walker.name_entry("table of blocks (CVT)");
        done
    }

    fn walk<W: Walker>(
        &mut self,
        kernel: &mut Controller,
        walker: &mut W,
        request: &Request,
        at: &state::At,
        references: u32,
        now: Time,
    ) -> Time {
        let home = kernel.home(at.block);
        let begin = kernel.mtls[home].walkers.start(now);
        let through = kernel.keys.walks_through_llc;
        let mut done = begin;
        let in_pieces = matches!(kernel.blocks.layer().get(at.block), Some(block) if matches!(block.mapping, Mapping::Pieces(..)));
        if in_pieces {
            let entry = kernel.memory + piece_entry(at.block, at.offset);
            done = walker.fetch_below::<Vbi>(kernel, entry, through, done);
            walker.name_entry("the block's table of pieces");
            walker.count_references(1);
        } else if let Some(leaf) = walker.table(request.space).find(request.addr) {
            // The names of lines stand for addresses here.
            let name = VirtAddr(at.line.0 * LINE_BYTES);
            let lowest = leaf.size.index() as u32 + 1;
            let depth = references.min(walker.table(request.space).levels()).max(lowest);
            let start = kernel.mtls[home].tables.start_level(SpaceId(0), name, lowest, depth);
            if depth > lowest {
                done += kernel.mtls[home].table_latency;
            }
            for level in (lowest..=start).rev() {
                let entry = walker.table(request.space).entry_address(&leaf, request.addr, level);
                done = walker.fetch_below::<Vbi>(kernel, entry, through, done);
                walker.name_entry("the block's table");
                walker.count_references(1);
            }
            kernel.mtls[home].tables.fill(SpaceId(0), name, lowest + 1, start);
        }
        kernel.mtls[home].walkers.occupy(begin, done);
        walker.count_walk(done - begin);
        done
    }
}

impl Translation for Vbi {
    const NAME: &'static str = "vbi";
    const WALKS: bool = false;
    const VIRTUAL_CACHES: bool = true;
    const OFFERS: Option<CapabilitySet> = Some(CapabilitySet::of(&[
        Capability::BlockCounts,
        Capability::ExactAccesses,
        Capability::AccessSamples,
        Capability::Traffic,
        Capability::LoadedLatency,
        Capability::Migration,
        Capability::Exchange,
        Capability::ParallelCopy,
        Capability::Objects,
    ]));
    const LAST_LEVEL: LastLevel = LastLevel::Beside;
    const KERNEL_TABLES: bool = false;
    const INSTEAD_OF_VM: Option<&'static str> = Some(
        "a block's name has its virtual machine, and there is one translation: leave [vm] out and set translation.scheme.vms",
    );
    const STATISTICS: &'static [(&'static str, &'static str)] = &[
        ("vbi.blocks", "blocks in use at the end (a state)"),
        ("vbi.vms", "virtual machines that processes were in, the host not counted"),
        ("vbi.blocks_disabled", "blocks that were given back"),
        ("vbi.clones", "blocks cloned by forks"),
        ("vbi.promotions", "blocks that moved to a larger size"),
        (
            "vbi.cvt_cache.hit",
            "accesses whose entry of the process's table of blocks was in the core's cache",
        ),
        ("vbi.cvt_cache.miss", "accesses whose entry was fetched"),
        ("vbi.vit_cache.hit", "translations whose block was in the controller's cache"),
        ("vbi.vit_cache.miss", "translations whose block's entry was fetched"),
        ("vbi.zero_lines", "lines read from regions without memory: zeros, without a walk"),
        ("vbi.given_at_miss", "regions that got memory at a miss of the last level"),
        ("vbi.given_at_writeback", "regions that got memory when a dirty line left the last level"),
        (
            "vbi.copied_at_writeback",
            "regions of cloned blocks that were copied when a dirty line left the last level",
        ),
        ("vbi.reserved_unused", "memory set aside for blocks and not used, at the end"),
        ("vbi.reserved_stolen", "base frames set aside for a block that others took"),
        ("vbi.regions_given", "regions that got memory under early reservation"),
        ("vbi.switches", "blocks in one run, or in pieces, that switched to a table"),
        (
            "vbi.switch_reads",
            "lines read of the old structures of blocks that switched or moved to another size or node",
        ),
        ("vbi.switch_writes", "lines written to the new structures of those blocks"),
        ("vbi.swapped_out", "regions whose contents went to the backing store"),
        ("vbi.swapped_in", "regions whose contents came back from it"),
        ("vbi.remote", "translations by the controller of another node than the core's"),
        ("vbi.blocks_moved", "blocks that moved to another node"),
        ("vbi.regions_moved", "regions of such blocks whose memory followed"),
        ("vbi.without_right", "accesses that the process has no right to make"),
        ("vbi.strays", "pages that were accessed and that no event had mapped"),
    ];
    type Keys = VbiParameters;
    type Kernel = Controller;
    type Tlbs = NoTlbs;

    fn new(_setup: &Setup<'_, VbiParameters>) -> Result<Vbi, String> {
        Ok(Vbi { cvt: [u64::MAX; CVT_CACHE], instruction: None, hits: 0, misses: 0, tlbs: NoTlbs })
    }

    fn kernel(setup: &Setup<'_, VbiParameters>) -> Result<Controller, String> {
        let mtl = |_| Mtl::new(setup.translation, setup.own.vit_cache, setup.cycle);
        let mtls = (0..setup.own.nodes).map(mtl).collect::<Result<_, _>>()?;
        let latency = setup.own.latency.at(setup.cycle);
        Ok(Controller::new(setup.own, mtls, setup.memory, latency))
    }

    fn tlbs(&self) -> &NoTlbs {
        &self.tlbs
    }

    fn tlbs_mut(&mut self) -> &mut NoTlbs {
        &mut self.tlbs
    }

    fn memory_bytes(_keys: &VbiParameters) -> u64 {
        3 * TABLE_BYTES
    }

    #[inline(always)]
    fn check<W: Walker>(&mut self, kernel: &mut Controller, walker: &mut W, request: &Request) -> Time {
        let at = &kernel.at;
        if !(if request.write { at.rights.write } else { at.rights.read }) || kernel.in_new_stray {
            self.wrong(kernel, request);
        }
        if self.cvt[kernel.at.entry as usize % CVT_CACHE] == kernel.at.entry {
            self.hits += 1;
            walker.note_lookup("table of blocks (CVT), cached", request.now, request.now);
            return request.now;
        }
        self.fetch_entry(kernel, walker, request.now)
    }

    fn translate<W: Walker>(
        &mut self,
        kernel: &mut Controller,
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let at = kernel.at;
        let through = kernel.keys.walks_through_llc;
        let (home, hop) = (kernel.home(at.block), kernel.hop(at.block));
        let mut now = request.now + kernel.latency + hop;
        if hop > Time::ZERO {
            walker.note_lookup("the block's home is another node", request.now + kernel.latency, now);
        }
        if !kernel.mtls[home].knows_block(at.block) {
            let entry = kernel.memory + block_entry(at.block);
            now = walker.fetch_below::<Vbi>(kernel, entry, through, now);
            walker.name_entry("the block's entry (VIT)");
            walker.count_references(1);
        } else {
            walker.note_lookup("the block's entry (VIT), cached", now, now);
        }
        // A load: sharing since a fork ends when a line is written back.
        let load = Request { write: false, ..*request };
        let backed = walker.table(request.space).find(request.addr).is_some();
        let file = kernel.blocks.layer().get(at.block).is_some_and(|block| block.file);
        if !backed && !file {
            walker.note_lookup("no memory yet", now, now);
            let entry = TlbEntry::new(Frame(0), false);
            return Ok((TlbHit { entry, size: PageSize::Base }, now + hop));
        }
        let (frame, size) = walker.translate_for_free(self, kernel, &load)?;
        kernel.at = at;
        now = now.max(if backed { now } else { walker.now() });
        let hit = TlbHit { entry: TlbEntry::new(frame, false), size };
        let in_place = match kernel.blocks.layer().get(at.block).map(|block| &block.mapping) {
            Some(Mapping::Direct(first)) => frame == first.plus(at.offset >> 12),
            Some(Mapping::Pieces(piece, firsts)) => {
                let first = firsts.get(&(at.offset >> piece.offset_bits()));
                first.is_none_or(|first| frame == first.plus((at.offset & (piece.bytes() - 1)) >> 12))
            }
            _ => true,
        };
        if !in_place {
            kernel.switch(at.block, walker.table(request.space));
        }
        if let Some(rewrite) = kernel.blocks.layer().get(at.block).and_then(|block| block.rewrite.take()) {
            now = Vbi::rewrite(kernel, walker, &rewrite, now);
        }
        let (covered, references) = kernel.covered(&at);
        if let Some(known) = kernel.mtls[home].look_up(covered, now) {
            walker.note_lookup("controller's TLBs: hit", now, known);
            return Ok((hit, known + hop));
        }
        let asked = now;
        now += kernel.mtls[home].l2_latency;
        walker.note_lookup("controller's TLBs: miss", asked, now);
        if references > 0 {
            now = self.walk(kernel, walker, request, &at, references, now);
        }
        kernel.mtls[home].fill(covered);
        Ok((hit, now + hop))
    }

    #[inline(always)]
    fn set_instruction(&mut self, instruction: Option<u64>) {
        self.instruction = instruction;
    }

    fn flush_space(&mut self, space: SpaceId) {
        self.cvt
            .iter_mut()
            .filter(|entry| **entry >> 32 == u64::from(space.0))
            .for_each(|entry| *entry = u64::MAX);
    }

    fn count_into(cores: &[Vbi], kernel: &Controller, _cycle: Time, stats: &mut Stats) {
        let sum = |of: fn(&Vbi) -> u64| cores.iter().map(of).sum::<u64>();
        let layer = &kernel.blocks.system.hardware.layer;
        let counters = &kernel.counters;
        stats.level("vbi.blocks", kernel.blocks.in_use(), Unit::Count);
        stats.level("vbi.vms", u64::from((kernel.blocks.used_vms & !1).count_ones()), Unit::Count);
        stats.level("vbi.reserved_unused", layer.reservations.unused(), Unit::Pages);
        for (name, count) in [
            ("vbi.blocks_disabled", layer.disabled),
            ("vbi.clones", layer.clones),
            ("vbi.promotions", layer.promotions),
            ("vbi.cvt_cache.hit", sum(|core| core.hits)),
            ("vbi.cvt_cache.miss", sum(|core| core.misses)),
            ("vbi.vit_cache.hit", kernel.mtls.iter().map(|mtl| mtl.block_hits).sum()),
            ("vbi.vit_cache.miss", kernel.mtls.iter().map(|mtl| mtl.block_misses).sum()),
            ("vbi.zero_lines", counters.zero_lines),
            ("vbi.given_at_miss", counters.given_at_miss),
            ("vbi.given_at_writeback", counters.given_at_writeback),
            ("vbi.copied_at_writeback", counters.copied_at_writeback),
            ("vbi.reserved_stolen", layer.reservations.stolen),
            ("vbi.regions_given", layer.reservations.allocated),
            ("vbi.switches", counters.switches),
            ("vbi.switch_reads", counters.switch_reads),
            ("vbi.switch_writes", counters.switch_writes),
            ("vbi.swapped_out", kernel.swap.out),
            ("vbi.swapped_in", kernel.swap.back),
            ("vbi.remote", counters.remote),
            ("vbi.blocks_moved", counters.blocks_moved),
            ("vbi.regions_moved", counters.regions_moved),
            ("vbi.without_right", kernel.wrongs.without_right()),
            ("vbi.strays", kernel.blocks.strays),
        ] {
            stats.count(name, count, Unit::Count);
        }
        let nodes = kernel.mtls.iter().filter(|_| kernel.mtls.len() > 1);
        for (node, mtl) in nodes.enumerate() {
            stats.count(format!("vbi.node_{node}.translations"), mtl.translations(), Unit::Count);
            stats.count(format!("vbi.node_{node}.tlb_misses"), mtl.counters.l2_misses, Unit::Count);
        }
    }

    fn notes(_cores: &[Vbi], kernel: &Controller) -> Vec<String> {
        kernel.wrongs.notes()
    }
}

impl Controller {
    /// What a translation of the region at `at` covers, and how many references find it where the TLBs do not know it.
    fn covered(&mut self, at: &At) -> (Covered, u32) {
        let region = Covered::Region(at.line.0 >> 6);
        let Some(block) = self.blocks.layer().get(at.block) else { return (region, 0) };
        let class = block.class;
        match &block.mapping {
            Mapping::Direct(_) if class.number() == 0 => (region, 0),
            Mapping::Direct(_) => (Covered::Run(at.block, 0), 0),
            Mapping::Pieces(piece, firsts) => {
                let number = at.offset >> piece.offset_bits();
                if firsts.contains_key(&number) { (Covered::Run(at.block, number), 1) } else { (region, 1) }
            }
            Mapping::Unknown | Mapping::Tables => (region, levels(class)),
        }
    }
}
