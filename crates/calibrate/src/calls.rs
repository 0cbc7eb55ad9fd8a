//! Calls that take a page away from all threads of a process, by how many threads have it.
//!
//! Each thread has a processor of its own. For each call one thread brings in a page, all threads store to it, and while
//! the others run on in the program without touching it again the first makes the call. Calls that take turns see the same
//! disturbances. Everything is this process's own memory, and a call holds one page at a time.

use crate::bandwidth;
use crate::clock::{Stretch, is_disturbed};
use crate::nodes::{allowed_processors, memory_nodes, pin};
use crate::region::{BASE, check_base_page};
use crate::spread::Spread;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A call that takes one page of 4 KiB away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `munmap`.
    Munmap,
    /// `mprotect`, which takes the right to write.
    Mprotect,
    /// `madvise` with `MADV_DONTNEED`.
    DontNeed,
    /// `move_pages` to another memory node.
    MovePages,
}

impl Call {
    /// All, in the order in which they are shown.
    pub const ALL: [Call; 4] = [Call::Munmap, Call::Mprotect, Call::DontNeed, Call::MovePages];

    /// The call's name.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Munmap => "munmap",
            Call::Mprotect => "mprotect",
            Call::DontNeed => "MADV_DONTNEED",
            Call::MovePages => "move_pages",
        }
    }
}

/// What one call took beside so many threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The call.
    pub call: Call,
    /// Threads that have the page, the caller among them.
    pub threads: usize,
    /// Nanoseconds of one call.
    pub time: Spread,
}

/// Calls measured against thread counts.
#[derive(Clone, Debug)]
pub struct Calls {
    /// The points, by threads, then by call.
    pub points: Vec<Point>,
    /// Calls that this machine cannot show, and why.
    pub left_out: Vec<(Call, String)>,
    /// Processors that the process may use.
    pub processors: usize,
    /// The share of a processor that the calling thread had; below 1 others ran as well.
    pub processor_share: f64,
}

impl Calls {
    /// Whether other programs took so much of the processors that the values cannot be trusted.
    pub fn is_disturbed(&self) -> bool {
        is_disturbed(self.processor_share)
    }
}

/// How much a measurement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Most repetitions of each call for each number of threads.
    pub rounds: usize,
    /// Longest time for each number of threads. One round is made in any case.
    pub time: Duration,
}

impl Effort {
    /// Some seconds on a machine of 16 processors.
    pub const FULL: Effort = Effort { rounds: 2000, time: Duration::from_secs(2) };
    /// As little as runs at all; the results mean nothing.
    pub const TINY: Effort = Effort { rounds: 3, time: Duration::from_millis(1) };
    /// No more threads than that are started.
    const THREADS: usize = 64;
}

/// Numbers of threads to measure with: powers of two, and all processors.
fn thread_counts(processors: usize) -> Vec<usize> {
    bandwidth::thread_counts(processors.min(Effort::THREADS))
}

/// Measures all calls that this machine can show.
///
/// # Errors
/// The system gives no page, no thread, or refuses a call, or has base pages other than 4 KiB.
pub fn measure_calls(effort: Effort, progress: &mut dyn FnMut(&str)) -> io::Result<Calls> {
    check_base_page()?;
    let processors = allowed_processors()?;
    let nodes = memory_nodes();
    let mut left_out = Vec::new();
    let mut calls = Call::ALL.to_vec();
    if let Err(reason) = can_move(&nodes) {
        calls.retain(|call| *call != Call::MovePages);
        left_out.push((Call::MovePages, reason));
    }
    let (mut points, mut shares) = (Vec::new(), Vec::new());
    for threads in thread_counts(processors.len()) {
        progress(&format!("{threads} thread{}", if threads == 1 { "" } else { "s" }));
        let (times, share) = beside(&processors[..threads], &calls, &nodes, effort)?;
        shares.push(share);
        let spreads = calls.iter().zip(times);
        points.extend(spreads.map(|(&call, times)| Point { call, threads, time: Spread::of(times) }));
    }
    let processor_share = Spread::of(shares).median;
    Ok(Calls { points, left_out, processors: processors.len(), processor_share })
}

/// What the threads share.
#[derive(Default)]
struct Board {
    /// The page of this turn.
    page: AtomicUsize,
    /// Counts turns: threads store to the page once in each.
    turn: AtomicUsize,
    /// Stores of this turn that are done, by threads other than the caller.
    stores: AtomicUsize,
    end: AtomicBool,
}

/// Says that the measurement is over, on every way out of it.
struct End<'a>(&'a Board);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end.store(true, Ordering::SeqCst);
    }
}

