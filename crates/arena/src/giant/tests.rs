use super::*;
use std::path::Path;

/// A pool of files, which takes any number.
struct Fake {
    place: Place,
    folder: tempfile::TempDir,
}

impl Fake {
    fn new(pages: u64, free: u64) -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake { place: Fake::place(folder.path(), std::process::id()), folder };
        for (name, value) in [("nr_hugepages", pages), ("free_hugepages", free), ("resv_hugepages", 0)] {
            fake.set(name, value);
        }
        fake
    }

    fn place(folder: &Path, process: u32) -> Place {
        Place {
            pool: folder.to_owned(),
            journals: Some(folder.join("journals")),
            process,
            began: 42,
            lock_timeout: Duration::from_millis(20),
        }
    }

    /// This pool, for another process.
    fn of(&self, process: u32) -> Place {
        Fake::place(self.folder.path(), process)
    }

    fn set(&self, name: &str, value: u64) {
        fs::write(self.folder.path().join(name), format!("{value}\n")).unwrap();
    }

    fn pages(&self) -> u64 {
        // Files keep what is behind a shorter number.
        let text = fs::read_to_string(self.folder.path().join("nr_hugepages")).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    }

    fn path(&self, process: u32) -> PathBuf {
        self.folder.path().join(format!("journals/{process}.json"))
    }

    fn journal_of(&self, process: u32) -> Option<String> {
        fs::read_to_string(self.path(process)).ok()
    }

    fn journal(&self) -> Option<String> {
        self.journal_of(std::process::id())
    }
}

fn may(allowed: u64) -> Added {
    Added { allowed, ..Added::default() }
}

fn text(process: u32, change: &str) -> String {
    format!("{{\"pid\":{process},\"began\":42,\"changes\":[{{\"kind\":\"pool\",{change}}}]}}\n")
}

#[test]
fn nothing_is_written_unless_it_was_asked_for() {
    let fake = Fake::new(1, 0);
    assert_eq!(fake.place.grow(&mut may(0), 1), Err(Refused::NotAllowed));
    assert_eq!(fake.place.grow(&mut may(1), 2), Err(Refused::NotAllowed));
    assert_eq!((fake.pages(), fake.journal()), (1, None));
}

#[test]
fn what_is_missing_is_added_noted_and_given_back() {
    let fake = Fake::new(3, 1);
    let (mut added, own) = (may(4), std::process::id());
    assert_eq!(fake.place.grow(&mut added, 2), Ok(1));
    assert_eq!((fake.pages(), fake.journal()), (4, Some(text(own, "\"pages\":1"))));
    fake.set("free_hugepages", 0);
    assert_eq!(fake.place.grow(&mut added, 3), Ok(3), "all that is allowed");
    assert_eq!(fake.place.grow(&mut added, 1), Err(Refused::NotAllowed));
    assert_eq!(fake.journal(), Some(text(own, "\"pages\":4")));
    // The same process after an `exec`.
    let mut later = may(4);
    fake.place.adopt(&mut later);
    assert_eq!((later.pages, later.process), (4, own));
    assert_eq!(fake.place.shrink(&mut added, 3), Ok(()));
    assert_eq!((fake.pages(), fake.journal()), (4, Some(text(own, "\"pages\":1"))));
    // The administrator has added two meanwhile.
    fake.set("nr_hugepages", 6);
    assert_eq!(fake.place.shrink(&mut added, 9), Ok(()));
    assert_eq!((fake.pages(), fake.journal(), added.pages), (5, None, 0));
}

/// Whoever ends first: what is noted for the others stays right.
#[test]
fn each_program_s_pages_are_counted_for_itself() {
    let fake = Fake::new(0, 0);
    let (one, other, mut of_one, mut of_other) = (fake.of(7), fake.of(8), may(4), may(4));
    assert_eq!(one.grow(&mut of_one, 2), Ok(2));
    assert_eq!(other.grow(&mut of_other, 3), Ok(3));
    assert_eq!(fake.pages(), 5);
    assert_eq!(fake.journal_of(7), Some(text(7, "\"pages\":2")));
    assert_eq!(fake.journal_of(8), Some(text(8, "\"pages\":3")));
    assert_eq!(one.shrink(&mut of_one, 2), Ok(()));
    assert_eq!((fake.pages(), fake.journal_of(7)), (3, None));
    assert_eq!(fake.journal_of(8), Some(text(8, "\"pages\":3")));
}

