//! Events in bytes: a tag, then the fields in the order of their declaration.

use super::varint::{self, Cursor};
use crate::{Advice, Agent, Event, KernelAccess, MapKind, MarkKind, Protection, SequencedEvent, StreamId};
use terrace_model::{AddressRange, VirtAddr};

const MAP_KINDS: [MapKind; 7] = [
    MapKind::Anonymous,
    MapKind::SharedAnonymous,
    MapKind::PrivateFile,
    MapKind::SharedFile,
    MapKind::Heap,
    MapKind::Stack,
    MapKind::HugeTlb,
];

const MARK_KINDS: [MarkKind; 15] = [
    MarkKind::RegionBegin,
    MarkKind::RegionEnd,
    MarkKind::Phase,
    MarkKind::RequestBegin,
    MarkKind::RequestEnd,
    MarkKind::KernelLaunch,
    MarkKind::Gap,
    MarkKind::Barrier,
    MarkKind::WorkGroup,
    MarkKind::Warp,
    MarkKind::GroupBarrier,
    MarkKind::KernelEnqueue,
    MarkKind::KernelWait,
    MarkKind::Clients,
    MarkKind::Wake,
];

const ADVICES: [Advice; 8] = [
    Advice::DontNeed,
    Advice::Free,
    Advice::HugePage,
    Advice::NoHugePage,
    Advice::WillNeed,
    Advice::Cold,
    Advice::PageOut,
    Advice::Collapse,
];
/// Follows the named advices; the raw value comes after it.
const OTHER_ADVICE: u8 = ADVICES.len() as u8;

fn tag(event: &Event) -> u8 {
    match event {
        Event::Map { .. } => 0,
        Event::Unmap { .. } => 1,
        Event::Remap { .. } => 2,
        Event::Protect { .. } => 3,
        Event::Advise { .. } => 4,
        Event::Alloc { .. } => 5,
        Event::Realloc { .. } => 6,
        Event::Free { .. } => 7,
        Event::Site { .. } => 8,
        Event::Kernel { .. } => 9,
        Event::Resident { .. } => 10,
        Event::Spawn { .. } => 11,
        Event::Exit { .. } => 12,
        Event::Exec { .. } => 13,
        Event::Wait { .. } => 14,
        Event::Compute { .. } => 15,
        // Only some marks have a place in the global order, so the tag says which kind follows.
        Event::Mark { .. } if !event.is_global() => 16,
        Event::Mark { .. } => 17,
    }
}

