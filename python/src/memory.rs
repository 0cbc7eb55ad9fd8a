//! The memory that a policy in Python sees and orders about.

use crate::errors::request;
use crate::policy::{Page, check_tiers, name_of, page_of, require, tiers};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::cell::Cell;
use std::ptr::NonNull;
use std::thread::ThreadId;
use terrace_model::{Bytes, PageId, TierId};
use terrace_policy::{
    Capability, CapabilitySet, Clear, Exchange, MemorySystem, Move, MoveOptions, PageView, ScanHand, Scope,
    Step, Watch,
};

/// The memory system, lent to Python for one call of a policy.
#[pyclass(frozen, module = "terrace._terrace")]
pub struct Memory {
    /// The thread that called the policy. Python may keep and drop the object on any other.
    lent_on: ThreadId,
    /// What the policy names among its needs.
    allowed: CapabilitySet,
    system: Cell<Option<NonNull<dyn MemorySystem>>>,
}

// SAFETY: only the thread `lent_on` touches the cell: `with` compares first, `take_back` is called by `PythonPolicy::on` on
// that thread, and dropping the object elsewhere drops a pointer, which does nothing.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The caller takes it back with `take_back`, before `memory` is used again.
    pub fn lend(memory: &mut dyn MemorySystem, allowed: CapabilitySet) -> Memory {
        let lent: NonNull<dyn MemorySystem + '_> = NonNull::from(memory);
        // SAFETY: only the lifetime of the object changes. `PythonPolicy::on` takes the pointer back before the borrow
        // that it was made from ends.
        let lent: NonNull<dyn MemorySystem> = unsafe { std::mem::transmute(lent) };
        Memory { lent_on: std::thread::current().id(), allowed, system: Cell::new(Some(lent)) }
    }

    /// What Python has kept is of no use from now on. On the thread that lent it.
    pub fn take_back(&self) {
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

/// A page as a dictionary; bits are there where the policy names them among its needs.
fn shown<'py>(py: Python<'py>, view: &PageView, allowed: CapabilitySet) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("page", name_of(view.page))?;
    dict.set_item("base_pages", view.base_pages())?;
    dict.set_item("tier", view.tier.0)?;
    if allowed.contains(Capability::AccessedBits) {
        dict.set_item("accessed", view.accessed)?;
    }
    if allowed.contains(Capability::DirtyBits) {
        dict.set_item("dirty", view.dirty)?;
    }
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
        let cleared = [
            (clear_accessed, Capability::AccessedBits, "scan(clear_accessed=True)"),
            (clear_dirty, Capability::DirtyBits, "scan(clear_dirty=True)"),
            (flush, Capability::FlushOnClear, "scan(flush=True)"),
        ];
        for (_, needed, what) in cleared.into_iter().filter(|(asked, ..)| *asked) {
            require(self.allowed, needed, what)?;
        }
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
            list.append(shown(py, view, self.allowed)?)?;
        }
        Ok(list)
    }

    /// The mapped page that holds `page`, if there is one.
    fn page<'py>(&self, py: Python<'py>, page: Page) -> PyResult<Option<Bound<'py, PyDict>>> {
        let view = self.with(|memory| Ok(memory.page(page_of(page))))?;
        view.map(|view| shown(py, &view, self.allowed)).transpose()
    }

    /// Orders pages to tiers, one after the other; returns the ticket that `done` signals have.
    fn migrate(&self, moves: Vec<(Page, u8)>) -> PyResult<u64> {
        require(self.allowed, Capability::Migration, "migrate")?;
        self.with(|memory| {
            check_tiers(moves.iter().map(|(_, tier)| *tier), memory.topology())?;
            let moves: Vec<Move> =
                moves.iter().map(|(page, tier)| Move { page: page_of(*page), to: TierId(*tier) }).collect();
            Ok(memory.migrate(&moves, MoveOptions::default()).0)
        })
    }

    /// Orders pairs of pages to swap places.
    fn exchange(&self, pairs: Vec<(Page, Page)>) -> PyResult<u64> {
        require(self.allowed, Capability::Exchange, "exchange")?;
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
            ("off", Watch::Off, None),
            ("hint", Watch::Hint, Some(Capability::HintFaults)),
            ("hint-store", Watch::HintStore, Some(Capability::WriteFaults)),
            ("count", Watch::Count, Some(Capability::CountedFaults)),
        ];
        let way = ways.into_iter().find(|(name, ..)| *name == how);
        let (_, way, needed) =
            way.ok_or_else(|| request(format!("\"{how}\" is not off, hint, hint-store or count")))?;
        if let Some(needed) = needed {
            require(self.allowed, needed, &format!("watch(…, \"{how}\")"))?;
        }
        let pages: Vec<PageId> = pages.into_iter().map(page_of).collect();
        self.with(|memory| {
            memory.watch(&pages, way);
            Ok(())
        })
    }

    /// Accesses that were counted on pages under `count`, set back to zero.
    fn counts(&self) -> PyResult<Vec<(Page, u64)>> {
        require(self.allowed, Capability::CountedFaults, "counts")?;
        self.with(|memory| {
            let mut counts = Vec::new();
            memory.counts(&mut |count| counts.push((name_of(count.page), count.accesses)));
            Ok(counts)
        })
    }

    /// Reports one of so many accesses that reach memory as a signal; 0 ends it.
    fn sample_accesses(&self, one_in: u64) -> PyResult<()> {
        if one_in > 0 {
            require(self.allowed, Capability::of_sampling(one_in), &format!("sample_accesses({one_in})"))?;
        }
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
