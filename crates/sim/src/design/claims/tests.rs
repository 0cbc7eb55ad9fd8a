//! Claims against made-up results: a two-resource bottleneck stands in for the machine.

use super::*;
use crate::design::Library;
use terrace_model::Unit;

const SMALL: &str = r#"
source = "S"

[run.read]
machine = "xeon-5218-dcpmm"
design = "native-4k"
workload = "iwb,mode=read"
set = { "os.placement" = '{ kind = "ratio", first = {dram}, group = 100 }' }
points = [0, 50, 80, 100]
with = { dram = [0, 50, 80, 100] }

[run.one]
machine = "vbi-table1"
design = "vivt"
workload = "gups"
scale = 4

[define]
best = "argmax(curve)"
curve = "read.throughput"

[[claim]]
id = "rows"
section = "1"
kind = "value"
statement = "The rows."
unit = "M/s"
expression = "read.throughput / 1000000"
published = [55, 110, 277, 218]
tolerance = "10 %"
mean_tolerance = "5 %"
calibrated = [0, 100]

[[claim]]
id = "best"
section = "1"
kind = "shape"
statement = "The best share."
expression = "best"
published = 80
tolerance = 5

[[claim]]
id = "order"
section = "2"
kind = "order"
statement = "Mixed beats pure."
expression = "at(read.throughput, 0) < at(read.throughput, 100) < at(read.throughput, 80)"
note = "Told so."

[[claim]]
id = "statistic"
section = "2"
kind = "value"
statement = "Walks per access."
expression = "one.walk.count / one.accesses"
published = 0.5
tolerance = "1 %"
"#;

fn small() -> Vec<Claim> {
    parse(SMALL, "small.toml").unwrap()
}

/// `min(D / x, N / (1 - x))`: each tier serves its share, the slower one sets the pace.
fn bottleneck(key: &RunKey, dram: f64, slow: f64) -> Option<RunNumbers> {
    let placement = &key.sets.first()?.1;
    let share: f64 = placement.split("first = ").nth(1)?.split(',').next()?.parse().ok()?;
    let x = share / 100.0;
    let rate = (dram / x).min(slow / (1.0 - x));
    Some(RunNumbers { accesses: 1_000_000, seconds: 1.0 / rate, ..RunNumbers::default() })
}

fn by_id<'a>(claims: &'a [Claim], id: &str) -> &'a Claim {
    claims.iter().find(|claim| claim.id == id).unwrap()
}

#[test]
fn runs_have_their_points_filled_in() {
    let claims = small();
    let runs = by_id(&claims, "rows").runs();
    assert_eq!(runs.len(), 4);
    assert_eq!(
        runs[2].sets,
        [("os.placement".to_owned(), "{ kind = \"ratio\", first = 80, group = 100 }".to_owned())]
    );
    let library = Library::embedded();
    for run in &runs {
        library.design(&run.design, Some(&run.machine), &run.sets).unwrap();
    }
    let one = &by_id(&claims, "statistic").runs()[0];
    assert_eq!((one.machine.as_str(), one.scale, one.fidelity.as_str()), ("vbi-table1", 4, "full"));
}

#[test]
fn points_can_have_scales_of_their_own() {
    let text = SMALL.replace("80, 100] }", "80, 100], scale = [1, 2, 8, 16] }");
    let claims = parse(&text, "small.toml").unwrap();
    let scales: Vec<u32> = by_id(&claims, "rows").runs().iter().map(|run| run.scale).collect();
    assert_eq!(scales, [1, 2, 8, 16]);
}

