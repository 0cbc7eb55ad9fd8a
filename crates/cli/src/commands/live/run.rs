//! `terrace run`: starts a command with a policy at work on it.

use super::{Helped, LiveOptions};
use crate::error::{Blame, CommandResult, Failure};
use crate::options::parse_machine;
use crate::progress;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;
use terrace_calibrate::Effort;
use terrace_hints::Hints;
use terrace_live::control::{self, Control, Finished};
use terrace_live::help::{Help, joined};
use terrace_live::launch::{self, NewPages};
use terrace_live::placement::Placement;
use terrace_live::structures::TrackedStructures;
use terrace_live::targets::Selection;
use terrace_live::world::Managed;
use terrace_study::shootdowns;

const EXAMPLES: &str = "\
Examples:
  sudo terrace run -- redis-server
  sudo terrace run --policy nimble --limit dram=2GiB -- ./app
  sudo terrace run --dry-run -v -- ./app
  sudo terrace run --seconds 60 -- ./app
  terrace run --policy bw-aware --measure -- ./stream
  terrace run --policy bw-aware --set weights=5,2 -- ./stream
  sudo terrace run --hints hints.toml --limit dram=2GiB -- ./app
  terrace run --microbenchmark shootdown

While it runs:
  kill -USR1 PID   pause: nothing is moved
  kill -USR2 PID   resume
  Ctrl-C           ends the command as ever, and Terrace with it
  kill PID         ends the management; a second one ends the command, too

The exit code is the command's own. If Terrace itself is killed the command
runs on; `terrace restore` then puts back what Terrace had set.";

/// Start a command with a policy managing its memory
///
/// The policy is the same code that the simulator runs. It sees which pages are
/// accessed by what this kernel offers, and moves them with the kernel's own
/// calls: no byte of the command is touched, and nothing of it ever waits for
/// Terrace, unless --sample-faults is asked for. Processes that the command starts are followed.
///
/// Without --policy the best informed policy that this machine can run is
/// taken, and the choice is explained. `terrace doctor` shows what the machine
/// offers.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    options: LiveOptions,

    /// Have the kernel note each page that the command stores to, by a small
    /// library preloaded into it and what it starts (Linux 6.7, dynamically
    /// linked programs). Exact where soft-dirty bits are missing or in use;
    /// not for programs that use userfaultfd themselves
    #[arg(long, help_heading = "Policy")]
    track_stores: bool,

    /// Find accesses exactly to the page, in shared memory only (shared
    /// anonymous memory, memfd, tmpfs, System V): no other memory is managed
    /// then. A thread in the command takes page-table entries out when asked
    /// (Linux 6.11, dynamically linked programs). Includes --track-stores.
    /// Not for programs that map memory by system calls of their own
    #[arg(long, help_heading = "Policy")]
    track_accesses: bool,

    /// Have the command report its data structures of 64 KiB and more, when
    /// they are allocated and freed, by a small library preloaded into it and
    /// what it starts (dynamically linked programs). They are the blocks of
    /// policies that decide by blocks (block-hotness), as areas are without it
    #[arg(long, help_heading = "Policy")]
    track_structures: bool,

    /// Let the pages that a policy watches fault at their next access, which
    /// shows page and time, for policies that count accesses (thermostat with
    /// prefilter=false). In shared memory only, as with --track-accesses, and
    /// instead of it. An access to a watched page waits until Terrace answers,
    /// some microseconds; if Terrace is killed nobody waits, but while it is
    /// stopped (SIGSTOP) they do. As root, or with
    /// vm.unprivileged_userfaultfd=1. Not for programs with robust or
    /// priority-inheriting mutexes in shared memory
    #[arg(long, help_heading = "Policy", conflicts_with_all = ["track_stores", "track_accesses"])]
    sample_faults: bool,

    /// Place the command's data structures by what another run found out: a
    /// file that `terrace profile` wrote. Large objects are placed on the nodes
    /// of their hints when they are allocated, by a small library preloaded
    /// into the command and what it starts (dynamically linked programs). The
    /// policy is then `annotated`, which decides by sizes, counts and --limit
    #[arg(long, value_name = "FILE", help_heading = "Policy", conflicts_with = "track_structures")]
    hints: Option<PathBuf>,

    /// Stop managing after so many seconds; the command runs on
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,

    /// Start no command: measure one mechanism of this kernel by itself, and
    /// what the simulated kernel says of it
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Microbenchmark", conflicts_with_all = NOT_MEASURED)]
    microbenchmark: Option<Microbenchmark>,

    /// The machine whose costs predict [default: the preset that is nearest to
    /// this processor]
    #[arg(long, value_name = "NAME|FILE|here", value_parser = parse_machine, help_heading = "Microbenchmark", requires = "microbenchmark", conflicts_with = "command")]
    machine: Option<String>,

    /// Measure with the least work: quickly, and without meaning
    #[arg(long, hide = true, requires = "microbenchmark", conflicts_with = "command")]
    tiny: bool,

    /// The command: everything after `--`
    #[arg(last = true, required_unless_present = "microbenchmark", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What concerns a command that a policy works on, and means nothing without one.
const NOT_MEASURED: [&str; 20] = [
    "policy",
    "sets",
    "seed",
    "limits",
    "cpu",
    "bandwidth",
    "pressure",
    "regions",
    "measure",
    "dry_run",
    "socket",
    "metrics",
    "report",
    "track_stores",
    "track_accesses",
    "track_structures",
    "sample_faults",
    "hints",
    "seconds",
    "command",
];

