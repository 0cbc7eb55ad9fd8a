//! What a journal may name: exactly what Terrace itself changes. A journal that names anything else is not Terrace's.

use super::{Change, GIANT_PAGES, Growing, Kdamonds};
use crate::access::{KDAMONDS, TRACING};
use crate::facts::paging::WEIGHTS;
use std::path::Path;

/// Pages of 1 GiB that a machine can have: 1 PiB.
const MOST_GIANT_PAGES: u64 = 1 << 20;
/// Weights of nodes, as the kernel takes them.
const WEIGHT: std::ops::RangeInclusive<u32> = 1..=255;

/// Whether a run of the process `pid` may have made this change; if not, why.
pub(super) fn check(change: &Change, pid: u32) -> Result<(), String> {
    match change {
        Change::Setting { path, before, after } => {
            let node = under(path, &format!("{WEIGHTS}/node"));
            let is_pool = path == Path::new(GIANT_PAGES);
            if node.and_then(digits).is_none() && !is_pool {
                return Err(format!("{} is nothing that Terrace sets", path.display()));
            }
            for value in [before, after] {
                if !digits(value).is_some_and(|number| is_pool || WEIGHT.contains(&number)) {
                    return Err(format!("\"{}\" is no value of {}", value.escape_debug(), path.display()));
                }
            }
            Ok(())
        }
        Change::Folder { path } => match under(path, &format!("{TRACING}/instances/terrace-")) {
            Some(number) if digits(number) == Some(pid) => Ok(()),
            _ => Err(format!("{} is no folder that this run made", path.display())),
        },
        Change::Damon { path, as_what } => {
            if path != Path::new(KDAMONDS) {
                return Err(format!("{} is not where DAMON is set up", path.display()));
            }
            let known = [Kdamonds::watching(), Kdamonds::moving()];
            if known.contains(as_what) { Ok(()) } else { Err("Terrace has no such use for DAMON".to_owned()) }
        }
        Change::Pool { pages, growing } => {
            let Growing { from, by } = growing.unwrap_or(Growing { from: 0, by: 0 });
            match [*pages, from, by].into_iter().find(|count| *count > MOST_GIANT_PAGES) {
                Some(count) => Err(format!("no machine has {count} pages of 1 GiB")),
                None => Ok(()),
            }
        }
    }
}

/// The rest of a path after exactly this beginning.
fn under<'a>(path: &'a Path, beginning: &str) -> Option<&'a str> {
    path.to_str()?.strip_prefix(beginning)
}

/// A number as Terrace and the kernel write it: digits and nothing else.
fn digits(text: &str) -> Option<u32> {
    let number = text.parse::<u32>().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(path: &str, before: &str, after: &str) -> Change {
        Change::Setting { path: path.into(), before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn what_terrace_sets_passes_and_nothing_else_does() {
        let weight = format!("{WEIGHTS}/node1");
        let instance = format!("{TRACING}/instances/terrace-42");
        let folder = |path: &str| Change::Folder { path: path.into() };
        let damon = |path: &str, as_what| Change::Damon { path: path.into(), as_what };
        for good in [
            setting(&weight, "1", "255"),
            setting(GIANT_PAGES, "0", "300"),
            folder(&instance),
            damon(KDAMONDS, Kdamonds::watching()),
            damon(KDAMONDS, Kdamonds::moving()),
            Change::Pool { pages: 3, growing: Some(Growing { from: 7, by: 2 }) },
        ] {
            check(&good, 42).unwrap();
        }
        let many = Kdamonds { threads: 1 << 40, operations: "fvaddr".to_owned() };
        let other = Kdamonds { threads: 1, operations: "fvaddr\n".to_owned() };
        for bad in [
            setting("/home/user/.profile", "1", "2"),
            setting("/etc/passwd", "1", "2"),
            setting(GIANT_PAGES, "0", "-1"),
            setting("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0", "1"),
            setting("/proc/sys/kernel/core_pattern", "1", "2"),
            setting("/sys/kernel/mm/transparent_hugepage/enabled", "always", "never"),
            setting(&format!("{WEIGHTS}/node1/../../../x"), "1", "2"),
            setting(&format!("{WEIGHTS}/../x/node1"), "1", "2"),
            setting(&format!("{WEIGHTS}/node"), "1", "2"),
            setting(&format!("{WEIGHTS}/node+1"), "1", "2"),
            setting(&format!("/tmp{WEIGHTS}/node1"), "1", "2"),
            setting(&weight, "", "2"),
            setting(&weight, "0", "2"),
            setting(&weight, "256", "2"),
            setting(&weight, "1\n2", "2"),
            setting(&weight, "1", "|/tmp/x"),
            folder("/home/user/empty"),
            folder(&format!("{TRACING}/instances/terrace-43")),
            folder(&format!("{TRACING}/instances/someone")),
            folder(&format!("{instance}/../someone")),
            damon("/tmp/kdamonds", Kdamonds::watching()),
            damon(KDAMONDS, many),
            damon(KDAMONDS, other),
            Change::Pool { pages: 1 << 40, growing: None },
            Change::Pool { pages: 1, growing: Some(Growing { from: 0, by: u64::MAX }) },
        ] {
            assert!(check(&bad, 42).is_err(), "{bad:?}");
        }
    }
}
