//! Named bundles of programs: those of `suite/mixes.toml`, and drawn ones.

use crate::Error;
use crate::suite::{Source, entries};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Programs that run side by side under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The bundle's name.
    pub name: String,
    /// The published bundle.
    pub stands_for: String,
    /// The bundle's programs, as the words of a mix: names of the suite, and workloads with their parameters.
    pub programs: Vec<String>,
    /// How it differs from the published one beyond what its programs do; empty for nothing.
    pub differs: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    stands_for: String,
    programs: Vec<String>,
    #[serde(default)]
    differs: String,
}

const FILE: &str = include_str!("../../suite/mixes.toml");

/// HATRIC's mixes: how many there are.
pub const DRAWN: u64 = 80;
/// Number of programs of each.
const DRAWN_PROGRAMS: usize = 16;
const DRAWN_PREFIX: &str = "hatric-";
const RECORDED_PREFIX: &str = "hatric-recorded-";

/// What HATRIC's mixes are drawn from: workloads of about 8 MiB. So 16 of them take the 128 MiB of die-stacked memory that
/// haswell-32 has at a scale of 16, of which the system reserves a part. Their regions have 12 thousand to 400 thousand
/// accesses: there are 80 mixes, under several designs each.
const POOL: [&str; 18] = [
    "gups,bytes=8MiB,updates=40e3",
    "chase,bytes=8MiB,accesses=12e3",
    "stream,bytes=8MiB,width=64",
    "btree,keys=540e3,lookups=4e3",
    "bfs,scale=15,edgefactor=14,implicit=true,edges=50e3",
    "tunkrank,scale=15,edgefactor=14,implicit=true,edges=70e3",
    "xsbench,gridpoints=380,lookups=1500",
    "svm,rows=62e3,features=20e3,nonzeros=10,updates=2e3",
    "facesim,side=19,visits=16e3",
    "canneal,elements=131e3,moves=2e3",
    "astar,side=1440,expansions=20e3",
    "kv,keys=14e3,preload=1,requests=6e3",
    "iwb,bytes=8MiB,passes=16",
    "iwb,bytes=8MiB,mode=write,passes=8",
    "pb,bytes=8MiB,passes=8,threads=1",
    "pmbench,bytes=8MiB,accesses=20e3",
    "pmbench,bytes=8MiB,sigma=0.25,reads=0.8,accesses=20e3",
    "su3,side=8,site=2000B,iterations=1",
];

/// The bundles of the suite, by name.
pub fn bundles() -> Vec<Bundle> {
    let file: BTreeMap<String, Entry> = toml::from_str(FILE).expect("a test reads the file");
    let bundle =
        |(name, Entry { stands_for, programs, differs })| Bundle { name, stands_for, programs, differs };
    file.into_iter().map(bundle).collect()
}

/// Mix `number` of HATRIC's 80, from 1: sixteen built-in programs, drawn by that number as the seed, each from all of
/// them. The thesis does not say which programs its mixes have.
pub fn drawn(number: u64) -> Bundle {
    let pool = POOL.map(str::to_owned);
    draw(DRAWN_PREFIX, number, &pool, "Built-in programs of 8 MiB, drawn by its number")
}

/// Mix `number`, drawn from the built-in programs and the recorded ones of the suite, whether they are recorded here or not:
/// the draw is the same on every machine.
pub fn drawn_recorded(number: u64) -> Bundle {
    let recorded = entries().into_iter().filter(|entry| matches!(entry.source, Source::Program(_)));
    let pool: Vec<String> =
        POOL.map(str::to_owned).into_iter().chain(recorded.map(|entry| entry.name)).collect();
    draw(RECORDED_PREFIX, number, &pool, "Built-in and recorded programs, drawn by its number")
}

fn draw(prefix: &str, number: u64, pool: &[String], differs: &str) -> Bundle {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
    let mut program = || pool[(random.next_u64() % pool.len() as u64) as usize].clone();
    Bundle {
        name: format!("{prefix}{number}"),
        stands_for: format!("HATRIC, Fig 2.13: one of its {DRAWN} mixes of {DRAWN_PROGRAMS} SPEC programs"),
        programs: (0..DRAWN_PROGRAMS).map(|_| program()).collect(),
        differs: format!("{differs}; the publication does not name the programs."),
    }
}

/// The bundle of this name; nothing where the name is none.
///
/// # Errors
/// A number beyond the drawn ones.
pub(super) fn find(name: &str) -> Result<Option<Bundle>, Error> {
    // The longer one first: it begins as the other does.
    let families = [(RECORDED_PREFIX, drawn_recorded as fn(u64) -> Bundle), (DRAWN_PREFIX, drawn)];
    for (prefix, draw) in families {
        let Some(number) = name.strip_prefix(prefix) else { continue };
        return match number.parse() {
            Ok(number) if (1..=DRAWN).contains(&number) => Ok(Some(draw(number))),
            _ => {
                Err(Error::request(format!("--mix {name}: the drawn mixes are {prefix}1 to {prefix}{DRAWN}")))
            }
        };
    }
    Ok(bundles().into_iter().find(|bundle| bundle.name == name))
}
