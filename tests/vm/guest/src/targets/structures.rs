//! Data structures of four allocation sites: the program prints on which nodes they lie, lets them grow and go, and checks
//! every byte.

use crate::check::nodes_of;
use crate::memory::PAGE;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::ffi::CString;
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::Command;
use terrace_live::kernel::{Kernel, Linux, Process};

#[derive(Args)]
pub struct Structures {
    /// Ask for huge pages
    #[arg(long)]
    thp: bool,
    /// Instead have three in one area, of which the middle one is hot, for so many seconds
    #[arg(long)]
    hot_seconds: Option<u64>,
}

/// An object and what it is filled with.
struct Object {
    start: *mut u8,
    bytes: usize,
    seed: u8,
}

/// Each of these is a site of its own. What follows the call keeps it from being a jump, which would leave the caller's
/// address.
#[inline(never)]
fn first(bytes: usize) -> *mut u8 {
    // SAFETY: memory that nobody has yet.
    black_box(unsafe { libc::malloc(bytes) }).cast()
}

#[inline(never)]
fn second(bytes: usize) -> *mut u8 {
    // SAFETY: see `first`.
    black_box(unsafe { libc::calloc(1, bytes) }).cast()
}

#[inline(never)]
fn third(bytes: usize) -> *mut u8 {
    let mut start = std::ptr::null_mut();
    // SAFETY: the pointer is written to a variable of this function's own.
    black_box(unsafe { libc::posix_memalign(&raw mut start, 64, bytes) });
    black_box(start).cast()
}

#[inline(never)]
fn others(bytes: usize) -> *mut u8 {
    // SAFETY: see `first`.
    black_box(unsafe { libc::aligned_alloc(32, bytes) }).cast()
}

impl Object {
    fn new(start: *mut u8, bytes: usize, seed: u8) -> Result<Object> {
        ensure!(!start.is_null(), "no memory");
        let object = Object { start, bytes, seed };
        object.fill(0);
        Ok(object)
    }

    fn byte(&self, at: usize) -> u8 {
        (at as u8).wrapping_mul(31).wrapping_add((at >> 12) as u8) ^ self.seed
    }

    fn fill(&self, from: usize) {
        // SAFETY: the object has so many bytes.
        (from..self.bytes).for_each(|at| unsafe { self.start.add(at).write(self.byte(at)) });
    }

    fn check(&self) -> Result<()> {
        for at in 0..self.bytes {
            // SAFETY: the object has so many bytes.
            let found = unsafe { self.start.add(at).read() };
            ensure!(found == self.byte(at), "byte {at} of object {} is {found}", self.seed);
        }
        Ok(())
    }

    /// Pages on the first two nodes, of those that are all the object's.
    fn nodes(&self, own: &Process) -> Result<String> {
        let start = self.start as u64;
        let range = start.next_multiple_of(PAGE)..(start + self.bytes as u64) & !(PAGE - 1);
        let nodes = nodes_of(own, &range)?;
        let on = |node| nodes.get(&node).copied().unwrap_or(0);
        Ok(format!("{}:{}:{}", on(0), on(1), nodes.values().sum::<usize>()))
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        // SAFETY: the object is this program's own.
        let start = unsafe { libc::realloc(self.start.cast(), bytes) }.cast::<u8>();
        ensure!(!start.is_null(), "no memory");
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.start = start;
        self.fill(before);
        Ok(())
    }
}

impl Structures {
    pub fn run(&self) -> Result<()> {
        if !self.thp {
            // SAFETY: plain numbers.
            ensure!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } == 0, "prctl");
        }
        let own = Linux.open(std::process::id()).context("opening this process")?;
        if self.hot_seconds.is_some() {
            return one_is_hot(&own, self.hot_seconds);
        }
        let mut one = Object::new(first(8 << 20), 8 << 20, 1)?;
        let two = Object::new(second(4 << 20), 4 << 20, 2)?;
        let three = Object::new(third(7 << 20), 7 << 20, 3)?;
        println!("first={} second={} third={}", one.nodes(&own)?, two.nodes(&own)?, three.nodes(&own)?);
        one.grow(12 << 20)?;
        println!("grown={}", one.nodes(&own)?);
        for object in [&one, &two, &three] {
            object.check()?;
        }
        // SAFETY: nobody looks at it again.
        unsafe { libc::free(two.start.cast()) };
        // What was freed may come back to whoever allocates next.
        let next = Object::new(others(5 << 20), 5 << 20, 4)?;
        println!("others={}", next.nodes(&own)?);
        // A child has the same objects, and may free them.
        // SAFETY: there is one thread.
        let child = unsafe { libc::fork() };
        ensure!(child >= 0, "fork");
        if child == 0 {
            one.grow(9 << 20)?;
            let good = one.check().is_ok() && three.check().is_ok() && next.check().is_ok();
            // SAFETY: its own copy; nothing else is to be done.
            unsafe {
                libc::free(three.start.cast());
                libc::_exit(i32::from(!good));
            }
        }
        let mut status = 0;
        // SAFETY: its own child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        ensure!(status == 0, "the child found something else: {status}");
        for object in [&one, &three, &next] {
            object.check()?;
        }
        println!("same=1");
        let own = std::fs::read_to_string(PLACES)?.matches(INTERLEAVED).count();
        println!("own-interleaved={own} started-interleaved={}", started()?.join(":"));
        Ok(())
    }
}

