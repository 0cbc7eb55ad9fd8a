//! The interval model of a core.
//!
//! Instructions are dispatched at `base_cpi` until something stops them. Independent misses inside the reorder buffer
//! overlap, since dispatch goes on behind them; a load whose address depends on an earlier one starts when that one is
//! done. When the oldest unfinished load lies a whole reorder buffer back, dispatch waits for it, and the wait is
//! blamed on translation, caches and memory in proportion to their shares of that load's latency: a part of it that
//! passed while dispatch still went on delayed the end as much as any other. Stores retire into a store buffer and drain in order; dispatch waits when it is full. An in-order core waits for every load.
//!
//! Idea: Genbrugge, Eyerman, Eeckhout, "Interval simulation", HPCA 2010, with the reorder buffer tracked per load
//! instead of by interval analysis.

use super::parameters::{CoreKind, CoreParameters};
use terrace_model::Time;

/// Time by what it is blamed on. The sum is the time the core was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// Dispatching instructions.
    pub base: Time,
    /// Waiting for address translation.
    pub translation: Time,
    /// Waiting for data that was in a cache.
    pub cache: Time,
    /// Waiting for memory, a free miss register included.
    pub memory: Time,
    /// Page faults and context switches.
    pub os: Time,
}

impl Blame {
    /// All of it.
    pub fn total(&self) -> Time {
        self.base + self.translation + self.cache + self.memory + self.os
    }

    /// Adds another core's.
    pub fn add(&mut self, other: &Blame) {
        self.base += other.base;
        self.translation += other.translation;
        self.cache += other.cache;
        self.memory += other.memory;
        self.os += other.os;
    }
}

/// When the parts of an access end. Every field is at least the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The access was issued: its address operands were there.
    pub start: Time,
    /// The physical address is known.
    pub translated: Time,
    /// A miss register was free.
    pub cache_start: Time,
    /// All caches were looked up.
    pub cache_end: Time,
    /// The data is there.
    pub done: Time,
}

#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    instruction: u64,
    timeline: Timeline,
}

/// Loads whose completion a later load may depend on: `depends_on` is one byte.
const LOADS_KEPT: usize = 256;

/// One core's pipeline.
#[derive(Clone, Debug)]
pub struct Interval {
    /// When the next instruction dispatches.
    pub now: Time,
    /// Instructions dispatched.
    pub instructions: u64,
    /// Where the time went.
    pub blame: Blame,
    in_order: bool,
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
    /// Drain times of the last stores, as a ring of the store buffer's size, and what each waited for.
    store_done: Box<[Time]>,
    stores: Box<[Timeline]>,
    store_at: usize,
    last_drain: Time,
    cycle: Time,
}

impl Interval {
    /// An idle core at time zero.
    pub fn new(parameters: &CoreParameters) -> Interval {
        let cycle = parameters.frequency.period();
        let instruction_time = Time((cycle.0 as f64 * parameters.base_cpi).round() as u64);
        let reorder_buffer = u64::from(parameters.reorder_buffer.max(1));
        // Every load in flight is a different instruction or the second access of one.
        let ring = (2 * reorder_buffer as usize + 4).next_power_of_two();
        Interval {
            now: Time::ZERO,
            instructions: 0,
            blame: Blame::default(),
            in_order: parameters.kind == CoreKind::InOrder,
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
            store_done: vec![Time::ZERO; parameters.store_buffer.max(1) as usize].into(),
            stores: vec![Timeline::default(); parameters.store_buffer.max(1) as usize].into(),
            store_at: 0,
            last_drain: Time::ZERO,
            cycle,
        }
    }

    /// Dispatches `count` instructions; waits where the reorder buffer is full.
    #[inline(always)]
    pub fn dispatch(&mut self, count: u64) {
        let span = self.instruction_time.times(count);
        self.now += span;
        self.blame.base += span;
        self.instructions += count;
        if self.instructions >= self.blocks_at {
            self.make_room();
        }
    }

    /// Dispatches many instructions, as [`Interval::dispatch`] does one after the other: what lies a whole reorder buffer
    /// back is waited for where they come to it. Dispatched together, they would hide loads of any latency.
    pub fn compute(&mut self, mut count: u64) {
        while let Some(room) = self.blocks_at.checked_sub(self.instructions).filter(|room| *room <= count) {
            self.dispatch(room);
            count -= room;
        }
        self.dispatch(count);
    }

