//! `results.json`, schema 2: a stable document for programs.
//!
//! Keys are only ever added within a schema. Order is fixed: fields as declared here, statistics by name, so that two
//! equal comparisons are byte-identical apart from the field `host`, which holds all that the computer and the day
//! decide. A number that JSON cannot hold (infinite, not a number) is `null`.
//!
//! In schema 1 the fields of `host` lay in each run and at the top.

use crate::conclusion::Conclusion;
use crate::pools::Pools;
use crate::run::{MachineTier, RunRecord, TimelinePoint};
use crate::{
    Comparison, Contiguity, HeatMap, InputSummary, MachineLedger, Mix, ReuseCurves, SpeedUp, Tiering,
    TranslationCoherence, VirtualMachines,
};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use terrace_model::{ContiguityPoint, Stats, Unit, Value};

/// Version of the document's shape.
const SCHEMA: u32 = 2;

/// The document of several runs.
#[derive(serde::Serialize)]
struct Document<'a> {
    schema: u32,
    runs: Vec<Run<'a>>,
    title: &'a str,
    command: &'a str,
    tool_version: &'a str,
    baseline: &'a str,
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    prices: Pairs<'a, f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    failures: &'a [String],
    conclusions: Vec<Conclusion>,
    #[serde(skip_serializing_if = "<[MachineLedger]>::is_empty")]
    machines: &'a [MachineLedger],
    inputs: Vec<Input<'a>>,
    units: BTreeMap<&'a str, Unit>,
    host: Host<'a>,
}

/// What differs between two equal comparisons: when they ran, and how fast the computer was.
#[derive(serde::Serialize)]
struct Host<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<&'a str>,
    /// In the order of the document's runs.
    runs: Vec<HostRun>,
}

#[derive(serde::Serialize)]
struct HostRun {
    wall_seconds: f64,
    accesses_per_second: f64,
}

impl<'a> Host<'a> {
    fn of(date: Option<&'a str>, runs: &[RunRecord]) -> Host<'a> {
        let of_run = |run: &RunRecord| HostRun {
            wall_seconds: run.wall_seconds,
            accesses_per_second: run.accesses_per_second(),
        };
        Host { date, runs: runs.iter().map(of_run).collect() }
    }
}

#[derive(serde::Serialize)]
struct Run<'a> {
    design: &'a str,
    machine: &'a str,
    #[serde(skip_serializing_if = "<[MachineTier]>::is_empty")]
    machine_tiers: &'a [MachineTier],
    input: &'a str,
    accesses: u64,
    instructions: u64,
    cycles: u64,
    seconds_simulated: f64,
    fidelity: &'a str,
    scale: u32,
    seed: Option<u64>,
    bound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    speedup: Option<SpeedUp>,
    design_summary: &'a str,
    command: &'a str,
    left_out: &'a [String],
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tiering: Option<Tiering>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contiguity: Option<Contiguity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    translation_coherence: Option<TranslationCoherence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    virtual_machines: Option<VirtualMachines>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mix: Option<Mix>,
    #[serde(skip_serializing_if = "<[TimelinePoint]>::is_empty")]
    timeline: &'a [TimelinePoint],
    #[serde(skip_serializing_if = "<[ContiguityPoint]>::is_empty")]
    contiguity_over_time: &'a [ContiguityPoint],
    #[serde(skip_serializing_if = "Option::is_none")]
    pools: Option<Pools<'a>>,
    parameters: Pairs<'a>,
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    scaled_parameters: Pairs<'a>,
    stats: Node<'a>,
}

#[derive(serde::Serialize)]
struct Input<'a> {
    name: &'a str,
    program: &'a str,
    arguments: &'a [String],
    origin: &'a str,
    machine: &'a str,
    date: &'a str,
    seed: Option<u64>,
    accesses: u64,
    reads: u64,
    writes: u64,
    instructions: u64,
    threads: u64,
    processes: u64,
    footprint_bytes: u64,
    footprint_is_estimate: bool,
    reuse: &'a ReuseCurves,
    heat: Heat<'a>,
}

/// A heat map. A row of counts is one string of numbers: as an array, each number would take a line of its own.
#[derive(serde::Serialize)]
struct Heat<'a> {
    accesses_per_bin: u64,
    sample_every: u64,
    rows: Vec<Row<'a>>,
}

#[derive(serde::Serialize)]
struct Row<'a> {
    process: u32,
    start: String,
    bytes: u64,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    line: &'a str,
    reads: String,
    writes: String,
}

/// Key-value pairs as an object, in their own order.
struct Pairs<'a, T = String>(&'a [(String, T)]);

impl<T> Pairs<'_, T> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The statistics as a tree.
enum Node<'a> {
    Branch(BTreeMap<&'a str, Node<'a>>),
    Leaf(&'a Value),
}

