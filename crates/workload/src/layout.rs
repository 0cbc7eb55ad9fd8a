//! Where a workload's data structures lie in its virtual address space, and heaps that grow while it runs.

use crate::memory::{Memory, WINDOW};
use crate::parameters::Init;
use terrace_model::AddressRange;
use terrace_trace::{Event, MapKind, Protection};

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
const GIANT_PAGE: u64 = 1 << 30;
/// Allocations below this come from the heap, larger ones get their own mapping: glibc's `M_MMAP_THRESHOLD`.
const MMAP_THRESHOLD: u64 = 128 << 10;
/// Room kept for the heap in front of the mappings; only the used part is mapped.
const HEAP_BYTES: u64 = 1 << 30;

/// A data structure with a place.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    pub site: u32,
    pub range: AddressRange,
}

/// The address space of a workload when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Names of the allocation sites, indexed by site number.
    pub sites: Vec<&'static str>,
    /// What is allocated before the first access.
    pub structures: Vec<Structure>,
    /// Mappings that exist before the first access.
    pub maps: Vec<(AddressRange, MapKind)>,
    /// What the initialisation phase touches, in order; all threads finish one range before the next begins.
    pub touched: Vec<AddressRange>,
    /// How many of them, from the first on, every thread touches side by side instead, as one loop over several arrays does.
    pub together: usize,
    /// How it touches them.
    pub init: Init,
    /// Instructions that each thread computes between initialisation and run.
    pub settle: u64,
    heap_used: u64,
    growing: u64,
    /// Room that was reserved for what grows.
    rooms: Vec<AddressRange>,
    end: u64,
}

impl Layout {
    pub fn new(init: Init) -> Layout {
        Layout {
            sites: Vec::new(),
            structures: Vec::new(),
            maps: Vec::new(),
            touched: Vec::new(),
            together: 1,
            init,
            settle: 0,
            heap_used: 0,
            growing: 0,
            rooms: Vec::new(),
            end: HEAP_BYTES,
        }
    }

    /// This layout with time for daemons before the run.
    pub fn settling(mut self, instructions: u64) -> Layout {
        self.settle = instructions;
        self
    }

    /// The number of the allocation site `name`.
    pub fn site(&mut self, name: &'static str) -> u32 {
        let known = self.sites.iter().position(|s| *s == name);
        known.unwrap_or_else(|| {
            self.sites.push(name);
            self.sites.len() - 1
        }) as u32
    }

    /// Allocates an array; gives its address. Small ones lie on the heap, larger ones in a mapping of their own that
    /// begins at a 2 MiB boundary, from 1 GiB on at a 1 GiB boundary, so that every page size can back it.
    pub fn array(&mut self, name: &'static str, bytes: u64) -> u64 {
        let site = self.site(name);
        let start = if bytes < MMAP_THRESHOLD && self.heap_used + bytes < HEAP_BYTES / 2 {
            let start = WINDOW + self.heap_used;
            self.heap_used = (self.heap_used + bytes).next_multiple_of(64);
            start
        } else {
            let start = self.place(bytes);
            self.maps.push((AddressRange::new(start, bytes.next_multiple_of(PAGE)), MapKind::Anonymous));
            start
        };
        let range = AddressRange::new(start, bytes);
        self.structures.push(Structure { site, range });
        self.touched.push(range);
        start
    }

    /// Room that a growing heap or mapping may use later; nothing is mapped yet. `expected` bytes of it will be used.
    pub fn reserve(&mut self, bytes: u64, expected: u64) -> u64 {
        self.growing += expected;
        let start = self.place(bytes);
        self.rooms.push(AddressRange::new(start, bytes));
        start
    }

    fn place(&mut self, bytes: u64) -> u64 {
        let align = if bytes >= GIANT_PAGE { GIANT_PAGE } else { HUGE_PAGE };
        let start = self.end.next_multiple_of(align);
        self.end = (start + bytes).next_multiple_of(HUGE_PAGE);
        WINDOW + start
    }

    /// Bytes from [`WINDOW`] to the end of the last structure.
    pub fn window_bytes(&self) -> u64 {
        self.end
    }

    /// Bytes of the structures, those expected to grow included.
    pub fn footprint(&self) -> u64 {
        self.growing + self.structures.iter().map(|s| s.range.bytes).sum::<u64>()
    }

    /// Everything that may be used: the mappings, the heap, and room for what grows.
    pub fn ranges(&self) -> Vec<AddressRange> {
        self.maps
            .iter()
            .map(|(range, _)| *range)
            .chain(self.heap())
            .chain(self.rooms.iter().copied())
            .collect()
    }

    /// The heap's mapping, where it is used.
    pub fn heap(&self) -> Option<AddressRange> {
        (self.heap_used > 0).then(|| AddressRange::new(WINDOW, self.heap_used.next_multiple_of(PAGE)))
    }
}

/// An allocator that never frees: it grows its mapping in steps, as `brk` does.
#[derive(Clone, Debug)]
pub(crate) struct Heap {
    next: u64,
    mapped: u64,
    limit: u64,
    kind: MapKind,
    object: u64,
}

/// Growth step of a heap: glibc's default `M_TOP_PAD` of 128 KiB, rounded up to pages with one page of slack.
const HEAP_STEP: u64 = 132 << 10;

impl Heap {
    /// A heap in reserved room. The first thread's is the process's heap, those of others are mappings (arenas).
    pub fn new(start: u64, bytes: u64, thread: u32) -> Heap {
        let kind = if thread == 0 { MapKind::Heap } else { MapKind::Anonymous };
        Heap { next: start, mapped: start, limit: start + bytes, kind, object: first_object(thread) }
    }

    /// Allocates `bytes`, aligned to 16 like malloc; the mapping grows where needed. With a site the object is announced.
    ///
    /// Panics when the reserved room is too small: the program's layout computed it wrongly.
    pub fn allocate<M: Memory>(&mut self, memory: &mut M, bytes: u64, site: Option<u32>) -> u64 {
        let start = self.next;
        self.next = (start + bytes).next_multiple_of(16);
        assert!(self.next <= self.limit, "a heap outgrew its reserved room");
        if self.next > self.mapped {
            let grown = (self.next - self.mapped).next_multiple_of(HEAP_STEP).min(self.limit - self.mapped);
            map(memory, AddressRange::new(self.mapped, grown.next_multiple_of(PAGE)), self.kind);
            self.mapped += grown.next_multiple_of(PAGE);
        }
        if let Some(site) = site {
            self.announce(memory, site, AddressRange::new(start, bytes));
        }
        start
    }

    /// Announces an object that lies elsewhere; gives its number.
    pub fn announce<M: Memory>(&mut self, memory: &mut M, site: u32, range: AddressRange) -> u64 {
        self.object += 1;
        if M::WANTS_EVENTS {
            memory.event(Event::Alloc { object: self.object, site, range });
        }
        self.object
    }
}

/// Numbers of the objects that a thread allocates follow this one; those of the layout are below it.
fn first_object(thread: u32) -> u64 {
    (u64::from(thread) + 1) << 40
}

/// Announces a new mapping.
pub(crate) fn map<M: Memory>(memory: &mut M, range: AddressRange, kind: MapKind) {
    if M::WANTS_EVENTS {
        let name = if kind == MapKind::Heap { "[heap]" } else { "" };
        memory.event(Event::Map { range, kind, protection: Protection::READ_WRITE, name: name.to_owned() });
    }
}
