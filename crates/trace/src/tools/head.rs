//! `terrace trace head`.

use crate::{AccessKind, Event, EventSource, Item, SourceError};
use serde::Serialize;
use std::fmt;

/// An access or an event of a trace. As text an access is `number stream R|W address size +instructions`, then `dep=N` where a
/// dependence is known and `pc=…` where the address of the instruction is; an event is `- stream #sequence event`.
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
        /// Its place in the order that all streams share.
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
            HeadItem::Event { stream, sequence: None, event } => write!(f, "- {stream} {event:?}"),
            HeadItem::Event { stream, sequence: Some(sequence), event } => {
                write!(f, "- {stream} #{sequence} {event:?}")
            }
        }
    }
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
