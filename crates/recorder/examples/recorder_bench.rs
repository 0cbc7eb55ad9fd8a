//! Measures the recorder, paired with its alternatives, and prints a table.
//!
//! `cargo run --release -p terrace-recorder --example recorder_bench [ROUNDS] [NAME…]` (3 rounds, all programs).
//!
//! Each round runs each program natively, under a plugin whose callback only counts, recorded into a consumer that
//! throws all batches away (with and without dependences), and, in the first round only, under Valgrind's lackey with
//! `--trace-mem=yes` into `/dev/null`. Within a round the runs follow each other directly; each figure is the median
//! over the rounds. `of counting` compares wall-clock times of the same program, start-up included.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use terrace_recorder::{RecordOptions, record};
use terrace_trace::EventSource;

/// Programs in C with one dominating pattern, compiled for the run.
const SOURCES: &[(&str, &str)] = &[
    (
        "stream",
        "static double a[1 << 20], b[1 << 20], c[1 << 20];
         int main() { for (int r = 0; r < 40; r++) for (int i = 0; i < 1 << 20; i++) a[i] = b[i] + 3 * c[i];
         return a[5] == 1; }",
    ),
    (
        "chase",
        "#include <stdlib.h>
         static void *node[1 << 20];
         int main() { unsigned x = 0; for (unsigned i = 0; i < 1 << 20; i++) { unsigned y = x * 1664525u + 1013904223u;
         y &= (1 << 20) - 1; node[x] = &node[y]; x = y; }
         void **p = node; for (long i = 0; i < 60000000; i++) p = *p; return p == 0; }",
    ),
    (
        "update",
        "static long t[1 << 22];
         int main() { unsigned long x = 88172645463325252; for (long i = 0; i < 30000000; i++) {
         x ^= x << 13; x ^= x >> 7; x ^= x << 17; t[x & ((1 << 22) - 1)] ^= x; } return t[1] == 2; }",
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
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let rounds: usize = arguments.next_if(|a| a.parse::<usize>().is_ok()).map_or(3, |a| a.parse().unwrap());
    let wanted: Vec<String> = arguments.collect();
    let directory = tempfile::tempdir()?;
    let programs: Vec<Program> = programs(directory.path())?
        .into_iter()
        .filter(|p| wanted.is_empty() || wanted.contains(&p.name))
        .collect();
    println!(
        "| program | accesses | native | slowdown | counting | streaming | of counting | without dependences | lackey | times lackey |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for program in &programs {
        let mut lackey = None;
        let mut all = Vec::new();
        for round in 0..rounds {
            all.push(measure(program)?);
            if round == 0 {
                lackey = run_lackey(program)?;
            }
        }
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
    let query = "create table t(a integer primary key, b integer, c text); \
                 with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000) \
                 insert into t select i, (i * 7919) % 60013, hex(i) from n; create index x on t(b); \
                 select count(*), sum(u.a) from t join t as u on t.b = u.a; select c from t order by c limit 1;";
    add("sqlite3", &["sqlite3", ":memory:", query]);
    let python = output("python3", &["-c", "import sys; print(sys.executable)"])?;
    let script = "d = {}\nfor i in range(200000): d[i * 7 % 10007] = d.get(i % 5003, 0) + i\nprint(len(d))";
    add("python3", &[&python, "-c", script]);
    let lines: Vec<String> = (0..100_000u64).map(|i| (i * 7919 % 100_003).to_string()).collect();
    let numbers = directory.join("numbers");
    std::fs::write(&numbers, lines.join("\n"))?;
    add("sort", &["sort", "--parallel=1", numbers.to_str().expect("UTF-8"), "-o", "/dev/null"]);
    let proper = output("gcc", &["-print-prog-name=cc1"])?;
    let text: String = (0..400)
        .map(|i| format!("int f{i}(int *p, int n) {{ int s = {i}; for (int i = 0; i < n; i++) s += p[i] * s; return s; }}\n"))
        .collect();
    let unit = directory.join("unit.c");
    std::fs::write(&unit, text)?;
    add("cc1", &[&proper, "-quiet", "-O2", unit.to_str().expect("UTF-8"), "-o", "/dev/null"]);
    Ok(programs)
}

fn output(program: &str, arguments: &[&str]) -> std::io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn measure(program: &Program) -> Result<Round, Box<dyn std::error::Error>> {
    let mut round = Round::default();
    let started = Instant::now();
    Command::new(&program.command[0]).args(&program.command[1..]).stdout(Stdio::null()).status()?;
    round.native = started.elapsed().as_secs_f64();
    // Like with like: the counting run loads nothing into the program either.
    let options = RecordOptions { follow_exec: false, ..RecordOptions::default() };
    let counting = RecordOptions { count_only: true, ..options.clone() };
    let (seconds, _, counted) = stream(program, &counting)?;
    (round.counting, round.counted) = (seconds, counted as f64);
    let (seconds, accesses, _) = stream(program, &options)?;
    (round.streaming, round.accesses) = (seconds, accesses as f64);
    round.plain = stream(program, &RecordOptions { dependences: false, ..options })?.0;
    Ok(round)
}

/// Seconds, accesses delivered and accesses counted of a recording that nobody looks at.
fn stream(program: &Program, options: &RecordOptions) -> Result<(f64, u64, u64), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let mut recording = record(&program.command, options)?;
    while recording.next_batch()?.is_some() {}
    let seconds = started.elapsed().as_secs_f64();
    Ok((seconds, recording.accesses(), recording.counted()))
}

fn run_lackey(program: &Program) -> Result<Option<f64>, Box<dyn std::error::Error>> {
    let started = Instant::now();
    let status = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-file=/dev/null"])
        .args(&program.command)
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() || status.code().is_some() => {
            Ok(Some(started.elapsed().as_secs_f64()))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn report(program: &Program, rounds: &[Round], lackey: Option<f64>) {
    let median = |field: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(field).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let counted = median(|r| r.counted);
    let streaming = median(|r| r.streaming);
    println!(
        "| {} | {:.1} M | {:.2} s | {:.0}x | {:.0} M/s | {:.0} M/s | {:.2} | {:.2} | {} | {} |",
        program.name,
        median(|r| r.accesses) / 1e6,
        median(|r| r.native),
        streaming / median(|r| r.native),
        counted / median(|r| r.counting) / 1e6,
        counted / streaming / 1e6,
        median(|r| r.counting / r.streaming),
        median(|r| r.counting / r.plain),
        lackey.map_or("missing".to_owned(), |s| format!("{s:.1} s")),
        lackey.map_or("missing".to_owned(), |s| format!("{:.0}x", s / streaming)),
    );
}
