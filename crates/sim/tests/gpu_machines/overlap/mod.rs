//! Threads of the CPU that go on while kernels run.

use terrace_model::Stats;
use terrace_sim::design::{Design, Library};
use terrace_sim::{Options, Outcome, simulate};
use terrace_trace::{AccessKind, Agent, Event, MarkKind};

mod wholes;

use crate::support::{DATA, MIB, PAGE, Program};

/// Stream of the GPU; the threads' are those before it.
const GPU: u32 = 3;

fn design(name: &str, machine: Option<&str>, changes: &[(&str, &str)]) -> Design {
    let changes: Vec<(String, String)> =
        changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Library::embedded().design(name, machine, &changes).unwrap().design
}

/// All pages in the CPU's memory, of which a line of 64 bytes takes a microsecond. Clocks of 1 and 2 GHz.
fn slow_memory() -> Design {
    let changes = [
        ("gpu.frequency", "1 GHz"),
        ("core.frequency", "2 GHz"),
        ("device.ddr.channels", "1"),
        ("device.ddr.bus_bandwidth", "64 MB/s"),
        ("device.ddr.bank.t_refi", "1 s"),
        ("os.placement", "{ kind = \"bind\", tier = \"ddr\" }"),
    ];
    design("native-4k", Some("gpu-gtx480"), &changes)
}

/// Three threads and a GPU, and a mapping of 16 MiB.
fn program() -> Program {
    let mut program = Program::without_spawn();
    for stream in 0..=GPU {
        let agent = if stream == GPU { Agent::Gpu } else { Agent::Cpu };
        let (forked_from, name) = (None, String::new());
        let spawn = Event::Spawn { process: 0, thread: stream, agent, forked_from, os_id: 0, name };
        program.on(stream).event(spawn);
    }
    program.on(0).map(DATA, 16 * MIB);
    program
}

/// What one warp does.
#[derive(Clone, Copy, Debug)]
enum Do {
    /// Loads or stores so many words side by side.
    Load(u64, u64),
    Store(u64, u64),
    Compute(u64),
}

fn warp(program: &mut Program, work: &[Do]) {
    program.on(GPU).mark_value(MarkKind::WorkGroup, 32).mark_value(MarkKind::Warp, 0);
    for step in work {
        let (offset, lanes, kind) = match *step {
            Do::Load(offset, lanes) => (offset, lanes, AccessKind::Read),
            Do::Store(offset, lanes) => (offset, lanes, AccessKind::Write),
            Do::Compute(instructions) => {
                program.event(Event::Compute { instructions });
                continue;
            }
        };
        for lane in 0..lanes {
            program.access(DATA + offset + 4 * lane, 4, kind, 0, u64::from(lane == 0));
        }
    }
}

fn kernel(program: &mut Program, work: &[Do]) {
    program.on(GPU).mark(MarkKind::KernelLaunch);
    warp(program, work);
}

fn enqueue(program: &mut Program) -> &mut Program {
    program.on(0).mark(MarkKind::KernelEnqueue)
}

fn wait(program: &mut Program) -> &mut Program {
    program.on(0).mark(MarkKind::KernelWait)
}

fn whole(program: &Program, design: &Design) -> Outcome {
    let options = Options { whole: true, ..Options::default() };
    simulate(design, &mut program.source(), options).unwrap()
}

fn nanos(outcome: &Outcome) -> i64 {
    (outcome.seconds_simulated * 1e9).round() as i64
}

fn count(outcome: &Outcome, name: &str) -> u64 {
    outcome.stats.integer(name)
}

/// All statistics but those of the overlap itself.
fn others(stats: &Stats) -> Vec<String> {
    let all = stats.iter().filter(|(name, _)| !name.starts_with("gpu.overlap."));
    all.map(|(name, stat)| format!("{name} {:?}", stat.value)).collect()
}

