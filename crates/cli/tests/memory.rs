//! `terrace memory`, runs on a saved memory, and pictures of memory.

mod common;
use common::{json, stderr, stdout, terrace};
use std::path::Path;

/// Keys of a small memory that can be saved and used.
const SETS: [&str; 8] = [
    "--set",
    "tier.dram.capacity=256 MiB",
    "--set",
    "os.reserved=0 B",
    "--set",
    "os.memory.free_lists=last-freed-first",
    "--set",
    "os.memory.grouping=true",
];
const AGING: [&str; 4] = ["--set", "os.memory.aging.kind=builds", "--set", "os.memory.aging.kernel=0.02"];
const INPUT: [&str; 2] = ["--workload", "gups,bytes=32 MiB,updates=2e4"];

fn age(folder: &Path, file: &str) -> String {
    let mut command = terrace();
    command.current_dir(folder).args(["memory", "age", "-o", file]).args(SETS).args(AGING);
    stdout(&mut command)
}

#[test]
fn the_example_of_the_help_can_be_pasted() {
    let help = stdout(terrace().args(["memory", "--help"]));
    let example =
        help.split_once("Examples:\n").map(|(_, rest)| rest.split("\n\n").next().unwrap_or_default());
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("example.sh");
    std::fs::write(&script, example.expect("the help has examples")).unwrap();
    let command = terrace();
    let built = Path::new(command.get_program()).parent().unwrap();
    let path = std::env::join_paths([built, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let mut shell = std::process::Command::new("sh");
    let output = shell.arg("-e").arg(&script).current_dir(folder.path()).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("FMFI") && said.contains("gups"), "{said}");
    assert!(folder.path().join("aged.svg").exists());
}

#[test]
fn a_memory_is_aged_once_and_the_same_as_one_that_ages_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let said = age(folder.path(), "aged.mem");
    assert!(said.contains("FMFI") && said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let shown = terrace().current_dir(folder.path()).args(["memory", "show", "aged.mem"]).assert().success();
    assert_eq!(String::from_utf8_lossy(&shown.get_output().stdout), said);

    let document =
        json(terrace().args(["memory", "show", "--json", "-"]).arg(folder.path().join("aged.mem")));
    assert_eq!((&document["machine"], &document["tier"]), (&"zen4-cxl".into(), &"dram".into()));
    assert!(said.starts_with("aged.mem: 256.00 MiB of memory, tier dram of zen4-cxl\n"), "{said}");
    assert_eq!(document["frames"], 65_536);
    let held = ["free", "kernel", "cached"].map(|key| document[key].as_u64().unwrap());
    assert_eq!(held.iter().sum::<u64>(), 65_536);
    assert_eq!(document["orders"].as_array().unwrap().len(), 19);

    let run = |sets: &[&str]| {
        let mut command = terrace();
        command.current_dir(folder.path()).args(["sim", "--design", "native-thp", "--json", "-"]).args(INPUT);
        json(command.args(SETS).args(sets))["runs"][0]["stats"].clone()
    };
    let file = ["--set", "os.memory.aging.kind=snapshot", "--set", "os.memory.aging.file=aged.mem"];
    assert_eq!(run(&file), run(&AGING));
    assert_ne!(run(&file), run(&[]), "age shows");
}

#[test]
fn files_that_cannot_be_used_are_wrong_usage_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    age(folder.path(), "aged.mem");
    let good = std::fs::read(folder.path().join("aged.mem")).unwrap();
    std::fs::write(folder.path().join("text.mem"), "frames").unwrap();
    std::fs::write(folder.path().join("cut.mem"), &good[..good.len() / 2]).unwrap();
    for (file, sets, part) in [
        ("none.mem", &SETS[..], "there is no such file"),
        ("text.mem", &SETS, "not a saved memory, or it is damaged"),
        ("cut.mem", &SETS, "damaged"),
        ("aged.mem", &SETS[2..], "set tier.dram.capacity"),
        ("aged.mem", &SETS[..6], "grouping true"),
    ] {
        let mut command = terrace();
        command.current_dir(folder.path()).args(["sim", "--design", "native-4k"]).args(INPUT).args(sets);
        command.args(["--set", "os.memory.aging.kind=snapshot", "--set"]);
        let message = stderr(command.arg(format!("os.memory.aging.file={file}")), 2);
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(file) && message.contains(part), "{file}: {message}");
        assert!(message.contains("terrace memory age"), "{message}");
    }
    let nothing = stderr(terrace().current_dir(folder.path()).args(["memory", "age", "-o", "x.mem"]), 2);
    assert!(nothing.contains("os.memory.aging.kind=") && !folder.path().join("x.mem").exists(), "{nothing}");
    let missing = stderr(terrace().args(["memory", "show", "/no/such.mem"]), 2);
    assert!(missing.contains("/no/such.mem") && missing.contains("terrace memory age"), "{missing}");
}

#[test]
fn pictures_show_holders_and_are_the_same_every_time() {
    let folder = tempfile::tempdir().unwrap();
    age(folder.path(), "aged.mem");
    let draw = |name: &str| {
        let mut command = terrace();
        command.current_dir(folder.path()).args(["sim", "--design", "native-thp", "--memory-map", name]);
        stdout(command.args(INPUT).args(SETS).args(AGING));
        std::fs::read_to_string(folder.path().join(name)).unwrap()
    };
    let svg = draw("one.svg");
    assert_eq!(svg, draw("two.svg"));
    for part in
        ["dram, before the program", "dram, after ", "kernel: ", "page tables: ", "table:", "2m 32 MiB"]
    {
        assert!(svg.contains(part), "no {part:?} in the picture");
    }
    stdout(terrace().current_dir(folder.path()).args(["memory", "show", "aged.mem", "--svg", "aged.svg"]));
    let svg = std::fs::read_to_string(folder.path().join("aged.svg")).unwrap();
    assert!(svg.contains("as it was saved") && svg.contains("kernel: "));
}

#[test]
fn placement_maps_show_what_a_policy_did_and_are_the_same_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |name: &str| {
        let mut command = terrace();
        command.current_dir(folder.path()).args(["sim", "--design", "nimble", "--placement-map", name]);
        command.args(["--machine", "xeon-5218-dcpmm", "--set", "os.policy.period=1 ms"]);
        command.args(["--set", "tier.dram.capacity=4 MiB", "--set", "os.reserved=0 B"]);
        stdout(command.args(["--workload", "pmbench,bytes=16 MiB,sigma=0.02,phases=2,accesses=2e5"]));
        std::fs::read_to_string(folder.path().join(name)).unwrap()
    };
    let svg = draw("one.svg");
    assert_eq!(svg, draw("two.svg"));
    for part in ["nimble on pmbench", "4.00 MiB of dram", "that dram serves: ", "promoted, ", "dcpmm"] {
        assert!(svg.contains(part), "no {part:?} in {svg}");
    }
    assert!(svg.len() < 30_000 && !svg.contains("promoted, 0 in all"), "{svg}");
}
