//! Runs a policy on the test double: time, faults and signals, always in the same order.

use super::InMemory;
use terrace_model::Time;
use terrace_seam::{
    Agent, Moment, Needs, NextTick, PageId, PageRange, Policy, Profile, Report, Setup, Signal,
};

/// A policy at work on an [`InMemory`].
pub struct Driver {
    /// The world. A test may look and interfere between two steps.
    pub world: InMemory,
    policy: Box<dyn Policy>,
    tick: Option<Moment>,
    calls: u64,
    checked: bool,
    /// Changes of the world that were checked, or passed over.
    checked_changes: u64,
    /// Calls of the policy that changed the world.
    changing_calls: u64,
}

impl Driver {
    /// Starts `policy` in `world`; its first call has come when this returns.
    ///
    /// # Panics
    /// The world lacks something that the policy needs.
    pub fn new(policy: Box<dyn Policy>, world: InMemory) -> Driver {
        let needs = policy.needs();
        assert_eq!(world.offers().lacks(needs.capabilities), None, "the world does not fit the policy");
        let checked = world.topology.tiers.iter().map(|tier| tier.capacity.0).sum::<u64>() <= 256 << 20;
        let mut driver = Driver {
            world,
            policy,
            tick: Some(Moment::START),
            calls: 0,
            checked,
            checked_changes: 0,
            changing_calls: 0,
        };
        driver.world.send_only(needs.signals);
        driver.advance(Time::ZERO);
        driver
    }

    /// Starts the policy that `open` builds for this world, with a seed and a first pass.
    ///
    /// # Errors
    /// What `open` says.
    pub fn opened<E>(
        world: InMemory,
        seed: u64,
        profile: Option<&Profile>,
        open: impl FnOnce(Setup<'_>) -> Result<Box<dyn Policy>, E>,
    ) -> Result<Driver, E> {
        let setup = Setup { topology: world.tiers(), capabilities: world.offers(), seed, profile };
        let policy = open(setup)?;
        Ok(Driver::new(policy, world))
    }

    /// What the policy says it needs.
    pub fn needs(&self) -> Needs {
        self.policy.needs()
    }

    /// One access by a CPU; a page that is not there is brought in where the policy places it.
    pub fn touch(&mut self, page: PageId, write: bool) {
        self.touch_by(Agent::default(), page, write);
    }

    /// One access by `agent`.
    pub fn touch_by(&mut self, agent: Agent, page: PageId, write: bool) {
        if let Some(fault) = self.world.touch_by(agent, page, write) {
            let mut placement = self.policy.place(&fault, &self.world.topology);
            while let Some(page) = self.world.stall(&fault, &placement) {
                self.advance(Time::ZERO);
                while self.world.is_stalled(page) {
                    let at = self.next_event().unwrap_or_else(|| panic!("nobody lets {page:?} go on"));
                    self.advance(at.since(self.world.now()));
                }
                placement = self.policy.place(&fault, &self.world.topology);
            }
            self.world.fault_in(&fault, &placement);
            assert!(self.world.touch_by(agent, page, write).is_none(), "the fault brought {page:?} in");
        }
    }

    /// Touches each page of a range once.
    pub fn touch_all(&mut self, space: u32, vpns: std::ops::Range<u64>, write: bool) {
        for vpn in vpns {
            self.touch(PageId::new(space, vpn), write);
        }
    }

    /// Touches pages one after the other, `gap` apart.
    pub fn play(&mut self, accesses: impl IntoIterator<Item = (PageId, bool)>, gap: Time) {
        for (page, write) in accesses {
            self.touch(page, write);
            self.advance(gap);
        }
    }

    /// Unmaps a range.
    pub fn unmap(&mut self, space: u32, vpn: u64, pages: u64) {
        self.world.unmap(PageRange::new(PageId::new(space, vpn), pages));
    }

    /// Lets `span` pass: orders land, ticks fall due, signals arrive.
    ///
    /// # Panics
    /// An invariant of the world is broken, or the policy calls itself without end.
    pub fn advance(&mut self, span: Time) {
        let until = self.world.now().plus(span);
        let calls_before = self.calls;
        self.deliver();
        while let Some(at) = self.next_event().filter(|at| *at <= until) {
            self.world.advance_to(at.max(self.world.now()));
            self.deliver();
            assert!(self.calls - calls_before < 1_000_000, "the policy does not come to rest");
        }
        self.world.advance_to(until);
    }

    fn next_event(&self) -> Option<Moment> {
        [self.tick, self.world.next_landing()].into_iter().flatten().min()
    }

    fn deliver(&mut self) {
        let now = self.world.now();
        let mut signals = self.world.take_signals();
        if self.tick.is_some_and(|tick| tick <= now) {
            self.tick = None;
            signals.push(Signal::Tick);
        }
        if signals.is_empty() {
            return;
        }
        self.calls += 1;
        match self.policy.on(now, &signals, &mut self.world) {
            NextTick::Unchanged => {}
            // Time goes on between two ticks, as it does in every world.
            NextTick::At(at) => self.tick = Some(at.max(now.plus(Time::from_nanos(1)))),
            NextTick::Never => self.tick = None,
        }
        if !self.checked || self.checked_changes == self.world.changes {
            return;
        }
        self.checked_changes = self.world.changes;
        self.changing_calls += 1;
        // A check looks at all pages and frames. What goes wrong stays wrong: in a long run, each eighth call is enough.
        if self.changing_calls > 64 && !self.changing_calls.is_multiple_of(8) {
            return;
        }
        if let Err(problem) = self.world.check() {
            panic!("at {now:?}: {problem}");
        }
    }

    /// How often the policy was called.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// What the policy says about the run.
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        self.policy.report(&mut report);
        report
    }
}
