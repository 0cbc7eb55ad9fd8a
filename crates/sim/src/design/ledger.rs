//! What the ledger says of a key.

use super::error::Origin;
use super::schema::Ledger;
use super::tree::{Entry, Node};

impl Ledger {
    /// Whether the constant is cited or was fitted to published rows. Of entries of both sorts the one that names it more
    /// closely counts: `core` may be cited, and `core.base_cpi` assumed.
    pub fn is_vouched_for(&self, key: &str) -> bool {
        let vouched = closest(&self.cited, key).max(closest(&self.calibrated, key));
        vouched.is_some() && vouched >= closest(&self.assumed, key)
    }

    /// Whether any entry is about the key.
    pub fn mentions(&self, key: &str) -> bool {
        [&self.cited, &self.calibrated, &self.assumed].iter().any(|entries| closest(entries, key).is_some())
    }
}

impl Ledger {
    /// The ledger without what it says of values that the user changed after it, by a file of `files` (those of the user,
    /// the lowest layer first) or an option. An entry that is about other keys as well stays, and names those that are not
    /// meant.
    pub(super) fn without_changes<'a>(
        &self,
        tree: &Entry,
        keys: impl Iterator<Item = &'a str>,
        files: &[Origin],
    ) -> Ledger {
        let rank = |origin: &Origin| match origin {
            Origin::Set(_) => usize::MAX,
            Origin::File { file, .. } => {
                let same =
                    |other: &Origin| matches!(other, Origin::File { file: other, .. } if other == file);
                files.iter().position(same).map_or(0, |at| at + 1)
            }
            Origin::Preset { .. } | Origin::Default => 0,
        };
        let ranked: Vec<(&str, usize)> =
            keys.map(|key| (key, tree.at(key).map_or(0, |entry| rank(&entry.origin)))).collect();
        let still = |list: &str, whole: &[String]| -> Vec<String> {
            let Some(Node::Array(entries)) = tree.at(&format!("ledger.{list}")).map(|list| &list.node) else {
                return whole.to_vec();
            };
            let said = entries.iter().filter_map(|entry| Some((entry.as_str()?, rank(&entry.origin))));
            said.filter_map(|(text, of)| without(text, |after: usize| after > of, &ranked)).collect()
        };
        Ledger {
            cited: still("cited", &self.cited),
            calibrated: still("calibrated", &self.calibrated),
            assumed: still("assumed", &self.assumed),
            ..self.clone()
        }
    }
}

/// Changed keys that an entry names one by one.
const NAMED: usize = 3;

/// An entry without the keys that were changed; nothing where it is about no other.
fn without(entry: &str, is_after: impl Fn(usize) -> bool, ranked: &[(&str, usize)]) -> Option<String> {
    let changed: Vec<&str> = ranked
        .iter()
        .filter(|(key, rank)| is_after(*rank) && names(entry, key).is_some())
        .map(|(key, _)| *key)
        .collect();
    if changed.is_empty() {
        return Some(entry.to_owned());
    }
    ranked.iter().find(|(key, rank)| !is_after(*rank) && names(entry, key).is_some())?;
    let more = match changed.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let list = changed[..changed.len().min(NAMED)].join(", ");
    Some(format!("{entry} (not {list}{more}: changed)"))
}

/// How closely the entries name the key at best.
fn closest(entries: &[String], key: &str) -> Option<usize> {
    entries.iter().filter_map(|entry| names(entry, key)).max()
}

