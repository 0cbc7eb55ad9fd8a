//! Policies written in tests, on the simulated machine.

use super::*;
use std::sync::Mutex;
use terrace_model::TierId;
use terrace_policy::{
    Capability, Fault, MemorySystem, Moment, Needs, NextTick, Placement, Policy, Signal, SignalSet, Topology,
};

/// A policy written in a test.
pub struct Probe<F> {
    pub signals: SignalSet,
    pub first: TierId,
    pub on: F,
}

impl<F> Policy for Probe<F>
where
    F: FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send,
{
    fn needs(&self) -> Needs {
        // Contents are watched for policies that ask.
        Needs { signals: self.signals, ..Needs::of(&[Capability::ZeroPages]) }
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        Placement::tier(self.first)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        (self.on)(now, signals, memory)
    }
}

/// A test's policy as a hypervisor's, which does not see contents.
struct OnHost<F>(Probe<F>);

impl<F> Policy for OnHost<F>
where
    F: FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send,
{
    fn needs(&self) -> Needs {
        Needs { signals: self.0.signals, ..Needs::of(&[]) }
    }

    fn place(&mut self, fault: &Fault, topology: &Topology) -> Placement {
        self.0.place(fault, topology)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        self.0.on(now, signals, memory)
    }
}

/// Options with such a policy in the hypervisor; the guest's memory goes to the machine's first tier.
pub fn on_host<F>(signals: SignalSet, on: F) -> Options
where
    F: FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send + 'static,
{
    let policy: Box<dyn Policy> = Box::new(OnHost(Probe { signals, first: TierId(0), on }));
    Options { host_policy: Some(Box::new(move |_| Ok(policy))), whole: true, ..Options::default() }
}

/// Options with a policy in the guest, whose pages go to its first tier.
pub fn in_guest<F>(options: Options, signals: SignalSet, on: F) -> Options
where
    F: FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send + 'static,
{
    let policy: Box<dyn Policy> = Box::new(Probe { signals, first: TierId(0), on });
    Options { policy: Some(Box::new(move |_| Ok(policy))), ..options }
}

/// Runs a program under a policy written in the test; new pages go to `first`.
pub fn probe<F>(
    program: &Program,
    design: &Design,
    fidelity: Fidelity,
    (first, signals): (TierId, SignalSet),
    on: F,
) -> Outcome
where
    F: FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send + 'static,
{
    let options = Options { fidelity, whole: true, ..under(first, signals, on) };
    run_with(design, &mut program.source(), options).unwrap()
}

/// A run under such a policy.
fn under<F>(first: TierId, signals: SignalSet, on: F) -> Options
where
    F: FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send + 'static,
{
    let policy: Box<dyn Policy> = Box::new(Probe { signals, first, on });
    Options { policy: Some(Box::new(move |_| Ok(policy))), ..Options::default() }
}

/// A run at full fidelity under such a policy, of which the region of interest alone is counted.
pub fn probe_region<F>(
    program: &Program,
    design: &Design,
    (first, signals): (TierId, SignalSet),
    on: F,
) -> Outcome
where
    F: FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send + 'static,
{
    run_with(design, &mut program.source(), under(first, signals, on)).unwrap()
}

pub fn every(now: Moment, nanos: u64) -> NextTick {
    NextTick::At(Moment(now.0 + nanos))
}

pub fn shared<T>(value: T) -> (Arc<Mutex<T>>, Arc<Mutex<T>>) {
    let one = Arc::new(Mutex::new(value));
    (Arc::clone(&one), one)
}

/// Orders something at the first tick after `after` and gathers what came of it.
pub fn order<F>(
    program: &Program,
    design: &Design,
    first: TierId,
    after: u64,
    give: F,
) -> (Outcome, Vec<Signal>)
where
    F: Fn(&mut dyn MemorySystem) + Send + 'static,
{
    let (signals, log) = shared(Vec::new());
    let mut given = false;
    let outcome =
        probe(program, design, Fidelity::Full, (first, SignalSet::NONE), move |now, signals, memory| {
            let others = signals.iter().filter(|signal| !matches!(signal, Signal::Tick));
            log.lock().unwrap().extend(others.copied());
            if now.0 < after {
                return NextTick::At(Moment(after));
            }
            if !given {
                given = true;
                give(memory);
            }
            NextTick::Never
        });
    let signals = signals.lock().unwrap().clone();
    (outcome, signals)
}

pub fn outcomes(signals: &[Signal]) -> Vec<terrace_policy::Outcome> {
    let done = |signal: &Signal| match signal {
        Signal::Done { outcome, .. } => Some(*outcome),
        _ => None,
    };
    signals.iter().filter_map(done).collect()
}

/// What is done to memory at a time of the run.
pub type TimedStep = (u64, Box<dyn FnMut(&mut dyn MemorySystem) + Send>);

/// Runs a program and does each step at its time, in nanoseconds. Returns all signals but ticks, and fails if the program
/// ends before the last step.
pub fn at_times(program: &Program, design: &Design, steps: Vec<TimedStep>) -> Vec<Signal> {
    let (signals, log) = shared(Vec::new());
    let (left, mut steps) = (Arc::new(Mutex::new(steps.len())), steps.into_iter().peekable());
    let to_do = Arc::clone(&left);
    probe(program, design, Fidelity::Full, (TierId(0), SignalSet::NONE), move |now, signals, memory| {
        let others = signals.iter().filter(|signal| !matches!(signal, Signal::Tick));
        log.lock().unwrap().extend(others.copied());
        while let Some((_, mut step)) = steps.next_if(|(at, _)| *at <= now.0) {
            step(memory);
            *to_do.lock().unwrap() -= 1;
        }
        steps.peek().map_or(NextTick::Never, |(at, _)| NextTick::At(Moment(*at)))
    });
    assert_eq!(*left.lock().unwrap(), 0, "steps that were not done");
    let mut signals = signals.lock().unwrap();
    std::mem::take(&mut *signals)
}
