//! Against plain references: an LRU stack as a list, and a window that slides over the stream with a count of each page.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

/// Accesses by the number of other pages since the last one to the same page; none for first ones.
fn naive_distances(pages: &[u64]) -> Vec<Option<usize>> {
    let mut stack: Vec<u64> = Vec::new();
    let of = |page: &u64| {
        let found = stack.iter().rposition(|other| other == page);
        let distance = found.map(|at| {
            stack.remove(at);
            stack.len() - at
        });
        stack.push(*page);
        distance
    };
    pages.iter().map(of).collect()
}

/// Mean number of pages in `window` accesses, over all windows of the stream.
fn naive_working_set(pages: &[u64], window: usize) -> f64 {
    let (mut counts, mut sets) = (HashMap::new(), 0);
    for (at, page) in pages.iter().enumerate() {
        *counts.entry(page).or_insert(0) += 1;
        // The access that leaves the window.
        if let Some(left) = at.checked_sub(window).map(|at| &pages[at]) {
            let count = counts.get_mut(left).expect("it was inside");
            *count -= 1;
            if *count == 0 {
                counts.remove(left);
            }
        }
        if at + 1 >= window {
            sets += counts.len();
        }
    }
    sets as f64 / (pages.len() - window + 1) as f64
}

fn sampled(pages: &[u64], limit: usize) -> PageSample {
    let addresses: Vec<u64> = pages.iter().map(|page| (page << 12) | (page % 4096)).collect();
    let mut sample = PageSample::with_limit(limit);
    // In pieces that are no multiple of anything, so that runs of accesses cross their borders.
    for piece in addresses.chunks(777) {
        sample.add(piece, 0);
    }
    sample
}

/// A stream with runs of accesses to one page, near repetitions and far ones.
fn streams() -> impl Strategy<Value = Vec<u64>> {
    let piece = prop_oneof![
        (0u64..400, 1usize..30).prop_map(|(page, times)| vec![page; times]),
        (0u64..400, 1u64..60).prop_map(|(first, length)| (first..first + length).collect()),
        prop::collection::vec(0u64..12, 1..40),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// With every page in the sample all is exact: misses at every size and working sets of every window.
    #[test]
    fn the_whole_sample_is_as_the_naive_stack(pages in streams()) {
        let curves = sampled(&pages, 1000).curves();
        prop_assert_eq!((curves.sampled_share, curves.miss_ratio_error, curves.working_set_error), (1.0, 0.0, 0.0));
        let distances = naive_distances(&pages);
        for (bytes, ratio) in curves.memory_bytes.iter().zip(&curves.miss_ratio) {
            let held = (bytes / 4096) as usize;
            let misses = distances.iter().filter(|distance| distance.is_none_or(|d| d >= held)).count();
            prop_assert!((ratio - misses as f64 / pages.len() as f64).abs() < 1e-12, "{} pages: {}", held, ratio);
        }
        for (window, bytes) in curves.window_accesses.iter().zip(&curves.working_set_bytes) {
            let expected = naive_working_set(&pages, *window as usize) * 4096.0;
            prop_assert!((bytes / expected - 1.0).abs() < 1e-9, "window {}: {} not {}", window, bytes, expected);
        }
    }

    /// Exact for small sets, whatever the order and the repetition.
    #[test]
    fn small_sets_are_counted_exactly(addresses in prop::collection::vec(0u64..1 << 30, 0..4000)) {
        let mut pages = PageSample::new();
        pages.add(&addresses, 0);
        let reference: BTreeSet<u64> = addresses.iter().map(|a| a >> 12).collect();
        prop_assert_eq!(pages.count(), reference.len() as u64);
        prop_assert!(!pages.is_estimate());
    }
}

/// Numbers below `n`, of a generator with a fixed seed.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(state >> 11) * u128::from(n)) >> 53) as u64
    }
}

