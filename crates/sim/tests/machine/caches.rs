//! Caches and coherence of the whole machine against lists, and by hand.

use crate::support::*;
use proptest::prelude::*;
use terrace_model::Bytes;
use terrace_sim::design::{CacheParameters, Design, PagePolicy, Replacement};
use terrace_sim::{Fidelity, Outcome};
use terrace_trace::{AccessKind, Event};

/// Sets, ways, replacement.
type Geometry = (u64, u32, Replacement);

fn set_geometry(level: &mut CacheParameters, (sets, ways, replacement): Geometry) {
    level.capacity = Bytes(sets * u64::from(ways) * 64);
    level.ways = ways;
    level.replacement = replacement;
}

/// Data alone goes through the caches, in one page of 2 MiB, the machine's second: line `i` of the program is physical
/// line `FIRST + i`.
fn machine(cores: u32, geometry: [Geometry; 3], inclusive: bool) -> Design {
    let mut design = with_scheme(with_pages(small(), PagePolicy::Huge), "perfect-tlb");
    design.core.count = cores;
    design.os.reserved = Bytes(0);
    set_geometry(&mut design.cache.l1, geometry[0]);
    set_geometry(&mut design.cache.l2, geometry[1]);
    set_geometry(&mut design.cache.llc, geometry[2]);
    design.cache.inclusive = inclusive;
    design
}

const FIRST: u64 = 2 * MIB / 64;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    line: u64,
    dirty: bool,
    writable: bool,
    /// Time of last use under LRU, prediction under SRRIP.
    order: u64,
}

/// A cache as a plain table of sets and ways.
#[derive(Clone, Debug)]
struct Level {
    ways: Vec<Vec<Option<Line>>>,
    /// Predictions of empty ways stay what they were when a line went; distant at first.
    predictions: Vec<Vec<u64>>,
    replacement: Replacement,
    time: u64,
}

impl Level {
    fn new((sets, ways, replacement): Geometry) -> Level {
        Level {
            ways: vec![vec![None; ways as usize]; sets as usize],
            predictions: vec![vec![3; ways as usize]; sets as usize],
            replacement,
            time: 0,
        }
    }

    fn find(&self, line: u64) -> Option<(usize, usize)> {
        let set = ((FIRST + line) % self.ways.len() as u64) as usize;
        let way = self.ways[set].iter().position(|way| way.is_some_and(|held| held.line == line))?;
        Some((set, way))
    }

    fn get(&mut self, line: u64) -> Option<&mut Line> {
        let (set, way) = self.find(line)?;
        self.ways[set][way].as_mut()
    }

    /// Finds and counts as used.
    fn touch(&mut self, line: u64) -> bool {
        let Some((set, way)) = self.find(line) else { return false };
        self.time += 1;
        self.ways[set][way].as_mut().unwrap().order = self.time;
        self.predictions[set][way] = 0;
        true
    }

    fn insert(&mut self, line: u64, dirty: bool, writable: bool) -> Option<Line> {
        assert!(self.find(line).is_none());
        let set = ((FIRST + line) % self.ways.len() as u64) as usize;
        let way = match self.replacement {
            Replacement::Lru => {
                let order = |way: &Option<Line>| way.map_or(0, |held| held.order);
                let ways = &self.ways[set];
                (0..ways.len()).min_by_key(|&way| order(&ways[way])).unwrap()
            }
            Replacement::Srrip => loop {
                if let Some(way) = self.predictions[set].iter().position(|&prediction| prediction == 3) {
                    break way;
                }
                self.predictions[set].iter_mut().for_each(|prediction| *prediction += 1);
            },
        };
        self.time += 1;
        self.predictions[set][way] = 2;
        self.ways[set][way].replace(Line { line, dirty, writable, order: self.time })
    }

    fn remove(&mut self, line: u64) -> Option<Line> {
        let (set, way) = self.find(line)?;
        self.predictions[set][way] = 3;
        self.ways[set][way].take()
    }
}

/// Three levels and a directory that knows everything.
struct Naive {
    private: Vec<[Level; 2]>,
    llc: Level,
    inclusive: bool,
    /// Hits, misses, writebacks per level.
    counts: [[u64; 3]; 3],
    cache_to_cache: u64,
    invalidations: u64,
    reads: u64,
    writes: u64,
}

const HIT: usize = 0;
const MISS: usize = 1;
const WRITEBACK: usize = 2;

