//! No dead knobs: every parameter of every policy changes what the policy does.
//!
//! Each parameter is set to other values within its range, and the policy is run on a few standard programs. If no value
//! changes a page's place, a statistic, a cost or the number of calls, the parameter must be in [`SHOWN_BY`], with the
//! test that shows its effect by hand.

#[path = "support/open.rs"]
mod support;

use std::path::Path;
use support::Open;
use terrace_in_memory::{Driver, InMemory};
use terrace_model::parameters::{Kind, ParameterInfo};
use terrace_model::{Bytes, BytesPerSec, Frame, Time};
use terrace_policy::{AccessOrder, Entry, Heat, PageId, Profile, all};

/// Parameters whose effect needs a scene of its own: policy, parameter, and the test that sets it.
const SHOWN_BY: &[(&str, &str, &str)] = &[
    ("annotated", "count", "pages_go_where_hints_say"),
    ("annotated", "rank", "hints_follow_from_sizes_and_counts"),
    ("annotated", "straddling", "hints_follow_from_sizes_and_counts"),
    ("annotated", "growth", "sizes_are_those_of_another_input"),
    ("annotated", "balance", "hints_follow_from_sizes_and_counts"),
    ("ac-clock", "first_goal", "the_first_store_wants_a_very_cold_page_the_second_is_content_with_less"),
    ("ambix", "delay", "only_pages_touched_within_the_delay_are_hot"),
    ("ambix", "switch", "without_switch_free_memory_is_filled_even_with_cold_pages"),
    ("ambix", "dram_target", "hysteresis_demotes_above_the_limit_down_to_the_target"),
    ("ambix", "dram_minimum", "promote_runs_below_the_minimum_only"),
    ("ambix", "count_copies", "copies_count_as_writes_unless_set_otherwise"),
    ("block-hotness", "counters", "every_counter_finds_the_hot_block"),
    ("block-hotness", "headroom", "room_is_left_free"),
    ("block-hotness", "hints", "hints_come_before_counts"),
    ("block-hotness", "in_flight", "pages_move_so_many_at_a_time"),
    ("block-hotness", "least", "small_structures_lie_in_the_block_of_their_area"),
    ("block-hotness", "least_density", "blocks_that_are_hardly_used_stay_where_they_are"),
    ("block-hotness", "margin", "what_lies_in_fast_memory_counts_a_little_more"),
    ("block-hotness", "decay", "heat_decays_by_its_share_at_each_epoch"),
    ("block-hotness", "rate_limit", "so_much_moves_in_an_epoch"),
    ("block-hotness", "sample_period", "samples_are_as_rare_as_said"),
    ("block-hotness", "straddling", "a_block_that_fits_in_part"),
    ("block-hotness", "unit", "small_structures_lie_in_the_block_of_their_area"),
    ("bw-aware", "weights", "linuxs_own_policies_are_settings"),
    ("clock-dwf", "expiration", "often_written_pages_are_overlooked_until_they_expire"),
    ("colloid", "epsilon", "epsilon_says_when_the_search_opens_again"),
    ("colloid", "delta", "balance_means_rest"),
    ("colloid", "smoothing", "parameters_do_what_they_say"),
    ("colloid", "rate_limit", "parameters_do_what_they_say"),
    ("damon", "max_regions", "the_number_of_regions_is_bounded"),
    ("hawkeye", "compaction", "compaction_makes_blocks_and_a_failure_makes_it_sleep"),
    ("hawkeye", "recover_below", "zeros_are_taken_back_when_memory_is_short"),
    ("hawkeye", "recover_until", "zeros_are_taken_back_when_memory_is_short"),
    ("hawkeye", "recover_zeros", "zeros_are_taken_back_when_memory_is_short"),
    ("hawkeye", "recover_sleep", "zeros_are_taken_back_when_memory_is_short"),
    ("hugetlbfs", "rest", "data_gets_the_chosen_size_and_stacks_none"),
    ("ingens", "utilisation", "a_range_that_is_used_enough_is_joined_at_once"),
    ("ingens", "compaction", "compaction_and_its_pause_are_those_of_linux"),
    ("memtis", "alpha", "warm_pages_stay_unless_hot_ones_need_their_room"),
    ("memtis", "split", "skewed_huge_pages_are_split_so_that_all_their_hot_parts_fit"),
    ("memtis", "split_gain", "skewed_huge_pages_are_split_so_that_all_their_hot_parts_fit"),
    ("memtis", "split_limit", "skewed_huge_pages_are_split_so_that_all_their_hot_parts_fit"),
    ("nimble", "parallel_copy", "orders_carry_the_mechanisms"),
    ("nimble", "copy_threads", "orders_carry_the_mechanisms"),
    ("nimble", "huge_in_flight", "orders_carry_the_mechanisms"),
    ("nimble", "limit", "concurrency_shortens_a_tick_and_a_limit_bounds_it"),
    ("oracle", "balance", "balance_leaves_fast_memory_unused"),
    ("ranger", "batch", "passes_come_as_often_as_said_and_orders_are_as_large"),
    ("ranger", "align", "small_areas_are_left_alone_and_places_aligned"),
    ("ranger", "promote", "runs_of_512_are_joined_where_they_lie"),
    ("ranger", "split", "a_huge_page_in_the_way_is_split_unless_switched_off"),
    ("thermostat", "correction", "intervals_above_the_budget_are_counted_until_correction_ends_them"),
    ("threshold-migration", "in_flight", "so_many_move_at_a_time"),
    ("threshold-migration", "order", "neighbours_come_furthest_first_and_stay_within_the_allocation"),
    ("threshold-migration", "copy_threads", "a_page_is_copied_by_so_many_threads"),
    ("threshold-migration", "trigger", "hint_faults_serve_where_nobody_reports_misses"),
    ("threshold-migration", "scan_period", "hint_faults_serve_where_nobody_reports_misses"),
    ("threshold-migration", "balance", "migration_stops_when_the_share_is_reached"),
    ("threshold-migration", "balance_period", "migration_stops_when_the_share_is_reached"),
    ("threshold-migration", "target", "migration_stops_when_the_share_is_reached"),
    ("threshold-migration", "margin", "the_rate_follows_the_share"),
    ("threshold-migration", "newest_weight", "the_share_is_a_moving_average"),
    ("threshold-migration", "count_copies", "copies_count_only_where_asked_for"),
    ("threshold-migration", "half_rate", "the_rate_follows_the_share"),
    ("thp", "max_cpu", "the_daemon_takes_no_more_than_its_share_of_a_processor"),
    ("thp", "max_ptes_none", "the_daemon_joins_at_its_pace"),
    ("thp", "compaction", "the_daemon_compacts_and_sleeps_longer_without_a_block"),
    ("trident", "copy", "hypercalls_replace_copies_where_there_is_a_hypervisor"),
    ("trident", "hypercall_pairs", "a_hypercall_exchanges_so_many_pairs"),
    ("trident", "max_cpu", "the_daemon_takes_no_more_than_its_share_of_a_processor"),
    ("trident", "compaction", "promotion_compacts_the_region_that_can_be_emptied"),
    ("trident", "compaction_retries", "compaction_tries_so_many_sources_and_none_again_before_its_timeout"),
    ("trident", "compaction_timeout", "compaction_tries_so_many_sources_and_none_again_before_its_timeout"),
    (
        "trident",
        "compaction_unmovable",
        "a_source_is_chosen_by_its_counter_or_by_the_mobility_of_its_pageblocks",
    ),
    ("trident", "max_ptes_none", "promotion_falls_back_to_2_mib"),
    ("trident", "max_ptes_none_1g", "the_daemon_keeps_its_pace_and_its_thresholds"),
    ("trident", "zero_regions", "free_regions_are_zeroed_ahead_up_to_the_high_water_mark"),
    ("trident", "zero_high_water", "free_regions_are_zeroed_ahead_up_to_the_high_water_mark"),
    ("trident", "recover_below", "zeros_are_taken_back_when_memory_is_short"),
    ("trident", "recover_until", "zeros_are_taken_back_when_memory_is_short"),
    ("trident", "recover_zeros", "zeros_are_taken_back_when_memory_is_short"),
    ("trident", "recover_sleep", "a_pass_over_all_pages_is_followed_by_a_pause"),
];

