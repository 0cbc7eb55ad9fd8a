//! NUMA nodes: their processors, their memory, and how far and fast it is.

use super::text;
use crate::kernel::{Kernel, read_text};
use std::collections::BTreeMap;
use std::ops::Range;
use terrace_model::{Bytes, BytesPerSec, Time};

const NODES: &str = "/sys/devices/system/node";
/// More nodes than any kernel is built for.
const MOST_NODES: u32 = 1024;
/// The distance of a node from itself.
pub const LOCAL_DISTANCE: u32 = 10;

/// A NUMA node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The kernel's number for it.
    pub id: u32,
    /// Processors of the node; none where it is memory only.
    pub cpus: Vec<u32>,
    /// Memory of the node; 0 where it has processors only.
    pub total: Bytes,
    /// What a new page could have at once: free memory, and file pages not used lately, which the kernel gives up first.
    pub free: Bytes,
    /// The node's distance from each node, as the firmware states it: 10 is local, 20 is said to be twice as far.
    pub distances: BTreeMap<u32, u32>,
    /// How fast its memory is from the nearest processors, where the firmware states it (ACPI HMAT).
    pub speed: Speed,
}

/// How fast memory is. What is not known is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// Latency of a read, unloaded.
    pub read_latency: Option<Time>,
    /// Latency of a write, unloaded.
    pub write_latency: Option<Time>,
    /// Bandwidth of reads.
    pub read_bandwidth: Option<BytesPerSec>,
    /// Bandwidth of writes.
    pub write_bandwidth: Option<BytesPerSec>,
}

impl Node {
    /// Whether it has memory.
    pub fn has_memory(&self) -> bool {
        self.total.0 > 0
    }

    /// What is taken.
    pub fn used(&self) -> Bytes {
        Bytes(self.total.0.saturating_sub(self.free.0))
    }

    /// The node's distance from the nearest of `others`.
    pub fn distance_from(&self, others: impl IntoIterator<Item = u32>) -> Option<u32> {
        others.into_iter().filter_map(|other| self.distances.get(&other).copied()).min()
    }
}

/// Every node, ascending. A kernel without NUMA has one, number 0, with all there is.
pub fn discover(kernel: &dyn Kernel) -> Vec<Node> {
    let names = kernel.list(NODES.as_ref()).unwrap_or_default();
    let id = |name: &String| name.strip_prefix("node")?.parse().ok().filter(|id| *id < MOST_NODES);
    let mut ids: Vec<u32> = names.iter().filter_map(id).collect();
    ids.sort_unstable();
    if ids.is_empty() {
        return vec![whole_machine(kernel)];
    }
    // A node's distances are listed by the nodes that are on line, in their order.
    let online = read_text(kernel, format!("{NODES}/online"))
        .map_or_else(|_| ids.clone(), |text| text::numbers(&text));
    ids.iter().map(|id| node(kernel, *id, &online)).collect()
}

/// Where a node's memory lies, in bytes of physical address, by zone; holes included.
pub fn physical(kernel: &dyn Kernel, node: u32) -> Vec<Range<u64>> {
    let text = read_text(kernel, "/proc/zoneinfo").unwrap_or_default();
    let of_node = format!("{node},");
    let zones = text.split("Node ").filter(|zone| zone.starts_with(&of_node));
    let mut ranges: Vec<Range<u64>> = zones
        .filter_map(|zone| {
            let number = |key: &str| {
                let value = zone.lines().find_map(|line| line.trim().strip_prefix(key))?;
                value.trim().parse::<u64>().ok()
            };
            let (start, pages) = (number("start_pfn:")?, number("spanned")?);
            let bytes = |page: u64| page.checked_mul(4096);
            Some(bytes(start)?..bytes(start.checked_add(pages)?)?).filter(|range| !range.is_empty())
        })
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

fn node(kernel: &dyn Kernel, id: u32, online: &[u32]) -> Node {
    let read = |name: &str| read_text(kernel, format!("{NODES}/node{id}/{name}")).unwrap_or_default();
    let (total, free) = memory(&read("meminfo"));
    let distances = read("distance");
    let distances = distances.split_whitespace().map_while(|distance| distance.parse().ok());
    Node {
        id,
        cpus: text::numbers(&read("cpulist")),
        total,
        free,
        distances: online.iter().copied().zip(distances).collect(),
        speed: speed(&read),
    }
}

fn whole_machine(kernel: &dyn Kernel) -> Node {
    let read = |path: &str| read_text(kernel, path).unwrap_or_default();
    let (total, free) = memory(&read("/proc/meminfo"));
    Node {
        id: 0,
        cpus: text::numbers(&read("/sys/devices/system/cpu/online")),
        total,
        free,
        distances: BTreeMap::from([(0, LOCAL_DISTANCE)]),
        speed: Speed::default(),
    }
}

/// Total and free in the text of a `meminfo`, of a node or of the machine.
pub fn memory(meminfo: &str) -> (Bytes, Bytes) {
    let amount = |key| text::kilobytes(meminfo, key).unwrap_or_default().0;
    let total = amount("MemTotal");
    let free = amount("MemFree").saturating_add(amount("Inactive(file)"));
    (Bytes(total), Bytes(free.min(total)))
}

/// What HMAT says in sysfs: latencies in nanoseconds, bandwidths in MiB/s; 0 where it says nothing.
fn speed(read: &dyn Fn(&str) -> String) -> Speed {
    // Class 1 is the nearest node with processors, class 0 may be another initiator, such as a network card.
    let figure = |name: &str| {
        let of = |class: &str| text::number(&read(&format!("{class}/initiators/{name}")));
        of("access1").or_else(|| of("access0")).filter(|figure| *figure > 0)
    };
    let latency = |name| figure(name).map(Time::from_nanos);
    let bandwidth = |name| figure(name).map(|mib| BytesPerSec(mib as f64 * f64::from(1 << 20)));
    Speed {
        read_latency: latency("read_latency"),
        write_latency: latency("write_latency"),
        read_bandwidth: bandwidth("read_bandwidth"),
        write_bandwidth: bandwidth("write_bandwidth"),
    }
}
