//! Queries on an inverted index.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Program, share};
use crate::random::{Permutation, Random, Zipf, hash, mix, scale};
use crate::requests::{Client, Pace, Plan, Service, WarmupRequests, expected};
use std::sync::Arc;
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "search",
    summary: "queries of two words on an inverted index (web search)",
    description: "\
Each word of a query is found in the dictionary by four dependent loads. The two posting lists are read from their \
beginnings, at most 256 KiB of each: for each block of 128 documents its skip entry, the block, and the scores of two \
documents of it. Then the heads of the ten best documents are read, 256 bytes each. Words of queries and lengths of \
lists follow Zipf distributions; lists lie in the order of the dictionary, which is unrelated to popularity. Documents \
that are found are popular by a Zipf distribution too.

Stands for the web search of CloudSuite (Solr, 2.28 GB, 50 queries a second) as Thermostat (Agarwal, PhD thesis, 2017, \
sections 6.4 and 6.5) runs it, of which about 40 % is found cold at no loss: documents and the lists of rare words, \
which are most of the memory and are hardly touched, beside a dictionary, scores and common words that are always \
used. threads=8,think=7e8 gives that rate at 2.3 GHz and two instructions a cycle; with less memory the same `think` \
keeps the share of it that a budget of accesses a second admits. It differs: two words in every query; no block is \
skipped; no caches of results and no heap of the Java machine.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the index and the documents.
    #[parameter(default = "256 MiB", range = "1 MiB"..="32 TiB")]
    bytes: Bytes,
    /// Share of the documents' text in `bytes`.
    #[parameter(default = 0.4, range = 0.05..=0.9, unit = "share")]
    stored: f64,
    /// Zipf exponent of the words of queries.
    #[parameter(default = 0.9, range = 0.0..=4.0, unit = "exponent")]
    zipf: f64,
    /// Queries, all threads together.
    #[parameter(default = "4e3", range = 1..=LARGEST_COUNT, unit = "queries")]
    requests: u64,
    #[parameter(flatten)]
    warmup: WarmupRequests,
    #[parameter(flatten)]
    pace: Pace,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// A posting block: 128 documents in packed differences, with frequencies.
const BLOCK_BYTES: u64 = 256;
const SKIP_BYTES: u64 = 32;
/// Most that is read of a list.
const LONGEST_READ: u64 = 256 << 10;
const DOCUMENT_BYTES: u64 = 1024;
/// The length of a document and what else ranks it.
const SCORE_BYTES: u64 = 32;
/// Title, address and what else a page of results shows of a document.
const HEAD_BYTES: u64 = 256;
const RESULTS: u64 = 10;
/// A term of the dictionary, in leaves of a tree of this fan-out.
const TERM_BYTES: u64 = 64;
const FAN_OUT: u64 = 64;
/// One term for this much of postings: lists of rare words have a block or two.
const BYTES_PER_TERM: u64 = 4096;
/// How much less often the documents at the end of the ranking are found.
const DOCUMENT_ZIPF: f64 = 0.7;

#[derive(Clone)]
pub(crate) struct Search {
    documents: u64,
    /// Where each list begins, in blocks, in the order of the dictionary; and where the last ends.
    lists: Arc<Vec<u64>>,
    /// Dictionary position of a word by its popularity.
    order: Permutation,
    words: Zipf,
    found: Zipf,
    scattered: Permutation,
    dictionary: u64,
    /// Levels of the dictionary's tree above its leaves.
    upper: [u64; 3],
    postings: u64,
    skips: u64,
    scores: u64,
    stored: u64,
    requests: u64,
    warmup: WarmupRequests,
    pace: Pace,
    threads: u32,
    seed: u64,
    layout: Layout,
}

impl Program for Search {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Client<Search>;

