//! What changed, in lines of 80 columns.

use super::{Difference, Pair, RunDifference};
use std::fmt::Write;
use terrace_model::text;
use terrace_report::{caveats, machine_sentence};

impl Difference {
    /// The difference in lines of 80 columns, with `most` statistics for each run.
    pub fn to_text(&self, most: usize) -> String {
        let mut out = String::new();
        for machine in &self.machines {
            out += &text::hanging("", &machine_sentence(&machine.machine, &machine.machine_tiers), 78);
        }
        out += &caveats(&self.caveats, 80);
        out.push('\n');
        let (equal, changed): (Vec<_>, Vec<_>) = self.runs.iter().partition(|run| is_equal(run));
        for run in changed {
            for line in text::wrap(&run.name.to_string(), 80) {
                let _ = writeln!(out, "{line}");
            }
            if let Some(remark) = run.other_input() {
                out += &text::hanging("  ", &remark, 78);
            }
            out += &time(run);
            for (name, pair) in run.statistics.iter().take(most) {
                let _ = writeln!(out, "{}", row(name, *pair));
            }
            if run.statistics.len() > most {
                let _ = writeln!(out, "  and {} more statistics", run.statistics.len() - most);
            }
            let (fidelity, scale) = (&run.fidelity, &run.scale);
            if fidelity.before != fidelity.after {
                let _ = writeln!(out, "  fidelity: {} -> {}", fidelity.before, fidelity.after);
            }
            if scale.before != scale.after {
                let _ = writeln!(out, "  scale: {} -> {}", scale.before, scale.after);
            }
            for (key, (before, after)) in &run.parameters {
                let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
                out += &text::hanging("  ", &format!("{key}: {} -> {}", side(before), side(after)), 78);
            }
            out.push('\n');
        }
        match equal.len() {
            0 => (),
            1 => out += "1 run is equal in every statistic.\n",
            count => {
                let _ = writeln!(out, "{count} runs are equal in every statistic.");
            }
        }
        for (runs, side) in [(&self.only_before, "before"), (&self.only_after, "after")] {
            for run in runs {
                out += &text::hanging("", &format!("Only {side}: {run}"), 80);
            }
        }
        out
    }
}

/// The row of the run's time.
fn time(run: &RunDifference) -> String {
    if !run.is_timed() {
        return format!("  {:<34}{:>14} {:>14}{:>14}\n", "time", "-", "-", "-");
    }
    let unit = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")]
        .into_iter()
        .find(|(size, _)| run.seconds.before >= *size)
        .unwrap_or((1e-9, "ns"));
    let seconds = Pair { before: run.seconds.before / unit.0, after: run.seconds.after / unit.0 };
    row(&format!("time, {}", unit.1), seconds) + "\n"
}

fn is_equal(run: &RunDifference) -> bool {
    let is_alike = run.fidelity.before == run.fidelity.after && run.scale.before == run.scale.after;
    is_alike
        && run.seconds.before == run.seconds.after
        && run.statistics.is_empty()
        && run.parameters.is_empty()
}

/// A name, both numbers and the change, in 80 columns.
fn row(name: &str, pair: Pair) -> String {
    let name = match name.char_indices().rev().nth(33) {
        Some((at, _)) if at > 0 => format!("...{}", &name[at + 3..]),
        _ => name.to_owned(),
    };
    let change = match pair.change() {
        change if change.is_finite() => format!("{:+.2} %", change * 100.0),
        _ => "new".to_owned(),
    };
    format!("  {name:<34}{:>14} {:>14}{change:>14}", number(pair.before), number(pair.after))
}

/// Whole numbers whole, others with five digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e13 {
        format!("{value:.0}")
    } else if (0.001..1e9).contains(&value.abs()) {
        let digits = 4 - (value.abs().log10().floor() as i32).clamp(0, 4);
        format!("{value:.*}", digits.max(0) as usize)
    } else {
        format!("{value:.4e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_and_keep_the_end_of_a_long_name() {
        let pair = Pair { before: 1_234_567_890_123.0, after: 0.123_456 };
        let long = row("translation_coherence.invalidations.of.something.far.down", pair);
        assert_eq!(long.chars().count(), 79);
        assert!(long.starts_with("  ...") && long.contains("something.far.down "), "{long}");
        assert!(row("walk.count", Pair { before: 4.0, after: 5.0 }).ends_with("+25.00 %"));
        assert!(row("walk.count", Pair { before: 0.0, after: 5.0 }).ends_with("new"));
    }

    #[test]
    fn numbers_have_five_digits_or_are_whole() {
        let shown: Vec<String> = [3.0, 1.5, 123.456, 0.25, 1e-7, 123_456_789.5].map(number).to_vec();
        assert_eq!(shown, ["3", "1.5000", "123.46", "0.2500", "1.0000e-7", "123456790"]);
    }
}
