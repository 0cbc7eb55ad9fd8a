//! Sweeps on small inputs, and files that are none.

use super::*;
use crate::{Input, Silent};
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

const TWO: &str = r#"
designs = ["native-4k", "native-2m"]
workloads = ["gups,bytes=1MiB,updates=2000"]

[set]
"translation.l2.latency" = ["9 cycles", "18 cycles"]
"native-4k:translation.page_walk_cache.entries" = [0, 32]

[[workload]]
name = "gups"
set = { bytes = "2MiB", updates = 1000, seed = [1, 2] }
"#;

fn kept(sweep: &Sweep, store: &Store, points: &[usize]) -> usize {
    let ran = AtomicUsize::new(0);
    sweep.run(&sweep.groups(points, 4), &Silent, &|point, outcome| {
        store.put(point, &outcome.unwrap()).unwrap();
        ran.fetch_add(1, Ordering::Relaxed);
    });
    ran.into_inner()
}

#[test]
fn every_value_meets_every_other_and_what_is_for_one_design_is_for_it_alone() {
    let sweep = Sweep::parse(TWO, "two.toml").unwrap();
    // Three inputs; of native-4k 2 × 2 values, of native-2m 2.
    assert_eq!(sweep.points().len(), 3 * (4 + 2));
    let of = |design: &str| sweep.points().iter().filter(|point| point.design == design).count();
    assert_eq!((of("native-4k"), of("native-2m")), (12, 6));
    let ids: std::collections::HashSet<&str> = sweep.points().iter().map(Point::id).collect();
    assert_eq!(ids.len(), 18);
    let last = &sweep.points()[17];
    let names: Vec<&str> = last.values().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["workload.bytes", "workload.seed", "workload.updates", "set.translation.l2.latency"]);
}

#[test]
fn groups_have_one_input_and_a_bounded_size() {
    let sweep = Sweep::parse(TWO, "two.toml").unwrap();
    let all: Vec<usize> = (0..18).collect();
    let groups = sweep.groups(&all, 4);
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2, 4, 2, 4, 2]);
    assert_eq!(groups.concat(), all);
    for group in groups {
        assert!(group.iter().all(|&at| sweep.points()[at].input == sweep.points()[group[0]].input));
    }
}

#[test]
fn a_sweep_goes_on_where_it_ended_and_its_table_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let sweep = Sweep::parse(TWO, "two.toml").unwrap();
    let store = Store::open(&whole).unwrap();
    let all = sweep.missing(&store).unwrap();
    assert_eq!((all.len(), kept(&sweep, &store, &all)), (18, 18));
    assert!(sweep.missing(&store).unwrap().is_empty());

    let again = Store::open(&parts).unwrap();
    kept(&sweep, &again, &all[..7]);
    // A file that was cut off by a crash is no run.
    let cut = parts.join(KEPT).join(format!("{}.json", sweep.points()[3].id()));
    let text = std::fs::read_to_string(&cut).unwrap();
    std::fs::write(&cut, &text[..text.len() / 2]).unwrap();
    let missing = sweep.missing(&again).unwrap();
    assert_eq!(missing, [3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);
    kept(&sweep, &again, &missing);
    assert_eq!(
        timeless(&sweep.done(&again).unwrap().columns()),
        timeless(&sweep.done(&store).unwrap().columns())
    );
    // A longer file runs only what is new.
    let longer = TWO.replace("seed = [1, 2]", "seed = [1, 2, 3]");
    assert_eq!(Sweep::parse(&longer, "two.toml").unwrap().missing(&again).unwrap().len(), 6);
}

/// The table without what the computer decides.
fn timeless(columns: &Columns) -> String {
    let mut columns = columns.clone();
    columns.columns.retain(|(name, _)| !["wall_seconds", "accesses_per_second"].contains(&name.as_str()));
    columns.to_csv()
}

