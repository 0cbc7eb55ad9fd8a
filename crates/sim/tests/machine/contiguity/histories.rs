//! Histories drawn at random: every translation is right, and coalescing without contiguity changes nothing.

use super::*;
use proptest::prelude::*;

/// Two processes, unmaps, remaps, forks, system calls, several page sizes.
fn history(seed: u64, steps: u64) -> Program {
    let mut random = Random(seed);
    let mut program = Program::new();
    let spread = 40 + random.below(400);
    program.map(DATA, spread * PAGE).map(DATA + GIB, 8 * 2 * MIB);
    for step in 0..steps {
        let page = DATA + random.below(spread) * PAGE;
        match random.below(200) {
            0 => drop(program.unmap(page, (1 + random.below(12)) * PAGE)),
            1 => drop(program.map(page, (1 + random.below(12)) * PAGE)),
            2 => drop(program.remap((page, 4 * PAGE), (DATA + 4 * GIB + step * 16 * PAGE, 4 * PAGE))),
            3 => drop(program.kernel(page + 100, 3 * PAGE, KernelAccess::Write)),
            4 if step > steps / 2 && step < steps / 2 + 200 => drop(program.on(1).spawn(1, 1, Some(0)).on(0)),
            5..30 => drop(program.write(DATA + GIB + random.below(16 * MIB) / 8 * 8)),
            30..100 => drop(program.access(page + 4092, 8, AccessKind::Write, 0, 3)),
            _ => drop(program.read(page)),
        }
        if step > steps / 2 && random.below(20) == 0 {
            program.on(1).write(page).on(0);
        }
    }
    program
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No mechanism ever uses a translation that is not the page table's (asserted inside), whatever happens to pages;
    /// and what the program and the kernel did does not depend on it.
    #[test]
    fn histories_keep_every_translation_right(seed: u64, thp: bool, spread: bool) {
        let program = history(seed, 3000);
        let base = with_pages(small(), if thp { PagePolicy::Thp } else { PagePolicy::Base });
        let base = with_table_elsewhere(if spread { scattered(base) } else { base });
        let plain = program.run(&base, Fidelity::Translation);
        for contiguity in all() {
            let outcome = program.run(&with(base.clone(), contiguity), Fidelity::Translation);
            for name in ["os.faults", "os.splits", "os.copy_on_write_faults", "os.pages_freed"] {
                prop_assert_eq!(count(&outcome, name), count(&plain, name), "{}", name);
            }
        }
    }

    /// Coalesced TLBs on pages of which no two are contiguous are plain TLBs, to the last count.
    #[test]
    fn coalesced_tlbs_on_scattered_pages_are_plain(seed: u64, levels in 0usize..3, pages in 0u32..4) {
        use CoalescedLevels::{Both, L1, L2};
        let mut random = Random(seed);
        let mut program = Program::new();
        program.map(DATA, 512 * PAGE);
        // In order, so that each page lies in another tier than its neighbours.
        for page in 0..512 {
            program.read(DATA + page * PAGE);
        }
        for _ in 0..4000 {
            let page = if random.below(3) == 0 { random.below(512) } else { random.below(24) };
            let addr = DATA + page * PAGE + random.below(500) * 8;
            if random.below(3) == 0 { program.write(addr) } else { program.read(addr) };
        }
        // Sets are taken from the group's number, so only one set compares; huge pages are not in play.
        let mut plain = scattered(with_table_elsewhere(small()));
        plain.translation.l1d.insert(PageSize::Base, full_tlb(4));
        plain.translation.l2.array = vec![array(&[PageSize::Base], 12, 12)];
        let design = with(plain.clone(), coalesced(2 << pages, [Both, L1, L2][levels]));
        let (plain, own) = (program.run(&plain, Fidelity::Translation), program.run(&design, Fidelity::Translation));
        for name in ["tlb.l1d.4k.hit", "tlb.l1d.4k.miss", "tlb.l2.hit", "walk.count", "walk.dirty_updates"] {
            prop_assert_eq!(count(&own, name), count(&plain, name), "{}", name);
        }
        prop_assert_eq!(own.cycles, plain.cycles);
        prop_assert_eq!(count(&own, "walk.avoided"), 0);
    }
}
