//! Memory of the target programs: mapped, placed and touched by plain system calls.

use anyhow::{Context, Result, bail};
use clap::Args;
use std::io;

/// Bytes of a base page on every machine that the tests emulate.
pub const PAGE: u64 = 4096;
/// Bytes of a transparent huge page.
pub const HUGE: u64 = 2 << 20;
/// Bytes of the largest pages, which come from a pool.
pub const GIANT: u64 = 1 << 30;

/// How a target maps its memory.
#[derive(Args, Clone, Copy, Debug)]
pub struct Layout {
    /// Anonymous memory, in MiB
    #[arg(long, default_value_t = 16)]
    pub mib: u64,
    /// Ask for huge pages
    #[arg(long, conflicts_with = "no_thp")]
    pub thp: bool,
    /// Refuse huge pages
    #[arg(long)]
    pub no_thp: bool,
    /// Take pages of 1 GiB
    #[arg(long, conflicts_with_all = ["thp", "no_thp"])]
    pub giant: bool,
    /// Map it shared
    #[arg(long)]
    pub shared: bool,
    /// The node on which it is touched first; the policy is the default one afterwards
    #[arg(long)]
    pub on: Option<u32>,
}

impl Layout {
    pub fn bytes(&self) -> u64 {
        self.mib << 20
    }

    /// Maps the memory at a multiple of the largest page and touches every page; returns its address.
    pub fn map(&self) -> Result<u64> {
        let start = reserve(self.bytes(), self.alignment())?;
        self.map_at(start, self.bytes())?;
        self.on_its_node(|| {
            for page in (start..start + self.bytes()).step_by(PAGE as usize) {
                // A read first would map the huge page of zeros, which the first write takes apart.
                // SAFETY: the memory was mapped above, readable and writable.
                unsafe { (page as *mut u64).write_volatile(1) };
            }
        })?;
        Ok(start)
    }

    /// What addresses of the memory must be multiples of.
    pub fn alignment(&self) -> u64 {
        if self.giant { GIANT } else { HUGE }
    }

    /// Maps memory over reserved addresses.
    pub fn map_at(&self, start: u64, bytes: u64) -> Result<()> {
        let sharing = if self.shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let size = if self.giant { libc::MAP_HUGETLB | libc::MAP_HUGE_1GB } else { 0 };
        replace(start, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_ANONYMOUS | sharing | size)?;
        for (wanted, advice) in [(self.thp, libc::MADV_HUGEPAGE), (self.no_thp, libc::MADV_NOHUGEPAGE)] {
            // SAFETY: advice about huge pages changes no contents.
            if wanted && unsafe { libc::madvise(start as *mut _, bytes as usize, advice) } != 0 {
                return Err(io::Error::last_os_error()).context("madvise");
            }
        }
        Ok(())
    }

    /// Does `work` with new pages of this thread bound to the node that was asked for.
    pub fn on_its_node(&self, work: impl FnOnce()) -> Result<()> {
        let Some(node) = self.on else {
            work();
            return Ok(());
        };
        set_policy(libc::MPOL_BIND, 1 << node)?;
        work();
        set_policy(libc::MPOL_DEFAULT, 0)
    }
}

fn set_policy(mode: i32, nodes: u64) -> Result<()> {
    // SAFETY: the mask is one word, as its length in bits says (the kernel reads one bit less than that).
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, &raw const nodes, 64_u64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("set_mempolicy"),
    }
}

/// Addresses that nothing else will use, without memory behind them.
pub fn reserve(bytes: u64, alignment: u64) -> Result<u64> {
    // SAFETY: a new mapping wherever the kernel finds room.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            (bytes + alignment) as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        bail!("mmap of {bytes} bytes: {}", io::Error::last_os_error());
    }
    Ok((start as u64).next_multiple_of(alignment))
}

/// Gives memory back and keeps its addresses reserved.
pub fn unmap(start: u64, bytes: u64) -> Result<()> {
    replace(start, bytes, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE)
}

fn replace(start: u64, bytes: u64, protection: i32, flags: i32) -> Result<()> {
    // SAFETY: the range was reserved by `reserve` and holds nothing but what the caller gives up.
    let at =
        unsafe { libc::mmap(start as *mut _, bytes as usize, protection, flags | libc::MAP_FIXED, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()).context("mmap") } else { Ok(()) }
}

/// Reads or writes one word of a page of this process.
pub fn touch(page: u64, write: bool) {
    let word = page as *mut u64;
    // SAFETY: callers pass pages of their own mappings, which are readable and writable and hold plain words.
    unsafe {
        let value = word.read_volatile();
        if write {
            word.write_volatile(value.wrapping_add(1));
        }
    }
}
