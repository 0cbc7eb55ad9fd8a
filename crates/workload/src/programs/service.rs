//! A loaded key-value store at a given rate of requests.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Program, share};
use crate::random::{Permutation, Random, Zipf, hash, mix, scale};
use crate::requests::{Client, Pace, Plan, Service, VECTOR_BYTES, WarmupRequests, expected};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "service",
    summary: "a loaded key-value store at a given rate of requests (Redis, Aerospike under YCSB)",
    description: "\
A hash table, index entries of 64 bytes and records, all loaded beforehand, in the order of their keys. A request \
loads its bucket, walks the entries that share it until its own, compares the key in the record and reads or \
overwrites the value: each a load that depends on the one before. The share `traffic` of the requests goes to the \
share `hot` of the keys, evenly; the others follow a Zipf distribution over all keys. Popular keys are scattered over \
the records, so that a huge page holds a few hot lines among cold ones, or lie side by side.

Stands for two of the services that Thermostat (Agarwal, PhD thesis, 2017, sections 6.4 and 6.5) is evaluated with. \
Redis, 17.2 GB: hot=0.0001,traffic=0.9,zipf=0,values=varied,value=320 B,chain=1,reads=0.95,think=24e3. A few keys, one \
in every other huge page, take nine tenths of the requests, and all the rest is touched evenly, so that next to \
nothing is cold. Value sizes are those of the ETC pool of Atikoglu et al., SIGMETRICS 2012, scaled to the mean asked \
for. Aerospike, 12.3 GB: traffic=0,zipf=0.99,values=fixed,value=1 KiB,chain=4,threads=8,think=2e5, and reads=0.95 or \
reads=0.05; an index of 64-byte entries, each touched on every request to it or its neighbours, beside records under a \
Zipf distribution. `think` is that of their published 188,000 and 176,000 requests a second at 2.3 GHz and two \
instructions a cycle; with less memory the same `think` keeps the share of it that a budget of accesses a second \
admits. It differs: no network and no parsing beyond their instructions; values are overwritten in place, so the store \
does not grow; record sizes come in 32 steps; keys are numbers. All threads serve all keys.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of table, entries and records.
    #[parameter(default = "256 MiB", range = "4 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Mean size of a value.
    #[parameter(default = "512 B", range = Bytes(1)..=Bytes(LARGEST_VALUE))]
    value: Bytes,
    /// Sizes of the values.
    values: Values,
    /// Share of the keys that are hot.
    #[parameter(default = 0.0001, range = 0.0..=1.0, unit = "share")]
    hot: f64,
    /// Share of the requests that go to hot keys.
    #[parameter(default = 0.9, range = 0.0..=1.0, unit = "share")]
    traffic: f64,
    /// Zipf exponent of the other requests; 0 is uniform.
    #[parameter(default = 0.0, range = 0.0..=4.0, unit = "exponent")]
    zipf: f64,
    /// Where the records of popular keys lie.
    popular: Popular,
    /// Keys that share a bucket.
    #[parameter(default = 1, range = 1..=32, unit = "entries")]
    chain: u64,
    /// Share of reads among the requests.
    #[parameter(default = 0.95, range = 0.0..=1.0, unit = "share")]
    reads: f64,
    /// Requests, all threads together.
    #[parameter(default = "200e3", range = 1..=LARGEST_COUNT, unit = "requests")]
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Values {
    /// All of one size.
    #[default]
    Fixed,
    /// Sizes spread as in a large cache.
    Varied,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Popular {
    /// Anywhere.
    #[default]
    Scattered,
    /// Side by side.
    Together,
}

const ENTRY_BYTES: u64 = 64;
const BUCKET_BYTES: u64 = 8;
/// Record: the key, padded, and a header with the value's length; then the value.
const HEADER_BYTES: u64 = 64;
const LARGEST_VALUE: u64 = 4096;
/// Records whose sizes are the quantiles of the distribution, in an order of their own in each group.
const GROUP: u64 = 32;

#[derive(Clone)]
pub(crate) struct KeyValueService {
    chains: u64,
    hot_keys: u64,
    traffic: f64,
    zipf: Zipf,
    order: Option<Permutation>,
    reads: f64,
    requests: u64,
    warmup: WarmupRequests,
    pace: Pace,
    /// Record sizes of a group, and their sum.
    sizes: [u64; GROUP as usize],
    group_bytes: u64,
    table: u64,
    entries: u64,
    records: u64,
    threads: u32,
    seed: u64,
    layout: Layout,
}

/// Value sizes of Facebook's ETC pool: a generalised Pareto distribution with scale 214.476 and shape 0.348238, whose
/// mean is 329 bytes.
fn etc_quantile(share: f64) -> f64 {
    214.476 / 0.348_238 * (libm::pow(1.0 - share, -0.348_238) - 1.0)
}

impl KeyValueService {
    /// Address and size of a record: the group's beginning, and what lies before it there.
    fn record(&self, key: u64) -> (u64, u64) {
        let (group, place) = (key / GROUP, key % GROUP);
        let word = hash(self.seed, group);
        let size =
            |place: u64| self.sizes[(place.wrapping_mul(word | 1).wrapping_add(word >> 32) % GROUP) as usize];
        let before: u64 = (0..place).map(size).sum();
        (self.records + group * self.group_bytes + before, size(place))
    }
}

impl Program for KeyValueService {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Client<KeyValueService>;

    fn new(parameters: &Parameters) -> Result<KeyValueService, Problem> {
        let value = parameters.value.0;
        let varied = parameters.values == Values::Varied;
        let mut sizes = [0; GROUP as usize];
        let quantile = |i: usize| etc_quantile((i as f64 + 0.5) / GROUP as f64);
        let mean = (0..sizes.len()).map(quantile).sum::<f64>() / GROUP as f64;
        for (i, size) in sizes.iter_mut().enumerate() {
            let bytes = if varied { (value as f64 * quantile(i) / mean).ceil() as u64 } else { value };
            *size = HEADER_BYTES + bytes.max(1).next_multiple_of(VECTOR_BYTES);
        }
        let group_bytes: u64 = sizes.iter().sum();
        let chain = parameters.chain;
        // Whole groups, and whole chains: 32 is a multiple of few chains, so the keys are rounded to both.
        let unit = GROUP * chain;
        let unit_bytes = group_bytes * chain + unit * ENTRY_BYTES + GROUP * BUCKET_BYTES;
        let keys = at_least("bytes", parameters.bytes, Bytes(unit_bytes))?.0 / unit_bytes * unit;
        let chains = keys / chain;
        let seed = parameters.seed.number;
        let scattered = parameters.popular == Popular::Scattered;
        let mut layout = Layout::new(parameters.start.init);
        Ok(KeyValueService {
            chains,
            hot_keys: ((keys as f64 * parameters.hot) as u64).max(1),
            traffic: parameters.traffic,
            zipf: Zipf::new(keys, parameters.zipf),
            order: scattered.then(|| Permutation::new(keys, seed)),
            reads: parameters.reads,
            requests: parameters.requests,
            warmup: parameters.warmup.of(parameters.requests, parameters.threads.count)?,
            pace: parameters.pace,
            sizes,
            group_bytes,
            table: layout.array("hash table", chains * BUCKET_BYTES),
            entries: layout.array("index entries", keys * ENTRY_BYTES),
            records: layout.array("records", keys / GROUP * group_bytes),
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

    fn thread(&self, index: u32) -> Client<KeyValueService> {
        let own = share(self.requests, index, self.threads);
        let warmup = self.warmup.share(index, self.threads);
        Client::new(self, index, own.end - own.start, warmup, self.pace)
    }

    fn kernel_accesses(&self) -> u64 {
        expected(self, self.requests)
    }
}

impl Service for KeyValueService {
    type State = Random;

    fn state(&self, thread: u32) -> Random {
        Random::of_thread(self.seed, thread)
    }

    fn plan<M: Memory>(&self, random: &mut Random, plan: &mut Plan, _: &mut M) {
        let rank =
            if random.unit() < self.traffic { random.below(self.hot_keys) } else { self.zipf.sample(random) };
        let key = self.order.as_ref().map_or(rank, |order| order.apply(rank));
        let chain = key % self.chains;
        // Command dispatch and hashing come before the first load.
        plan.enter(self.table + BUCKET_BYTES * scale(mix(chain), self.chains), 150);
        for entry in (chain..=key).step_by(self.chains as usize) {
            plan.follow(self.entries + ENTRY_BYTES * entry, 6);
        }
        let (record, bytes) = self.record(key);
        plan.follow(record, 8);
        let (value, bytes) = (record + VECTOR_BYTES, bytes - VECTOR_BYTES);
        if random.unit() < self.reads {
            plan.read(value, bytes);
        } else {
            plan.write(value, bytes);
        }
    }
}
