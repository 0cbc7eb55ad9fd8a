//! The data structures that programs have written down, as policies see them.

use super::*;
use terrace_placement::structures::{Structure, Structures};

#[test]
fn structures_are_blocks_of_whole_pages_and_go_with_their_process() {
    let kernel = two_nodes(64, 64, 1);
    let (managed, other) = {
        let mut machine = kernel.machine();
        let managed = machine.start(1);
        let first = machine.map(managed, 16);
        machine.fill(managed, first..first + 16, PageSize::Base, 0);
        (managed, machine.start(1))
    };
    let table = Structures::create(&tempfile::tempfile().unwrap()).unwrap();
    let facts = Facts::discover(&kernel);
    let options = world::Options { workers: 1, structures: Some(table), ..world::Options::default() };
    let mut world =
        World::new(Arc::new(kernel.clone()), facts.tiers.clone(), facts.capabilities(), &options).unwrap();
    let space = world.adopt(managed).unwrap();
    let ended = 4_000_000;
    for (pid, start, bytes) in [
        // From the middle of page 16 to that of page 33: 16 pages of its own.
        (managed, (16 << 12) + 2048, 17 << 12),
        (managed, 8 << 12, 4 << 12),
        // No page is all its own.
        (managed, (40 << 12) + 1, 8190),
        // What a program has written need not make sense.
        (managed, 100 << 12, u64::MAX),
        (other, 16 << 12, 1 << 20),
        (ended, 16 << 12, 1 << 20),
    ] {
        assert!(table.insert(&Structure { pid, start, bytes }));
    }
    let mut blocks = Vec::new();
    world.blocks(&mut |block| {
        assert_eq!((block.site, block.accesses), (None, None));
        blocks.extend(block.parts.iter().map(|part| (part.first, part.pages)));
    });
    let page = |vpn| PageId { space, vpn };
    assert_eq!(blocks[..2], [(page(8), 4), (page(17), 16)]);
    assert_eq!((blocks.len(), blocks[2].0), (3, page(100)));
    let mut left = Vec::new();
    table.each(&mut |structure| left.push(structure.pid));
    left.sort_unstable();
    assert_eq!(left, [vec![managed; 4], vec![other]].concat(), "those of a process that is no more are gone");
}
