//! Runs designs on inputs and turns the outcomes into run records.

use crate::designs::Job;
use crate::fanout::{Branch, FanOut, Observer};
use crate::first_pass;
use crate::ignored;
use crate::input::{Ending, Input};
use crate::observer::{Code, InputObserver};
use crate::own_policy::Begun;
use crate::partial;
use crate::periods::{too_few_samples, too_short};
use crate::progress::{Watched, share};
use crate::record::left_out_by_options;
use crate::simulation::Settings;
use crate::threads;
use crate::words::{of_readable_structures, with_names_demangled};
use crossbeam_channel::{Sender, unbounded};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Instant, SystemTime};
use terrace_policy::Profile;
use terrace_report::{InputSummary, MachineTier, RunRecord};
use terrace_sim::design::{Design, Resolved};
use terrace_sim::memory::Device;
use terrace_sim::{AccessPath, MemoryMap, Options, PartUse, PlacementMap, SimError};
use terrace_trace::{EventSource, SourceError, TraceEnding, demangled, left_out_words};

/// What came of one input.
#[derive(Default)]
pub struct InputResult {
    /// What the input did; `None` when nothing of it was read.
    pub summary: Option<InputSummary>,
    /// The finished runs, in the order of the designs.
    pub runs: Vec<RunRecord>,
    /// The parts of the programs, of each run, where they were asked for.
    pub parts: Vec<Vec<PartUse>>,
    /// Source file and line of the parts that are allocation sites, by the name that is shown; where they are known.
    pub lines: BTreeMap<String, String>,
    /// What went wrong, one message each.
    pub failures: Vec<String>,
    /// The recorded program, which may still run.
    pub ending: Ending,
    /// The input's name.
    pub name: String,
}

impl InputResult {
    /// That of an input on which nothing could be run.
    fn failed(name: String, why: &str) -> InputResult {
        InputResult { failures: vec![format!("{name}: {why}")], name, ..InputResult::default() }
    }

    /// Finds the source lines of the allocation sites that the results name, for a program of this machine that was recorded
    /// at this time.
    fn find_lines(&mut self, code: &Code, recorded: SystemTime) {
        let parts = self.parts.iter().flatten().filter(|part| part.part.is_structure);
        let mut shown: BTreeSet<String> = parts.map(|part| demangled(&part.part.name).into_owned()).collect();
        let pools = self.runs.iter().filter_map(|run| run.pools.as_ref());
        shown.extend(pools.flat_map(|pools| &pools.structures).map(|structure| structure.name.clone()));
        let rows = self.summary.iter().flat_map(|summary| &summary.heat.rows);
        shown.extend(rows.map(|row| row.name.clone()));
        self.lines = code.lines(shown.iter().map(String::as_str), recorded);
        let line = |name: &str| self.lines.get(name).cloned().unwrap_or_default();
        for row in self.summary.iter_mut().flat_map(|summary| &mut summary.heat.rows) {
            row.line = line(&row.name);
        }
        for pools in self.runs.iter_mut().filter_map(|run| run.pools.as_mut()) {
            for structure in &mut pools.structures {
                structure.code_line = line(&structure.name);
            }
        }
    }

    /// Takes what came of the jobs; nothing stands for one that is no result, and says why elsewhere.
    fn take(&mut self, jobs: &[Job], outcomes: Vec<Option<Result<Simulated, SimError>>>) {
        for (Job { design, .. }, outcome) in jobs.iter().zip(outcomes) {
            match outcome {
                None => {}
                Some(Ok(run)) if run.stopped => {}
                Some(Ok(run)) => {
                    self.runs.push(run.record);
                    self.parts.push(run.parts);
                }
                Some(Err(error)) => {
                    self.failures.push(format!("{} on {}: {error}", design.design.name, self.name));
                }
            }
        }
    }
}

/// A run, and whether it saw its whole input.
pub struct Simulated {
    /// The result.
    pub record: RunRecord,
    /// The user stopped it before the end.
    pub stopped: bool,
    /// Memory before and after, where it was asked for.
    pub memory_map: Option<MemoryMap>,
    /// Where memory lay over time, where it was asked for.
    pub placement_map: Option<PlacementMap>,
    /// The steps of one access, where they were asked for and the input has it.
    pub access: Option<AccessPath>,
    /// The parts of the programs, where they were asked for.
    pub parts: Vec<PartUse>,
}

/// What else a run is to report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra {
    /// Pictures of memory.
    pub memory_map: bool,
    /// Where memory lies over time.
    pub placement_map: bool,
    /// The steps of this access, from 1 on.
    pub access: Option<u64>,
    /// The parts of the programs.
    pub parts: bool,
}