    fn new(parameters: &Parameters) -> Result<Search, Problem> {
        let bytes = parameters.bytes.0;
        let documents = ((bytes as f64 * parameters.stored) as u64 / DOCUMENT_BYTES).max(1);
        let index = bytes - (documents * (DOCUMENT_BYTES + SCORE_BYTES)).min(bytes - (64 << 10));
        let terms = index / (BYTES_PER_TERM + TERM_BYTES);
        let blocks = index / (BLOCK_BYTES + SKIP_BYTES);
        let seed = parameters.seed.number;
        let order = Permutation::new(terms, seed);
        // Lengths by popularity, in the order of the dictionary, then where each begins.
        let harmonic: f64 = (1..=terms).map(|rank| 1.0 / rank as f64).sum();
        let mut lists = vec![0; terms as usize + 1];
        for rank in 0..terms {
            let length = (blocks as f64 / harmonic / (rank + 1) as f64) as u64;
            lists[order.apply(rank) as usize + 1] = length.max(1);
        }
        for term in 0..terms as usize {
            lists[term + 1] += lists[term];
        }
        let blocks = lists[terms as usize];
        let mut layout = Layout::new(parameters.start.init);
        let mut nodes = terms;
        let upper = ["dictionary nodes", "dictionary nodes", "dictionary root"].map(|name| {
            nodes = nodes.div_ceil(FAN_OUT);
            layout.array(name, nodes * TERM_BYTES)
        });
        Ok(Search {
            documents,
            lists: Arc::new(lists),
            order,
            words: Zipf::new(terms, parameters.zipf),
            found: Zipf::new(documents, DOCUMENT_ZIPF),
            scattered: Permutation::new(documents, mix(seed)),
            dictionary: layout.array("dictionary", terms * TERM_BYTES),
            upper,
            postings: layout.array("postings", blocks * BLOCK_BYTES),
            skips: layout.array("skip entries", blocks * SKIP_BYTES),
            scores: layout.array("scores", documents * SCORE_BYTES),
            stored: layout.array("documents", documents * DOCUMENT_BYTES),
            requests: parameters.requests,
            warmup: parameters.warmup.of(parameters.requests, parameters.threads.count)?,
            pace: parameters.pace,
            threads: parameters.threads.count,
            seed,
            layout,
        })
    }

    fn populates(&self) -> bool {
        self.warmup.requests > 0
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Client<Search> {
        let own = share(self.requests, index, self.threads);
        let warmup = self.warmup.share(index, self.threads);
        Client::new(self, index, own.end - own.start, warmup, self.pace)
    }

    fn kernel_accesses(&self) -> u64 {
        expected(self, self.requests)
    }
}

impl Search {
    /// Looks a word up; gives its list's first block and length.
    fn look_up(&self, plan: &mut Plan, term: u64) -> (u64, u64) {
        let [lower, middle, root] = self.upper;
        let mut node = term / FAN_OUT;
        let mut nodes = [0; 3];
        for (level, table) in [lower, middle, root].into_iter().enumerate() {
            nodes[level] = table + node * TERM_BYTES;
            node /= FAN_OUT;
        }
        // Parsing and analysing the query come before.
        plan.enter(nodes[2], 2000);
        plan.follow(nodes[1], 60);
        plan.follow(nodes[0], 60);
        plan.follow(self.dictionary + term * TERM_BYTES, 60);
        let (begin, end) = (self.lists[term as usize], self.lists[term as usize + 1]);
        (begin, end - begin)
    }
}

impl Service for Search {
    type State = Random;

    fn state(&self, thread: u32) -> Random {
        Random::of_thread(self.seed, thread)
    }

    fn plan<M: Memory>(&self, random: &mut Random, plan: &mut Plan, _: &mut M) {
        let lists = [0, 1].map(|_| {
            let term = self.order.apply(self.words.sample(random));
            self.look_up(plan, term)
        });
        for (first, blocks) in lists {
            let read = blocks.min(LONGEST_READ / BLOCK_BYTES);
            for block in first..first + read {
                // The skip entry says what the block's documents score at most, so it comes first.
                plan.enter(self.skips + block * SKIP_BYTES, 20);
                // Unpacking costs two instructions a document. Which scores are read is known at the end of a block.
                let (at, end) = (self.postings + block * BLOCK_BYTES, BLOCK_BYTES - 32);
                plan.read_costing(at, end, 32);
                plan.enter(at + end, 32);
                for _ in 0..2 {
                    // Documents come in ascending order.
                    let begin = (block - first) * self.documents / read;
                    let document = begin + random.below((self.documents / read).max(1));
                    let score = self.scores + document.min(self.documents - 1) * SCORE_BYTES;
                    plan.read_costing(score, SCORE_BYTES, 40);
                }
            }
        }
        for result in 0..RESULTS {
            let rank = self.found.sample(random);
            // Which popular documents a query finds depends on its words.
            let near = scale(hash(lists[0].0, result), self.documents.min(16));
            let document = self.scattered.apply((rank + near) % self.documents);
            plan.independent();
            plan.read(self.stored + document * DOCUMENT_BYTES, HEAD_BYTES);
        }
    }
}
