//! What holds of every plausible input: the one check that `terrace trace verify`, all importers and all consumers share.
//!
//! | of | rule |
//! |---|---|
//! | streams | their numbers lie below 1,048,576 |
//! | columns | what [`Batch::validate`] checks: equal lengths, sizes of 1 to 255 bytes, events in order |
//! | accesses | every byte has a user address |
//! | ranges of events | they end within the user addresses |
//! | `Kernel` | at most 2,147,479,552 bytes, the most that one system call of Linux copies (`MAX_RW_COUNT`) |
//! | `Resident` | its first page is aligned, and every page that it names has user addresses |
//! | `Compute` | at most 2^40 instructions, minutes of time: more would overflow a simulated clock |
//! | kernels that a thread enqueues | it is a thread of a CPU, and waits for a kernel after all of the kernel's work |
//!
//! User addresses of x86-64 are the lower half of what the page tables translate: with four levels they lie below 2^47,
//! with five below 2^56. Higher addresses are the kernel's, or are not canonical.

use crate::kernels::Kernels;
use crate::{Batch, Event, EventSource, Header, SequencedEvent, SourceError, StreamId, TraceEnding};
use std::fmt;
use std::sync::Arc;
use terrace_model::{AddressRange, PageSize};

/// Stream numbers lie below.
pub const MAX_STREAMS: usize = 1 << 20;
/// The most bytes that one system call of Linux copies: `MAX_RW_COUNT` of `include/linux/fs.h`.
pub const MAX_KERNEL_BYTES: u64 = 0x7fff_f000;
/// The most instructions of one [`Event::Compute`].
pub const MAX_COMPUTE: u64 = 1 << 40;
/// Levels of the largest page tables of x86-64.
const MOST_LEVELS: u32 = 5;

/// One broken rule: where, which value, and which rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stream {stream}, {place}: {value}: expected {rule}", stream = stream.0)]
pub struct Violation {
    /// The stream of the batch.
    pub stream: StreamId,
    /// The place in the input.
    pub place: Place,
    /// What was found.
    pub value: String,
    /// What was expected.
    pub rule: String,
}

/// A place in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The access of this number in the order of the input, from 0.
    Access(u64),
    /// An event before the access of this number.
    EventBefore(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Access(number) => write!(f, "access {number}"),
            Place::EventBefore(number) => write!(f, "event before access {number}"),
        }
    }
}

/// Checks the batches of one input, one after the other, and counts their accesses.
#[derive(Clone, Debug)]
pub struct Rules {
    levels: u32,
    /// Number of the next batch's first access.
    accesses: u64,
    kernels: Kernels,
}

impl Default for Rules {
    /// The rules for an input that is not bound to a machine: five levels of page tables.
    fn default() -> Rules {
        Rules::new(MOST_LEVELS)
    }
}

impl Rules {
    /// The rules for an input whose addresses page tables of `levels` levels must be able to map.
    pub fn new(levels: u32) -> Rules {
        Rules { levels, accesses: 0, kernels: Kernels::default() }
    }

    /// The first byte address beyond the user addresses.
    pub const fn user_end(&self) -> u64 {
        1 << (11 + 9 * self.levels)
    }

    /// Checks the next batch of the input.
    ///
    /// # Errors
    /// The first rule that the batch breaks.
    pub fn check(&mut self, batch: &Batch) -> Result<(), Violation> {
        let first = self.accesses;
        self.accesses += batch.len() as u64;
        let broken = |place, value, rule| Violation { stream: batch.stream, place, value, rule };
        if batch.stream.index() >= MAX_STREAMS {
            let value = format!("stream number {}", batch.stream.0);
            return Err(broken(Place::Access(first), value, format!("a number below {MAX_STREAMS}")));
        }
        if let Err(what) = batch.validate() {
            let rule = "columns and events as the format has them".to_owned();
            return Err(broken(Place::Access(first), what, rule));
        }
        if let Some((at, value)) = self.not_user(batch) {
            return Err(broken(Place::Access(first + at as u64), value, self.address_rule()));
        }
        self.check_events(batch, first)
    }

    /// Checks a batch that was read without its `accesses` accesses ([`EventSource::next_outline`]): its events alone.
    ///
    /// # Errors
    /// The first rule that an event breaks.
    pub fn check_outline(&mut self, batch: &Batch, accesses: u64) -> Result<(), Violation> {
        let first = self.accesses;
        self.accesses += accesses;
        self.check_events(batch, first)
    }

    fn check_events(&mut self, batch: &Batch, first: u64) -> Result<(), Violation> {
        for SequencedEvent { before, event, .. } in &batch.events {
            if let Some((value, rule)) =
                self.implausible(event).or_else(|| self.kernels.take(batch.stream, event))
            {
                let place = Place::EventBefore(first + u64::from(*before));
                return Err(Violation { stream: batch.stream, place, value, rule });
            }
        }
        Ok(())
    }