/// One design on one source.
///
/// # Errors
/// When the source or the simulation fails.
pub fn simulate(
    design: &Resolved,
    input_name: &str,
    command: String,
    source: &mut dyn EventSource,
    profile: Option<Arc<Profile>>,
    settings: &Settings<'_>,
    Extra { memory_map, placement_map, access, parts }: Extra,
) -> Result<Simulated, SimError> {
    let watched = Options { memory_map, placement_map, watch_access: access, parts, ..settings.options() };
    let options = Options { profile, ..watched };
    simulate_with(design, input_name, command, source, settings, options)
}

/// One design on one source, under the job's own policy where it has one.
///
/// # Errors
/// As [`simulate`], and a policy of one's own that does not fit the machine, or failed.
pub fn simulate_job(
    job: &Job,
    input_name: &str,
    command: String,
    source: &mut dyn EventSource,
    profile: Option<Arc<Profile>>,
    settings: &Settings<'_>,
    extra: Extra,
) -> Result<Simulated, SimError> {
    let Some(own) = &job.own else {
        return simulate(&job.design, input_name, command, source, profile, settings, extra);
    };
    let Begun { open, failure } = (own.begin)();
    let options = Options { policy: Some(open), parts: extra.parts, ..settings.options() };
    let run = simulate_with(&job.design, input_name, command, source, settings, options);
    match failure() {
        Some(failure) => Err(SimError::Source(SourceError::Malformed(failure))),
        None => run,
    }
}

fn simulate_with(
    design: &Resolved,
    input_name: &str,
    command: String,
    source: &mut dyn EventSource,
    settings: &Settings<'_>,
    options: Options,
) -> Result<Simulated, SimError> {
    tracing::info!(design = design.design.name, input = input_name, "run begins");
    let seed = source.header().seed;
    let independent = partial::independent(source.header(), &design.design.core);
    let begin = Instant::now();
    let outcome = terrace_sim::simulate(&settings.scaled(&design.design)?, source, options)?;
    let wall_seconds = begin.elapsed().as_secs_f64();
    tracing::info!(design = design.design.name, input = input_name, wall_seconds, "run ends");
    let stopped = outcome.stopped;
    let mut record = RunRecord {
        design: design.design.name.clone(),
        design_summary: design.design.summary.clone(),
        machine: design.design.machine.clone(),
        tiers: tiers_of(&design.design),
        input: input_name.to_owned(),
        fidelity: settings.simulation.fidelity_name().to_owned(),
        scale: settings.simulation.scale,
        seed,
        accesses: outcome.accesses,
        instructions: outcome.instructions,
        cycles: outcome.cycles,
        seconds_simulated: outcome.seconds_simulated,
        wall_seconds,
        stats: outcome.stats,
        parameters: design.parameters.iter().map(|p| (p.key.clone(), p.value.clone())).collect(),
        scaled_parameters: scaled_parameters(&design.design, settings),
        left_out: outcome.left_out,
        command,
        notes: outcome.notes.iter().map(|note| with_names_demangled(note)).collect(),
        timeline: Vec::new(),
        contiguity_over_time: outcome.contiguity,
        pools: outcome.pools.map(of_readable_structures),
        uncertainty: None,
    };
    record.notes.extend(too_short(&design.design, &record, settings));
    record.notes.extend(too_few_samples(&design.design, &record.stats, outcome.samples, settings));
    record.notes.extend(ignored::notes(&design.design, &record.stats));
    let hints = settings.hints.as_ref().filter(|_| first_pass::takes_hints(&design.design));
    record.notes.extend(hints.and_then(|hints| hints.partial.clone()));
    record.notes.extend(independent.filter(|_| settings.has_times()));
    let terrace_sim::Outcome { memory_map, placement_map, access, parts, .. } = outcome;
    Ok(Simulated { record, stopped, memory_map, placement_map, access, parts })
}

/// What the machine's parameters are after the division by the scale, where there is one.
fn scaled_parameters(design: &Design, settings: &Settings<'_>) -> Vec<(String, String)> {
    match settings.simulation.scale {
        1 => Vec::new(),
        // A design that was simulated can be scaled.
        scale => design.scaled_parameters(scale).unwrap_or_default(),
    }
}

/// The machine's tiers with their idle latencies.
pub fn tiers_of(design: &Design) -> Vec<MachineTier> {
    let tiers = design.tiers.iter().map(|tier| {
        // A design that was built has devices that can be.
        let device = design.devices.get(&tier.device).and_then(|parameters| Device::new(parameters).ok());
        let device = device.map_or(0.0, |device| device.idle_read_latency().as_nanos());
        let link = tier.link.as_ref().map_or(0.0, |link| link.idle_read().as_nanos());
        MachineTier {
            name: tier.name.clone(),
            capacity_bytes: tier.capacity.0,
            read_latency_ns: tier.path_latency.as_nanos() + link + device,
        }
    });
    tiers.collect()
}

