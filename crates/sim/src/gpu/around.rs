//! What lies around the GPU's paths: the machine, its system, and the process that asks.

use super::coalesce::Transaction;
use crate::coherence::Cause;
use crate::machine::{Machine, Manager};
use crate::os::OsError;
use crate::tiering::Tiering;
use terrace_model::{Frame, SpaceId, Time, VirtAddr};

/// The space that asks, and the rest of the machine.
pub struct Around<'a> {
    pub machine: &'a mut Machine,
    pub tiering: Option<&'a mut Tiering>,
    pub space: SpaceId,
}

impl Around<'_> {
    /// The base frame of an address, and what a fault cost if it took one.
    pub(super) fn frame_of(
        &mut self,
        addr: VirtAddr,
        write: bool,
        now: Time,
    ) -> Result<(Frame, Option<Time>), OsError> {
        let space = self.space;
        let find = |machine: &mut Machine| {
            let os = &mut machine.shared.os;
            let leaf = os.table(space).find(addr)?;
            os.mark(space, addr, &leaf, write);
            Some(leaf.frame_of(addr))
        };
        if let Some(frame) = find(self.machine) {
            return Ok((frame, None));
        }
        let os = &mut self.machine.shared.os;
        os.now = now;
        match &mut self.tiering {
            Some(tiering) => drop(tiering.fault(os, space, addr, write, now)?),
            None => drop(os.fault(space, addr, &[])?),
        }
        self.machine.complete(Cause::Fault, None, now);
        let cost = self.machine.shared.timing.fault;
        self.machine.shared.fault_time += cost;
        Ok((find(self.machine).unwrap_or_default(), Some(cost)))
    }

    /// Tells those who watch that a transaction goes to memory.
    pub(super) fn observe(&mut self, one: Transaction, write: bool) {
        let shared = &mut self.machine.shared;
        if shared.observers.want_accesses() {
            shared.observers.reached_memory(&shared.os, self.space, one.addr, write);
        }
    }
}