#[test]
fn a_run_takes_over_what_it_does_not_say_from_the_one_that_it_is_like() {
    let more = r#"
[run.write]
like = "read"
workload = "iwb,mode=write"
set = { "os.reserved" = "64 MiB" }

[run.quick]
like = "write"
fidelity = "pages"
with = { dram = [1, 2, 3, 4] }

[define]"#;
    let text = SMALL.replace("[define]", more).replace("at(read.throughput, 0)", "at(quick.throughput, 0)");
    let claims = parse(&text, "small.toml").unwrap();
    let claim = by_id(&claims, "order");
    let (read, write, quick) = (claim.keys("read"), claim.keys("write"), claim.keys("quick"));
    let expected = RunKey {
        workload: "iwb,mode=write".to_owned(),
        sets: [read[1].1.sets.clone(), vec![("os.reserved".to_owned(), "64 MiB".to_owned())]].concat(),
        ..read[1].1.clone()
    };
    assert_eq!(write[1], ("50".to_owned(), expected.clone()));
    let share = "{ kind = \"ratio\", first = 2, group = 100 }".to_owned();
    let sets = vec![("os.placement".to_owned(), share), expected.sets[1].clone()];
    assert_eq!(quick[1], ("50".to_owned(), RunKey { fidelity: "pages".to_owned(), sets, ..expected }));
}

#[test]
fn a_machine_like_the_published_reproduces_and_another_does_not() {
    let claims = small();
    let same = |key: &RunKey| bottleneck(key, 217.64, 55.11);
    let verdict = evaluate(by_id(&claims, "rows"), &same);
    assert!(verdict.holds && verdict.evaluated, "{verdict:?}");
    assert_eq!(verdict.ours, "55.11, 110.2, 272, 217.6 M/s (mean error 1.0 %)");
    assert_eq!(verdict.rows.iter().map(|row| row.judged).collect::<Vec<_>>(), [false, true, true, false]);
    assert!(evaluate(by_id(&claims, "best"), &same).holds);
    assert!(evaluate(by_id(&claims, "order"), &same).holds);

    let fitted = parse(&SMALL.replace("[0, 100]", "[0, 50, 80, 100]"), "small.toml").unwrap();
    let verdict = evaluate(by_id(&fitted, "rows"), &same);
    assert!(!verdict.holds && !verdict.evaluated && verdict.rows.len() == 4, "{verdict:?}");
    assert!(verdict.reason.starts_with("a constant was fitted to it"), "{}", verdict.reason);

    let slower = |key: &RunKey| bottleneck(key, 150.0, 55.11);
    let verdict = evaluate(by_id(&claims, "rows"), &slower);
    assert!(!verdict.holds);
    assert_eq!(
        verdict.reason,
        "1 of 2 rows are outside the tolerance, the worst by -32.3 % at 80; the mean error is 16.3 %, above 5.0 %"
    );
    let flat = |_: &RunKey| Some(RunNumbers { accesses: 1, seconds: 1.0, ..RunNumbers::default() });
    let verdict = evaluate(by_id(&claims, "order"), &flat);
    assert!(!verdict.holds);
    assert_eq!(verdict.reason, "the order is another. Told so.");
    assert_eq!(verdict.ours, "1 | 1 | 1");
}

#[test]
fn a_range_is_judged_as_its_middle_and_shown_by_its_ends() {
    let ranged = parse(&SMALL.replace("tolerance = 5", "tolerance = 5\nrange = true"), "small.toml").unwrap();
    let (number, range) = (small(), by_id(&ranged, "best"));
    let dram_best = |key: &RunKey| bottleneck(key, 1e9, 55.11);
    let of = |claim: &Claim| evaluate(claim, &dram_best);
    assert_eq!((of(by_id(&number, "best")).published, of(range).published), ("80".into(), "75 to 85".into()));
    assert_eq!(of(by_id(&number, "best")).reason, "off by +25.0 %");
    assert_eq!(of(range).reason, "off by +25.0 % from the middle of the range");
}

#[test]
fn statistics_can_be_compared_and_missing_results_are_said() {
    let claims = small();
    let claim = by_id(&claims, "statistic");
    let with_walks = |_: &RunKey| {
        let mut numbers = RunNumbers { accesses: 10, ..RunNumbers::default() };
        numbers.stats.count("walk.count", 5, Unit::Count);
        Some(numbers)
    };
    assert!(evaluate(claim, &with_walks).holds);
    let verdict = evaluate(claim, &|_| Some(RunNumbers::default()));
    assert_eq!((verdict.evaluated, verdict.reason.as_str()), (false, "the run has no statistic walk.count"));
    let verdict = evaluate(claim, &|_| None);
    assert_eq!(verdict.reason, "the run of vivt on vbi-table1 with gups gave no result");
}

