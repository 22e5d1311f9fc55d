//! Prefetching of memory.

/// Asks for the cache lines of `items`, without waiting for them.
#[inline(always)]
pub fn prefetch<T>(items: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        let start: *const i8 = items.as_ptr().cast();
        let bytes = size_of_val(items);
        for at in (0..bytes).step_by(LINE).chain(bytes.checked_sub(1)) {
            // SAFETY: a prefetch reads nothing and faults nowhere; all x86-64 CPUs have it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = items;
}
