//! GUPS: random updates of a large table.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Random, scale};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gups",
    summary: "random read-modify-write updates of a table (HPCC RandomAccess)",
    description: "\
Each update draws a random 8-byte word of one table, loads it and stores it xor the random number. Updates are \
independent of each other, so a core overlaps as many as its buffers allow; nearly every one misses the TLB.

Stands for RandomAccess of the HPC Challenge benchmark (Luszczek et al., 2005), which reports giga-updates per second. \
It differs in three ways: the random numbers come from splitmix64 and are scaled to the table by multiplication \
instead of from a shift register by masking, so the table need not be a power of two; the number of updates is a \
parameter of its own instead of four times the table's words; and threads update one shared table without the \
benchmark's bounded look-ahead between processes. As there, threads race for words and may lose updates.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the table.
    #[parameter(default = "1 GiB", range = "4 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Updates, all threads together.
    #[parameter(default = "16e6", range = 1..=LARGEST_COUNT, unit = "updates")]
    updates: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone)]
pub(crate) struct Gups {
    words: u64,
    updates: u64,
    threads: u32,
    seed: u64,
    table: u64,
    layout: Layout,
}

impl Program for Gups {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Updates;

    fn new(parameters: &Parameters) -> Result<Gups, Problem> {
        let words = parameters.bytes.0 / 8;
        let mut layout = Layout::new(parameters.start.init).settling(parameters.settle.instructions);
        let table = layout.array("table", words * 8);
        Ok(Gups {
            words,
            updates: parameters.updates,
            threads: parameters.threads.count,
            seed: parameters.seed.number,
            table,
            layout,
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Updates {
        let own = share(self.updates, index, self.threads);
        let random = Random::of_thread(self.seed, index);
        Updates { random, left: own.end - own.start, table: self.table, words: self.words }
    }

    fn kernel_accesses(&self) -> u64 {
        2 * self.updates
    }
}

/// One thread's updates.
pub(crate) struct Updates {
    random: Random,
    left: u64,
    table: u64,
    words: u64,
}

impl Kernel for Updates {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let count = self.left.min(64);
        for _ in 0..count {
            let random = self.random.next();
            let addr = self.table + 8 * scale(random, self.words);
            // The update loop of the benchmark compiles to about ten instructions: the generator, the index, the load;
            // then xor, store, count and branch. The store's address is known before its load returns.
            let word: u64 = memory.load(addr, 0, 6);
            memory.store(addr, word ^ random, 0, 4);
        }
        self.left -= count;
        if self.left == 0 { Progress::Done } else { Progress::Working }
    }
}
