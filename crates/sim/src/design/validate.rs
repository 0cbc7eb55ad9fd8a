//! Rules that types alone cannot state. Each names the key at fault, so that the message can name its line.

use super::error::suggestion;
use super::guests;
use super::rules::{Fault, memory, no_tier, not_between, placement, policy_parameters, rule, usable_name};
use super::schema::Design;
use super::{Associativity, CacheHierarchyParameters, CoreParameters, TranslationParameters, schemes};
use crate::translate::PHYSICAL_NAMES;
use std::collections::HashSet;
use terrace_model::parameters::Declared;
use terrace_model::{Bytes, LINE_BYTES};

/// The first broken rule of `design`, if any.
pub(crate) fn validate(design: &Design) -> Result<(), Fault> {
    design.check().map_err(|problem| not_between(&problem))?;
    core(&design.core)?;
    hardware_threads(design)?;
    translation(&design.translation, design.vm.is_some())?;
    caches(&design.cache)?;
    tags(design)?;
    tiers(design)?;
    guests::check(design)?;
    if let Some(gpu) = &design.gpu {
        gpu.validate().map_err(|(key, problem)| (key.to_owned(), problem))?;
    }
    if let Some(coherence) = &design.coherence {
        coherence.validate().map_err(|(key, problem)| (key.to_owned(), problem))?;
    }
    os(design)
}

fn positive(number: u32, key: &str) -> Result<(), Fault> {
    rule(number > 0, key, || "must be at least 1".into())
}

fn core(core: &CoreParameters) -> Result<(), Fault> {
    let mut names = HashSet::new();
    for (at, group) in core.groups.iter().enumerate() {
        let key = format!("core.groups.{at}");
        rule(usable_name(&group.name), &format!("{key}.name"), || {
            format!(
                "\"{}\" is not a name of small letters, digits, - and _ (nor fastest, slowest)",
                group.name
            )
        })?;
        rule(names.insert(&group.name), &format!("{key}.name"), || {
            format!("there is another group of cores named \"{}\"", group.name)
        })?;
        pipeline(&core.of(group), &key)?;
    }
    pipeline(core, "core")
}

/// Hardware threads that share the caches of a core.
fn hardware_threads(design: &Design) -> Result<(), Fault> {
    let threads = design.core.threads;
    if threads == 1 {
        return Ok(());
    }
    rule(threads.is_power_of_two(), "core.threads", || format!("{threads} is not a power of two"))?;
    let counts = if design.core.groups.is_empty() {
        vec![design.core.count]
    } else {
        design.core.groups.iter().map(|group| group.count).collect()
    };
    for count in counts {
        rule(count.is_multiple_of(threads), "core.threads", || {
            format!("{count} hardware threads are no whole number of cores with {threads} each")
        })?;
    }
    let coherence = design.translation.coherence.as_str();
    let in_hardware = crate::coherence::find(coherence).is_some_and(|scheme| scheme.hardware);
    rule(!in_hardware, "core.threads", || {
        format!(
            "the directory of coherence \"{coherence}\" knows cores of one hardware thread each; set core.threads = 1"
        )
    })
}

/// What must hold of cores whose keys lie below `key`.
fn pipeline(core: &CoreParameters, key: &str) -> Result<(), Fault> {
    let least = 1.0 / f64::from(core.dispatch_width);
    rule(core.base_cpi.is_finite() && core.base_cpi >= least, &format!("{key}.base_cpi"), || {
        format!("{} is below {least}, which is 1 / dispatch_width", core.base_cpi)
    })
}

fn ways(entries: u32, ways: Associativity, key: &str) -> Result<(), Fault> {
    ways.problem_of(entries).map_or(Ok(()), |problem| Err((format!("{key}.ways"), problem)))
}

fn translation(translation: &TranslationParameters, is_virtual: bool) -> Result<(), Fault> {
    for (size, tlb) in &translation.l1d {
        ways(tlb.entries, tlb.ways, &format!("translation.l1d.{size}"))?;
    }
    let mut seen = HashSet::new();
    for (at, array) in translation.l2.array.iter().enumerate() {
        let key = format!("translation.l2.array.{at}");
        ways(array.entries, array.ways, &key)?;
        rule(!array.sizes.is_empty(), &format!("{key}.sizes"), || "names no page size".into())?;
        for size in &array.sizes {
            rule(seen.insert(*size), &format!("{key}.sizes"), || {
                format!("{size} pages are already in another array")
            })?;
        }
    }
    let cache = &translation.page_walk_cache;
    ways(cache.entries, cache.ways, "translation.page_walk_cache")?;
    let scheme = schemes::find(&translation.scheme.kind);
    if let Some(nested) = &translation.nested {
        let walks_first = scheme.is_none_or(|scheme| scheme.walks && !scheme.virtual_caches);
        nested
            .validate(&translation.scheme.kind, walks_first, is_virtual)
            .map_err(|(key, problem)| (format!("translation.nested{key}"), problem))?;
    }
    coherence(translation)
}

