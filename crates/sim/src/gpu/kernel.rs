//! One kernel: how it begins, what its groups do, and how it is over.

use super::around::Around;
use super::state::Engine;
use crate::observe::Series;
use crate::outcome::SimError;
use crate::tiering::Tiering;
use terrace_model::{SpaceId, Time};
use terrace_trace::Agent;

impl Engine {
    /// A kernel of a process begins.
    pub(super) fn begin_kernel(&mut self, space: SpaceId) -> Result<(), SimError> {
        self.manage(self.now);
        self.space = space;
        self.kernels += 1;
        self.began = Some(self.now);
        self.before = self.machine.shared.memory.traffic().map(|(_, traffic)| *traffic).collect();
        let left_out = self.now.saturating_sub(self.kernel_time);
        self.series(|series| series.begin(left_out));
        self.paths.begin_kernel(self.now);
        let begin = self.prepare_kernel(space, self.now)?;
        self.sms.begin_kernel(begin);
        self.now = begin;
        self.set_agent(Agent::Gpu);
        Ok(())
    }

    /// All that is noted over the time of kernels.
    fn series(&mut self, each: impl Fn(&mut Series)) {
        self.machine.shared.memory.watch.iter_mut().for_each(|watch| each(&mut watch.series));
        self.paths.coherence.iter_mut().for_each(|coherence| each(coherence.link_series()));
    }

    /// A group has been read: it runs when there is room. Reading goes on when none waits.
    pub(super) fn end_group(&mut self) -> Result<(), SimError> {
        if let Some(group) = self.group.take() {
            if let Some(overlap) = &mut self.overlap {
                overlap.queue_group(group);
                return Ok(());
            }
            self.sms.add(group);
            while self.sms.is_full() && !self.sms.is_idle() {
                self.step(Time::MAX)?;
            }
        }
        Ok(())
    }

    /// SMs do what comes next, not beyond `horizon` once something was done.
    pub(super) fn step(&mut self, mut horizon: Time) -> Result<(), SimError> {
        if self.tiering.is_some() {
            let Some(next) = self.sms.next() else {
                self.wait_for_page();
                return Ok(());
            };
            self.manage(next);
            horizon = self.tiering.as_ref().and_then(Tiering::due).map_or(horizon, |due| due.min(horizon));
        }
        horizon = self.look_at_placement().map_or(horizon, |ends| ends.min(horizon));
        let mut around =
            Around { machine: &mut self.machine, tiering: self.tiering.as_mut(), space: self.space };
        Ok(self.sms.step(&mut self.paths, &mut around, horizon)?)
    }

    /// The kernel that runs is over, if one runs.
    pub(super) fn end_kernel(&mut self) -> Result<(), SimError> {
        if self.group.is_some() && self.began.is_none() {
            self.begin_kernel(self.space)?;
        }
        self.end_group()?;
        if self.began.is_some() {
            while !self.sms.is_idle() {
                self.step(Time::MAX)?;
            }
            self.kernel_is_over();
        }
        Ok(())
    }

    /// When the kernel is over whose warps have all ended. Its stores are then where others find them: in a slice, or in
    /// memory where slices may not hold them.
    pub(super) fn end_of_kernel(&self) -> Time {
        self.sms.now.max(self.paths.stored)
    }

    /// All of the kernel that runs is done.
    pub(super) fn kernel_is_over(&mut self) {
        let Some(began) = self.began.take() else { return };
        self.set_agent(Agent::Cpu);
        self.now = self.now.max(self.end_of_kernel());
        self.series(Series::end);
        self.paths.end_kernel();
        self.kernel_time += self.now - began;
        let traffic = self.machine.shared.memory.traffic();
        for ((sum, before), (_, after)) in self.kernel_traffic.iter_mut().zip(&self.before).zip(traffic) {
            sum.add_since(before, after);
        }
    }
}
