//! `terrace attach`: a policy at work on processes that run already.

use super::{Helped, LiveOptions};
use crate::error::{CommandResult, Failure};
use crate::progress;
use clap::Args;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;
use terrace_live::control::{self, Control};
use terrace_live::kernel::Linux;
use terrace_live::targets::{self, FirstLook, Selection};

const EXAMPLES: &str = "\
Examples:
  sudo terrace attach --tree $(pidof redis-server)
  sudo terrace attach --cgroup /sys/fs/cgroup/system.slice/redis.service
  sudo terrace attach --pid 4711 --policy nimble --limit dram=2GiB
  sudo terrace attach --pid 4711 --dry-run -v --seconds 60
  sudo terrace attach --cgroup /sys/fs/cgroup/jobs --policy damon --offload

While it runs:
  kill -USR1 PID   pause: nothing is moved
  kill -USR2 PID   resume
  Ctrl-C           stop; the processes run on, their pages stay where they are";

/// Manage the memory of running processes with a policy
///
/// The processes are neither stopped nor changed. They are followed through
/// fork, exec and exit; when all have ended, so does Terrace.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("targets").required(true).args(["pid", "tree", "cgroup"])))]
pub struct Arguments {
    /// This process alone. Repeatable
    #[arg(long, value_name = "PID", help_heading = "Targets")]
    pid: Vec<u32>,

    /// This process and all that descend from it. Repeatable
    #[arg(long, value_name = "PID", help_heading = "Targets")]
    tree: Vec<u32>,

    /// All processes of a cgroup (version 2) and of those below it, by its
    /// folder
    #[arg(long, value_name = "FOLDER", help_heading = "Targets")]
    cgroup: Option<PathBuf>,

    /// Let the kernel carry out the policy by itself, as schemes of DAMON (Linux
    /// 6.11): for `damon`, on a cgroup. Terrace switches them on and off and
    /// counts what they move
    #[arg(long, requires = "cgroup")]
    offload: bool,

    /// Stop after so many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,

    #[command(flatten)]
    options: LiveOptions,
}

impl Arguments {
    /// The targets in a few words, for the report.
    fn targets(&self) -> String {
        let pids = |pids: &[u32]| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        match &self.cgroup {
            Some(folder) => folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned(),
            None if self.pid.is_empty() => format!("tree of {}", pids(&self.tree)),
            None => format!("process {}", pids(&self.pid)),
        }
    }
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let options = &arguments.options;
    for pid in arguments.pid.iter().chain(&arguments.tree) {
        if !PathBuf::from(format!("/proc/{pid}")).exists() {
            return Err(Failure::usage(format!("there is no process {pid}")));
        }
        if let Some(why) = targets::names_a_thread(&Linux, *pid) {
            return Err(Failure::usage(why));
        }
    }
    // In a tree the root may have no memory while its children have all of it.
    for pid in &arguments.pid {
        if let Some(why) = targets::without_memory(&Linux, *pid) {
            return Err(Failure::usage(format!("process {pid} has no memory to manage: {why}")));
        }
    }
    let selection = match (&arguments.cgroup, arguments.pid.is_empty()) {
        (Some(folder), _) => {
            if !folder.join("cgroup.procs").exists() {
                let folder = folder.display();
                return Err(Failure::usage(format!("{folder} is no cgroup; they lie below /sys/fs/cgroup")));
            }
            Selection::Cgroup(folder.clone())
        }
        (None, false) => Selection::Processes(arguments.pid.clone()),
        (None, true) => Selection::Trees(arguments.tree.clone()),
    };
    let mut session = options.session(selection.clone(), Helped::default(), arguments.offload)?;
    let control = Control::from_signals()?;
    let stop = control.stop.clone();
    let end = super::end_after(arguments.seconds);
    let mut watch = options.watch(&session, &control, arguments.seconds)?;
    let mut looked = false;
    control::run(&mut session.engine, &control, None, None, |engine| {
        watch.turn(engine);
        if !std::mem::replace(&mut looked, true) {
            match targets::first_look(&selection, engine) {
                FirstLook::Managed => {}
                FirstLook::Warning(what) => progress::note(&what),
                FirstLook::Nothing => stop.store(true, Ordering::Relaxed),
            }
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    super::end(&mut session);
    if !looked {
        return Err(Failure::run("stopped before any process was looked at"));
    }
    if session.engine.world().counters().adopted == 0 {
        return Err(Failure::run(targets::nothing_managed(&Linux, &selection)));
    }
    super::conclude(options, &session, &watch, &arguments.targets())
}
