//! Policies that a kernel with DAMON can carry out by itself, in the kernel's units.

use terrace_in_memory::InMemory;
use terrace_model::{Bytes, Time};
use terrace_policy::{Schemes, Setup, find};

#[test]
fn damon_in_the_kernel_s_units() {
    let memory = InMemory::new(&[("fast", Bytes::mib(1)), ("slow", Bytes::mib(1))]);
    let setup = Setup { topology: memory.tiers(), capabilities: memory.offers(), seed: 0, profile: None };
    let open = |name: &str| find(name).unwrap().open(&Default::default(), setup).unwrap();
    let schemes = open("damon").schemes().unwrap();
    // 100 ms hold 20 looks of 5 ms, a fifth of which is 4; 5 s are 50 aggregations.
    assert_eq!((schemes.hot_looks(), schemes.cold_aggregations()), (4, 50));
    // So many whole ones that the time has passed for certain.
    let cold =
        |age: u64| Schemes { cold_age: Time(age * schemes.aggregation.0 / 2), ..schemes }.cold_aggregations();
    assert_eq!([0, 1, 2, 3].map(cold), [1, 1, 1, 2]);
    assert_eq!((schemes.min_regions, schemes.max_regions), (10, 1000));
    assert_eq!(open("first-touch").schemes(), None);
}