#[test]
fn a_run_of_a_sweep_is_the_run_of_a_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let text = "designs = [\"native-4k\"]\nworkloads = [\"gups,bytes=1MiB,updates=2000\"]";
    let sweep = Sweep::parse(text, "one.toml").unwrap();
    let store = Store::open(folder.path()).unwrap();
    kept(&sweep, &store, &[0]);
    let ours = store.get(&sweep.points()[0]).unwrap().unwrap();
    let compared = crate::Comparison::new(["native-4k"])
        .input(Input::workload("gups,bytes=1MiB,updates=2000").unwrap())
        .run(&Silent)
        .unwrap();
    let theirs = &compared.comparison.runs[0];
    assert_eq!((&ours.stats, &ours.design, &ours.command), (&theirs.stats, &theirs.design, &theirs.command));
    assert_eq!((ours.seconds_simulated, &ours.parameters), (theirs.seconds_simulated, &theirs.parameters));
}

#[test]
fn columns_begin_with_the_values_and_numbers_stay_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let text = "designs = [\"native-4k\"]\n[[workload]]\nname = \"gups\"\n\
                set = { bytes = \"1MiB\", updates = [1000, 2000] }";
    let sweep = Sweep::parse(text, "one.toml").unwrap();
    let store = Store::open(folder.path()).unwrap();
    kept(&sweep, &store, &[0, 1]);
    let columns = sweep.done(&store).unwrap().columns().columns;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(columns[0], ("workload.bytes".to_owned(), Column::Text(vec![text("1MiB"), text("1MiB")])));
    assert_eq!(columns[1], ("workload.updates".to_owned(), Column::Integer(vec![Some(1000), Some(2000)])));
    assert_eq!(columns[2].0, "design");
}

#[test]
fn scale_fidelity_and_the_first_notes_stand_below_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let text = "designs = [\"native-4k\"]\nfidelity = \"pages\"\nscale = 2\n[[workload]]\nname = \"gups\"\n\
                set = { bytes = \"1MiB\", updates = [1, 2, 3, 4, 5, 6] }";
    let sweep = Sweep::parse(text, "one.toml").unwrap();
    let store = Store::open(folder.path()).unwrap();
    kept(&sweep, &store, &[0, 1, 2, 3, 4, 5]);
    let done = sweep.done(&store).unwrap();
    let table = super::table(&done.columns());
    let said = done.caveats();
    assert!(
        said.starts_with("Scaled down by 2: ") && said.contains("\nFidelity pages leaves out: "),
        "{said}"
    );
    assert_eq!(said.matches("\nNote").count(), 4, "each of other accesses: {said}");
    assert!(said.ends_with("and 2 more notes, in the files of runs/\n"), "{said}");
    assert!(table.contains("  -\n"), "no run has a time");
}

#[test]
fn the_folder_of_a_sweep_is_a_set_of_results() {
    let folder = tempfile::tempdir().unwrap();
    let text = "designs = [\"native-4k\"]\nworkloads = [\"gups,bytes=1MiB,updates=2000\"]\n\
                [set]\n\"translation.l2.latency\" = [\"9 cycles\", \"18 cycles\"]";
    let sweep = Sweep::parse(text, "one.toml").unwrap();
    let store = Store::open(folder.path()).unwrap();
    kept(&sweep, &store, &[0, 1]);
    let found = crate::difference::difference(folder.path(), folder.path()).unwrap();
    let names: Vec<&str> = found.runs.iter().map(|run| run.name.design.as_str()).collect();
    let [first, second] =
        ["18 cycles", "9 cycles"].map(|value| format!("native-4k, translation.l2.latency={value}"));
    assert_eq!(names, [first, second]);
    assert_eq!(found.runs[0].name.input, "gups,bytes=1MiB,updates=2000");
    assert!(found.runs.iter().all(|run| run.statistics.is_empty() && run.parameters.is_empty()));
    std::fs::write(folder.path().join("runs/other.json"), "{}").unwrap();
    let error = crate::difference::difference(folder.path(), folder.path()).unwrap_err().to_string();
    assert!(error.contains("runs/other.json: this is no run of a sweep"), "{error}");
}

