//! Journals: what is noted, put back, left alone and not believed.

use super::*;
use crate::access::{KDAMONDS, TRACING};
use crate::kernel::Rooted;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

struct Bench {
    root: tempfile::TempDir,
    kernel: Arc<Rooted>,
    file: PathBuf,
}

impl Bench {
    fn new(value: &str) -> Bench {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(&SETTING[1..]);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, value).unwrap();
        Bench { kernel: Arc::new(Rooted::new(root.path())), file, root }
    }

    fn journal(&self) -> Journal {
        Journal::new(self.kernel.clone(), &self.folder())
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("journals")
    }

    fn value(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap()
    }
}

const SETTING: &str = "/sys/kernel/mm/mempolicy/weighted_interleave/node0";

#[test]
fn what_was_set_is_put_back() {
    let bench = Bench::new("1\n");
    let mut journal = bench.journal();
    journal.set(SETTING.as_ref(), "5").unwrap();
    assert_eq!(bench.value(), "5");
    drop(journal);
    assert_eq!(bench.value(), "1");
    assert_eq!(std::fs::read_dir(bench.folder()).unwrap().count(), 0);
}

#[test]
fn what_the_administrator_has_set_since_is_left_alone() {
    let bench = Bench::new("1");
    let mut journal = bench.journal();
    journal.set(SETTING.as_ref(), "2").unwrap();
    std::fs::write(&bench.file, "7").unwrap();
    let restored = journal.undo();
    assert_eq!((bench.value().as_str(), restored.done.len(), restored.left.len()), ("7", 0, 1));
    assert!(restored.left[0].contains("is 7 now, not 2"), "{restored:?}");
}

#[test]
fn after_a_crash_restore_does_it() {
    let bench = Bench::new("1");
    let mut journal = bench.journal();
    journal.set(SETTING.as_ref(), "2").unwrap();
    let instance = format!("{TRACING}/instances/terrace-{}", std::process::id());
    std::fs::create_dir_all(bench.root.path().join(&TRACING[1..]).join("instances")).unwrap();
    journal.make_folder(instance.as_ref()).unwrap();
    std::mem::forget(journal);
    let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
    assert_eq!(restored.done.len(), 2, "{restored:?}");
    assert_eq!(bench.value(), "1");
    assert!(!bench.root.path().join(&instance[1..]).exists());
    assert_eq!(restore(&*bench.kernel, &bench.folder()).unwrap(), Restored::default());
}

#[test]
fn damon_is_switched_off_unless_it_works_for_someone_else() {
    for (operations, nr, off) in [("fvaddr", "1", true), ("vaddr", "1", false), ("fvaddr", "2", false)] {
        let bench = Bench::new("1");
        let folder = bench.root.path().join(&KDAMONDS[1..]);
        std::fs::create_dir_all(folder.join("0/contexts/0")).unwrap();
        std::fs::write(folder.join("nr_kdamonds"), nr).unwrap();
        std::fs::write(folder.join("0/state"), "on\n").unwrap();
        std::fs::write(folder.join("0/contexts/0/operations"), operations).unwrap();
        let mut journal = bench.journal();
        for _ in 0..3 {
            journal.damon(KDAMONDS.as_ref(), Kdamonds::watching()).unwrap();
        }
        let restored = journal.undo();
        assert_eq!((restored.done.len(), restored.left.len()), (usize::from(off), usize::from(!off)));
        let state = std::fs::read_to_string(folder.join("0/state")).unwrap();
        assert_eq!(state.trim() == "off", off, "{operations} {nr}");
    }
}

#[test]
fn the_journal_of_a_running_process_is_its_own() {
    let bench = Bench::new("1");
    let pid = std::process::id();
    std::fs::create_dir_all(bench.root.path().join(format!("proc/{pid}"))).unwrap();
    let fields = (4..=21).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
    let stat = format!("{pid} (a) b) S {fields} 4711 0");
    std::fs::write(bench.root.path().join(format!("proc/{pid}/stat")), stat).unwrap();
    let mut journal = bench.journal();
    assert_eq!(journal.record.began, 4711);
    journal.set(SETTING.as_ref(), "2").unwrap();
    let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
    assert_eq!((restored.done.len(), restored.left.len(), bench.value().as_str()), (0, 1, "2"));
}

