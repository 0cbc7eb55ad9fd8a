use super::*;
use crate::Changes;
use crate::Silent;

/// Three kernels over 96 KiB.
const KERNELS: &str = "gpu-stream,bytes=96 KiB,iterations=3";

fn run(comparison: Comparison) -> terrace_report::Comparison {
    let input = Input::workload(KERNELS).unwrap();
    let result = comparison.intervals(false).input(input).run(&Silent).unwrap();
    assert!(result.failures.is_empty(), "{:?}", result.failures);
    result.comparison
}

#[test]
fn fast_shares_of_a_gpu_are_measured_against_its_own_memory() {
    let designs = ["gpu-ddr-only", "gpu-local"];
    let found = run(Comparison::new(designs).fast_shares([0.5]));
    let names: Vec<&str> = found.runs.iter().map(|run| run.design.as_str()).collect();
    assert_eq!(names, ["gpu-ddr-only", "gpu-local", "all-fast"]);
    assert!(
        found.runs.iter().all(|run| run.machine == "gpu-gtx480"),
        "the bound stands on the designs' machine"
    );
    let [slow, half, fast] = [0, 1, 2].map(|at| found.runs[at].seconds_simulated);
    assert!(fast <= half && half < slow, "{fast} {half} {slow}");
    // Half of the 24 pages, of which one holds the root of the page table at least.
    let pages = found.runs[1].stats.integer("tier.gddr.peak_pages");
    assert!((1..=12).contains(&pages), "{pages}");
    // Settings of a GPU's keys fit the bound too.
    let found = run(Comparison::new(designs).fast_shares([0.5]).set("gpu.loads", "1"));
    let set = ("gpu.loads".to_owned(), "1".to_owned());
    assert!(found.runs[2].parameters.contains(&set), "{:?}", found.runs[2].parameters);
}

#[test]
fn policies_are_compared_on_a_machine_with_a_gpu() {
    let policies = Comparison::new::<&str>([]).policies(["bw-aware"]).fast_shares([0.5]);
    let found = run(policies.machine("gpu-gtx480"));
    let names: Vec<&str> = found.runs.iter().map(|run| run.design.as_str()).collect();
    assert_eq!(names, ["first-touch", "bw-aware", "all-fast"]);
    // Beside designs they stand where these do.
    let found = run(Comparison::new(["gpu-local"]).policies(["bw-aware"]));
    assert!(found.runs.iter().all(|run| run.machine == "gpu-gtx480"));
}

#[test]
fn inputs_that_the_caches_hold_are_called_small() {
    let compare = |llc: &str, bytes: &str| {
        let policies = Comparison::new::<&str>([]).policies(["nimble"]).fast_shares([0.5]);
        let sized = policies.machine("zen4-cxl").set("cache.llc.capacity", llc).intervals(false);
        let input = Input::workload(&format!("gups,bytes={bytes},updates=2000")).unwrap();
        sized.input(input).run(&Silent).unwrap().comparison
    };
    let says = |found: &terrace_report::Comparison| {
        found
            .runs
            .iter()
            .filter(|run| run.notes.iter().any(|note| note.starts_with("the last-level cache holds")))
            .count()
    };
    assert_eq!(says(&compare("4 MiB", "4 MiB")), 3, "all of first-touch, nimble and all-fast");
    assert_eq!(says(&compare("2 MiB", "16 MiB")), 0);
}

#[test]
fn parts_that_machines_with_and_without_a_gpu_cover_are_named() {
    let compare = || Comparison::new(["native-4k", "gpu-local"]);
    let notes = |found: &terrace_report::Comparison, at: usize| found.runs[at].notes.join("\n");
    let found = run(compare());
    let expected = "gpu-local covers the kernels alone, native-4k also what the host does before, between and after them";
    assert!(notes(&found, 1).contains(expected), "{}", notes(&found, 1));
    assert!(!notes(&found, 0).contains("covers the kernels alone"));
    let found = run(Comparison::new(["gpu-local", "native-4k"]));
    assert!(notes(&found, 1).contains(expected), "{}", notes(&found, 1));
    let whole = Simulation { whole: true, ..Simulation::default() };
    for found in [run(compare().simulation(whole)), run(Comparison::new(["gpu-local", "gpu-bw-aware"]))] {
        assert!((0..2).all(|at| !notes(&found, at).contains("covers the kernels alone")));
    }
}

/// A trace, one without its end, and a file that is none.
fn traces(folder: &std::path::Path) -> [std::path::PathBuf; 3] {
    let paths = ["whole", "cut", "none"].map(|name| folder.join(format!("{name}.trace")));
    let whole = Input::workload("gups,bytes=1MiB,updates=100").unwrap();
    crate::record::write_trace(whole, &paths[0], &Silent).unwrap();
    let bytes = std::fs::read(&paths[0]).unwrap();
    std::fs::write(&paths[1], &bytes[..bytes.len() - 20]).unwrap();
    std::fs::write(&paths[2], "no trace\n").unwrap();
    paths
}

