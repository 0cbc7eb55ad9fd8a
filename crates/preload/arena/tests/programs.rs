//! Programs that know nothing of the library, with the library preloaded: they get huge pages, and nothing else changes for
//! them.
//!
//! The C programs are in `programs/`; gcc compiles them. `TERRACE_TORTURE_SECONDS` makes the random program run so long,
//! from the seed `TERRACE_TORTURE_SEED` on; `scripts/torture-arena` does so, and counts.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "cases", "cases", &[]);
    compile(folder.path(), "torture", "torture", &[]);
    folder
});

fn compile(folder: &Path, source: &str, name: &str, arguments: &[&str]) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{source}.c"));
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-Wall", "-Wno-unused-result", "-o"]).arg(folder.join(name)).arg(source);
    let output = compiler.args(arguments).arg("-lpthread").output().expect("gcc is installed");
    assert!(output.status.success() || !arguments.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.parent().unwrap().join("libterrace.so");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

/// The program, with the library where `preload`, and what else is preloaded.
fn program(name: &str, arguments: &[&str], preload: Option<&str>) -> Command {
    let mut command = Command::new(FOLDER.path().join(name));
    command.args(arguments).env_remove("TERRACE_ARENA").env_remove("GLIBC_TUNABLES");
    if let Some(others) = preload {
        command.env("LD_PRELOAD", format!("{} {others}", library().display())).env("TERRACE_ARENA", "log");
    }
    command
}

fn run(mut command: Command) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{status}: {out}{err}");
    (out.trim().to_owned(), err)
}

fn case(name: &str) -> (String, String) {
    run(program("cases", &[name], Some("")))
}

/// What a case prints, as a number.
fn number(name: &str) -> u64 {
    case(name).0.parse().unwrap()
}

/// Whether a program may have huge pages by asking for them.
fn offers_huge_pages() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    setting.contains("[madvise]") || setting.contains("[always]")
}

/// Whether the kernel joins pages on request and shows which are joined: Linux 6.7.
fn joins() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().unwrap_or(0u32));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 7)
}

#[test]
fn what_a_program_maps_lies_in_huge_pages() {
    if offers_huge_pages() {
        assert!(number("mapping") >= 60, "of 64 MiB");
        assert!(number("pieces") >= 150, "of 200 MiB in pieces of 1 MiB");
        assert!(number("large") >= 58, "of 64 MiB from malloc");
    }
}

#[test]
fn a_heap_that_grows_lies_in_huge_pages() {
    if offers_huge_pages() {
        assert!(number("heap") >= 150, "of 200 MiB");
    }
}

#[test]
fn trident_joins_what_the_c_library_mapped_for_threads() {
    if offers_huge_pages() && joins() {
        let (huge, log) = case("arenas");
        assert!(huge.parse::<u64>().unwrap() >= 150, "of 200 MiB: {huge}; {log}");
        let line = log.lines().find(|line| line.starts_with("terrace: huge pages: ")).unwrap();
        let joined = line.split(" MiB joined by trident").next().unwrap().rsplit(' ').next().unwrap();
        assert!(joined.parse::<u64>().unwrap() >= 100, "{line}");
    }
}

#[test]
fn a_small_program_has_no_thread_and_gets_no_message() {
    assert_eq!(case("tiny"), ("0".to_owned(), String::new()));
    // The dynamic linker, the shell and what it starts.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "for i in 1 2 3; do /bin/true; /bin/echo $i; done"]);
    shell.env("LD_PRELOAD", library()).env("TERRACE_ARENA", "log");
    assert_eq!(run(shell), ("1\n2\n3".to_owned(), String::new()));
}

#[test]
fn it_can_be_switched_off() {
    let mut off = program("cases", &["mapping"], Some(""));
    off.env("TERRACE_ARENA", "off");
    let (huge, log) = run(off);
    let plain = run(program("cases", &["mapping"], None)).0;
    assert_eq!((huge, log), (plain, String::new()));
    let mut silent = program("cases", &["mapping"], Some(""));
    silent.env_remove("TERRACE_ARENA");
    assert_eq!(run(silent).1, "");
}

#[test]
fn the_environment_s_choice_for_the_heap_is_kept() {
    let mut tuned = program("cases", &["heap"], Some(""));
    tuned.env("GLIBC_TUNABLES", "glibc.malloc.top_pad=131072");
    assert!(run(tuned).1.contains("leaves the heap's steps as the environment sets them"));
}

#[test]
fn a_large_program_has_one_thread_more() {
    if joins() {
        assert_eq!(case("helped").0, "2");
    }
}

/// Variables of each thread lie on its stack, and are more here than the helper needs for itself.
#[test]
fn a_program_with_many_variables_of_each_thread_has_it_too() {
    assert!(compile(FOLDER.path(), "cases", "local", &["-DLOCAL_BYTES=400000"]));
    if joins() {
        assert_eq!(run(program("local", &["helped"], Some(""))).0, "2");
    }
}

#[test]
fn forked_children_have_their_own_memory() {
    assert_eq!(case("branch").0, "done");
}

#[test]
fn the_process_ends_with_the_program_s_last_thread() {
    let begin = Instant::now();
    let mut child = program("cases", &["leader"], Some("")).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it never ended");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_program_may_restrict_itself() {
    assert_eq!(case("filter").0, "alive");
    let plain = run(program("cases", &["namespaces"], None)).0;
    assert_eq!(case("namespaces").0, plain);
}

#[test]
fn calls_answer_as_they_do_without_it() {
    for (name, answer) in [("remap", "moved"), ("limit", "kept"), ("errors", "as they are")] {
        assert_eq!(run(program("cases", &[name], None)).0, answer, "{name} without the library");
        assert_eq!(case(name).0, answer, "{name}");
    }
}

