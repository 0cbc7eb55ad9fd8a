//! From which load each register's content derives, as a distance: what makes one access depend on another.
//!
//! Sixteen registers, a byte each, so that the whole file of them is one vector register: a load makes every distance
//! one longer, and an effect is a shuffle. In memory each step would wait for the stores of the steps before it.
//! [`Origins`] is the plain form; [`Tracker`] what a decoder needs of it, and [`Vector`] the same in a vector register.

#[cfg(any(test, target_arch = "x86_64"))]
use terrace_protocol::entry::NO_DESTINATION;
use terrace_protocol::entry::{Effect, REGISTERS};

/// Per register, how many loads lie between its origin and now: 0 for the last load, [`UNKNOWN`] for none within reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Origins([u8; REGISTERS]);

/// No origin: one more wraps around to 0, which in a trace says that no dependence is known.
const UNKNOWN: u8 = u8::MAX;

impl Default for Origins {
    fn default() -> Origins {
        Origins([UNKNOWN; REGISTERS])
    }
}

/// The steps of following origins. Register numbers beyond the registers are taken modulo their number, except as a
/// destination, where they mean none.
pub trait Tracker {
    /// How many loads back lies the one that an address made of these registers derives from; 0 for none known.
    fn dependence(&self, registers: [u8; 2]) -> u8;
    /// A load, whose value goes to `destination`.
    fn load(&mut self, destination: u8);
    /// A load or a store; see [`Tracker::load`] for the former. A store changes nothing.
    fn access(&mut self, loads: bool, destination: u8);
    /// What other instructions did.
    fn apply(&mut self, effects: &[Effect]);
}

impl Tracker for Origins {
    fn dependence(&self, registers: [u8; 2]) -> u8 {
        let [base, index] = registers.map(|register| self.0[usize::from(register) % REGISTERS]);
        base.min(index).wrapping_add(1)
    }

    fn load(&mut self, destination: u8) {
        self.0.iter_mut().for_each(|distance| *distance = distance.saturating_add(1));
        if let Some(register) = self.0.get_mut(usize::from(destination)) {
            *register = 0;
        }
    }

    fn access(&mut self, loads: bool, destination: u8) {
        if loads {
            self.load(destination);
        }
    }

