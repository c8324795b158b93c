//! See `anteros_fuzz::extract`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::extract(input));
