use super::*;
use crate::Silent;

const SMALL: &str = "
summary = \"a copy\"
stands_for = [\"nothing\"]
differs = \"It is a test.\"
packages = [\"coreutils\"]
commands = [\"cp\"]
prepare = 'head -c 300000 /dev/zero >from; echo made'
run = 'exec cp from to'
length = 20_000
";

fn small(change: (&str, &str)) -> Entry {
    Entry::parse("small", &SMALL.replace(change.0, change.1)).unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_program_is_recorded_once_with_what_it_is_made_of() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::in_folder(folder.path());
    let entry = small(("", ""));
    assert_eq!(suite.state(&entry), State::Ready);
    let manifest = record(&suite, &entry, &Silent).unwrap();
    assert_eq!(files(folder.path()), ["small.json", "small.trace"], "and the input is gone");
    assert_eq!(manifest.entry, entry.identity());
    // An atomic access at the limit is a load and a store.
    assert!((20_000..=20_001).contains(&manifest.figures.accesses), "{}", manifest.figures.accesses);
    assert_eq!(manifest.figures.processes, 1);
    assert!(manifest.figures.instructions > 20_000 && manifest.figures.footprint_bytes >= 64 << 10);
    assert!((0.0..100.0).contains(&manifest.figures.walks_per_kilo_instruction));
    assert_eq!(suite.state(&entry), State::Recorded(Box::new(manifest.clone())));
    verify(&suite, &entry, &manifest).unwrap();

    // A byte changes: the length is right, the checksum is not.
    let trace = suite.trace(&entry);
    let mut bytes = std::fs::read(&trace).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&trace, &bytes).unwrap();
    let error = verify(&suite, &entry, &manifest).unwrap_err().to_string();
    assert!(error.contains("is not what was recorded") && error.contains("suite record small"), "{error}");
    // The end is missing: there is no recording.
    std::fs::write(&trace, &bytes[..middle]).unwrap();
    assert_eq!(suite.state(&entry), State::Ready);
    // Another entry has another recording.
    std::fs::write(&trace, &bytes).unwrap();
    assert_eq!(suite.state(&small(("20_000", "30_000"))), State::Outdated);
}

#[test]
fn what_cannot_be_recorded_says_why_and_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::in_folder(folder.path());
    record(&suite, &small(("", "")), &Silent).unwrap();
    let before = std::fs::read(suite.trace(&small(("", "")))).unwrap();
    for (change, expected) in [
        (
            ("echo made", "echo no space >&2; exit 3"),
            "its input could not be made (exit status: 3); it said: no space",
        ),
        (
            ("exec cp from to'\nlength = 20_000", "exec cp missing to'\nlength = 100_000_000"),
            "it said: cp: cannot stat 'missing'",
        ),
        (("length", "skip = 1_000_000_000\nlength"), "ended before its region of interest"),
        (
            ("[\"cp\"]", "[\"cp\", \"no-such-program\"]"),
            "needs no-such-program; install it: terrace suite install small",
        ),
    ] {
        let error = record(&suite, &small(change), &Silent).expect_err(change.1).to_string();
        assert!(error.contains(expected), "{change:?}: {error}");
        assert_eq!(files(folder.path()), ["small.json", "small.trace"], "{change:?}");
        assert!(std::fs::read(suite.trace(&small(("", "")))).unwrap() == before, "{change:?}");
    }
}

#[test]
fn entries_are_inputs_once_they_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let suite = Suite::in_folder(folder.path());
    let input = suite.input("lbm").unwrap();
    assert_eq!((input.name.as_str(), input.words()), ("lbm", vec!["--suite".to_owned(), "lbm".to_owned()]));
    let error = |name: &str| suite.input(name).err().unwrap();
    assert!(error("perl").to_string().contains("terrace suite record perl"));
    assert!(error("perk").to_string().contains("did you mean \"perl\"?"));
    assert!(error("perl").is_request());
}