impl Comparison {
    /// The document, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        pretty(&self.document())
    }

    /// The document on one line.
    pub(crate) fn to_compact_json(&self) -> String {
        serde_json::to_string(&self.document()).expect("plain data with string keys always serializes")
    }

    fn document(&self) -> Document<'_> {
        let conclusions = self.conclusions();
        Document {
            schema: SCHEMA,
            runs: self
                .runs
                .iter()
                .map(|one| Run {
                    speedup: self.speedup_of(one),
                    tiering: self.tiering_of(one),
                    contiguity: self.contiguity_of(one),
                    translation_coherence: self.translation_coherence_of(one),
                    virtual_machines: one.virtual_machines(),
                    ..run(one)
                })
                .collect(),
            title: &self.title,
            command: &self.command,
            tool_version: &self.tool_version,
            baseline: &self.baseline,
            prices: Pairs(&self.prices),
            failures: &self.failures,
            conclusions,
            machines: &self.machines,
            inputs: self.inputs.iter().map(input).collect(),
            units: self
                .runs
                .iter()
                .flat_map(|r| r.stats.iter().map(|(name, stat)| (name, stat.unit)))
                .collect(),
            host: Host::of(Some(&self.date), &self.runs),
        }
    }
}

impl RunRecord {
    /// A document of this run alone, with the same keys as a comparison's.
    pub fn to_json(&self) -> String {
        let units: BTreeMap<&str, Unit> = self.stats.iter().map(|(name, stat)| (name, stat.unit)).collect();
        #[derive(serde::Serialize)]
        struct Single<'a> {
            schema: u32,
            runs: [Run<'a>; 1],
            tool_version: &'a str,
            units: BTreeMap<&'a str, Unit>,
            host: Host<'a>,
        }
        let host = Host::of(None, std::slice::from_ref(self));
        let tool_version = env!("CARGO_PKG_VERSION");
        pretty(&Single { schema: SCHEMA, runs: [run(self)], tool_version, units, host })
    }
}

fn pretty(document: &impl Serialize) -> String {
    let mut text =
        serde_json::to_string_pretty(document).expect("plain data with string keys always serializes");
    text.push('\n');
    text
}

fn run(run: &RunRecord) -> Run<'_> {
    Run {
        design: &run.design,
        machine: &run.machine,
        machine_tiers: &run.tiers,
        input: &run.input,
        accesses: run.accesses,
        instructions: run.instructions,
        cycles: run.cycles,
        seconds_simulated: run.seconds_simulated,
        fidelity: &run.fidelity,
        scale: run.scale,
        seed: run.seed,
        bound: run.is_bound(),
        speedup: None,
        design_summary: &run.design_summary,
        command: &run.command,
        left_out: &run.left_out,
        notes: &run.notes,
        tiering: None,
        contiguity: None,
        translation_coherence: None,
        virtual_machines: None,
        mix: run.mix(),
        timeline: &run.timeline,
        contiguity_over_time: &run.contiguity_over_time,
        pools: run.pools.as_ref().map(Pools::of),
        parameters: Pairs(&run.parameters),
        scaled_parameters: Pairs(&run.scaled_parameters),
        stats: tree(&run.stats),
    }
}

fn input(input: &InputSummary) -> Input<'_> {
    Input {
        name: &input.name,
        program: &input.program,
        arguments: &input.arguments,
        origin: &input.origin,
        machine: &input.machine,
        date: &input.date,
        seed: input.seed,
        accesses: input.accesses,
        reads: input.reads,
        writes: input.writes,
        instructions: input.instructions,
        threads: input.threads,
        processes: input.processes,
        footprint_bytes: input.footprint_bytes,
        footprint_is_estimate: input.footprint_is_estimate,
        reuse: &input.reuse,
        heat: heat(&input.heat),
    }
}

fn heat(map: &HeatMap) -> Heat<'_> {
    let line = |counts: Option<&Vec<u32>>| {
        let texts: Vec<String> = counts.into_iter().flatten().map(u32::to_string).collect();
        texts.join(" ")
    };
    let rows = map.rows.iter().enumerate().map(|(at, row)| Row {
        process: row.process,
        start: format!("{:#x}", row.start),
        bytes: row.bytes,
        name: &row.name,
        line: &row.line,
        reads: line(map.reads.get(at)),
        writes: line(map.writes.get(at)),
    });
    Heat { accesses_per_bin: map.accesses_per_bin, sample_every: map.sample_every, rows: rows.collect() }
}

fn tree(stats: &Stats) -> Node<'_> {
    let mut root = BTreeMap::new();
    for (name, stat) in stats.iter() {
        let mut branch: &mut BTreeMap<&str, Node<'_>> = &mut root;
        let mut rest = name;
        while let Some((head, tail)) = rest.split_once('.') {
            let child = branch.entry(head).or_insert_with(|| Node::Branch(BTreeMap::new()));
            let Node::Branch(children) = child else { unreachable!("a statistic is a branch or a leaf") };
            branch = children;
            rest = tail;
        }
        branch.insert(rest, Node::Leaf(&stat.value));
    }
    Node::Branch(root)
}

