//! Who wins and why, in sentences that are derived from the numbers alone.

use crate::format::{bytes, percent, seconds, slowdown as percent_slower, speedup as times};
use crate::run::{CycleComponent, component_label, ratio};
use crate::{Comparison, RunRecord};
use serde::Serialize;
use terrace_model::PageSize;

/// Two designs closer than this are called equal: a difference that small is no reason to prefer one.
const TIE: f64 = 0.01;

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conclusion {
    /// The input it is about; `None` for the finding over all inputs.
    pub input: Option<String>,
    /// The fastest contender; `None` where there is none (a tie with the baseline, one run, no time simulated).
    pub winner: Option<String>,
    /// The winner's speed-up over the baseline; 1 where the baseline itself is fastest.
    pub speedup: Option<f64>,
    /// The design that the speed-up refers to.
    pub baseline: String,
    /// The finding in a sentence or two.
    pub text: String,
    /// The same without what `winner`, `speedup` and `baseline` say already: the reason and the bound.
    pub detail: String,
}

/// One conclusion per input, preceded by one over all inputs where there are several.
pub(crate) fn conclude(comparison: &Comparison) -> Vec<Conclusion> {
    let names = comparison.input_names();
    let mut conclusions: Vec<Conclusion> = overall(comparison, &names).into_iter().collect();
    conclusions.extend(names.iter().filter_map(|input| on_input(comparison, input)));
    conclusions
}

fn on_input(comparison: &Comparison, input: &str) -> Option<Conclusion> {
    let baseline = comparison.baseline_of(input)?;
    let base = &baseline.design;
    let finding = |winner: Option<(&RunRecord, f64)>, text: String, detail: String| Conclusion {
        input: Some(input.to_owned()),
        winner: winner.map(|(run, _)| run.design.clone()),
        speedup: winner.map(|(_, speedup)| speedup),
        baseline: base.clone(),
        detail: if detail.is_empty() { text.clone() } else { detail },
        text,
    };
    if baseline.is_live() {
        return Some(finding(None, live(baseline), String::new()));
    }
    let mut timed: Vec<(&RunRecord, f64)> =
        comparison.runs_of(input).filter_map(|run| Some((run, run.speedup_over(baseline)?))).collect();
    if timed.is_empty() {
        let text = format!(
            "No winner on {input}: fidelity {} does not time accesses. Compare what it counts, or take --fidelity full.",
            baseline.fidelity
        );
        return Some(finding(None, text, String::new()));
    }
    if timed.len() == 1 {
        return Some(finding(
            None,
            format!("One design, {base}, on {input}: nothing to compare it with."),
            String::new(),
        ));
    }
    timed.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shares = comparison.swept_shares();
    if !shares.is_empty() {
        return Some(finding(None, by_share(comparison, input, &shares, &timed), String::new()));
    }
    let contenders: Vec<(&RunRecord, f64)> =
        timed.iter().copied().filter(|(run, _)| !run.is_bound()).collect();
    let bound = timed.iter().find(|(run, _)| run.is_bound());
    let Some(&(winner, speedup)) = contenders.first() else {
        return Some(finding(
            None,
            format!("Only bounds were run on {input}: no design to recommend."),
            String::new(),
        ));
    };

    let mut detail = String::new();
    let mut text = if winner.design == *base || speedup < 1.0 + TIE {
        let rival = contenders.iter().find(|(run, _)| run.design != *base);
        match rival {
            Some((run, s)) if (s - 1.0).abs() < TIE => {
                format!(
                    "No design beats {base} on {input}: the best of the others, {}, is within 1%.",
                    run.design
                )
            }
            Some((run, s)) => {
                format!("{base} wins on {input}: the next best, {}, reaches {}x.", run.design, times(*s))
            }
            None => format!("{base} is the only contender on {input}."),
        }
    } else {
        let headline = format!("{} wins on {input}: {}x {base}", winner.design, times(speedup));
        match reason(baseline, winner) {
            Some(reason) => {
                detail = format!("{reason}.");
                format!("{headline}, because {reason}.")
            }
            None => format!("{headline}."),
        }
    };
    if let Some(sentence) = frontier(comparison, input) {
        text += &sentence;
        if !detail.is_empty() {
            detail += &sentence;
        }
    }
    if let Some((bound, bound_speedup)) = bound {
        let sentence = format!(" The bound, {}, is {}x.", bound.design, times(*bound_speedup));
        text += &sentence;
        if !detail.is_empty() {
            detail += &sentence;
        }
    }
    let tie = winner.design != *base && speedup < 1.0 + TIE;
    Some(finding((!tie).then_some((winner, speedup)), text, detail))
}

