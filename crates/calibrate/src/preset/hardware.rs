//! Core, TLBs, caches and the prefetcher.

use super::base::{Array, Base};
use super::sheet::{Form, Sheet};
use crate::analysis::Knee;
use crate::measure::{Measured, Rate};
use crate::processor::Cache;
use crate::spread::Spread;
use crate::translation::Point;
use terrace_model::PageSize;

/// No processor has as many cycles per second: additions that seem to come so fast take less than a cycle each.
const FASTEST: f64 = 10e9;

/// Why the ways of no TLB are measured.
const WAYS_UNSEEN: &str = "the rise is at the number of entries however many ways there are";

/// Returns cycles per second.
pub fn core(sheet: &mut Sheet, machine: &Measured, base: &Base) -> f64 {
    sheet.line("[core]");
    let count = machine.processor.count.clamp(1, 1024) as u32;
    if base.has_groups {
        sheet.assume(
            "core.groups, core.count",
            "its cores are of several kinds, which the kernel does not tell",
        );
    } else {
        sheet.line(format!("count = {count}"));
        sheet.reported("core.count");
        if !count.is_multiple_of(base.threads.max(1)) {
            sheet
                .comment(format!("{count} are no whole number of cores with {} threads each.", base.threads));
            sheet.line("threads = 1");
        }
    }
    if base.threads > 1 {
        sheet.assume(
            "core.threads, core.outstanding",
            "loads of one thread do not tell what two have together",
        );
    }
    let clock = match machine.frequency {
        Some(frequency) if frequency.median < FASTEST => {
            sheet.measured(&frequency, 1e-9, "GHz, by additions that take a cycle each");
            sheet.key("core", "frequency", frequency, &Form::CLOCK);
            // As it is written.
            ((frequency.median * 1e-7).round() * 1e7).clamp(1e7, 1e12)
        }
        Some(_) => {
            sheet.assume("core.frequency", "additions came faster than one in a cycle");
            base.frequency
        }
        None => {
            sheet.assume("core.frequency", "measured on x86-64 and arm64 alone");
            base.frequency
        }
    };
    sheet.assume(
        "core.model, core.dispatch_width, core.reorder_buffer, core.store_buffer, core.base_cpi",
        "times of loads and stores do not tell them",
    );
    sheet.line("");
    clock
}

pub fn translation(sheet: &mut Sheet, machine: &Measured, base: &Base, clock: f64) {
    let (small, large) = (machine.base_tlbs(), machine.huge_tlbs());
    let count = repetitions(machine);
    for (size, tlbs) in [("4k", small), ("2m", large)] {
        let array = base.first_tlbs.iter().find(|array| array.sizes.iter().any(|one| one == size));
        let table = format!("translation.l1d.{size}");
        match (tlbs.first, array) {
            (Some(knee), Some(array)) => {
                sheet.line(format!("[{table}]"));
                entries(sheet, &table, array, knee, count);
                sheet.line("");
            }
            _ => sheet.assume(&table, &why_no_knee(machine, size, "first")),
        }
    }
    if base.first_tlbs.iter().any(|array| array.sizes.iter().any(|size| size == "1g")) {
        sheet.assume("translation.l1d.1g", "memory has too few pages of 1 GiB");
    }
    sheet.assume("translation.l1d.*.ways", WAYS_UNSEEN);
    let latency = small.first.filter(|knee| knee.beyond > 0.0);
    if let Some(knee) = latency {
        sheet.line("[translation.l2]");
        sheet.comment("What a load on base pages takes longer where only the level-2 TLB has the page.");
        let plateau =
            plateau(&machine.base_translation, knee.exceeds, small.second.map(|second| second.fits));
        sheet.measured(&plateau, 1.0, "ns");
        let cycles = Form { least: 0.0, ..Form::CYCLES };
        sheet.key("translation.l2", "latency", plateau.times(clock / 1e9), &cycles);
        sheet.line("");
    } else {
        sheet.assume("translation.l2.latency", &why_no_knee(machine, "4k", "first"));
    }
    second_tlbs(sheet, machine, base);
    walkers(sheet, machine, base);
    sheet.assume(
        "translation.page_walk_cache, translation.levels",
        "what they save is part of the times of walks",
    );
    curve(sheet, "4 KiB", &machine.base_translation);
    match &machine.huge_translation {
        Ok(points) => curve(sheet, "2 MiB", points),
        Err(reason) => sheet.comment(format!("TLBs of 2 MiB pages were not measured: {reason}.")),
    }
    sheet.line("");
}

