//! OpenCL programs on Oclgrind.

use super::support::{Workshop, start, words};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_model::AddressRange;
use terrace_recorder::{RecordError, RecordOptions, prepare};
use terrace_trace::{AccessKind, Agent, Batch, Event, EventSource, Item, MarkKind};

pub(super) fn gpu() -> RecordOptions {
    RecordOptions { gpu: true, ..RecordOptions::default() }
}

/// Compiles a program of `tests/opencl/`.
pub(super) fn program(workshop: &Workshop, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/opencl");
    let source = std::fs::read_to_string(folder.join(name).with_extension("c")).unwrap();
    std::fs::copy(folder.join("host.h"), workshop.path("host.h")).unwrap();
    workshop.compile(
        "cc",
        &format!("{name}.c"),
        &source,
        &["-O1", "-w", "-pthread", "-Wl,--no-as-needed", "-lOpenCL"],
    )
}

/// Everything that a recording delivered, in order.
#[derive(Default)]
pub(super) struct Seen {
    /// Loads and stores of the GPU and of the host.
    pub gpu: [u64; 2],
    pub host: [u64; 2],
    /// Instructions of warps, by kernel: how many lanes each had.
    pub lanes: BTreeMap<String, BTreeMap<usize, u64>>,
    pub names: Vec<String>,
    pub launches: Vec<(String, u64)>,
    barriers: u64,
    pub warnings: Vec<String>,
}

pub(super) fn record(command: &[&dyn AsRef<std::ffi::OsStr>], options: &RecordOptions) -> Seen {
    let mut recording = start(command, options);
    let mut seen = Seen::default();
    let mut agents = BTreeMap::new();
    let mut sequence = 0;
    let mut lanes = 0;
    while let Some(batch) = recording.next_batch().unwrap() {
        assert_eq!(batch.validate(), Ok(()));
        assert!(batch.after >= sequence, "all that came before has happened");
        for event in &batch.events {
            if event.sequence > 0 {
                sequence += 1;
                assert_eq!(event.sequence, sequence);
            }
        }
        seen.take(&batch, &mut agents, &mut lanes);
    }
    seen.warnings = recording.warnings().to_vec();
    assert!(recording.wait().unwrap().success());
    seen
}

impl Seen {
    fn take(&mut self, batch: &Batch, agents: &mut BTreeMap<u32, Agent>, lanes: &mut usize) {
        for item in batch.items() {
            match item {
                Item::Access(access) => {
                    let write = usize::from(access.kind == AccessKind::Write);
                    if agents[&batch.stream.0] == Agent::Cpu {
                        self.host[write] += 1;
                        continue;
                    }
                    self.gpu[write] += 1;
                    if access.instructions > 0 {
                        self.end_instruction(lanes);
                    }
                    *lanes += 1;
                }
                Item::Event(event) => {
                    if !matches!(event.event, Event::Compute { .. }) {
                        self.end_instruction(lanes);
                    }
                    match &event.event {
                        Event::Spawn { agent, .. } => {
                            agents.insert(batch.stream.0, *agent);
                        }
                        Event::Site { name, .. } => self.names.push(name.clone()),
                        Event::Mark { kind: MarkKind::KernelLaunch, name, value } => {
                            self.launches.push((name.clone(), *value));
                        }
                        Event::Mark { kind: MarkKind::GroupBarrier, .. } => self.barriers += 1,
                        _ => {}
                    }
                }
            }
        }
    }

    fn end_instruction(&mut self, lanes: &mut usize) {
        let lanes = std::mem::take(lanes);
        if lanes > 0 {
            let kernel = self.launches.last().unwrap().0.clone();
            *self.lanes.entry(kernel).or_default().entry(lanes).or_default() += 1;
        }
    }
}

#[test]
fn a_vector_addition_has_two_loads_and_a_store_for_each_item() {
    let workshop = Workshop::new();
    let seen = record(&[&program(&workshop, "vecadd"), &"65536"], &gpu());
    assert_eq!(seen.gpu, [131_072, 65_536]);
    // The host fills two vectors and reads the third, 64 bytes at a time.
    assert_eq!(seen.host, [4096, 8192]);
    assert_eq!(seen.launches, [("vecadd".to_owned(), 256)]);
    assert_eq!(seen.names, ["a", "b", "c"], "buffers are called as the kernel calls them");
    let full = BTreeMap::from([(32, 3 * 65_536 / 32)]);
    assert_eq!(seen.lanes["vecadd"], full, "no lane ever goes another way");
    assert!(seen.warnings.is_empty(), "{:?}", seen.warnings);
}

