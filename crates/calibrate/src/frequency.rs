//! The clock of a busy core, by instructions that take one cycle each.

use crate::clock::OwnTime;
use crate::spread::Spread;

/// Cycles per second, by a chain of additions of one cycle each; none on processors whose additions are not known here.
pub fn frequency(rounds: usize, steps: usize) -> Option<Spread> {
    let mut rates = Vec::new();
    for round in 0..=rounds {
        let mut value = 0u64;
        let begin = OwnTime::now();
        for _ in 0..steps {
            value = add_hundred_times(value)?;
        }
        let took = begin.nanos() / 1e9;
        // The first round wakes the core up.
        if round > 0 && value > 0 {
            rates.push(value as f64 / took);
        }
    }
    Some(Spread::of(rates))
}

/// Adds 1 so often. What is added lies in a register: cores add up constants while they rename registers (Intel since Golden
/// Cove), several in a cycle.
#[inline(always)]
fn add_hundred_times(value: u64) -> Option<u64> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut value = value;
        // SAFETY: Adds to a register.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                ".rept 100", "add {0}, {1}", ".endr",
                inout(reg) value, in(reg) 1_u64,
                options(nomem, nostack)
            );
        }
        // SAFETY: Adds to a register.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                ".rept 100", "add {0}, {0}, {1}", ".endr",
                inout(reg) value, in(reg) 1_u64,
                options(nomem, nostack)
            );
        }
        Some(value)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = value;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_additions_add_a_hundred() {
        assert_eq!(add_hundred_times(5), Some(105));
    }

    #[test]
    fn a_clock_is_found() {
        let found = frequency(2, 1000).unwrap();
        assert!(found.median > 0.0 && found.count == 2, "{found:?}");
    }
}
