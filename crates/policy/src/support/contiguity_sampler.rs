//! Samples how contiguous memory is, over a run.

use crate::{
    AreaKind, Clear, Contiguity, MemorySystem, Moment, PageRange, Report, Runs, ScanHand, Scope, Step,
};
use terrace_model::Time;

/// Measures runs of all private and shared memory every so often; files' pages are left out.
#[derive(Clone, Debug)]
pub struct ContiguitySampler {
    period: Time,
    wakes: Moment,
    samples: u64,
    /// Sums over the samples: regions, coverage by 32, by 128.
    sums: (f64, f64, f64),
    last: Contiguity,
}

impl ContiguitySampler {
    /// Measures every `period`, for the first time after one.
    pub fn new(period: Time) -> ContiguitySampler {
        ContiguitySampler {
            period,
            wakes: Moment::START.plus(period),
            samples: 0,
            sums: (0.0, 0.0, 0.0),
            last: Contiguity::default(),
        }
    }

    /// When it wants to be called.
    pub fn next(&self) -> Moment {
        self.wakes
    }

    /// What was found last.
    pub fn last(&self) -> &Contiguity {
        &self.last
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
        let found = runs.finish();
        if found.pages > 0 {
            self.samples += 1;
            self.sums.0 += found.regions as f64;
            self.sums.1 += found.coverage(32);
            self.sums.2 += found.coverage(128);
            self.last = found;
        }
    }

    /// Adds the last sample and the means over time.
    pub fn report(&self, report: &mut Report) {
        let mean = |sum: f64| if self.samples == 0 { 0.0 } else { sum / self.samples as f64 };
        report.count("contiguous_regions", self.last.regions);
        report.ratio("coverage_32", self.last.coverage(32));
        report.ratio("coverage_128", self.last.coverage(128));
        report.ratio("contiguous_regions_mean", mean(self.sums.0));
        report.ratio("coverage_32_mean", mean(self.sums.1));
        report.ratio("coverage_128_mean", mean(self.sums.2));
        report.count("contiguity_samples", self.samples);
    }
}