    /// Takes back the dispatch of the last `count` instructions: the access that they led to is made again later.
    pub fn take_back(&mut self, count: u64) {
        let span = self.instruction_time.times(count);
        self.now -= span;
        self.blame.base -= span;
        self.instructions -= count;
    }

    /// Waits for the loads that lie a whole reorder buffer back.
    #[inline]
    fn make_room(&mut self) {
        while self.instructions >= self.blocks_at {
            self.wait_for_oldest();
        }
    }

    #[inline]
    fn wait_for_oldest(&mut self) {
        let mask = self.in_flight.len() - 1;
        let timeline = self.in_flight[self.head & mask].timeline;
        self.wait_for(&timeline);
        self.head = self.head.wrapping_add(1);
        self.blocks_at = if self.head == self.tail {
            u64::MAX
        } else {
            self.in_flight[self.head & mask].instruction + self.reorder_buffer
        };
    }

    /// Waits until an access is done, blaming its parts by their shares of its latency.
    #[inline]
    fn wait_for(&mut self, timeline: &Timeline) {
        let Timeline { start, translated, cache_start, cache_end, done } = *timeline;
        if done <= self.now {
            return;
        }
        let span = done - self.now;
        self.now = done;
        if translated == start && cache_start == cache_end {
            self.blame.memory += span;
            return;
        }
        // At least the span's end belongs to the access, so its latency is not zero.
        let share = span.0 as f64 / (done - start).0 as f64;
        let part = |of: Time| Time((of.0 as f64 * share) as u64);
        let translation = part(translated - start);
        let cache = part(cache_end - cache_start);
        self.blame.translation += translation;
        self.blame.cache += cache;
        self.blame.memory += span - translation - cache;
    }

    /// When a load that depends on the one `depends_on` loads back may start.
    #[inline(always)]
    pub fn operands_ready(&self, depends_on: u8) -> Time {
        let producer = self.loads.wrapping_sub(depends_on as usize);
        // The counts go up for ever, so differences compare them.
        if depends_on == 0 || (producer.wrapping_sub(self.drained_loads) as isize) < 0 {
            return self.now;
        }
        self.now.max(self.load_done[producer % LOADS_KEPT])
    }

    /// An access issued at `start` that was looked up in L1 until `hit` and whose data is there at `done`. As
    /// [`Interval::load`] and [`Interval::store`] do, only faster.
    #[inline(always)]
    pub fn hit(&mut self, write: bool, start: Time, hit: Time, done: Time) {
        let timeline = |done| Timeline { start, translated: start, cache_start: start, cache_end: hit, done };
        if write {
            if self.store_done[self.store_at] > self.now {
                self.wait_for_store(self.store_at);
            }
            let done = done.max(self.last_drain + self.cycle);
            self.last_drain = done;
            self.store_done[self.store_at] = done;
            self.stores[self.store_at] = timeline(done);
            self.store_at = if self.store_at + 1 == self.stores.len() { 0 } else { self.store_at + 1 };
        } else {
            self.load_done[self.loads % LOADS_KEPT] = done;
            self.loads = self.loads.wrapping_add(1);
            if self.in_order {
                self.wait_for(&timeline(done));
            } else if done > self.now + self.hidden {
                self.push(timeline(done));
            }
        }
    }

    /// A load or a store was issued.
    #[inline(always)]
    pub fn access(&mut self, write: bool, timeline: Timeline) {
        if write { self.store(timeline) } else { self.load(timeline) }
    }

    /// A load was issued and will take its course.
    #[inline(always)]
    pub fn load(&mut self, timeline: Timeline) {
        self.load_done[self.loads % LOADS_KEPT] = timeline.done;
        self.loads = self.loads.wrapping_add(1);
        if self.in_order {
            self.wait_for(&timeline);
        } else if timeline.done > self.now + self.hidden {
            self.push(timeline);
        }
    }

    fn push(&mut self, timeline: Timeline) {
        if self.tail.wrapping_sub(self.head) == self.in_flight.len() {
            // More accesses than instructions (several per instruction): the oldest must go first.
            self.wait_for_oldest();
        }
        if self.head == self.tail {
            self.blocks_at = self.instructions + self.reorder_buffer;
        }
        let at = self.tail & (self.in_flight.len() - 1);
        self.in_flight[at] = InFlight { instruction: self.instructions, timeline };
        self.tail = self.tail.wrapping_add(1);
    }

