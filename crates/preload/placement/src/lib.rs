//! What the live engine and the library that places data structures say to each other: a table in shared memory.
//!
//! The engine makes a file with a row for each allocation site and names it in the environment. Each process that loads
//! the library maps it, looks rows up when something large is allocated, and counts in it. All that changes is an atomic
//! number, so that any process may look and count at any time, and one that is killed leaves nothing locked.
//!
//! A second table, of the data structures that programs have, is in [`structures`].

#![cfg(target_os = "linux")]

pub mod structures;

use std::ffi::{CStr, c_int};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The variable that names the table's file.
pub const VARIABLE: &CStr = c"TERRACE_PLACEMENT";
/// Objects of fewer bytes lie where the allocator puts them: memory is placed by pages.
pub const LEAST: usize = 64 << 10;
/// Longest name of a module and longest build identifier that are told apart.
pub const LONGEST: usize = 64;
/// Nodes that a wish can name.
pub const NODES: usize = 1024;
/// Sites without a row of which the table keeps the names.
pub const OTHERS: usize = 32;

/// What a table begins with: the name and the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"TRCPLC\x00\x01");

/// Bytes of which the first are used, the others being zero: a name or a build identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Text {
    length: u64,
    bytes: [u8; LONGEST],
}

impl Text {
    /// The first bytes of these.
    pub const fn of(bytes: &[u8]) -> Text {
        let mut text = Text { length: 0, bytes: [0; LONGEST] };
        let mut at = 0;
        while at < bytes.len() && at < LONGEST {
            text.bytes[at] = bytes[at];
            at += 1;
        }
        text.length = at as u64;
        text
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.length as usize).min(LONGEST)]
    }
}

/// A file that code lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Module {
    /// The module's name without the folder.
    pub name: Text,
    /// What its linker called the build; empty where it did not, or nobody knows.
    pub build_id: Text,
}

impl Module {
    /// Whether they are the same file: of the same build where both say which, else of the same name.
    pub fn is(&self, other: &Module) -> bool {
        match (self.build_id.bytes(), other.build_id.bytes()) {
            ([], _) | (_, []) => self.name == other.name,
            (one, other) => one == other,
        }
    }
}

/// Where pages are to lie, for `mbind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Wish {
    /// The mode, and another for kernels that do not know it; below zero where there is nothing to ask for.
    pub modes: [c_int; 2],
    /// A bit for each node.
    pub nodes: [u64; NODES / 64],
}

impl Wish {
    /// These nodes.
    pub fn new(modes: [c_int; 2], nodes: &[u32]) -> Wish {
        let mut wish = Wish { modes, nodes: [0; NODES / 64] };
        for node in nodes.iter().filter(|node| (**node as usize) < NODES) {
            wish.nodes[*node as usize / 64] |= 1 << (node % 64);
        }
        wish
    }
}

/// `MPOL_PREFERRED_MANY` (Linux 5.15), else `MPOL_PREFERRED` of the first node: full nodes are no failure.
pub const PREFERRED: [c_int; 2] = [5, 1];
/// `MPOL_WEIGHTED_INTERLEAVE` (Linux 6.9), else `MPOL_INTERLEAVE`.
pub const INTERLEAVED: [c_int; 2] = [6, 3];
/// Nothing to ask for.
const NOTHING: [c_int; 2] = [-1; 2];

/// The tier in which the objects of a site are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// As many pages in the fast tier, the others in the slow one: hint BO.
    Fast(u64),
    /// The slow tier: hint CO.
    Slow,
    /// Both, by their weights: hint BW.
    Both,
}

