//! The interval model of a core.
//!
//! Instructions are dispatched at `base_cpi` until something stops them. Independent misses inside the reorder buffer
//! overlap, since dispatch goes on behind them; a load whose address depends on an earlier one starts when that one is
//! done. When the oldest unfinished load lies a whole reorder buffer back, dispatch waits for it, and the wait is
//! blamed on translation, caches and memory in proportion to their shares of that load's latency: a part of it that
//! passed while dispatch still went on delayed the end as much as any other. Stores
//! retire into a store buffer and drain in order; dispatch waits when it is full.
//!
//! Idea: Genbrugge, Eyerman, Eeckhout, "Interval simulation", HPCA 2010, with the reorder buffer tracked per load
//! instead of by interval analysis.

use super::clock::{Clock, Timeline};
use super::model::{CoreModel, Hits, holder};
use super::parameters::CoreParameters;
use super::store_buffer::StoreBuffer;
use serde::{Deserialize, Serialize};
use terrace_model::Time;
use terrace_model::parameters::Parameters;

/// The interval model has no keys beyond those of all cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {}

#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    instruction: u64,
    timeline: Timeline,
}

/// Loads whose completion a later load may depend on: `depends_on` is one byte.
const LOADS_KEPT: usize = 256;

/// An out-of-order core.
#[derive(Clone, Debug)]
pub struct Interval {
    instruction_time: Time,
    reorder_buffer: u64,
    /// A load that is done sooner than this after its dispatch can never hold the reorder buffer up: filling the
    /// buffer behind it takes that long.
    hidden: Time,
    /// Unfinished loads, oldest first, as a ring.
    in_flight: Box<[InFlight]>,
    head: usize,
    tail: usize,
    /// Number of the instruction at which dispatch waits for the load at `head`; never when there is none.
    blocks_at: u64,
    load_done: Box<[Time; LOADS_KEPT]>,
    loads: usize,
    /// Loads before this one were drained: nobody waits for them.
    drained_loads: usize,
    stores: StoreBuffer,
}

impl Interval {
    /// Waits for the loads that lie a whole reorder buffer back.
    #[inline]
    fn make_room(&mut self, clock: &mut Clock) {
        while clock.instructions >= self.blocks_at {
            self.wait_for_oldest(clock);
        }
    }

    #[inline]
    fn wait_for_oldest(&mut self, clock: &mut Clock) {
        let mask = self.in_flight.len() - 1;
        let timeline = self.in_flight[self.head & mask].timeline;
        clock.wait_for(&timeline);
        self.head = self.head.wrapping_add(1);
        self.blocks_at = if self.head == self.tail {
            u64::MAX
        } else {
            self.in_flight[self.head & mask].instruction + self.reorder_buffer
        };
    }

    /// The oldest loads that are done leave: dispatch would pass them without a wait.
    #[inline]
    fn pass_done(&mut self, clock: &Clock) {
        let mask = self.in_flight.len() - 1;
        let head = self.head;
        while self.head != self.tail && self.in_flight[self.head & mask].timeline.done <= clock.now {
            self.head = self.head.wrapping_add(1);
        }
        if self.head == self.tail {
            self.blocks_at = u64::MAX;
        } else if self.head != head {
            self.blocks_at = self.in_flight[self.head & mask].instruction + self.reorder_buffer;
        }
    }

    /// A [`Timeline`] is in flight. Its times come one by one and stay in registers: written to memory and read again at
    /// once as a whole, they would hold the host up.
    #[inline(always)]
    fn push(
        &mut self,
        clock: &mut Clock,
        start: Time,
        translated: Time,
        cache_start: Time,
        cache_end: Time,
        done: Time,
    ) {
        if self.tail.wrapping_sub(self.head) == self.in_flight.len() {
            // More accesses than instructions (several per instruction): the oldest must go first.
            self.wait_for_oldest(clock);
        }
        if self.head == self.tail {
            self.blocks_at = clock.instructions + self.reorder_buffer;
        }
        let at = self.tail & (self.in_flight.len() - 1);
        let timeline = Timeline { start, translated, cache_start, cache_end, done };
        self.in_flight[at] = InFlight { instruction: clock.instructions, timeline };
        self.tail = self.tail.wrapping_add(1);
    }
}

impl CoreModel for Interval {
    type Keys = Keys;

