//! Copies between private memory and memory that others may change, in aligned 8-byte words.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Copies `len` bytes from shared `src` to private `dst`.
///
/// # Safety
/// `src..src + len` lies in a mapping whose whole words are mapped too and are only accessed
/// atomically; `dst..dst + len` is valid for writes and not shared.
#[inline]
pub(super) unsafe fn load_bytes(mut src: *const u8, mut dst: *mut u8, mut len: usize) {
    let skew = src as usize & 7;
    if skew != 0 && len > 0 {
        let part = len.min(8 - skew);
        // SAFETY: the word that `src` lies in starts `skew` bytes before and is mapped; `part`
        // bytes fit both sides.
        unsafe { load_part(src.sub(skew).cast(), skew, dst, part) };
        // SAFETY: `part <= len`, so both pointers stay in bounds or one past the end.
        unsafe { (src, dst) = (src.add(part), dst.add(part)) };
        len -= part;
    }
    let words = len / 8;
    // SAFETY: `src` is 8-aligned now (or `len` is 0); `words * 8 <= len` bytes are valid on both
    // sides.
    unsafe { load_words(src.cast(), dst, words) };
    let done = words * 8;
    if done < len {
        // SAFETY: `done < len`: the last, partial word starts inside the range, so it is mapped as
        // a whole.
        unsafe { load_part(src.add(done).cast(), 0, dst.add(done), len - done) };
    }
}

/// Words that are copied at once where the processor can.
pub(super) const CHUNK_WORDS: usize = 8;

/// Copies a few words from shared `src`: fewer than one chunk, without what longer copies have to
/// find out first.
///
/// # Safety
/// `src` is 8-aligned with `out.len()` mapped words that are only accessed atomically.
#[inline(always)]
pub(super) unsafe fn load_few_words(src: *const u64, out: &mut [u64]) {
    for (index, word) in out.iter_mut().enumerate() {
        // SAFETY: `index < out.len()`, by contract; a relaxed load does not need write permission.
        *word = unsafe { AtomicU64::from_ptr(src.add(index).cast_mut()) }.load(Relaxed);
    }
}

/// Copies `len` bytes from private `src` to shared `dst`.
///
/// # Safety
/// `dst..dst + len` lies in a writable mapping whose whole words are mapped too and are only
/// accessed atomically; `src..src + len` is valid for reads and not changed meanwhile.
#[inline]
pub(super) unsafe fn store_bytes(mut dst: *mut u8, mut src: *const u8, mut len: usize) {
    let skew = dst as usize & 7;
    if skew != 0 && len > 0 {
        let part = len.min(8 - skew);
        // SAFETY: the word that `dst` lies in starts `skew` bytes before and is mapped; `part`
        // bytes fit both sides.
        unsafe { store_part(dst.sub(skew).cast(), skew, src, part) };
        // SAFETY: `part <= len`, so both pointers stay in bounds or one past the end.
        unsafe { (src, dst) = (src.add(part), dst.add(part)) };
        len -= part;
    }
    let words = len / 8;
    // SAFETY: `dst` is 8-aligned now (or `len` is 0); `words * 8 <= len` bytes are valid on both
    // sides.
    unsafe { store_words(dst.cast(), src, words) };
    let done = words * 8;
    if done < len {
        // SAFETY: `done < len`: the last, partial word starts inside the range, so it is mapped as
        // a whole.
        unsafe { store_part(dst.add(done).cast(), 0, src.add(done), len - done) };
    }
}

/// Copies bytes `skew..skew + part` of one shared word out.
///
/// # Safety
/// `word` is 8-aligned, mapped and accessed atomically; `skew + part <= 8`; `dst` takes `part`
/// bytes.
#[inline]
unsafe fn load_part(word: *const u64, skew: usize, dst: *mut u8, part: usize) {
    // SAFETY: by contract; a relaxed load does not need write permission.
    let bytes = unsafe { AtomicU64::from_ptr(word.cast_mut()) }.load(Relaxed).to_le_bytes();
    // SAFETY: `skew + part <= 8` bytes of the private copy, and `dst` takes `part`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().add(skew), dst, part) };
}

