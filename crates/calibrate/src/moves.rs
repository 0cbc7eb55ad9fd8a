//! What `move_pages` takes to bring pages of the process's own from one memory node to another.

use crate::region::{BASE, Pages, Region, move_pages};
use crate::spread::Spread;
use std::io;
use std::time::Instant;

/// Calls that move so many pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moves {
    /// Base pages of each call.
    pub pages: usize,
    /// Nanoseconds of a call.
    pub call: Spread,
}

/// Pages of a call: few and many.
const SIZES: [usize; 3] = [1, 32, 512];

/// Moves from node `from` to node `to`, and back, which is not counted. The calls wait for other processors, so the time of
/// the clock counts.
pub fn measure(from: i32, to: i32, rounds: usize) -> io::Result<Vec<Moves>> {
    let region = Region::map_on(from, SIZES[2] * BASE, Pages::Base)?;
    region.touch(BASE);
    let pages: Vec<usize> = (0..SIZES[2]).map(|page| region.start() as usize + page * BASE).collect();
    let mut found = Vec::new();
    for size in SIZES {
        let mut times = Vec::new();
        // Several calls to a repetition where they are short.
        let calls = (64 / size).max(1);
        for round in 0..=rounds {
            let mut spent = 0.0;
            for call in 0..calls {
                let pages = &pages[call * size..][..size];
                arrived(move_pages(pages, Some(from))?, from)?;
                let begin = Instant::now();
                let status = move_pages(pages, Some(to))?;
                spent += begin.elapsed().as_nanos() as f64;
                arrived(status, to)?;
            }
            // In the first round the nodes' free lists are filled.
            if round > 0 {
                times.push(spent / calls as f64);
            }
        }
        found.push(Moves { pages: size, call: Spread::of(times) });
    }
    Ok(found)
}

fn arrived(status: Vec<i32>, node: i32) -> io::Result<()> {
    match status.iter().find(|on| **on != node) {
        None => Ok(()),
        Some(code) => Err(io::Error::other(format!("a page was not moved to node {node} (status {code})"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::memory_nodes;

    #[test]
    fn moves_within_a_node_are_none_and_succeed() {
        let node = memory_nodes()[0];
        let found = measure(node, node, 2).unwrap();
        assert_eq!(found.iter().map(|one| one.pages).collect::<Vec<_>>(), SIZES);
        assert!(measure(node, 1000, 1).is_err());
    }
}
