//! Nodes grouped into tiers, fastest first, as policies see them.

use super::nodes::{self, LOCAL_DISTANCE, Node, Speed};
use super::swap::Swap;
use super::text;
use crate::kernel::{Kernel, read_text};
use std::collections::BTreeMap;
use std::fmt;
use terrace_model::{Bytes, BytesPerSec, TierId, Time};
use terrace_policy::{Tier, Topology};

const MEMORY_TIERS: &str = "/sys/devices/virtual/memory_tiering";

/// Nodes whose latencies differ by no more than this factor share a tier: less is the spread among the sockets and
/// channels of one kind of memory, remote CXL and NVM begin at about twice DRAM's latency.
const SAME_TIER: f64 = 1.25;

/// Latency of local DRAM, where the firmware states nothing. Terrace's assumption: current servers lie between 80 and 120
/// ns.
const ASSUMED_LATENCY: Time = Time::from_nanos(100);
/// Bandwidth of local DRAM, where the firmware states nothing. Terrace's assumption: one channel of DDR4-2666 carries 21.3
/// GB/s.
const ASSUMED_BANDWIDTH: BytesPerSec = BytesPerSec(20e9);
/// A fault that finds its page compressed, entry and decompression together. Terrace's assumption.
const COMPRESSED_LATENCY: Time = Time::from_nanos(5_000);
/// One processor compressing or decompressing pages. Terrace's assumption.
const COMPRESSED_BANDWIDTH: BytesPerSec = BytesPerSec(1e9);

/// The name of the tier of compressed memory.
pub const COMPRESSED: &str = "compressed";

/// What the nodes were distinguished by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupedBy {
    /// The kernel's memory tiers: it promotes and demotes between the same groups.
    Kernel,
    /// Latencies that the firmware states (HMAT); the kernel holds the nodes for one tier.
    Latency,
    /// Distances of nodes without processors; the kernel holds the nodes for one tier, and the firmware states no latencies.
    Distance,
    /// No fact distinguishes the tiers, or there is only one.
    Nothing,
}

impl fmt::Display for GroupedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupedBy::Kernel => "the kernel's memory tiers",
            GroupedBy::Latency => "latencies from the firmware (HMAT)",
            GroupedBy::Distance => "distances of nodes without processors",
            GroupedBy::Nothing => "nothing: all memory is of one kind",
        })
    }
}

/// The tiers of this machine, and which nodes each is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct TierMap {
    /// The tiers as policies see them, fastest first.
    pub topology: Topology,
    /// The nodes of each tier, ascending; none for compressed memory, which has no node.
    pub nodes: Vec<Vec<u32>>,
    /// The tier of each node by its number; none for numbers without a node and nodes without memory.
    pub tier_of_node: Vec<Option<TierId>>,
    /// Whether latency and bandwidth of each tier come from the firmware rather than from an assumption.
    pub stated_speed: Vec<bool>,
    /// What the nodes were distinguished by.
    pub grouped_by: GroupedBy,
}

impl TierMap {
    /// The tiers as they are now.
    pub fn discover(kernel: &dyn Kernel) -> TierMap {
        TierMap::of(&nodes::discover(kernel), &kernel_tiers(kernel), &Swap::discover(kernel))
    }

    /// The tiers of these nodes. `kernel_tiers` holds the kernel's tiers by their number, lower being faster. Swap
    /// makes a second tier of its own where the nodes are one tier and it stays in memory, compressed.
    pub fn of(nodes: &[Node], kernel_tiers: &BTreeMap<u32, Vec<u32>>, swap: &Swap) -> TierMap {
        let nodes: Vec<&Node> = nodes.iter().filter(|node| node.has_memory()).collect();
        let (groups, grouped_by) = groups(&nodes, kernel_tiers);
        let names = names(&groups);
        let mut map = TierMap {
            topology: Topology { tiers: groups.iter().zip(names).map(|(of, name)| tier(name, of)).collect() },
            nodes: groups.iter().map(|group| group.iter().map(|node| node.id).collect()).collect(),
            tier_of_node: vec![None; nodes.iter().map(|node| node.id as usize + 1).max().unwrap_or(0)],
            stated_speed: groups.iter().map(|group| speed_of(group).read_latency.is_some()).collect(),
            grouped_by,
        };
        for (tier, nodes) in map.nodes.iter().enumerate() {
            for node in nodes {
                map.tier_of_node[*node as usize] = Some(TierId(tier as u8));
            }
        }
        let (capacity, used) = compressed(swap);
        if map.topology.tiers.len() == 1 && capacity.0 > 0 {
            map.topology.tiers.push(Tier {
                name: COMPRESSED.to_owned(),
                capacity,
                used,
                read_latency: COMPRESSED_LATENCY,
                write_latency: COMPRESSED_LATENCY,
                read_bandwidth: COMPRESSED_BANDWIDTH,
                write_bandwidth: COMPRESSED_BANDWIDTH,
            });
            map.nodes.push(Vec::new());
            map.stated_speed.push(false);
        }
        map
    }

