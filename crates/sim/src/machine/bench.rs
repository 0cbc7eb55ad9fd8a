//! What taking a page away from threads of a process costs, by itself: no program runs.

use super::parts::Machine;
use super::system::System;
use crate::coherence::Cause;
use crate::design::Design;
use crate::outcome::Options;
use terrace_model::{AddressRange, CoreId, PageSize, Time};
use terrace_policy::PageId;
use terrace_trace::{Advice, MapKind, Protection};

/// A call that takes one page away from all threads of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShootdownCall {
    /// `munmap`.
    Munmap,
    /// `mprotect`, which takes the right to write.
    Mprotect,
    /// `madvise` with `MADV_DONTNEED`.
    DontNeed,
    /// `move_pages`, between unmap and copy.
    MovePages,
}

/// How long the first of `threads` threads waits, each on a core of its own, until no core uses a page of 4 KiB any more.
/// The call's other work is not in it.
///
/// # Errors
/// A machine that cannot be built or has fewer cores, or no memory for the page.
pub fn shootdown_benchmark(design: &Design, call: ShootdownCall, threads: usize) -> Result<Time, String> {
    let mut machine = Machine::new(design, &Options::default())?;
    let cores = machine.shared.running.len();
    if threads == 0 || threads > cores {
        return Err(format!("core.count: {threads} threads on a machine of {cores} cores"));
    }
    let os = &mut machine.shared.os;
    let failed = |problem: crate::os::OsError| problem.to_string();
    let space = os.new_space().map_err(failed)?;
    let page = AddressRange::new(1 << 40, PageSize::Base.bytes());
    os.map(space, page, MapKind::Anonymous, Protection::READ_WRITE).map_err(failed)?;
    os.fault(space, page.start, &[]).map_err(failed)?;
    machine.complete(Cause::Fault, Some(CoreId(0)), Time::ZERO);
    machine.shared.running[..threads].fill(Some(space));
    let os = &mut machine.shared.os;
    let cause = match call {
        ShootdownCall::Munmap => {
            os.unmap(space, page).map_err(failed)?;
            Cause::Unmap
        }
        ShootdownCall::Mprotect => {
            os.protect(space, page, Protection::READ);
            Cause::Protect
        }
        ShootdownCall::DontNeed => {
            os.advise(space, page, Advice::DontNeed).map_err(failed)?;
            Cause::Advise
        }
        ShootdownCall::MovePages => {
            let id = PageId::of(space, page.start);
            machine.shared.system_mut(System::Programs).set_held(id, true);
            Cause::Migration
        }
    };
    Ok(machine.complete(cause, Some(CoreId(0)), Time::ZERO).waits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::Library;

    const CALLS: [ShootdownCall; 4] =
        [ShootdownCall::Munmap, ShootdownCall::Mprotect, ShootdownCall::DontNeed, ShootdownCall::MovePages];

    #[test]
    fn each_call_waits_for_its_own_flush_and_for_every_further_thread() {
        let sets = [("core.count".to_owned(), "8".to_owned())];
        let mut design = Library::embedded().design("native-4k", None, &sets).unwrap().design;
        let ns = Time::from_nanos;
        let costs = &mut design.os.costs;
        (costs.shootdown, costs.shootdown_per_core, costs.flush) = (ns(1000), ns(100), ns(140));
        for call in CALLS {
            let waits = |threads| shootdown_benchmark(&design, call, threads).unwrap();
            assert_eq!(waits(1), ns(140), "{call:?}");
            assert_eq!(waits(2), ns(140 + 1000 + 100), "{call:?}");
            assert_eq!(waits(8), ns(140 + 1000 + 700), "{call:?}");
        }
        let ideal = [sets[0].clone(), ("translation.coherence".to_owned(), "\"ideal\"".to_owned())];
        let ideal = Library::embedded().design("native-4k", None, &ideal).unwrap().design;
        assert_eq!(shootdown_benchmark(&ideal, CALLS[0], 8).unwrap(), Time::ZERO);
    }

    #[test]
    fn threads_need_cores() {
        let design = Library::embedded().design("native-4k", None, &[]).unwrap().design;
        for threads in [0, 2000] {
            let problem = shootdown_benchmark(&design, ShootdownCall::Munmap, threads).unwrap_err();
            assert!(problem.starts_with("core.count: "), "{problem}");
        }
    }
}
