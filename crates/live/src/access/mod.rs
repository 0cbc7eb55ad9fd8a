//! Where accesses are seen: sources behind one interface, chosen by what the kernel offers.

pub mod damon;
pub mod entry_dropping;
pub mod faults;
mod kdamond;
pub mod page_out;
pub mod ring;
pub mod samples;
pub mod schemes;

pub(crate) use kdamond::KDAMONDS;

use crate::kernel::{Event, Kernel, Samples};
use crate::world::World;
use std::io;
use std::time::Duration;

/// Where the kernel's tracing is steered.
pub(crate) const TRACING: &str = "/sys/kernel/tracing";

/// Finds out which pages were accessed.
pub trait AccessSource: Send {
    /// What it is and how fine, for people: `DAMON, regions of 4 KiB`.
    fn name(&self) -> String;

    /// Whether it would see an access to any page. Of the others nothing is known.
    fn sees_all_pages(&self) -> bool {
        true
    }

    /// Tells the world what was accessed since the last call, and follows its processes. Returns when to come again at
    /// the latest.
    ///
    /// # Errors
    /// It cannot go on.
    fn collect(&mut self, world: &mut World) -> io::Result<Duration>;

    /// Rests, or works again, where it does more than look.
    ///
    /// # Errors
    /// It cannot be found out so.
    fn pause(&mut self, _paused: bool) -> io::Result<()> {
        Ok(())
    }

    /// Takes over what was done since the last call, as far as the world counts it, and puts back what was set up. Called
    /// again it does nothing.
    fn stop(&mut self, world: &mut World);
}

/// An event's samples on each of these processors; those that have just been switched off are left out.
fn on_all(kernel: &dyn Kernel, event: Event, cpus: &[u32]) -> io::Result<Vec<Box<dyn Samples>>> {
    let opened = cpus.iter().map(|cpu| kernel.sample(event, *cpu));
    let is_off = |error: &io::Error| error.raw_os_error() == Some(libc::ENODEV);
    opened.filter(|one| !one.as_ref().is_err_and(is_off)).collect()
}
