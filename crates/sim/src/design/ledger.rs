//! What the ledger says of a key.

use super::schema::Ledger;

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
    fn the_default_machine_has_what_its_model_has() {
        use crate::cache::SetIndex;
        use crate::design::{DEFAULT_MACHINE, Library};
        let design = Library::embedded().design("native-4k", Some(DEFAULT_MACHINE), &[]).unwrap().design;
        assert!(design.cache.prefetcher.enabled);
        assert_eq!(design.cache.llc.index, SetIndex::Hashed);
        assert!(design.ledger.is_vouched_for("cache.llc.capacity") && !design.ledger.assumed.is_empty());
    }
}
