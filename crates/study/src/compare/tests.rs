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
