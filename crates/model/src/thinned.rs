//! A series of moments that stays short however long it goes on.

/// Points of a series, at most: what a chart can show.
pub const POINTS: usize = 64;

/// Keeps at most [`POINTS`] of the points that are added, evenly: when there are too many every second one is dropped, and
/// of those that follow as many are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Thinned<T> {
    points: Vec<T>,
    /// Number of points that are dropped before the next one is kept.
    skip: usize,
    skipped: usize,
}

impl<T> Default for Thinned<T> {
    fn default() -> Thinned<T> {
        Thinned { points: Vec::new(), skip: 0, skipped: 0 }
    }
}

impl<T> Thinned<T> {
    /// One more point; it is only made if it is kept.
    pub fn add(&mut self, point: impl FnOnce() -> T) {
        if self.skipped < self.skip {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        if self.points.len() == POINTS {
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.skip = self.skip * 2 + 1;
        }
        self.points.push(point());
    }

    /// What was kept, in order.
    pub fn points(&self) -> &[T] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_are_kept_and_lie_evenly() {
        for count in [1, 64, 65, 1000, 10_000] {
            let mut thinned = Thinned::default();
            (0..count).for_each(|at| thinned.add(|| at));
            let points = thinned.points();
            assert!(points.len() <= POINTS && points.len() >= POINTS.min(count) / 2, "{count}");
            assert_eq!(points[0], 0);
            let steps: Vec<usize> = points.windows(2).map(|two| two[1] - two[0]).collect();
            assert!(steps.windows(2).all(|two| two[0] == two[1]), "{count}: {steps:?}");
        }
    }
}
