//! The advice on fast memory in one screen.

use super::{MemoryAdvice, PolicyAdvice};
use crate::closing;
use crate::figures::{percent, readable, short, slower, tenth, time};
use crate::periods::FEW_PERIODS;
use terrace_model::text;
use terrace_report::machine_sentence;

fn mebibytes(bytes: f64) -> String {
    readable(bytes as u64)
}

impl MemoryAdvice {
    /// The advice in one screen of 80 columns.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut say = |text: &str| out.push_str(&text::hanging("", text, 78));
        let whole = percent(self.tolerated_slowdown);
        let prices: Vec<String> =
            self.prices.iter().map(|price| format!("{} at {}", price.tier, price.price)).collect();
        let priced =
            if prices.is_empty() { String::new() } else { format!("; {} of the price", prices.join(", ")) };
        say(&format!(
            "{} on {}: {} accesses, {} resident, {} with everything fast; at most {whole} slower{priced}",
            self.input,
            self.machine,
            short(self.accesses as f64),
            mebibytes(self.resident_bytes as f64),
            time(self.seconds_simulated),
        ));
        say(&machine_sentence(&self.machine, &self.machine_tiers));
        say("");
        match &self.advice {
            // The least that is enough is all of it.
            Some(best) if best.fast_capacity_share >= 1.0 => say(&format!(
                "Less than {} of the memory can be slow, the step of the search: of these policies {} comes nearest, and takes all of \
                 it fast ({}): {}.",
                percent(self.uncertainty.resolution),
                best.policy,
                mebibytes(best.fast_capacity_bytes as f64),
                slower(best.slowdown, best.slowdown_interval),
            )),
            Some(best) => {
                let saving = best.capacity_saving.map_or(String::new(), |saving| {
                    let (does, to) = if saving < 0.0 { ("adds", "to") } else { ("saves", "of") };
                    format!("; it {does} {} {to} the memory's price", tenth(saving.abs()))
                });
                say(&format!(
                    "{} of the memory can be slow ({} of {}), under {} with {} fast: {}{saving}.",
                    percent(1.0 - best.fast_capacity_share),
                    mebibytes(best.slow_capacity_bytes as f64),
                    mebibytes(self.resident_bytes as f64),
                    best.policy,
                    mebibytes(best.fast_capacity_bytes as f64),
                    slower(best.slowdown, best.slowdown_interval),
                ));
            }
            None => say(&format!(
                "None of these policies stays within {whole}, whatever its share of fast memory."
            )),
        }
        say("");
        out.push_str(&table(self));
        out.push('\n');
        out + &closing::of_advice(&self.uncertainty.remarks, self.command.as_deref())
    }
}

fn table(advice: &MemoryAdvice) -> String {
    let mut out = format!(
        "{:<16}{:>9}{:>10}{:>6}{:>7}{:>9}{:>12}{:>9}\n",
        "policy", "fast tier", "slowdown", "slow", "cost", "one less", "copied", "periods"
    );
    let mut order: Vec<&PolicyAdvice> = advice.policies.iter().collect();
    let expense = |policy: &PolicyAdvice| {
        policy.answer.as_ref().map_or(f64::INFINITY, |answer| answer.cost.unwrap_or(1.0 - answer.slow_share))
    };
    order.sort_by(|a, b| expense(a).total_cmp(&expense(b)));
    // What is advised comes first: another may need as little, or seem to in a run too short to judge it.
    let advised = advice.advice.as_ref().map(|best| best.policy.as_str());
    order.sort_by_key(|policy| Some(policy.policy.as_str()) != advised);
    let none = || "-".to_owned();
    for policy in order {
        let PolicyAdvice { policy: name, answer, too_small_slowdown, copied_bytes, periods, refused, .. } =
            policy;
        let name: String = name.chars().take(16).collect();
        let line = match (answer, refused) {
            (_, Some(reason)) => {
                out.push_str(&text::hanging("", &format!("{name:<16}cannot run: {reason}"), 78));
                continue;
            }
            (None, None) => format!(
                "{name:<16}{:>9}{:>10}{:>6}{:>7}{:>9}{:>12}{:>9}",
                "never",
                too_small_slowdown.map_or_else(none, tenth),
                "",
                "",
                "",
                "",
                periods.map_or_else(none, few)
            ),
            (Some(answer), None) => format!(
                "{name:<16}{:>9}{:>10}{:>6}{:>7}{:>9}{:>12}{:>9}",
                percent(answer.fast_capacity_share),
                tenth(answer.slowdown),
                format!("{:.0}%", answer.slow_share * 100.0),
                answer.cost.map_or_else(none, |cost| format!("{:.0}%", cost * 100.0)),
                too_small_slowdown.map_or_else(none, tenth),
                copied_bytes.map_or_else(none, |bytes| mebibytes(bytes as f64)),
                periods.map_or_else(none, few),
            ),
        };
        out.push_str(line.chars().take(80).collect::<String>().trim_end());
        out.push('\n');
    }
    out + "fast tier: its size over what is resident; slowdown: time over that with all in\n\
           fast memory, less 1; slow, cost: of the memory in use, averaged over time;\n\
           one less: the slowdown with a step less; never: too slow with all\n"
}

/// Periods that the run holds.
fn few(periods: f64) -> String {
    if periods < FEW_PERIODS { format!("{periods:.1}") } else { short(periods) }
}
