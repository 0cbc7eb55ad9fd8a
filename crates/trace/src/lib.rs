//! What a program is to Terrace: a stream of memory accesses and address-space events.
//!
//! [`Event`] is the vocabulary, [`Batch`] its columnar form (the hot loop reads columns, never single events), and
//! [`EventSource`] what yields batches: a trace file, a live recording, a built-in workload.

mod ahead;
mod batch;
mod demangle;
mod event;
mod export;
mod file;
mod header;
mod import;
mod kernels;
mod mix;
mod pool;
mod rules;
mod source;
mod tools;

/// Entry functions of the fuzz targets: each takes any bytes and panics where a promise about damaged input is broken.
#[doc(hidden)]
pub mod fuzz {
    pub use crate::file::fuzz::{chunk, chunk_seed, reader};
    pub use crate::import::fuzz::{
        archive, champsim, csv, damon, drmemtrace, lackey, oracle_general, perf, text,
    };
}

pub use ahead::ReadAhead;
pub use batch::{Access, BATCH_ACCESSES, Batch, BatchBuilder, Item};
pub use demangle::demangled;
pub use event::{
    AccessKind, Advice, Agent, Event, KernelAccess, MapKind, MarkKind, Protection, SequencedEvent, StreamId,
};
pub use export::{ExportError, ExportFile, ExportFormat, Exported, Weight, export};
pub use file::{ChunkInfo, Summary, Totals, TraceReader, TraceWriter, WriteError};
pub use header::{Header, StreamInfo, TraceEnding};
pub use import::{Format, left_out_words, open_any};
pub use mix::{Mix, MixPart, MixedProgram, marks_region};
pub use pool::BatchPool;
pub use rules::{Checked, MAX_COMPUTE, MAX_KERNEL_BYTES, MAX_STREAMS, Place, Rules, Violation};
pub use source::{EventSource, SourceError, VecSource};
pub use tools::{
    ConvertError, HeadItem, Slice, SliceOptions, TraceInfo, VerifyReport, convert, head, info, info_watched,
    slice, verify, verify_watched,
};