#[test]
fn a_file_that_is_no_journal_is_said_and_kept() {
    let bench = Bench::new("1");
    Folder::create(&bench.folder()).unwrap().write("9.json", "{").unwrap();
    let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
    assert!(restored.failed[0].contains("9.json is no journal of Terrace"), "{restored:?}");
    assert!(bench.folder().join("9.json").exists());
    // Results that somebody put beside the journals are nobody's business here.
    let folder = Folder::create(&bench.folder()).unwrap();
    folder.remove("9.json").unwrap();
    folder.write("results.json", "{}").unwrap();
    assert!(restore(&*bench.kernel, &bench.folder()).unwrap().failed.is_empty());
}

/// What `restore` says of a journal that was not written by Terrace, and that nothing was changed by it.
fn refusal(bench: &Bench) -> String {
    let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
    assert_eq!((restored.done.len(), restored.left.len(), restored.failed.len()), (0, 0, 1), "{restored:?}");
    assert_eq!(bench.value(), "2", "{restored:?}");
    restored.failed[0].clone()
}

/// A journal that would set the bench's setting back, and what `changes` says.
fn forged(changes: &str) -> String {
    let setting = format!(r#"{{"kind":"setting","path":"{SETTING}","before":"1","after":"2"}}"#);
    let changes = if changes.is_empty() { setting } else { format!("{setting},{changes}") };
    format!(r#"{{"pid":9,"began":1,"changes":[{changes}]}}"#)
}

#[test]
fn a_forged_journal_changes_nothing() {
    let bench = Bench::new("2");
    let folder = Folder::create(&bench.folder()).unwrap();
    let victim = bench.root.path().join("home/user/.profile");
    std::fs::create_dir_all(victim.parent().unwrap().join("empty")).unwrap();
    std::fs::write(&victim, "2").unwrap();
    for (change, why) in [
        (
            r#"{"kind":"setting","path":"/home/user/.profile","before":"evil","after":"2"}"#,
            "nothing that Terrace sets",
        ),
        (r#"{"kind":"folder","path":"/home/user/empty"}"#, "no folder that this run made"),
        (r#"{"kind":"damon","path":"/home/user"}"#, "not where DAMON is set up"),
    ] {
        folder.write("9.json", &forged(change)).unwrap();
        let said = refusal(&bench);
        assert!(said.contains(why) && said.contains("9.json is not obeyed"), "{said}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "2");
        assert!(victim.with_file_name("empty").exists());
    }
    folder.write("8.json", &forged("")).unwrap();
    folder.remove("9.json").unwrap();
    assert!(refusal(&bench).contains("it is of process 9"));
    // An entry of this content under the right name is obeyed: nothing else was wrong with it.
    folder.remove("8.json").unwrap();
    folder.write("9.json", &forged("")).unwrap();
    assert_eq!(restore(&*bench.kernel, &bench.folder()).unwrap().done.len(), 1);
    assert_eq!(bench.value(), "1");
}

#[test]
fn a_journal_that_others_could_have_placed_is_not_read() {
    let bench = Bench::new("2");
    let folder = Folder::create(&bench.folder()).unwrap();
    let elsewhere = bench.root.path().join("elsewhere.json");
    std::fs::write(&elsewhere, forged("")).unwrap();
    let journal = folder.path_of("9.json");
    symlink(&elsewhere, &journal).unwrap();
    assert!(refusal(&bench).contains("symbolic link"));
    std::fs::remove_file(&journal).unwrap();
    std::fs::hard_link(&elsewhere, &journal).unwrap();
    assert!(refusal(&bench).contains("another name"));
    std::fs::remove_file(&journal).unwrap();
    let name = std::ffi::CString::new(journal.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    // A pipe into which nobody ever writes.
    assert!(refusal(&bench).contains("no regular file"));
    std::fs::remove_file(&journal).unwrap();
    folder.write("9.json", &forged("")).unwrap();
    std::fs::set_permissions(&journal, PermissionsExt::from_mode(0o602)).unwrap();
    assert!(refusal(&bench).contains("others may write"));
    std::fs::set_permissions(&journal, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::set_permissions(bench.folder(), PermissionsExt::from_mode(0o1777)).unwrap();
    let error = restore(&*bench.kernel, &bench.folder()).unwrap_err().to_string();
    assert!(error.contains("others may write into it"), "{error}");
    // Nor is anything written there.
    let mut own = bench.journal();
    let error = own.set(SETTING.as_ref(), "7").unwrap_err().to_string();
    assert!(error.contains("others may write into it") && bench.value() == "2", "{error}");
    own.record.changes.clear();
}

#[test]
fn what_cannot_be_put_back_is_not_set() {
    let bench = Bench::new("1");
    std::fs::write(bench.root.path().join("sys/other"), "1").unwrap();
    let error = bench.journal().set("/sys/other".as_ref(), "2").unwrap_err().to_string();
    assert!(error.contains("nothing that Terrace sets"), "{error}");
    assert_eq!(std::fs::read_to_string(bench.root.path().join("sys/other")).unwrap(), "1");
}

#[test]
fn journals_are_private() {
    let bench = Bench::new("1");
    let mut journal = bench.journal();
    journal.set(SETTING.as_ref(), "2").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    let file = bench.folder().join(format!("{}.json", std::process::id()));
    assert_eq!((mode(&bench.folder()), mode(&file)), (0o700, 0o600));
}

/// Two programs have grown the pool of 1 GiB pages, one after the other, and were killed: one of them while the kernel made
/// the second of its two pages. The texts are those that `crates/arena/src/giant` writes.
#[test]
fn pages_that_killed_programs_have_added_to_the_pool_are_taken_out_again() {
    let bench = Bench::new("1");
    let pool = bench.root.path().join(&GIANT_PAGES[1..]);
    std::fs::create_dir_all(pool.parent().unwrap()).unwrap();
    let folder = Folder::create(&bench.folder()).unwrap();
    let note = |process: u32, change: &str| {
        let text = format!(r#"{{"pid":{process},"began":42,"changes":[{{"kind":"pool",{change}}}]}}"#);
        folder.write(&format!("{process}.json"), &format!("{text}\n")).unwrap();
    };
    // The administrator's page, three of process 7 and one and a half of process 8.
    let grown = |now: &str| {
        std::fs::write(&pool, now).unwrap();
        note(7, r#""pages":3"#);
        note(8, r#""pages":1,"growing":{"from":5,"by":2}"#);
    };
    let now = || std::fs::read_to_string(&pool).unwrap();
    grown("6\n");
    let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
    assert_eq!((restored.done.len(), restored.left.len(), restored.failed.len()), (2, 0, 0), "{restored:?}");
    assert!(restored.done[0].ends_with("nr_hugepages is 3 again, 3 less"), "{restored:?}");
    assert_eq!((now().as_str(), folder.names().unwrap().len()), ("1", 0));
    assert_eq!(restore(&*bench.kernel, &bench.folder()).unwrap(), Restored::default());
    // The administrator has taken all pages out since.
    grown("0\n");
    let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
    assert_eq!((restored.done.len(), restored.left.len(), now().trim()), (0, 2, "0"), "{restored:?}");
    // Without such a pool there is nothing to be done.
    grown("6\n");
    std::fs::remove_file(&pool).unwrap();
    assert_eq!(restore(&*bench.kernel, &bench.folder()).unwrap().left.len(), 2);
}

#[test]
fn a_folder_that_another_program_holds_is_not_waited_for_without_end() {
    let bench = Bench::new("1");
    let (one, other) = (Folder::create(&bench.folder()).unwrap(), Folder::open(&bench.folder()).unwrap());
    let held = one.lock(Duration::ZERO).unwrap();
    let said = other.lock(Duration::from_millis(20)).unwrap_err();
    assert!(said.to_string().contains("locked by another program"), "{said}");
    drop(held);
    assert!(other.lock(Duration::ZERO).is_ok());
}
