//! The kernel's own counters of what it moved (`/proc/vmstat`), for the whole machine, as differences since the start.

use crate::kernel::{Kernel, read_text};
use std::collections::BTreeMap;
use terrace_model::{Stats, Unit};

/// The counters of `/proc/vmstat` that count moves, and those that count what the kernel does by itself meanwhile. Not every
/// kernel has all of them.
const PREFIXES: &[&str] = &[
    "pgmigrate_",
    "thp_migration_",
    "pgpromote_",
    "pgdemote_",
    "numa_hint_faults",
    "numa_pages_migrated",
    "thp_split_page",
    "thp_collapse_alloc",
    "pswpin",
    "pswpout",
];

/// The counters as they were at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmstat {
    start: BTreeMap<String, u64>,
}

impl Vmstat {
    /// Counts from now on.
    pub fn new(kernel: &dyn Kernel) -> Vmstat {
        Vmstat { start: read(kernel) }
    }

    /// Into a statistics tree, under `kernel`. Nothing where the file cannot be read.
    pub fn collect(&self, kernel: &dyn Kernel, stats: &mut Stats) {
        for (name, now) in read(kernel) {
            let since = now.saturating_sub(self.start.get(&name).copied().unwrap_or(0));
            let is_pages = name.starts_with("pg") || name.starts_with("psw") || name == "numa_pages_migrated";
            let unit = if is_pages { Unit::Pages } else { Unit::Count };
            stats.count(format!("kernel.{name}"), since, unit);
        }
    }
}

fn read(kernel: &dyn Kernel) -> BTreeMap<String, u64> {
    let text = read_text(kernel, "/proc/vmstat").unwrap_or_default();
    let wanted = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| wanted(name))
        .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Rooted;

    #[test]
    fn counters_are_reported_as_differences() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let file = root.path().join("proc/vmstat");
        let kernel = Rooted::new(root.path());
        std::fs::write(&file, "nr_free_pages 5\npgmigrate_success 100\nthp_split_page 3\n").unwrap();
        let vmstat = Vmstat::new(&kernel);
        std::fs::write(&file, "pgmigrate_success 160\nthp_split_page 3\npgdemote_kswapd 7\nbad\n").unwrap();
        let mut stats = Stats::new();
        vmstat.collect(&kernel, &mut stats);
        let counted: Vec<_> = stats.under("kernel").map(|(name, stat)| (name, stat.value.as_f64())).collect();
        assert_eq!(
            counted,
            [("pgdemote_kswapd", 7.0), ("pgmigrate_success", 160.0 - 100.0), ("thp_split_page", 0.0)]
        );
        std::fs::remove_file(&file).unwrap();
        let mut nothing = Stats::new();
        vmstat.collect(&kernel, &mut nothing);
        assert_eq!(nothing, Stats::new());
    }
}
