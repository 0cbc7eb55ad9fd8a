//! Simulated annealing of a netlist: random elements, and the elements wired to them.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Random, hash, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "canneal",
    summary: "random swaps of netlist elements by simulated annealing (PARSEC canneal)",
    description: "\
A netlist of elements, each with a location and wires to ten others. A move picks two random elements, reads the \
wires of both and the location of every element wired to them, and with some probability swaps the two locations. \
Everything is random access; the location of a neighbour is known only when its number has been read.

Stands for canneal of PARSEC (Bienia et al., 2008). It differs: the wires are random and computed by a hash, so that a \
simulation needs no memory for them (a native run writes them first and follows what it reads); an element holds its \
location instead of a pointer to it; a move is accepted with a fixed probability instead of by cost and temperature, \
so that the accesses are the same in every run with any number of threads; each thread swaps elements of its own \
part and reads those of all.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Elements of the netlist, 64 bytes each.
    #[parameter(default = "8e6", range = 2..=u64::from(u32::MAX), unit = "elements")]
    elements: u64,
    /// Pairs examined, all threads together.
    #[parameter(default = "600e3", range = 1..=LARGEST_COUNT, unit = "moves")]
    moves: u64,
    /// Share of the moves that swap.
    #[parameter(default = 0.3, range = 0.0..=1.0, unit = "probability")]
    accept: f64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const ELEMENT_BYTES: u64 = 64;
/// Fan-in and fan-out together; the benchmark's netlist generator makes about five of each.
const WIRES: u64 = 10;
/// The location comes first, then the wires.
const FIRST_WIRE: u64 = 8;

#[derive(Clone)]
pub(crate) struct Canneal {
    elements: u64,
    moves: u64,
    accept: f64,
    threads: u32,
    seed: u64,
    array: u64,
    layout: Layout,
}

impl Canneal {
    /// The element at the end of a wire.
    #[inline(always)]
    fn neighbour(&self, element: u64, wire: u64) -> u32 {
        scale(hash(self.seed, element * WIRES + wire), self.elements) as u32
    }

    #[inline(always)]
    fn address(&self, element: u64) -> u64 {
        self.array + element * ELEMENT_BYTES
    }
}

impl Program for Canneal {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Moves;

    fn new(parameters: &Parameters) -> Result<Canneal, Problem> {
        let threads = parameters.threads.count;
        let elements = at_least("elements", parameters.elements, 2 * u64::from(threads))?;
        let mut layout = Layout::new(parameters.start.init).settling(parameters.settle.instructions);
        let array = layout.array("elements", elements * ELEMENT_BYTES);
        Ok(Canneal {
            elements,
            moves: parameters.moves,
            accept: parameters.accept,
            threads,
            seed: parameters.seed.number,
            array,
            layout,
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Moves {
        let moves = share(self.moves, index, self.threads);
        let own = share(self.elements, index, self.threads);
        let random = Random::of_thread(self.seed, index);
        Moves { random, left: moves.end - moves.start, own, program: self.clone() }
    }

    fn kernel_accesses(&self) -> u64 {
        self.moves * 2 * (1 + 2 * WIRES) + (2.0 * self.accept * self.moves as f64) as u64
    }

    fn prepare(&self, memory: &Backing) {
        for element in 0..self.elements {
            memory.write(self.address(element), element);
            for wire in 0..WIRES {
                memory.write(self.address(element) + FIRST_WIRE + 4 * wire, self.neighbour(element, wire));
            }
        }
    }
}

/// One thread's moves.
pub(crate) struct Moves {
    program: Canneal,
    own: std::ops::Range<u64>,
    random: Random,
    left: u64,
}

impl Moves {
    /// Reads an element's location and those of its neighbours, as the cost of a place is computed.
    #[inline(always)]
    fn examine<M: Memory>(&self, memory: &mut M, element: u64) -> u64 {
        let address = self.program.address(element);
        // The generator, a modulo and the first access.
        let location: u64 = memory.load(address, 0, 12);
        for wire in 0..WIRES {
            let read: u32 = memory.load(address + FIRST_WIRE + 4 * wire, 0, 2);
            let neighbour = if M::HOLDS_DATA { read } else { self.program.neighbour(element, wire) };
            // Two differences, two absolute values, two sums, for the old and the new place.
            let _: u64 = memory.load(self.program.address(neighbour.into()), 1, 13);
        }
        location
    }
}

impl Kernel for Moves {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let count = self.left.min(4);
        for _ in 0..count {
            let a = self.own.start + self.random.below(self.own.end - self.own.start);
            let b = self.own.start + self.random.below(self.own.end - self.own.start);
            let swaps = self.random.unit() < self.program.accept;
            let from = self.examine(memory, a);
            let to = self.examine(memory, b);
            if swaps {
                memory.store(self.program.address(a), to, 0, 8);
                memory.store(self.program.address(b), from, 0, 1);
            }
        }
        self.left -= count;
        if self.left == 0 { Progress::Done } else { Progress::Working }
    }
}