#[test]
fn programs_are_started_as_they_are_without_it() {
    assert!(compile(FOLDER.path(), "starts", "starts", &["-Wno-nonnull"]));
    let plain = run(program("starts", &[], None)).0;
    assert!(plain.contains("many theirs 1 2 3 4 5") && plain.contains("own mine four"), "{plain}");
    assert_eq!(run(program("starts", &[], Some(""))).0, plain);
}

#[test]
fn a_static_program_is_not_touched() {
    if compile(FOLDER.path(), "cases", "static", &["-static"]) {
        let plain = run(program("static", &["mapping"], None));
        assert_eq!(run(program("static", &["mapping"], Some(""))), plain);
    }
}

#[test]
fn it_stands_aside_for_a_sanitizer() {
    if !compile(FOLDER.path(), "cases", "sanitized", &["-fsanitize=address"]) {
        return;
    }
    let mut command = program("sanitized", &["pieces"], None);
    let sanitizer = Command::new("gcc").arg("-print-file-name=libasan.so").output().unwrap().stdout;
    let sanitizer = String::from_utf8(sanitizer).unwrap();
    command.env("LD_PRELOAD", format!("{} {}", sanitizer.trim(), library().display()));
    command.env("TERRACE_ARENA", "log").env("ASAN_OPTIONS", "detect_leaks=0");
    assert!(run(command).1.contains("stands aside: the program is built with a sanitizer"));
}

/// What the random program prints, which checks every byte by itself: a digest, and its calls that change the address space.
fn torture(seed: u64, steps: u64, threads: u64, preload: Option<&str>) -> String {
    let arguments = [seed, steps, threads].map(|number| number.to_string());
    run(program("torture", &arguments.each_ref().map(String::as_str), preload)).0
}

/// Many seeds, for the time asked for: a program of one thread and one of three at once, with the library. One seed in eight
/// runs without the library too. The program checks its bytes in any case.
fn long_torture(first: u64, span: Duration) {
    const STEPS: u64 = 200_000;
    let (begin, mut seed) = (Instant::now(), first);
    let (mut operations, mut calls, mut spent) = (0, 0, Duration::ZERO);
    loop {
        let began = Instant::now();
        let run = |threads: u64| (threads, torture(seed, STEPS, threads, Some("")));
        let found = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(3));
            [run(1), other.join().unwrap()]
        });
        spent += began.elapsed();
        for (threads, printed) in found {
            operations += STEPS * threads;
            calls += printed.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
            if seed % 8 == 0 {
                assert_eq!(printed, torture(seed, STEPS, threads, None), "torture {seed} {STEPS} {threads}");
            }
        }
        if begin.elapsed() >= span {
            println!(
                "torture: program, seeds {first} to {seed}, {operations} operations, {calls} calls, {} s",
                spent.as_secs()
            );
            return;
        }
        seed += 1;
    }
}

#[test]
fn a_random_program_finds_every_byte() {
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = asked("TERRACE_TORTURE_SEED").unwrap_or(1);
    if let Some(seconds) = asked("TERRACE_TORTURE_SECONDS") {
        return long_torture(first, Duration::from_secs(seconds));
    }
    for threads in [1, 3] {
        assert_eq!(
            torture(first, 2500, threads, Some("")),
            torture(first, 2500, threads, None),
            "{first} {threads}"
        );
    }
}

/// Hints for the random program's own allocation sites, so that its objects are placed, and joined while they come and go.
#[test]
fn a_random_program_with_hints_finds_every_byte() {
    let write = |name: &str, offsets: &[String]| {
        let hints = ["BO", "CO", "BW"];
        let site = |(at, offset): (usize, &String)| {
            format!(
                "[[site]]\nname = \"{offset}\"\nmodule = \"torture\"\noffset = \"{offset}\"\nbytes = 9000000\nloads = 1\n\
                 stores = 0\nhint = \"{}\"\n",
                hints[at % 3]
            )
        };
        let path = FOLDER.path().join(name);
        let sites: String = offsets.iter().enumerate().map(site).collect();
        std::fs::write(&path, format!("version = 1\n{sites}")).unwrap();
        path
    };
    let run_by = |path: &Path, seed: &str| {
        let mut command = program("torture", &[seed, "2500", "3"], Some(""));
        command.env("TERRACE_HINTS", path);
        run(command)
    };
    let (_, log) = run_by(&write("none.toml", &["0x1".to_owned()]), "1");
    let of_line = |line: &str| Some(line.split_once("torture+")?.1.split_once(" allocated")?.0.to_owned());
    let sites: Vec<String> = log.lines().filter_map(of_line).collect();
    assert!(sites.len() >= 2, "{log}");
    let path = write("own.toml", &sites);
    for seed in 1..3 {
        let (found, log) = run_by(&path, &seed.to_string());
        assert_eq!(found, torture(seed, 2500, 3, None));
        // The programs that it starts meet none.
        let met = |line: &&str| line.contains("objects placed") && !line.contains(" 0 objects placed");
        assert!(log.lines().any(|line| met(&line)), "{log}");
    }
}

#[test]
fn another_allocator_may_lie_beneath() {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    for name in ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4"] {
        let found = places.map(|place| Path::new(place).join(name)).into_iter().find(|path| path.exists());
        if let Some(path) = found {
            let path = path.to_str().unwrap();
            assert_eq!(torture(9, 2500, 2, Some(path)), torture(9, 2500, 2, None), "{name}");
            assert_eq!(run(program("cases", &["branch"], Some(path))).0, "done", "{name}");
        }
    }
}
