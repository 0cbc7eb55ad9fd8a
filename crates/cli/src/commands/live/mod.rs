//! Policies at work on real processes: what `run` and `attach` share.

pub mod attach;
pub mod contiguity;
mod report;
pub mod restore;
pub mod run;
pub mod top;

use crate::error::Failure;
use crate::options::{ResultOptions, parse_set};
use crate::output::OutputFolder;
use crate::progress;
use clap::Args;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_hints::Hints;
use terrace_live::bounds::{self, Share};
use terrace_live::control::Control;
use terrace_live::engine::{Engine, Limits, summary};
use terrace_live::facts::Facts;
use terrace_live::folder::Folder;
use terrace_live::help::Trackers;
use terrace_live::journal;
use terrace_live::kernel::{Kernel, Linux};
use terrace_live::server::{self, Server};
use terrace_live::session::{Config, Session};
use terrace_live::status::{Board, Reporter, Status};
use terrace_live::structures::Structures;
use terrace_live::targets::Selection;
use terrace_live::world::Managed;
use terrace_model::{Bytes, Stats};
use toml::Table;

/// What to do, and how much it may cost.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub struct LiveOptions {
    /// The policy, a name of `terrace policy list`. Without it the best
    /// informed that this machine can run
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// Set a parameter of the policy, such as period="4 s". Repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_set)]
    pub sets: Vec<(String, String)>,

    /// The seed of the policy's random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Most memory of the targets in a tier, such as dram=4GiB. Repeatable
    #[arg(long = "limit", value_name = "TIER=SIZE", value_parser = bounds::limit, help_heading = "Bounds")]
    pub limits: Vec<(String, Bytes)>,

    /// Processor time for Terrace itself, as a share of one core; `none` for
    /// no bound
    #[arg(long, value_name = "SHARE", default_value = "3%", help_heading = "Bounds")]
    pub cpu: Share,

    /// Most bytes to move per second, such as 200MiB
    #[arg(long, value_name = "SIZE", help_heading = "Bounds")]
    pub bandwidth: Option<Bytes>,

    /// Stop moving pages while tasks lose more than this share of their time
    /// waiting for memory (pressure-stall information); `none` for no guard
    #[arg(long, value_name = "SHARE", default_value = "10%", help_heading = "Bounds")]
    pub pressure: Share,

    /// Most regions that DAMON watches. With fewer pages than that each page is
    /// watched on its own
    #[arg(long, value_name = "N", default_value_t = 4096, help_heading = "Bounds",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub regions: usize,

    /// Measure the bandwidth of every node's memory before the policy starts,
    /// about a second each, and believe that instead of the firmware's figures.
    /// Takes 256 MiB of each for that time, and its processors
    #[arg(long)]
    pub measure: bool,

    /// Watch and decide, but move nothing: the plan is logged (-v)
    #[arg(long)]
    pub dry_run: bool,

    /// Where `terrace top` and others may ask for the status. The default is
    /// PID.sock in /run/terrace, for others than root in the folder of their
    /// run-time files
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub socket: Option<PathBuf>,

    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, such as
    /// 127.0.0.1:9464. Whoever reaches the port can read them
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Output")]
    pub metrics: Option<SocketAddr>,

    /// Write a report into FOLDER at the end: report.html, results.json and
    /// results.csv, as of a simulation
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub report: Option<OutputFolder>,

    #[command(flatten)]
    pub results: ResultOptions,
}

/// How a command that is launched helps.
#[derive(Clone, Copy, Debug, Default)]
struct Helped<'a> {
    /// Where it hands over what its stores are tracked with.
    trackers: Option<&'a Trackers>,
    /// The part of its memory that is managed then.
    managed: Managed,
    /// Where its data structures are written down.
    structures: Option<Structures>,
    /// What is known of its data structures.
    hints: Option<&'a Hints>,
}

impl LiveOptions {
    fn config(&self, helped: Helped<'_>, offload: bool) -> Config {
        let mut parameters = Table::new();
        for (key, value) in &self.sets {
            terrace_policy::registry::set(&mut parameters, key, value);
        }
        Config {
            policy: self.policy.clone(),
            parameters,
            world: terrace_live::world::Options {
                limits: self.limits.iter().cloned().collect(),
                dry_run: self.dry_run,
                workers: std::thread::available_parallelism().map_or(1, usize::from),
                trackers: helped.trackers.cloned(),
                managed: helped.managed,
                structures: helped.structures,
            },
            limits: Limits {
                cpu: self.cpu.0.unwrap_or(f64::INFINITY),
                bandwidth: self.bandwidth,
                pressure: self.pressure.0,
            },
            damon: terrace_live::access::damon::Options {
                regions: self.regions,
                cpu: self.cpu.0.map_or(0.5, |cpu| cpu * 2.0 / 3.0),
            },
            offload,
            seed: self.seed,
            hints: helped.hints.map(Hints::profile),
        }
    }

