//! Policies written in Python: the seam of `terrace-policy`, for experiments.
//!
//! Slow: each page fault and each decision takes the interpreter's lock and some microseconds, where a policy in Rust takes
//! nanoseconds. The decisions are the same: what a policy sees and orders passes through the same interface.

use crate::errors::request;
use crate::memory::Memory;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyList};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_model::{PageId, TierId, Time, Unit};
use terrace_policy::{
    Capability, CapabilitySet, Fault, MemorySystem, Moment, Needs, NextTick, Placement, Policy, PolicyError,
    Refusal, Report, Setup, Signal, SignalKind, SignalSet, Topology,
};
use terrace_study::Stop;

/// A page: address space, and virtual address divided by 4096.
pub type Page = (u32, u64);

/// The page as Python has it.
pub fn name_of(page: PageId) -> Page {
    (page.space.0, page.vpn)
}

/// The page that Python names.
pub fn page_of((space, vpn): Page) -> PageId {
    PageId::new(space, vpn)
}

/// What Python raised in the policies of a study.
#[derive(Clone, Default)]
pub struct Failure {
    /// The first of all runs.
    raised: Arc<Mutex<Option<PyErr>>>,
    /// The first of this run, in words.
    of_run: Arc<Mutex<Option<String>>>,
}

impl Failure {
    /// That of another run of the study.
    pub fn of_run(&self) -> Failure {
        Failure { raised: Arc::clone(&self.raised), of_run: Arc::default() }
    }

