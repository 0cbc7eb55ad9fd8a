//! Blocks, whole data structures, with the most accesses per megabyte lie in fast memory.
//!
//! **Idea.** A block is a data structure, or what lies in an area beside them; under the Virtual Block Interface it is
//! what the memory controller manages as one. Its accesses that reach memory are counted. At the end of an epoch what was
//! counted is added to what is left of earlier epochs, and divided by the memory that the block has: its density. Blocks
//! get fast memory in the order of their densities until it is full, and what is denser than what lies there takes its
//! place. New pages go to fast memory while there is room, unless their block is known not to be worth it.
//!
//! **Source.** Hajinazar et al., "The Virtual Block Interface", ISCA 2020, section 7.3: VBI "maps and migrates
//! frequently-accessed" blocks to the low-latency memory, DRAM beside PCM or the near segment of TL-DRAM.
//!
//! **Left open by the source.** It says no more than that; chosen here: *What is counted*: misses of the last level where
//! a controller counts by block, else samples, else accessed bits (`counters`). *When a block is frequently accessed*:
//! compared with the others, by the megabyte that it has memory for, so that a large block does not win by its size
//! (`least_density` for those that are not worth a move). *Epoch and decay*: `epoch`, `decay`. *A block that fits only in
//! part* (`straddling`): some of its pages lie in fast memory, as few moving as can be. *Blocks of about the same
//! density* would change places for ever: what lies in fast memory counts a little more (`margin`). *How much moves*: all
//! that is worth it, as fast as memory carries it (`rate_limit`), so many pages at a time (`in_flight`). *Properties of a
//! block* that its program tells: with `hints`, those of a file of hints: BO goes first, CO never. *Small allocations*
//! lie in the block of their area (`least`), or of the controller's.
//!
//! **Where it runs.** Under VBI the controller counts each miss, by block. On simulated page tables data structures are
//! known by the program's allocations, and a page's accesses count for its structure. On live Linux they are known for
//! a command that `terrace run --track-structures` starts. Where a world knows no data structures, areas are the
//! blocks: a large allocation of malloc has an area of its own unless the kernel joins neighbours.
//!
//! **When to use it.** Where a program's data structures differ in heat and each is hot or cold as a whole. Where a
//! structure has a hot part, `hemem` and `memtis` find it and this does not.

#[path = "block_hotness/stretch.rs"]
mod stretch;

use crate::support::{Pending, Straddling};
use crate::{
    Block, Capability, Choice, Clear, Fault, Hint, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick,
    PageId, PageRange, Parameters, Placement, Policy, Profile, Published, Refusal, Report, ScanHand, Scope,
    Setup, Signal, Step, Topology,
};
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use stretch::{Index, Stretch};
use terrace_model::{Bytes, BytesPerSec, TierId, Time};

/// What counts accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Counters {
    /// The first of those below that the world has: controller, samples, bits.
    #[default]
    Auto,
    /// The memory controller, each access that reaches memory by its block.
    Controller,
    /// Each access that reaches memory is reported with its page.
    Accesses,
    /// One in `sample_period` of them is.
    Samples,
    /// A page whose accessed bit is set at an epoch's end was accessed once in it.
    Bits,
}

/// What a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Unit {
    /// What the world knows: the controller's blocks, else data structures, and areas for what lies in none.
    #[default]
    Block,
    /// An area of the address space.
    Area,
}

