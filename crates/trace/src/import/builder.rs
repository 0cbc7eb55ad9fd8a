//! Turns the rows of an imported trace into valid batches: process start and end, mappings, wide accesses.

use crate::{AccessKind, Agent, BATCH_ACCESSES, Batch, Event, MapKind, Protection, Rules, StreamId};
use std::collections::HashSet;
use terrace_model::{AddressRange, PageSize};

/// A wider access is split into parts of 128 bytes, as a batch's column holds at most 255.
const PART_BYTES: u64 = 128;
/// The widest single access of x86-64 by far (`xsave`); more is a damaged record.
const MAX_ACCESS_BYTES: u64 = 16384;

/// One access as an importer sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) addr: u64,
    pub(super) bytes: u64,
    pub(super) kind: AccessKind,
    pub(super) depends_on: u8,
    pub(super) instructions: u64,
    pub(super) pc: Option<u64>,
}

/// Collects rows into batches of one stream at a time.
#[derive(Debug)]
pub(super) struct ImportBuilder {
    batch: Batch,
    /// The process whose memory rows are in.
    process: u32,
    /// Number of the last global event, and that at the batch's start.
    sequence: u64,
    after: u64,
    /// Processes and their regions.
    mapped: HashSet<(u32, u64)>,
    last_region: u64,
    /// Accesses that are not in the trace, as what they touch is no memory of the process.
    left_out: u64,
    /// How many of those that are left out were reported.
    reported: u64,
}

/// A size that is assumed, as far as it does not reach into another page, which the trace does not name.
pub(super) fn within_page(addr: u64, bytes: u64) -> u64 {
    bytes.min(PageSize::Base.bytes() - addr % PageSize::Base.bytes())
}

/// Where the kernel's half of the addresses begins.
const KERNEL_BEGIN: u64 = 0xffff_8000_0000_0000;

/// Whether an address lies in the kernel's half, which is no memory of the process.
pub(super) fn is_of_kernel(addr: u64) -> bool {
    addr >= KERNEL_BEGIN
}

impl ImportBuilder {
    /// A builder for one stream; begins with its `Spawn`.
    pub(super) fn new(name: String) -> ImportBuilder {
        let mut builder = ImportBuilder::of_several();
        builder.spawn(0, 0, name);
        builder
    }

    /// A builder for several streams, of which none has begun.
    pub(super) fn of_several() -> ImportBuilder {
        ImportBuilder {
            batch: Batch::with_capacity(StreamId(0)),
            process: 0,
            sequence: 0,
            after: 0,
            mapped: HashSet::new(),
            last_region: u64::MAX,
            left_out: 0,
            reported: 0,
        }
    }

    /// Counts an access that is left out, and keeps its instructions.
    pub(super) fn leave_out(&mut self, instructions: u64) {
        self.left_out += 1;
        if instructions > 0 {
            self.compute(instructions);
        }
    }

    /// How many accesses were left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// How many accesses were left out since this was asked last.
    pub(super) fn unreported(&mut self) -> u64 {
        self.left_out - std::mem::replace(&mut self.reported, self.left_out)
    }

    /// What follows is of this stream, in this process. The batch before was taken.
    pub(super) fn turn_to(&mut self, stream: StreamId, process: u32) {
        debug_assert!(self.batch.is_empty());
        self.batch.stream = stream;
        if self.process != process {
            (self.process, self.last_region) = (process, u64::MAX);
        }
    }

    /// The stream begins, as this thread of its process.
    pub(super) fn spawn(&mut self, thread: u32, os_id: u32, name: String) {
        let (process, agent) = (self.process, Agent::Cpu);
        self.global(Event::Spawn { process, thread, agent, forked_from: None, os_id, name });
    }

    /// Appends an access, and before it the mapping it needs.
    pub(super) fn access(&mut self, row: Row) -> Result<(), String> {
        let Row { mut addr, mut bytes, kind, depends_on, instructions, pc } = row;
        if bytes == 0 || bytes > MAX_ACCESS_BYTES {
            return Err(format!("expected an access of 1 to {MAX_ACCESS_BYTES} bytes, found {bytes}"));
        }
        if is_of_kernel(addr) {
            self.leave_out(instructions);
            return Ok(());
        }
        let end = Rules::default().user_end();
        if addr >= end || bytes > end - addr {
            return Err(format!(
                "expected a user-space address below {end:#x}, found {bytes} bytes at {addr:#x}"
            ));
        }
        self.map(addr >> PageSize::Huge.shift());
        self.map((addr + bytes - 1) >> PageSize::Huge.shift());
        let mut instructions = u16::try_from(instructions).unwrap_or_else(|_| {
            self.compute(instructions);
            0
        });
        while bytes > 0 {
            let part = if bytes > 255 { PART_BYTES } else { bytes };
            self.batch.push(addr, part as u8, kind, depends_on, instructions);
            self.batch.pc.extend(pc);
            instructions = 0;
            addr += part;
            bytes -= part;
        }
        Ok(())
    }

    /// Instructions that no access follows.
    pub(super) fn compute(&mut self, instructions: u64) {
        self.batch.push_event(0, Event::Compute { instructions });
    }

    /// The stream ends, and its process, or others of it go on.
    pub(super) fn exit(&mut self, process_ends: bool) {
        self.global(Event::Exit { process_ends });
    }

    pub(super) fn is_full(&self) -> bool {
        self.batch.len() >= BATCH_ACCESSES || self.batch.events.len() >= BATCH_ACCESSES
    }

    pub(super) fn take(&mut self) -> Batch {
        let next = Batch::with_capacity(self.batch.stream);
        let mut batch = std::mem::replace(&mut self.batch, next);
        batch.after = std::mem::replace(&mut self.after, self.sequence);
        batch
    }

    pub(super) fn clear(&mut self) {
        self.batch.clear();
    }

    fn map(&mut self, region: u64) {
        if region == self.last_region {
            return;
        }
        self.last_region = region;
        if self.mapped.insert((self.process, region)) {
            self.global(Event::Map {
                range: AddressRange::new(region << PageSize::Huge.shift(), PageSize::Huge.bytes()),
                kind: MapKind::Anonymous,
                protection: Protection::READ_WRITE,
                name: String::new(),
            });
        }
    }

    fn global(&mut self, event: Event) {
        self.sequence += 1;
        self.batch.push_event(self.sequence, event);
    }
}
