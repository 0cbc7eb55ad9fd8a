//! Where a run's memory lay, what that saves, and what moving it cost.

use crate::run::ratio;
use crate::{Comparison, RunRecord};
use serde::Serialize;
use terrace_model::{Bytes, PageSize};

/// Shares of fast memory closer than this are the same amount: means over time differ by as much for no reason.
const SAME_SHARE: f64 = 0.01;
/// Run times closer than this are the same.
const SAME_TIME: f64 = 0.001;

/// What a machine with several tiers made of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tiering {
    /// Run time over that of the same input with everything in the fastest tier, less 1; `None` without such a run.
    pub slowdown: Option<f64>,
    /// The tiers, fastest first.
    pub tiers: Vec<TierUse>,
    /// Price of the memory in use over that of as much of the fastest tier; `None` where no prices were given.
    pub cost: Option<f64>,
    /// No other run of the input has both a smaller slowdown and less memory in the fastest tier.
    pub is_pareto: bool,
    /// No other run of the input has both a smaller slowdown and a smaller cost.
    pub is_pareto_by_cost: bool,
    /// What a policy moved and what that took; `None` for designs without one.
    pub policy: Option<PolicyWork>,
}

/// One tier's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierUse {
    /// The tier's name.
    pub name: String,
    /// Memory in use, averaged over simulated time, without what the system keeps for itself.
    pub mean_bytes: f64,
    /// The tier's share of the memory in use, 0 to 1. In memory mode the first tier's are copies: shares add up to more than
    /// 1.
    pub share: f64,
}

/// What a policy moved, and what that took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PolicyWork {
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Pages of 4 KiB that came to a faster tier.
    pub promoted_pages: u64,
    /// Pages of 4 KiB that came to a slower tier.
    pub demoted_pages: u64,
    /// Pages that went back whence they had come within a period.
    pub ping_pong_pages: u64,
    /// Time that threads waited for pages on the move, summed over them.
    pub wait_seconds: f64,
    /// Cores interrupted for the policy.
    pub interrupts: u64,
    /// Time of the policy's own processor.
    pub policy_seconds: f64,
    /// Time of the processors that moved pages.
    pub migration_seconds: f64,
}

impl RunRecord {
    pub(crate) fn parameter(&self, key: &str) -> Option<&str> {
        let (_, value) = self.parameters.iter().find(|(name, _)| name == key)?;
        Some(value.trim_matches('"'))
    }