#[test]
fn commands_name_the_groups_and_run_them() {
    let sweep = Sweep::parse(TWO, "two.toml").unwrap();
    let commands = sweep.commands(&sweep.groups(&[0, 1, 6], 2), "a file.toml", "out");
    let id = |at: usize| sweep.points()[at].id();
    assert_eq!(
        commands,
        [
            format!("terrace sweep 'a file.toml' -o out --only {},{}", id(0), id(1)),
            format!("terrace sweep 'a file.toml' -o out --only {}", id(6)),
        ]
    );
    let ids = [id(6).to_owned(), id(0).to_owned()];
    assert_eq!(sweep.named(&ids).unwrap(), [6, 0]);
    let error = sweep.named(&["0123".to_owned()]).unwrap_err();
    assert!(error.is_request() && error.to_string().contains("has changed"), "{error}");
}

#[test]
fn a_point_that_fails_is_said_and_the_others_run() {
    let text = "designs = [\"native-4k\", \"native-2m\"]\nworkloads = [\"gups,bytes=256MiB,updates=1e5\"]\n\
                [set]\n\"native-2m:tier.dram.capacity\" = \"64 MiB\"\n\
                \"native-2m:tier.cxl.capacity\" = \"64 MiB\"\n\"native-2m:os.reserved\" = \"0 B\"";
    let sweep = Sweep::parse(text, "small.toml").unwrap();
    let outcomes = Mutex::new(Vec::new());
    sweep.run(&[vec![0, 1]], &Silent, &|point, outcome| {
        let outcome = outcome.map(|record| record.design);
        outcomes.lock().unwrap().push((point.design.clone(), outcome));
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by(|a, b| a.0.cmp(&b.0));
    let failure = outcomes[0].1.as_ref().unwrap_err();
    assert!(
        failure.starts_with("native-2m on gups: ") && !failure.contains(sweep.points()[1].id()),
        "{failure}"
    );
    assert_eq!(outcomes[1], ("native-4k".to_owned(), Ok("native-4k".to_owned())));
}

#[test]
fn programs_of_the_suite_are_inputs() {
    let sweep = Sweep::parse("designs = [\"native-4k\"]\nsuite = [\"lbm\", \"astar\"]", "x.toml").unwrap();
    let inputs: Vec<&InputWord> = sweep.points().iter().map(|point| &point.input).collect();
    let workload = |spec: &str| InputWord::Workload(spec.to_owned());
    assert_eq!(inputs, [&workload("lbm,iterations=2"), &workload("astar")]);
}

/// The names of a sweep's inputs, in the order of its points.
fn names_of_inputs(text: &str) -> Vec<String> {
    let sweep = Sweep::parse(text, "x.toml").unwrap();
    sweep.points().iter().map(|point| point.input_name.clone()).collect()
}

#[test]
fn inputs_of_one_name_get_numbers_and_those_of_a_table_have_values() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |name: &str| {
        let path = folder.path().join(name).join("gups.trace");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(&path, " L 1000,8\n S 2000,8\n").unwrap();
        path.display().to_string()
    };
    let (one, other) = (trace("a"), trace("b"));
    let before = "designs = [\"native-4k\"]\nworkloads = [\"gups,bytes=1MiB,updates=2000\"]\n";
    let text = format!(
        "{before}traces = [{one:?}, {other:?}, {other:?}]\n\
         [[workload]]\nname = \"gups\"\nset = {{ bytes = \"1MiB\", updates = [10, 20] }}"
    );
    assert_eq!(names_of_inputs(&text), ["gups", "gups-2", "gups-3", "gups-4", "gups-4"]);

    // Runs of a shorter sweep are those of the longer one, under the names that they have there.
    let store = Store::open(folder.path()).unwrap();
    let shorter = Sweep::parse(before, "x.toml").unwrap();
    kept(&shorter, &store, &[0]);
    let longer = Sweep::parse(&text, "x.toml").unwrap();
    assert_eq!(longer.missing(&store).unwrap(), [0, 1, 3, 4]);
    kept(&longer, &store, &[0, 1, 3, 4]);
    let columns = longer.done(&store).unwrap().columns().columns;
    let inputs = columns.into_iter().find(|(name, _)| name == "input").unwrap().1;
    let names = ["gups", "gups-2", "gups-3", "gups-4", "gups-4"].map(|name| Some(name.to_owned()));
    assert_eq!(inputs, Column::Text(names.to_vec()));
    assert_eq!(store.get(&shorter.points()[0]).unwrap().unwrap().input, "gups");
    let found = crate::difference::difference(folder.path(), folder.path()).unwrap();
    assert_eq!(found.runs.len(), 5);
}

#[test]
fn designs_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let design = |name: &str, base: &str| {
        let path = folder.path().join(name).join("x.toml");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("extends = {base:?}\n")).unwrap();
        path.display().to_string()
    };
    let (one, other) = (design("d1", "native-4k"), design("d2", "native-2m"));
    let text = format!("designs = [{one:?}, {other:?}]\nworkloads = [\"gups\"]");
    let error = Sweep::parse(&text, "x.toml").unwrap_err();
    let said = error.to_string();
    assert!(error.is_request() && said.contains("are both named \"x\""), "{said}");
    assert!(said.contains(&one) && said.contains(&other), "{said}");
}