/// The hypervisor under this machine.
pub fn hypervisor(sheet: &mut Sheet, machine: &Measured) {
    let Some(pieces) = machine.pieces else { return };
    let found = machine.hypervisor_pages();
    if found.is_some() {
        sheet.line("[hypervisor]");
    }
    sheet.measured(
        &pieces.extra,
        1.0,
        &format!(
            "ns that a load takes longer in one of {} pieces of 4 KiB of huge pages than side by side",
            pieces.pages
        ),
    );
    match found {
        Some(pages) => {
            sheet.comment(match pages {
                PageSize::Base => {
                    "The guest's huge pages miss TLBs that would hold them: the hypervisor maps them by 4 KiB pages."
                }
                _ => "TLBs hold the guest's huge pages: the hypervisor maps them by pages as large.",
            });
            sheet.line(format!("pages = \"{pages}\""));
            sheet.cite("hypervisor.pages", pieces.extra.count);
        }
        None => sheet.comment("That does not tell by which pages the hypervisor maps this machine's memory."),
    }
    sheet.line("");
}

fn repetitions(machine: &Measured) -> usize {
    machine.base_translation.first().map_or(0, |point| point.extra.count)
}

fn why_no_knee(machine: &Measured, size: &str, level: &str) -> String {
    match (&machine.huge_translation, size) {
        (Err(reason), "2m") => reason.clone(),
        _ => format!("no {level}-level rise of the latency was seen with {size} pages"),
    }
}

/// The times between two sizes.
fn plateau(points: &[Point], from: u64, until: Option<u64>) -> Spread {
    let until = until.unwrap_or(u64::MAX);
    let on = points.iter().filter(|point| (from..=until).contains(&point.pages));
    let extras: Vec<Spread> = on.map(|point| point.extra).collect();
    let of = |pick: fn(&Spread) -> f64| Spread::of(extras.iter().map(pick).collect());
    let [median, low, high] = [of(|one| one.median), of(|one| one.low), of(|one| one.high)];
    Spread {
        median: median.median,
        low: low.low.min(median.median),
        high: high.high.max(median.median),
        count: extras.first().map_or(0, |one| one.count),
    }
}

/// Entries and ways of a TLB. The preset's number stands where the knee agrees with it.
fn entries(sheet: &mut Sheet, table: &str, array: &Array, knee: Knee, count: usize) {
    let agrees = (knee.fits + 1..=knee.exceeds).contains(&u64::from(array.entries));
    let entries = if agrees { u64::from(array.entries) } else { knee.exceeds };
    let entries = entries.clamp(1, 16_384) as u32;
    let (low, high) = (knee.fits as f64 + 1.0, knee.exceeds as f64);
    let beside = if agrees { "; the preset's number lies between" } else { "" };
    sheet.comment(format!(
        "Measured: {} pages fit and {} do not, which takes {:.1} ns{beside}.",
        knee.fits, knee.exceeds, knee.beyond
    ));
    let value = Spread { median: f64::from(entries), low, high, count };
    let ways = array
        .ways
        .map(|ways| (1..=ways.max(1)).rev().find(|ways| entries.is_multiple_of(*ways)).unwrap_or(1));
    sheet.key(table, "entries", value, &Form::count(16_384.0));
    sheet.line(match ways {
        Some(ways) => format!("ways = {ways}"),
        None => "ways = \"full\"".to_owned(),
    });
}