    fn new(parameters: &CoreParameters, _: &Keys) -> Interval {
        let reorder_buffer = u64::from(parameters.reorder_buffer.max(1));
        // Every load in flight is a different instruction or the second access of one.
        let ring = (2 * reorder_buffer as usize + 4).next_power_of_two();
        let instruction_time = parameters.instruction_time();
        Interval {
            instruction_time,
            reorder_buffer,
            hidden: instruction_time.times(reorder_buffer),
            in_flight: vec![InFlight::default(); ring].into(),
            head: 0,
            tail: 0,
            blocks_at: u64::MAX,
            load_done: Box::new([Time::ZERO; LOADS_KEPT]),
            loads: 0,
            drained_loads: 0,
            stores: StoreBuffer::new(parameters.store_buffer, parameters.frequency.period()),
        }
    }

    #[inline(always)]
    fn dispatch(&mut self, clock: &mut Clock, count: u64) {
        clock.pass(count, self.instruction_time.times(count));
        if clock.instructions >= self.blocks_at {
            self.make_room(clock);
        }
    }

    /// What lies a whole reorder buffer back is waited for where the instructions come to it. Dispatched together, they
    /// would hide loads of any latency.
    fn compute(&mut self, clock: &mut Clock, mut count: u64) {
        while let Some(room) = self.blocks_at.checked_sub(clock.instructions).filter(|room| *room <= count) {
            self.dispatch(clock, room);
            count -= room;
        }
        self.dispatch(clock, count);
    }

    fn take_back(&mut self, clock: &mut Clock, count: u64) {
        clock.take_back(count, self.instruction_time.times(count));
    }

    #[inline(always)]
    fn operands_ready(&mut self, clock: &mut Clock, depends_on: u8) -> Time {
        let producer = self.loads.wrapping_sub(depends_on as usize);
        // The counts go up for ever, so differences compare them.
        if depends_on == 0 || (producer.wrapping_sub(self.drained_loads) as isize) < 0 {
            return clock.now;
        }
        clock.now.max(self.load_done[producer % LOADS_KEPT])
    }

    #[inline(always)]
    fn hit(&mut self, clock: &mut Clock, write: bool, start: Time, hit: Time, done: Time) {
        if write {
            self.stores.make_room(clock);
            self.stores.push(start, start, start, hit, done);
        } else {
            self.load_done[self.loads % LOADS_KEPT] = done;
            self.loads = self.loads.wrapping_add(1);
            if done > clock.now + self.hidden {
                self.push(clock, start, start, start, hit, done);
            }
        }
    }

    /// What each access moves stays in registers meanwhile.
    #[inline(always)]
    fn run_hits(&mut self, clock: &mut Clock, hits: &mut impl Hits, from: usize, horizon: Time) -> usize {
        let (mut now, mut instructions, mut loads) = (clock.now, clock.instructions, self.loads);
        let mut at = from;
        while let Some(hit) = hits.get(at) {
            let dispatched = instructions + hit.instructions;
            if dispatched >= self.blocks_at {
                break;
            }
            let then = now + self.instruction_time.times(hit.instructions);
            let producer = loads.wrapping_sub(hit.depends_on as usize);
            let start = if hit.depends_on == 0 || (producer.wrapping_sub(self.drained_loads) as isize) < 0 {
                then
            } else {
                then.max(self.load_done[producer % LOADS_KEPT])
            };
            if hit.write {
                if self.stores.is_full(then) {
                    break;
                }
                self.stores.push(start, start, start, start, start);
            } else {
                if start > then + self.hidden {
                    break;
                }
                self.load_done[loads % LOADS_KEPT] = start;
                loads = loads.wrapping_add(1);
            }
            hits.count();
            (now, instructions) = (then, dispatched);
            at += 1;
            if now > horizon {
                break;
            }
        }
        clock.pass(instructions - clock.instructions, now - clock.now);
        self.loads = loads;
        at
    }

    #[inline(always)]
    fn load(&mut self, clock: &mut Clock, timeline: Timeline) {
        self.load_done[self.loads % LOADS_KEPT] = timeline.done;
        self.loads = self.loads.wrapping_add(1);
        if timeline.done > clock.now + self.hidden {
            let Timeline { start, translated, cache_start, cache_end, done } = timeline;
            self.push(clock, start, translated, cache_start, cache_end, done);
        }
    }

    #[inline(always)]
    fn store(&mut self, clock: &mut Clock, timeline: Timeline) {
        self.stores.make_room(clock);
        if timeline.translated > clock.now + self.hidden {
            let Timeline { start, translated, .. } = timeline;
            self.push(clock, start, translated, translated, translated, translated);
        }
        let Timeline { start, translated, cache_start, cache_end, done } = timeline;
        self.stores.push(start, translated, cache_start, cache_end, done);
    }

