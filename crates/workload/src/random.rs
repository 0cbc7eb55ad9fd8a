//! Seeded randomness with the same results on every machine: splitmix64, permutations, Zipf ranks.

/// splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with the mixing
/// constants of its reference implementation.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator's output function: a bijection of 64-bit words.
#[inline(always)]
pub(crate) const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash of `index` under `seed`: the `index`-th output of the generator seeded with `seed`.
#[inline(always)]
pub(crate) const fn hash(seed: u64, index: u64) -> u64 {
    mix(seed.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA)))
}

/// Scales a random word to `0..n` by multiplication; the bias is below n / 2^64.
#[inline(always)]
pub(crate) const fn scale(word: u64, n: u64) -> u64 {
    ((word as u128 * n as u128) >> 64) as u64
}

/// A random word as a number in [0, 1) with 53 random bits.
#[inline(always)]
pub(crate) fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

impl Random {
    /// The generator of one thread: streams of different threads start at unrelated states.
    pub fn new(seed: u64, thread: u32) -> Random {
        Random(mix(seed ^ mix(u64::from(thread).wrapping_add(GOLDEN_GAMMA))))
    }

    /// The next 64 random bits.
    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// Uniform in `0..n`.
    #[inline(always)]
    pub fn below(&mut self, n: u64) -> u64 {
        scale(self.next(), n)
    }

    /// Uniform in [0, 1).
    #[inline(always)]
    pub fn unit(&mut self) -> f64 {
        unit(self.next())
    }
}

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

    #[test]
    fn splitmix64_gives_its_published_first_outputs() {
        // Reference outputs for seed 1234567, as listed with the reference implementation's test vectors.
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        for (index, value) in expected.into_iter().enumerate() {
            assert_eq!(hash(1_234_567, index as u64), value);
        }
    }

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
            let mut random = Random::new(7, 0);
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
