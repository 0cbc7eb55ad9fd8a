//! `terrace attach`: a policy at work on processes that run already.

use super::{Helped, LiveOptions};
use crate::error::{CommandResult, Failure};
use crate::progress;
use clap::Args;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;
use terrace_live::control::{self, Control};
use terrace_live::journal;
use terrace_live::kernel::Linux;
use terrace_live::server;
use terrace_live::systemd::{Notifier, Systemctl};
use terrace_live::targets::{self, FirstLook, Named};

const EXAMPLES: &str = "\
Examples:
  sudo terrace attach --tree $(pidof redis-server)
  sudo terrace attach --service redis-server
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
/// fork, exec and exit; when all have ended, so does Terrace. A service manager
/// that waits for it (NOTIFY_SOCKET) is told when the management has begun.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = "terrace attach [OPTIONS] <--pid|--tree|--service|--cgroup> <TARGET>")]
#[command(group(clap::ArgGroup::new("targets").required(true).args(["pid", "tree", "service", "cgroup"])))]
#[command(group(clap::ArgGroup::new("groups").args(["service", "cgroup"])))]
pub struct Arguments {
    /// This process alone. Repeatable
    #[arg(long, value_name = "PID", help_heading = "Targets")]
    pid: Vec<u32>,

    /// This process and all that descend from it. Repeatable
    #[arg(long, value_name = "PID", help_heading = "Targets")]
    tree: Vec<u32>,

    /// All processes of a service of systemd, by the name that systemctl takes:
    /// aliases, instances of templates, slices
    #[arg(long, value_name = "NAME", help_heading = "Targets")]
    service: Option<String>,

    /// All processes of a cgroup (version 2) and of those below it, by its
    /// folder
    #[arg(long, value_name = "FOLDER", help_heading = "Targets")]
    cgroup: Option<PathBuf>,

    /// Let the kernel carry out the policy by itself, as schemes of DAMON (Linux
    /// 6.11): for `damon`, on a cgroup. Terrace switches them on and off and
    /// counts what they move
    #[arg(long, requires = "groups")]
    offload: bool,

    /// Stop after so many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,

    #[command(flatten)]
    options: LiveOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let mut manager = Notifier::from_environment();
    manager.describe("setting up");
    manage(&arguments, &mut manager).inspect_err(|failure| manager.describe(&failure.message()))
}

fn manage(arguments: &Arguments, manager: &mut Notifier) -> CommandResult {
    let options = &arguments.options;
    let Arguments { service, cgroup, pid, tree, .. } = arguments;
    let named = Named { service: service.as_deref(), cgroup: cgroup.as_deref(), processes: pid, trees: tree };
    let selection = named.selection(&Linux, &Systemctl::default())?;
    let mut session = options.session(selection.clone(), Helped::default(), arguments.offload)?;
    let control = Control::from_signals()?;
    let stop = control.stop.clone();
    let end = super::end_after(arguments.seconds);
    let mut watch = options.watch(&session, &control, arguments.seconds)?;
    let mut looked = false;
    control::run(&mut session.engine, &control, None, None, |engine| {
        let status = watch.turn(engine);
        if !std::mem::replace(&mut looked, true) {
            let other = server::managed_elsewhere(&journal::folder(), &engine.members().all);
            other.iter().for_each(|other| progress::warn(other));
            match targets::first_look(&selection, engine) {
                FirstLook::Managed => manager.ready(None),
                FirstLook::Warning(what) => {
                    progress::warn(&what);
                    manager.ready(Some(&what));
                }
                FirstLook::Nothing => stop.store(true, Ordering::Relaxed),
            }
        }
        if let Some(status) = status {
            manager.update(&status);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    manager.stopping();
    super::end(&mut session);
    if !looked {
        return Err(Failure::run("stopped before any process was looked at"));
    }
    if session.engine.world().counters().adopted == 0 {
        return Err(Failure::run(targets::nothing_managed(&Linux, &selection)));
    }
    super::conclude(options, &session, &watch, &selection.in_words())
}
