//! Pages go to compressed swap from outside, and come back when they are used.

use super::harm::statistic;
use crate::check::{Checks, eventually, move_to, open, pages, set, text, until, vmstat};
use crate::memory::PAGE;
use crate::process::{Target, Terrace};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::ops::Range;
use std::process::Command;
use terrace_live::kernel::{Advice, Event, Kernel, Linux, Process, Samples};

const SWAPPED: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;

pub fn page_out(checks: &mut Checks) -> Result<()> {
    let zram = Zram::on()?;
    let mut target = Target::start(&["hotset", "--mib", "16", "--no-thp"])?;
    target.wait_for("phase")?;
    let (process, memory, hot) = (open(&target)?, target.range("memory")?, target.range("hot")?);
    let cold = hot.end..memory.end;
    let written = vmstat("pswpout")?;
    let count = pages(&cold).len();
    let page_out = || -> Result<usize> {
        let ranges = [(cold.start, cold.end - cold.start)];
        let advised = Linux.advise(&process, &ranges, Advice::PageOut).context("process_madvise")?;
        ensure!(advised == cold.end - cold.start, "advised only {advised} bytes");
        count_with(&process, &cold, SWAPPED)
    };
    checks.note(format!("{} of {count} pages with the first call", page_out()?));
    // The latest new pages of each processor wait in a batch before they join the lists from which pages are evicted. Other
    // processors' batches stay as they are, for ever if nothing happens there; any call to move pages empties them all.
    move_to(&process, &[hot.start], 0)?;
    page_out()?;
    let swapped = count_with(&process, &cold, SWAPPED)?;
    checks.that(swapped == count, "cold pages go to swap", format!("{swapped} of {count}"));
    checks.that(
        vmstat("pswpout")? - written >= count as u64,
        "the kernel counts them",
        format!("pswpout + {}", vmstat("pswpout")? - written),
    );
    checks.equal("hot pages present", count_with(&process, &hot, PRESENT)?, pages(&hot).len());

    let read = vmstat("pswpin")?;
    let mut faults = Faults::open()?;
    let before = Linux.now().as_nanos() as u64;
    target.next_phase()?;
    let next = target.range("hot")?;
    let back = eventually(|| Ok(count_with(&process, &next, PRESENT)? == pages(&next).len()))?;
    checks.that(back, "pages in use come back", format!("pswpin + {}", vmstat("pswpin")? - read));
    let after = Linux.now().as_nanos() as u64;
    let (reported, others) = faults.read(process.pid, &next, before..after);
    checks.equal("faults are reported one by one, with their pages and times", reported, pages(&next).len());
    checks.equal("no fault elsewhere in the process's memory, or at another time", others, 0);
    // Swap reads ahead at most a cluster of eight pages around each fault.
    let rest = next.end + 8 * PAGE..memory.end;
    checks.equal("the others stay", count_with(&process, &rest, SWAPPED)?, pages(&rest).len());

    let whole = [(memory.start, memory.end - memory.start)];
    Linux.advise(&process, &whole, Advice::WillNeed).context("MADV_WILLNEED")?;
    drop(target);
    zram.off()
}

