//! Aged memory, and snapshots of it.

use super::*;
use proptest::prelude::*;

fn builds(kernel: f64) -> Aging {
    Aging::Builds { rounds: 2, kernel, residents: 0.0, fmfi: None, seed: 1 }
}

fn aged(aging: &Aging, frames: u64) -> TierMemory {
    let mut memory = TierMemory::new("dram", Frame(1 << 18), frames, &parameters(true, true));
    age(&mut memory, aging, None).unwrap();
    memory.audit().unwrap();
    memory
}

#[test]
fn a_full_page_cache_leaves_holes_and_gives_way() {
    let aging = Aging::PageCache { reads: 2.0, dropped: 0.0, kernel: 0.01, fmfi: Some(0.9), seed: 1 };
    let mut memory = aged(&aging, 64 << 10);
    assert!(memory.cached() > 60 << 10);
    assert!(memory.buddy.fragmentation_index(9) >= 0.9);
    assert_eq!(memory.take(PageSize::Huge, Owner::Taken, Time::ZERO), None);
    // Pages of programs push it out, and all of it can be had.
    let mut taken = 0;
    while memory.take(PageSize::Base, Owner::Taken, Time::ZERO).is_some() {
        taken += 1;
    }
    let kernel = memory.buddy.region(0, 64 << 10).1;
    assert_eq!((memory.cached(), taken), (0, (64 << 10) - kernel));
    memory.audit().unwrap();
}

#[test]
fn an_index_out_of_reach_says_so() {
    let mut memory = TierMemory::new("dram", Frame(0), 4096, &parameters(true, true));
    let aging = Aging::Builds { rounds: 1, kernel: 0.0, residents: 0.0, fmfi: Some(0.9), seed: 1 };
    let problem = age(&mut memory, &aging, None).unwrap_err();
    assert!(problem.contains("os.memory.aging.fmfi: 0.900 is not reached"), "{problem}");
}

#[test]
fn a_stop_ends_aging_where_it_is() {
    let stop = std::sync::atomic::AtomicBool::new(true);
    let cache = Aging::PageCache { reads: 1.0, dropped: 0.0, kernel: 0.01, fmfi: Some(1.0), seed: 1 };
    // Neither index can be reached, so that only the flag ends it well.
    let builds = Aging::Builds { rounds: 1, kernel: 0.0, residents: 0.0, fmfi: Some(1.0), seed: 1 };
    for aging in [cache, builds] {
        let mut memory = TierMemory::new("dram", Frame(0), 4096, &parameters(true, true));
        age(&mut memory, &aging, Some(&stop)).unwrap();
        assert_eq!((memory.cached(), memory.buddy.free_frames()), (0, 4096));
        memory.audit().unwrap();
    }
}

#[test]
fn the_index_is_that_of_the_memory_that_is_left() {
    let cache = |dropped| Aging::PageCache { reads: 1.0, dropped, kernel: 0.01, fmfi: Some(0.9), seed: 1 };
    let index = |dropped| aged(&cache(dropped), 64 << 10).buddy.fragmentation_index(9);
    assert!(index(0.3) >= 0.9, "{}", index(0.3));
    // Without a page of files nearly all of memory is in large blocks again.
    let mut memory = TierMemory::new("dram", Frame(0), 64 << 10, &parameters(true, true));
    let problem = age(&mut memory, &cache(1.0), None).unwrap_err();
    assert!(problem.contains("os.memory.aging.fmfi: 0.900 is not reached"), "{problem}");
}