/// What is asked for the objects of one site, and what came of it.
#[derive(Debug)]
#[repr(C)]
pub struct Row {
    /// Where the call is.
    pub module: Module,
    /// The address that it returns to, as the module's file numbers its addresses.
    pub offset: u64,
    /// For as many pages as `left` says.
    pub first: Wish,
    /// For the others.
    pub others: Wish,
    /// Pages that may still go the first way, over all processes.
    pub left: AtomicU64,
    /// Objects that were placed.
    pub objects: AtomicU64,
    /// Pages of these objects: those that went the first way, and the others.
    pub pages: [AtomicU64; 2],
    /// Objects that the kernel, or the library for want of room, did not place.
    pub refused: AtomicU64,
    /// The kernel's last reason.
    pub error: AtomicI32,
    /// 1: hint BO; 2: CO; 0: another, or nobody knows.
    hint: u32,
}

impl Row {
    /// A row that nobody has used.
    pub fn new(module: Module, offset: u64, first: Wish, left: u64, others: Wish) -> Row {
        Row {
            module,
            offset,
            first,
            others,
            left: AtomicU64::new(left),
            objects: AtomicU64::new(0),
            pages: [const { AtomicU64::new(0) }; 2],
            refused: AtomicU64::new(0),
            error: AtomicI32::new(0),
            hint: 0,
        }
    }

    /// A row that nobody has used, for a site whose objects are wanted there. `fast` and `slow` are the nodes of the tiers;
    /// where one has none, nothing is asked of the kernel.
    pub fn wanting(module: Module, offset: u64, wanted: Wanted, fast: &[u32], slow: &[u32]) -> Row {
        let nothing = Wish::new(NOTHING, &[]);
        let (hint, left) = match wanted {
            Wanted::Fast(pages) => (1, pages),
            Wanted::Slow => (2, 0),
            Wanted::Both => (0, 0),
        };
        if fast.is_empty() || slow.is_empty() {
            return Row { hint, ..Row::new(module, offset, nothing, left, nothing) };
        }
        let (first, others) = match wanted {
            Wanted::Fast(_) => (Wish::new(PREFERRED, fast), Wish::new(PREFERRED, slow)),
            Wanted::Slow => (nothing, Wish::new(PREFERRED, slow)),
            Wanted::Both => (nothing, Wish::new(INTERLEAVED, &[fast, slow].concat())),
        };
        Row { hint, ..Row::new(module, offset, first, left, others) }
    }

    /// Whether the kernel is asked for nodes.
    pub fn asks(&self) -> bool {
        self.first.modes[0] >= 0 || self.others.modes[0] >= 0
    }

    /// Whether its objects have the hint BO.
    pub fn is_hot(&self) -> bool {
        self.hint == 1
    }

    /// Whether its objects have the hint CO.
    pub fn is_cold(&self) -> bool {
        self.hint == 2
    }

    /// Takes as many of `pages` as may go the first way.
    pub fn take(&self, pages: u64) -> u64 {
        let take = |left: u64| Some(left - left.min(pages));
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(left) | Err(left) => left.min(pages),
        }
    }
}

/// A site without a row from which something large came.
#[derive(Debug)]
#[repr(C)]
pub struct Other {
    /// 0: free, 1: being written, 2: to be read.
    state: AtomicU32,
    length: AtomicU32,
    name: [AtomicU8; LONGEST],
    offset: AtomicU64,
    bytes: AtomicU64,
}

/// What a site without a row was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherSite {
    /// The module's name.
    pub module: String,
    /// Where in it.
    pub offset: u64,
    /// All that was allocated there, as far as it was large.
    pub bytes: u64,
}

/// The beginning of a table; its rows follow.
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    magic: u64,
    rows: u64,
    /// Processes that have loaded the library.
    pub processes: AtomicU64,
    /// Large objects of sites without a row.
    pub unhinted: AtomicU64,
    others: [Other; OTHERS],
}

