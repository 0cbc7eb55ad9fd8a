//! How contiguous the programs' memory is over a run, for any design: `os.sample_contiguity`.
//!
//! The metrics and their period are those of Translation Ranger (Yan, thesis, 2019, section 4.5), which compares kernels
//! that do nothing for contiguity with ones that do. Whoever samples is not part of the simulated machine: it costs no
//! simulated time.

use crate::os::Os;
use terrace_model::{AddressRange, ContiguityPoint, Stats, Time, VirtAddr};
use terrace_policy::{ContiguitySamples, Report, Runs};
use terrace_trace::MapKind;

/// Takes the samples.
#[derive(Clone, Debug)]
pub struct ContiguityWatch {
    period: Time,
    next: Time,
    samples: ContiguitySamples,
}

impl ContiguityWatch {
    /// Samples every `period`, for the first time after one.
    pub fn new(period: Time) -> ContiguityWatch {
        ContiguityWatch { period, next: period, samples: ContiguitySamples::default() }
    }

    /// When the next sample is due.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Adds the last sample and the means to the statistics of the run.
    pub fn count_into(&self, stats: &mut Stats) {
        let mut report = Report::default();
        self.samples.report(&mut report);
        for (name, stat) in report.stats.iter() {
            stats.insert(format!("os.{name}"), stat.clone());
        }
    }

    /// Samples over time, at most as many as a chart can show.
    pub fn over_time(&self) -> &[ContiguityPoint] {
        self.samples.over_time()
    }
}

impl ContiguityWatch {
    /// Samples private and shared memory at `now`; files' pages are left out.
    #[cold]
    pub fn sample(&mut self, os: &Os, now: Time) {
        let mut runs = Runs::default();
        for space in os.live_spaces() {
            let areas = os.areas(space).iter().filter(|(_, area)| area.kind != MapKind::PrivateFile);
            let areas: Vec<(VirtAddr, VirtAddr)> = areas.map(|(start, area)| (start, area.end)).collect();
            for (start, end) in areas {
                let pages = os.table(space).pages_in(AddressRange::between(start, end)).into_iter();
                for (addr, size, pte) in pages.filter(|(addr, _, _)| *addr >= start) {
                    runs.add(addr.vpn(), pte.frame().0, size.base_pages());
                }
                runs.close();
            }
        }
        self.next = now + self.period;
        self.samples.add(runs.finish(), now.as_secs());
    }
}
