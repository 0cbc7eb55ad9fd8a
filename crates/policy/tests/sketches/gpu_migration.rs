//! Dynamic GPU migration (Agarwal, ch. 4): driven by the GPU's TLB misses, four moves in flight, neighbours of a page
//! within the same allocation enqueued furthest first, throttled by the share of traffic. Asked of the seam: TLB misses
//! by agent, the allocation around a page, the order of moves kept, the number in flight, and traffic per tier. That a
//! page the GPU never touched needs no shootdown is the world's to know; the answer's cost shows it.

use crate::two_tiers;
use std::collections::{BTreeMap, VecDeque};
use terrace_in_memory::Driver;
use terrace_model::{TierId, Time};
use terrace_policy::support::{Pending, Rates};
use terrace_policy::*;

const GPU_MEMORY: TierId = TierId(0);

struct GpuMigration {
    threshold: u32,
    expansion: u64,
    target: f64,
    touches: BTreeMap<PageId, u32>,
    queue: VecDeque<PageId>,
    pending: Pending,
    rates: Rates,
    in_flight: usize,
    most_in_flight: usize,
}

impl Policy for GpuMigration {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::TlbMisses, Capability::Traffic, Capability::Migration, Capability::Objects])
            .and_signals(&[SignalKind::TlbMiss])
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        Placement::tier(TierId(1))
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.pending.handle(signal);
            if *signal == Signal::Tick {
                let (traffic, _) = self.rates.since_last(now, memory);
                let bytes = |tier: usize| (traffic[tier].bytes_read() + traffic[tier].bytes_written()) as f64;
                let share = bytes(0) / (bytes(0) + bytes(1)).max(1.0);
                self.in_flight = match share {
                    share if share > self.target => 0,
                    share if share >= self.target - 0.05 => 2,
                    _ => 4,
                };
            }
            let Signal::TlbMiss { page, agent: Agent::Gpu(_) } = *signal else { continue };
            let touches = self.touches.entry(page).or_default();
            *touches += 1;
            if *touches == self.threshold {
                let Some(object) = memory.area(page).and_then(|area| area.object) else { continue };
                let half = self.expansion / 2;
                let around = page.vpn.saturating_sub(half)..=page.vpn + half;
                let mut near: Vec<PageId> =
                    around.map(|vpn| PageId { vpn, ..page }).filter(|p| object.range.contains(*p)).collect();
                near.sort_by_key(|p| std::cmp::Reverse((p.vpn.abs_diff(page.vpn), p.vpn)));
                self.queue.extend(near);
            }
        }
        while self.pending.outstanding() < self.in_flight
            && let Some(page) = self.queue.pop_front()
        {
            let ticket = memory.migrate(&[Move { page, to: GPU_MEMORY }], MoveOptions::default());
            self.pending.ordered(ticket, 1);
        }
        self.most_in_flight = self.most_in_flight.max(self.pending.outstanding());
        assert!(self.most_in_flight <= 4);
        // 10,000 cycles of 1.4 GHz.
        let tick = signals.contains(&Signal::Tick);
        if tick { NextTick::At(now.plus(Time::from_nanos(7143))) } else { NextTick::Unchanged }
    }
}

#[test]
fn thresholds_neighbours_and_balance() {
    let mut world = two_tiers(4, 4);
    for (site, vpn) in [(1, 0), (2, 100)] {
        let range = PageRange::new(PageId::new(0, vpn), 100);
        let object = Some(Object { site, range });
        world.map(Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object });
    }
    let policy = GpuMigration {
        threshold: 2,
        expansion: 16,
        target: 0.714,
        touches: BTreeMap::new(),
        queue: VecDeque::new(),
        pending: Pending::default(),
        rates: Rates::default(),
        in_flight: 4,
        most_in_flight: 0,
    };
    let mut driver = Driver::new(Box::new(policy), world.with_delay(Time::from_nanos(1000)));
    driver.touch_all(0, 0..200, true);
    let gap = Time::from_nanos(10_000);
    driver.touch_by(Agent::Gpu(0), PageId::new(0, 97), false);
    driver.advance(gap);
    assert_eq!(driver.world.resident(GPU_MEMORY), 0, "below the threshold");
    driver.touch_by(Agent::Gpu(0), PageId::new(0, 97), false);
    for _ in 0..20 {
        driver.touch_all(0, 150..180, false);
        driver.advance(gap);
    }
    let moved: Vec<u64> =
        (0..200).filter(|vpn| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == GPU_MEMORY).collect();
    assert_eq!(moved, (89..100).collect::<Vec<_>>(), "eight below, up to the end of the allocation");
}
