//! The tiers of machines that are not here, from what their `/sys` says.

mod common;
use common::Machine;
use terrace_live::facts::{GroupedBy, TierMap, nodes};
use terrace_live::kernel::Rooted;
use terrace_model::{Bytes, TierId, Time};

fn tiers(name: &str) -> TierMap {
    TierMap::discover(&Machine::named(name).kernel())
}

fn names(map: &TierMap) -> Vec<&str> {
    map.topology.tiers.iter().map(|tier| tier.name.as_str()).collect()
}

#[test]
fn one_node_without_swap_is_one_tier() {
    let map = tiers("one-node-6.18");
    assert_eq!(names(&map), ["dram"]);
    assert_eq!((map.grouped_by, map.nodes.as_slice()), (GroupedBy::Nothing, &[vec![0]][..]));
    let dram = &map.topology.tiers[0];
    assert_eq!(dram.capacity, Bytes::kib(11_364_564));
    assert_eq!(dram.free(), Bytes::kib(9_950_200 + 412_528), "file pages not used lately count as free");
    assert_eq!(map.stated_speed, [false]);
}

#[test]
fn zram_is_a_tier_beside_a_single_node() {
    let machine = Machine::named("zram-user");
    let mut map = TierMap::discover(&machine.kernel());
    assert_eq!(names(&map), ["dram", "compressed"]);
    assert_eq!(map.compressed(), Some(TierId(1)));
    assert_eq!(map.nodes, [vec![0], vec![]]);
    let compressed = map.topology.tiers[1].clone();
    assert_eq!((compressed.capacity, compressed.used), (Bytes::kib(8_388_604), Bytes::mib(1)));
    machine.set("/proc/swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 8388604 2048 100\n");
    map.refresh(&machine.kernel(), &nodes::discover(&machine.kernel()));
    assert_eq!(map.topology.tiers[1].used, Bytes::mib(2));
    assert_eq!(map.topology.tiers[0].capacity, Bytes::kib(16_000_000));
}

#[test]
fn two_nodes_as_the_kernel_ranks_them() {
    let map = tiers("two-nodes-6.12");
    assert_eq!(names(&map), ["dram", "slow"]);
    assert_eq!((map.grouped_by, map.stated_speed.as_slice()), (GroupedBy::Kernel, &[true, true][..]));
    assert_eq!(map.nodes, [vec![0], vec![1]]);
    assert_eq!(map.tier_of_node, [Some(TierId(0)), Some(TierId(1))]);
    let slow = map.topology.tier(TierId(1));
    assert_eq!(slow.read_latency, Time::from_nanos(300));
    assert_eq!(slow.read_bandwidth.0, 10_240.0 * 1_048_576.0, "sysfs counts in MiB/s");
    assert_eq!((map.tier_of(1), map.tier_of(7)), (Some(TierId(1)), None));
}

#[test]
fn four_nodes_are_three_tiers_and_bandwidths_of_a_tier_add_up() {
    let map = tiers("four-nodes-6.12");
    assert_eq!(names(&map), ["dram", "node2", "node3"]);
    assert_eq!(map.nodes, [vec![0, 1], vec![2], vec![3]]);
    let dram = map.topology.tier(TierId(0));
    assert_eq!(dram.read_latency, Time::from_nanos(80));
    assert_eq!(dram.read_bandwidth.0, 2.0 * 40_960.0 * 1_048_576.0);
    assert_eq!(dram.capacity, Bytes::kib(2_000_000));
}

#[test]
fn a_kernel_that_sees_one_tier_is_overruled_by_the_firmware() {
    let map = tiers("two-nodes-6.1");
    assert_eq!(names(&map), ["dram", "slow"]);
    assert_eq!(map.grouped_by, GroupedBy::Latency);
}

#[test]
fn without_latencies_nodes_without_processors_are_slow_by_distance() {
    let mut nodes = nodes::discover(&Machine::named("two-nodes-6.1").kernel());
    for node in &mut nodes {
        node.speed = Default::default();
    }
    let map = TierMap::of(&nodes, &Default::default(), &Default::default());
    assert_eq!((names(&map), map.grouped_by), (vec!["dram", "slow"], GroupedBy::Distance));
    assert_eq!(map.topology.tiers[1].read_latency, map.topology.tiers[0].read_latency.times(2));
    nodes[1].cpus = vec![2, 3];
    let map = TierMap::of(&nodes, &Default::default(), &Default::default());
    assert_eq!(
        (map.nodes, map.grouped_by),
        (vec![vec![0, 1]], GroupedBy::Nothing),
        "two sockets are one tier"
    );
}

#[test]
fn a_faster_tier_without_processors_comes_first() {
    let mut nodes = nodes::discover(&Machine::named("two-nodes-6.12").kernel());
    nodes[1].speed.read_latency = Some(Time::from_nanos(40));
    let map = TierMap::of(&nodes, &Default::default(), &Default::default());
    assert_eq!((names(&map), map.nodes.as_slice()), (vec!["fast", "dram"], &[vec![1], vec![0]][..]));
}

#[test]
fn a_machine_that_says_nothing_has_no_tier() {
    let empty = tempfile::tempdir().unwrap();
    let map = TierMap::discover(&Rooted::new(empty.path()));
    assert!(map.topology.tiers.is_empty() && map.nodes.is_empty());
}
