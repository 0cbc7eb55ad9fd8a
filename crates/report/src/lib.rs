//! The results of simulations, for programs and for people: JSON, CSV, Parquet, terminal tables of 80 columns and
//! one self-contained HTML page.
//!
//! A [`RunRecord`] is one design on one input; an [`InputSummary`] says what that input did; a [`Comparison`] joins them and
//! writes every output. All outputs show the same numbers: the page embeds the JSON document and computes nothing that is
//! not in it.

mod access_picture;
mod caveats;
mod columns;
mod comparison;
mod conclusion;
mod contiguity;
mod format;
mod html;
mod input;
mod json;
mod memory_picture;
mod mix;
mod parquet_output;
mod placement_picture;
mod pools;
mod reason;
mod rows;
mod run;
mod svg;
mod table;
#[cfg(test)]
mod test_data;
mod tiering;
mod translation_coherence;
mod uncertainty;
pub mod view_page;
mod virtual_machines;
mod write;

pub use access_picture::{AccessPicture, AccessStep, Stage};
pub use caveats::caveats;
pub use columns::{Column, Columns};
pub use comparison::{Comparison, MachineLedger};
pub use conclusion::{Conclusion, SMALLEST_DIFFERENCE};
pub use contiguity::Contiguity;
pub use format::Charset;
pub use input::{HeatMap, HeatRow, InputSummary, ReuseCurves};
pub use json::document;
pub use memory_picture::{Look, MemoryPanel, MemoryPicture, MemoryRun};
pub use mix::{Mix, ProgramOfMix};
pub use placement_picture::{PlacementBand, PlacementPicture};
pub use run::{
    CycleComponent, LIVE, MachineTier, RunRecord, TimelinePoint, has_times, machine_in_words,
    machine_sentence,
};
pub use tiering::{PolicyWork, TierUse, Tiering};
pub use translation_coherence::TranslationCoherence;
pub use uncertainty::{SpeedUp, Uncertainty};
pub use virtual_machines::{VirtualMachine, VirtualMachines};
pub use write::{WriteError, try_to_write, try_to_write_into, write_atomically};
