//! Services and stores: where their requests go, and which of their parts grow.

use super::*;

#[test]
fn the_store_grows_its_heap_and_its_table_while_it_runs() {
    let (mut heap, mut tables, mut freed) = (0u64, 0, 0);
    for batch in batches("kv,keys=5000,requests=1,preload=1") {
        for event in &batch.events {
            match &event.event {
                Event::Map { range, kind: terrace_trace::MapKind::Heap, .. } => heap += range.bytes,
                Event::Map { .. } => tables += 1,
                Event::Unmap { .. } => freed += 1,
                _ => {}
            }
        }
    }
    // 5000 entries of 32 + 32 + 16 + 512 bytes; tables of 512, 1024, 2048, 4096 and 8192 buckets. A table is given
    // back once all its buckets have moved, one per request: the last move is under way.
    assert!((5000 * 592..5000 * 592 + (256 << 10)).contains(&heap), "{heap}");
    assert_eq!((tables, freed), (5, 3));
}

#[test]
fn a_service_has_few_hot_pages_scattered_over_huge_pages() {
    let redis = "service,bytes=32 MiB,values=varied,value=320 B,hot=0.0002,requests=2e4,think=0";
    let shares = |popular: &str| {
        let mut pages = pieces(&format!("{redis},popular={popular}"), "records", 4096);
        let huge = pages.chunks(512).filter(|pages| pages.iter().any(|count| *count > 500)).count();
        pages.sort_unstable_by(|a, b| b.cmp(a));
        let total: u64 = pages.iter().sum();
        (pages[..pages.len() / 100].iter().sum::<u64>() as f64 / total as f64, huge)
    };
    let (scattered, huge) = shares("scattered");
    assert!(scattered > 0.8, "a hundredth of the pages take nine tenths of the accesses: {scattered}");
    assert!(huge > 4, "they lie in {huge} huge pages");
    assert_eq!(shares("together").1, 1);
}

#[test]
fn think_time_lies_between_requests() {
    let thought = |think| -> u64 {
        let batches = batches(&format!("service,bytes=1 MiB,requests=100,think={think}"));
        let events = batches.iter().flat_map(|batch| &batch.events);
        events.map(|e| if let Event::Compute { instructions } = e.event { instructions } else { 0 }).sum()
    };
    assert_eq!((thought("0"), thought("1e6")), (0, 100_000_000));
}

#[test]
fn memtables_and_order_lines_grow_and_what_is_old_stays_untouched() {
    let lsm = "lsm,bytes=16 MiB,requests=2e4,reads=0.05,think=0,old=0.5";
    assert!(pieces(lsm, "old files", 4096).iter().all(|count| *count == 0));
    // 19,000 cells of 192 bytes, logged with 160.
    assert_eq!([pieces(lsm, "memtable", 1 << 20).len(), pieces(lsm, "commit log", 1 << 20).len()], [4, 3]);
    let tpcc = "tpcc,bytes=64 MiB,requests=4e3,think=0";
    // 1,800 new orders of ten lines on average.
    assert_eq!(pieces(tpcc, "new order lines", 1 << 20).len(), 2);
    let lines = pieces(tpcc, "order lines", 4096);
    let untouched = lines.iter().filter(|count| **count == 0).count();
    assert!(untouched > lines.len() * 9 / 10, "{untouched} of {}", lines.len());
}

#[test]
fn analytics_reads_its_input_once_and_writes_new_factors_in_each_pass() {
    let spec = "analytics,bytes=1 MiB,iterations=3,think=0";
    let traffic = traffic(spec);
    let input = (1 << 20) * 15 / 100 / 4096 * 4096;
    assert!((input - 32 * 512..=input).contains(&traffic["input"].0), "{}", traffic["input"].0);
    // As many users and items; each pass writes 256 bytes for each.
    let users = traffic["ratings by user"].1 / 1024;
    assert_eq!(traffic["new factors"].1, 2 * 3 * users * 256);
    assert_eq!(
        traffic["item factors"].0,
        64 * users * 256,
        "the first pass gathers those to begin with, later ones do not"
    );
}

#[test]
fn searches_hardly_touch_documents() {
    let traffic = traffic("search,bytes=64 MiB,requests=1e3,think=0");
    let total: u64 = traffic.values().map(|(read, _)| read).sum();
    assert!(traffic["documents"].0 * 8 < total, "{} of {total}", traffic["documents"].0);
    assert!(traffic.values().all(|(_, written)| *written == 0));
}
