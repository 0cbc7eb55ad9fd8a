use super::*;
use crate::suite::entries;
use crate::{Comparison, Silent};

const GUPS: &str = "gups,bytes=8MiB,updates=2e4";
const STREAM: &str = "stream,bytes=2MiB,iterations=2";

#[test]
fn bundles_have_programs_of_the_suite() {
    let names: Vec<String> = entries().into_iter().map(|entry| entry.name).collect();
    let all: Vec<Bundle> = bundles();
    assert_eq!(all.len(), 6, "Table 2");
    for bundle in all {
        assert_eq!(bundle.programs.len(), 4);
        assert!(bundle.programs.iter().all(|program| names.contains(program)), "{bundle:?}");
        assert!(bundle.differs.is_empty() || bundle.differs.ends_with('.'));
    }
}

#[test]
fn drawn_mixes_are_the_same_everywhere() {
    let names: Vec<String> = entries().into_iter().map(|entry| entry.name).collect();
    for number in 1..=DRAWN {
        let built_in = drawn(number);
        assert_eq!(built_in.programs.len(), 16);
        // The mix needs no recording, and 16 of its programs fill 128 MiB but for a few.
        let mix = parse(&built_in.name, false).unwrap();
        let mut bytes = 0;
        for program in &built_in.programs {
            assert!(program.contains(','), "{program}");
            bytes += terrace_workload::open(program).unwrap().footprint();
        }
        assert!((120 << 20..136 << 20).contains(&bytes), "{}: {bytes}", built_in.name);
        assert_eq!(mix.programs().len(), 16);
        let recorded = drawn_recorded(number).programs;
        assert_eq!(recorded.len(), 16);
        assert!(recorded.iter().all(|program| program.contains(',') || names.contains(program)));
    }
    let first = drawn(1).programs;
    let drawn_names: Vec<&str> = first.iter().filter_map(|program| program.split(',').next()).collect();
    assert_eq!(
        drawn_names.join(" "),
        "kv su3 bfs xsbench facesim su3 su3 tunkrank pb pb btree pmbench bfs btree stream svm"
    );
    assert_ne!(drawn(7).programs, drawn(8).programs);
    assert!((1..=DRAWN).all(|number| drawn_recorded(number).programs.iter().any(|one| names.contains(one))));
}

#[test]
fn a_bundle_names_all_recordings_that_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let suite = crate::suite::Suite::in_folder(folder.path());
    let lacks = |programs: &[&str]| {
        let programs = programs.iter().map(|&program| program.to_owned()).collect();
        word::check_recordings(&Bundle { programs, ..drawn_recorded(1) }, &suite)
    };
    assert!(lacks(&["mcf", GUPS, "gcc", "mcf", "lbm"]).unwrap_err().to_string().ends_with(
        "hatric-recorded-1: these programs of the suite are not recorded: gcc, mcf; record them first: terrace suite record gcc mcf"
    ));
    // These are built in.
    assert!(lacks(&["lbm", GUPS]).is_ok());
}

#[test]
fn words_name_programs_with_their_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.trace");
    crate::record::write_trace(Input::workload(STREAM).unwrap(), &path, &Silent).unwrap();
    let word = format!("{GUPS},{},milc,workload:lbm,iterations=1,gups,seed=3", path.display());
    let mix = parse(&word, false).unwrap();
    let names: Vec<&str> = mix.programs().iter().map(|program| program.name.as_str()).collect();
    assert_eq!(names, ["gups", "app", "milc", "lbm", "gups-2"]);
    let words: Vec<String> = mix.programs().iter().map(|program| program.words().join(" ")).collect();
    assert_eq!(words[0], format!("--workload {GUPS}"));
    assert_eq!(words[2], "--suite milc");
    assert_eq!(words[3], "--workload lbm,iterations=1");
    assert_eq!((mix.name.as_str(), mix.words()), ("mix of 5", vec!["--mix".to_owned(), word]));
    assert_eq!(parse("gups,bfs", false).unwrap().name, "gups+bfs");
}

#[test]
fn wrong_words_say_what_is_wrong() {
    let said = |word: &str| match parse(word, false) {
        Ok(_) => panic!("{word} is a mix"),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        said("gups,bzip"),
        "--mix: there is no program of the suite, workload, trace or bundle \"bzip\"; did you mean \"bzip2\"?"
    );
    assert!(said("bytes=1MiB,gups").contains("begins with a parameter"));
    assert!(said("gups,,bfs").contains("a name is missing"));
    assert!(said("").contains("a name is missing"));
    assert!(said("hatric-81").contains("hatric-1 to hatric-80"));
    assert!(said("hatric-recorded-0").contains("hatric-recorded-1 to hatric-recorded-80"));
    assert!(said("gups,bytes=1XiB").contains("bytes"));
    assert!(said("trace:/nowhere/app.trace").contains("/nowhere/app.trace"));
    let command = Input::command(&["true".into()], terrace_recorder::RecordOptions::default());
    let error = Input::mix("m", "m", vec![command]).err().unwrap().to_string();
    assert!(error.contains("record it first"), "{error}");
}

fn compare(designs: &[&str], mixes: &[&str]) -> crate::ComparisonResult {
    let study = Comparison::new(designs.iter().copied()).machine("zen4-cxl").intervals(false);
    mixes.iter().fold(study, |study, mix| study.input(parse(mix, false).unwrap())).run(&Silent).unwrap()
}