impl Naive {
    fn new(cores: u32, geometry: [Geometry; 3], inclusive: bool) -> Naive {
        let private = [Level::new(geometry[0]), Level::new(geometry[1])];
        Naive {
            private: vec![private; cores as usize],
            llc: Level::new(geometry[2]),
            inclusive,
            counts: [[0; 3]; 3],
            cache_to_cache: 0,
            invalidations: 0,
            reads: 0,
            writes: 0,
        }
    }

    fn holds(&self, core: usize, line: u64) -> bool {
        self.private[core].iter().any(|level| level.find(line).is_some())
    }

    fn others(&self, core: usize, line: u64) -> Vec<usize> {
        (0..self.private.len()).filter(|&other| other != core && self.holds(other, line)).collect()
    }

    fn access(&mut self, core: usize, line: u64, write: bool) {
        if self.private[core][0].touch(line) {
            self.counts[0][HIT] += 1;
            if write {
                if !self.private[core][0].get(line).unwrap().writable {
                    self.invalidate_others(core, line);
                    if let Some(held) = self.private[core][1].get(line) {
                        held.writable = true;
                    }
                }
                let held = self.private[core][0].get(line).unwrap();
                (held.writable, held.dirty) = (true, true);
            }
            return;
        }
        self.counts[0][MISS] += 1;
        let writable = self.fetch(core, line, write);
        if let Some(old) = self.private[core][0].insert(line, write, writable)
            && old.dirty
        {
            self.counts[0][WRITEBACK] += 1;
            if self.private[core][1].touch(old.line) {
                self.private[core][1].get(old.line).unwrap().dirty = true;
            } else if let Some(older) = self.private[core][1].insert(old.line, true, true) {
                self.leave_l2(older);
            }
        }
    }

    fn fetch(&mut self, core: usize, line: u64, write: bool) -> bool {
        if self.private[core][1].touch(line) {
            self.counts[1][HIT] += 1;
            if write && !self.private[core][1].get(line).unwrap().writable {
                self.invalidate_others(core, line);
                self.private[core][1].get(line).unwrap().writable = true;
            }
            return self.private[core][1].get(line).unwrap().writable;
        }
        self.counts[1][MISS] += 1;
        let others = self.others(core, line);
        // Exclusive or modified: one other core may write it.
        let owned = others.iter().any(|&other| {
            self.private[other].iter_mut().any(|level| level.get(line).is_some_and(|held| held.writable))
        });
        if write && !others.is_empty() {
            self.invalidate_others(core, line);
        } else if owned {
            self.downgrade(others[0], line);
        }
        if owned {
            self.cache_to_cache += 1;
            self.counts[2][HIT] += 1;
        } else if self.llc.touch(line) {
            self.counts[2][HIT] += 1;
        } else {
            self.counts[2][MISS] += 1;
            self.reads += 1;
            self.install_llc(line, false);
        }
        let writable = write || others.is_empty();
        if let Some(old) = self.private[core][1].insert(line, false, writable) {
            self.leave_l2(old);
        }
        writable
    }

    fn leave_l2(&mut self, old: Line) {
        if old.dirty {
            self.counts[1][WRITEBACK] += 1;
            self.write_to_llc(old.line);
        }
    }

    fn write_to_llc(&mut self, line: u64) {
        if self.llc.touch(line) {
            self.llc.get(line).unwrap().dirty = true;
        } else {
            self.install_llc(line, true);
        }
    }

    fn install_llc(&mut self, line: u64, dirty: bool) {
        let Some(mut old) = self.llc.insert(line, dirty, true) else { return };
        if self.inclusive {
            for level in self.private.iter_mut().flatten() {
                old.dirty |= level.remove(old.line).is_some_and(|held| held.dirty);
            }
        }
        if old.dirty {
            self.counts[2][WRITEBACK] += 1;
            self.writes += 1;
        }
    }

    fn invalidate_others(&mut self, core: usize, line: u64) {
        let mut dirty = false;
        for other in self.others(core, line) {
            self.invalidations += 1;
            for level in &mut self.private[other] {
                dirty |= level.remove(line).is_some_and(|held| held.dirty);
            }
        }
        if dirty {
            self.counts[1][WRITEBACK] += 1;
            self.write_to_llc(line);
        }
    }

    fn downgrade(&mut self, owner: usize, line: u64) {
        let mut dirty = false;
        for level in &mut self.private[owner] {
            if let Some(held) = level.get(line) {
                dirty |= held.dirty;
                (held.dirty, held.writable) = (false, false);
            }
        }
        if dirty {
            self.counts[1][WRITEBACK] += 1;
            self.write_to_llc(line);
        }
    }

