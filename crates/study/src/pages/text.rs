//! The advice on large pages in one screen.

use super::{PageAdvice, Region, RegionCost, WayResult};
use crate::closing;
use crate::figures::{readable, share, short, time};
use terrace_model::text;
use terrace_report::machine_sentence;

/// Regions that are shown; JSON has all.
const SHOWN: usize = 12;

impl PageAdvice {
    /// The advice in one screen of 80 columns.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut say = |text: &str| out.push_str(&(text::wrap(text, 80).join("\n") + "\n"));
        say(&format!(
            "{} on {}: {} accesses, {} touched",
            self.input,
            self.machine,
            short(self.accesses as f64),
            readable(self.touched_bytes),
        ));
        say(&machine_sentence(&self.machine, &self.machine_tiers));
        say("");
        say(&self.verdict.advice);
        say(&self.verdict.reason);
        say("");
        out.push_str(&ways(self));
        out.push('\n');
        out.push_str(&hardware(self));
        let shown = shown(self);
        out.push_str(&regions(self, &shown));
        out.push('\n');
        if let Some(lines) = lines(&shown) {
            out.push_str(&lines);
            out.push('\n');
        }
        out.push_str(&faults(self, &shown));
        out.push('\n');
        if let Some(copies) = copies(self, &shown) {
            out.push_str(&copies);
            out.push('\n');
        }
        out + &closing::of_advice(&self.remarks, self.command.as_deref())
    }
}

fn ways(advice: &PageAdvice) -> String {
    let mut out = format!(
        "{:<11}{:>10}{:>7}{:>6}{:>7}{:>7}{:>7}{:>11}{:>14}\n",
        "pages", "time", "gain", "+/-", "walks", "large", "bloat", "copied", "faults"
    );
    for way in advice.ways.iter().filter(|way| way.tlb.is_none()) {
        let name = cut(&way.name, 11);
        let Some(figures) = &way.figures else {
            let why = way.refused.as_deref().unwrap_or("it failed");
            out.push_str(&text::hanging("", &format!("{name:<11} cannot run: {why}"), 78));
            continue;
        };
        let latency = figures.fault_latency.as_ref().map_or("-".to_owned(), |latency| {
            [latency.p50_ns, latency.p99_ns, latency.max_ns].map(microseconds).join("/")
        });
        let is_base = way.name == "4k";
        out.push_str(&format!(
            "{name:<11}{:>10}{:>7}{:>6}{:>7}{:>7}{:>7}{:>11}{:>14}\n",
            time(figures.seconds_simulated),
            if is_base { "-".to_owned() } else { cell(figures.gain) },
            figures
                .gain_interval
                .filter(|_| !is_base)
                .map_or("-".to_owned(), |[_, high]| { cell((1.0 + high) / (1.0 + figures.gain) - 1.0) }),
            share(figures.walk_cycles_left),
            share(figures.large_share),
            if is_base { "-".to_owned() } else { share(figures.bloat) },
            if figures.copied_bytes == 0 { "-".to_owned() } else { readable(figures.copied_bytes) },
            latency,
        ));
    }
    let legend = "gain: time with 4k over that of the way, less 1; +/-: how far that could be off; walks: cycles of page walks over 4k's; large: of what is resident, in pages above 4 KiB; \
                  bloat: resident beyond 4k's; copied: to make large pages; faults: median, 99th percentile and longest \
                  in us";
    out + &text::wrap(legend, 80).join("\n") + "\n"
}

/// TLBs for which there is room on a line.
const TLBS: usize = 4;