/// Nanoseconds of each call in each round, with one thread on each of `processors`; and the caller's share of its own.
fn beside(
    processors: &[usize],
    calls: &[Call],
    nodes: &[i32],
    effort: Effort,
) -> io::Result<(Vec<Vec<f64>>, f64)> {
    let board = Board::default();
    let (board, others) = (&board, &processors[1..]);
    std::thread::scope(|scope| {
        let end = End(board);
        for &processor in others {
            std::thread::Builder::new().spawn_scoped(scope, move || {
                // Where it is refused, the threads share processors as the system likes.
                let _ = pin(&[processor]);
                let mut seen = 0;
                while !board.end.load(Ordering::Relaxed) {
                    let turn = board.turn.load(Ordering::Acquire);
                    if turn != seen {
                        seen = turn;
                        store_to(board.page.load(Ordering::Relaxed));
                        board.stores.fetch_add(1, Ordering::Release);
                    }
                    std::hint::spin_loop();
                }
            })?;
        }
        // A thread of its own, so that the caller's processors stay what they are.
        let first = std::thread::Builder::new().spawn_scoped(scope, move || {
            let _end = end;
            let _ = pin(&processors[..1]);
            let mut times = vec![Vec::new(); calls.len()];
            let stretch = Stretch::begin();
            for round in 0..effort.rounds {
                if round > 0 && stretch.elapsed() > effort.time {
                    break;
                }
                for (call, times) in calls.iter().zip(&mut times) {
                    times.push(once(*call, board, others.len(), nodes)?);
                }
            }
            Ok((times, stretch.processor_share()))
        })?;
        first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// One page of 4 KiB that goes when dropped.
struct Page(usize);

impl Page {
    fn map() -> io::Result<Page> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: A new mapping anywhere.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), BASE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Page(at as usize)) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: The mapping is this page's own. Threads store to it only before a call, and all have done so.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, BASE) };
    }
}

/// Stores to a page that several threads store to.
fn store_to(page: usize) {
    // SAFETY: The page is mapped until all threads have stored to it, and nothing but these stores uses it.
    unsafe { AtomicU8::from_ptr(page as *mut u8) }.store(1, Ordering::Relaxed);
}

/// Nanoseconds of one call on a page that all threads have stored to.
fn once(call: Call, board: &Board, others: usize, nodes: &[i32]) -> io::Result<f64> {
    let page = Page::map()?;
    store_to(page.0);
    board.page.store(page.0, Ordering::Relaxed);
    board.stores.store(0, Ordering::Relaxed);
    board.turn.fetch_add(1, Ordering::Release);
    while board.stores.load(Ordering::Acquire) < others {
        std::hint::spin_loop();
    }
    let at = page.0 as *mut libc::c_void;
    let mut status = [-1];
    let target = match call {
        Call::MovePages => other_node(at, nodes)?,
        _ => 0,
    };
    let begin = Instant::now();
    // SAFETY: The call concerns the page alone, which no reference points to and no thread uses any more in this turn.
    let result = unsafe {
        match call {
            Call::Munmap => libc::munmap(at, BASE),
            Call::Mprotect => libc::mprotect(at, BASE, libc::PROT_READ),
            Call::DontNeed => libc::madvise(at, BASE, libc::MADV_DONTNEED),
            Call::MovePages => move_page(at, Some(target), &mut status),
        }
    };
    let took = begin.elapsed().as_nanos() as f64;
    match (call, result) {
        (Call::Munmap, 0) => std::mem::forget(page),
        (Call::MovePages, 0) if status[0] != target => {
            return Err(io::Error::other(format!("move_pages: the page was not moved ({})", status[0])));
        }
        (_, 0) => {}
        _ => {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(error.kind(), format!("{}: {error}", call.name())));
        }
    }
    Ok(took)
}

/// Move pages of this process alone (`linux/mempolicy.h`).
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// `move_pages(2)` of one page of this process; without a target its node is asked for.
///
/// # Safety
/// `at` is a page of this process.
unsafe fn move_page(at: *mut libc::c_void, target: Option<i32>, status: &mut [i32; 1]) -> libc::c_int {
    let nodes = target.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: Arrays of one element each, or none of nodes, as the call allows.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            1usize,
            &raw const at,
            nodes,
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    result as libc::c_int
}

/// A node with memory that the page is not on.
fn other_node(at: *mut libc::c_void, nodes: &[i32]) -> io::Result<i32> {
    let mut status = [-1];
    // SAFETY: A page of this process.
    if unsafe { move_page(at, None, &mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let other = nodes.iter().find(|node| **node != status[0]);
    other.copied().ok_or_else(|| io::Error::other("move_pages: no other memory node"))
}

/// Whether a page can be moved between nodes, tried on one; if not, why.
fn can_move(nodes: &[i32]) -> Result<(), String> {
    if nodes.len() < 2 {
        return Err("this machine has one memory node, and pages move between two".to_owned());
    }
    once(Call::MovePages, &Board::default(), 0, nodes).map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_measured_with_every_number_of_threads_or_left_out_with_a_reason() {
        let before = allowed_processors().unwrap();
        let mut reported = Vec::new();
        let measured = measure_calls(Effort::TINY, &mut |what| reported.push(what.to_owned())).unwrap();
        let counts = thread_counts(before.len());
        assert_eq!(reported.len(), counts.len(), "{reported:?}");
        let shown: Vec<Call> = Call::ALL
            .into_iter()
            .filter(|call| measured.left_out.iter().all(|(out, _)| out != call))
            .collect();
        let expected: Vec<_> =
            counts.iter().flat_map(|&threads| shown.iter().map(move |&call| (call, threads))).collect();
        let found: Vec<_> = measured.points.iter().map(|point| (point.call, point.threads)).collect();
        assert_eq!(found, expected);
        assert!(measured.points.iter().all(|point| point.time.median > 0.0 && point.time.count > 0));
        assert!(shown.len() >= 3, "{:?}", measured.left_out);
        assert_eq!(allowed_processors().unwrap(), before, "the caller may run where it could");
    }

    #[test]
    fn numbers_of_threads_double_up_to_all_processors() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(500), [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn pages_move_between_two_nodes() {
        assert!(can_move(&[0]).unwrap_err().contains("one memory node"));
    }
}
