//! `terrace view` of a running `terrace run` where there are two tiers: the page shows pages where the kernel has them, and
//! its pause and resume are the engine's.

use crate::check::{Checks, node_of_each, nodes_of, pages, share_on, until};
use crate::memory::PAGE;
use crate::process::Target;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_live::kernel::{Kernel, Linux, Process};

/// Share of the hot pages that has to lie in the fast tier in the end.
const SHARE: f64 = 0.95;
/// How long nothing may happen in a pause: some of the policy's rounds.
const PAUSE: Duration = Duration::from_secs(8);
/// No answer takes longer.
const TIMEOUT: Duration = Duration::from_secs(120);

/// `terrace view`, and what an open page is sent. It ends with this.
struct Page {
    child: Child,
    address: String,
    token: String,
    events: BufReader<TcpStream>,
}

impl Page {
    fn open(arguments: &[&str]) -> Result<Page> {
        let mut child = Command::new("terrace").arg("view").args(arguments).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut url)?;
        let rest = url.trim().strip_prefix("http://").with_context(|| format!("it printed \"{url}\""))?;
        let (address, token) = rest.split_once('/').with_context(|| rest.to_owned())?;
        let (address, token) = (address.to_owned(), token.trim_end_matches('/').to_owned());
        let mut events = connect(&address)?;
        write!(events, "GET /{token}/events HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        Ok(Page { child, events: BufReader::new(events), address, token })
    }

    /// An answer's status and what follows its head.
    fn ask(&self, method: &str, path: &str) -> Result<(String, String)> {
        let mut stream = connect(&self.address)?;
        write!(stream, "{method} /{}/{path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.token, self.address)?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").with_context(|| text.clone())?;
        Ok((head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned()))
    }

