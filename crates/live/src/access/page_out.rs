//! Accesses to chosen pages of unmodified processes by the page-out probe: a page that is sent to compressed swap faults
//! when it is next accessed, and `pagemap` shows that it is back.
//!
//! A watched base page is sent out again after each look, so that it shows in how many of the looks it was accessed. Of 2
//! MiB that lie in the compressed tier, every base page that is back is an access, seen by itself; they, too, are sent out
//! again, since the policy wants them there.
//!
//! A page that is back as part of a huge page was brought back by the kernel, and a page that did not go when it was sent
//! (another process shares it, or it is locked) cannot come back: of both nothing is known, which is not the same as no
//! access. Where the kernel reports major faults one by one, those count as accesses as well: of pages in huge pages, and of
//! pages that the kernel has sent out again since.

use super::AccessSource;
use crate::kernel::{Advice, Event, Kernel, PageRun, PageScan, Samples, category};
use crate::world::{Probed, Sampling, World};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use terrace_model::{PageSize, Time};
use terrace_policy::{MemorySystem, PageId, SpaceId};

/// Between two looks at the watched pages. A page's accesses are distinguished that far.
const PERIOD: Duration = Duration::from_millis(250);

/// The probe.
pub struct PageOut {
    kernel: Arc<dyn Kernel>,
    /// Base pages that were in swap after the last look.
    armed: BTreeSet<PageId>,
    /// When the last look sent pages out.
    sent: Duration,
    /// The major faults on each processor; empty where the kernel does not report them.
    faults: Vec<Box<dyn Samples>>,
}

impl PageOut {
    /// Without any page yet, on a machine with these processors.
    pub fn new(kernel: Arc<dyn Kernel>, cpus: &[u32]) -> PageOut {
        let faults = super::on_all(&*kernel, Event::MajorFaults, cpus).unwrap_or_else(|error| {
            tracing::info!(%error, "major faults are not reported one by one; pages that are back in memory show accesses");
            Vec::new()
        });
        PageOut { kernel, armed: BTreeSet::new(), sent: Duration::ZERO, faults }
    }

    /// Which pages have faulted since the last look sent them out, by process and page number. A fault before that has
    /// shown by the page.
    fn faulted(&mut self) -> BTreeSet<(u32, u64)> {
        let (mut pages, sent) = (BTreeSet::new(), self.sent.as_nanos() as u64);
        for ring in &mut self.faults {
            let lost = ring.read(&mut |fault| {
                if fault.time >= sent {
                    pages.insert((fault.pid, fault.address >> 12));
                }
            });
            if lost > 0 {
                tracing::debug!(lost, "more faults than the kernel could tell of");
            }
        }
        pages
    }

    /// Looks at pages, those within 2 MiB together. Those of a process that has ended are left out: it is let go with the
    /// next look at the targets.
    fn look(
        &self,
        world: &World,
        faulted: &BTreeSet<(u32, u64)>,
        pages: &[(PageId, PageSize)],
    ) -> Vec<Found> {
        let mut found = Vec::with_capacity(pages.len());
        for some in pages.chunk_by(|(one, _), (other, _)| chunk(*one) == chunk(*other)) {
            let space = some[0].0.space;
            let Ok(runs) = self.present(world, space, span(some)) else { continue };
            let Some(pid) = world.process(space).map(|process| process.pid) else { continue };
            for (page, size) in some {
                let range = page.vpn..page.vpn + size.base_pages();
                let present = within(&runs, range.clone());
                let accessed = accessed(faulted, pid, range, &present);
                found.push(Found { pid, page: *page, accessed, present });
            }
        }
        found
    }

    /// Sends what is in memory of these pages, and is of this kind, to swap; returns how many 2 MiB it lies in.
    fn send_out(&self, world: &World, found: &[Found], kind: impl Fn(&PageRun) -> bool) -> u64 {
        let mut out: BTreeMap<SpaceId, Vec<(u64, u64)>> = BTreeMap::new();
        let mut chunks = BTreeSet::new();
        for Found { page, present, .. } in found {
            for run in present.iter().filter(|run| kind(run)) {
                chunks.insert(chunk(*page));
                out.entry(page.space).or_default().push((run.start, run.end - run.start));
            }
        }
        for (space, ranges) in out {
            let Some(process) = world.process(space) else { continue };
            for some in ranges.chunks(libc::UIO_MAXIOV as usize) {
                // What does not go stays unarmed; the next look tries again.
                let _ = self.kernel.advise(process, some, Advice::PageOut);
            }
        }
        chunks.len() as u64
    }

    /// Runs of pages of a range that are in memory. At most 2 MiB.
    fn present(&self, world: &World, space: SpaceId, range: Range<u64>) -> io::Result<Vec<PageRun>> {
        let Some(process) = world.process(space) else { return Ok(Vec::new()) };
        let mut runs = [PageRun::default(); CHUNK as usize];
        let scan = PageScan {
            start: range.start << 12,
            end: range.end << 12,
            all_of: category::PRESENT,
            tell: category::PRESENT | category::ZERO | category::HUGE,
            ..PageScan::default()
        };
        let (count, _) = self.kernel.scan_pages(process, &scan, &mut runs)?;
        Ok(runs[..count].iter().filter(|run| run.categories & category::ZERO == 0).copied().collect())
    }
}