    fn check(&self, outcome: &Outcome) -> Result<(), TestCaseError> {
        for (level, expected) in ["l1", "l2", "llc"].into_iter().zip(self.counts) {
            let found =
                ["hit", "miss", "writeback"].map(|what| count(outcome, &format!("cache.{level}.{what}")));
            prop_assert_eq!(found, expected, "{}", level);
        }
        let found = counts(outcome, ["coherence.cache_to_cache", "coherence.invalidations"]);
        prop_assert_eq!(found, [self.cache_to_cache, self.invalidations]);
        let zeroed = count(outcome, "os.faults") * 2 * MIB / 64;
        let found = counts(outcome, ["tier.dram.reads", "tier.dram.writes"]);
        prop_assert_eq!(found, [self.reads, self.writes + zeroed]);
        Ok(())
    }
}

fn geometry(
    sets: std::ops::Range<u64>,
    ways: std::ops::RangeInclusive<u32>,
) -> impl Strategy<Value = Geometry> {
    let replacement = prop_oneof![Just(Replacement::Lru), Just(Replacement::Srrip)];
    (sets, ways, replacement)
}

fn hierarchy() -> impl Strategy<Value = [Geometry; 3]> {
    (geometry(1..9, 1..=8), geometry(1..9, 1..=16), geometry(1..20, 1..=25)).prop_map(Into::into)
}

fn kind(write: bool) -> AccessKind {
    if write { AccessKind::Write } else { AccessKind::Read }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_core_agrees_with_lists(
        geometry in hierarchy(), inclusive: bool, seed: u64, lines in 1u64..1000, accesses in 1u64..4000
    ) {
        let design = machine(1, geometry, inclusive);
        let mut naive = Naive::new(1, geometry, inclusive);
        let mut random = Random(seed);
        let mut program = Program::new();
        program.map(DATA, 2 * MIB);
        let mut last = 0;
        for _ in 0..accesses {
            // Half of the accesses go near the last one, as programs' do.
            let line = if random.below(2) == 0 { random.below(lines) } else { (last + random.below(3)) % lines };
            last = line;
            let write = random.below(3) == 0;
            program.access(DATA + 64 * line + random.below(8) * 8, 8, kind(write), 0, 1);
            naive.access(0, line, write);
        }
        naive.check(&program.run(&design, Fidelity::Full))?;
    }

    /// Cores take turns in an order that the input fixes. So few lines that the directory holds all of them. Of `threads`
    /// hardware threads with neighbouring numbers the list has one core.
    #[test]
    fn many_cores_agree_with_lists(
        cores in prop_oneof![Just(2u32), Just(64), Just(65), Just(200)],
        threads in prop_oneof![Just(1u32), Just(2), Just(4)],
        geometry in hierarchy(), inclusive: bool, seed: u64, lines in 1u64..16, turns in 1u64..150
    ) {
        let cores = cores * threads;
        let mut design = machine(cores, geometry, inclusive);
        design.core.threads = threads;
        let mut naive = Naive::new(cores / threads, geometry, inclusive);
        let mut random = Random(seed);
        let mut program = Program::new();
        program.map(DATA, 2 * MIB).event(Event::Free { object: 0 });
        let mut spawned = vec![0];
        for turn in 0..turns {
            // Two of them in turn, then also others.
            let core = if turn < 20 { turn as u32 % 2 } else { random.below(u64::from(cores)) as u32 };
            program.on(core);
            if !spawned.contains(&core) {
                spawned.push(core);
                program.spawn(0, 1, None);
            }
            for _ in 0..1 + random.below(6) {
                let line = random.below(lines);
                let write = random.below(6) == 0;
                program.access(DATA + 64 * line, 8, kind(write), 0, 1);
                naive.access((core / threads) as usize, line, write);
            }
            program.event(Event::Free { object: 0 });
        }
        let outcome = program.run(&design, Fidelity::Full);
        prop_assert_eq!(count(&outcome, "input.order_violations"), 0);
        naive.check(&outcome)?;
    }
}

/// Large enough to lose nothing.
fn roomy(cores: u32) -> Design {
    machine(cores, [(8, 8, Replacement::Lru), (32, 8, Replacement::Lru), (64, 16, Replacement::Lru)], false)
}

const COHERENCE: [&str; 5] = [
    "coherence.cache_to_cache",
    "coherence.invalidations",
    "cache.llc.hit",
    "cache.llc.miss",
    "cache.l2.writeback",
];

/// Accesses of two cores to one line, one after the other.
fn shared_line(steps: &[(u32, bool)]) -> Outcome {
    line_on(&roomy(2), steps)
}

