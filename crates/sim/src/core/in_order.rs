//! A blocking in-order pipeline that stalls on use.
//!
//! **What it does.** Instructions issue in program order, each in `base_cpi` cycles. A load that misses does not stop the
//! pipeline; the first access that needs its result does, and everything behind that access waits with it. Results of
//! at most [`loads`](Keys::loads) loads may be outstanding: the load that takes the last entry holds the pipeline until the
//! oldest of them is there. Stores wait for their translation, then retire into the store buffer and drain in order; the
//! pipeline waits when it is full. What a wait is blamed on are the parts of the latency of the load that is waited for,
//! as in the interval model.
//!
//! **Source.** Stall on use, as the in-order baseline of Carlson et al., "The Load Slice Core Microarchitecture", ISCA 2015,
//! and of the slice-out-of-order cores after it.
//!
//! **Left open, and chosen here.** *Uses between accesses*: the input says which access needs which load, and nothing of the
//! arithmetic between them, so that arithmetic never stalls; `loads = 1` is the other bound, a pipeline that stalls on
//! every miss. *Eight loads* are an assumption of ours, as many as misses that such a core's L1 follows; the miss
//! registers of `cache.l1.outstanding` limit them beside this. *Results come in order*: an entry is free again
//! when the loads before it are done, too. *The reorder buffer* of a design is of no effect.

use super::clock::{Clock, Timeline};
use super::model::CoreModel;
use super::parameters::CoreParameters;
use super::store_buffer::StoreBuffer;
use serde::{Deserialize, Serialize};
use terrace_model::Time;
use terrace_model::parameters::Parameters;

/// Keys of the in-order model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    /// Loads whose results may be outstanding. With 1 every load is waited for. An access depends on one of the last 255
    /// loads, so more than 256 change nothing.
    #[parameter(default = 8, range = 1..=256, source = "assumed")]
    pub loads: u32,
}

/// An in-order core.
#[derive(Clone, Debug)]
pub struct InOrder {
    instruction_time: Time,
    /// The last loads, as a ring. Loads before them are done.
    results: Box<[Timeline]>,
    /// Where the next load goes; the oldest lies there, too.
    at: usize,
    stores: StoreBuffer,
}

impl CoreModel for InOrder {
    type Keys = Keys;

    fn new(parameters: &CoreParameters, keys: &Keys) -> InOrder {
        InOrder {
            instruction_time: parameters.instruction_time(),
            results: vec![Timeline::default(); keys.loads.max(1) as usize].into(),
            at: 0,
            stores: StoreBuffer::new(parameters.store_buffer, parameters.frequency.period()),
        }
    }

    #[inline(always)]
    fn dispatch(&mut self, clock: &mut Clock, count: u64) {
        clock.pass(count, self.instruction_time.times(count));
    }

    fn take_back(&mut self, clock: &mut Clock, count: u64) {
        clock.take_back(count, self.instruction_time.times(count));
    }

    #[inline(never)]
    fn operands_ready(&mut self, clock: &mut Clock, depends_on: u8) -> Time {
        let back = usize::from(depends_on);
        if back != 0 && back < self.results.len() {
            let producer = (self.at + self.results.len() - back) % self.results.len();
            clock.wait_for(&self.results[producer]);
        }
        clock.now
    }

    #[inline(never)]
    fn load(&mut self, clock: &mut Clock, timeline: Timeline) {
        self.results[self.at] = timeline;
        self.at = if self.at + 1 == self.results.len() { 0 } else { self.at + 1 };
        clock.wait_for(&self.results[self.at]);
    }

    #[inline(never)]
    fn store(&mut self, clock: &mut Clock, timeline: Timeline) {
        self.stores.make_room(clock);
        clock.wait_for(&timeline.translation());
        let Timeline { start, translated, cache_start, cache_end, done } = timeline;
        self.stores.push(start, translated, cache_start, cache_end, done);
    }

    fn in_flight(&self) -> impl Iterator<Item = &Timeline> {
        let (newer, older) = self.results.split_at(self.at);
        older.iter().chain(newer)
    }

    fn loads_done(&self, clock: &Clock) -> Time {
        self.results.iter().map(|load| load.done).fold(clock.now, Time::max)
    }

