//! A random program over all that the arena gives out, which knows every byte: memory in three page sizes that changes them,
//! exchanges, hints, splits and joins; virtual blocks that are cloned, promoted and handed over; stores that are compacted;
//! and Trident's thread at work on all of it, as if memory were short now and then.
//!
//! `TERRACE_TORTURE_SECONDS` makes it run so long, from the seed `TERRACE_TORTURE_SEED` on; `scripts/torture-arena` does so,
//! and counts.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_arena::blocks::{Blocks, Handle, Problem, Property, Rights};
use terrace_arena::exchange::exchange;
use terrace_arena::memory::{Hint, Memory, Pages, hint};
use terrace_arena::resize::resize;
use terrace_arena::store::{Compaction, Store};
use terrace_arena::{BASE, HUGE, Promoter};
use terrace_model::PageSize;
use terrace_policy::Random;

/// Steps of a worker for each seed; the one with the store takes twenty times as many.
const STEPS: u64 = 120;

/// Memory and what belongs into each of its pages: 0 is zeros, else a stamp.
struct Known {
    memory: Memory,
    stamps: Vec<u64>,
}

fn write_page(start: *mut u8, stamp: u64) {
    for at in (0..BASE).step_by(64) {
        let value = if stamp == 0 { 0 } else { stamp << 16 | at as u64 };
        // SAFETY: The caller has the page.
        unsafe { start.add(at).cast::<u64>().write(value) };
    }
}

fn check_page(start: *const u8, stamp: u64, what: &str) {
    for at in (0..BASE).step_by(64) {
        let expected = if stamp == 0 { 0 } else { stamp << 16 | at as u64 };
        // SAFETY: The caller has the page.
        let found = unsafe { start.add(at).cast::<u64>().read() };
        assert_eq!(found, expected, "{what}, byte {at} of a page");
    }
}

impl Known {
    fn new(random: &mut Random) -> Known {
        let pages = if random.next().is_multiple_of(3) { Pages::Base } else { Pages::Huge };
        let memory = Memory::new((1 + random.next() as usize % 8) * HUGE, pages).unwrap();
        let stamps = vec![0; memory.bytes() / BASE];
        Known { memory, stamps }
    }

    fn page(&self, at: usize) -> *mut u8 {
        // SAFETY: Within the memory.
        unsafe { self.memory.start().add(at * BASE) }
    }

    fn some(&self, random: &mut Random) -> std::ops::Range<usize> {
        let from = random.next() as usize % self.stamps.len();
        from..from + 1 + random.next() as usize % (self.stamps.len() - from)
    }

    fn write(&mut self, random: &mut Random, stamp: u64) {
        let range = self.some(random);
        // Here and there, or all of it.
        let step = [1, 7, 100][random.next() as usize % 3];
        for at in range.step_by(step) {
            self.stamps[at] = if random.next().is_multiple_of(16) { 0 } else { stamp };
            write_page(self.page(at), self.stamps[at]);
        }
    }

    fn check(&self) {
        for (at, stamp) in self.stamps.iter().enumerate() {
            check_page(self.page(at), *stamp, "memory");
        }
    }

    fn advise(&self, random: &mut Random) {
        let range = self.some(random);
        let advice = [Hint::Collapse, Hint::Populate, Hint::Cold, Hint::Split, Hint::Node(0), Hint::PageOut];
        // Whether the kernel takes it is not the question.
        // SAFETY: The test's own memory.
        let _ =
            unsafe { hint(self.page(range.start), range.len() * BASE, advice[random.next() as usize % 6]) };
    }
}

fn memory(random: &mut Random, steps: u64) {
    let mut all: Vec<Known> = (0..4).map(|_| Known::new(random)).collect();
    for stamp in 1..=steps {
        let (one, other) = (random.next() as usize % 4, random.next() as usize % 4);
        match random.next() % 10 {
            0..=3 => all[one].write(random, stamp),
            4 => all[one].advise(random),
            5 => {
                let to = [Pages::Base, Pages::Huge, Pages::Giant][random.next() as usize % 3];
                // SAFETY: Nobody else uses it.
                let _ = unsafe { resize(&mut all[one].memory, to) };
            }
            6 if one != other => {
                let (a, b) = (all[one].some(random), all[other].some(random));
                let pages = a.len().min(b.len());
                // SAFETY: Both are the test's own, and apart.
                unsafe { exchange(all[one].page(a.start), all[other].page(b.start), pages * BASE) }.unwrap();
                for at in 0..pages {
                    let stamp = all[one].stamps[a.start + at];
                    all[one].stamps[a.start + at] =
                        std::mem::replace(&mut all[other].stamps[b.start + at], stamp);
                }
            }
            7 => all[one] = Known::new(random),
            _ => all[one].check(),
        }
    }
    all.iter().for_each(Known::check);
}