    /// The next event of this name that the server sends after this call, judged by its numbers.
    fn next(&mut self, name: &str) -> Result<Value> {
        let (deadline, mut event) = (Instant::now() + TIMEOUT, String::new());
        loop {
            let mut line = String::new();
            ensure!(self.events.read_line(&mut line)? > 0, "the page is sent nothing more");
            ensure!(Instant::now() < deadline, "no event \"{name}\" came");
            match line.trim_end().split_once(": ") {
                Some(("event", value)) => event = value.to_owned(),
                Some(("data", value)) if event == name => return Ok(serde_json::from_str(value)?),
                _ => {}
            }
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Bytes of a range that the map has in each tier.
fn in_map(map: &Value, pid: u32, range: &Range<u64>) -> Result<[u64; 2]> {
    let processes = map["processes"].as_array().context("no processes")?;
    let process = processes.iter().find(|process| process["pid"] == pid).context("not this process")?;
    let mut sums = [0; 2];
    for part in process["parts"].as_array().context("no parts")? {
        let (start, bytes) =
            (part["start"].as_u64().context("start")?, part["bytes"].as_u64().context("bytes")?);
        if start < range.end && start + bytes > range.start {
            for (sum, bytes) in sums.iter_mut().zip(part["resident"].as_array().context("resident")?) {
                *sum += bytes.as_u64().context("a number")?;
            }
        }
    }
    Ok(sums)
}

fn moved(status: &Value) -> u64 {
    ["promoted", "demoted"].iter().filter_map(|key| status["moves"][key].as_u64()).sum()
}

/// Where each page of the memory lies.
fn placement(process: &Process, memory: &Range<u64>) -> Result<Vec<i32>> {
    node_of_each(process, &pages(memory))
}

pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = super::harm::quiet()?;
    let bounds = ["run", "--limit", "dram=5MiB", "--cpu", "none", "--pressure", "none", "--regions", "8192"];
    let policy = ["--policy", "nimble", "--set", "period=1 s", "--", "/bin/guest", "hotset", "--mib", "16"];
    let hot = ["--no-thp", "--on", "1", "--hot-percent", "25", "--hot-start-percent", "30"];
    let mut target = Target::started_by("terrace", &[&bounds[..], &policy, &hot].concat())?;
    target.wait_for("phase")?;
    let pid: u32 = target.value("pid")?.parse()?;
    let process = Linux.open(pid)?;
    let memory = target.range("memory")?;
    let first = target.range("hot")?;

    let mut page = Page::open(&["--live", "--price", "slow=0.33"])?;
    let (status, beginning) = page.ask("GET", "live")?;
    checks.equal("the page begins", status.as_str(), "200");
    checks.equal(
        "with the price",
        serde_json::from_str::<Value>(&beginning)?["prices"]["slow"].as_f64(),
        Some(0.33),
    );
    let (status, _) = page.ask("GET", "../live")?;
    checks.that(status != "200", "and nothing without the token", status);

    let up = until(|| share_on(&process, &first, 0), |up| *up >= SHARE)?;
    checks.that(up >= SHARE, "the hot pages come to the fast tier", format!("{up:.3}"));
    let status = until(|| page.next("status"), |status| moved(status) >= (first.end - first.start) / 2)?;
    checks.that(moved(&status) > 0, "moves are shown", &status["moves"]);
    checks.equal("two tiers", status["tiers"].as_array().map(Vec::len), Some(2));
    checks.equal("the policy", status["policy"].as_str(), Some("nimble"));

    // In a pause nothing moves, so that the kernel and the page can be compared.
    let (status, answer) = page.ask("POST", "pause")?;
    checks.equal("pause is taken", (status.as_str(), !answer.is_empty()), ("200", true));
    let status = until(|| page.next("status"), |status| status["state"] == "paused")?;
    checks.equal("and shown", status["state"].as_str(), Some("paused"));
    // SAFETY: the command runs, for its parent waits for it.
    unsafe { libc::kill(pid as i32, libc::SIGUSR1) };
    target.wait_for("phase")?;
    let second = target.range("hot")?;
    let (before, begin) = (placement(&process, &memory)?, Instant::now());
    let mut still = status.clone();
    while begin.elapsed() < PAUSE {
        still = page.next("status")?;
    }
    checks.that(placement(&process, &memory)? == before, "no page moves in a pause", "hot are others by now");
    let nodes = nodes_of(&process, &memory)?;
    let kernel = [0, 1].map(|node| nodes.get(&node).copied().unwrap_or(0) as u64 * PAGE);
    let shown = until(|| in_map(&page.next("map")?, pid, &memory), |shown| *shown == kernel)?;
    checks.equal("the heat map has each byte where the kernel has it", shown, kernel);
    checks.equal("no move is shown", moved(&still), moved(&status));

    let (status, _) = page.ask("POST", "resume")?;
    checks.equal("resume is taken", status.as_str(), "200");
    let up = until(|| share_on(&process, &second, 0), |up| *up >= SHARE)?;
    checks.that(up >= SHARE, "the pages that are hot now come up", format!("{up:.3}"));
    let status = until(|| page.next("status"), |status| moved(status) > moved(&still))?;
    checks.that(moved(&status) > moved(&still), "and moves are shown again", &status["moves"]);
    let hot = |map: &Value| -> Option<u64> {
        let processes = map["processes"].as_array()?.iter();
        let parts = processes.filter_map(|process| process["parts"].as_array()).flatten();
        Some(parts.filter_map(|part| part["hot"].as_array()).flatten().filter_map(Value::as_u64).sum())
    };
    let heat = until(|| page.next("map"), |map| hot(map) > Some(0))?;
    checks.that(hot(&heat) > Some(0), "the map says what is hot", format!("{:?} bytes", hot(&heat)));

    // The page goes, and the engine goes on.
    drop(page);
    std::thread::sleep(Duration::from_secs(2));
    let mut again = Page::open(&["--live"])?;
    let state = again.next("status")?["state"].clone();
    checks.that(state != "paused" && state != "stopped", "the engine goes on without its page", state);
    target.kill()?;
    super::harm::outlived(checks, pid)?;
    let gone = again.next("gone")?;
    checks.that(gone.is_string(), "its end is shown", gone);
    Ok(())
}
