//! The pictures of one access in docs/src/one-access.md are those of runs.
//! `TERRACE_UPDATE=1 cargo test -p terrace-study --test access_pictures` draws them.

use std::path::Path;
use terrace_sim::design::Library;
use terrace_sim::{Options, simulate};
use terrace_study::access_picture;

const MACHINE: &str = "vbi-table1";
const WORKLOAD: &str = "chase,bytes=128 MiB,accesses=20e3";
/// A load whose page and line are in no TLB and no cache under any of them.
const NUMBER: u64 = 10_001;
/// Designs, and what else is set.
const PICTURES: [(&str, &str); 6] = [
    ("native-4k", WORKLOAD),
    ("virtual-4k", WORKLOAD),
    ("vivt", WORKLOAD),
    ("enigma-2m", WORKLOAD),
    ("vbi-full", WORKLOAD),
    ("vbi-2", "chase,bytes=128 MiB,accesses=20e3,init=none"),
];

#[test]
fn pictures_of_one_access_are_those_of_runs() {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/images");
    let page = std::fs::read_to_string(images.join("../one-access.md")).unwrap();
    let library = Library::embedded();
    let mut ends = Vec::new();
    for (name, workload) in PICTURES {
        let sets = [("core.count".to_owned(), "1".to_owned())];
        let design = library.design(name, Some(MACHINE), &sets).unwrap().design;
        let options = Options { watch_access: Some(NUMBER), ..Options::default() };
        let mut source = terrace_workload::open(workload).unwrap().source();
        let outcome = simulate(&design, source.as_mut(), options).unwrap();
        let access = outcome.access.unwrap_or_else(|| panic!("{name}: {} accesses", outcome.accesses));
        assert!(!access.write, "{name}");
        ends.push(access.done);
        let picture = access_picture::of_access(name, MACHINE, NUMBER, &access).to_svg();
        let path = images.join(format!("access-{name}.svg"));
        if std::env::var_os("TERRACE_UPDATE").is_some() {
            std::fs::write(&path, &picture).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).is_ok_and(|text| text == picture),
            "{} is not drawn by the run: TERRACE_UPDATE=1 cargo test -p terrace-study --test access_pictures",
            path.display()
        );
        assert!(page.contains(&format!("(images/access-{name}.svg)")), "the page does not show {name}");
    }
    // What the pictures are there to show.
    let [native, guest, vivt, _, vbi, zero] = ends[..] else { panic!("{ends:?}") };
    assert!(guest > native && vivt <= native && vbi < native && zero < vbi, "{ends:?}");
}
