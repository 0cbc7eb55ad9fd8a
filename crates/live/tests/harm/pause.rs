//! A pause: nothing is decided and nothing moves, and where memory lies is still shown.

use super::chaos::{ToAndFro, engine};
use super::*;
use terrace_live::map::MemoryMap;
use terrace_live::status::{Board, Heading, Reporter};

/// Turns for so long; returns the pages that were moved meanwhile.
fn pass(engine: &mut Engine, kernel: &Simulated, seconds: u64) -> u64 {
    let moved = |engine: &Engine| engine.world().counters().promoted + engine.world().counters().demoted;
    let (before, end) = (moved(engine), kernel.now() + Duration::from_secs(seconds));
    while kernel.now() < end {
        let LoopControl::Sleep(rest) = engine.turn() else { panic!("the target runs") };
        kernel.pass(rest.max(Duration::from_millis(1)));
    }
    moved(engine) - before
}

#[test]
fn in_a_pause_nothing_moves_and_new_memory_still_shows() {
    let (kernel, _, page, _) = halves([1000, 1000], 8, &[]);
    let mut engine = engine(&kernel, Box::new(ToAndFro::new(page)), world(&kernel, &[]), None);
    let calls = |engine: &Engine| engine.statistics().0.integer("policy.calls");
    let resident = |engine: &Engine| {
        let map = MemoryMap::of(engine);
        let parts = map.processes.iter().flat_map(|process| &process.parts);
        parts.map(|part| part.resident.iter().sum::<u64>() >> 12).sum::<u64>()
    };
    assert!(pass(&mut engine, &kernel, 5) >= 40, "a page every 100 ms");
    assert_eq!(resident(&engine), 16);

    engine.pause(true);
    let before = calls(&engine);
    assert_eq!(pass(&mut engine, &kernel, 5), 0);
    let pid = *kernel.machine().processes.keys().next().unwrap();
    let first = {
        let mut machine = kernel.machine();
        let first = machine.map(pid, 100);
        machine.fill(pid, first..first + 100, PageSize::Base, 1);
        first
    };
    assert_eq!(pass(&mut engine, &kernel, 12), 0);
    assert_eq!(calls(&engine), before, "the policy rests");
    assert_eq!(resident(&engine), 116);
    let map = MemoryMap::of(&engine);
    let part = map.processes[0].parts.iter().find(|part| part.start + part.bytes > first << 12).unwrap();
    assert_eq!((part.resident[SLOW.index()] >> 12 >= 100, &part.hot), (true, &None), "nobody sees accesses");

    engine.pause(false);
    assert!(pass(&mut engine, &kernel, 5) >= 40, "it goes on");
}

/// Sees every page, and has looked after its third round.
struct Late(u32);

impl AccessSource for Late {
    fn name(&self) -> String {
        "late".to_owned()
    }

    fn collect(&mut self, world: &mut World) -> std::io::Result<Duration> {
        self.0 += 1;
        if self.0 >= 3 {
            world.looked(1);
        }
        Ok(Duration::from_secs(1))
    }

    fn stop(&mut self, _: &mut World) {}
}

#[test]
fn until_the_first_look_memory_is_neither_hot_nor_cold() {
    let (kernel, world, page, _) = halves([1000, 1000], 8, &[]);
    let mut engine = engine(&kernel, Box::new(ToAndFro::new(page)), world, Some(Box::new(Late(0))));
    let mut reporter = Reporter::with(Heading::default(), Board::default());
    let mut shown = Vec::new();
    for _ in 0..120 {
        let LoopControl::Sleep(rest) = engine.turn() else { panic!("the target runs") };
        if let Some(status) = reporter.turn(&engine) {
            let hot = status.processes.iter().any(|process| process.hot.is_some());
            shown.push((
                hot,
                status.tiers.iter().map(|tier| (tier.hot, tier.cold, tier.used)).collect::<Vec<_>>(),
            ));
        }
        kernel.pass(rest.max(Duration::from_millis(50)));
    }
    let (first, last) = (&shown[0], &shown[shown.len() - 1]);
    assert!(!first.0 && first.1.iter().all(|(hot, cold, _)| hot.is_none() && cold.is_none()), "{first:?}");
    assert!(last.0, "{last:?}");
    for (hot, cold, used) in &last.1 {
        assert_eq!(hot.unwrap() + cold.unwrap(), *used, "{last:?}");
    }
}