/// What the ways bring with each TLB, the machine's own first; nothing where it has no other.
fn hardware(advice: &PageAdvice) -> String {
    let mut tlbs: Vec<Option<&str>> = advice.ways.iter().map(|way| way.tlb.as_deref()).collect();
    tlbs.dedup();
    if tlbs.len() < 2 {
        return String::new();
    }
    let way = |plain: &str, tlb: Option<&str>| {
        advice.ways.iter().find(|way| way.plain == plain && way.tlb.as_deref() == tlb)
    };
    let mut out = String::new();
    for shown in tlbs.chunks(TLBS) {
        let names = shown.iter().map(|tlb| format!("{:>17}", cut(tlb.unwrap_or("as it is"), 15)));
        out += &format!("{:<12}{}\n", "TLB", names.collect::<String>());
        out += &format!("{:<12}{}\n", "pages", format!("{:>9}{:>8}", "gain", "waits").repeat(shown.len()));
        for plain in advice.ways.iter().filter(|way| way.tlb.is_none()) {
            if tlbs[1..].iter().all(|tlb| way(&plain.name, *tlb).is_none()) {
                continue;
            }
            out += &format!("{:<12}", cut(&plain.name, 12));
            for tlb in shown {
                let figures = way(&plain.name, *tlb).and_then(|way| way.figures.as_ref());
                let is_base = plain.name == "4k" && tlb.is_none();
                let gain = figures.filter(|_| !is_base).map_or("-".to_owned(), |figures| share(figures.gain));
                let waits = figures.map_or("-".to_owned(), |figures| share(figures.translation_share));
                out += &format!("{gain:>9}{waits:>8}");
            }
            out.push('\n');
        }
    }
    let legend = "gain: over 4k with the TLB as it is; waits: cycles that wait for translation, of all";
    out + &text::wrap(legend, 80).join("\n") + "\n\n"
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
fn shown(advice: &PageAdvice) -> Vec<&Region> {
    let all: u64 = advice.parts.iter().map(|part| part.touched_bytes).sum();
    let matters = |part: &&Region| part.walk_share >= 0.001 || part.touched_bytes * 1000 >= all;
    advice.parts.iter().filter(matters).take(SHOWN).collect()
}

fn regions(advice: &PageAdvice, shown: &[&Region]) -> String {
    let mut out = String::new();
    out.push_str("region               walks    touched   mappable      bloat         gain\n");
    out.push_str("                                       2m   1g     2m    1g     2m     1g  size\n");
    for part in shown {
        let name = cut(&part.name, 19);
        let of = |bytes: u64| bytes as f64 / part.touched_bytes.max(1) as f64;
        let [huge, giant] = &part.sizes;
        let whole =
            |share: f64| if share > 10.0 { format!("{share:.0}x") } else { format!("{:.0}%", share * 100.0) };
        let gain = |gain: Option<f64>| gain.map_or_else(|| "-".to_owned(), cell);
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
    let more = advice.parts.len() - shown.len();
    if more > 0 {
        out.push_str(&format!("and {more} smaller regions, which --json has\n"));
    }
    out + "walks: of the walk cycles with 4k; mappable: of what is touched, in aligned\n\
           places of one mapping; bloat: what is untouched there, over touched\n"
}

/// Where the regions that are allocation sites are in the program's source.
fn lines(shown: &[&Region]) -> Option<String> {
    let known = shown.iter().filter(|part| !part.line.is_empty());
    let rows: Vec<String> =
        known.map(|part| format!("{:<58}  {}\n", cut(&part.name, 58), part.line)).collect();
    (!rows.is_empty()).then(|| format!("{:<58}  line\n", "region") + &rows.concat())
}

/// Page sizes whose faults are shown for each region.
const SIZES: [&str; 3] = ["4k", "2m", "1g"];
/// Ways that copy for which there is room on a line.
const COPYING: usize = 6;

/// What each region waits in page faults, under each page size.
fn faults(advice: &PageAdvice, shown: &[&Region]) -> String {
    let ran = |name: &&str| advice.ways.iter().any(|way| way.name == *name && way.figures.is_some());
    let sizes: Vec<&str> = SIZES.into_iter().filter(ran).collect();
    let has_faults = super::has_faults(&advice.ways);
    let columns = |width: usize| sizes.iter().map(|size| format!("{size:>width$}")).collect::<String>();
    let (times, tails) = (sizes.len() * 8, sizes.len() * 12);
    let mut out = format!(
        "{:<20}{:>times$}{:>tails$}\n{:<20}{}{}\n",
        "region",
        "in faults, ms",
        "99 % / longest, us",
        "",
        columns(8),
        columns(12)
    );
    for part in shown {
        let costs = sizes.iter().map(|size| part.costs.iter().find(|cost| cost.way == *size));
        let costs: Vec<_> = costs.map(|cost| cost.filter(|cost| cost.faults > 0)).collect();
        out += &format!("{:<20}", cut(&part.name, 19));
        for cost in &costs {
            let time = match has_faults {
                true => milliseconds(cost.map_or(0.0, |cost| cost.fault_seconds)),
                false => "-".to_owned(),
            };
            out += &format!("{time:>8}");
        }
        for cost in &costs {
            let tail = |cost: &RegionCost| {
                [cost.fault_latency.p99_ns, cost.fault_latency.max_ns].map(microseconds).join("/")
            };
            out += &format!("{:>12}", cost.map_or("-".to_owned(), tail));
        }
        out.push('\n');
    }
    out + "in faults: the program's time in page faults of the whole run; 99 %: so many\ntake no longer\n"
}

/// The bytes that were copied of each region, for each way that copies pages; none where no way does.
fn copies(advice: &PageAdvice, shown: &[&Region]) -> Option<String> {
    let copied = |way: &WayResult| way.figures.as_ref().map_or(0, |figures| figures.copied_bytes);
    let ways: Vec<(&str, u64)> = advice
        .ways
        .iter()
        .filter(|way| way.tlb.is_none() && copied(way) > 0)
        .map(|way| (way.name.as_str(), copied(way)))
        .take(COPYING)
        .collect();
    if ways.is_empty() {
        return None;
    }
    let region = |part: &Region, way: &str| {
        part.costs.iter().find(|cost| cost.way == way).map_or(0, |cost| cost.copied_bytes)
    };
    let cached =
        |way: &str| advice.page_cache.iter().find(|cost| cost.way == way).map_or(0, |cost| cost.copied_bytes);
    let of_shown = |way: &str| shown.iter().map(|part| region(part, way)).sum::<u64>();
    let row = |name: &str, of: &dyn Fn(&str, u64) -> u64| -> (String, Vec<u64>) {
        (cut(name, 19), ways.iter().map(|(way, all)| of(way, *all)).collect())
    };
    let mut rows: Vec<_> = shown.iter().map(|part| row(&part.name, &|way, _| region(part, way))).collect();
    rows.push(row("smaller regions", &|way, all| all.saturating_sub(cached(way) + of_shown(way))));
    rows.push(row("(page cache)", &|way, _| cached(way)));
    rows.push(row("all", &|_, all| all));
    rows.retain(|(_, bytes)| bytes.iter().any(|bytes| *bytes > 0));
    let names: String = ways.iter().map(|(way, _)| format!("{:>10}", cut(way, 9))).collect();
    let mut out = format!("{:<20}{names}\n", "copied");
    for (name, bytes) in rows {
        let cell = |bytes: &u64| if *bytes == 0 { "-".to_owned() } else { short_bytes(*bytes) };
        let cells: String = bytes.iter().map(|bytes| format!("{:>10}", cell(bytes))).collect();
        out += &format!("{name:<20}{cells}\n");
    }
    Some(
        out + "to make larger pages or room, in the whole run; pages of files that lay where a\n\
               large page was to be are no region's\n",
    )
}

/// A name in a column of so many characters, an address without loss.
fn cut(name: &str, width: usize) -> String {
    let name = match name.strip_prefix("anonymous at ") {
        Some(address) if name.chars().count() > width => format!("anon {address}"),
        _ => name.to_owned(),
    };
    match name.chars().count() > width {
        true => name.chars().take(width - 1).chain(['…']).collect(),
        false => name,
    }
}

/// `0.02`, `7.1`, `419`.
fn milliseconds(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms < 0.995 => format!("{ms:.2}"),
        ms if ms < 99.5 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// A gain or a loss: `19.9%`, `-343%`, `12x`.
fn cell(gain: f64) -> String {
    if gain.abs() < 0.9995 || gain >= 10.0 { share(gain) } else { format!("{:.0}%", gain * 100.0) }
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