/// A program whose first pages have been touched, so that faults are not part of what a test measures. Then memory is idle.
fn touched(pages: u64) -> Program {
    let mut program = program();
    for page in 0..pages {
        program.on(0).read(DATA + page * PAGE + 2048);
    }
    program.event(Event::Compute { instructions: 1_000_000 });
    program
}

#[test]
fn each_line_of_a_thread_delays_a_kernel_by_its_transfer() {
    let design = slow_memory();
    let kernel_time = |lines: u64| {
        let mut program = touched(8);
        enqueue(&mut program);
        kernel(&mut program, &[Do::Load(0, 32)]);
        for line in 0..lines {
            program.on(0).read(DATA + PAGE + line * 64);
        }
        wait(&mut program);
        let outcome = simulate(&design, &mut program.source(), Options::default()).unwrap();
        assert_eq!(count(&outcome, "gpu.overlap.accesses"), lines);
        nanos(&outcome)
    };
    let times = [0, 1, 2, 3].map(kernel_time);
    // Two lines of 64 bytes, and what the way to memory takes.
    assert!((2000..2700).contains(&times[0]), "{times:?}");
    // The first is under way when the kernel's request has come through its caches; it waits for the others too.
    assert!((300..1000).contains(&(times[1] - times[0])), "{times:?}");
    assert_eq!([2, 3].map(|lines| times[lines] - times[lines - 1]), [1000; 2], "{times:?}");
}

#[test]
fn both_sides_together_have_the_bandwidth_of_one_memory_and_each_its_own_of_two() {
    // The kernel reads 2000 lines of 64 bytes, three threads 1000 each: a microsecond a line.
    let program = |touched: &[u64]| {
        let mut program = program();
        for page in touched {
            program.on(0).read(DATA + page * PAGE + 2048);
        }
        enqueue(&mut program);
        program.on(GPU).mark(MarkKind::KernelLaunch);
        for group in 0..100 {
            let work: Vec<Do> = (0..10).map(|load| Do::Load((group * 10 + load) * 128, 32)).collect();
            warp(&mut program, &work);
        }
        for line in 0..1000 {
            for thread in 0..3 {
                program.on(thread).read(DATA + 8 * MIB + (u64::from(thread) * 1000 + line) * 64);
            }
        }
        wait(&mut program);
        program
    };
    let outcome = whole(&program(&[]), &slow_memory());
    let (bytes, time) = (count(&outcome, "tier.ddr.bytes_read"), nanos(&outcome));
    assert_eq!(bytes, 64 * 5000);
    // The last ten loads of each thread are not waited for.
    assert!((4_970_000..5_010_000).contains(&time), "{time} ns for 5000 lines");
    // While the kernel runs it waits for the threads' lines, all but those under way when it ends and some that its late
    // lines go before.
    let (kernel, beside) = (count(&outcome, "gpu.cycles"), count(&outcome, "gpu.overlap.accesses"));
    assert!(beside > 50, "{beside}");
    assert!(kernel.abs_diff(1000 * (2000 + beside)) < 100_000, "{kernel} ns, {beside} accesses");

    // The kernel's pages in one memory, the threads' in another.
    let two = [
        ("device.ddr.channels", "1"),
        ("device.ddr.bus_bandwidth", "64 MB/s"),
        ("device.ddr.bank.t_refi", "1 s"),
        ("device.gddr.channels", "1"),
        ("device.gddr.bus_bandwidth", "64 MB/s"),
        ("device.gddr.bank.t_refi", "1 s"),
        // Room for the kernel's 32 pages and those of tables.
        ("tier.gddr.capacity", "256 KiB"),
        ("os.reserved", "0 MiB"),
        ("os.placement", "\"first-touch\""),
    ];
    let design = design("native-4k", Some("gpu-gtx480"), &two);
    // Pages that are touched before fill the GPU's memory, the kernel's first.
    let touched: Vec<u64> = (0..100).collect();
    let outcome = whole(&program(&touched), &design);
    let [gddr, ddr] = ["gddr", "ddr"].map(|tier| count(&outcome, &format!("tier.{tier}.bytes_read")) / 64);
    // The kernel's lines that were touched before are read twice; lines of tables may be beside them.
    assert!((2032..2100).contains(&gddr) && (3000..3100).contains(&ddr), "{gddr} and {ddr} lines");
    let time = nanos(&outcome);
    assert!((3_000_000..3_200_000).contains(&time), "{time} ns");
    assert!((2_000_000..2_100_000).contains(&(count(&outcome, "gpu.cycles") * 1000 / 1400)));
}

