//! Named bundles of programs: those of `suite/mixes.toml`, and drawn ones.

use crate::Error;
use crate::suite::entries;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Programs that run side by side under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Its name.
    pub name: String,
    /// The published bundle.
    pub stands_for: String,
    /// Programs of the suite.
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
/// Of how many programs each is.
const DRAWN_PROGRAMS: usize = 16;
const DRAWN_PREFIX: &str = "hatric-";

/// The bundles of the suite, by name.
pub fn bundles() -> Vec<Bundle> {
    let file: BTreeMap<String, Entry> = toml::from_str(FILE).expect("a test reads the file");
    let bundle =
        |(name, Entry { stands_for, programs, differs })| Bundle { name, stands_for, programs, differs };
    file.into_iter().map(bundle).collect()
}

/// Mix `number` of HATRIC's 80, from 1: sixteen programs of the suite, drawn by that number as the seed. The thesis does not
/// say which programs its mixes have.
pub fn drawn(number: u64) -> Bundle {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
    // All of these have a sibling in SPEC.
    let pool: Vec<String> = entries()
        .into_iter()
        .filter(|entry| entry.stands_for.iter().any(|one| one.starts_with("SPEC")))
        .map(|entry| entry.name)
        .collect();
    let mut left = Vec::new();
    let mut programs = Vec::new();
    while programs.len() < DRAWN_PROGRAMS {
        if left.is_empty() {
            left.clone_from(&pool);
        }
        // Each comes once before one comes twice.
        let at = (random.next_u64() % left.len() as u64) as usize;
        programs.push(left.swap_remove(at));
    }
    Bundle {
        name: format!("{DRAWN_PREFIX}{number}"),
        stands_for: format!("HATRIC, Fig 2.13: one of its {DRAWN} mixes of {DRAWN_PROGRAMS} SPEC programs"),
        programs,
        differs: "Drawn by its number; the publication does not name the programs.".to_owned(),
    }
}

/// The bundle of this name; nothing where the name is none.
///
/// # Errors
/// A number beyond the drawn ones.
pub(super) fn find(name: &str) -> Result<Option<Bundle>, Error> {
    if let Some(number) = name.strip_prefix(DRAWN_PREFIX) {
        return match number.parse() {
            Ok(number) if (1..=DRAWN).contains(&number) => Ok(Some(drawn(number))),
            _ => Err(Error::request(format!(
                "--mix {name}: the drawn mixes are {DRAWN_PREFIX}1 to {DRAWN_PREFIX}{DRAWN}"
            ))),
        };
    }
    Ok(bundles().into_iter().find(|bundle| bundle.name == name))
}
