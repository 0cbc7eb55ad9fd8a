//! `terrace calibrate` end to end, with the least work: that the preset can be used, not what it says.

mod common;
use common::{SMALL, stderr, stdout, terrace};

#[test]
fn a_calibrated_machine_is_here() {
    let home = tempfile::tempdir().unwrap();
    let run =
        |arguments: &[&str], code| stderr(terrace().env("XDG_DATA_HOME", home.path()).args(arguments), code);
    let simulate = ["sim", "--design", "native-thp", "--machine", "here", "--workload", SMALL];
    let message = run(&simulate, 2);
    assert!(message.contains("here.toml does not exist: run `terrace calibrate` first"), "{message}");

    let message = run(&["calibrate", "--tiny"], 0);
    assert!(message.contains("Use it with: terrace compare --machine here"), "{message}");
    run(&simulate, 0);
    let page = stdout(terrace().env("XDG_DATA_HOME", home.path()).args(["machine", "show", "here"]));
    assert!(page.contains("Spread of what was measured:\n  - "), "{page}");

    let directory = home.path().join("terrace/machines");
    let files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["here.toml"], "nothing else is left");
    let text = std::fs::read_to_string(directory.join("here.toml")).unwrap();
    assert!(text.contains("# Written by `terrace calibrate` on 20"), "{text}");
    for part in ["cited = [", "assumed = [", "spread = [", "os.fault_cost = "] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// To a file or to standard output; with `-v` it tells how long each part took.
#[test]
fn every_machine_can_be_extended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    for name in ["zen4-cxl", "zen5-turin", "skylake-6140", "xeon-5218-dcpmm"] {
        let mut calibrate = terrace();
        calibrate.args(["-v", "calibrate", "--tiny", "--extends", name, "--output"]);
        let message = if name == "zen4-cxl" {
            let output = calibrate.arg("-").assert().success().get_output().clone();
            std::fs::write(&file, output.stdout).unwrap();
            String::from_utf8(output.stderr).unwrap()
        } else {
            stderr(calibrate.arg(&file), 0)
        };
        for part in ["clock", "translation", "copies", "compression"] {
            assert!(message.contains(&format!("{part} took ")), "{part} in {message}");
        }
        stderr(terrace().args(["machine", "show"]).arg(&file), 0);
    }
}

/// Commands put designs under the hypervisor of a machine that is a guest, and say so.
#[test]
fn a_guest_is_simulated_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let text = "kind = \"machine\"\nextends = \"skylake-6140\"\n[hypervisor]\npages = \"4k\"\n\
                [[tier]]\nname = \"dram\"\ncapacity = \"256 MiB\"\n[os]\nreserved = \"0 B\"\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let page = stdout(terrace().args(["machine", "show", file]));
    assert!(page.contains("hypervisor.pages"), "{page}");

    let on_it = ["--machine", file, "--workload", SMALL, "--json", "-"];
    let run = |words: &[&str]| -> serde_json::Value {
        serde_json::from_str(&stdout(terrace().args(words).args(on_it))).unwrap()
    };
    let parameter = |run: &serde_json::Value, key: &str| run["parameters"][key].as_str().map(str::to_owned);
    let compared =
        run(&["compare", "native-4k", "native-thp", "-o", folder.path().join("out").to_str().unwrap()]);
    for run in compared["runs"].as_array().unwrap() {
        assert_eq!(parameter(run, "translation.nested.host").as_deref(), Some("4k"), "{}", run["design"]);
        assert_eq!(parameter(run, "os.memory.aging.kind").as_deref(), Some("builds"));
        assert!(run["stats"]["walk"]["host_refs"].as_u64() > Some(0), "{}", run["stats"]["walk"]);
    }
    let notes = compared["runs"][0]["notes"].to_string();
    assert!(notes.contains("mine is a guest whose hypervisor maps its memory by pages of 4 KiB"), "{notes}");

    let simulated = run(&["sim", "--design", "native-4k"]);
    assert_eq!(parameter(&simulated["runs"][0], "translation.nested.host").as_deref(), Some("4k"));
    let pages = run(&["sim", "--design", "native-4k", "--fidelity", "pages"]);
    let pages = &pages["runs"][0];
    assert_eq!(parameter(pages, "translation.nested.host"), None, "nothing walks there");
    assert_eq!(parameter(pages, "os.memory.aging.kind").as_deref(), Some("none"));
    assert!(!pages["notes"].to_string().contains("hypervisor"), "{}", pages["notes"]);

    let advice = run(&["advise", "--pages", "--no-intervals"]);
    let remarks = advice["remarks"].to_string();
    assert!(remarks.contains("Guest: mine is a guest"), "{remarks}");
    assert!(!remarks.contains("Fresh memory"), "{remarks}");
}
