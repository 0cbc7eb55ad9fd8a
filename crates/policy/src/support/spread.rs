//! New pages over several tiers in given shares: in turns, by draws, or by the kernel's weights.

use crate::{Choice, Placement, Random};
use terrace_model::TierId;

/// How the tier of a page is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Order {
    /// In turns, spread as evenly as the shares allow.
    #[default]
    Turns,
    /// By a draw per page.
    Draw,
    /// In rounds of whole weights, as Linux interleaves: as many pages in a row as a tier's weight.
    Weights,
}

/// The largest sum of [`whole_weights`]: they are small, so that rounds are short.
const LARGEST_WEIGHT: u32 = 32;
/// Tiers that lack as much as this of each other's shares are alike: rounding of sums is no reason to prefer one.
const SAME: f64 = 1e-6;

/// Chooses a tier for each new page, so that the tiers have their shares.
#[derive(Clone, Debug)]
pub struct Spread {
    shares: Vec<f64>,
    placed: Vec<u64>,
    weights: Vec<u32>,
    how: Order,
    random: Random,
}

impl Spread {
    /// Over as many tiers as there are shares, fastest first. Shares are at least 0, and not all are 0.
    pub fn new(shares: &[f64], how: Order, random: Random) -> Spread {
        let sum: f64 = shares.iter().sum();
        Spread {
            shares: shares.iter().map(|share| share / sum).collect(),
            placed: vec![0; shares.len()],
            weights: whole_weights(shares),
            how,
            random,
        }
    }

    /// The share of each tier; the sum is 1.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// Where the next page goes: to its tier, and to the others, fastest first, if that is full.
    pub fn place(&mut self) -> Placement {
        let first = self.choose();
        let rest = (0..self.shares.len()).filter(|tier| *tier != first);
        rest.fold(Placement::tier(tier(first)), |wishes, at| wishes.or(tier(at), None))
    }

    /// The tier of the next page.
    fn choose(&mut self) -> usize {
        let chosen = match self.how {
            Order::Turns => self.furthest_behind(),
            Order::Draw => self.draw(),
            Order::Weights => self.in_round(),
        };
        self.placed[chosen] += 1;
        chosen
    }

    /// The tier that lacks most of its share once this page is counted; the faster of two that lack the same.
    fn furthest_behind(&self) -> usize {
        let pages = self.placed.iter().sum::<u64>() + 1;
        let lacks = |at: usize| self.shares[at] * pages as f64 - self.placed[at] as f64;
        (1..self.shares.len()).fold(0, |best, at| if lacks(at) > lacks(best) + SAME { at } else { best })
    }

    fn draw(&mut self) -> usize {
        let drawn = self.random.unit();
        let mut below = 0.0;
        for (at, share) in self.shares.iter().enumerate() {
            below += share;
            if drawn < below {
                return at;
            }
        }
        // The sum of the shares may be a little less than 1.
        self.shares.iter().rposition(|share| *share > 0.0).unwrap_or(0)
    }

    fn in_round(&self) -> usize {
        let length: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut turn = self.placed.iter().sum::<u64>() % length.max(1);
        for (at, weight) in self.weights.iter().enumerate() {
            match turn.checked_sub(u64::from(*weight)) {
                Some(left) => turn = left,
                None => return at,
            }
        }
        0
    }
}

fn tier(at: usize) -> TierId {
    TierId(at as u8)
}

/// The smallest whole numbers in proportion to the shares, as closely as small numbers allow. A share of 0 has the
/// weight 0, any other at least 1.
pub fn whole_weights(shares: &[f64]) -> Vec<u32> {
    let sum: f64 = shares.iter().sum();
    let scaled = |total: u32| {
        shares.iter().map(move |share| match *share > 0.0 {
            true => (share / sum * f64::from(total)).round().max(1.0) as u32,
            false => 0,
        })
    };
    let error = |total: u32| -> f64 {
        let all: u32 = scaled(total).sum();
        let off = |(weight, share): (u32, &f64)| (f64::from(weight) / f64::from(all) - share / sum).abs();
        scaled(total).zip(shares).map(off).fold(0.0, f64::max)
    };
    let least = shares.iter().filter(|share| **share > 0.0).count() as u32;
    // The first of the best: a larger sum has to be closer to be worth it.
    let best = (least..=LARGEST_WEIGHT.max(least)).min_by(|a, b| {
        let difference = error(*a) - error(*b);
        if difference.abs() < 1e-9 { a.cmp(b) } else { difference.total_cmp(&0.0) }
    });
    scaled(best.unwrap_or(least)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(shares: &[f64], how: Order, pages: usize) -> Vec<usize> {
        let mut spread = Spread::new(shares, how, Random::new(3));
        (0..pages).map(|_| spread.choose()).collect()
    }

    fn counts(chosen: &[usize], tiers: usize) -> Vec<usize> {
        (0..tiers).map(|tier| chosen.iter().filter(|one| **one == tier).count()).collect()
    }

    /// A tier's pages are within one of its share at any time.
    #[test]
    fn turns_keep_the_shares_of_any_number_of_tiers() {
        for shares in
            [&[0.5, 0.5][..], &[0.7, 0.3], &[4.0, 2.0, 1.0], &[1.0, 1.0, 1.0, 1.0], &[0.9, 0.06, 0.03, 0.01]]
        {
            let sum: f64 = shares.iter().sum();
            let chosen = first(shares, Order::Turns, 1000);
            for pages in 1..chosen.len() {
                for (placed, share) in counts(&chosen[..pages], shares.len()).iter().zip(shares) {
                    let exact = share / sum * pages as f64;
                    assert!((*placed as f64 - exact).abs() <= 1.0, "{shares:?}: {placed} of {pages}");
                }
            }
        }
        assert_eq!(first(&[1.0, 1.0], Order::Turns, 4), [0, 1, 0, 1]);
    }

    #[test]
    fn weights_are_as_many_pages_in_a_row() {
        assert_eq!(first(&[200e9, 80e9], Order::Weights, 8), [0, 0, 0, 0, 0, 1, 1, 0]);
        assert_eq!(first(&[2.0, 0.0, 1.0], Order::Weights, 6), [0, 0, 2, 0, 0, 2]);
    }

    #[test]
    fn draws_come_close_to_the_shares() {
        let drawn = counts(&first(&[0.6, 0.3, 0.1], Order::Draw, 10_000), 3);
        for (count, share) in drawn.iter().zip([6000.0, 3000.0, 1000.0]) {
            // Four standard deviations.
            assert!((*count as f64 - share).abs() < 200.0, "{drawn:?}");
        }
        assert_eq!(counts(&first(&[0.0, 1.0, 0.0], Order::Draw, 100), 3), [0, 100, 0]);
    }

    #[test]
    fn weights_are_the_smallest_in_proportion() {
        assert_eq!(whole_weights(&[5.0 / 7.0, 2.0 / 7.0]), [5, 2]);
        assert_eq!(whole_weights(&[0.5, 0.5]), [1, 1]);
        assert_eq!(whole_weights(&[5.0 / 6.0, 1.0 / 6.0]), [5, 1]);
        assert_eq!(whole_weights(&[0.25, 0.25, 0.5]), [1, 1, 2]);
        let close = whole_weights(&[0.7123, 0.2877]);
        let share = f64::from(close[0]) / f64::from(close[0] + close[1]);
        assert!((share - 0.7123).abs() < 0.01, "{close:?}");
    }
}
