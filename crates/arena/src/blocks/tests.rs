use super::*;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Hands a block over, to which nobody writes meanwhile.
fn send(blocks: &mut Blocks, index: u32, socket: &UnixStream, rights: Rights) -> Result<(), Problem> {
    // SAFETY: As is said.
    unsafe { blocks.send(index, socket.as_raw_fd(), rights) }
}

fn at(index: u32, offset: u64) -> Handle {
    Handle { index, offset }
}

fn put(blocks: &Blocks, handle: Handle, value: u64) {
    // SAFETY: Resolved for eight bytes, and aligned.
    unsafe { blocks.resolve(handle, 8, true).unwrap().cast::<u64>().write(value) };
}

fn get(blocks: &Blocks, handle: Handle) -> u64 {
    // SAFETY: As in `put`.
    unsafe { blocks.resolve(handle, 8, false).unwrap().cast::<u64>().read() }
}

/// Bytes of a block that have memory.
fn held(blocks: &Blocks, index: u32) -> u64 {
    // SAFETY: All zeros is a value of this structure of numbers, and the call fills it.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(blocks.get(index).unwrap().file, &raw mut status), 0);
        status.st_blocks as u64 * 512
    }
}

#[test]
fn a_block_has_the_smallest_size_that_holds_it() {
    let sizes = [0, 1, 4096, 4097, 128 * KIB, 128 * KIB + 1, 4 * MIB + 1, 128 << 40].map(size_for);
    let expected = [4 * KIB, 4 * KIB, 4 * KIB, 128 * KIB, 128 * KIB, 4 * MIB, 128 * MIB, 128 << 40];
    assert_eq!(sizes, expected.map(Ok));
    assert_eq!(size_for((128 << 40) + 1), Err(Problem::TooLarge));
    let mut blocks = Blocks::new();
    assert_eq!(blocks.request(100_000), Ok(0));
    assert_eq!(blocks.request(5 << 30), Ok(1));
    assert_eq!((blocks.size(0), blocks.size(1)), (Ok(128 * KIB), Ok(128 << 30)));
    assert_eq!(held(&blocks, 1), 0, "memory is taken as it is touched");
    assert!(blocks.request(128 << 40).is_err(), "a process has no room for it");
}

#[test]
fn each_access_is_checked() {
    let mut blocks = Blocks::new();
    let index = blocks.request(4096).unwrap();
    put(&blocks, at(index, 4088), 7);
    assert_eq!(get(&blocks, at(index, 4088)), 7);
    assert_eq!(get(&blocks, at(index, 0)), 0);
    assert_eq!(blocks.resolve(at(index, 4089), 8, false), Err(Problem::Outside));
    assert_eq!(blocks.resolve(at(index, u64::MAX), 8, false), Err(Problem::Outside));
    assert_eq!(blocks.resolve(at(9, 0), 8, false), Err(Problem::NoBlock));
    // SAFETY: No address is kept.
    unsafe { blocks.detach(index).unwrap() };
    assert_eq!(blocks.resolve(at(index, 0), 8, false), Err(Problem::NoBlock));
    // SAFETY: The same.
    assert_eq!(unsafe { blocks.detach(index) }, Err(Problem::NoBlock));
    assert_eq!(blocks.request(1), Ok(index), "the index comes back");
    assert_eq!(get(&blocks, at(index, 4088)), 0, "with zeros");
}

#[test]
fn handles_outlive_a_promotion() {
    let mut blocks = Blocks::new();
    let index = blocks.request(4096).unwrap();
    put(&blocks, at(index, 800), 42);
    // SAFETY: No address is kept; so below.
    unsafe {
        blocks.promote(index, 4000).unwrap();
        assert_eq!(blocks.size(index), Ok(4096), "large enough already");
        for (bytes, size) in [(5000, 128 * KIB), (129 * KIB, 4 * MIB), (5 * MIB, 128 * MIB)] {
            blocks.promote(index, bytes).unwrap();
            assert_eq!(blocks.size(index), Ok(size));
            assert_eq!(get(&blocks, at(index, 800)), 42);
            put(&blocks, at(index, size - 8), size);
        }
        assert_eq!(get(&blocks, at(index, 4 * MIB - 8)), 4 * MIB);
        assert_eq!(blocks.promote(index, u64::MAX), Err(Problem::TooLarge));
    }
}