/// Arrays have no names, so all are stated where one was measured.
fn second_tlbs(sheet: &mut Sheet, machine: &Measured, base: &Base) {
    let (knee, count) = (machine.base_tlbs().second, repetitions(machine));
    let at = base.second_tlbs.iter().position(|array| array.sizes.iter().any(|size| size == "4k"));
    let (Some(knee), Some(at)) = (knee, at) else {
        sheet.assume("translation.l2.array", &why_no_knee(machine, "4k", "second"));
        return;
    };
    for (number, array) in base.second_tlbs.iter().enumerate() {
        sheet.line("[[translation.l2.array]]");
        let sizes: Vec<String> = array.sizes.iter().map(|size| format!("\"{size}\"")).collect();
        sheet.line(format!("sizes = [{}]", sizes.join(", ")));
        if number == at {
            entries(sheet, &format!("translation.l2.array.{number}"), array, knee, count);
        } else {
            sheet.line(format!("entries = {}", array.entries));
            sheet.line(array.ways.map_or("ways = \"full\"".to_owned(), |ways| format!("ways = {ways}")));
        }
        sheet.line("");
    }
    sheet.assume("translation.l2.array.*.ways", WAYS_UNSEEN);
    let others = (0..base.second_tlbs.len()).filter(|number| *number != at);
    let others: Vec<String> = others.map(|number| format!("translation.l2.array.{number}.entries")).collect();
    if !others.is_empty() {
        sheet.assume(&others.join(", "), "loads on 4 KiB pages do not use them");
    }
    if let Some(large) = machine.huge_tlbs().second {
        sheet.comment(format!(
            "With 2 MiB pages {} fit and {} do not, which takes {:.1} ns.",
            large.fits, large.exceeds, large.beyond
        ));
    }
}

fn walkers(sheet: &mut Sheet, machine: &Measured, base: &Base) {
    let overlap = machine.walk_overlap();
    sheet.line("[translation]");
    for one in &machine.walks {
        let s = if one.chains == 1 { "" } else { "s" };
        sheet.measured(
            &one.apart,
            1.0,
            &format!("ns per load of {} chain{s} over pages that no TLB holds", one.chains),
        );
        sheet.comment(format!("At best {:.2} ns, and {:.2} ns side by side.", one.quiet.0, one.quiet.1));
    }
    match overlap {
        Some(overlap) if overlap.saturated || overlap.walks > f64::from(base.walkers) + 0.5 => {
            let first = machine.walks[0];
            let walk = first.apart.minus(first.dense);
            let best = machine.walks.iter().min_by(|one, next| one.quiet.0.total_cmp(&next.quiet.0));
            let at_once = walk.over(best.unwrap_or(&first).apart);
            let at_once = Spread {
                median: overlap.walks,
                low: at_once.low.min(at_once.median),
                high: at_once.high.max(at_once.median),
                ..at_once
            };
            sheet.comment("The time of a walk over the time per load is the number of walks at once.");
            sheet.key("translation", "walkers", at_once, &Form::count(64.0));
        }
        Some(overlap) => sheet.assume(
            "translation.walkers",
            &format!("at least {:.1} walks were under way at once, and no more were needed", overlap.walks),
        ),
        None => sheet
            .assume("translation.walkers", "no time of walks was seen, or the times contradict each other"),
    }
}

/// All points, for those who would see knees of their own.
fn curve(sheet: &mut Sheet, size: &str, points: &[Point]) {
    let points: Vec<String> =
        points.iter().map(|point| format!("{}: {:.1}", point.pages, point.quiet)).collect();
    sheet.comment(format!(
        "Measured: ns that a load takes longer where it takes turns with others in so many pages of {size}, the least \
         disturbed repetition of each:"
    ));
    sheet.comment(points.join(", "));
}

