//! Policies written in Python: the seam of `terrace-policy`, for experiments.
//!
//! Slow: each page fault and each decision takes the interpreter's lock and some microseconds, where a policy in Rust takes
//! nanoseconds. The decisions are the same: what a policy sees and orders passes through the same interface.

use crate::errors::request;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use terrace_model::{Bytes, PageId, TierId, Time};
use terrace_policy::{
    Capability, CapabilitySet, Clear, Exchange, Fault, MemorySystem, Moment, Move, MoveOptions, Needs,
    NextTick, PageView, Placement, Policy, Report, ScanHand, Scope, Signal, SignalKind, SignalSet, Step,
    Topology, Watch,
};
use terrace_study::Stop;

/// A page: address space, and virtual address divided by 4096.
type Page = (u32, u64);

fn name_of(page: PageId) -> Page {
    (page.space.0, page.vpn)
}

fn page_of((space, vpn): Page) -> PageId {
    PageId::new(space, vpn)
}

/// What failed in a policy; the first of several counts.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    /// Takes it.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A policy whose decisions an object of Python makes.
pub struct PythonPolicy {
    object: Py<PyAny>,
    needs: Needs,
    places: bool,
    failure: Failure,
    stop: Stop,
}

impl PythonPolicy {
    /// Reads what `object` needs, from its attributes `needs` and `signals`.
    pub fn new(object: Bound<'_, PyAny>, failure: Failure, stop: Stop) -> PyResult<PythonPolicy> {
        let words = |name: &str| -> PyResult<Vec<String>> {
            if object.hasattr(name)? { object.getattr(name)?.extract() } else { Ok(Vec::new()) }
        };
        let mut capabilities = CapabilitySet::NONE;
        for word in words("needs")? {
            capabilities = capabilities.with(named(Capability::ALL, Capability::name, &word, "capability")?);
        }
        let mut signals = SignalSet::NONE;
        for word in words("signals")? {
            signals = signals.with(named(SignalKind::ALL, SignalKind::name, &word, "signal")?);
        }
        let needs = Needs { capabilities, signals, ..Needs::default() };
        let places = object.hasattr("place")?;
        Ok(PythonPolicy { object: object.unbind(), needs, places, failure, stop })
    }

    /// The answer, or that of `otherwise` where Python raised: then the run ends.
    fn or<T>(&self, answer: PyResult<T>, otherwise: T) -> T {
        answer.unwrap_or_else(|error| {
            self.failure.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.stop.request();
            otherwise
        })
    }
}

/// The item called `word`.
fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, word: &str, what: &str) -> PyResult<T> {
    all.iter().copied().find(|item| name(*item) == word).ok_or_else(|| {
        let valid: Vec<&str> = all.iter().map(|item| name(*item)).collect();
        request(format!("no {what} is called \"{word}\"; there are {}", valid.join(", ")))
    })
}

/// The tiers as dictionaries, fastest first.
fn tiers<'py>(py: Python<'py>, topology: &Topology) -> PyResult<Bound<'py, PyList>> {
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
        if !self.places {
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
                answer.extract()?
            };
            check_tiers(wishes.iter().copied(), topology)?;
            Ok(wishes.into_iter().fold(Placement::ANYWHERE, |placed, tier| placed.or(TierId(tier), None)))
        });
        self.or(answer, Placement::ANYWHERE)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let answer = Python::attach(|py| {
            let list = PyList::empty(py);
            for one in signals {
                list.append(signal(py, one)?)?;
            }
            let lent = Bound::new(py, Memory::lend(memory))?;
            let answer = self.object.bind(py).call_method1("on", (now.0, list, &lent));
            lent.get().take_back();
            let answer = answer?;
            if !answer.is_none() {
                let nanoseconds = answer.extract().map_err(|_| no_time(self.object.bind(py), &answer))?;
                return Ok(NextTick::At(Moment(nanoseconds)));
            }
            Ok(NextTick::Unchanged)
        });
        self.or(answer, NextTick::Never)
    }

    fn report(&self, report: &mut Report) {
        let answer = Python::attach(|py| -> PyResult<()> {
            let object = self.object.bind(py);
            if object.hasattr("report")? {
                let figures: Vec<(String, u64)> =
                    object.call_method0("report")?.cast::<PyDict>()?.items().extract()?;
                for (name, value) in figures {
                    report.count(&name, value);
                }
            }
            Ok(())
        });
        self.or(answer, ());
    }
}