/// Thermostat over the page-out probe, with the default bounds, 3 % of a core and the guard: cold huge pages go to swap, hot
/// ones stay, and a change of phase is followed.
pub fn policy(checks: &mut Checks) -> Result<()> {
    let zram = Zram::on()?;
    let hotset = ["hotset", "--mib", "32", "--thp", "--hot-percent", "25", "--hot-start-percent", "50"];
    let mut target = Target::start(&hotset)?;
    target.wait_for("phase")?;
    let (process, memory, hot) = (open(&target)?, target.range("memory")?, target.range("hot")?);
    let share = |range: &Range<u64>, bit: u64| -> Result<f64> {
        Ok(count_with(&process, range, bit)? as f64 / pages(range).len() as f64)
    };
    let sets = ["--set", "prefilter=false", "--set", "interval=2 s", "--set", "sample=0.4"];
    let reported = "/tmp/policy.json";
    let arguments = [&["--policy", "thermostat", "--json", reported], &sets[..]].concat();
    let terrace = Terrace::attach(target.pid(), &arguments)?;
    let cold = memory.start..hot.start;
    // Some pages of a hot huge page that is sampled are out at any moment.
    let both = || Ok((share(&cold, SWAPPED)?, share(&hot, PRESENT)?));
    let (down, stayed) = until(both, |(down, stayed)| *down >= 0.7 && *stayed >= 0.9)?;
    checks.that(down >= 0.7, "most cold pages are in swap", format!("{down:.3}"));
    checks.that(stayed >= 0.9, "the hot ones are in memory", format!("{stayed:.3}"));
    target.next_phase()?;
    let next = target.range("hot")?;
    let both = || Ok((share(&next, PRESENT)?, share(&hot, SWAPPED)?));
    let (up, down) = until(both, |(up, down)| *up >= 0.9 && *down >= 0.7)?;
    checks.that(up >= 0.9, "the hot pages of the next phase are in memory", format!("{up:.3}"));
    checks.that(down >= 0.7, "most of those before are in swap", format!("{down:.3}"));
    checks.note(terrace.finish()?);
    let [sampled, curbed] = ["policy.own.sampled", "policy.own.curbed_rounds"];
    let [sampled, curbed] = [statistic(reported, sampled)?, statistic(reported, curbed)?];
    checks.note(format!("{sampled} huge pages sampled; {curbed} times fewer than the parameter asks for"));
    drop(target);
    zram.off()
}

/// Major faults on all processors.
struct Faults(Vec<Box<dyn Samples>>);

impl Faults {
    fn open() -> Result<Faults> {
        let count = std::thread::available_parallelism()?.get() as u32;
        let opened = (0..count).map(|cpu| Linux.sample(Event::MajorFaults, cpu));
        Ok(Faults(opened.collect::<std::io::Result<_>>().context("perf_event_open")?))
    }

    /// How many pages of a range a process has faulted for within a span of time, and how many of its faults were others.
    fn read(&mut self, pid: u32, range: &Range<u64>, times: Range<u64>) -> (usize, usize) {
        let (mut reported, mut others) = (BTreeSet::new(), 0);
        for ring in &mut self.0 {
            ring.read(&mut |fault| {
                if fault.pid == pid && range.contains(&fault.address) && times.contains(&fault.time) {
                    reported.insert(fault.address / PAGE);
                } else {
                    others += usize::from(fault.pid == pid);
                }
            });
        }
        (reported.len(), others)
    }
}

fn count_with(process: &Process, range: &Range<u64>, bit: u64) -> Result<usize> {
    let mut entries = vec![0; pages(range).len()];
    let read = Linux.pagemap(process, range.start / PAGE, &mut entries).context("pagemap")?;
    ensure!(read == entries.len(), "{read} entries of {}", entries.len());
    Ok(entries.iter().filter(|entry| *entry & bit != 0).count())
}

/// Swap in compressed memory.
pub(super) struct Zram;

impl Zram {
    pub(super) fn on() -> Result<Zram> {
        // Loaded once; a second scenario finds the device.
        if text("/sys/block/zram0/disksize").is_err() {
            for module in text("/modules/order")?.lines() {
                command(&["insmod", module])?;
            }
            let there = eventually(|| Ok(std::fs::exists("/dev/zram0")?))?;
            ensure!(there, "no /dev/zram0");
        }
        set("/sys/block/zram0/disksize", "256M")?;
        command(&["mkswap", "/dev/zram0"])?;
        command(&["swapon", "/dev/zram0"])?;
        Ok(Zram)
    }

    pub(super) fn off(self) -> Result<()> {
        command(&["swapoff", "/dev/zram0"])?;
        set("/sys/block/zram0/reset", 1)
    }
}

fn command(words: &[&str]) -> Result<()> {
    let output = Command::new(words[0]).args(&words[1..]).output().with_context(|| words.join(" "))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", words.join(" "), said.trim());
    Ok(())
}