/// Appends `event`. `before` and `sequence` are those of the previous event (within the batch and the chunk), so
/// that both are stored as small steps.
pub(super) fn write(out: &mut Vec<u8>, before: u32, sequence: &mut u64, event: &SequencedEvent) {
    varint::put(out, u64::from(event.before - before));
    out.push(tag(&event.event));
    if event.event.is_global() {
        varint::put_delta(out, *sequence, event.sequence);
        *sequence = event.sequence;
    }
    match &event.event {
        Event::Map { range: r, kind, protection, name } => {
            range(out, r);
            out.extend([position(&MAP_KINDS, kind), protection.bits()]);
            varint::put_text(out, name);
        }
        Event::Unmap { range: r } => range(out, r),
        Event::Remap { from, to } => {
            range(out, from);
            range(out, to);
        }
        Event::Protect { range: r, protection } => {
            range(out, r);
            out.push(protection.bits());
        }
        Event::Advise { range: r, advice } => {
            range(out, r);
            if let Advice::Other(raw) = advice {
                out.push(OTHER_ADVICE);
                out.extend(raw.to_le_bytes());
            } else {
                out.push(position(&ADVICES, advice));
            }
        }
        Event::Alloc { object, site, range: r } => {
            varint::put(out, *object);
            varint::put(out, u64::from(*site));
            range(out, r);
        }
        Event::Realloc { object, range: r } => {
            varint::put(out, *object);
            range(out, r);
        }
        Event::Free { object } => varint::put(out, *object),
        Event::Site { site, name } => {
            varint::put(out, u64::from(*site));
            varint::put_text(out, name);
        }
        Event::Kernel { range: r, kind } => {
            range(out, r);
            out.push(u8::from(*kind == KernelAccess::Write));
        }
        Event::Resident { start, bitmap } => {
            varint::put(out, *start);
            varint::put(out, bitmap.len() as u64);
            out.extend(bitmap.iter().flat_map(|word| word.to_le_bytes()));
        }
        Event::Spawn { process, thread, agent, forked_from, os_id, name } => {
            varint::put(out, u64::from(*process));
            varint::put(out, u64::from(*thread));
            out.push(u8::from(*agent == Agent::Gpu));
            // 0 for none, else the stream's number plus one.
            varint::put(out, forked_from.map_or(0, |stream| u64::from(stream.0) + 1));
            varint::put(out, u64::from(*os_id));
            varint::put_text(out, name);
        }
        Event::Exit { process_ends } => out.push(u8::from(*process_ends)),
        Event::Exec { name } => varint::put_text(out, name),
        Event::Wait { nanos } => varint::put(out, *nanos),
        Event::Compute { instructions } => varint::put(out, *instructions),
        Event::Mark { kind, name, value } => {
            out.push(position(&MARK_KINDS, kind));
            varint::put_text(out, name);
            varint::put(out, *value);
        }
    }
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// When the bytes are no event: a sentence that says where and what was expected.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    before: u32,
    sequence: &mut u64,
) -> Result<SequencedEvent, String> {
    let step: u32 = cursor.small("an event's step")?;
    let before = before.checked_add(step).ok_or("an event's place exceeds 32 bits")?;
    let tag = cursor.byte()?;
    // Tags of events without a global order.
    let ordered = !matches!(tag, 8 | 9 | 14 | 15 | 16);
    if ordered {
        *sequence = cursor.delta(*sequence)?;
        if *sequence == 0 {
            return Err(format!("a global event with sequence number 0 before byte {}", cursor.position()));
        }
    }
    let event = match tag {
        0 => Event::Map {
            range: read_range(cursor)?,
            kind: pick(&MAP_KINDS, cursor, "mapping kind")?,
            protection: read_protection(cursor)?,
            name: cursor.text()?,
        },
        1 => Event::Unmap { range: read_range(cursor)? },
        2 => Event::Remap { from: read_range(cursor)?, to: read_range(cursor)? },
        3 => Event::Protect { range: read_range(cursor)?, protection: read_protection(cursor)? },
        4 => Event::Advise { range: read_range(cursor)?, advice: read_advice(cursor)? },
        5 => Event::Alloc {
            object: cursor.number()?,
            site: cursor.small("a site")?,
            range: read_range(cursor)?,
        },
        6 => Event::Realloc { object: cursor.number()?, range: read_range(cursor)? },
        7 => Event::Free { object: cursor.number()? },
        8 => Event::Site { site: cursor.small("a site")?, name: cursor.text()? },
        9 => Event::Kernel {
            range: read_range(cursor)?,
            kind: if flag(cursor, "direction")? { KernelAccess::Write } else { KernelAccess::Read },
        },
        10 => {
            let start = cursor.number()?;
            let words: usize = cursor.small("a bitmap's length")?;
            let bytes = cursor.take(words.checked_mul(8).ok_or("a bitmap's length exceeds memory")?)?;
            let (words, _) = bytes.as_chunks::<8>();
            Event::Resident { start, bitmap: words.iter().map(|word| u64::from_le_bytes(*word)).collect() }
        }
        11 => Event::Spawn {
            process: cursor.small("a process number")?,
            thread: cursor.small("a thread number")?,
            agent: if flag(cursor, "agent")? { Agent::Gpu } else { Agent::Cpu },
            forked_from: match cursor.number()? {
                0 => None,
                stream => Some(StreamId(u32::try_from(stream - 1).map_err(|_| "a stream exceeds 32 bits")?)),
            },
            os_id: cursor.small("a thread id")?,
            name: cursor.text()?,
        },
        12 => Event::Exit { process_ends: flag(cursor, "process end")? },
        13 => Event::Exec { name: cursor.text()? },
        14 => Event::Wait { nanos: cursor.number()? },
        15 => Event::Compute { instructions: cursor.number()? },
        16 | 17 => Event::Mark {
            kind: pick(&MARK_KINDS, cursor, "mark kind")?,
            name: cursor.text()?,
            value: cursor.number()?,
        },
        other => {
            return Err(format!(
                "expected an event's tag, 0 to 17, before byte {}, found {other}",
                cursor.position()
            ));
        }
    };
    if event.is_global() != ordered {
        return Err(format!("expected a mark that fits its tag {tag} before byte {}", cursor.position()));
    }
    Ok(SequencedEvent { before, sequence: if ordered { *sequence } else { 0 }, event })
}