    fn drain(&mut self, clock: &mut Clock) {
        for back in 0..self.results.len() {
            clock.wait_for(&self.results[(self.at + back) % self.results.len()]);
        }
        self.stores.drain(clock);
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::Blame;
    use super::super::{ModelParameters, Pipeline};
    use super::*;

    /// 1 GHz, so that a cycle is 1 ns; one instruction per cycle; two entries in the store buffer.
    fn core(loads: u32) -> Pipeline {
        Pipeline::new(&CoreParameters::simple(ModelParameters::InOrder(Keys { loads })))
    }

    const fn ns(n: u64) -> Time {
        Time::from_nanos(n)
    }

    fn miss(start: Time, latency: Time) -> Timeline {
        Timeline { start, translated: start, cache_start: start, cache_end: start, done: start + latency }
    }

    /// `count` loads of 100 ns, each an instruction, until all are done.
    fn loads(loads: u32, count: usize, depends_on: u8) -> Pipeline {
        let mut core = core(loads);
        for _ in 0..count {
            core.dispatch(1);
            let start = core.operands_ready(depends_on);
            core.load(miss(start, ns(100)));
        }
        core.drain();
        assert_eq!(core.blame.total(), core.now);
        core
    }

    #[test]
    fn a_chain_of_misses_costs_each_latency() {
        // The first instruction takes 1 ns; the others pass while the load before is waited for.
        for count in [1, 2, 7, 20] {
            assert_eq!(loads(8, count, 1).now, ns(1 + 100 * count as u64));
        }
    }

    #[test]
    fn independent_misses_overlap_up_to_the_entries() {
        // The last of four starts at 4.
        assert_eq!(loads(8, 4, 0).now, ns(104));
        // The eighth holds the pipeline until the first is done, at 101; the ninth starts at 102.
        assert_eq!(loads(8, 9, 0).now, ns(202));
        // Pairs: 2 ns begin the first two, the second waits until 101, the third starts at 102 and waits for the second;
        // the fourth starts at 103 and waits for the third until 202; the fifth at 203.
        assert_eq!(loads(2, 5, 0).now, ns(303));
        // One entry: every load is waited for.
        assert_eq!(loads(1, 3, 0).now, ns(303));
    }

    #[test]
    fn what_does_not_use_a_load_goes_on_until_what_does() {
        let mut core = core(8);
        core.dispatch(1);
        core.load(miss(core.now, ns(100)));
        core.dispatch(1);
        core.load(miss(core.now, ns(300)));
        core.compute(50);
        assert_eq!(core.now, ns(52), "computing needs neither");
        assert_eq!(core.operands_ready(2), ns(101), "the first load");
        core.dispatch(1);
        assert_eq!(core.operands_ready(0), ns(102), "an independent access starts behind the stall");
        assert_eq!(core.operands_ready(1), ns(302), "the second load");
        assert_eq!(core.operands_ready(255), ns(302), "long done");
        assert_eq!((core.blame.base, core.blame.memory), (ns(53), ns(249)));
    }

    #[test]
    fn stores_hide_behind_the_buffer_until_it_is_full() {
        let mut core = core(8);
        for expected in [1, 2] {
            core.dispatch(1);
            core.store(miss(core.now, ns(100)));
            assert_eq!(core.now, ns(expected));
        }
        core.dispatch(1);
        core.store(miss(core.now, ns(100)));
        assert_eq!(core.now, ns(101), "the third needs the first one's entry");
        core.drain();
        // The second drained at 102, and the third, which was sent at 3, a cycle after it.
        assert_eq!(core.now, ns(103));
    }

    #[test]
    fn a_store_waits_for_its_translation() {
        let mut core = core(8);
        core.dispatch(1);
        core.store(Timeline {
            start: ns(1),
            translated: ns(31),
            cache_start: ns(31),
            cache_end: ns(40),
            done: ns(90),
        });
        assert_eq!((core.now, core.blame.translation), (ns(31), ns(30)));
    }

    #[test]
    fn a_wait_is_blamed_on_the_parts_of_the_latency() {
        let mut core = core(1);
        core.dispatch(1);
        core.load(Timeline {
            start: ns(1),
            translated: ns(11),
            cache_start: ns(13),
            cache_end: ns(20),
            done: ns(51),
        });
        let Blame { base, translation, cache, memory, os } = core.blame;
        assert_eq!((base, translation, cache, memory, os), (ns(1), ns(10), ns(7), ns(2 + 31), ns(0)));
    }

    #[test]
    fn a_wait_for_a_register_is_blamed_on_what_holds_it() {
        let mut core = core(4);
        core.dispatch(1);
        for latency in [20, 100] {
            let [start, translated, done] = [1, 11, 1 + latency].map(ns);
            core.load(Timeline { start, translated, cache_start: translated, cache_end: translated, done });
        }
        core.wait_for_register(ns(20), ns(21));
        assert_eq!((core.now, core.blame.translation, core.blame.memory), (ns(21), ns(10), ns(10)));
        core.wait_for_register(ns(50), ns(101));
        assert_eq!((core.blame.translation, core.blame.memory), (ns(15), ns(55)));
    }
}
