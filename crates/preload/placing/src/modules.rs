//! From the address that a call returns to, to a row of the table: by the file that the address lies in.
//!
//! What was found is kept by address, so that the dynamic linker is asked once for each site. A library that is unloaded and
//! whose addresses another gets would be mistaken for it; then an object lies on other nodes than it might.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use terrace_placement::{LONGEST, Module, Table, Text};

/// What is kept: the address in the upper bits, in the lower ones what it is.
static KEPT: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// A site that has a row: its number follows.
const HAS_ROW: u64 = 1 << 15;
/// A site that has none, and no place to be counted in by name.
const UNNAMED: u64 = HAS_ROW - 1;

/// The row of a site from which an object of so many bytes came.
pub fn row_of(table: &Table, site: usize, bytes: usize) -> Option<usize> {
    let slot = &KEPT[(site.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) % KEPT.len()];
    let kept = slot.load(Relaxed);
    let found = if kept >> 16 == site as u64 {
        kept & 0xffff
    } else {
        let found = find(table, site);
        slot.store((site as u64) << 16 | found, Relaxed);
        found
    };
    if found & HAS_ROW != 0 {
        return Some((found & !HAS_ROW) as usize);
    }
    table.head().unhinted.fetch_add(1, Relaxed);
    table.head().count(found as usize, bytes as u64);
    None
}

fn find(table: &Table, site: usize) -> u64 {
    let Some((module, offset)) = module_of(site) else { return UNNAMED };
    let is = |row: &terrace_placement::Row| row.offset == offset && row.module.is(&module);
    match table.rows().iter().position(is) {
        Some(at) if (at as u64) < HAS_ROW => HAS_ROW | at as u64,
        _ => table.head().other(module.name.bytes(), offset).map_or(UNNAMED, |at| at as u64),
    }
}

struct Search {
    address: u64,
    found: Option<(Module, u64)>,
}

/// The file that code lies in, and its address there.
fn module_of(address: usize) -> Option<(Module, u64)> {
    let mut search = Search { address: address as u64, found: None };
    // SAFETY: the callback gets what it was registered with, while this call lasts.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// # Safety
/// As the dynamic linker calls it; `data` is a [`Search`].
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the linker hands over a valid description, whose headers are an array of the length that it says, and
    // whose name is a string or null; loaded segments can be read.
    unsafe {
        let (info, search) = (&*info, &mut *data.cast::<Search>());
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let Some(offset) = search.address.checked_sub(info.dlpi_addr) else { return 0 };
        let holds = |header: &libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && offset.wrapping_sub(header.p_vaddr) < header.p_memsz
        };
        if !headers.iter().any(holds) {
            return 0;
        }
        let notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
        let build_id = notes
            .filter_map(|header| {
                let start = (info.dlpi_addr + header.p_vaddr) as *const u8;
                build_id(std::slice::from_raw_parts(start, header.p_memsz as usize), header.p_align)
            })
            .next();
        let name = if info.dlpi_name.is_null() { &[][..] } else { CStr::from_ptr(info.dlpi_name).to_bytes() };
        let mut executable = [0u8; 4096];
        let name = if name.is_empty() { own_path(&mut executable) } else { name };
        let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let module = Module { name: Text::of(name), build_id: build_id.unwrap_or(Text::of(&[])) };
        search.found = Some((module, offset));
        1
    }
}

/// The path of the program.
fn own_path(buffer: &mut [u8; 4096]) -> &[u8] {
    // SAFETY: the link's name ends with a zero, and the buffer is as long as announced.
    let length =
        unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    &buffer[..usize::try_from(length).unwrap_or(0)]
}

/// The build identifier in a segment of notes (System V ABI; `NT_GNU_BUILD_ID` of the owner `GNU`).
fn build_id(notes: &[u8], align: u64) -> Option<Text> {
    let align = if align == 8 { 8 } else { 4 };
    let word = |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?) as usize);
    let mut at = 0;
    loop {
        let (name, description, kind) = (word(at)?, word(at + 4)?, word(at + 8)?);
        let name_at = at + 12;
        let description_at = name_at.checked_add(name)?.checked_next_multiple_of(align)?;
        let bytes = notes.get(description_at..description_at.checked_add(description)?)?;
        if kind == 3 && notes.get(name_at..name_at + name)? == b"GNU\0" {
            return Some(Text::of(&bytes[..bytes.len().min(LONGEST)]));
        }
        at = (description_at + description).checked_next_multiple_of(align)?;
    }
}