#[test]
fn programs_of_a_mix_are_compared_with_themselves_alone() {
    let mix = format!("{GUPS},{STREAM},{GUPS}");
    let result = compare(&["native-4k", "native-2m"], &[&mix]);
    assert_eq!(result.failures, Vec::<String>::new());
    let runs = &result.comparison.runs;
    assert_eq!(runs.len(), 2, "runs alone are no rows of their own");
    let plain = Comparison::new(["native-4k", "native-2m"])
        .machine("zen4-cxl")
        .intervals(false)
        .input(Input::workload(GUPS).unwrap())
        .run(&Silent)
        .unwrap();
    for (run, plain) in runs.iter().zip(&plain.comparison.runs) {
        let number = |name: &str| run.stats.number(name);
        for name in ["gups", "gups-2"] {
            let alone = number(&format!("mix.program.{name}.alone_time"));
            assert!((alone / (plain.seconds_simulated * 1e9) - 1.0).abs() < 1e-9, "the plain run");
            assert_eq!(number(&format!("mix.program.{name}.instructions")), plain.instructions as f64);
        }
        let slowdowns =
            ["gups", "stream", "gups-2"].map(|name| number(&format!("mix.program.{name}.slowdown")));
        assert!(slowdowns.iter().all(|&slowdown| slowdown > 0.9 && slowdown < 2.0), "{slowdowns:?}");
        let weighted: f64 = slowdowns.iter().map(|slowdown| 1.0 / slowdown).sum();
        assert!((number("mix.weighted_speedup") - weighted).abs() < 1e-9);
        let harmonic = 3.0 / slowdowns.iter().sum::<f64>();
        assert!((number("mix.harmonic_speedup") - harmonic).abs() < 1e-9);
    }
    // By hand: how much faster each program is in the mix, weighted by its time alone on the baseline.
    let time =
        |run: &RunRecord, name: &str, what: &str| run.stats.number(&format!("mix.program.{name}.{what}"));
    let sum = |run: &RunRecord| {
        let of = |name: &str| time(&runs[0], name, "alone_time") / time(run, name, "time");
        ["gups", "stream", "gups-2"].map(of).iter().sum::<f64>()
    };
    let speedup = runs[1].speedup_over(&runs[0]).unwrap();
    assert!((speedup - sum(&runs[1]) / sum(&runs[0])).abs() < 1e-9);
    assert_eq!(runs[0].speedup_over(&runs[0]), Some(1.0));
}

#[test]
fn programs_of_several_mixes_run_alone_once() {
    let mixes = [format!("{GUPS},{STREAM}"), format!("{STREAM},{GUPS},bfs,scale=8")];
    let changes = crate::Changes { machine: Some("zen4-cxl".to_owned()), ..crate::Changes::default() };
    let jobs: Vec<Job> = ["native-4k", "native-2m"].map(|name| changes.resolve(name, None).unwrap()).into();
    let inputs: Vec<_> = mixes.iter().map(|mix| (parse(mix, false).unwrap(), jobs.clone())).collect();
    let mut alone = Alone::of(&inputs, Fidelity::Full).unwrap();
    assert_eq!(alone.wants.len(), 2 * (2 + 3));
    let runs: Vec<usize> = alone.take().iter().map(|(_, jobs)| jobs.len()).collect();
    assert_eq!(runs, [2, 2, 2], "three programs, two designs");
    assert!(Alone::of(&inputs, Fidelity::Pages).unwrap().take().is_empty());
}

#[test]
fn speed_ups_of_mixes_have_intervals() {
    let result = Comparison::new(["native-4k", "all-slow"])
        .machine("zen4-cxl")
        .input(parse(&format!("{GUPS},{STREAM}"), false).unwrap())
        .run(&Silent)
        .unwrap();
    assert_eq!(result.failures, Vec::<String>::new());
    let speedup = result.comparison.speedup_of(&result.comparison.runs[1]).unwrap();
    assert!(speedup.low < speedup.value && speedup.value < speedup.high, "{speedup:?}");
    assert!(speedup.uncertainty.unwrap().seeds.is_some(), "gups draws at random");
}

#[test]
fn a_policy_that_looks_twice_is_refused() {
    let study = Comparison::new(["annotated"]).input(parse("gups,bfs", false).unwrap());
    let error = study.check().unwrap_err().to_string();
    assert!(error.contains("looks at its input twice") && error.contains("--hints FILE"), "{error}");
}

#[test]
fn slowdowns_of_a_mix_agree_with_its_speed_ups() {
    let mix = parse(&format!("{GUPS},{STREAM}"), false).unwrap();
    let study = Comparison::new::<&str>([]).policies(["nimble"]).fast_shares([0.5]).machine("zen4-cxl");
    let result = study.intervals(false).input(mix).run(&Silent);
    let found = match result {
        Ok(result) => result.comparison,
        Err(error) => panic!("{error}"),
    };
    assert!(found.title.contains(&found.runs[0].input) && !found.title.ends_with("on "), "{}", found.title);
    let speed = |at: usize| found.runs[at].speedup_over(&found.runs[0]).unwrap();
    let fast = found.runs.iter().position(|run| run.design == "all-fast").unwrap();
    for (at, run) in found.runs.iter().enumerate() {
        let slowdown = found.tiering_of(run).unwrap().slowdown.unwrap();
        let by_speed = speed(fast) / speed(at) - 1.0;
        assert!((slowdown - by_speed).abs() < 1e-9, "{}: {slowdown} and {by_speed}", run.design);
    }
}
