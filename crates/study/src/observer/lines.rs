//! Source lines of allocation sites, from the files that a recorded program had mapped, where they are still here and have
//! not changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;
use terrace_recorder::Places;
use terrace_report::HeatRow;

/// What a recording says of its allocation sites' code.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// Names as the recording has them, by how they are shown.
    pub names: BTreeMap<String, String>,
    /// Files that were mapped.
    pub files: BTreeSet<String>,
}

impl Code {
    /// Gives rows that are named by an allocation site its line. Files that changed after `recorded` are left out: their
    /// lines are others.
    pub fn name_lines(&self, rows: &mut [HeatRow], recorded: SystemTime) {
        let is_site = |row: &HeatRow| self.names.contains_key(&row.name);
        if !rows.iter().any(is_site) {
            return;
        }
        let is_old =
            |path: &Path| path.metadata().and_then(|data| data.modified()).is_ok_and(|at| at <= recorded);
        let files = self.files.iter().map(String::as_str).filter(|path| is_old(Path::new(path)));
        let places = Places::of(files);
        let mut known: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for row in rows {
            let Some((shown, name)) = self.names.get_key_value(&row.name) else { continue };
            let line = known
                .entry(shown)
                .or_insert_with(|| places.find(name).ok().and_then(|place| places.line(&place)));
            row.line = line.clone().unwrap_or_default();
        }
    }
}