/// Three structures lie in the heap side by side, and the middle one is read all the time.
fn one_is_hot(own: &Process, seconds: Option<u64>) -> Result<()> {
    // Else each had a mapping of its own.
    // SAFETY: plain numbers.
    ensure!(unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20) } == 1, "mallopt");
    let before = Object::new(first(16 << 20), 16 << 20, 1)?;
    let hot = Object::new(second(8 << 20), 8 << 20, 2)?;
    let behind = Object::new(first(16 << 20), 16 << 20, 3)?;
    let distance = behind.start as usize - before.start as usize;
    ensure!(distance < 25 << 20, "they do not lie side by side: {distance} bytes from the first to the last");
    let range = hot.start as u64..hot.start as u64 + hot.bytes as u64;
    let deadline = super::deadline(seconds);
    while !super::passed(deadline) {
        super::round(&[(&range, false)]);
    }
    println!("before={} hot={} behind={}", before.nodes(own)?, hot.nodes(own)?, behind.nodes(own)?);
    for object in [&before, &hot, &behind] {
        object.check()?;
    }
    println!("same=1");
    Ok(())
}

const PLACES: &str = "/proc/self/numa_maps";
const INTERLEAVED: &str = "interleave";
const OUTPUT: &str = "/tmp/started";

/// How many mappings of programs that this one starts are interleaved, for each way of starting one. They are linked
/// statically, so that what is preloaded here is not preloaded there.
fn started() -> Result<Vec<String>> {
    let count = || {
        let mut command = Command::new("/bin/grep");
        command.args(["-c", INTERLEAVED, PLACES]);
        command
    };
    let said = |mut command: Command| -> Result<String> {
        Ok(String::from_utf8(command.output()?.stdout)?.trim().to_owned())
    };
    let mut after_fork = count();
    // SAFETY: nothing is done between `fork` and `exec`.
    unsafe { after_fork.pre_exec(|| Ok(())) };
    let mut found = vec![said(count())?, said(after_fork)?];
    let shell = CString::new(format!("grep -c {INTERLEAVED} {PLACES} >{OUTPUT}"))?;
    // SAFETY: a string; there is one thread.
    unsafe { libc::system(shell.as_ptr()) };
    found.push(std::fs::read_to_string(OUTPUT)?.trim().to_owned());
    let command = CString::new(format!("grep -c {INTERLEAVED} {PLACES}"))?;
    // SAFETY: strings; the stream is read to its end and closed.
    unsafe {
        let stream = libc::popen(command.as_ptr(), c"r".as_ptr());
        ensure!(!stream.is_null(), "popen");
        let mut line = [0u8; 64];
        let length = libc::fread(line.as_mut_ptr().cast(), 1, line.len(), stream);
        libc::pclose(stream);
        found.push(String::from_utf8_lossy(&line[..length]).trim().to_owned());
    }
    let (pattern, places, output) =
        (CString::new(INTERLEAVED)?, CString::new(PLACES)?, CString::new(OUTPUT)?);
    // SAFETY: the child calls only what a forked child may; the arguments are strings, and a null ends them.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::close(1);
            libc::open(output.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o600);
            let (name, count) = (c"grep".as_ptr(), c"-c".as_ptr());
            libc::execlp(name, name, count, pattern.as_ptr(), places.as_ptr(), std::ptr::null::<i8>());
            libc::_exit(1);
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    found.push(std::fs::read_to_string(OUTPUT)?.trim().to_owned());
    Ok(found)
}
