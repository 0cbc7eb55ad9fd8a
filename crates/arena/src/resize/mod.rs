//! Memory gets pages of another size and keeps its address: 1 GiB pages of the kernel's pool, 2 MiB, 4 KiB.
//!
//! What Trident's daemon does in the kernel, within one process: write-protect, copy, remap (Ram et al., MICRO 2021,
//! §5.1.3). New memory in pages of the size is filled and moved over the old by one `mremap`. Threads that store meanwhile
//! wait (`userfaultfd`), those that read go on. On the way down, parts that hold zeros are left out: a 1 GiB page of
//! which little is used becomes little memory.

mod aside;
mod copier;
#[cfg(test)]
mod tests;

use crate::memory::{Memory, Pages};
use crate::pages::PageTable;
use crate::system;
use crate::userfault::{HeldBack, Use, Userfault};
use aside::Aside;
use copier::Copier;
use std::ffi::c_int;
use std::ops::Range;
use std::time::Duration;

/// How often pages that lost their protection are copied again before the memory is left as it is.
const ROUNDS: u32 = 8;
/// How often the last step is tried, and the rest between two tries: what it lacks is a little memory of the kernel's.
const TRIES: u32 = 50;
const REST: Duration = Duration::from_millis(10);

/// Why memory has the pages that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The memory is no multiple of such a page, by its address or its length.
    Unaligned,
    /// The kernel cannot hold stores back (Linux 5.19), or does not show what is there (6.7).
    Kernel,
    /// There are no such pages, or another error of this number.
    System(c_int),
    /// The kernel could not map anything at the address any more. Every byte is there, at another address: that of the
    /// memory by now.
    Moved,
}

impl Refused {
    /// As an error number.
    pub fn number(self) -> c_int {
        match self {
            Refused::Unaligned => libc::EINVAL,
            Refused::Kernel => libc::EOPNOTSUPP,
            Refused::System(number) => number,
            Refused::Moved => libc::ESTALE,
        }
    }
}

/// Gives memory pages of another size, at the same address and with every byte as it is.
///
/// # Errors
/// The memory is as it was, but for [`Refused::Moved`].
///
/// # Safety
/// Threads may read and store. No system call is handed the memory meanwhile: it would fail. No forked child has it.
pub unsafe fn resize(memory: &mut Memory, to: Pages) -> Result<(), Refused> {
    // SAFETY: The caller's word.
    unsafe { resize_by(&Linux, memory, to) }
}

/// The calls of a resize that may fail when all is copied, and moments of it, for tests.
trait Calls {
    /// Moves the mapping at `from` over what is at `to`.
    unsafe fn remap(&self, from: usize, bytes: usize, to: usize) -> Result<(), c_int>;

    /// New memory at this address, where nothing is mapped.
    unsafe fn map_at(&self, start: usize, bytes: usize) -> Result<(), c_int>;

    /// Stores are held back and all is copied.
    fn copied(&self, _by: &Userfault) {}

    /// Pages that lost their protection have been looked for.
    fn looked(&self, _by: &Userfault) {}
}

struct Linux;

impl Calls for Linux {
    unsafe fn remap(&self, from: usize, bytes: usize, to: usize) -> Result<(), c_int> {
        // SAFETY: The caller's word.
        unsafe { system::remap(from, bytes, to, 0) }
    }

    unsafe fn map_at(&self, start: usize, bytes: usize) -> Result<(), c_int> {
        // SAFETY: The caller's word.
        unsafe { system::map_at(start, bytes) }.map(|_| ())
    }
}