#[test]
fn builds_leave_free_memory_that_is_in_no_order() {
    // As Linux: blocks of 4 MiB at most.
    let linux = MemoryParameters { max_order: 10, ..parameters(true, true) };
    let neighbours = |memory: &mut TierMemory| {
        let mut last = 0;
        let mut next_to_each_other = 0;
        while let Some(block) = memory.take(PageSize::Huge, Owner::Taken, Time::ZERO) {
            let block = block.frame.0 / 1024;
            next_to_each_other += u32::from(last == block + 1 || block == last + 1);
            last = block;
        }
        next_to_each_other
    };
    let mut fresh = TierMemory::new("dram", Frame(1 << 18), 256 << 10, &linux);
    let mut old = fresh.clone();
    age(&mut old, &builds(0.01), None).unwrap();
    old.audit().unwrap();
    assert_eq!(old.cached(), 0);
    assert!((2620..2630).contains(&old.used()), "1 % of 262144: {}", old.used());
    let (before, after) = (neighbours(&mut fresh), neighbours(&mut old));
    assert_eq!(before, 255);
    assert!(after < 64, "{after} of 255 blocks of 4 MiB follow a neighbour");
}

#[test]
fn what_is_kept_for_a_region_that_is_emptied_leaves_nobody_without_memory() {
    let aging = Aging::PageCache { reads: 0.0, dropped: 0.0, kernel: 0.0, fmfi: None, seed: 1 };
    let mut memory = aged(&aging, 64 << 10);
    // An eighth of memory is emptied, which leaves more free than the watermarks ask for.
    memory.buddy.isolate(0, 13, true);
    let frames = (0..8 << 10).map(|at| memory.base.plus(at));
    for frame in frames.filter(|frame| memory.block_of(*frame).is_some()).collect::<Vec<_>>() {
        memory.hold_cached(frame);
        memory.give_back(frame, Time::ZERO);
    }
    assert!(memory.buddy.free_frames() > memory.watermarks().1);
    // All of the rest can be had.
    let mut taken = 0;
    while let Some(block) = memory.take(PageSize::Base, Owner::Taken, Time::ZERO) {
        assert!(block.frame - memory.base >= 8 << 10);
        taken += 1;
    }
    assert_eq!((taken, memory.cached()), (56 << 10, 0));
    memory.audit().unwrap();
}

#[test]
fn residents_of_builds_lie_anywhere_and_give_way_last() {
    let aging = |residents| Aging::Builds { rounds: 3, kernel: 0.0, residents, fmfi: None, seed: 1 };
    let frames = 256 << 10;
    let mut old = aged(&aging(0.001), frames);
    assert_eq!((old.cached(), old.used()), (262, 0));
    // In eighths of memory: random places leave none of them without.
    let mut eighths = [0; 8];
    old.cache.iter().for_each(|frame| eighths[(u64::from(frame) * 8 / frames) as usize] += 1);
    assert!(eighths.iter().all(|count| (10..70).contains(count)), "{eighths:?}");
    // As they lie apart, no block of 64 MiB is left whole.
    let whole = |memory: &TierMemory, order| memory.buddy.free_blocks(order).0;
    assert!(whole(&aged(&aging(0.0), frames), 14) >= 12);
    assert_eq!(whole(&old, 14), 0);
    // Programs have what is free first.
    let mut taken = 0;
    while old.cached() == 262 && old.take(PageSize::Base, Owner::Taken, Time::ZERO).is_some() {
        taken += 1;
    }
    assert!(taken >= frames - 262 - old.watermarks().1, "{taken}");
    old.audit().unwrap();
}

#[test]
fn the_page_cache_gives_way_between_the_watermarks() {
    let free_while_taking = |min_free: f64| {
        let mut memory =
            TierMemory::new("dram", Frame(0), 8192, &MemoryParameters { min_free, ..parameters(true, true) });
        age(
            &mut memory,
            &Aging::PageCache { reads: 1.0, dropped: 0.0, kernel: 0.0, fmfi: None, seed: 1 },
            None,
        )
        .unwrap();
        let free = |_| {
            memory.take(PageSize::Base, Owner::Taken, Time::ZERO).unwrap();
            memory.buddy().free_frames()
        };
        let free: Vec<u64> = (0..1000).map(free).collect();
        (memory.watermarks(), *free.iter().min().unwrap(), *free.iter().max().unwrap())
    };
    // A step is a thousandth, or a quarter of what stays free.
    assert_eq!(free_while_taking(0.001), ((16, 24), 16, 24));
    assert_eq!(free_while_taking(0.05), ((512, 614), 512, 614));
}