/// Parameters of the policy.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time between two looks at the counts.
    #[parameter(default = "10 ms", range = "1 ns"..="5 h", source = "not stated", scaled)]
    pub epoch: Time,
    /// Share of a block's heat that is left at the end of the next epoch.
    #[parameter(default = 0.5, range = 0.0..=1.0, source = "not stated")]
    pub decay: f64,
    /// What counts accesses.
    #[parameter(source = "not stated")]
    pub counters: Counters,
    /// Sample period: one access in so many is sampled.
    #[parameter(default = 5003, range = 2..=1_000_000_000_000, source = "as hemem")]
    pub sample_period: u64,
    /// What a block is.
    #[parameter(
        source = "section 4.1: a block is semantically meaningful information, such as a data structure"
    )]
    pub unit: Unit,
    /// Data structures of fewer bytes lie in the block of their area.
    #[parameter(default = "128 KiB", range = "4 KiB"..="8 TiB", source = "ours, as the scheme vbi has it")]
    pub least: Bytes,
    /// What becomes of a block that fits only in part.
    #[parameter(source = "not stated")]
    pub straddling: Straddling,
    /// Accesses in the latest epochs for each megabyte of a block that make it worth a move.
    #[parameter(default = 64.0, range = 0.0..=1e12, source = "ours: one for every fourth page")]
    pub least_density: f64,
    /// How much denser than a block of the fast tier another one must be to take its place: 0.1 for a tenth.
    #[parameter(default = 0.1, range = 0.0..=1e6, source = "not stated")]
    pub margin: f64,
    /// Fast memory to leave free.
    #[parameter(default = "0 B", range = "0 B"..="1024 TiB", source = "not stated")]
    pub headroom: Bytes,
    /// Most memory moved per second, both ways together. Unset: as much as memory carries.
    #[parameter(range = "0 B/s"..="1000 TB/s", source = "not stated")]
    pub rate_limit: Option<BytesPerSec>,
    /// Pages that move at a time, and are held meanwhile.
    #[parameter(default = 32, range = 1..=1_000_000, source = "not stated")]
    pub in_flight: u32,
    /// Use what a file of hints says of data structures: BO ones get fast memory first, CO ones none.
    #[parameter(default = false, source = "section 4.1.1: hints in the property vector")]
    pub hints: bool,
}

/// How a block is known from one epoch to the next: by its first page, and whether it is what is left of an area.
type Name = (PageId, bool);

/// A block as it stands.
#[derive(Clone, Debug)]
struct Known {
    name: Name,
    parts: Vec<PageRange>,
    hint: Option<Hint>,
    /// Base pages in the fast and in the slow tier.
    pages: [u64; 2],
    accesses: f64,
    /// Pages that shall lie in the fast tier.
    target: u64,
}

impl Known {
    fn new(name: Name, parts: Vec<PageRange>) -> Known {
        Known { name, parts, hint: None, pages: [0; 2], accesses: 0.0, target: 0 }
    }

    fn size(&self) -> u64 {
        self.pages[0] + self.pages[1]
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct BlockHotness {
    parameters: Parameters,
    counters: Counters,
    objects: bool,
    tiers: [TierId; 2],
    headroom: u64,
    hints: BTreeMap<u64, Hint>,
    /// Accesses of the current epoch by base page, where the world reports pages; each sample stands for its period.
    seen: BTreeMap<PageId, u64>,
    heat: BTreeMap<Name, f64>,
    blocks: Vec<Known>,
    index: Index,
    pending: Pending,
    /// Orders that wait for the one under way, which makes room for them.
    waiting: VecDeque<Vec<Move>>,
    started: bool,
    epochs: u64,
    moved: [u64; 2],
}

/// What counts in this world.
fn resolve(parameters: &Parameters, setup: &Setup<'_>) -> Counters {
    let order = [
        (Counters::Controller, Capability::BlockCounts),
        (Counters::Samples, Capability::AccessSamples),
        (Counters::Bits, Capability::AccessedBits),
    ];
    match parameters.counters {
        Counters::Auto => order
            .into_iter()
            .find(|(_, capability)| setup.capabilities.has(*capability))
            .map_or(Counters::Bits, |(counters, _)| counters),
        chosen => chosen,
    }
}

impl Published for BlockHotness {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<BlockHotness, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let counters = resolve(&parameters, &setup);
        let hints = if parameters.hints {
            let profile: &Profile = setup.profile.ok_or(Refusal::NoProfile)?;
            profile.objects.iter().filter_map(|(site, one)| Some((*site, one.hint?))).collect()
        } else {
            BTreeMap::new()
        };
        Ok(BlockHotness {
            counters,
            objects: parameters.hints
                || parameters.unit == Unit::Block && setup.capabilities.has(Capability::Objects),
            tiers: [fast, slow],
            headroom: parameters.headroom.0 >> 12,
            hints,
            seen: BTreeMap::new(),
            heat: BTreeMap::new(),
            blocks: Vec::new(),
            index: Default::default(),
            pending: Pending::default(),
            waiting: VecDeque::new(),
            started: false,
            epochs: 0,
            moved: [0; 2],
            parameters,
        })
    }

    fn decides_after(parameters: &Parameters) -> Option<u64> {
        (parameters.counters == Counters::Samples).then_some(1)
    }
}

impl Policy for BlockHotness {
    fn needs(&self) -> Needs {
        let counts = match self.counters {
            Counters::Auto | Counters::Bits => Capability::AccessedBits,
            Counters::Controller => Capability::BlockCounts,
            Counters::Accesses => Capability::ExactAccesses,
            Counters::Samples => Capability::AccessSamples,
        };
        let needs = Needs { first_pass: self.parameters.hints, ..Needs::of(&[Capability::Migration]) };
        let capabilities = needs.capabilities.with(counts).with_if(self.objects, Capability::Objects);
        Needs { capabilities, ..needs }
    }