/// Nanoseconds of a load from a cache, `at` counted from the nearest. What disturbs a chase only makes it slower, and
/// no cache answers later than what lies behind it, so it is the least of its own median and theirs. A level of the
/// preset that this machine does not report stays, and lies behind as well.
fn undisturbed(machine: &Measured, at: usize, base: &Base, clock: f64) -> Spread {
    let count = machine.cache_latency.len();
    let behind = match base.cache_cycles.get(count) {
        Some(cycles) => cycles / clock * 1e9,
        None => machine.memory_latency().median,
    };
    let own = machine.cache_latency[at];
    let from_here = &machine.cache_latency[at..count.min(3)];
    // What is no number is behind nothing.
    let behind = if behind.is_nan() { f64::INFINITY } else { behind };
    let least = |pick: fn(&Spread) -> f64| from_here.iter().map(pick).fold(behind, f64::min);
    Spread { median: least(|one| one.median), low: least(|one| one.low), ..own }
}

/// Returns the latency of the last level, in nanoseconds.
pub fn caches(sheet: &mut Sheet, machine: &Measured, base: &Base, clock: f64) -> Spread {
    let preset = base.cache_cycles[2] / clock * 1e9;
    let mut last_level = Spread { median: preset, low: preset, high: preset, count: usize::MAX };
    let measured = machine.processor.caches.iter().zip(&machine.cache_latency);
    for (at, (level, (cache, latency))) in ["l1", "l2", "llc"].into_iter().zip(measured).enumerate() {
        let table = format!("cache.{level}");
        sheet.line(format!("[{table}]"));
        if let Some((fits, exceeds)) = own_share(machine, at, cache) {
            let bytes = Spread { median: fits as f64, low: fits as f64, high: exceeds as f64, ..*latency };
            sheet.comment(format!(
                "Measured: {} MiB are held and {} MiB are not. The kernel describes {} KiB: others have the rest.",
                fits >> 20,
                exceeds >> 20,
                cache.bytes >> 10
            ));
            sheet.key(&table, "capacity", bytes, &Form::CAPACITY);
            sheet.line(format!("ways = {}", cache.ways));
            sheet.reported(&format!("{table}.ways"));
        } else if is_possible(cache) {
            sheet.comment("The kernel's description of the processor.");
            sheet.line(format!("capacity = \"{} KiB\"\nways = {}", cache.bytes >> 10, cache.ways));
            sheet.reported(&format!("{table}.capacity, {table}.ways"));
        } else {
            sheet.assume(
                &format!("{table}.capacity, {table}.ways"),
                &format!(
                    "the kernel's {} bytes and {} ways are no cache that can be simulated",
                    cache.bytes, cache.ways
                ),
            );
        }
        sheet.measured(
            latency,
            1.0,
            "ns per load over half of it, or four times the cache before; huge pages",
        );
        let value = undisturbed(machine, at, base, clock);
        if value.median < latency.median {
            sheet.comment(format!(
                "Something disturbed it: what lies behind answers in {:.1} ns.",
                value.median
            ));
        }
        sheet.key(&table, "latency", value.times(clock / 1e9), &Form::CYCLES);
        if level == "l1" {
            sheet.measured(&machine.memory_interval, 1.0, "ns per line from memory, as many chains as pay");
            sheet.comment("The latency of memory over it is the number of lines under way.");
            sheet.key(&table, "outstanding", machine.lines_in_flight(), &Form::count(64.0));
        }
        rates(sheet, machine.cache_rates.get(at).map_or(&[][..], Vec::as_slice));
        let hashed = match level {
            "l2" if machine.processor.guest => Some(
                "the host keeps a guest's memory in frames of its own choice, so that lines at regular distances are in no \
                 regular sets, whatever the guest's pages",
            ),
            "llc" => Some("a last level spreads lines over its slices by a hash of the address"),
            _ => None,
        };
        if let Some(why) = hashed {
            sheet.comment(format!("Assumed: {why}."));
            sheet.line("index = \"hashed\"");
        }
        if level == "llc" {
            last_level = value;
        }
        sheet.line("");
    }
    for level in ["l1", "l2", "llc"].iter().skip(machine.cache_latency.len()) {
        sheet.assume(&format!("cache.{level}"), "the kernel does not describe it");
    }
    sheet.comment(
        "The model has no key for a cache's bandwidth: it follows from latency and lines under way.",
    );
    sheet.assume(
        "cache.l2.outstanding, cache.llc.outstanding",
        "the misses of level 1 that are under way bound what can be seen of them",
    );
    sheet.assume(
        "cache.cache_to_cache, cache.inclusive, cache.*.replacement",
        "loads of one thread do not tell them",
    );
    sheet.assume("cache.*.index", "as the comments on each cache say; loads of one thread do not tell it");
    sheet.line("");
    last_level
}

