//! What sampling huge pages costs, measured as it goes, and how many samples the processor time allows.
//!
//! A sample is split, some of its base pages are looked at again and again, and it is collapsed. Where swap is a tier, the
//! look is the page-out probe: each page that was accessed is sent out again, and its next access costs the program a fault.
//! That fault counts, too, although it is not Terrace's time; so do collapses, which are the kernel's there.

use super::World;
use std::time::Duration;
use terrace_model::Time;
use terrace_policy::HugeSample;

/// The part of the processor time that samples may take. The rest is for looks at all pages, for decisions, and for moves.
const SHARE: f64 = 0.5;
/// Most that a mean remembers: older measurements fade.
const MEMORY: f64 = 4096.0;

/// Splitting a huge page, and collapsing one, until that was measured here (by others, on a server).
const SPLIT: Mean = Mean::guess(173e-6, 4.0);
const COLLAPSE: Mean = Mean::guess(5e-3, 4.0);
/// Sending a page out and seeing that it is gone.
const PAGE_OUT: Mean = Mean::guess(11e-6, 64.0);
/// A look at a page, and one at a huge page that lies in the compressed tier.
const LOOK: Mean = Mean::guess(1e-6, 64.0);
const LOOK_AT_SLOW: Mean = Mean::guess(10e-6, 64.0);
/// What the program pays for a page that it brings back.
const FAULT: f64 = 9e-6;

/// A mean that begins with a guess, which counts as so many measurements.
#[derive(Clone, Copy, Debug)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    const fn guess(value: f64, count: f64) -> Mean {
        Mean { sum: value * count, count }
    }

    fn add(&mut self, sum: f64, count: u64) {
        self.sum += sum;
        self.count += count as f64;
        if self.count > MEMORY {
            (self.sum, self.count) = (self.sum / 2.0, self.count / 2.0);
        }
    }

    fn value(&self) -> f64 {
        self.sum / self.count
    }
}

/// What one pass of the page-out probe has done, and the processor time of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Watched base pages.
    pub looked: u64,
    /// Watched base pages that were out.
    pub armed: u64,
    /// Base pages that were out and had been accessed.
    pub accessed: u64,
    /// Time for the looks at them.
    pub looking: Duration,
    /// Pages sent out by themselves.
    pub sent: u64,
    /// Time for that.
    pub sending: Duration,
    /// Huge pages of which parts were sent out.
    pub split: u64,
    /// Time for that.
    pub splitting: Duration,
    /// Watched huge pages in the compressed tier.
    pub slow: u64,
    /// Time for looking at them, and for sending out again what has come back.
    pub looking_at_slow: Duration,
}

/// The probe's own.
#[derive(Clone, Copy, Debug)]
struct Probe {
    look: Mean,
    page_out: Mean,
    look_at_slow: Mean,
    /// Watched huge pages in the compressed tier at the last pass.
    slow: u64,
    /// Share of the paged-out pages that are accessed until the next look.
    accessed: Mean,
    /// Share of the split pages that counted as huge and really were huge.
    huge: Mean,
}

/// All costs, and what may be spent.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Share of one core; infinite for no bound.
    cpu: f64,
    fault: f64,
    split: Mean,
    collapse: Mean,
    probe: Option<Probe>,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { cpu: f64::INFINITY, fault: FAULT, split: SPLIT, collapse: COLLAPSE, probe: None }
    }
}

impl Costs {
    /// Limits the costs to a share of one core. `fault` is the measured cost of an access to compressed memory.
    pub fn bound(&mut self, cpu: f64, fault: Option<Time>) {
        self.cpu = cpu;
        self.fault = fault.map_or(FAULT, Time::as_secs);
    }

    /// A split, or an attempt.
    pub fn split(&mut self, time: Duration) {
        self.split.add(time.as_secs_f64(), 1);
    }

    /// A collapse, or an attempt.
    pub fn collapsed(&mut self, time: Duration) {
        self.collapse.add(time.as_secs_f64(), 1);
    }

    /// What counts as a huge page is to be looked at as base pages.
    pub fn divided(&mut self) {
        self.probe().huge.add(0.0, 1);
    }

    /// A pass of the page-out probe.
    pub fn probed(&mut self, pass: &Probed) {
        let probe = self.probe();
        probe.look.add(pass.looking.as_secs_f64(), pass.looked);
        probe.page_out.add(pass.sending.as_secs_f64(), pass.sent);
        probe.accessed.add(pass.accessed as f64, pass.armed);
        probe.huge.add(pass.split as f64, 0);
        probe.look_at_slow.add(pass.looking_at_slow.as_secs_f64(), pass.slow);
        probe.slow = pass.slow;
        self.split.add(pass.splitting.as_secs_f64(), pass.split);
    }

    fn probe(&mut self) -> &mut Probe {
        self.probe.get_or_insert(Probe {
            look: LOOK,
            page_out: PAGE_OUT,
            look_at_slow: LOOK_AT_SLOW,
            slow: 0,
            accessed: Mean::guess(1.0, 64.0),
            huge: Mean::guess(1.0, 4.0),
        })
    }