    fn place(&mut self, fault: &Fault, _: &Topology) -> Placement {
        let [fast, slow] = self.tiers;
        let hint = fault.area.object.and_then(|object| self.hints.get(&object.site));
        let known = Stretch::of(&self.index, fault.page).block.map(|at| &self.blocks[at]);
        // A block that is known keeps to what it was found worth.
        let cold = known.is_some_and(|block| block.size() > 0 && block.target < block.size());
        let to_slow = match hint {
            Some(Hint::Bandwidth) => false,
            Some(Hint::Capacity) => true,
            _ => cold,
        };
        let (first, second) = if to_slow { (slow, fast) } else { (fast, slow) };
        Placement::tier(first).or(second, None)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let period = match self.counters {
            Counters::Accesses => Some(1),
            Counters::Samples => Some(self.parameters.sample_period),
            _ => None,
        };
        let begins = !std::mem::replace(&mut self.started, true);
        if let Some(period) = period.filter(|_| begins) {
            memory.sample_accesses(period);
        }
        let mut tick = false;
        for signal in signals {
            self.pending.handle(signal);
            match *signal {
                Signal::Tick => tick = true,
                Signal::Access { page, count, .. } => {
                    *self.seen.entry(page).or_default() += u64::from(count) * period.unwrap_or(1);
                }
                _ => {}
            }
        }
        self.go_on(memory);
        if !tick {
            return NextTick::Unchanged;
        }
        self.epochs += 1;
        self.look(memory);
        self.add_heat();
        if self.pending.is_empty() {
            self.choose(memory);
            self.order(memory);
        }
        NextTick::At(now.plus(self.parameters.epoch))
    }

    fn report(&self, report: &mut Report) {
        report.count("epochs", self.epochs);
        report.count("blocks", self.blocks.iter().filter(|block| block.size() > 0).count() as u64);
        report.pages("promoted", self.moved[0]);
        report.pages("demoted", self.moved[1]);
        report.count("failed", self.pending.failed);
    }
}

impl BlockHotness {
    /// Finds out what blocks there are, where their pages lie, and what was counted.
    fn look(&mut self, memory: &mut dyn MemorySystem) {
        let mut blocks: Vec<Known> = Vec::new();
        if self.parameters.unit == Unit::Block {
            let least = self.parameters.least.0 >> 12;
            memory.blocks(&mut |Block { parts, site, accesses }| {
                let pages: u64 = parts.iter().map(|part| part.pages).sum();
                let Some(first) = parts.first().map(|part| part.first) else { return };
                // What a controller counts it manages as a block, however small.
                if pages >= least || accesses.is_some() {
                    let hint = site.and_then(|site| self.hints.get(&site)).copied();
                    let counted = accesses.filter(|_| self.counters == Counters::Controller);
                    let accesses = counted.unwrap_or(0) as f64;
                    blocks.push(Known { hint, accesses, ..Known::new((first, false), parts) });
                }
            });
        }
        let structures = blocks.len();
        memory.areas(None, &mut |area| blocks.push(Known::new((area.range.first, true), vec![area.range])));
        self.index = Default::default();
        for (at, block) in blocks.iter().enumerate() {
            let index = &mut self.index[usize::from(at >= structures)];
            index.extend(block.parts.iter().map(|part| (part.first, (part.pages, at))));
        }
        self.blocks = blocks;
        let bits = self.counters == Counters::Bits;
        let clear = if bits { Clear::ACCESSED.flushed_where_offered(memory) } else { Clear::NOTHING };
        let BlockHotness { tiers: [fast, slow], index, blocks, .. } = self;
        let mut last = Stretch::default();
        memory.scan(Scope::All, &mut ScanHand::default(), clear, &mut |view| {
            if !last.contains(view.page) {
                last = Stretch::of(index, view.page);
            }
            if let Some(block) = last.block.map(|at| &mut blocks[at])
                && let Some(tier) = [*fast, *slow].iter().position(|tier| *tier == view.tier)
            {
                block.pages[tier] += view.base_pages();
                block.accesses += f64::from(u8::from(bits && view.accessed));
            }
            if bits { Step::Clear } else { Step::Keep }
        });
        for (page, count) in std::mem::take(&mut self.seen) {
            if let Some(at) = Stretch::of(&self.index, page).block {
                self.blocks[at].accesses += count as f64;
            }
        }
    }

