//! The answer of `terrace tune`: its document, and its text for the terminal.

use crate::progress::tenth;
use crate::{output, progress};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Document {
    pub(super) policy: String,
    pub(super) input: String,
    pub(super) machine: String,
    pub(super) fast_share: f64,
    pub(super) resident_bytes: u64,
    pub(super) objective: String,
    pub(super) runs: u32,
    pub(super) seed: u64,
    pub(super) refused: u32,
    pub(super) default: Outcome,
    pub(super) tuned: Outcome,
    /// Share of the default's objective that the tuned setting saves.
    pub(super) gain: f64,
    pub(super) first_touch_slowdown: Option<f64>,
    pub(super) parameters: Vec<ParameterAnswer>,
    pub(super) not_searched: Vec<String>,
    pub(super) checks: Vec<Check>,
    pub(super) remarks: Vec<String>,
    pub(super) command: String,
}

/// What a setting achieves.
#[derive(Serialize)]
pub(super) struct Outcome {
    pub(super) objective: f64,
    pub(super) seconds_simulated: f64,
    pub(super) slowdown: f64,
    pub(super) slow_share: f64,
    pub(super) cost: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct ParameterAnswer {
    pub(super) name: String,
    pub(super) low: String,
    pub(super) high: String,
    pub(super) default: String,
    pub(super) tuned: String,
    /// Change of the objective when only this parameter moves away from the tuned setting.
    pub(super) sensitivity: Vec<Sensitivity>,
}

#[derive(Serialize)]
pub(super) struct Sensitivity {
    pub(super) value: String,
    /// None where the policy refuses the value.
    pub(super) change: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct Check {
    pub(super) input: String,
    pub(super) default_slowdown: f64,
    pub(super) tuned_slowdown: f64,
    pub(super) gain: f64,
}

pub(super) fn text(document: &Document) -> String {
    let mut out = String::new();
    let mut say = |text: &str| out.push_str(&output::hanging("", text, 78));
    let mebibytes = crate::commands::workload::readable(document.resident_bytes);
    say(&format!(
        "{} on {}, {}: {} of {mebibytes} resident is fast; {} is least after {} settings (seed {})",
        document.policy,
        document.input,
        document.machine,
        tenth(document.fast_share),
        document.objective,
        document.runs,
        document.seed
    ));
    say("");
    let line = |name: &str, result: &Outcome| {
        let cost = result.cost.map_or(String::new(), |cost| format!(", cost {}", tenth(cost)));
        format!(
            "{name:<12}{:>10} {:>10} slower than all fast{cost}",
            progress::time(result.seconds_simulated),
            tenth(result.slowdown)
        )
    };
    out.push_str(&line("defaults", &document.default));
    out.push('\n');
    out.push_str(&line("tuned", &document.tuned));
    out.push_str(&format!("; gain {}\n", tenth(document.gain)));
    if let Some(slowdown) = document.first_touch_slowdown {
        out.push_str(&format!(
            "{:<12}{:>10} {:>10} slower than all fast\n",
            "first-touch",
            "",
            tenth(slowdown)
        ));
    }
    out.push_str(&format!(
        "\n{:<17}{:>11}{:>11}  {}\n",
        "parameter", "default", "tuned", "alone, from tuned"
    ));
    for parameter in &document.parameters {
        let steps = parameter.sensitivity.iter().map(|one| {
            let change =
                one.change.map_or_else(|| "refused".to_owned(), |change| format!("{:+.1}%", change * 100.0));
            format!("{} {change}", one.value)
        });
        let row = format!(
            "{:<17}{:>11}{:>11}  {}",
            parameter.name,
            parameter.default,
            parameter.tuned,
            steps.collect::<Vec<_>>().join(", ")
        );
        out.push_str(row.chars().take(80).collect::<String>().trim_end());
        out.push('\n');
    }
    if !document.not_searched.is_empty() {
        let text = format!("not searched: {}", document.not_searched.join(", "));
        out.push_str(&(output::wrap(&text, 80).join("\n  ") + "\n"));
    }
    if !document.checks.is_empty() {
        out.push_str(&format!("\n{:<38}{:>10}{:>10}{:>10}\n", "not tuned on", "defaults", "tuned", "gain"));
        for check in &document.checks {
            let name: String = check.input.chars().take(37).collect();
            let (default, tuned) = (tenth(check.default_slowdown), tenth(check.tuned_slowdown));
            out.push_str(&format!("{name:<38}{default:>10}{tuned:>10}{:>10}\n", tenth(check.gain)));
        }
    }
    out.push('\n');
    for remark in &document.remarks {
        out.push_str(&output::hanging("- ", remark, 76));
    }
    if document.command.is_empty() {
        return out + "\nNothing that was tried is better than the defaults.\n";
    }
    out + &format!("\nUse it: {}\n", document.command)
}