#[test]
fn a_snapshot_comes_back_as_it_was() {
    for aging in
        [builds(0.02), Aging::PageCache { reads: 1.0, dropped: 0.3, kernel: 0.01, fmfi: None, seed: 3 }]
    {
        let mut old = aged(&aging, 8192);
        let mut bytes = Vec::new();
        Snapshot::of(&old).write(&mut bytes).unwrap();
        let snapshot = Snapshot::parse(&bytes).unwrap();
        assert_eq!(snapshot, Snapshot::of(&old));
        let mut memory = TierMemory::new("dram", Frame(1 << 18), 8192, &parameters(true, true));
        snapshot.restore(&mut memory).unwrap();
        memory.audit().unwrap();
        assert_eq!((memory.used(), memory.cached()), (old.used(), old.cached()));
        // And goes on as the other one would.
        loop {
            let taken = old.take(PageSize::Base, Owner::Taken, Time::ZERO);
            assert_eq!(memory.take(PageSize::Base, Owner::Taken, Time::ZERO), taken);
            if taken.is_none() {
                break;
            }
        }
        let mut other = TierMemory::new("dram", Frame(0), 4096, &parameters(true, true));
        assert!(snapshot.restore(&mut other).unwrap_err().contains("the saved memory has 32 MiB"));
        let mut other = TierMemory::new("dram", Frame(0), 8192, &parameters(true, false));
        assert!(snapshot.restore(&mut other).unwrap_err().contains("grouping true"));
    }
}

#[test]
fn a_small_file_cannot_claim_a_large_memory() {
    let file = |numbers: &[u64], zeros: usize| {
        let mut bytes = b"TERRMEM1".to_vec();
        numbers.iter().for_each(|number| bytes.extend(&number.to_le_bytes()[..5]));
        bytes.resize(bytes.len() + 5 * zeros, 0);
        zstd::encode_all(&bytes[..], 3).unwrap()
    };
    // All of 16 TiB less a page the kernel's: a mobility for each 512 frames, no free block, no page cache.
    let huge = file(&[u64::from(u32::MAX), 10, 0], (1 << 32) / 512 / 64);
    let most = (4 * huge.len()).min(1024);
    let refused = Snapshot::parse(&huge).unwrap_err();
    let expected =
        format!("claims 16383 GiB of memory in {} bytes, where at most {most} GiB can be", huge.len());
    assert!(refused.contains(&expected), "{refused}");
    // The first frame is free a million times.
    let mut numbers = vec![0; 3 + 2048 + 1];
    (numbers[0], numbers[1], numbers[3 + 2048]) = (1 << 20, 10, 1 << 20);
    let refused = Snapshot::parse(&file(&numbers, 3 << 20)).unwrap_err();
    assert!(refused.contains("free blocks") && refused.contains("bytes"), "{refused}");
}

proptest! {
    #[test]
    fn damaged_snapshots_are_refused(at in 0usize..4000, bit in 0u8..8, cut in 0usize..4000) {
        let mut bytes = Vec::new();
        Snapshot::of(&aged(&builds(0.02), 4096)).write(&mut bytes).unwrap();
        let cut = cut % bytes.len();
        prop_assert!(Snapshot::parse(&bytes[..cut]).is_err());
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        // The checksum sees it, or zstd does, or nothing changed in what was meant.
        if let Ok(snapshot) = Snapshot::parse(&bytes) {
            prop_assert_eq!(snapshot, Snapshot::of(&aged(&builds(0.02), 4096)));
        }
    }
}
