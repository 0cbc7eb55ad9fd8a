//! Processes: what they share after a fork, and what their end frees.

use super::*;

/// A parent with four written pages forks; both then read and write.
fn fork() -> Program {
    let page = |page: u64| DATA + page * PAGE;
    let mut program = Program::new();
    program.map(DATA, 4 * PAGE);
    for at in 0..4 {
        program.write(page(at));
    }
    program.on(1).spawn(1, 0, Some(0));
    // The child reads without a fault, and gets a copy of what it writes first.
    program.read(page(0)).write(page(1)).write(page(1) + 64);
    barrier(&mut program);
    // The parent is page 1's only owner by now; page 2 it copies.
    program.on(0).write(page(1)).write(page(2));
    barrier(&mut program);
    // The child is page 2's only owner.
    program.on(1).write(page(2)).read(page(3));
    barrier(&mut program);
    program
}

#[test]
fn a_fork_shares_pages_until_they_are_written() {
    for count_of_cores in [1, 2] {
        let design = cores(small(), count_of_cores);
        for fidelity in ALL {
            let outcome = fork().run(&design, fidelity);
            let what = format!("{count_of_cores} cores at {fidelity:?}");
            assert_eq!(outcome.accesses, 11);
            let names = ["os.faults", "os.copy_on_write_faults", "os.faults_by_size.4k", "os.pages_freed"];
            assert_eq!(counts(&outcome, names), [8, 4, 4, 0], "{what}");
            assert_eq!(resident(&outcome), 6, "{what}: two copies");
            // Two page tables of a root, two tables below it and one of leaves.
            assert_eq!(count(&outcome, "os.page_table_pages"), 8, "{what}");
            assert_eq!(
                counts(&outcome, ["os.unmapped_accesses", "input.order_violations"]),
                [0, 0],
                "{what}"
            );
        }
        let outcome = fork().run(&design, Fidelity::Full);
        // Two pages were read and written.
        assert_eq!(count(&outcome, "tier.dram.bytes_by.copy"), 2 * 2 * PAGE);
        assert_eq!(count(&outcome, "tier.dram.bytes_by.zero"), 4 * PAGE);
    }
}