    fn address_rule(&self) -> String {
        let hint = if self.levels < MOST_LEVELS { "; set translation.levels=5 if more is meant" } else { "" };
        format!(
            "a user address below {:#x}, as {} levels of page tables have them{hint}",
            self.user_end(),
            self.levels
        )
    }

    /// The first access with a byte that has no user address.
    fn not_user(&self, batch: &Batch) -> Option<(usize, String)> {
        // One pass without branches, as nearly all batches are right. The end is a power of two, so that all addresses
        // lie below it if all their bits together do; an access reaches at most 255 bytes further.
        let end = self.user_end();
        if batch.addr.iter().fold(0, |bits, &addr| bits | addr | addr.wrapping_add(255)) < end {
            return None;
        }
        let outside = |addr: u64, size: u8| addr >= end || u64::from(size) > end - addr;
        let at = batch.addr.iter().zip(&batch.size).position(|(&addr, &size)| outside(addr, size))?;
        Some((at, format!("{} bytes at address {:#x}", batch.size[at], batch.addr[at])))
    }

    /// What is wrong with an event, and what is right.
    fn implausible(&self, event: &Event) -> Option<(String, String)> {
        match event {
            Event::Map { range, .. } => self.outside("Map", range),
            Event::Unmap { range } => self.outside("Unmap", range),
            Event::Remap { from, to } => {
                self.outside("Remap from", from).or_else(|| self.outside("Remap to", to))
            }
            Event::Protect { range, .. } => self.outside("Protect", range),
            Event::Advise { range, .. } => self.outside("Advise", range),
            Event::Alloc { range, .. } => self.outside("Alloc", range),
            Event::Realloc { range, .. } => self.outside("Realloc", range),
            Event::Kernel { range, .. } if range.bytes > MAX_KERNEL_BYTES => Some((
                format!("Kernel of {} bytes at address {:#x}", range.bytes, range.start.0),
                format!("at most {MAX_KERNEL_BYTES} bytes, the most that one system call copies"),
            )),
            Event::Kernel { range, .. } => self.outside("Kernel", range),
            Event::Resident { start, .. } if !start.is_multiple_of(PageSize::Base.bytes()) => {
                Some((format!("Resident from address {start:#x}"), "the address of a base page".to_owned()))
            }
            Event::Resident { start, bitmap } => {
                let named = bitmap.iter().rposition(|&word| word != 0)?;
                let pages = 64 * named as u64 + 64 - u64::from(bitmap[named].leading_zeros());
                let range = AddressRange::new(*start, pages * PageSize::Base.bytes());
                self.outside("Resident", &range)
            }
            Event::Compute { instructions } if *instructions > MAX_COMPUTE => Some((
                format!("Compute of {instructions} instructions"),
                format!("at most {MAX_COMPUTE} instructions"),
            )),
            Event::Compute { .. }
            | Event::Free { .. }
            | Event::Site { .. }
            | Event::Spawn { .. }
            | Event::Exit { .. }
            | Event::Exec { .. }
            | Event::Wait { .. }
            | Event::Mark { .. } => None,
        }
    }

    fn outside(&self, what: &str, range: &AddressRange) -> Option<(String, String)> {
        let (start, bytes) = (range.start.0, range.bytes);
        let inside = start.checked_add(bytes).is_some_and(|end| end <= self.user_end());
        (!inside).then(|| (format!("{what} of {bytes} bytes at address {start:#x}"), self.address_rule()))
    }
}

/// A source whose every batch is plausible: it ends with an error where its input is not.
pub struct Checked<S> {
    name: String,
    source: S,
    rules: Rules,
    failed: bool,
}

impl<S: EventSource> Checked<S> {
    /// Checks what `source` yields by the rules that hold without a machine; `name` says in errors what was read.
    pub fn new(name: String, source: S) -> Checked<S> {
        Checked { name, source, rules: Rules::default(), failed: false }
    }

    fn or_end<T>(&mut self, value: T, checked: Result<(), Violation>) -> Result<Option<T>, SourceError> {
        match checked {
            Ok(()) => Ok(Some(value)),
            Err(violation) => {
                self.failed = true;
                Err(SourceError::Malformed(format!("{}: {violation}", self.name)))
            }
        }
    }
}

impl<S: EventSource> EventSource for Checked<S> {
    fn header(&self) -> &Header {
        self.source.header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        if self.failed {
            return Ok(None);
        }
        let Some(batch) = self.source.next_batch()? else { return Ok(None) };
        let checked = self.rules.check(&batch);
        self.or_end(batch, checked)
    }

    fn next_outline(&mut self, before: u64) -> Result<Option<(Batch, u64)>, SourceError> {
        if self.failed {
            return Ok(None);
        }
        let Some((batch, accesses)) = self.source.next_outline(before)? else { return Ok(None) };
        let checked = self.rules.check_outline(&batch, accesses);
        self.or_end((batch, accesses), checked)
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }

    fn ending(&self) -> TraceEnding {
        self.source.ending()
    }

    fn left_out(&self) -> u64 {
        self.source.left_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessKind, KernelAccess, VecSource};