    /// A store was issued. It needs its translation to retire and a free store-buffer entry; its data drains in order.
    #[inline(always)]
    pub fn store(&mut self, timeline: Timeline) {
        if self.store_done[self.store_at] > self.now {
            self.wait_for_store(self.store_at);
        }
        let translated = timeline.translated;
        if translated > self.now {
            let retire =
                Timeline { cache_start: translated, cache_end: translated, done: translated, ..timeline };
            if self.in_order {
                self.wait_for(&retire);
            } else if translated > self.now + self.hidden {
                self.push(retire);
            }
        }
        // In order, one per cycle at most.
        let done = timeline.done.max(self.last_drain + self.cycle);
        self.last_drain = done;
        self.store_done[self.store_at] = done;
        self.stores[self.store_at] = timeline;
        self.store_at = if self.store_at + 1 == self.stores.len() { 0 } else { self.store_at + 1 };
    }

    #[inline(never)]
    fn wait_for_store(&mut self, at: usize) {
        let timeline = Timeline { done: self.store_done[at], ..self.stores[at] };
        self.wait_for(&timeline);
    }

    /// The kernel runs on this core for `span`.
    pub fn kernel(&mut self, span: Time) {
        self.now += span;
        self.blame.os += span;
    }

    /// Dispatch stands still for `span` until memory has taken or freed something: a miss register, a written page.
    pub fn wait_for_memory(&mut self, span: Time) {
        self.now += span;
        self.blame.memory += span;
    }

    /// The core idles until `time`; no component is blamed.
    pub fn idle_until(&mut self, time: Time) {
        self.now = self.now.max(time);
    }

    /// When all loads issued so far are done: what a program that answers with what it has read waits for.
    pub fn loads_done(&self) -> Time {
        let mask = self.in_flight.len() - 1;
        let in_flight = (0..self.tail.wrapping_sub(self.head))
            .map(|at| self.in_flight[self.head.wrapping_add(at) & mask].timeline.done);
        // The last loads were too quick to be in flight.
        let last = self.load_done[self.loads.wrapping_sub(1) % LOADS_KEPT];
        in_flight.fold(self.now.max(last), Time::max)
    }

    /// Waits for everything in flight: the stream ends, or another takes the core.
    pub fn drain(&mut self) {
        while self.head != self.tail {
            self.wait_for_oldest();
        }
        // In the order of draining, which is that of their times.
        if self.last_drain > self.now {
            for at in 0..self.stores.len() {
                self.wait_for_store((self.store_at + at) % self.stores.len());
            }
        }
        self.drained_loads = self.loads;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::Frequency;

    /// 1 GHz, so that a cycle is 1 ns; one instruction per cycle.
    fn core(kind: CoreKind, reorder_buffer: u32) -> Interval {
        Interval::new(&CoreParameters {
            kind,
            count: 1,
            frequency: Frequency(1e9),
            dispatch_width: 1,
            reorder_buffer,
            store_buffer: 2,
            base_cpi: 1.0,
        })
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
            let mut core = core(CoreKind::OutOfOrder, 64);
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
        let mut core = core(CoreKind::OutOfOrder, 8);
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
        let run = |go: &dyn Fn(&mut Interval)| {
            let mut core = core(CoreKind::OutOfOrder, 8);
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
    fn an_in_order_core_waits_for_each() {
        let mut core = core(CoreKind::InOrder, 8);
        for _ in 0..3 {
            core.dispatch(1);
            core.load(miss(core.now, ns(10)));
        }
        assert_eq!(core.now, ns(33));
    }

    #[test]
    fn a_full_store_buffer_waits_and_stores_drain_in_order() {
        let mut core = core(CoreKind::OutOfOrder, 64);
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
        let mut core = core(CoreKind::InOrder, 8);
        core.dispatch(1);
        core.load(timeline);
        let Blame { base, translation, cache, memory, os } = core.blame;
        assert_eq!((base, translation, cache, memory, os), (ns(1), ns(10), ns(7), ns(2 + 31), ns(0)));

        // Half of the latency passes behind other instructions; the other half is blamed in the same proportions.
        let mut core = self::core(CoreKind::OutOfOrder, 25);
        core.dispatch(1);
        core.load(timeline);
        core.dispatch(25);
        let Blame { base, translation, cache, memory, os } = core.blame;
        assert_eq!((base, os), (ns(26), ns(0)));
        assert_eq!((translation, cache, memory), (ns(5), Time(ns(7).0 / 2), Time(ns(33).0 / 2)));
    }
}
