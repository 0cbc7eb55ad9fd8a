//! Real programs, as they are installed.

use crate::support::{Workshop, options, run, start};
use std::process::{Command, Stdio};
use terrace_recorder::{RecordError, RecordOptions, record};
use terrace_trace::{Event, EventSource};

#[test]
fn python() {
    let workshop = Workshop::new();
    let script = workshop.path("script.py");
    std::fs::write(&script, "assert sum(i * i for i in range(1000)) == 332833500\n").unwrap();
    let recorded = run(&[&"python3", &"-I", &"-S", &script], &options());
    assert!(recorded.status.success(), "python3 is needed by this test: {}", recorded.status);
    assert!(recorded.accesses() > 1_000_000);
}

#[test]
fn variables_are_the_programs_and_stand_in_the_header() {
    let environment =
        vec![("GLIBC_TUNABLES".into(), "glibc.malloc.hugetlb=1".into()), ("OTHER".into(), "a b".into())];
    let options = RecordOptions { environment, ..options() };
    let test = "test \"$GLIBC_TUNABLES $OTHER\" = 'glibc.malloc.hugetlb=1 a b'";
    let mut recording = start(&[&"sh", &"-c", &test], &options);
    let header = recording.header().environment.clone();
    assert!(header.contains(&"GLIBC_TUNABLES=glibc.malloc.hugetlb=1".to_owned()), "{header:?}");
    while recording.next_batch().unwrap().is_some() {}
    assert!(recording.wait().unwrap().success());
}

#[test]
fn sqlite() {
    let workshop = Workshop::new();
    let query = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where \
                 i < 2000) insert into t select i, i * 7 from n; create index x on t(b); \
                 select case when sum(b) = 14007000 then 1 else 1/(select 0) end from t;";
    let recorded = run(&[&"sqlite3", &workshop.path("data.db"), &query], &options());
    assert!(recorded.status.success(), "sqlite3 is needed by this test: {}", recorded.status);
    assert!(recorded.accesses() > 1_000_000);
}

#[test]
fn sort() {
    let workshop = Workshop::new();
    let (input, output) = (workshop.path("input"), workshop.path("output"));
    let lines: Vec<String> = (0..5000u64).map(|i| (i * 7919 % 5003).to_string()).collect();
    std::fs::write(&input, lines.join("\n") + "\n").unwrap();
    let recorded = run(&[&"sort", &"-n", &"-o", &output, &input], &options());
    assert!(recorded.status.success());
    let sorted = std::fs::read_to_string(&output).unwrap();
    let numbers: Vec<u64> = sorted.lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers.len() == 5000 && numbers.is_sorted());
}

#[test]
fn gcc_and_its_compiler_proper() {
    let workshop = Workshop::new();
    let (input, output) = (workshop.path("input.c"), workshop.path("output.o"));
    std::fs::write(&input, "int square(int x) { return x * x; }\n").unwrap();
    let recorded = run(&[&"gcc", &"-O2", &"-c", &input, &"-o", &output], &options());
    assert!(recorded.status.success(), "gcc is needed by this test");
    assert!(recorded.executed("cc1") && recorded.executed("as"));
    assert_eq!(recorded.warnings, [""; 0]);
    assert!(output.exists());
}

#[test]
fn rust() {
    let workshop = Workshop::new();
    let source = "use std::collections::HashMap; fn main() { let t: Vec<_> = (0..4u64).map(|n| std::thread::spawn(\
                  move || { let m: HashMap<u64, u64> = (0..500).map(|i| (i, i * n)).collect(); \
                  m.values().sum::<u64>() })).collect(); \
                  let s: u64 = t.into_iter().map(|t| t.join().unwrap()).sum(); assert_eq!(s, 748500); }";
    for link in ["target-feature=-crt-static", "target-feature=+crt-static"] {
        let program = workshop.compile("rustc", "program.rs", source, &["-O", "-C", link]);
        let recorded = run(&[&program], &options());
        assert!(recorded.status.success(), "{link}");
        assert_eq!(recorded.streams(), 5, "{link}");
    }
}

