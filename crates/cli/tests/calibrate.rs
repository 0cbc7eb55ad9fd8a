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

#[test]
fn with_v_it_tells_how_long_each_part_took() {
    let message = stderr(terrace().args(["-v", "calibrate", "--tiny", "--output", "-"]), 0);
    for part in ["clock", "translation", "copies", "compression"] {
        assert!(message.contains(&format!("{part} took ")), "{part} in {message}");
    }
}

#[test]
fn every_machine_can_be_extended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let file = file.to_str().unwrap();
    for name in ["zen4-cxl", "zen5-turin", "skylake-6140", "xeon-5218-dcpmm"] {
        stderr(terrace().args(["calibrate", "--tiny", "--extends", name, "--output", file]), 0);
        stderr(terrace().args(["machine", "show", file]), 0);
    }
}