    /// The tier of a node.
    pub fn tier_of(&self, node: u32) -> Option<TierId> {
        self.tier_of_node.get(node as usize).copied().flatten()
    }

    /// The tier that every page lies in which is in memory, where there is one node.
    pub fn only_tier(&self) -> Option<TierId> {
        (self.nodes.iter().map(Vec::len).sum::<usize>() == 1).then_some(TierId(0))
    }

    /// The tier of compressed memory.
    pub fn compressed(&self) -> Option<TierId> {
        self.topology.find(COMPRESSED)
    }

    /// Brings capacities and what is used up to date; which tiers there are stays. The nodes are as they were just found.
    pub fn refresh(&mut self, kernel: &dyn Kernel, nodes: &[Node]) {
        let (compressed, swap_used) = compressed(&Swap::discover(kernel));
        for (tier, of) in self.topology.tiers.iter_mut().zip(&self.nodes) {
            let mine = || nodes.iter().filter(|node| of.contains(&node.id));
            (tier.capacity, tier.used) = if of.is_empty() {
                (compressed, swap_used)
            } else {
                (sum(mine().map(|node| node.total)), sum(mine().map(Node::used)))
            };
        }
    }
}

/// The kernel's memory tiers by number, lower being faster; none on kernels without them (before 6.1).
pub fn kernel_tiers(kernel: &dyn Kernel) -> BTreeMap<u32, Vec<u32>> {
    let names = kernel.list(MEMORY_TIERS.as_ref()).unwrap_or_default();
    let tier = |name: &String| {
        let number = name.strip_prefix("memory_tier")?.parse().ok()?;
        let nodes = read_text(kernel, format!("{MEMORY_TIERS}/{name}/nodelist")).ok()?;
        Some((number, text::numbers(&nodes)))
    };
    names.iter().filter_map(tier).filter(|(_, nodes)| !nodes.is_empty()).collect()
}

fn sum(amounts: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(amounts.fold(0, |sum, amount| sum.saturating_add(amount.0)))
}

fn compressed(swap: &Swap) -> (Bytes, Bytes) {
    (sum(swap.compressed().map(|area| area.size)), sum(swap.compressed().map(|area| area.used)))
}

type Groups<'a> = Vec<Vec<&'a Node>>;

/// What the kernel distinguishes counts, for it acts on it. Where it sees one tier, the firmware's figures count, since
/// early kernels with tiers do not read it; then that nodes without processors are far.
fn groups<'a>(nodes: &[&'a Node], kernel_tiers: &BTreeMap<u32, Vec<u32>>) -> (Groups<'a>, GroupedBy) {
    let of_kernel: Groups<'_> = kernel_tiers
        .values()
        .map(|tier| nodes.iter().copied().filter(|node| tier.contains(&node.id)).collect::<Vec<_>>())
        .filter(|group| !group.is_empty())
        .collect();
    if of_kernel.len() > 1 {
        return (of_kernel, GroupedBy::Kernel);
    }
    let latencies = |node: &Node| Some(node.speed.read_latency?.as_nanos());
    if let Some(groups) = by_rank(nodes, latencies, SAME_TIER) {
        return (groups, GroupedBy::Latency);
    }
    let processors = || nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| node.id);
    let distances = |node: &Node| {
        let near = if node.cpus.is_empty() { node.distance_from(processors())? } else { LOCAL_DISTANCE };
        Some(f64::from(near))
    };
    match by_rank(nodes, distances, 1.0) {
        Some(groups) => (groups, GroupedBy::Distance),
        None if nodes.is_empty() => (Vec::new(), GroupedBy::Nothing),
        None => (vec![nodes.to_vec()], GroupedBy::Nothing),
    }
}

