//! Pages by two bits, read and written, on two clocks.
//!
//! **Idea.** Slow memory that is much slower at writes should hold cold pages first, read pages next, written pages
//! last. A page's accessed and dirty bit tell which it is: neither cold, accessed only read-intensive, both
//! write-intensive. Two components decide every period. *Switch*: when the slow tier takes more write bandwidth than a
//! threshold, its bits are cleared, and after a short delay the pages touched since are promoted into free fast memory,
//! or change places with cold fast pages when there is none. *Threshold*: when the fast tier is fuller than its limit,
//! its coldest pages are demoted, so that new pages land in fast memory.
//!
//! A page of the slow tier counts as hot if touched within the delay (50 ms), one of the fast tier as cold if untouched
//! since the hand last passed, a period or more ago. Promotion is strict, demotion lenient; that keeps it from
//! thrashing.
//!
//! **Source.** M. Marques, "Ambix", MSc thesis, Instituto Superior Técnico Lisboa, 2021: §4.3.2 PageFind with Table 4.1
//! and Algorithm 1, §4.3.3 Switch and Threshold, §4.4 limits, §5.2 values.
//!
//! **Left open by the source.** *TLB entries when bits are cleared*: the thesis leaves them, so that a hot page whose
//! translation stays cached looks cold; here they are dropped (`flush`). *Hysteresis*: the thesis has one threshold of
//! 95 %; as in the authors' later release, demotion starts above `dram_limit` and ends at `dram_target`. *The least
//! usage that lets PROMOTE run* (`dram_minimum`): 90 %, ours. *When the slow tier is near full* (`nvm_limit`): 98 %,
//! from the release. *Whose writes count for Switch*: all, as a memory controller counts them (`count_copies`).
//! *Read-only pages*: left alone in every mode, not only in DEMOTE. *Huge pages*: looked at as one page each; the
//! thesis ran without. *Order of SWITCH's moves*: the thesis' (promote while there is room, then demote, and so on).
//!
//! **When to use it.** Slow memory that is far slower at writes than at reads, such as DCPMM, under programs whose hot
//! memory fits the fast tier for many periods at a time. It needs nothing but two bits per page. Where reads alone
//! decide, its trigger, write bandwidth of the slow tier, may not fire: set `write_threshold` accordingly, or take
//! `idle` or `nimble`.

use crate::support::{Pending, Rates};
use crate::{
    Capability, CapabilitySet, Clear, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, PageView,
    Parameters, Policy, Published, Refusal, Report, ScanHand, Scope, Setup, Signal, Step,
};
use terrace_model::{Bytes, BytesPerSec, TierId, Time};

/// Parameters of Ambix.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time between two decisions.
    #[parameter(default = "2 s", range = "1 ns"..="5 h", source = "§5.2", scaled)]
    pub period: Time,
    /// Between clearing the slow tier's bits and looking for hot pages in it.
    #[parameter(default = "50 ms", range = "0 s"..="5 h", source = "§5.2", scaled)]
    pub delay: Time,
    /// Run the Switch component; better off for uniform access patterns, such as breadth-first search.
    #[parameter(default = true, source = "§4.4")]
    pub switch: bool,
    /// Run the Threshold component.
    #[parameter(default = true)]
    pub threshold: bool,
    /// Write bandwidth of the slow tier above which Switch acts.
    #[parameter(default = "50 MB/s", range = "0 B/s"..="1000 TB/s", source = "§5.2")]
    pub write_threshold: BytesPerSec,
    /// Usage of the fast tier, 0 to 1, that promotions fill it to and demotions empty it to.
    #[parameter(default = 0.95, range = 0.0..=1.0, source = "§5.2")]
    pub dram_target: f64,
    /// Usage of the fast tier, 0 to 1, above which Threshold demotes.
    #[parameter(default = 0.96, range = 0.0..=1.0, source = "authors' release")]
    pub dram_limit: f64,
    /// Usage of the fast tier, 0 to 1, below which Threshold promotes while Switch is off.
    #[parameter(default = 0.9, range = 0.0..=1.0, source = "ours")]
    pub dram_minimum: f64,
    /// Usage of the slow tier, 0 to 1, above which nothing is demoted.
    #[parameter(default = 0.98, range = 0.0..=1.0, source = "authors' release")]
    pub nvm_limit: f64,
    /// Most memory per search. SWITCH takes half of it from either tier.
    #[parameter(default = "2 GiB", range = "0 B"..="1024 TiB", source = "§4.4: 2 GB", scaled)]
    pub max_request: Bytes,
    /// Drop TLB entries when bits are cleared; off: as in the thesis.
    #[parameter(default = true, source = "ours")]
    pub flush: bool,
    /// Count what migrations write into the write bandwidth, as the thesis' counters do.
    #[parameter(default = true)]
    pub count_copies: bool,
    /// Extra time after a decision that moved pages.
    #[parameter(
        default = "0 s",
        range = "0 s"..="5 h",
        source = "authors' release: one more period; thesis: none",
        scaled,
    )]
    pub settle: Time,
}