    /// What was counted joins what is left of earlier epochs.
    fn add_heat(&mut self) {
        let old = std::mem::take(&mut self.heat);
        for block in &self.blocks {
            let left = old.get(&block.name).map_or(0.0, |heat| heat * self.parameters.decay);
            self.heat.insert(block.name, left + block.accesses);
        }
    }

    /// Accesses for each megabyte that a block has memory for.
    fn density(&self, block: &Known) -> f64 {
        let heat = self.heat.get(&block.name).copied().unwrap_or(0.0);
        heat * 256.0 / block.size().max(1) as f64
    }

    /// Pages that the fast tier may take; below 0 where it holds more than it may, as under a limit that came later.
    fn left_in_fast(&self, memory: &dyn MemorySystem) -> i64 {
        let tier = memory.topology().tier(self.tiers[0]);
        (tier.capacity.0 >> 12) as i64 - tier.used.0.div_ceil(4096) as i64 - self.headroom as i64
    }

    /// How many pages of each block shall lie in the fast tier: the densest first.
    fn choose(&mut self, memory: &dyn MemorySystem) {
        let rank = |block: &Known| {
            let bonus = self.parameters.margin * block.pages[0] as f64 / block.size().max(1) as f64;
            let wanted = match block.hint {
                Some(Hint::Bandwidth) => 2,
                Some(Hint::Capacity) => 0,
                _ => 1,
            };
            (wanted, self.density(block) * (1.0 + bonus))
        };
        let mut order: Vec<(usize, (u8, f64))> =
            self.blocks.iter().map(rank).enumerate().filter(|(at, _)| self.blocks[*at].size() > 0).collect();
        let name = |at: usize| self.blocks[at].name;
        order.sort_by(|(a, one), (b, other)| {
            other.0.cmp(&one.0).then(other.1.total_cmp(&one.1)).then(name(*a).cmp(&name(*b)))
        });
        let in_fast: u64 = self.blocks.iter().map(|block| block.pages[0]).sum();
        let mut room = in_fast.saturating_add_signed(self.left_in_fast(memory));
        let mut stopped = false;
        for (at, (wanted, _)) in order {
            let dense = self.density(&self.blocks[at]) >= self.parameters.least_density;
            let block = &mut self.blocks[at];
            let size = block.size();
            let worth_it = wanted == 2 || wanted == 1 && dense;
            block.target = match self.parameters.straddling {
                _ if wanted == 0 || stopped => 0,
                // The block's pages stay where they are while nobody needs the room.
                _ if !worth_it => block.pages[0].min(room),
                _ if size <= room => size,
                Straddling::Split => room,
                Straddling::Skip => 0,
                Straddling::Stop => {
                    stopped = true;
                    0
                }
            };
            room -= block.target;
        }
    }

