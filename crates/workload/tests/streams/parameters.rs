//! Parameters: each has an effect, and what is wrong is named.

use super::*;
use terrace_workload::ParameterInfo;

/// Another value for every parameter that is not covered by the tests of seed, threads and threads beside kernels: each
/// must change the stream.
#[test]
fn every_parameter_has_an_effect() {
    for (spec, info) in SMALL.iter().zip(all()) {
        let base = batches(spec);
        let elsewhere = |name: &str| ["seed", "threads"].contains(&name) || name.starts_with("cpu_");
        for parameter in info.parameters().iter().filter(|p| !elsewhere(&p.name)) {
            let value = match (info.name, parameter.name.as_str()) {
                ("gpu-btree", "keys") => "7e4",
                ("gpu-minife" | "gpu-cns", "side") => "40",
                ("gpu-comd", "side") => "8",
                ("gpu-srad" | "gpu-hotspot" | "gpu-stencil", "side") => "100",
                ("gpu-lbm", "side") => "40",
                ("gpu-hotspot", "height") => "3",
                ("gpu-spmv", "entries") => "7",
                ("gpu-spmv", "band") => "99",
                ("gpu-streamcluster", "dimensions" | "centres") => "5",
                ("gpu-stencil", "planes") => "9",
                ("gpu-sgemm", "rows") => "30",
                ("gpu-pathfinder", "rows") => "21",
                ("pb", "init") => "read-first",
                (_, "init") => "lines",
                ("slab", "bytes") => "20 MiB",
                ("svm", "moves") => "0.5",
                (_, "bytes") => "5 MiB",
                (_, "implicit" | "workspace") => "true",
                (
                    _,
                    "updates" | "accesses" | "requests" | "lookups" | "edges" | "probe" | "moves" | "build",
                ) => "900",
                ("bfs", "list") => "false",
                ("bfs", "first") => "search",
                ("slab", "keys") => "150e3",
                (_, "keys" | "elements" | "rows") => "999",
                (_, "node") => "128 B",
                ("churn", "smallest") => "128 KiB",
                ("churn", "largest") => "768 KiB",
                (_, "value" | "smallest") => "100 B",
                (_, "largest") => "1 KiB",
                (_, "at_once" | "chunked" | "apart") => "0.2",
                (_, "chunk") => "1 MiB",
                (_, "fronts" | "phases") => "2",
                ("gpu-kmeans", "features" | "clusters") => "3",
                (_, "inputs" | "nodes" | "texts" | "columns") => "9e3",
                (_, "letters") => "7",
                (_, "degree") => "3",
                (_, "points") => "999",
                (_, "features") => "4e3",
                (_, "settle") => "1e6",
                (_, "compute") => "1e7",
                (_, "allocations" | "uses") => "30",
                (_, "iterations" | "passes" | "warmup" | "nonzeros" | "edgefactor") => "5",
                (_, "width") => "8",
                (_, "scale") => "10",
                ("su3", "side") => "8",
                (_, "side") => "24",
                (_, "site") => "704 B",
                (_, "expansions" | "visits") => "900",
                (_, "walls") => "0.3",
                (_, "reads" | "preload" | "accept") => "0.1",
                (_, "zipf" | "skew") => "1.2",
                (_, "nuclides") => "90",
                (_, "gridpoints") => "300",
                (_, "sigma" | "traffic" | "hot" | "old" | "cold" | "input" | "stored") => "0.25",
                (_, "think") => "1e6",
                (_, "planes") => "12",
                (_, "timed") => "yes",
                (_, "clients") => "4",
                (_, "values") => "varied",
                (_, "popular") => "together",
                (_, "chain") => "3",
                (_, "row") => "1 KiB",
                (_, "field") => "64 B",
                (_, "line") => "hashed",
                (_, "mode") => "write",
                (_, "order") => "sequential",
                (workload, key) => panic!("{workload}: add a value for {key}"),
            };
            let mut pairs: Vec<String> = spec.split(',').map(str::to_owned).collect();
            pairs.retain(|pair| !pair.starts_with(&format!("{}=", parameter.name)));
            let changed = format!("{},{}={value}", pairs.join(","), parameter.name);
            assert!(differs(&base, &changed), "{changed}: the parameter has no effect");
        }
    }
}