/// `Machine zen4-cxl: dram 64.0 GiB at 94.3 ns, cxl 64.0 GiB at 223 ns (reads, idle).`, as the design has it.
pub fn machine_of(design: &Design) -> String {
    terrace_report::machine_sentence(&design.machine, &tiers_of(design))
}

/// The command that repeats one run; of one under a policy of one's own what that policy makes of it.
pub fn repeat_command(job: &Job, input: &Input, settings: &Settings<'_>) -> String {
    let mut words: Vec<String> = ["terrace", "sim", "--design", &job.word].map(str::to_owned).into();
    words.extend_from_slice(&job.words);
    words.extend(settings.simulation.to_words());
    // Where the design takes none, neither does the run of it alone.
    if let Some(hints) = &settings.hints
        && first_pass::takes_hints(&job.design.design)
    {
        words.extend(["--hints".to_owned(), hints.file.clone()]);
    }
    if let Some(own) = &job.own {
        words.extend(input.words());
        return (own.repeat)(&words);
    }
    input.repeat(&words)
}

/// All designs on their inputs. Every input is decoded once; the designs of one input run at the same time, and the
/// next input begins as soon as a core is free.
pub fn all_pairs(inputs: Vec<(Input, Vec<Job>)>, settings: &Settings<'_>) -> Vec<InputResult> {
    let results = Mutex::new(Vec::new());
    each_pair(inputs, settings, &|at, result| {
        results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// As [`all_pairs`], with inputs that are opened when their turn comes. `finished` is called with each input's number and
/// result as soon as it has one.
pub fn each_pair(
    inputs: impl IntoIterator<Item = (Input, Vec<Job>)>,
    settings: &Settings<'_>,
    finished: &(dyn Fn(usize, InputResult) + Sync),
) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (done, free) = unbounded();
    std::thread::scope(|scope| {
        let mut active = 0;
        let mut groups = Vec::new();
        for (at, (input, jobs)) in inputs.into_iter().enumerate() {
            while active >= cores && free.recv().is_ok() {
                active -= 1;
            }
            if settings.stop.requested() {
                break;
            }
            active += jobs.len();
            let (done, name, runs) = (done.clone(), input.name.clone(), jobs.len());
            let group = threads::start(scope, move || {
                finished(at, one_input(&jobs, input, settings, Extra::default(), &done));
            });
            match group {
                Ok(group) => groups.push(group),
                Err(why) => {
                    active -= runs;
                    finished(at, InputResult::failed(name, &why));
                }
            }
        }
        groups.into_iter().for_each(threads::result);
    });
}

/// All designs on one input, side by side, with the parts of its programs told apart.
pub fn by_parts(jobs: &[Job], input: Input, settings: &Settings<'_>) -> InputResult {
    let extra = Extra { parts: true, ..Extra::default() };
    one_input(jobs, input, settings, extra, &unbounded().0)
}

/// All designs on one input, side by side.
fn one_input(
    jobs: &[Job],
    input: Input,
    settings: &Settings<'_>,
    extra: Extra,
    done: &Sender<()>,
) -> InputResult {
    let (name, stop) = (input.name.clone(), input.stop(&settings.stop));
    let (is_live, asked, words) = (input.is_live(), settings.stop.clone(), input.words());
    let mut result = InputResult { name: name.clone(), ..InputResult::default() };
    let commands: Vec<String> = jobs.iter().map(|job| repeat_command(job, &input, settings)).collect();
    let profiles = first_pass::profiles(jobs.iter().map(|job| &job.design), &input, settings);
    if !input.programs().is_empty() {
        let runs =
            profiles.map(|profiles| each_alone(jobs, &input, commands, profiles, settings, extra, done));
        let outcomes = runs.unwrap_or_else(|error| {
            result.failures.push(format!("{name}: {}", error.with_causes()));
            Vec::new()
        });
        result.take(jobs, outcomes);
        return result;
    }
    let recorded = input.recorded_at();
    let opened = profiles.and_then(|profiles| Ok((profiles, input.open(settings)?)));
    let (profiles, source) = match opened {
        Ok((profiles, (source, ending))) => {
            result.ending = ending;
            (profiles, source)
        }
        Err(error) => {
            result.failures.push(format!("{name}: {}", error.with_causes()));
            for _ in jobs {
                let _ = done.send(());
            }
            return result;
        }
    };
    let header = source.header().clone();
    let observed = Arc::new(Mutex::new(InputObserver::new()));
    let observer = observe(&name, &header, Arc::clone(&observed), settings);
    let settings = &settings.until(stop);
    let (fanout, branches) = match FanOut::start(source, jobs.len(), observer, settings.stop.flag()) {
        Ok(started) => started,
        Err(error) => {
            for _ in jobs {
                let _ = done.send(());
            }
            return InputResult::failed(name, &error.to_string());
        }
    };

    let outcomes: Vec<Result<Simulated, SimError>> = std::thread::scope(|scope| {
        let runs: Vec<_> = jobs
            .iter()
            .zip(branches)
            .zip(commands.into_iter().zip(profiles))
            .map(|((job, mut branch), (command, profile))| {
                let (name, sender) = (&name, done.clone());
                start(scope, done, move || {
                    let source = &mut branch as &mut Branch;
                    let outcome = simulate_job(job, name, command, source, profile, settings, extra);
                    drop(branch);
                    let _ = sender.send(());
                    outcome
                })
            })
            .collect();
        runs.into_iter().map(|run| run.and_then(threads::result)).collect()
    });
    let decoded = fanout.join();
    drop(decoded.observer);
    let (ending, left_out) = (decoded.source.ending(), decoded.source.left_out());
    drop(decoded.source);

    let cut_short = decoded.stopped;
    let source_failed = decoded.error.is_some();
    result.failures.extend(decoded.error.map(|error| format!("{name}: {error}")));
    // A run that was cut short is no result of this comparison.
    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
        Ok(_) if cut_short => None,
        Err(_) if source_failed => None,
        outcome => Some(outcome),
    });
    result.take(jobs, outcomes.collect());
    let mut observer = std::mem::take(&mut *observed.lock().unwrap_or_else(PoisonError::into_inner));
    let code = observer.take_code();
    let summary = observer.finish(&name, &header);
    let ending = if is_live && asked.requested() { TraceEnding::Stopped } else { ending };
    let part = partial::remark(&header, summary.accesses, ending);
    for remark in part.into_iter().chain(left_out_words(left_out)) {
        result.runs.iter_mut().for_each(|run| run.notes.push(remark.clone()));
    }
    if is_live
        && summary.accesses == 0
        && !asked.requested()
        && let Some(why) = left_out_by_options(&words)
    {
        result.runs.clear();
        result.failures.push(format!("{name}: {why}"));
    }
    result.summary = Some(summary);
    if let Some(at) = recorded {
        result.find_lines(&code, at);
    }
    result
}

