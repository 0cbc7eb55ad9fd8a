//! `terrace trace head`.

use crate::{AccessKind, Event, EventSource, Item, Protection, SourceError};
use serde::Serialize;
use std::fmt;
use terrace_model::AddressRange;

/// An access or an event of a trace. As text an access is `number stream R|W address size +instructions`, then `dep=N` where
/// a dependence is known and `pc=…` where the address of the instruction is; an event is `- stream #sequence event`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadItem {
    /// A load or store.
    Access {
        /// From 0, over all streams.
        number: u64,
        /// Number of its stream.
        stream: u32,
        /// Load or store.
        kind: AccessKind,
        /// Virtual address.
        address: u64,
        /// Bytes.
        size: u8,
        /// Instructions up to it, itself included.
        instructions: u16,
        /// How many loads before it the one lies that it depends on.
        #[serde(skip_serializing_if = "Option::is_none")]
        depends_on: Option<u8>,
        /// Address of the instruction.
        #[serde(skip_serializing_if = "Option::is_none")]
        instruction_address: Option<u64>,
    },
    /// Anything else.
    Event {
        /// Number of its stream.
        stream: u32,
        /// The event's place in the order that all streams share.
        #[serde(skip_serializing_if = "Option::is_none")]
        sequence: Option<u64>,
        /// What happened.
        event: Event,
    },
}

impl fmt::Display for HeadItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeadItem::Access {
                number,
                stream,
                kind,
                address,
                size,
                instructions,
                depends_on,
                instruction_address,
            } => {
                let kind = if *kind == AccessKind::Read { 'R' } else { 'W' };
                write!(f, "{number} {stream} {kind} {address:#x} {size} +{instructions}")?;
                if let Some(depends_on) = depends_on {
                    write!(f, " dep={depends_on}")?;
                }
                if let Some(address) = instruction_address {
                    write!(f, " pc={address:#x}")?;
                }
                Ok(())
            }
            HeadItem::Event { stream, sequence, event } => {
                let place = sequence.map_or_else(String::new, |sequence| format!(" #{sequence}"));
                let before = format!("- {stream}{place} {}", words_of(event));
                let Some(name) = name_of(event) else { return f.write_str(&before) };
                // The end of a long path says more than its beginning.
                let name: Vec<char> = name.chars().flat_map(char::escape_debug).collect();
                let room = WIDTH.saturating_sub(before.chars().count() + 1).max(SHORTEST_NAME);
                match name.len() > room {
                    true => {
                        write!(f, "{before} …{}", name[name.len() + 1 - room..].iter().collect::<String>())
                    }
                    false => write!(f, "{before} {}", name.iter().collect::<String>()),
                }
            }
        }
    }
}

/// Columns that a line takes at most.
const WIDTH: usize = 80;
/// A name is never cut shorter.
const SHORTEST_NAME: usize = 12;

/// An event in words, without its name.
fn words_of(event: &Event) -> String {
    let bits = |protection: &Protection| {
        let bit = |set, letter| if set { letter } else { '-' };
        let Protection { read, write, execute } = *protection;
        format!("{}{}{}", bit(read, 'r'), bit(write, 'w'), bit(execute, 'x'))
    };
    match event {
        Event::Map { range, kind, protection, .. } => {
            format!("map {} {} {}", place(range), bits(protection), lower(kind))
        }
        Event::Unmap { range } => format!("unmap {}", place(range)),
        Event::Remap { from, to } => format!("remap {} to {}", place(from), place(to)),
        Event::Protect { range, protection } => format!("protect {} {}", place(range), bits(protection)),
        Event::Advise { range, advice } => format!("advise {} {}", place(range), lower(advice)),
        Event::Alloc { object, site, range } => format!("alloc {} object={object} site={site}", place(range)),
        Event::Realloc { object, range } => format!("realloc {} object={object}", place(range)),
        Event::Free { object } => format!("free object={object}"),
        Event::Site { site, .. } => format!("site {site}"),
        Event::Kernel { range, kind } => format!("kernel-{} {}", lower(kind), place(range)),
        Event::Resident { start, bitmap } => {
            let pages: u32 = bitmap.iter().map(|word| word.count_ones()).sum();
            format!("resident {start:#x} pages={pages}")
        }
        Event::Spawn { process, thread, agent, forked_from, os_id, .. } => {
            let forked = forked_from.map_or_else(String::new, |from| format!(" forked-from={}", from.0));
            format!("spawn process={process} thread={thread} on={} os-id={os_id}{forked}", lower(agent))
        }
        Event::Exit { process_ends: true } => "exit of the process".to_owned(),
        Event::Exit { process_ends: false } => "exit of the thread".to_owned(),
        Event::Exec { .. } => "exec".to_owned(),
        Event::Wait { nanos } => format!("wait {nanos} ns"),
        Event::Compute { instructions } => format!("compute +{instructions}"),
        Event::Mark { kind, value, .. } => format!("mark {} value={value}", lower(kind)),
    }
}