impl<T: Serialize> Serialize for Pairs<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Branch(children) => children.serialize(serializer),
            Node::Leaf(value) => value.serialize(serializer),
        }
    }
}

/// The version of every document but `results.json`.
const DOCUMENT: u32 = 1;

/// An answer as a JSON document, its schema's version first.
///
/// # Errors
/// Content that JSON cannot hold, such as keys that are no texts.
pub fn document<T: Serialize>(content: &T) -> Result<String, serde_json::Error> {
    #[derive(serde::Serialize)]
    struct Document<'a, T: Serialize> {
        schema: u32,
        #[serde(flatten)]
        content: &'a T,
    }
    serde_json::to_string_pretty(&Document { schema: DOCUMENT, content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data;
    use proptest::prelude::*;

    #[test]
    fn the_document_of_the_test_comparison() {
        insta::assert_snapshot!(test_data::comparison().to_json());
    }

    #[test]
    fn an_empty_comparison_is_a_document_too() {
        let document: serde_json::Value = serde_json::from_str(&Comparison::default().to_json()).unwrap();
        assert_eq!(document["schema"], 2);
        assert_eq!(document["runs"], serde_json::json!([]));
    }

    #[test]
    fn a_single_run_has_the_shape_of_a_comparison() {
        let comparison = test_data::comparison();
        let all: serde_json::Value = serde_json::from_str(&comparison.to_json()).unwrap();
        let one: serde_json::Value = serde_json::from_str(&comparison.runs[0].to_json()).unwrap();
        assert_eq!((&one["schema"], &one["tool_version"]), (&2.into(), &env!("CARGO_PKG_VERSION").into()));
        let mut of_comparison = all["runs"][0].clone();
        assert_eq!(of_comparison.as_object_mut().unwrap().remove("speedup").unwrap()["value"], 1.0);
        assert_eq!(one["runs"][0], of_comparison);
        assert_eq!(one["units"]["energy.dram"], "joules");
    }

    #[test]
    fn what_the_computer_and_the_day_decide_is_in_one_field() {
        let (fast, mut slow) = (test_data::comparison(), test_data::comparison());
        slow.date = "2031-12-31".to_owned();
        slow.runs.iter_mut().for_each(|run| run.wall_seconds *= 7.0);
        let before_host = |comparison: &Comparison| {
            let text = comparison.to_json();
            text[..text.find("\n  \"host\": {").unwrap()].to_owned()
        };
        assert_eq!(before_host(&fast), before_host(&slow));
        let host: serde_json::Value = serde_json::from_str(&slow.to_json()).unwrap();
        assert_eq!(host["host"]["runs"][1]["wall_seconds"], 3.5);
        assert_eq!(host["host"]["date"], "2031-12-31");
    }

    #[test]
    fn what_json_cannot_hold_becomes_null() {
        let mut comparison = test_data::comparison();
        comparison.runs[0].stats.real("core.ratio", f64::NAN, Unit::Ratio);
        comparison.runs[0].seconds_simulated = f64::INFINITY;
        let document: serde_json::Value = serde_json::from_str(&comparison.to_json()).unwrap();
        assert!(document["runs"][0]["stats"]["core"]["ratio"].is_null());
        assert!(document["runs"][0]["seconds_simulated"].is_null());
    }

    proptest! {
        /// Results that were kept are those that were found, to the last digit.
        #[test]
        fn numbers_are_read_as_they_were_written(number in any::<f64>()) {
            let text = serde_json::to_string(&number).unwrap();
            prop_assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), number.to_bits(), "{}", text);
        }

        /// Every statistic is found at the path that its name spells, with its value.
        #[test]
        fn nesting_keeps_every_leaf(names in prop::collection::btree_map("[a-c]{1,2}(-[a-c])?(\\.[a-c]{1,2}){0,3}", any::<u64>(), 1..20)) {
            let mut stats = Stats::new();
            let mut kept = Vec::new();
            for (name, value) in &names {
                let clash = names.keys().any(|other| other.starts_with(&format!("{name}.")));
                if !clash {
                    stats.count(name.clone(), *value, Unit::Count);
                    kept.push((name, value));
                }
            }
            let text = serde_json::to_string(&tree(&stats)).unwrap();
            let nested: serde_json::Value = serde_json::from_str(&text).unwrap();
            for (name, value) in kept {
                let pointer = format!("/{}", name.replace('.', "/"));
                prop_assert_eq!(nested.pointer(&pointer).and_then(|v| v.as_u64()), Some(*value));
            }
        }
    }
}
