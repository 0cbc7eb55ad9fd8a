//! Results that are found under folders: which of them can be shown, and what is said of the rest.

use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use terrace_view::{Kind, Library};

fn results(design: &str) -> String {
    json!({
        "schema": 2,
        "runs": [{
            "design": design, "machine": "m", "input": "gups", "fidelity": "full", "accesses": 10,
            "seconds_simulated": 0.5, "stats": { "walk": { "count": 3 } }, "parameters": {},
        }],
        "title": format!("{design} on gups"),
    })
    .to_string()
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn names(library: &Library) -> Vec<String> {
    let root = &library.catalog().roots[0];
    let relative = |path: &String| path.strip_prefix(root).unwrap_or(path).trim_start_matches('/').to_owned();
    library.catalog().sets.iter().map(|set| relative(&set.path)).collect()
}

/// As a sweep keeps a run.
fn kept(workload: &str, latency: &str) -> String {
    json!({
        "identity": format!("terrace 0.1.0\nworkload {workload}\nnative-4k\n"), "design": "native-4k",
        "design_summary": "", "machine": "m", "input": "gups", "fidelity": "full", "scale": 1, "seed": null,
        "accesses": 7, "instructions": 9, "cycles": 11, "seconds_simulated": "0.25", "wall_seconds": "1",
        "command": "terrace sim", "left_out": [], "notes": [],
        "parameters": [["core.count", "1"], ["translation.l2.latency", latency]],
        "stats": { "walk.count": { "unit": "count", "integer": 3 } },
    })
    .to_string()
}

#[test]
fn results_are_found_at_any_depth_and_other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "results.json", &results("a"));
    write(folder.path(), "deep/er/one.json", &results("b"));
    write(folder.path(), ".hidden/results.json", &results("c"));
    write(folder.path(), "claims.json", "{\"schema\": 1, \"claims\": []}");
    write(folder.path(), "package.json", "{\"name\": \"x\"");
    write(folder.path(), "notes.txt", &results("d"));
    std::os::unix::fs::symlink(folder.path(), folder.path().join("deep/loop")).unwrap();
    let library = Library::open(vec![folder.path().to_owned()]).unwrap();
    assert_eq!(names(&library), ["deep/er/one.json", "results.json"]);
    assert!(library.catalog().problems.is_empty(), "{:?}", library.catalog().problems);
    let set = &library.catalog().sets[1];
    assert_eq!(
        (set.kind, set.title.as_str(), set.runs[0].design.as_str()),
        (Kind::Results, "a on gups", "a")
    );
    // A file that is named twice, by itself and by its folder, is there once.
    let roots = vec![folder.path().to_owned(), folder.path().join("results.json")];
    assert_eq!(Library::open(roots).unwrap().catalog().sets.len(), 2);
}

#[test]
fn a_folder_that_is_not_there_is_an_error_and_an_empty_one_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let error = Library::open(vec![folder.path().join("none")]).unwrap_err().to_string();
    assert!(error.contains("none: No such file"), "{error}");
    let library = Library::open(vec![folder.path().to_owned()]).unwrap();
    assert!(library.catalog().sets.is_empty() && library.catalog().problems.is_empty());
    assert!(terrace_view::export(&library).contains("\"sets\":[]"));
}

#[test]
fn what_is_damaged_is_named_and_the_rest_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "good/results.json", &results("a"));
    write(folder.path(), "cut/results.json", &results("a")[..50]);
    write(folder.path(), "empty/results.json", "");
    write(folder.path(), "foreign/results.json", "{\"accuracy\": 1}");
    write(folder.path(), "newer/results.json", "{\"schema\": 99, \"runs\": []}");
    fs::write(write(folder.path(), "bytes/results.json", ""), b"{\"schema\"\xff").unwrap();
    let library = Library::open(vec![folder.path().to_owned()]).unwrap();
    assert_eq!(names(&library), ["good/results.json"]);
    let problems = &library.catalog().problems;
    let message = |name: &str| {
        let path = folder.path().join(name).join("results.json").display().to_string();
        problems.iter().find(|one| one.path == path).map(|one| one.message.clone()).unwrap_or_default()
    };
    assert_eq!(problems.len(), 5);
    assert!(message("cut").contains("line 1 column 50; the file is damaged, or still being written"));
    assert!(message("empty").contains("damaged"));
    assert!(message("foreign").contains("no results of Terrace"));
    assert!(message("newer").contains("schema 99 is newer"));
    assert!(message("bytes").contains("UTF-8"), "{}", message("bytes"));
    // What a live run wrote for programs is Terrace's, though the page cannot show it.
    let live =
        r#"{"policy":"thp","parameters":{},"choices":[],"accesses":"none","statistics":{},"notes":[]}"#;
    let live = Library::open(vec![write(folder.path(), "live.json", live)]).unwrap();
    let said = &live.catalog().problems[0].message;
    assert!(said.contains("one live run") && said.contains("--report DIR"), "{said}");
    // A file that is named is reported whatever its name is.
    let other = write(folder.path(), "x.json", "{}");
    assert_eq!(Library::open(vec![other]).unwrap().catalog().problems.len(), 1);
}

