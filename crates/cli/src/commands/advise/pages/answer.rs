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
    out.push_str(&regions(document));
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

fn regions(document: &Document) -> String {
    let mut out = String::new();
    out.push_str("region               walks    touched   mappable      bloat         gain\n");
    out.push_str("                                       2m   1g     2m    1g     2m     1g  size\n");
    let all: u64 = document.parts.iter().map(|part| part.touched_bytes).sum();
    let matters = |part: &&PartAnswer| part.walk_share >= 0.001 || part.touched_bytes * 1000 >= all;
    let shown: Vec<&PartAnswer> = document.parts.iter().filter(matters).take(SHOWN).collect();
    for part in &shown {
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
