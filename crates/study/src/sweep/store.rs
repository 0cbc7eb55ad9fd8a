//! Finished runs of sweeps on disk: a file each, so that many processes and machines can write into one folder.

use super::{InputWord, Point};
use crate::Error;
use crate::keeping::{Exact, ExactStats};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use terrace_report::{MachineTier, RunRecord, write_atomically};

/// The folder of the runs inside a sweep's folder.
pub const KEPT: &str = "runs";

/// A folder of finished runs.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The runs in `folder`, which is made where it is missing.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub fn open(folder: &Path) -> Result<Store, Error> {
        let folder = folder.join(KEPT);
        std::fs::create_dir_all(&folder)
            .map_err(|error| Error::request(format!("{}: {error}", folder.display())))?;
        Ok(Store { folder })
    }

    /// The run of a point, if there is a whole one of exactly this point.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn get(&self, point: &Point) -> Result<Option<RunRecord>, Error> {
        let path = self.path(point);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::failed(format!("{}: {error}", path.display()))),
        };
        Ok(unpack(&text, point))
    }

    /// Keeps the run of a point.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn put(&self, point: &Point, record: &RunRecord) -> Result<(), Error> {
        self.put_packed(point, &pack(point, record))
    }

    /// Keeps what [`pack`] made elsewhere.
    ///
    /// # Errors
    /// A file that cannot be written, a text that is no run of this point.
    pub fn put_packed(&self, point: &Point, text: &str) -> Result<(), Error> {
        if unpack(text, point).is_none() {
            return Err(Error::failed(format!("what came back is no run of {}", point.id())));
        }
        write_atomically(&self.path(point), text.as_bytes()).map_err(Error::failed)
    }

    fn path(&self, point: &Point) -> PathBuf {
        self.folder.join(format!("{}.json", point.id()))
    }
}

/// A run as it is kept: what tables and readers need of it, and what it is a run of.
#[derive(Serialize, Deserialize)]
struct Kept {
    identity: String,
    design: String,
    design_summary: String,
    machine: String,
    #[serde(default)]
    tiers: Vec<MachineTier>,
    input: String,
    fidelity: String,
    scale: u32,
    seed: Option<u64>,
    accesses: u64,
    instructions: u64,
    cycles: u64,
    seconds_simulated: Exact,
    wall_seconds: Exact,
    command: String,
    left_out: Vec<String>,
    notes: Vec<String>,
    parameters: Vec<(String, String)>,
    #[serde(default)]
    scaled_parameters: Vec<(String, String)>,
    stats: ExactStats,
}

/// A run of a point as text.
pub fn pack(point: &Point, record: &RunRecord) -> String {
    let kept = Kept {
        identity: point.identity().to_owned(),
        design: record.design.clone(),
        design_summary: record.design_summary.clone(),
        machine: record.machine.clone(),
        tiers: record.tiers.clone(),
        input: record.input.clone(),
        fidelity: record.fidelity.clone(),
        scale: record.scale,
        seed: record.seed,
        accesses: record.accesses,
        instructions: record.instructions,
        cycles: record.cycles,
        seconds_simulated: Exact::of(record.seconds_simulated),
        wall_seconds: Exact::of(record.wall_seconds),
        command: record.command.clone(),
        left_out: record.left_out.clone(),
        notes: record.notes.clone(),
        parameters: record.parameters.clone(),
        scaled_parameters: record.scaled_parameters.clone(),
        stats: ExactStats::of(&record.stats),
    };
    serde_json::to_string(&kept).expect("plain data with string keys always serializes") + "\n"
}

/// The run in a text, if it is whole and one of this point.
fn unpack(text: &str, point: &Point) -> Option<RunRecord> {
    let kept: Kept = serde_json::from_str(text).ok()?;
    if kept.identity != point.identity() {
        return None;
    }
    // The sweep may have had fewer inputs of the name when the run was made.
    Some(RunRecord { input: point.input_name.clone(), ..kept.into_record()? })
}

/// The run in a file of [`KEPT`], without the sweep that it is of. Its input is named as the sweep's file names it, with its
/// parameters: runs of a sweep may differ in nothing else. None where the file is damaged.
pub fn kept(text: &str) -> Option<RunRecord> {
    let kept: Kept = serde_json::from_str(text).ok()?;
    let input = InputWord::in_identity(&kept.identity)?.to_owned();
    Some(RunRecord { input, ..kept.into_record()? })
}

impl Kept {
    /// None where a number is none.
    fn into_record(self) -> Option<RunRecord> {
        Some(RunRecord {
            design: self.design,
            design_summary: self.design_summary,
            machine: self.machine,
            tiers: self.tiers,
            input: self.input,
            fidelity: self.fidelity,
            scale: self.scale,
            seed: self.seed,
            accesses: self.accesses,
            instructions: self.instructions,
            cycles: self.cycles,
            seconds_simulated: self.seconds_simulated.value()?,
            wall_seconds: self.wall_seconds.value()?,
            command: self.command,
            left_out: self.left_out,
            notes: self.notes,
            parameters: self.parameters,
            scaled_parameters: self.scaled_parameters,
            stats: self.stats.into_stats()?,
            ..RunRecord::default()
        })
    }
}
