use super::*;
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
