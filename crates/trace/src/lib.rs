//! What a program is to Terrace: a stream of memory accesses and address-space events.
//!
//! [`Event`] is the vocabulary, [`Batch`] its columnar form (the hot loop reads columns, never single events), and
//! [`EventSource`] what yields batches: a trace file, a live recording, a built-in workload.

mod batch;
mod event;
mod header;
mod source;

pub use batch::{Access, BATCH_ACCESSES, Batch, BatchBuilder, Item};
pub use event::{
    AccessKind, Advice, Agent, Event, KernelAccess, MapKind, MarkKind, Protection, SequencedEvent, StreamId,
};
pub use header::{Header, StreamInfo};
pub use source::{EventSource, SourceError, VecSource};