/// What a policy did to real processes. Whether they became faster is not known here.
fn live(run: &RunRecord) -> String {
    let mib = |name: &str| bytes(run.stats.integer(name) * PageSize::Base.bytes());
    let share = ratio(run.stats.number("live.cpu_time") * 1e-9, run.wall_seconds);
    let cost = share.map_or(String::new(), |share| format!(" for {} of a core", percent(share)));
    format!(
        "{} managed {} for {}: {} promoted, {} demoted{cost}.",
        run.design,
        run.input,
        seconds(run.wall_seconds),
        mib("vmstat.pgpromote_success"),
        mib("vmstat.pgdemote_policy"),
    )
}

/// The fastest design at each share of fast memory. More of it always wins, so that no share beats another.
fn by_share(comparison: &Comparison, input: &str, shares: &[String], timed: &[(&RunRecord, f64)]) -> String {
    let best = shares.iter().filter_map(|share| {
        let (run, _) = timed.iter().find(|(run, _)| run.share_in_name() == Some(share.as_str()))?;
        let slowdown = comparison.tiering_of(run).and_then(|tiering| tiering.slowdown);
        let slowdown = slowdown.map_or(String::new(), |slowdown| format!(" ({})", percent_slower(slowdown)));
        let name = run.design.split('@').next().unwrap_or_default();
        Some(format!("{name}{slowdown} with {share}"))
    });
    format!("Fastest on {input} by share of fast memory: {}.", best.collect::<Vec<_>>().join(", "))
}

/// What the least memory in the fastest tier costs in time, in a sentence, where policies are compared.
fn frontier(comparison: &Comparison, input: &str) -> Option<String> {
    let mut best: Vec<(&RunRecord, f64, crate::Tiering)> = comparison
        .runs_of(input)
        .filter(|run| !run.is_bound())
        .filter_map(|run| {
            let tiering = comparison.tiering_of(run)?;
            Some((run, tiering.slowdown?, tiering))
        })
        .collect();
    if best.len() < 2 || best.iter().all(|(_, _, tiering)| tiering.policy.is_none()) {
        return None;
    }
    best.retain(|(_, _, tiering)| tiering.is_pareto);
    best.sort_by(|a, b| a.1.total_cmp(&b.1));
    let points: Vec<String> = best
        .iter()
        .take(3)
        .map(|(run, slowdown, tiering)| {
            let fast = percent(tiering.tiers[0].share);
            let cost = tiering.cost.map_or(String::new(), |cost| format!(", cost {}", percent(cost)));
            format!("{} ({}, {fast} fast{cost})", run.design, percent_slower(*slowdown))
        })
        .collect();
    (!points.is_empty()).then(|| format!(" Not beaten in both time and fast memory: {}.", points.join(", ")))
}

/// The component of the cycles that shrank most from `baseline` to `winner`, as a clause.
fn reason(baseline: &RunRecord, winner: &RunRecord) -> Option<String> {
    let after = winner.cycle_components();
    let saved = |part: &CycleComponent| {
        part.cycles - after.iter().find(|c| c.name == part.name).map_or(0.0, |c| c.cycles)
    };
    let components = baseline.cycle_components();
    let total: f64 = components.iter().map(|c| c.cycles).sum();
    let part = components.iter().max_by(|a, b| saved(a).total_cmp(&saved(b)))?;
    (total > 0.0 && saved(part) > 0.0).then(|| {
        format!(
            "{} of {}'s cycles were {} and {} spends {} fewer there",
            percent(part.cycles / total),
            baseline.design,
            component_label(&part.name),
            winner.design,
            percent(saved(part) / part.cycles),
        )
    })
}

