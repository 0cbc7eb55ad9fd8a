//! GUPS: random updates of a large table.

use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::{INIT, ParameterInfo, Parameters, SEED, SETTLE, THREADS};
use crate::program::{Kernel, Program, Progress, init_parameter, share};
use crate::random::{Random, scale};
use crate::{WorkloadError, WorkloadInfo};

pub(crate) const INFO: WorkloadInfo = WorkloadInfo {
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
    parameters: &[
        ParameterInfo { name: "bytes", default: "1 GiB", unit: "bytes", help: "Size of the table." },
        ParameterInfo { name: "updates", default: "16e6", unit: "updates", help: "Updates, all threads together." },
        INIT,
        SETTLE,
        THREADS,
        SEED,
    ],
    exact: true,
};

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
    type Thread = Updates;

    fn info() -> &'static WorkloadInfo {
        &INFO
    }

    fn parse(parameters: &Parameters) -> Result<Gups, WorkloadError> {
        let words = parameters.bytes("bytes", 4096)? / 8;
        let mut layout = Layout::new(init_parameter(parameters)?).settling(parameters.count("settle", 0)?);
        let table = layout.array("table", words * 8);
        Ok(Gups {
            words,
            updates: parameters.count("updates", 1)?,
            threads: parameters.threads()?,
            seed: parameters.seed()?,
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
        let random = Random::new(self.seed, index);
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