#[test]
fn a_clone_is_a_snapshot() {
    let mut blocks = Blocks::new();
    let source = blocks.request(64 * MIB).unwrap();
    for offset in [0, 10 * MIB, 128 * MIB - 8] {
        put(&blocks, at(source, offset), offset + 1);
    }
    // SAFETY: Nobody writes meanwhile.
    let copy = unsafe { blocks.duplicate(source) }.unwrap();
    put(&blocks, at(source, 10 * MIB), 99);
    put(&blocks, at(source, 20 * MIB), 98);
    put(&blocks, at(copy, 0), 97);
    let read = |index| [0, 10 * MIB, 20 * MIB, 128 * MIB - 8].map(|offset| get(&blocks, at(index, offset)));
    assert_eq!(read(copy), [97, 10 * MIB + 1, 0, 128 * MIB - 8 + 1]);
    assert_eq!(read(source), [1, 99, 98, 128 * MIB - 8 + 1]);
    assert!(held(&blocks, copy) <= 4 * crate::HUGE as u64, "holes are not copied");
}

/// Bytes that a block has for itself, beside the file.
fn own(blocks: &Blocks, index: u32) -> Option<usize> {
    let block = blocks.get(index).unwrap();
    let (start, mut own) = (block.start as usize, 0);
    crate::pages::PageTable::open()?
        .private(start..start + block.bytes as usize, &mut |run| own += run.len());
    Some(own)
}

#[test]
fn cloning_copies_nothing_until_somebody_writes() {
    let _forks = crate::forks();
    let mut blocks = Blocks::new();
    let source = blocks.request(4 * MIB).unwrap();
    let step = 4096;
    for offset in (0..4 * MIB).step_by(step) {
        put(&blocks, at(source, offset), offset + 1);
    }
    let address = blocks.resolve(at(source, 0), 8, false).unwrap();
    let file = held(&blocks, source);
    // SAFETY: Nobody writes meanwhile; so below.
    let first = unsafe { blocks.duplicate(source) }.unwrap();
    assert_eq!(blocks.resolve(at(source, 0), 8, false), Ok(address), "addresses stay");
    assert_eq!((own(&blocks, source).unwrap_or(0), own(&blocks, first).unwrap_or(0)), (0, 0));
    put(&blocks, at(source, 8 * step as u64), 7);
    let is_one_page = |bytes: Option<usize>| bytes.is_none_or(|bytes| bytes == step);
    assert!(is_one_page(own(&blocks, source)), "{:?}", own(&blocks, source));
    // The second clone copies only the page that was written since the first one; a clone of it does so, too.
    // SAFETY: As above.
    let second = unsafe { blocks.duplicate(source) }.unwrap();
    assert!(is_one_page(own(&blocks, second)), "{:?}", own(&blocks, second));
    put(&blocks, at(second, 0), 8);
    // SAFETY: As above.
    let third = unsafe { blocks.duplicate(second) }.unwrap();
    put(&blocks, at(second, 0), 9);
    put(&blocks, at(source, 0), 10);
    let read = |index| [0, 8 * step as u64, 9 * step as u64].map(|offset| get(&blocks, at(index, offset)));
    let ninth = 9 * step as u64 + 1;
    assert_eq!(read(first), [1, 8 * step as u64 + 1, ninth]);
    assert_eq!([read(source), read(second), read(third)], [[10, 7, ninth], [9, 7, ninth], [8, 7, ninth]]);
    assert_eq!(held(&blocks, source), file, "the file is as it was");
    // SAFETY: No address is kept.
    unsafe { blocks.detach(source).unwrap() };
    assert_eq!(get(&blocks, at(first, 4 * MIB - step as u64)), 4 * MIB - step as u64 + 1);
}

