//! Trident's promotion of this process's own memory.
//!
//! The policy decides, in the same source as in the simulator (`crates/policy/src/policies/trident.rs`): which 2 MiB are
//! joined, when it looks and how long it rests; and which are taken apart when memory is short. What differs from its
//! defaults is what a process cannot have, and what the published values, made for a kernel that serves all
//! processes, leave open for one: see [`parameters`].

use crate::system;
use crate::world::OwnMemory;
use terrace_model::Time;
use terrace_policy::policies::trident::{Parameters, Sizes, Trident};
use terrace_policy::support::Compaction;
use terrace_policy::{Capability, MemorySystem, Moment, NextTick, Outcome, Policy, Published, Setup, Signal};

/// Base pages of 2 MiB that may be missing when they are joined: a tenth. Ingens joins what is used to 90 % (Kwon et al.,
/// OSDI 2016, §4.2). Linux and Trident join what has one page; that is what makes huge pages take more memory than the
/// program asked for.
pub const MISSING: u64 = 51;
/// Time between two looks. Linux and Trident have 10 s for all processes of a machine; ours.
const PERIOD: Time = Time::from_nanos(1_000_000_000);
/// Most of a processor that it takes: Trident, Figure 13.
const SHARE: f64 = 0.1;
/// Faults since the last look below which nothing can be there to be joined: a tenth of a huge page is missing at most.
const FAULTS: u64 = 512 - MISSING;
/// Share of the machine's memory below which nothing is joined: where Trident begins to take huge pages apart that hold
/// zeros, and to give those back (`recover_below`).
const SHORT: f64 = 0.15;

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promoted {
    /// Ranges of 2 MiB that were joined.
    pub done: u64,
    /// Ranges that could not be joined.
    pub failed: u64,
    /// Huge pages that were taken apart while memory was short.
    pub split: u64,
    /// Nanoseconds that it took.
    pub nanos: u64,
}

/// The policy and the memory.
#[derive(Debug)]
pub struct Promoter {
    policy: Trident,
    memory: OwnMemory,
    begin: u64,
    /// When the policy wants its next tick.
    next: Option<Moment>,
    /// Faults at the last look.
    faults: u64,
    promoted: Promoted,
    /// Memory is short while less than this share of it is free; and huge pages with zeros can then be taken apart.
    short: f64,
    recovers: bool,
}

/// What differs from Trident's defaults. There are no frames, so no compaction and no zeroing ahead; no 1 GiB pages, which
/// Linux has not in anonymous memory.
pub fn parameters() -> Parameters {
    Parameters {
        sizes: Sizes::HugeOnly,
        compaction: Compaction::None,
        zero: false,
        scan_sleep: PERIOD,
        max_cpu: SHARE,
        max_ptes_none: MISSING,
        ..Parameters::default()
    }
}

impl Promoter {
    /// Opens this process's memory and the policy. The first look is due after a period.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn open() -> Result<Promoter, String> {
        Promoter::with(SHORT, parameters().recover_until)
    }

    /// As [`Promoter::open`], where memory is short while less than a share `short` of it is free, and is taken back until
    /// it is `until`.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn with(short: f64, until: f64) -> Result<Promoter, String> {
        let memory = OwnMemory::open()?;
        let parameters = Parameters { recover_below: short, recover_until: until, ..parameters() };
        let (topology, capabilities) = (memory.topology(), memory.capabilities());
        let setup = Setup { topology, capabilities, seed: 0, profile: None };
        let policy = Trident::new(parameters, setup).map_err(|refusal| refusal.to_string())?;
        if let Some(lack) = capabilities.lacks(policy.needs().capabilities) {
            return Err(lack.to_string());
        }
        let recovers = capabilities.has(Capability::ZeroPages);
        let begin = system::now();
        let mut promoter = Promoter {
            policy,
            memory,
            begin,
            next: None,
            faults: 0,
            promoted: Promoted::default(),
            short,
            recovers,
        };
        promoter.call(&[Signal::Tick]);
        Ok(promoter)
    }

    /// Does what is due: ticks the policy, carries out its orders and answers them. After each, `go_on` is called with what
    /// was done so far, and says whether to go on. Returns the nanoseconds until it wants to be called again.
    pub fn step(&mut self, go_on: &mut dyn FnMut(Promoted) -> bool) -> u64 {
        let now = self.now();
        match self.next {
            Some(next) if next > now => next.0 - now.0,
            Some(_) => {
                let faults = system::minor_faults();
                let is_quiet = faults < self.faults + FAULTS;
                if is_quiet && !self.recovers {
                    return PERIOD.0 / 1_000_000;
                }
                let is_short = self.is_short();
                self.memory.set_short(is_short);
                if if is_short { !self.recovers } else { is_quiet } {
                    return PERIOD.0 / 1_000_000;
                }
                self.memory.look();
                if is_short {
                    let signals = self.memory.huge_pages();
                    self.call(&signals);
                }
                self.faults = faults;
                self.call(&[Signal::Tick]);
                while go_on(self.promoted)
                    && let Some(signal) = self.memory.carry_out()
                {
                    self.count(&signal);
                    self.call(&[signal]);
                }
                self.next.map_or(PERIOD.0 / 1_000_000, |next| next.0.saturating_sub(self.now().0))
            }
            None => PERIOD.0 / 1_000_000,
        }
    }

    /// Whether memory is short, as it is now.
    pub fn is_short(&mut self) -> bool {
        self.memory.look_at_memory();
        self.memory.free_share() < self.short
    }

    /// What was done so far.
    pub fn promoted(&self) -> Promoted {
        self.promoted
    }

    fn now(&self) -> Moment {
        Moment(system::now() - self.begin)
    }

    fn count(&mut self, signal: &Signal) {
        if let Signal::Done { outcome, cost, .. } = signal {
            let is_done = *outcome == Outcome::Done;
            if is_done && cost.copied == 0 {
                self.promoted.split += 1;
                return;
            }
            self.promoted.done += u64::from(is_done);
            self.promoted.failed += u64::from(!is_done);
            self.promoted.nanos += cost.time.0 / 1_000_000;
        }
    }

    fn call(&mut self, signals: &[Signal]) {
        let now = self.now();
        match self.policy.on(now, signals, &mut self.memory) {
            NextTick::Unchanged => {}
            NextTick::At(at) => self.next = Some(at),
            NextTick::Never => self.next = None,
        }
    }
}