#[test]
fn a_wait_lasts_until_the_kernel_is_over() {
    let design = slow_memory();
    // The thread computes for half as long as the kernel, before or after it waits.
    let run = |waits_before: bool| {
        let mut program = touched(2);
        enqueue(&mut program);
        kernel(&mut program, &[Do::Compute(100_000)]);
        if waits_before {
            wait(&mut program);
        }
        program.on(0).event(Event::Compute { instructions: 100_000 });
        if !waits_before {
            wait(&mut program);
        }
        let outcome = whole(&program, &design);
        let waited = count(&outcome, "gpu.overlap.wait_time");
        (nanos(&outcome), waited)
    };
    let (before, after) = (run(true), run(false));
    // 100,000 cycles at 1 GHz and at 2 GHz.
    assert_eq!(before.0 - after.0, 50_000);
    assert_eq!((before.1, after.1), (100_000, 50_000));
}

#[test]
fn a_thread_may_wait_for_all_but_the_latest_kernels() {
    let design = slow_memory();
    let waited = |but: u64| {
        let mut program = touched(1);
        for _ in 0..2 {
            enqueue(&mut program);
            kernel(&mut program, &[Do::Compute(100_000)]);
        }
        program.on(0).mark_value(MarkKind::KernelWait, but);
        let outcome = whole(&program, &design);
        assert_eq!([count(&outcome, "gpu.kernels"), count(&outcome, "gpu.overlap.kernels")], [2, 2]);
        // One kernel after the other.
        assert_eq!(count(&outcome, "gpu.cycles"), 200_000);
        count(&outcome, "gpu.overlap.wait_time")
    };
    assert_eq!([0, 1, 2].map(waited), [200_000, 100_000, 0]);
}

#[test]
fn a_kernel_that_is_waited_for_at_once_is_as_one_that_nobody_enqueued() {
    let outcome = |overlaps: bool, design: &Design| {
        let mut program = touched(8);
        for round in 0..3 {
            program.on(0).write(DATA + round * PAGE).read(DATA + 3 * PAGE);
            if overlaps {
                enqueue(&mut program);
            }
            program.on(GPU).mark(MarkKind::KernelLaunch);
            for group in 0..200 {
                let offset = (round * 200 + group) * 256;
                warp(&mut program, &[Do::Load(offset, 32), Do::Store(offset + 128, 32), Do::Compute(20)]);
            }
            if overlaps {
                wait(&mut program);
            }
            program.on(0).read(DATA + round * PAGE + 128).read(DATA + 5 * PAGE);
        }
        whole(&program, design)
    };
    for name in [
        "gpu-local",
        "gpu-bw-aware",
        "gpu-migrate-th-re",
        "selective-naive",
        "selective-ro",
        "gpu-hw-coherent",
    ] {
        let design = design(name, None, &[]);
        let (one, other) = (outcome(false, &design), outcome(true, &design));
        assert_eq!(others(&one.stats), others(&other.stats), "{name}");
        assert_eq!((one.cycles, one.accesses), (other.cycles, other.accesses), "{name}");
        assert_eq!(count(&other, "gpu.overlap.kernels"), 3);
    }
}