#[test]
fn an_input_that_cannot_be_read_fails_its_own_runs() {
    let folder = tempfile::tempdir().unwrap();
    let traces = traces(folder.path());
    let shares: [&[f64]; 2] = [&[], &[0.5]];
    for shares in shares {
        let mut study = Comparison::new(["first-touch", "annotated"]).fast_shares(shares.iter().copied());
        if shares.is_empty() {
            study = Comparison::new(["native-4k", "native-2m"]);
        }
        for path in &traces {
            study = study.input(Input::trace_among(path, false, 3).unwrap());
        }
        study.check().unwrap();
        let result = study.intervals(false).run(&Silent).unwrap();
        let found = &result.comparison;
        assert!(found.runs.iter().all(|run| run.input == "whole") && found.runs.len() >= 2);
        assert_eq!(result.asked, found.runs.len() * 3);
        assert_eq!(result.failures.len(), 2, "{:?}", result.failures);
        assert!(result.failures[0].starts_with("cut: ") && result.failures[0].contains("--salvage"));
        assert!(result.failures[1].starts_with("none: "), "{:?}", result.failures);
    }
    // One that is not there, and the only one, are for the caller to put right.
    assert!(Input::trace_among(&folder.path().join("x.trace"), false, 3).is_err());
    assert!(Input::trace_among(&traces[1], false, 1).is_err());
}

/// A machine file of a guest with this much fast memory.
fn guest(folder: &std::path::Path) -> String {
    let file = folder.join("guest.toml");
    let text = "kind = \"machine\"\nextends = \"zen4-cxl\"\n[[tier]]\nname = \"dram\"\ncapacity = \"2 GiB\"\n\
                [hypervisor]\npages = \"4k\"\n";
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

const PROGRAM: &str = "gups,bytes=24MiB,updates=20000";

fn policies(comparison: Comparison) -> terrace_report::Comparison {
    let input = Input::workload(PROGRAM).unwrap();
    let result = comparison.intervals(false).input(input).run(&Silent).unwrap();
    assert!(result.failures.is_empty(), "{:?}", result.failures);
    result.comparison
}

fn slowdown(found: &terrace_report::Comparison, design: &str) -> f64 {
    let run = found.runs.iter().find(|run| run.design == design).unwrap();
    found.tiering_of(run).unwrap().slowdown.unwrap()
}

/// Caches so small that it matters where the program's memory lies.
const SMALL_CACHE: (&str, &str) = ("cache.llc.capacity", "2 MiB");

#[test]
fn in_a_guest_all_shares_and_the_bound_have_one_history_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    let machine = guest(folder.path());
    let shares = Comparison::new::<&str>([]).policies(["first-touch"]).fast_shares([0.25, 0.5, 0.75, 1.0]);
    let found = policies(shares.machine(&machine).set(SMALL_CACHE.0, SMALL_CACHE.1));
    let time = |name: &str| found.runs.iter().find(|run| run.design == name).unwrap().seconds_simulated;
    let whole = time("first-touch@100%") / time("all-fast");
    // Frames have other numbers in a larger tier, and so other banks and sets.
    assert!((whole - 1.0).abs() < 0.03, "all of it fast is the bound: {whole}");
    assert!(
        found.runs.iter().all(|run| run.stats.integer("walk.host_refs") > 0),
        "all of them are under the hypervisor"
    );
    let note = "No other program used memory before, in any of the runs";
    assert!(
        found.runs.iter().all(|run| run.notes.iter().any(|text| text.ends_with(note))),
        "{:?}",
        found.runs[0].notes
    );

    // What `advise` tries is what is compared here.
    let advise = crate::advise::Advise {
        changes: Changes {
            machine: Some(machine),
            sets: vec![Setting::of_all(SMALL_CACHE.0, SMALL_CACHE.1)],
            ..Changes::default()
        },
        policies: vec!["first-touch".to_owned()],
        slowdown: slowdown(&found, "first-touch@75%") + 1e-6,
        resolution: 0.25,
        seeds: 1,
        intervals: false,
        ..crate::advise::Advise::default()
    };
    let advice = advise.run(Input::workload(PROGRAM).unwrap(), &Silent).unwrap();
    let tried = advice.policies[0].answer.as_ref().unwrap();
    let share = format!("first-touch@{}", crate::figures::percent(tried.fast_capacity_share));
    assert!((tried.slowdown - slowdown(&found, &share)).abs() < 1e-9, "{share}: {}", tried.slowdown);
    assert!(advice.uncertainty.remarks.iter().any(|text| text.starts_with("Guest: guest is a guest")));
}

#[test]
fn virtual_designs_are_measured_against_a_virtual_machine_with_everything_fast() {
    let found = policies(Comparison::new(["virtual-4k"]).fast_shares([1.0]));
    let names: Vec<&str> = found.runs.iter().map(|run| run.design.as_str()).collect();
    assert_eq!(names, ["virtual-4k", "all-fast"]);
    assert!(slowdown(&found, "virtual-4k").abs() < 1e-3, "{}", slowdown(&found, "virtual-4k"));
    // Beside native ones each is measured against its own.
    let found = policies(Comparison::new(["native-4k", "virtual-4k"]).fast_shares([1.0]));
    let names: Vec<&str> = found.runs.iter().map(|run| run.design.as_str()).collect();
    assert_eq!(names, ["native-4k", "virtual-4k", "all-fast", "virtual-all-fast"]);
    for design in names {
        assert!(slowdown(&found, design).abs() < 1e-3, "{design}: {}", slowdown(&found, design));
    }
}

#[test]
fn policies_are_compared_in_a_virtual_machine_that_is_set() {
    let study = Comparison::new::<&str>([]).policies(["thp"]).fast_shares([0.5]).set("vm.vcpus", "2");
    let found = policies(study.set(SMALL_CACHE.0, SMALL_CACHE.1));
    assert_eq!(found.runs.len(), 3);
    assert_eq!(slowdown(&found, "all-fast"), 0.0);
    assert!(slowdown(&found, "first-touch") > 0.0, "{}", slowdown(&found, "first-touch"));
}
