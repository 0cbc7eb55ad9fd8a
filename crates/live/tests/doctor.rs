//! What `terrace doctor` says of machines that are not here.

mod common;
use common::Machine;
use terrace_live::doctor::{Diagnosis, Verdict, diagnose};
use terrace_live::facts::Facts;

fn diagnosis(machine: &str) -> Diagnosis {
    diagnose(&Facts::discover(&Machine::named(machine).kernel()), &[])
}

#[test]
fn every_machine_fits_a_screen() {
    for machine in ["one-node-6.18", "two-nodes-6.12", "four-nodes-6.12", "two-nodes-6.1", "zram-user"] {
        let text = diagnosis(machine).to_text();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{machine}: {line}");
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
    let text = diagnosis.to_text();
    assert!(text.contains("flush=false"), "{text}");
}

#[test]
fn remedies_stand_below_what_they_are_for() {
    let text = diagnosis("two-nodes-6.1").to_text();
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("  weighted interleave")).unwrap();
    let remedy = lines[at + 1..].iter().find(|line| line.contains("try: ")).unwrap();
    assert_eq!(*remedy, "    try: a kernel from 6.9 on");
}

#[test]
fn pools_are_suggested_that_fit_into_a_quarter_of_the_memory() {
    // 15.3 GiB, 10.8 GiB, and two with less than 4 GiB.
    for (machine, giant) in [
        ("zram-user", Some(3)),
        ("one-node-6.18", Some(2)),
        ("two-nodes-6.12", None),
        ("four-nodes-6.12", None),
    ] {
        let findings = diagnosis(machine).findings;
        let remedy = |item: &str| findings.iter().find(|one| one.item == item).unwrap().enable.clone();
        let pool = |count: u64, kib: u64| {
            Some(format!("echo {count} > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"))
        };
        assert_eq!(remedy("pool of 1 GiB"), giant.and_then(|count| pool(count, 1 << 20)), "{machine}");
        assert_eq!(remedy("pool of 2 MiB"), pool(16, 2048), "{machine}");
    }
}
