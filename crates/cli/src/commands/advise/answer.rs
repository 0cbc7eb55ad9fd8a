//! The answer of `terrace advise`: its document, and its text of one screen.

use crate::run::FEW_PERIODS;
use crate::tiers::percent;
use crate::{output, progress};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) input: String,
    pub(super) machine: String,
    pub(super) accesses: u64,
    pub(super) resident_bytes: u64,
    pub(super) scale: u32,
    pub(super) tolerated_slowdown: f64,
    pub(super) prices: Vec<Price>,
    /// Of the run with everything in the fastest tier.
    pub(super) seconds_simulated: f64,
    /// The best of `policies`; none where none keeps within the slowdown.
    pub(super) advice: Option<Advice>,
    pub(super) policies: Vec<PolicyAnswer>,
    pub(super) uncertainty: Uncertainty,
    pub(super) command: Option<String>,
}

#[derive(Clone, Serialize)]
pub(super) struct Price {
    pub(super) tier: String,
    pub(super) price: f64,
}

#[derive(Clone, Serialize)]
pub(super) struct Advice {
    pub(super) policy: String,
    /// Size of the fastest tier over what is resident.
    pub(super) fast_capacity_share: f64,
    pub(super) fast_capacity_bytes: u64,
    /// Share of the memory in use that is slow, averaged over time.
    pub(super) slow_share: f64,
    pub(super) slow_bytes: f64,
    pub(super) slowdown: f64,
    pub(super) cost: Option<f64>,
    pub(super) saving: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct PolicyAnswer {
    pub(super) policy: String,
    pub(super) answer: Option<Advice>,
    /// The largest fastest tier that was too small, and the slowdown there.
    pub(super) too_small_share: f64,
    pub(super) too_small_slowdown: Option<f64>,
    pub(super) copied_bytes: Option<u64>,
    pub(super) period_seconds: Option<f64>,
    /// Periods of the policy that the run holds.
    pub(super) periods: Option<f64>,
    pub(super) refused: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Uncertainty {
    pub(super) resolution: f64,
    /// The recommended policy under each seed.
    pub(super) seeds: Vec<Seed>,
    /// Sentences for the reader.
    pub(super) remarks: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct Seed {
    pub(super) seed: u64,
    pub(super) slowdown: f64,
}

fn mebibytes(bytes: f64) -> String {
    crate::commands::workload::readable(bytes as u64)
}

/// The answer in one screen.
pub(super) fn text(document: &Document) -> String {
    let mut out = String::new();
    let mut say = |text: &str| out.push_str(&output::hanging("", text, 78));
    let whole = percent(document.tolerated_slowdown);
    let prices: Vec<String> =
        document.prices.iter().map(|price| format!("{} at {}", price.tier, price.price)).collect();
    let priced =
        if prices.is_empty() { String::new() } else { format!("; {} of the price", prices.join(", ")) };
    say(&format!(
        "{} on {}: {} accesses, {} resident, {} with everything fast; at most {whole} slower{priced}",
        document.input,
        document.machine,
        progress::short(document.accesses as f64),
        mebibytes(document.resident_bytes as f64),
        progress::time(document.seconds_simulated),
    ));
    say("");
    match &document.advice {
        Some(advice) => {
            let saving = advice.saving.map_or(String::new(), |saving| {
                format!("; it saves {} of the memory's price", progress::tenth(saving))
            });
            say(&format!(
                "{} of the memory in use can be slow ({}), under {} with {} fast: {} slower{saving}.",
                percent((advice.slow_share * 100.0).round() / 100.0),
                mebibytes(advice.slow_bytes),
                advice.policy,
                mebibytes(advice.fast_capacity_bytes as f64),
                progress::tenth(advice.slowdown),
            ));
        }
        None => {
            say(&format!("None of these policies stays within {whole}, whatever its share of fast memory."))
        }
    }
    say("");
    out.push_str(&table(document));
    out.push('\n');
    for remark in &document.uncertainty.remarks {
        out.push_str(&output::hanging("- ", remark, 76));
    }
    if let Some(command) = &document.command {
        out.push_str(&format!("\nSee it: {command}\n"));
    }
    out
}

fn table(document: &Document) -> String {
    let mut out = format!(
        "{:<16}{:>9}{:>10}{:>6}{:>7}{:>9}{:>12}{:>9}\n",
        "policy", "fast tier", "slowdown", "slow", "cost", "one less", "copied", "periods"
    );
    let mut order: Vec<&PolicyAnswer> = document.policies.iter().collect();
    let expense = |policy: &PolicyAnswer| {
        policy.answer.as_ref().map_or(f64::INFINITY, |answer| answer.cost.unwrap_or(1.0 - answer.slow_share))
    };
    order.sort_by(|a, b| expense(a).total_cmp(&expense(b)));
    let none = || "-".to_owned();
    for policy in order {
        let PolicyAnswer { policy: name, answer, too_small_slowdown, copied_bytes, periods, refused, .. } =
            policy;
        let name: String = name.chars().take(16).collect();
        let line = match (answer, refused) {
            (_, Some(reason)) => format!("{name:<16}cannot run: {reason}"),
            (None, None) => format!(
                "{name:<16}{:>9}{:>10}{:>6}{:>7}{:>9}{:>12}{:>9}",
                "never",
                too_small_slowdown.map_or_else(none, progress::tenth),
                "",
                "",
                "",
                "",
                periods.map_or_else(none, few)
            ),
            (Some(answer), None) => format!(
                "{name:<16}{:>9}{:>10}{:>6}{:>7}{:>9}{:>12}{:>9}",
                percent(answer.fast_capacity_share),
                progress::tenth(answer.slowdown),
                format!("{:.0}%", answer.slow_share * 100.0),
                answer.cost.map_or_else(none, |cost| format!("{:.0}%", cost * 100.0)),
                too_small_slowdown.map_or_else(none, progress::tenth),
                copied_bytes.map_or_else(none, |bytes| mebibytes(bytes as f64)),
                periods.map_or_else(none, few),
            ),
        };
        out.push_str(line.chars().take(80).collect::<String>().trim_end());
        out.push('\n');
    }
    out + "fast tier: its size over what is resident; slow: of the memory in use, averaged\n\
           over time; one less: the slowdown with a step less; never: too slow with all\n"
}

/// Periods that the run holds.
fn few(periods: f64) -> String {
    if periods < FEW_PERIODS { format!("{periods:.1}") } else { progress::short(periods) }
}
