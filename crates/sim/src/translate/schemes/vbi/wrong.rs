//! Accesses that a program should not have made: without the right to their block, or where nothing is mapped. The core
//! raises an exception for them. In a recorded program they are a bug of it: they are counted and reported with their call
//! sites, and the run goes on.

use crate::observe::Objects;
use std::fmt::Write;
use terrace_model::{SpaceId, VirtAddr};
use terrace_trace::Event;

/// Call sites that are reported one by one.
const MOST: usize = 4;

/// An access and the instruction that made it, where the input has instructions.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub space: SpaceId,
    pub addr: VirtAddr,
    pub write: bool,
    pub instruction: Option<u64>,
}

/// Wrong accesses of one call site: an instruction, and the data structure that it was about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    instruction: Option<u64>,
    structure: Option<u32>,
    count: u64,
    /// The first of them.
    first: String,
}

/// Wrong accesses of one kind.
#[derive(Clone, Debug, Default)]
struct Kind {
    count: u64,
    places: Vec<Place>,
    /// Wrong accesses of further call sites.
    elsewhere: u64,
}

impl Kind {
    fn add(&mut self, access: &Access, structure: Option<u32>, first: impl FnOnce() -> String) {
        self.count += 1;
        let instruction = access.instruction;
        let is_known = |place: &Place| (place.instruction, place.structure) == (instruction, structure);
        match self.places.iter().position(is_known) {
            Some(at) => self.places[at].count += 1,
            None if self.places.len() < MOST => {
                self.places.push(Place { instruction, structure, count: 1, first: first() });
            }
            None => self.elsewhere += 1,
        }
    }

    /// By call site, how many and the first of them.
    fn sentence(&self, what: &str) -> Option<String> {
        let mut text = format!("{what}: ");
        for (at, place) in self.places.iter().enumerate() {
            let before = if at > 0 { "; " } else { "" };
            let _ = write!(text, "{before}{}, first {}", place.count, place.first);
        }
        if self.elsewhere > 0 {
            let _ = write!(text, "; {} elsewhere", self.elsewhere);
        }
        (self.count > 0).then_some(text)
    }
}

/// All of them, and the data structures that they are reported by.
#[derive(Debug, Default)]
pub struct Wrongs {
    structures: Objects,
    without_right: Kind,
    unmapped: Kind,
}

impl Wrongs {
    /// An event of a process.
    pub fn apply(&mut self, space: SpaceId, event: &Event) {
        self.structures.apply(space, event);
    }

    /// A process was forked from another.
    pub fn forked(&mut self, parent: SpaceId, child: SpaceId) {
        self.structures.forked(parent, child);
    }

    /// Accesses without the right to be made.
    pub fn without_right(&self) -> u64 {
        self.without_right.count
    }

    /// The process has no right to make the access.
    pub fn has_no_right(&mut self, access: &Access) {
        let Wrongs { structures, without_right, .. } = self;
        let structure = structures.find(access.space, access.addr).map(|(_, place)| place);
        without_right.add(access, structure, || {
            let mut text = described(access);
            if let Some(place) = structure {
                let _ = write!(text, ", in what {} allocated", structures.name(place));
            }
            text
        });
    }

    /// Notes an access to where nothing is mapped; the first one to its page.
    pub fn is_unmapped(&mut self, access: &Access) {
        let Wrongs { structures, unmapped, .. } = self;
        let nearest = structures.nearest(access.space, access.addr);
        unmapped.add(access, nearest.map(|(_, place)| place), || {
            let mut text = described(access);
            if let Some((range, place)) = nearest {
                let (bytes, side) = match access.addr.0.checked_sub(range.end().0) {
                    Some(beyond) => (beyond, "after the end of"),
                    None => (range.start.0.saturating_sub(access.addr.0), "before"),
                };
                let _ = write!(text, ", {bytes} bytes {side} what {} allocated", structures.name(place));
            }
            text
        });
    }

    /// What a reader should know of them.
    pub fn notes(&self) -> Vec<String> {
        let without_right =
            self.without_right.sentence("accesses that had no right to their block, and were made");
        let unmapped = self.unmapped.sentence("pages that were accessed and that nothing had mapped");
        without_right.into_iter().chain(unmapped).collect()
    }
}

/// The access in words.
fn described(access: &Access) -> String {
    let what = if access.write { "a store" } else { "a load" };
    let by = access.instruction.map(|at| format!(" by the instruction at {at:#x}")).unwrap_or_default();
    format!("{what} at {:#x} of process {}{by}", access.addr, access.space)
}
