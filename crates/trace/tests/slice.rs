//! A part of a trace is a valid trace whose state at the start is that of the whole at that point.

mod common;

use common::{drain, small_trace};
use terrace_model::AddressRange;
use terrace_trace::{
    AccessKind, Advice, Agent, Batch, Event, EventSource, Header, MapKind, MarkKind, Protection,
    SliceOptions, StreamId, TraceEnding, TraceReader, VecSource, convert, slice, verify,
};

fn part(batches: Vec<Batch>, accesses: std::ops::Range<u64>, residency: bool) -> Vec<Batch> {
    let mut source = slice(VecSource::new(Header::default(), batches), SliceOptions { accesses, residency });
    drain(&mut source).unwrap().iter().map(|batch| (**batch).clone()).collect()
}

#[test]
fn the_part_has_its_accesses_and_the_events_before() {
    let (header, batches) = small_trace();
    let all: Vec<u64> = batches.iter().flat_map(|batch| batch.addr.clone()).collect();
    for (begin, end) in [(0, 120), (0, 1), (19, 21), (20, 40), (25, 25), (50, 500), (119, 120)] {
        let found = part(batches.clone(), begin..end, false);
        found.iter().for_each(|batch| batch.validate().unwrap());
        let addresses: Vec<u64> = found.iter().flat_map(|batch| batch.addr.clone()).collect();
        let expected = &all[(begin as usize).min(all.len())..(end as usize).min(all.len())];
        assert_eq!(addresses, expected, "{begin}..{end}");
        let gaps: Vec<u64> = found
            .iter()
            .flat_map(|batch| &batch.events)
            .filter_map(|e| {
                if let Event::Mark { kind: MarkKind::Gap, value, .. } = e.event { Some(value) } else { None }
            })
            .collect();
        assert_eq!(gaps, if begin == 0 { vec![] } else { vec![begin] });
        // Written out, it stands the full check.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("part.trace");
        let options = SliceOptions { accesses: begin..end, residency: true };
        convert(&mut slice(VecSource::new(header.clone(), batches.clone()), options), &path).unwrap();
        assert_eq!(verify(&path).unwrap().problems, [""; 0], "{begin}..{end}");
        let is_all = begin == 0 && end > all.len() as u64;
        let ending = if is_all { TraceEnding::Whole } else { TraceEnding::Cut };
        assert_eq!(TraceReader::open(&path).unwrap().header(), &Header { ending, ..header.clone() });
    }
}

#[test]
fn a_part_beyond_the_last_access_is_refused() {
    let (_, batches) = small_trace();
    for (begin, residency) in [(120, false), (200, true)] {
        let options = SliceOptions { accesses: begin..300, residency };
        let error =
            drain(&mut slice(VecSource::new(Header::default(), batches.clone()), options)).unwrap_err();
        let expected = format!("the input has 120 accesses: none is left from number {begin} on");
        assert_eq!(error.to_string(), expected);
    }
}

/// One process that maps, touches and drops pages, then forks; a mapping of another stream lies in the part.
fn changing_trace() -> Vec<Batch> {
    let spawn = |process, forked_from| Event::Spawn {
        process,
        thread: 0,
        agent: Agent::Cpu,
        forked_from,
        os_id: 1,
        name: String::new(),
    };
    let map = |start, bytes| Event::Map {
        range: AddressRange::new(start, bytes),
        kind: MapKind::Anonymous,
        protection: Protection::READ_WRITE,
        name: String::new(),
    };
    let mut first = Batch::default();
    first.push_event(1, spawn(0, None));
    first.push_event(2, map(0x10_0000, 0x10_0000));
    for page in [0, 1, 2, 3, 70] {
        first.push(0x10_0000 + 0x1000 * page, 8, AccessKind::Write, 0, 1);
    }
    first.push_event(
        3,
        Event::Advise { range: AddressRange::new(0x10_1000, 0x1000), advice: Advice::DontNeed },
    );
    // Pages 2 and 3 move up by 16 pages.
    let (from, to) = (AddressRange::new(0x10_2000, 0x2000), AddressRange::new(0x11_2000, 0x2000));
    first.push_event(4, Event::Remap { from, to });
    let mut child = Batch { stream: StreamId(1), after: 4, ..Batch::default() };
    child.push_event(5, spawn(1, Some(StreamId(0))));
    child.push(0x10_5ffc, 8, AccessKind::Read, 0, 1);
    let mut last = Batch { after: 4, ..Batch::default() };
    last.push(0x10_0000, 8, AccessKind::Read, 0, 1);
    last.push_event(6, map(0x80_0000, 0x1000));
    last.push(0x80_0000, 8, AccessKind::Read, 0, 1);
    vec![first, child, last]
}

#[test]
fn residency_follows_the_program_s_calls_and_forks() {
    let found = part(changing_trace(), 6..8, true);
    let resident: Vec<(u32, u64, Vec<u64>, u64)> = found
        .iter()
        .flat_map(|batch| batch.events.iter().map(move |event| (batch.stream.0, event)))
        .filter_map(|(stream, event)| match &event.event {
            Event::Resident { start, bitmap } => Some((stream, *start, bitmap.clone(), event.sequence)),
            _ => None,
        })
        .collect();
    // Bits count pages from address 0: 0x100 is page 0 of the example, bit 0 of word 4.
    let parent = vec![0, 0, 0, 0, 1 | 1 << 18 | 1 << 19, 1 << 6];
    // The child has what its parent had at the fork, and touched across a page's end since.
    let child = vec![0, 0, 0, 0, 1 | 1 << 18 | 1 << 19 | 1 << 5 | 1 << 6, 1 << 6];
    assert_eq!(resident, [(0, 0, parent, 6), (1, 0, child, 7)]);
    // What followed in the global order now follows them.
    let last = found.last().unwrap();
    assert_eq!((last.events[0].sequence, last.after), (8, 4));
    assert_eq!(last.addr, [0x10_0000, 0x80_0000]);

    let without = part(changing_trace(), 6..8, false);
    assert_eq!(without.last().unwrap().events[0].sequence, 6);
}

#[test]
fn a_source_in_a_box_is_a_source() {
    let (header, batches) = small_trace();
    let boxed: Box<dyn EventSource> = Box::new(VecSource::new(header, batches));
    let options = SliceOptions { accesses: 3..5, residency: false };
    assert_eq!(drain(&mut slice(boxed, options)).unwrap().iter().map(|batch| batch.len()).sum::<usize>(), 2);
}