    #[inline]
    fn in_flight(&self) -> impl Iterator<Item = &Timeline> {
        let mask = self.in_flight.len() - 1;
        let count = self.tail.wrapping_sub(self.head);
        (0..count).map(move |at| &self.in_flight[self.head.wrapping_add(at) & mask].timeline)
    }

    fn holder(&mut self, clock: &Clock, free: Time) -> Option<Timeline> {
        self.pass_done(clock);
        holder(self.in_flight(), clock.now, free)
    }

    fn loads_done(&self, clock: &Clock) -> Time {
        // The last loads were too quick to be in flight.
        let last = self.load_done[self.loads.wrapping_sub(1) % LOADS_KEPT];
        self.in_flight().map(|load| load.done).fold(clock.now.max(last), Time::max)
    }

    fn drain(&mut self, clock: &mut Clock) {
        while self.head != self.tail {
            self.wait_for_oldest(clock);
        }
        self.stores.drain(clock);
        self.drained_loads = self.loads;
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::Blame;
    use super::super::{ModelParameters, Pipeline};
    use super::super::model::Hit;
    use super::super::parameters::CoreParameters;
    use super::*;
    use proptest::prelude::*;

    /// 1 GHz, so that a cycle is 1 ns; one instruction per cycle.
    fn core(reorder_buffer: u32) -> Pipeline {
        let model = ModelParameters::default();
        Pipeline::new(&CoreParameters { reorder_buffer, ..CoreParameters::simple(model) })
    }

    const fn ns(n: u64) -> Time {
        Time::from_nanos(n)
    }

    fn miss(start: Time, latency: Time) -> Timeline {
        Timeline { start, translated: start, cache_start: start, cache_end: start, done: start + latency }
    }

    #[test]
    fn independent_misses_overlap_and_dependent_ones_add_up() {
        for (depends_on, expected) in [(0, 103), (1, 401)] {
            let mut core = core(64);
            for _ in 0..4 {
                core.dispatch(1);
                let start = core.operands_ready(depends_on);
                core.load(miss(start, ns(100)));
            }
            core.drain();
            assert_eq!(core.now, ns(expected) + if depends_on == 0 { ns(1) } else { Time::ZERO });
            assert_eq!(core.blame.base, ns(4));
            assert_eq!(core.blame.total(), core.now);
        }
    }

    #[test]
    fn a_full_reorder_buffer_waits_for_the_oldest() {
        let mut core = core(8);
        core.dispatch(1);
        core.load(miss(core.now, ns(100)));
        core.dispatch(7);
        assert_eq!(core.now, ns(8), "seven more fit");
        core.dispatch(1);
        assert_eq!(core.now, ns(101), "the eighth waits until the load of time 1 is done");
        assert_eq!(core.blame.memory, ns(92));
    }

    #[test]
    fn computing_hides_no_more_than_a_reorder_buffer() {
        let run = |go: &dyn Fn(&mut Pipeline)| {
            let mut core = core(8);
            for latency in [100, 300, 50] {
                core.dispatch(1);
                core.load(miss(core.now, ns(latency)));
            }
            go(&mut core);
            (core.now, core.blame, core.instructions)
        };
        let together = run(&|core| core.compute(1000));
        assert_eq!(together, run(&|core| (0..1000).for_each(|_| core.dispatch(1))));
        assert_eq!(together, run(&|core| (0..10).for_each(|_| core.compute(100))));
        // The load of time 2 is done at 302, and the tenth instruction waits for it.
        assert_eq!(together.0, ns(302 + 1003 - 10));
    }

    #[test]
    fn a_full_store_buffer_waits_and_stores_drain_in_order() {
        let mut core = core(64);
        for latency in [100, 10, 10] {
            core.dispatch(1);
            core.store(miss(core.now, ns(latency)));
        }
        assert_eq!(core.now, ns(101), "the third needs the first one's entry");
        core.drain();
        // The third is issued by its caller at time 3 and has its line at 13, but drains after the second one, which
        // drained a cycle after the first.
        assert_eq!(core.now, ns(103));
    }

    #[test]
    fn a_wait_is_blamed_on_the_parts_of_the_latency() {
        let timeline = Timeline {
            start: ns(1),
            translated: ns(11),
            cache_start: ns(13),
            cache_end: ns(20),
            done: ns(51),
        };
        // Half of the latency passes behind other instructions; the other half is blamed in the same proportions.
        let mut core = core(25);
        core.dispatch(1);
        core.load(timeline);
        core.dispatch(25);
        let Blame { base, translation, cache, memory, os } = core.blame;
        assert_eq!((base, os), (ns(26), ns(0)));
        assert_eq!((translation, cache, memory), (ns(5), Time(ns(7).0 / 2), Time(ns(33).0 / 2)));
    }

    /// The register that is free at 56 ns is held by a load of which 10 of 50 ns are translation, and 7 caches.
    #[test]
    fn a_wait_for_a_register_is_blamed_on_what_holds_it() {
        let mut core = core(25);
        core.dispatch(1);
        core.wait_for_register(ns(5), ns(6));
        assert_eq!((core.now, core.blame.memory), (ns(6), ns(5)), "no load is known to hold one");
        core.load(Timeline { translated: ns(66), ..miss(ns(6), ns(100)) });
        let [start, translated, cache_start, cache_end, done] = [6, 16, 18, 25, 56].map(ns);
        core.load(Timeline { start, translated, cache_start, cache_end, done });
        core.wait_for_register(ns(25), ns(56));
        let Blame { base, translation, cache, memory, os } = core.blame;
        assert_eq!((core.now, base, os), (ns(31), ns(1), ns(0)));
        assert_eq!((translation, cache, memory), (ns(5), Time(ns(7).0 / 2), ns(5) + Time(ns(33).0 / 2)));
        // One that no load holds is held by the walk of the oldest, as long as that lasts.
        core.wait_for_register(ns(10), ns(60));
        assert_eq!((core.blame.translation, core.blame.memory), (translation + ns(10), memory));
        core.wait_for_register(ns(10), ns(70));
        assert_eq!((core.blame.translation, core.blame.memory), (translation + ns(10), memory + ns(10)));
    }

    struct List(Vec<Hit>);

    impl Hits for List {
        fn get(&mut self, at: usize) -> Option<Hit> {
            self.0.get(at).copied()
        }

        fn count(&mut self) {}
    }

    fn one(core: &mut Pipeline, hit: Hit) {
        core.dispatch(hit.instructions);
        let start = core.operands_ready(hit.depends_on);
        core.hit(hit.write, start, start, start);
    }

    proptest! {
        /// Loads that are done leave early where somebody asks what holds a register: neither the answer nor the clock
        /// differ.
        #[test]
        fn asking_what_holds_a_register_changes_nothing(
            loads in prop::collection::vec((1u64..12, 0u64..300, 0usize..8), 1..200),
        ) {
            let parameters = CoreParameters { reorder_buffer: 16, ..CoreParameters::simple(ModelParameters::default()) };
            let (mut asked, mut other) = (Interval::new(&parameters, &Keys {}), Interval::new(&parameters, &Keys {}));
            let (mut clock, mut expected) = (Clock::default(), Clock::default());
            let mut done = vec![Time::ZERO];
            for (instructions, latency, back) in loads {
                asked.dispatch(&mut clock, instructions);
                other.dispatch(&mut expected, instructions);
                prop_assert_eq!(format!("{:?}", clock), format!("{:?}", expected));
                let timeline = miss(clock.now, ns(latency));
                if let Some(&free) = done.get(done.len().wrapping_sub(back)) {
                    let of_all = holder(other.in_flight(), clock.now, free);
                    prop_assert_eq!(asked.holder(&clock, free), of_all);
                }
                done.push(timeline.done);
                asked.load(&mut clock, timeline);
                other.load(&mut expected, timeline);
            }
            asked.drain(&mut clock);
            other.drain(&mut expected);
            prop_assert_eq!(format!("{:?}", clock), format!("{:?}", expected));
        }

        #[test]
        fn hits_in_a_row_are_hits_one_by_one(
            items in prop::collection::vec((0u64..20, 0u8..5, any::<bool>(), 0u64..1000), 0..300), horizon in 0u64..6000,
        ) {
            let hits = items.iter().map(|&(instructions, depends_on, write, _)| Hit { instructions, depends_on, write });
            let mut hits = List(hits.collect());
            let (mut core, mut expected) = (core(32), core(32));
            let mut at = 0;
            while at < hits.0.len() {
                let reached = core.run_hits(&mut hits, at, ns(horizon));
                for made in at..reached {
                    prop_assert!(made == at || expected.now <= ns(horizon), "it went on behind the horizon");
                    one(&mut expected, hits.0[made]);
                }
                prop_assert_eq!(format!("{:?}", core), format!("{:?}", expected));
                at = reached;
                if let Some(&hit) = hits.0.get(at) {
                    for core in [&mut core, &mut expected] {
                        one(core, hit);
                        // Something slower between, so that later accesses have something to wait for.
                        core.dispatch(1);
                        core.access(hit.write, miss(core.now, ns(items[at].3)));
                    }
                    at += 1;
                }
            }
        }
    }
}
