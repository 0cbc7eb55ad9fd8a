//! Kernels of built-in workloads in OpenCL C make the accesses that the streams for the simulator have. Needs Oclgrind.

mod common;
use common::{json, stderr, stdout, terrace};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use terrace_model::{AddressRange, VirtAddr};
use terrace_trace::{AccessKind, Agent, Event, EventSource, Item, MarkKind, open_any};

/// Small versions with all that can differ: borders, levels, several launches, work-groups that are filled in part.
const SMALL: [&str; 15] = [
    "gpu-stream,bytes=192 KiB,iterations=2",
    "gpu-kmeans,points=500,features=5,clusters=3,iterations=2",
    "gpu-bfs,nodes=1000,degree=3",
    "gpu-backprop,inputs=300",
    "gpu-btree,keys=70000,lookups=9",
    "gpu-mummer,nodes=2000,texts=300,letters=11",
    "gpu-pathfinder,columns=700,rows=45",
    "gpu-sgemm,rows=40",
    "gpu-srad,side=64,iterations=2",
    "gpu-hotspot,side=30,iterations=3",
    // Rows that 40,503 divides in part.
    "gpu-spmv,rows=700,entries=4,band=60,iterations=2",
    "gpu-stencil,side=64,planes=3,iterations=3",
    "gpu-needle,letters=100",
    "gpu-xsbench,gridpoints=20,nuclides=11,lookups=300",
    "gpu-streamcluster,points=600,dimensions=5,centres=4,iterations=3",
];

/// These have sizes below which they do not go, and take most of the time of all.
const LARGER: [&str; 4] =
    ["gpu-cns,side=32", "gpu-comd,side=4", "gpu-minife,side=32,iterations=1", "gpu-lbm,side=32,iterations=2"];

/// An instruction of a warp: its structure, whether it stores, and from which byte on how many each lane accesses.
type Instruction = (String, bool, Vec<(u64, u8)>);

/// What a GPU did.
#[derive(Default)]
struct Accesses {
    /// By launch, work-group and warp, in any order.
    warps: BTreeMap<[u64; 3], Vec<Instruction>>,
    /// Name and work-groups of each launch.
    launches: Vec<(String, u64)>,
}

impl Accesses {
    fn of(mut source: Box<dyn EventSource>) -> Accesses {
        let (mut accesses, mut place) = (Accesses::default(), [0; 3]);
        let (mut sites, mut structures) = (BTreeMap::new(), Vec::new());
        let mut gpu = None;
        while let Some(batch) = source.next_batch().unwrap() {
            for item in batch.items() {
                let event = match item {
                    Item::Access(access) if gpu == Some(batch.stream) => {
                        let inside =
                            |(range, _): &&(AddressRange, String)| range.contains(VirtAddr(access.addr));
                        let (range, name) = structures.iter().find(inside).expect("it lies in a structure");
                        let instructions = accesses.warps.get_mut(&place).expect("a warp has begun");
                        if access.instructions > 0 {
                            instructions.push((name.clone(), access.kind == AccessKind::Write, Vec::new()));
                        }
                        let lane = (access.addr - range.start.0, access.size);
                        instructions.last_mut().expect("an instruction has begun").2.push(lane);
                        continue;
                    }
                    Item::Access(_) => continue,
                    Item::Event(event) => &event.event,
                };
                match event {
                    Event::Spawn { agent: Agent::Gpu, .. } => gpu = Some(batch.stream),
                    Event::Site { site, name } => _ = sites.insert(*site, name.clone()),
                    Event::Alloc { site, range, .. } => {
                        // Kernels have no dots in names.
                        structures.push((*range, sites[site].replace('.', "_")));
                    }
                    Event::Mark { kind: MarkKind::KernelLaunch, name, value } => {
                        accesses.launches.push((name.clone(), *value));
                        place = [accesses.launches.len() as u64, 0, 0];
                    }
                    Event::Mark { kind: MarkKind::WorkGroup, .. } => place[1] += 1,
                    Event::Mark { kind: MarkKind::Warp, value, .. } => {
                        place[2] = *value;
                        accesses.warps.entry(place).or_default();
                    }
                    _ => {}
                }
            }
        }
        for instruction in accesses.warps.values_mut().flatten() {
            instruction.2.sort_unstable();
        }
        accesses.warps.values_mut().for_each(|instructions| instructions.sort());
        accesses
    }

    /// Loads and stores of single lanes, and lines of 128 bytes for each instruction, by structure.
    fn totals(&self) -> BTreeMap<&str, [u64; 3]> {
        let mut totals: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
        for (name, is_store, lanes) in self.warps.values().flatten() {
            let mut lines: Vec<u64> = lanes
                .iter()
                .flat_map(|(from, bytes)| from / 128..=(from + u64::from(*bytes) - 1) / 128)
                .collect();
            lines.dedup();
            let total = totals.entry(name).or_default();
            total[usize::from(*is_store)] += lanes.len() as u64;
            total[2] += lines.len() as u64;
        }
        totals
    }
}