/// What can be measured without a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Microbenchmark {
    /// munmap, mprotect, MADV_DONTNEED and move_pages of one page, by the number
    /// of threads that have it
    Shootdown,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    if let Some(Microbenchmark::Shootdown) = arguments.microbenchmark {
        let effort = if arguments.tiny { Effort::TINY } else { Effort::FULL };
        let mut said = |what: &str| progress::note(&format!("measuring {what}"));
        let found = shootdowns::measure(arguments.machine.as_deref(), effort, &mut said)?;
        arguments.options.results.write_rows(&found, "rows")?;
        return arguments.options.results.print(|| found.to_text());
    }
    let options = &arguments.options;
    terrace_recorder::may_start(&arguments.command).or_usage()?;
    let (managed, help) = if arguments.sample_faults {
        (Managed::Sampled, Some(Help::start_with_sampler()))
    } else if arguments.track_accesses {
        (Managed::EntriesDropped, Some(Help::start_with_dropper()))
    } else {
        (Managed::All, arguments.track_stores.then(Help::start))
    };
    let no_place =
        |error: std::io::Error| Failure::run(format!("the library for the command has no place: {error}"));
    let help = help.transpose().map_err(no_place)?;
    let structures =
        arguments.track_structures.then(TrackedStructures::start).transpose().map_err(no_place)?;
    let hints = arguments.hints.as_deref().map(Hints::read).transpose().map_err(Failure::usage)?;
    let helped = Helped {
        trackers: help.as_ref().map(Help::trackers),
        managed,
        structures: structures.as_ref().map(TrackedStructures::table),
        hints: hints.as_ref(),
    };
    let mut session = options.session(Selection::Trees(Vec::new()), helped, false)?;
    let control = Control::from_signals()?;
    let mut watch = options.watch(&session, &control, arguments.seconds)?;
    if options.dry_run {
        // Decide and change nothing.
        session.new_pages = NewPages::AsUsual;
    }
    if let Ok(mut journal) = session.journal.lock() {
        session.new_pages.prepare(&mut journal).map_err(|error| {
            Failure::run(format!(
                "the weights of the nodes cannot be set: {error}; they need root and Linux 6.9"
            ))
        })?;
    }
    let file = arguments.hints.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    let placement = match &hints {
        Some(hints) if !options.dry_run => Some(
            Placement::new(hints, &session.hinted, &session.tiers)
                .map_err(|error| Failure::usage(format!("{file}: {error}")))?,
        ),
        _ => None,
    };
    // Hints and structures exclude each other.
    let libraries = placement.as_ref().map(Placement::environment);
    let libraries = libraries.or_else(|| structures.as_ref().map(TrackedStructures::environment));
    let environment = joined(
        libraries.unwrap_or_default(),
        help.as_ref().map_or_else(Vec::new, |help| help.environment().to_vec()),
    );
    let name = arguments.command[0].to_string_lossy().into_owned();
    launch::inherit_orphans().map_err(|error| {
        Failure::run(format!("what the command leaves behind cannot be followed: {error}"))
    })?;
    if control.stop.load(Ordering::Relaxed) {
        super::end(&mut session);
        return Err(Failure::run(format!("stopped before {name} was started")));
    }
    let child = launch::launch(&arguments.command, &session.new_pages, &environment)
        .map_err(|error| terrace_recorder::not_started(&arguments.command, error))
        .or_usage()?;
    let pid = child.id();
    session.engine.add_command(pid);
    let children = control::wait_for_children();
    let stop = control.stop.clone();
    let end = super::end_after(arguments.seconds);
    let Finished { code, runs_on } =
        control::run(&mut session.engine, &control, Some(&children), Some(pid), |engine| {
            let _ = watch.turn(engine);
            if end.is_some_and(|end| Instant::now() >= end) {
                stop.store(true, Ordering::Relaxed);
            }
        });
    super::end(&mut session);
    if help.as_ref().is_some_and(|help| !help.trackers().has_any()) {
        tracing::warn!(
            "no program has loaded the library that was to help, so nothing of what it was for was seen: programs that \
             are linked statically, or run with other privileges, load none"
        );
    }
    let concluded = super::conclude(options, &session, &watch, &name);
    if let Some(placement) = &placement {
        let placed = placement.outcome(&file, &name);
        placed.notes.iter().chain(&placed.warning).for_each(|line| progress::note(line));
    }
    if let Some(warning) = structures.as_ref().and_then(|structures| structures.warning(&name)) {
        progress::note(&warning);
    }
    // The exit below runs no destructors. Where the command runs on, what it starts looks for the library still.
    match help {
        Some(help) if runs_on => help.stay(),
        help => drop(help),
    }
    match placement {
        Some(placement) if runs_on => placement.stay(),
        placement => drop(placement),
    }
    match structures {
        Some(structures) if runs_on => structures.stay(),
        structures => drop(structures),
    }
    drop((session, watch));
    match code {
        None | Some(0) => concluded,
        // Handed on as it is, whatever became of the results; the command has said itself what there is to say.
        Some(code) => {
            if let Err(failure) = concluded {
                failure.report();
            }
            std::process::exit(i32::from(code))
        }
    }
}