/// Streams of two million accesses to a quarter of a million pages: popular pages, two arrays swept in turn, and a phase
/// change with a stack that is always hot.
fn known_streams() -> [(&'static str, Vec<u64>); 3] {
    const PAGES: u64 = 1 << 18;
    let mut draw = random(7);
    let popular = (0..2_000_000).map(|_| (draw(512) * draw(512)).wrapping_mul(0x9e37_79b1) % PAGES).collect();
    let swept = (0..2_000_000).map(|at| at / 2 % (PAGES / 4) + at % 2 * (PAGES / 2)).collect();
    let mut draw = random(11);
    let phases = (0..2_000_000u64)
        .map(|at| match draw(4) {
            0 => PAGES + draw(32),
            _ if at < 1_000_000 => draw(PAGES / 8),
            _ => PAGES / 2 + draw(PAGES / 2),
        })
        .collect();
    [("popular", popular), ("swept", swept), ("phases", phases)]
}

#[test]
fn one_page_in_a_hundred_is_enough_within_the_stated_error() {
    for (name, pages) in known_streams() {
        let whole = sampled(&pages, 1 << 19);
        let limit = whole.count() as usize / 100;
        let (exact, estimate) = (whole.curves(), sampled(&pages, limit).curves());
        assert_eq!(exact.sampled_share, 1.0);
        assert!(estimate.sampled_share <= 0.01, "{name}: {} of the pages", estimate.sampled_share);
        let stated = estimate.miss_ratio_error;
        assert!(stated > 0.0 && stated < 0.08, "{name}: {stated}");
        for (bytes, ratio) in estimate.memory_bytes.iter().zip(&estimate.miss_ratio) {
            let Some(at) = exact.memory_bytes.iter().position(|other| other == bytes) else { continue };
            let off = (ratio - exact.miss_ratio[at]).abs();
            // The distances themselves are rounded to those in the sample: a step at one size is one nearby.
            let next = exact.miss_ratio.get(at + 1).unwrap_or(&0.0);
            let before = exact.miss_ratio[at.saturating_sub(1)];
            let is_between = *ratio <= before + 0.02 && *ratio >= next - 0.02;
            assert!(
                off < 4.0 * stated + 0.01 || is_between,
                "{name}, {bytes} bytes: {ratio}, off by {off}, stated {stated}"
            );
        }
        for (at, window) in estimate.window_accesses.iter().enumerate() {
            let same = exact.window_accesses.iter().position(|other| other == window).unwrap();
            let (ours, theirs) = (estimate.working_set_bytes[at], exact.working_set_bytes[same]);
            let off = (ours / theirs - 1.0).abs();
            let stated = estimate.working_set_error;
            assert!(
                stated < 0.1 && off < 4.0 * stated + 0.01,
                "{name}, {window} accesses: off by {off}, stated {stated}"
            );
        }
    }
}

#[test]
fn large_sets_are_estimated_whatever_the_stride() {
    for stride in [1u64, 3, 512, 262_144] {
        let mut pages = PageSample::new();
        let n = 1_000_000u64;
        for page in 0..n {
            pages.add(&[page * stride * 4096 % (1 << 52)], 1);
        }
        let error = (pages.count() as f64 / n as f64 - 1.0).abs();
        assert!(pages.is_estimate() && error < 0.04, "stride {stride}: off by {error}");
    }
}

#[test]
fn processes_are_apart() {
    let mut pages = PageSample::new();
    pages.add(&[0x1000, 0x1008], 0);
    pages.add(&[0x1000], 1);
    assert_eq!(pages.count(), 2);
    let curves = pages.curves();
    // One page of the two serves the access after the first.
    assert_eq!((curves.memory_bytes[0], curves.miss_ratio[0]), (4096, 2.0 / 3.0));
}

#[test]
fn nothing_has_no_curves() {
    let curves = PageSample::new().curves();
    assert!(curves.memory_bytes.is_empty() && curves.window_accesses.is_empty());
}
