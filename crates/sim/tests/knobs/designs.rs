//! Keys of designs: each is set to other values in scenes that ask something of it, and some value has to change a run.

use super::support::mixes::{changes, turns};
use super::support::{DATA, MIB, PAGE, Program, run_with, workload};
use super::{Before, others};
use terrace_model::parameters::Declared;
use terrace_sim::design::{Design, Library};
use terrace_sim::{Fidelity, Options};
use terrace_trace::{AccessKind, Agent, Event, MarkKind};

/// A design on a machine with some keys changed, and the programs that run on it.
struct Scene {
    design: &'static str,
    machine: &'static str,
    sets: &'static [(&'static str, &'static str)],
    programs: &'static [&'static str],
}

impl Scene {
    fn design(&self, key: Option<(&str, &str)>) -> Option<Design> {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let kept = self.sets.iter().copied().filter(|(of, _)| key.is_none_or(|(changed, _)| changed != *of));
        let sets: Vec<_> = kept.chain(key).map(owned).collect();
        Library::embedded().design(self.design, Some(self.machine), &sets).ok().map(|design| design.design)
    }

    /// What runs of the programs gave, one after the other as they are asked for: none where the keys make no sense
    /// together.
    fn runs(&self, key: Option<(&str, &str)>) -> Option<impl Iterator<Item = String>> {
        let design = self.design(key)?;
        let run = move |program: &&str| {
            let options =
                Options { fidelity: Fidelity::Full, whole: *program != "changes", ..Options::default() };
            let outcome = match *program {
                "changes" => run_with(&design, &mut changes().source(), options),
                "turns" => run_with(&design, &mut turns().source(), options),
                "first-touches" => run_with(&design, &mut first_touches().source(), options),
                _ => run_with(&design, &mut *workload(program), options),
            };
            match outcome {
                Ok(outcome) => format!("{}{:?}", outcome.cycles, outcome.stats),
                Err(error) => error.to_string(),
            }
        };
        Some(self.programs.iter().map(run))
    }
}

/// A kernel whose one work-group touches a page with each of its 24 warps, which nobody touched before.
fn first_touches() -> Program {
    let mut program = Program::without_spawn();
    for (stream, agent) in [(0, Agent::Cpu), (1, Agent::Gpu)] {
        let name = String::new();
        let process = 0;
        program.on(stream).event(Event::Spawn {
            process,
            thread: stream,
            agent,
            forked_from: None,
            os_id: 0,
            name,
        });
    }
    program.on(0).map(DATA, MIB).on(1).mark(MarkKind::KernelLaunch).mark_value(MarkKind::WorkGroup, 24 * 32);
    for warp in 0..24 {
        program.mark_value(MarkKind::Warp, warp);
        for lane in 0..32 {
            program.access(DATA + warp * PAGE + 4 * lane, 4, AccessKind::Read, 0, u64::from(lane == 0));
        }
    }
    program.exit(false).on(0).exit(true);
    program
}

/// A key that changes no run by any value, and the test that shows what it does: its file and its name.
struct Excepted {
    key: &'static str,
    file: &'static str,
    test: &'static str,
}

/// Fails for keys that begin with one of `prefixes` and change no run of any of the scenes, except for `excepted`. A `*` in
/// the key of a list stands for its element `little`.
fn no_key_is_dead(prefixes: &[&str], excepted: &[Excepted], scenes: &[Scene]) {
    let in_force: Vec<_> = scenes.iter().map(|scene| scene.design(None).unwrap().current()).collect();
    let mut before: Vec<_> = scenes.iter().map(|scene| Before::new(scene.runs(None).unwrap())).collect();
    let mut keys: Vec<&str> = Vec::new();
    for key in in_force.iter().flatten().map(|parameter| parameter.name.as_str()) {
        if prefixes.iter().any(|prefix| key.starts_with(prefix)) && !keys.contains(&key) {
            keys.push(key);
        }
    }
    assert!(!keys.is_empty(), "no key begins with any of {prefixes:?}");
    for Excepted { key, file, test } in excepted {
        assert!(keys.contains(key), "{key} is excepted, and there is no such key");
        let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.contains(&format!("fn {test}()")),
            "{key} is excepted for {test}, which {file} does not have"
        );
    }
    keys.retain(|key| excepted.iter().all(|one| one.key != *key));
    let mut has_effect = |key: &str| {
        let written = key.replace('*', "little");
        scenes.iter().zip(&in_force).zip(&mut before).any(|((scene, in_force), before)| {
            let parameters = in_force.iter().filter(|parameter| parameter.name == key);
            let others = parameters.flat_map(|parameter| others(parameter, &parameter.default));
            others.into_iter().any(|other| {
                let Some(after) = scene.runs(Some((&written, &other))) else { return false };
                after.enumerate().any(|(at, after)| after != *before.at(at))
            })
        })
    };
    keys.retain(|key| !has_effect(key));
    assert!(keys.is_empty(), "no value of these changes anything: {keys:?}");
}

