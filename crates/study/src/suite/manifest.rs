//! What a recording of the suite was made of, and what is in it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The file beside a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`Entry::identity`](super::Entry::identity) of what was recorded.
    pub entry: String,
    /// The version of Terrace that recorded.
    pub terrace: String,
    /// Installed versions of the entry's packages, where the system reports them.
    pub packages: BTreeMap<String, String>,
    /// When it was recorded.
    pub date: String,
    /// Length of the recording.
    pub bytes: u64,
    /// SHA-256 of the recording, in hexadecimal digits, as `sha256sum` prints it.
    pub sha256: String,
    /// What is in it.
    pub figures: Figures,
}

/// What a recording does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Loads and stores.
    pub accesses: u64,
    /// Instructions.
    pub instructions: u64,
    /// Bytes of the base pages that are touched.
    pub footprint_bytes: u64,
    /// Threads, those of all processes together.
    pub threads: u64,
    /// Processes.
    pub processes: u64,
    /// Page walks per thousand instructions on base pages, of `machine`.
    pub walks_per_kilo_instruction: f64,
    /// The machine whose TLBs missed.
    pub machine: String,
}

impl Manifest {
    /// Reads one; nothing where there is none, or one that another version wrote otherwise.
    pub(super) fn read(path: &Path) -> Option<Manifest> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// Versions of installed packages, as `dpkg-query` reports them; those it does not know are left out.
pub(super) fn versions(packages: &[String]) -> BTreeMap<String, String> {
    let version = |package: &String| {
        let answer = Command::new("dpkg-query")
            .args(["-W", "-f", "${Version}", package])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()
            .filter(|answer| answer.status.success())?;
        let version = String::from_utf8(answer.stdout).ok()?;
        (!version.is_empty()).then(|| (package.clone(), version))
    };
    packages.iter().filter_map(version).collect()
}