/// Marks of the host and of the GPU, and between them whether the host accessed buffers.
pub(super) fn order(command: &[&dyn AsRef<std::ffi::OsStr>]) -> Vec<String> {
    let mut recording = start(command, &gpu());
    let mut order: Vec<String> = Vec::new();
    let mut rules = terrace_trace::Rules::default();
    while let Some(batch) = recording.next_batch().unwrap() {
        rules.check(&batch).unwrap();
        for item in batch.items() {
            let word = match item {
                Item::Access(_) if batch.stream.0 == 0 => "host".to_owned(),
                Item::Event(event) => match &event.event {
                    Event::Mark { kind: MarkKind::KernelLaunch, .. } => "launch".to_owned(),
                    Event::Mark { kind: MarkKind::KernelEnqueue, .. } => "enqueue".to_owned(),
                    Event::Mark { kind: MarkKind::KernelWait, value, .. } => format!("wait {value}"),
                    _ => continue,
                },
                Item::Access(_) => continue,
            };
            if order.last() != Some(&word) {
                order.push(word);
            }
        }
    }
    assert!(recording.wait().unwrap().success());
    order
}

#[test]
fn what_another_queue_does_meanwhile_overlaps_a_kernel() {
    let workshop = Workshop::new();
    let round = ["enqueue", "launch", "host", "wait 0"];
    let expected = [&["host"][..], &round, &round, &["launch", "host"]].concat();
    assert_eq!(order(&[&program(&workshop, "overlap"), &"65536"]), expected);
    // A program that blocks for each kernel has no marks.
    assert_eq!(order(&[&program(&workshop, "vecadd"), &"1024"]), ["host", "launch", "host"]);
}

#[test]
fn lanes_that_part_meet_again() {
    let workshop = Workshop::new();
    let seen = record(&[&program(&workshop, "bfs"), &"2048", &"4"], &gpu());
    let visit = &seen.lanes["visit"];
    // `if (mask[node])` is asked by whole warps, at every level; edges are followed by those that are on it.
    let levels = seen.launches.len() as u64 / 2;
    assert!(levels >= 6, "{levels}");
    assert_eq!(visit[&32] % (2048 / 32), visit[&32] - levels * 64, "{visit:?}");
    assert!(visit.range(1..32).map(|(_, count)| count).sum::<u64>() > 500, "{visit:?}");
    assert_eq!(seen.names, ["starts", "edges", "mask", "updating", "visited", "cost", "over"]);
}

#[test]
fn barriers_and_mappings_are_recorded() {
    let workshop = Workshop::new();
    let seen = record(&[&program(&workshop, "sgemm"), &"64"], &gpu());
    // 16 groups of 4 tiles with 2 barriers each.
    assert_eq!(seen.barriers, 16 * 4 * 2);
    // Each tile is loaded once by each group; local memory is none of ours.
    assert_eq!(seen.gpu, [2 * 16 * 4 * 256, 64 * 64]);
    assert_eq!(seen.host, [64 * 64 * 4 / 64, 2 * 64 * 64 * 4 / 64], "the result is read through its mapping");
    assert_eq!(seen.lanes["sgemm"].keys().copied().collect::<Vec<_>>(), [32]);
}

/// The second kernel's structures too, which the first has not taken: where pages lie is decided when they are filled.
#[test]
fn structures_have_their_names_before_the_host_fills_them() {
    let workshop = Workshop::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/pagerank.c");
    let source = std::fs::read_to_string(source).unwrap();
    let ranked = workshop.compile("cc", "pagerank.c", &source, &["-O1", "-Wl,--no-as-needed", "-lOpenCL"]);
    let mut recording = start(&[&ranked, &"1024", &"2"], &gpu());
    let (mut structures, mut names, mut filled) = (Vec::new(), Vec::new(), 0);
    let mut rules = terrace_trace::Rules::default();
    while let Some(batch) = recording.next_batch().unwrap() {
        rules.check(&batch).unwrap();
        for item in batch.items() {
            match item {
                Item::Access(access) if batch.stream.0 == 0 => {
                    assert!(
                        structures
                            .iter()
                            .any(|range: &AddressRange| range.contains(terrace_model::VirtAddr(access.addr)))
                    );
                    filled += u64::from(access.kind == AccessKind::Write);
                }
                Item::Event(event) => match &event.event {
                    Event::Alloc { range, .. } => structures.push(*range),
                    Event::Site { name, .. } => names.push(name.clone()),
                    _ => {}
                },
                Item::Access(_) => {}
            }
        }
    }
    assert!(recording.wait().unwrap().success());
    assert_eq!(names, ["degrees", "ranks", "shares", "starts", "links"]);
    assert_eq!(filled, (4 * 1025u64).div_ceil(64) + (4 * 4096 + 2 * 4 * 1024) / 64);
}

