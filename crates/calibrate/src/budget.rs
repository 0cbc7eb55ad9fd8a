//! How much a calibration may take.

/// Memory and repetitions of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most bytes mapped at a time.
    pub bytes: usize,
    /// Repetitions of each measurement.
    pub rounds: usize,
    /// Loads of each repetition of a chase.
    pub steps: usize,
}

impl Budget {
    /// About a minute, and a gigabyte.
    pub const FULL: Budget = Budget { bytes: 1 << 30, rounds: 11, steps: 300_000 };
    /// A few seconds, and a quarter of a gigabyte, which large caches hold in part.
    pub const QUICK: Budget = Budget { bytes: 256 << 20, rounds: 5, steps: 30_000 };
    /// As little as runs at all; the results mean nothing.
    pub const TINY: Budget = Budget { bytes: 8 << 20, rounds: 1, steps: 500 };
}