#[test]
fn wrong_parameters_are_named_with_the_nearest_right_one() {
    let message = |spec: &str| open(spec).err().expect(spec).to_string();
    assert!(message("gupps").contains("did you mean \"gups\"?"));
    assert!(message("gups,byte=1 GiB").contains("did you mean \"bytes\"?"));
    assert_eq!(
        message("gups,bytes=12"),
        "workload gups: bytes = 12: expected an amount of memory with its unit, such as \"64 KiB\" or \"16 GiB\""
    );
    assert!(message("gups,updates=1.5").contains("a whole number"));
    assert!(message("gups,updates=-1").contains("a whole number"));
    assert!(message("gups,updates=nan").contains("a whole number"));
    assert!(message("gups,bytes").contains("not key=value"));
    assert!(message("gups,seed=1,seed=2").contains("twice"));
    assert_eq!(message("gups,threads=0"), "workload gups: threads = 0 is out of range: 1 to 1024");
    assert!(message("stream,width=7").contains("expected one of 8, 16, 32, 64"));
    assert!(message("kv,reads=1.5").contains("reads = 1.5 is out of range: 0.0 to 1.0"));
    assert!(message("gups,bytes=900 TiB").contains("bytes = 900 TiB is out of range: 4 KiB to 32 TiB"));
    // Bounds that other parameters set.
    assert_eq!(
        message("canneal,elements=10,threads=8"),
        "workload canneal: elements = 10: expected at least 16 with these parameters"
    );
    assert!(
        message("cg,rows=16,nonzeros=20").contains("nonzeros = 20: expected 1 to 16 with these parameters")
    );
    assert!(message("iwb,bytes=64 KiB").contains("bytes = 64 KiB: expected at least 128 KiB"));
    assert!(open("gups, bytes = 4GiB, updates=1_000_000 ,").is_ok());
    assert!(open("gups,seed=18446744073709551615").is_ok());
}

#[test]
fn defaults_parse_and_every_parameter_is_described() {
    for info in all() {
        let workload = open(info.name).unwrap();
        assert_eq!(workload.header().arguments.len(), info.parameters().len());
        assert!(info.description.contains("differs"), "{}", info.name);
        assert!(info.description.contains("Stands for"), "{}", info.name);
        for parameter in info.parameters() {
            let ParameterInfo { name, help, unit, choices, .. } = &parameter;
            assert!(!help.is_empty() && (!unit.is_empty() || !choices.is_empty()), "{}: {name}", info.name);
            assert!(choices.iter().all(|choice| !choice.help.is_empty()), "{}: {name}", info.name);
        }
    }
}

/// What a workload declares of a parameter that it shares with others.
#[test]
fn shared_parameters_are_listed_with_the_defaults_of_each_workload() {
    let parameter = |workload: &str, name: &str| {
        let info = all().iter().find(|info| info.name == workload).unwrap();
        info.parameters().into_iter().find(|parameter| parameter.name == name).unwrap()
    };
    let default = |workload, name| parameter(workload, name).default;
    assert_eq!((default("gups", "threads"), default("iwb", "threads")), ("1".to_owned(), "32".to_owned()));
    assert_eq!((default("service", "think"), default("kv", "think")), ("20000".to_owned(), "0".to_owned()));
    assert_eq!(
        (default("bfs", "edgefactor"), default("pagerank", "edgefactor")),
        ("16".to_owned(), "8".to_owned())
    );
    let init = parameter("gups", "init");
    let words: Vec<&str> = init.choices.iter().map(|choice| choice.name.as_str()).collect();
    assert_eq!((init.default.as_str(), words), ("pages", vec!["pages", "lines", "none"]));
    assert!(open("pagerank").unwrap().header().arguments.contains(&"edgefactor=8".to_owned()));
}
