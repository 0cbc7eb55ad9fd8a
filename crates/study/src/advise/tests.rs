use super::*;
use terrace_report::{TierUse, Tiering};

pub(super) fn trial(slowdown: f64) -> Trial {
    let tier = |name: &str, share| TierUse { name: name.to_owned(), mean_bytes: 0.0, share };
    let tiering = Tiering {
        slowdown: Some(slowdown),
        tiers: vec![tier("fast", 0.5), tier("slow", 0.5)],
        cost: None,
        is_pareto: false,
        is_pareto_by_cost: false,
        policy: None,
    };
    Trial { record: RunRecord::default(), tiering }
}

fn search(slowdown_at: impl Fn(usize) -> f64, steps: usize) -> (Search, usize) {
    let mut search = Search::of("ambix");
    let mut tried = 0;
    while let Some(at) = search.next(steps) {
        search.learn(at, Ok(trial(slowdown_at(at))), 0.03);
        tried += 1;
    }
    (search, tried)
}

#[test]
fn the_search_finds_the_first_step_that_is_enough() {
    for enough in 1..=20 {
        let (found, tried) = search(|at| if at >= enough { 0.01 } else { 0.09 }, 20);
        assert_eq!(found.too_few(), (enough > 1).then_some((enough - 1, 0.09)));
        assert_eq!(found.enough.map(|(at, _)| at), Some(enough));
        assert!(tried <= 5, "{tried} runs for {enough}");
    }
    let (never, _) = search(|_| 0.09, 20);
    assert!(never.enough.is_none() && never.too_few() == Some((20, 0.09)));
    // The tenth step is too slow, and all beyond the twelfth are slower still.
    let (uneven, _) = search(
        |at| [0.09, 0.05, 0.02, 0.3][(at >= 10) as usize + (at >= 11) as usize + (at >= 13) as usize],
        20,
    );
    assert_eq!(uneven.enough.as_ref().map(|(at, _)| *at), Some(11));
    assert_eq!(uneven.too_few(), Some((10, 0.05)));
}

#[test]
fn a_policy_that_refuses_is_asked_once() {
    let mut search = Search::of("ambix");
    let at = search.next(20).unwrap();
    search.learn(at, Err("no cache".to_owned()), 0.03);
    assert_eq!(search.next(20), None);
}

fn advice(fast_share: f64, slowdown: f64, interval: Option<[f64; 2]>) -> MemoryAdvice {
    let best = Placement {
        policy: "ambix".to_owned(),
        fast_capacity_share: fast_share,
        fast_capacity_bytes: (fast_share * 64.0) as u64 * 1024 * 1024,
        slow_capacity_bytes: ((1.0 - fast_share) * 64.0) as u64 * 1024 * 1024,
        slow_share: 1.0 - fast_share,
        slow_bytes: (1.0 - fast_share) * 64.0 * 1024.0 * 1024.0,
        slowdown,
        slowdown_interval: interval,
        cost: None,
        saving: None,
        capacity_saving: None,
    };
    MemoryAdvice {
        input: "app".to_owned(),
        machine: "zen4-cxl".to_owned(),
        machine_tiers: Vec::new(),
        accesses: 1000,
        resident_bytes: 64 << 20,
        scale: 1,
        tolerated_slowdown: 0.03,
        prices: Vec::new(),
        seconds_simulated: 1.0,
        advice: Some(best),
        policies: Vec::new(),
        uncertainty: Uncertainty { resolution: 0.05, seeds: Vec::new(), remarks: Vec::new() },
        command: None,
        trouble: None,
    }
}

#[test]
fn the_headline_says_faster_and_slower_and_where_nothing_can_be_slow() {
    let says = |advice: &MemoryAdvice, part: &str| {
        let text = advice.to_text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(part), "{text}");
    };
    says(&advice(0.5, 0.02, Some([0.01, 0.03])), "with 32.00 MiB fast: 2.0% slower (1.0% to 3.0%).");
    says(&advice(0.5, -0.001, None), "50% of the memory can be slow (32.00 MiB of 64.00 MiB), under ambix");
    says(&advice(0.5, -0.001, None), "with 32.00 MiB fast: 0.1% faster.");
    let none = "Less than 5% of the memory can be slow, the step of the search: of these policies ambix comes nearest, and takes all of it fast (64.00 MiB): 0.0% slower.";
    says(&advice(1.0, 0.0, None), none);
    let mut priced = advice(0.75, 0.02, None);
    for (saving, said) in [
        (0.125, "; it saves 12.5% of the memory's price."),
        (-0.125, "; it adds 12.5% to the memory's price."),
    ] {
        priced.advice.as_mut().unwrap().capacity_saving = Some(saving);
        says(&priced, said);
    }
}

#[test]
fn what_is_advised_is_the_first_row() {
    let mut advice = advice(0.5, 0.02, None);
    for (name, share) in [("nimble", 0.495), ("tpp", 0.75), ("ambix", 0.5)] {
        let answer =
            Placement { policy: name.to_owned(), slow_share: 1.0 - share, ..advice.advice.clone().unwrap() };
        advice.policies.push(PolicyAdvice {
            policy: name.to_owned(),
            answer: Some(answer),
            too_small_share: 0.0,
            too_small_slowdown: None,
            copied_bytes: None,
            period_seconds: None,
            periods: None,
            refused: None,
        });
    }
    let text = advice.to_text();
    let rows = text.lines().skip_while(|line| !line.starts_with("policy")).skip(1).take(3);
    let names: Vec<&str> = rows.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["ambix", "nimble", "tpp"], "{text}");
}
