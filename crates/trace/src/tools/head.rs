//! `terrace trace head`.

use crate::{AccessKind, EventSource, Item, SourceError};

/// The first `items` accesses and events as lines of text, in the source's order.
///
/// An access is `number stream R|W address size +instructions`, then `dep=N` where a dependence is known and `pc=…`
/// where the address of the instruction is; an event is `- stream #sequence event`.
///
/// # Errors
/// As [`EventSource::next_batch`].
pub fn head(source: &mut dyn EventSource, items: usize) -> Result<Vec<String>, SourceError> {
    let mut lines = Vec::new();
    let mut number = 0u64;
    while lines.len() < items {
        let Some(batch) = source.next_batch()? else { break };
        let stream = batch.stream.0;
        for item in batch.items().take(items - lines.len()) {
            lines.push(match item {
                Item::Access(access) => {
                    let kind = if access.kind == AccessKind::Read { 'R' } else { 'W' };
                    let mut line = format!(
                        "{number} {stream} {kind} {:#x} {} +{}",
                        access.addr, access.size, access.instructions
                    );
                    number += 1;
                    if access.depends_on > 0 {
                        line.push_str(&format!(" dep={}", access.depends_on));
                    }
                    if let Some(pc) = access.pc {
                        line.push_str(&format!(" pc={pc:#x}"));
                    }
                    line
                }
                Item::Event(event) if event.sequence == 0 => format!("- {stream} {:?}", event.event),
                Item::Event(event) => format!("- {stream} #{} {:?}", event.sequence, event.event),
            });
        }
    }
    Ok(lines)
}