/// Records the kernels of a workload.
fn recorded(folder: &Path, spec: &str) -> Accesses {
    let trace = folder.join("kernels.trace");
    let binary = assert_cmd::cargo::cargo_bin("terrace");
    let mut record = terrace();
    record.current_dir(folder).args(["record", "--gpu", "-o"]).arg(&trace).arg("--").arg(binary);
    let text = stdout(record.args(["workload", "run", spec, "--gpu", "--device", "any"]));
    assert!(text.contains("result     as the host computes it"), "{spec}: {text}");
    Accesses::of(open_any(&trace, false).unwrap())
}

#[test]
fn kernels_make_the_accesses_of_their_streams_and_compute_what_the_host_does() {
    agree(&SMALL);
}

#[test]
#[ignore = "weekly"]
fn larger_kernels_make_the_accesses_of_their_streams_too() {
    agree(&LARGER);
}

fn agree(specs: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for spec in specs {
        let device = recorded(folder.path(), spec);
        let stream = Accesses::of(terrace_workload::open(spec).unwrap().source());
        if device.launches != stream.launches {
            wrong.push(format!("{spec}: launches {:?}, not {:?}", device.launches, stream.launches));
        }
        let (found, expected) = (device.totals(), stream.totals());
        if found != expected {
            wrong.push(format!("{spec}: loads, stores and lines {found:?}, not {expected:?}"));
        }
        let differs = |place: &&[u64; 3]| device.warps.get(*place) != stream.warps.get(*place);
        if let Some(place) = stream.warps.keys().chain(device.warps.keys()).find(differs) {
            let of = |accesses: &Accesses| {
                format!("{:?}", accesses.warps.get(place).map(|warp| &warp[..warp.len().min(3)]))
            };
            wrong.push(format!("{spec}: {place:?} has {}, not {}", of(&device), of(&stream)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A program of its own, without devices: what is loaded is the system's OpenCL.
#[test]
fn without_a_gpu_the_run_fails_and_one_line_says_what_to_do() {
    let run = |arguments: &[&str]| {
        let mut command = terrace();
        // No driver is there, whatever the machine has.
        let folder = tempfile::tempdir().unwrap();
        command.env("OCL_ICD_VENDORS", folder.path()).args(["workload", "run", SMALL[0], "--gpu"]);
        command.args(arguments);
        command
    };
    let text = stderr(&mut run(&[]), 1);
    assert!(text.contains("did not run on a GPU: ") && text.contains("install the OpenCL driver"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    // The document says so too.
    let output = run(&["--json", "-"]).assert().code(1).get_output().stdout.clone();
    let document: serde_json::Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(document["device"], serde_json::Value::Null);
    assert!(document["next"].as_str().unwrap().contains("install"), "{document}");
}

#[test]
fn a_device_is_chosen_by_its_name_and_figures_are_the_streams() {
    let on_oclgrind = |arguments: &[&str]| {
        let mut command = Command::new("oclgrind");
        command.arg(assert_cmd::cargo::cargo_bin("terrace")).args(["workload", "run", SMALL[0], "--gpu"]);
        assert_cmd::Command::from_std({
            command.args(arguments);
            command
        })
    };
    let text = stderr(&mut on_oclgrind(&["--device", "no such"]), 1);
    assert!(
        text.contains("no device of OpenCL is called \"no such\"; there are Oclgrind Simulator"),
        "{text}"
    );
    let document = json(&mut on_oclgrind(&["--device", "Oclgrind", "--json", "-"]));
    assert_eq!((&document["loads"], &document["stores"]), (&65536.into(), &32768.into()));
    assert_eq!((&document["bytes"], &document["lines"]), (&393_216.into(), &3072.into()));
    assert_eq!(document["kernels"][0]["launches"], 2);
    assert_eq!(document["different"].as_array().unwrap().len(), 0);
}

#[test]
fn workloads_without_kernels_are_refused_with_those_that_have_some() {
    let refused = |spec: &str| stderr(terrace().args(["workload", "run", spec, "--gpu"]), 2);
    let message = refused("gups");
    assert!(message.contains("gups: it has no kernels for a GPU; these have: gpu-stream, "), "{message}");
    let message = stderr(terrace().args(["workload", "run", "gpu-stream,cpu_threads=2", "--gpu"]), 1);
    assert!(message.contains("leave out cpu_threads"), "{message}");
    let message = stderr(terrace().args(["workload", "run", "gups", "--device", "any"]), 2);
    assert!(message.contains("--gpu"), "{message}");
}
