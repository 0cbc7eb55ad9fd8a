//! Random accesses of both sides: whatever they do, no side holds what the other may change.

use super::{CoherenceKind, Request, is_own};
use crate::design::{Design, Library};
use crate::gpu::around::Around;
use crate::gpu::coalesce::Transaction;
use crate::gpu::coherent::BesideGpu;
use crate::gpu::line::{GpuLine, HALVES};
use crate::gpu::paths::Paths;
use crate::machine::Machine;
use crate::memory::Initiator;
use crate::outcome::Options;
use proptest::prelude::*;
use terrace_model::{CoreId, LINE_BYTES, SpaceId, Time, VirtAddr};

const SMS: u64 = 2;

#[derive(Clone, Debug)]
enum Act {
    Gpu { sm: u64, line: u64, sectors: u8, kind: u8 },
    Cpu { line: u64, half: u64, write: bool },
    Kernel,
}

struct Both {
    machine: Machine,
    paths: Paths,
    /// The lines that are accessed: some in each memory.
    lines: Vec<GpuLine>,
    now: Time,
}

impl Both {
    fn new(design: &Design) -> Both {
        let mut machine = Machine::new(design, &Options::default()).unwrap();
        machine.shared.has_caches = true;
        machine.shared.caches.activate(CoreId(0));
        let paths = Paths::new(design.gpu.as_ref().unwrap(), design.coherence.as_ref(), &machine);
        // The second tier begins behind the first one's GiBs. Lines of a few pages of each.
        let second = (2 << 30) / 128;
        let of_page = 4096 / 128;
        let lines = (0..48).map(|at| at % 3 * of_page + at / 3).flat_map(|at| [at, second + at]);
        let lines = lines.map(GpuLine).collect();
        Both { machine, paths, lines, now: Time::ZERO }
    }

    fn act(&mut self, act: &Act) {
        self.now += Time::from_nanos(40);
        match *act {
            Act::Gpu { sm, line, sectors, kind } => {
                let line = self.lines[line as usize % self.lines.len()];
                let request = Request {
                    one: Transaction { addr: VirtAddr(line.half(0).0 * LINE_BYTES), sectors },
                    line,
                    atomic: kind == 2,
                };
                let around = &mut Around { machine: &mut self.machine, tiering: None, space: SpaceId(0) };
                let (sm, mut now) = ((sm % SMS) as usize, self.now);
                if kind != 1 {
                    now = self.paths.coherent_load(around, sm, request, now);
                }
                if kind != 0 {
                    now = self.paths.fault_on_store(around, sm, line, now);
                    now = self.paths.coherent_store(around, sm, request, now);
                }
                assert!(now >= self.now);
            }
            Act::Cpu { line, half, write } => {
                let line = self.lines[line as usize % self.lines.len()];
                let shared = &mut self.machine.shared;
                if write {
                    self.paths.cpu_store(&shared.memory, line.frame());
                }
                let flush = self.paths.coherence.as_ref().unwrap().wants_flush();
                let own = shared.memory.first_tier_lines();
                let own = own.start.in_caches()..own.end.in_caches();
                let mut below = BesideGpu { memory: &mut shared.memory, paths: &mut self.paths };
                if flush.is_some() {
                    shared.caches.flush_range(own, self.now, &mut below);
                    below.flushed();
                }
                let by = Initiator::Demand;
                shared.caches.access(CoreId(0), line.half(half).in_caches(), write, self.now, by, &mut below);
            }
            Act::Kernel => {
                self.paths.end_kernel();
                self.paths.begin_kernel(self.now);
            }
        }
    }

    /// Checks that no line is where it may not be.
    fn check(&mut self) {
        let memory = &self.machine.shared.memory;
        for &line in &self.lines {
            let by_cpu =
                (0..HALVES).any(|half| self.machine.shared.caches.holds(line.half(half).in_caches()));
            let by_gpu = self.paths.caches().any(|cache| cache.holds(line));
            let coherence = self.paths.coherence.as_ref().unwrap();
            let own = is_own(memory, line);
            match coherence.kind {
                CoherenceKind::Hardware => assert!(!(by_cpu && by_gpu), "{line:?} is on both sides"),
                CoherenceKind::Selective if own => {
                    assert!(!(by_cpu && by_gpu), "{line:?} is on both sides");
                    assert!(
                        !by_cpu || coherence.directory.may_hold(line),
                        "{line:?} is not in the directory"
                    );
                }
                CoherenceKind::Selective => {
                    let pages = coherence.read_only.as_ref();
                    let read_only = pages.is_some_and(|pages| pages.is_read_only(line.frame()));
                    assert!(!by_gpu || read_only, "{line:?} of the CPU's memory is in the GPU");
                }
            }
            let client = coherence.cpu.holds(line);
            assert!(!(by_cpu && client), "{line:?} is in the client cache and in the CPU's");
        }
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..SMS, 0u64..96, 1u8..16, 0u8..3)
            .prop_map(|(sm, line, sectors, kind)| Act::Gpu { sm, line, sectors, kind }),
        4 => (0u64..96, 0..HALVES, prop::bool::ANY).prop_map(|(line, half, write)| Act::Cpu { line, half, write }),
        1 => Just(Act::Kernel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// After every access, for every design; a directory of a few short fingerprints answers wrongly and overflows often.
    #[test]
    fn no_side_holds_what_the_other_may_change(acts in prop::collection::vec(act(), 1..300)) {
        for name in ["gpu-hw-coherent", "selective-naive", "selective-l1-l2", "selective-cc-vt", "selective-ro"] {
            let changes = [
                ("gpu.sms", "2"),
                ("gpu.l1.capacity", "1 KiB"),
                ("gpu.l2.capacity", "2 KiB"),
                ("coherence.remote_directory.entries", "32"),
                ("coherence.remote_directory.fingerprint", "4"),
            ];
            let changes = changes.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let design = Library::embedded().design(name, None, &changes).unwrap().design;
            let mut both = Both::new(&design);
            for act in &acts {
                both.act(act);
                both.check();
            }
        }
    }
}