/// Base pages that are looked at by one call.
const CHUNK: u64 = PageSize::Huge.base_pages();

/// Pages and their sizes, in ascending order.
type Pages = Vec<(PageId, PageSize)>;

/// What a look has found of a page.
struct Found {
    /// The process that the page belongs to.
    pid: u32,
    page: PageId,
    /// Base pages that were accessed since the last look, if they were out then.
    accessed: u64,
    /// The pages of it that are in memory.
    present: Vec<PageRun>,
}

fn chunk(page: PageId) -> (SpaceId, u64) {
    (page.space, page.vpn / CHUNK)
}

fn is_huge(run: &PageRun) -> bool {
    run.categories & category::HUGE != 0
}

/// The page numbers of pages that lie within 2 MiB, in ascending order.
fn span(pages: &[(PageId, PageSize)]) -> Range<u64> {
    let [(first, _), .., (last, size)] = pages else {
        return pages.first().map_or(0..0, |(page, size)| page.vpn..page.vpn + size.base_pages());
    };
    first.vpn..last.vpn + size.base_pages()
}

/// The parts of the runs that lie in a range of page numbers.
fn within(runs: &[PageRun], range: Range<u64>) -> Vec<PageRun> {
    let cut = |run: &PageRun| PageRun {
        start: run.start.max(range.start << 12),
        end: run.end.min(range.end << 12),
        categories: run.categories,
    };
    runs.iter().map(cut).filter(|run| run.start < run.end).collect()
}

/// Base pages of a range that were accessed: those that have faulted, and those in memory that no huge page has brought
/// back.
fn accessed(faulted: &BTreeSet<(u32, u64)>, pid: u32, range: Range<u64>, present: &[PageRun]) -> u64 {
    let alone = present.iter().filter(|run| !is_huge(run));
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

    fn sees_all_pages(&self) -> bool {
        false
    }

    fn collect(&mut self, world: &mut World) -> io::Result<Duration> {
        world.set_sampling(Sampling { interval: Time::from_nanos(PERIOD.as_nanos() as u64), together: 1 });
        let faulted = self.faulted();
        let compressed = world.topology().find(crate::facts::tiers::COMPRESSED);
        let (base, huge): (Pages, Pages) =
            world.watched().into_iter().partition(|(_, size)| *size == PageSize::Base);
        let in_swap =
            |page: &PageId, world: &mut World| world.page(*page).map(|view| view.tier) == compressed;
        let slow: Pages = huge.into_iter().filter(|(page, _)| in_swap(page, world)).collect();
        let mut pass = Probed { looked: base.len() as u64, slow: slow.len() as u64, ..Probed::default() };
        let began = self.kernel.cpu_time();
        let mut armed = BTreeSet::new();
        let found = self.look(world, &faulted, &base);
        for Found { pid, page, accessed, present } in &found {
            let was_out = self.armed.contains(page);
            pass.armed += u64::from(was_out);
            let has_faulted = faulted.contains(&(*pid, page.vpn));
            // A page that came back before it was seen to be out has faulted all the same.
            if *accessed > 0 && was_out || has_faulted {
                pass.accessed += u64::from(was_out);
                world.accessed(*pid, page.vpn..page.vpn + 1, 1);
            } else if present.iter().any(is_huge) || !was_out {
                world.unseen(*page);
            }
            if present.is_empty() {
                armed.insert(*page);
            }
        }
        let looked = self.kernel.cpu_time();
        let found_slow = self.look(world, &faulted, &slow);
        for Found { page, accessed, present, .. } in &found_slow {
            world.seen(*page, *accessed);
            if present.iter().any(is_huge) {
                world.unseen(*page);
            }
        }
        world.looked(1);
        self.sent = self.kernel.now();
        self.send_out(world, &found_slow, |_| true);
        let looked_at_slow = self.kernel.cpu_time();
        pass.split = self.send_out(world, &found, is_huge);
        let split = self.kernel.cpu_time();
        self.send_out(world, &found, |run| !is_huge(run));
        let sent_out = self.kernel.cpu_time();
        let sent: Pages = found
            .iter()
            .filter(|found| !found.present.is_empty())
            .map(|found| (found.page, PageSize::Base))
            .collect();
        // The call says yes to pages that it passed over: only those count that are gone now.
        let gone = self.look(world, &faulted, &sent).into_iter().filter(|found| found.present.is_empty());
        armed.extend(gone.map(|found| found.page));
        let stayed = sent.iter().filter(|(page, _)| !armed.contains(page)).count();
        if stayed > 0 {
            tracing::debug!(
                stayed,
                sent = sent.len(),
                "watched pages are in memory after they were sent out"
            );
        }
        world.stayed(stayed as u64);
        self.armed = armed;
        let in_huge = found.iter().filter(|found| found.present.iter().any(is_huge)).count();
        pass.sent = (sent.len() - in_huge) as u64;
        pass.looking = looked.saturating_sub(began) + self.kernel.cpu_time().saturating_sub(sent_out);
        pass.looking_at_slow = looked_at_slow.saturating_sub(looked);
        pass.splitting = split.saturating_sub(looked_at_slow);
        pass.sending = sent_out.saturating_sub(split);
        world.probed(&pass);
        Ok(PERIOD)
    }

    fn stop(&mut self, _: &mut World) {
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
