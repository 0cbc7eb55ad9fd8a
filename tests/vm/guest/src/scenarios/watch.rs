//! What a running Terrace shows of itself: `terrace top`, metrics, the log, the report.

use crate::check::{Checks, eventually, set};
use crate::process::{Target, Terrace};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use terrace_live::server;

const REPORT: &str = "/tmp/report";
const FOLDER: &str = "/run/terrace";

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = Target::start(&["ticker"])?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    ensure!(up.success(), "no loopback interface");
    // Only Terrace is to move pages.
    set("/proc/sys/kernel/numa_balancing", 0)?;
    let hotset = ["hotset", "--mib", "16", "--no-thp", "--on", "1", "--hot-percent", "25"];
    let mut target = Target::start(&hotset)?;
    target.wait_for("phase")?;
    let arguments = [
        "--policy",
        "nimble",
        "--set",
        "period=1 s",
        "--limit",
        "dram=8MiB",
        "--cpu",
        "none",
        "--pressure",
        "none",
        "--metrics",
        "127.0.0.1:9464",
        "--report",
        REPORT,
        "-v",
    ];
    let terrace = Terrace::attach(target.pid(), &arguments)?;
    let mut last = Value::Null;
    let settled = eventually(|| {
        last = status().unwrap_or(Value::Null);
        let number = |path: &str| last.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        Ok(number("/moves/promoted") >= 4 << 20 && number("/moves/waiting") == 0)
    })?;
    checks.that(settled, "4 MiB of hot pages are promoted", &last["moves"]);
    let number = |path: &str| last.pointer(path).and_then(Value::as_u64);
    let tiers: Vec<&str> =
        ["/tiers/0/name", "/tiers/1/name"].iter().filter_map(|path| last.pointer(path)?.as_str()).collect();
    checks.equal("tiers", tiers, vec!["dram", "slow"]);
    let (ours, kernel) = (moved(&last), number("/kernel/pgmigrate_success"));
    checks.that(
        kernel >= ours && ours > Some(0),
        "the kernel counts at least Terrace's moves",
        format!("{ours:?}, {kernel:?}"),
    );

    // Rates are means over five seconds.
    std::thread::sleep(Duration::from_secs(6));
    let frame = top(&["--once"])?;
    frame.lines().for_each(|line| checks.note(line));
    let line =
        |start: &str| frame.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    for (start, part) in
        [("dram", "8.0 MiB"), ("slow", "MiB"), ("promoted", "pgpromote_success"), ("together", "MiB")]
    {
        checks.that(line(start).contains(part), format!("top shows {start}"), line(start));
    }
    checks.that(
        frame.lines().all(|line| line.chars().count() <= 80),
        "top fits 80 columns",
        frame.lines().count(),
    );

    let metrics = Command::new("wget").args(["-q", "-O", "-", "http://127.0.0.1:9464/metrics"]).output()?;
    let metrics = String::from_utf8(metrics.stdout)?;
    let shown = |line: &&str| line.contains("terrace_tier_") || line.contains("terrace_moved_");
    metrics.lines().filter(shown).for_each(|line| checks.note(line));
    for name in
        ["terrace_tier_used_bytes{tier=\"slow\"}", "terrace_moved_bytes_total{direction=\"promoted\"}"]
    {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        checks.that(value > Some(0.0), "a metric has a value", line);
    }

    let (_, socket) = server::sockets(Path::new(FOLDER)).pop().context("no socket")?;
    server::ask(&socket, "POST", "/pause")?;
    let paused = eventually(|| Ok(status()?["state"] == "paused"))?;
    checks.that(paused, "a pause is obeyed", status()?["state"].clone());
    server::ask(&socket, "POST", "/resume")?;

    let said = terrace.finish()?;
    for part in ["process joined", "the policy ordered moves", "paused"] {
        checks.that(said.contains(part), format!("the log says: {part}"), format!("{} bytes", said.len()));
    }
    checks.that(!socket.exists(), "the socket is gone", socket.display());
    let results: Value = serde_json::from_slice(&std::fs::read(format!("{REPORT}/results.json"))?)?;
    let shares: f64 = (0..2)
        .filter_map(|tier| results.pointer(&format!("/runs/0/tiering/tiers/{tier}/share"))?.as_f64())
        .sum();
    checks.that((shares - 1.0).abs() < 1e-6, "the report's shares of the tiers add up", shares);
    checks.note(&results["conclusions"][0]["text"]);
    Ok(())
}

fn moved(status: &Value) -> Option<u64> {
    let bytes = |name: &str| status["moves"][name].as_u64();
    Some((bytes("promoted")? + bytes("demoted")?) >> 12)
}

fn top(arguments: &[&str]) -> Result<String> {
    let output = Command::new("terrace").arg("top").args(arguments).output()?;
    ensure!(output.status.success(), "terrace top: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// What the Terrace that runs says of itself.
pub fn status() -> Result<Value> {
    Ok(serde_json::from_str(&top(&["--json", "-"])?)?)
}
