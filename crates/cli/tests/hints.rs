//! Hints by allocation site: a profile of one input, taken by runs on another.

mod common;

use common::{json, stderr, stdout, terrace};
use std::path::Path;

/// Two structures, the first of which is used more; each is allocated in a line of its own.
const PROGRAM: &str = r#"#include <stdlib.h>
int main(int argc, char **argv) {
    size_t n = 1 << atoi(argv[1]);
    unsigned *hot = malloc(n * sizeof *hot);
    unsigned *cold = calloc(4 * n, sizeof *cold);
    for (size_t i = 0; i < n; i++) hot[i] = i * 2654435761u;
    unsigned sum = 0;
    for (int round = 0; round < 6; round++)
        for (size_t i = 0; i < n; i++) sum += hot[hot[i] % n];
    for (size_t i = 0; i < n; i++) cold[sum % (4 * n)] += sum++;
    return cold[0] == 1;
}
"#;

fn compile(folder: &Path) -> std::path::PathBuf {
    let program = folder.join("tables");
    common::compile(&program, PROGRAM, &["-O1", "-g"]);
    program
}

#[test]
fn a_program_is_profiled_on_one_input_and_placed_by_it_on_another() {
    let folder = tempfile::tempdir().unwrap();
    let (program, file) = (compile(folder.path()), folder.path().join("hints.toml"));
    let said = stderr(terrace().arg("profile").arg("-o").arg(&file).arg("--").arg(&program).arg("14"), 0);
    assert!(said.contains("tables.c:4") && said.contains("tables.c:5"), "{said}");
    let hints = terrace_hints::Hints::read(&file).unwrap();
    let site = |line: &str| hints.sites.iter().find(|site| site.line == line).unwrap();
    let (hot, cold) = (site("tables.c:4"), site("tables.c:5"));
    assert_eq!((hot.bytes, cold.bytes), (4 << 14, 16 << 14));
    assert_eq!((hot.issued.reads, hot.issued.writes), ((2 * 6) << 14, 1 << 14));
    assert_eq!((cold.issued.reads, cold.issued.writes), (1 + (1 << 14), 1 << 14));
    let (one, other) = (hot.place.as_ref().unwrap(), cold.place.as_ref().unwrap());
    assert_eq!((one.module.as_str(), &one.build_id), ("tables", &other.build_id));
    assert!(!one.build_id.is_empty() && one.offset < other.offset);

    // A larger input, which a live command is: no first pass. The fast tier holds the hot structure and little more.
    let run = |more: &[&str]| {
        let mut command = terrace();
        command.args(["sim", "--design", "annotated", "--machine", "zen4-cxl", "--json", "-"]);
        command.args(["--set", "tier.dram.capacity=\"3 MiB\"", "--set", "os.reserved=\"0 B\""]);
        command.args(["--set", "os.policy.growth=16.0", "--set", "os.policy.straddling=skip"]);
        command.arg("--hints").arg(&file).args(more);
        json(command.arg("--").arg(&program).arg("18"))
    };
    let document = run(&["--allocations"]);
    let notes = document["runs"][0]["notes"].to_string();
    assert!(notes.contains("hint BO, in the fast tier: main+"), "{notes}");
    // The hot structure has 1 MiB, all of it in the fast tier.
    let stats = document["runs"][0]["stats"].to_string();
    let (_, after) = stats.split_once("hinted_fast").unwrap();
    let digits: String =
        after.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    assert!((256..=257).contains(&digits.parse::<u64>().unwrap()), "{stats}");
    // Hints of another program: a note says so.
    let text = std::fs::read_to_string(&file).unwrap().replace("name = \"", "name = \"other_");
    std::fs::write(&file, text).unwrap();
    let notes = run(&["--allocations"])["runs"][0]["notes"].to_string();
    assert!(
        notes.contains("data structures that the hints name was touched: are the hints of this program?"),
        "{notes}"
    );
}

