//! Everything starts in slow memory; promotion goes on as long as it raises throughput.
//!
//! **Idea.** New pages go to the slow tier. Every cycle its accessed and dirty bits are cleared, and after a delay the
//! pages touched since are promoted, written ones first, up to a number. The effect decides how many the next cycle may
//! promote: if the fast tier's throughput rose by less than in the cycle before, fewer; if it rose by less than the
//! slow tier's fell, the promotion did harm, and the pages go back. So it comes to rest at a placement in proportion to
//! bandwidth.
//!
//! **Source.** L. Liu et al., "Hierarchical hybrid memory management in OS for tiered memory systems" (Memos), IEEE
//! TPDS 2019, in the simplified form that Ambix compares with: M. Marques, IST Lisboa 2021, §2.3.2, §5.3 (4 s, 100,000
//! pages, one sample of the bits).
//!
//! **Left open by the source.** *How many fewer*: half (`shrink`), ours. *Whether the number grows again*: no, as the
//! source says that migration ceases. *Throughput*: bytes read and written without what migrations copy, ours. *Which
//! pages go back*: those of the last promotion that still lie in the fast tier. *A full fast tier*: pages that were not
//! accessed since the hand last passed make room for the next cycle.
//!
//! **When to use it.** To reproduce comparisons with it. In the source's and in our runs everything in slow memory at
//! first costs more than the search by throughput brings back on programs with phases.

use crate::support::{Pending, Rates};
use crate::{
    Capability, CapabilitySet, Clear, Fault, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick,
    PageId, Parameters, Placement, Policy, Published, Refusal, Report, ScanHand, Scope, Setup, Signal, Step,
    Topology,
};
use terrace_model::{TierId, Time};

/// Parameters of Memos.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time between two cycles.
    #[parameter(
        default = "4 s",
        range = "1 ns"..="5 h",
        source = "Ambix §5.3: 4 s instead of the original 40 s",
        scaled,
    )]
    pub period: Time,
    /// Between clearing the bits and reading them.
    #[parameter(default = "50 ms", range = "0 s"..="5 h", source = "Ambix §5.2", scaled)]
    pub delay: Time,
    /// Base pages that a cycle may promote, to begin with.
    #[parameter(default = 100_000, range = 0..=1_000_000_000_000, source = "Ambix §5.3", scaled)]
    pub most_pages: u64,
    /// Factor on that number when the gain falls, 0 to 1.
    #[parameter(default = 0.5, range = 0.0..=1.0, source = "ours")]
    pub shrink: f64,
    /// Usage of the fast tier, 0 to 1, that promotion fills it to.
    #[parameter(default = 0.95, range = 0.0..=1.0, source = "Ambix's default")]
    pub dram_limit: f64,
    /// Drop TLB entries when bits are cleared.
    #[parameter(default = true, source = "ours, as for Ambix")]
    pub flush: bool,
}

/// What the throughput says about the last promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    GoOn,
    PromoteFewer,
    Undo,
}

/// Judges a promotion by the change of throughput, in bytes per second.
fn judge(fast_gain: f64, gain_before: Option<f64>, slow_loss: f64) -> Verdict {
    if fast_gain < slow_loss {
        Verdict::Undo
    } else if gain_before.is_some_and(|before| fast_gain < before) {
        Verdict::PromoteFewer
    } else {
        Verdict::GoOn
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Memos {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    rates: Rates,
    /// Bytes per second of the two tiers in the last cycle.
    throughput: Option<[f64; 2]>,
    gain: Option<f64>,
    most_pages: u64,
    promoted_last: Vec<PageId>,
    waiting: bool,
    hands: [ScanHand; 2],
    pending: Pending,
    promoted: u64,
    demoted: u64,
    undone: u64,
}

impl Published for Memos {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Memos, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(Memos {
            most_pages: parameters.most_pages,
            parameters,
            fast,
            slow,
            rates: Rates::default(),
            throughput: None,
            gain: None,
            promoted_last: Vec::new(),
            waiting: false,
            hands: [ScanHand::default(); 2],
            pending: Pending::default(),
            promoted: 0,
            demoted: 0,
            undone: 0,
        })
    }
}

impl Policy for Memos {
    fn needs(&self) -> Needs {
        let capabilities = CapabilitySet::of(&[
            Capability::AccessedBits,
            Capability::DirtyBits,
            Capability::Traffic,
            Capability::Migration,
        ]);
        let capabilities = capabilities.with_if(self.parameters.flush, Capability::FlushOnClear);
        Needs { capabilities, ..Needs::default() }
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        Placement::tier(self.slow).or(self.fast, None)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.pending.handle(signal);
        }
        if !signals.contains(&Signal::Tick) {
            return NextTick::Unchanged;
        }
        let p = &self.parameters;
        let (delay, rest) = (p.delay, Time(p.period.0.saturating_sub(p.delay.0).max(1_000_000)));
        if now == Moment::START {
            // There is nothing to compare with, and nothing was touched.
            return NextTick::At(now.plus(p.period));
        }
        if std::mem::take(&mut self.waiting) {
            self.promote(memory);
            return NextTick::At(now.plus(rest));
        }
        if !self.pending.is_empty() {
            return NextTick::At(now.plus(rest));
        }
        // Pages on their way back carry bits of old and would look hot: no promotion in such a cycle.
        let undoing = self.weigh(now, memory);
        if undoing || self.most_pages == 0 {
            return NextTick::At(now.plus(rest));
        }
        let clear = Clear::BOTH.flushed(self.parameters.flush);
        memory.scan(Scope::Tier(self.slow), &mut ScanHand::default(), clear, &mut |_| Step::Clear);
        self.waiting = true;
        NextTick::At(now.plus(delay))
    }

    fn report(&self, report: &mut Report) {
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.demoted);
        report.pages("undone", self.undone);
        report.level_pages("most_pages", self.most_pages);
        report.count("failed", self.pending.failed);
    }
}

