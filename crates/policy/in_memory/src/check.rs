//! What must hold after every step.

use super::{Holder, InMemory};
use std::collections::BTreeSet;
use terrace_model::{PageId, PageRange, PageSize};

impl InMemory {
    /// Checks that no page is lost, doubled or mixed up, and that no tier holds more than it can.
    ///
    /// # Errors
    /// The first thing that is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        // For each frame of each tier, whether a page was seen that it backs.
        let mut held: Vec<Vec<bool>> =
            self.frames.iter().map(|frames| vec![false; frames.count() as usize]).collect();
        let mut end = PageId::default();
        for (&name, page) in &self.pages {
            if name < end {
                return Err(format!("{name:?} overlaps the page before it"));
            }
            end = name.plus(page.size.base_pages());
            if !name.is_aligned(page.size) || !page.frame.is_multiple_of(page.size.base_pages()) {
                return Err(format!("{name:?} of {} is not aligned", page.size));
            }
            if self.tier_of(page.frame) != Some(page.tier.index()) {
                return Err(format!("{name:?} lies outside its tier"));
            }
            let frames = &self.frames[page.tier.index()];
            for at in 0..page.size.base_pages() {
                let frame = page.frame + at;
                if frames.holder(frame) != Holder::Page(name) {
                    return Err(format!("{name:?}: frame {frame:#x} is held by {:?}", frames.holder(frame)));
                }
                if frames.content(frame) != Some(name.plus(at)) {
                    let content = frames.content(frame);
                    return Err(format!("{:?}: its frame holds {content:?}", name.plus(at)));
                }
                let seen = &mut held[page.tier.index()][(frame - frames.base) as usize];
                if std::mem::replace(seen, true) {
                    return Err(format!("frame {frame:#x} backs two pages"));
                }
            }
            if page.held_by.is_some() && self.next_landing().is_none() {
                return Err(format!("{name:?} is held by an order that is over"));
            }
        }
        if let Some(lost) = self.first_of(&self.stored, false) {
            return Err(format!("{lost:?} was stored to and is not mapped"));
        }
        if let Some(doubled) = self.first_of(&self.zeros, true) {
            return Err(format!("{doubled:?} reads as zeros and is mapped"));
        }
        for (at, frames) in self.frames.iter().enumerate() {
            let mut free = 0;
            for ((frame, holder, _), held) in frames.all().zip(&held[at]) {
                free += u64::from(matches!(holder, Holder::Free { .. }));
                let orphan = matches!(holder, Holder::Page(_)) && !held;
                let in_flight = matches!(holder, Holder::Reserved(_) | Holder::OtherInFlight(_));
                let stale = in_flight && self.next_landing().is_none();
                if orphan || stale {
                    return Err(format!("frame {:#x} leaked: {holder:?}", frame.0));
                }
            }
            let tier = &self.topology.tiers[at];
            if free != frames.free() || tier.used.0 + free * PageSize::Base.bytes() != tier.capacity.0 {
                return Err(format!("{}: {free} free frames, but {:?} used", tier.name, tier.used));
            }
        }
        Ok(())
    }

    /// The first of `names` that is mapped, or that is not, as `mapped` says.
    fn first_of(&self, names: &BTreeSet<PageId>, mapped: bool) -> Option<PageId> {
        let mut pages = self.pages.iter().map(|(&first, page)| PageRange::of(first, page.size));
        let mut range = pages.next();
        names.iter().copied().find(|&name| {
            while range.is_some_and(|range| PageId { space: range.first.space, vpn: range.end() } <= name) {
                range = pages.next();
            }
            range.is_some_and(|range| range.contains(name)) == mapped
        })
    }
}