/// What a policy's `on` returned instead of a time.
fn no_time(policy: &Bound<'_, PyAny>, answer: &Bound<'_, PyAny>) -> PyErr {
    let shown = answer.repr().map_or_else(|_| "something".to_owned(), |text| text.to_string());
    let class = policy.get_type().name().map_or_else(|_| "the policy".to_owned(), |name| name.to_string());
    request(format!(
        "{class}.on returned {shown}; return a whole number of nanoseconds since the run began, or None"
    ))
}

fn check_tiers(asked: impl IntoIterator<Item = u8>, topology: &Topology) -> PyResult<()> {
    match asked.into_iter().find(|tier| usize::from(*tier) >= topology.tiers.len()) {
        Some(tier) => Err(request(format!(
            "the policy asks for tier {tier}; the machine's tiers are 0 to {}",
            topology.tiers.len() - 1
        ))),
        None => Ok(()),
    }
}

/// The memory system, lent to Python for one call of a policy.
#[pyclass(frozen, module = "terrace._terrace")]
pub struct Memory {
    /// The thread that called the policy. Python may keep and drop the object on any other.
    lent_on: ThreadId,
    system: Cell<Option<NonNull<dyn MemorySystem>>>,
}

// SAFETY: only the thread `lent_on` touches the cell: `with` compares first, `take_back` is called by `PythonPolicy::on` on
// that thread, and dropping the object elsewhere drops a pointer, which does nothing.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The caller takes it back with `take_back`, before `memory` is used again.
    fn lend(memory: &mut dyn MemorySystem) -> Memory {
        let lent: NonNull<dyn MemorySystem + '_> = NonNull::from(memory);
        // SAFETY: only the lifetime of the object changes. `PythonPolicy::on` takes the pointer back before the borrow
        // that it was made from ends.
        let lent: NonNull<dyn MemorySystem> = unsafe { std::mem::transmute(lent) };
        Memory { lent_on: std::thread::current().id(), system: Cell::new(Some(lent)) }
    }

    /// What Python has kept is of no use from now on. On the thread that lent it.
    fn take_back(&self) {
        debug_assert_eq!(std::thread::current().id(), self.lent_on);
        self.system.set(None);
    }

    fn with<T>(&self, work: impl FnOnce(&mut dyn MemorySystem) -> PyResult<T>) -> PyResult<T> {
        let late = || request("the memory can be used while the policy is called, and not later");
        if std::thread::current().id() != self.lent_on {
            return Err(request(
                "the memory can be used on the thread that calls the policy, and on no other",
            ));
        }
        // Taken while it is used, so that there is one borrow at a time.
        let mut lent = self.system.take().ok_or_else(late)?;
        // SAFETY: the pointer is there during `PythonPolicy::on` alone, which has the borrow it was made from; this is that
        // thread, and `work` runs no code of Python that could come here again: the cell is empty meanwhile.
        let result = work(unsafe { lent.as_mut() });
        self.system.set(Some(lent));
        result
    }
}

fn shown<'py>(py: Python<'py>, view: &PageView) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("page", name_of(view.page))?;
    dict.set_item("base_pages", view.base_pages())?;
    dict.set_item("tier", view.tier.0)?;
    dict.set_item("accessed", view.accessed)?;
    dict.set_item("dirty", view.dirty)?;
    dict.set_item("writable", view.writable)?;
    dict.set_item("in_flight", view.in_flight)?;
    Ok(dict)
}

