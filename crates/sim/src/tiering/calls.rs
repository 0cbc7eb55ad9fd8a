//! When the policy is called, and its orders' turns among the cores.

use super::shootdown::complete;
use super::world::World;
use super::{State, Tiering, moment};
use crate::coherence::Cause;
use crate::core::END_OF_TIME;
use crate::machine::Machine;
use terrace_model::{PageSize, Time};
use terrace_policy::{NextTick, PageId, Signal};

/// Signals that are not urgent are handed over in batches of so many.
const BATCH: usize = 1024;

impl Tiering {
    /// When the policy is to be called or an order does something next.
    pub fn due(&self) -> Option<Time> {
        [self.call_due(), self.next_order()].into_iter().flatten().min()
    }

    /// When an order does something next; none when all are done.
    pub fn next_order(&self) -> Option<Time> {
        self.state.orders.first_key_value().map(|((next, _), _)| *next)
    }

    fn call_due(&self) -> Option<Time> {
        let state = &self.state;
        let now = (state.urgent || state.signals.len() >= BATCH).then_some(Time::ZERO);
        [state.tick, now].into_iter().flatten().min().map(|at| at.max(state.busy_until))
    }

    /// Does what is due first, at `now` or before.
    pub fn act<const F: u8>(&mut self, machine: &mut Machine, now: Time) {
        let call = self.call_due().unwrap_or(Time::MAX);
        match self.state.orders.pop_first() {
            Some(((next, ticket), mut order)) if next <= call => {
                if order.step::<F>(machine, &mut self.state) {
                    self.state.orders.insert((order.next(), ticket), order);
                } else {
                    order.end(&mut self.state);
                }
            }
            other => {
                self.state.orders.extend(other);
                self.call(machine, now);
            }
        }
        // What ended with an order or a watch.
        complete(machine, &mut self.state, Cause::Migration, now);
    }

    /// Checks that no page and no frame was lost or doubled.
    ///
    /// # Panics
    /// One was: a mistake in the simulator.
    pub fn audit(&self, machine: &Machine) {
        if let Err(problem) = self.state.audit(machine) {
            panic!("after {} calls of the policy: {problem}", self.state.counters.calls);
        }
    }

    /// Calls the policy with all signals since the last call.
    pub fn call(&mut self, machine: &mut Machine, now: Time) {
        let mut signals = std::mem::take(&mut self.state.signals);
        self.state.urgent = false;
        if self.state.tick.is_some_and(|tick| tick <= now) {
            self.state.tick = None;
            self.state.counters.ticked(now);
            signals.push(Signal::Tick);
        }
        if signals.is_empty() {
            return;
        }
        self.state.counters.calls += 1;
        if cfg!(debug_assertions) && self.state.counters.calls.is_power_of_two() {
            self.audit(machine);
        }
        self.state.account(machine.shared.system(self.state.system));
        let mut world = World { machine, state: &mut self.state, began: now, now };
        let next = self.policy.on(moment(now), &signals, &mut world);
        let busy_until = world.now;
        self.state.busy_until = busy_until;
        match next {
            NextTick::Unchanged => {}
            // Time goes on between two ticks. One beyond the end of simulated time never comes.
            NextTick::At(at) => {
                let tick = Time::from_nanos(at.0).max(now + Time::from_nanos(1));
                self.state.tick = (tick <= END_OF_TIME).then_some(tick);
            }
            NextTick::Never => self.state.tick = None,
        }
    }
}

impl State {
    /// Pages that threads may use again, and since when, since the last call.
    pub fn take_released(&mut self) -> Vec<(PageId, PageSize, Time)> {
        std::mem::take(&mut self.released)
    }

    /// Pages whose faults go on, and since when, since the last call.
    pub fn take_resumed(&mut self) -> Vec<(PageId, PageSize, Time)> {
        std::mem::take(&mut self.resumed)
    }
}
