//! Processes that execute programs: what was known of their memory holds no longer.

mod simulated;

use simulated::Simulated;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_live::engine::{Engine, Limits};
use terrace_live::facts::Facts;
use terrace_live::kernel::{Kernel, Linux};
use terrace_live::targets::{Selection, Targets};
use terrace_live::world::{self, World};
use terrace_model::PageSize;
use terrace_policy::{MemorySystem, Moment, Needs, NextTick, Policy, Signal};

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_exec_shows_though_process_and_number_stay() {
    // `exec` of the same program, so that nothing but the memory is another one.
    let script = "echo started; read line; exec sh -c 'echo executed; read line'";
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The exec of the shell itself is over once the shell speaks.
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    let process = Linux.open(child.id()).unwrap();
    assert!(Linux.has_same_memory(&process));
    assert!(!Linux.shares_memory(child.id(), std::process::id()));
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    assert!(!Linux.has_same_memory(&process), "{process:?}");
    let now = Linux.open(child.id()).unwrap();
    assert!(Linux.has_same_memory(&now));
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(!Linux.has_same_memory(&now), "it has ended");
    assert!(!Linux.is_alive(&now));
}

/// The arguments of a program, and a pipe that is read before it is executed.
struct Plan {
    arguments: Vec<*const c_char>,
    gate: c_int,
}

/// A child in its parent's memory: only system calls.
extern "C" fn execute_later(plan: *mut c_void) -> c_int {
    // SAFETY: the parent waits until the program is executed and keeps the plan so long.
    unsafe {
        let plan = &*plan.cast::<Plan>();
        let mut byte = 0u8;
        libc::read(plan.gate, (&raw mut byte).cast(), 1);
        libc::execv(plan.arguments[0], plan.arguments.as_ptr());
        libc::_exit(127)
    }
}

#[test]
fn between_vfork_and_exec_a_child_has_the_memory_of_its_parent() {
    let mut gate = [0; 2];
    // SAFETY: two numbers are filled.
    assert_eq!(unsafe { libc::pipe(gate.as_mut_ptr()) }, 0);
    let own = std::process::id();
    let (says, thread) = std::sync::mpsc::channel();
    let shares = |pid: &u32| Linux.shares_memory(*pid, own);
    let read = gate[0];
    let parent = std::thread::spawn(move || {
        let strings = ["/bin/sleep", "600"].map(|text| CString::new(text).unwrap());
        let mut arguments: Vec<*const c_char> = strings.iter().map(|text| text.as_ptr()).collect();
        arguments.push(std::ptr::null());
        let mut plan = Plan { arguments, gate: read };
        let mut stack = vec![0u8; 64 << 10];
        // SAFETY: it has no arguments.
        says.send(unsafe { libc::gettid() }).unwrap();
        // SAFETY: the stack grows down from its end; all lives until `CLONE_VFORK` lets this thread go on.
        unsafe {
            let top = stack.as_mut_ptr().add(stack.len());
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            libc::clone(execute_later, top.cast(), flags, (&raw mut plan).cast())
        }
    });
    // Other tests' threads start programs meanwhile, which have this memory for a moment, too.
    let list = format!("/proc/self/task/{}/children", thread.recv().unwrap());
    let mut child = None;
    until("a child in this memory", || {
        let all = std::fs::read_to_string(&list).unwrap_or_default();
        child = all.split_whitespace().map(|pid| pid.parse().unwrap()).find(shares);
        child.is_some()
    });
    let pid = child.unwrap();
    let process = Linux.open(pid).unwrap();
    assert!(process.image.is_some_and(|image| image.is_forked));
    assert!(Linux.has_same_memory(&process));
    // A world does not take it in hand: that would be this process.
    let facts = Facts::discover(&Linux);
    let mut world =
        World::new(Arc::new(Linux), facts.tiers.clone(), facts.capabilities(), &world::Options::default())
            .unwrap();
    let refused = world.adopt(pid).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
    // SAFETY: one byte is written into the pipe.
    assert_eq!(unsafe { libc::write(gate[1], b"x".as_ptr().cast(), 1) }, 1);
    assert_eq!(parent.join().unwrap(), pid as i32);
    until("its memory is another one", || !Linux.has_same_memory(&process));
    assert!(!Linux.shares_memory(pid, own));
    // SAFETY: the child is this process's, and nobody has waited for it.
    unsafe {
        libc::kill(pid as i32, libc::SIGKILL);
        libc::waitpid(pid as i32, &mut 0, 0);
        libc::close(gate[0]);
        libc::close(gate[1]);
    }
}

/// Looks, and does nothing.
struct Idle;

impl Policy for Idle {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn on(&mut self, now: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::At(Moment(now.0 + 100_000_000))
    }
}

#[test]
fn an_engine_follows_vfork_and_exec() {
    let kernel = Simulated::new("two-nodes-6.12", &[10_000, 10_000], 0, 1);
    let fill = |pid: u32, pages: u64| {
        let mut machine = kernel.machine();
        let first = machine.map(pid, pages);
        machine.fill(pid, first..first + pages, PageSize::Base, 0);
    };
    let parent = kernel.machine().start(1);
    fill(parent, 50);
    let facts = Facts::discover(&kernel);
    let options = world::Options::default();
    let world =
        World::new(Arc::new(kernel.clone()), facts.tiers.clone(), facts.capabilities(), &options).unwrap();
    let targets = Targets::new(Selection::Trees(vec![parent]), 0);
    let limits = Limits { cpu: f64::INFINITY, bandwidth: None, pressure: None };
    let mut engine = Engine::new(world, Box::new(Idle), targets, None, limits, "/none".into());
    let pages = |engine: &mut Engine, expected: &[(u32, u64)]| {
        for _ in 0..12 {
            engine.turn();
            kernel.pass(Duration::from_millis(100));
        }
        let spaces = engine.world().spaces();
        let mut found: Vec<(u32, u64)> =
            spaces.map(|space| (space.process.pid, space.resident_pages())).collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    };
    pages(&mut engine, &[(parent, 50)]);
    let child = kernel.machine().vfork(parent);
    pages(&mut engine, &[(parent, 50)]);
    kernel.machine().exec(child);
    fill(child, 200);
    pages(&mut engine, &[(parent, 50), (child, 200)]);
    kernel.machine().exec(child);
    fill(child, 70);
    kernel.machine().exec(parent);
    fill(parent, 30);
    pages(&mut engine, &[(parent, 30), (child, 70)]);
    let adopted = engine.world().counters().adopted;
    pages(&mut engine, &[(parent, 30), (child, 70)]);
    assert_eq!(engine.world().counters().adopted, adopted, "nobody joins anew without a reason");
}
