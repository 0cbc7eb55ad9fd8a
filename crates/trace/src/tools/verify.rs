//! `terrace trace verify`.

use crate::import::Opened;
use crate::{Event, Format, Rules, SourceError, Totals};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;

/// What a check of a whole trace found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// The file.
    pub path: String,
    /// The file's format.
    pub format: Format,
    /// What was read.
    pub totals: Totals,
    /// What is wrong, one sentence each; empty for a sound trace. At most [`VerifyReport::MAX_PROBLEMS`].
    pub problems: Vec<String>,
}

impl VerifyReport {
    /// Reporting stops after this many.
    pub const MAX_PROBLEMS: usize = 20;

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Reads a whole trace and checks everything that can be checked: checksums, encoding, what is
/// plausible ([`Rules`]), a `Spawn` at each stream's start, unique and gapless sequence numbers, and the index against
/// the content.
///
/// # Errors
/// When the file cannot be opened as a trace at all; damage further on is a problem in the report.
pub fn verify(path: impl AsRef<Path>) -> Result<VerifyReport, SourceError> {
    verify_watched(path, |_, _| ())
}

/// As [`verify`]; calls `watch` with each batch's accesses and the share of the trace that is read, where that is known.
///
/// # Errors
/// As [`verify`].
pub fn verify_watched(
    path: impl AsRef<Path>,
    mut watch: impl FnMut(u64, Option<f64>),
) -> Result<VerifyReport, SourceError> {
    let path = path.as_ref();
    let mut opened = Opened::open(path, false)?;
    let indexed = match &opened {
        Opened::Terrace(reader) => reader.totals().cloned(),
        Opened::Import(_) | Opened::Threads(_) => None,
    };
    let format = opened.format();
    let source = opened.source();
    let mut totals = Totals::default();
    let mut problems = Vec::new();
    let mut spawned = HashSet::new();
    let mut sequences = SequenceCheck::default();
    let mut rules = Rules::default();
    let mut whole = true;
    while problems.len() < VerifyReport::MAX_PROBLEMS {
        let batch = match source.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(error) => {
                problems.push(error.to_string());
                whole = false;
                break;
            }
        };
        let place =
            format!("batch {} (stream {}, access {})", totals.batches, batch.stream.0, totals.accesses);
        totals.add(&batch);
        watch(batch.len() as u64, source.progress());
        if let Err(violation) = rules.check(&batch) {
            problems.push(format!("batch {}: {violation}", totals.batches - 1));
        }
        if spawned.insert(batch.stream) {
            let first = batch.events.first();
            if !first.is_some_and(|first| first.before == 0 && matches!(first.event, Event::Spawn { .. })) {
                problems.push(format!("{place}: expected the stream to begin with its Spawn"));
            }
        }
        for event in batch.events.iter().filter(|event| event.sequence != 0) {
            if !sequences.insert(event.sequence) {
                problems.push(format!("{place}: sequence number {} occurs twice", event.sequence));
            }
        }
    }
    whole &= problems.len() < VerifyReport::MAX_PROBLEMS;
    if whole {
        if let Some(missing) = sequences.first_missing() {
            problems.push(format!("no event has sequence number {missing}, but later ones exist"));
        }
        if let Some(indexed) = indexed
            && indexed != totals
        {
            problems.push(format!(
                "the index says {} accesses, {} stores, {} instructions, {} events in {} batches and {} streams, \
                 the chunks hold {}, {}, {}, {} in {} and {}",
                indexed.accesses,
                indexed.writes,
                indexed.instructions,
                indexed.events,
                indexed.batches,
                indexed.streams.len(),
                totals.accesses,
                totals.writes,
                totals.instructions,
                totals.events,
                totals.batches,
                totals.streams.len()
            ));
        }
    }
    Ok(VerifyReport { path: path.display().to_string(), format, totals, problems })
}

/// Which sequence numbers occurred, in memory that depends on how far they are out of order and not on how many
/// there are.
#[derive(Debug, Default)]
struct SequenceCheck {
    /// All numbers up to this one occurred.
    complete: u64,
    /// Numbers beyond it that occurred.
    ahead: HashSet<u64>,
}

impl SequenceCheck {
    /// `false` when it occurred before.
    fn insert(&mut self, sequence: u64) -> bool {
        if sequence <= self.complete || !self.ahead.insert(sequence) {
            return false;
        }
        while self.ahead.remove(&(self.complete + 1)) {
            self.complete += 1;
        }
        true
    }

    fn first_missing(&self) -> Option<u64> {
        (!self.ahead.is_empty()).then_some(self.complete + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_may_come_out_of_order_but_once_and_all() {
        let mut check = SequenceCheck::default();
        for sequence in [2, 1, 4] {
            assert!(check.insert(sequence));
        }
        assert_eq!(check.first_missing(), Some(3));
        assert!(!check.insert(1) && !check.insert(4));
        assert!(check.insert(3));
        assert_eq!((check.first_missing(), check.ahead.len()), (None, 0));
    }
}
