//! Policies that make huge pages, on a kernel that would make none by itself, and programs on pages of its pool.

use crate::check::{Checks, huge_bytes, open, set, until};
use crate::process::{Target, Terrace};
use anyhow::Result;
use terrace_calibrate::native::{Pages, Program, free_in_pool};

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const POOL: &str = "/proc/sys/vm/nr_hugepages";
/// Share of the memory that has to lie in huge pages in the end.
const SHARE: f64 = 0.95;

/// Each with what makes it take seconds instead of minutes.
const POLICIES: &[(&str, &[&str])] = &[
    ("thp", &["fault=false", "scan_sleep=1 s"]),
    ("hawkeye", &["zero=false", "sample_period=2 s", "promote_period=1 s"]),
];

/// A program that checks every byte has its base pages collapsed under it.
pub fn run(checks: &mut Checks) -> Result<()> {
    let _ticker = super::harm::quiet()?;
    // The kernel's own daemon obeys this, a collapse that is asked for does not.
    set(ENABLED, "never")?;
    for (policy, sets) in POLICIES {
        collapsed(checks, policy, sets)?;
    }
    set(ENABLED, "madvise")?;
    pool(checks)
}

/// What a check does natively: an allocation lies in pages of the pool while it has some, and in others where it has none.
fn pool(checks: &mut Checks) -> Result<()> {
    let guest = std::env::current_exe()?;
    let program = Program::new(&[guest.into_os_string(), "touch".into(), "--mib".into(), "32".into()])?;
    checks.equal("the pool is empty at first", free_in_pool(), 0);
    let without = program.held(Pages::Pool)?;
    checks.that(without.pool == 0 && without.anonymous >= 32 << 20, "other pages do", format!("{without:?}"));
    set(POOL, 20)?;
    checks.equal("pages of the pool", free_in_pool(), 40 << 20);
    let with = program.held(Pages::Pool)?;
    checks.that(with.pool >= 32 << 20, "the allocation lies in the pool", format!("{with:?}"));
    let faults = |pages| Ok::<_, anyhow::Error>(program.run(pages)?.faults);
    let (base, huge) = (faults(Pages::Base)?, faults(Pages::Pool)?);
    // 32 MiB are 8,192 base pages, or 16 of the pool.
    checks.that(base >= huge + 7000, "a fault for each page", format!("{base} and {huge}"));
    checks.equal("all are back in the pool", free_in_pool(), 40 << 20);
    set(POOL, 0)
}

fn collapsed(checks: &mut Checks, policy: &str, sets: &[&str]) -> Result<()> {
    let target = Target::start(&["verify", "--mib", "16", "--on", "0"])?;
    let (process, memory) = (open(&target)?, target.range("memory")?);
    checks.equal(format!("{policy}: huge pages at first"), huge_bytes(&process, &memory)?, 0);
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let bounds = ["--policy", policy, "--cpu", "none", "--pressure", "none"];
    let terrace = Terrace::attach(target.pid(), &[&bounds[..], &sets].concat())?;
    let share = || Ok(huge_bytes(&process, &memory)? as f64 / (memory.end - memory.start) as f64);
    let huge = until(share, |share| *share >= SHARE)?;
    checks.that(huge >= SHARE, format!("{policy}: memory lies in huge pages"), format!("{huge:.3}"));
    checks.note(format!("{policy}: {}", terrace.finish()?));
    checks.that(true, format!("{policy}: every byte as written"), target.finish()?);
    Ok(())
}
