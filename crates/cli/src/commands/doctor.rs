//! `terrace doctor`: what this machine offers to policies.

use crate::error::CommandResult;
use crate::options::ResultOptions;
use crate::output;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use terrace_live::doctor::{self, Diagnosis, Finding, Lacking, Measurement, PolicyFinding, Verdict};
use terrace_live::facts::{Facts, Node};
use terrace_live::kernel::Linux;
use terrace_live::measure;
use terrace_policy::Tier;

const EXAMPLES: &str = "\
Examples:
  terrace doctor
  sudo terrace doctor                      as root, more can be seen and used
  terrace doctor --measure                 with each node's latency, bandwidth
  terrace doctor --json - | jq '.policies[] | select(.verdict == \"runs\").name'
  terrace doctor --json - | jq -r '.findings[] | select(.state != \"ok\").enable'";

/// Show what this machine and its kernel offer, and which policies can run here
///
/// Lists NUMA nodes and memory tiers, page sizes, what shows a program's
/// accesses, what moves pages, compressed memory, control groups and
/// privileges; then every policy, and what those lack that cannot run. Each
/// line says ok, off, missing, unknown or in use (by someone else). Below what
/// is not ok stands a command or a kernel option that would change that.
///
/// Nothing is changed: not a file is written, and what only trying tells is
/// tried on terrace itself. The commands are yours to run; read them first,
/// they change the machine for all its users.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Measure latency and bandwidth of every node's memory, about a second
    /// each. Takes 256 MiB of each for that time, and its processors
    #[arg(long)]
    measure: bool,
    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let facts = Facts::discover(&Linux);
    let with_memory = facts.nodes.iter().filter(|node| arguments.measure && node.has_memory());
    let measured: Vec<Measurement> =
        with_memory.map(|node| (node.id, measure::measure(&Linux, &facts.nodes, node.id))).collect();
    let diagnosis = doctor::diagnose(&facts, &measured);
    arguments.results.write_rows(&Document::of(&facts, &measured, &diagnosis), "findings")?;
    arguments.results.print(|| text(&diagnosis))
}

#[derive(Serialize)]
struct Document<'a> {
    kernel: Option<&'a str>,
    nodes: Vec<NodeEntry>,
    /// Fastest first.
    tiers: Vec<TierEntry<'a>>,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

#[derive(Serialize)]
struct NodeEntry {
    node: u32,
    cpus: Vec<u32>,
    total_bytes: u64,
    free_bytes: u64,
    /// From the firmware; null where it does not tell.
    read_latency_ns: Option<f64>,
    write_latency_ns: Option<f64>,
    read_bytes_per_second: Option<f64>,
    write_bytes_per_second: Option<f64>,
    /// Null unless asked for.
    measured_latency_ns: Option<f64>,
    measured_bytes_per_second: Option<f64>,
}

#[derive(Serialize)]
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
    /// The four above are assumed, for the firmware tells nothing.
    assumed: bool,
}

impl<'a> Document<'a> {
    fn of(facts: &'a Facts, measured: &[Measurement], diagnosis: &'a Diagnosis) -> Document<'a> {
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
            assumed: !map.told_speed[at],
        };
        Document {
            kernel: facts.release.known().map(|release| release.text.as_str()),
            nodes: facts.nodes.iter().map(node).collect(),
            tiers: map.topology.tiers.iter().enumerate().map(tier).collect(),
            diagnosis,
        }
    }
}

/// Columns of names and of states.
const NAMES: usize = 20;
const STATES: usize = 9;
/// Columns of a screen.
const WIDTH: usize = 80;

fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    let mut area = "";
    for finding in &diagnosis.findings {
        if finding.area != area {
            let gap = if area.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{}", capitalized(finding.area));
            area = finding.area;
        }
        line(&mut text, finding);
    }
    policies(&mut text, &diagnosis.policies);
    lacking(&mut text, &diagnosis.lacking);
    text
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `content` after `first`, its further lines below its first.
fn hang(text: &mut String, first: &str, content: &str) {
    let column = first.chars().count();
    for (at, part) in output::wrap(content, WIDTH - column).iter().enumerate() {
        let before = if at == 0 { first } else { "" };
        let _ = writeln!(text, "{}", format!("{before:column$}{part}").trim_end());
    }
}

fn line(text: &mut String, finding: &Finding) {
    let first = format!("  {:NAMES$}{:STATES$}", finding.item, finding.state.name());
    hang(text, &first, &finding.value);
    remedy(text, finding.enable.as_deref());
}

