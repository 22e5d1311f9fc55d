#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fpcache_fuzz::snapshot(bytes));