/// Rows of the heat map say in which line a structure is allocated, as long as the program is the one that was recorded.
#[test]
fn reports_name_the_line_that_allocates() {
    let folder = tempfile::tempdir().unwrap();
    let (program, trace) = (compile(folder.path()), folder.path().join("tables.trace"));
    terrace()
        .args(["record", "--allocations", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .arg("16")
        .assert()
        .success();
    let lines = || {
        let mut command = terrace();
        command.current_dir(folder.path());
        command.args([
            "compare",
            "native-4k",
            "--fidelity",
            "pages",
            "--no-intervals",
            "--json",
            "-",
            "--trace",
        ]);
        let document = json(command.arg(&trace));
        let rows = document["inputs"][0]["heat"]["rows"].as_array().unwrap().clone();
        let line = |row: &serde_json::Value| {
            Some((row["name"].as_str()?.to_owned(), row["line"].as_str()?.to_owned()))
        };
        rows.iter().filter_map(line).collect::<std::collections::BTreeSet<_>>()
    };
    let found = lines();
    let named: Vec<&str> = found.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(named, ["tables.c:4", "tables.c:5"], "{found:?}");
    assert!(found.iter().all(|(name, _)| name.starts_with("main+0x")), "{found:?}");
    let advise = |more: &[&str]| {
        let mut command = terrace();
        command.current_dir(folder.path());
        command.args(["advise", "--pages", "--fidelity", "translation", "--policies", "thp"]).args(more);
        command.arg("--trace").arg(&trace);
        command
    };
    let document = json(&mut advise(&["--json", "-"]));
    let regions = document["regions"].as_array().unwrap();
    let touched = |site: &str| {
        regions.iter().find(|one| one["line"] == site).and_then(|one| one["touched_bytes"].as_u64()).unwrap()
    };
    assert_eq!(touched("tables.c:4"), 256 << 10);
    // A quarter of what was allocated, and the page of its first byte.
    assert!((256 << 10..=272 << 10).contains(&touched("tables.c:5")));
    let text = stdout(&mut advise(&[]));
    let shown = text.lines().find(|line| line.ends_with("  tables.c:5"));
    assert!(shown.is_some_and(|line| line.starts_with("main+0x")), "{text}");
    // The program's bytes are unchanged, but nobody can know that.
    std::fs::File::open(&program).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    assert_eq!(lines().len(), 0);
}

/// A container's header allocates; who wants to know looks for the container.
#[test]
fn the_line_is_the_programs_own_where_a_header_allocates() {
    let folder = tempfile::tempdir().unwrap();
    let (program, file) = (folder.path().join("list"), folder.path().join("hints.toml"));
    let text = r#"#include <stdlib.h>
#line 137 "/usr/include/allocator.h"
static inline __attribute__((always_inline)) char *allocate(size_t n) { return malloc(n); }
#line 3 "list.c"
int main(void) {
    volatile char *list = allocate(1 << 20);
    for (int i = 0; i < 1 << 20; i += 64) list[i] = 1;
    return 0;
}
"#;
    common::compile(&program, text, &["-O1", "-g"]);
    stderr(terrace().arg("profile").arg("-o").arg(&file).arg("--").arg(&program), 0);
    let hints = terrace_hints::Hints::read(&file).unwrap();
    let largest = hints.sites.iter().max_by_key(|site| site.bytes).unwrap();
    assert_eq!((largest.bytes, largest.line.as_str()), (1 << 20, "list.c:4"));
}

#[test]
fn what_cannot_be_is_said_in_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hints.toml");
    let path = file.to_str().unwrap();
    let small = "gups,bytes=1MiB,updates=1e4";
    let said = stderr(terrace().args(["profile", "-o", path, "--workload", small]), 0);
    assert!(said.contains("1 of 1 sites were found in no file"), "{said}");
    let sim = |design: &str, hints: &str| {
        let mut command = terrace();
        command.args(["sim", "--design", design, "--workload", small, "--hints", hints]);
        command
    };
    sim("annotated", path).assert().success();
    let refused = stderr(&mut sim("native-4k", path), 2);
    assert!(refused.contains("no design here places data structures by hints"), "{refused}");
    assert_eq!(refused.lines().count(), 1);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("loads", "lods")).unwrap();
    let wrong = stderr(&mut sim("annotated", path), 2);
    assert!(wrong.contains("hints.toml:") && wrong.contains("unknown field `lods`"), "{wrong}");
    let missing = stderr(&mut sim("annotated", "nofile"), 2);
    assert!(
        missing.contains("--hints nofile: No such file") && missing.contains("terrace profile -o nofile"),
        "{missing}"
    );
    let nowhere = stderr(terrace().args(["profile", "-o", "/no/such/folder/h.toml", "--workload", small]), 2);
    assert!(nowhere.contains("/no/such/folder/h.toml: its parent directory does not exist"), "{nowhere}");
}

/// Where the machine has one tier, the refusal comes before the command starts; where it has two, its sites are unknown.
#[test]
fn a_live_run_names_the_file_and_what_is_wrong() {
    let said =
        stderr(terrace().args(["run", "--hints", "/no/such/hints.toml", "--", "touch", "/no/such/x"]), 2);
    assert!(said.starts_with("terrace: /no/such/hints.toml: No such file"), "{said}");
    assert_eq!(said.lines().count(), 1);
}