fn coherence(translation: &TranslationParameters) -> Result<(), Fault> {
    let bytes = translation.hatric.as_ref().map_or(2, |hatric| hatric.co_tag_bytes);
    rule(matches!(bytes, 1 | 2 | 3 | 8), "translation.hatric.co_tag_bytes", || {
        format!("{bytes} is not 1, 2, 3 or 8 (the whole address)")
    })?;
    match crate::coherence::find(&translation.coherence) {
        Some(scheme) if scheme.hardware => {
            schemes::check_co_tags_of(translation).map_err(|(key, problem)| (key.to_owned(), problem))
        }
        _ => Ok(()),
    }
}

/// The tag of a cache line is its number divided by the number of sets. It must fit in 32 bits, or two lines could have one
/// tag.
fn tags(design: &Design) -> Result<(), Fault> {
    let cache = &design.cache;
    let is_virtual = schemes::find(&design.translation.scheme.kind).is_some_and(|one| one.virtual_caches);
    let memory: u64 = design.tiers.iter().map(|tier| tier.capacity.0).sum();
    let lines = memory / LINE_BYTES + if is_virtual { PHYSICAL_NAMES } else { 0 };
    for (level, key) in [(&cache.l1, "cache.l1"), (&cache.l2, "cache.l2"), (&cache.llc, "cache.llc")] {
        let sets = level.capacity.0 / (LINE_BYTES * u64::from(level.ways));
        let least = lines.div_ceil(u64::from(u32::MAX));
        rule(sets >= least, &format!("{key}.capacity"), || {
            let names = if is_virtual { "where lines have virtual names" } else { "with so much memory" };
            let bytes = Bytes(least.next_power_of_two() * LINE_BYTES * u64::from(level.ways));
            format!(
                "{} with {} ways is {sets} sets, too few {names}; {bytes} are possible",
                level.capacity, level.ways
            )
        })?;
    }
    Ok(())
}

fn caches(cache: &CacheHierarchyParameters) -> Result<(), Fault> {
    for (level, key) in [(&cache.l1, "cache.l1"), (&cache.l2, "cache.l2"), (&cache.llc, "cache.llc")] {
        let way_bytes = u64::from(level.ways) * LINE_BYTES;
        rule(level.capacity.0.is_multiple_of(way_bytes), &format!("{key}.capacity"), || {
            format!("{} is not a whole number of sets of {} lines of 64 bytes", level.capacity, level.ways)
        })?;
    }
    rule(cache.l1.latency.0 > 0.0, "cache.l1.latency", || "must be more than 0 cycles".into())?;
    rule(cache.l2.latency.0 >= cache.l1.latency.0, "cache.l2.latency", || {
        format!(
            "{} is below the {} of l1: latencies count from the start of the access",
            cache.l2.latency, cache.l1.latency
        )
    })?;
    rule(cache.llc.latency.0 >= cache.l2.latency.0, "cache.llc.latency", || {
        format!(
            "{} is below the {} of l2: latencies count from the start of the access",
            cache.llc.latency, cache.l2.latency
        )
    })?;
    if cache.prefetcher.enabled {
        positive(cache.prefetcher.streams, "cache.prefetcher.streams")?;
        positive(cache.prefetcher.degree, "cache.prefetcher.degree")?;
    }
    Ok(())
}

fn tiers(design: &Design) -> Result<(), Fault> {
    rule(!design.tiers.is_empty(), "tier", || "a machine needs at least one [[tier]]".into())?;
    rule(design.tiers.len() <= 255, "tier", || "more than 255 tiers".into())?;
    let mut names = HashSet::new();
    for (at, tier) in design.tiers.iter().enumerate() {
        let key = format!("tier.{at}");
        rule(usable_name(&tier.name), &format!("{key}.name"), || {
            format!(
                "\"{}\" is not a name of small letters, digits, - and _ (nor fastest, slowest)",
                tier.name
            )
        })?;
        rule(names.insert(&tier.name), &format!("{key}.name"), || {
            format!("there is another tier named \"{}\"", tier.name)
        })?;
        rule(design.devices.contains_key(&tier.device), &format!("{key}.device"), || {
            let devices: Vec<_> = design.devices.keys().collect();
            format!("there is no device \"{}\"{}", tier.device, suggestion(&tier.device, &devices))
        })?;
    }
    Ok(())
}

fn os(design: &Design) -> Result<(), Fault> {
    let os = &design.os;
    let tiers = design.tier_names_of_programs();
    // In a virtual machine these are the guest's.
    let machine = if design.vm.is_some() { "the guest" } else { &design.machine };
    placement(&os.placement, &tiers, machine, "os.placement")?;
    if let Some(tier) = &os.page_table_tier {
        rule(tiers.contains(tier), "os.page_table_tier", || no_tier(tier, machine, &tiers))?;
    }
    if let Some(policy) = &os.policy {
        policy_parameters(policy, "os.policy")?;
    }
    memory(&os.memory, "os.memory")?;
    rule(os.reserved < design.tiers[0].capacity, "os.reserved", || {
        format!(
            "{} leaves nothing of the {} of tier {}; reserve less of it, as with --set os.reserved=\"0 B\"",
            os.reserved, design.tiers[0].capacity, design.tiers[0].name
        )
    })
}