    /// Samples per second that the processor time allows, with looks so far apart; none where it has no bound.
    pub fn affordable(&self, sample: HugeSample, interval: Time) -> Option<f64> {
        if !self.cpu.is_finite() {
            return None;
        }
        let resized = self.split.value() + self.collapse.value();
        let Some(probe) = &self.probe else {
            // Counting costs nothing of its own: DAMON's thread has a bound of its own, and so have sampled faults.
            return Some(self.cpu * SHARE / resized);
        };
        let interval = interval.as_secs().max(1e-3);
        let looks = sample.counted as f64 * sample.span.as_secs() / interval;
        let look = probe.look.value() + probe.accessed.value() * (probe.page_out.value() + self.fault);
        let standing = probe.slow as f64 * probe.look_at_slow.value() / interval;
        let cost = probe.huge.value().min(1.0) * resized + looks * look;
        Some((self.cpu * SHARE - standing).max(0.0) / cost)
    }
}

impl World {
    /// Samples are to take no more than a part of so much of one core. An access to compressed memory was measured to cost
    /// so much.
    pub fn may_use(&mut self, cpu: f64, fault: Option<Time>) {
        self.costs.bound(cpu, fault);
    }

    /// A pass of the page-out probe is over.
    pub fn probed(&mut self, pass: &Probed) {
        self.costs.probed(pass);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Time = Time::from_nanos(1_000_000_000);
    const QUARTER: Time = Time::from_nanos(250_000_000);

    fn bounded(cpu: f64) -> Costs {
        let mut costs = Costs::default();
        costs.bound(cpu, None);
        costs
    }

    #[test]
    fn without_a_bound_everything_is_affordable() {
        let sample = HugeSample { counted: 50, span: SECOND };
        assert_eq!(Costs::default().affordable(sample, QUARTER), None);
        assert_eq!(bounded(0.0).affordable(sample, QUARTER), Some(0.0));
    }

    #[test]
    fn by_others_figures_a_sample_of_50_pages_for_30_seconds_is_affordable_every_nine_seconds() {
        let mut costs = bounded(0.03);
        // 15 ms per second for a split and a collapse of 5.173 ms.
        let sample = HugeSample { counted: 50, span: SECOND.times(30) };
        assert!((costs.affordable(sample, QUARTER).unwrap() - 2.9).abs() < 0.01);
        // With the probe 6000 looks besides, each of which finds an access: 21 us.
        costs.probed(&Probed::default());
        let per_second = costs.affordable(sample, QUARTER).unwrap();
        assert!((1.0 / per_second - (5.173e-3 + 6000.0 * 21e-6) / 0.015).abs() < 1e-9, "{per_second}");
    }

    #[test]
    fn each_cost_counts_as_it_is_measured() {
        let sample = HugeSample { counted: 50, span: SECOND.times(30) };
        let millis = Duration::from_millis;
        let after = |pass: Probed, splits: u64, fault: Option<Time>| {
            let mut costs = bounded(0.03);
            costs.bound(0.03, fault);
            costs.probed(&Probed::default());
            for _ in 0..50 {
                costs.probed(&pass);
            }
            for _ in 0..splits {
                costs.divided();
            }
            costs.affordable(sample, QUARTER).unwrap()
        };
        let quiet = Probed::default();
        let known = after(quiet, 0, None);
        // Pages that are out and idle cost only the look.
        assert!(after(Probed { armed: 1000, ..quiet }, 0, None) > 10.0 * known);
        for dearer in [
            Probed { looked: 100, looking: millis(10), ..quiet },
            Probed { sent: 100, sending: millis(10), ..quiet },
            Probed { split: 10, splitting: millis(1000), ..quiet },
            Probed { slow: 100, looking_at_slow: millis(1), ..quiet },
        ] {
            assert!(after(dearer, 0, None) < 0.9 * known, "{dearer:?}");
        }
        assert!(after(quiet, 0, Some(Time::from_nanos(100_000))) < 0.5 * known);
        assert!(after(quiet, 1000, None) > known, "hardly anything is really split");
        let mut collapses = bounded(0.03);
        collapses.probed(&quiet);
        (0..100).for_each(|_| collapses.collapsed(millis(50)));
        assert!(collapses.affordable(sample, QUARTER).unwrap() < 0.9 * known);
        // What looks at slow pages take is no longer there for samples.
        assert_eq!(after(Probed { slow: 1000, looking_at_slow: millis(10), ..quiet }, 0, None), 0.0);
    }

    #[test]
    fn what_was_measured_long_ago_fades() {
        let mut mean = Mean::guess(1.0, 64.0);
        mean.add(4096.0, 4096);
        assert!((mean.value() - 1.0).abs() < 1e-9);
        (0..8).for_each(|_| mean.add(2.0 * 4096.0, 4096));
        assert!(mean.value() > 1.9, "{}", mean.value());
    }
}
