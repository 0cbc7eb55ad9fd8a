//! The answer as JSON and as one screen.

use super::parts::PartAnswer;
use super::verdict::{Verdict, share};
use super::ways::WayAnswer;
use crate::commands::workload::readable;
use crate::{output, progress};
use serde::Serialize;

/// Regions that are shown; JSON has all.
const SHOWN: usize = 12;

#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub input: String,
    pub machine: String,
    pub fidelity: String,
    pub scale: u32,
    pub accesses: u64,
    /// Resident with base pages, when most was.
    pub touched_bytes: u64,
    pub tolerated_bloat: f64,
    pub verdict: Verdict,
    pub ways: Vec<WayAnswer>,
    #[serde(rename = "regions")]
    pub parts: Vec<PartAnswer>,
    pub remarks: Vec<String>,
    pub command: Option<String>,
}

/// The answer in one screen.
pub(super) fn text(document: &Document) -> String {
    let mut out = String::new();
    let mut say = |text: &str| out.push_str(&(output::wrap(text, 80).join("\n") + "\n"));
    say(&format!(
        "{} on {}: {} accesses, {} touched",
        document.input,
        document.machine,
        progress::short(document.accesses as f64),
        readable(document.touched_bytes),
    ));
    say("");
    say(&document.verdict.advice);
    say(&document.verdict.reason);
    say("");
    out.push_str(&ways(document));
    out.push('\n');
    let shown = shown(document);
    out.push_str(&regions(document, &shown));
    out.push('\n');
    out.push_str(&costs(document, &shown));
    out.push('\n');
    for remark in &document.remarks {
        out.push_str(&output::hanging("- ", remark, 76));
    }
    if let Some(command) = &document.command {
        out.push_str(&format!("\nSee it: {command}\n"));
    }
    out
}

fn ways(document: &Document) -> String {
    let mut out = format!(
        "{:<12}{:>10}{:>8}{:>8}{:>7}{:>8}{:>12}{:>15}\n",
        "pages", "time", "gain", "walks", "large", "bloat", "copied", "faults"
    );
    for way in &document.ways {
        let name: String = way.name.chars().take(12).collect();
        let Some(figures) = &way.figures else {
            let why = way.refused.as_deref().unwrap_or("it failed");
            out.push_str(&output::hanging("", &format!("{name:<12} cannot run: {why}"), 78));
            continue;
        };
        let latency = &figures.fault_latency;
        let is_base = way.name == "4k";
        out.push_str(&format!(
            "{name:<12}{:>10}{:>8}{:>8}{:>7}{:>8}{:>12}{:>15}\n",
            progress::time(figures.seconds_simulated),
            if is_base { "-".to_owned() } else { share(figures.gain) },
            share(figures.walk_cycles_left),
            share(figures.large_share),
            if is_base { "-".to_owned() } else { share(figures.bloat) },
            if figures.copied_bytes == 0 { "-".to_owned() } else { readable(figures.copied_bytes) },
            [latency.p50_ns, latency.p99_ns, latency.max_ns].map(microseconds).join("/"),
        ));
    }
    let legend = "gain: over 4k; walks: cycles of page walks over 4k's; large: of what is resident, in pages above 4 KiB; \
                  bloat: resident beyond 4k's; copied: to make large pages; faults: median, 99th percentile and longest \
                  in us";
    out + &output::wrap(legend, 80).join("\n") + "\n"
}

/// `0.7`, `838`, `429k`.
fn microseconds(nanoseconds: u64) -> String {
    match nanoseconds {
        ..10_000 => format!("{:.1}", nanoseconds as f64 / 1e3),
        10_000..10_000_000 => format!("{}", nanoseconds / 1000),
        _ => format!("{}k", nanoseconds / 1_000_000),
    }
}

/// The regions that matter.
fn shown(document: &Document) -> Vec<&PartAnswer> {
    let all: u64 = document.parts.iter().map(|part| part.touched_bytes).sum();
    let matters = |part: &&PartAnswer| part.walk_share >= 0.001 || part.touched_bytes * 1000 >= all;
    document.parts.iter().filter(matters).take(SHOWN).collect()
}