impl Head {
    /// A place to count a site without a row in, and nothing where there are many. Each process asks once for each site.
    pub fn other(&self, module: &[u8], offset: u64) -> Option<usize> {
        let at = self.others.iter().position(|other| {
            other.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        let other = &self.others[at];
        let length = module.len().min(LONGEST);
        for (place, byte) in other.name.iter().zip(&module[..length]) {
            place.store(*byte, Ordering::Relaxed);
        }
        other.length.store(length as u32, Ordering::Relaxed);
        other.offset.store(offset, Ordering::Relaxed);
        other.state.store(2, Ordering::Release);
        Some(at)
    }

    /// Counts an object there.
    pub fn count(&self, other: usize, bytes: u64) {
        if let Some(other) = self.others.get(other) {
            other.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The sites without a row, those of several processes together, the largest first.
    pub fn others(&self) -> Vec<OtherSite> {
        let mut all: Vec<OtherSite> = Vec::new();
        for other in self.others.iter().filter(|other| other.state.load(Ordering::Acquire) == 2) {
            let length = (other.length.load(Ordering::Relaxed) as usize).min(LONGEST);
            let name: Vec<u8> =
                other.name[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
            let module = String::from_utf8_lossy(&name).into_owned();
            let (offset, bytes) = (other.offset.load(Ordering::Relaxed), other.bytes.load(Ordering::Relaxed));
            match all.iter_mut().find(|one| one.module == module && one.offset == offset) {
                Some(known) => known.bytes += bytes,
                None => all.push(OtherSite { module, offset, bytes }),
            }
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.bytes));
        all
    }
}

/// A table, mapped for good.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    head: &'static Head,
    rows: &'static [Row],
}

impl Table {
    /// Writes a table of these rows to an empty file and maps it.
    ///
    /// # Errors
    /// The file cannot be written or mapped.
    pub fn create(file: &File, rows: &[Row]) -> io::Result<Table> {
        let bytes = size_of::<Head>() + size_of_val(rows);
        file.set_len(bytes as u64)?;
        let start = map(file, bytes)?;
        // SAFETY: the mapping is as long as head and rows together, begins with a page, and is zero; nobody else knows of it
        // yet. Rows are plain numbers, which may be copied bit by bit.
        unsafe {
            let head = start.cast::<Head>();
            (&raw mut (*head).magic).write(MAGIC);
            (&raw mut (*head).rows).write(rows.len() as u64);
            std::ptr::copy_nonoverlapping(rows.as_ptr(), head.add(1).cast::<Row>(), rows.len());
            Ok(Table {
                head: &*head,
                rows: std::slice::from_raw_parts(head.add(1).cast::<Row>(), rows.len()),
            })
        }
    }

    /// Maps a table that another process has made; none where this is none.
    pub fn open(file: &File) -> Option<Table> {
        let bytes = usize::try_from(file.metadata().ok()?.len()).ok()?;
        if bytes < size_of::<Head>() {
            return None;
        }
        let head = map(file, bytes).ok()?.cast::<Head>();
        // SAFETY: the mapping is at least as long as the head; any bits are numbers.
        let known = unsafe { &*head };
        let rows = usize::try_from(known.rows).ok()?;
        let expected = size_of::<Row>().checked_mul(rows)?.checked_add(size_of::<Head>())?;
        if known.magic != MAGIC || expected != bytes {
            return None;
        }
        // SAFETY: so many rows follow, and any bits are numbers.
        let rows = unsafe { std::slice::from_raw_parts(head.add(1).cast::<Row>(), rows) };
        Some(Table { head: known, rows })
    }

    /// The beginning of the table.
    pub fn head(&self) -> &'static Head {
        self.head
    }

    /// The rows of the table.
    pub fn rows(&self) -> &'static [Row] {
        self.rows
    }
}

fn map(file: &File, bytes: usize) -> io::Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of an open file, wherever there is room.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start.cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &[u8], id: &[u8]) -> Module {
        Module { name: Text::of(name), build_id: Text::of(id) }
    }

    fn row(left: u64) -> Row {
        let none = Wish::new([-1, -1], &[]);
        Row::new(module(b"app", b"\x01"), 0x1234, Wish::new([5, 1], &[0, 65]), left, none)
    }

    #[test]
    fn what_one_process_writes_another_reads() {
        let file = tempfile::tempfile().unwrap();
        let made = Table::create(&file, &[row(10), row(0)]).unwrap();
        let found = Table::open(&file).unwrap();
        let [first, second] = found.rows() else { panic!("two rows") };
        assert_eq!((first.offset, first.module), (0x1234, module(b"app", b"\x01")));
        assert_eq!((first.first.nodes[0], first.first.nodes[1], first.first.nodes[2]), (1, 2, 0));
        assert_eq!([7, 7, 7].map(|pages| first.take(pages)), [7, 3, 0]);
        assert_eq!(second.take(1), 0);
        assert_eq!(made.rows()[0].left.load(Ordering::Relaxed), 0);
        found.head().processes.fetch_add(1, Ordering::Relaxed);
        let (one, other) =
            (made.head().other(b"app", 0x10).unwrap(), found.head().other(b"lib", 0x20).unwrap());
        let again = found.head().other(b"app", 0x10).unwrap();
        for (at, bytes) in [(one, 5), (other, 100), (again, 1), (usize::MAX, 9)] {
            found.head().count(at, bytes);
        }
        let site = |module: &str, offset, bytes| OtherSite { module: module.to_owned(), offset, bytes };
        assert_eq!(made.head().others(), [site("lib", 0x20, 100), site("app", 0x10, 6)]);
        assert_eq!(made.head().processes.load(Ordering::Relaxed), 1);
        for _ in 3..OTHERS {
            assert!(made.head().other(&[b'x'; 100], 1).is_some());
        }
        assert_eq!(made.head().other(b"x", 1), None, "enough names");
        assert_eq!(made.head().others().len(), 3);
    }

    #[test]
    fn what_is_no_table_is_none() {
        let file = tempfile::tempfile().unwrap();
        assert!(Table::open(&file).is_none());
        file.set_len(size_of::<Head>() as u64).unwrap();
        assert!(Table::open(&file).is_none(), "zeros");
        let file = tempfile::tempfile().unwrap();
        Table::create(&file, &[row(1)]).unwrap();
        assert!(Table::open(&file).is_some());
        file.set_len(file.metadata().unwrap().len() + 8).unwrap();
        assert!(Table::open(&file).is_none(), "of another length");
    }

    #[test]
    fn a_row_says_what_a_hint_means_on_nodes() {
        let row = |wanted| Row::wanting(module(b"app", b""), 1, wanted, &[0, 1], &[2]);
        let (hot, cold, both) = (row(Wanted::Fast(7)), row(Wanted::Slow), row(Wanted::Both));
        assert_eq!((hot.first.nodes[0], hot.others.nodes[0], hot.take(9)), (0b11, 0b100, 7));
        assert_eq!((cold.first.modes, cold.others.nodes[0], cold.take(9)), (NOTHING, 0b100, 0));
        assert_eq!(
            (both.first.modes, both.others.modes, both.others.nodes[0]),
            (NOTHING, INTERLEAVED, 0b111)
        );
        assert_eq!([&hot, &cold, &both].map(Row::is_hot), [true, false, false]);
        assert_eq!([&hot, &cold, &both].map(Row::is_cold), [false, true, false]);
        let alone = Row::wanting(module(b"app", b""), 1, Wanted::Slow, &[], &[]);
        assert!(alone.is_cold() && !alone.asks() && cold.asks());
    }

    #[test]
    fn modules_are_distinguished_by_build_then_by_name() {
        let app = module(b"app", b"\x01\x02");
        assert!(app.is(&module(b"renamed", b"\x01\x02")));
        assert!(!app.is(&module(b"app", b"\x01\x03")));
        assert!(app.is(&module(b"app", b"")) && !app.is(&module(b"other", b"")));
        assert_eq!(Text::of(&[7; 100]).bytes().len(), LONGEST);
    }
}
