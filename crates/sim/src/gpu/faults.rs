//! Faults of SMs: so many may be pending, and a page that is touched first can wait for the system's answer.
//!
//! **What it does.** The page that a GPU touches first is placed by the system, which takes tens of microseconds: the
//! fault goes to the CPU and the answer comes back. The warp that faults waits, and so does whoever else touches the page;
//! other warps go on, until an SM has sixteen faults pending: with the seventeenth it issues nothing.
//!
//! **Source.** Agarwal 2017, section 5.2.3 and table 5.3, for faults of stores to read-only pages: 20 us where nothing
//! else is pending, swept to 40 us; 16 pending faults of an SM.
//!
//! **Left open there, and chosen here.** Faults do not wait for each other at the CPU. The access is carried out after one
//! more walk. Programs of the source allocate the GPU's memory before kernels run, so that the latency is zero unless it
//! is asked for; a first touch then takes `os.fault_cost`, as one of the host does.

use super::parameters::GpuFaultParameters;
use crate::cache::Outstanding;
use std::collections::HashMap;
use terrace_model::{PageId, Time};

/// The faults that SMs have pending.
#[derive(Debug)]
pub struct PendingFaults {
    /// Pending faults of each SM.
    faults: Vec<Outstanding>,
    /// Until when each SM issues nothing.
    blocked: Vec<Time>,
    /// Faults that found their SM with as many pending as it may have.
    pub waited: u64,
}

impl PendingFaults {
    /// None pending, and at most `most` of each SM.
    pub fn new(most: u32, sms: u32) -> PendingFaults {
        PendingFaults {
            faults: vec![Outstanding::new(most); sms as usize],
            blocked: vec![Time::ZERO; sms as usize],
            waited: 0,
        }
    }

    /// Until when an SM issues nothing.
    pub fn blocked_until(&self, sm: usize) -> Time {
        self.blocked[sm]
    }

    /// An SM faults at `now`: when the fault that takes `latency` is over.
    pub fn fault(&mut self, sm: usize, now: Time, latency: Time) -> Time {
        let begin = self.faults[sm].start(now);
        if begin > now {
            self.waited += 1;
            self.blocked[sm] = self.blocked[sm].max(begin);
        }
        let done = begin + latency;
        self.faults[sm].occupy(done);
        done
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstTouchCounters {
    /// Accesses that waited for a page that another access had touched first.
    pub joined: u64,
    /// Time from touch to page, summed over faults.
    pub time: Time,
}

/// Pages that the GPU touches first.
#[derive(Debug)]
pub struct FirstTouches {
    latency: Time,
    pub pending: PendingFaults,
    /// When each page can be used whose fault may not be over.
    arriving: HashMap<PageId, Time>,
    /// Until when the warp that accesses memory waits.
    warp: Time,
    pub counters: FirstTouchCounters,
}

impl FirstTouches {
    /// No page was touched.
    pub fn new(parameters: &GpuFaultParameters, sms: u32) -> FirstTouches {
        FirstTouches {
            latency: parameters.latency,
            pending: PendingFaults::new(parameters.pending, sms),
            arriving: HashMap::new(),
            warp: Time::ZERO,
            counters: FirstTouchCounters::default(),
        }
    }

    /// Whether first touches take the GPU's way.
    pub fn take_time(&self) -> bool {
        self.latency > Time::ZERO
    }

    /// A kernel begins; the faults of the last are over.
    pub fn begin_kernel(&mut self) {
        self.arriving.clear();
    }

    /// An SM touches a page first at `now`: when it can use it, after a `walk`.
    pub fn fault(&mut self, sm: usize, page: PageId, now: Time, walk: Time) -> Time {
        let done = self.pending.fault(sm, now, self.latency) + walk;
        self.counters.time += done - now;
        self.arriving.insert(page, done);
        self.warp = self.warp.max(done);
        done
    }

    /// When an access at `now` to a page that was touched goes on.
    pub fn wait(&mut self, page: PageId, now: Time) -> Time {
        if self.arriving.is_empty() {
            return now;
        }
        match self.arriving.get(&page) {
            Some(done) if *done > now => {
                self.counters.joined += 1;
                self.warp = self.warp.max(*done);
                *done
            }
            _ => now,
        }
    }

    /// When the warp goes on whose access came last at `now`.
    pub fn warp_goes_on(&mut self, now: Time) -> Time {
        std::mem::take(&mut self.warp).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALK: Time = Time::from_nanos(100);

    fn us(micros: u64) -> Time {
        Time::from_nanos(1000 * micros)
    }

    #[test]
    fn the_seventeenth_fault_blocks_its_sm_until_the_first_is_over() {
        let mut touches =
            FirstTouches::new(&GpuFaultParameters { latency: us(20), ..GpuFaultParameters::default() }, 2);
        for page in 0..16 {
            let done = touches.fault(0, PageId::new(0, page), us(100 + page), WALK);
            assert_eq!(done, us(120 + page) + WALK);
        }
        assert_eq!(touches.pending.blocked_until(0), Time::ZERO);
        let done = touches.fault(0, PageId::new(0, 16), us(117), WALK);
        assert_eq!(done, us(140) + WALK, "it begins when the first ends");
        assert_eq!([0, 1].map(|sm| touches.pending.blocked_until(sm)), [us(120), Time::ZERO]);
        let done = touches.fault(1, PageId::new(0, 17), us(117), WALK);
        assert_eq!(done, us(137) + WALK, "another SM");
        assert_eq!(touches.pending.waited, 1);
        // 17 of 20 us and the walk, one of 3 us more.
        assert_eq!(touches.counters.time, us(18 * 20 + 3) + WALK.times(18));
    }

    #[test]
    fn whoever_touches_the_page_meanwhile_waits_for_it() {
        let mut touches =
            FirstTouches::new(&GpuFaultParameters { latency: us(20), ..GpuFaultParameters::default() }, 2);
        let (page, other) = (PageId::new(0, 5), PageId::new(0, 6));
        assert_eq!(touches.wait(page, us(100)), us(100), "nothing is pending");
        assert_eq!(touches.fault(0, page, us(100), WALK), us(120) + WALK);
        assert_eq!(touches.warp_goes_on(us(100)), us(120) + WALK);
        assert_eq!(touches.warp_goes_on(us(101)), us(101), "another warp");
        assert_eq!((touches.wait(page, us(110)), touches.wait(other, us(110))), (us(120) + WALK, us(110)));
        assert_eq!(touches.warp_goes_on(us(110)), us(120) + WALK);
        assert_eq!(touches.wait(page, us(130)), us(130), "it is there");
        assert_eq!(touches.counters.joined, 1);
        touches.begin_kernel();
        assert_eq!(touches.wait(page, us(110)), us(110));
    }
}