    /// The tiers of the machine by their names, fastest first.
    fn tier_names(&self) -> Vec<&str> {
        let counted = |name: &&str| self.stats.get(&format!("tier.{name}.mean_pages")).is_some();
        let mut names: Vec<&str> = Vec::new();
        // `os.` too, since parameters may stand in any order, but those of the tiers are in the machine's.
        for (key, _) in &self.parameters {
            if let Some((name, _)) = key.strip_prefix("tier.").and_then(|rest| rest.split_once('.'))
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        names.retain(counted);
        names
    }

    /// Whether everything had to lie in the fastest tier: the bound of all tiering.
    pub fn is_all_fast(&self) -> bool {
        let names = self.tier_names();
        let is_bound = |system: &str, to: &dyn Fn(&str) -> bool| {
            self.parameter(&format!("{system}.placement.kind")) == Some("bind")
                && self.parameter(&format!("{system}.placement.tier")).is_some_and(to)
        };
        let fastest = |tier: &str| tier == "fastest" || tier == names[0];
        // The tiers of a guest are its own: the hypervisor says which of the machine's they are.
        names.len() > 1
            && match self.is_virtual() {
                true => is_bound("host", &fastest) && is_bound("os", &|_| true),
                false => is_bound("os", &fastest),
            }
    }

    /// Whether its programs ran in a virtual machine with a hypervisor that was simulated.
    fn is_virtual(&self) -> bool {
        self.parameters.iter().any(|(key, _)| key.starts_with("vm.") || key.starts_with("host."))
    }

    /// `25%` of `ambix@25%`.
    pub(crate) fn share_in_name(&self) -> Option<&str> {
        self.design.split_once('@').map(|(_, share)| share).filter(|share| share.ends_with('%'))
    }

    fn tier_use(&self) -> Option<Vec<TierUse>> {
        let names = self.tier_names();
        if names.len() < 2 {
            return None;
        }
        let reserved =
            self.parameter("os.reserved").and_then(|text| text.parse::<Bytes>().ok()).unwrap_or(Bytes(0));
        let mut tiers: Vec<TierUse> = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let pages = self
                    .stats
                    .get(&format!("tier.{name}.mean_pages"))
                    .map_or(0.0, |stat| stat.value.as_f64());
                let kept = if at == 0 { reserved.0 as f64 / f64::from(self.scale.max(1)) } else { 0.0 };
                let mean_bytes = (pages * PageSize::Base.bytes() as f64 - kept).max(0.0);
                TierUse { name: (*name).to_owned(), mean_bytes, share: 0.0 }
            })
            .collect();
        // A hardware cache holds copies: what it takes comes on top of the memory in use.
        let is_cache = self.stats.get("cache.memory.hit").is_some();
        let all: f64 = tiers.iter().skip(usize::from(is_cache)).map(|tier| tier.mean_bytes).sum();
        for tier in &mut tiers {
            tier.share = ratio(tier.mean_bytes, all).unwrap_or(0.0);
        }
        Some(tiers)
    }

    pub(crate) fn policy_work(&self) -> Option<PolicyWork> {
        self.stats.get("policy.calls")?;
        let integer = |name: &str| self.stats.integer(name);
        let seconds = |name: &str| self.stats.get(name).map_or(0.0, |stat| stat.value.as_f64() * 1e-9);
        Some(PolicyWork {
            copied_bytes: integer("policy.copied_bytes"),
            promoted_pages: integer("vmstat.pgpromote_success"),
            demoted_pages: integer("vmstat.pgdemote_policy"),
            ping_pong_pages: integer("policy.ping_pong"),
            wait_seconds: seconds("policy.wait_time"),
            interrupts: integer("policy.interrupts"),
            policy_seconds: seconds("policy.time"),
            migration_seconds: seconds("policy.migration_time"),
        })
    }
}

impl Comparison {
    /// The run of the same input with everything in the fastest tier: in a virtual machine for a run in one, where there
    /// is such a run.
    pub fn all_fast_of(&self, run: &RunRecord) -> Option<&RunRecord> {
        let mut bounds = self.runs.iter().filter(|other| other.input == run.input && other.is_all_fast());
        bounds.clone().find(|bound| bound.is_virtual() == run.is_virtual()).or_else(|| bounds.next())
    }

    /// Run time over that with everything in the fastest tier, less 1. Of a mix, by the speed-ups over the baseline, where
    /// each program weighs the same for all designs.
    fn slowdown(&self, run: &RunRecord) -> Option<f64> {
        let fast = self.all_fast_of(run)?;
        let base = self.runs_of(&run.input).find(|other| other.design == self.baseline).unwrap_or(fast);
        let slower = match run.mix() {
            Some(_) => fast.speedup_over(base)? / run.speedup_over(base)?,
            None => fast.speedup_over(run)?,
        };
        Some(slower - 1.0)
    }

    /// Where the memory of one of these runs lay; `None` on a machine with one tier, or where no time was simulated.
    pub fn tiering_of(&self, run: &RunRecord) -> Option<Tiering> {
        let tiers = run.tier_use()?;
        let fast = |tiers: &[TierUse]| Some(tiers[0].share);
        Some(Tiering {
            slowdown: self.slowdown(run),
            cost: self.cost(&tiers),
            is_pareto: self.is_unbeaten(run, fast),
            is_pareto_by_cost: self.is_unbeaten(run, |tiers| self.cost(tiers)),
            policy: run.policy_work(),
            tiers,
        })
    }