/// Accesses of two cores to one line on another machine.
fn line_on(design: &Design, steps: &[(u32, bool)]) -> Outcome {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB).event(Event::Free { object: 0 });
    program.on(1).spawn(0, 1, None);
    for (core, write) in steps {
        program.on(*core).access(DATA, 8, kind(*write), 0, 1).event(Event::Free { object: 0 });
    }
    program.run(design, Fidelity::Full)
}

#[test]
fn hardware_threads_of_a_core_take_no_line_from_each_other() {
    let mut design = roomy(4);
    design.core.threads = 2;
    // One miss, then hits of both, whoever stores.
    let together = line_on(&design, &[(0, true), (1, true), (0, true), (1, false), (1, true)]);
    assert_eq!(counts(&together, COHERENCE), [0, 0, 0, 1, 0]);
    assert_eq!(counts(&together, ["cache.l1.hit", "cache.l1.miss"]), [4, 1]);
}

#[test]
fn coherence_of_one_line_by_hand() {
    // Read by one: exclusive. The other's read is forwarded, clean; both share it.
    assert_eq!(counts(&shared_line(&[(0, false), (1, false)]), COHERENCE), [1, 0, 1, 1, 0]);
    // Then a store takes it from the other, without asking memory or the last level for data.
    assert_eq!(counts(&shared_line(&[(0, false), (1, false), (1, true)]), COHERENCE), [1, 1, 1, 1, 0]);
    // Modified by one: the other's read is forwarded and its data go to the last level.
    assert_eq!(counts(&shared_line(&[(0, true), (1, false)]), COHERENCE), [1, 0, 1, 1, 1]);
    // A store takes a modified line with its data.
    assert_eq!(counts(&shared_line(&[(0, true), (1, true)]), COHERENCE), [1, 1, 1, 1, 1]);
    // Ping-pong: each of four stores after the first takes it from the other.
    let steps = [(0, true), (1, true), (0, true), (1, true), (0, true)];
    assert_eq!(counts(&shared_line(&steps), COHERENCE), [4, 4, 4, 1, 4]);
    // Stores of one core stay there.
    assert_eq!(
        counts(&shared_line(&[(0, true), (0, true), (1, false), (0, false)]), COHERENCE),
        [1, 0, 1, 1, 1]
    );
}

#[test]
fn an_inclusive_last_level_takes_lines_from_above() {
    // A last level of one set of two: the third line pushes the first out of L1 and L2, too.
    let lru = Replacement::Lru;
    for (inclusive, expected) in [(true, [0, 4, 1, 1]), (false, [1, 3, 0, 0])] {
        let design = machine(1, [(1, 8, lru), (1, 8, lru), (1, 2, lru)], inclusive);
        let mut program = Program::new();
        program.map(DATA, 2 * MIB).write(DATA).read(DATA + 64).read(DATA + 128).read(DATA);
        let outcome = program.run(&design, Fidelity::Full);
        let mut found = counts(
            &outcome,
            ["cache.l1.hit", "cache.l1.miss", "cache.llc.writeback", "coherence.back_invalidations"],
        );
        // The fourth access brings the first line back and pushes the second out.
        if inclusive {
            assert_eq!(found[3], 2);
            found[3] = 1;
        }
        assert_eq!(found, expected, "inclusive: {inclusive}");
    }
}

#[test]
fn prefetches_are_neither_hits_nor_misses_and_bring_lines_early() {
    let mut design = roomy(1);
    let mut program = Program::new();
    program.map(DATA, 2 * MIB);
    for line in 0..2048 {
        program.chase(DATA + 64 * line);
    }
    let without = program.run(&design, Fidelity::Full);
    assert_eq!(counts(&without, ["cache.prefetches", "cache.llc.miss"]), [0, 2048]);
    design.cache.prefetcher.enabled = true;
    let with = program.run(&design, Fidelity::Full);
    let [prefetches, hits, misses, llc, reads] = counts(
        &with,
        [
            "cache.prefetches",
            "cache.l2.hit",
            "cache.l2.miss",
            "cache.llc.miss",
            "tier.dram.bytes_by.prefetch",
        ],
    );
    assert_eq!(hits + misses, 2048);
    assert!(hits > 1800 && prefetches >= hits, "{hits} of {prefetches} prefetches were of use");
    assert_eq!(reads, 64 * prefetches, "every line comes from memory once");
    assert_eq!(count(&with, "tier.dram.bytes_by.demand"), 64 * llc);
    let [with, without] = [with, without].map(|outcome| outcome.cycles - count(&outcome, "os.fault_cycles"));
    assert!(with < without / 2, "{with} and {without} cycles");
}
