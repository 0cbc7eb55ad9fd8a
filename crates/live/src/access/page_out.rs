//! Accesses to chosen pages of unmodified processes by the page-out probe: a page that is sent to compressed swap faults when it
//! is next accessed, and `pagemap` shows that it is back.
//!
//! A watched base page is sent out again after each look, so that it tells in how many of the looks it was accessed. Of 2 MiB
//! that lie in the compressed tier, every base page that is back is an access, seen by itself; they, too, are sent out again,
//! since the policy wants them there.

use super::AccessSource;
use crate::kernel::{Advice, Kernel, PageRun, PageScan, category};
use crate::world::{Sampling, World};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use terrace_model::{PageSize, Time};
use terrace_policy::{MemorySystem, PageId, SpaceId};

/// Between two looks at the watched pages. A page's accesses are told apart that far.
const PERIOD: Duration = Duration::from_millis(250);

/// The probe.
pub struct PageOut {
    kernel: Arc<dyn Kernel>,
    /// Base pages that were in swap at the last look.
    armed: BTreeMap<PageId, bool>,
}

impl PageOut {
    /// Without any page yet.
    pub fn new(kernel: Arc<dyn Kernel>) -> PageOut {
        PageOut { kernel, armed: BTreeMap::new() }
    }

    /// Runs of pages of a range that are in memory.
    fn present(&self, world: &World, page: PageId, size: PageSize) -> io::Result<Vec<(u64, u64)>> {
        let Some(process) = world.process(page.space) else { return Ok(Vec::new()) };
        let (start, end) = (page.vpn << 12, (page.vpn + size.base_pages()) << 12);
        let mut runs = [PageRun::default(); 512];
        let scan = PageScan {
            start,
            end,
            all_of: category::PRESENT,
            tell: category::PRESENT | category::ZERO,
            ..PageScan::default()
        };
        let (count, _) = self.kernel.scan_pages(process, &scan, &mut runs)?;
        let own = runs[..count].iter().filter(|run| run.categories & category::ZERO == 0);
        Ok(own.map(|run| (run.start, run.end - run.start)).collect())
    }
}

impl AccessSource for PageOut {
    fn name(&self) -> String {
        format!("page-out probe every {} ms", PERIOD.as_millis())
    }

    fn collect(&mut self, world: &mut World) -> io::Result<Duration> {
        world.set_sampling(Sampling { interval: Time::from_nanos(PERIOD.as_nanos() as u64), together: 1 });
        let watched = world.watched();
        let compressed = world.topology().find(crate::facts::tiers::COMPRESSED);
        let mut armed = BTreeMap::new();
        let mut out: BTreeMap<SpaceId, Vec<(u64, u64)>> = BTreeMap::new();
        for (page, size) in watched {
            // A process that has ended is let go with the next look at the targets.
            let Ok(present) = self.present(world, page, size) else { continue };
            let bytes: u64 = present.iter().map(|(_, bytes)| bytes).sum();
            if size == PageSize::Base {
                let was_out = self.armed.get(&page).copied().unwrap_or(false);
                if was_out
                    && bytes > 0
                    && let Some(process) = world.process(page.space)
                {
                    let pid = process.pid;
                    world.accessed(pid, page.vpn..page.vpn + 1, 1);
                }
                armed.insert(page, true);
            } else if world.page(page).map(|view| view.tier) == compressed {
                world.seen(page, bytes / PageSize::Base.bytes());
            } else {
                continue;
            }
            out.entry(page.space).or_default().extend(present);
        }
        world.looked(1);
        for (space, ranges) in out {
            let Some(process) = world.process(space) else { continue };
            for some in ranges.chunks(libc::UIO_MAXIOV as usize) {
                // What does not go stays unarmed; the next look tries again.
                let _ = self.kernel.advise(process, some, Advice::PageOut);
            }
        }
        // The call says yes to pages that it passed over: only those count that are gone now.
        for (page, is_out) in &mut armed {
            *is_out = self.present(world, *page, PageSize::Base).is_ok_and(|present| present.is_empty());
        }
        self.armed = armed;
        Ok(PERIOD)
    }

    fn stop(&mut self) {
        // Pages in swap come back by themselves when they are accessed.
        self.armed.clear();
    }
}
