//! What a machine offers as a document for programs.

use super::{Diagnosis, Measurement};
use crate::facts::{Facts, Node};
use serde::Serialize;
use terrace_policy::Tier;

/// All that was found of a machine, as a document.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    kernel: Option<&'a str>,
    nodes: Vec<NodeEntry>,
    /// Fastest first.
    tiers: Vec<TierEntry<'a>>,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

#[derive(Debug, Serialize)]
struct NodeEntry {
    node: u32,
    cpus: Vec<u32>,
    total_bytes: u64,
    free_bytes: u64,
    /// The firmware's value; null where the firmware states none.
    read_latency_ns: Option<f64>,
    write_latency_ns: Option<f64>,
    read_bytes_per_second: Option<f64>,
    write_bytes_per_second: Option<f64>,
    /// Null unless asked for.
    measured_latency_ns: Option<f64>,
    measured_bytes_per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct TierEntry<'a> {
    name: &'a str,
    /// Empty for compressed memory.
    nodes: &'a [u32],
    capacity_bytes: u64,
    used_bytes: u64,
    read_latency_ns: f64,
    write_latency_ns: f64,
    read_bytes_per_second: f64,
    write_bytes_per_second: f64,
    /// The four above are assumed, for the firmware states nothing.
    assumed: bool,
}

impl<'a> Document<'a> {
    /// `measured` is what the diagnosis was made with.
    pub fn of(facts: &'a Facts, measured: &[Measurement], diagnosis: &'a Diagnosis) -> Document<'a> {
        let node = |node: &Node| {
            let speed = &node.speed;
            let figures = measured.iter().find(|(id, _)| *id == node.id);
            let figures = figures.and_then(|(_, figures)| figures.as_ref().ok());
            NodeEntry {
                node: node.id,
                cpus: node.cpus.clone(),
                total_bytes: node.total.0,
                free_bytes: node.free.0,
                read_latency_ns: speed.read_latency.map(|time| time.as_nanos()),
                write_latency_ns: speed.write_latency.map(|time| time.as_nanos()),
                read_bytes_per_second: speed.read_bandwidth.map(|rate| rate.0),
                write_bytes_per_second: speed.write_bandwidth.map(|rate| rate.0),
                measured_latency_ns: figures.map(|figures| figures.latency.as_nanos()),
                measured_bytes_per_second: figures.map(|figures| figures.bandwidth.0),
            }
        };
        let map = &facts.tiers;
        let tier = |(at, tier): (usize, &'a Tier)| TierEntry {
            name: &tier.name,
            nodes: &map.nodes[at],
            capacity_bytes: tier.capacity.0,
            used_bytes: tier.used.0,
            read_latency_ns: tier.read_latency.as_nanos(),
            write_latency_ns: tier.write_latency.as_nanos(),
            read_bytes_per_second: tier.read_bandwidth.0,
            write_bytes_per_second: tier.write_bandwidth.0,
            assumed: !map.stated_speed[at],
        };
        Document {
            kernel: facts.release.known().map(|release| release.text.as_str()),
            nodes: facts.nodes.iter().map(node).collect(),
            tiers: map.topology.tiers.iter().enumerate().map(tier).collect(),
            diagnosis,
        }
    }
}
