//! Finished runs of sweeps on disk: a file each, so that many processes and machines can write into one folder.

use super::Point;
use crate::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_model::{Histogram, Stat, Stats, Unit, Value};
use terrace_report::{RunRecord, write_atomically};

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
    stats: BTreeMap<String, KeptStat>,
}

/// A real number as the shortest text that reads back as the same number. Readers of JSON may round the last digit of its
/// own numbers, and JSON has none that is infinite.
#[derive(Serialize, Deserialize)]
struct Exact(String);

impl Exact {
    fn of(value: f64) -> Exact {
        Exact(value.to_string())
    }

    fn value(&self) -> Option<f64> {
        self.0.parse().ok()
    }
}

#[derive(Serialize, Deserialize)]
struct KeptStat {
    unit: Unit,
    #[serde(flatten)]
    value: KeptValue,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KeptValue {
    Integer(u64),
    Real(Exact),
    Histogram(Histogram),
}

/// A run of a point as text.
pub fn pack(point: &Point, record: &RunRecord) -> String {
    let stat = |stat: &Stat| KeptStat {
        unit: stat.unit,
        value: match &stat.value {
            Value::Integer(value) => KeptValue::Integer(*value),
            Value::Real(value) => KeptValue::Real(Exact::of(*value)),
            Value::Histogram(value) => KeptValue::Histogram(value.clone()),
        },
    };
    let kept = Kept {
        identity: point.identity().to_owned(),
        design: record.design.clone(),
        design_summary: record.design_summary.clone(),
        machine: record.machine.clone(),
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
        stats: record.stats.iter().map(|(name, one)| (name.to_owned(), stat(one))).collect(),
    };
    serde_json::to_string(&kept).expect("plain data with string keys always serializes") + "\n"
}

/// The run in a text, if it is whole and one of this point.
fn unpack(text: &str, point: &Point) -> Option<RunRecord> {
    let kept: Kept = serde_json::from_str(text).ok()?;
    if kept.identity != point.identity() {
        return None;
    }
    let mut stats = Stats::new();
    for (name, stat) in kept.stats {
        let value = match stat.value {
            KeptValue::Integer(value) => Value::Integer(value),
            KeptValue::Real(value) => Value::Real(value.value()?),
            KeptValue::Histogram(value) => Value::Histogram(value),
        };
        // A damaged file is no run; a tree refuses a name that is both a branch and a leaf.
        let under_leaf = name.match_indices('.').any(|(at, _)| stats.get(&name[..at]).is_some());
        if under_leaf || stats.under(&name).next().is_some() {
            return None;
        }
        stats.insert(name, Stat { value, unit: stat.unit });
    }
    Some(RunRecord {
        design: kept.design,
        design_summary: kept.design_summary,
        machine: kept.machine,
        input: kept.input,
        fidelity: kept.fidelity,
        scale: kept.scale,
        seed: kept.seed,
        accesses: kept.accesses,
        instructions: kept.instructions,
        cycles: kept.cycles,
        seconds_simulated: kept.seconds_simulated.value()?,
        wall_seconds: kept.wall_seconds.value()?,
        command: kept.command,
        left_out: kept.left_out,
        notes: kept.notes,
        parameters: kept.parameters,
        stats,
        ..RunRecord::default()
    })
}
