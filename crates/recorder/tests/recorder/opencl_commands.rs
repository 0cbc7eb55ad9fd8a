//! OpenCL programs on Oclgrind: commands, processes and threads of which more than one does something.

use super::opencl::{Seen, gpu, order, program, record};
use super::support::Workshop;
use std::collections::BTreeMap;

/// Records `commands` with these arguments.
fn recorded(arguments: &[&str]) -> Seen {
    let workshop = Workshop::new();
    let program = program(&workshop, "commands");
    let mut command: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&program];
    command.extend(arguments.iter().map(|argument| argument as &dyn AsRef<std::ffi::OsStr>));
    record(&command, &gpu())
}

#[test]
fn groups_that_a_program_leaves_to_the_device_are_warps_of_neighbours() {
    let seen = recorded(&["flat", "128", "4"]);
    assert_eq!(seen.launches, [("flat".to_owned(), 8)]);
    assert_eq!(seen.lanes["flat"], BTreeMap::from([(32, 16)]));
    // The largest divisor of at most 64 is 50.
    assert_eq!(recorded(&["flat", "1000"]).lanes["flat"], BTreeMap::from([(18, 20), (32, 20)]));
    // Kernels that need a size have it.
    assert_eq!(recorded(&["sixteen", "64"]).lanes["sixteen"], BTreeMap::from([(16, 4)]));
}

#[test]
fn an_atomic_is_one_instruction_that_loads_and_stores() {
    let seen = recorded(&["atomics", "64"]);
    assert_eq!((seen.gpu, &seen.lanes["atomics"]), ([64, 64], &BTreeMap::from([(64, 2)])));
    // Every other lane finds what it expects, and stores.
    let seen = recorded(&["some", "64"]);
    assert_eq!((seen.gpu, &seen.lanes["some"]), ([64, 32], &BTreeMap::from([(48, 2)])));
}

#[test]
fn a_fill_goes_through_its_range_line_by_line() {
    assert_eq!(recorded(&["fill", "1048576"]).host, [0, 1_048_576 / 64]);
}

#[test]
fn a_forked_process_is_left_out_whenever_it_comes() {
    for when in ["fork-first", "fork-later"] {
        let seen = recorded(&[when]);
        assert_eq!((seen.gpu, seen.host), ([2048, 2048], [64, 64]), "{when}");
        let [warning] = &seen.warnings[..] else { panic!("{when}: {:?}", seen.warnings) };
        assert!(warning.contains("kernels of another of its processes are left out"), "{warning}");
    }
    let seen = recorded(&["fork-unused"]);
    assert_eq!((seen.gpu, seen.warnings), ([2048, 2048], Vec::new()), "a child without kernels");
}

#[test]
fn a_script_may_run_one_program_after_the_other() {
    let workshop = Workshop::new();
    let program = program(&workshop, "commands");
    let seen = record(&[&"bash", &"-c", &"$0 increment 1; $0 increment 2; :", &program], &gpu());
    assert_eq!((seen.gpu, seen.warnings), ([3 * 1024; 2], Vec::new()));
}

#[test]
fn threads_with_contexts_of_their_own_take_turns() {
    let seen = recorded(&["threads"]);
    assert_eq!((seen.gpu, seen.host), ([4 * 8 * 1024; 2], [4 * 64; 2]));
    assert_eq!(seen.lanes["increment"], BTreeMap::from([(32, 2 * 4 * 8 * 32)]));
    assert!(seen.warnings.is_empty(), "{:?}", seen.warnings);
}

#[test]
fn an_image_has_its_name_and_is_filled_before_its_kernel() {
    let workshop = Workshop::new();
    let program = program(&workshop, "commands");
    assert_eq!(order(&[&program, &"picture"]), ["host", "launch"]);
    let seen = record(&[&program, &"picture"], &gpu());
    assert_eq!(seen.names, ["image", "out"]);
    assert_eq!((seen.gpu, seen.host), ([4 * 1024, 1024], [0, 256]), "four channels each");
}

#[test]
fn a_command_waits_for_the_events_of_another_queue() {
    let workshop = Workshop::new();
    let round = ["enqueue", "launch", "wait 0", "host"];
    let expected = [&["host"][..], &round, &round].concat();
    assert_eq!(order(&[&program(&workshop, "commands"), &"waits"]), expected);
}

#[test]
fn a_copy_of_a_group_is_spread_over_its_items() {
    let seen = recorded(&["staged"]);
    // Four groups copy 256 numbers each, and every item stores one.
    assert_eq!((seen.gpu, &seen.lanes["staged"]), ([1024, 256], &BTreeMap::from([(32, 32 + 8)])));
}
