//! See `anteros_fuzz::check`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::check(input));