#[pymethods]
impl Memory {
    /// The tiers, fastest first, with what is free now.
    fn tiers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let topology = self.with(|memory| Ok(memory.topology().clone()))?;
        tiers(py, &topology)
    }

    /// Every mapped page, of one tier or of all; clears the bits that are named, as seen before.
    #[pyo3(signature = (tier=None, *, clear_accessed=false, clear_dirty=false, flush=false))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        tier: Option<u8>,
        clear_accessed: bool,
        clear_dirty: bool,
        flush: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let views = self.with(|memory| {
            check_tiers(tier, memory.topology())?;
            let scope = tier.map_or(Scope::All, |tier| Scope::Tier(TierId(tier)));
            let clear = Clear { accessed: clear_accessed, dirty: clear_dirty, flush };
            let step = if clear_accessed || clear_dirty { Step::Clear } else { Step::Keep };
            let mut views = Vec::new();
            memory.scan(scope, &mut ScanHand::default(), clear, &mut |view| {
                views.push(*view);
                step
            });
            Ok(views)
        })?;
        let list = PyList::empty(py);
        for view in &views {
            list.append(shown(py, view)?)?;
        }
        Ok(list)
    }

    /// The mapped page that holds `page`, if there is one.
    fn page<'py>(&self, py: Python<'py>, page: Page) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.with(|memory| Ok(memory.page(page_of(page))))?.map(|view| shown(py, &view)).transpose()
    }

    /// Orders pages to tiers, one after the other; returns the ticket that `done` signals have.
    fn migrate(&self, moves: Vec<(Page, u8)>) -> PyResult<u64> {
        self.with(|memory| {
            check_tiers(moves.iter().map(|(_, tier)| *tier), memory.topology())?;
            let moves: Vec<Move> =
                moves.iter().map(|(page, tier)| Move { page: page_of(*page), to: TierId(*tier) }).collect();
            Ok(memory.migrate(&moves, MoveOptions::default()).0)
        })
    }

    /// Orders pairs of pages to swap places.
    fn exchange(&self, pairs: Vec<(Page, Page)>) -> PyResult<u64> {
        self.with(|memory| {
            let pairs: Vec<Exchange> = pairs
                .iter()
                .map(|(one, other)| Exchange { one: page_of(*one), other: page_of(*other) })
                .collect();
            Ok(memory.exchange(&pairs, MoveOptions::default()).0)
        })
    }

    /// Watches pages: `off`, `hint`, `hint-store` or `count`.
    fn watch(&self, pages: Vec<Page>, how: &str) -> PyResult<()> {
        let ways = [
            ("off", Watch::Off),
            ("hint", Watch::Hint),
            ("hint-store", Watch::HintStore),
            ("count", Watch::Count),
        ];
        let way = ways.iter().find(|(name, _)| *name == how);
        let way = way.ok_or_else(|| request(format!("\"{how}\" is not off, hint, hint-store or count")))?.1;
        let pages: Vec<PageId> = pages.into_iter().map(page_of).collect();
        self.with(|memory| {
            memory.watch(&pages, way);
            Ok(())
        })
    }

    /// Accesses that were counted on pages under `count`, set back to zero.
    fn counts(&self) -> PyResult<Vec<(Page, u64)>> {
        self.with(|memory| {
            let mut counts = Vec::new();
            memory.counts(&mut |count| counts.push((name_of(count.page), count.accesses)));
            Ok(counts)
        })
    }

    /// Reports one of so many accesses that reach memory as a signal; 0 ends it.
    fn sample_accesses(&self, one_in: u64) -> PyResult<()> {
        self.with(|memory| {
            memory.sample_accesses(one_in);
            Ok(())
        })
    }

    /// Sends `low-water` when less is free in a tier; 0 ends it.
    fn wake_below(&self, tier: u8, free_bytes: u64) -> PyResult<()> {
        self.with(|memory| {
            check_tiers([tier], memory.topology())?;
            memory.wake_below(TierId(tier), Bytes(free_bytes));
            Ok(())
        })
    }
}

/// A span such as `1 ms` in nanoseconds, as parameters spell it.
#[pyfunction]
pub fn nanoseconds(text: &str) -> PyResult<u64> {
    let span: Time = text.parse().map_err(|error| request(format!("\"{text}\": {error}")))?;
    Ok(span.0 / 1_000_000)
}