#[test]
fn a_clone_is_a_snapshot_while_a_forked_child_has_the_source() {
    let _forks = crate::forks();
    let mut blocks = Blocks::new();
    let source = blocks.request(4 * MIB).unwrap();
    put(&blocks, at(source, 0), 1);
    let address = blocks.resolve(at(source, 0), 8, true).unwrap().cast::<u64>();
    let mut pipe = [0; 2];
    // SAFETY: The child reads, stores and ends, and calls only what a forked child may; nobody else uses the descriptors.
    let child = unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            libc::alarm(120);
            libc::close(pipe[1]);
            libc::read(pipe[0], (&raw mut pipe).cast(), 1);
            address.write(2);
            libc::_exit(0);
        }
        libc::close(pipe[0]);
        child
    };
    // SAFETY: Nobody writes meanwhile. The child goes on when the descriptor is closed.
    let copy = unsafe { blocks.duplicate(source) };
    let mut status = 0;
    // SAFETY: As above.
    unsafe {
        libc::close(pipe[1]);
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
    let copy = copy.unwrap();
    assert_eq!(status, 0);
    assert_eq!(get(&blocks, at(copy, 0)), 1, "the child's later store does not show");
    assert_eq!(get(&blocks, at(source, 0)), 2, "what was shared stays so");
    // The child has ended: nothing is copied any more, and nobody can write to the file.
    // SAFETY: Nobody writes meanwhile.
    let second = unsafe { blocks.duplicate(source) }.unwrap();
    assert_eq!(own(&blocks, second).unwrap_or(0), 0);
    assert!(is_sealed(blocks.get(source).unwrap().file) && !is_sealed(blocks.get(copy).unwrap().file));
    put(&blocks, at(source, 0), 3);
    assert_eq!([source, second].map(|index| get(&blocks, at(index, 0))), [3, 2]);
}

#[test]
fn without_a_page_table_a_clone_takes_no_memory_for_holes() {
    let mut blocks = Blocks::new();
    let source = blocks.request(129 * MIB).unwrap();
    put(&blocks, at(source, 0), 1);
    // SAFETY: Nobody writes meanwhile; so below.
    let copy = unsafe { blocks.duplicate(source) }.unwrap();
    put(&blocks, at(source, 8), 2);
    put(&blocks, at(source, 3 << 30), 3);
    // SAFETY: As above.
    unsafe { blocks.get(source).unwrap().copy_different(blocks.get(copy).unwrap()) };
    assert_eq!([0, 8, 3 << 30].map(|offset| get(&blocks, at(copy, offset))), [1, 2, 3]);
    assert!(held(&blocks, source) <= 4 * crate::HUGE as u64, "of 4 GiB");
}

#[test]
fn clones_are_promoted_and_handed_over_apart() {
    let (one, other) = UnixStream::pair().unwrap();
    let (mut mine, mut theirs) = (Blocks::new(), Blocks::new());
    let source = mine.request(4096).unwrap();
    put(&mine, at(source, 0), 1);
    put(&mine, at(source, 8), 2);
    // SAFETY: Nobody writes, and no address is kept; so below.
    let clone = unsafe { mine.duplicate(source) }.unwrap();
    put(&mine, at(clone, 0), 3);
    // SAFETY: As above.
    unsafe { mine.promote(clone, 100_000) }.unwrap();
    put(&mine, at(clone, 100_000), 4);
    // SAFETY: As above.
    unsafe { mine.promote(source, 100_000) }.unwrap();
    assert_eq!(get(&mine, at(source, 100_000)), 0, "of the other's nothing shows");
    send(&mut mine, clone, &one, Rights::Write).unwrap();
    let got = theirs.attach(other.as_raw_fd()).unwrap();
    assert_eq!([0, 8, 100_000].map(|offset| get(&theirs, at(got, offset))), [3, 2, 4]);
    put(&theirs, at(got, 0), 5);
    assert_eq!((get(&mine, at(clone, 0)), get(&mine, at(source, 0))), (5, 1), "both have the same bytes");
    // What others have attached is copied at once.
    // SAFETY: As above.
    let copy = unsafe { mine.duplicate(clone) }.unwrap();
    put(&theirs, at(got, 0), 6);
    assert_eq!(get(&mine, at(copy, 0)), 5);
    assert_eq!([8, 100_000].map(|offset| get(&mine, at(copy, offset))), [2, 4]);
}

