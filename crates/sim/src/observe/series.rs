//! Amounts over time, in as few intervals as a picture needs.

use terrace_model::Time;

/// Intervals at most. With one more, two become one.
const MOST: u64 = 96;
/// Length of the first intervals.
const FIRST: Time = Time::from_nanos(250);

/// Several amounts, each summed over the intervals of a clock that can be halted.
#[derive(Clone, Debug)]
pub struct Series {
    columns: usize,
    width: u64,
    /// An interval after the other, each with all columns.
    values: Vec<u64>,
    /// Time that is left out before now; none while the clock is halted.
    offset: Option<Time>,
}

impl Series {
    /// Without amounts; the clock is halted.
    pub fn new(columns: usize) -> Series {
        Series { columns, width: FIRST.0, values: Vec::new(), offset: None }
    }

    /// The clock goes on; so much of the time until now was left out.
    pub fn begin(&mut self, left_out: Time) {
        self.offset = Some(left_out);
    }

    /// The clock is halted.
    pub fn end(&mut self) {
        self.offset = None;
    }

    /// Adds to a column at a time, which need not be later than the last. While the clock is halted nothing is added.
    #[inline]
    pub fn add(&mut self, column: usize, at: Time, amount: u64) {
        let Some(offset) = self.offset else { return };
        let at = at.saturating_sub(offset).0;
        while at / self.width >= MOST {
            self.widen();
        }
        let place = (at / self.width) as usize * self.columns + column;
        if place >= self.values.len() {
            self.values.resize((place / self.columns + 1) * self.columns, 0);
        }
        self.values[place] += amount;
    }

    /// Length of an interval.
    pub fn width(&self) -> Time {
        Time(self.width)
    }

    /// Makes intervals as long as those of another series.
    pub fn widen_to(&mut self, width: Time) {
        while self.width < width.0 {
            self.widen();
        }
    }

    /// The intervals.
    pub fn intervals(&self) -> impl Iterator<Item = &[u64]> {
        self.values.chunks(self.columns)
    }

    fn widen(&mut self) {
        self.width *= 2;
        let columns = self.columns;
        let pairs = self.values.chunks(2 * columns);
        self.values = pairs
            .flat_map(|pair| (0..columns).map(|column| pair.iter().skip(column).step_by(columns).sum()))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(series: &Series, column: usize) -> u64 {
        series.intervals().map(|interval| interval[column]).sum()
    }

    #[test]
    fn amounts_fall_into_intervals_of_the_time_in_which_the_clock_runs() {
        let mut series = Series::new(2);
        let at = Time::from_nanos;
        series.add(0, at(10), 7);
        assert_eq!(series.intervals().count(), 0, "the clock is halted");
        series.begin(at(1000));
        series.add(0, at(1100), 1);
        series.add(1, at(1600), 2);
        series.add(0, at(1249), 4);
        assert_eq!(series.intervals().collect::<Vec<_>>(), [[5, 0], [0, 0], [0, 2]]);
        series.widen_to(at(400));
        assert_eq!(series.width(), at(500));
        assert_eq!(series.intervals().collect::<Vec<_>>(), [[5, 0], [0, 2]]);
        series.end();
        series.add(0, at(1100), 1);
        assert_eq!((sum(&series, 0), sum(&series, 1)), (5, 2));
    }

    #[test]
    fn however_long_the_time_there_are_few_intervals_and_nothing_is_lost() {
        let mut series = Series::new(1);
        series.begin(Time::ZERO);
        for step in 0..100_000 {
            series.add(0, Time::from_nanos(step * 977), 1);
        }
        let count = series.intervals().count() as u64;
        assert!((MOST / 2..=MOST).contains(&count), "{count}");
        assert_eq!(sum(&series, 0), 100_000);
        series.add(0, Time::MAX, 1);
        assert!(series.intervals().count() as u64 <= MOST && sum(&series, 0) == 100_001);
    }
}
