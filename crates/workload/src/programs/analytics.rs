//! Collaborative filtering in memory.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Program, share};
use crate::random::{Permutation, Random, Zipf, hash, scale};
use crate::requests::{Client, Extents, Pace, Plan, Service, Think};
use terrace_model::{AddressRange, Bytes};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "analytics",
    summary: "alternating least squares over ratings, with results that grow (Spark collaborative filtering)",
    description: "\
Ratings of items by users lie in memory twice, by user and by item, beside the input they were parsed from. The run \
begins by reading the input and writing both. Then each iteration goes through all users: it reads a user's ratings in \
order, gathers the factors of each rated item, which are popular by a Zipf distribution, solves and writes the user's \
new factors; and likewise through all items. New factors are new memory, and the old stay.

Stands for the in-memory analytics of CloudSuite (Spark, 6 GB, 317 s) as Thermostat (Agarwal, PhD thesis, 2017, \
sections 6.4 and 6.5) runs it: 15 to 20 % is found cold, growing with the footprint until the run ends. Cold here are \
the input after the first pass and the factors of iterations past; ratings are read once in each iteration, one after \
the other, so their pages are idle for most of the time and never so for long; factors of items are hot. `think` is \
the work for each user or item: 20e3 instructions solve for 64 factors, and more slow the sweeps down as a larger \
dataset would. threads=8. It differs: no garbage collector and no shuffle files; every user has 64 ratings, and so has \
every item, although items are gathered unevenly.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of input and ratings; the factors come on top.
    #[parameter(default = "64 MiB", range = "64 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Share of `bytes` that is input.
    #[parameter(default = 0.15, range = 0.0..=0.9, unit = "share")]
    input: f64,
    /// Zipf exponent of the items' popularity.
    #[parameter(default = 0.8, range = 0.0..=4.0, unit = "exponent")]
    zipf: f64,
    /// Passes over all users and all items.
    #[parameter(default = 2, range = 1..=1000, unit = "iterations")]
    iterations: u64,
    #[parameter(flatten)]
    think: Think,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// User or item, rating.
const RATING_BYTES: u64 = 16;
/// Ratings of a user or an item.
const RATINGS: u64 = 64;
const BLOCK_BYTES: u64 = RATINGS * RATING_BYTES;
/// Sixty-four factors of four bytes.
const FACTOR_BYTES: u64 = 256;
/// Parsing text into a rating, for each 32 bytes of input.
const PARSE: u16 = 400;
/// Adding a rating's outer product, for each vector of eight factors: 64 * 65 / 2 products, eight at once.
const PRODUCT: u16 = 32;
/// A block of Spark's memory store.
const EXTENT: u64 = 4 << 20;

#[derive(Clone)]
pub(crate) struct Analytics {
    /// Blocks of ratings by user, and by item: as many of each.
    blocks: u64,
    input: u64,
    input_bytes: u64,
    /// By user, by item.
    ratings: [u64; 2],
    /// Items' factors to begin with; users get theirs from them.
    factors: u64,
    zipf: Zipf,
    order: Permutation,
    iterations: u64,
    pace: Pace,
    /// Room of each thread for new factors.
    room: Vec<AddressRange>,
    site: u32,
    threads: u32,
    seed: u64,
    layout: Layout,
}

impl Analytics {
    fn own(&self, thread: u32) -> std::ops::Range<u64> {
        share(self.blocks, thread, self.threads)
    }

    /// Bytes of input for each block of a thread.
    fn input_of_block(&self) -> u64 {
        self.input_bytes / self.blocks / 32 * 32
    }

    /// Where the factors of a user or an item (`side` 1) lie that pass number `generation` over its side wrote: in the
    /// room of the thread that owns it, after those of the passes before.
    fn factor(&self, side: u64, block: u64, generation: u64) -> u64 {
        if generation == 0 {
            return self.factors + block * FACTOR_BYTES;
        }
        let mut thread = (block as u128 * u128::from(self.threads) / u128::from(self.blocks)) as u32;
        while self.own(thread).end <= block {
            thread += 1;
        }
        let own = self.own(thread);
        // Users and items take turns.
        let before = 2 * (generation - 1) + side;
        let place = before * (own.end - own.start) + block - own.start;
        self.room[thread as usize].start.0 + place * FACTOR_BYTES
    }
}