/// Nodes in ascending order of `rank`, in groups whose ranks are at most `spread` times the group's first. None unless all
/// nodes have a rank and there are two groups.
fn by_rank<'a>(nodes: &[&'a Node], rank: impl Fn(&Node) -> Option<f64>, spread: f64) -> Option<Groups<'a>> {
    let mut ranked =
        nodes.iter().map(|node| Some((rank(node)?, *node))).collect::<Option<Vec<(f64, &Node)>>>()?;
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut groups: Vec<(f64, Vec<&Node>)> = Vec::new();
    for (rank, node) in ranked {
        match groups.last_mut() {
            Some((first, group)) if rank <= *first * spread => group.push(node),
            _ => groups.push((rank, vec![node])),
        }
    }
    let groups: Groups<'_> = groups
        .into_iter()
        .map(|(_, mut group)| {
            group.sort_by_key(|node| node.id);
            group
        })
        .collect();
    (groups.len() > 1).then_some(groups)
}

/// The first tier with processors is `dram`; of memory-only tiers the single faster one is `fast` and the single slower
/// one `slow`. All others are called by their first node, so that no two have one name.
fn names(groups: &[Vec<&Node>]) -> Vec<String> {
    let dram = groups.iter().position(|group| group.iter().any(|node| !node.cpus.is_empty())).unwrap_or(0);
    let name = |at: usize, group: &Vec<&Node>| match at {
        _ if at == dram => "dram".to_owned(),
        0 if dram == 1 => "fast".to_owned(),
        _ if at == dram + 1 && groups.len() == dram + 2 => "slow".to_owned(),
        _ => format!("node{}", group[0].id),
    };
    groups.iter().enumerate().map(|(at, group)| name(at, group)).collect()
}

/// The slowest node's latency and the bandwidth of all together; none where any node's is unknown.
fn speed_of(group: &[&Node]) -> Speed {
    let latency = |of: fn(&Speed) -> Option<Time>| {
        group.iter().map(|node| of(&node.speed)).try_fold(Time::ZERO, |slowest, one| Some(slowest.max(one?)))
    };
    let bandwidth = |of: fn(&Speed) -> Option<BytesPerSec>| {
        let sum = group.iter().map(|node| of(&node.speed)).try_fold(0.0, |sum, one| Some(sum + one?.0));
        sum.map(BytesPerSec)
    };
    Speed {
        read_latency: latency(|speed| speed.read_latency),
        write_latency: latency(|speed| speed.write_latency),
        read_bandwidth: bandwidth(|speed| speed.read_bandwidth),
        write_bandwidth: bandwidth(|speed| speed.write_bandwidth),
    }
}

fn tier(name: String, group: &[&Node]) -> Tier {
    let speed = speed_of(group);
    // A memory-only node is assumed to be as much slower as it is farther.
    let far = |node: &Node| match node.cpus.is_empty() {
        true => node.distances.iter().filter(|(id, _)| **id != node.id).map(|(_, far)| *far).min(),
        false => None,
    };
    let distance = group.iter().filter_map(|node| far(node)).max().unwrap_or(LOCAL_DISTANCE);
    let slower = f64::from(distance) / f64::from(LOCAL_DISTANCE);
    let latency = Time::from_nanos_f64(ASSUMED_LATENCY.as_nanos() * slower);
    let bandwidth = BytesPerSec(ASSUMED_BANDWIDTH.0 / slower.max(0.1));
    let read_latency = speed.read_latency.unwrap_or(latency);
    let read_bandwidth = speed.read_bandwidth.unwrap_or(bandwidth);
    Tier {
        name,
        capacity: sum(group.iter().map(|node| node.total)),
        used: sum(group.iter().map(|node| node.used())),
        read_latency,
        write_latency: speed.write_latency.unwrap_or(read_latency),
        read_bandwidth,
        write_bandwidth: speed.write_bandwidth.unwrap_or(read_bandwidth),
    }
}