#[test]
fn cplusplus() {
    let workshop = Workshop::new();
    let source = "#include <map>\n#include <string>\nint main() { std::map<int, std::string> m; for (int i = 0; i < 1000; \
                  i++) m[i * 7 % 1009] = std::to_string(i); return m.size() == 1000 ? 0 : 1; }";
    let program = workshop.compile("c++", "program.cpp", source, &["-O2"]);
    let recorded = run(&[&program], &RecordOptions { allocations: true, ..options() });
    assert!(recorded.status.success());
    let allocations = recorded.events().filter(|(_, e)| matches!(e.event, Event::Alloc { .. })).count();
    assert!(allocations >= 1000);
    let program = workshop.compile("c++", "program.cpp", source, &["-O2", "-static"]);
    let recorded = run(&[&program], &options());
    assert!(recorded.status.success());
    assert!(recorded.accesses() > 10_000);
}

#[test]
fn redis_under_load() {
    let workshop = Workshop::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let command: [&dyn AsRef<std::ffi::OsStr>; 9] = [
        &"redis-server",
        &"--port",
        &port,
        &"--save",
        &"",
        &"--dir",
        &workshop.path(""),
        &"--logfile",
        &workshop.path("log"),
    ];
    let mut recording = start(&command, &options());
    let load = {
        let port = port.clone();
        std::thread::spawn(move || {
            let redis = |program: &str, arguments: &[&str]| {
                Command::new(program)
                    .args(["-p", &port])
                    .args(arguments)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .unwrap_or_else(|e| panic!("{program} is needed by this test: {e}"))
                    .success()
            };
            let up = (0..600).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                redis("redis-cli", &["ping"])
            });
            assert!(up, "the server did not start");
            let loaded = redis("redis-benchmark", &["-n", "500", "-c", "5", "-t", "set,get", "-d", "100"]);
            redis("redis-cli", &["shutdown", "nosave"]);
            assert!(loaded);
        })
    };
    let (mut accesses, mut waits, mut copied) = (0, 0, 0);
    while let Some(batch) = recording.next_batch().unwrap() {
        assert_eq!(batch.validate(), Ok(()));
        accesses += batch.len();
        for event in &batch.events {
            match event.event {
                Event::Wait { .. } => waits += 1,
                Event::Kernel { .. } => copied += 1,
                _ => {}
            }
        }
    }
    load.join().unwrap();
    assert!(recording.wait().unwrap().success());
    assert!(accesses > 1_000_000 && waits > 10 && copied > 1000, "{accesses} {waits} {copied}");
}

#[test]
fn what_is_missing_is_named() {
    let missing = RecordOptions { qemu: Some("/no/such/qemu".into()), ..options() };
    let error = record(&["true".into()], &missing).err().unwrap();
    assert!(matches!(error, RecordError::QemuMissing));
    assert!(error.to_string().contains("sudo apt-get install qemu-user"));
    let error = record(&["no-such-program".into()], &options()).err().unwrap();
    assert!(error.to_string().contains("no-such-program"));
    let workshop = Workshop::new();
    let program = workshop.static_c("int main() { return 0; }");
    let mut bytes = std::fs::read(&program).unwrap();
    // The processor's number in the ELF header: 183 is AArch64.
    bytes[18] = 183;
    std::fs::write(&program, bytes).unwrap();
    let error = record(&[program.into()], &options()).err().unwrap();
    assert!(matches!(error, RecordError::OtherMachine { machine: 183, .. }), "{error}");
    assert!(error.to_string().contains("another processor"));
}

#[test]
fn a_program_that_qemu_refuses_is_an_error() {
    let workshop = Workshop::new();
    let program = workshop.static_c("int main() { return 0; }");
    let mut bytes = std::fs::read(&program).unwrap();
    // Segments that do not fit into any address space.
    let table = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
    for header in bytes[table..table + 56 * 4].chunks_mut(56) {
        header[16..24].copy_from_slice(&(1u64 << 62).to_le_bytes());
    }
    std::fs::write(&program, bytes).unwrap();
    let mut recording = start(&[&program], &options());
    let error = loop {
        match recording.next_batch() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("before its first instruction"), "{error}");
}
