//! The policy's side of the seam.

use crate::{
    Agent, Area, Capabilities, HintedPages, Lack, MemorySystem, Moment, Needs, PageId, Profile, Random,
    Report, Schemes, Signal, Topology,
};
use std::collections::BTreeMap;
use terrace_model::parameters::Parameters;
use terrace_model::{PageSize, TierId};

/// A first touch of an address that has no page yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The base page that was touched.
    pub page: PageId,
    /// The touch was a store.
    pub write: bool,
    /// When.
    pub at: Moment,
    /// The agent that touched it.
    pub agent: Agent,
    /// The area that the address lies in.
    pub area: Area,
}

/// Most wishes a placement can hold.
const WISHES: usize = 8;

/// One wish of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The tier.
    pub tier: TierId,
    /// The page size; none for what the operating system would choose.
    pub size: Option<PageSize>,
}

/// Where a new page shall lie: wishes, the first that can be granted counts.
///
/// A size that does not fit the area, or is not free in the tier, cannot be granted. Of several free blocks one that is
/// known to be zeroed is taken first. When no wish can, the world takes
/// a base page from the first tier with room, so a placement never makes a program fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    wishes: [Wish; WISHES],
    count: usize,
    waits: bool,
    notifies: bool,
}

impl Placement {
    /// No wish: wherever there is room.
    pub const ANYWHERE: Placement = Placement {
        wishes: [Wish { tier: TierId(0), size: None }; WISHES],
        count: 0,
        waits: false,
        notifies: false,
    };

    /// In this tier if there is room.
    pub const fn tier(tier: TierId) -> Placement {
        Placement::ANYWHERE.or(tier, None)
    }

    /// And failing that, here; wishes beyond the eighth are dropped.
    pub const fn or(mut self, tier: TierId, size: Option<PageSize>) -> Placement {
        if self.count < WISHES {
            self.wishes[self.count] = Wish { tier, size };
            self.count += 1;
        }
        self
    }

    /// Where the first wish is for a large page that fits and its tier has no free block for it, the fault waits: the policy
    /// is notified by [`Signal::Stalled`]. For worlds that offer [`crate::Capability::StalledFaults`].
    pub const fn or_waits(self, waits: bool) -> Placement {
        Placement { waits, ..self }
    }

    /// See [`Placement::or_waits`].
    pub const fn waits(&self) -> bool {
        self.waits
    }

    /// In the same case the fault goes on, and the policy is notified at once by [`Signal::Refused`].
    pub const fn or_notifies(self, notifies: bool) -> Placement {
        Placement { notifies, ..self }
    }

    /// See [`Placement::or_notifies`].
    pub const fn notifies(&self) -> bool {
        self.notifies
    }

    /// The wishes, first choice first.
    pub fn wishes(&self) -> &[Wish] {
        &self.wishes[..self.count]
    }
}

/// When the policy wants its next [`Signal::Tick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTick {
    /// As it stands: what an earlier call asked for.
    Unchanged,
    /// At this moment, instead of what an earlier call asked for. A moment that has passed means at once.
    At(Moment),
    /// Never, until a later call asks for one.
    Never,
}

/// A memory-management policy.
///
/// Pure and deterministic: no clock, no I/O, no randomness but the generator it was handed. The same calls return the
/// same results.
pub trait Policy: Send {
    /// What it cannot do without, with these parameters.
    fn needs(&self) -> Needs;

    /// Where a new page shall lie. On the path of the page fault, so it must be quick.
    fn place(&mut self, _fault: &Fault, _topology: &Topology) -> Placement {
        Placement::ANYWHERE
    }

    /// The shares in which new pages go to the tiers, fastest first, where that is all that [`Policy::place`] does, but
    /// for the structures of [`Policy::hints`]: for worlds that cannot ask at each fault. None for policies that place
    /// by more than that, or leave it to the world.
    fn shares(&self, _topology: &Topology) -> Option<Vec<f64>> {
        None
    }

    /// Where the pages of data structures go, by [`crate::Object::site`]: for the same worlds.
    fn hints(&self) -> BTreeMap<u64, HintedPages> {
        BTreeMap::new()
    }

    /// The policy as schemes of DAMON, where it can be said so: for worlds whose kernel carries them out by itself. It is
    /// then not called.
    fn schemes(&self) -> Option<Schemes> {
        None
    }

    /// Handles signals and gives orders. The first call has [`Signal::Tick`] and comes before the program runs.
    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick;

    /// Figures and remarks at the end of a run.
    fn report(&self, _report: &mut Report) {}
}

/// What a policy is built with besides its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The tiers.
    pub topology: &'a Topology,
    /// What the world offers.
    pub capabilities: &'a Capabilities,
    /// The seed of every random choice.
    pub seed: u64,
    /// The first pass, where there was one.
    pub profile: Option<&'a Profile>,
}

impl Setup<'_> {
    /// The policy's generator.
    pub fn random(&self) -> Random {
        Random::new(self.seed)
    }
}

/// A policy that can be opened by name: how it is built from its parameters.
pub trait Published: Policy + Sized + 'static {
    /// The policy's parameters, as the derive declares them.
    type Parameters: Parameters;
    /// Names that it had, which are still accepted and not listed.
    const FORMER_NAMES: &'static [&'static str] = &[];

    /// Builds it.
    ///
    /// # Errors
    /// Parameters that contradict each other, or a machine that it cannot manage. Values out of their ranges have been
    /// refused before. Missing capabilities need no check here: whoever opens the policy compares [`Policy::needs`] with
    /// what the world offers.
    fn new(parameters: Self::Parameters, setup: Setup<'_>) -> Result<Self, Refusal>;

    /// Whether the policy acts in the period of this name with these parameters; in all of its periods, unless it says
    /// otherwise. A run has to be long against those in which it acts.
    fn acts_in(_parameters: &Self::Parameters, _period: &str) -> bool {
        true
    }

    /// Sampled accesses that it takes with these parameters before the policy decides anything; `None` where it does not
    /// decide by one access in so many.
    fn decides_after(_parameters: &Self::Parameters) -> Option<u64> {
        None
    }
}

/// Why a policy does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The world does not offer something.
    #[error("it needs {0}")]
    Lacks(Lack),
    /// A parameter has a value that makes no sense.
    #[error("{key}: {problem}")]
    Parameter {
        /// The parameter.
        key: String,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// The machine is not of the kind that it manages.
    #[error("this machine does not fit: {0}")]
    Machine(String),
    /// There is no first pass.
    #[error("it needs a first pass over the same input, which counts the accesses of every page")]
    NoProfile,
}

impl Refusal {
    /// A parameter whose value makes no sense.
    pub fn parameter(key: &str, problem: impl Into<String>) -> Refusal {
        Refusal::Parameter { key: key.to_owned(), problem: problem.into() }
    }
}
