//! Places a program's data structures by hints for their allocation sites, from within the program.
//!
//! For an object of some size the address that the call returns to is looked up in a table (`terrace_placement`), and where
//! that has a row, the kernel is asked by `mbind` to place the whole pages of the object as the row says. Pages that are
//! there already, as where an allocator gives memory out again, are moved. Before the object is freed or changes its size
//! its pages get the program's own policy back, for whoever has them next.
//!
//! No thread, no lock, no allocation: what is remembered lies in tables of fixed size. Where one is full, or the kernel
//! refuses, the object lies where it would without the library, and the table counts it. No mode is asked for that lets an
//! allocation fail where the wanted nodes are full.
//!
//! Two libraries use it: `placer`, which `terrace run --hints` preloads, and `libterrace.so`.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod modules;
mod objects;

pub use objects::Placed;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use terrace_placement::{LEAST, Row, Table, Wish};

const PAGE: usize = 4096;
/// `MPOL_DEFAULT`.
const DEFAULT: c_int = 0;
/// `MPOL_MF_MOVE`: pages of this process alone that lie elsewhere come along.
const MOVE: usize = 2;

static TABLE: OnceLock<Table> = OnceLock::new();

/// Places by this table from now on.
pub fn begin(table: Table) {
    table.head().processes.fetch_add(1, Relaxed);
    let _ = TABLE.set(table);
}

/// The table, once there is one.
pub fn table() -> Option<&'static Table> {
    TABLE.get()
}

/// An object is there, from a call that returns to `site`.
pub fn allocated(pointer: usize, bytes: usize, site: usize) {
    if bytes < LEAST {
        return;
    }
    let Some(table) = TABLE.get() else { return };
    if let Some(row) = modules::row_of(table, site, bytes) {
        place(table, row, pointer, bytes, None);
    }
}

/// An object is about to be freed.
pub fn freeing(pointer: usize) {
    if let (Some(object), Some(table)) = (objects::remove(pointer), TABLE.get()) {
        give_back(table, &object);
    }
}

/// An object is about to change its size; what is known of it.
pub fn resizing(pointer: usize) -> Option<Placed> {
    let (object, table) = (objects::remove(pointer)?, TABLE.get()?);
    give_back(table, &object);
    Some(object)
}

/// An object has changed its size: it is at `new` now, or still at `old` with its old size where `new` is 0.
pub fn resized(object: Option<Placed>, old: usize, new: usize, bytes: usize) {
    let (Some(object), Some(table)) = (object, TABLE.get()) else { return };
    let (pointer, bytes) = if new == 0 { (old, object.bytes) } else { (new, bytes) };
    place(table, object.row, pointer, bytes, Some(&object));
}

/// Shows the objects that are placed now: the row, and the addresses of the whole pages. One that is being freed meanwhile
/// may be among them.
pub fn each(visit: &mut dyn FnMut(&Row, std::ops::Range<usize>)) {
    let Some(table) = TABLE.get() else { return };
    objects::each(&mut |object| {
        if let (Some(row), Some((start, end))) =
            (table.rows().get(object.row), whole_pages(object.pointer, object.bytes))
        {
            visit(row, start..end);
        }
    });
}

/// The whole pages of an object: the first's address, and the address behind the last.
fn whole_pages(pointer: usize, bytes: usize) -> Option<(usize, usize)> {
    let start = pointer.checked_next_multiple_of(PAGE)?;
    let end = pointer.checked_add(bytes)? & !(PAGE - 1);
    (start < end).then_some((start, end))
}

fn pages_of(pointer: usize, bytes: usize) -> u64 {
    whole_pages(pointer, bytes).map_or(0, |(start, end)| ((end - start) / PAGE) as u64)
}

/// Places an object as a row of the table says. What it was before it changed its size has been counted already.
fn place(table: &Table, at: usize, pointer: usize, bytes: usize, before: Option<&Placed>) {
    let (Some(row), Some((start, end))) = (table.rows().get(at), whole_pages(pointer, bytes)) else { return };
    let pages = pages_of(pointer, bytes);
    let granted = row.take(pages);
    if !objects::insert(Placed { pointer, row: at, bytes, granted }) {
        row.left.fetch_add(granted, Relaxed);
        row.refused.fetch_add(1, Relaxed);
        return;
    }
    let middle = start + granted as usize * PAGE;
    let fine = ask(row, &row.first, start, middle) & ask(row, &row.others, middle, end);
    if !fine {
        row.refused.fetch_add(1, Relaxed);
        return;
    }
    row.objects.fetch_add(u64::from(before.is_none()), Relaxed);
    let counted = before.map_or([0, 0], |before| {
        let all = pages_of(before.pointer, before.bytes);
        [before.granted, all.saturating_sub(before.granted)]
    });
    for (at, pages) in [granted, pages - granted].into_iter().enumerate() {
        row.pages[at].fetch_add(pages.saturating_sub(counted[at]), Relaxed);
    }
}

/// An object's pages get the program's own policy, and what it had taken of its row is free again.
fn give_back(table: &Table, object: &Placed) {
    let Some(row) = table.rows().get(object.row) else { return };
    row.left.fetch_add(object.granted, Relaxed);
    if !row.asks() {
        return;
    }
    if let Some((start, end)) = whole_pages(object.pointer, object.bytes) {
        mbind(start, end, DEFAULT, std::ptr::null(), 0);
    }
}

/// Asks for pages; returns whether the kernel took it.
fn ask(row: &Row, wish: &Wish, start: usize, end: usize) -> bool {
    if start == end || wish.modes[0] < 0 {
        return true;
    }
    let mut error = 0;
    for mode in wish.modes {
        error = mbind(start, end, mode, wish.nodes.as_ptr(), wish.nodes.len() * 64 + 1);
        if error == 0 {
            return true;
        }
    }
    row.error.store(error, Relaxed);
    false
}

/// The system call; returns its error. Leaves `errno` alone.
fn mbind(start: usize, end: usize, mode: c_int, nodes: *const u64, bits: usize) -> c_int {
    let flags = if mode == DEFAULT { 0 } else { MOVE };
    // SAFETY: errno is the thread's own. The mask has as many bits as are announced, less one as the kernel counts. What
    // the call changes is where pages lie, and not what is in them.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = libc::syscall(libc::SYS_mbind, start, end - start, mode, nodes, bits, flags);
        let error = if result == 0 { 0 } else { *errno };
        *errno = before;
        error
    }
}
