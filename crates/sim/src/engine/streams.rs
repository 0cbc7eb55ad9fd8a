//! From batches in the order of the input to one queue per stream.
//!
//! Read-ahead is bounded: while one stream waits for its next batch, at most [`READ_AHEAD`] batches of others are kept.
//! A stream whose next batch lies further away was idle that long in the recorded run too; it stands aside until the
//! batch comes. Programs of a mix are read apart: what is kept of one does not hold up another.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use terrace_model::{CoreId, SpaceId};
use terrace_trace::{Batch, Event, EventSource, Rules, SourceError};

/// Batches kept for streams other than the one that is waited for.
pub(super) const READ_AHEAD: usize = 512;

/// One stream of the input as the engine sees it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub queue: VecDeque<Arc<Batch>>,
    /// The batch that runs, and how far it has come: accesses, and entries of its `events`.
    pub current: Option<Arc<Batch>>,
    pub next_access: usize,
    pub next_event: usize,
    /// Process number in the simulated kernel, once the stream's `Spawn` was applied.
    pub space: Option<SpaceId>,
    pub core: CoreId,
    /// The stream's virtual CPU, where there are several virtual machines and the stream has begun.
    pub vcpu: Option<usize>,
    /// No batch is near: the stream was idle.
    pub starved: bool,
    /// The current batch follows a global event that was not applied yet.
    pub blocked: bool,
    /// The stream's program waits for the others of a mix to come to their regions of interest.
    pub held: bool,
    /// The process that the stream's `Spawn`, which may not have been applied yet, puts it into.
    pub process: Option<u32>,
    pub exited: bool,
    /// The stream is a GPU's, on a machine that has none.
    pub of_gpu: bool,
    pub accesses: u64,
    /// Accesses that were counted for its program.
    pub accounted: u64,
    /// Lines that the kernel touched of the event under way.
    pub kernel_lines: u64,
    /// Instructions of the `Compute` event under way that were executed.
    pub computed: u64,
}

impl Stream {
    /// Whether a core may take it up.
    #[inline]
    pub fn may_run(&self) -> bool {
        !self.exited && !self.starved && !self.blocked && !self.held
    }
}

/// All streams and the input they come from.
pub(super) struct Streams<'a> {
    pub source: &'a mut dyn EventSource,
    pub streams: Vec<Stream>,
    levels: u32,
    /// What is known of each program of the input. Of `n` programs, stream `s` belongs to number `s mod n`.
    pub programs: Vec<ProgramInput>,
}

/// How far one program's input is read.
#[derive(Debug, Default)]
pub(super) struct ProgramInput {
    /// The program's name where there are several.
    name: String,
    rules: Rules,
    /// Batches in all its queues.
    queued: usize,
    pub exhausted: bool,
    pub order: GlobalOrder,
}

impl ProgramInput {
    /// Whether reading further for one waiting stream would keep too much of the others.
    pub fn is_full(&self) -> bool {
        self.queued >= READ_AHEAD
    }
}

impl<'a> Streams<'a> {
    /// The streams of an input whose addresses page tables of `levels` levels must be able to map.
    pub fn new(source: &'a mut dyn EventSource, levels: u32) -> Streams<'a> {
        let mut names: Vec<String> =
            source.programs().iter().map(|program| format!("{}: ", program.name)).collect();
        if names.is_empty() {
            names.push(String::new());
        }
        let programs = names.into_iter().map(|name| ProgramInput {
            name,
            rules: Rules::new(levels),
            ..ProgramInput::default()
        });
        Streams { programs: programs.collect(), source, streams: Vec::new(), levels }
    }

    /// The number of the program that a stream belongs to.
    #[inline]
    pub fn program_of(&self, stream: usize) -> usize {
        stream % self.programs.len()
    }

    /// The input of the program that a stream belongs to.
    #[inline]
    pub fn input_of(&mut self, stream: usize) -> &mut ProgramInput {
        let program = self.program_of(stream);
        &mut self.programs[program]
    }

    /// Reads one batch of a program into its queue. Returns the stream it belongs to and whether the stream is new; `None`
    /// at the end of the program's input.
    pub fn pull(&mut self, program: usize) -> Result<Option<(usize, bool)>, SourceError> {
        let input = &mut self.programs[program];
        let Some(batch) = self.source.next_of(program)? else {
            input.exhausted = true;
            return Ok(None);
        };
        let stream = batch.stream.index();
        let named = |violation| SourceError::Malformed(format!("{}{violation}", input.name));
        input.rules.check(&batch).map_err(named)?;
        let known = self.streams.len();
        if stream >= known {
            self.streams.resize_with(stream + 1, Stream::default);
        }
        let is_new = self.streams[stream].space.is_none()
            && self.streams[stream].queue.is_empty()
            && self.streams[stream].current.is_none();
        if is_new {
            self.streams[stream].process = batch.events.iter().find_map(|event| match event.event {
                Event::Spawn { process, .. } => Some(process),
                _ => None,
            });
        }
        self.streams[stream].queue.push_back(batch);
        input.queued += 1;
        Ok(Some((stream, is_new)))
    }

    /// Makes the stream's next batch its current one, if there is one.
    pub fn advance(&mut self, stream: usize) -> bool {
        let at = stream;
        let stream = &mut self.streams[stream];
        if stream.current.is_some() {
            return true;
        }
        let Some(batch) = stream.queue.pop_front() else { return false };
        stream.current = Some(batch);
        stream.next_access = 0;
        stream.next_event = 0;
        self.input_of(at).queued -= 1;
        true
    }

    /// Opens a program's input again. Its streams are new ones.
    pub fn restart(&mut self, program: usize) -> Result<(), SourceError> {
        self.source.restart(program)?;
        let input = &mut self.programs[program];
        let name = std::mem::take(&mut input.name);
        *input = ProgramInput { name, rules: Rules::new(self.levels), ..ProgramInput::default() };
        let count = self.programs.len();
        self.streams.iter_mut().skip(program).step_by(count).for_each(|stream| *stream = Stream::default());
        Ok(())
    }
}

/// Which of the globally ordered events were applied: a watermark and those beyond it.
#[derive(Debug, Default)]
pub(super) struct GlobalOrder {
    /// All events with this sequence number or a lower one were applied.
    pub watermark: u64,
    beyond: BTreeSet<u64>,
}

impl GlobalOrder {
    /// An event was applied.
    pub fn apply(&mut self, sequence: u64) {
        if sequence == self.watermark + 1 {
            self.watermark = sequence;
            while self.beyond.remove(&(self.watermark + 1)) {
                self.watermark += 1;
            }
        } else if sequence > self.watermark {
            self.beyond.insert(sequence);
        }
    }

    /// Gives up the missing events up to `sequence`, which nobody will ever apply (the input begins after them, or lost
    /// them).
    pub fn give_up_before(&mut self, sequence: u64) {
        self.watermark = self.watermark.max(sequence);
        let later = self.beyond.split_off(&(self.watermark + 1));
        self.beyond = later;
        while self.beyond.remove(&(self.watermark + 1)) {
            self.watermark += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_waits_for_the_missing_event() {
        let mut order = GlobalOrder::default();
        for sequence in [1, 3, 4] {
            order.apply(sequence);
        }
        assert_eq!(order.watermark, 1);
        order.apply(2);
        assert_eq!(order.watermark, 4);
        order.apply(7);
        order.give_up_before(6);
        assert_eq!(order.watermark, 7);
    }
}