/// Base pages of the program.
const PAGES: u64 = 2560;

/// A small fast tier, and pages of 4 KiB.
fn base_pages() -> InMemory {
    let mut world = InMemory::new(&[("fast", Bytes::mib(1)), ("slow", Bytes::mib(16))]).with_tlb(32);
    world.map_anonymous(0, 0, PAGES);
    world
}

/// Huge pages where faults find them, and a slow tier in pieces.
fn huge_pages() -> InMemory {
    let mut world =
        InMemory::new(&[("fast", Bytes::mib(6)), ("slow", Bytes::mib(16))]).with_tlb(32).with_huge_pages();
    world.map_anonymous(0, 0, PAGES);
    for block in 0..2 {
        world.take_frame(Frame(512 * block + 100), block == 0);
    }
    world
}

/// What came of a run: places of pages as time went on, the policy's figures, costs and calls, and what it cost in all. The
/// run ends where that is no longer what `before` has.
fn run(entry: &Entry, world: InMemory, parameters: &str, before: Option<&[String]>) -> Option<Vec<String>> {
    let pages = || (0..PAGES).map(|vpn| PageId::new(0, vpn));
    let heat = |page: PageId| Heat { reads: page.vpn % 97, writes: (page.vpn * 7) % 31 };
    let order = AccessOrder::of(pages().chain(pages().filter(|page| page.vpn % 7 == 0)));
    let profile = Profile {
        pages: pages().map(|page| (page, heat(page))).collect(),
        order: std::sync::Arc::new(order),
        ..Profile::default()
    };
    let mut driver = Driver::open_with(entry.name(), parameters, world, 1, Some(&profile)).ok()?;
    let mut trace: Vec<String> = Vec::new();
    let state = |driver: &Driver| {
        let places = (0..PAGES).step_by(16).map(|vpn| driver.world.locate(PageId::new(0, vpn)));
        format!("{:?} {} {:?}", places.collect::<Vec<_>>(), driver.calls(), driver.report())
    };
    driver.touch_all(0, 0..PAGES * 3 / 4, true);
    for round in 0..40u64 {
        // A hot set that moves once, a warm one, stores to some of it, and a few pages that come and go.
        let hot = if round < 20 { 0 } else { 1024 };
        for step in 0..6u64 {
            for at in 0..24 {
                let vpn = (hot + 3 * at + 40 * step * (at % 3)) % PAGES;
                driver.touch(PageId::new(0, vpn), (at + round) % 4 == 0);
                if at % 2 == 0 {
                    driver.touch(PageId::new(0, vpn), at % 8 == 0);
                }
            }
            driver.touch(PageId::new(0, 900 + (round * 37 + step * 11) % 900), round % 3 == 0);
            driver.advance(Time::from_nanos(40_000_000));
        }
        if round % 8 == 7 {
            driver.unmap(0, 2048 + 16 * round, 16);
            driver.touch_all(0, 1984..2040, round % 16 == 7);
        }
        trace.push(state(&driver));
        if before.is_some_and(|before| before.get(trace.len() - 1) != trace.last()) {
            return Some(trace);
        }
    }
    trace.push(format!("{:?}", terrace_policy::MemorySystem::spent(&driver.world)));
    Some(trace)
}