/// Merges `part` bytes into one shared word at byte `skew`.
///
/// # Safety
/// `word` is 8-aligned, mapped, writable and accessed atomically; `skew + part <= 8`; `src` holds
/// `part` bytes.
unsafe fn store_part(word: *mut u64, skew: usize, src: *const u8, part: usize) {
    // SAFETY: by contract.
    let word = unsafe { AtomicU64::from_ptr(word) };
    let mut old = word.load(Relaxed);
    loop {
        let mut bytes = old.to_le_bytes();
        // SAFETY: `skew + part <= 8` bytes of the private copy, and `src` holds `part`.
        unsafe { std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr().add(skew), part) };
        match word.compare_exchange_weak(old, u64::from_le_bytes(bytes), Relaxed, Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// # Safety
/// `src` is 8-aligned with `words` mapped words that are only accessed atomically; `dst` takes
/// `words * 8` bytes.
#[inline]
unsafe fn load_words(src: *const u64, dst: *mut u8, words: usize) {
    // SAFETY: the same range on both sides.
    let mut done = unsafe { copy_chunks(src.cast(), dst, words) };
    if 0 < done && done < words {
        // The last eight words as one more chunk: some are copied twice, which is quicker than a
        // loop over the rest.
        let last = words - 8;
        // SAFETY: at least eight words were copied, so the eight before `words` lie in the range on
        // both sides.
        done = last + unsafe { copy_chunks(src.add(last).cast(), dst.add(8 * last), 8) };
    }
    for index in done..words {
        // SAFETY: `index < words`, by contract.
        let value = unsafe { AtomicU64::from_ptr(src.add(index).cast_mut()) }.load(Relaxed);
        // SAFETY: `dst` takes `words * 8` bytes, at any alignment.
        unsafe { dst.cast::<u64>().add(index).write_unaligned(value) };
    }
}

/// # Safety
/// `dst` is 8-aligned with `words` mapped, writable words that are only accessed atomically; `src`
/// holds `words * 8` bytes.
#[inline]
unsafe fn store_words(dst: *mut u64, src: *const u8, words: usize) {
    // SAFETY: the same range on both sides.
    let done = unsafe { copy_chunks(src, dst.cast(), words) };
    for index in done..words {
        // SAFETY: `src` holds `words * 8` bytes, at any alignment.
        let value = unsafe { src.cast::<u64>().add(index).read_unaligned() };
        // SAFETY: `index < words`, by contract.
        unsafe { AtomicU64::from_ptr(dst.add(index)) }.store(value, Relaxed);
    }
}

/// Copies the whole 64-byte chunks in `words` words by vector moves, and returns how many words it
/// copied.
///
/// # Safety
/// `src` holds and `dst` takes `words * 8` bytes; one of them is shared, 8-aligned and accessed
/// atomically elsewhere.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_chunks(src: *const u8, dst: *mut u8, words: usize) -> usize {
    let chunks = words / 8;
    if chunks > 0 {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512; the caller vouches for `chunks * 64` bytes on both
            // sides.
            unsafe { copy_chunks_avx512(src, dst, chunks) };
        } else {
            // SAFETY: the caller vouches for `chunks * 64` bytes on both sides.
            unsafe { copy_chunks_sse2(src, dst, chunks) };
        }
    }
    chunks * 8
}

/// One move per chunk: the fewer instructions a copy takes, the more of what follows it the
/// processor has begun while it waits for memory.
///
/// # Safety
/// As for [`copy_chunks`], with `chunks >= 1` chunks of 64 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx512f")]
#[inline(never)]
unsafe fn copy_chunks_avx512(src: *const u8, dst: *mut u8, chunks: usize) {
    // SAFETY: The loop runs `chunks >= 1` times over 64 bytes on each side, which the caller
    // vouches for; it touches no other memory and no stack. Racing accesses to the shared side are
    // as sound as relaxed word atomics: processors do not tear an aligned 8-byte part of a move.
    // `vzeroupper` also changes vector registers that are not named here: the function keeps
    // nothing in them, and as it is never inlined its callers do not either, for whom calls clobber
    // all.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu64 {a}, zmmword ptr [{src}]",
            "vmovdqu64 zmmword ptr [{dst}], {a}",
            "add {src}, 64",
            "add {dst}, 64",
            "dec {n}",
            "jnz 2b",
            // Upper halves left dirty would slow down every SSE instruction from here on.
            "vzeroupper",
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            n = inout(reg) chunks => _,
            a = out(zmm_reg) _,
            options(nostack),
        );
    }
}

/// # Safety
/// As for [`copy_chunks`], with `chunks >= 1` chunks of 64 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_chunks_sse2(src: *const u8, dst: *mut u8, chunks: usize) {
    // SAFETY: SSE2 is part of x86-64; otherwise as in `copy_chunks_avx512`.
    unsafe {
        std::arch::asm!(
            "2:",
            "movdqu {a}, [{src}]",
            "movdqu {b}, [{src} + 16]",
            "movdqu {c}, [{src} + 32]",
            "movdqu {d}, [{src} + 48]",
            "movdqu [{dst}], {a}",
            "movdqu [{dst} + 16], {b}",
            "movdqu [{dst} + 32], {c}",
            "movdqu [{dst} + 48], {d}",
            "add {src}, 64",
            "add {dst}, 64",
            "dec {n}",
            "jnz 2b",
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            n = inout(reg) chunks => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Elsewhere the word loop does it all.
///
/// # Safety
/// None needed; the signature is the other one's.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
unsafe fn copy_chunks(_src: *const u8, _dst: *mut u8, _words: usize) -> usize {
    0
}

/// Hints that the cache line at `line` will be read soon. Any address is allowed.
#[inline]
pub(super) fn prefetch_line(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // Into the first-level cache, where what is looked at in place is wanted.
    // SAFETY: a prefetch never faults and changes no state the program can see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch never faults and changes no state the program can see.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line,
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}
