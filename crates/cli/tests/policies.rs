//! Policies on the command line: first passes, comparisons over policies, advice and tuning.

mod common;
use common::{json, stderr, stdout, terrace};
use serde_json::Value;

/// A skewed input that takes a moment: 4 MiB, of which half fits in DRAM.
const KV: &str = "kv,keys=8e3,requests=4e4";
/// A shorter one, for searches of many runs.
const SHORT: &str = "kv,keys=4e3,requests=1e4";
const HALF: [&str; 6] =
    ["--machine", "xeon-5218-dcpmm", "--set", "os.reserved=0 B", "--set", "tier.dram.capacity=2 MiB"];

fn sim(design: &str) -> Value {
    let document =
        json(terrace().args(["sim", "--json", "-", "--design", design, "--workload", KV]).args(HALF));
    document["runs"][0].clone()
}

#[test]
fn the_oracle_gets_its_first_pass() {
    let (oracle, blind) = (sim("oracle"), sim("first-touch"));
    let reads = |run: &Value| run["stats"]["tier"]["dram"]["reads"].as_u64().unwrap();
    assert!(reads(&oracle) > reads(&blind), "{} <= {}", reads(&oracle), reads(&blind));

    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("study");
    stdout(
        terrace()
            .args(["compare", "first-touch", "oracle", "--workload", KV, "--no-intervals", "-o"])
            .arg(&directory)
            .args(HALF),
    );
    let text = std::fs::read_to_string(directory.join("results.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["runs"][1]["stats"], oracle["stats"], "compare gives what sim gives");
}

#[test]
fn what_runs_only_once_has_no_first_pass() {
    for command in [&["sim", "--design", "oracle"][..], &["compare", "first-touch", "oracle"]] {
        let message = stderr(terrace().args(command).args(HALF).args(["--limit", "5", "--", "true"]), 2);
        for part in ["oracle looks at its input twice", "terrace record -o app.trace --limit 5 -- true"] {
            assert!(message.contains(part), "{message}");
        }
    }
    let sim = ["sim", "--design", "oracle", "--workload", KV, "--fidelity", "pages"];
    assert!(stderr(terrace().args(sim), 2).contains("use --fidelity full"));
}

fn comparison(arguments: &[&str]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("study");
    let table = stdout(
        terrace().args(["compare", "--machine", "xeon-5218-dcpmm", "-o"]).arg(&directory).args(arguments),
    );
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let text = std::fs::read_to_string(directory.join("results.json")).unwrap();
    (serde_json::from_str(&text).unwrap(), table)
}

fn designs(document: &Value) -> Vec<&str> {
    document["runs"].as_array().unwrap().iter().map(|run| run["design"].as_str().unwrap()).collect()
}

#[test]
fn policies_stand_beside_the_all_fast_bound() {
    let arguments = [
        "--policies",
        "ambix",
        "--fast",
        "50%",
        "--price",
        "slow=0.25",
        "--hasten", // The old name is read, too.
        "10000",
        "--workload",
        KV,
    ];
    let (document, table) = comparison(&arguments);
    assert_eq!(designs(&document), ["first-touch", "ambix", "all-fast"]);
    assert_eq!(document["baseline"], "first-touch");
    let runs = document["runs"].as_array().unwrap();
    for run in runs {
        let tiering = &run["tiering"];
        let fast = tiering["tiers"][0]["share"].as_f64().unwrap();
        let cost = tiering["cost"].as_f64().unwrap();
        assert!((cost - (fast + 0.25 * (1.0 - fast))).abs() < 1e-9, "{tiering}");
    }
    assert_eq!(runs[2]["tiering"]["slowdown"], 0.0);
    assert_eq!(runs[2]["tiering"]["tiers"][0]["share"], 1.0);
    assert!(runs[0]["tiering"]["slowdown"].as_f64().unwrap() > 0.0);
    assert!(runs[1]["tiering"]["policy"]["copied_bytes"].as_u64().unwrap() > 0);
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["slowdown", "cost", "copied", "The bound, all-fast"] {
        assert!(words.contains(part), "no {part}:\n{table}");
    }
    // The command of a run repeats it, hastened periods and measured capacity included.
    let words: Vec<&str> = runs[1]["command"].as_str().unwrap().split(' ').skip(1).collect();
    let shell = format!("{} {} --json -", assert_cmd::cargo::cargo_bin("terrace").display(), words.join(" "));
    let output = std::process::Command::new("sh").args(["-c", &shell]).output().unwrap();
    let alone: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(alone["runs"][0]["stats"], runs[1]["stats"]);
}

#[test]
fn a_setting_is_for_one_design_where_it_names_one() {
    let policies = ["--policies", "ambix,nimble", "--workload", KV];
    // Nimble knows no delay, and both a period.
    let own = ["--set", "ambix:os.policy.delay=2ms", "--set", "nimble:os.policy.period=3ms"];
    let (document, _) =
        comparison(&[&policies[..], &own, &["--set", "os.fault_cost=900ns", "--no-intervals"]].concat());
    assert_eq!(designs(&document), ["first-touch", "ambix", "nimble", "all-fast"]);
    let parameter = |at: usize, key: &str| document["runs"][at]["parameters"][key].clone();
    assert_eq!(parameter(1, "os.policy.delay"), "2ms");
    assert_eq!(parameter(1, "os.policy.period"), "2 s");
    assert_eq!(parameter(2, "os.policy.period"), "3ms");
    for at in 0..4 {
        assert_eq!(parameter(at, "os.fault_cost"), "900ns");
    }
    let command = document["runs"][1]["command"].as_str().unwrap();
    assert!(command.contains("--set os.policy.delay=2ms") && !command.contains("period"), "{command}");

    let base = ["compare", "--machine", "xeon-5218-dcpmm"];
    let cases: [(&[&str], &str); 3] = [
        (&["--set", "os.policy.delay=2ms"], "first-touch has no policy in os.policy; name the design"),
        (
            &["--set", "tpp:os.policy.period=1s"],
            "called \"tpp\"; there are first-touch, ambix, nimble, all-fast",
        ),
        (&["--set", "nimble:os.policy.delay=2ms"], "nimble has no parameter \"delay\""),
    ];
    for (arguments, part) in cases {
        let message = stderr(terrace().args(base).args(policies).args(arguments), 2);
        assert!(message.contains(part), "{arguments:?} should say {part:?}:\n{message}");
    }
    let advise = ["advise", "--machine", "xeon-5218-dcpmm", "--workload", KV, "--policies", "ambix"];
    let message = stderr(terrace().args(advise).args(["--set", "tpp:os.policy.period=1s"]), 2);
    assert!(message.contains("called \"tpp\"; there are ambix, all-fast"), "{message}");
    let message = stderr(terrace().args(["sim", "--design", "ambix", "--set", "tpp:os.pages=2m"]), 2);
    assert!(message.contains("called \"tpp\"; there is ambix"), "{message}");
}

#[test]
fn several_shares_are_a_sweep() {
    let (document, table) =
        comparison(&["--policies", "tpp", "--fast", "25%,50%", "--workload", KV, "--no-intervals"]);
    assert_eq!(designs(&document), ["first-touch@25%", "first-touch@50%", "tpp@25%", "tpp@50%", "all-fast"]);
    let slowdown = |at: usize| document["runs"][at]["tiering"]["slowdown"].as_f64().unwrap();
    assert!(slowdown(0) > slowdown(1), "less fast memory is slower");
    assert!(table.contains("Fastest on kv by share of fast memory"), "{table}");
    // The default periods are of seconds, the run is of milliseconds.
    assert!(table.contains("too few to judge it by"), "{table}");
}

#[test]
fn wrong_questions_about_tiers_say_what_would_be_right() {
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--fast", "50%"], &["--fast needs policies", "--policies ambix"]),
        (&["--policies", "ambx"], &["ambx", "did you mean \"ambix\"?"]),
        (&["--policies", "ambix", "--fast", "0%"], &["page tables"]),
        (&["--policies", "ambix", "--fast", "half"], &["such as 3%"]),
        (&["--policies", "ambix", "--price", "slow"], &["slow=0.33"]),
        (&["--policies", "ambix", "--price", "dram=2"], &["relative to dram's"]),
        (&["--policies", "ambix", "--price", "cxl=2"], &["no such tier", "dcpmm"]),
        (&["--policies", "ambix", "--fast", "50%", "--set", "tier.dram.capacity=16 GiB"], &["both size"]),
    ];
    for (arguments, parts) in cases {
        let base = ["compare", "--machine", "xeon-5218-dcpmm", "--workload", KV];
        let message = stderr(terrace().args(base).args(arguments), 2);
        for part in parts {
            assert!(message.contains(part), "{arguments:?} should say {part:?}:\n{message}");
        }
    }
    let live = ["compare", "--policies", "ambix", "--fast", "50%", "--", "true"];
    assert!(
        stderr(terrace().args(live), 2)
            .contains("--fast reads its input twice, and a live command runs only once")
    );
}

#[test]
fn advice_keeps_within_the_slowdown_and_repeats() {
    let question = [
        "advise",
        "--slowdown",
        "8%",
        "--price",
        "slow=0.25",
        "--machine",
        "xeon-5218-dcpmm",
        "--time-scale",
        "20000",
    ];
    let search = [
        "--policies",
        "first-touch,ambix,memory-mode",
        "--resolution",
        "10%",
        "--seeds",
        "2",
        "--workload",
        SHORT,
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("advice.json");
    let screen = stdout(terrace().args(question).args(search).arg("--json").arg(&file));
    let document: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["schema"], 1);
    let advice = &document["advice"];
    let of = |key: &str| advice[key].as_f64().unwrap();
    assert!(of("slowdown") <= 0.08 && of("slow_share") > 0.0, "{advice}");
    assert!((of("cost") + of("saving") - 1.0).abs() < 1e-9);
    let policies = document["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 3);
    for policy in policies {
        if let Some(slower) = policy["too_small_slowdown"].as_f64() {
            assert!(slower > 0.08, "{policy}");
        }
    }
    // In memory mode all memory is slow, and the fast tier comes on top.
    if let Some(answer) = policies[2]["answer"].as_object() {
        assert_eq!(answer["slow_share"], 1.0);
        assert!(answer["cost"].as_f64().unwrap() > 0.25);
    }
    let seeds = document["uncertainty"]["seeds"].as_array().unwrap();
    assert_eq!(seeds.len(), 2);
    assert_ne!(seeds[0]["slowdown"], seeds[1]["slowdown"], "another seed is another input");
    let ends: Vec<f64> =
        advice["slowdown_interval"].as_array().unwrap().iter().map(|end| end.as_f64().unwrap()).collect();
    assert!(ends[0] < of("slowdown") && of("slowdown") < ends[1], "{ends:?}");
    let again = json(terrace().args(question).args(search).args(["--json", "-"]));
    assert_eq!(again, document, "the same question has the same answer");

    let lines: Vec<&str> = screen.lines().take_while(|line| !line.starts_with("See it:")).collect();
    assert!(lines.len() <= 30 && lines.iter().all(|line| line.chars().count() <= 80), "{screen}");
    for part in ["can be slow", "saves", "Seeds:", "Search:", "Interval:", "Time scale:"] {
        assert!(screen.contains(part), "no {part}:\n{screen}");
    }
}

#[test]
fn advice_on_a_run_shorter_than_the_periods_says_so() {
    let arguments =
        ["advise", "--policies", "ambix", "--resolution", "50%", "--seeds", "1", "--workload", KV];
    let screen = stdout(terrace().args(arguments));
    assert!(screen.contains("Too short:") && screen.contains("try --time-scale"), "{screen}");
    assert!(!screen.contains("saves"), "no price, no saving:\n{screen}");
}

#[test]
fn a_live_command_is_recorded_once_for_advice() {
    let arguments =
        ["advise", "--policies", "first-touch", "--resolution", "50%", "--json", "-", "--limit", "200000"];
    let document = json(terrace().args(arguments).args(["--", "sort", "-o", "/dev/null", "/etc/passwd"]));
    assert_eq!(document["input"], "sort");
    assert!(document["resident_bytes"].as_u64().unwrap() > 0);
    assert!(document["command"].is_null(), "the trace is gone");
}

#[test]
fn wrong_questions_for_advice_say_what_would_be_right() {
    let cases: [(&[&str], &[&str]); 7] = [
        (&[], &["no input", "after --"]),
        (&["--slowdown", "3"], &["such as 3%"]),
        (&["--policies", "ambx", "--workload", KV], &["did you mean \"ambix\"?"]),
        (&["--price", "fast=1", "--workload", KV], &["no such tier", "cxl"]),
        (&["--resolution", "0%", "--workload", KV], &["between 0.1% and 50%"]),
        (&["--set", "tier.dram.capacity=16 GiB", "--workload", KV], &["is what advise searches"]),
        (&["--fidelity", "pages", "--workload", KV], &["--fidelity full"]),
    ];
    for (arguments, parts) in cases {
        let message = stderr(terrace().arg("advise").args(arguments), 2);
        for part in parts {
            assert!(message.contains(part), "{arguments:?} should say {part:?}:\n{message}");
        }
    }
}

#[test]
fn tuning_repeats_gains_and_says_what_it_was_not_tuned_on() {
    let search =
        ["tune", "hemem", "--machine", "xeon-5218-dcpmm", "--time-scale", "1000", "--workload", SHORT];
    let tune = |runs: &str, more: &[&str]| {
        json(terrace().args(search).args(["--runs", runs]).args(more).args(["--json", "-"]))
    };
    let narrow = [
        "--parameter",
        "period,headroom",
        "--range",
        "period=1 ms..1 s",
        "--check",
        "gups,bytes=1 MiB,updates=1e4",
    ];
    let document = tune("6", &narrow);
    assert_eq!(document["schema"], 1);
    assert_eq!(tune("6", &narrow), document, "the same search finds the same");
    let objective = |which: &str| document[which]["objective"].as_f64().unwrap();
    assert!(objective("tuned") <= objective("default"), "the defaults are among what is tried");
    let gain = document["gain"].as_f64().unwrap();
    assert!((gain - (1.0 - objective("tuned") / objective("default"))).abs() < 1e-12);
    let ends = ["gain_low", "gain_high"].map(|end| document[end].as_f64());
    if let [Some(low), Some(high)] = ends {
        assert!(low < gain && gain < high, "{low} {gain} {high}");
    }
    assert_eq!(ends[0].is_some(), gain > 0.0, "the defaults have no gain over themselves");
    let parameters = document["parameters"].as_array().unwrap();
    let mut names: Vec<&str> = parameters.iter().map(|one| one["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["headroom", "period"]);
    for parameter in parameters {
        assert!(!parameter["sensitivity"].as_array().unwrap().is_empty(), "{parameter}");
    }
    // What is better than the tuned setting would be the tuned setting, also where the search tried nothing.
    let alone = tune("1", &narrow);
    for document in [&document, &alone] {
        let tried = document["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|one| one["sensitivity"].as_array().unwrap());
        let least = tried.filter_map(|one| one["change"].as_f64()).fold(0.0, f64::min);
        assert!(least >= -0.002, "{document:#}");
    }
    assert_eq!(document["checks"].as_array().unwrap().len(), 1);
    let other = tune("1", &["--parameter", "period,headroom", "--seed", "2"]);
    assert_eq!(other["checks"].as_array().unwrap().len(), 2, "other seeds of the workload stand in");

    // The setting does in `compare` what it was said to do.
    let seconds = document["tuned"]["seconds_simulated"].as_f64().unwrap();
    let sets = document["command"].as_str().unwrap();
    let terrace = assert_cmd::cargo::cargo_bin("terrace");
    let resident = document["resident_bytes"].as_u64().unwrap();
    let fast = (resident / 2).next_multiple_of(4096);
    let shell = format!(
        "{} sim --design hemem --machine xeon-5218-dcpmm --time-scale 1000 --set 'os.reserved=0 B' \
         --set 'tier.dram.capacity={fast} B' {sets} --workload {SHORT} --json -",
        terrace.display()
    );
    let output = std::process::Command::new("sh").args(["-c", &shell]).output().unwrap();
    let alone: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(alone["runs"][0]["seconds_simulated"].as_f64(), Some(seconds));
}

#[test]
fn tuning_shows_a_screen_and_refuses_contradictory_settings() {
    let search = [
        "tune",
        "ambix",
        "--machine",
        "xeon-5218-dcpmm",
        "--time-scale",
        "20000",
        "--runs",
        "2",
        "--workload",
        SHORT,
    ];
    let screen = stdout(terrace().args(search).args(["--slowdown", "30%", "--price", "slow=0.3"]));
    let lines = screen.lines().take_while(|line| !line.contains("se it:") && !line.contains("try it:"));
    assert!(lines.into_iter().all(|line| line.chars().count() <= 80), "{screen}");
    let screen = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["price of the memory in use", "defaults", "tuned", "gain", "alone", "not tuned on", "Time scale:"]
    {
        assert!(screen.contains(part), "no {part}:\n{screen}");
    }
}

#[test]
fn wrong_searches_say_what_would_be_right() {
    let cases: [(&[&str], &[&str]); 9] = [
        (&[], &["POLICY"]),
        (&["ambx", "--workload", KV], &["did you mean \"ambix\"?"]),
        (&["ambix"], &["no input", "after --"]),
        (&["ambix", "--parameter", "perid", "--workload", KV], &["no parameter \"perid\"", "period"]),
        (&["ambix", "--range", "period=1 s", "--workload", KV], &["LOW..HIGH"]),
        (&["ambix", "--range", "period=2 s..1 s", "--workload", KV], &["the lower first"]),
        (&["ambix", "--check", "/no/such.trace", "--workload", KV], &["/no/such.trace"]),
        (&["first-touch", "--workload", KV], &["no parameters to search"]),
        (&["thermostat", "--parameter", "rounds", "--workload", KV], &["neither a number nor a switch"]),
    ];
    for (arguments, parts) in cases {
        let message = stderr(terrace().arg("tune").args(arguments), 2);
        for part in parts {
            assert!(message.contains(part), "{arguments:?} should say {part:?}:\n{message}");
        }
    }
}

/// Two runs beside each other, of which one places by a probe of the machine: nobody named a ratio.
#[test]
fn a_comparison_probes_the_machine_where_a_design_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let design = |name: &str, weights: &str| {
        let file = folder.path().join(format!("{name}.toml"));
        let text = format!(
            "name = \"{name}\"\nsummary = \"bw-aware\"\nextends = \"gpu-local\"\n[os.policy]\nname = \"bw-aware\"\nweights = \"{weights}\"\n"
        );
        std::fs::write(&file, text).unwrap();
        file
    };
    let mut compare = terrace();
    compare.current_dir(folder.path()).arg("compare");
    compare.arg(design("given", "194,76.7")).arg(design("probed", "probe"));
    let found = json(compare.args(["--no-intervals", "--workload", "gpu-stream,bytes=24MiB", "--json", "-"]));
    let runs = found["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "{found}");
    let notes = runs.iter().map(|run| run["notes"].to_string()).collect::<Vec<_>>();
    assert!(
        !notes[0].contains("probe") && notes[1].contains("as the probe measured, gddr has 193."),
        "{notes:?}"
    );
    let [given, probed] = [0, 1].map(|at| runs[at]["cycles"].as_f64().unwrap());
    assert!((given / probed - 1.0).abs() < 0.03, "{given} and {probed}");
}