    fn access(addr: u64, size: u8) -> Batch {
        let mut batch = Batch { stream: StreamId(2), ..Batch::default() };
        batch.push(0x1000, 8, AccessKind::Read, 0, 1);
        batch.push(addr, size, AccessKind::Write, 0, 1);
        batch
    }

    fn event(event: Event) -> Batch {
        let mut batch = access(0x2000, 8);
        batch.push_event(u64::from(event.is_global()), event);
        batch
    }

    fn message(rules: &mut Rules, batch: &Batch) -> Option<String> {
        rules.check(batch).err().map(|violation| violation.to_string())
    }

    #[test]
    fn the_message_names_stream_position_value_and_rule() {
        let mut rules = Rules::new(4);
        assert_eq!(message(&mut rules, &access(0x7fff_ffff_fff8, 8)), None);
        assert_eq!(
            message(&mut rules, &access(0xffff_ffff_ffff_f000, 8)).unwrap(),
            "stream 2, access 3: 8 bytes at address 0xfffffffffffff000: expected a user address below \
             0x800000000000, as 4 levels of page tables have them; set translation.levels=5 if more is meant"
        );
        let kernel = |bytes| {
            event(Event::Kernel { range: AddressRange::new(0x5000, bytes), kind: KernelAccess::Read })
        };
        assert_eq!(message(&mut rules, &kernel(MAX_KERNEL_BYTES)), None);
        assert_eq!(
            message(&mut rules, &kernel(1 << 40)).unwrap(),
            "stream 2, event before access 8: Kernel of 1099511627776 bytes at address 0x5000: expected at most \
             2147479552 bytes, the most that one system call copies"
        );
    }

    #[test]
    fn addresses_end_where_the_page_tables_do() {
        // The sum of the bits tells exactly: 2^47 - 8 with 8 bytes is the last, 9 bytes reach beyond.
        let (four, five) = (1u64 << 47, 1u64 << 56);
        for (levels, addr, size, right) in [
            (4, four - 8, 8, true),
            (4, four - 8, 9, false),
            (4, four - 255, 255, true),
            (4, four, 1, false),
            (5, four, 1, true),
            (5, five - 1, 1, true),
            (5, five - 1, 2, false),
            (5, five, 1, false),
            (5, u64::MAX, 1, false),
            (5, u64::MAX, 255, false),
            (5, 1 << 63, 1, false),
        ] {
            assert_eq!(Rules::new(levels).check(&access(addr, size)).is_ok(), right, "{addr:#x} {size}");
        }
    }

    #[test]
    fn every_event_with_a_range_is_checked() {
        let bad = AddressRange::new(1 << 56, 4096);
        let wraps = AddressRange::new(0x1000, u64::MAX);
        let good = AddressRange::new(0x1000, 4096);
        let events = |range| {
            let protection = crate::Protection::READ;
            [
                Event::Map { range, kind: crate::MapKind::Heap, protection, name: String::new() },
                Event::Unmap { range },
                Event::Remap { from: range, to: good },
                Event::Remap { from: good, to: range },
                Event::Protect { range, protection },
                Event::Advise { range, advice: crate::Advice::Cold },
                Event::Alloc { object: 1, site: 1, range },
                Event::Realloc { object: 1, range },
                Event::Kernel { range, kind: KernelAccess::Write },
                Event::Resident { start: range.start.0, bitmap: vec![0, range.bytes >> 12] },
            ]
        };
        for one in events(good) {
            assert_eq!(Rules::default().check(&event(one)), Ok(()));
        }
        for one in events(bad).into_iter().chain(events(wraps).into_iter().take(9)) {
            let name = format!("{one:?}");
            let said = message(&mut Rules::default(), &event(one)).expect(&name);
            assert!(name.starts_with(said.split([':', ' ']).nth(7).unwrap_or_default()), "{said}");
        }
        let unaligned = Event::Resident { start: 0x1001, bitmap: vec![1] };
        assert!(message(&mut Rules::default(), &event(unaligned)).unwrap().contains("a base page"));
        let compute = |instructions| event(Event::Compute { instructions });
        assert_eq!(message(&mut Rules::default(), &compute(MAX_COMPUTE)), None);
        assert!(message(&mut Rules::default(), &compute(MAX_COMPUTE + 1)).unwrap().contains("Compute of"));
        let far = Batch { stream: StreamId(MAX_STREAMS as u32), ..Batch::default() };
        assert!(message(&mut Rules::default(), &far).unwrap().contains("number below 1048576"));
    }

    #[test]
    fn nothing_follows_what_is_implausible() {
        let batches = [access(0x3000, 1), access(u64::MAX, 1), access(0x3000, 1)];
        let mut source = Checked::new("input".to_owned(), VecSource::new(Header::default(), batches));
        assert!(source.next_batch().unwrap().is_some());
        let error = source.next_batch().unwrap_err().to_string();
        assert!(error.starts_with("input: stream 2, access 3: 1 bytes at"), "{error}");
        assert!(source.next_batch().unwrap().is_none());
    }
}