#[test]
fn hints_are_for_designs_that_take_them_and_decide_what_their_runs_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.toml");
    let hints = |hot: &str| {
        let site = |name: &str, hint: &str| {
            format!("[[site]]\nname = {name:?}\nbytes = 1048576\nloads = 1000\nstores = 0\nhint = {hint:?}\n")
        };
        let sites = ["a", "b", "c"].map(|name| site(name, if name == hot { "BO" } else { "CO" }));
        std::fs::write(&path, format!("version = 1\n{}", sites.concat())).unwrap();
    };
    let parse = |designs: &str| {
        Sweep::parse(
            &format!(
                "designs = {designs}\nmachines = [\"zen4-cxl\"]\nhints = {:?}\n\
                 workloads = [\"stream,bytes=3MiB,iterations=1\"]",
                path.display().to_string()
            ),
            "x.toml",
        )
    };
    hints("a");
    let error = parse("[\"first-touch\"]").unwrap_err();
    assert!(error.is_request() && error.to_string().contains("no design here places"), "{error}");
    let of_a = parse("[\"annotated\", \"first-touch\"]").unwrap();
    hints("b");
    let of_b = parse("[\"annotated\", \"first-touch\"]").unwrap();
    let same = |at: usize| of_a.points()[at].id() == of_b.points()[at].id();
    assert!(!same(0) && same(1), "hints are part of the runs that are placed by them, and of no others");

    let slow = |sweep: &Sweep| {
        let store = Store::open(&tempfile::tempdir().unwrap().keep()).unwrap();
        kept(sweep, &store, &[0]);
        store.get(&sweep.points()[0]).unwrap().unwrap()
    };
    let (a, b) = (slow(&of_a), slow(&of_b));
    assert!(a.command.contains("--hints"), "{}", a.command);
    // Structure c is written, b is read, a is both: other structures in fast memory are other traffic.
    assert_ne!(a.stats, b.stats);
    std::fs::remove_file(&path).unwrap();
    assert!(parse("[\"annotated\"]").unwrap_err().is_request());
}

