//! The nodes of memory of this machine, grouped into tiers, the fastest first: what a process may know without any right.
//!
//! The kernel's memory tiers count (Linux 6.1). Where it has one, nodes without processors are the slow tier, as far
//! memory is; where all nodes have processors there is one tier.

use std::collections::BTreeMap;
use std::fs;
use terrace_model::{Bytes, BytesPerSec, Time};
use terrace_policy::{Tier, Topology};

const NODES: &str = "/sys/devices/system/node";
const MEMORY_TIERS: &str = "/sys/devices/virtual/memory_tiering";
/// What interleaving gives to each node in its turn, where somebody has set it (Linux 6.9).
const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// The tiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    /// As policies see them. Speeds are not known.
    pub topology: Topology,
    /// Nodes of each tier, ascending.
    pub nodes: Vec<Vec<u32>>,
    /// What each tier gets of interleaved pages.
    pub weights: Vec<u64>,
}

/// One node: whether it has processors, its memory and how much is free, in KiB, and its weight.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    has_processors: bool,
    total: u64,
    free: u64,
    weight: u64,
}

impl Tiers {
    /// Discovers the tiers of this machine.
    pub fn discover() -> Tiers {
        let text = |path: String| fs::read_to_string(path).unwrap_or_default();
        let with_memory = numbers(&text(format!("{NODES}/has_memory")));
        let with_processors = numbers(&text(format!("{NODES}/has_cpu")));
        let node = |id: u32| {
            let memory = text(format!("{NODES}/node{id}/meminfo"));
            let figure = |name: &str| figure(&memory, name);
            let free = figure("MemFree:") + figure("Inactive(file):");
            let weight = text(format!("{WEIGHTS}/node{id}")).trim().parse().unwrap_or(1);
            let has_processors = with_processors.contains(&id);
            (id, Node { has_processors, total: figure("MemTotal:"), free, weight })
        };
        let entries = fs::read_dir(MEMORY_TIERS).into_iter().flatten().flatten();
        let tier = |entry: fs::DirEntry| {
            let number = entry.file_name().to_str()?.strip_prefix("memory_tier")?.parse::<u32>().ok()?;
            Some((number, numbers(&text(format!("{}/nodelist", entry.path().display())))))
        };
        Tiers::of(&with_memory.into_iter().map(node).collect(), entries.filter_map(tier).collect())
    }

    fn of(nodes: &BTreeMap<u32, Node>, of_kernel: BTreeMap<u32, Vec<u32>>) -> Tiers {
        let known =
            |group: Vec<u32>| group.into_iter().filter(|id| nodes.contains_key(id)).collect::<Vec<_>>();
        let mut groups: Vec<Vec<u32>> =
            of_kernel.into_values().map(known).filter(|group| !group.is_empty()).collect();
        if groups.len() < 2 {
            let (near, far): (Vec<u32>, Vec<u32>) = nodes.keys().partition(|id| nodes[id].has_processors);
            groups = [near, far].into_iter().filter(|group| !group.is_empty()).collect();
        }
        let sum = |group: &Vec<u32>, of: fn(&Node) -> u64| group.iter().map(|id| of(&nodes[id])).sum::<u64>();
        let tier = |(at, group): (usize, &Vec<u32>)| {
            let (total, free) = (sum(group, |node| node.total), sum(group, |node| node.free));
            Tier {
                name: format!("tier{at}"),
                capacity: Bytes(total << 10),
                used: Bytes(total.saturating_sub(free) << 10),
                read_latency: Time::ZERO,
                write_latency: Time::ZERO,
                read_bandwidth: BytesPerSec(0.0),
                write_bandwidth: BytesPerSec(0.0),
            }
        };
        Tiers {
            topology: Topology { tiers: groups.iter().enumerate().map(tier).collect() },
            weights: groups.iter().map(|group| sum(group, |node| node.weight)).collect(),
            nodes: groups,
        }
    }

    /// Share of interleaved pages that the first tier gets, of the first two.
    pub fn fast_share(&self) -> f64 {
        match self.weights[..] {
            [fast, slow, ..] if fast + slow > 0 => fast as f64 / (fast + slow) as f64,
            _ => 1.0,
        }
    }
}

/// `0-2,5` and the like.
fn numbers(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// The number behind `Node 0 MemTotal:`.
fn figure(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.split_once(name)).map(|(_, rest)| rest);
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(with_processors: [bool; 3]) -> BTreeMap<u32, Node> {
        let node = |has_processors| Node { has_processors, total: 100, free: 40, weight: 2 };
        (0..).zip(with_processors.map(node)).collect()
    }

    #[test]
    fn the_kernel_s_tiers_count_and_then_processors() {
        let by_kernel = BTreeMap::from([(67, vec![0]), (4, vec![1, 2, 9])]);
        let tiers = Tiers::of(&nodes([true; 3]), by_kernel);
        assert_eq!(
            (tiers.nodes.as_slice(), tiers.weights.as_slice()),
            (&[vec![1, 2], vec![0]][..], &[4, 2][..])
        );
        assert_eq!(tiers.topology.tiers[0].free(), Bytes(80 << 10));
        assert!((tiers.fast_share() - 2.0 / 3.0).abs() < 1e-9);
        let one = BTreeMap::from([(4, vec![0, 1, 2])]);
        assert_eq!(Tiers::of(&nodes([true, true, false]), one).nodes, [vec![0, 1], vec![2]]);
        let alike = Tiers::of(&nodes([true; 3]), BTreeMap::new());
        assert_eq!((alike.nodes.len(), alike.fast_share()), (1, 1.0));
    }

    #[test]
    fn this_machine_has_a_tier() {
        let tiers = Tiers::discover();
        assert!(tiers.nodes.is_empty() || tiers.topology.tiers[0].capacity.0 > 0);
        assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!((numbers(""), numbers("x")), (vec![], vec![]));
        assert_eq!(figure("Node 0 MemTotal:  123 kB\nNode 0 MemFree: 5 kB\n", "MemFree:"), 5);
    }
}