/// What a search is for (Table 4.1). `DCPMM_CLEAR` finds nothing and is a method of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Demote,
    Promote,
    PromoteIntensive,
}

/// The pages a search found.
#[derive(Clone, Debug, Default)]
struct Found {
    priority: Vec<PageView>,
    backup: Vec<PageView>,
    /// Base pages in either.
    sizes: [u64; 2],
}

/// Base pages in a list.
fn size_of(pages: &[PageView]) -> u64 {
    pages.iter().map(PageView::base_pages).sum()
}

/// The first pages of `pages` that together have no more than `want` base pages.
fn at_most(pages: &[PageView], want: u64) -> impl Iterator<Item = &PageView> {
    let mut left = want;
    pages.iter().take_while(move |page| {
        let fits = page.base_pages() <= left;
        left -= if fits { page.base_pages() } else { left };
        fits
    })
}

impl Found {
    /// Looks at a page as Algorithm 1 does, for `want` base pages.
    fn look(&mut self, mode: Mode, want: u64, view: &PageView) -> Step {
        let [found, backup] = self.sizes;
        if found >= want {
            return Step::Stop;
        }
        if !view.writable || view.in_flight {
            return Step::Keep;
        }
        let first_choice = match mode {
            Mode::Demote => !view.accessed,
            Mode::Promote | Mode::PromoteIntensive => view.accessed && view.dirty,
        };
        if first_choice {
            self.priority.push(*view);
            self.sizes[0] += view.base_pages();
            return Step::Keep;
        }
        let second_choice = match mode {
            Mode::Demote => !view.dirty,
            Mode::Promote => true,
            Mode::PromoteIntensive => view.accessed,
        };
        if second_choice && backup < want - found {
            self.backup.push(*view);
            self.sizes[1] += view.base_pages();
        }
        if mode == Mode::Demote { Step::Clear } else { Step::Keep }
    }

    /// What is taken for `want` base pages: the priority pages, and backup pages for the shortfall.
    fn taken(&self, want: u64) -> Vec<PageView> {
        let mut taken: Vec<PageView> = at_most(&self.priority, want).copied().collect();
        let shortfall = want - size_of(&taken);
        taken.extend(at_most(&self.backup, shortfall));
        taken
    }
}

/// The pairs of SWITCH: equal sizes, and never two backup pages, so that equally intensive pages stay where they are.
fn pair(slow: &Found, fast: &Found) -> Vec<(PageView, PageView)> {
    let mut pairs = Vec::new();
    for size in terrace_model::PageSize::ALL {
        let of_size = |pages: &[PageView]| -> Vec<PageView> {
            pages.iter().filter(|view| view.size == size).copied().collect()
        };
        let (hot, warm) = (of_size(&slow.priority), of_size(&slow.backup));
        let (cold, cool) = (of_size(&fast.priority), of_size(&fast.backup));
        let both = hot.len().min(cold.len());
        pairs.extend(hot[..both].iter().copied().zip(cold[..both].iter().copied()));
        pairs.extend(hot[both..].iter().copied().zip(cool));
        pairs.extend(warm.into_iter().zip(cold[both..].iter().copied()));
    }
    pairs
}

/// What comes when the delay is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The slow tier's bits were cleared for Switch.
    ThenSwitch,
    /// The slow tier's bits were cleared for Threshold's PROMOTE.
    ThenPromote,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Ambix {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    hands: [ScanHand; 2],
    phase: Phase,
    rates: Rates,
    pending: Pending,
    switches: u64,
    promoted: u64,
    demoted: u64,
}