#[test]
fn mistakes_in_claim_files_name_their_line() {
    let cases = [
        (
            "kind = \"shape\"",
            "kind = \"shap\"",
            "small.toml:37: claim.1.kind: \"shap\" is not valid; did you mean \"shape\"?",
        ),
        (
            "expression = \"best\"",
            "expression = \"reed.seconds\"",
            "small.toml:39: best: expression: there is no run \"reed\"; did you mean \"read\"?",
        ),
        (
            "tolerance = 5",
            "tolerence = 5",
            "small.toml:41: unknown key \"tolerence\"; did you mean \"tolerance\"?",
        ),
        (
            "tolerance = 5",
            "tolerance = \"5\"",
            "small.toml:41: best: tolerance: expected a number in the claim's unit, or a share such as \"10 %\"",
        ),
        ("id = \"best\"", "id = \"rows\"", "small.toml:35: rows: id: there is another claim of this name"),
        ("scale = 4", "scale = 64", "small.toml:16: run.one.scale: 64 is not 1 to 16"),
        (
            "dram = [0, 50, 80, 100]",
            "dram = [0, 50]",
            "small.toml:10: run.read.with: dram has 2 values for 4 points",
        ),
        (
            "with = { dram = [0, 50, 80, 100] }",
            "with = { dram = [0, 50, 80, 100], scale = [1, 2, 0, 4] }",
            "small.toml:4: run.read.scale: 0 is not 1 to 16",
        ),
        (
            "scale = 4",
            "whole = true\nfast_forward = true",
            "small.toml:17: run.one.fast_forward: the whole input is to be counted: leave one of them out",
        ),
        (
            "machine = \"vbi-table1\"",
            "like = \"reed\"",
            "small.toml:13: run.one.like: there is no run \"reed\"; did you mean \"read\"?",
        ),
        (
            "[run.one]",
            "[run.two]\nlike = \"three\"\n[run.three]\nlike = \"two\"\n[run.one]",
            "small.toml:13: run.two.like: three -> two -> three goes in a circle",
        ),
        (
            "machine = \"vbi-table1\"",
            "like = 3",
            "small.toml:13: run.one.like: found integer 3, expected text in quotes (a quantity carries its unit, such as \"80 ns\")",
        ),
        (
            "workload = \"gups\"",
            "like = \"read\"\npoints = [1]",
            "small.toml:10: run.one.with: dram has 4 values for 1 points",
        ),
        (
            "curve = \"read.throughput\"",
            "curve = \"1.2.3\"",
            "small.toml:20: define.curve: \"1.2.3\" is not a number",
        ),
        (
            "best = \"argmax(curve)\"\ncurve = \"read.throughput\"",
            "best = \"1.2.3\"\ncurve = \"2 * best\"",
            "small.toml:19: define.best: \"1.2.3\" is not a number",
        ),
        ("published = 80\n", "", "small.toml:34: best: published: is missing; only an order needs none"),
        (
            "tolerance = \"1 %\"",
            "tolerance = \"1 %\"\nrange = true",
            "small.toml:59: statistic: range: needs one published number, the middle, and as tolerance half of the range in its unit",
        ),
    ];
    let text = SMALL;
    for (from, to, expected) in cases {
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1), "small.toml").unwrap_err().to_string();
        assert_eq!(error, expected);
    }
}

#[test]
fn every_claim_file_is_embedded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../claims");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| format!("claims/{}", entry.unwrap().file_name().display()))
        .filter(|name| name.ends_with(".toml"))
        .collect();
    files.sort();
    let embedded: Vec<_> = FILES.iter().map(|(shown, _)| (*shown).to_owned()).collect();
    assert_eq!(embedded, files);
}

