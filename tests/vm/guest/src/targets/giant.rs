//! Has memory by the C interface of `libterrace.so`, which is preloaded: asks for 1 GiB pages, takes them apart where little
//! is used, joins them again, checks every byte, and ends at a line of its input.

use anyhow::{Context, Result, ensure};
use std::ffi::{CStr, c_int, c_void};
use std::io::Read;
use std::mem::transmute;

const GIB: usize = 1 << 30;
const MIB: usize = 1 << 20;
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB";
/// Distance between words that hold something: 64 in 1 GiB.
const STEP: usize = 16 * MIB;

#[repr(C)]
struct Memory {
    start: *mut c_void,
    bytes: usize,
    pages: c_int,
}

type Allocate = unsafe extern "C" fn(usize, c_int, *mut Memory) -> c_int;
type Resize = unsafe extern "C" fn(*mut Memory, c_int) -> c_int;

fn function(name: &CStr) -> Result<*mut c_void> {
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    ensure!(!found.is_null(), "no {name:?}: the library is not preloaded");
    Ok(found)
}

fn word(memory: &Memory, at: usize) -> *mut u64 {
    // SAFETY: within the memory.
    unsafe { memory.start.cast::<u8>().add(at).cast() }
}

fn check(memory: &Memory) -> Result<()> {
    for at in (0..memory.bytes).step_by(STEP) {
        // SAFETY: within the memory.
        let found = unsafe { word(memory, at + 8).read() };
        ensure!(found == at as u64 + 1, "the word at {at} is {found}");
    }
    Ok(())
}

/// Resident memory without the pool, and what is had of the pool, in MiB.
fn resident() -> Result<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
        anyhow::Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? / 1024)
    };
    Ok([figure("VmRSS:")?, figure("HugetlbPages:")?])
}

type NewStore = unsafe extern "C" fn(usize, c_int, *mut *mut c_void) -> c_int;
type StoreAllocate = unsafe extern "C" fn(*mut c_void, c_int, *mut u32) -> c_int;
type StoreRelease = unsafe extern "C" fn(*mut c_void, u32) -> c_int;
type StorePin = unsafe extern "C" fn(*mut c_void, u32, *mut *mut u8) -> c_int;
type Trim = unsafe extern "C" fn(*mut c_void) -> usize;
type Free = unsafe extern "C" fn(*mut c_void);

/// A store whose page of 1 GiB is used, given back, and used again, of smaller ones then: MiB given back, and what the
/// pool has free and reserved meanwhile.
fn trimmed() -> Result<String> {
    // SAFETY: functions of these types, as `terrace.h` declares them.
    let (new, allocate, release, pin, unpin, trim, free) = unsafe {
        (
            transmute::<*mut c_void, NewStore>(function(c"terrace_store_new")?),
            transmute::<*mut c_void, StoreAllocate>(function(c"terrace_store_allocate")?),
            transmute::<*mut c_void, StoreRelease>(function(c"terrace_store_release")?),
            transmute::<*mut c_void, StorePin>(function(c"terrace_store_pin")?),
            transmute::<*mut c_void, StoreRelease>(function(c"terrace_store_unpin")?),
            transmute::<*mut c_void, Trim>(function(c"terrace_store_trim")?),
            transmute::<*mut c_void, Free>(function(c"terrace_store_free")?),
        )
    };
    let (mut store, mut handle, mut start) = (std::ptr::null_mut(), 0, std::ptr::null_mut());
    // SAFETY: as the header says.
    unsafe {
        ensure!(new(GIB, 2, &raw mut store) == 0, "terrace_store_new");
        let mut given = String::new();
        for value in [5u8, 6] {
            ensure!(allocate(store, 2, &raw mut handle) == 0, "terrace_store_allocate");
            ensure!(pin(store, handle, &raw mut start) == 0, "terrace_store_pin");
            start.add(77 * MIB).write(value);
            ensure!(start.add(77 * MIB).read() == value && start.add(78 * MIB).read() == 0, "its bytes");
            ensure!(unpin(store, handle) == 0 && release(store, handle) == 0, "terrace_store_release");
            let mib = trim(store) / MIB;
            let count = |name: &str| std::fs::read_to_string(format!("{POOL}/{name}"));
            let (free, reserved) = (count("free_hugepages")?, count("resv_hugepages")?);
            given = format!("{mib}:{}:{}", free.trim(), reserved.trim());
        }
        free(store);
        Ok(given)
    }
}

pub fn run() -> Result<()> {
    println!("trimmed={}", trimmed()?);
    // SAFETY: functions of these types, as `terrace.h` declares them.
    let (allocate, resize) = unsafe {
        let allocate: Allocate = transmute(function(c"terrace_allocate")?);
        let resize: Resize = transmute(function(c"terrace_resize")?);
        (allocate, resize)
    };
    let mut memory = Memory { start: std::ptr::null_mut(), bytes: 0, pages: -1 };
    // SAFETY: as the header says.
    ensure!(unsafe { allocate(GIB, 2, &raw mut memory) } == 0, "terrace_allocate");
    println!("pages={}", memory.pages);
    for at in (0..memory.bytes).step_by(STEP) {
        // SAFETY: within the memory.
        unsafe { word(&memory, at + 8).write(at as u64 + 1) };
    }
    let place = memory.start;
    for (to, key) in [(1, "down"), (0, "base"), (2, "up")] {
        // SAFETY: nobody else uses the memory.
        let result = unsafe { resize(&raw mut memory, to) };
        check(&memory)?;
        ensure!(memory.start == place, "it moved");
        let [own, pool] = resident()?;
        println!("{key}={result}:{}:{own}:{pool}", memory.pages);
    }
    println!("ready=1");
    // Until the input ends, or somebody kills it.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    check(&memory)
}
