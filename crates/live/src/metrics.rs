//! A snapshot as Prometheus reads it (the OpenMetrics text format).

use crate::engine::State;
use crate::status::Status;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

/// The content type of a scrape.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
/// Prometheus knows only numbers with a point.
type Real = Gauge<f64, AtomicU64>;
type RealCounter = Counter<f64, AtomicU64>;

/// The snapshot's numbers with their names, units and help.
pub fn text(status: &Status) -> String {
    let mut registry = Registry::with_prefix("terrace");
    tiers(status, &mut registry);
    moves(status, &mut registry);
    itself(status, &mut registry);
    let mut text = String::new();
    // Writing to a string fails only where a label cannot be written, and text always can.
    encode(&mut text, &registry).expect("metrics are plain text");
    text
}

fn tiers(status: &Status, registry: &mut Registry) {
    let mut by_tier = |name: &str, help: &str, value: fn(&crate::status::TierStatus) -> Option<u64>| {
        let family = Family::<Labels, Gauge>::default();
        for tier in &status.tiers {
            if let Some(bytes) = value(tier) {
                family.get_or_create(&vec![("tier", tier.name.clone())]).set(bytes as i64);
            }
        }
        registry.register_with_unit(name, help, Unit::Bytes, family);
    };
    by_tier("tier_capacity", "Memory that the managed processes may have in the tier", |tier| {
        Some(tier.capacity)
    });
    by_tier("tier_used", "Memory that the managed processes have in the tier", |tier| Some(tier.used));
    by_tier("tier_hot", "Of that, accessed since the policy's look before the last", |tier| tier.hot);
    by_tier("tier_cold", "Of that, not accessed since the policy's look before the last", |tier| tier.cold);
    let processes = Family::<Labels, Gauge>::default();
    for process in &status.processes {
        for (tier, bytes) in &process.bytes {
            let labels = vec![
                ("pid", process.pid.to_string()),
                ("name", process.name.clone()),
                ("tier", tier.clone()),
            ];
            processes.get_or_create(&labels).set(*bytes as i64);
        }
    }
    let help = "Memory that the process has in the tier";
    registry.register_with_unit("process_resident", help, Unit::Bytes, processes);
}

fn moves(status: &Status, registry: &mut Registry) {
    let moved = Family::<Labels, Counter>::default();
    for (direction, bytes) in [("promoted", status.moves.promoted), ("demoted", status.moves.demoted)] {
        moved.get_or_create(&vec![("direction", direction.to_owned())]).inc_by(bytes);
    }
    registry.register_with_unit("moved", "Memory that Terrace moved between tiers", Unit::Bytes, moved);
    let mut count = |name: &str, help: &str, value: u64| {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    };
    count("moves_failed", "Pieces of orders that failed", status.moves.failed);
    count("exchanges", "Pairs of pages that changed places", status.moves.exchanged);
    count("moves_planned", "Pieces of orders that a dry run did not carry out", status.moves.planned);
    count("policy_calls", "Calls of the policy", status.statistics.integer("policy.calls"));
    count(
        "held_back",
        "Times that moves were held back because of memory pressure",
        status.statistics.integer("live.held_back"),
    );
    let waiting: Gauge = Gauge::default();
    waiting.set(status.moves.waiting as i64);
    registry.register("moves_waiting", "Pieces of orders that wait for their turn", waiting);
    let kernel = Family::<Labels, Counter>::default();
    for (name, value) in &status.kernel {
        kernel.get_or_create(&vec![("counter", name.clone())]).inc_by(*value);
    }
    let help = "The kernel's own counters in /proc/vmstat since Terrace started, for the whole machine";
    registry.register("kernel_events", help, kernel);
}

fn itself(status: &Status, registry: &mut Registry) {
    let cpu = RealCounter::default();
    cpu.inc_by(status.cpu.seconds);
    registry.register_with_unit("cpu", "Processor time of Terrace itself", Unit::Seconds, cpu);
    if let Some(budget) = status.cpu.budget {
        let gauge = Real::default();
        gauge.set(budget);
        let help = "Processor time that Terrace may use, as a share of one core";
        registry.register_with_unit("cpu_budget", help, Unit::Ratios, gauge);
    }
    let run_time = Real::default();
    run_time.set(status.run_seconds);
    registry.register_with_unit("run_time", "Time since Terrace started", Unit::Seconds, run_time);
    let states = Family::<Labels, Gauge>::default();
    for (name, state) in [
        ("working", State::Working),
        ("paused", State::Paused),
        ("held-back", State::HeldBack),
        ("resting", State::Resting),
        ("stopped", State::Stopped),
    ] {
        states.get_or_create(&vec![("state", name.to_owned())]).set(i64::from(status.state == state));
    }
    registry.register("state", "1 for what Terrace is doing, 0 for what it is not", states);
    let policy = Family::<Labels, Gauge>::default();
    policy
        .get_or_create(&vec![("policy", status.policy.clone()), ("accesses", status.accesses.clone())])
        .set(1);
    registry.register("policy", "The policy at work, and where it sees accesses", policy);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::example;

    #[test]
    fn numbers_have_names_units_and_help() {
        let text = text(&example());
        for line in [
            "# HELP terrace_tier_used_bytes Memory that the managed processes have in the tier.",
            "# UNIT terrace_tier_used_bytes bytes",
            "terrace_tier_used_bytes{tier=\"dram\"} 25165824",
            "terrace_tier_hot_bytes{tier=\"slow\"} 0",
            "terrace_process_resident_bytes{pid=\"4711\",name=\"redis \\\"a\\\"\",tier=\"slow\"} 41943040",
            "terrace_moved_bytes_total{direction=\"promoted\"} 8388608",
            "terrace_moves_failed_total 2",
            "terrace_kernel_events_total{counter=\"pgmigrate_success\"} 3100",
            "terrace_cpu_seconds_total 1.5",
            "terrace_cpu_budget_ratios 0.04",
            "terrace_state{state=\"working\"} 1",
            "terrace_state{state=\"paused\"} 0",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line:?} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
