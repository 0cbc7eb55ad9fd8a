//! The data structures of all programs of a run, in shared memory: each program writes down what it allocates and frees, and
//! the engine reads it.
//!
//! As in the table of placement all that changes is an atomic number, so that nobody waits for anybody, and a program that
//! is killed leaves nothing locked. What it had stays written down until the engine removes it.

use crate::map;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// The variable that names the table's file.
pub const VARIABLE: &CStr = c"TERRACE_STRUCTURES";
/// Structures that can be written down at a time, of all programs together.
pub const MOST: usize = 1 << 15;

/// Slots: twice as many, so that a free one is found soon.
const SLOTS: usize = 2 * MOST;
/// Slots that are looked at for one structure.
const REACH: usize = 64;
/// What a table begins with: the name and the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"TRCSTR\x00\x01");
/// The base page.
const PAGE: u64 = 4096;

/// A slot that was never used.
const EMPTY: u64 = 0;
/// A slot whose structure is gone.
const GONE: u64 = 1;
/// Set in every key.
const KEY: u64 = 0b10;
/// Both bits are set while a slot is written.
const CLAIMED: u64 = 0b11;

/// A data structure of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Structure {
    /// The process.
    pub pid: u32,
    /// The structure's first byte.
    pub start: u64,
    /// The structure's size.
    pub bytes: u64,
}

#[derive(Debug)]
#[repr(C)]
struct Head {
    magic: u64,
    /// The namespace in which processes have their numbers.
    namespace: u64,
    processes: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
#[repr(C)]
struct Slot {
    /// Process and page of the first byte: no two structures that are written down begin in one page.
    key: AtomicU64,
    start: AtomicU64,
    bytes: AtomicU64,
}

/// The table, mapped for good.
#[derive(Clone, Copy, Debug)]
pub struct Structures {
    head: &'static Head,
    slots: &'static [Slot],
}

/// Bytes of a table.
const BYTES: usize = size_of::<Head>() + SLOTS * size_of::<Slot>();

fn key(pid: u32, start: u64) -> u64 {
    (u64::from(pid) << 38) | (((start / PAGE) << 2) & ((1 << 38) - 1)) | KEY
}

fn pid(key: u64) -> u32 {
    (key >> 38) as u32
}

/// The namespace in which this process has its number; 0 where nobody knows.
pub fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

impl Structures {
    /// Writes a table to an empty file and maps it. Process numbers are those of this process's namespace.
    ///
    /// # Errors
    /// The file cannot be written or mapped.
    pub fn create(file: &File) -> io::Result<Structures> {
        // All of it has room on the disk from the beginning: a program that wrote to a hole of the file on a full disk would
        // be killed.
        // SAFETY: plain numbers.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, BYTES as libc::off_t) } {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        let start = map(file, BYTES)?;
        // SAFETY: the mapping is as long as a table, begins with a page, and is zero; nobody else knows of it yet.
        unsafe {
            let head = start.cast::<Head>();
            (&raw mut (*head).namespace).write(namespace());
            (&raw mut (*head).magic).write(MAGIC);
            Ok(Structures::at(start))
        }
    }

    /// Maps a table that another process has made; none where this is none.
    pub fn open(file: &File) -> Option<Structures> {
        if file.metadata().ok()?.len() != BYTES as u64 {
            return None;
        }
        let start = map(file, BYTES).ok()?;
        // SAFETY: the mapping is as long as a table; any bits are numbers.
        let table = unsafe { Structures::at(start) };
        (table.head.magic == MAGIC).then_some(table)
    }

    /// # Safety
    /// A table is mapped there for good.
    unsafe fn at(start: *mut u8) -> Structures {
        // SAFETY: as the caller says.
        unsafe {
            let head = start.cast::<Head>();
            Structures { head: &*head, slots: std::slice::from_raw_parts(head.add(1).cast::<Slot>(), SLOTS) }
        }
    }

    /// Whether numbers of processes in this namespace are those of the table.
    pub fn is_of(&self, namespace: u64) -> bool {
        self.head.namespace == namespace && namespace != 0
    }

    /// A program has come that writes down its structures. Whatever its process had before is gone.
    pub fn begin(&self, pid: u32) {
        self.head.processes.fetch_add(1, Relaxed);
        self.retain(&mut |other| other != pid);
    }

    /// Programs that have come.
    pub fn processes(&self) -> u64 {
        self.head.processes.load(Relaxed)
    }

    /// Structures that there was no room for.
    pub fn lost(&self) -> u64 {
        self.head.lost.load(Relaxed)
    }

    fn slots(&self, key: u64) -> impl Iterator<Item = &'static Slot> + use<> {
        let (slots, hash) = (self.slots, key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        (0..REACH).map(move |step| &slots[(hash as usize + step) % SLOTS])
    }

    /// Adds a structure that is not in the table. Returns whether there was room.
    pub fn insert(&self, structure: &Structure) -> bool {
        let key = key(structure.pid, structure.start);
        // One that began in this page and whose end was not seen is gone.
        for slot in self.slots(key) {
            match slot.key.load(Acquire) {
                EMPTY => break,
                held if held == key => _ = slot.key.compare_exchange(key, GONE, AcqRel, Relaxed),
                _ => {}
            }
        }
        for slot in self.slots(key) {
            let free = slot.key.load(Relaxed);
            if free <= GONE && slot.key.compare_exchange(free, key | CLAIMED, AcqRel, Relaxed).is_ok() {
                fence(Release);
                slot.start.store(structure.start, Relaxed);
                slot.bytes.store(structure.bytes, Relaxed);
                slot.key.store(key, Release);
                return true;
            }
        }
        self.head.lost.fetch_add(1, Relaxed);
        false
    }