    /// Takes the first exception.
    pub fn take(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What this run failed by.
    pub fn text(&self) -> Option<String> {
        self.of_run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps an exception of this run.
    pub fn put(&self, error: PyErr) {
        let text = error.to_string();
        self.of_run.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn is_there(&self) -> bool {
        self.of_run.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// A policy whose decisions an object of Python makes.
pub struct PythonPolicy {
    object: Py<PyAny>,
    needs: Needs,
    places: bool,
    failure: Failure,
    /// Ends the run where Python raises; without it the run goes to its end and is no result.
    stop: Option<Stop>,
}

/// What marks an object that has managed a run.
const USED: &str = "_terrace_used";

impl PythonPolicy {
    /// Reads what `object` needs, from its attributes `needs` and `signals`.
    ///
    /// # Errors
    /// Unknown names, and an object that has managed a run: what it remembers is of that one.
    pub fn new(object: Bound<'_, PyAny>, failure: Failure, stop: Option<Stop>) -> PyResult<PythonPolicy> {
        check_unused(&object)?;
        let mut capabilities = CapabilitySet::NONE;
        for word in words(&object, "needs")? {
            capabilities = capabilities.with(named(Capability::ALL, Capability::name, &word, "capability")?);
        }
        let mut signals = SignalSet::NONE;
        for word in words(&object, "signals")? {
            signals = signals.with(named(SignalKind::ALL, SignalKind::name, &word, "signal")?);
        }
        if signals.contains(SignalKind::TlbMiss) {
            require(capabilities, Capability::TlbMisses, "the signal tlb-miss")?;
        }
        let needs = Needs { capabilities, signals, ..Needs::default() };
        let places = object.hasattr("place")?;
        Ok(PythonPolicy { object: object.unbind(), needs, places, failure, stop })
    }

    /// The policy as that of one run, in a world that offers what it needs.
    pub fn open(self, setup: &Setup<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        if let Some(lack) = setup.capabilities.lacks(self.needs.capabilities) {
            return Err(PolicyError::Refused { policy: "the policy", refusal: Refusal::Lacks(lack) });
        }
        // Another run may have begun with the object meanwhile.
        let marked = Python::attach(|py| {
            let object = self.object.bind(py);
            check_unused(object)?;
            object.getattr("__dict__")?.set_item(USED, true)
        });
        self.or(marked, ());
        Ok(Box::new(self))
    }

    /// The answer, or that of `otherwise` where Python raised: then the run ends.
    fn or<T>(&self, answer: PyResult<T>, otherwise: T) -> T {
        answer.unwrap_or_else(|error| {
            self.failure.put(error);
            if let Some(stop) = &self.stop {
                stop.request();
            }
            otherwise
        })
    }
}

/// Refuses an object that has managed a run: what it remembers is of that one.
fn check_unused(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if !object.hasattr(USED)? {
        return Ok(());
    }
    let shown = object.repr()?;
    Err(request(format!(
        "policy: {shown} has managed a run, and remembers it; make another one for this run, or give what makes one: \
         policy=lambda: {shown}"
    )))
}

/// The names that the object's attribute `name` lists.
fn words(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<String>> {
    if !object.hasattr(name)? {
        return Ok(Vec::new());
    }
    let value = object.getattr(name)?;
    value.extract().map_err(|_| {
        let shown = value.repr().map_or_else(|_| "something".to_owned(), |text| text.to_string());
        request(format!("{name}: {shown} is no tuple of names; write, for one name, {name} = (\"name\",)"))
    })
}

/// Refuses what a policy uses and does not name among its needs: a machine without it would not be refused.
pub fn require(allowed: CapabilitySet, needed: Capability, what: &str) -> PyResult<()> {
    if allowed.contains(needed) {
        return Ok(());
    }
    Err(request(format!(
        "{what} needs {needed}, which the policy does not name; add \"{needed}\" to `needs` of its class"
    )))
}

/// The item called `word`.
fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, word: &str, what: &str) -> PyResult<T> {
    all.iter().copied().find(|item| name(*item) == word).ok_or_else(|| {
        let valid: Vec<&str> = all.iter().map(|item| name(*item)).collect();
        request(format!("no {what} is called \"{word}\"; there are {}", valid.join(", ")))
    })
}

/// The tiers as dictionaries, fastest first.
pub fn tiers<'py>(py: Python<'py>, topology: &Topology) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (id, tier) in topology.ids().zip(&topology.tiers) {
        let dict = PyDict::new(py);
        dict.set_item("name", &tier.name)?;
        dict.set_item("capacity_bytes", tier.capacity.0)?;
        dict.set_item("used_bytes", tier.used.0)?;
        dict.set_item("free_pages", topology.free_pages(id))?;
        dict.set_item("read_latency_ns", tier.read_latency.as_nanos())?;
        dict.set_item("write_latency_ns", tier.write_latency.as_nanos())?;
        dict.set_item("read_bandwidth", tier.read_bandwidth.0)?;
        dict.set_item("write_bandwidth", tier.write_bandwidth.0)?;
        list.append(dict)?;
    }
    Ok(list)
}

fn signal<'py>(py: Python<'py>, signal: &Signal) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let kind = match *signal {
        Signal::Tick => "tick",
        Signal::Done { ticket, subject, outcome, cost } => {
            dict.set_item("ticket", ticket.0)?;
            dict.set_item("page", subject.page().map(name_of))?;
            dict.set_item("outcome", format!("{outcome:?}").to_lowercase())?;
            dict.set_item("copied_bytes", cost.copied)?;
            "done"
        }
        Signal::HintFault { page, write, at, .. } => {
            dict.set_item("page", name_of(page))?;
            dict.set_item("write", write)?;
            dict.set_item("at", at.0)?;
            "hint-fault"
        }
        Signal::Access { page, write, count } => {
            dict.set_item("page", name_of(page))?;
            dict.set_item("write", write)?;
            dict.set_item("count", count)?;
            "access"
        }
        Signal::TlbMiss { page, .. } => {
            dict.set_item("page", name_of(page))?;
            "tlb-miss"
        }
        Signal::Allocated { page, size, tier, .. } => {
            dict.set_item("page", name_of(page))?;
            dict.set_item("base_pages", size.base_pages())?;
            dict.set_item("tier", tier.0)?;
            "allocated"
        }
        Signal::Unmapped { range } => {
            dict.set_item("page", name_of(range.first))?;
            dict.set_item("base_pages", range.pages)?;
            "unmapped"
        }
        Signal::LowWater { tier, free } => {
            dict.set_item("tier", tier.0)?;
            dict.set_item("free_bytes", free.0)?;
            "low-water"
        }
        // Signals of a placement that waits or wants an answer, which Python's policies cannot ask for.
        Signal::Stalled { .. } | Signal::Refused { .. } => "other",
    };
    dict.set_item("kind", kind)?;
    Ok(dict)
}

impl Policy for PythonPolicy {
    fn needs(&self) -> Needs {
        self.needs
    }

