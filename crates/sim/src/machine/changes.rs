//! What the cores drop when pages of the programs change.

use super::build::Machine;
use terrace_model::{AddressRange, LINE_BYTES};

impl Machine {
    /// Tells every core's translation hardware that pages of a range are gone.
    pub fn shoot_down(&mut self, space: u32, range: AddressRange) {
        for (id, core) in self.cores.iter_mut().enumerate() {
            self.scheme.invalidate(id, space, range);
            core.page_walk_cache.flush();
        }
        self.shared.regions.flush();
        self.scheme.forget(space, range);
    }

    /// Tells all cores but `core` of the pages whose sharing it broke.
    pub fn drop_pages(&mut self, core: usize) {
        for (space, page) in self.shared.dropped_pages.drain(..) {
            for other in (0..self.cores.len()).filter(|other| *other != core) {
                self.scheme.invalidate(other, space, page);
            }
        }
    }

    /// Tells every core's translation hardware that a process changed as a whole (fork, exec, exit).
    pub fn shoot_down_space(&mut self, space: u32) {
        for (id, core) in self.cores.iter_mut().enumerate() {
            self.scheme.flush_space(id, space);
            core.page_walk_cache.flush();
        }
        self.shared.regions.flush();
        self.scheme.forget(space, AddressRange::new(0, u64::MAX));
    }

    /// Drops the virtually named lines of a range from the caches, where names are virtual: the addresses may be
    /// backed by other memory next. Dirty lines of freed memory need no writeback.
    pub fn discard_lines(&mut self, space: u32, range: AddressRange) {
        for (page, size, _) in self.shared.os.table(space).pages_in(range) {
            for line in 0..size.bytes() / LINE_BYTES {
                if let Some(line) = self.scheme.virtual_line(space, page + line * LINE_BYTES) {
                    self.shared.caches.discard(line);
                }
            }
        }
    }
}
