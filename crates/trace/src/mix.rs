//! Several programs side by side, as one source.
//!
//! Who consumes a mix asks for the next batch of one program at a time, since only the consumer knows how fast each of
//! them runs: nothing is read ahead of what was asked for, and the order in which programs are read changes no batch.
//! Numbers of streams, processes and allocation sites are made apart by the rule of [`EventSource::programs`]; all else
//! of a program's events stays as it is. Sequence numbers stay each program's own, too: one order over all programs would
//! make each wait for the system calls of the others.

use crate::{
    Batch, Event, EventSource, Header, MarkKind, Rules, SequencedEvent, SourceError, StreamId, TraceEnding,
};
use std::sync::Arc;

/// One program of a mix, for its consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixedProgram {
    /// The program's name, unique within the mix.
    pub name: String,
    /// The program's input marks the begin of a region of interest.
    pub marks_region: bool,
}

/// Opens a program's input, once for each time that the program runs.
type Open = Box<dyn FnMut() -> Result<Box<dyn EventSource>, SourceError> + Send>;

/// One program of a mix, and how its input is opened.
pub struct MixPart {
    program: MixedProgram,
    open: Open,
}

impl MixPart {
    /// A program whose input `open` opens.
    pub fn new(
        program: MixedProgram,
        open: impl FnMut() -> Result<Box<dyn EventSource>, SourceError> + Send + 'static,
    ) -> MixPart {
        MixPart { program, open: Box::new(open) }
    }
}

/// Several programs side by side.
pub struct Mix {
    header: Header,
    programs: Vec<MixedProgram>,
    parts: Vec<Part>,
}

/// A program as it is read.
struct Part {
    open: Open,
    source: Box<dyn EventSource>,
    rules: Rules,
    /// Accesses read since it last began.
    accesses: u64,
    /// The program's trace has ended.
    ended: bool,
    /// The program has begun more than once.
    repeats: bool,
    failed: bool,
}

impl Mix {
    /// Opens every program.
    ///
    /// # Errors
    /// An input that cannot be opened; the message names the program.
    pub fn open(parts: impl IntoIterator<Item = MixPart>) -> Result<Mix, SourceError> {
        let (mut programs, mut opened) = (Vec::new(), Vec::new());
        for MixPart { program, mut open } in parts {
            let source = open().map_err(|error| of(&program.name, error))?;
            programs.push(program);
            let rules = Rules::default();
            opened.push(Part {
                open,
                source,
                rules,
                accesses: 0,
                ended: false,
                repeats: false,
                failed: false,
            });
        }
        let names: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
        let expected = opened.iter().map(|part| part.source.header().expected_accesses);
        let header = Header {
            program: names.join("+"),
            origin: "mix".to_owned(),
            has_pc: opened.iter().all(|part| part.source.header().has_pc),
            expected_accesses: expected.sum(),
            ..Header::default()
        };
        Ok(Mix { header, programs, parts: opened })
    }
}

impl EventSource for Mix {
    fn header(&self) -> &Header {
        &self.header
    }

    /// The next batch of the program of which least was read: for who does not care which.
    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        loop {
            let left = self.parts.iter().enumerate().filter(|(_, part)| !part.ended);
            let Some((next, _)) = left.min_by_key(|(_, part)| part.accesses) else { return Ok(None) };
            if let Some(batch) = self.next_of(next)? {
                return Ok(Some(batch));
            }
        }
    }

    /// The least share of any program, of those that run for the first time.
    fn progress(&self) -> Option<f64> {
        let share = |part: &Part| if part.ended || part.repeats { Some(1.0) } else { part.source.progress() };
        self.parts.iter().map(share).try_fold(1.0, |least: f64, share| Some(least.min(share?)))
    }

    fn ending(&self) -> TraceEnding {
        self.parts.iter().map(|part| part.source.ending()).max().unwrap_or_default()
    }

    fn left_out(&self) -> u64 {
        self.parts.iter().map(|part| part.source.left_out()).sum()
    }

    fn programs(&self) -> &[MixedProgram] {
        &self.programs
    }

    fn next_of(&mut self, program: usize) -> Result<Option<Arc<Batch>>, SourceError> {
        let count = self.parts.len() as u64;
        let part = &mut self.parts[program];
        if part.ended || part.failed {
            return Ok(None);
        }
        let next = part.source.next_batch().and_then(|batch| {
            let Some(mut batch) = batch else { return Ok(None) };
            part.rules.check(&batch).map_err(|violation| SourceError::Malformed(violation.to_string()))?;
            part.accesses += batch.len() as u64;
            renumber(Arc::make_mut(&mut batch), program as u64, count)?;
            Ok(Some(batch))
        });
        part.failed = next.is_err();
        part.ended = !matches!(next, Ok(Some(_)));
        next.map_err(|error| of(&self.programs[program].name, error))
    }

    fn restart(&mut self, program: usize) -> Result<(), SourceError> {
        let part = &mut self.parts[program];
        part.source = (part.open)().map_err(|error| of(&self.programs[program].name, error))?;
        part.rules = Rules::default();
        (part.accesses, part.ended, part.repeats) = (0, part.failed, true);
        Ok(())
    }
}

/// Says whose error it is.
fn of(name: &str, error: SourceError) -> SourceError {
    match error {
        SourceError::Io { what, error } => SourceError::Io { what: format!("{name}: {what}"), error },
        SourceError::Malformed(text) => SourceError::Malformed(format!("{name}: {text}")),
        SourceError::Recorder(text) => SourceError::Recorder(format!("{name}: {text}")),
    }
}

/// Gives the streams, processes and sites of a batch of program `program` of `count` their numbers in the mix.
fn renumber(batch: &mut Batch, program: u64, count: u64) -> Result<(), SourceError> {
    let apart = |what: &str, number: &mut u32| {
        let new = u64::from(*number) * count + program;
        *number = u32::try_from(new).map_err(|_| {
            SourceError::Malformed(format!(
                "{what} {number}: too large a number in a mix of {count} programs"
            ))
        })?;
        Ok(())
    };
    let stream = |stream: &mut StreamId| apart("stream", &mut stream.0);
    stream(&mut batch.stream)?;
    for SequencedEvent { event, .. } in &mut batch.events {
        match event {
            Event::Spawn { process, forked_from, .. } => {
                apart("process", process)?;
                forked_from.as_mut().map_or(Ok(()), stream)?;
            }
            Event::Site { site, .. } | Event::Alloc { site, .. } => apart("site", site)?,
            _ => {}
        }
    }
    Ok(())
}

/// Reads an input until it marks the begin of a region of interest, and says whether it does.
///
/// # Errors
/// When the input is damaged before that.
pub fn marks_region(source: &mut dyn EventSource) -> Result<bool, SourceError> {
    let begins = |batch: &Batch| {
        let begin =
            |event: &SequencedEvent| matches!(event.event, Event::Mark { kind: MarkKind::RegionBegin, .. });
        batch.events.iter().any(begin)
    };
    loop {
        if let Some((batch, _)) = source.next_outline(u64::MAX)? {
            if begins(&batch) {
                return Ok(true);
            }
            continue;
        }
        match source.next_batch()? {
            Some(batch) if begins(&batch) => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
    }
}