/// All designs on one mix, each of which reads its programs at a pace of its own.
fn each_alone(
    jobs: &[Job],
    input: &Input,
    commands: Vec<String>,
    profiles: Vec<Option<Arc<Profile>>>,
    settings: &Settings<'_>,
    extra: Extra,
    done: &Sender<()>,
) -> Vec<Option<Result<Simulated, SimError>>> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = (jobs.iter().zip(commands).zip(profiles))
            .map(|((job, command), profile)| {
                let (sender, name) = (done.clone(), &input.name);
                let again = input.again("every design reads the mix at its own pace");
                start(scope, done, move || {
                    let run = || {
                        let opened = again.and_then(|input| input.open(settings));
                        let (mut source, _) = opened
                            .map_err(|error| SimError::Source(SourceError::Malformed(error.with_causes())))?;
                        let shown = format!("{name}, {}", job.design.design.name);
                        let mut watched = Watched::new(&shown, source.as_mut(), settings.progress);
                        let mut run =
                            simulate_job(job, name, command, &mut watched, profile, settings, extra)?;
                        run.record.notes.extend(watched.partial(false));
                        Ok(run)
                    };
                    let outcome = run();
                    let _ = sender.send(());
                    outcome
                })
            })
            .collect();
        runs.into_iter().map(|run| Some(run.and_then(threads::result))).collect()
    })
}

/// Starts a thread for a job; one that cannot be started is done at once.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    done: &Sender<()>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, SimError> {
    threads::start(scope, work).map_err(|why| {
        let _ = done.send(());
        SimError::Source(SourceError::Malformed(why))
    })
}

/// Feeds the summary, and reports how far the input is read.
fn observe(
    name: &str,
    header: &terrace_trace::Header,
    summary: Arc<Mutex<InputObserver>>,
    settings: &Settings<'_>,
) -> Observer {
    let mut task = settings.progress.begin(name);
    let header = header.clone();
    let mut accesses = 0;
    Box::new(move |batch, source_progress| {
        summary.lock().unwrap_or_else(PoisonError::into_inner).observe(batch);
        accesses += batch.len() as u64;
        task.advance(batch.len() as u64, &|| share(source_progress, &header, accesses));
    })
}