    /// Prepares a session and says what was chosen. `offload`: the kernel carries the policy out.
    fn session(&self, selection: Selection, helped: Helped<'_>, offload: bool) -> Result<Session, Failure> {
        let kernel: Arc<dyn Kernel> = Arc::new(Linux);
        let mut facts = Facts::discover(&*kernel);
        let config = self.config(helped, offload);
        let measured =
            if self.measure || config.wants_probe() { facts.measure(&*kernel) } else { Vec::new() };
        measured.iter().for_each(|line| progress::note(line));
        let session = Session::prepare(&kernel, &facts, selection, &config)?;
        for choice in &session.choices {
            progress::note(choice);
        }
        Ok(session)
    }
}

/// What others may see of a run while it lasts.
struct Watch {
    reporter: Reporter,
    timeline: report::Timeline,
    /// None where no socket could be made, which is no reason not to work.
    _server: Option<Server>,
}

impl LiveOptions {
    fn watch(&self, session: &Session, control: &Control, seconds: Option<u64>) -> Result<Watch, Failure> {
        let board = Board::default();
        let default = server::socket_of(&journal::folder(), std::process::id());
        let socket = self.socket.as_ref().unwrap_or(&default);
        if self.socket.is_none()
            && let Err(error) = Folder::create(&journal::folder())
        {
            tracing::warn!(%error, "the folder of sockets and journals");
        }
        let server = match Server::start(socket, self.metrics, board.clone(), control) {
            Ok(server) => Some(server),
            Err(error) if self.socket.is_none() && self.metrics.is_none() => {
                tracing::warn!(socket = %socket.display(), %error, "`terrace top` will not find this run");
                None
            }
            Err(error) => return Err(Failure::usage(error.to_string())),
        };
        if let Some(address) = server.as_ref().and_then(Server::metrics) {
            progress::note(&format!("metrics: http://{address}/metrics"));
        }
        let mut reporter = Reporter::new(session, board);
        if let Some(seconds) = seconds {
            reporter.ends_after(Duration::from_secs(seconds));
        }
        Ok(Watch { reporter, timeline: report::Timeline::default(), _server: server })
    }
}

impl Watch {
    /// The engine has done a turn. Returns a snapshot where one is due.
    fn turn(&mut self, engine: &Engine) -> Option<Arc<Status>> {
        let status = self.reporter.turn(engine)?;
        self.timeline.add(&status);
        Some(status)
    }
}

/// When to stop after so many seconds: never where that is later than the clock can say.
fn end_after(seconds: Option<u64>) -> Option<Instant> {
    seconds.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)))
}

#[derive(Serialize)]
struct Document<'a> {
    policy: &'a str,
    dry_run: bool,
    parameters: &'a Table,
    choices: &'a [String],
    accesses: String,
    statistics: &'a Stats,
    notes: &'a [String],
}

/// Ends the work and puts back what was set; reports what could not be put back.
fn end(session: &mut Session) {
    session.engine.finish();
    let restored = session.journal.lock().map(|mut journal| journal.undo()).unwrap_or_default();
    restored.left.iter().chain(&restored.failed).for_each(|line| progress::warn(line));
}

/// Shows the result of a run in a few lines, and writes it as a document.
fn conclude(options: &LiveOptions, session: &Session, watch: &Watch, input: &str) -> Result<(), Failure> {
    let Session { engine, policy: name, parameters, choices, .. } = session;
    let (statistics, notes) = engine.statistics();
    progress::note(&summary(name, &statistics));
    notes.iter().for_each(|note| progress::note(note));
    if let Some(folder) = &options.report {
        let mut run = report::record(session, input, &statistics, &notes, options);
        run.timeline = watch.timeline.points();
        let page = report::write(folder, run)?;
        progress::note(&format!("report: {}", page.display()));
    }
    if options.results.is_wanted() {
        let accesses = engine.source_name();
        let (dry_run, statistics, notes) = (options.dry_run, &statistics, &notes[..]);
        let document = Document { policy: name, dry_run, parameters, choices, accesses, statistics, notes };
        options.results.write(&document)?;
    }
    Ok(())
}