/// See [`resize`].
unsafe fn resize_by(calls: &dyn Calls, memory: &mut Memory, to: Pages) -> Result<(), Refused> {
    if memory.pages() == to {
        return Ok(());
    }
    let (start, bytes) = (memory.start() as usize, memory.bytes());
    if !(start | bytes).is_multiple_of(to.bytes()) {
        return Err(Refused::Unaligned);
    }
    let table = PageTable::open().ok_or(Refused::Kernel)?;
    let new = Memory::new(bytes, to).map_err(Refused::System)?;
    if new.pages() != to || new.bytes() != bytes {
        return Err(Refused::System(libc::ENOMEM));
    }
    // Before stores are held back: an allocator may store there.
    let mut copier = Copier::new(start, new.start() as usize, bytes, to);
    let userfault = Userfault::open(Use::HoldBack).ok_or(Refused::Kernel)?;
    // Dropped on every way out, and only when the address has its memory.
    let held = userfault.hold_back(start, bytes).ok_or(Refused::Kernel)?;
    let mut all = true;
    // SAFETY: The new memory is this function's own, and as long as the old.
    let mut take = |run: Range<usize>| unsafe { all = all && copier.copy(run) };
    let shown = if memory.pages() == Pages::Giant {
        // Never in swap. Pages that are not there have a mark by now, which looks so.
        table.runs(start..start + bytes, &mut |run, _| take(run))
    } else {
        table.data(start..start + bytes, &mut take)
    };
    if !(shown && all) {
        return Err(Refused::Kernel);
    }
    calls.copied(&userfault);
    // SAFETY: As above.
    if !unsafe { copy_lost(&table, &held, &mut copier) } {
        return Err(Refused::Kernel);
    }
    calls.looked(&userfault);
    // SAFETY: The old memory is the caller's. From here on who wants it waits, as nothing is there.
    let mut aside = if memory.pages() == Pages::Giant { None } else { unsafe { Aside::take(start, bytes) } };
    // SAFETY: Nobody knows of the old pages' new place.
    if let Some(old) = aside.take_if(|aside| !unsafe { copier.copy_late(&table, aside.start) }) {
        let pages = memory.pages();
        // SAFETY: As above.
        return unsafe { settle(calls, &held, memory, old.leave(), pages, Refused::Kernel) };
    }
    let from = new.into_parts().0 as usize;
    // SAFETY: From here on the new pages lie at the old address; the old ones are gone. Both ranges are ours.
    match unsafe { calls.remap(from, bytes, start) } {
        Ok(()) => {
            memory.set_pages(to);
            Ok(())
        }
        // SAFETY: All is in either memory. The kernel may have unmapped the address before it failed.
        Err(error) => unsafe {
            let (source, pages) = match aside {
                Some(old) => {
                    system::unmap(from as *mut u8, bytes);
                    (old.leave(), memory.pages())
                }
                None if held.is_there() => {
                    system::unmap(from as *mut u8, bytes);
                    return Err(Refused::System(error));
                }
                None => (from, to),
            };
            settle(calls, &held, memory, source, pages, Refused::System(error))
        },
    }
}

/// Copies again what lost its protection while it was copied: some kernels of the series 6.12 drop it from base pages that
/// hold zeros, where they take a huge page apart. False where that goes on and on, or nothing is shown.
///
/// # Safety
/// As for [`Copier::copy`].
unsafe fn copy_lost(table: &PageTable, held: &HeldBack<'_>, copier: &mut Copier) -> bool {
    let range = copier.start..copier.start + copier.bytes;
    for _ in 0..ROUNDS {
        let (mut found, mut fine) = (false, true);
        let shown = table.unprotected(range.clone(), &mut |run| {
            found = true;
            // SAFETY: The caller's word.
            fine = fine && held.protect(run.start, run.len()) && unsafe { copier.copy_all(run) };
        });
        if !shown || !fine {
            return false;
        }
        if !found {
            return true;
        }
    }
    false
}

/// The bytes get their address back, with the pages that they have at `source`, which is this process's own mapping, or with
/// base pages. Returns `refused` as the error.
///
/// # Safety
/// Nobody else knows of `source`, and nobody but this function maps or unmaps the memory's address. Where the kernel has
/// unmapped it, others may map something there.
unsafe fn settle(
    calls: &dyn Calls,
    held: &HeldBack<'_>,
    memory: &mut Memory,
    source: usize,
    pages: Pages,
    refused: Refused,
) -> Result<(), Refused> {
    let (start, bytes) = (memory.start() as usize, memory.bytes());
    for round in 0..TRIES {
        if round > 0 {
            std::thread::sleep(REST);
        }
        // SAFETY: What is held back is the memory's own, and empty. Elsewhere the kernel replaces nothing.
        unsafe {
            if held.is_there() {
                if calls.remap(source, bytes, start).is_ok() {
                    memory.set_pages(pages);
                    return Err(refused);
                }
                continue;
            }
            match calls.map_at(start, bytes) {
                Ok(()) => {
                    std::ptr::copy_nonoverlapping(source as *const u8, start as *mut u8, bytes);
                    system::unmap(source as *mut u8, bytes);
                    memory.set_pages(Pages::Base);
                    return Err(refused);
                }
                Err(libc::EEXIST) => break,
                Err(_) => {}
            }
        }
    }
    // SAFETY: Whoever comes to the old address is to find nothing there, and no zeros. Then the memory is at `source`.
    unsafe {
        if held.is_there() {
            system::unmap(start as *mut u8, bytes);
        }
        memory.move_to(source as *mut u8, pages);
    }
    Err(Refused::Moved)
}
