use super::*;
use crate::test_data;

#[test]
fn the_winner_is_named_with_its_largest_saving_and_the_bound_apart() {
    let comparison = test_data::comparison();
    let texts: Vec<String> = comparison.conclusions().into_iter().map(|c| c.text).collect();
    assert_eq!(
        texts,
        [
            "native-2m wins on gups: 1.60x native-4k, because it saves 38% of native-4k's cycles: 38% in address \
          translation. The bound, perfect-tlb, is 2.00x."
        ]
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
    assert_eq!(
        conclusion.text,
        "No clear difference on gups: the best of the others, native-2m, reaches 1.00x native-4k."
    );
    assert_eq!(conclusion.winner, None);
}

#[test]
fn a_winner_is_clear_of_the_baseline_and_of_the_next() {
    let mut comparison = test_data::comparison();
    comparison.runs[2].parameters[1].1 = "vivt".to_owned(); // a contender then, 2.00x
    let uncertain =
        |share| Some(crate::Uncertainty { memory_constants: share, ..crate::Uncertainty::default() });
    comparison.runs[1].uncertainty = uncertain(0.1);
    comparison.runs[2].uncertainty = uncertain(0.2);
    let conclusion = &comparison.conclusions()[0];
    assert_eq!(
        conclusion.text,
        "perfect-tlb leads on gups: 2.00x (1.64 to 2.44) native-4k, because it saves 50% of native-4k's cycles: 50% in \
         address translation. There is no clear difference to native-2m."
    );
    assert_eq!(conclusion.rivals, ["native-2m"]);
    // Ends that reach the baseline leave no winner.
    comparison.runs[2].uncertainty = uncertain(0.7);
    let conclusion = &comparison.conclusions()[0];
    assert!(conclusion.text.starts_with("No clear difference on gups: "), "{}", conclusion.text);
    assert_eq!((conclusion.winner.as_ref(), conclusion.speedup), (None, None));
}

#[test]
fn a_baseline_that_wins_says_why() {
    let mut comparison = test_data::comparison();
    comparison.runs.truncate(2);
    comparison.runs.reverse();
    comparison.baseline = "native-2m".to_owned();
    assert_eq!(
        comparison.conclusions()[0].text,
        "native-2m wins on gups: the next best, native-4k, reaches 0.62x, because native-4k spends 60% more cycles than \
         native-2m: 60% more in address translation."
    );
}

fn ends_with(comparison: &Comparison, end: &str) {
    let text = &comparison.conclusions()[0].text;
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn a_winner_above_a_bound_says_how_that_can_be() {
    let mut comparison = test_data::comparison();
    comparison.runs[2].seconds_simulated = 0.0009;
    comparison.runs[2].stats.count("core.cycles.os", 300, terrace_model::Unit::Cycles);
    ends_with(
        &comparison,
        "The bound, perfect-tlb, is 1.11x. native-2m can be above it: perfect-tlb takes away address translation \
         alone, and native-2m spends 38% of perfect-tlb's cycles less in the operating system.",
    );
}

#[test]
fn a_baseline_above_a_bound_says_how_that_can_be() {
    let mut comparison = test_data::comparison();
    comparison.runs.remove(1);
    comparison.runs[1].seconds_simulated = 0.00125;
    comparison.runs[1].stats.count("core.cycles.os", 750, terrace_model::Unit::Cycles);
    ends_with(
        &comparison,
        "The bound, perfect-tlb, is 0.80x. native-4k can be above it: perfect-tlb takes away address translation \
         alone, and native-4k spends 60% of perfect-tlb's cycles less in the operating system.",
    );
}

#[test]
fn coherence_for_nothing_is_a_bound() {
    let mut comparison = test_data::comparison();
    let ideal = &mut comparison.runs[2];
    ideal.design = "ideal-coherence".to_owned();
    ideal.parameters = vec![("translation.coherence".to_owned(), "\"ideal\"".to_owned())];
    assert!(ideal.is_bound());
    let mut central = ideal.clone();
    central.parameters.push(("translation.scheme.kind".to_owned(), "\"vbi\"".to_owned()));
    assert!(!central.is_bound(), "cores hold no translations that something could take from them");
    assert_eq!(comparison.conclusions()[0].winner.as_deref(), Some("native-2m"));
    ends_with(&comparison, "The bound, ideal-coherence, is 2.00x.");
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
fn of_equals_at_a_share_none_is_the_fastest() {
    let mut comparison = test_data::policies();
    let mut more: Vec<RunRecord> = comparison.runs.drain(1..).collect();
    let fastest = more.iter().map(|run| run.seconds_simulated).fold(f64::INFINITY, f64::min);
    for share in ["50%", "25%"] {
        for run in &mut more {
            run.design = format!("{}@{share}", run.design.split('@').next().unwrap());
            if share == "25%" {
                run.seconds_simulated = fastest;
            }
        }
        comparison.runs.extend(more.clone());
    }
    assert_eq!(
        comparison.conclusions()[0].text,
        "Fastest on gups by share of fast memory: no clear difference with 25%, mover (+10.0%) with 50%."
    );
}

#[test]
fn on_an_input_without_accesses_nobody_wins() {
    let mut comparison = test_data::comparison();
    comparison.runs.iter_mut().for_each(|run| run.seconds_simulated = 0.0);
    let conclusion = &comparison.conclusions()[0];
    assert_eq!((conclusion.winner.as_ref(), conclusion.speedup), (None, None));
    assert!(conclusion.text.contains("does nothing that takes time"), "{}", conclusion.text);
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