#[test]
fn equal_programs_give_equal_streams() {
    let workshop = Workshop::new();
    let program = program(&workshop, "bfs");
    let all = || {
        let mut recording = start(&[&program, &"512", &"4"], &gpu());
        let mut batches = Vec::new();
        while let Some(batch) = recording.next_batch().unwrap() {
            batches.push(Batch::clone(&batch));
        }
        batches
    };
    assert_eq!(all(), all());
}

#[test]
fn the_limit_ends_the_recording_and_not_the_program() {
    let workshop = Workshop::new();
    let options = RecordOptions { limit: Some(10_000), ..gpu() };
    let seen = record(&[&program(&workshop, "vecadd"), &"65536"], &options);
    let all: u64 = seen.gpu.iter().chain(&seen.host).sum();
    assert!((10_000..10_032).contains(&all), "a warp's instruction is whole: {all}");
}

#[test]
fn mistakes_of_kernels_are_counted_and_not_fatal() {
    let workshop = Workshop::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/opencl");
    let source = std::fs::read_to_string(folder.join("vecadd.c")).unwrap();
    // The third vector is a page too short, and nobody looks at the sums.
    let source = source.replace("c = buffer(4 * n, NULL)", "c = buffer(4 * n - 4096, NULL)");
    let source = source.replace(
        "CL_TRUE, 0, 4 * n, numbers, 0, NULL, NULL), \"read\"",
        "CL_TRUE, 0, 4, numbers, 0, NULL, NULL), \"read\"",
    );
    let source = source.replace("2.0f * i", "numbers[i]");
    std::fs::copy(folder.join("host.h"), workshop.path("host.h")).unwrap();
    let short = workshop.compile("cc", "short.c", &source, &["-O1", "-w", "-Wl,--no-as-needed", "-lOpenCL"]);
    let seen = record(&[&short, &"4096"], &gpu());
    assert_eq!(seen.gpu, [2 * 4096, 4096 - 1024]);
    let [warning] = &seen.warnings[..] else { panic!("{:?}", seen.warnings) };
    assert!(warning.contains("1024 accesses outside of buffers are left out"), "{warning}");
}

#[test]
fn kernels_that_are_rejected_end_the_program_as_it_wants_and_are_reported() {
    let workshop = Workshop::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/opencl");
    let source = std::fs::read_to_string(folder.join("vecadd.c")).unwrap();
    let source = source.replace("kernel void", "kernel no_such_type");
    std::fs::copy(folder.join("host.h"), workshop.path("host.h")).unwrap();
    let wrong = workshop.compile("cc", "wrong.c", &source, &["-O1", "-w", "-Wl,--no-as-needed", "-lOpenCL"]);
    let mut recording = start(&[&wrong, &"64"], &gpu());
    while recording.next_batch().unwrap().is_some() {}
    let [warning] = &recording.warnings().to_vec()[..] else { panic!("one warning") };
    assert!(
        warning.contains("started no OpenCL kernel: it has none, or Oclgrind rejected them"),
        "{warning}"
    );
    assert_eq!(recording.wait().unwrap().code(), Some(1), "as without Terrace");
}

#[test]
fn what_does_not_fit_a_gpu_is_refused() {
    let options = RecordOptions { skip: 5, ..gpu() };
    let error = prepare(&words(&[&"ls"]), &options).unwrap_err();
    assert!(matches!(error, RecordError::NotForGpu { option: "--skip" }), "{error}");
    let seen = record(&[&"true"], &gpu());
    assert!(seen.warnings[0].contains("true: started no OpenCL kernel"), "{:?}", seen.warnings);
}

/// A caller that asks for the status instead of waiting learns it, although the program ended after its recording.
#[test]
fn a_program_that_ends_after_its_recording_is_noticed() {
    let script = "eval \"exec $TERRACE_OPENCL_CHANNEL>&-\"; sleep 1; exit 3";
    let mut recording = start(&[&"bash", &"-c", &script], &gpu());
    while recording.next_batch().unwrap().is_some() {}
    assert_eq!(recording.status(), None, "it sleeps");
    let begin = std::time::Instant::now();
    while recording.status().is_none() && begin.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        recording.next_batch().unwrap();
    }
    assert_eq!(recording.status().and_then(|status| status.code()), Some(3));
}
