//! The fuzz target's entry function on mutated valid files and on noise: seeded and bounded, for every test run.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const FILE: &str = include_str!("../../../docs/src/hints.toml");
/// Words that the reader knows.
const WORDS: [&str; 14] = [
    "[[site]]",
    "hint = \"BO\"",
    "\"",
    "\n",
    "-1",
    "0",
    "9223372036854775807",
    "1e308",
    "nan",
    "=",
    "#",
    "name",
    "offset",
    "\u{0}",
];

#[test]
fn any_bytes_are_refused_with_a_reason_or_read() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut below = |limit: usize| (random.next_u64() % limit.max(1) as u64) as usize;
    terrace_hints::fuzz::hints(FILE.as_bytes());
    for _ in 0..4000 {
        let mut input = FILE.as_bytes().to_vec();
        for _ in 0..=below(5) {
            let at = below(input.len());
            let length = below(24).min(input.len() - at);
            match below(5) {
                0 if at < input.len() => input[at] ^= 1 << below(8),
                1 => drop(input.drain(at..at + length)),
                2 => {
                    let copy = input[at..at + length].to_vec();
                    input.splice(at..at, copy);
                }
                3 => input.truncate(at),
                _ => {
                    let word = WORDS[below(WORDS.len())];
                    input.splice(at..at + length.min(3), word.bytes());
                }
            }
        }
        terrace_hints::fuzz::hints(&input);
    }
}