/// The contender with the best geometric mean over the inputs, among the designs that ran on all of them.
fn overall(comparison: &Comparison, inputs: &[&str]) -> Option<Conclusion> {
    if inputs.len() < 2 || !comparison.swept_shares().is_empty() {
        return None;
    }
    let mut means: Vec<(&str, f64)> = Vec::new();
    for run in comparison.runs.iter().filter(|run| !run.is_bound()) {
        if means.iter().any(|(design, _)| *design == run.design) {
            continue;
        }
        let logarithms: Option<Vec<f64>> = inputs
            .iter()
            .map(|input| {
                let baseline = comparison.baseline_of(input).filter(|b| b.design == comparison.baseline)?;
                let here = comparison.runs_of(input).find(|r| r.design == run.design)?;
                here.speedup_over(baseline).map(f64::ln)
            })
            .collect();
        if let Some(logarithms) = logarithms {
            means.push((&run.design, (logarithms.iter().sum::<f64>() / inputs.len() as f64).exp()));
        }
    }
    if means.len() < 2 {
        return None;
    }
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (best, mean) = means[0];
    let base = &comparison.baseline;
    let n = inputs.len();
    let wins = mean >= 1.0 + TIE && best != base;
    let text = if wins {
        format!(
            "Over all {n} inputs {best} is the best choice: {}x {base} in the geometric mean.",
            times(mean)
        )
    } else {
        format!("Over all {n} inputs no design beats {base} in the geometric mean by 1% or more.")
    };
    Some(Conclusion {
        input: None,
        winner: Some(if wins { best.to_owned() } else { base.clone() }),
        speedup: Some(if wins { mean } else { 1.0 }),
        baseline: base.clone(),
        detail: text.clone(),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data;

    #[test]
    fn the_winner_is_named_with_its_largest_saving_and_the_bound_apart() {
        let comparison = test_data::comparison();
        let texts: Vec<String> = comparison.conclusions().into_iter().map(|c| c.text).collect();
        assert_eq!(
            texts,
            ["native-2m wins on gups: 1.60x native-4k, because 50% of native-4k's cycles were address \
                 translation and native-2m spends 75% fewer there. The bound, perfect-tlb, is 2.00x."]
        );
    }

    #[test]
    fn a_tie_has_no_winner() {
        let mut comparison = test_data::comparison();
        comparison.runs.retain(|run| !run.is_bound());
        for run in &mut comparison.runs {
            run.seconds_simulated = 0.001;
        }
        let conclusion = &comparison.conclusions()[0];
        assert!(conclusion.text.starts_with("No design beats native-4k on gups"), "{}", conclusion.text);
    }

    #[test]
    fn several_inputs_get_a_geometric_mean() {
        let mut comparison = test_data::comparison();
        let mut second: Vec<RunRecord> = comparison.runs.clone();
        for run in &mut second {
            run.input = "kv".to_owned();
            if run.design == "native-2m" {
                run.seconds_simulated = 0.001; // equal to the baseline
            }
        }
        comparison.runs.extend(second);
        let overall = &comparison.conclusions()[0];
        assert_eq!(overall.input, None);
        assert_eq!(overall.winner.as_deref(), Some("native-2m"));
        assert!((overall.speedup.unwrap() - 1.6f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_sweep_names_the_fastest_at_each_share() {
        let mut comparison = test_data::policies();
        let mut more: Vec<RunRecord> = comparison.runs.drain(1..).collect();
        for (share, factor) in [("50%", 1.0), ("25%", 2.0)] {
            for run in &mut more {
                run.design = format!("{}@{share}", run.design.split('@').next().unwrap());
                run.seconds_simulated *= factor;
            }
            comparison.runs.extend(more.clone());
        }
        assert_eq!(
            comparison.conclusions()[0].text,
            "Fastest on gups by share of fast memory: mover (+120.0%) with 25%, mover (+10.0%) with 50%."
        );
    }

    #[test]
    fn without_time_nobody_wins() {
        let mut comparison = test_data::comparison();
        for fidelity in ["translation", "pages"] {
            for run in &mut comparison.runs {
                run.fidelity = fidelity.to_owned();
                assert!(run.seconds_simulated > 0.0);
            }
            let conclusion = &comparison.conclusions()[0];
            assert_eq!((conclusion.winner.as_ref(), conclusion.speedup), (None, None));
            let text = format!("fidelity {fidelity} does not time accesses");
            assert!(conclusion.text.contains(&text), "{}", conclusion.text);
        }
    }
}