fn blocks(random: &mut Random, steps: u64) {
    let (mut table, mut all): (Blocks, Vec<(u32, Vec<u64>)>) = (Blocks::new(), Vec::new());
    let (mine, theirs) = UnixStream::pair().unwrap();
    let at = |table: &Blocks, index: u32, page: usize| {
        table.resolve(Handle { index, offset: (page * BASE) as u64 }, BASE as u64, false).unwrap()
    };
    let check = |table: &Blocks, (index, stamps): &(u32, Vec<u64>)| {
        for (page, stamp) in stamps.iter().enumerate() {
            check_page(at(table, *index, page), *stamp, "a block");
        }
    };
    for stamp in 1..=steps {
        let pick = if all.is_empty() { 0 } else { random.next() as usize % all.len() };
        let what = random.next() % 10;
        if all.is_empty() || what == 0 && all.len() < 12 {
            let index = table.request(1 + random.next() % (4 << 20)).unwrap();
            let pages = (table.size(index).unwrap() as usize / BASE).min(1024);
            all.push((index, vec![0; pages]));
            continue;
        }
        let index = all[pick].0;
        match what {
            1..=4 => {
                let page = random.next() as usize % all[pick].1.len();
                let handle = Handle { index, offset: (page * BASE) as u64 };
                match table.resolve(handle, BASE as u64, true) {
                    Ok(start) => {
                        all[pick].1[page] = stamp;
                        write_page(start, stamp);
                    }
                    Err(problem) => assert_eq!(problem, Problem::NotAllowed),
                }
            }
            5 if all.len() < 12 => {
                // SAFETY: Nobody writes meanwhile; so below.
                let clone = unsafe { table.duplicate(index) }.unwrap();
                all.push((clone, all[pick].1.clone()));
            }
            // A process has no room for the largest sizes.
            6 if table.size(index).unwrap() <= 4 << 30 => {
                // SAFETY: No address is kept.
                let promoted = unsafe { table.promote(index, table.size(index).unwrap() + 1) };
                match promoted {
                    Ok(()) => {
                        let pages = (table.size(index).unwrap() as usize / BASE).min(1024);
                        all[pick].1.resize(pages, 0);
                    }
                    Err(problem) => assert_eq!(problem, Problem::NotAllowed),
                }
            }
            7 if all.len() < 12 => {
                // The other end is in the same table; what one writes is there for the other.
                // SAFETY: The table and its blocks are this thread's own.
                let sent = unsafe { table.send(index, mine.as_raw_fd(), Rights::Read) };
                if sent.is_ok() {
                    let got = table.attach(theirs.as_raw_fd()).unwrap();
                    check(&table, &(got, all[pick].1.clone()));
                    // SAFETY: No address is kept.
                    unsafe { table.detach(got) }.unwrap();
                }
            }
            8 => {
                let properties = [Property::Cold, Property::LatencySensitive, Property::BandwidthSensitive];
                table.describe(index, properties[random.next() as usize % 3]).unwrap();
                check(&table, &all[pick]);
            }
            _ => {
                check(&table, &all[pick]);
                // SAFETY: No address is kept.
                unsafe { table.detach(index) }.unwrap();
                all.swap_remove(pick);
            }
        }
    }
    all.iter().for_each(|block| check(&table, block));
}

fn store(random: &mut Random, steps: u64) {
    let mut store = Store::new(24 << 20, Pages::Huge).unwrap();
    let mut all: Vec<(u32, u64, bool)> = Vec::new();
    let check = |store: &Store, (handle, stamp, _): &(u32, u64, bool)| {
        let (start, size) = store.resolve(*handle).unwrap();
        for page in 0..size.base_pages() as usize {
            // SAFETY: Within the page.
            check_page(unsafe { start.add(page * BASE) }, *stamp, "a store's page");
        }
    };
    for stamp in 1..=20 * steps {
        match random.next() % 40 {
            0 => {
                let kind = [Compaction::Smart, Compaction::Normal][random.next() as usize % 2];
                // SAFETY: No address is kept.
                unsafe { store.compact(kind, PageSize::Huge) };
            }
            1 => {
                store.trim();
            }
            2..=17 if !all.is_empty() => {
                let pick = random.next() as usize % all.len();
                check(&store, &all[pick]);
                let (handle, _, pinned) = all.swap_remove(pick);
                if pinned {
                    store.unpin(handle).unwrap();
                }
                store.release(handle).unwrap();
            }
            _ => {
                let size = if random.next().is_multiple_of(50) { PageSize::Huge } else { PageSize::Base };
                if let Ok(handle) = store.allocate(size) {
                    let pinned = random.next().is_multiple_of(20);
                    if pinned {
                        store.pin(handle).unwrap();
                    }
                    let start = store.resolve(handle).unwrap().0;
                    // SAFETY: Within the page.
                    (0..size.base_pages() as usize)
                        .for_each(|at| write_page(unsafe { start.add(at * BASE) }, stamp));
                    all.push((handle, stamp, pinned));
                }
            }
        }
    }
    all.iter().for_each(|page| check(&store, page));
}

#[test]
fn every_byte_is_found_whatever_is_done_to_pages() {
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = asked("TERRACE_TORTURE_SEED").unwrap_or(1);
    let (begin, span) = (Instant::now(), Duration::from_secs(asked("TERRACE_TORTURE_SECONDS").unwrap_or(0)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Joins, and takes apart: by turns as if there were memory enough, and as if there were none.
            let promoters = [Promoter::open(), Promoter::with(1.0, 1.0)];
            let mut promoters: Vec<Promoter> = promoters.into_iter().flatten().collect();
            while !stop.load(Relaxed) && !promoters.is_empty() {
                for promoter in &mut promoters {
                    promoter.step(&mut |_| !stop.load(Relaxed));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut seed = first;
        loop {
            // What fails ends the other thread too.
            let done = std::panic::catch_unwind(|| {
                let workers = [memory, blocks, store].into_iter().zip(0u64..).map(|(work, number)| {
                    std::thread::spawn(move || work(&mut Random::new(seed * 8 + number), STEPS))
                });
                workers.collect::<Vec<_>>().into_iter().for_each(|worker| worker.join().unwrap());
            });
            if done.is_err() || begin.elapsed() >= span {
                stop.store(true, Relaxed);
                assert!(done.is_ok(), "seed {seed}");
                let (operations, seconds) = ((seed + 1 - first) * STEPS * 22, begin.elapsed().as_secs());
                println!("torture: memory, seeds {first} to {seed}, {operations} operations, {seconds} s");
                return;
            }
            seed += 1;
        }
    });
}
