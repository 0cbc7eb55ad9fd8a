//! Batches, files and entry functions that the tests share.
#![allow(dead_code)] // Each test binary uses its own part.

pub mod seeds;

use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use terrace_model::AddressRange;
use terrace_trace::{
    AccessKind, Advice, Agent, Batch, Event, EventSource, Header, KernelAccess, MapKind, MarkKind,
    Protection, SourceError, StreamId, TraceReader, TraceWriter,
};

/// All batches of a source.
pub fn drain(source: &mut dyn EventSource) -> Result<Vec<Arc<Batch>>, SourceError> {
    let mut batches = Vec::new();
    while let Some(batch) = source.next_batch()? {
        batches.push(batch);
    }
    Ok(batches)
}

/// Writes a whole trace.
pub fn write(path: &Path, header: &Header, batches: &[Batch]) {
    let mut writer = TraceWriter::create(path, header).unwrap();
    batches.iter().for_each(|batch| writer.push(batch).unwrap());
    writer.finish().unwrap();
}

/// Reads a whole trace.
pub fn read(path: &Path) -> Vec<Batch> {
    let batches = drain(&mut TraceReader::open(path).unwrap()).unwrap();
    batches.into_iter().map(|batch| (*batch).clone()).collect()
}

fn range() -> impl Strategy<Value = AddressRange> {
    (any::<u64>(), any::<u64>()).prop_map(|(start, bytes)| AddressRange::new(start, bytes))
}

/// Any event.
pub fn event() -> impl Strategy<Value = Event> {
    let kind = prop::sample::select(vec![
        MapKind::Anonymous,
        MapKind::SharedAnonymous,
        MapKind::PrivateFile,
        MapKind::SharedFile,
        MapKind::Heap,
        MapKind::Stack,
        MapKind::HugeTlb,
    ]);
    let mark = prop::sample::select(vec![
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
    ]);
    let protection = (0u8..8).prop_map(Protection::from_bits);
    let name = "[a-z\u{e9}/]{0,12}";
    prop_oneof![
        (range(), kind, protection.clone(), name).prop_map(|(range, kind, protection, name)| Event::Map {
            range,
            kind,
            protection,
            name
        }),
        range().prop_map(|range| Event::Unmap { range }),
        (range(), range()).prop_map(|(from, to)| Event::Remap { from, to }),
        (range(), protection).prop_map(|(range, protection)| Event::Protect { range, protection }),
        // Raw values include every named advice and others; `from_raw` gives each its one name.
        (range(), -2i32..30).prop_map(|(range, raw)| Event::Advise { range, advice: Advice::from_raw(raw) }),
        (any::<u64>(), any::<u32>(), range()).prop_map(|(object, site, range)| Event::Alloc {
            object,
            site,
            range
        }),
        (any::<u64>(), range()).prop_map(|(object, range)| Event::Realloc { object, range }),
        any::<u64>().prop_map(|object| Event::Free { object }),
        (any::<u32>(), name).prop_map(|(site, name)| Event::Site { site, name }),
        (range(), any::<bool>()).prop_map(|(range, write)| Event::Kernel {
            range,
            kind: if write { KernelAccess::Write } else { KernelAccess::Read }
        }),
        (any::<u64>(), prop::collection::vec(any::<u64>(), 0..5))
            .prop_map(|(start, bitmap)| Event::Resident { start, bitmap }),
        (any::<u32>(), any::<u32>(), any::<bool>(), any::<Option<u32>>(), any::<u32>(), name).prop_map(
            |(process, thread, gpu, forked_from, os_id, name)| Event::Spawn {
                process,
                thread,
                agent: if gpu { Agent::Gpu } else { Agent::Cpu },
                forked_from: forked_from.map(StreamId),
                os_id,
                name
            }
        ),
        any::<bool>().prop_map(|process_ends| Event::Exit { process_ends }),
        name.prop_map(|name| Event::Exec { name }),
        any::<u64>().prop_map(|nanos| Event::Wait { nanos }),
        any::<u64>().prop_map(|instructions| Event::Compute { instructions }),
        (mark, name, any::<u64>()).prop_map(|(kind, name, value)| Event::Mark { kind, name, value }),
    ]
}

/// Any valid batch of up to 80 accesses and a few events; not empty.
pub fn batch() -> impl Strategy<Value = Batch> {
    let access = (any::<u64>(), any::<bool>(), 1u8.., any::<bool>(), any::<u8>(), any::<u16>(), any::<u64>());
    let accesses = prop::collection::vec(access, 0..80);
    let events = prop::collection::vec((any::<prop::sample::Index>(), 1u64.., event()), 0..6);
    (prop_oneof![0u32..4, any::<u32>()], any::<u64>(), any::<bool>(), accesses, events)
        .prop_map(|(stream, after, has_pc, accesses, events)| {
            let mut batch = Batch { stream: StreamId(stream), after, ..Batch::default() };
            for (addr, near, size, write, depends_on, instructions, pc) in accesses {
                let kind = if write { AccessKind::Write } else { AccessKind::Read };
                batch.push(
                    if near { 0x7000 + addr % 4096 } else { addr },
                    size,
                    kind,
                    depends_on,
                    instructions,
                );
                batch.pc.extend(has_pc.then_some(if near { 0x400_000 + pc % 64 } else { pc }));
            }
            let mut events: Vec<_> = events
                .into_iter()
                .map(|(at, number, event)| (at.index(batch.len() + 1), number, event))
                .collect();
            events.sort_by_key(|(at, ..)| *at);
            for (at, number, event) in events {
                batch.push_event(if event.is_global() { number } else { 0 }, event);
                batch.events.last_mut().unwrap().before = at as u32;
            }
            batch
        })
        .prop_filter("a writer leaves empty batches out", |batch| !batch.is_empty())
}

/// A small, wholly predictable trace: two threads of one process, every field in use.
pub fn small_trace() -> (Header, Vec<Batch>) {
    let header = Header {
        program: "demo".to_owned(),
        arguments: vec!["--fast".to_owned()],
        origin: "recorded".to_owned(),
        date: "2026-01-31".to_owned(),
        tool_version: "0.1.0".to_owned(),
        ..Header::default()
    };
    let spawn = |thread| Event::Spawn {
        process: 0,
        thread,
        agent: Agent::Cpu,
        forked_from: None,
        os_id: 100 + thread,
        name: "demo".to_owned(),
    };
    let mut batches = Vec::new();
    for round in 0..3u64 {
        for stream in 0..2u32 {
            let mut batch = Batch { stream: StreamId(stream), after: 3 * round, ..Batch::default() };
            if round == 0 {
                batch.after = u64::from(stream);
                batch.push_event(1 + u64::from(stream), spawn(stream));
            }
            if round == 0 && stream == 1 {
                let map = Event::Map {
                    range: AddressRange::new(0x10_0000, 0x20_0000),
                    kind: MapKind::Heap,
                    protection: Protection::READ_WRITE,
                    name: "[heap]".to_owned(),
                };
                batch.push_event(3, map);
            }
            for step in 0..20u64 {
                let addr = 0x10_0000 + 0x1_0000 * u64::from(stream) + 0x2000 * round + 8 * step;
                let kind = if step % 3 == 2 { AccessKind::Write } else { AccessKind::Read };
                batch.push(addr, 8, kind, (step % 2) as u8, 3);
            }
            if stream == 0 {
                batch.push_event(0, Event::Wait { nanos: 1000 + round });
            }
            batches.push(batch);
        }
    }
    (header, batches)
}