#[test]
fn the_embedded_claims_read_and_their_designs_resolve() {
    let claims = embedded().unwrap();
    let library = Library::embedded();
    let mut ids = std::collections::HashSet::new();
    let mut known = std::collections::HashSet::new();
    for claim in &claims {
        assert!(ids.insert(&claim.id), "two claims are called {}", claim.id);
        let runs = claim.runs();
        assert!(!runs.is_empty(), "{} runs nothing", claim.id);
        for run in runs {
            assert!(!run.workload.contains('{'), "{}: {}", claim.id, run.workload);
            if known.insert((run.design.clone(), run.machine.clone(), run.sets.clone())) {
                let resolved = library.design(&run.design, Some(&run.machine), &run.sets);
                resolved.unwrap_or_else(|error| panic!("{}: {error}", claim.id));
            }
        }
        if let Some(Published::List(list)) = &claim.published {
            let points = claim.keys(claim.expression.metrics()[0].0).len();
            assert_eq!(points, list.len(), "{}", claim.id);
        }
    }
    assert!(claims.len() >= 20, "{}", claims.len());
}

#[test]
fn a_star_in_a_metric_stands_for_the_programs_of_a_mix() {
    let text = SMALL.replace("one.walk.count", "max_each(one.mix.program.*.time)");
    let claims = parse(&text, "small.toml").unwrap();
    let claim = by_id(&claims, "statistic");
    let mut numbers = RunNumbers { accesses: 1, ..RunNumbers::default() };
    assert_eq!(
        evaluate(claim, &|_| Some(numbers.clone())).reason,
        "the run has no statistic mix.program.*.time"
    );
    for (name, time) in [("bfs.time", 4), ("gups.time", 6), ("gups.alone_time", 90), ("gups.parts.time", 80)]
    {
        numbers.stats.count(format!("mix.program.{name}"), time, Unit::Count);
    }
    assert_eq!(evaluate(claim, &|_| Some(numbers.clone())).rows[0].ours, 6.0);
}

#[test]
fn histograms_give_their_mean_and_their_largest_value() {
    let text = SMALL.replace("walk.count", "os.fault_latency.1g.mean");
    let claims = parse(&text, "small.toml").unwrap();
    let claim = by_id(&claims, "statistic");
    let mut numbers = RunNumbers { accesses: 1, ..RunNumbers::default() };
    let mut latency = terrace_model::Histogram::default();
    numbers.stats.histogram("os.fault_latency.1g", latency.clone(), Unit::Nanoseconds);
    let verdict = evaluate(claim, &|_| Some(numbers.clone()));
    assert_eq!(verdict.reason, "the run has no statistic os.fault_latency.1g.mean", "nothing was recorded");
    [2, 4, 9].into_iter().for_each(|value| latency.record(value));
    numbers.stats.histogram("os.fault_latency.1g", latency, Unit::Nanoseconds);
    assert_eq!(evaluate(claim, &|_| Some(numbers.clone())).rows[0].ours, 5.0);
    let text = SMALL.replace("walk.count", "os.fault_latency.1g.max");
    let claims = parse(&text, "small.toml").unwrap();
    assert_eq!(evaluate(by_id(&claims, "statistic"), &|_| Some(numbers.clone())).rows[0].ours, 9.0);
}

fn about(expression: &str, run: &str) -> Result<Vec<Claim>, DesignError> {
    let text = SMALL.replace("one.walk.count / one.accesses", expression).replace("scale = 4", run);
    parse(&text, "small.toml")
}

#[test]
fn samples_over_time_lie_at_shares_of_the_run() {
    let claims = about("last(until(over_time(one.contiguity.coverage_32), 0.5))", "whole = true").unwrap();
    let claim = by_id(&claims, "statistic");
    let point =
        |seconds, coverage_32| ContiguityPoint { seconds, regions: 9, coverage_32, coverage_128: 1.0 };
    let mut numbers = RunNumbers { seconds: 8.0, ..RunNumbers::default() };
    let verdict = evaluate(claim, &|_| Some(numbers.clone()));
    assert_eq!(
        (verdict.evaluated, verdict.reason.as_str()),
        (
            false,
            "the run has no samples of contiguity.coverage_32: set os.sample_contiguity to less than its time, 8.000 s"
        )
    );
    numbers.contiguity = vec![point(2.0, 0.25), point(4.0, 0.5), point(6.0, 0.75)];
    assert!(evaluate(claim, &|_| Some(numbers.clone())).holds);
    numbers.seconds = 16.0;
    assert_eq!(
        evaluate(claim, &|_| Some(numbers.clone())).rows[0].ours,
        0.75,
        "all of it is in the first half"
    );
}

