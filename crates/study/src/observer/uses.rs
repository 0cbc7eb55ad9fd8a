//! Uses of pages by their distance in pages and in time, and the curves that follow from them.
//!
//! Memory of *n* pages that keeps those used last (LRU) has a page when fewer than *n* others were used since its last use:
//! the uses at each distance give the misses of every size at once (Mattson, Gecsei, Slutz and Traiger, IBM Systems Journal
//! 1970). The pages used in the last *t* accesses are those whose next use, or the end, is at most *t* accesses away: the
//! times between uses give the mean working set of every window at once (Denning and Schwartz, CACM 1972). That is the mean
//! over whole windows: what windows would have that began before the input is taken off by the times of first uses.
//!
//! Pages of the sample are in sixteen groups by their hash. How far the groups differ tells the standard error.

use terrace_report::ReuseCurves;

/// Bits of a page's hash that choose its group.
pub(super) const GROUP_BITS: u32 = 4;
const GROUPS: usize = 1 << GROUP_BITS;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// Values below this have a bucket each; from there on there are [`STEPS`] to each doubling.
const EXACT: u64 = 8;
const STEPS: usize = 4;
const BUCKETS: usize = bucket_of(u64::MAX) + 1;

/// Numbers of one kind by group and bucket.
#[derive(Debug)]
struct Counts<T>(Box<[[T; BUCKETS]; GROUPS]>);

/// All uses.
#[derive(Debug)]
pub(super) struct Uses {
    /// Accesses to the page of the access before, each one access after it. Exact.
    repeats: u64,
    /// Uses by the number of other pages used since the last one; first uses have none.
    distances: Counts<u64>,
    first: [u64; GROUPS],
    /// Pages by the number of the access that used them first, counted from 1, and the sum of these numbers.
    begins: Counts<u64>,
    begin_sums: Counts<f64>,
    /// Uses by the accesses until the next one, and the sum of these accesses.
    times: Counts<u64>,
    spans: Counts<f64>,
}

impl<T: Copy + Default + std::ops::AddAssign> Counts<T> {
    fn new() -> Counts<T> {
        Counts(Box::new([[T::default(); BUCKETS]; GROUPS]))
    }
}

impl Uses {
    pub(super) fn new() -> Uses {
        Uses {
            repeats: 0,
            distances: Counts::new(),
            first: [0; GROUPS],
            begins: Counts::new(),
            begin_sums: Counts::new(),
            times: Counts::new(),
            spans: Counts::new(),
        }
    }

    /// So many accesses to the page of the access before.
    pub(super) fn repeated(&mut self, accesses: u64) {
        self.repeats += accesses;
    }

    /// A page's first use, by the access of this number counted from 1, which stands for those of `weight` pages.
    pub(super) fn first(&mut self, group: usize, number: u64, weight: u64) {
        self.first[group] += weight;
        let bucket = bucket_of(number);
        self.begins.0[group][bucket] += weight;
        self.begin_sums.0[group][bucket] += (number * weight) as f64;
    }

    /// A use after `between` other pages and `time` accesses.
    pub(super) fn reused(&mut self, group: usize, between: u64, time: u64, weight: u64) {
        self.distances.0[group][bucket_of(between)] += weight;
        self.ended(group, time, weight);
    }

    /// `time` accesses after a page's last use the input ended.
    pub(super) fn ended(&mut self, group: usize, time: u64, weight: u64) {
        let bucket = bucket_of(time);
        self.times.0[group][bucket] += weight;
        self.spans.0[group][bucket] += (time * weight) as f64;
    }

    /// The curves of an input with so many accesses to so many pages, whose sample was halved so often.
    pub(super) fn curves(&self, accesses: u64, pages: u64, halvings: u32) -> ReuseCurves {
        let sampled_share = 0.5f64.powi(halvings as i32);
        let mut curves = ReuseCurves { page_bytes: PAGE, sampled_share, ..ReuseCurves::default() };
        if accesses == 0 {
            return curves;
        }
        let all = accesses as f64;
        // Pages that were left out of the sample, as a share: what is not sampled has no error.
        let error_share = (1.0 - sampled_share).sqrt();
        // Distances of a few pages of the sample, and times within which it has hardly one, are not told apart.
        let (least_pages, least_window) =
            if halvings == 0 { (1, 1) } else { (4 << halvings, 16 << halvings) };
        for pages_held in sizes(least_pages, pages) {
            let (misses, error) = self.misses(pages_held);
            curves.memory_bytes.push(pages_held * PAGE);
            curves.miss_ratio.push((misses / all).clamp(0.0, 1.0));
            curves.miss_ratio_error = curves.miss_ratio_error.max(error * error_share / all);
        }
        // The larger the window, the fewer whole ones there are, and what a sample is off by is off by that much more.
        let most_window = if halvings == 0 { accesses - 1 } else { accesses / 4 };
        for window in sizes(least_window, accesses).filter(|window| *window <= most_window) {
            let (sum, error) = self.working_set(window, accesses);
            let windows = (accesses - window + 1) as f64;
            curves.window_accesses.push(window);
            curves.working_set_bytes.push(sum / windows * PAGE as f64);
            curves.working_set_error = curves.working_set_error.max(error * error_share / sum);
        }
        curves.window_accesses.push(accesses);
        curves.working_set_bytes.push((pages * PAGE) as f64);
        curves
    }