impl Published for Ambix {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Ambix, Refusal> {
        let p = &parameters;
        if !(p.dram_minimum <= p.dram_target && p.dram_target <= p.dram_limit) {
            let problem = "expected dram_minimum <= dram_target <= dram_limit";
            return Err(Refusal::parameter("dram_target", problem));
        }
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(Ambix {
            parameters,
            fast,
            slow,
            hands: [ScanHand::default(); 2],
            phase: Phase::Idle,
            rates: Rates::default(),
            pending: Pending::default(),
            switches: 0,
            promoted: 0,
            demoted: 0,
        })
    }
}

impl Policy for Ambix {
    fn needs(&self) -> Needs {
        let p = &self.parameters;
        let capabilities = CapabilitySet::of(&[
            Capability::AccessedBits,
            Capability::DirtyBits,
            Capability::Migration,
            Capability::WholeHugePages,
        ]);
        Needs {
            capabilities: capabilities
                .with_if(p.switch, Capability::Traffic)
                .with_if(p.flush, Capability::FlushOnClear),
            ..Needs::default()
        }
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.pending.handle(signal);
        }
        if !signals.contains(&Signal::Tick) {
            return NextTick::Unchanged;
        }
        let p = &self.parameters;
        if now == Moment::START {
            // Before the first allocation there is no usage or bandwidth to decide by.
            return NextTick::At(now.plus(p.period));
        }
        let (period, settle) = (p.period, p.settle);
        let after_delay = NextTick::At(now.plus(p.delay));
        let rest = Time(period.0.saturating_sub(p.delay.0).max(1_000_000));
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => {
                let written = self.write_bandwidth(now, memory);
                // Migrations of the last decision still run: their pages would be counted twice.
                if !self.pending.is_empty() {
                    return NextTick::At(now.plus(period));
                }
                if self.parameters.switch && written > self.parameters.write_threshold.0 {
                    self.clear_slow(memory);
                    self.phase = Phase::ThenSwitch;
                    return after_delay;
                }
                if self.wants_promotion(memory) {
                    self.clear_slow(memory);
                    self.phase = Phase::ThenPromote;
                    return after_delay;
                }
                let moved = self.demote(memory);
                NextTick::At(now.plus(period).plus(if moved { settle } else { Time::ZERO }))
            }
            Phase::ThenSwitch => {
                let switched = self.switch(memory);
                let moved = self.demote(memory) | switched;
                NextTick::At(now.plus(rest).plus(if moved { settle } else { Time::ZERO }))
            }
            Phase::ThenPromote => {
                let room = self.room(memory);
                let moved = self.promote(Mode::Promote, room, memory);
                NextTick::At(now.plus(rest).plus(if moved { settle } else { Time::ZERO }))
            }
        }
    }

    fn report(&self, report: &mut Report) {
        report.count("switches", self.switches);
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.demoted);
        report.count("failed", self.pending.failed);
    }
}

impl Ambix {
    /// Bytes per second written to the slow tier since the last look.
    fn write_bandwidth(&mut self, now: Moment, memory: &mut dyn MemorySystem) -> f64 {
        let (traffic, seconds) = self.rates.since_last(now, memory);
        let mut slow = traffic[self.slow.index()];
        if !self.parameters.count_copies {
            slow = slow.without_copies();
        }
        if seconds > 0.0 { slow.bytes_written() as f64 / seconds } else { 0.0 }
    }

    /// Base pages that fit into the fast tier until it is at its target.
    fn room(&self, memory: &dyn MemorySystem) -> u64 {
        let fast = memory.topology().tier(self.fast);
        let target = (fast.capacity.0 as f64 * self.parameters.dram_target) as u64;
        (target.saturating_sub(fast.used.0) >> 12).min(self.parameters.max_request.0 >> 12)
    }

    fn wants_promotion(&self, memory: &dyn MemorySystem) -> bool {
        let usage = memory.topology().tier(self.fast).usage();
        self.parameters.threshold && !self.parameters.switch && usage < self.parameters.dram_minimum
    }

    /// `DCPMM_CLEAR`: both bits of every page in the slow tier.
    fn clear_slow(&self, memory: &mut dyn MemorySystem) {
        let clear = Clear::BOTH.flushed(self.parameters.flush);
        memory.scan(Scope::Tier(self.slow), &mut ScanHand::default(), clear, &mut |_| Step::Clear);
    }

