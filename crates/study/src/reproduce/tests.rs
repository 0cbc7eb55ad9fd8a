use super::*;

#[test]
fn claims_can_be_about_programs_side_by_side() {
    let text = r#"
source = "a test"

[run.mix]
machine = "vbi-table1"
design = "native-4k"
workload = "mix:gups,bytes=1MiB,updates=500,stencil,side=16"

[[claim]]
id = "updates"
section = "1"
kind = "value"
statement = "Each update is a load and a store."
expression = "mix.mix.program.gups.accesses"
published = 1000
tolerance = 0
"#;
    let claims = claims::parse(text, "mix.toml").unwrap();
    let result = reproduce(&claims, false, None, &Silent).unwrap();
    assert_eq!((result.reproduced, result.failures.as_slice()), (1, &[][..]));
    assert_eq!(result.runs, 1, "nobody asks for programs alone");
}

#[test]
fn programs_of_a_mix_run_alone_where_a_claim_asks_for_their_times() {
    let text = r#"
source = "a test"

[run.mix]
machine = "vbi-table1"
design = "native-4k"
workload = "mix:gups,bytes=1MiB,updates=500,stencil,side=16,gups,bytes=1MiB,updates=500"

[run.gups]
like = "mix"
workload = "gups,bytes=1MiB,updates=500"

[[claim]]
id = "alone"
section = "1"
kind = "value"
statement = "The time alone is that of a run of its own."
expression = "mix.mix.program.gups.alone_time / gups.seconds"
published = 1e9
tolerance = 1

[[claim]]
id = "slower"
section = "1"
kind = "order"
statement = "Side by side no program is faster than alone."
expression = "0.3 < mean_each(mix.mix.program.*.alone_time / mix.mix.program.*.time) < 1.001"
"#;
    let claims = claims::parse(text, "mix.toml").unwrap();
    let result = reproduce(&claims, false, None, &Silent).unwrap();
    let said: Vec<_> = result.claims.iter().map(|claim| (&claim.ours, &claim.reason)).collect();
    assert_eq!((result.reproduced, result.failures.as_slice()), (2, &[][..]), "{said:?}");
    assert_eq!(result.runs, 3, "both instances of gups are one run alone, which the other claim shares");
}

#[test]
fn the_microbenchmark_of_migrations_and_memory_that_ages_end_when_asked() {
    let stop = Stop::new();
    stop.request();
    let run = |workload: &str, sets: &[(String, String)]| {
        let design = Library::embedded().design("first-touch", None, sets).unwrap();
        let text = "source = \"a test\"\n[run.one]\nmachine = \"zen4-cxl\"\ndesign = \"first-touch\"\n\
                    workload = \"gups\"\n[[claim]]\nid = \"one\"\nsection = \"1\"\nkind = \"value\"\n\
                    statement = \"One.\"\nexpression = \"one.seconds\"\npublished = 1\ntolerance = 1\n";
        let mut key = claims::parse(text, "one.toml").unwrap()[0].runs().remove(0);
        key.workload = workload.to_owned();
        let open = Open { key, design, seed: None, name: String::new() };
        run_one(&open, &stop, &Arc::default()).unwrap()
    };
    assert!(run(MIGRATION, &[]).is_none());
    // No memory reaches this index, so that aging fails where nobody stops it.
    let aging = [("os.memory.aging.kind", "page-cache"), ("os.memory.aging.fmfi", "1")];
    let aging = aging.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert!(run("gups,bytes=1MiB,updates=500", &aging).is_none());
}

#[test]
fn claims_are_named_whole_or_by_their_beginning() {
    let all = select(&[]).unwrap();
    let some = select(&["vbi".to_owned()]).unwrap();
    assert!(!some.is_empty() && some.len() < all.len());
    assert!(some.iter().all(|claim| claim.id.starts_with("vbi")));
    let twice = select(&["vbi".to_owned(), some[0].id.clone()]).unwrap();
    assert_eq!(twice.len(), some.len());
}

#[test]
fn an_unknown_claim_names_the_nearest() {
    let error = select(&["vbj".to_owned()]).unwrap_err();
    assert!(error.is_request());
    assert!(error.to_string().contains("did you mean \"vbi"), "{error}");
}

#[test]
fn intervals_leave_the_numbers_as_they_are_and_say_how_far_they_could_be_off() {
    let text = r#"
source = "a test"

[run.base]
machine = "zen4-cxl"
design = "native-4k"
workload = "gups,bytes=16MiB,updates=2e4"

[run.huge]
like = "base"
design = "native-2m"


[[claim]]
id = "updates"
section = "1"
kind = "value"
statement = "Each update is a load and a store, whatever a page fault costs."
expression = "base.accesses"
published = 4e4
tolerance = 0

[[claim]]
id = "faster"
section = "1"
kind = "order"
statement = "Huge pages are faster."
expression = "1 < base.seconds / huge.seconds"
"#;
    let claims = claims::parse(text, "intervals.toml").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::in_folder(folder.path(), "this");
    let plain = reproduce(&claims, false, Some(&kept), &Silent).unwrap();
    let result = reproduce(&claims, true, Some(&kept), &Silent).unwrap();
    assert_eq!((plain.runs, result.runs, result.reused), (2, 6, 2), "{:?}", result.failures);
    for (claim, plain) in result.claims.iter().zip(&plain.claims) {
        assert_eq!((&claim.ours, claim.verdict, plain.around.as_ref()), (&plain.ours, plain.verdict, None));
    }
    let exact = result.claims[0].around.as_ref().unwrap();
    assert_eq!((exact.low[0], exact.high[0], exact.is_stable), (4e4, 4e4, true));
    let speedup = result.claims[1].around.as_ref().unwrap();
    let [unit, ours] = [0, 1].map(|at| (speedup.low[at], speedup.high[at]));
    assert_eq!(unit, (1.0, 1.0), "a number of the claim stays as it is");
    assert!(ours.0 < ours.1 && ours.1 < 2.0 * ours.0, "{ours:?}");
    assert_eq!(reproduce(&claims, true, Some(&kept), &Silent).unwrap().reused, 6);
}
