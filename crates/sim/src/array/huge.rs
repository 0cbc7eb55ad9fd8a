//! Large tables of the simulator in huge pages of the host, where it has them.
//!
//! Random look-ups in a table of several megabytes miss the host's TLB as well as its caches; with 2 MiB pages they
//! miss only the caches.

/// Tables smaller than this are left alone: a huge page would waste more than it saves.
const WORTH_IT: usize = 4 << 20;
/// Bytes of the largest base page that a host has: advice is about whole ones. Arm has 4, 16 or 64 KiB.
const LARGEST_BASE: usize = 64 << 10;

/// A vector of `len` times `value`, asking for huge pages when it is large.
pub fn huge_vec<T: Clone>(len: usize, value: T) -> Vec<T> {
    let mut vec = Vec::with_capacity(len);
    advise(&mut vec);
    vec.resize(len, value);
    vec
}

/// Makes room for one more element; grows by doubling, into memory that asks for huge pages when it is large.
pub fn huge_reserve<T>(vec: &mut Vec<T>) {
    if vec.len() < vec.capacity() {
        return;
    }
    let mut larger = Vec::with_capacity((2 * vec.capacity()).max(8));
    advise(&mut larger);
    larger.append(vec);
    *vec = larger;
}

/// Asks for huge pages behind a vector's spare memory. A kernel without them returns an error that changes nothing.
fn advise<T>(vec: &mut Vec<T>) {
    let spare = vec.spare_capacity_mut();
    let bytes = std::mem::size_of_val(spare);
    if bytes < WORTH_IT {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        let begin = (spare.as_mut_ptr() as usize).next_multiple_of(LARGEST_BASE);
        let end = (spare.as_mut_ptr() as usize + bytes) / LARGEST_BASE * LARGEST_BASE;
        // SAFETY: the pages lie inside memory that the vector owns; the advice changes how they are backed, not what
        // they hold.
        let _ =
            unsafe { rustix::mm::madvise(begin as *mut _, end - begin, rustix::mm::Advice::LinuxHugepage) };
    }
}