/// Other values of a parameter: the other words, or numbers far below and above, and both ends of its range.
fn others(parameter: &ParameterInfo, value: &str) -> Vec<String> {
    let scaled = |by: f64| -> Option<String> {
        Some(match parameter.kind {
            Kind::Count => format!("{}", (value.parse::<f64>().ok()? * by).round() as u64),
            Kind::Number => format!("{:?}", value.parse::<f64>().ok()? * by),
            Kind::Time => Time((value.parse::<Time>().ok()?.0 as f64 * by) as u64).to_string(),
            Kind::Bytes => Bytes((value.parse::<Bytes>().ok()?.0 as f64 * by) as u64).to_string(),
            Kind::Rate => BytesPerSec(value.parse::<BytesPerSec>().ok()?.0 * by).to_string(),
            _ => return None,
        })
    };
    let mut others: Vec<String> = match parameter.kind {
        Kind::Switch => vec![(value != "true").to_string()],
        Kind::Choice => parameter.choices.iter().map(|choice| choice.name.clone()).collect(),
        // A longer period shows as soon as a shorter one, and the policy is not called a thousand times as often.
        Kind::Time => [10.0, 0.1, 2.0, 0.5, 0.001].into_iter().filter_map(scaled).collect(),
        // The more a value differs, the likelier it shows at once.
        _ => [0.001, 10.0, 0.1, 2.0, 0.5].into_iter().filter_map(scaled).collect(),
    };
    others.extend(parameter.range.iter().flat_map(|range| [range.low.clone(), range.high.clone()]));
    others.retain(|other| other != value);
    others
}

