//! Idle pages go to the slow tier, used ones come back: accessed bits and nothing else.
//!
//! **Idea.** A daemon reads and clears the accessed bits of all pages at a fixed interval. A page that stayed untouched
//! for a number of intervals is idle and is demoted; a page of the slow tier that was touched is promoted. Accessed bits
//! tell that a page was used, not how often, so a page used once per interval counts as much as the hottest.
//!
//! **Source.** Linux's idle page tracking and kstaled (M. Lespinasse, 2011), as N. Agarwal's thesis uses it to show that
//! idleness is not enough (University of Michigan 2017, §6.1, Figs. 6.1 and 6.2: pages idle for 10 s).
//!
//! **Left open by the source.** *How long is idle*: 10 s in the figure, here one scan of 10 s (`scan`, `idle_scans`).
//! *Promotion*: the figure only counts; here every touched page comes back while there is room (`promote`). *Demotion
//! regardless of pressure*: yes, the aim is to free fast memory. *TLB entries*: dropped when bits are cleared (`flush`).
//!
//! **When to use it.** To find out how much memory a program leaves alone, and to park it. It cannot tell warm from
//! hot: with a fast tier smaller than what is touched in an interval, what stays in it is a matter of address and
//! chance.

use crate::support::{PageMap, Pending};
use crate::{
    Capability, CapabilitySet, Clear, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, Parameters,
    Policy, Published, Refusal, Report, ScanHand, Scope, Setup, Signal, SignalKind, Step,
};
use terrace_model::{TierId, Time};

/// Parameters of idle placement.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time between two scans of all pages.
    #[parameter(default = "10 s", range = "1 ns"..="5 h", source = "§6.1, Fig. 6.1", scaled)]
    pub scan: Time,
    /// Scans in a row that have to find a page untouched before it is demoted.
    #[parameter(default = 1, range = 1..=255, source = "ours, as in the figure")]
    pub idle_scans: u8,
    /// Bring touched pages of the slow tier back. Off: what was idle once stays.
    #[parameter(default = true)]
    pub promote: bool,
    /// Drop TLB entries when bits are cleared, so that no access goes unseen. Linux does not: ours is on.
    #[parameter(default = true)]
    pub flush: bool,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Idle {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    /// Scans that found the page untouched.
    ages: PageMap<u8>,
    pending: Pending,
    promoted: u64,
    demoted: u64,
    started: bool,
}

impl Published for Idle {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Idle, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let (ages, pending) = (PageMap::default(), Pending::default());
        Ok(Idle { parameters, fast, slow, ages, pending, promoted: 0, demoted: 0, started: false })
    }
}

impl Policy for Idle {
    fn needs(&self) -> Needs {
        let capabilities = CapabilitySet::of(&[Capability::AccessedBits, Capability::Migration]);
        let capabilities = capabilities.with_if(self.parameters.flush, Capability::FlushOnClear);
        Needs { capabilities, ..Needs::default() }.and_signals(&[SignalKind::Unmapped])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.pending.handle(signal);
            if let Signal::Unmapped { range } = signal {
                self.ages.forget(*range);
            }
        }
        if !signals.contains(&Signal::Tick) {
            return NextTick::Unchanged;
        }
        // The first scan would take pages that were there before for idle.
        let act = std::mem::replace(&mut self.started, true);
        self.scan(act, memory);
        NextTick::At(now.plus(self.parameters.scan))
    }

    fn report(&self, report: &mut Report) {
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.demoted);
        report.count("failed", self.pending.failed);
    }
}

impl Idle {
    fn scan(&mut self, act: bool, memory: &mut dyn MemorySystem) {
        let (fast, slow) = (self.fast, self.slow);
        let mut room = memory.topology().free_pages(fast);
        let (mut down, mut up) = (Vec::new(), Vec::new());
        let (ages, p) = (&mut self.ages, &self.parameters);
        let (promoted, demoted) = (&mut self.promoted, &mut self.demoted);
        let clear = Clear::ACCESSED.flushed(p.flush);
        memory.scan(Scope::All, &mut ScanHand::default(), clear, &mut |view| {
            let age = ages.entry(view.page);
            *age = if view.accessed { 0 } else { age.saturating_add(1) };
            if view.in_flight || !act {
                return Step::Clear;
            }
            if view.tier == fast && *age >= p.idle_scans {
                down.push(Move { page: view.page, to: slow });
                *demoted += view.base_pages();
            } else if view.tier == slow && view.accessed && p.promote && view.base_pages() <= room {
                room -= view.base_pages();
                up.push(Move { page: view.page, to: fast });
                *promoted += view.base_pages();
            }
            Step::Clear
        });
        for moves in [down, up] {
            let ticket = memory.migrate(&moves, MoveOptions::default());
            self.pending.ordered(ticket, moves.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::seconds;
    use crate::{Driver, InMemory, Open, PageId};
    use terrace_model::{Bytes, TierId};

    fn in_fast(parameters: &str, tlb: usize, hot: &[u64], scans: u64) -> Vec<u64> {
        let mut world = InMemory::new(&[("fast", Bytes::kib(32)), ("slow", Bytes::kib(64))]).with_tlb(tlb);
        world.map_anonymous(0, 0, 12);
        let mut driver = Driver::open("idle", parameters, world).unwrap();
        driver.touch_all(0, 0..12, true);
        for _ in 0..scans {
            for vpn in hot {
                driver.touch(PageId::new(0, *vpn), false);
            }
            driver.advance(seconds(10));
        }
        driver.advance(seconds(1));
        (0..12).filter(|vpn| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0)).collect()
    }

    #[test]
    fn untouched_pages_go_and_touched_ones_come_back() {
        assert_eq!(in_fast("", 0, &[0, 3, 11], 4), [0, 3, 11]);
        assert_eq!(in_fast("promote = false", 0, &[0, 3, 11], 4), [0, 3]);
    }

    #[test]
    fn idle_means_untouched_for_as_many_scans_as_said() {
        assert_eq!(in_fast("idle_scans = 3", 0, &[0], 3), (0..8).collect::<Vec<_>>());
        assert_eq!(in_fast("idle_scans = 3", 0, &[0], 4), [0]);
        assert_eq!(in_fast("scan = \"40 s\"", 0, &[0], 3), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn cached_translations_hide_accesses_unless_they_are_flushed() {
        assert_eq!(in_fast("promote = false", 1, &[0], 4), [0]);
        assert_eq!(in_fast("promote = false\nflush = false", 1, &[0], 4), [] as [u64; 0]);
    }
}
