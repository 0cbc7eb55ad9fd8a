//! What the first look at running processes has come to: nobody is to wait for a management that cannot begin.

use super::{Selection, without_memory};
use crate::engine::{Engine, Members};
use crate::folder;
use crate::kernel::Kernel;

/// Processes that are named in a warning.
const NAMED: usize = 5;

/// What the first turn of an engine has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstLook {
    /// All targets are managed that can be.
    Managed,
    /// Some targets are not, or there are none yet: to be said.
    Warning(String),
    /// No target is managed, and none ever will be: [`nothing_managed`] says why.
    Nothing,
}

/// Judges the first turn of an engine that is to manage processes which run already.
pub fn first_look(selection: &Selection, engine: &Engine) -> FirstLook {
    let kernel = &**engine.world().kernel();
    let Members { all, refused } = engine.members();
    let has_memory = |pid: &&u32| without_memory(kernel, **pid).is_none();
    let refused: Vec<u32> = refused.iter().filter(has_memory).copied().collect();
    if engine.world().counters().adopted > 0 {
        return match refused.as_slice() {
            [] => FirstLook::Managed,
            refused => FirstLook::Warning(format!(
                "{} of {} processes may not be looked into and are not managed ({}); {}",
                refused.len(),
                all.len(),
                named(refused),
                rights()
            )),
        };
    }
    // Others may join a tree or a cgroup; where all are refused, those would be, too.
    let others_may_come = refused.is_empty() && !matches!(selection, Selection::Processes(_));
    let hopeless = refused.len() + all.iter().filter(|pid| !has_memory(pid)).count();
    match selection {
        Selection::Cgroup(_) if all.is_empty() => {
            FirstLook::Warning("the cgroup has no process yet; Terrace waits for one".to_owned())
        }
        // All have ended, which the engine says itself.
        _ if all.is_empty() => FirstLook::Managed,
        _ if hopeless == all.len() && !others_may_come => FirstLook::Nothing,
        _ => {
            let why =
                without(kernel, selection).unwrap_or_else(|| "no process could be looked into".to_owned());
            FirstLook::Warning(format!("nothing is managed yet: {why}; Terrace goes on looking"))
        }
    }
}

/// Why no process could be managed, and what would help.
pub fn nothing_managed(kernel: &dyn Kernel, selection: &Selection) -> String {
    let unseen = "none of the processes could be looked into";
    match (without(kernel, selection), folder::user()) {
        (Some(reason), _) => format!("nothing could be managed: {reason}"),
        (None, 0) => format!("{unseen}: they had ended, or {}", rights()),
        (None, _) => format!("{unseen}; {}", rights()),
    }
}

/// The first process that was named and has no memory, and why.
fn without(kernel: &dyn Kernel, selection: &Selection) -> Option<String> {
    let (Selection::Processes(pids) | Selection::Trees(pids)) = selection else { return None };
    pids.iter().find_map(|pid| Some(format!("process {pid} {}", without_memory(kernel, *pid)?)))
}

/// What would let Terrace look into processes.
fn rights() -> &'static str {
    match folder::user() {
        0 => {
            "this container may not look into them (CAP_SYS_PTRACE, CAP_SYS_NICE); -vv shows the kernel's errors"
        }
        _ => "Terrace needs root for processes of others",
    }
}

/// Processes by number, the first few.
fn named(pids: &[u32]) -> String {
    let mut names: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
    if pids.len() > NAMED {
        names.push("…".to_owned());
    }
    let word = if pids.len() == 1 { "process" } else { "processes" };
    format!("{word} {}", names.join(", "))
}
