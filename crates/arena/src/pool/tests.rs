use super::*;
use crate::BASE;
use crate::pages::PageTable;
use std::time::Instant;

fn resident(start: *mut u8, bytes: usize) -> Option<usize> {
    let mut resident = 0;
    let start = start as usize;
    PageTable::open()?.runs(start..start + bytes, &mut |run, _| resident += run.len());
    Some(resident)
}

/// Waits until so much is ready, and then a little longer, in which nothing more may become ready.
fn settles_at(pool: &Pool, bytes: usize) {
    let begin = Instant::now();
    while pool.ready() < bytes && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(pool.ready(), bytes);
}

fn is_zeros(start: *mut u8, bytes: usize) -> bool {
    // SAFETY: The test has it.
    unsafe { std::slice::from_raw_parts(start.cast::<u64>(), bytes / 8) }.iter().all(|word| *word == 0)
}

#[test]
fn trident_keeps_so_much_ready_and_what_is_ready_is_handed_out_first() {
    let pool = Pool::new(32 * HUGE, 4 * HUGE).unwrap();
    settles_at(&pool, 4 * HUGE);
    let start = pool.take(3 * HUGE).unwrap();
    assert!(
        resident(start, 3 * HUGE).is_none_or(|bytes| bytes == 3 * HUGE),
        "brought in before it is touched"
    );
    assert!(is_zeros(start, 3 * HUGE));
    settles_at(&pool, 4 * HUGE);
    // SAFETY: The test has it, and gives it back.
    unsafe {
        std::ptr::write_bytes(start, 7, 3 * HUGE);
        pool.give(start, 3 * HUGE).unwrap();
    }
    let all = pool.take(32 * HUGE).unwrap();
    assert!(is_zeros(all, 32 * HUGE), "what was given back is zeros again");
    assert_eq!((pool.take(1), pool.ready()), (Err(Problem::Full), 0));
}

#[test]
fn a_pool_that_keeps_nothing_ready_takes_no_memory() {
    let pool = Pool::new(8 * HUGE, 0).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let start = pool.take(5 * HUGE).unwrap();
    assert_eq!((pool.ready(), resident(start, 5 * HUGE).unwrap_or(0)), (0, 0));
    assert_eq!(pool.take(4 * HUGE), Err(Problem::Full));
    let rest = pool.take(2 * HUGE + BASE).unwrap();
    assert_eq!(rest as usize - start as usize, 5 * HUGE);
    // SAFETY: Nothing of it is used.
    unsafe {
        assert_eq!(pool.give(start, 6 * HUGE + 2 * HUGE + 1), Err(Problem::NotTaken));
        assert_eq!(pool.give(start.add(BASE), HUGE), Err(Problem::NotTaken));
        assert_eq!(pool.give(std::ptr::null_mut(), HUGE), Err(Problem::NotTaken));
        assert_eq!(pool.give(usize::MAX as *mut u8, HUGE), Err(Problem::NotTaken));
        assert_eq!(pool.give(start.add(HUGE), 2 * HUGE), Ok(()), "blocks of what was taken");
        assert_eq!(pool.give(start.add(HUGE), HUGE), Err(Problem::NotTaken), "twice");
    }
    assert_eq!(pool.take(2 * HUGE).unwrap() as usize - start as usize, HUGE);
}

#[test]
fn blocks_in_use_are_never_zeroed() {
    let pool = Pool::new(48 * HUGE, 48 * HUGE).unwrap();
    let begin = Instant::now();
    let mut count = 0u64;
    while begin.elapsed() < Duration::from_millis(400) {
        let taken: Vec<*mut u8> = (0..5).map(|_| pool.take(3 * HUGE).unwrap()).collect();
        for start in &taken {
            count += 1;
            assert!(is_zeros(*start, BASE), "new");
            // SAFETY: The test has it.
            unsafe { start.cast::<u64>().write(count) };
        }
        let stamps = taken.iter().rev().zip(0..);
        for (start, back) in stamps {
            // SAFETY: As above, and it is given back.
            unsafe {
                assert_eq!(start.cast::<u64>().read(), count - back);
                pool.give(*start, 3 * HUGE).unwrap();
            }
        }
    }
    assert!(count > 0);
}

/// The thread of the parent does not exist in the child.
#[test]
fn a_forked_child_gives_a_pool_up_at_once() {
    let _forks = crate::forks();
    let pool = Pool::new(8 * HUGE, 2 * HUGE).unwrap();
    settles_at(&pool, 2 * HUGE);
    // SAFETY: The child does what is tried here and ends, by an alarm where it hangs.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            drop(pool);
            libc::_exit(0);
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        assert_eq!(status, 0);
    }
    assert!(pool.take(HUGE).is_ok());
}
