//! Page sizes, and what the kernel itself does about placement.

use super::fact::{self, Fact};
use super::text;
use crate::kernel::{Kernel, Probe};
use std::collections::BTreeMap;
use terrace_model::Bytes;

const POOLS: &str = "/sys/kernel/mm/hugepages";
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";
/// Where weights are set, for the whole machine.
pub(crate) const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// Huge pages kept for programs that ask for them by name (hugetlbfs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Size of each page.
    pub size: Bytes,
    /// Pages in the pool.
    pub pages: u64,
    /// Pages of the pool that are not in use.
    pub free: u64,
}

/// Transparent huge pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransparentHugePages {
    /// `always`, `madvise` or `never`.
    pub mode: String,
    /// How hard a fault tries to get one.
    pub defrag: Option<String>,
    /// The mode of shared memory.
    pub shared: Option<String>,
    /// The modes of sizes other than the largest, smallest first; none before kernel 6.8.
    pub sizes: Vec<(Bytes, String)>,
}

/// What the kernel does with pages of its own accord.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Bits of `numa_balancing`: 1 moves pages to the processors that use them, 2 promotes between tiers.
    pub numa_balancing: Fact<u64>,
    /// Whether reclaim moves pages to a slower node instead of discarding them.
    pub demotion: Fact<bool>,
    /// Weights of nodes for interleaving.
    pub weights: Fact<BTreeMap<u32, u64>>,
    /// Advice about another process's pages.
    pub process_madvise: Fact<()>,
}

/// Page sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// The pools, smallest pages first.
    pub pools: Fact<Vec<Pool>>,
    /// Transparent ones.
    pub transparent: Fact<TransparentHugePages>,
    /// Joining base pages on request.
    pub collapse: Fact<()>,
}

/// `hugepages-2048kB` as an amount.
fn size_of_folder(name: &str) -> Option<Bytes> {
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

fn by_size(names: &[String]) -> BTreeMap<Bytes, &str> {
    names.iter().filter_map(|name| Some((size_of_folder(name)?, name.as_str()))).collect()
}

impl HugePages {
    /// Reads them.
    pub fn discover(kernel: &dyn Kernel) -> HugePages {
        let pool = |size: Bytes, folder: &str| {
            let count = |file: &str| {
                fact::file_as(kernel, &format!("{POOLS}/{folder}/{file}"), text::number).known().copied()
            };
            Pool {
                size,
                pages: count("nr_hugepages").unwrap_or(0),
                free: count("free_hugepages").unwrap_or(0),
            }
        };
        let pools = fact::folder(kernel, POOLS)
            .map(|names| by_size(&names).into_iter().map(|(size, name)| pool(size, name)).collect());
        HugePages {
            pools,
            transparent: transparent(kernel),
            collapse: fact::tried(kernel, Probe::Collapse, "MADV_COLLAPSE (6.1 was the first)").map(|_| ()),
        }
    }
}

fn transparent(kernel: &dyn Kernel) -> Fact<TransparentHugePages> {
    let mode = |file: &str| {
        fact::file_as(kernel, &format!("{TRANSPARENT}/{file}"), |text| text::chosen(text).map(str::to_owned))
    };
    let names = kernel.list(TRANSPARENT.as_ref()).unwrap_or_default();
    let of_size =
        |(size, name): (Bytes, &str)| Some((size, mode(&format!("{name}/enabled")).known()?.clone()));
    mode("enabled").map(|enabled| TransparentHugePages {
        mode: enabled,
        defrag: mode("defrag").known().cloned(),
        shared: mode("shmem_enabled").known().cloned(),
        sizes: by_size(&names).into_iter().filter_map(of_size).collect(),
    })
}

impl Placement {
    /// Reads them.
    pub fn discover(kernel: &dyn Kernel) -> Placement {
        let weight = |name: &String| {
            let node = name.strip_prefix("node")?.parse().ok()?;
            let weight = fact::file_as(kernel, &format!("{WEIGHTS}/{name}"), text::number);
            Some((node, *weight.known()?))
        };
        Placement {
            numa_balancing: fact::file_as(kernel, "/proc/sys/kernel/numa_balancing", text::number),
            demotion: fact::file_as(kernel, "/sys/kernel/mm/numa/demotion_enabled", text::switch),
            weights: fact::folder(kernel, WEIGHTS).map(|names| names.iter().filter_map(weight).collect()),
            process_madvise: fact::tried(
                kernel,
                Probe::ProcessMadvise,
                "process_madvise (5.10 was the first)",
            )
            .map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_from_names() {
        assert_eq!(size_of_folder("hugepages-2048kB"), Some(Bytes::mib(2)));
        assert_eq!(size_of_folder("khugepaged"), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let text = String::from_utf8_lossy(&bytes);
            size_of_folder(&text);
            size_of_folder(&format!("hugepages-{text}kB"));
        }
    }
}
