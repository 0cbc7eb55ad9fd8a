//! Old pages, out of the way of those that take their place.

use crate::{HUGE, system};

/// Old pages at a place of which nobody knows, until this ends. Whoever wants them at their address waits.
pub(super) struct Aside {
    place: usize,
    room: usize,
    /// Where they are.
    pub start: usize,
    bytes: usize,
}

impl Aside {
    /// None where the kernel does not (Linux 5.7), as where the memory is several mappings. Nothing has happened then.
    ///
    /// # Safety
    /// The range is the caller's, and held back.
    pub unsafe fn take(at: usize, bytes: usize) -> Option<Aside> {
        // At the same place within 2 MiB, so that huge pages stay whole.
        let room = bytes + HUGE;
        let place = system::reserve(room).ok()? as usize;
        let start = place + at.wrapping_sub(place) % HUGE;
        let aside = Aside { place, room, start, bytes };
        // SAFETY: The caller's word, and the target is this function's own.
        if unsafe { system::remap(at, bytes, start, system::KEEP_EMPTY) }.is_ok() {
            return Some(aside);
        }
        // The kernel has unmapped the target before it refused.
        aside.leave();
        None
    }

    /// Gives back what surrounds the pages; where they are.
    pub fn leave(self) -> usize {
        let (end, limit) = (self.start + self.bytes, self.place + self.room);
        // SAFETY: This value's own, where nothing is.
        unsafe {
            if self.start > self.place {
                system::unmap(self.place as *mut u8, self.start - self.place);
            }
            if limit > end {
                system::unmap(end as *mut u8, limit - end);
            }
        }
        let start = self.start;
        std::mem::forget(self);
        start
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // SAFETY: This value's own: pages that others have taken the place of.
        unsafe { system::unmap(self.place as *mut u8, self.room) };
    }
}