    fn apply(&mut self, effects: &[Effect]) {
        for effect in effects {
            self.0[effect.target()] = self.0[effect.first()].min(self.0[effect.second()]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Origins {
    /// In a vector register.
    #[inline(always)]
    pub fn load_vector(&self) -> std::arch::x86_64::__m128i {
        // SAFETY: 16 aligned bytes; every x86-64 processor has SSE2.
        unsafe { std::arch::x86_64::_mm_load_si128(self.0.as_ptr().cast()) }
    }

    /// From a vector register.
    #[inline(always)]
    pub fn store_vector(&mut self, vector: std::arch::x86_64::__m128i) {
        // SAFETY: as above.
        unsafe { std::arch::x86_64::_mm_store_si128(self.0.as_mut_ptr().cast(), vector) };
    }
}

#[cfg(target_arch = "x86_64")]
pub use vector::Vector;

#[cfg(target_arch = "x86_64")]
mod vector {
    use super::*;
    use std::arch::x86_64::*;

    #[repr(align(16))]
    struct Bytes([u8; REGISTERS]);

    /// Shuffles that replace one register by another: at `target << 4 | source`.
    static MOVES: [Bytes; REGISTERS * REGISTERS] = {
        let mut moves = [const { Bytes([0; REGISTERS]) }; REGISTERS * REGISTERS];
        let mut i = 0;
        while i < moves.len() {
            let mut register = 0;
            while register < REGISTERS {
                moves[i].0[register] = register as u8;
                register += 1;
            }
            moves[i].0[i / REGISTERS] = (i % REGISTERS) as u8;
            i += 1;
        }
        moves
    };

    /// What an access does to the distances, by the destination of a load; [`STORE`] for a store. First it adds a step,
    /// then it keeps all but the destination's.
    static ACCESSES: [[Bytes; 2]; 2 * REGISTERS] = {
        let mut accesses = [const { [Bytes([1; REGISTERS]), Bytes([u8::MAX; REGISTERS])] }; 2 * REGISTERS];
        let mut register = 0;
        while register < REGISTERS {
            accesses[register][1].0[register] = 0;
            register += 1;
        }
        accesses[STORE as usize][0] = Bytes([0; REGISTERS]);
        accesses
    };

    const STORE: u8 = NO_DESTINATION + 1;

    #[inline(always)]
    fn load(bytes: &Bytes) -> __m128i {
        // SAFETY: 16 aligned bytes.
        unsafe { _mm_load_si128(bytes.0.as_ptr().cast()) }
    }

    /// [`Origins`] in a vector register, for processors with SSSE3.
    #[derive(Clone, Copy)]
    pub struct Vector(__m128i);

    impl Vector {
        /// Loads the origins into a vector register.
        ///
        /// # Safety
        /// The processor has SSSE3.
        #[inline(always)]
        pub unsafe fn new(origins: &Origins) -> Vector {
            Vector(origins.load_vector())
        }

        /// Stores the origins in memory.
        #[inline(always)]
        pub fn origins(self) -> Origins {
            let mut origins = Origins::default();
            origins.store_vector(self.0);
            origins
        }
    }

    impl Tracker for Vector {
        #[inline(always)]
        fn dependence(&self, registers: [u8; 2]) -> u8 {
            let wanted = i32::from(u16::from_le_bytes(registers) & 0x0f0f);
            // SAFETY: promised to `new`.
            unsafe {
                let both = _mm_shuffle_epi8(self.0, _mm_cvtsi32_si128(wanted));
                let least = _mm_min_epu8(both, _mm_srli_epi16::<8>(both));
                (_mm_cvtsi128_si32(least) as u8).wrapping_add(1)
            }
        }

        #[inline(always)]
        fn load(&mut self, destination: u8) {
            self.access(true, destination);
        }

        #[inline(always)]
        fn access(&mut self, loads: bool, destination: u8) {
            let place = if loads { destination } else { STORE };
            let [step, kept] = &ACCESSES[usize::from(place) % ACCESSES.len()];
            // SAFETY: promised to `new`.
            unsafe {
                self.0 = _mm_and_si128(_mm_adds_epu8(self.0, load(step)), load(kept));
            }
        }

        #[inline(always)]
        fn apply(&mut self, effects: &[Effect]) {
            for effect in effects {
                let [first, second] = effect.0.to_le_bytes();
                let (first, second) = (load(&MOVES[usize::from(first)]), load(&MOVES[usize::from(second)]));
                // SAFETY: promised to `new`.
                self.0 = unsafe {
                    _mm_min_epu8(_mm_shuffle_epi8(self.0, first), _mm_shuffle_epi8(self.0, second))
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_protocol::entry::NO_REGISTER;

    #[test]
    fn distances_by_hand() {
        let mut origins = Origins::default();
        assert_eq!(origins.dependence([0, NO_REGISTER]), 0);
        origins.load(0);
        assert_eq!(origins.dependence([0, NO_REGISTER]), 1);
        origins.load(NO_DESTINATION);
        origins.apply(&[Effect::new(3, 0, NO_REGISTER)]);
        assert_eq!((origins.dependence([NO_REGISTER, 3]), origins.dependence([1, 3])), (2, 2));
        (0..253).for_each(|_| origins.load(1));
        assert_eq!(origins.dependence([3, NO_REGISTER]), 255);
        origins.load(1);
        assert_eq!((origins.dependence([3, NO_REGISTER]), origins.dependence([3, 1])), (0, 1));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_vector_agrees_with_the_plain_form() {
        if !std::arch::is_x86_feature_detected!("ssse3") {
            return;
        }
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) % below) as u8
        };
        let mut plain = Origins::default();
        // SAFETY: asked above.
        let mut vector = unsafe { Vector::new(&plain) };
        for _ in 0..100_000 {
            let registers = [next(16), next(16)];
            match next(3) {
                0 => {
                    let (loads, destination) = (next(2) == 1, next(17));
                    plain.access(loads, destination);
                    vector.access(loads, destination);
                }
                1 => {
                    let effects: Vec<Effect> =
                        (0..next(3)).map(|_| Effect::new(next(16), next(16), next(16))).collect();
                    plain.apply(&effects);
                    vector.apply(&effects);
                }
                _ => assert_eq!(plain.dependence(registers), vector.dependence(registers)),
            }
            assert_eq!(vector.origins(), plain);
        }
    }
}