    fn place(&mut self, fault: &Fault, topology: &Topology) -> Placement {
        if !self.places || self.failure.is_there() {
            return Placement::ANYWHERE;
        }
        let answer = Python::attach(|py| {
            let answer = self.object.bind(py).call_method1(
                "place",
                (name_of(fault.page), fault.write, fault.at.0, tiers(py, topology)?),
            )?;
            let wishes: Vec<u8> = if answer.is_none() {
                Vec::new()
            } else if let Ok(one) = answer.extract() {
                vec![one]
            } else {
                let expected = "return the number of a tier, a list of such numbers, or None";
                answer.extract().map_err(|_| no_answer(self.object.bind(py), "place", &answer, expected))?
            };
            check_tiers(wishes.iter().copied(), topology)?;
            Ok(wishes.into_iter().fold(Placement::ANYWHERE, |placed, tier| placed.or(TierId(tier), None)))
        });
        self.or(answer, Placement::ANYWHERE)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if self.failure.is_there() {
            return NextTick::Never;
        }
        let answer = Python::attach(|py| {
            let list = PyList::empty(py);
            for one in signals {
                list.append(signal(py, one)?)?;
            }
            let lent = Bound::new(py, Memory::lend(memory, self.needs.capabilities))?;
            let answer = self.object.bind(py).call_method1("on", (now.0, list, &lent));
            lent.get().take_back();
            let answer = answer?;
            if !answer.is_none() {
                let expected = "return a whole number of nanoseconds since the run began, or None";
                let nanoseconds =
                    answer.extract().map_err(|_| no_answer(self.object.bind(py), "on", &answer, expected))?;
                return Ok(NextTick::At(Moment(nanoseconds)));
            }
            Ok(NextTick::Unchanged)
        });
        self.or(answer, NextTick::Never)
    }

    fn report(&self, report: &mut Report) {
        if self.failure.is_there() {
            return;
        }
        let answer = Python::attach(|py| -> PyResult<()> {
            let object = self.object.bind(py);
            if object.hasattr("report")? {
                let answer = object.call_method0("report")?;
                let figures = answer.cast::<PyDict>().ok().and_then(|dict| dict.items().extract().ok());
                let figures: Vec<(String, Figure)> = figures.ok_or_else(|| {
                    let expected = "return a dictionary of names and numbers: whole numbers are counts, floats are levels";
                    no_answer(object, "report", &answer, expected)
                })?;
                for (name, figure) in figures {
                    match figure {
                        Figure::Level(value) => report.stats.real_level(name, value, Unit::Count),
                        Figure::Count(value) => report.count(&name, value),
                    }
                }
            }
            Ok(())
        });
        self.or(answer, ());
    }
}

/// What a policy reports under a name.
enum Figure {
    /// A float: as it is at the end of the run.
    Level(f64),
    /// A whole number: what was added in the region of interest.
    Count(u64),
}

impl FromPyObject<'_, '_> for Figure {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Figure> {
        match value.cast::<PyFloat>() {
            Ok(level) => Ok(Figure::Level(level.value())),
            Err(_) => Ok(Figure::Count(value.extract()?)),
        }
    }
}

/// What a policy's method returned instead of what was `expected`.
fn no_answer(policy: &Bound<'_, PyAny>, method: &str, answer: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let shown = answer.repr().map_or_else(|_| "something".to_owned(), |text| text.to_string());
    let class = policy.get_type().name().map_or_else(|_| "the policy".to_owned(), |name| name.to_string());
    request(format!("{class}.{method} returned {shown}; {expected}"))
}

/// Refuses tiers that the machine does not have.
pub fn check_tiers(asked: impl IntoIterator<Item = u8>, topology: &Topology) -> PyResult<()> {
    match asked.into_iter().find(|tier| usize::from(*tier) >= topology.tiers.len()) {
        Some(tier) => Err(request(format!(
            "the policy asks for tier {tier}; the machine's tiers are 0 to {}",
            topology.tiers.len() - 1
        ))),
        None => Ok(()),
    }
}

/// A span such as `1 ms` in nanoseconds, as parameters spell it.
#[pyfunction]
pub fn nanoseconds(text: &str) -> PyResult<u64> {
    let span: Time = text.parse().map_err(|error| request(format!("\"{text}\": {error}")))?;
    Ok(span.0 / 1_000_000)
}
