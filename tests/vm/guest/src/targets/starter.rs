//! Starts another of these programs in a way that a manager of memory may stumble over, and prints when it is about to.

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Bytes of the stack of a child that works in its parent's memory.
const STACK: usize = 64 << 10;
/// The program.
const PROGRAM: &str = "/bin/guest";

/// How the program comes to be.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Way {
    /// A child executes it that works in this program's memory until then, and waits before.
    Vfork,
    /// A copy of this program executes it.
    Fork,
    /// This program executes it in its own place.
    Exec,
    /// The new process is the first in namespaces of processes and of mounts.
    Namespace,
}

#[derive(Args)]
pub struct Starter {
    #[arg(long, value_enum)]
    by: Way,
    /// Milliseconds between the announcement and the start
    #[arg(long)]
    wait_ms: u64,
    /// The program's arguments
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Starter {
    pub fn run(&self) -> Result<()> {
        println!("starter={} ready=1", std::process::id());
        let wait = Duration::from_millis(self.wait_ms);
        match self.by {
            Way::Vfork => return self.start_from_shared_memory(),
            Way::Exec => {
                std::thread::sleep(wait);
                return Err(Command::new(PROGRAM).args(&self.arguments).exec()).context("executing");
            }
            Way::Fork => {
                // SAFETY: this program has one thread, so the child may do what it likes.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    std::thread::sleep(wait);
                    return Err(Command::new(PROGRAM).args(&self.arguments).exec()).context("executing");
                }
                return waited(child);
            }
            Way::Namespace => {}
        }
        std::thread::sleep(wait);
        // SAFETY: plain numbers; the children to come are in the new namespaces.
        let apart = unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS) } == 0;
        ensure!(apart, "unshare: {}", std::io::Error::last_os_error());
        let status = Command::new(PROGRAM).args(&self.arguments).status()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }

    /// As `vfork` does it, whose child may not wait in Rust: with a stack of its own.
    fn start_from_shared_memory(&self) -> Result<()> {
        let strings = std::iter::once(PROGRAM).chain(self.arguments.iter().map(String::as_str));
        let strings = strings.map(CString::new).collect::<Result<Vec<CString>, _>>()?;
        let mut arguments: Vec<*const libc::c_char> = strings.iter().map(|string| string.as_ptr()).collect();
        arguments.push(std::ptr::null());
        let mut plan = Plan { arguments, wait_ms: self.wait_ms };
        let mut stack = vec![0u8; STACK];
        // SAFETY: the stack grows down from its end, and lives, as the plan does, until the child has executed its program,
        // for which `CLONE_VFORK` waits.
        let child = unsafe {
            let top = stack.as_mut_ptr().add(STACK);
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            libc::clone(execute, top.cast(), flags, (&raw mut plan).cast())
        };
        waited(child)
    }
}

/// Waits for a child that went well.
fn waited(child: i32) -> Result<()> {
    ensure!(child > 0, "no child: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` is an integer that the call fills.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    ensure!(ended == child && status == 0, "the child ended with {status}");
    Ok(())
}

/// What the child is to do.
struct Plan {
    arguments: Vec<*const libc::c_char>,
    wait_ms: u64,
}

/// The child: only system calls, since the memory is its parent's.
extern "C" fn execute(plan: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent waits and keeps the plan meanwhile; the list of arguments ends with a null.
    unsafe {
        let plan = &*plan.cast::<Plan>();
        let wait = libc::timespec {
            tv_sec: (plan.wait_ms / 1000) as i64,
            tv_nsec: (plan.wait_ms % 1000 * 1_000_000) as i64,
        };
        libc::nanosleep(&wait, std::ptr::null_mut());
        libc::execv(plan.arguments[0], plan.arguments.as_ptr());
        libc::_exit(127)
    }
}