fn name_of(event: &Event) -> Option<&str> {
    let (Event::Map { name, .. }
    | Event::Site { name, .. }
    | Event::Spawn { name, .. }
    | Event::Exec { name }
    | Event::Mark { name, .. }) = event
    else {
        return None;
    };
    (!name.is_empty()).then_some(name.as_str())
}

/// Start and length.
fn place(range: &AddressRange) -> String {
    format!("{:#x} {}", range.start.0, range.bytes)
}

/// `DontNeed` as `dont-need`.
fn lower(variant: &impl fmt::Debug) -> String {
    let mut text = String::new();
    for (at, letter) in format!("{variant:?}").chars().enumerate() {
        if at > 0 && letter.is_uppercase() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// The first accesses and events, at most `most`, in the source's order.
///
/// # Errors
/// As [`EventSource::next_batch`].
pub fn head(source: &mut dyn EventSource, most: usize) -> Result<Vec<HeadItem>, SourceError> {
    let mut items = Vec::new();
    let mut number = 0;
    while items.len() < most {
        let Some(batch) = source.next_batch()? else { break };
        let stream = batch.stream.0;
        for item in batch.items().take(most - items.len()) {
            items.push(match item {
                Item::Access(access) => {
                    number += 1;
                    HeadItem::Access {
                        number: number - 1,
                        stream,
                        kind: access.kind,
                        address: access.addr,
                        size: access.size,
                        instructions: access.instructions,
                        depends_on: (access.depends_on > 0).then_some(access.depends_on),
                        instruction_address: access.pc,
                    }
                }
                Item::Event(event) => HeadItem::Event {
                    stream,
                    sequence: (event.sequence > 0).then_some(event.sequence),
                    event: event.event.clone(),
                },
            });
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advice, KernelAccess, MapKind, MarkKind, StreamId};

    fn line(sequence: Option<u64>, event: Event) -> String {
        HeadItem::Event { stream: 3, sequence, event }.to_string()
    }

    #[test]
    fn events_are_words_and_no_debug_structures() {
        let range = AddressRange::new(0x7f00_0000_0000, 8192);
        let protection = Protection::from_bits(5);
        let map =
            |name: &str| Event::Map { range, kind: MapKind::PrivateFile, protection, name: name.to_owned() };
        assert_eq!(
            line(Some(7), map("/usr/lib/libc.so.6")),
            "- 3 #7 map 0x7f0000000000 8192 r-x private-file /usr/lib/libc.so.6"
        );
        assert_eq!(
            line(None, Event::Advise { range, advice: Advice::DontNeed }),
            "- 3 advise 0x7f0000000000 8192 dont-need"
        );
        assert_eq!(
            line(None, Event::Kernel { range, kind: KernelAccess::Write }),
            "- 3 kernel-write 0x7f0000000000 8192"
        );
        let spawn = Event::Spawn {
            process: 1,
            thread: 0,
            agent: crate::Agent::Cpu,
            forked_from: Some(StreamId(0)),
            os_id: 4711,
            name: "sort".to_owned(),
        };
        assert_eq!(
            line(Some(1), spawn),
            "- 3 #1 spawn process=1 thread=0 on=cpu os-id=4711 forked-from=0 sort"
        );
        assert_eq!(
            line(None, Event::Resident { start: 4096, bitmap: vec![7, 1] }),
            "- 3 resident 0x1000 pages=4"
        );
        assert_eq!(
            line(None, Event::Mark { kind: MarkKind::RegionBegin, name: String::new(), value: 0 }),
            "- 3 mark region-begin value=0"
        );
    }

    #[test]
    fn long_names_keep_their_end_and_hostile_ones_their_line() {
        let long = format!("/very{}/libfoo.so", "/long".repeat(40));
        let text = line(Some(1), Event::Exec { name: long });
        assert_eq!(text.chars().count(), 80);
        assert!(text.starts_with("- 3 #1 exec …") && text.ends_with("/libfoo.so"), "{text}");
        assert_eq!(line(None, Event::Exec { name: "a\x1b[2J\nb".to_owned() }), "- 3 exec a\\u{1b}[2J\\nb");
    }
}