    /// No other run of the input is better in time or `expense` and no worse in the other.
    fn is_unbeaten(&self, run: &RunRecord, expense: impl Fn(&[TierUse]) -> Option<f64>) -> bool {
        let point = |run: &RunRecord| {
            run.tier_use()
                .and_then(|tiers| expense(&tiers))
                .filter(|_| run.is_timed())
                .map(|e| (run.seconds_simulated, e))
        };
        point(run).is_some_and(|(time, expense)| {
            let mut others = self.runs_of(&run.input).filter_map(point);
            !others.any(|(t, e)| {
                let better = t < time * (1.0 - SAME_TIME) || e < expense - SAME_SHARE;
                t <= time && e <= expense + SAME_SHARE && better
            })
        })
    }

    /// The shares of fast memory that designs were put to, smallest first: designs of a sweep are named `ambix@25%`.
    /// Empty where there is none.
    pub(crate) fn swept_shares(&self) -> Vec<String> {
        let mut shares: Vec<(f64, String)> = Vec::new();
        for text in self.runs.iter().filter_map(|run| run.share_in_name()) {
            let number = text.trim_end_matches('%').parse().unwrap_or(f64::NAN);
            if !shares.iter().any(|(_, known)| known == text) {
                shares.push((number, text.to_owned()));
            }
        }
        shares.sort_by(|a, b| a.0.total_cmp(&b.0));
        if shares.len() < 2 { Vec::new() } else { shares.into_iter().map(|(_, text)| text).collect() }
    }

    /// Price of memory that lies like this, where the fastest tier's price is 1.
    fn cost(&self, tiers: &[TierUse]) -> Option<f64> {
        if self.prices.is_empty() {
            return None;
        }
        let price =
            |name: &str| self.prices.iter().find(|(tier, _)| tier == name).map_or(1.0, |(_, price)| *price);
        Some(tiers.iter().map(|tier| tier.share * price(&tier.name)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data;

    fn tiering(comparison: &Comparison, design: &str) -> Tiering {
        let run = comparison.runs.iter().find(|run| run.design == design).unwrap();
        comparison.tiering_of(run).unwrap()
    }

    #[test]
    fn slowdown_shares_and_cost_by_hand() {
        let comparison = test_data::policies();
        let fast = tiering(&comparison, "all-fast");
        assert_eq!((fast.slowdown, fast.cost), (Some(0.0), Some(1.0)));
        let mover = tiering(&comparison, "mover");
        assert!((mover.slowdown.unwrap() - 0.1).abs() < 1e-12);
        let shares: Vec<f64> = mover.tiers.iter().map(|tier| tier.share).collect();
        assert_eq!(shares, [0.25, 0.75]);
        // A quarter at 1, three quarters at 0.4.
        assert!((mover.cost.unwrap() - 0.55).abs() < 1e-12);
        let work = mover.policy.unwrap();
        assert_eq!((work.copied_bytes, work.promoted_pages, work.ping_pong_pages), (40_960, 7, 2));
        assert!((work.wait_seconds - 0.002).abs() < 1e-12);
    }

    #[test]
    fn who_is_beaten_in_both_is_not_on_the_frontier() {
        let comparison = test_data::policies();
        let on: Vec<bool> =
            comparison.runs.iter().map(|run| comparison.tiering_of(run).unwrap().is_pareto).collect();
        assert_eq!(on, [true, false, true]);
    }

    #[test]
    fn what_the_system_keeps_is_no_use() {
        let mut comparison = test_data::policies();
        for run in &mut comparison.runs {
            run.parameters.push(("os.reserved".to_owned(), "400 KiB".to_owned()));
        }
        assert_eq!(tiering(&comparison, "mover").tiers[0].mean_bytes, 0.0);
    }

    #[test]
    fn a_hardware_cache_costs_on_top() {
        let mut comparison = test_data::policies();
        let run = comparison.runs.iter_mut().find(|run| run.design == "first-touch").unwrap();
        run.stats.count("cache.memory.hit", 1, terrace_model::Unit::Count);
        let found = tiering(&comparison, "first-touch");
        let shares: Vec<f64> = found.tiers.iter().map(|tier| tier.share).collect();
        assert_eq!((shares, found.cost), (vec![1.0, 1.0], Some(1.4)));
    }

    #[test]
    fn one_tier_has_no_tiering() {
        let comparison = test_data::comparison();
        assert!(comparison.runs.iter().all(|run| comparison.tiering_of(run).is_none()));
    }
}
