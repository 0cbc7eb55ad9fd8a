//! `terrace calibrate` end to end, with the least work: that the preset can be used, not what it says.

mod common;
use common::{SMALL, stderr, terrace};

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

    let directory = home.path().join("terrace/machines");
    let files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["here.toml"], "nothing else is left");
    let text = std::fs::read_to_string(directory.join("here.toml")).unwrap();
    assert!(text.contains("# Written by `terrace calibrate` on 20"), "{text}");
}