#[test]
fn a_changed_trace_is_another_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    std::fs::write(&path, " L 1000,8\n S 2000,8\n").unwrap();
    let text = format!("designs = [\"native-4k\"]\ntraces = [{:?}]", path.display().to_string());
    let before = Sweep::parse(&text, "x.toml").unwrap();
    std::fs::write(&path, " L 1000,8\n S 2000,8\n S 3000,8\n").unwrap();
    let after = Sweep::parse(&text, "x.toml").unwrap();
    assert_ne!(before.points()[0].id(), after.points()[0].id());
}

#[test]
fn a_trace_that_is_none_fails_its_own_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.trace");
    std::fs::write(&path, "no trace\n").unwrap();
    let path = path.display().to_string();
    let text = format!(
        "designs = [\"native-4k\"]\ntraces = [{path:?}]\nworkloads = [\"gups,bytes=1MiB,updates=100\"]"
    );
    let sweep = Sweep::parse(&text, "x.toml").unwrap();
    let outcomes = Mutex::new(Vec::new());
    sweep.run(&sweep.groups(&[0, 1], 2), &Silent, &|point, outcome| {
        outcomes.lock().unwrap().push((point.input_name.clone(), outcome.map(|record| record.accesses)));
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(outcomes[0], ("gups".to_owned(), Ok(200)));
    assert!(outcomes[1].1.as_ref().unwrap_err().contains(&path), "{outcomes:?}");
}

#[test]
fn wrong_files_are_refused_with_the_line() {
    for (text, words) in [
        (
            "designs = [\"native-4k\"]\nworkload_s = []",
            "x.toml:2: unknown key \"workload_s\"; did you mean \"workloads\"?",
        ),
        ("designs = [", "x.toml:1: "),
        ("designs = 7", "x.toml:1: invalid type"),
        ("workloads = [\"gups\"]", "a sweep needs designs"),
        ("designs = [\"native-4k\"]", "a sweep needs workloads"),
        ("designs = [\"native-4q\"]\nworkloads = [\"gups\"]", "native-4k"),
        ("designs = [\"native-4k\"]\nworkloads = [\"gupz\"]", "did you mean \"gups\"?"),
        ("designs = [\"native-4k\"]\ntraces = [\"/no/such.trace\"]", "/no/such.trace"),
        ("designs = [\"native-4k\"]\nsuite = [\"lbn\"]", "did you mean \"lbm\"?"),
        ("designs = [\"native-4k\"]\nworkloads = [\"gups\"]\nscale = 99", "scale: 99 is not in 1..=16"),
        ("designs = [\"native-4k\"]\nworkloads = [\"gups\"]\ntime_scale = 0", "time_scale: 0"),
        (
            "designs = [\"native-4k\"]\nworkloads = [\"gups\"]\nfidelity = \"exact\"",
            "x.toml:3: unknown variant",
        ),
        (
            "designs = [\"native-4k\"]\nworkloads = [\"gups\"]\nwhole = true\nfast_forward = true",
            "exclude each other",
        ),
        (
            "designs = [\"native-4k\"]\nworkloads = [\"gups\"]\nset = { \"os.pages\" = [] }",
            "os.pages: an empty list",
        ),
        ("designs = [\"native-4k\"]\nworkloads = [\"gups\"]\nset = { \"os.pagez\" = 1 }", "os.pages"),
        (
            "designs = [\"native-4k\"]\nworkloads = [\"gups\"]\nset = { \"ambix:os.pages\" = 1 }",
            "no design of this sweep",
        ),
    ] {
        let error = Sweep::parse(text, "x.toml").unwrap_err();
        assert!(error.is_request() && error.to_string().contains(words), "{text}: {error}");
    }
}

#[test]
fn fidelity_scale_region_and_time_scale_make_other_runs() {
    let base =
        "designs = [\"ambix\"]\nmachines = [\"zen4-cxl\"]\nworkloads = [\"gups,bytes=1MiB,updates=2000\"]\n";
    let id =
        |more: &str| Sweep::parse(&format!("{base}{more}"), "x.toml").unwrap().points()[0].id().to_owned();
    let changes =
        ["", "fidelity = \"pages\"", "scale = 2", "whole = true", "fast_forward = true", "time_scale = 10"];
    let ids: std::collections::HashSet<String> = changes.into_iter().map(id).collect();
    assert_eq!(ids.len(), changes.len());
    let other = Sweep::parse(&base.replace("zen4-cxl", "skylake-6140"), "x.toml").unwrap();
    assert_ne!(other.points()[0].id(), id(""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_is_read_or_refused(noise in ".{0,200}", cut in 0usize..400) {
        let _ = Sweep::parse(&noise, "noise");
        let cut = TWO.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(TWO.len());
        if let Err(error) = SweepFile::parse(&format!("{}{noise}", &TWO[..cut]), "noise") {
            prop_assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

#[test]
fn programs_of_mixes_also_run_alone() {
    let text = r#"
designs = ["native-4k", "native-2m"]
mixes = ["gups,bytes=4MiB,updates=50000,stencil,side=48"]
set = { "core.count" = [2, 4] }
"#;
    let sweep = Sweep::parse(text, "mixes.toml").unwrap();
    assert_eq!(sweep.points().len(), 4);
    let identity = sweep.points()[0].identity();
    assert!(
        identity.contains("\nmix gups,bytes=4MiB,updates=50000,stencil,side=48\nwith --workload gups,"),
        "{identity}"
    );
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(kept(&sweep, &store, &[0, 1, 2, 3]), 4);
    for point in sweep.points() {
        let record = store.get(point).unwrap().unwrap();
        let number = |name: &str| record.stats.number(&format!("mix.{name}"));
        assert!(number("program.gups.slowdown") >= 0.99, "{}", point.identity());
        let speedup = number("weighted_speedup");
        assert!((1.0..2.02).contains(&speedup), "{speedup}: {}", point.identity());
    }
    let error = Sweep::parse(&text.replace("stencil", "nosuch"), "mixes.toml").unwrap_err().to_string();
    assert!(error.contains("nosuch"), "{error}");
}

#[test]
fn points_on_a_guest_are_under_its_hypervisor_all_alike() {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("guest.toml");
    std::fs::write(&machine, "kind = \"machine\"\nextends = \"zen4-cxl\"\n[hypervisor]\npages = \"4k\"\n")
        .unwrap();
    let sweep = |designs: &str, more: &str| {
        let text = format!(
            "designs = [{designs}]\nmachines = [{machine:?}]\nworkloads = [\"gups,bytes=1MiB,updates=1000\"]\n{more}"
        );
        Sweep::parse(&text, "guest.toml").unwrap()
    };
    let having = |sweep: &Sweep, line: &str| {
        sweep.points().iter().filter(|point| point.identity().lines().any(|own| own == line)).count()
    };
    let plain = sweep("\"native-4k\", \"native-thp\"", "");
    assert_eq!(having(&plain, "translation.nested.host=4k"), 2);
    assert_eq!(having(&plain, "os.memory.aging.kind=builds"), 2);
    let sized = sweep("\"native-4k\"", "[set]\n\"tier.dram.capacity\" = [\"2 GiB\", \"3 GiB\"]\n");
    assert_eq!(having(&sized, "translation.nested.host=4k"), 2);
    assert_eq!(
        having(&sized, "os.memory.aging.kind=builds"),
        0,
        "no run has another history than the others"
    );
    let outside = sweep("\"native-4k\", \"vbi-full\"", "");
    assert_eq!(having(&outside, "translation.nested.host=4k"), 0, "all of them, or none");
    let (notes, ran) = (Mutex::new(Vec::new()), outside.groups(&[0], 1));
    outside.run(&ran, &Silent, &|_, outcome| notes.lock().unwrap().extend(outcome.unwrap().notes));
    let notes = notes.into_inner().unwrap().join("\n");
    assert!(notes.contains("as if there were no hypervisor"), "{notes}");
}
