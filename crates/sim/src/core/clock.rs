//! What all core models share: the clock, the counters, and what waits are blamed on.

use terrace_model::Time;

/// No clock may go beyond it: four and a half hours, which leaves room in [`Time`] for what is added to a clock.
pub const END_OF_TIME: Time = Time(u64::MAX / 8 * 7);

/// Time by what it is blamed on. The sum is the time the core was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// Dispatching the program's instructions.
    pub base: Time,
    /// Waiting for address translation.
    pub translation: Time,
    /// On the way through the caches: look-ups that hit, and those that went on to memory.
    pub cache: Time,
    /// Waiting for memory, a free miss register included.
    pub memory: Time,
    /// Page faults, context switches, and dispatching the instructions with which the kernel copies.
    pub os: Time,
}

impl Blame {
    /// All of it.
    pub fn total(&self) -> Time {
        self.base + self.translation + self.cache + self.memory + self.os
    }

    /// Without so much of its end, taken first from what is done in one go.
    pub fn without(&self, beyond: Time) -> Blame {
        let (mut rest, mut kept) = (beyond, *self);
        for part in [&mut kept.os, &mut kept.base, &mut kept.memory, &mut kept.translation, &mut kept.cache] {
            let taken = rest.min(*part);
            *part -= taken;
            rest -= taken;
        }
        kept
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

impl Timeline {
    /// The part of the timeline up to the translation.
    pub fn translation(self) -> Timeline {
        let translated = self.translated;
        Timeline { cache_start: translated, cache_end: translated, done: translated, ..self }
    }
}

/// A span as a real number. Through signed integers, which processors convert in one instruction; no span has the top bit.
#[inline(always)]
fn real(span: Time) -> f64 {
    span.0 as i64 as f64
}

/// The clock of a core and what it has counted. Every model moves it; the rest of the machine reads it.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// When the next instruction dispatches.
    pub now: Time,
    /// Instructions dispatched, those of the kernel's copies among them.
    pub instructions: u64,
    /// Instructions of the kernel's copies alone.
    pub kernel_instructions: u64,
    /// Where the time went.
    pub blame: Blame,
}

impl Clock {
    /// `count` instructions were dispatched in `span`.
    #[inline(always)]
    pub fn pass(&mut self, count: u64, span: Time) {
        self.now += span;
        self.blame.base += span;
        self.instructions += count;
    }

    /// Takes back what [`Clock::pass`] did.
    pub fn take_back(&mut self, count: u64, span: Time) {
        self.now -= span;
        self.blame.base -= span;
        self.instructions -= count;
    }

    /// Waits until an access is done, blaming its parts by their shares of its latency.
    #[inline]
    pub fn wait_for(&mut self, timeline: &Timeline) {
        if timeline.done > self.now {
            self.wait_as(timeline.done - self.now, timeline);
        }
    }

    /// Waits for `span`, blaming the parts of an access by their shares of its latency, which is not zero.
    #[inline]
    pub fn wait_as(&mut self, span: Time, timeline: &Timeline) {
        let Timeline { start, translated, cache_start, cache_end, done } = *timeline;
        self.now += span;
        if translated == start && cache_start == cache_end {
            self.blame.memory += span;
            return;
        }
        let share = real(span) / real(done - start);
        let part = |of: Time| Time((real(of) * share) as i64 as u64);
        // Rounded, the two may exceed the span where they are all of it.
        let translation = part(translated - start).min(span);
        let cache = part(cache_end - cache_start).min(span - translation);
        self.blame.translation += translation;
        self.blame.cache += cache;
        self.blame.memory += span - translation - cache;
    }

    /// The last `count` instructions, which were dispatched in `span`, are the kernel's.
    pub fn of_kernel(&mut self, count: u64, span: Time) {
        self.blame.base -= span;
        self.blame.os += span;
        self.kernel_instructions += count;
    }

    /// Instructions of the programs.
    pub fn program_instructions(&self) -> u64 {
        self.instructions - self.kernel_instructions
    }

    /// The kernel runs for `span`.
    pub fn kernel(&mut self, span: Time) {
        self.now += span;
        self.blame.os += span;
    }

    /// Dispatch stands still for `span` until memory has taken something, as a written page.
    pub fn wait_for_memory(&mut self, span: Time) {
        self.now += span;
        self.blame.memory += span;
    }

    /// The core idles until `time`; no component is blamed.
    pub fn idle_until(&mut self, time: Time) {
        self.now = self.now.max(time);
    }
}