    /// Moves what lies elsewhere than it shall: hottest blocks up, and coldest ones down as far as those need room.
    fn order(&mut self, memory: &mut dyn MemorySystem) {
        let epoch = self.parameters.epoch.as_secs();
        let budget = self.parameters.rate_limit.map_or(u64::MAX, |rate| (rate.0 * epoch) as u64 >> 12);
        let [fast, slow] = self.tiers;
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        order.sort_by(|a, b| {
            let (one, other) = (&self.blocks[*a], &self.blocks[*b]);
            self.density(other).total_cmp(&self.density(one)).then(one.name.cmp(&other.name))
        });
        let up: u64 = self.blocks.iter().map(|block| block.target.saturating_sub(block.pages[0])).sum();
        let surplus: u64 = self.blocks.iter().map(|block| block.pages[0].saturating_sub(block.target)).sum();
        let left = self.left_in_fast(memory);
        let (free, short) = (left.max(0) as u64, (-left).max(0) as u64);
        // A page up for which there is no room takes one down as well.
        let down = (up.saturating_sub(free) + short).min(surplus).min(memory.topology().free_pages(slow));
        let down = down.min(if up > free { budget.div_ceil(2) } else { budget });
        let up = up.min(free + down.saturating_sub(short)).min(budget - down.min(budget));
        let mut moves = Vec::new();
        let mut left = down;
        for at in order.iter().rev() {
            let block = &self.blocks[*at];
            let some = block.pages[0].saturating_sub(block.target).min(left);
            left -= self.pick(*at, (fast, slow), some, memory, &mut moves).min(left);
        }
        let mut left = up;
        for at in order {
            let block = &self.blocks[at];
            let some = block.target.saturating_sub(block.pages[0]).min(left);
            left -= self.pick(at, (slow, fast), some, memory, &mut moves).min(left);
        }
        // As many down as are in flight together, then as many up: each of these rounds makes the room for the next.
        let ups = moves.iter().position(|one| one.to == fast).unwrap_or(moves.len());
        let mut down = moves;
        let mut up = down.split_off(ups);
        let round = self.parameters.in_flight as usize;
        let paired = down.len().min(up.len()) / round * round;
        let rounds = down[..paired].chunks(round).zip(up[..paired].chunks(round));
        let first: Vec<Move> = rounds.flat_map(|(down, up)| [down, up].concat()).collect();
        self.waiting = VecDeque::from([first, down.split_off(paired), up.split_off(paired)]);
        self.go_on(memory);
    }

    /// Gives the next order once the one before is done.
    fn go_on(&mut self, memory: &mut dyn MemorySystem) {
        while self.pending.is_empty()
            && let Some(moves) = self.waiting.pop_front()
        {
            self.migrate(&moves, memory);
        }
    }

    fn migrate(&mut self, moves: &[Move], memory: &mut dyn MemorySystem) {
        let ups = moves.iter().filter(|one| one.to == self.tiers[0]).count();
        self.moved[0] += ups as u64;
        self.moved[1] += (moves.len() - ups) as u64;
        let in_flight = NonZeroU32::new(self.parameters.in_flight);
        let ticket = memory.migrate(moves, MoveOptions { in_flight, ..MoveOptions::default() });
        self.pending.ordered(ticket, moves.len());
    }

    /// Moves for about `wanted` base pages of a block, in the order of addresses. Returns how many it found.
    fn pick(
        &self,
        at: usize,
        (from, to): (TierId, TierId),
        wanted: u64,
        memory: &mut dyn MemorySystem,
        moves: &mut Vec<Move>,
    ) -> u64 {
        let mut found = 0;
        for part in &self.blocks[at].parts {
            if found >= wanted {
                break;
            }
            memory.scan(Scope::Range(*part), &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
                if found >= wanted {
                    return Step::Stop;
                }
                // An area moves only those of its pages that lie in no data structure.
                if view.tier == from
                    && !view.in_flight
                    && Stretch::of(&self.index, view.page).block == Some(at)
                {
                    found += view.base_pages();
                    moves.push(Move { page: view.page, to });
                }
                Step::Keep
            });
        }
        found
    }
}

#[cfg(test)]
#[path = "block_hotness/tests.rs"]
mod tests;
