//! What must hold after every step.

use super::{Holder, InMemory};
use std::collections::BTreeMap;
use terrace_model::PageSize;

impl InMemory {
    /// Checks that no page is lost, doubled or mixed up, and that no tier holds more than it can.
    ///
    /// # Errors
    /// The first thing that is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut held: BTreeMap<u64, u64> = BTreeMap::new();
        let mut end = terrace_seam::PageId::default();
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
                if held.insert(frame, 1).is_some() {
                    return Err(format!("frame {frame:#x} backs two pages"));
                }
            }
            if page.held_by.is_some() && self.next_landing().is_none() {
                return Err(format!("{name:?} is held by an order that is over"));
            }
        }
        if let Some(lost) = self.stored.iter().find(|page| self.find(**page).is_none()) {
            return Err(format!("{lost:?} was stored to and is not mapped"));
        }
        if let Some(doubled) = self.zeros.iter().find(|page| self.find(**page).is_some()) {
            return Err(format!("{doubled:?} reads as zeros and is mapped"));
        }
        for (at, frames) in self.frames.iter().enumerate() {
            let mut free = 0;
            for (frame, holder, _) in frames.all() {
                free += u64::from(matches!(holder, Holder::Free { .. }));
                let orphan = matches!(holder, Holder::Page(_)) && !held.contains_key(&frame.0);
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
}