/// On lines of its own, where most commands fit whole and can be copied.
fn remedy(text: &mut String, enable: Option<&str>) {
    if let Some(enable) = enable {
        hang(text, "    try: ", enable);
    }
}

fn policies(text: &mut String, policies: &[PolicyFinding]) {
    let of = |verdict: Verdict| policies.iter().filter(move |policy| policy.verdict == verdict);
    text.push_str("\nPolicies that run here\n");
    let names: Vec<&str> = of(Verdict::Runs).map(|policy| policy.name).collect();
    let names = if names.is_empty() { "none with its defaults".to_owned() } else { names.join(", ") };
    hang(text, "  ", &names);
    if of(Verdict::RunsWith).next().is_some() {
        text.push_str("\nPolicies that run here with other parameters\n");
        for policy in of(Verdict::RunsWith) {
            let without = format!("{}, for it lacks {}", policy.with.join(" "), policy.lacks.join(", "));
            hang(text, &format!("  {:NAMES$}", policy.name), &without);
        }
    }
    if of(Verdict::DoesNotRun).next().is_some() {
        text.push_str("\nPolicies that do not run here, and what they lack\n");
        for policy in of(Verdict::DoesNotRun) {
            let lacks: Vec<&str> =
                policy.refusal.as_deref().into_iter().chain(policy.lacks.iter().copied()).collect();
            hang(text, &format!("  {:NAMES$}", policy.name), &lacks.join(", "));
        }
    }
}

/// What is lacking for the same reason stands together.
fn lacking(text: &mut String, lacking: &[Lacking]) {
    if !lacking.is_empty() {
        text.push_str("\nWhat that means\n");
    }
    let cause = |one: &Lacking| (one.reason.clone(), one.enable.clone());
    for (at, one) in lacking.iter().enumerate() {
        if lacking[..at].iter().any(|earlier| cause(earlier) == cause(one)) {
            continue;
        }
        let together = lacking.iter().filter(|other| cause(other) == cause(one));
        let names: Vec<&str> = together.map(|other| other.capability).collect();
        let reason = format!("{}: {}", names.join(", "), one.reason);
        for (at, part) in output::wrap(&reason, WIDTH - 4).iter().enumerate() {
            let _ = writeln!(text, "{}{part}", if at == 0 { "  " } else { "    " });
        }
        remedy(text, one.enable.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_live::kernel::Rooted;

    fn diagnosis(machine: &str) -> Diagnosis {
        let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/tests/fixtures");
        let files = std::fs::read_to_string(fixtures.join(format!("{machine}.txt"))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files.split("=== /").skip(1).map(|file| file.split_once('\n').unwrap()) {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        doctor::diagnose(&Facts::discover(&Rooted::new(folder.path())), &[])
    }

    #[test]
    fn every_machine_fits_a_screen() {
        for machine in ["one-node-6.18", "two-nodes-6.12", "four-nodes-6.12", "two-nodes-6.1", "zram-user"] {
            let text = text(&diagnosis(machine));
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{machine}: {line}");
            }
            for heading in ["Nodes and tiers\n", "Policies that run here\n", "What that means\n"] {
                assert!(text.contains(heading), "{machine} has no {heading}");
            }
        }
    }

    #[test]
    fn two_nodes_run_policies_with_switches_thrown() {
        let diagnosis = diagnosis("two-nodes-6.12");
        let policy = |name: &str| diagnosis.policies.iter().find(|policy| policy.name == name).unwrap();
        assert_eq!(policy("first-touch").verdict, Verdict::Runs);
        assert_eq!(policy("two-lru").lacks, ["exact-accesses"]);
        assert_eq!(policy("oracle").refusal.as_deref(), Some("a first pass over the same input"));
        let ambix = policy("ambix");
        assert_eq!(ambix.verdict, Verdict::RunsWith);
        assert_eq!(
            (ambix.with.as_slice(), ambix.lacks.as_slice()),
            (&["flush=false".to_owned()][..], &["flush-on-clear"][..])
        );
        let text = text(&diagnosis);
        assert!(text.contains("flush=false"), "{text}");
    }

    #[test]
    fn remedies_stand_below_what_they_are_for() {
        let text = text(&diagnosis("two-nodes-6.1"));
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.starts_with("  weighted interleave")).unwrap();
        let remedy = lines[at + 1..].iter().find(|line| line.contains("try: ")).unwrap();
        assert_eq!(*remedy, "    try: a kernel from 6.9 on");
    }
}