/// Caches and memories that little input fills.
const SMALL: &[(&str, &str)] = &[
    // As many as the program has threads.
    ("core.count", "4"),
    ("os.reserved", "0 MiB"),
    ("tier.0.capacity", "12 MiB"),
    ("tier.1.capacity", "128 MiB"),
    ("cache.l2.capacity", "32 KiB"),
    ("cache.llc.capacity", "640 KiB"),
    ("translation.page_walk_cache.entries", "64"),
    ("translation.page_walk_cache.ways", "1"),
];

#[test]
fn every_key_of_translation_coherence_in_hardware_changes_a_run() {
    let scenes = [
        Scene { design: "hatric", machine: "haswell-32", sets: SMALL, programs: &["changes"] },
        // Private caches hold fewer lines than the page tables have whose translations the TLBs keep.
        Scene {
            design: "hatric",
            machine: "haswell-32",
            sets: &[
                ("core.count", "2"),
                ("cache.l1.capacity", "4 KiB"),
                ("cache.l2.capacity", "8 KiB"),
                ("translation.l2.array.0.entries", "2048"),
            ],
            programs: &["gups,bytes=64 MiB,updates=6e3,threads=2"],
        },
        Scene {
            design: "hatric",
            machine: "haswell-32",
            sets: &[("core.count", "4"), ("translation.scheme.kind", "\"rmm\"")],
            programs: &["changes"],
        },
        Scene {
            design: "virtual-hatric",
            machine: "haswell-32",
            sets: &[
                ("core.count", "4"),
                ("os.reserved", "0 MiB"),
                ("tier.0.capacity", "12 MiB"),
                ("tier.1.capacity", "128 MiB"),
                ("vm.memory", "96 MiB"),
                ("host.policy.free_pool", "1 MiB"),
            ],
            programs: &["changes"],
        },
    ];
    no_key_is_dead(&["translation.hatric."], &[], &scenes);
}

#[test]
fn every_key_of_nested_paging_changes_a_run() {
    const PROGRAMS: &[&str] = &["gups,bytes=16 MiB,updates=6e3"];
    let scenes = [
        Scene {
            design: "native-4k",
            machine: "haswell-32",
            sets: &[("translation.nested.host", "4k"), ("translation.nested.tlb.ways", "4")],
            programs: PROGRAMS,
        },
        Scene {
            design: "virtual-4k",
            machine: "haswell-32",
            sets: &[("translation.nested.walk_cache", "guest-virtual")],
            programs: PROGRAMS,
        },
    ];
    no_key_is_dead(&["translation.nested."], &[], &scenes);
}

#[test]
fn every_key_of_a_core_changes_a_run() {
    const PROGRAMS: &[&str] =
        &["chase,bytes=16 MiB,accesses=4e3", "stream,bytes=3 MiB,iterations=1,threads=3"];
    const GROUPS: &str = "[{ name = \"little\", count = 2 }, { name = \"big\", count = 2 }]";
    const IN_ORDER: &str =
        "[{ name = \"little\", count = 2, model = \"in-order\" }, { name = \"big\", count = 2 }]";
    let scene = |design, sets| Scene { design, machine: "vbi-table1", sets, programs: PROGRAMS };
    let scenes = [
        scene("native-4k", &[("core.count", "4")]),
        scene("in-order", &[("core.count", "4")]),
        scene("native-4k", &[("core.groups", GROUPS)]),
        scene("native-4k", &[("core.groups", IN_ORDER)]),
    ];
    let excepted = [
        // The width bounds `base_cpi` from below, and enters no time.
        Excepted {
            key: "core.dispatch_width",
            file: "src/design/tests.rs",
            test: "messages_name_file_line_key_and_the_nearest_valid_one",
        },
        Excepted {
            key: "core.groups.*.dispatch_width",
            file: "tests/machine/cores.rs",
            test: "groups_of_a_design_file",
        },
        // A word for statistics.
        Excepted {
            key: "core.groups.*.name",
            file: "tests/machine/cores.rs",
            test: "groups_count_their_own_cycles_and_totals_those_of_the_machine",
        },
    ];
    no_key_is_dead(&["core."], &excepted, &scenes);
}

#[test]
fn every_key_of_a_gpu_changes_a_run() {
    let scenes = [
        Scene { design: "gpu-local", machine: "gpu-gtx480", sets: &[], programs: &["turns"] },
        Scene {
            design: "gpu-migrate-th-re-bwb",
            machine: "gpu-gtx480",
            sets: &[("gpu.fault.latency", "20 us")],
            programs: &["first-touches", "turns"],
        },
    ];
    no_key_is_dead(&["gpu."], &[], &scenes);
}

#[test]
fn every_key_of_coherence_with_a_gpu_changes_a_run() {
    let scene = |design, sets| Scene { design, machine: "gpu-selective", sets, programs: &["turns"] };
    let scenes = [
        scene("selective-ro", &[]),
        // Both sides' memories are in use, and pages are given up after few faults.
        scene("selective-ro", &[("os.policy.fast_share", "0.5"), ("coherence.read_only.limit", "1.0")]),
        scene("selective-cc-vt", &[]),
        scene("selective-naive", &[]),
        // The directory is full again and again, which takes long: it comes last.
        scene("selective-naive", &[("coherence.remote_directory.entries", "16")]),
    ];
    no_key_is_dead(&["coherence."], &[], &scenes);
}
