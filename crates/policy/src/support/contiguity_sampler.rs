//! Samples how contiguous memory is, over a run.

use crate::{
    AreaKind, Clear, Contiguity, ContiguitySamples, MemorySystem, Moment, PageRange, Report, Runs, ScanHand,
    Scope, Step,
};
use terrace_model::Time;

/// Measures runs of all private and shared memory every so often; files' pages are left out.
#[derive(Clone, Debug)]
pub struct ContiguitySampler {
    period: Time,
    wakes: Moment,
    samples: ContiguitySamples,
}

impl ContiguitySampler {
    /// Measures every `period`, for the first time after one.
    pub fn new(period: Time) -> ContiguitySampler {
        ContiguitySampler { period, wakes: Moment::START.plus(period), samples: ContiguitySamples::default() }
    }

    /// When it wants to be called.
    pub fn next(&self) -> Moment {
        self.wakes
    }

    /// What was found last.
    pub fn last(&self) -> &Contiguity {
        self.samples.last()
    }

    /// Measures if its time has come. A sample without any memory counts for nothing.
    pub fn tick(&mut self, now: Moment, memory: &mut dyn MemorySystem) {
        if self.wakes > now {
            return;
        }
        self.wakes = now.plus(self.period);
        let mut areas: Vec<PageRange> = Vec::new();
        memory.areas(None, &mut |area| {
            if area.kind != AreaKind::File {
                areas.push(area.range);
            }
        });
        let mut runs = Runs::default();
        for range in areas {
            let mut hand = ScanHand { next: range.first };
            memory.scan(Scope::Range(range), &mut hand, Clear::NOTHING, &mut |view| {
                if let Some(frame) = view.frame {
                    runs.add(view.page.vpn, frame.0, view.base_pages());
                }
                Step::Keep
            });
            runs.close();
        }
        self.samples.add(runs.finish(), now.seconds_since(Moment::START));
    }

    /// Adds the last sample and the means over time.
    pub fn report(&self, report: &mut Report) {
        self.samples.report(report);
    }
}
