//! What larger pages may cost, and what they have to gain.

/// A region that gains less deserves no larger pages.
pub(super) const LEAST_GAIN_OF_A_REGION: f64 = 0.005;

/// What the user tolerates.
pub(super) struct Bounds {
    /// Memory beyond what base pages have resident, as a share of that.
    pub bloat: f64,
}
