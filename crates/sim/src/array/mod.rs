//! The arrays that caches, TLBs and directories are made of: sets of ways with a recency order.

mod divider;
mod full;
mod huge;
mod order;
mod packed;

pub use divider::Divider;
pub use full::FullyAssociative;
pub use huge::{huge_reserve, huge_vec};
pub use order::{NARROW_MAX_WAYS, ORDER_MAX_WAYS, narrow, wide};
pub use packed::{NO_WAY, PackedSets};

/// Asks the host's memory for an element, ahead of its use. Out of range asks for nothing.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(at) {
        // SAFETY: a prefetch reads nothing, and the address is that of a live element.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}
