//! The arithmetic of Thermostat: budget, estimate, and who goes where.

use crate::PageId;
use std::collections::BTreeSet;

/// Accesses per second to slow memory that a slowdown allows (§6.3.4): `x / t`, t in seconds.
pub fn budget(slowdown: f64, slow_access: f64) -> f64 {
    slowdown / slow_access
}

/// Accesses per second of a huge page from its sample (§6.3.2): the mean count of the poisoned base pages times the
/// number of base pages that were accessed at all. A page of which none was accessed has rate 0.
pub fn estimated_rate(counts: &[u64], accessed: u64, seconds: f64) -> f64 {
    if counts.is_empty() || seconds <= 0.0 {
        return 0.0;
    }
    counts.iter().sum::<u64>() as f64 / counts.len() as f64 * accessed as f64 / seconds
}

/// The pages with the lowest rates whose sum is within `budget`. Sorts `rates`; ties by address.
pub fn coldest_within(rates: &mut [(PageId, f64)], budget: f64) -> BTreeSet<PageId> {
    rates.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let mut sum = 0.0;
    let cold = rates.iter().take_while(|(_, rate)| {
        sum += rate;
        sum <= budget
    });
    cold.map(|(page, _)| *page).collect()
}

/// The pages with the highest rates that have to go until the rest is within `budget`. Sorts `rates`.
pub fn hottest_beyond(rates: &mut [(PageId, f64)], budget: f64) -> Vec<PageId> {
    rates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut sum: f64 = rates.iter().map(|(_, rate)| rate).sum();
    let hot = rates.iter().take_while(|(_, rate)| {
        let too_much = sum > budget;
        sum -= rate;
        too_much
    });
    hot.map(|(page, _)| *page).collect()
}