impl Program for Analytics {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Client<Analytics>;

    fn new(parameters: &Parameters) -> Result<Analytics, Problem> {
        let threads = parameters.threads.count;
        let bytes = at_least("bytes", parameters.bytes, Bytes((64 << 10) * u64::from(threads)))?.0;
        let input_bytes = (bytes as f64 * parameters.input) as u64 / 4096 * 4096;
        let blocks = (bytes - input_bytes) / (2 * BLOCK_BYTES);
        if blocks < u64::from(threads) {
            return Err(Problem::new("bytes", format!("at least a user for each of {threads} threads")));
        }
        let iterations = parameters.iterations;
        let seed = parameters.seed.number;
        let mut layout = Layout::new(parameters.start.init);
        let mut program = Analytics {
            blocks,
            input: layout.array("input", input_bytes.max(4096)),
            input_bytes,
            ratings: ["ratings by user", "ratings by item"]
                .map(|name| layout.array(name, blocks * BLOCK_BYTES)),
            factors: layout.array("item factors", blocks * FACTOR_BYTES),
            zipf: Zipf::new(blocks, parameters.zipf),
            order: Permutation::new(blocks, seed),
            iterations,
            pace: Pace { think: parameters.think, ..Pace::default() },
            room: Vec::new(),
            site: layout.site("new factors"),
            threads,
            seed,
            layout,
        };
        for thread in 0..threads {
            let own = program.own(thread);
            let used = (own.end - own.start) * FACTOR_BYTES * 2 * iterations;
            let room = Extents::room(used, EXTENT);
            program.room.push(AddressRange::new(program.layout.reserve(room, used), room));
        }
        Ok(program)
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Client<Analytics> {
        let own = self.own(index);
        Client::new(self, index, (own.end - own.start) * (1 + 2 * self.iterations), None, self.pace)
    }

    fn kernel_accesses(&self) -> u64 {
        let parse = (self.input_of_block() + 2 * BLOCK_BYTES) / 32;
        let solve = RATINGS * (1 + FACTOR_BYTES / 32) + FACTOR_BYTES / 32;
        self.blocks * (parse + 2 * self.iterations * solve)
    }
}

/// One thread's users and items.
pub(crate) struct Worker {
    own: std::ops::Range<u64>,
    next: u64,
    /// 0 parses; then users and items in turn.
    pass: u64,
    new_factors: Extents,
}

impl Service for Analytics {
    type State = Worker;

    fn state(&self, thread: u32) -> Worker {
        let own = self.own(thread);
        let new_factors = Extents::new(self.room[thread as usize], EXTENT, self.site, thread, 0);
        Worker { next: own.start, own, pass: 0, new_factors }
    }

    fn plan<M: Memory>(&self, worker: &mut Worker, plan: &mut Plan, memory: &mut M) {
        let block = worker.next;
        if worker.pass == 0 {
            let bytes = self.input_of_block();
            plan.read_costing(self.input + block * bytes, bytes, PARSE);
            // Ratings keep their place for the solver to read; their content decides nothing.
            for ratings in self.ratings {
                for vector in (0..BLOCK_BYTES).step_by(32) {
                    plan.write(ratings + block * BLOCK_BYTES + vector, 32);
                }
            }
        } else {
            let side = (worker.pass - 1) % 2;
            let generation = (worker.pass - 1) / 2;
            // Users gather the items' factors of the iteration before, items those that users have just got.
            let (other, other_generation) = if side == 0 { (1, generation) } else { (0, generation + 1) };
            let mut random = Random::of_thread(hash(self.seed, block), side as u32);
            for rating in 0..RATINGS {
                let rated = if side == 0 {
                    self.order.apply(self.zipf.sample(&mut random))
                } else {
                    scale(random.next(), self.blocks)
                };
                plan.enter(self.ratings[side as usize] + block * BLOCK_BYTES + rating * RATING_BYTES, 4);
                plan.read_costing(self.factor(other, rated, other_generation), FACTOR_BYTES, PRODUCT);
            }
            plan.independent();
            plan.write(worker.new_factors.allocate(memory, FACTOR_BYTES), FACTOR_BYTES);
        }
        worker.next += 1;
        if worker.next == worker.own.end {
            worker.next = worker.own.start;
            worker.pass += 1;
            plan.barrier();
        }
    }
}
