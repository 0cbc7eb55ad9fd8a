//! Which pages each process has touched so far.

use crate::{Advice, Batch, Event, Item, SequencedEvent, StreamId};
use std::collections::{BTreeSet, HashMap, HashSet};
use terrace_model::{AddressRange, PageSize};

/// Pages of one `Resident` event: 512 words, 128 MiB of address space. More would make a trace that touches single pages
/// far apart take much memory.
const BITMAP_PAGES: u64 = 1 << 15;
/// Linux copies at most 2 GiB in one system call, less a page (`MAX_RW_COUNT`).
const MAX_COPY_PAGES: u64 = 1 << 19;

/// Touched pages per process, kept as the program's own calls change them.
#[derive(Debug, Default)]
pub(super) struct Residency {
    process_of: HashMap<StreamId, u32>,
    /// A stream of each live process, to speak for it.
    speaker: HashMap<u32, StreamId>,
    touched: HashMap<u32, HashSet<u64>>,
}

impl Residency {
    /// Follows one batch.
    pub(super) fn observe(&mut self, batch: &Batch) {
        let mut last = u64::MAX;
        for item in batch.items() {
            match item {
                Item::Access(access) => {
                    let page = access.addr >> PageSize::Base.shift();
                    let end =
                        access.addr.saturating_add(u64::from(access.size) - 1) >> PageSize::Base.shift();
                    if page != last || end != last {
                        self.pages(batch.stream).extend([page, end]);
                        last = end;
                    }
                }
                Item::Event(event) => {
                    last = u64::MAX;
                    self.event(batch.stream, event);
                }
            }
        }
    }

    fn event(&mut self, stream: StreamId, event: &SequencedEvent) {
        match &event.event {
            Event::Spawn { process, forked_from, .. } => {
                self.process_of.insert(stream, *process);
                self.speaker.entry(*process).or_insert(stream);
                if let Some(parent) = forked_from {
                    let inherited = self.pages(*parent).clone();
                    self.touched.insert(*process, inherited);
                }
            }
            Event::Exit { process_ends } => {
                let process = self.process(stream);
                self.process_of.remove(&stream);
                if *process_ends {
                    self.touched.remove(&process);
                    self.speaker.remove(&process);
                } else if self.speaker.get(&process) == Some(&stream) {
                    match self.process_of.iter().filter(|(_, of)| **of == process).map(|(s, _)| *s).min() {
                        Some(other) => self.speaker.insert(process, other),
                        None => self.speaker.remove(&process),
                    };
                }
            }
            Event::Exec { .. } => self.pages(stream).clear(),
            Event::Map { range, .. } | Event::Unmap { range } => self.forget(stream, range),
            Event::Advise { range, advice: Advice::DontNeed } => self.forget(stream, range),
            Event::Remap { from, to } => {
                let pages = range_of(from);
                let step = to.start.vpn().wrapping_sub(pages.start);
                let kept = range_of(to);
                let all = self.pages(stream);
                let moved: Vec<u64> = all.iter().filter(|page| pages.contains(page)).copied().collect();
                all.retain(|page| !pages.contains(page));
                all.extend(
                    moved.into_iter().map(|page| page.wrapping_add(step)).filter(|page| kept.contains(page)),
                );
            }
            Event::Kernel { range, .. } => {
                // A length is a claim of the input: no more pages are walked than a call could have copied.
                let pages = range_of(range);
                self.pages(stream)
                    .extend(pages.start..pages.end.min(pages.start.saturating_add(MAX_COPY_PAGES)));
            }
            Event::Resident { start, bitmap } => {
                let first = start >> PageSize::Base.shift();
                let pages = self.pages(stream);
                for (index, word) in bitmap.iter().enumerate() {
                    let set = (0..64).filter(|bit| word >> bit & 1 == 1);
                    pages.extend(set.map(|bit| first.wrapping_add(64 * index as u64 + bit)));
                }
            }
            _ => {}
        }
    }

    /// `Resident` events that say what was touched so far, each with the stream that issues it.
    pub(super) fn events(&self) -> Vec<(StreamId, Event)> {
        let mut processes: Vec<_> = self.speaker.iter().collect();
        processes.sort_unstable();
        let mut events = Vec::new();
        for (process, &stream) in processes {
            let pages: BTreeSet<u64> = self.touched.get(process).into_iter().flatten().copied().collect();
            let mut current: Option<(u64, Vec<u64>)> = None;
            for page in pages {
                let area = page / BITMAP_PAGES * BITMAP_PAGES;
                if current.as_ref().is_some_and(|(start, _)| *start != area) {
                    events.extend(current.take().map(|(start, bitmap)| (stream, resident(start, bitmap))));
                }
                let (start, bitmap) = current.get_or_insert_with(|| (area, Vec::new()));
                let bit = page - *start;
                bitmap.resize(bitmap.len().max(bit as usize / 64 + 1), 0);
                bitmap[bit as usize / 64] |= 1 << (bit % 64);
            }
            events.extend(current.map(|(start, bitmap)| (stream, resident(start, bitmap))));
        }
        events
    }

    fn process(&self, stream: StreamId) -> u32 {
        self.process_of.get(&stream).copied().unwrap_or(0)
    }

    fn pages(&mut self, stream: StreamId) -> &mut HashSet<u64> {
        let process = self.process(stream);
        self.touched.entry(process).or_default()
    }

    fn forget(&mut self, stream: StreamId, range: &AddressRange) {
        let gone = range_of(range);
        let pages = self.pages(stream);
        if pages.len() as u64 > gone.end - gone.start {
            gone.for_each(|page| {
                pages.remove(&page);
            });
        } else {
            pages.retain(|page| !gone.contains(page));
        }
    }
}

fn resident(first_page: u64, bitmap: Vec<u64>) -> Event {
    Event::Resident { start: first_page << PageSize::Base.shift(), bitmap }
}

/// The numbers of the base pages that a range touches.
fn range_of(range: &AddressRange) -> std::ops::Range<u64> {
    let cover = range.page_cover(PageSize::Base);
    cover.start.vpn()..cover.end().vpn()
}