/// One piece of work in files that are laid out differently.
#[test]
fn where_the_threads_part_lies_between_enqueueing_and_waiting_decides_nothing() {
    #[derive(Clone, Copy, PartialEq)]
    enum Where {
        Before,
        Between,
        After,
    }
    let design = design("selective-cc-vt", None, &[]);
    let outcome = |place: Where| {
        let mut program = touched(8);
        enqueue(&mut program);
        let own = |program: &mut Program, part: u64| {
            for access in part * 50..part * 50 + 50 {
                for thread in 0..2 {
                    let addr = DATA + (access * 7919 + u64::from(thread) * 64) % (8 * PAGE - 8);
                    let program = program.on(thread);
                    if access % 3 == 0 {
                        program.write(addr)
                    } else {
                        program.read(addr)
                    };
                }
            }
        };
        if place == Where::Before {
            (0..4).for_each(|part| own(&mut program, part));
        }
        program.on(GPU).mark(MarkKind::KernelLaunch);
        for group in 0..400 {
            warp(&mut program, &[Do::Load(group % 250 * 128, 32), Do::Store(group % 100 * 128, 8)]);
            if place == Where::Between && group % 100 == 0 {
                own(&mut program, group / 100);
            }
        }
        if place == Where::After {
            (0..4).for_each(|part| own(&mut program, part));
        }
        wait(&mut program);
        whole(&program, &design)
    };
    let before = outcome(Where::Before);
    assert!(
        count(&before, "gpu.overlap.accesses") > 0 && count(&before, "gpu.coherence.dropped_from_gpu") > 0
    );
    assert_eq!(before, outcome(Where::Between));
    assert_eq!(before, outcome(Where::After));
}

/// A line that a thread writes while a kernel runs.
#[test]
fn the_directory_sees_what_a_thread_does_while_a_kernel_runs() {
    let run = |name: &str, first: u64| {
        let mut program = touched(1);
        enqueue(&mut program);
        // 71 us between the loads; the thread writes the first half of the line after 22 us.
        let again = Do::Load(first, 16);
        kernel(&mut program, &[Do::Load(0, 32), Do::Load(0, 32), Do::Compute(100_000), again]);
        program.on(0).event(Event::Compute { instructions: 50_000 }).write(DATA);
        wait(&mut program);
        let changes = [("os.policy.fast_share", "1.0")];
        whole(&program, &design(name, None, &changes))
    };
    let counts = |outcome: &Outcome| {
        ["l1.hit", "coherence.dropped_from_gpu", "coherence.served_by_cpu", "coherence.nacks"]
            .map(|name| count(outcome, &format!("gpu.{name}")))
    };
    // The line was cached, the thread's request drops it, and the later load is served by the CPU, or refused of the half
    // that the CPU does not hold.
    assert_eq!(counts(&run("selective-naive", 0)), [1, 1, 1, 0]);
    assert_eq!(counts(&run("selective-naive", 64)), [1, 1, 0, 1]);
    // What was touched before the kernel is the directory's second line.
    let known = count(&run("selective-naive", 0), "gpu.remote_directory.added");
    assert_eq!(known, 2);
    // Hardware takes the line back into the GPU's caches.
    let outcome = run("gpu-hw-coherent", 0);
    assert_eq!(counts(&outcome), [1, 1, 0, 0]);
    assert_eq!(count(&outcome, "gpu.coherence.taken_from_cpu"), 1);
}

#[test]
fn a_thread_s_store_makes_a_page_writable_while_a_kernel_runs() {
    let mut program = touched(2);
    enqueue(&mut program);
    let load = Do::Load(0, 8);
    kernel(&mut program, &[load, load, Do::Compute(100_000), load, Do::Compute(10), load]);
    program.on(0).event(Event::Compute { instructions: 50_000 }).write(DATA + 128);
    wait(&mut program);
    let changes = [("os.policy.fast_share", "0.0"), ("coherence.read_only.enabled", "true")];
    let outcome = whole(&program, &design("selective-naive", None, &changes));
    // Cached while nobody writes; after the thread's fault each load goes to the CPU's memory.
    assert_eq!(
        ["l1.hit", "l1.miss", "uncached.loads", "read_only.cpu_faults"]
            .map(|name| count(&outcome, &format!("gpu.{name}"))),
        [1, 1, 2, 1]
    );
}

