//! Source lines of allocation sites, from the files that a recorded program had mapped, where they are still here and have
//! not changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;
use terrace_recorder::Places;

/// What a recording says of its allocation sites' code.
#[derive(Debug, Default)]
pub struct Code {
    /// Names as the recording has them, by how they are shown.
    pub(super) names: BTreeMap<String, String>,
    /// Files that were mapped.
    pub(super) files: BTreeSet<String>,
}

impl Code {
    /// The source lines of the sites that are shown under these names, by name; without those that are unknown. Files that
    /// changed after `recorded` are left out: their lines are others.
    pub fn lines<'a>(
        &self,
        shown: impl IntoIterator<Item = &'a str>,
        recorded: SystemTime,
    ) -> BTreeMap<String, String> {
        let sites: BTreeMap<&String, &String> =
            shown.into_iter().filter_map(|name| self.names.get_key_value(name)).collect();
        if sites.is_empty() {
            return BTreeMap::new();
        }
        let is_old =
            |path: &Path| path.metadata().and_then(|data| data.modified()).is_ok_and(|at| at <= recorded);
        let files = self.files.iter().map(String::as_str).filter(|path| is_old(Path::new(path)));
        let places = Places::of(files);
        let line = |name: &str| places.find(name).ok().and_then(|place| places.line(&place));
        sites.into_iter().filter_map(|(shown, name)| Some((shown.clone(), line(name)?))).collect()
    }
}