/// `key = value` as TOML.
fn line(key: &str, kind: Kind, value: &str) -> String {
    match kind {
        Kind::Switch | Kind::Count | Kind::Number => format!("{key} = {value}\n"),
        _ => format!("{key} = \"{value}\"\n"),
    }
}

/// The parameters without an effect, in both worlds; those of `listed` left out.
fn dead(entry: &Entry, listed: &[&str]) -> Vec<String> {
    let parameters = entry.parameters();
    // Periods of many seconds are one second, so that something happens within a run.
    let value = |parameter: &ParameterInfo| match parameter.default.parse::<Time>() {
        Ok(time) if parameter.kind == Kind::Time && time.as_secs() > 1.0 => "1 s".to_owned(),
        _ => parameter.default.clone(),
    };
    let set = |changed: &str, to: &str| -> String {
        let shown =
            parameters.iter().map(|one| (one, if one.name == changed { to.to_owned() } else { value(one) }));
        let shown = shown.filter(|(_, value)| value != "none");
        shown.map(|(one, value)| line(&one.name, one.kind, &value)).collect()
    };
    let worlds: [fn() -> InMemory; 2] = [base_pages, huge_pages];
    let before = worlds.map(|world| run(entry, world(), &set("", ""), None));
    let has_effect = |parameter: &&ParameterInfo| {
        others(parameter, &value(parameter)).iter().any(|other| {
            let changed = set(&parameter.name, other);
            // Values that a policy refuses beside the others show nothing.
            worlds.iter().zip(&before).any(|(world, before)| {
                let after = run(entry, world(), &changed, before.as_deref());
                after.is_some() && before.is_some() && after != *before
            })
        })
    };
    let not_listed = parameters.iter().filter(|parameter| !listed.contains(&parameter.name.as_str()));
    not_listed.filter(|parameter| !has_effect(parameter)).map(|one| one.name.clone()).collect()
}

#[test]
fn every_parameter_changes_what_its_policy_does() {
    let mut problems = Vec::new();
    for entry in all() {
        let listed: Vec<&str> =
            SHOWN_BY.iter().filter(|(policy, ..)| *policy == entry.name()).map(|(_, key, _)| *key).collect();
        problems.extend(
            dead(entry, &listed)
                .iter()
                .map(|key| format!("{}: no value of {key} changes anything", entry.name())),
        );
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The test is there, in the policy's own files, and sets the parameter.
#[test]
fn what_is_shown_elsewhere_is_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policies");
    for (policy, key, test) in SHOWN_BY {
        let parameters = terrace_policy::find(policy).unwrap().parameters();
        assert!(parameters.iter().any(|parameter| parameter.name == *key), "{policy} has no {key}");
        let module = policy.replace('-', "_");
        let files = [format!("{module}.rs"), format!("{module}/tests.rs")];
        let texts = files.iter().filter_map(|file| std::fs::read_to_string(folder.join(file)).ok());
        let sets_it = |text: String| {
            let (_, rest) = text.split_once(&format!("fn {test}()"))?;
            // To the next item of the same kind.
            let body = rest.split("#[test]").next()?;
            body.contains(key).then_some(())
        };
        assert!(texts.map(sets_it).any(|found| found.is_some()), "{policy}: {test} does not set {key}");
    }
}