#[test]
fn what_cannot_be_sampled_is_refused_before_anything_runs() {
    let known = "contiguity.regions, contiguity.coverage_32, contiguity.coverage_128";
    let of_read = "at(read.seconds, 0) / max(over_time(read.contiguity.regions))";
    for (expression, run, expected) in [
        (
            "max(over_time(one.contiguity.coverge_32))",
            "whole = true",
            format!(
                "no run keeps contiguity.coverge_32 over time; did you mean \"contiguity.coverage_32\"? (there are: {known})"
            ),
        ),
        (
            "max(over_time(one.contiguity.regions))",
            "scale = 4",
            "over_time() needs the whole run: write whole = true in run.one".to_owned(),
        ),
        (of_read, "scale = 4", "over_time() needs the whole run: write whole = true in run.read".to_owned()),
    ] {
        let error = about(expression, run).unwrap_err().to_string();
        assert_eq!(error, format!("small.toml:56: statistic: expression: {expected}"));
    }
    let whole = SMALL.replace("points = [0", "whole = true\npoints = [0");
    let text = whole.replace("one.walk.count / one.accesses", of_read);
    let error = parse(&text, "small.toml").unwrap_err().to_string();
    assert!(error.ends_with("over_time() takes a run without points, and run.read has some"), "{error}");
}

/// The thesis's own numbers satisfy its claims: the tables were copied right and the expressions say what they should.
#[test]
fn the_iwb_claims_hold_for_the_published_table() {
    let claims = embedded().unwrap();
    let after = |text: &str, key: &str| -> Option<u64> {
        text.split(key).nth(1)?.split([',', ' ']).next()?.parse().ok()
    };
    let table = |key: &RunKey| {
        let mode = if key.workload.contains("mode=read") { "read" } else { "write" };
        let claim = by_id(&claims, &format!("ambix-iwb-{mode}-{}", after(&key.workload, "threads=")?));
        let runs = claim.keys(claim.expression.metrics()[0].0);
        let at = runs.iter().position(|(_, run)| run == key)?;
        match &claim.published {
            Some(Published::List(list)) => Some(list[at]),
            other => panic!("{other:?}"),
        }
    };
    // A run of any length at the published rate.
    let published = |key: &RunKey| {
        let passes = after(&key.workload, "passes=")?;
        let seconds = passes as f64 / table(key)?;
        Some(RunNumbers { accesses: passes * 1_000_000, seconds, ..RunNumbers::default() })
    };
    // The tables of energy are no claims.
    let rates =
        claims.iter().filter(|claim| claim.id.starts_with("ambix-iwb") && !claim.id.contains("energy"));
    for claim in rates {
        let verdict = evaluate(claim, &published);
        let within = verdict.rows.iter().all(|row| row.within);
        assert!(within && verdict.holds == verdict.evaluated, "{verdict:?}");
    }
}

#[test]
fn a_run_may_be_trained_on_another_input_and_the_others_stay_what_they_were() {
    let key = |text: &str| by_id(&parse(text, "small.toml").unwrap(), "order").keys("read").remove(1).1;
    let (own, other) =
        (key(SMALL), key(&SMALL.replacen("workload = ", "train = \"stream,seed={dram}\"\nworkload = ", 1)));
    assert_eq!((own.train.as_str(), other.train.as_str()), ("", "stream,seed=50"));
    assert_ne!(own, other);
    // Verdicts on file are told apart by this text.
    assert!(
        !format!("{own:?}").contains("train") && format!("{other:?}").contains("train: \"stream,seed=50\"")
    );
}