/// More than is queued while the kernel's launch has yet to come.
#[test]
fn a_long_part_of_a_thread_is_not_kept_until_its_kernel_comes() {
    let accesses = (4 << 20) + 100_000;
    let mut program = touched(1);
    enqueue(&mut program);
    for _ in 0..accesses {
        program.on(0).read(DATA);
    }
    kernel(&mut program, &[Do::Load(0, 32), Do::Compute(1000)]);
    wait(&mut program);
    let outcome = whole(&program, &slow_memory());
    assert_eq!(count(&outcome, "gpu.host_accesses"), accesses + 1);
    // What was too much is done before the kernel begins; so the kernel overlaps the rest.
    let beside = count(&outcome, "gpu.overlap.accesses");
    assert!((1..accesses - 90_000).contains(&beside), "{beside}");
    assert_eq!(count(&outcome, "gpu.overlap.wait_time"), 0);
}

#[test]
fn what_changes_the_address_space_comes_after_what_was_read_before_it() {
    let mut program = touched(1);
    enqueue(&mut program);
    kernel(&mut program, &[Do::Load(0, 32), Do::Compute(1000)]);
    // The kernel so far is over before, its second group comes later.
    program.on(0).map(DATA + 64 * MIB, MIB).write(DATA + 64 * MIB).unmap(DATA + 64 * MIB, MIB);
    warp(&mut program, &[Do::Load(128, 32)]);
    wait(&mut program).read(DATA + 4096);
    let outcome = whole(&program, &slow_memory());
    assert_eq!(["gpu.kernels", "gpu.work_groups", "gpu.loads"].map(|name| count(&outcome, name)), [1, 2, 64]);
    assert_eq!(count(&outcome, "os.unmapped_accesses"), 0);
    assert_eq!(count(&outcome, "gpu.host_accesses"), 3);
    // Three loads one after the other, of which the thread's and the last are not waited for by each other.
    let cycles = count(&outcome, "gpu.cycles");
    assert!((2 * 2000 + 1000..2 * 2700 + 1000 + 1100).contains(&cycles), "{cycles}");
}

#[test]
fn an_input_that_was_cut_off_ends() {
    // A kernel whose launch never comes; a thread that has not ended; a wait for nothing.
    let mut program = touched(1);
    wait(&mut program);
    enqueue(&mut program).read(DATA);
    enqueue(&mut program).read(DATA + 64);
    kernel(&mut program, &[Do::Load(0, 32)]);
    program.on(1).read(DATA + 128);
    let outcome = whole(&program, &slow_memory());
    assert_eq!(
        ["gpu.kernels", "gpu.overlap.kernels", "gpu.host_accesses"].map(|name| count(&outcome, name)),
        [1, 1, 4]
    );
}

#[test]
fn marks_in_wrong_places_are_refused() {
    let error = |program: &Program| {
        simulate(&slow_memory(), &mut program.source(), Options::default()).expect_err("refused").to_string()
    };
    let mut on_gpu = program();
    on_gpu.on(GPU).mark(MarkKind::KernelWait);
    assert!(
        error(&on_gpu).contains("KernelWait on the stream of a GPU: expected it on the stream of the CPU's")
    );
    let mut early = program();
    enqueue(&mut early);
    wait(&mut early);
    assert!(
        error(&early).contains("KernelWait for kernel 1 of those enqueued: expected its launch before that")
    );
    let mut late = program();
    enqueue(&mut late);
    kernel(&mut late, &[Do::Load(0, 32)]);
    wait(&mut late);
    warp(&mut late, &[Do::Load(0, 32)]);
    assert!(
        error(&late).contains("WorkGroup of a kernel that was waited for: expected all of a kernel before")
    );
}