fn range(out: &mut Vec<u8>, range: &AddressRange) {
    varint::put(out, range.start.0);
    varint::put(out, range.bytes);
}

fn read_range(cursor: &mut Cursor<'_>) -> Result<AddressRange, String> {
    Ok(AddressRange { start: VirtAddr(cursor.number()?), bytes: cursor.number()? })
}

fn position<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).expect("every value is listed") as u8
}

fn pick<T: Copy>(all: &[T], cursor: &mut Cursor<'_>, what: &str) -> Result<T, String> {
    let code = cursor.byte()?;
    all.get(code as usize)
        .copied()
        .ok_or_else(|| format!("expected a {what} below {}, found {code}", all.len()))
}

fn flag(cursor: &mut Cursor<'_>, what: &str) -> Result<bool, String> {
    match cursor.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("expected 0 or 1 for a {what}, found {other}")),
    }
}

fn read_protection(cursor: &mut Cursor<'_>) -> Result<Protection, String> {
    match cursor.byte()? {
        bits @ 0..8 => Ok(Protection::from_bits(bits)),
        other => Err(format!("expected a protection below 8, found {other}")),
    }
}

fn read_advice(cursor: &mut Cursor<'_>) -> Result<Advice, String> {
    match cursor.byte()? {
        OTHER_ADVICE => {
            let raw = cursor.take(4)?;
            Ok(Advice::Other(i32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])))
        }
        code => {
            ADVICES.get(code as usize).copied().ok_or_else(|| format!("expected an advice, found {code}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_events_without_order_are_those_the_reader_expects() {
        let unordered = [
            Event::Site { site: 1, name: "f".into() },
            Event::Kernel { range: AddressRange::new(1, 2), kind: KernelAccess::Write },
            Event::Wait { nanos: 3 },
            Event::Compute { instructions: 70_000 },
            Event::Mark { kind: MarkKind::Gap, name: String::new(), value: 9 },
        ];
        for event in unordered {
            let event = SequencedEvent { before: 5, sequence: 0, event };
            let mut bytes = Vec::new();
            write(&mut bytes, 2, &mut 77, &event);
            assert_eq!(read(&mut Cursor::new(&bytes), 2, &mut 77), Ok(event));
        }
    }

    #[test]
    fn marks_of_a_region_keep_their_place_in_the_order() {
        for kind in MARK_KINDS {
            let event = Event::Mark { kind, name: "r".into(), value: 1 };
            let sequence = if event.is_global() { 78 } else { 0 };
            let event = SequencedEvent { before: 5, sequence, event };
            let mut bytes = Vec::new();
            write(&mut bytes, 2, &mut 77, &event);
            assert_eq!(read(&mut Cursor::new(&bytes), 2, &mut 77), Ok(event));
        }
        // A phase with a place in the order, a region's begin without.
        for bytes in [&[0, 17, 2, 2, 0, 0][..], &[0, 16, 0, 0, 0]] {
            let error = read(&mut Cursor::new(bytes), 0, &mut 77).unwrap_err();
            assert!(error.contains("a mark that fits its tag"), "{error}");
        }
    }

    #[test]
    fn a_claimed_bitmap_beyond_the_bytes_is_refused_before_it_is_allocated() {
        let mut bytes = vec![0, 10, 2, 0];
        varint::put(&mut bytes, u64::MAX / 8);
        assert!(read(&mut Cursor::new(&bytes), 0, &mut 0).unwrap_err().contains("are left"));
    }
}