fn regions(document: &Document, shown: &[&PartAnswer]) -> String {
    let mut out = String::new();
    out.push_str("region               walks    touched   mappable      bloat         gain\n");
    out.push_str("                                       2m   1g     2m    1g     2m     1g  size\n");
    for part in shown {
        let name: String = part.name.chars().take(19).collect();
        let of = |bytes: u64| bytes as f64 / part.touched_bytes.max(1) as f64;
        let [huge, giant] = &part.sizes;
        let whole =
            |share: f64| if share > 10.0 { format!("{share:.0}x") } else { format!("{:.0}%", share * 100.0) };
        let gain = |gain: Option<f64>| gain.map_or_else(|| "-".to_owned(), progress::tenth);
        out.push_str(&format!(
            "{name:<20}{:>6}{:>11}{:>5}{:>5}{:>7}{:>6}{:>7}{:>7}{:>6}\n",
            whole(part.walk_share),
            readable(part.touched_bytes),
            whole(of(huge.mappable_bytes)),
            whole(of(giant.mappable_bytes)),
            whole(of(huge.bloat_bytes)),
            whole(of(giant.bloat_bytes)),
            gain(huge.gain),
            gain(giant.gain),
            part.size,
        ));
    }
    let more = document.parts.len() - shown.len();
    if more > 0 {
        out.push_str(&format!("and {more} smaller regions, which --json has\n"));
    }
    out + "walks: of the walk cycles with 4k; mappable: of what is touched, in aligned\n\
           places of one mapping; bloat: what is untouched there, over touched\n"
}

/// Page sizes whose faults are shown for each region.
const SIZES: [&str; 3] = ["4k", "2m", "1g"];
/// Ways that copy for which there is room on a line.
const COPYING: usize = 3;

/// What each region costs: in faults under each page size, and in copying under each way that copies.
fn costs(document: &Document, shown: &[&PartAnswer]) -> String {
    let ran = |name: &&str| document.ways.iter().any(|way| way.name == *name && way.figures.is_some());
    let sizes: Vec<&str> = SIZES.into_iter().filter(ran).collect();
    let copies = |way: &&WayAnswer| way.figures.as_ref().is_some_and(|figures| figures.copied_bytes > 0);
    let copying: Vec<&str> = document
        .ways
        .iter()
        .filter(|way| !way.is_other_hardware)
        .filter(copies)
        .map(|way| way.name.as_str())
        .take(COPYING)
        .collect();
    let columns = |names: &[&str], width: usize| -> String {
        names
            .iter()
            .map(|name| format!("{:>width$}", name.chars().take(width - 1).collect::<String>()))
            .collect()
    };
    let (times, longest) = (sizes.len() * 7, sizes.len() * 6);
    let mut out = format!("{:<17}{:>times$}{:>longest$}", "region", "in faults, ms", "longest, us");
    if !copying.is_empty() {
        out += &format!("{:>width$}", "copied", width = copying.len() * 8);
    }
    let head = [columns(&sizes, 7), columns(&sizes, 6), columns(&copying, 8)].concat();
    out += &format!("\n{:<17}{head}\n", "");
    for part in shown {
        let name: String = part.name.chars().take(16).collect();
        out += &format!("{name:<17}");
        let of = |way: &str| part.costs.iter().find(|cost| cost.way == way);
        for size in &sizes {
            let time = of(size).map_or(0.0, |cost| cost.fault_seconds);
            out += &format!("{:>7}", milliseconds(time));
        }
        for size in &sizes {
            let longest = of(size).filter(|cost| cost.faults > 0);
            out +=
                &format!("{:>6}", longest.map_or("-".to_owned(), |cost| microseconds(cost.longest_fault_ns)));
        }
        for way in &copying {
            let copied = of(way).map_or(0, |cost| cost.copied_bytes);
            out += &format!("{:>8}", if copied == 0 { "-".to_owned() } else { short_bytes(copied) });
        }
        out.push('\n');
    }
    let legend = "in faults: the program's time in page faults; copied: of its pages, to make larger ones or room; both in the whole run";
    out + &output::wrap(legend, 80).join("\n") + "\n"
}

/// `0.02`, `7.1`, `419`.
fn milliseconds(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms < 0.995 => format!("{ms:.2}"),
        ms if ms < 99.5 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// `64M`: for narrow columns.
fn short_bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        ..1_048_576 => (1 << 10, "K"),
        1_048_576..1_073_741_824 => (1 << 20, "M"),
        _ => (1 << 30, "G"),
    };
    let value = bytes as f64 / unit as f64;
    if value < 9.95 { format!("{value:.1}{name}") } else { format!("{value:.0}{name}") }
}