    /// Strikes a structure out and returns its size, if it is written down.
    pub fn remove(&self, pid: u32, start: u64) -> Option<u64> {
        let key = key(pid, start);
        for slot in self.slots(key) {
            match slot.key.load(Acquire) {
                EMPTY => return None,
                held if held == key && slot.start.load(Relaxed) == start => {
                    let bytes = slot.bytes.load(Relaxed);
                    return slot.key.compare_exchange(key, GONE, AcqRel, Relaxed).is_ok().then_some(bytes);
                }
                _ => {}
            }
        }
        None
    }

    /// A child has what its parent has, and nothing that a process of its number had before.
    pub fn forked(&self, parent: u32, child: u32) {
        self.retain(&mut |other| other != child);
        self.each(&mut |structure| {
            if structure.pid == parent {
                self.insert(&Structure { pid: child, ..structure });
            }
        });
    }

    /// Shows all structures. A structure that is added or removed meanwhile may be missing.
    pub fn each(&self, visit: &mut dyn FnMut(Structure)) {
        for slot in self.slots {
            let key = slot.key.load(Acquire);
            if key & CLAIMED == KEY {
                let (start, bytes) = (slot.start.load(Relaxed), slot.bytes.load(Relaxed));
                fence(Acquire);
                if slot.key.load(Relaxed) == key {
                    visit(Structure { pid: pid(key), start, bytes });
                }
            }
        }
    }

    /// Strikes out the structures of all processes but these.
    pub fn retain(&self, keeps: &mut dyn FnMut(u32) -> bool) {
        for slot in self.slots {
            let key = slot.key.load(Relaxed);
            if key > GONE && !keeps(pid(key)) {
                let _ = slot.key.compare_exchange(key, GONE, AcqRel, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structure(pid: u32, start: u64, bytes: u64) -> Structure {
        Structure { pid, start, bytes }
    }

    fn all(table: &Structures) -> Vec<Structure> {
        let mut all = Vec::new();
        table.each(&mut |structure| all.push(structure));
        all.sort();
        all
    }

    #[test]
    fn what_one_process_writes_another_reads() {
        let file = tempfile::tempfile().unwrap();
        let made = Structures::create(&file).unwrap();
        let found = Structures::open(&file).unwrap();
        assert!(found.is_of(namespace()) && !found.is_of(0) && !found.is_of(namespace() + 1));
        found.begin(7);
        // The largest number of a process, the highest address.
        let [one, two, far] = [
            structure(7, 0x10_0010, 70_000),
            structure(7, 0x20_0000, 1 << 20),
            structure(4_194_303, (1 << 47) - 65_536, 65_536),
        ];
        for structure in [&one, &two, &far] {
            assert!(found.insert(structure));
        }
        assert_eq!((all(&made), made.processes()), (vec![one, two, far], 1));
        // An ended process had the child's number.
        assert!(found.insert(&structure(8, 0x50_0000, 1 << 20)));
        found.forked(7, 8);
        assert_eq!(found.remove(7, 0x10_0000), None, "that is not where it begins");
        assert_eq!((found.remove(7, 0x10_0010), found.remove(7, 0x10_0010)), (Some(70_000), None));
        let childs = [one, two].map(|structure| Structure { pid: 8, ..structure });
        assert_eq!(all(&made), [two, childs[0], childs[1], far]);
        // The end of one was not seen, and another begins where it did.
        assert!(found.insert(&structure(8, 0x20_0010, 1 << 17)));
        assert!(found.insert(&childs[1]));
        assert_eq!(all(&made), [two, childs[0], childs[1], far]);
        // Another program in the same process; a process that is no more.
        found.begin(8);
        assert_eq!(all(&made), [two, far]);
        made.retain(&mut |pid| pid == 7);
        assert_eq!(all(&found), [two]);
    }

    #[test]
    fn a_full_table_loses_structures_and_counts_them() {
        let table = Structures::create(&tempfile::tempfile().unwrap()).unwrap();
        let number = (MOST + SLOTS) as u64;
        let kept = (0..number).filter(|at| table.insert(&structure(1, at << 16, 1 << 16))).count();
        assert!((MOST..=SLOTS).contains(&kept));
        assert_eq!(table.lost(), number - kept as u64);
        let removed = (0..number).filter(|at| table.remove(1, at << 16).is_some()).count();
        assert_eq!((removed, all(&table)), (kept, vec![]));
        assert!(table.insert(&structure(1, 0, 1)), "what is gone has left room");
    }

    #[test]
    fn threads_that_come_and_go_leave_what_is_there() {
        let table = Structures::create(&tempfile::tempfile().unwrap()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..2000u64 {
                        let start = (thread << 30 | (round % 7) << 20) + 64;
                        assert!(table.insert(&structure(1, start, round)));
                        if round >= 3 {
                            let before = (thread << 30 | ((round - 3) % 7) << 20) + 64;
                            assert_eq!(table.remove(1, before), Some(round - 3));
                        }
                    }
                });
            }
        });
        let left: Vec<u64> = all(&table).iter().map(|structure| structure.bytes).collect();
        assert_eq!(left.len(), 4 * 3);
        assert!(left.iter().all(|bytes| (1997..2000).contains(bytes)));
    }

    #[test]
    fn what_is_no_table_is_none() {
        let file = tempfile::tempfile().unwrap();
        assert!(Structures::open(&file).is_none());
        file.set_len(BYTES as u64).unwrap();
        assert!(Structures::open(&file).is_none(), "zeros");
        Structures::create(&file).unwrap();
        assert!(Structures::open(&file).is_some());
    }
}
