//! What a search found, in one screen.

use super::{Tuned, TunedRun};
use crate::closing;
use crate::figures::{readable, tenth, time};
use terrace_model::text;
use terrace_report::machine_sentence;

impl Tuned {
    /// What was found, in one screen of 80 columns.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut say = |text: &str| out.push_str(&text::hanging("", text, 78));
        let mebibytes = readable(self.resident_bytes);
        say(&format!(
            "{} on {}, {}: {} of {mebibytes} resident is fast; {} is least after {} settings (seed {})",
            self.policy,
            self.input,
            self.machine,
            tenth(self.fast_share),
            self.objective,
            self.runs,
            self.seed
        ));
        say(&machine_sentence(&self.machine, &self.machine_tiers));
        say("");
        let line = |name: &str, result: &TunedRun| {
            let cost = result.cost.map_or(String::new(), |cost| format!(", cost {}", tenth(cost)));
            format!(
                "{name:<12}{:>10} {:>10} slower than all fast{cost}",
                time(result.seconds_simulated),
                tenth(result.slowdown)
            )
        };
        out.push_str(&line("defaults", &self.default));
        out.push('\n');
        out.push_str(&line("tuned", &self.tuned));
        out.push_str(&format!("; gain {}\n", tenth(self.gain)));
        if let (Some(low), Some(high)) = (self.gain_low, self.gain_high) {
            out.push_str(&format!(
                "{:<12}{} to {} gain, as assumed constants and seeds move it\n",
                "",
                tenth(low),
                tenth(high)
            ));
        }
        if let Some(slowdown) = self.first_touch_slowdown {
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
        for parameter in &self.parameters {
            let steps = parameter.sensitivity.iter().map(|one| {
                let change = one
                    .change
                    .map_or_else(|| "refused".to_owned(), |change| format!("{:+.1}%", change * 100.0));
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
        if !self.not_searched.is_empty() {
            let text = format!("not searched: {}", self.not_searched.join(", "));
            out.push_str(&text::hanging("", &text, 80));
        }
        if !self.checks.is_empty() {
            out.push_str(&format!(
                "\n{:<38}{:>10}{:>10}{:>10}\n",
                "not tuned on", "defaults", "tuned", "gain"
            ));
            for check in &self.checks {
                let name: String = check.input.chars().take(37).collect();
                let (default, searched) = (tenth(check.default_slowdown), tenth(check.tuned_slowdown));
                out.push_str(&format!("{name:<38}{default:>10}{searched:>10}{:>10}\n", tenth(check.gain)));
            }
        }
        out.push('\n');
        out.push_str(&closing::remarks(&self.remarks));
        if self.command.is_empty() {
            return out + "\nNothing that was tried is better than the defaults.\n";
        }
        let use_it = if self.is_recommended { "Use it" } else { "Not recommended; to try it" };
        out + &format!("\n{use_it}: {}\n", self.command)
    }
}
