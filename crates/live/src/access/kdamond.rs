//! DAMON's kernel threads through sysfs: what watching processes and moving memory have in common.

use crate::journal::{Journal, Kdamonds};
use crate::kernel::{Kernel, read_text};
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Mutex;

/// DAMON's folder.
pub(crate) const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
/// The fewest regions that the kernel takes as a bound.
const FEWEST_REGIONS: usize = 3;

/// Makes sure that nobody else uses DAMON.
///
/// # Errors
/// Someone does, or the kernel has none.
pub(super) fn ensure_unused(kernel: &dyn Kernel) -> Result<(), String> {
    let count = read_text(kernel, format!("{KDAMONDS}/nr_kdamonds"))
        .map_err(|error| format!("DAMON cannot be used: {KDAMONDS}/nr_kdamonds: {error}"))?;
    match count.trim() {
        "0" => Ok(()),
        count => Err(format!(
            "DAMON is in use by someone else ({KDAMONDS}/nr_kdamonds is {count}); Terrace does not disturb it"
        )),
    }
}

/// Sets up threads that do nothing yet, noted in the journal first.
pub(super) fn claim(kernel: &dyn Kernel, journal: &Mutex<Journal>, as_what: &Kdamonds) -> io::Result<()> {
    let journal = journal.lock().map_err(|_| io::Error::other("an earlier failure"));
    journal?.damon(KDAMONDS.as_ref(), as_what.clone())?;
    kernel.write(format!("{KDAMONDS}/nr_kdamonds").as_ref(), &as_what.threads.to_string())
}

/// Ends the threads and takes them away.
pub(super) fn release(kernel: &dyn Kernel, as_what: &Kdamonds) -> io::Result<()> {
    for thread in 0..as_what.threads as usize {
        // A thread has ended by itself where all its processes have.
        let _ = Kdamond { kernel, thread }.set("state", "off");
    }
    kernel.write(format!("{KDAMONDS}/nr_kdamonds").as_ref(), "0")
}

/// One of the threads.
#[derive(Clone, Copy)]
pub(super) struct Kdamond<'a> {
    pub kernel: &'a dyn Kernel,
    pub thread: usize,
}

impl Kdamond<'_> {
    /// Writes a file in its folder.
    pub fn set(self, path: &str, value: impl ToString) -> io::Result<()> {
        let path = format!("{KDAMONDS}/{}/{path}", self.thread);
        self.kernel.write(path.as_ref(), &value.to_string())
    }

    /// Sets what the thread watches, how often it looks and adds up, in microseconds, and how many regions it has.
    pub fn watch(
        self,
        operations: &str,
        [sample, aggregation]: [u128; 2],
        regions: RangeInclusive<usize>,
    ) -> io::Result<()> {
        self.set("contexts/nr_contexts", 1)?;
        self.set("contexts/0/operations", operations)?;
        let attributes =
            |path: &str, value: u128| self.set(&format!("contexts/0/monitoring_attrs/{path}"), value);
        attributes("intervals/sample_us", sample)?;
        attributes("intervals/aggr_us", aggregation)?;
        attributes("nr_regions/min", (*regions.start()).max(FEWEST_REGIONS) as u128)?;
        attributes("nr_regions/max", (*regions.end()).max(FEWEST_REGIONS) as u128)
    }

    /// The regions of a target, in bytes.
    pub fn regions(
        self,
        target: usize,
        regions: impl ExactSizeIterator<Item = Range<u64>>,
    ) -> io::Result<()> {
        let folder = format!("contexts/0/targets/{target}/regions");
        self.set(&format!("{folder}/nr_regions"), regions.len())?;
        for (number, region) in regions.enumerate() {
            self.set(&format!("{folder}/{number}/start"), region.start)?;
            self.set(&format!("{folder}/{number}/end"), region.end)?;
        }
        Ok(())
    }
}
