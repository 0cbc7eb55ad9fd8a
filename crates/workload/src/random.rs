//! Permutations and Zipf ranks by a seed, with the same results on every machine.

pub(crate) use terrace_model::random::{Random, hash, mix, scale};

/// A random permutation of `0..n`, computed, not stored: bijective rounds on the next power of two, walked until the
/// result falls inside (cycle walking), fewer than two tries on average.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
    keys: [(u64, u64); 3],
}

impl Permutation {
    pub fn new(n: u64, seed: u64) -> Permutation {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mask = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
        let key = |round: u64| (hash(seed, 2 * round), hash(seed, 2 * round + 1) | 1);
        Permutation { n, mask, shift: bits.div_ceil(2).max(1), keys: [key(0), key(1), key(2)] }
    }

    /// Where `index`, below `n`, goes.
    #[inline(always)]
    pub fn apply(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            for (add, odd) in self.keys {
                x = x.wrapping_add(add).wrapping_mul(odd) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

/// Ranks 0.. `n` - 1 with probability proportional to 1 / (rank + 1)^exponent.
///
/// Rejection-inversion: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", ACM TOMACS 6(3), 1996. Constant time and no table, so the number of keys costs nothing. The
/// elementary functions are those of a portable library, because results must not depend on the system's.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    n: f64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    accept: f64,
}

impl Zipf {
    pub fn new(n: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { n: n as f64, exponent, integral_first: 0.0, integral_last: 0.0, accept: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(n as f64 + 0.5);
        zipf.accept = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank.
    #[inline]
    pub fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.integral_last + random.unit() * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(u);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.accept || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// Antiderivative of the density, written so that it stays exact as the exponent nears 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let t = (1.0 - self.exponent) * log;
        if t.abs() > 1e-8 { libm::expm1(t) / t * log } else { (1.0 + t / 2.0) * log }
    }

    fn integral_inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        let log = if t.abs() > 1e-8 { libm::log1p(t) / t * x } else { (1.0 - t / 2.0) * x };
        libm::exp(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_permutation_hits_every_index_once(n in 1u64..3000, seed: u64) {
            let permutation = Permutation::new(n, seed);
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                prop_assert!(!std::mem::replace(&mut seen[permutation.apply(i) as usize], true));
            }
        }
    }

    #[test]
    fn zipf_frequencies_match_theory() {
        for exponent in [0.5, 0.99, 1.0, 1.3] {
            let (n, samples) = (1000u64, 400_000u64);
            let zipf = Zipf::new(n, exponent);
            let mut random = Random::of_thread(7, 0);
            let mut counts = vec![0u64; n as usize];
            for _ in 0..samples {
                counts[zipf.sample(&mut random) as usize] += 1;
            }
            let harmonic: f64 = (1..=n).map(|k| (k as f64).powf(-exponent)).sum();
            for rank in [0u64, 1, 2, 9, 99, 999] {
                let expected = samples as f64 * ((rank + 1) as f64).powf(-exponent) / harmonic;
                let deviation = (counts[rank as usize] as f64 - expected).abs();
                // Five standard deviations of a binomial count.
                assert!(
                    deviation < 5.0 * expected.sqrt() + 1.0,
                    "exponent {exponent} rank {rank}: {deviation}"
                );
            }
        }
    }
}
