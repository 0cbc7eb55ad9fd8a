//! Whole workloads, and random programs against the same work in turns.

use super::*;
use proptest::prelude::*;
use terrace_trace::EventSource;

/// A policy moves pages that threads and the kernel use.
#[test]
fn pages_move_while_threads_and_a_kernel_use_them() {
    let source = || {
        let spec = "gpu-stream,bytes=1536 KiB,iterations=3,cpu_threads=2,cpu_accesses=20000,cpu_stores=0.2";
        crate::support::workload(spec)
    };
    let run = |source: &mut dyn EventSource| {
        let design = design("gpu-migrate-th-re-bwb", None, &[]);
        simulate(&design, source, Options { whole: true, ..Options::default() }).unwrap()
    };
    let outcome = run(&mut *source());
    assert!(count(&outcome, "policy.own.moved") > 100);
    assert_eq!(count(&outcome, "gpu.host_accesses"), 120_000);
    assert_eq!(outcome, run(&mut *source()), "deterministic");
}

#[test]
fn threads_of_a_workload_slow_its_kernels_where_they_share_the_memory() {
    let cycles = |more: &str| {
        let spec = format!("gpu-stream,bytes=12 MiB{more}");
        let design = design("gpu-ddr-only", None, &[]);
        let outcome = simulate(&design, &mut *crate::support::workload(&spec), Options::default()).unwrap();
        count(&outcome, "gpu.cycles") as f64
    };
    let alone = cycles("");
    let own = cycles(",cpu_threads=4,cpu_data=own,cpu_accesses=100000");
    assert!(own > 1.01 * alone, "{own} of {alone}");
    assert_eq!(cycles(",cpu_threads=4,cpu_accesses=0"), alone);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever overlaps, everything is done once: against the same work one after the other, accesses, instructions,
    /// transactions and sectors are equal; and so are bytes where no line is used twice.
    #[test]
    fn what_is_done_and_what_memory_carries_are_conserved(
        kernels in prop::collection::vec((1u64..30, 1u64..6, 0u64..400), 1..5),
        threads in prop::collection::vec((0u64..120, any::<bool>()), 1..10),
        (name, fast_share) in prop::sample::select(vec![
            // Where each page's place does not depend on the order of first touches.
            ("gpu-local", ""),
            ("gpu-ddr-only", ""),
            ("selective-naive", "0.0"),
            ("gpu-hw-coherent", "1.0"),
        ]),
    ) {
        let run = |overlaps: bool| {
            let mut program = program();
            let (mut line, mut own) = (0, 8 * MIB);
            for (number, (groups, loads, compute)) in kernels.iter().enumerate() {
                if overlaps {
                    enqueue(&mut program);
                }
                program.on(GPU).mark(MarkKind::KernelLaunch);
                for _ in 0..*groups {
                    let mut work = vec![Do::Compute(*compute + 1)];
                    work.extend((0..*loads).map(|load| Do::Load((line + load) * 128, 32)));
                    line += loads;
                    warp(&mut program, &work);
                }
                for (at, (accesses, write)) in threads.iter().enumerate() {
                    let thread = (number + at) as u32 % 3;
                    for _ in 0..*accesses {
                        let program = program.on(thread);
                        if *write { program.write(DATA + own) } else { program.read(DATA + own) };
                        own += 64;
                    }
                }
                if overlaps && number % 2 == 0 {
                    wait(&mut program);
                }
            }
            let changes = [("os.policy.fast_share", fast_share)];
            whole(&program, &design(name, None, &changes[..usize::from(!fast_share.is_empty())]))
        };
        let (serial, side_by_side) = (run(false), run(true));
        prop_assert_eq!(serial.accesses, side_by_side.accesses);
        prop_assert_eq!(serial.instructions, side_by_side.instructions);
        let counters = ["kernels", "work_groups", "loads", "stores", "transactions", "sectors", "host_accesses", "l1.miss"];
        for counter in counters {
            let name = format!("gpu.{counter}");
            prop_assert_eq!(count(&serial, &name), count(&side_by_side, &name), "{}", name);
        }
        let carried = |outcome: &Outcome| {
            ["gddr", "ddr"].map(|tier| count(outcome, &format!("tier.{tier}.bytes_read"))).iter().sum::<u64>()
        };
        prop_assert_eq!(carried(&serial), carried(&side_by_side));
        prop_assert!(side_by_side.cycles <= serial.cycles + serial.cycles / 20 + 1000);
    }
}
