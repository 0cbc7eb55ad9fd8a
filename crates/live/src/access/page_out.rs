//! Accesses to chosen pages of unmodified processes by the page-out probe: a page that is sent to compressed swap faults when it
//! is next accessed, and `pagemap` shows that it is back.
//!
//! A watched base page is sent out again after each look, so that it tells in how many of the looks it was accessed. Of 2 MiB
//! that lie in the compressed tier, every base page that is back is an access, seen by itself; they, too, are sent out again,
//! since the policy wants them there.
//!
//! A page that is back as part of a huge page was brought back by the kernel, and tells nothing. Where the kernel tells of major
//! faults one by one, those count as accesses as well: of such pages, and of pages that the kernel has sent out again since.

use super::AccessSource;
use crate::kernel::{Advice, Event, Kernel, PageRun, PageScan, Samples, category};
use crate::world::{Sampling, World};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
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
    /// The major faults on each processor; empty where the kernel does not tell of them.
    faults: Vec<Box<dyn Samples>>,
}

impl PageOut {
    /// Without any page yet, on a machine with these processors.
    pub fn new(kernel: Arc<dyn Kernel>, cpus: &[u32]) -> PageOut {
        let faults = super::on_all(&*kernel, Event::MajorFaults, cpus).unwrap_or_else(|error| {
            tracing::info!(%error, "major faults are not told one by one; pages that are back in memory tell");
            Vec::new()
        });
        PageOut { kernel, armed: BTreeMap::new(), faults }
    }

    /// Which pages have faulted since the last look, by process and page number.
    fn faulted(&mut self) -> BTreeSet<(u32, u64)> {
        let mut pages = BTreeSet::new();
        for ring in &mut self.faults {
            let lost = ring.read(&mut |fault| _ = pages.insert((fault.pid, fault.address >> 12)));
            if lost > 0 {
                tracing::debug!(lost, "more faults than the kernel could tell of");
            }
        }
        pages
    }

    /// Runs of pages of a range that are in memory.
    fn present(&self, world: &World, page: PageId, size: PageSize) -> io::Result<Vec<PageRun>> {
        let Some(process) = world.process(page.space) else { return Ok(Vec::new()) };
        let (start, end) = (page.vpn << 12, (page.vpn + size.base_pages()) << 12);
        let mut runs = [PageRun::default(); 512];
        let scan = PageScan {
            start,
            end,
            all_of: category::PRESENT,
            tell: category::PRESENT | category::ZERO | category::HUGE,
            ..PageScan::default()
        };
        let (count, _) = self.kernel.scan_pages(process, &scan, &mut runs)?;
        Ok(runs[..count].iter().filter(|run| run.categories & category::ZERO == 0).copied().collect())
    }
}

/// Base pages of a range that were accessed: those that have faulted, and those in memory that no huge page has brought back.
fn accessed(faulted: &BTreeSet<(u32, u64)>, pid: u32, range: Range<u64>, present: &[PageRun]) -> u64 {
    let alone = present.iter().filter(|run| run.categories & category::HUGE == 0);
    let back: u64 = alone.clone().map(|run| (run.end - run.start) >> 12).sum();
    let of_others = faulted
        .range((pid, range.start)..(pid, range.end))
        .filter(|(_, vpn)| !alone.clone().any(|run| (run.start >> 12..run.end >> 12).contains(vpn)));
    back + of_others.count() as u64
}

impl AccessSource for PageOut {
    fn name(&self) -> String {
        let by = if self.faults.is_empty() { "" } else { ", by faults" };
        format!("page-out probe every {} ms{by}", PERIOD.as_millis())
    }

    fn collect(&mut self, world: &mut World) -> io::Result<Duration> {
        world.set_sampling(Sampling { interval: Time::from_nanos(PERIOD.as_nanos() as u64), together: 1 });
        let watched = world.watched();
        let faulted = self.faulted();
        let compressed = world.topology().find(crate::facts::tiers::COMPRESSED);
        let mut armed = BTreeMap::new();
        let mut out: BTreeMap<SpaceId, Vec<(u64, u64)>> = BTreeMap::new();
        for (page, size) in watched {
            // A process that has ended is let go with the next look at the targets.
            let Ok(present) = self.present(world, page, size) else { continue };
            let Some(pid) = world.process(page.space).map(|process| process.pid) else { continue };
            let range = page.vpn..page.vpn + size.base_pages();
            let accessed = accessed(&faulted, pid, range, &present);
            if size == PageSize::Base {
                if accessed > 0 && self.armed.get(&page).copied().unwrap_or(false) {
                    world.accessed(pid, page.vpn..page.vpn + 1, 1);
                }
                armed.insert(page, true);
            } else if world.page(page).map(|view| view.tier) == compressed {
                world.seen(page, accessed);
            } else {
                continue;
            }
            out.entry(page.space)
                .or_default()
                .extend(present.iter().map(|run| (run.start, run.end - run.start)));
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
        self.faults.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_what_faulted_and_what_is_back_alone() {
        let run = |pages: Range<u64>, categories| PageRun {
            start: pages.start << 12,
            end: pages.end << 12,
            categories: category::PRESENT | categories,
        };
        let faulted = BTreeSet::from([(7, 10), (7, 12), (8, 11), (7, 20)]);
        // 10 has faulted and is back, 12 has faulted and is gone again, 14 and 15 are back; 20 lies behind, 11 is another's.
        assert_eq!(accessed(&faulted, 7, 8..20, &[run(10..11, 0), run(14..16, 0)]), 4);
        // The kernel has made a huge page of all of them.
        assert_eq!(accessed(&faulted, 7, 8..20, &[run(8..20, category::HUGE)]), 2);
        assert_eq!(accessed(&BTreeSet::new(), 7, 8..20, &[run(8..20, category::HUGE)]), 0);
    }
}