impl Memos {
    /// Looks at what the last promotion did to the throughput. Returns whether it is being undone.
    fn weigh(&mut self, now: Moment, memory: &mut dyn MemorySystem) -> bool {
        let (traffic, seconds) = self.rates.since_last(now, memory);
        let throughput = [self.fast, self.slow].map(|tier| {
            let traffic = traffic[tier.index()].without_copies();
            (traffic.bytes_read() + traffic.bytes_written()) as f64 / seconds
        });
        let before = self.throughput.replace(throughput);
        let promoted = std::mem::take(&mut self.promoted_last);
        let Some([fast_before, slow_before]) = before.filter(|_| !promoted.is_empty()) else { return false };
        let (gain, loss) = (throughput[0] - fast_before, slow_before - throughput[1]);
        let verdict = judge(gain, self.gain.replace(gain), loss);
        if verdict != Verdict::GoOn {
            self.most_pages = (self.most_pages as f64 * self.parameters.shrink) as u64;
        }
        if verdict == Verdict::Undo {
            let mut moves = Vec::new();
            let (fast, to, undone) = (self.fast, self.slow, &mut self.undone);
            let pages = Scope::Pages(&promoted);
            memory.scan(pages, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
                if view.tier == fast {
                    moves.push(Move { page: view.page, to });
                    *undone += view.base_pages();
                }
                Step::Keep
            });
            self.order(&moves, memory);
        }
        verdict == Verdict::Undo
    }

    /// After the delay: touched pages go up, written ones first; a full fast tier makes room for the next cycle.
    fn promote(&mut self, memory: &mut dyn MemorySystem) {
        let tier = memory.topology().tier(self.fast);
        let limit = (tier.capacity.0 as f64 * self.parameters.dram_limit) as u64;
        let room = limit.saturating_sub(tier.used.0) >> 12;
        let (most, to) = (self.most_pages, self.fast);
        let (mut written, mut read) = (Vec::new(), Vec::new());
        memory.scan(Scope::Tier(self.slow), &mut self.hands[1], Clear::NOTHING, &mut |view| {
            match (view.in_flight, view.accessed, view.dirty) {
                (false, true, true) => written.push((view.page, view.base_pages())),
                (false, true, false) => read.push((view.page, view.base_pages())),
                _ => {}
            }
            Step::Keep
        });
        let (mut taken, mut wanting) = (0, 0);
        let mut moves = Vec::new();
        for (page, pages) in written.into_iter().chain(read) {
            if taken + wanting + pages > most {
                break;
            }
            if taken + pages <= room {
                taken += pages;
                moves.push(Move { page, to });
            } else {
                wanting += pages;
            }
        }
        self.promoted += taken;
        self.promoted_last.extend(moves.iter().map(|one| one.page));
        self.order(&moves, memory);
        self.make_room(wanting, memory);
    }

    /// Demotes pages that were not accessed since the hand last passed, about `want` base pages.
    fn make_room(&mut self, want: u64, memory: &mut dyn MemorySystem) {
        let (mut found, mut moves, to) = (0, Vec::new(), self.slow);
        if want == 0 {
            return;
        }
        let clear = Clear::ACCESSED.flushed(self.parameters.flush);
        memory.scan(Scope::Tier(self.fast), &mut self.hands[0], clear, &mut |view| {
            if found >= want {
                return Step::Stop;
            }
            if view.accessed || view.in_flight {
                return Step::Clear;
            }
            found += view.base_pages();
            moves.push(Move { page: view.page, to });
            Step::Keep
        });
        self.demoted += found;
        self.order(&moves, memory);
    }

    fn order(&mut self, moves: &[Move], memory: &mut dyn MemorySystem) {
        let ticket = memory.migrate(moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::millis;
    use crate::{Driver, InMemory, Open};
    use terrace_model::Bytes;

    #[test]
    fn verdicts() {
        assert_eq!(judge(10.0, None, 5.0), Verdict::GoOn);
        assert_eq!(judge(10.0, Some(8.0), 5.0), Verdict::GoOn);
        assert_eq!(judge(10.0, Some(12.0), 5.0), Verdict::PromoteFewer);
        assert_eq!(judge(10.0, Some(8.0), 15.0), Verdict::Undo);
    }

    fn open(parameters: &str) -> Driver {
        let mut world = InMemory::new(&[("dram", Bytes::kib(80)), ("nvm", Bytes::kib(160))]);
        world.map_anonymous(0, 0, 30);
        let mut driver = Driver::open("memos", parameters, world).unwrap();
        driver.touch_all(0, 0..30, true);
        driver
    }

    /// Accesses pages in every 10 ms, `times` each: reads of the first range, writes of the second.
    fn run(
        driver: &mut Driver,
        millis_: u64,
        reads: std::ops::Range<u64>,
        writes: std::ops::Range<u64>,
        times: u32,
    ) {
        for _ in 0..millis_ / 10 {
            for _ in 0..times {
                driver.touch_all(0, reads.clone(), false);
                driver.touch_all(0, writes.clone(), true);
            }
            driver.advance(millis(10));
        }
    }

    fn in_fast(driver: &Driver) -> Vec<u64> {
        let fast = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0);
        (0..30).filter(fast).collect()
    }

    #[test]
    fn everything_starts_slow_and_written_pages_go_up_first() {
        let mut driver = open("most_pages = 4");
        assert_eq!(in_fast(&driver), [] as [u64; 0]);
        run(&mut driver, 4100, 0..10, 20..24, 1);
        assert_eq!(in_fast(&driver), [20, 21, 22, 23]);
    }

    #[test]
    fn untouched_pages_stay_and_the_limit_holds() {
        let mut driver = open("");
        run(&mut driver, 4100, 5..8, 20..21, 1);
        assert_eq!(in_fast(&driver), [5, 6, 7, 20]);
        let mut driver = open("dram_limit = 0.2");
        run(&mut driver, 4100, 0..10, 20..24, 1);
        assert_eq!(in_fast(&driver).len(), 4, "a fifth of 20");
        let mut driver = open("delay = \"1 s\"");
        run(&mut driver, 4100, 0..10, 20..24, 1);
        assert_eq!(in_fast(&driver), [] as [u64; 0], "the delay is not over");
    }

    #[test]
    fn a_promotion_that_costs_more_than_it_gains_is_undone() {
        for (shrink, left) in [(0.5, 2), (0.0, 0)] {
            let mut driver = open(&format!("most_pages = 4\nshrink = {shrink}"));
            run(&mut driver, 4100, 0..10, 20..24, 8);
            assert_eq!(in_fast(&driver).len(), 4);
            // The program rests: the fast tier gains less than the slow one loses.
            driver.advance(millis(4000));
            assert_eq!(in_fast(&driver), [] as [u64; 0]);
            let stats = driver.report().stats;
            assert_eq!((stats.integer("undone"), stats.integer("most_pages")), (4, left));
        }
    }

    #[test]
    fn a_full_fast_tier_makes_room_by_accessed_bits() {
        let mut driver = open("");
        run(&mut driver, 4100, 0..0, 0..25, 1);
        assert_eq!(in_fast(&driver).len(), 19);
        for _ in 0..4 {
            run(&mut driver, 4000, 0..0, 10..28, 40);
        }
        assert!(driver.report().stats.integer("demoted") > 0);
        assert!(in_fast(&driver).contains(&27), "{:?}", in_fast(&driver));
    }

    #[test]
    fn a_cached_translation_hides_a_hot_page_unless_flushed() {
        let promoted = |flush: bool| {
            let mut world = InMemory::new(&[("dram", Bytes::kib(80)), ("nvm", Bytes::kib(160))]).with_tlb(4);
            world.map_anonymous(0, 0, 30);
            let mut driver = Driver::open("memos", &format!("flush = {flush}"), world).unwrap();
            driver.touch_all(0, 0..30, true);
            run(&mut driver, 4100, 0..0, 0..2, 1);
            driver.report().stats.integer("promoted")
        };
        assert_eq!((promoted(true), promoted(false)), (2, 0));
    }

    #[test]
    fn cycles_come_as_often_as_said() {
        let mut driver = open("period = \"1 s\"\nmost_pages = 4");
        run(&mut driver, 1100, 0..10, 20..24, 1);
        assert_eq!(in_fast(&driver), [20, 21, 22, 23]);
    }
}
