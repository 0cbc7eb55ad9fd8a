//! Where accesses are seen: sources behind one interface, chosen by what the kernel offers.

pub mod damon;
pub mod page_out;
pub mod ring;

use crate::world::World;
use std::io;
use std::time::Duration;

/// Finds out which pages were accessed.
pub trait AccessSource: Send {
    /// What it is and how fine, for people: `DAMON, regions of 4 KiB`.
    fn name(&self) -> String;

    /// Tells the world what was accessed since the last call, and follows its processes. Answers when to come again at
    /// the latest.
    ///
    /// # Errors
    /// It cannot go on.
    fn collect(&mut self, world: &mut World) -> io::Result<Duration>;

    /// Puts back what was set up. Called again it does nothing.
    fn stop(&mut self);
}