    /// Misses of LRU memory of so many pages, a bucket's lowest value, and their standard error.
    fn misses(&self, pages: u64) -> (f64, f64) {
        let at_least = bucket_of(pages);
        sum_and_error(|group| {
            let far: u64 = self.distances.0[group][at_least..].iter().sum();
            (self.first[group] + far) as f64
        })
    }

    /// The pages of `window` accesses, a bucket's lowest value, summed over all windows that lie within the input, and the
    /// standard error.
    fn working_set(&self, window: u64, accesses: u64) -> (f64, f64) {
        let at_least = bucket_of(window);
        let (sum, error) = sum_and_error(|group| {
            let near: f64 = self.spans.0[group][..at_least].iter().sum();
            let far: u64 = self.times.0[group][at_least..].iter().sum();
            // Windows that end before access number `window` are not whole: a page is in those from its first use on.
            let began: u64 = self.begins.0[group][..at_least].iter().sum();
            let since: f64 = self.begin_sums.0[group][..at_least].iter().sum();
            near + (far * window) as f64 - ((began * window) as f64 - since)
        });
        // Uses that the sample has too few or too many of are those of the hottest pages, with the shortest times.
        let counted: u64 = self.times.0.iter().flatten().sum();
        let missing = (accesses - self.repeats) as f64 - counted as f64;
        (self.repeats as f64 + sum + missing * window.min(2) as f64, error)
    }
}

/// The sum over the groups, and its standard error as their differences show it.
fn sum_and_error(of: impl Fn(usize) -> f64) -> (f64, f64) {
    let values: Vec<f64> = (0..GROUPS).map(of).collect();
    let sum: f64 = values.iter().sum();
    let mean = sum / GROUPS as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (sum, (squares * GROUPS as f64 / (GROUPS - 1) as f64).sqrt())
}

/// The lowest values of the buckets from `least` to the first one that reaches `most`.
fn sizes(least: u64, most: u64) -> impl Iterator<Item = u64> {
    let (first, last) = (bucket_of(least), bucket_of(most.max(least)));
    let last = if lowest_of(last) < most { last + 1 } else { last };
    (first..=last).map(lowest_of)
}

const fn bucket_of(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let doubling = value.ilog2();
    let step = (value >> (doubling - STEPS.ilog2())) as usize % STEPS;
    EXACT as usize + (doubling - EXACT.ilog2()) as usize * STEPS + step
}

const fn lowest_of(bucket: usize) -> u64 {
    if bucket < EXACT as usize {
        return bucket as u64;
    }
    let (doubling, step) = ((bucket - EXACT as usize) / STEPS, (bucket - EXACT as usize) % STEPS);
    ((STEPS + step) as u64) << (doubling as u32 + EXACT.ilog2() - STEPS.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_next_to_each_other_and_hold_their_lowest_value() {
        for bucket in 0..BUCKETS - 1 {
            let (low, next) = (lowest_of(bucket), lowest_of(bucket + 1));
            assert!(low < next && next - low <= low.max(4) / 4 + 1, "{low} {next}");
            assert_eq!((bucket_of(low), bucket_of(next - 1)), (bucket, bucket));
        }
        assert_eq!(sizes(1, 11).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]);
        assert_eq!(sizes(4, 2).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn groups_that_agree_have_no_error_and_others_the_textbooks() {
        assert_eq!(sum_and_error(|_| 3.0), (48.0, 0.0));
        // Values 0 to 15: their variance is 22.67, that of a sum of sixteen such 362.7.
        let (sum, error) = sum_and_error(|group| group as f64);
        assert_eq!(sum, 120.0);
        assert!((error * error - 16.0 * 340.0 / 15.0).abs() < 1e-9, "{error}");
    }
}