/// How many parts of `key` an entry such as `os.costs.order, allocate, tier.*.capacity: why` names; nothing where it is not
/// about it. A name without a dot may stand in the table of the name before it; one that ends early stands for all below it.
fn names(entry: &str, key: &str) -> Option<usize> {
    let named = |name: &str| {
        let mut parts = key.split('.');
        let is_about = name.split('.').all(|one| parts.next().is_some_and(|part| one == "*" || one == part));
        is_about.then(|| name.split('.').count())
    };
    let list = entry.split(": ").next().unwrap_or_default();
    let mut table = "";
    let each = list.split(',').map(str::trim).map(|name| {
        if let Some((before, _)) = name.rsplit_once('.') {
            table = before;
        }
        let in_table = !table.is_empty() && !name.contains('.');
        named(name).max(if in_table { named(&format!("{table}.{name}")) } else { None })
    });
    each.max().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_name_keys_in_short() {
        let entry = "os.costs.order, allocate, tier.*.path_latency, device: why, and what a sweep shows";
        for key in ["os.costs.order", "os.costs.allocate", "tier.cxl.path_latency", "device.dram.channels"] {
            assert!(names(entry, key).is_some(), "{key}");
        }
        for key in ["os.costs.map", "tier.cxl.link.latency", "os.costs", "os.allocate"] {
            assert!(names(entry, key).is_none(), "{key}");
        }
    }

    #[test]
    fn the_entry_that_names_a_constant_more_closely_counts() {
        let ledger = Ledger {
            cited: vec!["core, cache: a manual".to_owned(), "os.fault_cost: measured".to_owned()],
            assumed: vec!["core.base_cpi, cache: no source".to_owned(), "os: no source".to_owned()],
            ..Ledger::default()
        };
        let vouched = ["core.frequency", "cache.l1.outstanding", "os.fault_cost"];
        assert!(vouched.iter().all(|key| ledger.is_vouched_for(key)));
        for key in ["core.base_cpi", "os.zero_bandwidth", "tier.cxl.path_latency"] {
            assert!(!ledger.is_vouched_for(key), "{key}");
        }
        assert!(ledger.mentions("os.zero_bandwidth"));
        assert!(!ledger.mentions("tier.cxl.path_latency"));
    }

    #[test]
    fn a_source_is_not_named_for_what_the_user_changed() {
        use crate::design::Library;
        let set = |sets: &[(&str, &str)]| {
            let sets: Vec<(String, String)> =
                sets.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            Library::embedded().design("native-4k", Some("zen4-cxl"), &sets).unwrap()
        };
        let plain = set(&[]);
        assert_eq!(plain.ledger, plain.design.ledger, "built-in layers speak for each other");
        let about = |resolved: &crate::design::Resolved, key: &str| -> Vec<String> {
            resolved.ledger.cited.iter().filter(|entry| names(entry, key).is_some()).cloned().collect()
        };
        let cited = about(&plain, "core.frequency");
        assert!(!cited.is_empty() && !cited.iter().any(|entry| entry.contains("changed")), "{cited:?}");
        let one = set(&[("core.frequency", "1 GHz")]);
        let left = about(&one, "core.frequency");
        assert!(
            !left.is_empty() && left.iter().all(|entry| entry.ends_with("(not core.frequency: changed)")),
            "{left:?}"
        );
        // An entry that is about these two alone is gone.
        let two = set(&[("core.frequency", "1 GHz"), ("core.count", "1")]);
        let is_gone = |entry: &String| entry.starts_with("core.count, core.frequency:");
        assert!(cited.iter().any(is_gone) && !two.ledger.cited.iter().any(is_gone), "{:?}", two.ledger.cited);
        // What the numbers rest on, by which intervals go, is as it was.
        assert_eq!(two.design.ledger, plain.design.ledger);
    }

    #[test]
    fn the_default_machine_has_what_its_model_has() {
        use crate::cache::SetIndex;
        use crate::design::{DEFAULT_MACHINE, Library};
        let design = Library::embedded().design("native-4k", Some(DEFAULT_MACHINE), &[]).unwrap().design;
        assert!(design.cache.prefetcher.enabled);
        assert_eq!(design.cache.llc.index, SetIndex::Hashed);
        assert!(design.ledger.is_vouched_for("cache.llc.capacity") && !design.ledger.assumed.is_empty());
    }
}
