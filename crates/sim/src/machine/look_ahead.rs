//! Looking ahead in a batch for what its accesses will need of the host's memory. Changes nothing that is simulated.
//!
//! The tables of the simulator (page tables, sets of the last level) do not fit into the host's caches when the program's
//! footprint is large: each random access would wait for several host misses, one after the other.

use super::access::physical_line;
use super::build::Shared;
use super::regions::Region;
use terrace_model::{LINE_BYTES, PageSize};

/// Far enough to hide a host miss for a page-table entry, and again as far for what it leads to.
const FAR: usize = 24;
const NEAR: usize = 12;

/// What one core looks ahead for.
#[derive(Clone, Debug)]
pub(super) struct LookAhead {
    /// Whether it pays: it does when many accesses miss what the host's caches hold.
    active: bool,
    /// Misses until the last decision.
    misses: u64,
    /// What was looked ahead for lately, direct mapped.
    lines: Box<[u64; 256]>,
    last_line: u64,
    pages: Box<[u64; 64]>,
}

impl LookAhead {
    pub fn new() -> LookAhead {
        LookAhead {
            active: false,
            misses: 0,
            lines: Box::new([u64::MAX; 256]),
            last_line: 0,
            pages: Box::new([u64::MAX; 64]),
        }
    }

    /// Whether a line was not seen lately and does not follow the last one: what lies in sequence the host foresees.
    #[inline(always)]
    fn is_new_line(&mut self, line: u64) -> bool {
        let follows = line.wrapping_sub(std::mem::replace(&mut self.last_line, line)) <= 1;
        !follows && std::mem::replace(&mut self.lines[line as usize % 256], line) != line
    }

    /// Whether a base page was not seen lately.
    #[inline(always)]
    fn is_new_page(&mut self, page: u64) -> bool {
        std::mem::replace(&mut self.pages[page as usize % 64], page) != page
    }

    /// Decides for the next batch of `accesses`: when more than one access in seven of the last one needed what
    /// looking ahead brings. (A sequential stream of doubles misses once in eight, in an order that the host foresees.)
    /// `misses` counts those since the start; `small`: what would be brought is near already.
    pub fn weigh(&mut self, misses: u64, accesses: usize, small: bool) {
        self.active = !small && (misses - self.misses) * 7 > accesses as u64;
        self.misses = misses;
    }

    /// Whether it pays.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Before access `at` is simulated. `CACHES` when the data caches are simulated, `WALKS` when walks are.
    #[inline(always)]
    pub fn look<const CACHES: bool, const WALKS: bool>(
        &mut self,
        core: usize,
        shared: &mut Shared,
        space: u32,
        addrs: &[u64],
        at: usize,
    ) {
        if let Some(&addr) = addrs.get(at + FAR)
            && self.is_new_page(addr >> 12)
        {
            match shared.regions.get(space, addr) {
                Some(Region::Table(table, _)) => {
                    let entry = shared.os.table(space).prefetch_base_entry(table, addr);
                    if CACHES && WALKS {
                        shared.caches.look_ahead_llc(entry.line());
                    }
                }
                Some(Region::Page { .. }) => {}
                None => {
                    shared.find_leaf_from_root(space, addr);
                }
            }
        }
        if CACHES
            && let Some(&addr) = addrs.get(at + NEAR)
            && self.is_new_line(addr / LINE_BYTES)
            && let Some(page) = shared.regions.find(shared.os.table(space), space, addr)
        {
            let line = physical_line(page.frame, addr, PageSize::Base);
            shared.caches.look_ahead(core, line);
            shared.memory.look_ahead(line);
        }
    }
}
