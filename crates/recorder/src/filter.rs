//! Which accesses are kept: `skip`, `limit` and `every`, counted over all threads in the order of delivery.

use crate::Every;

/// The counting part of what is kept.
#[derive(Clone, Debug)]
pub struct Filter {
    skip: u64,
    limit: Option<u64>,
    every: Option<Every>,
    /// Accesses into the current period.
    position: u64,
}

impl Filter {
    /// Leaves out the first `skip` accesses, then keeps the first `length` of each `period`, up to `limit` kept.
    pub fn new(skip: u64, limit: Option<u64>, every: Option<Every>) -> Filter {
        Filter { skip, limit, every, position: 0 }
    }

    /// Whether the next access is kept, and how many accesses from it share that answer.
    pub fn next(&self) -> (bool, u64) {
        if self.skip > 0 {
            return (false, self.skip);
        }
        let limit = self.limit.unwrap_or(u64::MAX);
        match self.every {
            None => (true, limit),
            Some(every) if self.position < every.length => (true, limit.min(every.length - self.position)),
            Some(every) => (false, every.period - self.position),
        }
    }

    /// Counts `accesses` that were treated as the last [`Filter::next`] said.
    pub fn advance(&mut self, accesses: u64) {
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(accesses);
            return;
        }
        let kept = self.next().0;
        if let Some(every) = self.every {
            self.position += accesses;
            if self.position >= every.period {
                self.position = 0;
            }
        }
        if kept && let Some(limit) = &mut self.limit {
            *limit = limit.saturating_sub(accesses);
        }
    }

    /// Whether no further access will be kept.
    pub fn is_exhausted(&self) -> bool {
        self.limit == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One access at a time.
    fn kept(mut filter: Filter, accesses: u64) -> Vec<u64> {
        (0..accesses)
            .filter(|_| {
                let (keep, run) = filter.next();
                filter.advance(1);
                keep && run > 0
            })
            .collect()
    }

    #[test]
    fn by_hand() {
        let every = Some(Every { period: 4, length: 2 });
        assert_eq!(kept(Filter::new(0, None, None), 4), [0, 1, 2, 3]);
        assert_eq!(kept(Filter::new(2, Some(3), None), 9), [2, 3, 4]);
        assert_eq!(kept(Filter::new(1, None, every), 9), [1, 2, 5, 6]);
        assert_eq!(kept(Filter::new(0, Some(3), every), 12), [0, 1, 4]);
    }

    #[test]
    fn runs_and_single_steps_agree() {
        for (skip, limit, every) in [
            (0, None, Some(Every { period: 10, length: 3 })),
            (7, Some(20), Some(Every { period: 5, length: 5 })),
            (100, Some(9), None),
        ] {
            let mut filter = Filter::new(skip, limit, every);
            let mut runs = Vec::new();
            let mut at = 0;
            while at < 200 && !filter.is_exhausted() {
                let (keep, run) = filter.next();
                let run = run.min(200 - at);
                if keep {
                    runs.extend(at..at + run);
                }
                filter.advance(run);
                at += run;
            }
            assert_eq!(runs, kept(Filter::new(skip, limit, every), 200));
        }
    }
}
