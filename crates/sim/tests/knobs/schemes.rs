//! Keys of translation schemes: each is set to other values, and some value has to change a run. One test per scheme, so
//! that they run side by side.

use super::support::{run_with, workload};
use super::{Before, others};
use terrace_sim::Options;
use terrace_sim::design::{Library, schemes};

/// Programs that differ in what they ask of translation: random accesses, a key-value store, allocations beside frees by two
/// threads, and growth in pieces.
const PROGRAMS: [&str; 4] = [
    "gups,bytes=8 MiB,updates=3e3,threads=2",
    "kv,keys=3e3,requests=3e3",
    "churn,bytes=4 MiB,smallest=64 KiB,largest=1 MiB,allocations=20,uses=200,threads=2",
    "growth,bytes=8 MiB,chunk=1 MiB,accesses=3e3,compute=1e5",
];

/// Little, fragmented memory.
const AGED: [(&str, &str); 4] = [
    ("tier.dram.capacity", "20 MiB"),
    ("os.reserved", "0 B"),
    ("os.memory.free_lists", "last-freed-first"),
    ("os.memory.aging.kind", "page-cache"),
];

/// Keys with their values.
type Keys = Vec<(String, String)>;

fn owned(keys: &[(&str, &str)]) -> Keys {
    keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// What runs under a scheme's keys gave, one after the other as they are asked for: none where the keys make no sense
/// together. Small TLBs and caches, so that little input fills them; with small and with large pages, once on fresh memory
/// and once on little, fragmented memory.
fn runs<'a>(scheme: &'a str, keys: &'a [(String, String)]) -> impl Iterator<Item = Option<String>> + 'a {
    let contexts = ["4k", "2m"].into_iter().flat_map(|pages| [&[][..], &AGED].map(|memory| (pages, memory)));
    let designs = contexts.map(move |(pages, memory)| {
        let kind = format!("\"{scheme}\"");
        let mut sets = owned(&[
            ("core.count", "2"),
            ("cache.l2.capacity", "64 KiB"),
            ("cache.llc.capacity", "256 KiB"),
            ("translation.l1d.2m.entries", "1"),
            ("translation.l2.array.0.entries", "4"),
            ("translation.scheme.kind", &kind),
            ("os.pages", pages),
        ]);
        sets.extend(keys.iter().map(|(key, value)| (format!("translation.scheme.{key}"), value.clone())));
        sets.extend(owned(memory));
        Library::embedded().design("native-4k", Some("vbi-table1"), &sets).ok().map(|found| found.design)
    });
    designs.flat_map(|design| {
        PROGRAMS.map(move |program| {
            let options = Options { whole: true, ..Options::default() };
            let run = |design| match run_with(design, &mut *workload(program), options) {
                Ok(outcome) => format!("{}{:?}", outcome.cycles, outcome.stats),
                Err(error) => error.to_string(),
            };
            design.as_ref().map(run)
        })
    })
}

/// What a key decides may need another, so that every key is tried within each of these settings: those for all keys, and
/// those for the keys that are named.
fn contexts(scheme: &str) -> Vec<(&'static [&'static str], Keys)> {
    let all = |keys| (&[][..], owned(keys));
    match scheme {
        // Delayed allocation and early reservation are those of the full interface.
        "vbi" => vec![
            all(&[]),
            all(&[("delayed", "true"), ("reservation", "early"), ("headroom", "8 TiB")]),
            (&["hop", "migrate_after"], owned(&[("nodes", "2"), ("migrate_after", "20")])),
            // Memory is always short, so that regions go to the backing store and come back. That takes long.
            (&["swap", "swap_read"], owned(&[("delayed", "true"), ("headroom", "8 TiB"), ("swap", "1 GiB")])),
        ],
        // Workloads have no instruction addresses: small regions stand for many instructions.
        "spot" => vec![all(&[("entries", "4"), ("ways", "4"), ("substitute_region", "512 KiB")])],
        _ => vec![all(&[])],
    }
}

fn no_key_is_dead(scheme: &str) {
    let declared = schemes::ALL.iter().find(|entry| entry.name == scheme).unwrap().keys();
    if declared.is_empty() {
        return;
    }
    let contexts = contexts(scheme);
    let mut before: Vec<_> = contexts.iter().map(|(_, context)| Before::new(runs(scheme, context))).collect();
    let mut has_effect = |key: &str, other: &str| {
        // Settings for this key come first: it likely has an effect in no other.
        let (of_key, all): (Vec<_>, Vec<_>) = contexts
            .iter()
            .zip(&mut before)
            .filter(|((named, _), _)| named.is_empty() || named.contains(&key))
            .partition(|((named, _), _)| !named.is_empty());
        of_key.into_iter().chain(all).any(|((_, context), before)| {
            let mut keys = context.clone();
            keys.retain(|(name, _)| name != key);
            keys.push((key.to_owned(), other.to_owned()));
            let differs = |(at, after): (usize, Option<String>)| {
                after.is_some_and(|after| before.at(at).as_ref().is_some_and(|before| after != *before))
            };
            runs(scheme, &keys).enumerate().any(differs)
        })
    };
    let dead = declared.iter().filter(|one| {
        let others = others(one, &one.default);
        !others.iter().any(|other| has_effect(&one.name, other))
    });
    let dead: Vec<&str> = dead.map(|one| one.name.as_str()).collect();
    let ran = before.iter().flat_map(|before| &before.made).any(Option::is_some);
    assert!(ran, "{scheme} never runs");
    assert!(dead.is_empty(), "{scheme}: no value of these changes anything: {dead:?}");
}

macro_rules! tests {
    ($($test:ident = $scheme:literal),+ $(,)?) => {
        const TESTED: &[&str] = &[$($scheme),+];
        $(#[test]
        fn $test() {
            no_key_is_dead($scheme);
        })+
    };
}

tests! {
    radix = "radix",
    perfect_tlb = "perfect-tlb",
    vivt = "vivt",
    colt = "colt",
    rmm = "rmm",
    direct_segment = "direct-segment",
    spot = "spot",
    pom_tlb = "pom-tlb",
    vbi = "vbi",
    enigma = "enigma",
}

#[test]
fn every_scheme_has_its_test() {
    let untested = schemes::ALL.iter().map(|entry| entry.name).filter(|name| !TESTED.contains(name));
    assert_eq!(untested.collect::<Vec<_>>(), Vec::<&str>::new(), "add a line to the tests of schemes' keys");
}