    /// A walk over one tier for `want` base pages, from where the last walk of that tier stopped.
    fn find(&mut self, mode: Mode, want: u64, memory: &mut dyn MemorySystem) -> Found {
        let (tier, hand) = match mode {
            Mode::Demote => (self.fast, &mut self.hands[0]),
            Mode::Promote | Mode::PromoteIntensive => (self.slow, &mut self.hands[1]),
        };
        let clear = Clear::BOTH.flushed(self.parameters.flush);
        let mut found = Found::default();
        if want > 0 {
            memory.scan(Scope::Tier(tier), hand, clear, &mut |view| found.look(mode, want, view));
        }
        found
    }

    /// The Switch component, after the delay. Returns whether it ordered anything.
    fn switch(&mut self, memory: &mut dyn MemorySystem) -> bool {
        // Less than a page below the target is no room: to wait for it to be filled would be to wait for ever.
        let room = self.room(memory);
        if room > 0 {
            return self.promote(Mode::PromoteIntensive, room, memory);
        }
        let want = self.parameters.max_request.0 >> 13;
        let slow = self.find(Mode::PromoteIntensive, want, memory);
        let fast = self.find(Mode::Demote, want.min(slow.sizes.iter().sum()), memory);
        let pairs = pair(&slow, &fast);
        self.switches += pairs.len() as u64;
        let moves = self.in_turns(&pairs, memory);
        self.order(&moves, pairs.iter().map(|(up, _)| up.base_pages()).sum(), true, memory);
        self.demoted += pairs.iter().map(|(_, down)| down.base_pages()).sum::<u64>();
        !pairs.is_empty()
    }

    /// Promotes while the fast tier has room, then demotes while the slow one has, and so on (§4.4).
    fn in_turns(&self, pairs: &[(PageView, PageView)], memory: &dyn MemorySystem) -> Vec<Move> {
        let free = |tier: TierId| memory.topology().free_pages(tier);
        let (mut free_fast, mut free_slow) = (free(self.fast), free(self.slow));
        let (mut up, mut down) = (0, 0);
        let mut moves = Vec::with_capacity(2 * pairs.len());
        while up < pairs.len() || down < pairs.len() {
            let before = moves.len();
            while let Some((page, _)) = pairs.get(up).filter(|(page, _)| page.base_pages() <= free_fast) {
                moves.push(Move { page: page.page, to: self.fast });
                free_fast -= page.base_pages();
                free_slow += page.base_pages();
                up += 1;
            }
            while let Some((_, page)) = pairs.get(down).filter(|(_, page)| page.base_pages() <= free_slow) {
                moves.push(Move { page: page.page, to: self.slow });
                free_slow -= page.base_pages();
                free_fast += page.base_pages();
                down += 1;
            }
            if moves.len() == before {
                // Neither tier has room for one page: nothing can change places.
                break;
            }
        }
        moves
    }

    fn promote(&mut self, mode: Mode, want: u64, memory: &mut dyn MemorySystem) -> bool {
        let pages = self.find(mode, want, memory).taken(want);
        let moves: Vec<Move> = pages.iter().map(|view| Move { page: view.page, to: self.fast }).collect();
        self.order(&moves, size_of(&pages), true, memory)
    }

    /// The Threshold component's DEMOTE. Returns whether it ordered anything.
    fn demote(&mut self, memory: &mut dyn MemorySystem) -> bool {
        let p = &self.parameters;
        let (fast, slow) = (memory.topology().tier(self.fast), memory.topology().tier(self.slow));
        if !p.threshold || fast.usage() <= p.dram_limit || slow.usage() >= p.nvm_limit {
            return false;
        }
        let above = fast.used.0.saturating_sub((fast.capacity.0 as f64 * p.dram_target) as u64);
        let room = ((slow.capacity.0 as f64 * p.nvm_limit) as u64).saturating_sub(slow.used.0);
        let want = above.min(room).min(p.max_request.0) >> 12;
        let pages = self.find(Mode::Demote, want, memory).taken(want);
        let moves: Vec<Move> = pages.iter().map(|view| Move { page: view.page, to: self.slow }).collect();
        self.order(&moves, size_of(&pages), false, memory)
    }

    fn order(&mut self, moves: &[Move], pages: u64, up: bool, memory: &mut dyn MemorySystem) -> bool {
        let ticket = memory.migrate(moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
        *(if up { &mut self.promoted } else { &mut self.demoted }) += pages;
        !moves.is_empty()
    }
}

#[cfg(test)]
#[path = "ambix/tests.rs"]
mod tests;