#[test]
fn properties_change_no_byte() {
    let mut blocks = Blocks::new();
    let index = blocks.request(5 * MIB).unwrap();
    put(&blocks, at(index, 0), 1);
    let has_tiers = Tiers::discover().nodes.len() > 1;
    for property in [Property::LatencySensitive, Property::BandwidthSensitive, Property::Cold] {
        assert_eq!(blocks.describe(index, property), Ok(has_tiers));
        // SAFETY: Nobody writes, and no address is kept.
        let clone = unsafe { blocks.duplicate(index) }.unwrap();
        assert_eq!((get(&blocks, at(index, 0)), get(&blocks, at(clone, 0))), (1, 1));
    }
    assert_eq!(blocks.describe(99, Property::Cold), Err(Problem::NoBlock));
}

#[test]
fn blocks_are_handed_over_with_rights() {
    let (one, other) = UnixStream::pair().unwrap();
    let (mut mine, mut theirs) = (Blocks::new(), Blocks::new());
    let index = mine.request(100_000).unwrap();
    put(&mine, at(index, 0), 5);
    send(&mut mine, index, &one, Rights::Write).unwrap();
    let got = theirs.attach(other.as_raw_fd()).unwrap();
    assert_eq!((theirs.size(got), get(&theirs, at(got, 0))), (Ok(128 * KIB), 5));
    put(&theirs, at(got, 8), 6);
    assert_eq!(get(&mine, at(index, 8)), 6, "both have the same bytes");
    // SAFETY: No address is kept.
    assert_eq!(unsafe { mine.promote(index, MIB) }, Err(Problem::NotAllowed), "others would not learn of it");
    // From here on it can be mapped for reading alone.
    send(&mut mine, index, &one, Rights::Read).unwrap();
    let readable = theirs.attach(other.as_raw_fd()).unwrap();
    assert_eq!(get(&theirs, at(readable, 8)), 6);
    assert_eq!(theirs.resolve(at(readable, 0), 8, true), Err(Problem::NotAllowed));
    let file = theirs.get(readable).unwrap().file;
    // SAFETY: New mappings and a change that is refused.
    unsafe {
        let length = 128 * KIB as usize;
        let mapped = libc::mmap(std::ptr::null_mut(), length, libc::PROT_WRITE, libc::MAP_SHARED, file, 0);
        assert_eq!(mapped, libc::MAP_FAILED, "the kernel holds to it");
        assert_ne!(libc::mprotect(theirs.get(readable).unwrap().start.cast(), length, libc::PROT_WRITE), 0);
    }
    put(&mine, at(index, 16), 7);
    assert_eq!(get(&theirs, at(readable, 16)), 7, "who had it mapped goes on writing");
    assert_eq!(send(&mut mine, index, &one, Rights::Write), Err(Problem::NotAllowed));
    assert_eq!(send(&mut theirs, readable, &one, Rights::Write), Err(Problem::NotAllowed));
    // SAFETY: No address is kept.
    unsafe { mine.detach(index).unwrap() };
    assert_eq!(get(&theirs, at(readable, 16)), 7, "it stays with those who have it");
}

#[test]
fn what_is_no_block_is_refused() {
    let (mut one, other) = UnixStream::pair().unwrap();
    let mut blocks = Blocks::new();
    let attach = |blocks: &mut Blocks| blocks.attach(other.as_raw_fd());
    one.write_all(b"sixteen bytes!!!").unwrap();
    assert_eq!(attach(&mut blocks), Err(Problem::NoMessage));
    // A file that is shorter than is said, or that can become shorter, would end the program at an access.
    let mut source = Blocks::new();
    let index = source.request(4096).unwrap();
    let file = source.get(index).unwrap().file;
    for bytes in [128 * KIB, 4096, 5000, 0] {
        transport::send(one.as_raw_fd(), file, bytes).unwrap();
        assert_eq!(attach(&mut blocks), Err(Problem::NoMessage), "{bytes}");
    }
    // A descriptor that is no memory.
    transport::send(one.as_raw_fd(), one.as_raw_fd(), 4096).unwrap();
    assert_eq!(attach(&mut blocks), Err(Problem::NoMessage));
    drop(one);
    assert_eq!(attach(&mut blocks), Err(Problem::NoMessage), "nobody is there any more");
    assert_eq!(attach(&mut blocks).unwrap_err().number(), libc::EPROTO);
    assert!(matches!(blocks.attach(-1), Err(Problem::System(_))));
}
