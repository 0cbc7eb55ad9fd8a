//! What the recorder knows of one recorded process.

use crate::symbols::Modules;
use crate::touched::Touched;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use terrace_trace::StreamId;

/// Changes of the region of interest that are remembered; older ones no thread can still be behind.
const REGION_HISTORY: usize = 4096;

/// A live allocation.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// The object's identity in the trace.
    pub id: u64,
    /// Where it lies.
    pub address: u64,
    /// The object's size.
    pub bytes: u64,
}

/// One process, from its registration to its end, or to the program that replaces it.
pub struct Process {
    /// The process's number in the trace, given with its first stream.
    pub number: Option<u32>,
    /// The process's place in the shared table.
    pub place: usize,
    /// The place, plus 1, of the process whose translations it runs.
    pub family: u32,
    /// The process's id.
    pub pid: u32,
    /// Where it mapped the shared memory.
    pub base: u64,
    /// Serial of the stream that forked it; 0 for none.
    pub forked_from: u64,
    /// The stream and number that it takes over from the program it replaced.
    pub inherited: Option<(StreamId, u32, u32)>,
    /// Becomes readable when it ends; none if it had ended before we looked.
    watch: Option<OwnedFd>,
    /// Whether it has ended.
    pub is_dead: bool,
    /// Next thread number.
    pub next_thread: u32,
    /// The thread that was about to replace the program: its stream, whether the new program is recorded, its name.
    pub exec: Option<(StreamId, bool, String)>,
    /// Whether the preload library reported itself, and that it reports allocations.
    pub reports_allocations: bool,
    /// The program's name, for messages.
    pub name: String,
    /// Live allocations by address.
    pub objects: HashMap<u64, Object>,
    /// Identity of the next allocation.
    pub next_object: u64,
    /// Site numbers by call site's address.
    pub sites: HashMap<u64, u32>,
    /// Mapped files.
    pub modules: Modules,
    /// Pages touched while accesses were left out.
    pub touched: Touched,
    /// Whether a region of interest is open, by the sequence number from which on that holds.
    regions: Vec<(u64, bool)>,
}

impl Process {
    /// A process that has just registered.
    pub fn new(place: usize, pid: u32, base: u64, forked_from: u64, family: u32) -> Process {
        Process {
            number: None,
            place,
            family,
            pid,
            base,
            forked_from,
            inherited: None,
            watch: open_watch(pid),
            is_dead: false,
            next_thread: 0,
            exec: None,
            reports_allocations: false,
            name: String::new(),
            objects: HashMap::new(),
            next_object: 0,
            sites: HashMap::new(),
            modules: Modules::default(),
            touched: Touched::default(),
            regions: Vec::new(),
        }
    }

    /// Takes over what a forked child shares with its parent.
    pub fn inherit(&mut self, parent: &Process, at: u64) {
        self.reports_allocations = parent.reports_allocations;
        self.name.clone_from(&parent.name);
        self.objects.clone_from(&parent.objects);
        self.next_object = parent.next_object;
        self.sites.clone_from(&parent.sites);
        self.modules = parent.modules.clone();
        self.touched = parent.touched.clone();
        self.regions = vec![(0, parent.region_is_open(at))];
    }

    /// Whether it has ended, in the eyes of the kernel.
    pub fn has_ended(&mut self) -> bool {
        if !self.is_dead {
            self.is_dead = match &self.watch {
                None => true,
                Some(watch) => {
                    let mut poll = libc::pollfd { fd: watch.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                    // SAFETY: one valid element.
                    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
                }
            };
        }
        self.is_dead
    }

    /// Kills it, unless it has ended.
    pub fn kill(&self) {
        let Some(watch) = &self.watch else { return };
        let (watch, no_details) = (watch.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: without details the call reads no memory. An error means that it has just ended.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, watch, libc::SIGKILL, no_details, 0) };
    }

    /// A region of interest begins or ends at this sequence number.
    pub fn set_region(&mut self, sequence: u64, open: bool) {
        if self.regions.len() >= REGION_HISTORY {
            self.regions.drain(..REGION_HISTORY / 2);
        }
        self.regions.push((sequence, open));
    }

    /// Whether a region of interest was open after the event of this sequence number.
    pub fn region_is_open(&self, sequence: u64) -> bool {
        let after = self.regions.partition_point(|&(from, _)| from <= sequence);
        after > 0 && self.regions[after - 1].1
    }
}

fn open_watch(pid: u32) -> Option<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_looked_up_by_sequence() {
        let mut process = Process::new(0, std::process::id(), 0, 0, 1);
        process.set_region(10, true);
        process.set_region(20, false);
        let open: Vec<bool> = [0, 9, 10, 19, 20, 30].map(|s| process.region_is_open(s)).to_vec();
        assert_eq!(open, [false, false, true, true, false, false]);
        for i in 0..100_000 {
            process.set_region(100 + i, i % 2 == 0);
        }
        assert!(process.regions.len() <= REGION_HISTORY);
        assert!(!process.has_ended());
    }
}