#[test]
fn a_sweep_is_one_set_whose_runs_are_distinguished_by_what_varies() {
    let folder = tempfile::tempdir().unwrap();
    let gups = "gups,bytes=16 MiB";
    write(folder.path(), "sweep/runs/0123456789abcdef.json", &kept(gups, "9 cycles"));
    write(folder.path(), "sweep/runs/0123456789abcdff.json", &kept(gups, "18 cycles"));
    write(folder.path(), "sweep/runs/0123456789abcd00.json", "{\"identity\": ");
    let library = Library::open(vec![folder.path().to_owned()]).unwrap();
    let [set] = library.catalog().sets.as_slice() else { panic!("{:?}", library.catalog()) };
    assert_eq!((set.kind, set.runs.len()), (Kind::Sweep, 2));
    assert!(set.runs.iter().all(|run| run.input == gups && run.seconds == Some(0.25)));
    let values: Vec<_> = set.runs.iter().flat_map(|run| run.values.clone()).collect();
    let value = |text: &str| ("translation.l2.latency".to_owned(), text.to_owned());
    assert_eq!(values, [value("9 cycles"), value("18 cycles")], "what all have is not said");
    let document: serde_json::Value =
        serde_json::from_str(&library.document(set.id).unwrap().unwrap()).unwrap();
    assert_eq!(document["runs"][1]["stats"]["walk"]["count"], 3);
    assert_eq!(document["runs"][1]["parameters"]["translation.l2.latency"], "18 cycles");
}

#[test]
fn a_second_look_sees_what_is_new_changed_and_gone_and_numbers_stay() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(folder.path(), "b/results.json", &results("a"));
    let mut library = Library::open(vec![folder.path().to_owned()]).unwrap();
    let id = library.catalog().sets[0].id;
    assert!(!library.look(), "nothing has changed");
    write(folder.path(), "a/results.json", &results("new"));
    assert!(library.look());
    let ids: Vec<u32> = library.catalog().sets.iter().map(|set| set.id).collect();
    assert_eq!(ids, [id + 1, id]);
    fs::write(&first, results("another name")).unwrap();
    assert!(library.look());
    assert_eq!(library.catalog().sets[1].runs[0].design, "another name");
    fs::remove_file(&first).unwrap();
    assert!(library.look());
    assert_eq!(names(&library), ["a/results.json"]);
    assert!(library.document(id).is_none());
    fs::write(&first, results("back")).unwrap();
    assert!(library.look());
    assert_eq!(library.catalog().sets[1].id, id);
}

#[test]
fn a_document_is_the_file_to_the_last_byte_and_damage_since_then_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "results.json", &results("a"));
    let library = Library::open(vec![folder.path().to_owned()]).unwrap();
    assert_eq!(library.document(0).unwrap().unwrap(), results("a"));
    fs::write(&path, "{").unwrap();
    let message = library.document(0).unwrap().unwrap_err();
    assert!(message.contains("results.json") && message.contains("damaged"), "{message}");
    assert!(library.document(7).is_none());
    // The page as one file leaves it out and says so.
    let page = terrace_view::export(&library);
    assert!(page.contains("\"sets\":[]") && page.contains("still being written"));
}

#[test]
fn the_page_as_one_file_holds_all_documents() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "one/results.json", &results("</script>"));
    write(folder.path(), "two/results.json", &results("b"));
    let page = terrace_view::export(&Library::open(vec![folder.path().to_owned()]).unwrap());
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = start + page[start..].find("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(&page[start..end]).unwrap();
    assert_eq!(data["catalog"]["sets"].as_array().unwrap().len(), 2);
    for (id, text) in [("0", results("</script>")), ("1", results("b"))] {
        assert_eq!(data["documents"][id], serde_json::from_str::<serde_json::Value>(&text).unwrap());
    }
}