#[test]
fn a_child_that_ends_frees_what_is_its_own() {
    let mut program = fork();
    program.on(1).exit(true);
    let outcome = program.run(&cores(small(), 2), Fidelity::Full);
    // The child frees its copy of page 1 and the original of page 2; pages 0 and 3 belong to the parent alone now.
    assert_eq!(counts(&outcome, ["os.pages_freed", "os.page_table_pages"]), [2, 4]);
    assert_eq!(resident(&outcome), 4);
    program.on(0).write(DATA).write(DATA + 3 * PAGE);
    let outcome = program.run(&cores(small(), 2), Fidelity::Full);
    // Faults that find nobody else copy nothing.
    assert_eq!(counts(&outcome, ["os.copy_on_write_faults", "tier.dram.bytes_by.copy"]), [6, 4 * PAGE]);
    assert_eq!(resident(&outcome), 4);
    program.on(0).exit(true);
    let outcome = program.run(&cores(small(), 2), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.pages_freed", "os.page_table_pages"]), [6, 0]);
    assert_eq!(resident(&outcome), 0);
    assert_eq!(count(&outcome, "tier.dram.pages"), small().os.reserved.0 / PAGE);
}

#[test]
fn shared_memory_stays_shared_after_a_fork() {
    for kind in [MapKind::SharedAnonymous, MapKind::SharedFile] {
        let mut program = Program::new();
        program.map_kind(DATA, 2 * PAGE, kind).write(DATA).write(DATA + PAGE);
        program.on(1).spawn(1, 0, Some(0)).write(DATA).write(DATA + PAGE);
        barrier(&mut program);
        program.on(0).write(DATA);
        let outcome = program.run(&cores(small(), 2), Fidelity::Full);
        assert_eq!(counts(&outcome, ["os.faults", "os.copy_on_write_faults"]), [2, 0], "{kind:?}");
        assert_eq!(resident(&outcome), 2);
    }
}

#[test]
fn a_kernel_write_breaks_sharing_like_a_store() {
    let mut program = Program::new();
    program.map(DATA, 2 * PAGE).write(DATA).write(DATA + PAGE);
    program.on(1).spawn(1, 0, Some(0));
    program.kernel(DATA, PAGE, KernelAccess::Write).kernel(DATA, 2 * PAGE, KernelAccess::Read);
    for fidelity in ALL {
        let outcome = program.run(&cores(small(), 2), fidelity);
        assert_eq!(counts(&outcome, ["os.copy_on_write_faults", "os.kernel_lines"]), [1, 64 + 128]);
        assert_eq!(resident(&outcome), 3);
    }
}

#[test]
fn huge_pages_are_shared_and_copied_whole() {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB).write(DATA);
    program.on(1).spawn(1, 0, Some(0)).write(DATA + MIB);
    let outcome = program.run(&cores(with_pages(small(), PagePolicy::Thp), 2), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults", "os.copy_on_write_faults"]), [2, 1]);
    assert_eq!(resident(&outcome), 1024);
    assert_eq!(count(&outcome, "tier.dram.bytes_by.copy"), 2 * 2 * MIB);
}

#[test]
fn a_process_that_ends_frees_everything() {
    let reserved = small().os.reserved.0 / PAGE;
    for pages in [PagePolicy::Base, PagePolicy::Huge, PagePolicy::Thp] {
        let mut program = Program::new();
        program.map(DATA, 8 * MIB).map(DATA + 600 * GIB, PAGE).write(DATA + 600 * GIB);
        for page in 0..20 {
            program.write(DATA + page * 100 * PAGE);
        }
        let before = program.run(&with_pages(small(), pages), Fidelity::Full);
        assert!(resident(&before) >= 21 && count(&before, "tier.dram.pages") > reserved + 21);
        program.exit(true);
        let after = program.run(&with_pages(small(), pages), Fidelity::Full);
        assert_eq!(resident(&after), 0);
        assert_eq!(counts(&after, ["tier.dram.pages", "os.page_table_pages"]), [reserved, 0]);
        assert_eq!(count(&after, "os.pages_freed"), resident(&before));
    }
}

#[test]
fn a_process_lives_until_its_last_thread_has_come_to_its_end() {
    let mut program = Program::new();
    program.map(DATA, MIB).write(DATA);
    program.on(1).spawn(0, 1, None).write(DATA + PAGE);
    program.on(0).exit(true);
    for page in 0..100 {
        program.on(1).write(DATA + page * PAGE);
    }
    let running = program.run(&cores(small(), 2), Fidelity::Full);
    assert_eq!(counts(&running, ["os.unmapped_accesses", "os.faults"]), [0, 100]);
    assert_eq!(resident(&running), 100);
    program.on(1).exit(false);
    let ended = program.run(&cores(small(), 2), Fidelity::Full);
    assert_eq!(counts(&ended, ["os.pages_freed", "os.unmapped_accesses"]), [100, 0]);
    assert_eq!(resident(&ended), 0);
}

#[test]
fn a_new_program_begins_with_nothing() {
    let mut program = Program::new();
    program.map(DATA, 4 * PAGE).write(DATA).write(DATA + PAGE);
    program.event(Event::Exec { name: "other".to_owned() });
    program.map(DATA, PAGE).read(DATA).read(DATA + PAGE);
    for fidelity in ALL {
        let outcome = program.run(&small(), fidelity);
        let names = ["os.faults", "os.pages_freed", "os.unmapped_accesses", "os.page_table_pages"];
        assert_eq!(counts(&outcome, names), [4, 2, 1, 4]);
        assert_eq!(resident(&outcome), 2);
    }
}

#[test]
fn pages_resident_before_the_input_begins_need_no_fault() {
    let mut program = Program::new();
    program.map(DATA, 128 * PAGE);
    program.event(Event::Resident { start: DATA, bitmap: vec![0b1011, 1 << 63] });
    for page in [0, 1, 2, 3, 127] {
        program.read(DATA + page * PAGE);
    }
    // Without a mapping of their own as well.
    program.event(Event::Resident { start: DATA + GIB, bitmap: vec![1] }).read(DATA + GIB);
    for fidelity in ALL {
        let outcome = program.run(&small(), fidelity);
        assert_eq!(counts(&outcome, ["os.faults", "os.unmapped_accesses"]), [1, 0]);
        assert_eq!(resident(&outcome), 6);
    }
}

#[test]
fn threads_of_a_process_share_its_memory_and_processes_do_not() {
    let mut program = Program::new();
    program.map(DATA, 2 * PAGE).write(DATA);
    barrier(&mut program);
    program.on(1).spawn(0, 1, None).read(DATA);
    program.on(2).spawn(1, 0, None).map(DATA, PAGE).read(DATA);
    let outcome = program.run(&cores(small(), 3), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults", "core.cores_used", "walk.count"]), [2, 3, 3]);
    // On one core, translations of one process do not serve the other.
    let outcome = program.run(&cores(small(), 1), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults", "core.cores_used", "walk.count"]), [2, 1, 2]);
}
