//! From control records to events, with what must be remembered between them: allocations, sites, mapped files.

use crate::process::{Object, Process};
use crate::symbols::Symbols;
use std::collections::HashMap;
use terrace_model::AddressRange;
use terrace_protocol::control::{Operation, map_kind};
use terrace_protocol::marker;
use terrace_trace::{Advice, Event, KernelAccess, MapKind, MarkKind, Protection, StreamId};

/// What the translation of a record may read and change.
pub struct Context<'a> {
    pub process: &'a mut Process,
    pub stream: StreamId,
    /// Whether accesses are kept at the moment.
    pub keeps: bool,
    pub resized: &'a mut Option<Object>,
    pub symbols: &'a mut Symbols,
    pub site_numbers: &'a mut HashMap<String, u32>,
}

/// Appends the events that a record stands for to `made`. `payload` holds the record's words, as listed in
/// [`Operation`].
pub fn translate(operation: Operation, payload: &[u64], context: &mut Context<'_>, made: &mut Vec<Event>) {
    let word = |i: usize| payload.get(i).copied().unwrap_or(0);
    let range = |start: u64, bytes: u64| AddressRange::new(start, bytes);
    let process = &mut *context.process;
    match operation {
        Operation::Map => {
            let name = name_at(payload, 5);
            process.modules.map(word(1), word(2), word(4), &name);
            if !process.touched.is_empty() {
                process.touched.remove(word(1), word(2));
            }
            let kind = map_kind_of(word(3) & 0xff);
            let protection = Protection::from_bits((word(3) >> 8) as u8);
            made.push(Event::Map { range: range(word(1), word(2)), kind, protection, name });
        }
        Operation::Unmap => {
            process.touched.remove(word(1), word(2));
            made.push(Event::Unmap { range: range(word(1), word(2)) });
        }
        Operation::Remap => {
            process.touched.relocate(word(1), word(2), word(3), word(4));
            made.push(Event::Remap { from: range(word(1), word(2)), to: range(word(3), word(4)) });
        }
        Operation::Protect => {
            let protection = Protection::from_bits(word(3) as u8);
            made.push(Event::Protect { range: range(word(1), word(2)), protection });
        }
        Operation::Advise => {
            let advice = Advice::from_raw(word(3) as i32);
            if advice == Advice::DontNeed {
                process.touched.remove(word(1), word(2));
            }
            made.push(Event::Advise { range: range(word(1), word(2)), advice });
        }
        Operation::Alloc => allocate(payload, context, made),
        Operation::Free => {
            if let Some(object) = process.objects.remove(&word(1)) {
                made.push(Event::Free { object: object.id });
            }
        }
        Operation::ReallocBegin => *context.resized = process.objects.remove(&word(1)),
        Operation::ReallocEnd => {
            let Some(mut object) = context.resized.take() else { return };
            if word(1) != 0 {
                (object.address, object.bytes) = (word(1), word(2).max(1));
                free_at(process, object.address, made);
                made.push(Event::Realloc { object: object.id, range: range(object.address, object.bytes) });
            }
            process.objects.insert(object.address, object);
        }
        Operation::Kernel => {
            let kind = if word(2) != 0 { KernelAccess::Write } else { KernelAccess::Read };
            if context.keeps {
                made.push(Event::Kernel { range: range(word(0), word(1)), kind });
            } else {
                process.touched.insert(word(0), word(1));
            }
        }
        Operation::Wait if context.keeps => made.push(Event::Wait { nanos: word(0) }),
        Operation::Mark => mark(payload, process, made),
        Operation::ExecBegin => {
            process.exec = Some((context.stream, word(0) != 0, name_at(payload, 1)));
        }
        Operation::ExecFailed => process.exec = None,
        Operation::Hello => process.reports_allocations |= word(0) != 0,
        // Said by the slot's state, or by the process's end, in the right order.
        Operation::Exit | Operation::Wait => {}
        // Handled before.
        Operation::Spawn
        | Operation::After
        | Operation::Compute
        | Operation::Wake
        | Operation::ChildEnded => {}
    }
}

/// A name at the end of a payload: its length in a word, then its bytes.
fn name_at(payload: &[u64], at: usize) -> String {
    let Some((&length, words)) = payload.get(at..).and_then(<[u64]>::split_first) else {
        return String::new();
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn map_kind_of(raw: u64) -> MapKind {
    match raw {
        map_kind::SHARED_ANONYMOUS => MapKind::SharedAnonymous,
        map_kind::PRIVATE_FILE => MapKind::PrivateFile,
        map_kind::SHARED_FILE => MapKind::SharedFile,
        map_kind::HEAP => MapKind::Heap,
        map_kind::STACK => MapKind::Stack,
        map_kind::HUGE_TLB => MapKind::HugeTlb,
        _ => MapKind::Anonymous,
    }
}

fn allocate(payload: &[u64], context: &mut Context<'_>, made: &mut Vec<Event>) {
    let word = |i: usize| payload.get(i).copied().unwrap_or(0);
    let process = &mut *context.process;
    let (address, bytes, call_site) = (word(1), word(2), word(3));
    let name = name_at(payload, 4);
    let known = if name.is_empty() { process.sites.get(&call_site).copied() } else { None };
    let site = known.unwrap_or_else(|| {
        let by_address = name.is_empty();
        let name = if by_address { context.symbols.name(&process.modules, call_site) } else { name };
        let next = context.site_numbers.len() as u32;
        let site = *context.site_numbers.entry(name.clone()).or_insert(next);
        if site == next {
            made.push(Event::Site { site, name });
        }
        if by_address {
            process.sites.insert(call_site, site);
        }
        site
    });
    free_at(process, address, made);
    let object = Object { id: process.next_object, address, bytes };
    process.next_object += 1;
    process.objects.insert(address, object);
    made.push(Event::Alloc { object: object.id, site, range: AddressRange::new(address, bytes) });
}

/// An object whose end was not reported, found because another takes its place.
fn free_at(process: &mut Process, address: u64, made: &mut Vec<Event>) {
    if let Some(object) = process.objects.remove(&address) {
        made.push(Event::Free { object: object.id });
    }
}

fn mark(payload: &[u64], process: &mut Process, made: &mut Vec<Event>) {
    let word = |i: usize| payload.get(i).copied().unwrap_or(0);
    let kind = match word(1) {
        marker::REGION_BEGIN => MarkKind::RegionBegin,
        marker::REGION_END => MarkKind::RegionEnd,
        marker::PHASE => MarkKind::Phase,
        marker::REQUEST_BEGIN => MarkKind::RequestBegin,
        marker::REQUEST_END => MarkKind::RequestEnd,
        _ => return,
    };
    match kind {
        MarkKind::RegionBegin => process.set_region(word(0), true),
        MarkKind::RegionEnd => process.set_region(word(0), false),
        _ => {}
    }
    made.push(Event::Mark { kind, name: name_at(payload, 3), value: word(2) });
}