/// Bytes of the cache that this machine gets, and more that it does not, in whole sets; where that is less than half of it.
/// Other guests of a host share its last level, and a host may give each of them a part.
fn own_share(machine: &Measured, at: usize, cache: &Cache) -> Option<(u64, u64)> {
    let whole = u64::from(cache.ways.max(1)) * 1024;
    let (fits, exceeds) = machine.held_by_last_level().filter(|_| at + 1 == machine.cache_latency.len())?;
    let (fits, exceeds) = (fits / whole * whole, exceeds / whole * whole);
    let is_less = exceeds <= cache.bytes / 2;
    (is_less && is_possible(cache) && is_possible(&Cache { bytes: fits, ..*cache }))
        .then_some((fits, exceeds))
}

/// The most ways of a cache that a design may have.
const MOST_WAYS: u32 = 25;

/// Whether a design may have such a cache: of whole sets, and enough of them to tell the lines of
/// [`super::memory::MOST_MEMORY`] apart.
fn is_possible(cache: &Cache) -> bool {
    let set = u64::from(cache.ways) * 64;
    (1..=MOST_WAYS).contains(&cache.ways)
        && (4 << 10..=4 << 30).contains(&cache.bytes)
        && cache.bytes.is_multiple_of(set)
        && cache.bytes.is_multiple_of(1024)
        && cache.bytes / set >= 40
}

/// One line per rate.
pub fn rates(sheet: &mut Sheet, rates: &[Rate]) {
    for Rate { kind, threads, rate } in rates {
        let s = if *threads == 1 { "" } else { "s" };
        sheet.measured(rate, 1e-9, &format!("GB/s, {}, {threads} thread{s}", kind.name()));
    }
}

pub fn prefetcher(sheet: &mut Sheet, machine: &Measured, base: &Base) {
    sheet.line("[cache.prefetcher]");
    let random = machine.memory_latency();
    for stride in &machine.strides {
        let s = if stride.lines == 1 { "" } else { "s" };
        let share = 100.0 * stride.time.median / random.median.max(0.001);
        sheet.measured(
            &stride.time,
            1.0,
            &format!(
                "ns per load {} line{s} behind the one before, {share:.0} % of one in random order",
                stride.lines
            ),
        );
    }
    let next = machine.strides.first().map_or(random, |stride| stride.time);
    let found = machine.prefetched();
    match found {
        Some(lines) => {
            let is_last = machine.strides.last().is_some_and(|stride| stride.lines == lines);
            let more = if is_last { ", the largest distance that was tried" } else { "" };
            sheet.comment(format!("Loads in order are prefetched up to {lines} lines apart{more}."));
        }
        None => sheet.comment("Loads in order take more than half of what others take."),
    }
    let is_off = found.is_none() && next.median > 0.8 * random.median;
    if base.has_streams && (found.is_some() || is_off) {
        sheet.line(format!("enabled = {}", found.is_some()));
        sheet.cite("cache.prefetcher.enabled", next.count);
    } else {
        sheet.assume(
            "cache.prefetcher.enabled",
            "what was measured lies between on and off, or the preset has no streams",
        );
    }
    sheet.assume("cache.prefetcher.streams, cache.prefetcher.degree", "the times do not tell them apart");
    sheet.line("");
}
