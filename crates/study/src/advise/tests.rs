use super::*;
use terrace_report::{TierUse, Tiering};

fn trial(slowdown: f64) -> Trial {
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
    let mut search = Search { policy: String::new(), too_few: 0, enough: None, over: None, refused: None };
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
        assert_eq!(found.enough.map(|(at, _)| at), Some(enough));
        assert_eq!(found.too_few, enough - 1);
        assert!(tried <= 5, "{tried} runs for {enough}");
    }
    let (never, _) = search(|_| 0.09, 20);
    assert!(never.enough.is_none() && never.too_few == 20);
}

#[test]
fn a_policy_that_refuses_is_asked_once() {
    let mut search = Search { policy: String::new(), too_few: 0, enough: None, over: None, refused: None };
    let at = search.next(20).unwrap();
    search.learn(at, Err("no cache".to_owned()), 0.03);
    assert_eq!(search.next(20), None);
}