/// A process was killed while the kernel made two of three pages.
#[test]
fn a_growth_that_was_not_finished_is_counted_before_somebody_else_changes_the_pool() {
    for shrinks in [false, true] {
        let fake = Fake::new(1, 0);
        let mut added = may(4);
        assert_eq!(fake.place.grow(&mut added, 1), Ok(1));
        let begun = Entry { process: 7, began: 42, pages: 1, growing: Some(Growing { from: 2, by: 3 }) };
        begun.save(&fake.folder.path().join("journals"), true).unwrap();
        assert_eq!(
            fake.journal_of(7),
            Some(text(7, "\"pages\":1,\"growing\":{\"from\":2,\"by\":3}")),
            "as `terrace restore` reads it"
        );
        fake.set("nr_hugepages", 4);
        if shrinks {
            assert_eq!(fake.place.shrink(&mut added, 1), Ok(()));
        } else {
            assert_eq!(fake.place.grow(&mut added, 1), Ok(1));
        }
        assert_eq!(fake.journal_of(7), Some(text(7, "\"pages\":3")));
        assert_eq!(fake.pages(), if shrinks { 3 } else { 5 });
        // The same process goes on after an `exec`.
        begun.save(&fake.folder.path().join("journals"), true).unwrap();
        fake.set("nr_hugepages", 9);
        let mut later = may(9);
        fake.of(7).adopt(&mut later);
        assert_eq!((later.pages, fake.journal_of(7)), (4, Some(text(7, "\"pages\":4"))));
    }
}

#[test]
fn a_pool_that_was_made_smaller_is_left_alone() {
    let fake = Fake::new(0, 0);
    let mut added = may(4);
    assert_eq!(fake.place.grow(&mut added, 3), Ok(3));
    fake.set("nr_hugepages", 2);
    assert_eq!(fake.place.shrink(&mut added, 3), Ok(()));
    assert_eq!((fake.pages(), fake.journal()), (2, None));
}

#[test]
fn who_changes_the_pool_for_long_is_not_waited_for() {
    let fake = Fake::new(0, 0);
    let mut added = may(4);
    assert_eq!(fake.place.grow(&mut added, 1), Ok(1));
    let other = fake.place.folder().unwrap();
    let held = Lock::of(&other.1, Duration::ZERO).unwrap();
    assert_eq!(fake.place.grow(&mut added, 2), Err(Refused::Busy));
    assert_eq!(fake.place.shrink(&mut added, 1), Err(Refused::Busy));
    assert_eq!((fake.pages(), added.pages), (1, 1));
    assert!(fake.journal().is_some(), "`terrace restore` gives it back");
    drop(held);
    assert_eq!(fake.place.shrink(&mut added, 1), Ok(()));
    // A forked child may have a copy of what another thread held.
    let held = ADDED.lock().unwrap();
    assert!(super::added(Duration::from_millis(20)).is_none());
    drop(held);
    assert!(super::added(Duration::ZERO).is_some());
}

#[test]
fn what_could_not_be_put_back_is_not_done() {
    let fake = Fake::new(0, 0);
    let journals = fake.folder.path().join("journals");
    fs::create_dir(&journals).unwrap();
    // The entry of another process that had this number.
    fs::write(fake.path(std::process::id()), "{\"pid\":1,\"began\":1}").unwrap();
    let refused = fake.place.grow(&mut may(4), 1).unwrap_err();
    assert!(matches!(&refused, Refused::NoJournal(why) if why.contains("terrace restore")), "{refused:?}");
    let mut later = may(4);
    fake.place.adopt(&mut later);
    assert_eq!((later.pages, fake.pages()), (0, 0));
    let nowhere = Place { journals: None, ..fake.of(7) };
    assert!(matches!(nowhere.grow(&mut may(4), 1), Err(Refused::NoJournal(_))));
    fs::remove_file(fake.path(std::process::id())).unwrap();
    fs::remove_file(fake.folder.path().join("nr_hugepages")).unwrap();
    assert_eq!(fake.place.grow(&mut may(4), 1), Err(Refused::NoRight));
}
