//! What watching an input costs, per access: the observer runs once per input beside the simulations.
//! `cargo bench -p terrace-study`. One batch holds 4096 accesses; the rate printed is accesses per second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use terrace_study::InputObserver;
use terrace_trace::{AccessKind, BATCH_ACCESSES, Batch};

/// Batches observed per iteration: enough for the sampling to settle.
const BATCHES: usize = 2_500;
/// Batches that exist: few, since a simulation's batches were decoded a moment ago and lie in the cache.
const DISTINCT: usize = 32;

fn observe(c: &mut Criterion) {
    let mut group = c.benchmark_group("observer");
    group.throughput(Throughput::Elements((BATCHES * BATCH_ACCESSES) as u64)).sample_size(10);
    for (name, span) in [("random_16_mib", 16u64 << 20), ("random_4_gib", 4 << 30), ("sequential", 0)] {
        let mut random = 1u64;
        let batches: Vec<Batch> = (0..DISTINCT)
            .map(|at| {
                let mut batch = Batch::default();
                for i in 0..BATCH_ACCESSES {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let sequential = (at * BATCH_ACCESSES + i) as u64 * 8;
                    let addr = if span == 0 { sequential } else { (random >> 20) % span };
                    let kind = if random >> 62 == 0 { AccessKind::Write } else { AccessKind::Read };
                    batch.push(addr, 8, kind, 0, 3);
                }
                batch
            })
            .collect();
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut observer = InputObserver::new();
                for batch in batches.iter().cycle().take(BATCHES) {
                    observer.observe(batch);
                }
                black_box(observer)
            })
        });
    }
    group.finish();
}

criterion_group!(benches, observe);
criterion_main!(benches);
