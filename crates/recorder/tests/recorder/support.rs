//! Compiling small programs, recording them, and looking at the result.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use terrace_recorder::{RecordOptions, Recording, record};
use terrace_trace::{Access, Batch, Event, EventSource, Item, SequencedEvent, StreamId};

/// A directory for one test's files.
pub struct Workshop(tempfile::TempDir);

impl Workshop {
    pub fn new() -> Workshop {
        Workshop(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes `source` to a file and compiles it.
    pub fn compile(&self, compiler: &str, file: &str, source: &str, flags: &[&str]) -> PathBuf {
        let input = self.path(file);
        std::fs::write(&input, source).unwrap();
        let output = input.with_extension("");
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let mut command = Command::new(compiler);
        command.args(flags).arg("-o").arg(&output).arg(&input);
        if compiler != "rustc" {
            command.arg("-I").arg(include);
        }
        let status = command.status().unwrap_or_else(|e| panic!("{compiler} is needed by this test: {e}"));
        assert!(status.success(), "{compiler} failed");
        output
    }

    pub fn c(&self, source: &str) -> PathBuf {
        self.compile("cc", "program.c", source, &["-O1", "-pthread"])
    }

    pub fn static_c(&self, source: &str) -> PathBuf {
        self.compile("cc", "program.c", source, &["-O1", "-pthread", "-static"])
    }
}

/// A recording with all it delivered.
pub struct Recorded {
    pub batches: Vec<Batch>,
    pub warnings: Vec<String>,
    pub status: ExitStatus,
}

pub fn words(command: &[&dyn AsRef<std::ffi::OsStr>]) -> Vec<OsString> {
    command.iter().map(|word| word.as_ref().to_owned()).collect()
}

/// Everything but dependences on loads, which some tests do not need.
pub fn options() -> RecordOptions {
    RecordOptions::default()
}

pub fn start(command: &[&dyn AsRef<std::ffi::OsStr>], options: &RecordOptions) -> Recording {
    record(&words(command), options).unwrap_or_else(|e| panic!("{e}"))
}

/// Records to the end and checks what every recording must keep.
pub fn run(command: &[&dyn AsRef<std::ffi::OsStr>], options: &RecordOptions) -> Recorded {
    let mut recording = start(command, options);
    let mut batches = Vec::new();
    while let Some(batch) = recording.next_batch().unwrap() {
        batches.push(Batch::clone(&batch));
    }
    let warnings = recording.warnings().to_vec();
    let recorded = Recorded { batches, warnings, status: recording.wait().unwrap() };
    recorded.check();
    recorded
}

impl Recorded {
    /// The promises of `Batch` and `EventSource`.
    pub fn check(&self) {
        let mut next = 1;
        let mut seen: HashMap<StreamId, u64> = HashMap::new();
        let mut processes = 0;
        for batch in &self.batches {
            assert_eq!(batch.validate(), Ok(()));
            assert!(!batch.is_empty());
            assert!(batch.after < next, "comes after an event that was not delivered before");
            let known = seen.len() as u32;
            if seen.insert(batch.stream, 0).is_none() {
                assert_eq!(batch.stream.0, known, "streams are numbered densely");
                let first = batch.events.first().map(|e| (&e.event, e.before));
                assert!(matches!(first, Some((Event::Spawn { .. }, 0))), "{first:?}");
            }
            for event in batch.events.iter().filter(|e| e.sequence != 0) {
                assert_eq!(event.sequence, next, "global events are delivered in order");
                next += 1;
                if let Event::Spawn { process, .. } = event.event {
                    assert!(process <= processes, "processes are numbered densely");
                    processes = processes.max(process + 1);
                }
            }
        }
    }

    pub fn items(&self) -> impl Iterator<Item = (StreamId, Item<'_>)> {
        self.batches.iter().flat_map(|batch| batch.items().map(|item| (batch.stream, item)))
    }

    pub fn events(&self) -> impl Iterator<Item = (StreamId, &SequencedEvent)> {
        self.batches.iter().flat_map(|batch| batch.events.iter().map(|event| (batch.stream, event)))
    }

    pub fn accesses(&self) -> usize {
        self.batches.iter().map(Batch::len).sum()
    }

    /// The stream of the region of this name, and its accesses.
    pub fn region(&self, wanted: &str) -> (StreamId, Vec<Access>) {
        use terrace_trace::MarkKind::{RegionBegin, RegionEnd};
        let mut stream = None;
        let mut accesses = Vec::new();
        for (id, item) in self.items() {
            match item {
                Item::Event(SequencedEvent {
                    event: Event::Mark { kind: RegionBegin, name, .. }, ..
                }) if name == wanted => {
                    stream = Some(id);
                }
                Item::Event(SequencedEvent { event: Event::Mark { kind: RegionEnd, name, .. }, .. })
                    if name == wanted =>
                {
                    return (stream.expect("began"), accesses);
                }
                Item::Access(access) if stream == Some(id) => accesses.push(access),
                _ => {}
            }
        }
        panic!("no region {wanted} among {} accesses", self.accesses());
    }

    /// Where the object of this name lies.
    pub fn object(&self, wanted: &str) -> terrace_model::AddressRange {
        let site = self.events().find_map(|(_, e)| match &e.event {
            Event::Site { site, name } if name == wanted => Some(*site),
            _ => None,
        });
        let found = self.events().find_map(|(_, e)| match e.event {
            Event::Alloc { site: s, range, .. } if Some(s) == site => Some(range),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no object {wanted}"))
    }

    pub fn streams(&self) -> usize {
        self.events().filter(|(_, e)| matches!(e.event, Event::Spawn { .. })).count()
    }

    pub fn processes(&self) -> usize {
        let numbers = self.events().filter_map(|(_, e)| match e.event {
            Event::Spawn { process, .. } => Some(process + 1),
            _ => None,
        });
        numbers.max().unwrap_or(0) as usize
    }

    pub fn executed(&self, program: &str) -> bool {
        self.events().any(
            |(_, e)| matches!(&e.event, Event::Exec { name } if name.rsplit('/').next() == Some(program)),
        )
    }
}

/// An example of this package. Cargo builds them before it runs all tests, and not before it runs this one alone: then it
/// is asked to.
pub fn example(name: &str) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples").join(name);
    let _one_at_a_time = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    if !path.exists() {
        let profile = match profile.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            other => other,
        };
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--profile", profile, "--package", env!("CARGO_PKG_NAME")]);
        assert!(
            cargo.args(["--example", name]).status().unwrap().success(),
            "the example {name} cannot be built"
        );
    }
    assert!(path.exists(), "{} is missing; run the tests by cargo test, which builds it", path.display());
    path
}

/// Waits until `condition` holds. The limit only keeps a broken test from waiting for ever.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("waited in vain until {what}");
}
