//! Measures the recorder, paired with its alternatives, and prints a table.
//!
//! `cargo run --release -p terrace-recorder --example recorder_bench [ROUNDS] [NAME…] [--no-lackey]` (3 rounds, all
//! programs).
//!
//! Each round runs each program natively, under a plugin whose callback only counts, recorded into a consumer that
//! throws all batches away, the same without dependences, recorded into a file, and, in the last round only, under
//! Valgrind's lackey with `--trace-mem=yes` into `/dev/null`. Within a round the runs follow each other directly; each
//! figure is the median over the rounds, and each ratio the median of the rounds' ratios. Times are wall-clock times of
//! the whole program, start-up included; the ratios to counting compare rates of callbacks, of which all runs make the
//! same number.
//!
//! `by CPU time` is the processor time of the program that counts (or runs under lackey), over that of the recorded
//! program or of the recorder, whichever is longer: the ratio to counting on a machine that gives each a core of its own,
//! whatever else runs there now.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use terrace_recorder::{RecordOptions, record};
use terrace_trace::{EventSource, TraceWriter};

/// Programs in C with one dominating pattern, compiled for the run.
const SOURCES: &[(&str, &str)] = &[
    (
        "stream",
        "static double a[1 << 20], b[1 << 20], c[1 << 20];
         int main() { for (int i = 0; i < 1 << 20; i++) { a[i] = i; b[i] = 2; c[i] = i * 3; }
         for (int r = 0; r < 10; r++) { for (int i = 0; i < 1 << 20; i++) a[i] = b[i] + 3 * c[i];
         __asm__ volatile(\"\" : : : \"memory\"); }
         return a[5] == 1; }",
    ),
    (
        "chase",
        "static void *node[1 << 16];
         int main() { unsigned x = 0; for (unsigned i = 0; i < 1 << 16; i++) { unsigned y = x * 1664525u + 1013904223u;
         y &= (1 << 16) - 1; node[x] = &node[y]; x = y; }
         void **p = node; for (long i = 0; i < 20000000; i++) p = *p; return p == 0; }",
    ),
    (
        "update",
        "static long t[1 << 20];
         int main() { unsigned long x = 88172645463325252; for (long i = 0; i < 10000000; i++) {
         x ^= x << 13; x ^= x >> 7; x ^= x << 17; t[x & ((1 << 20) - 1)] ^= x; } return t[1] == 2; }",
    ),
];

struct Program {
    name: String,
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Default)]
struct Round {
    native: f64,
    counting: f64,
    counted: f64,
    streaming: f64,
    accesses: f64,
    plain: f64,
    filing: f64,
    bytes: f64,
    /// Processor seconds: the counting program's; the recorded one's and the recorder's, whichever is longer.
    counting_cpu: f64,
    streaming_cpu: f64,
    plain_cpu: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let rounds: usize = arguments.next_if(|a| a.parse::<usize>().is_ok()).map_or(3, |a| a.parse().unwrap());
    let (flags, wanted): (Vec<String>, Vec<String>) = arguments.partition(|a| a.starts_with("--"));
    let with_lackey = !flags.contains(&"--no-lackey".to_owned());
    let directory = tempfile::tempdir()?;
    let programs: Vec<Program> = programs(directory.path())?
        .into_iter()
        .filter(|p| wanted.is_empty() || wanted.contains(&p.name))
        .collect();
    println!(
        "| program | accesses | native | slowdown | counting | null consumer | of counting | by CPU time | no dependences, by CPU time | to a file | of counting | bytes/access | against lackey | by CPU time |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for program in &programs {
        let mut all = Vec::new();
        for _ in 0..rounds {
            all.push(measure(program, directory.path())?);
        }
        // Directly after the last recording, with which it is paired.
        let lackey = if with_lackey { run_lackey(program)? } else { None };
        report(program, &all, lackey);
    }
    Ok(())
}

fn programs(directory: &Path) -> Result<Vec<Program>, Box<dyn std::error::Error>> {
    let mut programs = Vec::new();
    for (name, source) in SOURCES {
        let input = directory.join(name).with_extension("c");
        let output = directory.join(name);
        std::fs::write(&input, source)?;
        let compiled = Command::new("cc").args(["-O2", "-o"]).arg(&output).arg(&input).status()?.success();
        assert!(compiled, "cc failed");
        programs.push(Program { name: (*name).to_owned(), command: vec![output.into()] });
    }
    let mut add = |name: &str, command: &[&str]| {
        let command = command.iter().map(OsString::from).collect();
        programs.push(Program { name: name.to_owned(), command });
    };
    // Prints into a file, so that the table stays whole.
    let results = directory.join("results");
    let output_to = format!(".output {}", results.display());
    for (name, rows) in [("sqlite3", 5_000), ("sqlite3-long", 30_000)] {
        let query = format!(
            "create table t(a integer primary key, b integer, c text); \
             with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows}) \
             insert into t select i, (i * 7919) % 5003, hex(i) from n; create index x on t(b); \
             select count(*), sum(u.a) from t join t as u on t.b = u.a; select c from t order by c limit 1;"
        );
        add(name, &["sqlite3", "-cmd", &output_to, ":memory:", &query]);
    }
    let python = output("python3", &["-c", "import sys; print(sys.executable)"])?;
    let script = "d = {}\nfor i in range(20000): d[i * 7 % 10007] = d.get(i % 5003, 0) + i\n";
    add("python3", &[&python, "-c", script]);
    // The long run shows what the short one, mostly start-up, does not.
    for (name, count) in [("sort", 20_000u64), ("sort-long", 400_000)] {
        let lines: Vec<String> = (0..count).map(|i| (i * 7919 % (count + 11)).to_string()).collect();
        let numbers = directory.join(name);
        std::fs::write(&numbers, lines.join("\n"))?;
        add(name, &["sort", "--parallel=1", numbers.to_str().expect("UTF-8"), "-o", "/dev/null"]);
    }
    let proper = output("gcc", &["-print-prog-name=cc1"])?;
    let unit = directory.join("unit.c");
    std::fs::write(&unit, (0..FUNCTIONS).map(function).collect::<String>())?;
    add("cc1", &[&proper, "-quiet", "-O2", unit.to_str().expect("UTF-8"), "-o", "/dev/null"]);
    Ok(programs)
}

/// Functions in what `cc1` compiles, of ten lines each.
const FUNCTIONS: usize = 100;

/// A function in C: a loop, a branch, a call of the one before.
fn function(i: usize) -> String {
    let call = if i == 0 { "n".to_owned() } else { format!("f{}(p, n - 1)", i - 1) };
    format!(
        "int f{i}(int *p, int n)\n{{\n    int s = {i};\n    for (int j = 0; j < n; j++) {{\n        if (p[j] > s)\n            \
         s += p[j] * {i};\n        p[j] ^= s >> 3;\n    }}\n    return n > 0 ? s + {call} : s;\n}}\n"
    )
}

fn output(program: &str, arguments: &[&str]) -> std::io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn measure(program: &Program, directory: &Path) -> Result<Round, Box<dyn std::error::Error>> {
    let mut round = Round::default();
    let started = Instant::now();
    Command::new(&program.command[0]).args(&program.command[1..]).stdout(Stdio::null()).status()?;
    round.native = started.elapsed().as_secs_f64();
    // Like with like: the counting run loads nothing into the program either.
    let options = RecordOptions { follow_exec: false, ..RecordOptions::default() };
    let counting = RecordOptions { count_only: true, ..options.clone() };
    let run = stream(program, &counting)?;
    (round.counting, round.counting_cpu, round.counted) = (run.seconds, run.cpu, run.counted as f64);
    let run = stream(program, &options)?;
    (round.streaming, round.streaming_cpu, round.accesses) = (run.seconds, run.cpu, run.accesses as f64);
    let run = stream(program, &RecordOptions { dependences: false, ..options.clone() })?;
    (round.plain, round.plain_cpu) = (run.seconds, run.cpu);
    let started = Instant::now();
    let mut recording = record(&program.command, &options)?;
    let mut writer = TraceWriter::create(directory.join("trace"), recording.header())?;
    while let Some(batch) = recording.next_batch()? {
        writer.push(&batch)?;
    }
    round.bytes = writer.finish()?.bytes_per_access();
    round.filing = started.elapsed().as_secs_f64();
    Ok(round)
}

/// A recording that nobody looks at.
struct Run {
    seconds: f64,
    /// Processor seconds of the program, or of the recorder where those are more.
    cpu: f64,
    accesses: u64,
    counted: u64,
}

fn stream(program: &Program, options: &RecordOptions) -> Result<Run, Box<dyn std::error::Error>> {
    let (children, own) = (cpu_seconds(libc::RUSAGE_CHILDREN), cpu_seconds(libc::RUSAGE_SELF));
    let started = Instant::now();
    let mut recording = record(&program.command, options)?;
    while recording.next_batch()?.is_some() {}
    let seconds = started.elapsed().as_secs_f64();
    let (accesses, counted) = (recording.accesses(), recording.counted());
    recording.wait()?;
    let children = cpu_seconds(libc::RUSAGE_CHILDREN) - children;
    let own = cpu_seconds(libc::RUSAGE_SELF) - own;
    Ok(Run { seconds, cpu: children.max(own), accesses, counted })
}

fn cpu_seconds(who: libc::c_int) -> f64 {
    // SAFETY: zeros are a valid value, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Wall-clock and processor seconds under lackey; `None` where Valgrind is not installed.
fn run_lackey(program: &Program) -> Result<Option<(f64, f64)>, Box<dyn std::error::Error>> {
    let (cpu, started) = (cpu_seconds(libc::RUSAGE_CHILDREN), Instant::now());
    let status = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-file=/dev/null"])
        .args(&program.command)
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(_) => Ok(Some((started.elapsed().as_secs_f64(), cpu_seconds(libc::RUSAGE_CHILDREN) - cpu))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn report(program: &Program, rounds: &[Round], lackey: Option<(f64, f64)>) {
    let median = |field: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let last = rounds[rounds.len() - 1];
    println!(
        "| {} | {:.1} M | {:.2} s | {:.0}x | {:.0} M/s | {:.0} M/s | {:.2} | {:.2} | {:.2} | {:.0} M/s | {:.2} | {:.2} | {} |",
        program.name,
        median(|r| r.accesses) / 1e6,
        median(|r| r.native),
        median(|r| r.streaming / r.native),
        median(|r| r.counted / r.counting) / 1e6,
        median(|r| r.counted / r.streaming) / 1e6,
        median(|r| r.counting / r.streaming),
        median(|r| r.counting_cpu / r.streaming_cpu),
        median(|r| r.counting_cpu / r.plain_cpu),
        median(|r| r.counted / r.filing) / 1e6,
        median(|r| r.counting / r.filing),
        median(|r| r.bytes),
        lackey.map_or("not run | not run".to_owned(), |(seconds, cpu)| {
            format!("{:.0}x | {:.0}x", seconds / last.streaming, cpu / last.streaming_cpu)
        }),
    );
}
